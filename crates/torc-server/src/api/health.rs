//! The server's own state.

use super::auth::Caller;
use super::{Answer, App};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use torc_model::api::{Health, HealthSummary};
use utoipa::ToSchema;

/// What the caller may know.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum HealthAnswer {
    /// With a token.
    Full(Health),
    /// Without one.
    Summary(HealthSummary),
}

/// Whether the server is well. Without a token only one word.
#[utoipa::path(
    get,
    path = "/health",
    operation_id = "get_health",
    tag = "server",
    responses((status = 200, description = "It is there.", body = HealthAnswer)),
    security(())
)]
pub async fn get_health(State(app): State<App>, caller: Caller) -> Answer<HealthAnswer> {
    let status = "ok".to_string();
    if caller == Caller::Stranger {
        return Ok(Json(HealthAnswer::Summary(HealthSummary { status })));
    }
    Ok(Json(HealthAnswer::Full(Health {
        status,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: i64::from(std::process::id()),
        started_ms: app.inner.started_ms,
        active_workflows: app.reader().count_active_workflows().await?,
    })))
}
