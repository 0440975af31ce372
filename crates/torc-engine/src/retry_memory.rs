//! What the end of a retry teaches about the failure that it followed: a verdict or a recovery asked
//! for the retry, and how it went is remembered.

use torc_model::ids::AttemptId;
use torc_model::recovery::RetryOutcome;
use torc_model::status::{AttemptState, Cause};

/// A retry that was asked for and whose outcome is not known yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AwaitedRetry {
    /// The attempt that failed, or the last one after it that was interrupted.
    pub follows: AttemptId,
    /// The run in which it failed.
    pub run: i64,
    /// What makes its failure like others.
    pub fingerprint: String,
}

/// An attempt that has just ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryEnd {
    /// Its row.
    pub attempt: AttemptId,
    /// The attempt that it retried.
    pub retry_of: Option<AttemptId>,
    /// Its run.
    pub run: i64,
    /// Its last state.
    pub state: AttemptState,
    /// Why it ended badly.
    pub cause: Option<Cause>,
}

/// What an end tells about an awaited retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lesson {
    /// It is another attempt; go on waiting.
    NotYet,
    /// The workflow runs again from the start: the outcome will never be known.
    Never,
    /// It was interrupted, which is not the job's doing: the attempt after this one will tell.
    Interrupted,
    /// This is how it went.
    Outcome(RetryOutcome),
}

impl AwaitedRetry {
    /// What an end tells. `fingerprint` is that of the end; it is made only where it matters.
    pub fn on_end(&self, end: &RetryEnd, fingerprint: impl FnOnce() -> String) -> Lesson {
        if end.retry_of != Some(self.follows) {
            return if end.run == self.run { Lesson::NotYet } else { Lesson::Never };
        }
        let is_interrupted =
            end.cause.is_some_and(|c| c.is_loss() || c.is_stop() || c == Cause::Checkpoint);
        if is_interrupted {
            return Lesson::Interrupted;
        }
        Lesson::Outcome(match end.state {
            AttemptState::Completed => RetryOutcome::Succeeded,
            AttemptState::Canceled => RetryOutcome::Canceled,
            AttemptState::Queued
            | AttemptState::Claimed
            | AttemptState::Running
            | AttemptState::Failed
            | AttemptState::Terminated => match fingerprint() == self.fingerprint {
                true => RetryOutcome::FailedSame,
                false => RetryOutcome::FailedOther,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_attempt_that_was_asked_for_teaches_and_an_interruption_does_not() {
        let awaited = AwaitedRetry { follows: AttemptId(1), run: 1, fingerprint: "f".into() };
        let end = RetryEnd {
            attempt: AttemptId(2),
            retry_of: Some(AttemptId(1)),
            run: 1,
            state: AttemptState::Failed,
            cause: Some(Cause::Exit),
        };
        let lesson = |end: RetryEnd, print: &str| awaited.on_end(&end, || print.to_owned());
        assert_eq!(lesson(end, "f"), Lesson::Outcome(RetryOutcome::FailedSame));
        assert_eq!(lesson(end, "g"), Lesson::Outcome(RetryOutcome::FailedOther));
        let lost = RetryEnd { cause: Some(Cause::Lost), ..end };
        assert_eq!(lesson(lost, "f"), Lesson::Interrupted);
        for cause in [Cause::Stopped, Cause::Checkpoint] {
            assert_eq!(lesson(RetryEnd { cause: Some(cause), ..end }, "f"), Lesson::Interrupted);
        }
        let canceled =
            RetryEnd { state: AttemptState::Canceled, cause: Some(Cause::Canceled), ..end };
        assert_eq!(lesson(canceled, "f"), Lesson::Outcome(RetryOutcome::Canceled));
        let other = RetryEnd { retry_of: None, ..end };
        assert_eq!(lesson(other, "f"), Lesson::NotYet);
        assert_eq!(lesson(RetryEnd { run: 2, ..other }, "f"), Lesson::Never);
        let done = RetryEnd { state: AttemptState::Completed, cause: None, ..end };
        assert_eq!(lesson(done, "f"), Lesson::Outcome(RetryOutcome::Succeeded));
    }
}
