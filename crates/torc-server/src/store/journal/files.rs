//! What the rows say of files and user data, and of the jobs that read and write them.

use crate::store::facts::{Found, ItemKind};
use crate::store::read::page;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params, params_from_iter};
use std::collections::HashMap;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::UserData;

/// A file, as its row has it.
pub struct FileRow<'a> {
    pub id: i64,
    pub name: &'a str,
    /// As written in the spec.
    pub path: &'a str,
    /// Bytes that a job must write at least.
    pub min_size: i64,
    /// What was there when the jobs that read it were last opened.
    pub recorded: Option<Found>,
}

/// Hands out the files of a workflow, in no order.
pub fn each_file(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(FileRow<'_>),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "SELECT id, name, path, min_size, mtime_ms, size, hash FROM file WHERE workflow_id = ?1",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let recorded = match row.get::<_, Option<i64>>(4)?.zip(row.get::<_, Option<i64>>(5)?) {
            Some((mtime_ms, size)) => Some(Found { mtime_ms, size, hash: row.get(6)? }),
            None => None,
        };
        each(FileRow {
            id: row.get(0)?,
            name: row.get_ref(1)?.as_str()?,
            path: row.get_ref(2)?.as_str()?,
            min_size: row.get(3)?,
            recorded,
        });
    }
    Ok(())
}

/// Paths of files that jobs which have not ended will write.
pub fn awaited_paths(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<String>> {
    db.prepare_cached(
        "SELECT f.path FROM job j JOIN job_item i ON i.job_id = j.id AND i.kind = 'output_file'
         JOIN file f ON f.id = i.item_id WHERE j.workflow_id = ?1 AND (j.status < 5 OR j.status = 10)",
    )?
    .all([id.0], |row| row.get(0))
}

/// A piece of user data: its row, name and value.
pub type UserDataText = (i64, String, Option<String>);

/// The user data of a workflow, in the order of their rows.
pub fn user_data(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<UserDataText>> {
    db.prepare_cached("SELECT id, name, data FROM user_data WHERE workflow_id = ?1 ORDER BY id")?
        .all([id.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// A piece of user data by its name, with its row.
pub fn find_user_data(
    db: &Connection,
    id: WorkflowId,
    name: &str,
) -> rusqlite::Result<Option<(i64, UserData)>> {
    db.prepare_cached(
        "SELECT id, data, is_ephemeral FROM user_data WHERE workflow_id = ?1 AND name = ?2",
    )?
    .find(params![id.0, name], |row| {
        let data = page::json(row, "data")?;
        Ok((row.get(0)?, UserData { name: name.into(), data, is_ephemeral: row.get(2)? }))
    })
}

/// The names of the jobs that write each file and each piece of user data.
pub fn writers(
    db: &Connection,
    id: WorkflowId,
) -> rusqlite::Result<HashMap<(ItemKind, i64), Vec<String>>> {
    let mut statement = db.prepare_cached(
        "SELECT i.kind, i.item_id, j.name FROM job j JOIN job_item i ON i.job_id = j.id
         WHERE j.workflow_id = ?1 AND i.kind IN ('output_file', 'output_user_data')",
    )?;
    let mut writers: HashMap<_, Vec<String>> = HashMap::new();
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let item = (ItemKind::of(row.get_ref(0)?.as_str()?), row.get(1)?);
        writers.entry(item).or_default().push(row.get(2)?);
    }
    Ok(writers)
}

/// Hands out what the jobs of a workflow are tied to, ordered by job.
pub fn each_item(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(JobId, ItemKind, i64),
) -> rusqlite::Result<()> {
    // Jobs that were made together have neighbouring rows; then one scan of their items does, where
    // otherwise each job is looked up.
    let (first, last, count): (Option<i64>, Option<i64>, i64) = db
        .prepare_cached("SELECT min(id), max(id), count(*) FROM job WHERE workflow_id = ?1")?
        .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let Some((first, last)) = first.zip(last) else { return Ok(()) };
    let (sql, bounds) = match last - first + 1 == count {
        true => (
            "SELECT job_id, kind, item_id FROM job_item WHERE job_id BETWEEN ?1 AND ?2 ORDER BY job_id",
            vec![first, last],
        ),
        false => (
            "SELECT i.job_id, i.kind, i.item_id FROM job j JOIN job_item i ON i.job_id = j.id
             WHERE j.workflow_id = ?1 ORDER BY j.id",
            vec![id.0],
        ),
    };
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(bounds))?;
    while let Some(row) = rows.next()? {
        let kind = ItemKind::of(row.get_ref(1)?.as_str()?);
        each(JobId(row.get(0)?), kind, row.get(2)?);
    }
    Ok(())
}
