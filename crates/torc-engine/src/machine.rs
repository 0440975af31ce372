//! The two state machines as pure functions over (state, event). Every pair is written down: no
//! wildcard.

use std::fmt;
use torc_model::status::{AttemptState, JobStatus};

/// Something that happened to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEvent {
    /// The workflow was initialized and the job still waits for something.
    InitializedBlocked,
    /// The workflow was initialized and nothing stands in the job's way.
    InitializedReady,
    /// The last unmet dependency was met.
    DependenciesMet,
    /// A dependency ended badly and the job does not run without it.
    DependencyEndedBadly,
    /// A dependency that had ended was opened again.
    DependencyReopened,
    /// A runner took it.
    Claimed,
    /// The runner started it.
    Started,
    /// Its attempt succeeded.
    Succeeded,
    /// Its attempt failed and nothing will repair it.
    FailedForGood,
    /// Its attempt was ended by us (timeout) and nothing will repair it.
    TerminatedForGood,
    /// Its attempt failed, no rule matches, and the workflow asks for a verdict.
    AwaitsVerdict,
    /// A new attempt was queued.
    Requeued,
    /// A user stopped it.
    Canceled,
    /// A user switched it off.
    Disabled,
    /// A user wants it to run again in the next initialization.
    Reset,
    /// It has found its items and waits for them.
    Expanded,
    /// One of its items runs again.
    ItemReopened,
}

impl JobEvent {
    /// Every event, in order.
    pub const ALL: [Self; 17] = [
        Self::InitializedBlocked,
        Self::InitializedReady,
        Self::DependenciesMet,
        Self::DependencyEndedBadly,
        Self::DependencyReopened,
        Self::Claimed,
        Self::Started,
        Self::Succeeded,
        Self::FailedForGood,
        Self::TerminatedForGood,
        Self::AwaitsVerdict,
        Self::Requeued,
        Self::Canceled,
        Self::Disabled,
        Self::Reset,
        Self::Expanded,
        Self::ItemReopened,
    ];
}

/// An event that cannot happen in this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IllegalEvent<S, E> {
    /// Where it stood.
    pub state: S,
    /// What was said to have happened.
    pub event: E,
}

impl<S: fmt::Display, E: fmt::Debug> fmt::Display for IllegalEvent<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{:?}` cannot happen to one that is {}", self.event, self.state)
    }
}

/// A state that events move.
pub trait Machine: Sized {
    /// What can happen.
    type Event;

    /// The state after an event.
    fn after(self, event: Self::Event) -> Result<Self, IllegalEvent<Self, Self::Event>>;
}

impl Machine for JobStatus {
    type Event = JobEvent;

    fn after(self, event: JobEvent) -> Result<Self, IllegalEvent<Self, JobEvent>> {
        use JobEvent as E;
        let illegal = Err(IllegalEvent { state: self, event });
        match self {
            Self::Uninitialized => match event {
                E::InitializedBlocked => Ok(Self::Blocked),
                E::InitializedReady => Ok(Self::Ready),
                E::DependencyEndedBadly | E::Canceled => Ok(Self::Canceled),
                E::Disabled => Ok(Self::Disabled),
                E::DependenciesMet
                | E::DependencyReopened
                | E::Claimed
                | E::Started
                | E::Succeeded
                | E::FailedForGood
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Requeued
                | E::Reset
                | E::Expanded
                | E::ItemReopened => illegal,
            },
            Self::Blocked => match event {
                E::DependenciesMet => Ok(Self::Ready),
                E::DependencyEndedBadly | E::Canceled => Ok(Self::Canceled),
                E::Disabled => Ok(Self::Disabled),
                E::Reset => Ok(Self::Uninitialized),
                // A map whose items are all final.
                E::Succeeded => Ok(Self::Completed),
                E::FailedForGood => Ok(Self::Failed),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependencyReopened
                | E::Claimed
                | E::Started
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Requeued
                | E::Expanded
                | E::ItemReopened => illegal,
            },
            Self::Ready => match event {
                E::Claimed => Ok(Self::Pending),
                E::DependencyReopened => Ok(Self::Blocked),
                E::Canceled => Ok(Self::Canceled),
                E::Disabled => Ok(Self::Disabled),
                E::Reset => Ok(Self::Uninitialized),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::Started
                | E::Succeeded
                | E::FailedForGood
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Requeued
                | E::Expanded
                | E::ItemReopened => illegal,
            },
            Self::Pending | Self::Running => match event {
                E::Started if self == Self::Pending => Ok(Self::Running),
                E::Succeeded => Ok(Self::Completed),
                E::FailedForGood => Ok(Self::Failed),
                E::TerminatedForGood => Ok(Self::Terminated),
                E::AwaitsVerdict => Ok(Self::PendingFailed),
                E::Requeued => Ok(Self::Ready),
                E::Expanded => Ok(Self::Blocked),
                E::Canceled => Ok(Self::Canceled),
                E::Started
                | E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::DependencyReopened
                | E::Claimed
                | E::Disabled
                | E::Reset
                | E::ItemReopened => illegal,
            },
            Self::Completed => match event {
                E::Reset => Ok(Self::Uninitialized),
                E::ItemReopened => Ok(Self::Blocked),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::DependencyReopened
                | E::Claimed
                | E::Started
                | E::Succeeded
                | E::FailedForGood
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Requeued
                | E::Canceled
                | E::Disabled
                | E::Expanded => illegal,
            },
            Self::Failed | Self::Terminated => match event {
                E::Requeued => Ok(Self::Ready),
                E::Reset => Ok(Self::Uninitialized),
                E::ItemReopened if self == Self::Failed => Ok(Self::Blocked),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::DependencyReopened
                | E::Claimed
                | E::Started
                | E::Succeeded
                | E::FailedForGood
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Canceled
                | E::Disabled
                | E::Expanded
                | E::ItemReopened => illegal,
            },
            Self::Canceled => match event {
                E::DependencyReopened => Ok(Self::Blocked),
                E::Reset => Ok(Self::Uninitialized),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::Claimed
                | E::Started
                | E::Succeeded
                | E::FailedForGood
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Requeued
                | E::Canceled
                | E::Disabled
                | E::Expanded
                | E::ItemReopened => illegal,
            },
            Self::Disabled => match event {
                E::Reset => Ok(Self::Uninitialized),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::DependencyReopened
                | E::Claimed
                | E::Started
                | E::Succeeded
                | E::FailedForGood
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Requeued
                | E::Canceled
                | E::Disabled
                | E::Expanded
                | E::ItemReopened => illegal,
            },
            Self::PendingFailed => match event {
                E::Requeued => Ok(Self::Ready),
                E::FailedForGood => Ok(Self::Failed),
                E::Canceled => Ok(Self::Canceled),
                E::Reset => Ok(Self::Uninitialized),
                E::InitializedBlocked
                | E::InitializedReady
                | E::DependenciesMet
                | E::DependencyEndedBadly
                | E::DependencyReopened
                | E::Claimed
                | E::Started
                | E::Succeeded
                | E::TerminatedForGood
                | E::AwaitsVerdict
                | E::Disabled
                | E::Expanded
                | E::ItemReopened => illegal,
            },
        }
    }
}

/// Something that happened to an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptEvent {
    /// A runner took it.
    Claimed,
    /// Its process exists.
    Started,
    /// It ended in this state.
    Ended(AttemptState),
}

/// Ended attempts never move.
impl Machine for AttemptState {
    type Event = AttemptEvent;

    fn after(self, event: AttemptEvent) -> Result<Self, IllegalEvent<Self, AttemptEvent>> {
        use AttemptEvent as E;
        match (self, event) {
            (Self::Queued, E::Claimed) => Ok(Self::Claimed),
            (Self::Claimed, E::Started) => Ok(Self::Running),
            // One that no runner took can only be dropped.
            (Self::Queued, E::Ended(Self::Canceled)) => Ok(Self::Canceled),
            (Self::Claimed | Self::Running, E::Ended(end)) if !end.is_live() => Ok(end),
            (Self::Queued, E::Started | E::Ended(_))
            | (Self::Claimed, E::Claimed | E::Ended(_))
            | (Self::Running, E::Claimed | E::Started | E::Ended(_))
            | (
                Self::Completed | Self::Failed | Self::Canceled | Self::Terminated,
                E::Claimed | E::Started | E::Ended(_),
            ) => Err(IllegalEvent { state: self, event }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, as text. It is the documentation too: a change here is a change of the
    /// contract.
    #[test]
    fn the_job_table_is_the_documented_one() {
        let mut table = String::new();
        for status in JobStatus::ALL {
            let moves: Vec<_> = JobEvent::ALL
                .iter()
                .filter_map(|event| {
                    status.after(*event).ok().map(|next| format!("{event:?} -> {next}"))
                })
                .collect();
            table += &format!("{status}: {}\n", moves.join(", "));
        }
        assert_eq!(table, include_str!("job_table.txt"));
    }

    #[test]
    fn ended_attempts_never_move() {
        let events = [AttemptEvent::Claimed, AttemptEvent::Started]
            .into_iter()
            .chain(AttemptState::ALL.iter().map(|s| AttemptEvent::Ended(*s)));
        for event in events {
            for state in AttemptState::ALL.iter().filter(|s| !s.is_live()) {
                assert!(state.after(event).is_err(), "{state} {event:?}");
            }
            for state in AttemptState::ALL {
                assert_ne!(
                    state.after(event),
                    Ok(AttemptState::Queued),
                    "nothing returns to the queue"
                );
            }
        }
    }
}
