//! Files of workflows.

use super::Json;
use super::auth::Caller;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::read::FileFilter;
use axum::extract::State;
use torc_model::api::{FileView, Page};

list_query! {
    /// Which files.
    ListFiles {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// Exactly this name.
        name: Option<String>,
        /// Exactly this path.
        path: Option<String>,
        /// A part of the name or the path.
        search: Option<String>,
        /// Written by this job.
        produced_by_job_id: Option<i64>,
        /// Read by this job.
        needed_by_job_id: Option<i64>,
    }
}

/// Lists files.
#[utoipa::path(
    get,
    path = "/files",
    operation_id = "list_files",
    tag = "files",
    params(ListFiles),
    responses((status = 200, description = "One page of files.", body = Page<FileView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_files(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListFiles>,
) -> Answer<Page<FileView>> {
    let paging = query.paging()?;
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = FileFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        name: query.name,
        path: query.path,
        search: query.search,
        produced_by_job_id: query.produced_by_job_id,
        needed_by_job_id: query.needed_by_job_id,
    };
    Ok(Json(app.reader().list_files(filter, paging).await?))
}

/// One file.
#[utoipa::path(
    get,
    path = "/files/{id}",
    operation_id = "get_file",
    tag = "files",
    params(("id" = i64, Path, description = "The file.")),
    responses((status = 200, description = "The file.", body = FileView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_file(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<FileView> {
    let file = app.reader().get_file(id).await?;
    caller.check(file.workflow_id)?;
    Ok(Json(file))
}
