//! Single values that many requests look up by a key.

use super::load::parse;
use rusqlite::{Connection, OptionalExtension as _, params};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::JobExtra;

/// The name of a job; none: there is no such job.
pub fn job_name(db: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT name FROM job WHERE id = ?1")?
        .query_row([job.0], |row| row.get(0))
        .optional()
}

/// The name of a job that is there.
pub fn name_of(db: &Connection, job: JobId) -> rusqlite::Result<String> {
    job_name(db, job)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// A job of a workflow, by its name.
pub fn find_job(db: &Connection, id: WorkflowId, name: &str) -> rusqlite::Result<Option<JobId>> {
    db.prepare_cached("SELECT id FROM job WHERE workflow_id = ?1 AND name = ?2")?
        .query_row(params![id.0, name], |row| row.get(0).map(JobId))
        .optional()
}

/// The rest of a job's row.
pub fn job_extra(db: &Connection, job: JobId) -> rusqlite::Result<JobExtra> {
    let text: Option<String> = db
        .prepare_cached("SELECT extra FROM job WHERE id = ?1")?
        .query_row([job.0], |row| row.get(0))?;
    Ok(text.as_deref().map(parse).transpose()?.unwrap_or_default())
}

/// The workflow of a job.
pub fn workflow_of_job(db: &Connection, job: JobId) -> rusqlite::Result<Option<WorkflowId>> {
    db.prepare_cached("SELECT workflow_id FROM job WHERE id = ?1")?
        .query_row([job.0], |row| row.get(0).map(WorkflowId))
        .optional()
}

/// The name of a workflow; none: there is no such workflow.
pub fn workflow_name(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT name FROM workflow WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))
        .optional()
}
