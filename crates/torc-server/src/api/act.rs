//! One action on all jobs that a filter finds.

use super::Json;
use super::auth::Caller;
use super::extract::Body;
use super::openapi::Refusals;
use super::{Answer, App, jobs};
use axum::extract::State;
use torc_model::api::{ActRequest, ActView};

/// Does something with all jobs of a workflow that a filter finds, or tells what would happen.
#[utoipa::path(
    post,
    path = "/jobs/act",
    operation_id = "act_on_jobs",
    tag = "jobs",
    request_body = ActRequest,
    responses((status = 200, description = "What was done, or would be.", body = ActView), Refusals)
)]
pub async fn act(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<ActRequest>,
) -> Answer<ActView> {
    app.check(&caller, request.workflow_id).await?;
    let filter = jobs::matching(Some(&request.filter))?;
    app.reader().get_workflow(request.workflow_id).await?;
    let found = app.reader().matching_jobs(request.workflow_id, filter).await?;
    Ok(Json(app.store().act(request, found).await?))
}
