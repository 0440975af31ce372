//! Files of workflows.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::read::{FileFilter, WritingJob};
use axum::extract::State;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path as FilePath, PathBuf};
use torc_model::api::{FileNow, FileState, FileView, Page};
use torc_model::ids::WorkflowId;

/// A file may be this much younger than the job that wrote it: clocks of file systems are coarse.
const SLACK_MS: i64 = 2_000;

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
        /// Look at each of them now and say what has become of it. Needs `workflow_id`.
        look: Option<bool>,
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
    let look = query.look.unwrap_or_default();
    if look && query.workflow_id.is_none() {
        return Err(ApiError::bad_query("look", "`look` needs `workflow_id`"));
    }
    let filter = FileFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        name: query.name,
        path: query.path,
        search: query.search,
        produced_by_job_id: query.produced_by_job_id,
        needed_by_job_id: query.needed_by_job_id,
    };
    let mut page = app.reader().list(filter, paging).await?;
    if let Some(id) = query.workflow_id.filter(|_| look) {
        look_at(&app, WorkflowId(id), &mut page.items).await?;
    }
    Ok(Json(page))
}

/// Says what has become of each file.
async fn look_at(app: &App, id: WorkflowId, files: &mut [FileView]) -> Result<(), ApiError> {
    let ids = files.iter().map(|file| file.id).collect();
    let (directory, writers) = app.reader().writers_of_files(id, ids).await?;
    let directory = PathBuf::from(directory.unwrap_or_default());
    let paths: Vec<PathBuf> = files.iter().map(|file| directory.join(&file.path)).collect();
    let look = move || paths.iter().map(|path| seen(path)).collect::<Vec<_>>();
    // The list comes even where the file system does not answer.
    let found = crate::slow_files::look(directory.clone(), look).await.ok();
    for (at, (file, writer)) in files.iter_mut().zip(writers).enumerate() {
        let now = found.as_ref().and_then(|found| found.get(at).copied());
        file.now = Some(match now {
            None => FileNow { state: FileState::Unknown, mtime_ms: None, size: None },
            Some(now) => FileNow {
                state: state(now, file.mtime_ms.zip(file.size), writer),
                mtime_ms: now.map(|now| now.0),
                size: now.map(|now| now.1),
            },
        });
    }
    Ok(())
}

/// Modification time and size.
fn seen(path: &FilePath) -> Option<(i64, i64)> {
    let facts = std::fs::metadata(path).ok()?;
    let mtime_ms = facts.mtime() * 1000 + facts.mtime_nsec() / 1_000_000;
    Some((mtime_ms.max(0), i64::try_from(facts.len()).unwrap_or(i64::MAX)))
}

/// As `torc run` judges it: a file that no job writes by what it was, one that a job wrote by when
/// that was.
fn state(now: Option<(i64, i64)>, recorded: Option<(i64, i64)>, writer: WritingJob) -> FileState {
    match (now, writer) {
        (None, WritingJob::NotYet) => FileState::Awaited,
        (None, _) => FileState::Missing,
        (Some(now), WritingJob::None) if recorded.is_some_and(|then| then != now) => {
            FileState::Changed
        }
        (Some(now), WritingJob::Done { ended_ms })
            if now.0 > ended_ms + SLACK_MS && recorded != Some(now) =>
        {
            FileState::Changed
        }
        (Some(_), _) => FileState::There,
    }
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
    let file = app.reader().get::<FileView>(id).await?;
    caller.check(file.workflow_id)?;
    Ok(Json(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_judged_by_what_it_was_or_by_when_it_was_written() {
        let (then, later) = ((1_000, 5), (9_000, 5));
        let done = WritingJob::Done { ended_ms: 1_500 };
        for (now, recorded, writer, expected) in [
            (Some(then), Some(then), WritingJob::None, FileState::There),
            (Some(then), None, WritingJob::None, FileState::There),
            (Some(later), Some(then), WritingJob::None, FileState::Changed),
            (Some((1_000, 6)), Some(then), WritingJob::None, FileState::Changed),
            (None, Some(then), WritingJob::None, FileState::Missing),
            (None, None, WritingJob::NotYet, FileState::Awaited),
            (Some(then), None, WritingJob::NotYet, FileState::There),
            (Some(then), None, done, FileState::There),
            (Some((3_400, 5)), None, done, FileState::There),
            (Some(later), None, done, FileState::Changed),
            (Some(later), Some(later), done, FileState::There),
            (None, None, done, FileState::Missing),
        ] {
            assert_eq!(state(now, recorded, writer), expected, "{now:?} {recorded:?} {writer:?}");
        }
    }
}
