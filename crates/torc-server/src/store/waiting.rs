//! Jobs that wait for a verdict, with what makes their failures alike. For the writer and the
//! readers.

pub use super::journal::failures::{failed, last_ended, waiting};
pub use super::journal::knowledge::record;

use torc_engine::{End, RetryEnd};
use torc_model::attempt::{Ending, Output, Usage};
use torc_model::ids::{AttemptId, JobId};
use torc_model::recovery::{
    Current, Diagnosis, Facts, Fingerprint, Observed, Rules, diagnose, diagnose_with,
};
use torc_model::status::{AttemptState, Cause};

/// A job that waits for a verdict.
pub struct Waiting {
    pub job: JobId,
    pub name: String,
    /// The row of the attempt that failed.
    pub attempt: i64,
    pub run: i64,
    /// Its number in the run.
    pub number: i64,
    pub current: Current,
    pub fingerprint: Fingerprint,
    /// It was tried again after this very failure and failed the same way.
    pub is_repeated: bool,
}

/// An ended attempt, as far as a diagnosis needs it.
pub struct EndedAttempt {
    pub attempt: i64,
    pub job: JobId,
    pub run: i64,
    /// Its number in the run.
    pub number: i64,
    /// Where it ran.
    pub host: Option<String>,
    pub retry_of: Option<i64>,
    pub state: String,
    pub command: String,
    pub ending: Ending,
    pub usage: Usage,
    pub output: Output,
    pub memory_bytes: Option<i64>,
    pub time_limit_seconds: Option<i64>,
    pub observed: Option<Observed>,
    /// Rules of its workflow.
    pub rules: Option<Rules>,
}

impl EndedAttempt {
    /// It, as far as it tells how a retry went.
    pub fn retry_end(&self) -> RetryEnd {
        RetryEnd {
            attempt: AttemptId(self.attempt),
            retry_of: self.retry_of.map(AttemptId),
            run: self.run,
            // The table's CHECK allows nothing else.
            state: AttemptState::parse(&self.state).unwrap_or(AttemptState::Failed),
            cause: self.ending.cause,
        }
    }

    /// The same attempt with the end that was just reported and is not written yet.
    pub fn with_end(self, end: &End) -> Self {
        Self {
            ending: end.ending.clone(),
            usage: end.usage,
            output: end.output.clone(),
            observed: end.observed.clone(),
            ..self
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            // A job that failed without a word of its own still failed.
            cause: self.ending.cause.or(Some(Cause::Exit)),
            time_limit_seconds: self.time_limit_seconds,
            memory_bytes: self.memory_bytes,
            command: &self.command,
            ..Facts::of(&self.ending, &self.usage, &self.output, self.observed.as_ref())
        }
    }

    /// What happened to it.
    pub fn diagnosis(&self) -> Option<Diagnosis> {
        match &self.rules {
            Some(rules) => diagnose_with(rules, &self.facts()),
            None => diagnose(&self.facts()),
        }
    }

    /// What makes it like others.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_of(self.diagnosis().as_ref())
    }

    /// The same for one whose diagnosis is known.
    pub fn fingerprint_of(&self, diagnosis: Option<&Diagnosis>) -> Fingerprint {
        Fingerprint::new(&self.command, &self.facts(), diagnosis)
    }
}
