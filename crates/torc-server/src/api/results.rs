//! Results: attempts that have ended.

use super::Json;
use super::auth::Caller;
use super::extract::Query;
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App};
use crate::store::read::AttemptFilter;
use axum::extract::State;
use torc_model::api::{AttemptView, Page};
use torc_model::status::{AttemptState, Cause};

list_query! {
    /// Which results.
    ListResults {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// Of this job.
        job_id: Option<i64>,
        /// Of this run.
        run_id: Option<i64>,
        /// With this return code.
        return_code: Option<i64>,
        /// `completed`, `failed`, `canceled` or `terminated`.
        status: Option<String>,
        /// For this reason.
        cause: Option<String>,
        /// On this runner.
        compute_node_id: Option<i64>,
        /// Every attempt of every run, not only the newest of each job.
        all_runs: Option<bool>,
        /// With what happened to each that failed.
        diagnosis: Option<bool>,
    }
}

/// Lists results: the newest of each job, unless `run_id` or `all_runs` ask for more.
#[utoipa::path(
    get,
    path = "/results",
    operation_id = "list_results",
    tag = "attempts",
    params(ListResults),
    responses((status = 200, description = "One page of ended attempts.", body = Page<AttemptView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_results(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListResults>,
) -> Answer<Page<AttemptView>> {
    let paging = query.paging()?;
    let state = |text: &String| {
        query::word("status", text, AttemptState::parse, AttemptState::ALL, AttemptState::as_str)
    };
    let cause = |text: &String| query::word("cause", text, Cause::parse, Cause::ALL, Cause::as_str);
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = AttemptFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        job_id: query.job_id,
        run_id: query.run_id,
        state: query.status.as_ref().map(state).transpose()?,
        return_code: query.return_code,
        cause: query.cause.as_ref().map(cause).transpose()?,
        compute_node_id: query.compute_node_id,
        diagnosis: query.diagnosis.unwrap_or(false),
        latest: !query.all_runs.unwrap_or(query.run_id.is_some()),
    };
    Ok(Json(app.reader().list_results(filter, paging).await?))
}
