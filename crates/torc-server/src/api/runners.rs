//! Runners (`compute_nodes` on the wire): how they come, ask for work, and go.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::clock::now_ms;
use crate::store::read::RunnerFilter;
use axum::extract::State;
use torc_model::api::{
    ClaimRequest, ClaimResponse, Goodbye, GoodbyeAnswer, Page, QuarantineRequest, QuarantineView,
    RegisterRunner, RunnerRegistered, RunnerView,
};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::status::RunnerOrder;

list_query! {
    /// Which runners.
    ListRunners {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// On this host.
        hostname: Option<String>,
        /// Still there as far as known, or gone.
        is_active: Option<bool>,
    }
}

/// Lists runners.
#[utoipa::path(
    get,
    path = "/compute_nodes",
    operation_id = "list_compute_nodes",
    tag = "compute nodes",
    params(ListRunners),
    responses((status = 200, description = "One page of runners.", body = Page<RunnerView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_runners(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListRunners>,
) -> Answer<Page<RunnerView>> {
    let paging = query.paging()?;
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = RunnerFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        hostname: query.hostname,
        is_active: query.is_active,
    };
    Ok(Json(app.reader().list_runners(filter, paging, now_ms()).await?))
}

/// One runner.
#[utoipa::path(
    get,
    path = "/compute_nodes/{id}",
    operation_id = "get_compute_node",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The runner.")),
    responses((status = 200, description = "The runner.", body = RunnerView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_runner(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<RunnerView> {
    let runner = app.reader().get_runner(RunnerId(id), now_ms()).await?;
    caller.check(runner.workflow_id)?;
    Ok(Json(runner))
}

/// A runner introduces itself. Safe to repeat.
#[utoipa::path(
    post,
    path = "/compute_nodes",
    operation_id = "register_compute_node",
    tag = "compute nodes",
    request_body = RegisterRunner,
    responses((status = 200, description = "What it must know.", body = RunnerRegistered), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn register_runner(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<RegisterRunner>,
) -> Answer<RunnerRegistered> {
    app.check(&caller, request.workflow_id).await?;
    if let Some(pool) = request.pool_runner_id {
        app.check_pool(&caller, pool).await?;
    }
    let mut registered = app.store().register_runner(request).await?;
    registered.job_key = app.inner.auth.key().of_runner(registered.id);
    Ok(Json(registered))
}

/// Keeps work from the runners of a workflow on one machine, or lets it come again.
#[utoipa::path(
    post,
    path = "/workflows/{id}/quarantine",
    operation_id = "quarantine_node",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = QuarantineRequest,
    responses((status = 200, description = "Which runners it concerns.", body = QuarantineView), Refusals)
)]
pub async fn quarantine_node(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<QuarantineRequest>,
) -> Answer<QuarantineView> {
    caller.check(WorkflowId(id))?;
    Ok(Json(app.store().set_quarantine(WorkflowId(id), request).await?))
}

/// A runner leaves. Safe to repeat.
#[utoipa::path(
    post,
    path = "/compute_nodes/{id}/goodbye",
    operation_id = "goodbye",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The runner.")),
    request_body = Goodbye,
    responses((status = 200, description = "What it must still do.", body = GoodbyeAnswer), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn goodbye(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<Goodbye>,
) -> Answer<GoodbyeAnswer> {
    app.check_runner(&caller, RunnerId(id)).await?;
    Ok(Json(app.store().goodbye(RunnerId(id), request).await?))
}

/// A runner asks for work, and waits for it if it wants. Safe to repeat.
#[utoipa::path(
    post,
    path = "/workflows/{id}/claim",
    operation_id = "claim",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = ClaimRequest,
    responses((status = 200, description = "The attempts it now owns.", body = ClaimResponse), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn claim(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<ClaimRequest>,
) -> Answer<ClaimResponse> {
    caller.check(WorkflowId(id))?;
    app.check_runner(&caller, request.runner_id).await?;
    tokio::select! {
        answer = app.store().claim(WorkflowId(id), request) => Ok(Json(answer?)),
        // A repeat with the same key gets what this one may just have been given.
        () = app.inner.stop.cancelled() => Err(ApiError::shutting_down()),
    }
}

async fn order(app: App, id: RunnerId, ordered: Option<RunnerOrder>) -> Answer<RunnerView> {
    app.store().order_runner(id, ordered).await?;
    Ok(Json(app.reader().get_runner(id, now_ms()).await?))
}

/// A runner takes no more jobs; what it holds goes on. Safe to repeat.
#[utoipa::path(
    post,
    path = "/compute_nodes/{id}/drain",
    operation_id = "drain_compute_node",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The runner.")),
    responses((status = 200, description = "As it is now.", body = RunnerView), Refusals)
)]
pub async fn drain(State(app): State<App>, Path(id): Path<i64>) -> Answer<RunnerView> {
    order(app, RunnerId(id), Some(RunnerOrder::Drain)).await
}

/// A runner that was drained or removed takes jobs again.
#[utoipa::path(
    post,
    path = "/compute_nodes/{id}/resume",
    operation_id = "resume_compute_node",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The runner.")),
    responses((status = 200, description = "As it is now.", body = RunnerView), Refusals)
)]
pub async fn resume(State(app): State<App>, Path(id): Path<i64>) -> Answer<RunnerView> {
    order(app, RunnerId(id), None).await
}

/// A runner takes no more jobs and leaves when it holds none. Safe to repeat.
#[utoipa::path(
    post,
    path = "/compute_nodes/{id}/remove",
    operation_id = "remove_compute_node",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The runner.")),
    responses((status = 200, description = "As it is now.", body = RunnerView), Refusals)
)]
pub async fn remove(State(app): State<App>, Path(id): Path<i64>) -> Answer<RunnerView> {
    order(app, RunnerId(id), Some(RunnerOrder::Remove)).await
}
