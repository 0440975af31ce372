//! The life of an allocation: what was asked of a batch system, from the wish to its end, as a pure
//! machine over (state, event). Every pair is written down in [`AllocationStatus::after`].
//!
//! An event that cannot happen to an allocation now is late or repeated: it changes nothing.

use super::machine::{IllegalEvent, Machine};
use torc_model::slurm::wire::Observation;
use torc_model::slurm::{AllocationEnding, AllocationPhase};
use torc_model::status::{AllocationEnd, AllocationStatus, Cause};

/// Longer than any submission to a batch system may take; after that another submitter may take over,
/// looking first.
pub const SUBMIT_LEASE_MS: i64 = 120_000;

/// What happened to an allocation, without what was told with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocationMove {
    /// A submitter took it up, or took it over from one that was interrupted.
    Taken,
    /// The batch system has it.
    Submitted,
    /// The batch system refused it.
    Refused,
    /// Its submitter cannot tell whether the batch system has it.
    Undecided,
    /// A runner reported from inside it.
    Arrived,
    /// The batch system was seen to have it.
    Seen,
    /// The batch system put it back into its queue.
    Requeued,
    /// The batch system did not list it, which proves nothing yet.
    Missing,
    /// No job needs it any more.
    Unneeded,
    /// It is over.
    Ended,
    /// The batch system told why it ended, after it was over for us.
    Explained,
}

impl AllocationMove {
    /// Every move, in order.
    pub const ALL: [Self; 11] = [
        Self::Taken,
        Self::Submitted,
        Self::Refused,
        Self::Undecided,
        Self::Arrived,
        Self::Seen,
        Self::Requeued,
        Self::Missing,
        Self::Unneeded,
        Self::Ended,
        Self::Explained,
    ];
}

impl Machine for AllocationStatus {
    type Event = AllocationMove;

    fn after(self, event: AllocationMove) -> Result<Self, IllegalEvent<Self, AllocationMove>> {
        use AllocationMove as E;
        let illegal = Err(IllegalEvent { state: self, event });
        match self {
            Self::Planned => match event {
                E::Taken => Ok(Self::Submitting),
                E::Arrived => Ok(Self::Active),
                E::Unneeded => Ok(Self::Planned),
                E::Ended => Ok(Self::Complete),
                E::Submitted
                | E::Refused
                | E::Undecided
                | E::Seen
                | E::Requeued
                | E::Missing
                | E::Explained => illegal,
            },
            Self::Submitting => match event {
                E::Taken | E::Undecided | E::Missing => Ok(Self::Submitting),
                E::Submitted | E::Seen | E::Requeued => Ok(Self::Pending),
                E::Refused | E::Ended => Ok(Self::Complete),
                // A runner may report before its submitter does.
                E::Arrived => Ok(Self::Active),
                E::Unneeded | E::Explained => illegal,
            },
            Self::Pending => match event {
                E::Seen | E::Requeued | E::Missing | E::Unneeded => Ok(Self::Pending),
                E::Arrived => Ok(Self::Active),
                E::Ended => Ok(Self::Complete),
                E::Taken | E::Submitted | E::Refused | E::Undecided | E::Explained => illegal,
            },
            Self::Active => match event {
                E::Arrived | E::Seen | E::Missing => Ok(Self::Active),
                E::Requeued => Ok(Self::Pending),
                E::Ended => Ok(Self::Complete),
                E::Taken
                | E::Submitted
                | E::Refused
                | E::Undecided
                | E::Unneeded
                | E::Explained => illegal,
            },
            Self::Complete => match event {
                // The batch system may start again what was over for us.
                E::Arrived => Ok(Self::Active),
                E::Requeued => Ok(Self::Pending),
                E::Explained => Ok(Self::Complete),
                E::Taken
                | E::Submitted
                | E::Refused
                | E::Undecided
                | E::Seen
                | E::Missing
                | E::Unneeded
                | E::Ended => illegal,
            },
        }
    }
}

/// What the batch system said of an allocation that it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// Its word for the state.
    pub state: String,
    /// Why the allocation waits, if it does.
    pub reason: Option<String>,
    /// Its id there.
    pub job: Option<String>,
    /// When it is planned to start, ms since 1970.
    pub expected_start: Option<i64>,
}

impl Sighting {
    /// What a client saw of one that the batch system has.
    pub fn new(seen: &Observation, phase: AllocationPhase, reason: Option<&str>) -> Self {
        let state = match phase {
            AllocationPhase::Waiting => "PENDING",
            AllocationPhase::Running => "RUNNING",
            AllocationPhase::Leaving => "COMPLETING",
        };
        Self {
            state: state.into(),
            reason: reason.map(Into::into),
            job: seen.slurm_job_id.clone(),
            expected_start: seen.expected_start_ms,
        }
    }
}

/// The end of an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocationOver {
    /// How it is known.
    pub ended_as: AllocationEnd,
    /// The batch system's word, or ours where it has none.
    pub state: String,
    /// One sentence for people.
    pub why: String,
    /// Why it ended, as far as that matters to its jobs.
    pub cause: Option<Cause>,
    /// Its jobs ran until its time was over, and none of them came to an end of its own.
    pub was_too_short: bool,
    /// Some job ran in it. Without that it gets no successor by itself, which would go on for ever.
    pub did_work: bool,
}

impl AllocationOver {
    /// An end about which the rows tell nothing else.
    pub fn new(ended_as: AllocationEnd, state: &str, why: impl Into<String>) -> Self {
        Self {
            ended_as,
            state: state.into(),
            why: why.into(),
            cause: None,
            was_too_short: false,
            did_work: false,
        }
    }

    /// As the batch system says.
    pub(crate) fn reported(ending: &AllocationEnding, why: String) -> Self {
        let ended_as = match ending.is_vanished {
            true => AllocationEnd::Vanished,
            false => AllocationEnd::Reported,
        };
        Self { cause: Some(ending.cause), ..Self::new(ended_as, &ending.state, why) }
    }
}

/// A runner that reports from inside an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The allocation's id in the batch system.
    pub job: String,
    /// How often the batch system had started it again when it started this runner, where it tells.
    pub restarts: Option<i64>,
}

/// What an arrival says about the allocation that it is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrivalOrigin {
    /// The allocation as it is now.
    ThisLife,
    /// Another batch job was sent for the same allocation.
    OtherJob,
    /// The batch system has started the allocation again since: the process that reports is gone,
    /// and only its report was late.
    EarlierLife,
}

/// Something that happened to an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllocationEvent {
    /// A submitter took it up.
    Taken {
        /// Who.
        submitter: String,
        /// Until when no other may, ms since 1970.
        until: i64,
    },
    /// The batch system has it, under this id (of the whole array where there is one).
    Submitted(String),
    /// The batch system refused it, with this message.
    Refused(String),
    /// Its submitter cannot tell whether the batch system has it.
    Undecided {
        /// Who.
        submitter: String,
        /// What it saw.
        message: String,
    },
    /// A runner reported from inside it.
    Arrived(Arrival),
    /// The batch system has it.
    Seen(Sighting),
    /// The batch system put it back into its queue.
    Requeued(Sighting),
    /// The batch system did not list it.
    Missing,
    /// No job needs it any more.
    Unneeded,
    /// It is over.
    Ended(AllocationOver),
    /// The batch system told why it ended, after it was over for us.
    Explained(AllocationOver),
}

impl AllocationEvent {
    /// The move in the table.
    pub const fn kind(&self) -> AllocationMove {
        match self {
            Self::Taken { .. } => AllocationMove::Taken,
            Self::Submitted(_) => AllocationMove::Submitted,
            Self::Refused(_) => AllocationMove::Refused,
            Self::Undecided { .. } => AllocationMove::Undecided,
            Self::Arrived(_) => AllocationMove::Arrived,
            Self::Seen(_) => AllocationMove::Seen,
            Self::Requeued(_) => AllocationMove::Requeued,
            Self::Missing => AllocationMove::Missing,
            Self::Unneeded => AllocationMove::Unneeded,
            Self::Ended(_) => AllocationMove::Ended,
            Self::Explained(_) => AllocationMove::Explained,
        }
    }
}

/// Who is sending an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The submitter.
    pub by: String,
    /// Until when no other may, ms since 1970.
    pub until: i64,
}

/// What was said of an allocation last.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AllocationWord {
    /// Where the batch system says that it stands, or our word where it has none.
    pub state: Option<String>,
    /// Why, for people.
    pub reason: Option<String>,
    /// Why it ended.
    pub cause: Option<Cause>,
}

/// An allocation, as far as it changes. All times are ms since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocationLife {
    /// Where it stands.
    pub status: AllocationStatus,
    /// Its number in an array of the batch system.
    pub array_task: Option<i64>,
    /// Who sent it, or is sending it.
    pub submission: Option<Submission>,
    /// Its id in the batch system.
    pub job: Option<String>,
    /// The last word about it.
    pub word: AllocationWord,
    /// When the batch system took it.
    pub submitted_at: Option<i64>,
    /// When the batch system plans to start it.
    pub expected_start: Option<i64>,
    /// When its first runner reported, in its present life.
    pub started_at: Option<i64>,
    /// When it ended, and how that is known.
    pub end: Option<(i64, AllocationEnd)>,
    /// Since when the batch system does not list it.
    pub missing_since: Option<i64>,
    /// Since when no job needs it.
    pub unneeded_since: Option<i64>,
    /// Another one like it would end like it.
    pub was_too_short: bool,
    /// How often the batch system had started it again before its present life, where it told.
    pub restarts: Option<i64>,
    /// Grows with everything that makes an earlier look at the batch system meaningless.
    pub moves: i64,
}

impl AllocationLife {
    /// One that was asked for.
    pub fn planned(array_task: Option<i64>) -> Self {
        Self {
            status: AllocationStatus::Planned,
            array_task,
            submission: None,
            job: None,
            word: AllocationWord::default(),
            submitted_at: None,
            expected_start: None,
            started_at: None,
            end: None,
            missing_since: None,
            unneeded_since: None,
            was_too_short: false,
            restarts: None,
            moves: 0,
        }
    }

    /// Where a runner that reports comes from. Of two lives of a batch job only the later one has
    /// processes, so that a report from the earlier one says nothing.
    pub fn origin(&self, arrival: &Arrival) -> ArrivalOrigin {
        let is_earlier = |(known, told)| told < known;
        if self.job.as_ref().is_some_and(|known| *known != arrival.job) {
            ArrivalOrigin::OtherJob
        } else if self.restarts.zip(arrival.restarts).is_some_and(is_earlier) {
            ArrivalOrigin::EarlierLife
        } else {
            ArrivalOrigin::ThisLife
        }
    }

    /// What follows from an event. One that cannot happen now is refused and changes nothing.
    pub fn step(
        &mut self,
        event: AllocationEvent,
        now: i64,
    ) -> Result<(), IllegalEvent<AllocationStatus, AllocationMove>> {
        let kind = event.kind();
        let illegal = IllegalEvent { state: self.status, event: kind };
        let next = self.status.after(kind)?;
        match event {
            AllocationEvent::Taken { submitter, until } => {
                self.submission = Some(Submission { by: submitter, until });
            }
            AllocationEvent::Submitted(job) => {
                self.job = Some(match self.array_task {
                    Some(task) => format!("{job}_{task}"),
                    None => job,
                });
                self.submitted_at = Some(now);
                self.missing_since = None;
            }
            AllocationEvent::Refused(message) => {
                self.word.state = Some("REFUSED".into());
                self.word.reason = Some(message);
                self.end = Some((now, AllocationEnd::Refused));
            }
            AllocationEvent::Undecided { submitter, message } => {
                // One whose time was over may have been taken over by another submitter.
                let Some(own) = self.submission.as_mut().filter(|own| own.by == submitter) else {
                    return Err(illegal);
                };
                own.until = now;
                self.word.reason = Some(message);
            }
            AllocationEvent::Arrived(arrival) => match self.origin(&arrival) {
                ArrivalOrigin::ThisLife => self.arrive(arrival, now),
                ArrivalOrigin::OtherJob | ArrivalOrigin::EarlierLife => return Err(illegal),
            },
            AllocationEvent::Seen(seen) => self.see(seen, now),
            AllocationEvent::Requeued(seen) => {
                self.see(seen, now);
                (self.end, self.word.cause) = (None, None);
            }
            AllocationEvent::Missing => _ = self.missing_since.get_or_insert(now),
            AllocationEvent::Unneeded => self.unneeded_since = Some(now),
            AllocationEvent::Ended(over) => {
                self.was_too_short = over.was_too_short;
                self.be_over(over, now);
            }
            AllocationEvent::Explained(over) => {
                let since = self.end.map_or(now, |(at, _)| at);
                self.be_over(over, since);
            }
        }
        let begins_anew = matches!(
            kind,
            AllocationMove::Taken | AllocationMove::Arrived | AllocationMove::Requeued
        );
        self.moves += i64::from(begins_anew || next != self.status);
        self.status = next;
        Ok(())
    }

    /// It runs, whatever was thought of it before.
    fn arrive(&mut self, arrival: Arrival, now: i64) {
        let goes_on = self.started_at.filter(|_| self.status == AllocationStatus::Active);
        *self = Self {
            status: self.status,
            array_task: self.array_task,
            submission: self.submission.take(),
            job: Some(arrival.job),
            word: AllocationWord { state: Some("RUNNING".into()), ..AllocationWord::default() },
            submitted_at: self.submitted_at.or(Some(now)),
            expected_start: self.expected_start,
            started_at: goes_on.or(Some(now)),
            end: None,
            missing_since: None,
            unneeded_since: None,
            was_too_short: false,
            restarts: arrival.restarts.or(self.restarts),
            moves: self.moves,
        };
    }

    fn see(&mut self, seen: Sighting, now: i64) {
        (self.word.state, self.word.reason) = (Some(seen.state), seen.reason);
        self.missing_since = None;
        self.job = self.job.take().or(seen.job);
        self.submitted_at = self.submitted_at.or(Some(now));
        self.expected_start = seen.expected_start;
    }

    fn be_over(&mut self, over: AllocationOver, at: i64) {
        let AllocationOver { state, why, cause, .. } = over;
        self.word = AllocationWord { state: Some(state), reason: Some(why), cause };
        self.end = Some((at, over.ended_as));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, as text. It is the documentation too: a change here is a change of the
    /// contract.
    #[test]
    fn the_allocation_table_is_the_documented_one() {
        let mut table = String::new();
        for status in AllocationStatus::ALL {
            let next = |kind: &AllocationMove| {
                status.after(*kind).ok().map(|next| format!("{kind:?} -> {next}"))
            };
            let moves: Vec<_> = AllocationMove::ALL.iter().filter_map(next).collect();
            table += &format!("{status}: {}\n", moves.join(", "));
        }
        assert_eq!(table, include_str!("allocation_table.txt"));
    }

    fn planned(array_task: Option<i64>) -> AllocationLife {
        AllocationLife::planned(array_task)
    }

    fn arrived(job: &str) -> AllocationEvent {
        AllocationEvent::Arrived(Arrival { job: job.into(), restarts: None })
    }

    fn taken(by: &str, until: i64) -> AllocationEvent {
        AllocationEvent::Taken { submitter: by.into(), until }
    }

    fn word(state: Option<&str>, reason: Option<&str>) -> AllocationWord {
        let text = |text: Option<&str>| text.map(str::to_owned);
        AllocationWord { state: text(state), reason: text(reason), cause: None }
    }

    fn over(ended_as: AllocationEnd) -> AllocationOver {
        AllocationOver {
            ended_as,
            state: "TIMEOUT".into(),
            why: "its time was over".into(),
            cause: Some(Cause::Walltime),
            was_too_short: true,
            did_work: true,
        }
    }

    #[test]
    fn a_runner_that_reports_before_its_submitter_keeps_the_allocation_active() {
        let mut life = planned(Some(3));
        life.step(taken("a", 100), 1).expect("it waits to be sent");
        life.step(arrived("7_3"), 2).expect("it runs");
        let before = life.clone();
        life.step(AllocationEvent::Submitted("7".into()), 3).expect_err("it came late");
        life.step(AllocationEvent::Refused("no".into()), 3).expect_err("it came late");
        assert_eq!(life, before);
        assert_eq!((life.status, life.started_at), (AllocationStatus::Active, Some(2)));
    }

    #[test]
    fn a_submitter_that_was_replaced_cannot_give_the_allocation_back() {
        let mut life = planned(Some(1));
        life.step(taken("a", 100), 1).expect("it waits to be sent");
        life.step(taken("b", 200), 101).expect("the first one was interrupted");
        let unsure =
            |by: &str| AllocationEvent::Undecided { submitter: by.into(), message: "?".into() };
        life.step(unsure("a"), 102).expect_err("another one has it");
        assert_eq!(life.submission, Some(Submission { by: "b".into(), until: 200 }));
        life.step(unsure("b"), 103).expect("it has it");
        assert_eq!(life.submission.as_ref().map(|own| own.until), Some(103));
        life.step(AllocationEvent::Submitted("9".into()), 104).expect("it was found");
        assert_eq!((life.job.as_deref(), life.submitted_at), (Some("9_1"), Some(104)));
    }

    #[test]
    fn an_end_counts_once_and_its_reason_may_follow() {
        let mut life = planned(None);
        life.step(taken("a", 100), 1).expect("it waits to be sent");
        life.step(arrived("7"), 2).expect("it runs");
        life.step(AllocationEvent::Ended(over(AllocationEnd::Left)), 5).expect("it runs");
        life.step(AllocationEvent::Ended(over(AllocationEnd::Reported)), 6)
            .expect_err("it is over");
        assert_eq!(life.end, Some((5, AllocationEnd::Left)));
        let why = AllocationOver { was_too_short: false, ..over(AllocationEnd::Reported) };
        life.step(AllocationEvent::Explained(why), 9).expect("it is over");
        assert_eq!(life.end, Some((5, AllocationEnd::Reported)));
        assert!(life.was_too_short, "that was known before");
        // The batch system starts it again: it is as good as any other.
        life.step(arrived("7"), 20).expect("it runs again");
        assert_eq!((life.started_at, life.end, life.word.cause), (Some(20), None, None));
        assert!(!life.was_too_short);
    }

    #[test]
    fn everything_that_is_told_of_an_allocation_is_kept_until_it_is_told_otherwise() {
        let seen = |state: &str, job: Option<&str>| Sighting {
            state: state.into(),
            reason: Some("Priority".into()),
            job: job.map(str::to_owned),
            expected_start: Some(900),
        };
        let mut life = planned(None);
        life.step(AllocationEvent::Unneeded, 1).expect("it was not sent");
        assert_eq!(life, AllocationLife { unneeded_since: Some(1), ..planned(None) });
        life.step(taken("a", 100), 2).expect("it waits to be sent");
        life.step(AllocationEvent::Missing, 3).expect("it is on its way");
        life.step(AllocationEvent::Missing, 4).expect("it is on its way");
        assert_eq!(life.missing_since, Some(3), "since the first time");
        let unsure = AllocationEvent::Undecided { submitter: "a".into(), message: "?".into() };
        life.step(unsure, 5).expect("it has it");
        let sent = AllocationLife {
            status: AllocationStatus::Submitting,
            submission: Some(Submission { by: "a".into(), until: 5 }),
            word: word(None, Some("?")),
            missing_since: Some(3),
            unneeded_since: Some(1),
            moves: 1,
            ..planned(None)
        };
        assert_eq!(life, sent);
        let mut refused = life.clone();
        refused.step(AllocationEvent::Refused("no such partition".into()), 6).expect("it was sent");
        let expected = AllocationLife {
            status: AllocationStatus::Complete,
            word: word(Some("REFUSED"), Some("no such partition")),
            end: Some((6, AllocationEnd::Refused)),
            moves: 2,
            ..sent.clone()
        };
        assert_eq!(refused, expected);
        let mut submitted = life.clone();
        submitted.step(AllocationEvent::Submitted("8".into()), 7).expect("it was sent");
        let expected = AllocationLife {
            status: AllocationStatus::Pending,
            job: Some("8".into()),
            submitted_at: Some(7),
            missing_since: None,
            moves: 2,
            ..sent.clone()
        };
        assert_eq!(submitted, expected);
        life.step(AllocationEvent::Seen(seen("PENDING", Some("9"))), 8).expect("it was sent");
        let pending = AllocationLife {
            status: AllocationStatus::Pending,
            job: Some("9".into()),
            word: word(Some("PENDING"), Some("Priority")),
            submitted_at: Some(8),
            expected_start: Some(900),
            missing_since: None,
            moves: 2,
            ..sent
        };
        assert_eq!(life, pending);
        life.step(AllocationEvent::Seen(seen("PENDING", Some("10"))), 9).expect("it waits");
        assert_eq!(life, pending, "its id and the time stay");
        life.step(arrived("9"), 10).expect("it runs");
        let active = AllocationLife {
            status: AllocationStatus::Active,
            word: word(Some("RUNNING"), None),
            started_at: Some(10),
            unneeded_since: None,
            moves: 3,
            ..pending
        };
        assert_eq!(life, active);
        life.step(arrived("9"), 11).expect("a second runner");
        let active = AllocationLife { moves: 4, ..active };
        assert_eq!(life, active, "it runs since the first");
        life.step(AllocationEvent::Ended(over(AllocationEnd::Left)), 12).expect("it runs");
        let ended = AllocationLife {
            status: AllocationStatus::Complete,
            word: AllocationWord {
                cause: Some(Cause::Walltime),
                ..word(Some("TIMEOUT"), Some("its time was over"))
            },
            end: Some((12, AllocationEnd::Left)),
            was_too_short: true,
            moves: 5,
            ..active
        };
        assert_eq!(life, ended);
        life.step(AllocationEvent::Requeued(seen("REQUEUED", None)), 13)
            .expect("it may start again");
        let requeued = AllocationLife {
            status: AllocationStatus::Pending,
            word: word(Some("REQUEUED"), Some("Priority")),
            end: None,
            moves: 6,
            ..ended
        };
        assert_eq!(life, requeued);
    }

    #[test]
    fn a_runner_of_an_earlier_life_of_the_allocation_does_not_arrive() {
        let from = |job: &str, restarts| Arrival { job: job.into(), restarts };
        let mut life = planned(None);
        life.step(taken("a", 100), 1).expect("it waits to be sent");
        life.step(AllocationEvent::Submitted("7".into()), 2).expect("it was sent");
        // The batch system started it a second time, and that runner was quicker.
        life.step(AllocationEvent::Arrived(from("7", Some(1))), 3).expect("it runs");
        let before = life.clone();
        for (late, origin) in [
            (from("7", Some(0)), ArrivalOrigin::EarlierLife),
            (from("8", Some(1)), ArrivalOrigin::OtherJob),
            (from("8", Some(0)), ArrivalOrigin::OtherJob),
        ] {
            assert_eq!(life.origin(&late), origin);
            life.step(AllocationEvent::Arrived(late), 4).expect_err("it is not of this life");
        }
        assert_eq!(life, before);
        // Not every batch system tells, and runners on other nodes are of the same life.
        for (restarts, known) in [(None, 1), (Some(1), 1), (Some(3), 3)] {
            let told = from("7", restarts);
            assert_eq!(life.origin(&told), ArrivalOrigin::ThisLife);
            life.step(AllocationEvent::Arrived(told), 5).expect("it runs");
            assert_eq!(life.restarts, Some(known));
        }
        let mut untold = planned(None);
        untold.step(AllocationEvent::Arrived(from("7", None)), 1).expect("it runs");
        assert_eq!(untold.origin(&from("7", Some(0))), ArrivalOrigin::ThisLife);
    }

    #[test]
    fn what_makes_earlier_looks_meaningless_counts_as_a_move() {
        let seen = || Sighting {
            state: "PENDING".into(),
            reason: None,
            job: Some("7".into()),
            expected_start: None,
        };
        let unsure = AllocationEvent::Undecided { submitter: "b".into(), message: "?".into() };
        let over = || over(AllocationEnd::Left);
        let mut life = planned(None);
        for (event, moves) in [
            (AllocationEvent::Unneeded, 0),
            (taken("a", 100), 1),
            (taken("b", 300), 2),
            (unsure, 2),
            (AllocationEvent::Missing, 2),
            (AllocationEvent::Seen(seen()), 3),
            (AllocationEvent::Seen(seen()), 3),
            (AllocationEvent::Missing, 3),
            (AllocationEvent::Requeued(seen()), 4),
            (arrived("7"), 5),
            (arrived("7"), 6),
            (AllocationEvent::Seen(seen()), 6),
            (AllocationEvent::Ended(over()), 7),
            (AllocationEvent::Explained(over()), 7),
            (AllocationEvent::Requeued(seen()), 8),
        ] {
            let kind = event.kind();
            life.step(event, 1).expect("it can happen");
            assert_eq!(life.moves, moves, "{kind:?}");
        }
        life.step(taken("c", 300), 1).expect_err("it was sent");
        assert_eq!(life.moves, 8, "what cannot happen is no move");
    }
}
