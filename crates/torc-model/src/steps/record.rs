//! What a step tree has done: rows, events and the report that goes to the server.

use super::outcome::Outcome;
use crate::event::EventKind;
use crate::status::{EndDetail, words};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

words! {
    /// In which way a step failed.
    ErrorKind {
        /// A non-zero exit code.
        Exit = "exit",
        /// A signal.
        Signal = "signal",
        /// It took too long.
        Timeout = "timeout",
        /// It could not be started.
        Spawn = "spawn",
        /// The agent could not be called.
        Agent = "agent",
        /// `expect` did not hold.
        Expect = "expect",
        /// A check failed.
        Validation = "validation",
        /// A captured value was not what it should be.
        Capture = "capture",
        /// A variable has no value.
        Variable = "variable",
        /// The attempt's own time was over.
        Walltime = "walltime",
    }
}

impl From<ErrorKind> for EndDetail {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Exit => Self::StepExit,
            ErrorKind::Signal => Self::StepSignal,
            ErrorKind::Timeout => Self::StepTimeout,
            ErrorKind::Spawn => Self::StepSpawn,
            ErrorKind::Agent => Self::StepAgent,
            ErrorKind::Expect => Self::StepExpect,
            ErrorKind::Validation => Self::StepValidation,
            ErrorKind::Capture => Self::StepCapture,
            ErrorKind::Variable => Self::StepVariable,
            ErrorKind::Walltime => Self::StepWalltime,
        }
    }
}

/// What people read about the step that failed an attempt.
pub fn failure_line(step: &str, kind: ErrorKind, code: i64, message: &str) -> String {
    let last = message.lines().last().unwrap_or_default();
    match kind {
        // The message of an exit says only its code again.
        ErrorKind::Exit => format!("step `{step}` failed with exit code {code}"),
        ErrorKind::Validation => format!("step `{step}` did not pass its check: {last}"),
        _ => format!("step `{step}` failed ({} {code}): {last}", kind.as_str()),
    }
}

/// One try of one step, or what a step came to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Where in the tree: `steps[2].on_failure[0]`.
    pub path: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `shell`, `claude`, `validate` or `steps`.
    pub kind: String,
    /// 1, 2, 3...; over retries and re-runs.
    #[serde(rename = "try")]
    pub nth: u32,
    /// How this try ended: `ok` or `failed`; and in the last row of a step what the step came to.
    pub outcome: Outcome,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i64>,
    /// In which way it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<ErrorKind>,
    /// What a person should read about the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Start, in ms since 1970.
    pub started_ms: i64,
    /// When it ended, in ms since 1970.
    pub ended_ms: i64,
    /// Standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_path: Option<String>,
    /// Standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_path: Option<String>,
}

/// Something that happened between the tries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepEvent {
    /// What happened.
    pub kind: EventKind,
    /// When, in ms since 1970.
    pub at_ms: i64,
    /// Where in the tree.
    pub path: String,
    /// The rest.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// What a whole tree has done; travels with the attempt's report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Steps that failed and were recovered.
    pub recovered: u32,
    /// Steps whose failure was tolerated.
    pub ignored: u32,
    /// A handler failed whose failure is fatal: no automatic retry follows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fatal: bool,
    /// The step that failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_step: Option<String>,
    /// Every try.
    pub rows: Vec<Row>,
    /// What happened, in order.
    pub events: Vec<StepEvent>,
    /// The captured values at the end.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub captures: Map<String, Value>,
    /// The items that were found, when that was the work: key and item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<super::items::Item>>,
}
