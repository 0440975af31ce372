//! What the rows bring to an attempt that is given to a runner.

use crate::store::read::page;
use crate::store::rows::Rows as _;
use rusqlite::Connection;
use serde_json::Value;
use torc_model::api::{FileRef, RecoveryScript};
use torc_model::ids::{AttemptId, JobId};
use torc_model::plan::{JobExtra, user_data_variable};

/// The texts of a job.
pub struct JobTexts {
    pub name: String,
    pub command: String,
    pub invocation_script: Option<String>,
    pub steps: Option<Value>,
    pub extra: JobExtra,
    /// It reads or writes files or user data.
    pub has_items: bool,
}

/// One search by key, because this is done for each attempt.
pub fn job_texts(db: &Connection, job: JobId) -> rusqlite::Result<JobTexts> {
    db.prepare_cached(
        "SELECT name, command, invocation_script, steps, extra, EXISTS (SELECT 1 FROM job_item i WHERE i.job_id = job.id)
         FROM job WHERE id = ?1",
    )?
    .query_row([job.0], |row| {
        Ok(JobTexts {
            name: row.get(0)?,
            command: row.get(1)?,
            invocation_script: row.get(2)?,
            steps: page::json(row, 3)?,
            extra: page::json(row, 4)?.unwrap_or_default(),
            has_items: row.get(5)?,
        })
    })
}

/// What runs first in an attempt, because of the failure before it.
pub fn recovery(db: &Connection, attempt: AttemptId) -> rusqlite::Result<Option<RecoveryScript>> {
    db.prepare_cached("SELECT recovery FROM attempt WHERE id = ?1")?
        .query_row([attempt.0], |row| page::json(row, 0))
}

/// The files that a job writes.
pub fn output_files(db: &Connection, job: JobId) -> rusqlite::Result<Vec<FileRef>> {
    db.prepare_cached(
        "SELECT f.name, f.path, f.min_size FROM job_item i JOIN file f ON f.id = i.item_id
         WHERE i.job_id = ?1 AND i.kind = 'output_file' ORDER BY f.id",
    )?
    .all([job.0], |row| Ok(FileRef { name: row.get(0)?, path: row.get(1)?, min_size: row.get(2)? }))
}

/// The user data that a job reads, as variables of its environment.
pub fn user_data(db: &Connection, job: JobId) -> rusqlite::Result<Vec<(String, String)>> {
    db.prepare_cached(
        "SELECT u.name, u.data FROM job_item i JOIN user_data u ON u.id = i.item_id
         WHERE i.job_id = ?1 AND i.kind = 'input_user_data' AND u.data IS NOT NULL",
    )?
    .all([job.0], |row| Ok((user_data_variable(row.get_ref(0)?.as_str()?), row.get(1)?)))
}
