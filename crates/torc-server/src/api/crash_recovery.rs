//! Recovery on demand: what dead runners held, and rows that do not fit together.

use super::Json;
use super::extract::{OptionalBody, Path};
use super::openapi::Refusals;
use super::{Answer, App};
use crate::store::Trigger;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use torc_model::api::RecoveryView;
use torc_model::ids::WorkflowId;

/// How to synchronize.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct SyncRequest {
    /// Only tell what would happen.
    pub dry_run: bool,
}

/// Ends what dead runners of this workflow held and repairs its rows. A second call finds nothing
/// to do.
#[utoipa::path(
    post,
    path = "/workflows/{id}/sync_status",
    operation_id = "sync_status",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = Option<SyncRequest>,
    responses((status = 200, description = "What was done.", body = RecoveryView), Refusals)
)]
pub async fn sync_status(
    State(app): State<App>,
    Path(id): Path<WorkflowId>,
    OptionalBody(request): OptionalBody<SyncRequest>,
) -> Answer<RecoveryView> {
    app.reader().get_workflow(id).await?;
    Ok(Json(
        app.store().recover(Trigger::Request { workflow: id, dry_run: request.dry_run }).await?,
    ))
}
