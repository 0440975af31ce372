//! What follows from what was seen of an allocation in its batch system. Not knowing changes
//! nothing, and the word of the batch system about processes is checked against what the server
//! itself knows of the runners in it.

use super::allocation::{AllocationEvent, AllocationLife, AllocationOver, Sighting};
use super::liveness::Process;
use torc_model::slurm::wire::Observation;
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};
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

/// What follows from a look at the batch system, for an allocation and its runners. The runners end
/// first, then attempts are explained, then the event happens to the allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding<'a> {
    /// What the look means.
    pub look: Look,
    /// The batch system says that no process of the allocation runs: its runners end, unless there is
    /// a doubt.
    pub gone: Option<RunnersGone>,
    /// What speaks against that.
    pub doubt: Option<Doubt>,
    /// How a life of the allocation ended: attempts that were stopped in it get that cause.
    pub explains: Option<&'a AllocationEnding>,
    /// What happens to the allocation.
    pub event: Option<AllocationEvent>,
}

/// Why the runners of an allocation are gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnersGone {
    /// Why the batch system ended the allocation.
    pub cause: Cause,
    /// One clause for people.
    pub text: String,
}

impl AllocationLife {
    /// What follows from a look. `runners` are those in the allocation that have not ended.
    pub fn judge<'a>(&self, seen: &'a Observation, runners: &[RunnerTrace]) -> Finding<'a> {
        let look = self.look(&seen.verdict, seen.is_missing, seen.moves);
        let nothing = Finding { look, gone: None, doubt: None, explains: None, event: None };
        match &seen.verdict {
            _ if look == Look::Nothing => nothing,
            Verdict::Unknown { .. } => {
                let is_new = look == Look::Missing && self.missing_since.is_none();
                Finding { event: is_new.then_some(AllocationEvent::Missing), ..nothing }
            }
            Verdict::Alive { phase, reason } => {
                let sighting = Sighting::new(seen, *phase, reason.as_deref());
                match look {
                    Look::Waiting | Look::StartsAgain => {
                        self.judge_waiting(nothing, seen, sighting, runners)
                    }
                    _ => Finding { event: Some(AllocationEvent::Seen(sighting)), ..nothing },
                }
            }
            Verdict::Ended(ending) if look == Look::Explained => {
                let event = Some(AllocationEvent::Explained(self.explained(ending)));
                Finding { explains: Some(ending), event, ..nothing }
            }
            Verdict::Ended(ending) => {
                let gone = RunnersGone { cause: ending.cause, text: ending.text.clone() };
                let found = Finding { gone: Some(gone), doubt: doubt_of(runners), ..nothing };
                if found.doubt.is_some() {
                    return found;
                }
                let event = Some(AllocationEvent::Ended(self.ended_by(ending)));
                Finding { explains: Some(ending), event, ..found }
            }
        }
    }

    /// It waits in the queue. If it ran before, it was put back, and nothing of its earlier life runs
    /// any more.
    fn judge_waiting<'a>(
        &self,
        nothing: Finding<'a>,
        seen: &'a Observation,
        sighting: Sighting,
        runners: &[RunnerTrace],
    ) -> Finding<'a> {
        // Why it was put back only accounting knows.
        let (cause, before) = match seen.before.as_ref().filter(|it| it.cause.is_taken_away()) {
            Some(before) => (before.cause, format!("; before, {}", before.text)),
            None => (Cause::Lost, String::new()),
        };
        let text = format!("Slurm put the allocation back into its queue{before}");
        let found = Finding { gone: Some(RunnersGone { cause, text }), ..nothing };
        let (doubt, explains) = (doubt_of(runners), seen.before.as_ref());
        if doubt.is_some() {
            return Finding { doubt, event: Some(AllocationEvent::Seen(sighting)), ..found };
        }
        let has_run = !runners.is_empty()
            || matches!(self.status, AllocationStatus::Active | AllocationStatus::Complete);
        let event = match has_run {
            true => AllocationEvent::Requeued(sighting),
            false => AllocationEvent::Seen(sighting),
        };
        Finding { explains, event: Some(event), ..found }
    }

    /// How the word of the batch system ends it.
    fn ended_by(&self, ending: &AllocationEnding) -> AllocationOver {
        let why = match self.unneeded_since {
            Some(_) => format!("no longer needed; {}", ending.text),
            None => ending.text.clone(),
        };
        AllocationOver::reported(ending, why)
    }

    /// What the batch system says after the end is added to what its runners said. They may have known
    /// better why they were stopped.
    fn explained(&self, ending: &AllocationEnding) -> AllocationOver {
        let known = self.word.reason.as_deref().unwrap_or_default();
        AllocationOver {
            cause: Some(ending.cause).filter(|cause| cause.is_taken_away()).or(self.word.cause),
            was_too_short: self.was_too_short,
            ..AllocationOver::reported(ending, format!("{known}; {}", ending.text))
        }
    }

    /// A runner has left in good order: with the last one an allocation that runs is over.
    /// `still_there`: so many have not left.
    pub fn left(
        &self,
        still_there: usize,
        why: &str,
        cause: Option<Cause>,
    ) -> Option<AllocationOver> {
        let is_over = self.status == AllocationStatus::Active && still_there == 0;
        is_over.then(|| AllocationOver {
            cause,
            ..AllocationOver::new(AllocationEnd::Left, "LEFT", why)
        })
    }

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
        if !has_left || self.word.cause.is_none() {
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

fn doubt_of(runners: &[RunnerTrace]) -> Option<Doubt> {
    runners.iter().find_map(RunnerTrace::doubt)
}

/// Why attempts ended that were alive in an allocation: of several jobs it is unknown which one took
/// the memory.
pub fn cause_for(cause: Cause, attempts: usize) -> Cause {
    if cause == Cause::Oom && attempts != 1 { Cause::Lost } else { cause }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::{AllocationWord, Submission};
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
                word: AllocationWord { cause, ..AllocationWord::default() },
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

    fn seen(verdict: Verdict) -> Observation {
        Observation {
            id: 1,
            verdict,
            slurm_job_id: None,
            is_missing: false,
            before: None,
            expected_start_ms: None,
            moves: None,
        }
    }

    #[test]
    fn an_allocation_that_was_never_begun_is_not_put_back_by_waiting() {
        use AllocationStatus::{Active, Complete, Pending, Submitting};
        let waits =
            seen(Verdict::Alive { phase: AllocationPhase::Waiting, reason: Some("Prio".into()) });
        let kind = |status, runners: &[RunnerTrace]| {
            let end = Some((1, AllocationEnd::Left));
            let word = AllocationWord { cause: Some(Cause::Stopped), ..AllocationWord::default() };
            let life = AllocationLife { status, end, word, ..AllocationLife::planned(None) };
            let found = life.judge(&waits, runners);
            (found.doubt, found.event.map(|event| event.kind()))
        };
        let gone = RunnerTrace {
            process: Process::Unknown,
            is_clean: true,
            is_unread: false,
            spoke: false,
        };
        let spoke = RunnerTrace { spoke: true, ..gone };
        use super::super::allocation::AllocationMove::{Requeued, Seen};
        for status in [Submitting, Pending] {
            assert_eq!(kind(status, &[]), (None, Some(Seen)), "{status}");
            assert_eq!(kind(status, &[gone]), (None, Some(Requeued)), "{status}");
        }
        assert_eq!(kind(Active, &[]), (None, Some(Requeued)));
        assert_eq!(kind(Active, &[gone, spoke]), (Some(Doubt::Spoke), Some(Seen)));
        assert_eq!(kind(Complete, &[]), (None, Some(Requeued)));
    }

    #[test]
    fn an_end_counts_only_without_doubt_and_explains_what_was_stopped() {
        let ending = AllocationEnding { cause: Cause::Preempted, ..AllocationEnding::vanished() };
        let over = seen(Verdict::Ended(ending.clone()));
        let life =
            AllocationLife { status: AllocationStatus::Active, ..AllocationLife::planned(None) };
        let trace = RunnerTrace {
            process: Process::Unknown,
            is_clean: true,
            is_unread: false,
            spoke: false,
        };
        let found = life.judge(&over, &[trace]);
        let gone = RunnersGone { cause: Cause::Preempted, text: ending.text.clone() };
        assert_eq!((found.gone.as_ref(), found.doubt), (Some(&gone), None));
        assert_eq!(found.explains, Some(&ending));
        let Some(AllocationEvent::Ended(over_as)) = &found.event else { panic!("{found:?}") };
        assert_eq!((over_as.ended_as, over_as.cause), (AllocationEnd::Vanished, Some(gone.cause)));
        assert_eq!(over_as.why, ending.text);
        let unneeded = AllocationLife { unneeded_since: Some(1), ..life.clone() };
        let Some(AllocationEvent::Ended(over_as)) = unneeded.judge(&over, &[]).event else {
            panic!("it is over")
        };
        assert_eq!(over_as.why, format!("no longer needed; {}", ending.text));

        let found = life.judge(&over, &[trace, RunnerTrace { is_unread: true, ..trace }]);
        assert_eq!((found.gone, found.doubt), (Some(gone), Some(Doubt::Results)));
        assert_eq!((found.explains, found.event), (None, None));
    }

    #[test]
    fn what_the_batch_system_says_of_a_life_that_is_over_adds_to_what_is_known() {
        let life = AllocationLife {
            status: AllocationStatus::Complete,
            word: AllocationWord {
                state: None,
                reason: Some("told to stop".into()),
                cause: Some(Cause::Preempted),
            },
            end: Some((1, AllocationEnd::Left)),
            was_too_short: true,
            ..AllocationLife::planned(None)
        };
        let ending = AllocationEnding { cause: Cause::Lost, ..AllocationEnding::vanished() };
        let over = seen(Verdict::Ended(ending.clone()));
        let found = life.judge(&over, &[]);
        let Some(AllocationEvent::Explained(over)) = found.event else { panic!("{found:?}") };
        assert_eq!(over.why, format!("told to stop; {}", ending.text));
        assert_eq!((over.cause, over.was_too_short), (Some(Cause::Preempted), true));
        assert_eq!((found.gone, found.explains), (None, Some(&ending)));
    }

    #[test]
    fn what_was_not_listed_is_noted_once() {
        let missing = Observation {
            is_missing: true,
            ..seen(Verdict::Unknown { why: "it is not listed".into() })
        };
        let life =
            AllocationLife { status: AllocationStatus::Pending, ..AllocationLife::planned(None) };
        assert_eq!(life.judge(&missing, &[]).event, Some(AllocationEvent::Missing));
        let again = AllocationLife { missing_since: Some(1), ..life.clone() };
        assert_eq!(again.judge(&missing, &[]).event, None);
        let unknown = Observation { is_missing: false, ..missing };
        assert_eq!(life.judge(&unknown, &[]).event, None);
    }

    #[test]
    fn only_the_last_runner_that_leaves_ends_an_allocation_that_runs() {
        let life = |status| AllocationLife { status, ..AllocationLife::planned(None) };
        let left = |status, still_there| life(status).left(still_there, "bye", None).is_some();
        assert!(left(AllocationStatus::Active, 0) && !left(AllocationStatus::Active, 1));
        assert!(!left(AllocationStatus::Pending, 0) && !left(AllocationStatus::Complete, 0));
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
