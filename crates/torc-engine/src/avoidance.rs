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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_holds_until_its_time_and_for_its_machine_only() {
        let (a, b) = (JobIx::new(1), JobIx::new(2));
        let mut avoidance = Avoidance::default();
        avoidance.avoid(a, RunnerId(1), 50);
        avoidance.avoid(b, RunnerId(2), 40);
        avoidance.avoid(a, RunnerId(1), 30);
        assert_eq!(avoidance.next_end(), Some(30), "the newer one counts");
        let avoids = |avoidance: &Avoidance, job, runner, now| {
            avoidance.avoids(job, &[RunnerId(9), RunnerId(runner)], now)
        };
        assert!(avoids(&avoidance, a, 1, 29) && !avoids(&avoidance, a, 1, 30));
        assert!(!avoids(&avoidance, a, 2, 0) && !avoids(&avoidance, JobIx::new(3), 1, 0));
        avoidance.expire(29);
        assert!(avoids(&avoidance, a, 1, 0));
        avoidance.expire(30);
        assert!(!avoids(&avoidance, a, 1, 0) && avoids(&avoidance, b, 2, 0));
        assert_eq!(avoidance.next_end(), Some(40));
        avoidance.forget(b);
        assert_eq!(avoidance, Avoidance::default());
    }
}
