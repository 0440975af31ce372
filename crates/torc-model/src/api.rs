//! Wire types: what travels between the command line, the server and the runners.
//!
//! Integers are `i64` on the wire so that the generated OpenAPI document and its clients agree on ranges.

use crate::ids::{ActionId, AttemptId, JobId, RunnerId, WorkflowId};
use crate::plan::{Execution, OnScriptFailure, ResourceMonitor, Stdio};
use crate::status::{ActionState, AttemptState, Cause, JobStatus, Origin, Outcome, Trigger};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Where every route of the API lives.
pub const BASE_PATH: &str = "/torc-service/v1";

/// The body of every answer that is not a success.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorInfo,
}

/// What went wrong, for programs (`code`) and for people (the rest).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ErrorInfo {
    /// Stable word such as `not_found` or `run_mismatch`.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// How many rows were skipped.
    pub offset: i64,
    /// How many rows there are in all.
    pub total_count: i64,
    /// More rows follow.
    pub has_more: bool,
}

// ---------------------------------------------------------------------------------------------- runners

/// What a machine or an allocation has in all. The server subtracts what the runner already holds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Capacity {
    /// CPUs.
    pub num_cpus: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// GPUs.
    pub num_gpus: i64,
    /// Nodes.
    pub num_nodes: i64,
    /// Queue mode: at most this many jobs at once, whatever they need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<i64>,
}

/// A runner introduces itself. Repeating it with the same `key` answers with the same id.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegisterRunner {
    /// The workflow it works for.
    pub workflow_id: WorkflowId,
    /// Made by the runner, once per process: makes a repeat harmless.
    pub key: String,
    /// Host name.
    pub hostname: String,
    /// Of the host: tells a reboot.
    pub boot_id: String,
    /// Process id.
    pub pid: i64,
    /// Start time of the process in clock ticks since boot: tells a reused pid.
    pub pid_start: i64,
    /// What it has.
    pub capacity: Capacity,
    /// Seconds until it must stop (end of an allocation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_seconds: Option<i64>,
    /// `local` or `slurm`.
    pub kind: String,
    /// What the batch system knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Value>,
    /// Takes jobs with this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Where its logs go.
    pub output_dir: String,
}

/// What a new runner must know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunnerRegistered {
    /// Its id.
    pub id: RunnerId,
    /// The current run.
    pub run_id: i64,
    /// It is shown as out of contact after this long without a word.
    pub lease_seconds: i64,
    /// It must have ended its own jobs after this long without contact.
    pub disown_seconds: i64,
    /// The workflow's name.
    pub workflow_name: String,
    /// Environment for every job.
    pub env: BTreeMap<String, String>,
    /// How to watch resources.
    #[schema(value_type = Object)]
    pub resource_monitor: ResourceMonitor,
    /// How to treat output and limits.
    #[schema(value_type = Object)]
    pub execution: Execution,
    /// Leave after this many seconds without work (0: stay).
    pub idle_seconds: i64,
    /// Stay although the workflow is complete.
    pub ignore_completion: bool,
    /// Exit code that means "continue me".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_exit_code: Option<i64>,
    /// A token good for this workflow only, for the jobs.
    pub job_token: String,
}

/// Names one attempt and proves the right to speak for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptRef {
    /// The attempt's row.
    pub id: AttemptId,
    /// Given with the claim.
    pub token: String,
}

/// Asks for work, and says in the same breath what has happened since the last request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimRequest {
    /// Who asks.
    pub runner_id: RunnerId,
    /// Made by the runner, new for each claim: a repeat gets the same answer.
    pub key: String,
    /// At most this many attempts; 0 only listens for news.
    pub limit: i64,
    /// What the runner has in all; the server subtracts what it holds.
    pub capacity: Capacity,
    /// Seconds until the runner must stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_seconds: Option<i64>,
    /// Attempts beyond the free capacity that the runner keeps to start the moment something ends.
    #[serde(default)]
    pub prefetch: i64,
    /// Wait this long for work (at most 60).
    #[serde(default)]
    pub wait_seconds: f64,
    /// Attempts that started, applied before the claim.
    #[serde(default)]
    pub started: Vec<StartReport>,
    /// Attempts that ended, applied before the claim.
    #[serde(default)]
    pub completed: Vec<CompletionReport>,
    /// Jobs of another Slurm scheduler are not taken even when there is nothing else.
    #[serde(default)]
    pub strict_scheduler_match: bool,
}

/// What the runner gets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ClaimResponse {
    /// Attempts it now owns.
    pub attempts: Vec<AttemptPacket>,
    /// Attempts of its that must be stopped.
    pub cancel: Vec<AttemptId>,
    /// Actions it must execute now.
    pub actions: Vec<ActionPacket>,
    /// Answers to `started`, in order.
    pub started: Vec<ReportResult>,
    /// Answers to `completed`, in order.
    pub completed: Vec<ReportResult>,
    /// Why there is nothing, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// No job of this workflow will become ready again by itself.
    pub workflow_complete: bool,
    /// Nothing is held by any runner and nothing can be claimed now or later without outside help.
    pub idle: bool,
}

/// Everything an attempt needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptPacket {
    /// The attempt's row.
    pub id: AttemptId,
    /// Proves the right to speak for it.
    pub token: String,
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub job_name: String,
    /// The run.
    pub run_id: i64,
    /// 1, 2, 3...
    pub attempt_id: i64,
    /// Shell text; empty when there are steps.
    pub command: String,
    /// Put before the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    /// The step tree instead of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Value>,
    /// The job's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// CPUs it may use.
    pub num_cpus: i64,
    /// GPUs it may use.
    pub num_gpus: i64,
    /// Nodes it may use.
    pub num_nodes: i64,
    /// Memory it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<i64>,
    /// Seconds it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_seconds: Option<i64>,
    /// Where its output goes; the workflow's setting unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub stdio: Option<Stdio>,
    /// Files that must be there after exit 0: name and path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<FileRef>,
    /// Runs first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryScript>,
}

/// A file by name and path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileRef {
    /// Its name in the workflow.
    pub name: String,
    /// Where it is.
    pub path: String,
}

/// A script that runs before the attempt it belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecoveryScript {
    /// Shell text.
    pub script: String,
    /// Killed after this long.
    pub timeout_seconds: i64,
    /// What its failure means.
    #[schema(value_type = String)]
    pub on_failure: OnScriptFailure,
    /// The attempt that failed (`TORC_ATTEMPT_ID` of the script).
    pub failed_attempt_id: i64,
    /// The code it failed with (`TORC_RETURN_CODE`).
    pub return_code: i64,
}

/// An attempt has started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StartReport {
    /// Which.
    #[serde(flatten)]
    pub attempt: AttemptRef,
    /// Its process group.
    pub pid: i64,
    /// When, in ms since 1970.
    pub at_ms: i64,
}

/// An attempt has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionReport {
    /// Which.
    #[serde(flatten)]
    pub attempt: AttemptRef,
    /// Return code: the program's, 128+N for signal N, 152 timeout, 137 out of memory.
    pub return_code: i64,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i64>,
    /// Why it failed; absent for success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What a person should read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What decided the cause, strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// When it started, in ms since 1970.
    pub started_ms: i64,
    /// When it ended.
    pub ended_ms: i64,
    /// Wall time, by the monotonic clock.
    pub exec_seconds: f64,
    /// User and system time of the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Highest memory use of the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// Mean memory use of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_memory_bytes: Option<i64>,
    /// Highest CPU use, 100 per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_cpu_percent: Option<f64>,
    /// Mean CPU use, 100 per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_cpu_percent: Option<f64>,
    /// Standard output's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_path: Option<String>,
    /// Standard error's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_path: Option<String>,
    /// The end of standard error of a failure, decoded lossily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,
    /// How the recovery script went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptResult>,
    /// What the steps did, in the canonical JSON form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Value>,
}

/// One piece of evidence for a cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    /// `journal`, `kernel`, `scheduler`, `node`, `output`, `text` or `exit`; earlier ones are stronger.
    pub source: String,
    /// One sentence.
    pub text: String,
}

/// How a recovery script went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScriptResult {
    /// Its return code.
    pub return_code: i64,
    /// Its wall time.
    pub exec_seconds: f64,
    /// It was killed for taking too long.
    pub timed_out: bool,
    /// Its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_path: Option<String>,
    /// Its standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_path: Option<String>,
}

/// What the server made of a report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportResult {
    /// The attempt's row.
    pub id: AttemptId,
    /// `accepted`, `repeated` (already known, nothing changed) or `late` (no longer counts, recorded).
    pub result: ReportVerdict,
    /// What the rules decided about a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The job's status now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<JobStatus>,
}

/// What became of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportVerdict {
    /// It counted.
    Accepted,
    /// It had counted already.
    Repeated,
    /// Its attempt is no longer the runner's, or has ended otherwise.
    Late,
}

/// A batch of starts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StartBatch {
    /// Who reports.
    pub runner_id: RunnerId,
    /// The reports.
    pub items: Vec<StartReport>,
}

/// A batch of ends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionBatch {
    /// Who reports.
    pub runner_id: RunnerId,
    /// The reports.
    pub items: Vec<CompletionReport>,
}

/// Answers to a batch, in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportResults {
    /// One per item.
    pub results: Vec<ReportResult>,
}

/// A runner is alive and holds these attempts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    /// Who.
    pub runner_id: RunnerId,
    /// What it holds.
    pub held: Vec<AttemptRef>,
    /// Attempts that an answer spoke of and that it does not have: their process is gone, or the answer that granted
    /// them never arrived and will not be followed. Repeated until a heartbeat with them was answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<AttemptId>,
}

/// What a heartbeat learns.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// Attempts that must be stopped and reported (or, when the runner does not have them, named in `gone`).
    pub cancel: Vec<AttemptId>,
    /// Attempts that are no longer the runner's: stop them, their reports will not count.
    pub not_yours: Vec<AttemptId>,
    /// Attempts the server gave it but that it did not list, claimed at least 30 s ago. It must name those that it
    /// does not have in `gone` and never start them.
    pub forgotten: Vec<AttemptId>,
}

/// A runner leaves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Goodbye {
    /// Why.
    pub reason: String,
}

/// An action for a runner to execute.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActionPacket {
    /// Which.
    pub id: ActionId,
    /// Its trigger.
    pub trigger: Trigger,
    /// What to do: the JSON of [`crate::plan::ActionKind`].
    #[schema(value_type = Object)]
    pub what: crate::plan::ActionKind,
}

/// How an action went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActionReport {
    /// Who executed it.
    pub runner_id: RunnerId,
    /// Return code of the last command.
    pub return_code: i64,
    /// What a person should read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

// ------------------------------------------------------------------------------------- views for people

/// A workflow as lists and `get` show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkflowView {
    /// Id.
    pub id: WorkflowId,
    /// Name.
    pub name: String,
    /// Owner.
    pub user: String,
    /// Free text.
    pub description: Option<String>,
    /// Free text to group by.
    pub project: Option<String>,
    /// The user's JSON.
    #[schema(value_type = Option<Value>)]
    pub metadata: Option<Value>,
    /// Where it was submitted from: jobs start and relative paths begin there.
    pub directory: Option<String>,
    /// Created at, ms since 1970.
    pub created_ms: i64,
    /// The current run; 0 before the first initialize.
    pub run_id: i64,
    /// Somebody canceled it.
    pub is_canceled: bool,
    /// Hidden from lists.
    pub is_archived: bool,
    /// Failures wait for a verdict.
    pub use_pending_failed: bool,
    /// Number of jobs.
    pub job_count: i64,
}

/// A workflow's progress.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Id.
    pub workflow_id: WorkflowId,
    /// Name.
    pub name: String,
    /// The current run.
    pub run_id: i64,
    /// Jobs per status; every status is there.
    pub counts: BTreeMap<String, i64>,
    /// Number of jobs.
    pub total: i64,
    /// Every job is final.
    pub is_complete: bool,
    /// Somebody canceled it.
    pub is_canceled: bool,
    /// Hidden from lists.
    pub is_archived: bool,
    /// Runners that are alive as far as known.
    pub active_runners: i64,
    /// Runners that have been silent longer than their lease.
    pub lost_contact_runners: i64,
    /// The run began at, ms since 1970.
    pub started_ms: Option<i64>,
    /// The last job ended at.
    pub last_end_ms: Option<i64>,
}

/// A job as lists and `get` show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Id.
    pub id: JobId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Name.
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
    /// CPUs.
    pub num_cpus: i64,
    /// GPUs.
    pub num_gpus: i64,
    /// Nodes.
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
    pub status_reason: Option<String>,
    /// Ids of the jobs it depends on (only in `get`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_job_ids: Option<Vec<JobId>>,
    /// The rarer settings (only in `get`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub extra: Option<Value>,
    /// The last attempt's return code.
    pub return_code: Option<i64>,
}

/// An attempt as lists and `get` show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Row.
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
    /// Why it failed.
    pub cause: Option<Cause>,
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
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Grows with time; use it to go on where a stream broke off.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// When, ms since 1970.
    pub timestamp_ms: i64,
    /// `job_started`, `job_completed`, `job_failed`, `job_retried`, `workflow_completed`, ...
    pub kind: String,
    /// The job it is about.
    pub job_id: Option<JobId>,
    /// Everything else.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// An action as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActionView {
    /// Id.
    pub id: ActionId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// When.
    pub trigger_type: Trigger,
    /// What: the JSON of [`crate::plan::ActionKind`].
    #[schema(value_type = Object)]
    pub what: Value,
    /// Jobs it waits for.
    pub job_ids: Vec<JobId>,
    /// Once per worker.
    pub persistent: bool,
    /// Made by a recovery; deleted by reinitialize.
    pub is_recovery: bool,
    /// Where it stands.
    pub state: ActionState,
    /// Who executed it.
    pub executed_by: Option<RunnerId>,
    /// When, ms since 1970.
    pub executed_ms: Option<i64>,
    /// What went wrong.
    pub error: Option<String>,
}

/// A failure handler on the wire, with its rules as JSON text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureHandlerView {
    /// Id.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// JSON text of the rules.
    pub rules: String,
}

/// A runner as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunnerView {
    /// Id.
    pub id: RunnerId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Host.
    pub hostname: String,
    /// Process id.
    pub pid: i64,
    /// `local` or `slurm`.
    pub kind: String,
    /// What it has.
    pub capacity: Capacity,
    /// `active`, `lost_contact` or `ended`.
    pub state: String,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Last word from it.
    pub last_seen_ms: i64,
    /// Left at.
    pub ended_ms: Option<i64>,
    /// Why it left.
    pub end_reason: Option<String>,
    /// What the batch system knows it by.
    #[schema(value_type = Option<Value>)]
    pub scheduler: Option<Value>,
    /// Attempts it holds now.
    pub held: i64,
    /// Why it gets no more work although it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
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
    /// What recovery changed for this job, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjustments: Vec<crate::recovery::AdjustmentView>,
    /// What a person can do.
    pub hints: Vec<String>,
}

/// Asks to create a workflow from a spec.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateWorkflow {
    /// The spec as JSON, in the form of a spec file.
    #[schema(value_type = Object)]
    pub spec: Value,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Initialize it in the same transaction.
    #[serde(default)]
    pub initialize: bool,
    /// Initialize it although input files are missing.
    #[serde(default)]
    pub force: bool,
    /// Made by the client: a repeat answers with the same workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where it was submitted from; relative paths of files start here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// A workflow was created.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkflowCreated {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Number of jobs.
    pub job_count: i64,
    /// The run, 0 when it was not initialized.
    pub run_id: i64,
    /// What the spec's author should know.
    pub warnings: Vec<String>,
}

/// What a reset or a reinitialize did or would do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResetView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Nothing was changed.
    pub dry_run: bool,
    /// The run after it.
    pub run_id: i64,
    /// The jobs that run again, in the order of the workflow.
    pub jobs: Vec<ResetJob>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A job that runs again, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResetJob {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Where it stood.
    pub from: JobStatus,
    /// Why it runs again.
    pub reason: String,
}

/// A piece of user data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserDataView {
    /// Id.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// Its value.
    #[schema(value_type = Option<Value>)]
    pub data: Option<Value>,
    /// Cleared by reinitialize.
    pub is_ephemeral: bool,
}

/// A file of a workflow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Id.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// As written.
    pub path: String,
    /// Modification time seen at the last initialize, ms since 1970.
    pub mtime_ms: Option<i64>,
    /// Size seen at the last initialize.
    pub size: Option<i64>,
}

/// The server's own state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `recovering` while claims are not yet served.
    pub status: String,
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: i64,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Workflows held in memory.
    pub active_workflows: i64,
}

/// Content of `server.json` in the state directory: how to reach the server that owns it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFile {
    /// Scheme, address and port, without the base path.
    pub url: String,
    /// Good for everything.
    pub token: String,
    /// It lives inside a `torc run` and ends with it; another one may then take its place.
    #[serde(default)]
    pub embedded: bool,
    /// Process id.
    pub pid: i64,
    /// Host name.
    pub hostname: String,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Version of the program.
    pub version: String,
}

impl std::fmt::Debug for ServerFile {
    /// Without the token, which must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerFile").field("url", &self.url).field("pid", &self.pid).finish_non_exhaustive()
    }
}

// --------------------------------------------------------------------------------- requests from people

/// Asks to run again what has changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReinitializeRequest {
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Go on although input files are missing.
    pub force: bool,
}

/// Asks to run jobs again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ResetRequest {
    /// Only jobs that ended badly or wait for a verdict, and what follows them.
    pub failed_only: bool,
    /// Only these jobs, by name, and what follows them; empty: all.
    pub jobs: Vec<String>,
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Go on although jobs are running.
    pub force: bool,
}

/// Changes what a workflow says about itself; absent fields stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UpdateWorkflow {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Free text to group by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The user's JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub metadata: Option<Value>,
    /// Hide it from lists, or show it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_archived: Option<bool>,
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

/// What a leaving runner still has to do.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct GoodbyeAnswer {
    /// Actions it must execute before it ends.
    pub actions: Vec<ActionPacket>,
}

/// A new value for a piece of user data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UpdateUserData {
    /// Any JSON; null clears it.
    #[schema(value_type = Value)]
    pub data: Value,
}

/// A new failure handler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateFailureHandler {
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// JSON text of the rules.
    pub rules: String,
}

/// Changes a failure handler; absent fields stay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UpdateFailureHandler {
    /// Unique in the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON text of the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// Whether a workflow is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IsCompleteView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Every job is final.
    pub is_complete: bool,
    /// Somebody canceled it.
    pub is_canceled: bool,
}

/// Resource requirements as lists and `get` show them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RequirementsView {
    /// Id.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// CPUs.
    pub num_cpus: i64,
    /// GPUs.
    pub num_gpus: i64,
    /// Nodes.
    pub num_nodes: i64,
    /// Memory, as `8g`.
    pub memory: Option<String>,
    /// Runtime, as `PT2H30M`.
    pub runtime: Option<String>,
}

/// A Slurm scheduler as lists and `get` show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SlurmSchedulerView {
    /// Id.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// How to ask for nodes.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub scheduler: crate::plan::SlurmScheduler,
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
    /// `stdout` or `stderr`.
    pub stream: String,
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

// --------------------------------------------------------------------- reservations, limits, recovery

/// Asks for a pause of claims.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateReservation {
    /// `all`, `workflow:ID` or `limit:NAME`.
    #[serde(default = "all_scope")]
    pub scope: String,
    /// Who asks, for people to read.
    pub reserved_by: String,
    /// It ends by itself after this long; 600 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i64>,
}

fn all_scope() -> String {
    "all".into()
}

/// Proves the right to renew or release a reservation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservationToken {
    /// Given when it was made.
    pub token: String,
    /// Renewal only: it ends this long from now; 600 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i64>,
}

/// A reservation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservationView {
    /// Id.
    pub id: i64,
    /// `all`, `workflow:ID` or `limit:NAME`.
    pub scope: String,
    /// Who holds it.
    pub reserved_by: String,
    /// Since when, ms since 1970.
    pub reserved_ms: i64,
    /// Until when at most.
    pub expires_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// `ACTIVE`, `RELEASED` or `EXPIRED`.
    pub status: String,
    /// To renew or release it; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Attempts that still run in its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still_running: Option<i64>,
}

/// A named limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// Its name.
    pub name: String,
    /// At most this many at once.
    pub max: i64,
    /// Taken now.
    pub used: i64,
}

/// Sets a named limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SetLimit {
    /// At most this many at once.
    pub max: i64,
}

/// What a recovery did or would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RecoveryView {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Runners found dead.
    pub runners_ended: i64,
    /// Attempts ended because their runner is gone.
    pub running_jobs_recovered: i64,
    /// Jobs that got a new attempt.
    pub retries_created: i64,
    /// Jobs whose rows did not fit together.
    pub jobs_repaired: i64,
    /// Reservations that ended.
    pub reservations_expired: i64,
    /// Runners out of contact to which nothing was done.
    pub runners_silent: i64,
    /// One line per job or runner.
    pub details: Vec<String>,
}

// ------------------------------------------------------------------------------------------ webhooks

/// A new endpoint for webhooks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateWebhook {
    /// Where to post to, `https://...`.
    pub url: String,
    /// Signs each delivery (`whsec_` and base64, or any text); made up unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Which events; empty: all. `job.run.completed`, `job.run.failed`, `job.run.skipped`, `job.pending_failed`,
    /// `workflow.completed`.
    #[serde(default)]
    pub events: Vec<String>,
    /// Only of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Loopback and private addresses are allowed, and so is `http://`.
    #[serde(default)]
    pub allow_private: bool,
}

/// An endpoint for webhooks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    /// Id.
    pub id: i64,
    /// Where to.
    pub url: String,
    /// Which events; empty: all.
    pub events: Vec<String>,
    /// Only of this workflow.
    pub workflow_id: Option<WorkflowId>,
    /// Loopback and private addresses are allowed.
    pub allow_private: bool,
    /// Since when, ms since 1970.
    pub created_ms: i64,
    /// Deliveries that wait.
    pub pending: i64,
    /// Deliveries that were given up.
    pub dead: i64,
    /// To verify signatures; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A delivery to an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeliveryView {
    /// Id; `webhook-id` of every try of it is `msg_ID`.
    pub id: i64,
    /// The endpoint.
    pub webhook_id: i64,
    /// The event.
    pub event: String,
    /// The body.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// `pending`, `delivered` or `dead`.
    pub state: String,
    /// How often it was tried.
    pub tries: i64,
    /// When it is tried next, ms since 1970.
    pub next_try_ms: Option<i64>,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// Since when.
    pub created_ms: i64,
    /// Delivered at.
    pub delivered_ms: Option<i64>,
}

// ----------------------------------------------------------------------------------------------- map items

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
    #[schema(value_type = Object)]
    pub item: Value,
    /// Where its job stands.
    pub status: JobStatus,
    /// `ok`, `recovered`, `failed`, `dropped` or `open`.
    pub outcome: String,
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
