//! Failures that wait for a verdict, the verdicts, and those of them that wait for a person.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, OptionalBody, Path, Query};
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App, logs};
use crate::store::read::{AttemptLogs, ClassificationFilter, PendingQuery};
use axum::extract::State;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::PathBuf;
use torc_model::api::Page;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{
    ClassificationState, ClassificationView, ClassifyRequest, ClassifyView, MemoryRequest,
    PendingFailures, ResolveRequest, untrusted,
};
use utoipa::IntoParams;

const DEFAULT_GROUPS: i64 = 20;
const MAX_GROUPS: i64 = 100;
const DEFAULT_EXAMPLES: i64 = 2;
const MAX_EXAMPLES: i64 = 10;

/// How much of what waits.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListPending {
    /// Groups at most, the largest first; 20 unless given.
    #[param(minimum = 1, maximum = 100)]
    pub groups: Option<i64>,
    /// Jobs in detail per group, at most; 2 unless given.
    #[param(minimum = 0, maximum = 10)]
    pub examples: Option<i64>,
    /// Only the group with this fingerprint.
    pub fingerprint: Option<String>,
}

fn bounded(
    field: &str,
    value: Option<i64>,
    default: i64,
    from: i64,
    to: i64,
) -> Result<usize, ApiError> {
    let value = value.unwrap_or(default);
    if !(from..=to).contains(&value) {
        return Err(ApiError::bad_query(
            field,
            format!("must be between {from} and {to}; it is {value}"),
        ));
    }
    Ok(usize::try_from(value).unwrap_or_default())
}

/// Lists failures that wait for a verdict, like ones together, with the end of what some of them
/// wrote.
#[utoipa::path(
    get,
    path = "/workflows/{id}/pending_failures",
    operation_id = "list_pending_failures",
    tag = "classifications",
    params(("id" = i64, Path, description = "The workflow."), ListPending),
    responses((status = 200, description = "The groups, the largest first.", body = PendingFailures), Refusals)
)]
pub async fn list_pending_failures(
    State(app): State<App>,
    Path(id): Path<WorkflowId>,
    Query(query): Query<ListPending>,
) -> Answer<PendingFailures> {
    let wanted = PendingQuery {
        groups: bounded("groups", query.groups, DEFAULT_GROUPS, 1, MAX_GROUPS)?,
        examples: bounded("examples", query.examples, DEFAULT_EXAMPLES, 0, MAX_EXAMPLES)?,
        fingerprint: query.fingerprint,
    };
    let (view, places) = app.reader().pending_failures(id, wanted, crate::clock::now_ms()).await?;
    // One look for all: they are of one workflow, and mostly on one file system.
    let place = places.values().next().map_or_else(PathBuf::new, logs::place);
    let filled = crate::slow_files::look(place, move || with_output(view, &places));
    filled.await.map(Json).map_err(ApiError::hangs)
}

/// Puts in the end of each example's standard error. What the runner reported stands in where the
/// file is out of reach.
fn with_output(mut view: PendingFailures, places: &HashMap<JobId, AttemptLogs>) -> PendingFailures {
    for example in view.groups.iter_mut().flat_map(|group| &mut group.examples) {
        let Some(place) = places.get(&example.job_id) else { continue };
        match logs::end_of_stderr(example.job_id, place, untrusted::TAIL_BYTES as i64) {
            Ok(text) => example.untrusted_stderr_tail = untrusted::tail(&text),
            Err(why) if example.untrusted_stderr_tail.is_empty() => {
                example.stderr_read_error = Some(untrusted::line(&why, 300));
            }
            Err(_) => {}
        }
    }
    view
}

/// Takes verdicts on jobs that wait for one: `retry` or `fail`, all or none.
#[utoipa::path(
    post,
    path = "/workflows/{id}/classify",
    operation_id = "classify_failures",
    tag = "classifications",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = ClassifyRequest,
    responses((status = 200, description = "What became of each.", body = ClassifyView), Refusals)
)]
pub async fn classify(
    State(app): State<App>,
    Path(id): Path<WorkflowId>,
    Body(request): Body<ClassifyRequest>,
) -> Answer<ClassifyView> {
    Ok(Json(app.store().classify(id, request).await?))
}

/// Lets the record of earlier verdicts decide where it is strong; what failed twice the same way is
/// given up.
#[utoipa::path(
    post,
    path = "/workflows/{id}/classify_from_memory",
    operation_id = "classify_from_memory",
    tag = "classifications",
    params(("id" = i64, Path, description = "The workflow.")),
    request_body = Option<MemoryRequest>,
    responses((status = 200, description = "What was decided.", body = ClassifyView), Refusals)
)]
pub async fn classify_from_memory(
    State(app): State<App>,
    Path(id): Path<WorkflowId>,
    OptionalBody(request): OptionalBody<MemoryRequest>,
) -> Answer<ClassifyView> {
    Ok(Json(app.store().classify_from_memory(id, request.dry_run).await?))
}

list_query! {
    /// Which verdicts.
    ListClassifications {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// On this job.
        job_id: Option<i64>,
        /// `applied`, `held`, `rejected` or `superseded`.
        state: Option<String>,
    }
}

/// Lists verdicts: who, when, why, how sure, and what came of them.
#[utoipa::path(
    get,
    path = "/classifications",
    operation_id = "list_classifications",
    tag = "classifications",
    params(ListClassifications),
    responses((status = 200, description = "One page of verdicts.", body = Page<ClassificationView>), Refusals)
)]
pub async fn list_classifications(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListClassifications>,
) -> Answer<Page<ClassificationView>> {
    let paging = query.paging()?;
    let state = query.state.as_deref().map(|text| {
        query::word(
            "state",
            text,
            ClassificationState::parse,
            ClassificationState::ALL,
            ClassificationState::as_str,
        )
    });
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = ClassificationFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        job_id: query.job_id,
        state: state.transpose()?,
    };
    Ok(Json(app.reader().list(filter, paging).await?))
}

/// One verdict.
#[utoipa::path(
    get,
    path = "/classifications/{id}",
    operation_id = "get_classification",
    tag = "classifications",
    params(("id" = i64, Path, description = "The verdict.")),
    responses((status = 200, description = "The verdict.", body = ClassificationView), Refusals)
)]
pub async fn get_classification(
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Answer<ClassificationView> {
    Ok(Json(app.reader().get::<ClassificationView>(id).await?))
}

/// Carries out a verdict that waits for a person.
#[utoipa::path(
    post,
    path = "/classifications/{id}/accept",
    operation_id = "accept_classification",
    tag = "classifications",
    params(("id" = i64, Path, description = "The verdict.")),
    request_body = Option<ResolveRequest>,
    responses((status = 200, description = "The verdict as it is now.", body = ClassificationView), Refusals)
)]
pub async fn accept_classification(
    State(app): State<App>,
    Path(id): Path<i64>,
    OptionalBody(request): OptionalBody<ResolveRequest>,
) -> Answer<ClassificationView> {
    app.store().accept_classification(id, request.by).await?;
    Ok(Json(app.reader().get::<ClassificationView>(id).await?))
}

/// Drops a verdict that waits for a person; the job goes on waiting.
#[utoipa::path(
    post,
    path = "/classifications/{id}/reject",
    operation_id = "reject_classification",
    tag = "classifications",
    params(("id" = i64, Path, description = "The verdict.")),
    request_body = Option<ResolveRequest>,
    responses((status = 200, description = "The verdict as it is now.", body = ClassificationView), Refusals)
)]
pub async fn reject_classification(
    State(app): State<App>,
    Path(id): Path<i64>,
    OptionalBody(request): OptionalBody<ResolveRequest>,
) -> Answer<ClassificationView> {
    app.store().reject_classification(id, request.by).await?;
    Ok(Json(app.reader().get::<ClassificationView>(id).await?))
}
