//! Workflows as people see and change them, and what belongs to a workflow as a whole.

use crate::event::EventKind;
use crate::ids::{ActionId, JobId, RunnerId, WorkflowId};
use crate::status::{ActionState, JobStatus, Trigger, words};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// What a user notes about a workflow. Nothing is decided by it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkflowNotes {
    /// Free text.
    pub description: Option<String>,
    /// Free text to group by.
    pub project: Option<String>,
    /// The user's JSON.
    #[schema(value_type = Option<Value>)]
    pub metadata: Option<Value>,
}

/// Where a workflow was submitted from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkflowOrigin {
    /// Where it was submitted from: jobs start and relative paths begin there.
    pub directory: Option<String>,
    /// The file that its spec was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_path: Option<String>,
}

/// A workflow as lists and `get` show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkflowView {
    /// Id of the workflow.
    pub id: WorkflowId,
    /// Name of the workflow.
    pub name: String,
    /// The user it belongs to.
    pub user: String,
    /// What its user notes about it.
    #[serde(flatten)]
    pub notes: WorkflowNotes,
    /// Where it was submitted from.
    #[serde(flatten)]
    pub origin: WorkflowOrigin,
    /// Grows with every spec that is applied; 1 is the creation.
    #[serde(default)]
    pub revision: i64,
    /// Created at, ms since 1970.
    pub created_ms: i64,
    /// The current run; 0 before the first initialize.
    pub run_id: i64,
    /// A user canceled it.
    pub is_canceled: bool,
    /// Hidden from lists.
    pub is_archived: bool,
    /// Failures wait for a verdict.
    pub use_pending_failed: bool,
    /// `torc run` writes an RO-Crate when it is complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_ro_crate: bool,
    /// Any `sbatch` option by its long name, for every allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub slurm_defaults: BTreeMap<String, Value>,
    /// Number of jobs.
    pub job_count: i64,
    /// How far it is (only in lists that ask for it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<WorkflowProgress>,
}

/// How far a workflow is, in short.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkflowProgress {
    /// Every job is final.
    pub is_complete: bool,
    /// Jobs per status that occurs.
    pub counts: BTreeMap<String, i64>,
    /// Runners that are there.
    pub active_runners: i64,
    /// The run began at, ms since 1970.
    pub started_ms: Option<i64>,
    /// The last attempt ended at.
    pub last_end_ms: Option<i64>,
}

/// A workflow's progress.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Id of the workflow.
    pub workflow_id: WorkflowId,
    /// Name of the workflow.
    pub name: String,
    /// The current run.
    pub run_id: i64,
    /// Jobs per status; every status is there.
    pub counts: BTreeMap<String, i64>,
    /// Number of jobs.
    pub total: i64,
    /// Every job is final.
    pub is_complete: bool,
    /// A user canceled it.
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
    /// Steps of this run that failed and were recovered.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub recovered_steps: i64,
    /// Steps of this run that failed, which was tolerated.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub ignored_steps: i64,
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
    /// What happened.
    pub kind: EventKind,
    /// The job it is about.
    pub job_id: Option<JobId>,
    /// Its name; what has just happened is told without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Everything else.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// An action as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActionView {
    /// Id of the action.
    pub id: ActionId,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// What sets it off.
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
    /// Id of the handler.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// JSON text of the rules.
    pub rules: String,
}

/// Asks to create a workflow from a spec.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateWorkflow {
    /// The spec as JSON, in the form of a spec file.
    #[schema(value_type = Object)]
    pub spec: Value,
    /// The user it belongs to.
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
    /// The file that the spec was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_path: Option<String>,
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
    /// Id of the piece of user data.
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
    /// Id of the file.
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
    /// What is there now, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<FileNow>,
}

/// What the server sees of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileNow {
    /// What has become of it.
    pub state: FileState,
    /// Modification time, ms since 1970.
    pub mtime_ms: Option<i64>,
    /// Size in bytes.
    pub size: Option<i64>,
}

words! {
    /// What has become of a file.
    FileState {
        /// It is there as its job wrote it, or as it was when the jobs that read it were opened.
        There = "there",
        /// It was there, or a job that succeeded should have written it.
        Missing = "missing",
        /// Its time or its size is another one than then.
        Changed = "changed",
        /// A job is to write it, and has not yet.
        Awaited = "awaited",
        /// Its file system does not answer.
        Unknown = "unknown",
    }
}

/// Asks to run again what has changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReinitializeRequest {
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Go on although input files are missing.
    pub force: bool,
    /// An edited spec, applied first: what it adds and changes runs, what it lacks is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<Value>,
    /// The run that the caller has seen; refused when another caller has begun the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<i64>,
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
    /// The run that the caller has seen; refused when another caller has begun the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<i64>,
}

/// Changes what a workflow says about itself; absent fields stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UpdateWorkflow {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A new owner.
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
    /// The server lets failed jobs run again by itself where that helps, or no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_recover: Option<bool>,
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

/// What a server knows of a spec that is about to be run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EarlierView {
    /// The workflow that this spec describes, if it was run before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowView>,
    /// The newest workflow of this name in this directory, if it was made from another file. With the
    /// digest of the spec it is named only if the spec differs too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<WorkflowView>,
}

/// Whether a workflow is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IsCompleteView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Every job is final.
    pub is_complete: bool,
    /// A user canceled it.
    pub is_canceled: bool,
}

/// Resource requirements as lists and `get` show them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RequirementsView {
    /// Id of the requirements.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// Unique in the workflow.
    pub name: String,
    /// CPUs on each node.
    pub num_cpus: i64,
    /// GPUs on each node.
    pub num_gpus: i64,
    /// Number of nodes.
    pub num_nodes: i64,
    /// Memory, as `8g`.
    pub memory: Option<String>,
    /// Runtime, as `PT2H30M`.
    pub runtime: Option<String>,
}

words! {
    /// What ties a job to something.
    RelationKind {
        /// It begins after this job has succeeded.
        DependsOn = "depends_on",
        /// It reads this file.
        InputFile = "input_file",
        /// It writes this file.
        OutputFile = "output_file",
        /// It reads this user data.
        InputUserData = "input_user_data",
        /// It writes this user data.
        OutputUserData = "output_user_data",
    }
}

/// One thing that a job depends on, reads or writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RelationView {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
    /// How they are tied.
    pub kind: RelationKind,
    /// Row of the job, the file or the user data.
    pub item_id: i64,
    /// Its name.
    pub item_name: String,
}

/// A Slurm scheduler as lists and `get` show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SlurmSchedulerView {
    /// Id of the scheduler.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// How to ask for nodes.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub scheduler: crate::plan::SlurmScheduler,
}

/// What happened to a workflow elsewhere. Ids are those of the other server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Past {
    /// The run that it was in; 0: it was never started.
    pub run_id: i64,
    /// When that run began, ms since 1970.
    pub run_started_ms: Option<i64>,
    /// A user canceled it.
    pub is_canceled: bool,
    /// Its jobs; those that had not ended run again.
    pub jobs: Vec<super::JobView>,
    /// Its attempts; those that had not ended are left out.
    pub attempts: Vec<super::AttemptView>,
    /// What happened.
    pub events: Vec<EventView>,
    /// Its user data.
    pub user_data: Vec<UserDataView>,
    /// Verdicts on its failures.
    pub classifications: Vec<crate::recovery::ClassificationView>,
    /// Limits that were changed.
    pub adjustments: Vec<crate::recovery::AdjustmentView>,
    /// Who ran its jobs.
    pub runners: Vec<super::RunnerView>,
}

/// Asks to create a workflow with its past.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportWorkflow {
    /// The whole spec as JSON.
    #[schema(value_type = Object)]
    pub spec: Value,
    /// The user it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where its jobs start and its paths begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// A repeat with the same key answers with the same workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What happened to it.
    #[serde(default)]
    pub past: Past,
}
