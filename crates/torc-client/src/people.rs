//! What people and their programs ask the server.

use crate::{Client, Error, Query};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use torc_model::api::*;
use torc_model::forecast::{ForecastView, Machines};
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::recovery::{RecoverRequest, RecoverView};

/// Creating or resetting a workflow of a million jobs takes a while.
const LARGE: Duration = Duration::from_secs(600);
/// As large as the server allows.
const PAGE_ROWS: i64 = 10_000;

/// [`CreateWorkflow`] with a spec of any kind.
#[derive(Clone, Debug, Serialize)]
pub struct NewWorkflow<'a, S> {
    /// The spec.
    pub spec: &'a S,
    /// The user it belongs to.
    pub user: Option<String>,
    /// Initialize it in the same transaction.
    pub initialize: bool,
    /// Initialize it although input files are missing.
    pub force: bool,
    /// Where it was submitted from; relative paths of files start here.
    pub directory: Option<String>,
    /// The file that the spec was read from.
    pub spec_path: Option<String>,
}

/// [`torc_model::api::ApplyRequest`] with a spec of any kind.
#[derive(Clone, Debug, Serialize)]
pub struct Application<'a, S> {
    /// The spec.
    pub spec: &'a S,
    /// Options of the application.
    #[serde(flatten)]
    pub how: &'a ApplyOptions,
}

impl Client {
    /// The server's own state.
    pub async fn health(&self) -> Result<Health, Error> {
        self.get("/health").await
    }

    /// Creates a workflow in one transaction. A repeat with the same key gets the same workflow.
    pub async fn create_workflow(&self, body: &CreateWorkflow) -> Result<WorkflowCreated, Error> {
        self.with_time_limit(LARGE).post("/workflows", body).await
    }

    /// The same for a spec that is written into the request as it is, without a copy in between.
    pub async fn create_workflow_from(
        &self,
        body: &NewWorkflow<'_, impl Serialize>,
    ) -> Result<WorkflowCreated, Error> {
        self.with_time_limit(LARGE).post("/workflows", body).await
    }

    /// One page of workflows; `query` holds filters, `offset` and `limit`.
    pub async fn list_workflows(&self, query: &Query) -> Result<Page<WorkflowView>, Error> {
        self.get(&format!("/workflows{query}")).await
    }

    /// The workflow that a spec describes, if it was run before; `query` holds `name`, `directory`,
    /// `spec_path` and `spec_digest`.
    pub async fn find_earlier_workflow(&self, query: &Query) -> Result<EarlierView, Error> {
        self.get(&format!("/workflows/earlier{query}")).await
    }

    /// One workflow.
    pub async fn get_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.get(&format!("/workflows/{id}")).await
    }

    /// Deletes a workflow with everything in it.
    pub async fn delete_workflow(&self, id: WorkflowId, force: bool) -> Result<(), Error> {
        self.delete_workflow_files(id, force, false).await.map(drop)
    }

    /// The same, with logs and samples of its jobs if asked for.
    pub async fn delete_workflow_files(
        &self,
        id: WorkflowId,
        force: bool,
        files: bool,
    ) -> Result<RemovedFiles, Error> {
        let mut query = Query::new();
        for (name, _) in [("force", force), ("files", files)].into_iter().filter(|(_, on)| *on) {
            query = query.add(name, true);
        }
        self.with_time_limit(LARGE).delete(&format!("/workflows/{id}{query}")).await
    }

    /// Deletes workflows that ended long ago.
    pub async fn prune_workflows(&self, body: &PruneRequest) -> Result<PruneView, Error> {
        self.with_time_limit(LARGE).post("/workflows/prune", body).await
    }

    /// How much room the server's data take.
    pub async fn usage(&self) -> Result<UsageView, Error> {
        self.with_time_limit(LARGE).get("/server/usage").await
    }

    /// Writes the database anew, without the room of what was deleted.
    pub async fn vacuum(&self) -> Result<VacuumView, Error> {
        self.with_time_limit(LARGE).post("/server/vacuum", &serde_json::json!({})).await
    }

    /// Starts the first run, or goes on with what a reset left; with `force` although input files
    /// are missing.
    pub async fn initialize_workflow(
        &self,
        id: WorkflowId,
        force: bool,
    ) -> Result<ResetView, Error> {
        let query = Query::new().add("force", force);
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/initialize{query}"), &()).await
    }

    /// Starts the next run with what changed; a dry run only says what that would be.
    pub async fn reinitialize_workflow(
        &self,
        id: WorkflowId,
        body: &ReinitializeRequest,
    ) -> Result<ResetView, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/reinitialize"), body).await
    }

    /// Applies a spec to a workflow, or tells what that would do.
    pub async fn apply_spec(
        &self,
        id: WorkflowId,
        body: &Application<'_, impl Serialize>,
    ) -> Result<ApplyView, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/apply"), body).await
    }

    /// What was applied to a workflow, newest first.
    pub async fn list_revisions(&self, id: WorkflowId) -> Result<Vec<RevisionView>, Error> {
        self.get(&format!("/workflows/{id}/revisions")).await
    }

    /// Resets jobs: all, the failed ones, or those named with their descendants.
    pub async fn reset_status(
        &self,
        id: WorkflowId,
        body: &ResetRequest,
    ) -> Result<ResetView, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/reset_status"), body).await
    }

    /// The items of a map.
    pub async fn list_items(&self, id: WorkflowId, query: &Query) -> Result<Page<ItemView>, Error> {
        self.with_time_limit(LARGE).get(&format!("/workflows/{id}/items{query}")).await
    }

    /// Runs items of a map again.
    pub async fn retry_items(
        &self,
        id: WorkflowId,
        body: &ItemsRequest,
    ) -> Result<Page<ItemView>, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/items/retry"), body).await
    }

    /// Takes dead items of a map out of the count.
    pub async fn drop_items(
        &self,
        id: WorkflowId,
        body: &ItemsRequest,
    ) -> Result<Page<ItemView>, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/items/drop"), body).await
    }

    /// Changes what a workflow says about itself.
    pub async fn update_workflow(
        &self,
        id: WorkflowId,
        body: &UpdateWorkflow,
    ) -> Result<WorkflowView, Error> {
        self.put(&format!("/workflows/{id}"), body).await
    }

    /// Whether every job is final.
    pub async fn is_complete(&self, id: WorkflowId) -> Result<IsCompleteView, Error> {
        self.get(&format!("/workflows/{id}/is_complete")).await
    }

    /// Cancels a workflow: nothing new starts, what runs is stopped.
    pub async fn cancel_workflow(&self, id: WorkflowId) -> Result<StatusView, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/cancel"), &()).await
    }

    /// A workflow's progress.
    pub async fn workflow_status(&self, id: WorkflowId) -> Result<StatusView, Error> {
        self.get(&format!("/workflows/{id}/status")).await
    }

    /// When a workflow is expected to be over, with the runners that are there or with others.
    pub async fn forecast(
        &self,
        id: WorkflowId,
        assumed: &Machines,
        recover: bool,
    ) -> Result<ForecastView, Error> {
        let query = Query::new()
            .maybe("recover", recover.then_some(true))
            .maybe("nodes", assumed.nodes)
            .maybe("cores", assumed.cores)
            .maybe("memory_bytes", assumed.memory_bytes)
            .maybe("gpus", assumed.gpus);
        self.get(&format!("/workflows/{id}/forecast{query}")).await
    }

    /// Recovers what failed, or tells what would be done.
    pub async fn recover(
        &self,
        id: WorkflowId,
        body: &RecoverRequest,
    ) -> Result<RecoverView, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/recover"), body).await
    }

    /// One page of events; `query` may hold `after` (an event id), `limit` and filters.
    pub async fn list_events(
        &self,
        id: WorkflowId,
        query: &Query,
    ) -> Result<Page<EventView>, Error> {
        self.get(&format!("/workflows/{id}/events{query}")).await
    }

    /// The actions of a workflow.
    pub async fn list_actions(&self, id: WorkflowId) -> Result<Page<ActionView>, Error> {
        self.get(&format!("/workflows/{id}/actions")).await
    }

    /// One page of jobs; `query` holds `workflow_id`, filters, `offset` and `limit`.
    pub async fn list_jobs(&self, query: &Query) -> Result<Page<JobView>, Error> {
        self.get(&format!("/jobs{query}")).await
    }

    /// One job.
    pub async fn get_job(&self, id: JobId) -> Result<JobView, Error> {
        self.get(&format!("/jobs/{id}")).await
    }

    /// Changes a job.
    pub async fn update_job(&self, id: JobId, body: &UpdateJob) -> Result<JobView, Error> {
        self.put(&format!("/jobs/{id}"), body).await
    }

    /// A running job adds jobs to its workflow.
    pub async fn spawn_jobs(&self, id: JobId, body: &SpawnJobs) -> Result<SpawnedJobs, Error> {
        self.post(&format!("/jobs/{id}/spawn_jobs"), body).await
    }

    /// Cancels some jobs of one workflow.
    pub async fn cancel_jobs(&self, body: &CancelJobs) -> Result<CanceledJobs, Error> {
        self.post("/jobs/cancel", body).await
    }

    /// A piece of a job's output; `query` may hold `stream`, `run_id`, `attempt_id`, `offset` and
    /// `limit`.
    pub async fn job_log(&self, id: JobId, query: &Query) -> Result<LogView, Error> {
        self.get(&format!("/jobs/{id}/logs{query}")).await
    }

    /// The attempts of a job, oldest first, over all runs.
    pub async fn list_attempts(&self, id: JobId) -> Result<Page<AttemptView>, Error> {
        self.get(&format!("/jobs/{id}/attempts")).await
    }

    /// One attempt.
    pub async fn get_attempt(&self, id: AttemptId) -> Result<AttemptView, Error> {
        self.get(&format!("/attempts/{id}")).await
    }

    /// Why a job is where it is.
    pub async fn why(&self, id: JobId) -> Result<WhyView, Error> {
        self.get(&format!("/jobs/{id}/why")).await
    }

    /// Why the jobs of a workflow that have not ended are where they are.
    pub async fn why_workflow(&self, id: WorkflowId) -> Result<WorkflowWhyView, Error> {
        self.get(&format!("/workflows/{id}/why")).await
    }

    /// Tries a job again, as a new attempt.
    pub async fn retry_job(
        &self,
        id: JobId,
        run_id: i64,
        max_retries: i64,
    ) -> Result<JobView, Error> {
        self.post(
            &format!("/jobs/{id}/retry/{run_id}{}", Query::new().add("max_retries", max_retries)),
            &(),
        )
        .await
    }

    /// Tries jobs again, each as a new attempt, or none of them.
    pub async fn retry_jobs(&self, body: &RetryJobs) -> Result<Page<JobView>, Error> {
        self.post("/jobs/retry", body).await
    }

    /// The runners of a workflow; `query` holds `workflow_id` and filters.
    pub async fn list_runners(&self, query: &Query) -> Result<Page<RunnerView>, Error> {
        self.get(&format!("/compute_nodes{query}")).await
    }

    /// Pieces of user data; `query` holds `workflow_id` and filters.
    pub async fn list_user_data(&self, query: &Query) -> Result<Page<UserDataView>, Error> {
        self.get(&format!("/user_data{query}")).await
    }

    /// One piece of user data.
    pub async fn get_user_data(&self, id: i64) -> Result<UserDataView, Error> {
        self.get(&format!("/user_data/{id}")).await
    }

    /// Changes a piece of user data.
    pub async fn update_user_data(
        &self,
        id: i64,
        body: &UpdateUserData,
    ) -> Result<UserDataView, Error> {
        self.put(&format!("/user_data/{id}"), body).await
    }

    /// Failure handlers; `query` holds `workflow_id`.
    pub async fn list_failure_handlers(
        &self,
        query: &Query,
    ) -> Result<Page<FailureHandlerView>, Error> {
        self.get(&format!("/failure_handlers{query}")).await
    }

    /// One failure handler.
    pub async fn get_failure_handler(&self, id: i64) -> Result<FailureHandlerView, Error> {
        self.get(&format!("/failure_handlers/{id}")).await
    }

    /// Adds a failure handler.
    pub async fn create_failure_handler(
        &self,
        body: &CreateFailureHandler,
    ) -> Result<FailureHandlerView, Error> {
        self.post("/failure_handlers", body).await
    }

    /// Changes a failure handler.
    pub async fn update_failure_handler(
        &self,
        id: i64,
        body: &UpdateFailureHandler,
    ) -> Result<FailureHandlerView, Error> {
        self.put(&format!("/failure_handlers/{id}"), body).await
    }

    /// Removes a failure handler.
    pub async fn delete_failure_handler(&self, id: i64) -> Result<(), Error> {
        self.delete::<serde_json::Value>(&format!("/failure_handlers/{id}")).await.map(drop)
    }

    /// Resource requirements; `query` holds `workflow_id`.
    pub async fn list_requirements(&self, query: &Query) -> Result<Page<RequirementsView>, Error> {
        self.get(&format!("/resource_requirements{query}")).await
    }

    /// Slurm schedulers; `query` holds `workflow_id`.
    pub async fn list_slurm_schedulers(
        &self,
        query: &Query,
    ) -> Result<Page<SlurmSchedulerView>, Error> {
        self.get(&format!("/slurm_schedulers{query}")).await
    }

    /// Files; `query` holds `workflow_id` and filters.
    pub async fn list_files(&self, query: &Query) -> Result<Page<FileView>, Error> {
        self.get(&format!("/files{query}")).await
    }

    /// Every row of a paged list. `path` has no query of its own; filters go into `query`.
    pub async fn list_all<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<Vec<T>, Error> {
        let mut rows = Vec::new();
        loop {
            let query = query.clone().add("offset", rows.len()).add("limit", PAGE_ROWS);
            let page: Page<T> = self.get(&format!("{path}{query}")).await?;
            let is_last = !page.has_more || page.items.is_empty();
            rows.extend(page.items);
            if is_last {
                return Ok(rows);
            }
        }
    }
}
