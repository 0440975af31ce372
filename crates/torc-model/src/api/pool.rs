//! Pools: runners that stay and serve every workflow that their token may see.

use super::Capacity;
use crate::ids::{PoolRunnerId, WorkflowId};
use crate::status::{RunnerOrder, RunnerState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pool runner introduces itself. Repeating it with the same `key` answers with the same id.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterPoolRunner {
    /// Made by the runner, once per process: makes a repeat harmless.
    pub key: String,
    /// Host name.
    pub hostname: String,
    /// Process id.
    pub pid: i64,
    /// What it has, for all workflows together.
    pub capacity: Capacity,
    /// Takes jobs with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A pool runner asks which workflow it should serve next.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolClaimRequest {
    /// Wait this long for one (at most 60).
    #[serde(default)]
    pub wait_seconds: f64,
    /// Workflows that it could not serve when it was told to; they are left out for a while.
    #[serde(default)]
    pub unable: Vec<WorkflowId>,
}

/// What a pool runner should do.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolClaimResponse {
    /// Start a runner for this workflow. Absent: nothing for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Take no more work, and leave when nothing is left to do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave: bool,
}

/// A pool runner hands over what it read, and hears what else is to be read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolReadsRequest {
    /// Wait this long for something to read (at most 60).
    #[serde(default)]
    pub wait_seconds: f64,
    /// What was asked for before.
    #[serde(default)]
    pub pieces: Vec<LogPiece>,
}

/// What a pool runner should read for a client of the server: outputs of attempts on its machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolReads {
    /// Each is answered once.
    pub items: Vec<ReadLog>,
}

/// A piece of an output that is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadLog {
    /// Names the answer.
    pub id: i64,
    /// The file.
    pub path: String,
    /// Where to begin, in bytes; negative counts from the end.
    pub offset: i64,
    /// At most this many bytes.
    pub limit: i64,
}

/// A piece of an output, or why it cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LogPiece {
    /// Which question it answers.
    pub id: i64,
    /// Where it begins.
    pub offset: i64,
    /// Its length in bytes.
    pub length: i64,
    /// Size of the file.
    pub size: i64,
    /// The text.
    pub text: String,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A pool runner, for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolRunnerView {
    /// Id of the pool runner.
    pub id: PoolRunnerId,
    /// Whose token it has; absent: that of the server's owner.
    pub user: Option<String>,
    /// Host name.
    pub hostname: String,
    /// Process id.
    pub pid: i64,
    /// What it has.
    pub capacity: Capacity,
    /// Its labels.
    pub label: Option<String>,
    /// Whether it is there.
    pub state: RunnerState,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Last word from it.
    pub last_seen_ms: i64,
    /// When it left.
    pub ended_ms: Option<i64>,
    /// Why it left.
    pub end_reason: Option<String>,
    /// What a person asked of it.
    pub ordered: Option<RunnerOrder>,
    /// Workflows that it serves now.
    pub workflows: i64,
    /// Jobs that it holds.
    pub held: i64,
}

/// How much of the pools a user gets beside others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    /// The owner of workflows.
    pub user: String,
    /// Those with 2 get twice as much as those with 1, which all have that were given none.
    pub weight: f64,
}

/// Sets how much of the pools a user gets beside others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetShare {
    /// More than 0, at most 1000; 1 is what users have that were given none.
    pub weight: f64,
}
