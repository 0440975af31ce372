//! What concerns the server as a whole: how much room its data take, and giving room back.

use super::Json;
use super::openapi::Refusals;
use super::{Answer, App};
use crate::job_files::Deed;
use crate::store::look_at_job_files;
use axum::extract::State;
use torc_model::api::{UsageView, VacuumView};

/// How much room the database and each workflow take.
#[utoipa::path(
    get,
    path = "/server/usage",
    operation_id = "get_usage",
    tag = "server",
    responses((status = 200, description = "The workflows, the largest first.", body = UsageView), Refusals)
)]
pub async fn get_usage(State(app): State<App>) -> Answer<UsageView> {
    let (mut view, places) = app.reader().usage().await?;
    let found = look_at_job_files(places, Deed::Count).await?;
    for workflow in &mut view.workflows {
        if let Some(files) = found.files.get(&workflow.id) {
            (workflow.files, workflow.file_bytes) = (files.count, files.bytes);
        }
    }
    view.workflows.sort_by_key(|w| (-(w.database_bytes + w.file_bytes), w.id));
    view.unseen = found.unseen;
    Ok(Json(view))
}

/// Writes the database anew, without the room of what was deleted. Changes wait meanwhile.
#[utoipa::path(
    post,
    path = "/server/vacuum",
    operation_id = "vacuum_database",
    tag = "server",
    responses((status = 200, description = "Its size before and after.", body = VacuumView), Refusals)
)]
pub async fn vacuum(State(app): State<App>) -> Answer<VacuumView> {
    Ok(Json(app.store().vacuum(app.reader().path().to_path_buf()).await?))
}
