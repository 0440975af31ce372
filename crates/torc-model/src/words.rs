//! Counts in the words of people, and the one place through which sentences for people go.

/// A sentence for people. Nothing may be decided by it: debug builds with
/// `TORC_SCRAMBLED_MESSAGES` set show every sentence as the same noise, and all tests that are not
/// about wording must pass all the same.
pub fn label(text: &'static str) -> &'static str {
    if is_scrambled() { NOISE } else { text }
}

/// Like [`label`], for a sentence that was composed.
pub fn message(text: impl Into<String>) -> String {
    if is_scrambled() { NOISE.to_owned() } else { text.into() }
}

/// The words are in the text, or noise that may stand for them. Only tests ask.
pub fn has(text: &str, words: &str) -> bool {
    text.contains(words) || is_scrambled() && text.contains(NOISE)
}

const NOISE: &str = "~#~ ~~#~";

#[cfg(debug_assertions)]
fn is_scrambled() -> bool {
    static IS_SCRAMBLED: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("TORC_SCRAMBLED_MESSAGES").is_some());
    *IS_SCRAMBLED
}

#[cfg(not(debug_assertions))]
const fn is_scrambled() -> bool {
    false
}

/// `1 job`, `3 jobs`, `12,345 retries`.
pub fn count(number: impl TryInto<i64>, noun: &str) -> String {
    // No count comes near that many.
    let number = number.try_into().unwrap_or(i64::MAX);
    if number == 1 { format!("1 {noun}") } else { format!("{} {}", grouped(number), plural(noun)) }
}

/// `12,345`.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    if number < 0 {
        out.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// More than one of something.
fn plural(noun: &str) -> String {
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if noun.ends_with('s') => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// About how long: `40 s`, `3 min`, `2.5 h`, `4 days`.
pub fn duration(seconds: f64) -> String {
    match seconds.max(0.0) {
        few if few < 9.95 => format!("{few:.1} s"),
        few if few < 90.0 => format!("{few:.0} s"),
        more if more < 90.0 * 60.0 => format!("{:.0} min", more / 60.0),
        more if more < 48.0 * 3600.0 => format!("{:.1} h", more / 3600.0),
        long => format!("{:.0} days", long / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thing_is_no_plural() {
        assert_eq!(count(1, "job"), "1 job");
        assert_eq!(count(0_usize, "job"), "0 jobs");
        assert_eq!(count(12_345, "retry"), "12,345 retries");
        assert_eq!(count(2_u32, "process"), "2 processes");
        assert_eq!(count(2, "day"), "2 days");
        assert_eq!(count(u64::MAX, "CPU"), "9,223,372,036,854,775,807 CPUs");
        assert_eq!(grouped(-1_000), "-1,000");
        assert_eq!(grouped(999), "999");
    }
}
