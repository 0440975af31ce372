//! Between a runner and the server: registration, claims, heartbeats and actions.

use super::{AttemptRef, CompletionReport, ReportResult, StartReport};
use crate::ids::{ActionId, AttemptId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use crate::plan::{Execution, OnScriptFailure, ResourceMonitor, Stdio, Strictness};
use crate::status::{Cause, RunnerKind, RunnerOrder, RunnerState, Trigger};
use crate::steps::StepEvent;
use crate::token::Key;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What a machine or an allocation has in all. The server subtracts what the runner already holds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Capacity {
    /// CPUs on each node.
    pub num_cpus: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// GPUs on each node.
    pub num_gpus: i64,
    /// Number of nodes.
    pub num_nodes: i64,
    /// Jobs are spread over all of these nodes; CPUs, memory and GPUs are those of one node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spreads: bool,
    /// At most this many jobs at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<i64>,
    /// Jobs start whatever they need; only `max_parallel_jobs` holds them back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_resources: bool,
}

/// Keeps work from the runners of a workflow on one machine, or lets it come again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineRequest {
    /// The machine.
    pub hostname: String,
    /// Give it work again.
    #[serde(default)]
    pub release: bool,
    /// For so long; ten minutes unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// Why, for the list of runners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantineView {
    /// Runners on the machine that it concerns.
    pub runners: i64,
    /// They get no work until then, ms since 1970; None when they get it.
    pub until_ms: Option<i64>,
}

impl Capacity {
    /// Nodes that each have these CPUs, this memory and these GPUs.
    pub fn equal_nodes(&self) -> i64 {
        if self.spreads { self.num_nodes.max(1) } else { 1 }
    }
}

/// A runner introduces itself. Repeating it with the same `key` answers with the same id.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegisterRunner {
    /// The workflow it works for.
    pub workflow_id: WorkflowId,
    /// Made by the runner, once per process, and told to no other process: makes a repeat harmless,
    /// and proves that it is the same runner.
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
    /// Where it runs.
    pub kind: RunnerKind,
    /// What the batch system knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<RunnerScheduler>,
    /// Takes jobs with this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Where its logs go.
    pub output_dir: String,
    /// Although a workflow that is running writes the same files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The pool runner that started it: what both have is the same, and is shared with the other
    /// runners that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_runner_id: Option<PoolRunnerId>,
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
    /// It must have ended its own jobs after this long without contact. Absent: silence never ends
    /// it, because the server or the batch system can see whether it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disown_seconds: Option<i64>,
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
    /// A runner that runs nothing leaves after this many seconds without an answer of the server.
    #[serde(default)]
    pub wait_for_server_seconds: i64,
    /// Leave after this many seconds without work (0: stay).
    pub idle_seconds: i64,
    /// Stay although the workflow is complete.
    pub ignore_completion: bool,
    /// Exit code that means "continue me".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_exit_code: Option<i64>,
    /// Names the runner's processes and files. The server makes it, so that it can end the
    /// processes of its own runners only.
    pub tag: String,
    /// With it the runner makes the tokens of its attempts and actions.
    #[schema(value_type = String)]
    pub job_key: Key,
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
    /// Whether the runner believes that it is the workflow's only one. A wait ends when that is
    /// wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_alone: Option<bool>,
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
    /// Nothing is held by any runner and nothing can be claimed now or later unless a user or
    /// another runner acts.
    pub idle: bool,
    /// The workflow has no other runner that could do what this one holds.
    #[serde(default)]
    pub is_alone: bool,
    /// A person removed the runner, and it holds nothing: it is to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave: bool,
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
    /// Those are its `runtime`, which is enforced; its `timeout` otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_limited_by_runtime: bool,
    /// Where its output goes; the workflow's setting unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub stdio: Option<Stdio>,
    /// Files that must be there after exit 0: name and path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<FileRef>,
    /// Lists of paths that the runner writes to files before the attempt starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Vec<String>>)]
    pub lists: Vec<Vec<String>>,
    /// What counts as success, where the job says something of its own.
    #[serde(default, skip_serializing_if = "Strictness::is_default")]
    #[schema(value_type = Object)]
    pub strictness: Strictness,
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
    /// It must have at least so many bytes; a directory as many as one entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_size: i64,
}

fn is_zero(size: &i64) -> bool {
    *size == 0
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

/// A runner is alive and holds these attempts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    /// The runner.
    pub runner_id: RunnerId,
    /// What it holds.
    pub held: Vec<AttemptRef>,
    /// Attempts that an answer spoke of and that it does not have: their process is gone, or the
    /// answer that granted them never arrived and will not be followed. Repeated until a heartbeat
    /// with them was answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<AttemptId>,
    /// What steps have done since the last heartbeat. Repeated until a heartbeat with them was
    /// answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_events: Vec<StepEvents>,
}

/// Events of one attempt's steps, while it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StepEvents {
    /// The attempt whose steps these are, with its token.
    pub attempt: AttemptRef,
    /// How many there were before these.
    pub from: u64,
    /// In their order.
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<StepEvent>,
}

/// What a heartbeat learns.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// Attempts that must be stopped and reported (or, when the runner does not have them, named in
    /// `gone`).
    pub cancel: Vec<AttemptId>,
    /// Attempts that are no longer the runner's: stop them, their reports will not count.
    pub not_yours: Vec<AttemptId>,
    /// Attempts the server gave it but that it did not list, claimed at least 30 s ago. It must
    /// name those that it does not have in `gone` and never start them.
    pub forgotten: Vec<AttemptId>,
}

/// A runner leaves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Goodbye {
    /// Why it leaves, in words.
    pub reason: String,
    /// It had to leave: `preempted`, `node_fail` or `walltime` when it knows why its nodes are
    /// taken away, else `stopped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// The error of an attempt whose runner was told to stop, by Slurm or by a person.
pub const TOLD_TO_STOP: &str = "the runner was told to stop";

/// An action for a runner to execute.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActionPacket {
    /// Id of the action.
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

/// What the batch system knows a runner by.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunnerScheduler {
    /// The Slurm scheduler that it was started for.
    pub scheduler_config_id: Option<i64>,
    /// The allocation that it lives in.
    pub allocation_id: Option<i64>,
    /// What Slurm calls that.
    pub slurm_job_id: Option<String>,
    /// Number of its node in the allocation, from 0.
    pub node: Option<i64>,
    /// Name of its node.
    pub node_name: Option<String>,
    /// How often the batch system had started the allocation again before it started this runner, where
    /// it tells: of two runners on one node the one with less is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i64>,
}

/// A runner as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunnerView {
    /// Id of the runner.
    pub id: RunnerId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Name of the host it runs on.
    pub hostname: String,
    /// Process id.
    pub pid: i64,
    /// Where it runs.
    pub kind: RunnerKind,
    /// What it has.
    pub capacity: Capacity,
    /// Where it stands.
    pub state: RunnerState,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Last word from it.
    pub last_seen_ms: i64,
    /// Left at.
    pub ended_ms: Option<i64>,
    /// Why it left.
    pub end_reason: Option<String>,
    /// What the batch system knows it by.
    pub scheduler: Option<RunnerScheduler>,
    /// Attempts it holds now.
    pub held: i64,
    /// What these attempts hold of what it has; nothing once it has left.
    #[serde(default)]
    pub used: RunnerUse,
    /// Why it gets no more work although it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
    /// What a person asked of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<RunnerOrder>,
    /// Its time is over at, ms since 1970, if it has an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_by_ms: Option<i64>,
}

/// What attempts on a runner were given, on all of its nodes together. Jobs may use more or less of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RunnerUse {
    /// CPUs.
    pub num_cpus: i64,
    /// Memory in bytes; jobs that ask for none count as none.
    pub memory_bytes: i64,
    /// GPUs.
    pub num_gpus: i64,
}

/// What a leaving runner still has to do.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct GoodbyeAnswer {
    /// Actions it must execute before it ends.
    pub actions: Vec<ActionPacket>,
}
