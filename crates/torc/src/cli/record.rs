//! Everything that the server knows of a workflow, for bundles, exports and other programs.

use crate::error::Result;
use serde::Serialize;
use serde_json::Value;
use torc_client::{Client, Query};
use torc_model::api::{
    ActionView, AttemptView, EventView, FileView, JobView, RelationView, RequirementsView,
    RevisionView, RunnerView, SlurmSchedulerView, UserDataView, WorkflowView,
};
use torc_model::recovery::AdjustmentView;

/// A workflow with all that belongs to it.
#[derive(Serialize)]
pub struct Record {
    /// The workflow itself.
    pub workflow: WorkflowView,
    /// The spec that it has now.
    pub spec: Value,
    /// Its jobs.
    pub jobs: Vec<JobView>,
    /// What they depend on, read and write.
    pub relations: Vec<RelationView>,
    /// Its files.
    pub files: Vec<FileView>,
    /// Its user data.
    pub user_data: Vec<UserDataView>,
    /// What jobs ask for.
    pub resource_requirements: Vec<RequirementsView>,
    /// How it asks for nodes.
    pub slurm_schedulers: Vec<SlurmSchedulerView>,
    /// What it does at its triggers.
    pub actions: Vec<ActionView>,
    /// Every attempt of every run.
    pub attempts: Vec<AttemptView>,
    /// Everything that happened.
    pub events: Vec<EventView>,
    /// Verdicts on failures.
    pub classifications: Vec<Value>,
    /// Limits that were changed.
    pub adjustments: Vec<AdjustmentView>,
    /// Who ran its jobs.
    pub runners: Vec<RunnerView>,
    /// What was applied to it.
    pub revisions: Vec<RevisionView>,
}

impl Record {
    /// Asks the server for all of it.
    pub async fn fetch(client: &Client, workflow: WorkflowView) -> Result<Self> {
        let id = workflow.id;
        let of = Query::new().add("workflow_id", id);
        let below = |what: &str| format!("/workflows/{id}/{what}");
        let none = Query::new();
        Ok(Self {
            spec: client.get(&below("spec")).await?,
            jobs: client.list_all("/jobs", &of).await?,
            relations: client.list_all(&below("relations"), &none).await?,
            files: client.list_all("/files", &of).await?,
            user_data: client.list_all("/user_data", &of).await?,
            resource_requirements: client.list_all("/resource_requirements", &of).await?,
            slurm_schedulers: client.list_all("/slurm_schedulers", &of).await?,
            actions: client.list_all(&below("actions"), &none).await?,
            attempts: client.list_all("/results", &of.clone().add("all_runs", true)).await?,
            events: client.list_all(&below("events"), &none).await?,
            classifications: client.list_all("/classifications", &of).await?,
            adjustments: client.list_all(&below("adjustments"), &none).await?,
            runners: client.list_all("/compute_nodes", &of).await?,
            revisions: client.list_revisions(id).await?,
            workflow,
        })
    }
}
