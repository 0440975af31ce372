//! When a step is tried again, and how long to wait before.

use super::record::ErrorKind;
use crate::chance;
use regex::Regex;
use serde::{Deserialize, Serialize};

/// How a step is tried again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Tries in all; 1 means none again.
    pub attempts: u32,
    /// How the wait grows.
    pub backoff: StepBackoff,
    /// Seconds before the second try.
    pub delay: f64,
    /// Longest wait in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<f64>,
    /// The wait varies by this fraction.
    pub jitter: f64,
    /// Seconds that the whole step may take, waits included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Only after these failures: kinds, exit codes, or `re:` and an expression for the message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Only>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 1,
            backoff: StepBackoff::default(),
            delay: 1.0,
            max_delay: None,
            jitter: 0.0,
            budget: None,
            only: Vec::new(),
        }
    }
}

/// How the wait grows from try to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepBackoff {
    /// Not at all.
    Fixed,
    /// d, 2d, 3d, ...
    Linear,
    /// d, 2d, 4d, ...
    #[default]
    Exponential,
    /// d, d, 2d, 3d, 5d, ...
    Fibonacci,
}

/// Which failures are worth another try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Only {
    /// Of this kind.
    Kind(ErrorKind),
    /// With this exit code.
    Code(i64),
    /// Whose message matches.
    Message(String),
}

impl Only {
    /// Reads `timeout`, `75` or `re:rate.?limit`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(pattern) = text.strip_prefix("re:") {
            Regex::new(pattern).map_err(|_| format!("`{pattern}` is not a regular expression"))?;
            return Ok(Self::Message(pattern.into()));
        }
        if let Ok(code) = text.parse() {
            return Ok(Self::Code(code));
        }
        ErrorKind::parse(text).map(Self::Kind).ok_or_else(|| {
            let kinds: Vec<String> = ErrorKind::ALL.iter().map(|kind| format!("`{}`", kind.as_str())).collect();
            format!(
                "`{text}` is no kind of failure; write an exit code, `re:` and an expression, or one of {}",
                kinds.join(", ")
            )
        })
    }

    fn text(&self) -> String {
        match self {
            Self::Kind(kind) => kind.as_str().into(),
            Self::Code(code) => code.to_string(),
            Self::Message(pattern) => format!("re:{pattern}"),
        }
    }

    fn matches(&self, kind: ErrorKind, code: i64, message: &str) -> bool {
        match self {
            Self::Kind(wanted) => *wanted == kind,
            Self::Code(wanted) => *wanted == code,
            // Checked when the workflow was read.
            Self::Message(pattern) => {
                Regex::new(pattern).is_ok_and(|regex| regex.is_match(message))
            }
        }
    }
}

impl Serialize for Only {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Only {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A try of a step that failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedTry<'a> {
    /// 1, 2, 3...
    pub nth: u32,
    /// Why it failed.
    pub kind: ErrorKind,
    /// Its return code.
    pub code: i64,
    /// What it said.
    pub message: &'a str,
    /// Seconds that the step has taken so far, all tries together.
    pub elapsed: f64,
}

impl Retry {
    /// Seconds to wait after a try failed so; none when there is no further try. `seed` decides
    /// within the jitter.
    pub fn wait(&self, failed: &FailedTry<'_>, seed: u64) -> Option<f64> {
        let FailedTry { nth: tries, kind, code, message, elapsed } = *failed;
        if tries >= self.attempts {
            return None;
        }
        if !self.only.is_empty() && !self.only.iter().any(|only| only.matches(kind, code, message))
        {
            return None;
        }
        let nth = f64::from(tries);
        let factor = match self.backoff {
            StepBackoff::Fixed => 1.0,
            StepBackoff::Linear => nth,
            StepBackoff::Exponential => 2f64.powf(nth - 1.0),
            StepBackoff::Fibonacci => fibonacci(tries),
        };
        let plain = (self.delay * factor).min(self.max_delay.unwrap_or(f64::MAX)).min(1e9);
        let unit = chance::unit(chance::nth(seed, tries.into()));
        let wait = plain * (1.0 + self.jitter * (2.0 * unit - 1.0));
        self.budget.is_none_or(|budget| elapsed + wait < budget).then_some(wait)
    }
}

fn fibonacci(nth: u32) -> f64 {
    let (mut a, mut b) = (0.0, 1.0);
    for _ in 0..nth.min(1000) {
        (a, b) = (b, a + b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(nth: u32) -> FailedTry<'static> {
        FailedTry { nth, kind: ErrorKind::Exit, code: 1, message: "", elapsed: 0.0 }
    }

    #[test]
    fn waits_grow_as_named_and_end_with_the_tries() {
        let waits = |backoff| {
            let retry = Retry {
                attempts: 6,
                backoff,
                delay: 2.0,
                max_delay: Some(9.0),
                ..Retry::default()
            };
            (1..7).map(|n| retry.wait(&exit(n), 7)).collect::<Vec<_>>()
        };
        assert_eq!(
            waits(StepBackoff::Fixed),
            [2.0, 2.0, 2.0, 2.0, 2.0].map(Some).into_iter().chain([None]).collect::<Vec<_>>()
        );
        assert_eq!(waits(StepBackoff::Linear)[..4], [2.0, 4.0, 6.0, 8.0].map(Some));
        assert_eq!(waits(StepBackoff::Exponential)[..4], [2.0, 4.0, 8.0, 9.0].map(Some));
        assert_eq!(waits(StepBackoff::Fibonacci)[..5], [2.0, 2.0, 4.0, 6.0, 9.0].map(Some));
    }

    #[test]
    fn only_what_is_named_is_tried_again_and_only_within_the_budget() {
        let only =
            ["timeout", "75", "re:rate.?limit"].map(|text| Only::parse(text).unwrap()).to_vec();
        let retry = Retry { attempts: 3, budget: Some(10.0), only, ..Retry::default() };
        let wait = |kind, code, message, elapsed| {
            retry.wait(&FailedTry { nth: 1, kind, code, message, elapsed }, 1).is_some()
        };
        assert!(wait(ErrorKind::Timeout, 124, "", 0.0) && wait(ErrorKind::Exit, 75, "", 0.0));
        assert!(
            wait(ErrorKind::Exit, 1, "a rate-limit", 0.0) && !wait(ErrorKind::Exit, 1, "x", 0.0)
        );
        assert!(!wait(ErrorKind::Timeout, 124, "", 9.5));
        assert!(Only::parse("sometimes").is_err() && Only::parse("re:(").is_err());
    }

    #[test]
    fn jitter_is_within_its_fraction_and_repeatable() {
        let retry = Retry {
            attempts: 99,
            backoff: StepBackoff::Fixed,
            delay: 10.0,
            jitter: 0.3,
            ..Retry::default()
        };
        let waits: Vec<f64> = (1..50).filter_map(|n| retry.wait(&exit(n), 42)).collect();
        assert!(
            waits.iter().all(|wait| (7.0..=13.0).contains(wait))
                && waits.iter().any(|wait| *wait != waits[0])
        );
        assert_eq!(waits, (1..50).filter_map(|n| retry.wait(&exit(n), 42)).collect::<Vec<_>>());
    }
}
