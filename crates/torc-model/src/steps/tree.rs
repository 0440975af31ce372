//! The canonical step tree: what the spec crate writes, the database keeps and the runner executes.

use super::items::MapSettings;
use super::retry::Retry;
use crate::units::Runtime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Everything a job with steps runs. The job itself is a group: it takes a handler like any step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tree {
    /// The steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What runs when the steps failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<Handler>,
    /// What runs after all steps succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_success: Vec<Step>,
    /// Where the steps run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Where a new attempt begins.
    #[serde(skip_serializing_if = "Resume::is_default")]
    pub resume: Resume,
    /// Values that are known when the workflow is created, such as `files.input.NAME`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// The program behind `claude`; the workflow's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<StepAgent>,
    /// The item, when the job is one of a map. Filled in when the attempt is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
    /// The results of the map that the job reduces. Filled in when the attempt is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<Value>,
    /// Instead of steps: the items of a map are to be found. Filled in when the attempt is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand: Option<Box<MapSettings>>,
}

/// Where a new attempt begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// At the first step.
    #[default]
    Start,
    /// At the first step that has not succeeded in an earlier attempt of the run.
    Step,
}

impl Resume {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Free text; its path unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does.
    #[serde(flatten)]
    pub action: Action,
    /// Skipped unless this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Tries before its handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Of one try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Runtime>,
    /// What it gives to the steps after it.
    #[serde(skip_serializing_if = "Capture::is_empty")]
    pub capture: Capture,
    /// Success, instead of exit code 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// Runs after success; its failure is the step's.
    #[serde(rename = "check", skip_serializing_if = "Vec::is_empty")]
    pub validate: Vec<Step>,
    /// What runs when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<Handler>,
    /// What runs when it succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_success: Vec<Step>,
    /// Its failure is tolerated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_error: bool,
    /// Its environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
}

/// What a step does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Shell text.
    Shell(String),
    /// A prompt for the agent.
    Claude(String),
    /// A check: its failure is of the kind `validation`.
    Validate(Vec<Step>),
    /// A group.
    Steps(Vec<Step>),
}

impl Default for Action {
    fn default() -> Self {
        Self::Steps(Vec::new())
    }
}

impl Action {
    /// The word that users write for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Shell(_) => "shell",
            Self::Claude(_) => "claude",
            Self::Validate(_) => "validate",
            Self::Steps(_) => "steps",
        }
    }
}

/// What runs when a step has failed for good.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Handler {
    /// Its steps.
    pub commands: Vec<Step>,
    /// What its success means.
    #[serde(skip_serializing_if = "Strategy::is_default")]
    pub strategy: Strategy,
    /// Tries of what failed, the first included.
    #[serde(skip_serializing_if = "is_one")]
    pub max_attempts: u32,
    /// Of the whole handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Runtime>,
    /// What its last command gives to the steps after it.
    #[serde(skip_serializing_if = "Capture::is_empty")]
    pub capture: Capture,
    /// Its failure ends the job, and nothing tries again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub handler_failure_fatal: bool,
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            commands: Vec::new(),
            strategy: Strategy::default(),
            max_attempts: 1,
            timeout: None,
            capture: Capture::default(),
            handler_failure_fatal: false,
        }
    }
}

/// What a handler's success means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The cause was repaired.
    #[default]
    Recovery,
    /// The result was reached in another way.
    Fallback,
    /// Nothing: it only tidies up.
    Cleanup,
    /// What the handler wrote to `$OUTCOME_FILE`.
    Custom,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 4] = [Self::Recovery, Self::Fallback, Self::Cleanup, Self::Custom];

    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The word that users write for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Fallback => "fallback",
            Self::Cleanup => "cleanup",
            Self::Custom => "custom",
        }
    }
}

/// Variables and where their values come from.
pub type Capture = BTreeMap<String, CaptureSource>;

/// Where a captured value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaptureSource {
    /// Standard output, without trailing newlines.
    Stdout,
    /// Standard error.
    Stderr,
    /// The lines of standard output.
    Lines,
    /// Standard output as JSON, or a part of it.
    Json(Option<String>),
    /// Standard output as a number.
    Number,
    /// Standard output as `true` or `false`; else whether the exit code is 0.
    Boolean,
    /// The exit code.
    ExitCode,
    /// A file: JSON if its name ends so, else text.
    File(String),
}

impl CaptureSource {
    /// Reads `stdout`, `json:$.a`, `file:PATH` and so on.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            "lines" => Self::Lines,
            "json" => Self::Json(None),
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "exit_code" => Self::ExitCode,
            _ => match text.split_once(':') {
                Some(("json", path)) => {
                    super::data::Select::parse(path)?;
                    Self::Json(Some(path.into()))
                }
                Some(("file", path)) if !path.is_empty() => Self::File(path.into()),
                _ => {
                    return Err(format!(
                        "`{text}` is not a source; known: `stdout`, `stderr`, `lines`, `json`, `json:$.path`, \
                         `number`, `boolean`, `exit_code`, `file:PATH`"
                    ));
                }
            },
        })
    }
}

impl fmt::Display for CaptureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Stderr => f.write_str("stderr"),
            Self::Lines => f.write_str("lines"),
            Self::Json(None) => f.write_str("json"),
            Self::Json(Some(path)) => write!(f, "json:{path}"),
            Self::Number => f.write_str("number"),
            Self::Boolean => f.write_str("boolean"),
            Self::ExitCode => f.write_str("exit_code"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl Serialize for CaptureSource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CaptureSource {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The program behind `claude` steps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepAgent {
    /// Program and arguments. The prompt comes by standard input, or in place of an argument
    /// `{prompt}`.
    pub command: Vec<String>,
    /// Of one call, unless the step sets its own.
    pub timeout: Option<Runtime>,
    /// Calls in the whole workflow.
    pub max_calls: Option<u64>,
    /// Calls at once in the whole workflow.
    pub max_parallel: Option<u64>,
    /// What it may do without asking.
    pub permissions: Permissions,
    /// Prints the prompts instead of calling.
    pub dry_run: bool,
}

impl Default for StepAgent {
    fn default() -> Self {
        Self {
            command: vec!["claude".into(), "-p".into()],
            timeout: None,
            max_calls: None,
            max_parallel: None,
            permissions: Permissions::Ask,
            dry_run: false,
        }
    }
}

/// What the agent may do without asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permissions {
    /// What its own settings allow.
    #[default]
    Ask,
    /// Edit files.
    Edit,
    /// The agent may use every tool.
    All,
}

impl Step {
    /// The lists of steps inside, each with what it is called in a path.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &[Self])> {
        let inner: &[Self] = match &self.action {
            Action::Validate(steps) | Action::Steps(steps) => steps,
            Action::Shell(_) | Action::Claude(_) => &[],
        };
        let handler = self.on_failure.as_ref().map_or(&[][..], |handler| &handler.commands);
        [
            (self.action.word(), inner),
            ("validate", self.validate.as_slice()),
            ("on_failure", handler),
            ("on_success", self.on_success.as_slice()),
        ]
        .into_iter()
        .filter(|(_, steps)| !steps.is_empty())
    }

    /// It or something inside calls the agent.
    pub fn calls_agent(&self) -> bool {
        matches!(self.action, Action::Claude(_))
            || self.parts().any(|(_, steps)| steps.iter().any(Self::calls_agent))
    }
}

impl Tree {
    /// Reads the canonical JSON form.
    pub fn from_value(value: Value) -> Result<Self, String> {
        serde_json::from_value(value)
            .map_err(|error| format!("the step tree cannot be read: {error}"))
    }

    /// The canonical JSON form.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a step tree has only text keys")
    }

    /// The lists of steps inside, each with what it is called in a path.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &[Step])> {
        let handler = self.on_failure.as_ref().map_or(&[][..], |handler| &handler.commands);
        [
            ("steps", self.steps.as_slice()),
            ("on_failure", handler),
            ("on_success", self.on_success.as_slice()),
        ]
        .into_iter()
        .filter(|(_, steps)| !steps.is_empty())
    }
}
