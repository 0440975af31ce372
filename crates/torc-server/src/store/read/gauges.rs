//! What `/metrics` shows of the database: few numbers, none of which takes longer the more has ended.

use super::runners::lease_begin;
use super::workflows::COUNT_ACTIVE;
use super::{ReadError, Reader};
use crate::disk::{self, Space};
use crate::store::rows::Rows as _;
use rusqlite::Connection;
use std::collections::HashMap;
use torc_model::ids::WorkflowId;

/// Jobs per status, by the status' integer.
pub type JobCounts = [u64; 11];

/// What the database knows.
#[derive(Clone, Default, Debug)]
pub struct Gauges {
    /// Every workflow.
    pub workflows: Vec<WorkflowId>,
    /// Those that have begun and are not complete.
    pub active_workflows: i64,
    /// Live runners by kind, those in contact and those out of contact.
    pub runners: Vec<(String, i64, i64)>,
    /// Live runners that get no work for now.
    pub quarantined_runners: i64,
    /// Allocations that are not over, by status.
    pub allocations: Vec<(String, i64)>,
    /// Endpoints of webhooks.
    pub webhooks: i64,
    /// Deliveries that wait, and that were given up.
    pub deliveries: (i64, i64),
    /// Bytes of the database, and how many of them are free for reuse.
    pub database: (i64, i64),
    /// Bytes of the write-ahead log.
    pub log: u64,
    /// The disk of the database; None when it does not say.
    pub space: Option<Space>,
}

impl Reader {
    /// What the database knows now.
    pub async fn gauges(&self, now_ms: i64) -> Result<Gauges, ReadError> {
        let path = self.path().to_path_buf();
        self.read(move |connection| {
            let mut gauges = gauges(connection, now_ms)?;
            gauges.log = disk::size(&disk::beside(&path, "-wal"));
            gauges.space = disk::space(&path);
            Ok(gauges)
        })
        .await
    }

    /// The jobs of these workflows by status, as far as a reader can see.
    pub async fn count_jobs(
        &self,
        ids: Vec<WorkflowId>,
    ) -> Result<HashMap<WorkflowId, JobCounts>, ReadError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT status, count(*) FROM job WHERE workflow_id = ? AND status_reason IS NOT 'removed' \
                 GROUP BY status",
            )?;
            let mut all = HashMap::with_capacity(ids.len());
            for id in ids {
                let mut counts = JobCounts::default();
                let mut rows = statement.query([id.0])?;
                while let Some(row) = rows.next()? {
                    // The schema admits 0 to 10 only.
                    let status = usize::from(row.get::<_, u8>(0)?);
                    if let Some(count) = counts.get_mut(status) {
                        *count = row.get::<_, i64>(1)?.unsigned_abs();
                    }
                }
                all.insert(id, counts);
            }
            Ok(all)
        })
        .await
    }
}

fn gauges(connection: &Connection, now_ms: i64) -> rusqlite::Result<Gauges> {
    let number = |sql: &str| -> rusqlite::Result<i64> {
        connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
    };
    let workflows = connection
        .prepare_cached("SELECT id FROM workflow")?
        .all([], |row| row.get(0).map(WorkflowId))?;
    let runners = connection
        .prepare_cached(
            "SELECT kind, sum(last_seen_ms >= ?1), sum(last_seen_ms < ?1) FROM compute_node \
             WHERE ended_ms IS NULL GROUP BY kind",
        )?
        .all([lease_begin(now_ms)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let allocations = connection
        .prepare_cached(
            "SELECT status, count(*) FROM scheduled_compute_node WHERE status <> 'complete' GROUP BY status",
        )?
        .all([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let page: i64 = number("PRAGMA page_size")?;
    Ok(Gauges {
        workflows,
        active_workflows: number(COUNT_ACTIVE)?,
        runners,
        quarantined_runners: number(
            "SELECT count(*) FROM compute_node WHERE ended_ms IS NULL AND quarantine IS NOT NULL",
        )?,
        allocations,
        webhooks: number("SELECT count(*) FROM webhook")?,
        deliveries: (
            number("SELECT count(*) FROM webhook_delivery WHERE state = 'pending'")?,
            number("SELECT count(*) FROM webhook_delivery WHERE state = 'dead'")?,
        ),
        database: (page * number("PRAGMA page_count")?, page * number("PRAGMA freelist_count")?),
        ..Gauges::default()
    })
}
