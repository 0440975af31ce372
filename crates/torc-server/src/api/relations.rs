//! What jobs depend on, read and write.

use super::Json;
use super::auth::Caller;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App};
use axum::extract::State;
use torc_model::api::{Page, RelationKind, RelationView};
use torc_model::ids::WorkflowId;

list_query! {
    /// Which relations.
    ListRelations {
        /// Of these kinds, separated by commas; all unless given.
        kind: Option<String>,
    }
}

/// What the jobs of a workflow depend on, read and write.
#[utoipa::path(
    get,
    path = "/workflows/{id}/relations",
    operation_id = "list_relations",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), ListRelations),
    responses((status = 200, description = "One page of relations, by job.", body = Page<RelationView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_relations(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<ListRelations>,
) -> Answer<Page<RelationView>> {
    caller.check(WorkflowId(id))?;
    let paging = query.paging()?;
    let words =
        query.kind.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty());
    let kind = |text| {
        query::word("kind", text, RelationKind::parse, RelationKind::ALL, RelationKind::as_str)
    };
    let kinds = words.map(kind).collect::<Result<Vec<_>, _>>()?;
    app.reader().get_workflow(WorkflowId(id)).await?;
    Ok(Json(app.reader().list_relations(WorkflowId(id), kinds, paging).await?))
}
