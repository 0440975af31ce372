//! What became of earlier verdicts on the same failure.

use super::triage::{RetryOutcome, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Fewer tries than this prove nothing, however they ended.
const ENOUGH_TRIES: i64 = 5;
/// The chance of success must be at least this, with 90 % certainty.
const GOOD_CHANCE: f64 = 0.7;
/// Tries that failed the same way, without one that succeeded, after which no user or agent needs
/// to be asked.
const ENOUGH_FAILURES: i64 = 2;
/// Outcomes count for deciding this long. Programs, machines and services change; what is older is
/// shown, and decides nothing.
const DAYS: i64 = 180;
/// One-sided 90 %.
const Z: f64 = 1.2816;

/// How retries ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Retries whose end is known.
    pub tries: i64,
    /// That succeeded.
    pub succeeded: i64,
    /// That failed with the same fingerprint.
    pub failed_same: i64,
    /// That failed in another way.
    pub failed_other: i64,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, outcome: RetryOutcome) {
        match outcome {
            RetryOutcome::Succeeded => self.succeeded += 1,
            RetryOutcome::FailedSame => self.failed_same += 1,
            RetryOutcome::FailedOther => self.failed_other += 1,
            // Says nothing about the failure.
            RetryOutcome::Canceled => return,
        }
        self.tries += 1;
    }

    /// The chance of success that is almost certainly reached (Wilson's lower bound).
    pub fn certain_chance(&self) -> f64 {
        if self.tries <= 0 {
            return 0.0;
        }
        let n = self.tries as f64;
        let p = self.succeeded as f64 / n;
        let z2 = Z * Z;
        let spread = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        ((p + z2 / (2.0 * n) - spread) / (1.0 + z2 / n)).max(0.0)
    }
}

/// What is remembered about a failure. Everything here comes from retries that were really made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// Tried again as it was.
    pub again: Counts,
    /// Tried again with more memory.
    pub more_memory: Counts,
    /// Tried again with more time.
    pub more_time: Counts,
    /// The same failure, tried again in any way longer ago than what counts for deciding.
    pub older: Counts,
    /// Near failures (same program, kind and exception), tried again in any way.
    pub near: Counts,
}

impl Record {
    /// The day of a time (ms since 1970), as outcomes are kept.
    pub fn day(ms: i64) -> i64 {
        ms.div_euclid(86_400_000)
    }

    /// The first day whose outcomes still count for deciding.
    pub fn first_day(now_ms: i64) -> i64 {
        Self::day(now_ms) - DAYS
    }

    /// What the record alone decides, and why; `None` when a user or agent has to be asked.
    pub fn verdict(&self) -> Option<(Verdict, String)> {
        let Counts { tries, succeeded, failed_same, .. } = self.again;
        if tries >= ENOUGH_TRIES && self.again.certain_chance() >= GOOD_CHANCE {
            return Some((
                Verdict::Retry,
                format!("{succeeded} of {tries} retries of this failure succeeded"),
            ));
        }
        // More memory or time may have helped; then it is not for the record to give up.
        let other_help = self.more_memory.succeeded + self.more_time.succeeded > 0;
        if failed_same >= ENOUGH_FAILURES && succeeded == 0 && !other_help {
            return Some((
                Verdict::Fail,
                format!("{failed_same} of {tries} retries failed the same way again"),
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(succeeded: i64, failed_same: i64) -> Record {
        let tries = succeeded + failed_same;
        Record {
            again: Counts { tries, succeeded, failed_same, failed_other: 0 },
            ..Record::default()
        }
    }

    fn decides(record: &Record) -> Option<Verdict> {
        record.verdict().map(|(verdict, _)| verdict)
    }

    #[test]
    fn only_a_strong_record_decides() {
        assert_eq!(decides(&Record::default()), None);
        assert_eq!(decides(&again(4, 0)), None);
        assert_eq!(decides(&again(5, 0)), Some(Verdict::Retry));
        assert_eq!(decides(&again(6, 3)), None);
        assert_eq!(decides(&again(18, 2)), Some(Verdict::Retry));
        assert_eq!(decides(&again(0, 1)), None);
        assert_eq!(decides(&again(0, 2)), Some(Verdict::Fail));
        assert_eq!(decides(&again(1, 5)), None);
    }

    #[test]
    fn what_more_memory_helped_is_not_given_up() {
        let mut record = again(0, 3);
        record.more_memory.add(RetryOutcome::Succeeded);
        assert_eq!(decides(&record), None);
    }

    #[test]
    fn the_bound_grows_with_certainty_and_stays_a_chance() {
        let chance = |s, n| Counts { tries: n, succeeded: s, ..Counts::default() }.certain_chance();
        assert!(chance(1, 1) < chance(5, 5) && chance(5, 5) < chance(50, 50));
        assert!(chance(0, 10) < 0.01 && chance(1000, 1000) <= 1.0);
        let mut counts = Counts::default();
        counts.add(RetryOutcome::Canceled);
        assert_eq!(counts.tries, 0);
    }
}
