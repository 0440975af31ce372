//! Items of maps, and the failed ones that wait for a user.

use super::Json;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::{Answer, App};
use axum::extract::State;
use serde::Deserialize;
use torc_model::api::{ItemView, ItemsRequest, Page};
use torc_model::ids::WorkflowId;

/// Which items to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ItemFilter {
    /// The map job's name; all maps unless given.
    #[serde(default)]
    job: Option<String>,
    /// Only items that ended badly.
    #[serde(default)]
    failed: bool,
}

/// Lists the items of a map.
#[utoipa::path(
    get,
    path = "/workflows/{id}/items",
    operation_id = "list_items",
    tag = "items",
    params(("id" = i64, Path, description = "The workflow."), ItemFilter),
    responses((status = 200, description = "The items, in their order.", body = Page<ItemView>), Refusals)
)]
pub async fn list_items(
    State(app): State<App>,
    Path(id): Path<i64>,
    Query(filter): Query<ItemFilter>,
) -> Answer<Page<ItemView>> {
    let mut items = app.store().items(WorkflowId(id), filter.job).await?;
    items.retain(|item| !filter.failed || (item.status.is_bad_end() && !item.is_gone));
    Ok(Json(Page::whole(items)))
}

/// Runs items again that ended badly; the map and its reduce follow.
#[utoipa::path(
    post,
    path = "/workflows/{id}/items/retry",
    operation_id = "retry_items",
    tag = "items",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = ItemsRequest,
    responses((status = 200, description = "The items that run again.", body = Page<ItemView>), Refusals)
)]
pub async fn retry_items(
    State(app): State<App>,
    Path(id): Path<i64>,
    Body(request): Body<ItemsRequest>,
) -> Answer<Page<ItemView>> {
    Ok(Json(Page::whole(app.store().retry_items(WorkflowId(id), request).await?)))
}

/// Takes items that ended badly out of the count; a map that failed because of them is looked at
/// again.
#[utoipa::path(
    post,
    path = "/workflows/{id}/items/drop",
    operation_id = "drop_items",
    tag = "items",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = ItemsRequest,
    responses((status = 200, description = "The items that no longer count.", body = Page<ItemView>), Refusals)
)]
pub async fn drop_items(
    State(app): State<App>,
    Path(id): Path<i64>,
    Body(request): Body<ItemsRequest>,
) -> Answer<Page<ItemView>> {
    Ok(Json(Page::whole(app.store().drop_items(WorkflowId(id), request).await?)))
}
