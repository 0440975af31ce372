//! Retries prefer another machine: for a short while the one on which an attempt failed does not
//! get the next.

use super::index::JobIx;
use std::collections::{BTreeSet, HashMap};
use torc_model::ids::RunnerId;

/// How long another machine has the first chance. Longer would cost more than the preference is
/// worth.
pub const PREFERENCE_MS: i64 = 10_000;

/// Jobs that would rather run elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Avoidance {
    by_job: HashMap<JobIx, (RunnerId, i64)>,
    by_time: BTreeSet<(i64, JobIx)>,
}

impl Avoidance {
    /// The job's attempt failed on this runner.
    pub fn avoid(&mut self, index: JobIx, runner: RunnerId, until: i64) {
        self.forget(index);
        self.by_job.insert(index, (runner, until));
        self.by_time.insert((until, index));
    }

    /// The job was taken, or no longer waits.
    pub fn forget(&mut self, index: JobIx) {
        if let Some((_, until)) = self.by_job.remove(&index) {
            self.by_time.remove(&(until, index));
        }
    }

    /// The job would rather not go to a machine with these runners.
    pub fn avoids(&self, index: JobIx, runners: &[RunnerId], now: i64) -> bool {
        self.by_job
            .get(&index)
            .is_some_and(|(runner, until)| *until > now && runners.contains(runner))
    }

    /// When the next preference ends.
    pub fn next_end(&self) -> Option<i64> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Drops preferences whose time is over.
    pub fn expire(&mut self, now: i64) {
        while let Some(&(until, index)) = self.by_time.first() {
            if until > now {
                break;
            }
            self.by_time.pop_first();
            self.by_job.remove(&index);
        }
    }
}
