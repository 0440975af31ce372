//! Notices a machine on which jobs fail at once while they succeed elsewhere.

use crate::ids::{AttemptId, JobId};
use crate::status::Cause;

/// Failures in a row that make a machine suspect.
pub const FAILURES_IN_A_ROW: usize = 3;

/// Successes on other machines meanwhile, so that the jobs themselves are above suspicion.
pub const SUCCESSES_ELSEWHERE: u64 = 3;

/// A job that ends this soon has not done its work.
pub const AT_ONCE_SECONDS: f64 = 2.0;

/// What one runner's latest attempts tell about its machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodeHealth {
    failed_at_once: Vec<(JobId, AttemptId)>,
    successes: u64,
}

/// What follows for the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeVerdict {
    /// Nothing to say.
    Fine,
    /// It gets no more work; these attempts were its fault.
    Bad {
        /// The attempts it burnt.
        burnt: Vec<(JobId, AttemptId)>,
        /// One sentence.
        why: String,
    },
}

impl NodeHealth {
    /// Attempts that succeeded.
    pub fn successes(&self) -> u64 {
        self.successes
    }

    /// Takes in one more end.
    pub fn ended(&mut self, job: JobId, attempt: AttemptId, cause: Option<Cause>, seconds: f64) {
        match cause {
            None => {
                self.successes += 1;
                self.failed_at_once.clear();
            }
            Some(Cause::Exit | Cause::Signal | Cause::SpawnError | Cause::MissingOutput) => {
                if seconds <= AT_ONCE_SECONDS {
                    self.failed_at_once.push((job, attempt));
                } else {
                    self.failed_at_once.clear();
                }
            }
            // These say nothing about the machine: a person, a limit or the scheduler ended it.
            Some(
                Cause::Oom
                | Cause::Timeout
                | Cause::Lost
                | Cause::Preempted
                | Cause::NodeFail
                | Cause::Walltime
                | Cause::Canceled
                | Cause::Stopped
                | Cause::Checkpoint,
            ) => {}
        }
    }

    /// Judges the machine. `elsewhere` are the successes of the same workflow on other machines
    /// that are still there; a workflow that has no other machine keeps the one it has.
    pub fn judge(&self, elsewhere: u64) -> NodeVerdict {
        let mut jobs: Vec<JobId> = self.failed_at_once.iter().map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        // One job that fails over and over says something about the job; several jobs say something
        // about the machine.
        if jobs.len() < FAILURES_IN_A_ROW
            || elsewhere < SUCCESSES_ELSEWHERE
            || self.successes > elsewhere
        {
            return NodeVerdict::Fine;
        }
        let why = format!(
            "{} different jobs in a row failed here within {AT_ONCE_SECONDS} s while {elsewhere} succeeded on other machines",
            jobs.len()
        );
        NodeVerdict::Bad { burnt: self.failed_at_once.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(ends: &[(i64, Option<Cause>, f64)]) -> NodeHealth {
        let mut health = NodeHealth::default();
        for (i, (job, cause, seconds)) in ends.iter().enumerate() {
            health.ended(JobId(*job), AttemptId(i as i64), *cause, *seconds);
        }
        health
    }

    #[test]
    fn several_jobs_that_fail_at_once_make_a_machine_bad_only_if_others_work() {
        let bad = health(&[
            (1, Some(Cause::Exit), 0.1),
            (2, Some(Cause::SpawnError), 0.0),
            (3, Some(Cause::Signal), 0.3),
        ]);
        assert!(matches!(bad.judge(3), NodeVerdict::Bad { burnt, .. } if burnt.len() == 3));
        assert_eq!(bad.judge(2), NodeVerdict::Fine, "perhaps the jobs are bad");
    }

    #[test]
    fn one_bad_job_a_slow_failure_or_a_success_acquits() {
        let same = health(&[
            (1, Some(Cause::Exit), 0.1),
            (1, Some(Cause::Exit), 0.1),
            (1, Some(Cause::Exit), 0.1),
        ]);
        assert_eq!(same.judge(9), NodeVerdict::Fine);
        let slow = health(&[
            (1, Some(Cause::Exit), 0.1),
            (2, Some(Cause::Exit), 60.0),
            (3, Some(Cause::Exit), 0.1),
        ]);
        assert_eq!(slow.judge(9), NodeVerdict::Fine);
        let works = health(&[
            (1, Some(Cause::Exit), 0.1),
            (2, Some(Cause::Exit), 0.1),
            (3, None, 0.1),
            (4, Some(Cause::Exit), 0.1),
        ]);
        assert_eq!(works.judge(9), NodeVerdict::Fine);
        let canceled = health(&[
            (1, Some(Cause::Canceled), 0.1),
            (2, Some(Cause::Oom), 0.1),
            (3, Some(Cause::Timeout), 0.1),
        ]);
        assert_eq!(canceled.judge(9), NodeVerdict::Fine);
    }
}
