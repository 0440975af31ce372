//! Failure handlers.

use super::Json;
use super::auth::Caller;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::read::NamedFilter;
use axum::extract::State;
use serde_json::Value;
use torc_model::api::{CreateFailureHandler, FailureHandlerView, Page, UpdateFailureHandler};

list_query! {
    /// Which failure handlers.
    ListFailureHandlers {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// Exactly this name.
        name: Option<String>,
    }
}

/// Lists failure handlers.
#[utoipa::path(
    get,
    path = "/failure_handlers",
    operation_id = "list_failure_handlers",
    tag = "failure handlers",
    params(ListFailureHandlers),
    responses((status = 200, description = "One page of failure handlers.", body = Page<FailureHandlerView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_failure_handlers(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListFailureHandlers>,
) -> Answer<Page<FailureHandlerView>> {
    let paging = query.paging()?;
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = NamedFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        name: query.name,
    };
    Ok(Json(app.reader().list(filter, paging).await?))
}

/// One failure handler.
#[utoipa::path(
    get,
    path = "/failure_handlers/{id}",
    operation_id = "get_failure_handler",
    tag = "failure handlers",
    params(("id" = i64, Path, description = "The failure handler.")),
    responses((status = 200, description = "The failure handler.", body = FailureHandlerView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_failure_handler(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<FailureHandlerView> {
    let handler = app.reader().get::<FailureHandlerView>(id).await?;
    caller.check(handler.workflow_id)?;
    Ok(Json(handler))
}

/// Creates a failure handler.
#[utoipa::path(
    post,
    path = "/failure_handlers",
    operation_id = "create_failure_handler",
    tag = "failure handlers",
    request_body = CreateFailureHandler,
    responses((status = 200, description = "It is there.", body = FailureHandlerView), Refusals)
)]
pub async fn create_failure_handler(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<CreateFailureHandler>,
) -> Answer<FailureHandlerView> {
    app.check(&caller, request.workflow_id).await?;
    let id = app.store().create_failure_handler(request).await?;
    Ok(Json(app.reader().get::<FailureHandlerView>(id).await?))
}

/// Changes a failure handler; failures from now on follow it.
#[utoipa::path(
    put,
    path = "/failure_handlers/{id}",
    operation_id = "update_failure_handler",
    tag = "failure handlers",
    params(("id" = i64, Path, description = "The failure handler.")),
    request_body = UpdateFailureHandler,
    responses((status = 200, description = "As it is now.", body = FailureHandlerView), Refusals)
)]
pub async fn update_failure_handler(
    State(app): State<App>,
    Path(id): Path<i64>,
    Body(request): Body<UpdateFailureHandler>,
) -> Answer<FailureHandlerView> {
    app.store().update_failure_handler(id, request).await?;
    Ok(Json(app.reader().get::<FailureHandlerView>(id).await?))
}

/// Deletes a failure handler; its jobs are left without one.
#[utoipa::path(
    delete,
    path = "/failure_handlers/{id}",
    operation_id = "delete_failure_handler",
    tag = "failure handlers",
    params(("id" = i64, Path, description = "The failure handler.")),
    responses((status = 200, description = "It is gone.", body = Value), Refusals)
)]
pub async fn delete_failure_handler(State(app): State<App>, Path(id): Path<i64>) -> Answer<Value> {
    app.store().delete_failure_handler(id).await?;
    Ok(Json(serde_json::json!({})))
}
