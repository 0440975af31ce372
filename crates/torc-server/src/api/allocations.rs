//! Allocations in Slurm (`scheduled_compute_node`): asked for, sent, seen.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App, logs};
use crate::clock::now_ms;
use crate::store::read::{AllocationFilter, Thing};
use axum::extract::State;
use serde::Deserialize;
use std::path::{Path as FilePath, PathBuf};
use torc_model::api::Page;
use torc_model::ids::WorkflowId;
use torc_model::slurm::wire::{
    AllocationLogView, AllocationUse, AllocationView, Allocations, BeginSubmission, Observations,
    ObservedView, RegenerateRequest, RegeneratedView, ScheduleNodes, SubmissionOrders,
    SubmissionReport,
};
use torc_model::status::AllocationStatus;
use torc_model::token::Grant;
use utoipa::IntoParams;

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

/// What the allocations of a workflow cost and were good for, the newest first.
#[utoipa::path(
    get,
    path = "/workflows/{id}/allocation_uses",
    operation_id = "list_allocation_uses",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "At most 500 allocations.", body = Page<AllocationUse>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_allocation_uses(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Page<AllocationUse>> {
    let id = WorkflowId(id);
    caller.check(id)?;
    app.reader().get_workflow(id).await?;
    // The time of those that run passes without an event.
    let stamp = now_ms();
    let make = async { Ok(app.reader().allocation_uses(id, stamp).await?) };
    let uses = app.inner.shown.allocations.get(id, stamp, make).await?;
    Ok(Json(Page::whole((*uses).clone())))
}

/// Which piece of the output.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetAllocationOutput {
    /// `stdout` (the default) or `stderr`.
    pub stream: Option<String>,
    /// Where to begin, in bytes; negative counts from the end.
    pub offset: Option<i64>,
    /// At most this many bytes; 65536 unless given.
    #[param(minimum = 1, maximum = 1048576)]
    pub limit: Option<i64>,
}

/// A piece of what the batch job of an allocation wrote.
#[utoipa::path(
    get,
    path = "/scheduled_compute_nodes/{id}/output",
    operation_id = "get_allocation_output",
    tag = "allocations",
    params(("id" = i64, Path, description = "The allocation."), GetAllocationOutput),
    responses((status = 200, description = "A piece of the output.", body = AllocationLogView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_allocation_output(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetAllocationOutput>,
) -> Answer<AllocationLogView> {
    caller.check(app.reader().get_allocation(id).await?.workflow_id)?;
    let end = match query.stream.as_deref() {
        None | Some("stdout") => "o",
        Some("stderr") => "e",
        Some(other) => {
            let message = format!("`{other}` is no stream (known: stdout, stderr)");
            return Err(ApiError::bad_query("stream", message));
        }
    };
    let limit = logs::checked_limit(query.limit)?;
    let (directories, name) = app.reader().allocation_output(id).await?;
    let place = directories.first().map_or_else(PathBuf::new, PathBuf::from);
    let files: Vec<PathBuf> = directories
        .iter()
        .map(|directory| FilePath::new(directory).join(format!("{name}.{end}")))
        .filter(|path| path.is_absolute())
        .collect();
    let piece = crate::slow_files::look(place, move || {
        logs::first_readable(&files, query.offset.unwrap_or(0), limit)
    });
    let (path, piece) = piece.await.map_err(ApiError::hangs)??;
    Ok(Json(AllocationLogView {
        allocation_id: id,
        path: path.display().to_string(),
        offset: piece.offset,
        next_offset: piece.offset + piece.length,
        size: piece.size,
        text: piece.text,
    }))
}

/// Gives up an allocation that waits; a submitter that reaches Slurm takes it back.
#[utoipa::path(
    post,
    path = "/scheduled_compute_nodes/{id}/cancel",
    operation_id = "cancel_scheduled_compute_node",
    tag = "allocations",
    params(("id" = i64, Path, description = "The allocation.")),
    responses((status = 200, description = "The allocation.", body = AllocationView), Refusals)
)]
pub async fn cancel_allocation(
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Answer<AllocationView> {
    Ok(Json(app.store().cancel_allocation(id).await?))
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
