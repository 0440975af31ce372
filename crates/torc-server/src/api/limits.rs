//! Named limits: how many jobs may use something at once, over all workflows and runners.

use super::Json;
use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::{Answer, App};
use axum::extract::State;
use torc_model::api::{LimitView, Page, SetLimit};

/// Lists the named limits.
#[utoipa::path(
    get,
    path = "/limits",
    operation_id = "list_limits",
    tag = "limits",
    responses((status = 200, description = "All limits and their use.", body = Page<LimitView>), Refusals)
)]
pub async fn list_limits(State(app): State<App>) -> Answer<Page<LimitView>> {
    Ok(Json(Page::whole(app.store().limits().await?)))
}

/// Sets a named limit.
#[utoipa::path(
    put,
    path = "/limits/{name}",
    operation_id = "set_limit",
    tag = "limits",
    params(("name" = String, Path, description = "The name that jobs use.")),
    request_body = SetLimit,
    responses((status = 200, description = "As it is now.", body = LimitView), Refusals)
)]
pub async fn set_limit(
    State(app): State<App>,
    Path(name): Path<String>,
    Body(request): Body<SetLimit>,
) -> Answer<LimitView> {
    Ok(Json(app.store().set_limit(name, request.max).await?))
}

/// Removes a named limit; jobs that use it are no longer bounded by it.
#[utoipa::path(
    delete,
    path = "/limits/{name}",
    operation_id = "delete_limit",
    tag = "limits",
    params(("name" = String, Path, description = "The name that jobs use.")),
    responses((status = 200, description = "It is gone.", body = serde_json::Value), Refusals)
)]
pub async fn delete_limit(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<serde_json::Value> {
    app.store().delete_limit(name).await?;
    Ok(Json(serde_json::json!({})))
}
