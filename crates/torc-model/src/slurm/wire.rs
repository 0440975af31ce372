//! What travels about allocations between the server and the clients that reach Slurm.

use super::state::{AllocationEnding, Verdict};
use crate::ids::{ActionId, JobId, WorkflowId};
use crate::plan::SlurmScheduler;
use crate::status::{AllocationEnd, AllocationStatus, Cause};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An allocation, as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    /// Id of the allocation.
    pub id: i64,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// The run it was made for.
    pub run_id: i64,
    /// How it asks for nodes.
    pub scheduler_id: i64,
    /// Name of that scheduler.
    pub scheduler: String,
    /// Its name in Slurm; allocations that were submitted as one array share it.
    pub name: String,
    /// Its place in the array.
    pub array_task: Option<i64>,
    /// Where it stands.
    pub status: AllocationStatus,
    /// What Slurm knows it by.
    pub slurm_job_id: Option<String>,
    /// Slurm's word for its state, when last seen.
    pub state: Option<String>,
    /// How it is known that it is over.
    pub ended_as: Option<AllocationEnd>,
    /// Why it waits, or how it ended.
    pub reason: Option<String>,
    /// The same with what it means, where that is known.
    #[serde(default)]
    pub why: Option<String>,
    /// What its end meant for the attempts in it.
    pub cause: Option<Cause>,
    /// The action that asked for it.
    pub action_id: Option<ActionId>,
    /// One runner on each node.
    pub start_one_worker_per_node: bool,
    /// At most this many jobs at once in each runner.
    pub max_parallel_jobs: Option<i64>,
    /// Asked for, ms since 1970.
    pub created_ms: i64,
    /// Slurm took it.
    pub submitted_ms: Option<i64>,
    /// It waits, and this is when Slurm plans to start it, as far as Slurm has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<i64>,
    /// Its first runner reported.
    pub started_ms: Option<i64>,
    /// It ended.
    pub ended_ms: Option<i64>,
    /// Not found in Slurm since.
    pub missing_since_ms: Option<i64>,
    /// Nothing needs it any more; a client that reaches Slurm takes it back.
    pub unneeded_since_ms: Option<i64>,
    /// Its jobs ran until its time was over, and none of them came to an end of its own.
    pub was_too_short: bool,
    /// Runners alive in it.
    pub runners: i64,
    /// Grows with everything that makes an earlier look at Slurm meaningless; who tells what was seen
    /// names it.
    #[serde(default)]
    pub moves: i64,
}

/// What an allocation costs and what it was good for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AllocationUse {
    /// The allocation.
    pub allocation_id: i64,
    /// Nodes it asks for.
    pub nodes: i64,
    /// Its walltime.
    pub walltime_seconds: Option<i64>,
    /// It ends at, ms since 1970, if it runs.
    pub stop_by_ms: Option<i64>,
    /// Node hours during which it had runners.
    pub paid_node_hours: f64,
    /// Of those, what attempts that succeeded asked for.
    pub useful_node_hours: f64,
}

/// A piece of what the batch job of an allocation wrote.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AllocationLogView {
    /// The allocation.
    pub allocation_id: i64,
    /// The file.
    pub path: String,
    /// Where the piece begins, in bytes.
    pub offset: i64,
    /// Where the next piece begins.
    pub next_offset: i64,
    /// Size of the file.
    pub size: i64,
    /// The piece; bytes that are no text are replaced.
    pub text: String,
}

/// Asks for allocations. A repeat with the same key answers with the same ones.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ScheduleNodes {
    /// The workflow.
    pub workflow_id: i64,
    /// Name of the scheduler.
    pub scheduler: String,
    /// How many.
    pub count: i64,
    /// Made by the caller.
    pub key: String,
    /// One runner on each node.
    pub start_one_worker_per_node: bool,
    /// At most this many jobs at once in each runner.
    pub max_parallel_jobs: Option<i64>,
}

/// A list of allocations.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Allocations {
    /// In the order in which they were asked for.
    pub items: Vec<AllocationView>,
}

/// Takes up what waits to be sent to Slurm.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BeginSubmission {
    /// Only of this workflow.
    pub workflow_id: Option<i64>,
    /// Who will send it; made by the caller.
    pub submitter: String,
}

/// What the caller must now send.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SubmissionOrders {
    /// One batch job or array each.
    pub items: Vec<SubmissionOrder>,
}

/// One batch job or array to send.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionOrder {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Unique name in Slurm.
    pub name: String,
    /// So many allocations.
    pub count: i64,
    /// It may have been sent already: look for the name first.
    pub look_first: bool,
    /// How to ask for nodes.
    #[schema(value_type = Object)]
    pub scheduler: SlurmScheduler,
    /// Its id.
    pub scheduler_id: i64,
    /// Options for every allocation.
    #[schema(value_type = Object)]
    pub defaults: BTreeMap<String, Value>,
    /// One runner on each node.
    pub start_one_worker_per_node: bool,
    /// At most this many jobs at once in each runner.
    pub max_parallel_jobs: Option<i64>,
    /// So many seconds before its end an allocation begins to end its jobs.
    #[serde(default)]
    pub end_seconds: i64,
    /// So many minutes a runner keeps trying to reach the server.
    #[serde(default)]
    pub wait_for_server_minutes: i64,
    /// Where the workflow was created.
    pub directory: Option<String>,
    /// For the runners: good for this workflow only.
    pub token: String,
}

/// How sending went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionReport {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The name that was sent.
    pub name: String,
    /// Who sent it.
    pub submitter: String,
    /// What came of it.
    pub outcome: SubmissionOutcome,
}

/// What came of a submission.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionOutcome {
    /// Slurm has it, under this id.
    Submitted(String),
    /// Slurm refused it.
    Refused(String),
    /// Unknown; the next submitter looks first.
    Unknown(String),
}

/// What was seen of allocations in Slurm.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Observations {
    /// One per allocation.
    pub items: Vec<Observation>,
    /// Only tell what would happen.
    pub dry_run: bool,
}

/// What was seen of one allocation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Observation {
    /// The allocation.
    pub id: i64,
    /// Where it stands.
    #[schema(value_type = Object)]
    pub verdict: Verdict,
    /// What Slurm knows it by, if it was found.
    #[serde(default)]
    pub slurm_job_id: Option<String>,
    /// Slurm answered and did not have it.
    #[serde(default)]
    pub is_missing: bool,
    /// It waits again, and accounting tells how it ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub before: Option<AllocationEnding>,
    /// When Slurm plans to start it, ms since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<i64>,
    /// The allocation's `moves` before Slurm was asked: if it has moved since, what was seen says
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<i64>,
}

/// What followed from what was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ObservedView {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Allocations that are over.
    pub allocations_ended: i64,
    /// Of those, allocations that had never started.
    pub pending_allocations_cleaned: i64,
    /// Runners that ended with them.
    pub runners_ended: i64,
    /// Attempts that ended with those.
    pub slurm_jobs_failed: i64,
    /// Attempts that had been stopped or lost, and of which it is known only now why.
    #[serde(default)]
    pub attempts_explained: i64,
    /// Allocations of which nothing is known now.
    pub unknown: i64,
    /// One line each.
    pub details: Vec<String>,
    /// The same about allocations that were missed for the first time; the next look will tell.
    #[serde(default)]
    pub first_misses: Vec<String>,
}

/// New schedulers for jobs that still have to run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RegenerateRequest {
    /// What the jobs get.
    pub groups: Vec<RegenerateGroup>,
    /// Ask for the nodes as well.
    pub submit: bool,
}

/// Jobs that the same allocations serve.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegenerateGroup {
    /// How to ask for nodes.
    #[schema(value_type = Object)]
    pub scheduler: SlurmScheduler,
    /// The jobs, by depth inside the group.
    pub levels: Vec<Vec<JobId>>,
    /// Allocations per level.
    pub allocations: Vec<i64>,
    /// The jobs wait for others; they get their nodes when they are ready.
    pub has_dependencies: bool,
    /// One runner on each node.
    pub start_one_worker_per_node: bool,
}

/// What a regenerate did.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RegeneratedView {
    /// Actions that will not ask for nodes any more.
    pub actions_claimed: i64,
    /// Recovery actions that will.
    pub actions_created: i64,
    /// Allocations asked for now.
    pub allocations_created: i64,
    /// Allocations that were there already and count.
    pub allocations_kept: i64,
    /// Per group.
    pub schedulers_created: Vec<RegeneratedScheduler>,
}

/// A scheduler after a regenerate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegeneratedScheduler {
    /// Id of the new scheduler.
    pub id: i64,
    /// Name of the new scheduler.
    pub name: String,
    /// It was there already.
    pub reused: bool,
    /// Allocations asked for now.
    pub num_allocations: i64,
    /// Number of jobs that it is for.
    pub job_count: i64,
    /// They wait for others.
    pub has_dependencies: bool,
}
