//! Runners (`compute_nodes` on the wire).

use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use crate::store::LEASE_SECONDS;
use rusqlite::Row;
use torc_model::api::{Page, RunnerScheduler, RunnerView};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::status::{RunnerKind, RunnerOrder, RunnerState};

/// A live attempt is found through the jobs that runners hold, which are few, not through the
/// queue.
const LIST: List = List {
    rows: "SELECT n.*, CASE WHEN n.ended_ms IS NULL THEN (SELECT count(*) FROM job j JOIN attempt a \
           ON a.workflow_id = j.workflow_id AND a.job_id = j.id AND a.ended_ms IS NULL \
           WHERE j.workflow_id = n.workflow_id AND j.status IN (3, 4) AND a.compute_node_id = n.id) ELSE 0 END AS held \
           FROM compute_node n",
    table: "compute_node n",
    key: "n.id",
    sorts: &[
        ("id", "n.id"),
        ("hostname", "n.hostname"),
        ("started_ms", "n.started_ms"),
        ("last_seen_ms", "n.last_seen_ms"),
    ],
};

/// Which runners.
#[derive(Clone, Default, Debug)]
pub struct RunnerFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// On this host.
    pub hostname: Option<String>,
    /// Still there as far as known, or gone.
    pub is_active: Option<bool>,
}

impl Reader {
    /// One page of runners, as of `now_ms`.
    pub async fn list_runners(
        &self,
        filter: RunnerFilter,
        paging: Paging,
        now_ms: i64,
    ) -> Result<Page<RunnerView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("n.workflow_id = ?", filter.workflow_id)
                .seen_by("n.workflow_id", &filter.audience)
                .with("n.hostname = ?", filter.hostname)
                .with("(n.ended_ms IS NULL) = ?", filter.is_active);
            LIST.page(connection, filter, &paging, |row| view(row, now_ms))
        })
        .await
    }

    /// One runner, as of `now_ms`.
    pub async fn get_runner(&self, id: RunnerId, now_ms: i64) -> Result<RunnerView, ReadError> {
        self.read(move |connection| {
            LIST.get(connection, "compute node", id.0, |row| view(row, now_ms))
        })
        .await
    }

    /// The workflow of a runner.
    pub async fn workflow_of_runner(&self, id: RunnerId) -> Result<WorkflowId, ReadError> {
        self.read(move |connection| {
            let found =
                page::find(connection, "SELECT workflow_id FROM compute_node WHERE id = ?", id.0)?;
            found.map(WorkflowId).ok_or(ReadError::NotFound { what: "compute node", id: id.0 })
        })
        .await
    }
}

/// Runners seen since then are in contact.
pub fn lease_begin(now_ms: i64) -> i64 {
    now_ms.saturating_sub(LEASE_SECONDS * 1000)
}

fn view(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<RunnerView> {
    let ended_ms: Option<i64> = row.get("ended_ms")?;
    let last_seen_ms: i64 = row.get("last_seen_ms")?;
    let state = match ended_ms {
        Some(_) => RunnerState::Ended,
        None if last_seen_ms >= lease_begin(now_ms) => RunnerState::Active,
        None => RunnerState::LostContact,
    };
    Ok(RunnerView {
        stop_by_ms: row.get("stop_by_ms")?,
        id: page::id(row, "id", RunnerId)?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        hostname: row.get("hostname")?,
        pid: row.get("pid")?,
        kind: page::word(row, "kind", RunnerKind::parse)?,
        capacity: page::json(row, "capacity")?.unwrap_or_default(),
        state,
        started_ms: row.get("started_ms")?,
        last_seen_ms,
        ended_ms,
        end_reason: row.get("end_reason")?,
        scheduler: scheduler(row)?,
        held: row.get("held")?,
        quarantine: row.get("quarantine")?,
        ordered: page::maybe_word(row, "ordered", RunnerOrder::parse)?,
    })
}

fn scheduler(row: &Row<'_>) -> rusqlite::Result<Option<RunnerScheduler>> {
    let scheduler = RunnerScheduler {
        scheduler_config_id: row.get("scheduler_config_id")?,
        allocation_id: row.get("allocation_id")?,
        slurm_job_id: row.get("slurm_job_id")?,
        node: row.get("node")?,
        node_name: row.get("node_name")?,
    };
    Ok((scheduler != RunnerScheduler::default()).then_some(scheduler))
}
