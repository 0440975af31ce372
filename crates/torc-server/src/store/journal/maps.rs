//! What the rows say of maps and their items.

use crate::store::read::page;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use serde_json::Value;
use torc_model::api::ItemView;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::JobExtra;
use torc_model::status::{ItemOutcome, JobStatus};

/// A map, an item or a reduce.
pub struct MapRow {
    pub id: JobId,
    pub name: String,
    pub extra: JobExtra,
    pub is_expanded: bool,
    pub is_gone: bool,
}

/// The maps, items and reduces of a workflow, but those that its spec no longer has.
pub fn rows(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<MapRow>> {
    db.prepare_cached(
        "SELECT id, name, extra, is_expanded, is_gone FROM job WHERE workflow_id = ?1 AND extra ->> 'map' IS NOT NULL
         AND status_reason IS NOT 'removed' AND afterwards IS NOT 'remove'",
    )?
    .all([id.0], |row| {
        Ok(MapRow {
            id: JobId(row.get(0)?),
            name: row.get(1)?,
            extra: page::json(row, 2)?.unwrap_or_default(),
            is_expanded: row.get(3)?,
            is_gone: row.get(4)?,
        })
    })
}

/// The steps of a job by its name.
pub fn steps_of(db: &Connection, id: WorkflowId, name: &str) -> rusqlite::Result<Option<Value>> {
    db.prepare_cached("SELECT steps FROM job WHERE workflow_id = ?1 AND name = ?2")?
        .find(params![id.0, name], |row| page::json(row, 0))
        .map(Option::flatten)
}

/// An item of a map with its last ended attempt.
pub struct ItemRow {
    /// Without what its definition and its steps say.
    pub view: ItemView,
    /// The rest of its row.
    pub extra: JobExtra,
    /// What its steps reported.
    pub steps: Option<Value>,
}

/// One item.
pub fn item(db: &Connection, job: JobId) -> rusqlite::Result<ItemRow> {
    db.prepare_cached(
        "SELECT j.name, j.status, j.is_gone, j.attempt_id, j.extra, a.return_code, a.error, a.stdout_path,
                a.stderr_path, a.steps
         FROM job j LEFT JOIN attempt a ON a.id = (SELECT max(b.id) FROM attempt b WHERE b.job_id = j.id
             AND b.state IN ('completed', 'failed', 'canceled', 'terminated'))
         WHERE j.id = ?1",
    )?
    .query_row([job.0], |row| {
        let view = ItemView {
            job_id: job,
            name: row.get(0)?,
            status: JobStatus::from_code(row.get(1)?).unwrap_or(JobStatus::Uninitialized),
            is_gone: row.get(2)?,
            attempt_id: row.get(3)?,
            return_code: row.get(5)?,
            error: row.get(6)?,
            stdout_path: row.get(7)?,
            stderr_path: row.get(8)?,
            key: String::new(),
            item: Value::Null,
            outcome: ItemOutcome::Open,
            captures: None,
        };
        let extra = page::json(row, 4)?.unwrap_or_default();
        Ok(ItemRow { view, extra, steps: page::json(row, 9)? })
    })
}
