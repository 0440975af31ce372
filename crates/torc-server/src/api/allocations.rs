//! Allocations in Slurm (`scheduled_compute_node`): asked for, sent, seen.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App};
use crate::store::read::{AllocationFilter, Thing};
use axum::extract::State;
use torc_model::api::Page;
use torc_model::ids::WorkflowId;
use torc_model::slurm::wire::{
    AllocationView, Allocations, BeginSubmission, Observations, ObservedView, RegenerateRequest,
    RegeneratedView, ScheduleNodes, SubmissionOrders, SubmissionReport,
};
use torc_model::status::AllocationStatus;
use torc_model::token::Grant;

list_query! {
    /// Which allocations.
    ListAllocations {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// `planned`, `submitting`, `pending`, `active` or `complete`.
        status: Option<String>,
        /// Of this Slurm job.
        slurm_job_id: Option<String>,
        /// With this name in Slurm.
        name: Option<String>,
        /// Only those that are over, their workers left within the last hour, and Slurm has not
        /// said why.
        unexplained: Option<bool>,
    }
}

/// Lists allocations.
#[utoipa::path(
    get,
    path = "/scheduled_compute_nodes",
    operation_id = "list_scheduled_compute_nodes",
    tag = "allocations",
    params(ListAllocations),
    responses((status = 200, description = "One page of allocations.", body = Page<AllocationView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_allocations(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListAllocations>,
) -> Answer<Page<AllocationView>> {
    let paging = query.paging()?;
    let status = query.status.as_deref().map(|text| {
        query::word(
            "status",
            text,
            AllocationStatus::parse,
            AllocationStatus::ALL,
            AllocationStatus::as_str,
        )
    });
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = AllocationFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        status: status.transpose()?.map(|status| status.as_str().to_owned()),
        slurm_job_id: query.slurm_job_id,
        name: query.name,
        is_unexplained: query.unexplained == Some(true),
    };
    Ok(Json(app.reader().list_allocations(filter, paging).await?))
}

/// One allocation.
#[utoipa::path(
    get,
    path = "/scheduled_compute_nodes/{id}",
    operation_id = "get_scheduled_compute_node",
    tag = "allocations",
    params(("id" = i64, Path, description = "The allocation.")),
    responses((status = 200, description = "The allocation.", body = AllocationView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_allocation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<AllocationView> {
    let allocation = app.reader().get_allocation(id).await?;
    caller.check(allocation.workflow_id)?;
    Ok(Json(allocation))
}

/// Asks for allocations; a submitter that reaches Slurm sends them. A repeat with the same key
/// changes nothing.
#[utoipa::path(
    post,
    path = "/scheduled_compute_nodes",
    operation_id = "create_scheduled_compute_nodes",
    tag = "allocations",
    request_body = ScheduleNodes,
    responses((status = 200, description = "The allocations.", body = Allocations), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn create_allocations(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<ScheduleNodes>,
) -> Answer<Allocations> {
    app.check(&caller, WorkflowId(request.workflow_id)).await?;
    Ok(Json(app.store().schedule_nodes(request).await?))
}

/// Takes up what waits to be sent to Slurm; no other submitter gets it for two minutes.
#[utoipa::path(
    post,
    path = "/scheduled_compute_nodes/begin",
    operation_id = "begin_submission",
    tag = "allocations",
    request_body = BeginSubmission,
    responses((status = 200, description = "What to send now.", body = SubmissionOrders), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn begin_submission(
    State(app): State<App>,
    caller: Caller,
    Body(mut request): Body<BeginSubmission>,
) -> Answer<SubmissionOrders> {
    request.workflow_id = caller.narrow(request.workflow_id)?;
    match request.workflow_id {
        Some(id) => app.check(&caller, WorkflowId(id)).await?,
        // What it gets are tokens of runners.
        None if caller.walled().is_some() => {
            let message = "name the workflow whose allocations you send";
            return Err(ApiError::forbidden(message).field("workflow_id"));
        }
        None => {}
    }
    let mut orders = app.store().begin_submission(request).await?;
    for order in &mut orders.items {
        order.token = app
            .inner
            .auth
            .key()
            .sign(&Grant::Runner { workflow: order.workflow_id, allocation: order.name.clone() });
    }
    Ok(Json(orders))
}

/// Tells how sending went.
#[utoipa::path(
    post,
    path = "/scheduled_compute_nodes/submitted",
    operation_id = "report_submission",
    tag = "allocations",
    request_body = SubmissionReport,
    responses((status = 200, description = "The allocations of that name.", body = Allocations), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn report_submission(
    State(app): State<App>,
    caller: Caller,
    Body(report): Body<SubmissionReport>,
) -> Answer<Allocations> {
    app.check(&caller, report.workflow_id).await?;
    Ok(Json(app.store().report_submission(report).await?))
}

/// Takes in what was seen of allocations in Slurm.
#[utoipa::path(
    post,
    path = "/scheduled_compute_nodes/observe",
    operation_id = "observe_scheduled_compute_nodes",
    tag = "allocations",
    request_body = Observations,
    responses((status = 200, description = "What followed.", body = ObservedView), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn observe_allocations(
    State(app): State<App>,
    caller: Caller,
    Body(seen): Body<Observations>,
) -> Answer<ObservedView> {
    for item in &seen.items {
        app.check_thing(&caller, Thing::Allocation, item.id).await?;
    }
    Ok(Json(app.store().observe_allocations(seen).await?))
}

/// Gives the jobs that still have to run new schedulers, and asks for nodes if so said.
#[utoipa::path(
    post,
    path = "/workflows/{id}/regenerate",
    operation_id = "regenerate",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = RegenerateRequest,
    responses((status = 200, description = "What was done.", body = RegeneratedView), Refusals)
)]
pub async fn regenerate(
    State(app): State<App>,
    Path(id): Path<WorkflowId>,
    Body(request): Body<RegenerateRequest>,
) -> Answer<RegeneratedView> {
    Ok(Json(app.store().regenerate(id, request).await?))
}
