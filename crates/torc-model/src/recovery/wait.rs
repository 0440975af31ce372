//! How long a service asks to wait before the next try.

use super::pattern::ascii;
use super::text::Excerpt;
use regex::Regex;
use std::sync::LazyLock;

/// More than this is not waited for because a text says so.
const LONGEST: f64 = 3600.0;

static ASKED: LazyLock<Regex> = LazyLock::new(|| {
    ascii(
        r#"(?i)\b(?:retry[-_ ]after|retryafter|retry in|try again (?:in|after)|wait(?:ing)?(?: for)?)["']?\s*[:=]?\s*["']?(\d{1,6}(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)?\b"#,
    )
});

/// The last wait that was asked for: `Retry-After: 30`, `try again in 2 minutes`. A bare number is
/// seconds.
pub fn asked_wait(excerpts: &[Excerpt]) -> Option<f64> {
    let found = excerpts.iter().flat_map(|e| ASKED.captures_iter(&e.text)).last()?;
    let number: f64 = found[1].parse().ok()?;
    let unit = found.get(2).map_or("s", |unit| unit.as_str()).to_ascii_lowercase();
    let seconds = match unit.as_str() {
        "ms" => number / 1000.0,
        unit if unit.starts_with("milli") => number / 1000.0,
        unit if unit.starts_with('m') => number * 60.0,
        unit if unit.starts_with('h') => number * 3600.0,
        _ => number,
    };
    (seconds > 0.0).then_some(seconds.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::super::text::Stream;
    use super::*;

    #[test]
    fn what_a_service_asks_for_is_read_and_bounded() {
        for (text, seconds) in [
            ("< HTTP/1.1 429 Too Many Requests\n< Retry-After: 30\n", Some(30.0)),
            ("{'retry-after': '12'}", Some(12.0)),
            ("Rate limit reached. Please try again in 2 minutes.", Some(120.0)),
            ("RequestLimitExceeded: retry after 1.5s", Some(1.5)),
            ("slow down, retry in 250ms", Some(0.25)),
            ("Retry-After: 5\nRetry-After: 9\n", Some(9.0)),
            ("Retry-After: 999999", Some(LONGEST)),
            ("Retry-After: 0", None),
            ("connection refused", None),
        ] {
            let excerpt = Excerpt { stream: Stream::Stderr, start: 0, text: text.into() };
            assert_eq!(asked_wait(&[excerpt]), seconds, "{text}");
        }
    }
}
