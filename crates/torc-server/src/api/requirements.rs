//! Resource requirements.

use super::Json;
use super::auth::Caller;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::read::RequirementsFilter;
use axum::extract::State;
use torc_model::api::{Page, RequirementsView};

list_query! {
    /// Which resource requirements.
    ListRequirements {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// Exactly this name.
        name: Option<String>,
        /// Those of this job.
        job_id: Option<i64>,
    }
}

/// Lists resource requirements.
#[utoipa::path(
    get,
    path = "/resource_requirements",
    operation_id = "list_resource_requirements",
    tag = "resource requirements",
    params(ListRequirements),
    responses((status = 200, description = "One page of requirements.", body = Page<RequirementsView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_requirements(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListRequirements>,
) -> Answer<Page<RequirementsView>> {
    let paging = query.paging()?;
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = RequirementsFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        name: query.name,
        job_id: query.job_id,
    };
    Ok(Json(app.reader().list(filter, paging).await?))
}

/// One set of resource requirements.
#[utoipa::path(
    get,
    path = "/resource_requirements/{id}",
    operation_id = "get_resource_requirements",
    tag = "resource requirements",
    params(("id" = i64, Path, description = "The requirements.")),
    responses((status = 200, description = "The requirements.", body = RequirementsView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_requirements(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<RequirementsView> {
    let requirements = app.reader().get::<RequirementsView>(id).await?;
    caller.check(requirements.workflow_id)?;
    Ok(Json(requirements))
}
