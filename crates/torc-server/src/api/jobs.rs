//! Jobs.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, LARGE, Path, Query};
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App};
use crate::store::read::JobFilter;
use axum::extract::State;
use serde::Deserialize;
use std::collections::HashSet;
use torc_model::api::{
    AttemptView, CancelJobs, CanceledJobs, JobView, Page, RetryJobs, SpawnJobs, SpawnedJobs,
    UpdateJob,
};
use torc_model::filter::Filter;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::JobStatus;
use utoipa::IntoParams;

list_query! {
    /// Which jobs.
    ListJobs {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// In this status. May be repeated, or hold several with commas.
        status: Vec<String>,
        /// Exactly this name.
        name: Option<String>,
        /// A part of the name.
        search: Option<String>,
        /// Depends directly on this job.
        upstream_job_id: Option<i64>,
        /// Reads this file.
        needs_file_id: Option<i64>,
        /// Now on this runner.
        active_compute_node_id: Option<i64>,
        /// Held back, or not.
        held: Option<bool>,
        /// Say what each of them depends on.
        include_depends_on: Option<bool>,
        /// In the filter language, such as `status:failed cause:oom time>1h`.
        r#where: Option<String>,
        /// With an id above this one, in the order of ids: the next page, however long the list is.
        after: Option<i64>,
        /// Tell of the newest attempt of each.
        include_last: Option<bool>,
    }
}

/// Lists jobs.
#[utoipa::path(
    get,
    path = "/jobs",
    operation_id = "list_jobs",
    tag = "jobs",
    params(ListJobs),
    responses((status = 200, description = "One page of jobs.", body = Page<JobView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_jobs(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListJobs>,
) -> Answer<Page<JobView>> {
    let paging = query.paging()?;
    if query.after.is_some() && paging.sort_by.as_deref().is_some_and(|key| key != "id") {
        return Err(ApiError::bad_query("after", "`after` goes with the order of ids only"));
    }
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = JobFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        status: statuses(&query.status)?,
        name: query.name,
        search: query.search,
        upstream_job_id: query.upstream_job_id,
        needs_file_id: query.needs_file_id,
        compute_node_id: query.active_compute_node_id,
        held: query.held,
        with_dependencies: query.include_depends_on.unwrap_or_default(),
        matching: matching(query.r#where.as_deref())?,
        after: query.after,
        with_last: query.include_last.unwrap_or_default(),
    };
    let known = match filter.workflow_id.map(WorkflowId) {
        Some(id) if filter.matching.is_by_status() => app.job_counts(id).await?,
        _ => None,
    };
    Ok(Json(app.reader().list_jobs(filter, paging, known).await?))
}

/// A filter as people write it.
pub fn matching(text: Option<&str>) -> Result<Filter, ApiError> {
    Filter::parse(text.unwrap_or_default()).map_err(|error| {
        ApiError::bad_query("where", error.to_string())
            .hint("words, and terms such as `status:failed`, `cause:oom`, `time>1h` or `name~_7$`")
    })
}

/// Names, or the integers that users know.
fn statuses(texts: &[String]) -> Result<Vec<JobStatus>, ApiError> {
    let parse =
        |text: &str| JobStatus::parse(text).or_else(|| JobStatus::from_code(text.parse().ok()?));
    texts
        .iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| query::word("status", text, parse, JobStatus::ALL, JobStatus::as_str))
        .collect()
}

/// One job.
#[utoipa::path(
    get,
    path = "/jobs/{id}",
    operation_id = "get_job",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job.")),
    responses((status = 200, description = "The job.", body = JobView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_job(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<JobView> {
    let job = app.reader().get_job(JobId(id)).await?;
    caller.check(job.workflow_id)?;
    Ok(Json(job))
}

/// Changes a job: its verdict, its place, what it may use.
#[utoipa::path(
    put,
    path = "/jobs/{id}",
    operation_id = "update_job",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job.")),
    request_body = UpdateJob,
    responses((status = 200, description = "The job as it is now.", body = JobView), Refusals)
)]
pub async fn update_job(
    State(app): State<App>,
    Path(id): Path<i64>,
    Body(request): Body<UpdateJob>,
) -> Answer<JobView> {
    app.store().update_job(JobId(id), request).await?;
    Ok(Json(app.reader().get_job(JobId(id)).await?))
}

list_query! {
    /// Which attempts.
    ListAttempts {}
}

/// The attempts of a job over all runs, oldest first.
#[utoipa::path(
    get,
    path = "/jobs/{id}/attempts",
    operation_id = "list_job_attempts",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job."), ListAttempts),
    responses((status = 200, description = "One page of attempts.", body = Page<AttemptView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_attempts(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<ListAttempts>,
) -> Answer<Page<AttemptView>> {
    caller.check(app.reader().workflow_of_job(JobId(id)).await?)?;
    Ok(Json(app.reader().list_attempts(JobId(id), query.paging()?).await?))
}

/// A running job adds jobs to its workflow: all of them or none. A job's own token is good for it
/// where the workflow allows `dynamic_jobs`.
#[utoipa::path(
    post,
    path = "/jobs/{id}/spawn_jobs",
    operation_id = "spawn_jobs",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job that adds them.")),
    request_body = SpawnJobs,
    responses((status = 200, description = "What was added, now or before.", body = SpawnedJobs), Refusals),
    security(("token" = ["job"]))
)]
pub async fn spawn_jobs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<SpawnJobs, LARGE>,
) -> Answer<SpawnedJobs> {
    let by_job = caller.adds_for(JobId(id))?;
    Ok(Json(app.store().spawn_jobs(JobId(id), request, by_job).await?))
}

/// How often.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RetryJob {
    /// Allowed while the attempt's number is lower than this.
    #[param(minimum = 0)]
    pub max_retries: i64,
}

/// Tries a job again, as a new attempt.
#[utoipa::path(
    post,
    path = "/jobs/{id}/retry/{run_id}",
    operation_id = "retry_job",
    tag = "jobs",
    params(
        ("id" = i64, Path, description = "The job."),
        ("run_id" = i64, Path, description = "The current run, as the caller knows it."),
        RetryJob
    ),
    responses((status = 200, description = "The job as it is now.", body = JobView), Refusals)
)]
pub async fn retry_job(
    State(app): State<App>,
    Path((id, run_id)): Path<(i64, i64)>,
    Query(query): Query<RetryJob>,
) -> Answer<JobView> {
    app.store().retry_job(JobId(id), run_id, query.max_retries).await?;
    Ok(Json(app.reader().get_job(JobId(id)).await?))
}

/// Tries several jobs again, each as a new attempt, or none of them.
#[utoipa::path(
    post,
    path = "/jobs/retry",
    operation_id = "retry_jobs",
    tag = "jobs",
    request_body = RetryJobs,
    responses((status = 200, description = "The jobs as they are now, in the order of the request.", body = Page<JobView>), Refusals)
)]
pub async fn retry_jobs(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<RetryJobs>,
) -> Answer<Page<JobView>> {
    let mut seen = HashSet::with_capacity(request.jobs.len());
    let ids: Vec<JobId> =
        request.jobs.iter().map(|one| one.job_id).filter(|id| seen.insert(*id)).collect();
    app.check_jobs(&caller, ids.iter().copied()).await?;
    app.store().retry_jobs(request).await?;
    let mut items = Vec::with_capacity(ids.len());
    for id in ids {
        items.push(app.reader().get_job(id).await?);
    }
    Ok(Json(Page::whole(items)))
}

/// Cancels jobs of one workflow.
#[utoipa::path(
    post,
    path = "/jobs/cancel",
    operation_id = "cancel_jobs",
    tag = "jobs",
    request_body = CancelJobs,
    responses((status = 200, description = "What was canceled.", body = CanceledJobs), Refusals)
)]
pub async fn cancel_jobs(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<CancelJobs>,
) -> Answer<CanceledJobs> {
    app.check_jobs(&caller, request.job_ids.iter().copied()).await?;
    let job_ids = request.job_ids.clone();
    app.store().cancel_jobs(request).await?;
    Ok(Json(CanceledJobs { job_ids }))
}
