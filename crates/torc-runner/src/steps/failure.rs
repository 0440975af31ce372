//! Where a step is, how it failed, and why everything may end at once.

use super::run::Run;
use crate::supervisor::{ProcessExit, StopReason};
use crate::time::now_ms;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use torc_model::steps::{ErrorKind, TextError};

/// A process that was ended at its limit may have run this much less than the limit by our clock.
pub(super) const LIMIT_SLACK: Duration = Duration::from_millis(20);

/// Where a step is: as people read it and as files are called.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) path: String,
    pub(super) file: String,
}

impl Place {
    pub(super) fn root() -> Self {
        Self { path: String::new(), file: String::new() }
    }

    pub(super) fn child(&self, word: &str, index: usize) -> Self {
        let mark = match word {
            "on_failure" => "f",
            "validate" => "v",
            "on_success" => "o",
            _ if self.file.is_empty() => "",
            _ => ".",
        };
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{word}[{index}]", self.path),
            file: format!("{}{mark}{index}", self.file),
        }
    }
}

/// A failure, with everything that its handler may want to know.
#[derive(Clone, Debug)]
pub struct Failure {
    /// In which way.
    pub kind: ErrorKind,
    /// As a shell would say it.
    pub code: i64,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// What a person should read.
    pub message: String,
    /// The step's name, or its path.
    pub step: String,
    pub(super) command: String,
    pub(super) nth: u32,
    pub(super) stdout: Option<PathBuf>,
    pub(super) stderr: Option<PathBuf>,
    pub(super) at_ms: i64,
    /// The end of the process that failed.
    pub exit: Option<Box<ProcessExit>>,
    /// The time limit around it that is over, counted from the outside.
    pub expired: Option<usize>,
}

/// Why everything ends at once.
#[derive(Debug)]
pub enum Stop {
    /// The attempt was stopped from outside.
    Interrupted(Option<Box<ProcessExit>>, Option<StopReason>),
    /// A handler failed whose failure is fatal.
    Fatal(Box<Failure>),
}

/// What came of one try, unless everything ends.
pub(super) type Tried = Result<Result<(), Box<Failure>>, Stop>;

/// The failure of a check is the failure of what it checks.
pub(super) fn validation(mut failure: Box<Failure>, place: &Place) -> Box<Failure> {
    if failure.expired.is_none() {
        failure.kind = ErrorKind::Validation;
        failure.step.clone_from(&place.path);
    }
    failure
}

impl Run {
    /// A failure that no process belongs to.
    pub(super) fn failure(
        &self,
        kind: ErrorKind,
        code: i64,
        message: String,
        place: &Place,
    ) -> Box<Failure> {
        Box::new(Failure {
            kind,
            code,
            signal: None,
            message,
            step: place.path.clone(),
            command: String::new(),
            nth: self.tries.get(&place.path).copied().unwrap_or(1),
            stdout: self.last.as_ref().map(|process| process.stdout.clone()),
            stderr: self.last.as_ref().map(|process| process.stderr.clone()),
            at_ms: now_ms(),
            exit: None,
            expired: None,
        })
    }

    pub(super) fn variable(&self, error: &TextError, place: &Place) -> Box<Failure> {
        self.failure(ErrorKind::Variable, 1, error.to_string(), place)
    }

    /// The failure of a step that has no time left.
    pub(super) fn expired(&self, place: &Place) -> Option<Box<Failure>> {
        let now = Instant::now();
        let over = self.clock.deadlines.iter().position(|end| *end <= now + LIMIT_SLACK)?;
        let is_own = over == 0 && self.clock.has_own_deadline;
        let kind = if is_own { ErrorKind::Walltime } else { ErrorKind::Timeout };
        let mut failure = self.failure(kind, 124, "there was no time left".into(), place);
        failure.expired = Some(over);
        Some(failure)
    }
}
