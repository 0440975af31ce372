//! Attempts: what runners report about them, and single ones.

use super::Json;
use super::auth::Caller;
use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::{Answer, App};
use axum::extract::State;
use torc_model::api::{
    AttemptView, CompletionBatch, Heartbeat, HeartbeatAnswer, ReportResults, StartBatch,
};
use torc_model::ids::AttemptId;

/// A runner has started attempts. Safe to repeat.
#[utoipa::path(
    post,
    path = "/attempts/start",
    operation_id = "start_attempts",
    tag = "attempts",
    request_body = StartBatch,
    responses((status = 200, description = "One answer per report, in order.", body = ReportResults), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn start(
    State(app): State<App>,
    caller: Caller,
    Body(batch): Body<StartBatch>,
) -> Answer<ReportResults> {
    app.check_runner(&caller, batch.runner_id).await?;
    Ok(Json(app.store().start(batch).await?))
}

/// Attempts of a runner have ended. Safe to repeat.
#[utoipa::path(
    post,
    path = "/attempts/complete",
    operation_id = "complete_attempts",
    tag = "attempts",
    request_body = CompletionBatch,
    responses((status = 200, description = "One answer per report, in order.", body = ReportResults), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn complete(
    State(app): State<App>,
    caller: Caller,
    Body(batch): Body<CompletionBatch>,
) -> Answer<ReportResults> {
    app.check_runner(&caller, batch.runner_id).await?;
    Ok(Json(app.store().complete(batch).await?))
}

/// A runner lives and holds these attempts. Safe to repeat.
#[utoipa::path(
    post,
    path = "/attempts/heartbeat",
    operation_id = "heartbeat",
    tag = "attempts",
    request_body = Heartbeat,
    responses((status = 200, description = "What it must do about them.", body = HeartbeatAnswer), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<Heartbeat>,
) -> Answer<HeartbeatAnswer> {
    app.check_runner(&caller, request.runner_id).await?;
    Ok(Json(app.store().heartbeat(request).await?))
}

/// One attempt.
#[utoipa::path(
    get,
    path = "/attempts/{id}",
    operation_id = "get_attempt",
    tag = "attempts",
    params(("id" = i64, Path, description = "The attempt's row.")),
    responses((status = 200, description = "The attempt.", body = AttemptView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_attempt(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<AttemptView> {
    let attempt = app.reader().get_attempt(AttemptId(id)).await?;
    caller.check(attempt.workflow_id)?;
    Ok(Json(attempt))
}
