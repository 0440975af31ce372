//! Values with a syntax of their own: parameter values, signals, and what Slurm reads.

use crate::diagnostic::{excerpt, suggest};
use serde_json::{Number, Value};
use torc_model::signal;
use torc_model::units::{Memory, Runtime};

/// What is wrong with a value, and what to write instead.
#[derive(Debug, PartialEq)]
pub struct ValueError {
    /// What is wrong.
    pub message: String,
    /// What to write.
    pub help: Option<String>,
}

impl ValueError {
    fn new(message: String, help: &str) -> Self {
        Self { message, help: Some(help.into()) }
    }
}

/// A range or list with more values than this is refused.
pub const MAX_VALUES: usize = 1_000_000;

/// Reads the values of a parameter from text: `1:10`, `0:1:0.25`, `[a, 'b,c', 3]`, or one value.
pub fn parameter_text(text: &str) -> Result<Vec<Value>, ValueError> {
    let mut text = text.trim();
    if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
        && !inner.contains(',')
    {
        text = inner.trim();
    }
    if let Some(inner) = text.strip_prefix('[') {
        let Some(inner) = inner.strip_suffix(']') else {
            return Err(ValueError::new(
                format!("the list `{}` is not closed", excerpt(text)),
                "end it with `]`",
            ));
        };
        return list(inner);
    }
    if text.contains(':')
        && let Some(values) = range(text)?
    {
        return Ok(values);
    }
    Ok(vec![single(text)])
}

/// The elements between brackets; quotes protect commas.
fn list(inner: &str) -> Result<Vec<Value>, ValueError> {
    let mut values = Vec::new();
    let mut rest = inner.trim();
    while !rest.is_empty() {
        if values.len() >= MAX_VALUES {
            return Err(too_many());
        }
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        // A quote only opens if it also closes right before the next comma; else it is part of the
        // value.
        let closed = quote.and_then(|quote| {
            let (value, after) = rest[1..].split_once(quote)?;
            let after = after.trim_start();
            (after.is_empty() || after.starts_with(',')).then_some((value, after))
        });
        let after = match closed {
            Some((value, after)) => {
                values.push(Value::from(value));
                after
            }
            None if quote.is_some() => {
                let message =
                    format!("the quote before `{}` is not closed", excerpt(rest[1..].trim()));
                return Err(ValueError::new(
                    message,
                    "quote each value on its own: `['a', 'b,c']`",
                ));
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let value = rest[..end].trim();
                if value.is_empty() {
                    return Err(ValueError::new(
                        "a value of this list is empty".into(),
                        "write `''` for empty text",
                    ));
                }
                values.push(single(value));
                &rest[end..]
            }
        };
        rest = after.strip_prefix(',').map_or(after, str::trim_start);
    }
    Ok(values)
}

fn single(text: &str) -> Value {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    // `inf`, `nan` and `infinity` are words here, not numbers.
    let numeric =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    let float = numeric.then(|| text.parse::<f64>().ok().and_then(Number::from_f64)).flatten();
    float.map_or_else(|| Value::from(text), Value::Number)
}

/// `start:end[:step]`, both ends included. None if it does not look like a range at all, such as a
/// URL.
fn range(text: &str) -> Result<Option<Vec<Value>>, ValueError> {
    const HELP: &str = "write a range as `start:end` or `start:end:step`; to use it as plain text, write a list: `['...']`";
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let numbers: Vec<Option<f64>> = parts.iter().map(|part| single(part).as_f64()).collect();
    if numbers.iter().all(Option::is_none) {
        return Ok(None);
    }
    let (Some(numbers), 2..=3) = (numbers.into_iter().collect::<Option<Vec<f64>>>(), parts.len())
    else {
        return Err(ValueError::new(format!("`{}` is not a range", excerpt(text)), HELP));
    };
    let step = numbers.get(2).copied().unwrap_or(1.0);
    let (start, end) = (numbers[0], numbers[1]);
    if step == 0.0 {
        return Err(ValueError::new(format!("the step of `{text}` is zero"), HELP));
    }
    if (end - start) * step < 0.0 {
        let help = format!(
            "write `{}:{}:{}` to count down",
            parts[0],
            parts[1],
            parts.get(2).map_or("-1", |step| step.trim_start_matches('-'))
        );
        return Err(ValueError {
            message: format!("the range `{text}` is empty"),
            help: Some(help),
        });
    }
    let count = ((end - start) / step + 1e-9).floor();
    if count.is_nan() || count >= MAX_VALUES as f64 {
        return Err(too_many());
    }
    let count = count as i64;
    let whole: Option<Vec<i64>> = parts.iter().map(|part| part.parse().ok()).collect();
    if let Some(whole) = whole {
        let step = whole.get(2).copied().unwrap_or(1);
        let value = |n: i64| whole[0].checked_add(n.checked_mul(step)?);
        let values: Option<Vec<Value>> = (0..=count).map(|n| value(n).map(Value::from)).collect();
        return values
            .map(Some)
            .ok_or_else(|| ValueError::new(format!("the range `{text}` is too large"), HELP));
    }
    // As many decimals as were written, so that 0.1:0.3:0.1 gives 0.3 and not 0.30000000000000004.
    let decimals = parts.iter().map(|part| decimals(part)).max().unwrap_or(0);
    let value = |n: i64| {
        format!("{:.decimals$}", start + n as f64 * step)
            .parse::<f64>()
            .ok()
            .and_then(Number::from_f64)
    };
    Ok((0..=count).map(|n| value(n).map(Value::Number)).collect())
}

fn too_many() -> ValueError {
    ValueError { message: format!("more than {MAX_VALUES} values"), help: None }
}

/// How many digits follow the point; an exponent shifts it.
fn decimals(text: &str) -> usize {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let written = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let shift: i64 = exponent.parse().unwrap_or(0);
    usize::try_from(i64::try_from(written).unwrap_or(0).saturating_sub(shift)).unwrap_or(0).min(300)
}

/// Canonical `HH:MM:SS` or `D-HH:MM:SS`. As for `sbatch`, a bare number is minutes.
pub fn walltime(text: &str) -> Result<String, String> {
    let text = text.trim();
    let seconds = match text.parse::<u64>() {
        Ok(minutes) => minutes.saturating_mul(60),
        Err(_) => Runtime::parse(&dashed(text)).map_err(|error| error.0)?.0,
    };
    if seconds == 0 || seconds > 10 * 365 * 86_400 {
        return Err(format!("`{}` is not a possible length of an allocation", excerpt(text)));
    }
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    Ok(if days > 0 { format!("{days}-{clock}") } else { clock })
}

/// `1-12` means one day and twelve hours.
fn dashed(text: &str) -> String {
    match text.split_once('-') {
        Some((days, hours))
            if !hours.contains(':')
                && !days.is_empty()
                && days.bytes().all(|b| b.is_ascii_digit()) =>
        {
            format!("{text}:00")
        }
        _ => text.to_owned(),
    }
}

/// What `--mem` and `--tmp` take: a whole number with an optional letter. Friendlier spellings
/// become one.
pub fn slurm_memory(text: &str) -> Result<String, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if whole && matches!(&text[digits.len()..], "" | "k" | "K" | "m" | "M" | "g" | "G" | "t" | "T")
    {
        return Ok(text.to_ascii_lowercase());
    }
    let memory = Memory::parse(text).map_err(|error| error.0)?;
    let kib = memory.0.div_ceil(1024) * 1024;
    Ok(Memory(kib).to_string())
}

/// Options of `sbatch` that come from the scheduler's own keys or from Torc.
const MANAGED: [&str; 8] =
    ["partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name"];

/// The canonical spelling of an `sbatch` option.
pub fn slurm_option(key: &str) -> Result<String, String> {
    let option = key.trim_start_matches("--").replace('_', "-").to_ascii_lowercase();
    if MANAGED.contains(&option.as_str()) {
        return Err(format!(
            "`{}` cannot be a default: Torc sets it for each allocation",
            excerpt(key)
        ));
    }
    let plain = option.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if option.is_empty() || !plain || option.starts_with('-') {
        return Err(format!("`{}` is not the long name of an sbatch option", excerpt(key)));
    }
    Ok(option)
}

/// `SIGSEGV`, `segv` or `11`, as `SIGSEGV`.
pub fn signal(text: &str) -> Result<String, String> {
    let known = signal::number(text)
        .map(signal::name)
        .filter(|name| signal::names().any(|known| known == name));
    known.ok_or_else(|| {
        let help = suggest(&text.trim().to_ascii_uppercase(), signal::names()).unwrap_or_default();
        format!("`{}` is not a signal; {help}", excerpt(text))
    })
}

/// `TERM@120`, as `SIGTERM@120`: a signal and how many seconds early it comes.
pub fn early_signal(text: &str) -> Result<String, String> {
    let expected =
        || format!("`{}` is not a signal with seconds, such as `TERM@120`", excerpt(text));
    let (name, seconds) = text.split_once('@').ok_or_else(expected)?;
    let seconds: u32 = seconds.trim().parse().map_err(|_| expected())?;
    if !(1..=MOST_EARLY_SECONDS).contains(&seconds) {
        return Err(format!("{seconds} s is not between 1 and {MOST_EARLY_SECONDS}"));
    }
    Ok(format!("{}@{seconds}", signal(name)?))
}

/// Slurm's own bound of `--signal`.
const MOST_EARLY_SECONDS: u32 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameter_values_read_every_form() {
        let cases = [
            ("1:4", json!([1, 2, 3, 4])),
            ("{1:3}", json!([1, 2, 3])),
            ("0:10:5", json!([0, 5, 10])),
            ("5:1:-2", json!([5, 3, 1])),
            ("0.1:0.5:0.1", json!([0.1, 0.2, 0.3, 0.4, 0.5])),
            ("0:1:0.25", json!([0.0, 0.25, 0.5, 0.75, 1.0])),
            ("1e-3:3e-3:1e-3", json!([0.001, 0.002, 0.003])),
            ("[a,b]", json!(["a", "b"])),
            ("['a,b', \"c:d\", 3, 0.5, x y]", json!(["a,b", "c:d", 3, 0.5, "x y"])),
            ("['5', '']", json!(["5", ""])),
            ("[it's, b]", json!(["it's", "b"])),
            ("[]", json!([])),
            ("https://example.org/a", json!(["https://example.org/a"])),
            ("adam", json!(["adam"])),
            ("0.5", json!([0.5])),
            ("inf", json!(["inf"])),
            ("3", json!([3])),
        ];
        for (text, expected) in cases {
            assert_eq!(parameter_text(text).map(Value::from), Ok(expected), "{text}");
        }
        for bad in [
            "1:2:0",
            "5:1",
            "1:x",
            "1:2:3:4",
            "[a",
            "['a, b]",
            "[a,,b]",
            "1:9999999999",
            "0:1:1e-9",
        ] {
            assert!(parameter_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn slurm_values_become_canonical() {
        for (text, canonical) in [
            ("30", "00:30:00"),
            ("04:00:00", "04:00:00"),
            ("2h", "02:00:00"),
            ("1-12", "1-12:00:00"),
            ("36:00:00", "1-12:00:00"),
        ] {
            assert_eq!(walltime(text).as_deref(), Ok(canonical));
        }
        assert!(walltime("soon").is_err() && walltime("0").is_err());
        for (text, canonical) in
            [("8G", "8g"), ("8000", "8000"), ("1.5g", "1536m"), ("8 GB", "8g"), ("0", "0")]
        {
            assert_eq!(slurm_memory(text).as_deref(), Ok(canonical));
        }
        assert_eq!(slurm_option("mail_type").as_deref(), Ok("mail-type"));
        assert!(slurm_option("time").is_err() && slurm_option("a b").is_err());
        assert_eq!(signal("segv").as_deref(), Ok("SIGSEGV"));
        assert_eq!(signal("9").as_deref(), Ok("SIGKILL"));
    }
}
