//! What happened, in the order in which it happened.

use super::page::{self, Filter, List, Paging};
use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::Row;
use torc_model::api::{EventView, Page};
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};

const LIST: List = List {
    rows: "SELECT e.id, e.workflow_id, e.timestamp_ms, e.kind, e.job_id, e.data, j.name AS job_name
           FROM event e LEFT JOIN job j ON j.id = e.job_id",
    table: "event e",
    key: "e.id",
    sorts: &[("id", "e.id")],
};

/// Which events.
#[derive(Clone, Default, Debug)]
pub struct EventFilter {
    /// After the event with this id.
    pub after: Option<i64>,
    /// Of this kind.
    pub kind: Option<EventKind>,
    /// About this job.
    pub job_id: Option<i64>,
    /// Not before this time, ms since 1970.
    pub since_ms: Option<i64>,
}

impl Reader {
    /// One page of a workflow's events.
    pub async fn list_events(
        &self,
        workflow: WorkflowId,
        filter: EventFilter,
        paging: Paging,
    ) -> Result<Page<EventView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("e.workflow_id = ?", Some(workflow.0))
                .with("e.id > ?", filter.after)
                .with("e.kind = ?", filter.kind.map(|kind| kind.as_str().to_string()))
                .with("e.job_id = ?", filter.job_id)
                .with("e.timestamp_ms >= ?", filter.since_ms);
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// The next events after `after`, for a stream that has to catch up.
    pub async fn next_events(
        &self,
        workflow: WorkflowId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<EventView>, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT e.id, e.workflow_id, e.timestamp_ms, e.kind, e.job_id, e.data, j.name AS job_name \
                       FROM event e LEFT JOIN job j ON j.id = e.job_id \
                       WHERE e.workflow_id = ? AND e.id > ? ORDER BY e.id LIMIT ?";
            let events = connection.prepare_cached(sql)?.all((workflow.0, after, limit), view)?;
            Ok(events)
        })
        .await
    }

    /// The id of the newest event of a workflow, 0 when there is none.
    pub async fn last_event_id(&self, workflow: WorkflowId) -> Result<i64, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT max(id) FROM event WHERE workflow_id = ?";
            Ok(page::find::<Option<i64>>(connection, sql, workflow.0)?
                .flatten()
                .unwrap_or_default())
        })
        .await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<EventView> {
    Ok(EventView {
        id: row.get("id")?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        timestamp_ms: row.get("timestamp_ms")?,
        kind: page::word(row, "kind", EventKind::parse)?,
        job_id: page::maybe_id(row, "job_id", JobId)?,
        job_name: row.get("job_name")?,
        data: page::json(row, "data")?.unwrap_or_default(),
    })
}
