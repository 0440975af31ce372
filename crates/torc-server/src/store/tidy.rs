//! Deletes what is old, with its files, and writes the database anew without the gaps.

use super::Store;
use super::journal::{load, runners, workflows};
use super::people;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use crate::disk;
use crate::job_files::{self, Deed, Found, Places};
use crate::slow_files;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use torc_model::api::{
    ErrorCode, PruneRequest, PruneView, PrunedWorkflow, RemovedFiles, VacuumView,
};
use torc_model::ids::WorkflowId;
use torc_model::words::count;

/// A hundred thousand files on a network file system take minutes.
const PATIENCE: Duration = Duration::from_secs(550);

impl Store {
    /// Deletes a workflow; first its files, so that a deletion that was interrupted can be repeated.
    pub async fn delete_with_files(
        &self,
        id: WorkflowId,
        force: bool,
    ) -> Result<RemovedFiles, Refusal> {
        let places = self
            .writer
            .call(move |tx| {
                refuse_held(tx, id)?;
                people::refuse_delete(tx, id, force)?;
                Ok(places_of(tx.db, &[id])?)
            })
            .await?;
        let found = look(places, Deed::Remove).await?;
        self.delete_workflow(id, force).await?;
        Ok(removed(&found, id))
    }

    /// Deletes workflows that ended long ago, one transaction each.
    pub async fn prune(&self, request: PruneRequest) -> Result<PruneView, Refusal> {
        if request.older_than_seconds < 0 {
            let message = "`older_than_seconds` is less than 0";
            return Err(Refusal::invalid("older_than_seconds", message));
        }
        let asked = request.clone();
        let mut old = self.writer.call(move |tx| Ok(old(tx, &asked)?)).await?;
        let mut view = PruneView { dry_run: request.dry_run, ..PruneView::default() };
        for mut workflow in old.drain(..) {
            let id = workflow.id;
            let done = match (request.dry_run, request.files) {
                (true, true) => {
                    let places = self.writer.call(move |tx| Ok(places_of(tx.db, &[id])?)).await?;
                    look(places, Deed::Count).await.map(|found| removed(&found, id))
                }
                (true, false) => Ok(RemovedFiles::default()),
                (false, true) => self.delete_with_files(id, false).await,
                (false, false) => {
                    self.delete_workflow(id, false).await.map(|()| RemovedFiles::default())
                }
            };
            match done {
                Ok(files) => {
                    workflow.removed = files;
                    view.workflows.push(workflow);
                }
                // Begun again meanwhile, or with nodes in Slurm: the others can go all the same.
                Err(refusal) if refusal.status < 500 => view.kept.push(refusal.message),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(view)
    }

    /// Writes the database anew, which gives the room of deleted rows back. Requests wait meanwhile.
    pub async fn vacuum(&self, database: PathBuf) -> Result<VacuumView, Refusal> {
        self.writer.outside(move |db| vacuum(db, &database)).await
    }
}

/// Files under the hands of a running job are not removed, even with `--force`.
fn refuse_held(tx: &mut Tx<'_>, id: WorkflowId) -> Result<(), Failed> {
    match tx.workflow(id)?.held_count() {
        0 => Ok(()),
        held => {
            let are = if held == 1 { "is" } else { "are" };
            let message = format!("{} of workflow {id} {are} running", count(held, "job"));
            Err(Refusal::conflict(ErrorCode::JobRunning, message)
                .hint("cancel the workflow first: files of running jobs are not removed")
                .into())
        }
    }
}

/// Where the files of these workflows are.
pub fn places_of(db: &Connection, ids: &[WorkflowId]) -> rusqlite::Result<Places> {
    let mut places = Places { workflows: ids.iter().copied().collect(), ..Places::default() };
    let database = load::database_id(db)?;
    for id in ids {
        for (runner, directory) in runners::directories(db, *id)? {
            places.directories.insert(directory);
            places.runners.insert(load::runner_tag(&database, runner), *id);
        }
    }
    Ok(places)
}

/// Looks at the files without keeping anything else waiting.
pub async fn look(places: Places, deed: Deed) -> Result<Found, Refusal> {
    let Some(first) = places.directories.first() else { return Ok(Found::default()) };
    let place = PathBuf::from(first);
    let looked =
        slow_files::look_for(PATIENCE, place, move || job_files::find(&places, deed)).await;
    let found = looked.map_err(|hangs| Refusal::unavailable(format!("{hangs}: files of jobs")))?;
    found.map_err(|problem| Refusal::conflict(ErrorCode::FilesRemain, problem))
}

fn removed(found: &Found, id: WorkflowId) -> RemovedFiles {
    let files = found.files.get(&id).copied().unwrap_or_default();
    RemovedFiles { files: files.count, bytes: files.bytes, unseen: found.unseen.clone() }
}

/// Ended workflows whose last attempt ended long enough ago, the oldest first.
fn old(tx: &Tx<'_>, request: &PruneRequest) -> rusqlite::Result<Vec<PrunedWorkflow>> {
    let before = tx.now.saturating_sub(request.older_than_seconds.saturating_mul(1000));
    workflows::ended_before(tx.db, before, request.keep_failed)
}

fn vacuum(db: &Connection, database: &Path) -> Result<VacuumView, Failed> {
    let size = || -> rusqlite::Result<(i64, i64)> {
        let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let page = number("page_size")?;
        Ok((page * number("page_count")?, page * number("freelist_count")?))
    };
    let (before, free) = size()?;
    // The rows are written to the log once more before they take their new place.
    let needed = u64::try_from(before - free).unwrap_or_default();
    if let Some(space) = disk::space(database)
        && space.free < needed + needed / 10
    {
        return Err(Refusal::out_of_space(format!(
            "compacting the database needs {} MiB for a while, and its disk has {} MiB left",
            needed >> 20,
            space.free >> 20
        ))
        .hint("delete workflows first: what they held is used again before the file grows")
        .into());
    }
    // In memory the copy could be larger than the machine.
    db.pragma_update(None, "temp_store", "FILE")?;
    let done = db.execute_batch("VACUUM");
    db.pragma_update(None, "temp_store", "MEMORY")?;
    done?;
    // Readers may still use the old pages; then the file shrinks with a later checkpoint.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(VacuumView { bytes_before: before, bytes_after: size()?.0 })
}
