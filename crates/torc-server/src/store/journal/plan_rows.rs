//! Rows of what a plan names besides its jobs, each told by its name: a row that is there is taken
//! over.

use super::json;
use rusqlite::{Connection, params};
use serde::Serialize;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{File, Requirements};

/// As the database takes a size.
pub fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Writes requirements.
pub fn put_requirements(
    db: &Connection,
    id: WorkflowId,
    new: &Requirements,
) -> rusqlite::Result<i64> {
    let (memory, runtime) = (new.memory.map(|m| m.0 as i64), new.runtime.map(|t| t.0 as i64));
    db.prepare_cached(
        "INSERT INTO resource_requirements (workflow_id, name, num_cpus, num_gpus, num_nodes, memory_bytes, runtime_seconds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (workflow_id, name) DO UPDATE SET num_cpus = ?3, num_gpus = ?4, num_nodes = ?5, memory_bytes = ?6,
         runtime_seconds = ?7 RETURNING id",
    )?
    .query_row(
        params![id.0, new.name, new.num_cpus, new.num_gpus, new.num_nodes, memory, runtime],
        |row| row.get(0),
    )
}

/// Writes a failure handler; its rules as JSON.
pub fn put_handler(
    db: &Connection,
    id: WorkflowId,
    name: &str,
    rules: &str,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO failure_handler (workflow_id, name, rules) VALUES (?1, ?2, ?3)
         ON CONFLICT (workflow_id, name) DO UPDATE SET rules = ?3 RETURNING id",
    )?
    .query_row(params![id.0, name, rules], |row| row.get(0))
}

/// Changes a failure handler; what is absent stays.
pub fn update_handler(
    db: &Connection,
    row: i64,
    name: Option<&str>,
    rules: Option<&str>,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE failure_handler SET name = coalesce(?2, name), rules = coalesce(?3, rules) WHERE id = ?1",
    )?
    .execute(params![row, name, rules])?;
    Ok(())
}

/// Deletes a failure handler; its jobs have none then.
pub fn delete_handler(db: &Connection, row: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM failure_handler WHERE id = ?1")?.execute([row])?;
    Ok(())
}

/// Writes a scheduler.
pub fn put_scheduler(
    db: &Connection,
    id: WorkflowId,
    name: &str,
    definition: &impl Serialize,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO slurm_scheduler (workflow_id, name, definition) VALUES (?1, ?2, ?3)
         ON CONFLICT (workflow_id, name) DO UPDATE SET definition = ?3 RETURNING id",
    )?
    .query_row(params![id.0, name, json(Some(definition))?], |row| row.get(0))
}

/// Writes a new file.
pub fn insert_file(db: &Connection, id: WorkflowId, file: &File) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO file (workflow_id, name, path, min_size) VALUES (?1, ?2, ?3, ?4)",
    )?
    .insert(params![id.0, file.name, file.path, size(file.min_size)])
}

/// A file is at another place, where it was not seen yet.
pub fn move_file(db: &Connection, row: i64, path: &str) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE file SET path = ?2, mtime_ms = NULL, size = NULL, hash = NULL WHERE id = ?1",
    )?
    .execute(params![row, path])?;
    Ok(())
}

/// A file must have another size at least.
pub fn resize_file(db: &Connection, row: i64, min_size: u64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE file SET min_size = ?2 WHERE id = ?1")?
        .execute([row, size(min_size)])?;
    Ok(())
}

/// A piece of user data.
pub struct UserDataRow<'a> {
    pub name: &'a str,
    /// Its value, as JSON.
    pub data: Option<String>,
    /// It lasts for one run.
    pub is_ephemeral: bool,
    /// A value that is there stays.
    pub keeps: bool,
}

/// Writes a piece of user data.
pub fn put_user_data(
    db: &Connection,
    id: WorkflowId,
    new: &UserDataRow<'_>,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO user_data (workflow_id, name, data, is_ephemeral) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (workflow_id, name) DO UPDATE SET data = iif(?5, data, ?3), is_ephemeral = ?4 RETURNING id",
    )?
    .query_row(params![id.0, new.name, new.data, new.is_ephemeral, new.keeps], |row| row.get(0))
}

/// Gives a piece of user data another value; false: there is none.
pub fn set_user_data(db: &Connection, row: i64, data: Option<&str>) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached("UPDATE user_data SET data = ?2 WHERE id = ?1")?
        .execute(params![row, data])?;
    Ok(changed > 0)
}

/// The same, of the name that a workflow has for it.
pub fn import_user_data(
    db: &Connection,
    id: WorkflowId,
    name: &str,
    data: Option<&str>,
) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE user_data SET data = ?3 WHERE workflow_id = ?1 AND name = ?2")?
        .execute(params![id.0, name, data])?;
    Ok(())
}

/// Writes a family.
pub fn insert_family(
    db: &Connection,
    id: WorkflowId,
    number: u32,
    name: &str,
) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO family (workflow_id, number, name) VALUES (?1, ?2, ?3)")?
        .execute(params![id.0, number, name])?;
    Ok(())
}

/// Writes what the user data was that a job will find.
pub fn set_input_hash(db: &Connection, job: JobId, hash: &str) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE job SET input_hash = ?2 WHERE id = ?1")?
        .execute(params![job.0, hash])?;
    Ok(())
}

/// Writes what was seen of a file: its time, size and hash; None: nothing was there.
pub fn file_seen(
    db: &Connection,
    row: i64,
    found: Option<(i64, i64, Option<&str>)>,
) -> rusqlite::Result<()> {
    let (time, size, hash) = found.map_or((None, None, None), |(t, s, h)| (Some(t), Some(s), h));
    db.prepare_cached("UPDATE file SET mtime_ms = ?2, size = ?3, hash = ?4 WHERE id = ?1")?
        .execute(params![row, time, size, hash])?;
    Ok(())
}
