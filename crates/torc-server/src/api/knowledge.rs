//! What was learned from retries of failures: looked at, shared, and forgotten.

use super::Json;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::{Answer, App};
use axum::extract::State;
use serde::Deserialize;
use torc_model::recovery::{Knowledge, KnowledgeForgotten, KnowledgeTaken, KnownFailure};
use utoipa::IntoParams;

/// Which failures.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForgetQuery {
    /// Must be `true`: everything is forgotten.
    pub all: bool,
}

/// Gives all that was learned from retries, as it can be taken in elsewhere.
#[utoipa::path(
    get,
    path = "/knowledge",
    operation_id = "get_knowledge",
    tag = "recovery",
    responses((status = 200, description = "What is known, the latest first.", body = Knowledge), Refusals)
)]
pub async fn get_knowledge(State(app): State<App>) -> Answer<Knowledge> {
    let failures = app.reader().knowledge(None).await?;
    Ok(Json(Knowledge { torc_knowledge: Knowledge::VERSION, failures }))
}

/// Gives what is known about one failure.
#[utoipa::path(
    get,
    path = "/knowledge/{fingerprint}",
    operation_id = "get_known_failure",
    tag = "recovery",
    params(("fingerprint" = String, Path, description = "The failure.")),
    responses((status = 200, description = "What is known of it.", body = KnownFailure), Refusals)
)]
pub async fn get_known_failure(
    State(app): State<App>,
    Path(fingerprint): Path<String>,
) -> Answer<KnownFailure> {
    let known = app.reader().knowledge(Some(fingerprint.clone())).await?.pop();
    match known {
        Some(known) => Ok(Json(known)),
        None => Err(crate::store::unknown_failure(&fingerprint).into()),
    }
}

/// Takes in what was learned elsewhere. The same twice counts once.
#[utoipa::path(
    post,
    path = "/knowledge",
    operation_id = "take_knowledge",
    tag = "recovery",
    request_body = Knowledge,
    responses((status = 200, description = "What became of it.", body = KnowledgeTaken), Refusals)
)]
pub async fn take_knowledge(
    State(app): State<App>,
    Body(request): Body<Knowledge>,
) -> Answer<KnowledgeTaken> {
    Ok(Json(app.store().take_knowledge(request).await?))
}

/// Forgets everything that was learned.
#[utoipa::path(
    delete,
    path = "/knowledge",
    operation_id = "forget_knowledge",
    tag = "recovery",
    params(ForgetQuery),
    responses((status = 200, description = "What was forgotten.", body = KnowledgeForgotten), Refusals)
)]
pub async fn forget_knowledge(
    State(app): State<App>,
    Query(query): Query<ForgetQuery>,
) -> Answer<KnowledgeForgotten> {
    if !query.all {
        return Err(super::error::ApiError::bad_query("all", "must be `true`".to_owned()));
    }
    Ok(Json(app.store().forget_knowledge(None).await?))
}

/// Forgets what is known about one failure.
#[utoipa::path(
    delete,
    path = "/knowledge/{fingerprint}",
    operation_id = "forget_known_failure",
    tag = "recovery",
    params(("fingerprint" = String, Path, description = "The failure.")),
    responses((status = 200, description = "What was forgotten.", body = KnowledgeForgotten), Refusals)
)]
pub async fn forget_known_failure(
    State(app): State<App>,
    Path(fingerprint): Path<String>,
) -> Answer<KnowledgeForgotten> {
    Ok(Json(app.store().forget_knowledge(Some(fingerprint)).await?))
}
