//! How far a program had come, by its own words.

use super::pattern::ascii;
use super::text::{Excerpt, Stream};
use regex::Regex;
use std::sync::LazyLock;

/// How far a program had come.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Share that was done, 0..1.
    pub share: f64,
    /// The words that tell it.
    pub words: String,
}

struct ProgressPatterns {
    of: Regex,
    percent: Regex,
    measure: Regex,
    number: Regex,
}

static PATTERNS: LazyLock<ProgressPatterns> = LazyLock::new(|| ProgressPatterns {
    of: ascii(
        r"(?:^|[^\w./:-])(\d{1,12})\s*(?:/|of|out of|von|sur)\s*(\d{1,12})(?:[^\w/:.]|\.?$|\.\D)",
    ),
    percent: ascii(r"(?:^|[^\w.])(\d{1,3}(?:\.\d+)?) ?%"),
    measure: ascii(
        r"(?i)\b(residual|error|err|loss|change|delta|norm|gap|objective|cost|rmse|energy)\b\s*[=:]?\s*(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)",
    ),
    number: ascii(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"),
});

/// Lines of a stream; what is written over itself counts as lines.
fn lines(excerpts: &[Excerpt], stream: Stream) -> impl Iterator<Item = &str> {
    let parts = excerpts.iter().filter(move |e| e.stream == stream);
    parts.flat_map(|e| e.text.split(['\n', '\r'])).filter(|line| !line.trim().is_empty())
}

/// How far it had come, by the last line that counts up to something.
pub fn progress(excerpts: &[Excerpt]) -> Option<Progress> {
    let patterns = &*PATTERNS;
    [Stream::Stderr, Stream::Stdout]
        .into_iter()
        .filter_map(|stream| {
            let mut seen: Vec<(f64, f64, &str)> = Vec::new();
            for line in lines(excerpts, stream) {
                let counted = patterns.of.captures(line).and_then(|found| {
                    let (done, all): (f64, f64) = (found[1].parse().ok()?, found[2].parse().ok()?);
                    (all > 1.0 && done <= all).then_some((done, all))
                });
                let share = patterns.percent.captures(line).and_then(|found| {
                    found[1].parse::<f64>().ok().filter(|p| *p <= 100.0).map(|p| (p, 100.0))
                });
                if let Some((done, all)) = counted.or(share) {
                    seen.push((done, all, line));
                }
            }
            let &(done, all, line) = seen.last()?;
            // One line may be anything; a count that grows towards the same end is progress.
            let grows = seen.iter().filter(|(d, a, _)| *a == all && *d < done).count() >= 2;
            (grows && done > 0.0).then(|| Progress { share: done / all, words: line.trim().into() })
        })
        .max_by(|a, b| a.share.total_cmp(&b.share))
}

/// The line that says it no longer gets anywhere: what it measures has not changed for long.
pub fn stagnation(excerpts: &[Excerpt]) -> Option<String> {
    const ENOUGH: usize = 3;
    let patterns = &*PATTERNS;
    [Stream::Stderr, Stream::Stdout].into_iter().find_map(|stream| {
        let measured: Vec<(String, &str, &str)> = lines(excerpts, stream)
            .filter_map(|line| {
                let found = patterns.measure.captures(line)?;
                let template = patterns.number.replace_all(line, "0").into_owned();
                Some((template, found.get(2)?.as_str(), line))
            })
            .collect();
        let (template, value, line) = measured.last()?;
        let same = measured.iter().rev().take_while(|(t, v, _)| t == template && v == value);
        let (count, distinct) = (same.clone().count(), {
            let mut all: Vec<&str> = same.map(|(_, _, line)| *line).collect();
            all.dedup();
            all.len()
        });
        let is_value = value.contains(['.', 'e', 'E']);
        (count >= ENOUGH && distinct >= ENOUGH && is_value).then(|| line.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Excerpt> {
        vec![Excerpt { stream: Stream::Stderr, start: 0, text: text.into() }]
    }

    fn share(text: &str) -> Option<f64> {
        progress(&of(text)).map(|p| p.share)
    }

    #[test]
    fn counts_and_shares_are_progress_and_single_lines_are_not() {
        assert_eq!(share("step 1 of 4\nstep 2 of 4\nstep 3 of 4\n"), Some(0.75));
        assert_eq!(share("Epoch 1/10 - loss 2\nEpoch 2/10 - loss 1\nEpoch 3/10\n"), Some(0.3));
        assert_eq!(share(" 10%|# |\r 20%|## |\r 50%|#####"), Some(0.5));
        assert_eq!(share("reading 3 of 4 files\n"), None);
        assert_eq!(share("2024/05/01 a\n2024/05/01 b\n2024/05/01 c\n"), None);
        assert_eq!(share(""), None);
    }

    #[test]
    fn a_measure_that_stands_still_is_seen() {
        let still = "iteration 1: residual 4.8e-03\niteration 2: residual 4.8e-03\niteration 3: residual 4.8e-03\n";
        assert!(stagnation(&of(still)).is_some());
        let moves = "iteration 1: residual 4.8e-03\niteration 2: residual 4.7e-03\niteration 3: residual 4.6e-03\n";
        assert_eq!(stagnation(&of(moves)), None);
        assert_eq!(stagnation(&of("test_1 ok\ntest_2 ok\ntest_3 ok\n")), None);
    }
}
