//! Wire types of recovery.

use super::diagnosis::Diagnosis;
use super::record::Record;
use super::remedy::{Action, Change};
use crate::api::RecoveryView;
use crate::ids::{JobId, WorkflowId};
use crate::status::JobStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How to recover a workflow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RecoverRequest {
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Memory after an out-of-memory kill, times this; else by what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_multiplier: Option<f64>,
    /// Runtime after a timeout, times this; else by what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_multiplier: Option<f64>,
    /// Try failures without a known remedy again as they are.
    pub retry_unknown: bool,
    /// The outcomes of earlier retries do not count.
    pub no_memory: bool,
    /// Who asks, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// An automatic round: counted, and refused when this many were made in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<i64>,
    /// Memory of the largest node that can be had, in bytes, when the caller knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<i64>,
    /// The longest time that can be had, in seconds, when the caller knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<i64>,
    /// The kinds of nodes that can be had, when the caller knows a cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<NodeShape>,
    /// Only these jobs; empty: all that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub job_ids: Vec<JobId>,
}

/// A kind of node that can be had, and for how long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeShape {
    /// CPUs of a node.
    pub num_cpus: i64,
    /// Memory of a node, in bytes.
    pub memory_bytes: i64,
    /// GPUs of a node.
    #[serde(default)]
    pub num_gpus: i64,
    /// The longest runtime of a job there; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<i64>,
}

impl Default for RecoverRequest {
    fn default() -> Self {
        let policy = super::remedy::Policy::default();
        Self {
            dry_run: false,
            memory_multiplier: policy.memory_multiplier,
            runtime_multiplier: policy.runtime_multiplier,
            retry_unknown: policy.retry_unknown,
            no_memory: policy.no_memory,
            by: None,
            max_rounds: None,
            max_memory_bytes: None,
            max_runtime_seconds: None,
            shapes: Vec::new(),
            job_ids: Vec::new(),
        }
    }
}

/// What a recovery did or would do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecoverView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The run; recovery stays in it.
    pub run_id: i64,
    /// Nothing was changed.
    pub dry_run: bool,
    /// Memory after an out-of-memory kill was multiplied by this; else by what was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_multiplier: Option<f64>,
    /// Runtime after a timeout was multiplied by this; else by what was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_multiplier: Option<f64>,
    /// Automatic rounds in this run, this one included.
    pub rounds: i64,
    /// What the check for dead runners found first.
    pub orphans: RecoveryView,
    /// Every job that had ended badly or waits for a verdict, in the order of the workflow.
    pub jobs: Vec<RecoverJob>,
    /// Jobs that run again.
    pub jobs_to_retry: Vec<JobId>,
    /// Canceled jobs that wait again for those.
    pub reopened: Vec<JobId>,
    /// Jobs that got more memory.
    pub oom_fixed: i64,
    /// Jobs that got more time.
    pub timeout_fixed: i64,
    /// Jobs without a known remedy that run again as they are.
    pub unknown_retried: i64,
    /// Jobs that were left as they are.
    pub other_failures: i64,
}

/// What is done about one job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecoverJob {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Where it stood.
    pub status: JobStatus,
    /// The attempt that failed.
    pub attempt_id: i64,
    /// What happened.
    pub diagnosis: Diagnosis,
    /// What is done about it.
    pub action: Action,
    /// What changes for its next attempts.
    pub changes: Vec<Change>,
    /// Why this.
    pub reason: String,
    /// The chance that the next attempt succeeds, by the rules and by earlier outcomes; 0 where
    /// none is made.
    #[serde(default)]
    pub chance: f64,
    /// How long the next attempt will run, at a guess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_seconds: Option<f64>,
    /// Equal for the same failure; see `torc knowledge show`.
    #[serde(default)]
    pub fingerprint: String,
    /// How earlier retries of such a failure ended.
    #[serde(default)]
    pub record: Record,
}

/// A change that recovery (or `reports resources --correct`) made to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdjustmentView {
    /// Id of the adjustment.
    pub id: i64,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
    /// The run.
    pub run_id: i64,
    /// The attempt that gave the reason.
    pub attempt_id: i64,
    /// What changed.
    #[serde(flatten)]
    pub change: Change,
    /// Why it was made, in one sentence.
    pub why: String,
    /// Who asked for it.
    pub by: String,
    /// When, ms since 1970.
    pub created_ms: i64,
}
