//! Regular expressions for what programs print.

use regex::Regex;

/// Compiles a constant pattern whose `\w`, `\d`, `\s` and `\b` mean ASCII. With all of Unicode in
/// these classes a pattern takes ten times as long to compile, and a command that decides about one
/// failure spends most of its time there.
pub fn ascii(pattern: &str) -> Regex {
    let classes = [
        (r"\w", "[[:word:]]"),
        (r"\d", "[0-9]"),
        (r"\D", "[^0-9]"),
        (r"\s", "[[:space:]]"),
        (r"\S", "[^[:space:]]"),
        (r"\b", r"(?-u:\b)"),
    ];
    let mut text = pattern.to_owned();
    for (class, ascii) in classes {
        text = text.replace(class, ascii);
    }
    Regex::new(&text).unwrap_or_else(|error| panic!("a constant pattern: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_mean_ascii_also_inside_of_brackets() {
        let name = ascii(r"^[^\w.-]*([\w.-]+)\b\s*=\s*(\d+)\S*$");
        let found = name.captures("«a.b_1 = 42%").expect("a setting");
        assert_eq!((&found[1], &found[2]), ("a.b_1", "42"));
        assert!(!name.is_match("é = 42"));
    }
}
