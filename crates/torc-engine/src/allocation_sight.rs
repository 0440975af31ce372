//! What follows from what was seen of an allocation in its batch system. Not knowing changes
//! nothing, and the word of the batch system about processes is checked against what the server
//! itself knows of the runners in it.

use super::allocation::AllocationLife;
use super::liveness::Process;
use torc_model::slurm::{AllocationPhase, Verdict};
use torc_model::status::{AllocationEnd, AllocationStatus, Cause};

/// What a look at the batch system means for an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Nothing.
    Nothing,
    /// It is not known whether the batch system has it.
    Unknown,
    /// The batch system answered and did not list it, which proves nothing yet.
    Missing,
    /// The batch system has it.
    Seen,
    /// It waits in the queue, so that no process of it can run. If it had runners, it was put back.
    Waiting,
    /// It is over.
    Over,
    /// It was over for us, and the batch system now says why.
    Explained,
    /// It was over for us, and the batch system will start it again.
    StartsAgain,
}

impl AllocationLife {
    /// What a look means. `is_missing`: the batch system answered and did not list it. `moves`: how
    /// often the allocation had moved before the look began, where the client tells; what was seen
    /// before the last move is about a state that is no more.
    pub fn look(&self, verdict: &Verdict, is_missing: bool, moves: Option<i64>) -> Look {
        if moves.is_some_and(|moves| moves != self.moves) {
            return Look::Nothing;
        }
        match self.status {
            AllocationStatus::Planned => Look::Nothing,
            // It is on its way there, or its submitter was interrupted; the next one looks for it.
            AllocationStatus::Submitting if is_missing => Look::Nothing,
            AllocationStatus::Submitting | AllocationStatus::Pending | AllocationStatus::Active => {
                match verdict {
                    Verdict::Unknown { .. } if is_missing => Look::Missing,
                    Verdict::Unknown { .. } => Look::Unknown,
                    Verdict::Alive { phase: AllocationPhase::Waiting, .. } => Look::Waiting,
                    Verdict::Alive {
                        phase: AllocationPhase::Running | AllocationPhase::Leaving,
                        ..
                    } => Look::Seen,
                    Verdict::Ended(_) => Look::Over,
                }
            }
            AllocationStatus::Complete => self.look_afterwards(verdict, is_missing),
        }
    }

    /// Its runners had left before the batch system said why; only that is still of interest.
    fn look_afterwards(&self, verdict: &Verdict, is_missing: bool) -> Look {
        let has_left = self.end.is_some_and(|(_, ended_as)| ended_as == AllocationEnd::Left);
        if !has_left || self.cause.is_none() {
            return Look::Nothing;
        }
        match verdict {
            Verdict::Unknown { .. } => Look::Nothing,
            Verdict::Alive {
                phase: AllocationPhase::Running | AllocationPhase::Leaving, ..
            } => Look::Nothing,
            // What the batch system no longer knows stays as it is.
            Verdict::Ended(ending) if is_missing && ending.is_vanished => Look::Nothing,
            Verdict::Ended(_) => Look::Explained,
            Verdict::Alive { phase: AllocationPhase::Waiting, .. } => Look::StartsAgain,
        }
    }

    /// Whether a submitter may take it up at this time.
    pub fn may_be_taken(&self, now: i64) -> bool {
        match self.status {
            AllocationStatus::Planned => true,
            AllocationStatus::Submitting => {
                self.submission.as_ref().is_none_or(|submission| submission.until <= now)
            }
            AllocationStatus::Pending | AllocationStatus::Active | AllocationStatus::Complete => {
                false
            }
        }
    }
}

/// What the server knows of a runner in an allocation of which the batch system says that no process
/// runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunnerTrace {
    /// The runner's own process.
    pub process: Process,
    /// Nothing that it started lives on this host; meaningful where the process is gone from it.
    pub is_clean: bool,
    /// The directory where it may have left results does not answer.
    pub is_unread: bool,
    /// It spoke a moment ago.
    pub spoke: bool,
}

/// Why a runner is not given up although the batch system says that its allocation is over. A batch
/// system may be wrong about a node that it does not reach, and it does not know of processes that
/// left its step: a retry waits until they are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// Its process is seen to live.
    Alive,
    /// Processes that it started have not ended.
    Processes,
    /// Its results cannot be read yet.
    Results,
    /// It has just spoken.
    Spoke,
}

impl Doubt {
    /// One clause for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Alive => "its runner is alive on this host",
            Self::Processes => "its runner left processes on this host that have not ended",
            Self::Results => "the directory where its runner may have left results does not answer",
            Self::Spoke => "its runner has just spoken",
        }
    }
}

impl RunnerTrace {
    /// Why the runner must not be given up, if it must not.
    pub fn doubt(&self) -> Option<Doubt> {
        match self.process {
            Process::Alive => Some(Doubt::Alive),
            Process::Gone if !self.is_clean => Some(Doubt::Processes),
            _ if self.is_unread => Some(Doubt::Results),
            Process::Gone | Process::Rebooted => None,
            Process::Lingering | Process::Unknown => self.spoke.then_some(Doubt::Spoke),
        }
    }
}

/// Why attempts ended that were alive in an allocation: of several jobs it is unknown which one took
/// the memory.
pub fn cause_for(cause: Cause, attempts: usize) -> Cause {
    if cause == Cause::Oom && attempts != 1 { Cause::Lost } else { cause }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::Submission;
    use super::*;
    use torc_model::slurm::AllocationEnding;

    #[test]
    fn the_word_of_the_batch_system_does_not_end_what_is_seen_to_live() {
        let trace = RunnerTrace {
            process: Process::Unknown,
            is_clean: true,
            is_unread: false,
            spoke: false,
        };
        assert_eq!(trace.doubt(), None);
        assert_eq!(RunnerTrace { spoke: true, ..trace }.doubt(), Some(Doubt::Spoke));
        assert_eq!(RunnerTrace { is_unread: true, ..trace }.doubt(), Some(Doubt::Results));
        let alive = RunnerTrace { process: Process::Alive, ..trace };
        assert_eq!(alive.doubt(), Some(Doubt::Alive));
        let gone = RunnerTrace { process: Process::Gone, spoke: true, ..trace };
        assert_eq!(gone.doubt(), None, "what it said before its end proves nothing");
        assert_eq!(RunnerTrace { is_clean: false, ..gone }.doubt(), Some(Doubt::Processes));
    }

    #[test]
    fn memory_is_blamed_on_a_job_only_when_it_was_alone() {
        assert_eq!(cause_for(Cause::Oom, 1), Cause::Oom);
        assert_eq!(cause_for(Cause::Oom, 2), Cause::Lost);
        assert_eq!(cause_for(Cause::Walltime, 2), Cause::Walltime);
    }

    #[test]
    fn what_a_look_means_depends_on_where_the_allocation_stands() {
        use AllocationStatus::{Active, Complete, Pending, Planned, Submitting};
        let alive = |phase| Verdict::Alive { phase, reason: None };
        let ended = |is_vanished| {
            Verdict::Ended(AllocationEnding { is_vanished, ..AllocationEnding::vanished() })
        };
        let verdicts = [
            (Verdict::Unknown { why: "?".into() }, false),
            (Verdict::Unknown { why: "?".into() }, true),
            (alive(AllocationPhase::Waiting), false),
            (alive(AllocationPhase::Running), false),
            (alive(AllocationPhase::Leaving), false),
            (ended(false), false),
            (ended(false), true),
            (ended(true), false),
            (ended(true), true),
        ];
        use Look::{Explained, Missing, Nothing, Over, Seen, StartsAgain, Unknown, Waiting};
        let looks = |status, cause, ended_as| {
            let life = AllocationLife {
                status,
                cause,
                end: Some((1, ended_as)),
                moves: 3,
                ..AllocationLife::planned(None)
            };
            verdicts.clone().map(|(verdict, is_missing)| {
                let look = life.look(&verdict, is_missing, None);
                assert_eq!(life.look(&verdict, is_missing, Some(3)), look);
                let late = life.look(&verdict, is_missing, Some(2));
                assert_eq!(late, Nothing, "it has moved since");
                look
            })
        };
        let left = AllocationEnd::Left;
        assert_eq!(looks(Planned, None, left), [Nothing; 9]);
        let on_its_way = [Unknown, Nothing, Waiting, Seen, Seen, Over, Nothing, Over, Nothing];
        assert_eq!(looks(Submitting, None, left), on_its_way);
        for status in [Pending, Active] {
            let expected = [Unknown, Missing, Waiting, Seen, Seen, Over, Over, Over, Over];
            assert_eq!(looks(status, None, left), expected, "{status}");
        }
        let afterwards = [
            Nothing,
            Nothing,
            StartsAgain,
            Nothing,
            Nothing,
            Explained,
            Explained,
            Explained,
            Nothing,
        ];
        assert_eq!(looks(Complete, Some(Cause::Lost), left), afterwards);
        assert_eq!(looks(Complete, None, left), [Nothing; 9], "nothing was lost with it");
        assert_eq!(looks(Complete, Some(Cause::Lost), AllocationEnd::Reported), [Nothing; 9]);
    }

    #[test]
    fn a_submitter_takes_what_waits_and_what_another_one_has_given_up() {
        use AllocationStatus::{Active, Complete, Pending, Planned, Submitting};
        let life = |status, until: Option<i64>| AllocationLife {
            status,
            submission: until.map(|until| Submission { by: "a".into(), until }),
            ..AllocationLife::planned(None)
        };
        assert!(life(Planned, None).may_be_taken(0) && life(Submitting, None).may_be_taken(0));
        assert!(life(Submitting, Some(5)).may_be_taken(5));
        assert!(!life(Submitting, Some(6)).may_be_taken(5));
        for status in [Pending, Active, Complete] {
            assert!(!life(status, None).may_be_taken(9), "{status}");
        }
    }
}
