//! Runners (`compute_nodes` on the wire).

use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader, Thing};
use crate::store::LEASE_SECONDS;
use rusqlite::{Connection, Row};
use std::collections::{BTreeSet, HashMap};
use torc_model::api::{Page, RunnerScheduler, RunnerUse, RunnerView};
use torc_model::class::{Class, Room};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::status::{RunnerKind, RunnerOrder, RunnerState};

const LIST: List = List {
    rows: "SELECT n.* FROM compute_node n",
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
            let mut page = LIST.page(connection, filter, &paging, |row| view(row, now_ms))?;
            tell_use(connection, &mut page.items)?;
            Ok(page)
        })
        .await
    }

    /// One runner, as of `now_ms`.
    pub async fn get_runner(&self, id: RunnerId, now_ms: i64) -> Result<RunnerView, ReadError> {
        self.read(move |connection| {
            let mut found = LIST.get(connection, "compute node", id.0, |row| view(row, now_ms))?;
            tell_use(connection, std::slice::from_mut(&mut found))?;
            Ok(found)
        })
        .await
    }

    /// The workflow of a runner.
    pub async fn workflow_of_runner(&self, id: RunnerId) -> Result<WorkflowId, ReadError> {
        self.workflow_of(Thing::Runner, id.0).await
    }
}

/// Runners seen since then are in contact.
pub fn lease_begin(now_ms: i64) -> i64 {
    now_ms.saturating_sub(LEASE_SECONDS * 1000)
}

/// Adds what live runners hold. One statement for all of them: live attempts are found through the jobs
/// that runners hold, which are few, not through the queue, and jobs with equal needs are one row.
fn tell_use(connection: &Connection, runners: &mut [RunnerView]) -> Result<(), ReadError> {
    let live = runners.iter().filter(|runner| runner.ended_ms.is_none());
    let workflows: BTreeSet<i64> = live.map(|runner| runner.workflow_id.0).collect();
    if workflows.is_empty() {
        return Ok(());
    }
    let at: HashMap<i64, usize> =
        runners.iter().enumerate().map(|(at, runner)| (runner.id.0, at)).collect();
    let sql = "SELECT a.compute_node_id, coalesce(j.num_cpus, r.num_cpus, 1), coalesce(j.num_gpus, r.num_gpus, 0), \
                      coalesce(r.num_nodes, 1), coalesce(j.memory_bytes, r.memory_bytes, 0), count(*) \
               FROM job j JOIN attempt a ON a.workflow_id = j.workflow_id AND a.job_id = j.id AND a.ended_ms IS NULL \
               LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE j.workflow_id IN (SELECT value FROM json_each(?)) AND j.status IN (3, 4) \
               GROUP BY 1, 2, 3, 4, 5";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([page::numbers(&workflows)])?;
    while let Some(row) = rows.next()? {
        let holder: Option<i64> = row.get(0)?;
        let runner = holder.and_then(|id| at.get(&id)).and_then(|at| runners.get_mut(*at));
        let Some(runner) = runner.filter(|runner| runner.ended_ms.is_none()) else { continue };
        let class = Class {
            cpus: row.get(1)?,
            gpus: row.get(2)?,
            nodes: row.get(3)?,
            memory: Some(row.get::<_, i64>(4)?.unsigned_abs()),
            ..Class::default()
        };
        let count: i64 = row.get(5)?;
        let each = Room::of(&runner.capacity).share(&class);
        runner.held += count;
        runner.used.num_cpus += each.num_cpus.saturating_mul(count);
        runner.used.memory_bytes += each.memory_bytes.saturating_mul(count);
        runner.used.num_gpus += each.num_gpus.saturating_mul(count);
    }
    Ok(())
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
        held: 0,
        used: RunnerUse::default(),
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
        restarts: row.get("restarts")?,
    };
    Ok((scheduler != RunnerScheduler::default()).then_some(scheduler))
}
