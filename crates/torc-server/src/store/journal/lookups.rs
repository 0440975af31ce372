//! Single values that many requests look up by a key, and the rest of a job's row.

use super::json;
use super::load::parse;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::JobExtra;

/// The name of a job; none: there is no such job.
pub fn job_name(db: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT name FROM job WHERE id = ?1")?.find([job.0], |row| row.get(0))
}

/// The name of a job that is there.
pub fn name_of(db: &Connection, job: JobId) -> rusqlite::Result<String> {
    job_name(db, job)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// A job of a workflow, by its name.
pub fn find_job(db: &Connection, id: WorkflowId, name: &str) -> rusqlite::Result<Option<JobId>> {
    db.prepare_cached("SELECT id FROM job WHERE workflow_id = ?1 AND name = ?2")?
        .find(params![id.0, name], |row| row.get(0).map(JobId))
}

/// The rest of a job's row.
pub fn job_extra(db: &Connection, job: JobId) -> rusqlite::Result<JobExtra> {
    let text: Option<String> = db
        .prepare_cached("SELECT extra FROM job WHERE id = ?1")?
        .query_row([job.0], |row| row.get(0))?;
    Ok(text.as_deref().map(parse).transpose()?.unwrap_or_default())
}

/// Changes the rest of a job's row.
pub fn edit_extra(
    db: &Connection,
    job: JobId,
    change: impl FnOnce(&mut JobExtra),
) -> rusqlite::Result<()> {
    let mut extra = job_extra(db, job)?;
    change(&mut extra);
    let text = if extra.is_default() { None } else { json(Some(&extra))? };
    set_extra(db, job, text.as_deref())
}

/// Writes the rest of a job's row.
pub fn set_extra(db: &Connection, job: JobId, extra: Option<&str>) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE job SET extra = ?2 WHERE id = ?1")?.execute(params![job.0, extra])?;
    Ok(())
}

/// The workflow of a job.
pub fn workflow_of_job(db: &Connection, job: JobId) -> rusqlite::Result<Option<WorkflowId>> {
    db.prepare_cached("SELECT workflow_id FROM job WHERE id = ?1")?
        .find([job.0], |row| row.get(0).map(WorkflowId))
}

/// The workflow of a job, and the number of its status.
pub fn place_of_job(db: &Connection, job: JobId) -> rusqlite::Result<Option<(WorkflowId, i64)>> {
    db.prepare_cached("SELECT workflow_id, status FROM job WHERE id = ?1")?
        .find([job.0], |row| Ok((WorkflowId(row.get(0)?), row.get(1)?)))
}

/// The name of a workflow and whose it is. Both stand before its spec, so that they are found without reading it.
pub fn name_and_user(
    db: &Connection,
    id: WorkflowId,
) -> rusqlite::Result<Option<(String, String)>> {
    db.prepare_cached("SELECT name, user FROM workflow WHERE id = ?1")?
        .find([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// A person put a workflow away; none: there is no such workflow.
pub fn is_archived(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<bool>> {
    db.prepare_cached("SELECT is_archived FROM workflow WHERE id = ?1")?
        .find([id.0], |row| row.get(0))
}

/// Where a workflow was submitted from, if that is known; none: there is no such workflow.
pub fn directory(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<Option<String>>> {
    db.prepare_cached("SELECT directory FROM workflow WHERE id = ?1")?
        .find([id.0], |row| row.get(0))
}

/// The run of a workflow.
pub fn run_of(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT run_id FROM workflow WHERE id = ?1")?.find([id.0], |row| row.get(0))
}

/// The name of a workflow; none: there is no such workflow.
pub fn workflow_name(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<String>> {
    Ok(name_and_user(db, id)?.map(|(name, _)| name))
}

/// Files of a workflow are told by what they contain.
pub fn compares_contents(db: &Connection, id: WorkflowId) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT coalesce(settings ->> 'compare_contents', 0) FROM workflow WHERE id = ?1",
    )?
    .query_row([id.0], |row| row.get(0))
}

/// What the user data was that a job read when it was last opened.
pub fn input_hash(db: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT input_hash FROM job WHERE id = ?1")?
        .query_row([job.0], |row| row.get(0))
}
