//! Webhooks: endpoints, their deliveries, and a second chance for dead ones.

use super::Json;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::word;
use super::{Answer, App};
use axum::extract::State;
use serde::Deserialize;
use torc_model::api::{CreateWebhook, DeliveryView, Page, WebhookView};
use torc_model::status::DeliveryState;
use utoipa::IntoParams;

/// Lists the endpoints.
#[utoipa::path(
    get,
    path = "/webhooks",
    operation_id = "list_webhooks",
    tag = "webhooks",
    responses((status = 200, description = "All endpoints.", body = Page<WebhookView>), Refusals)
)]
pub async fn list_webhooks(State(app): State<App>) -> Answer<Page<WebhookView>> {
    Ok(Json(Page::whole(app.store().webhooks().await?)))
}

/// Adds an endpoint. Its secret is in this answer and never again.
#[utoipa::path(
    post,
    path = "/webhooks",
    operation_id = "create_webhook",
    tag = "webhooks",
    request_body = CreateWebhook,
    responses((status = 200, description = "It is there.", body = WebhookView), Refusals)
)]
pub async fn create_webhook(
    State(app): State<App>,
    Body(request): Body<CreateWebhook>,
) -> Answer<WebhookView> {
    Ok(Json(app.store().create_webhook(request).await?))
}

/// One endpoint.
#[utoipa::path(
    get,
    path = "/webhooks/{id}",
    operation_id = "get_webhook",
    tag = "webhooks",
    params(("id" = i64, Path, description = "The endpoint.")),
    responses((status = 200, description = "The endpoint.", body = WebhookView), Refusals)
)]
pub async fn get_webhook(State(app): State<App>, Path(id): Path<i64>) -> Answer<WebhookView> {
    Ok(Json(app.store().webhook(id).await?))
}

/// Removes an endpoint with its deliveries.
#[utoipa::path(
    delete,
    path = "/webhooks/{id}",
    operation_id = "delete_webhook",
    tag = "webhooks",
    params(("id" = i64, Path, description = "The endpoint.")),
    responses((status = 200, description = "It is gone.", body = serde_json::Value), Refusals)
)]
pub async fn delete_webhook(
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Answer<serde_json::Value> {
    // A notification is deleted as such.
    app.store().webhook(id).await?;
    app.store().delete_webhook(id).await?;
    Ok(Json(serde_json::json!({})))
}

/// Which deliveries.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ListDeliveries {
    /// `pending`, `delivered` or `dead`.
    state: Option<String>,
}

/// Lists an endpoint's newest deliveries.
#[utoipa::path(
    get,
    path = "/webhooks/{id}/deliveries",
    operation_id = "list_deliveries",
    tag = "webhooks",
    params(("id" = i64, Path, description = "The endpoint."), ListDeliveries),
    responses((status = 200, description = "The newest deliveries.", body = Page<DeliveryView>), Refusals)
)]
pub async fn list_deliveries(
    State(app): State<App>,
    Path(id): Path<i64>,
    Query(query): Query<ListDeliveries>,
) -> Answer<Page<DeliveryView>> {
    let state = query.state.as_deref().map(|text| {
        word("state", text, DeliveryState::parse, DeliveryState::ALL, DeliveryState::as_str)
    });
    let state = state.transpose()?;
    Ok(Json(Page::whole(app.store().deliveries(id, state).await?)))
}

/// Tries a delivery again, from the beginning.
#[utoipa::path(
    post,
    path = "/deliveries/{id}/redeliver",
    operation_id = "redeliver",
    tag = "webhooks",
    params(("id" = i64, Path, description = "The delivery.")),
    responses((status = 200, description = "It is tried again.", body = DeliveryView), Refusals)
)]
pub async fn redeliver(State(app): State<App>, Path(id): Path<i64>) -> Answer<DeliveryView> {
    Ok(Json(app.store().redeliver(id).await?))
}
