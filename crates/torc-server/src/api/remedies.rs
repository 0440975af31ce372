//! Recovery of what failed, and its history.

use super::Json;
use super::auth::Caller;
use super::extract::{OptionalBody, Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::Trigger;
use axum::extract::State;
use torc_model::api::Page;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{AdjustmentView, RecoverRequest, RecoverView};

/// Recovers what failed: more memory, more time or the same again, as each diagnosis asks for. Ends
/// what dead runners held first. A dry run answers with the same table and changes nothing.
#[utoipa::path(
    post,
    path = "/workflows/{id}/recover",
    operation_id = "recover_workflow",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = Option<RecoverRequest>,
    responses((status = 200, description = "What was done.", body = RecoverView), Refusals)
)]
pub async fn recover_workflow(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkflowId>,
    OptionalBody(request): OptionalBody<RecoverRequest>,
) -> Answer<RecoverView> {
    caller.check(id)?;
    app.reader().get_workflow(id).await?;
    let orphans =
        app.store().recover(Trigger::Request { workflow: id, dry_run: request.dry_run }).await?;
    let view = app.store().recover_failed(id, request).await?;
    Ok(Json(RecoverView { orphans, ..view }))
}

list_query! {
    /// Which changes.
    ListAdjustments {
        /// Of this job.
        job_id: Option<i64>,
    }
}

/// Lists what recovery changed for jobs: from, to, why, by whom.
#[utoipa::path(
    get,
    path = "/workflows/{id}/adjustments",
    operation_id = "list_adjustments",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), ListAdjustments),
    responses((status = 200, description = "One page of changes.", body = Page<AdjustmentView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_adjustments(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<WorkflowId>,
    Query(query): Query<ListAdjustments>,
) -> Answer<Page<AdjustmentView>> {
    caller.check(id)?;
    app.reader().get_workflow(id).await?;
    let paging = query.paging()?;
    Ok(Json(app.reader().list_adjustments(id, query.job_id.map(JobId), paging).await?))
}
