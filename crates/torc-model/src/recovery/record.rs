//! What became of earlier verdicts on the same failure.

use super::remedy::{Action, Change};
use super::triage::{RetryOutcome, Verdict};
use crate::status::{Adjustable, words};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

words! {
    /// What a retry tried.
    Tried {
        /// The same again.
        Again = "again",
        /// More memory.
        MoreMemory = "more_memory",
        /// More time.
        MoreTime = "more_time",
    }
}

impl Tried {
    /// What an action tries; `None` for one that tries nothing.
    pub const fn of(action: Action) -> Option<Self> {
        match action {
            Action::Again => Some(Self::Again),
            Action::MoreMemory => Some(Self::MoreMemory),
            Action::MoreTime => Some(Self::MoreTime),
            Action::Skip | Action::Impossible => None,
        }
    }

    /// What a verdict with these changes tries: the first one says it.
    pub fn by(changes: &[Change]) -> Self {
        match changes.first().map(|change| change.field) {
            Some(Adjustable::Memory) => Self::MoreMemory,
            Some(Adjustable::Runtime | Adjustable::Timeout) => Self::MoreTime,
            Some(_) | None => Self::Again,
        }
    }
}

/// How far a record reaches: from all that has the same cause down to the very same failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The same cause, anywhere.
    Site,
    /// The same cause in a workflow of the same name.
    Workflow,
    /// The same program, kind and exception.
    Family,
    /// The same failure.
    Same,
}

/// Outcomes of retries, each counted less the older it is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Weights {
    /// Retries, weighted by their age.
    pub tries: f64,
    /// That succeeded.
    pub succeeded: f64,
}

/// What outcomes of retries teach, from the widest circle to the narrowest.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Learned {
    levels: [[Weights; 3]; 4],
    /// Most memory that a retry of this failure needed to succeed.
    pub needed_bytes: Option<u64>,
    /// Longest time that one took.
    pub needed_seconds: Option<f64>,
}

/// The weight of an outcome halves in this many days: programs, machines and services change.
const HALF_LIFE_DAYS: f64 = 60.0;

/// How many tries of its own a level needs to weigh as much as the wider one.
const STRENGTH: [f64; 4] = [8.0, 4.0, 3.0, 1.5];

impl Learned {
    /// Takes in the outcomes of one day.
    pub fn add(&mut self, level: Level, tried: Tried, counts: &Counts, age_days: i64) {
        let weight = 0.5f64.powf(age_days.max(0) as f64 / HALF_LIFE_DAYS);
        let into = &mut self.levels[level as usize][tried as usize];
        into.tries += counts.tries as f64 * weight;
        into.succeeded += counts.succeeded as f64 * weight;
    }

    /// The weight of what is known at a level.
    pub fn at(&self, level: Level, tried: Tried) -> Weights {
        self.levels[level as usize][tried as usize]
    }

    /// The chance that a retry succeeds: what is believed without any outcome, shrunk towards what
    /// happened, circle by circle (the mean of a beta-binomial whose prior is the wider circle).
    pub fn chance(&self, tried: Tried, prior: f64) -> f64 {
        let mut chance = prior;
        for (level, strength) in self.levels.iter().zip(STRENGTH) {
            let Weights { tries, succeeded } = level[tried as usize];
            chance = (strength * chance + succeeded) / (strength + tries);
        }
        chance
    }
}

/// Fewer tries than this prove nothing, however they ended.
const ENOUGH_TRIES: i64 = 5;
/// The chance of success must be at least this, with 90% certainty.
const GOOD_CHANCE: f64 = 0.7;
/// Tries that failed the same way, without one that succeeded, after which no user or agent needs
/// to be asked.
const ENOUGH_FAILURES: i64 = 2;
/// Outcomes count for deciding this long. Programs, machines and services change; what is older is
/// shown, and decides nothing.
const DAYS: i64 = 180;
/// One-sided 90%.
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
    fn narrow_circles_outweigh_wide_ones_and_old_outcomes_fade() {
        let counts = |succeeded, tries| Counts { tries, succeeded, ..Counts::default() };
        let mut learned = Learned::default();
        assert!((learned.chance(Tried::Again, 0.9) - 0.9).abs() < 1e-9);
        learned.add(Level::Site, Tried::Again, &counts(0, 3), 0);
        learned.add(Level::Family, Tried::Again, &counts(0, 3), 0);
        learned.add(Level::Same, Tried::Again, &counts(0, 3), 0);
        assert!(learned.chance(Tried::Again, 0.9) < 0.2, "three failures of the very same");
        assert!((learned.chance(Tried::MoreMemory, 0.8) - 0.8).abs() < 1e-9);
        let mut wide = Learned::default();
        wide.add(Level::Site, Tried::Again, &counts(0, 3), 0);
        assert!(wide.chance(Tried::Again, 0.9) > 0.6, "others' failures say less");
        let mut old = Learned::default();
        old.add(Level::Same, Tried::Again, &counts(0, 3), 600);
        assert!(old.chance(Tried::Again, 0.9) > 0.85, "{}", old.chance(Tried::Again, 0.9));
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
