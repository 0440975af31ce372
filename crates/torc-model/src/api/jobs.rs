//! Jobs, attempts and map items as people see and change them.

use super::{Evidence, RecoveryScript, ScriptResult};
use crate::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use crate::status::{
    AttemptState, Cause, EndDetail, EndedBy, EstimateSource, ItemOutcome, JobStatus, Origin,
    Outcome, StatusReason, Stream,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Jobs that a running job adds to its workflow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SpawnJobs {
    /// A repeat with the same key adds nothing and is answered like the first. It belongs to the
    /// adding job and its run; without one, the job adds once per run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What the iterations are counted for; the adding job's own unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
    /// Kept as user data of the lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub state: Option<Value>,
    /// What depends on the adding job waits for the new jobs too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// The new jobs do not wait for the adding job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// A piece of a spec: `jobs`, and if needed `files`, `user_data`, `resource_requirements`,
    /// `failure_handlers`, `parameters`, `variables`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub piece: Map<String, Value>,
}

/// What was added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SpawnedJobs {
    /// The jobs, in the order of the request.
    pub spawned_job_ids: Vec<JobId>,
    /// How often jobs of this lineage have added jobs in this run.
    pub iteration: i64,
    /// The lineage.
    pub lineage: String,
    /// They had been added before; nothing was changed.
    pub is_repeat: bool,
}

/// A job as lists and `get` show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Id of the job.
    pub id: JobId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Name of the job, unique in its workflow.
    pub name: String,
    /// Shell text.
    pub command: String,
    /// Where it stands.
    pub status: JobStatus,
    /// Number of the current or last attempt.
    pub attempt_id: i64,
    /// Higher runs first.
    pub priority: i64,
    /// Resource requirement by name.
    pub resource_requirements: Option<String>,
    /// CPUs on each node.
    pub num_cpus: i64,
    /// GPUs on each node.
    pub num_gpus: i64,
    /// Number of nodes.
    pub num_nodes: i64,
    /// Memory in force for the next attempt, adjustments included.
    pub memory: Option<String>,
    /// Runtime in force for the next attempt, adjustments included.
    pub runtime: Option<String>,
    /// Failure handler by name.
    pub failure_handler: Option<String>,
    /// Slurm scheduler by name.
    pub scheduler: Option<String>,
    /// Canceled when a dependency ends badly.
    pub cancel_on_blocking_job_failure: bool,
    /// Held back by a person.
    pub held: bool,
    /// Why it has its status, when that needs a word.
    pub status_reason: Option<StatusReason>,
    /// Ids of the jobs it depends on (only in `get`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_job_ids: Option<Vec<JobId>>,
    /// The rarer settings (only in `get`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub extra: Option<Value>,
    /// The last attempt's return code.
    pub return_code: Option<i64>,
    /// The entry of the spec it came from.
    #[serde(default)]
    pub family: String,
    /// The newest attempt in short (only in lists that ask for it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<super::LastAttempt>,
    /// Steps of the last attempt that failed and were recovered.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub recovered_steps: i64,
    /// Steps of the last attempt that failed, which was tolerated.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub ignored_steps: i64,
    /// How long it is expected to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_seconds: Option<f64>,
    /// How that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_source: Option<EstimateSource>,
}

/// An attempt as lists and `get` show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Id of the row; `attempt_id` is its number within the run.
    pub id: AttemptId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub job_name: String,
    /// The run.
    pub run_id: i64,
    /// 1, 2, 3... in the run.
    pub attempt_id: i64,
    /// Where it stands.
    pub state: AttemptState,
    /// Where it came from.
    pub origin: Origin,
    /// The attempt it retries.
    pub retry_of: Option<AttemptId>,
    /// Not before this time, ms since 1970.
    pub not_before_ms: Option<i64>,
    /// Queued at.
    pub created_ms: i64,
    /// Claimed at.
    pub claimed_ms: Option<i64>,
    /// Started at.
    pub started_ms: Option<i64>,
    /// Ended at.
    pub ended_ms: Option<i64>,
    /// Its runner.
    pub compute_node_id: Option<RunnerId>,
    /// The runner's host.
    pub hostname: Option<String>,
    /// Process group.
    pub pid: Option<i64>,
    /// Return code.
    pub return_code: Option<i64>,
    /// Signal that ended it.
    pub signal: Option<i64>,
    /// Who or what ended it.
    pub ended_by: Option<EndedBy>,
    /// Why it failed.
    pub cause: Option<Cause>,
    /// What exactly failed or stopped it, where the cause leaves that open.
    pub detail: Option<EndDetail>,
    /// What a person should read.
    pub error: Option<String>,
    /// What decided the cause.
    pub evidence: Vec<Evidence>,
    /// Wall time.
    pub exec_seconds: Option<f64>,
    /// CPU time.
    pub cpu_seconds: Option<f64>,
    /// Highest memory use.
    pub peak_memory_bytes: Option<i64>,
    /// Highest CPU use, 100 per core.
    pub peak_cpu_percent: Option<f64>,
    /// Memory it was given.
    pub memory_bytes: Option<i64>,
    /// Seconds it was given.
    pub time_limit_seconds: Option<i64>,
    /// Standard output.
    pub stdout_path: Option<String>,
    /// Standard error.
    pub stderr_path: Option<String>,
    /// End of standard error of a failure.
    pub stderr_tail: Option<String>,
    /// Where that end begins in the file, in bytes.
    pub stderr_tail_start: Option<i64>,
    /// What its runner saw of a failure beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<crate::recovery::Observed>,
    /// What the rules decided.
    pub outcome: Option<Outcome>,
    /// The decision in one sentence.
    pub decision: Option<String>,
    /// Number of the rule that matched, from 0.
    pub rule: Option<i64>,
    /// The script that runs before it.
    pub recovery: Option<RecoveryScript>,
    /// How that script went.
    pub script: Option<ScriptResult>,
    /// What the steps did.
    #[schema(value_type = Option<Value>)]
    pub steps: Option<Value>,
    /// What happened to it, where that was asked for: by the rules of its workflow, as `recover` and
    /// `why` see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Box<crate::recovery::Diagnosis>>,
}

/// Why a job is where it is: the card of `torc why`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// The job.
    pub job: JobView,
    /// One sentence.
    pub summary: String,
    /// Further lines: blockers, missing resources, what was done, what to do next.
    pub details: Vec<String>,
    /// The newest attempt, if there is one.
    pub attempt: Option<AttemptView>,
    /// Why the newest ended attempt ended as it did, if that was not a plain success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<crate::recovery::Diagnosis>,
    /// What recovery would do about it now, with what is to be expected of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Box<crate::recovery::RecoverJob>>,
    /// What recovery changed for this job, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjustments: Vec<crate::recovery::AdjustmentView>,
    /// What a person can do.
    pub hints: Vec<String>,
}

/// Why a workflow is where it is: the card of `torc why` without a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkflowWhyView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Jobs that have not ended, by the reason why; the most frequent first.
    pub waiting: Vec<WaitGroup>,
    /// Groups that were left out.
    pub left_out: i64,
}

/// Jobs that wait for the same reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitGroup {
    /// Their status.
    pub status: JobStatus,
    /// How many.
    pub jobs: i64,
    /// Why they are there, as said of one of them.
    pub summary: String,
    /// What to do about it, one sentence each.
    pub hints: Vec<String>,
    /// One of them.
    pub sample: JobId,
    /// Its name.
    pub sample_name: String,
}

/// Changes a job; absent fields stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UpdateJob {
    /// `ready` or `failed` out of `pending_failed`; `disabled` out of `uninitialized`, and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    /// Why, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who asks, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Higher runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Hold it back, or let it go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Memory for the next attempts, as `8g`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<crate::units::Memory>,
    /// Runtime for the next attempts, as `2h30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<crate::units::Runtime>,
    /// CPUs for the next attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 4294967295.0)]
    pub num_cpus: Option<u32>,
    /// GPUs for the next attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 4294967295.0)]
    pub num_gpus: Option<u32>,
}

/// Names jobs to cancel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CancelJobs {
    /// The jobs, all of one workflow.
    pub job_ids: Vec<JobId>,
}

/// What a cancel did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CanceledJobs {
    /// Jobs that are canceled now or as soon as their runner has stopped them.
    pub job_ids: Vec<JobId>,
}

/// Asks for one more attempt of each of these jobs, or of none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetryJobs {
    /// The jobs. One that is named twice counts once.
    pub jobs: Vec<RetryOne>,
}

/// A job of which one more attempt is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetryOne {
    /// The job.
    pub job_id: JobId,
    /// The current run, as the caller knows it.
    pub run_id: i64,
    /// Allowed while the attempt's number is lower than this.
    #[schema(minimum = 0)]
    pub max_retries: i64,
}

/// A piece of an attempt's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogView {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub run_id: i64,
    /// The attempt in the run.
    pub attempt_id: i64,
    /// Which output.
    pub stream: Stream,
    /// The file on the server's side.
    pub path: String,
    /// Where this piece begins, in bytes.
    pub offset: i64,
    /// Where the next piece begins.
    pub next_offset: i64,
    /// Size of the file now.
    pub size: i64,
    /// The piece, bytes that are not UTF-8 replaced.
    pub text: String,
}

/// An item of a map.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ItemView {
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub name: String,
    /// What identifies it.
    pub key: String,
    /// The item.
    #[schema(value_type = Value)]
    pub item: Value,
    /// Where its job stands.
    pub status: JobStatus,
    /// What it came to.
    pub outcome: ItemOutcome,
    /// It is no longer among the items.
    pub is_gone: bool,
    /// Attempts so far in this run.
    pub attempt_id: i64,
    /// Return code of the last attempt that ended.
    pub return_code: Option<i64>,
    /// What went wrong in it.
    pub error: Option<String>,
    /// Its standard output.
    pub stdout_path: Option<String>,
    /// Its standard error.
    pub stderr_path: Option<String>,
    /// What it captured.
    #[schema(value_type = Option<Object>)]
    pub captures: Option<Value>,
}

/// Names items of a map.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ItemsRequest {
    /// The map job's name.
    pub job: String,
    /// Only these keys; empty: all that ended badly.
    pub keys: Vec<String>,
    /// Only items for which this holds, such as `item.size < 9`.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// A new value for the one item that is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub item: Option<Value>,
}
