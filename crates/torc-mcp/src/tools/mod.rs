//! The tools, and who gets which.

mod attended;
mod triage;

use crate::backend::Later;
use crate::server::Settings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use torc_client::Client;
use torc_model::ids::WorkflowId;

/// Which tools a server offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Toolset {
    /// For an agent that works by itself: read what waits for a verdict, give one.
    Unattended,
    /// For the assistant of a person who watches it.
    Attended,
}

impl Toolset {
    /// The tools in it.
    pub fn tools(self) -> Vec<Tool> {
        let mut tools = triage::tools();
        if self == Self::Attended {
            tools.extend(attended::tools());
        }
        tools
    }
}

/// One tool.
pub struct Tool {
    /// As clients call it.
    pub name: &'static str,
    /// What the model reads about it.
    pub description: &'static str,
    /// It changes nothing.
    pub is_read_only: bool,
    /// JSON schema of its arguments.
    pub schema: fn() -> Value,
    /// Does it.
    pub(crate) run: fn(ToolCall) -> Later<'static, Result<Value, ToolError>>,
}

/// One call of a tool.
pub(crate) struct ToolCall {
    pub settings: Arc<Settings>,
    pub arguments: Value,
}

impl ToolCall {
    /// The arguments, or what is wrong with them.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        T::deserialize(&self.arguments).map_err(|error| ToolError::Arguments(error.to_string()))
    }

    /// The server may speak of this workflow.
    pub fn check(&self, workflow: WorkflowId) -> Result<(), ToolError> {
        match self.settings.workflow {
            Some(bound) if bound != workflow => Err(ToolError::OtherWorkflow { bound }),
            Some(_) | None => Ok(()),
        }
    }

    /// Does some work with Torc's server.
    pub async fn ask<F, T>(&self, work: F) -> Result<Value, ToolError>
    where
        F: FnOnce(Client) -> T + Send + 'static,
        T: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        self.settings.backend.with_client(Box::new(move |client| Box::pin(work(client)))).await
    }
}

/// Why a tool has no answer.
#[derive(Debug)]
pub enum ToolError {
    /// The call does not fit the tool's schema.
    Arguments(String),
    /// The server is bound to one workflow.
    OtherWorkflow {
        /// The workflow that this server is for.
        bound: WorkflowId,
    },
    /// Torc's server refused or could not be reached.
    Torc(String),
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(what) => write!(f, "the arguments are wrong: {what}"),
            Self::OtherWorkflow { bound } => {
                write!(f, "this server only answers for workflow {bound}")
            }
            Self::Torc(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ToolError {}

impl From<torc_client::Error> for ToolError {
    fn from(error: torc_client::Error) -> Self {
        match error {
            torc_client::Error::Refused { info, .. } => {
                let hint = info.hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                Self::Torc(format!("{}: {}{hint}", info.code, info.message))
            }
            other => Self::Torc(other.to_string()),
        }
    }
}

/// A value of ours as JSON.
pub(crate) fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, ToolError> {
    torc_model::json::plain(value)
        .map_err(|error| ToolError::Torc(format!("the answer cannot be written: {error}")))
}
