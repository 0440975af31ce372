//! What a runner's latest attempts say about its machine, and what follows: a machine on which jobs
//! fail at once while they succeed elsewhere gets no work for a while, and the attempts that it
//! burnt are given back to their jobs.

use torc_model::ids::{AttemptId, JobId};
use torc_model::recovery::{NodeHealth, NodeVerdict};
use torc_model::status::Cause;

/// A machine may have been repaired meanwhile: after this time it is tried again, with an empty
/// record.
pub const QUARANTINE_MS: i64 = 600_000;

/// A runner gets no work until a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantine {
    /// One sentence.
    pub why: String,
    /// When it is tried again, ms since 1970.
    pub until: i64,
}

/// The record of one runner.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conduct {
    health: NodeHealth,
    quarantine: Option<Quarantine>,
}

/// A machine was found to be bad.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Burnt {
    /// Attempts that were its fault.
    pub attempts: Vec<(JobId, AttemptId)>,
    /// The quarantine that it deserves.
    pub quarantine: Quarantine,
}

/// Whether a runner may be given work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Gate {
    /// It may.
    Open,
    /// It may not, for this many seconds.
    Closed {
        /// Seconds, rounded up.
        seconds: i64,
        /// One sentence.
        why: String,
    },
    /// The time of its quarantine is over: release it.
    Over,
}

impl Conduct {
    /// The record of a runner after a restart: only the quarantine is stored.
    pub fn restored(quarantine: Option<Quarantine>) -> Self {
        Self { quarantine, ..Self::default() }
    }

    /// Why it gets no work, and until when, if it is kept from it.
    pub fn quarantine(&self) -> Option<&Quarantine> {
        self.quarantine.as_ref()
    }

    /// Attempts that succeeded on it.
    pub fn successes(&self) -> u64 {
        self.health.successes()
    }

    /// Takes in an end. Tells whether the machine has to be judged now.
    pub fn ended(
        &mut self,
        job: JobId,
        attempt: AttemptId,
        cause: Option<Cause>,
        seconds: f64,
    ) -> bool {
        self.health.ended(job, attempt, cause, seconds);
        cause.is_some() && self.quarantine.is_none()
    }

    /// Judges the machine; `elsewhere` are successes of the same workflow on other machines.
    pub fn judge(&self, elsewhere: u64, now: i64) -> Option<Burnt> {
        match self.health.judge(elsewhere) {
            NodeVerdict::Fine => None,
            NodeVerdict::Bad { burnt: attempts, why } => {
                let quarantine = Quarantine { why, until: now + QUARANTINE_MS };
                Some(Burnt { attempts, quarantine })
            }
        }
    }

    /// Keeps it from work.
    pub fn keep_away(&mut self, quarantine: Quarantine) {
        self.quarantine = Some(quarantine);
    }

    /// Whether it may be given work now.
    pub fn gate(&self, now: i64) -> Gate {
        match &self.quarantine {
            None => Gate::Open,
            Some(Quarantine { why, until }) if *until > now => {
                Gate::Closed { seconds: (until - now) / 1000 + 1, why: why.clone() }
            }
            Some(_) => Gate::Over,
        }
    }

    /// Lets it work again, with an empty record. False: it was not kept from work.
    pub fn release(&mut self) -> bool {
        let was_kept = self.quarantine.is_some();
        if was_kept {
            *self = Self::default();
        }
        was_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_machine_gets_no_work_until_its_time_is_over_and_then_starts_anew() {
        let mut conduct = Conduct::default();
        for job in 1..=3 {
            assert!(conduct.ended(JobId(job), AttemptId(job), Some(Cause::Exit), 0.1));
        }
        assert_eq!(conduct.judge(2, 0), None, "perhaps the jobs are bad");
        let burnt = conduct.judge(3, 5).expect("a bad machine");
        assert_eq!(burnt.attempts.len(), 3);
        conduct.keep_away(burnt.quarantine);
        assert!(!conduct.ended(JobId(4), AttemptId(4), Some(Cause::Exit), 0.1), "known already");
        let until = 5 + QUARANTINE_MS;
        assert!(matches!(conduct.gate(until - 1), Gate::Closed { seconds: 1, .. }));
        assert!(matches!(conduct.gate(until - 1_000), Gate::Closed { seconds: 2, .. }));
        assert_eq!(conduct.gate(until), Gate::Over);
        assert_eq!(conduct.quarantine().map(|kept| kept.until), Some(until));
        let restored = Conduct::restored(conduct.quarantine().cloned());
        assert_eq!((restored.gate(until), restored.successes()), (Gate::Over, 0));
        assert!(conduct.release() && !conduct.release());
        assert_eq!((conduct.gate(0), conduct.judge(9, 0)), (Gate::Open, None));
        assert!(!conduct.ended(JobId(1), AttemptId(1), None, 0.1), "a success is not judged");
        assert_eq!((conduct.successes(), conduct.quarantine()), (1, None));
    }
}
