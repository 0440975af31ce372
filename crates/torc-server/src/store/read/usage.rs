//! How much room each workflow takes. Looks at every page of the database: asked by people, seldom.

use super::{ReadError, Reader};
use crate::disk;
use crate::job_files::Places;
use crate::store::rows::Rows as _;
use rusqlite::Connection;
use std::collections::HashMap;
use torc_model::api::{UsageView, WorkflowUsage};
use torc_model::ids::WorkflowId;

impl Reader {
    /// What the database and its disk say, without files of jobs; and where those are.
    pub async fn usage(&self) -> Result<(UsageView, Places), ReadError> {
        let path = self.path().to_path_buf();
        self.read(move |connection| {
            let mut view = usage(connection)?;
            view.log_bytes = signed(disk::size(&disk::beside(&path, "-wal")));
            if let Some(space) = disk::space(&path) {
                view.disk_free_bytes = Some(signed(space.free));
                view.disk_bytes = Some(signed(space.size));
                view.is_low = space.is_low();
            }
            let ids: Vec<WorkflowId> = view.workflows.iter().map(|workflow| workflow.id).collect();
            let places = crate::store::tidy::places_of(connection, &ids)?;
            Ok((view, places))
        })
        .await
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn usage(connection: &Connection) -> rusqlite::Result<UsageView> {
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let by_workflow = |table: &str| -> rusqlite::Result<HashMap<i64, i64>> {
        let sql = format!("SELECT workflow_id, count(*) FROM {table} GROUP BY workflow_id");
        connection.prepare_cached(&sql)?.all([], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    let (attempts, events) = (by_workflow("attempt")?, by_workflow("event")?);
    let mut workflows: Vec<WorkflowUsage> = connection
        .prepare_cached("SELECT id, name, user, is_archived, job_count FROM workflow ORDER BY id")?
        .all([], |row| {
            let id: i64 = row.get(0)?;
            let of = |counts: &HashMap<i64, i64>| counts.get(&id).copied().unwrap_or_default();
            Ok(WorkflowUsage {
                id: WorkflowId(id),
                name: row.get(1)?,
                user: row.get(2)?,
                is_archived: row.get(3)?,
                jobs: row.get(4)?,
                attempts: of(&attempts),
                events: of(&events),
                database_bytes: 0,
                files: 0,
                file_bytes: 0,
            })
        })?;
    share(&mut workflows, &bytes_by_table(connection)?);
    Ok(UsageView {
        database_bytes: page * pages,
        database_free_bytes: page * free,
        workflows,
        ..UsageView::default()
    })
}

/// Bytes of each table with its indexes.
fn bytes_by_table(connection: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    connection
        .prepare_cached(
            "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name
         WHERE s.aggregate = TRUE GROUP BY m.tbl_name",
        )?
        .all([], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Gives each workflow its part of the tables: of attempts and events by their numbers, of the rest by
/// its jobs.
fn share(workflows: &mut [WorkflowUsage], bytes: &HashMap<String, i64>) {
    let of = |table: &str| bytes.get(table).copied().unwrap_or_default();
    let (attempts, events) = (of("attempt"), of("event"));
    let rest = bytes.values().sum::<i64>() - attempts - events;
    let sum = |part: fn(&WorkflowUsage) -> i64| workflows.iter().map(part).sum::<i64>().max(1);
    let all = (sum(|w| w.attempts), sum(|w| w.events), sum(|w| w.jobs));
    let part = |bytes: i64, own: i64, all: i64| (bytes as f64 * own as f64 / all as f64) as i64;
    for workflow in workflows {
        workflow.database_bytes = part(attempts, workflow.attempts, all.0)
            + part(events, workflow.events, all.1)
            + part(rest, workflow.jobs, all.2);
    }
}
