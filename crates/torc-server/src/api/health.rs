//! The server's own state.

use super::Json;
use super::auth::Caller;
use super::{Answer, App};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// The server's own state: `torc_model::api::Health` for those with a token, only the status for
/// others.
#[derive(Serialize, Default, ToSchema)]
pub struct HealthAnswer {
    /// `ok`, or `recovering` while everything else waits.
    pub status: String,
    /// Version of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub version: Option<String>,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pid: Option<i64>,
    /// Since when, ms since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub started_ms: Option<i64>,
    /// Workflows that have begun and are not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub active_workflows: Option<i64>,
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
    let status = if *app.inner.is_open.borrow() { "ok" } else { "recovering" }.to_string();
    if caller == Caller::Anonymous {
        return Ok(Json(HealthAnswer { status, ..HealthAnswer::default() }));
    }
    Ok(Json(HealthAnswer {
        status,
        version: Some(env!("CARGO_PKG_VERSION").into()),
        pid: Some(i64::from(std::process::id())),
        started_ms: Some(app.inner.started_ms),
        active_workflows: Some(app.reader().count_active_workflows().await?),
    }))
}

/// What a load balancer hears: one word.
#[derive(Serialize, ToSchema)]
pub struct Liveness {
    /// `ok`, or why not: `recovering`, `ending`, `broken`.
    pub status: &'static str,
}

/// Whether the process is well; when not, only a new start helps.
#[utoipa::path(
    get,
    path = "/health/live",
    operation_id = "get_health_live",
    tag = "server",
    responses(
        (status = 200, description = "It is alive.", body = Liveness),
        (status = 503, description = "It must be started again.", body = Liveness)
    ),
    security(())
)]
pub async fn get_live(State(app): State<App>) -> (StatusCode, Json<Liveness>) {
    match app.store().is_alive() {
        true => (StatusCode::OK, Json(Liveness { status: "ok" })),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(Liveness { status: "broken" })),
    }
}

/// Whether requests are served now.
#[utoipa::path(
    get,
    path = "/health/ready",
    operation_id = "get_health_ready",
    tag = "server",
    responses(
        (status = 200, description = "Requests are served.", body = Liveness),
        (status = 503, description = "Not yet, or no longer.", body = Liveness)
    ),
    security(())
)]
pub async fn get_ready(State(app): State<App>) -> (StatusCode, Json<Liveness>) {
    let status = match app.is_ready() {
        true => return (StatusCode::OK, Json(Liveness { status: "ok" })),
        false if !app.store().is_alive() => "broken",
        false if app.inner.stop.is_cancelled() => "ending",
        false => "recovering",
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(Liveness { status }))
}
