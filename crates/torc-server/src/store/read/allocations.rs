//! Allocations in Slurm.

use super::super::journal::allocations::{COLUMNS, view};
use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::Connection;
use std::collections::HashMap;
use torc_model::api::{Capacity, Page};
use torc_model::ids::WorkflowId;
use torc_model::plan::SlurmScheduler;
use torc_model::slurm::parse_clock;
use torc_model::slurm::wire::{AllocationUse, AllocationView};

/// Allocations whose use is told, the newest ones.
const MAX_USES: i64 = 500;

/// An allocation that is over, but Slurm may still say why: for an hour.
const UNEXPLAINED: &str = "n.status = 'complete' AND n.ended_as = 'left' AND n.cause IS NOT NULL
    AND n.ended_ms > (unixepoch() - 3600) * 1000";

const LIST: List = List {
    rows: COLUMNS,
    table: "scheduled_compute_node n",
    key: "n.id",
    sorts: &[("id", "n.id"), ("created_ms", "n.created_ms"), ("status", "n.status")],
};

/// Which allocations.
#[derive(Clone, Default, Debug)]
pub struct AllocationFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// In this status.
    pub status: Option<String>,
    /// Of this Slurm job.
    pub slurm_job_id: Option<String>,
    /// With this name in Slurm.
    pub name: Option<String>,
    /// Over, and Slurm may still say why.
    pub is_unexplained: bool,
}

impl Reader {
    /// One page of allocations.
    pub async fn list_allocations(
        &self,
        filter: AllocationFilter,
        paging: Paging,
    ) -> Result<Page<AllocationView>, ReadError> {
        self.read(move |connection| {
            let mut wanted = Filter::default()
                .with("n.workflow_id = ?", filter.workflow_id)
                .seen_by("n.workflow_id", &filter.audience)
                .with("n.status = ?", filter.status)
                .with("n.slurm_job_id = ?", filter.slurm_job_id)
                .with("n.name = ?", filter.name);
            if filter.is_unexplained {
                wanted = wanted.always(UNEXPLAINED);
            }
            LIST.page(connection, wanted, &paging, view)
        })
        .await
    }

    /// One allocation.
    pub async fn get_allocation(&self, id: i64) -> Result<AllocationView, ReadError> {
        self.read(move |connection| LIST.get(connection, "allocation", id, view)).await
    }

    /// What the allocations of a workflow cost and were good for, the newest first.
    pub async fn allocation_uses(
        &self,
        id: WorkflowId,
        now_ms: i64,
    ) -> Result<Vec<AllocationUse>, ReadError> {
        self.read(move |connection| uses(connection, id, now_ms)).await
    }

    /// Where the batch job of an allocation writes: directories in which its file may be, and the
    /// name of the file without its end.
    pub async fn allocation_output(&self, id: i64) -> Result<(Vec<String>, String), ReadError> {
        let allocation = self.get_allocation(id).await?;
        self.read(move |connection| {
            let sql = "SELECT output_dir FROM compute_node WHERE allocation_id = ? GROUP BY 1 ORDER BY max(id) DESC LIMIT 8";
            let mut directories: Vec<String> = connection
                .prepare_cached(sql)?
                .all([id], |row| row.get(0))?;
            let beside = super::files::directory(connection, allocation.workflow_id)?;
            directories.extend(beside.map(|directory| format!("{directory}/output")));
            let job = allocation.slurm_job_id.unwrap_or_default();
            Ok((directories, format!("slurm_output_{}_sl{job}", allocation.name)))
        })
        .await
    }
}

fn uses(
    connection: &Connection,
    id: WorkflowId,
    now_ms: i64,
) -> Result<Vec<AllocationUse>, ReadError> {
    let mut uses = Vec::new();
    let sql = "SELECT n.id, s.definition AS definition FROM scheduled_compute_node n \
               JOIN slurm_scheduler s ON s.id = n.scheduler_id \
               WHERE n.workflow_id = ? ORDER BY n.id DESC LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((id.0, MAX_USES))?;
    while let Some(row) = rows.next()? {
        let scheduler: Option<SlurmScheduler> = page::json(row, "definition")?;
        let walltime = scheduler.as_ref().and_then(|s| parse_clock(&s.walltime).flatten());
        uses.push(AllocationUse {
            allocation_id: row.get(0)?,
            nodes: scheduler.map_or(1, |s| i64::from(s.nodes.max(1))),
            walltime_seconds: walltime.and_then(|seconds| i64::try_from(seconds).ok()),
            stop_by_ms: None,
            paid_node_hours: 0.0,
            useful_node_hours: 0.0,
        });
    }
    if uses.is_empty() {
        return Ok(uses);
    }
    let at: HashMap<i64, usize> =
        uses.iter().enumerate().map(|(at, used)| (used.allocation_id, at)).collect();
    let useful = useful_cpu_seconds(connection, id)?;
    let sql = "SELECT id, allocation_id, started_ms, ended_ms, stop_by_ms, capacity FROM compute_node \
               WHERE workflow_id = ? AND allocation_id IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let Some(used) = at.get(&row.get(1)?).and_then(|at| uses.get_mut(*at)) else { continue };
        let capacity: Capacity = page::json(row, "capacity")?.unwrap_or_default();
        let nodes = capacity.equal_nodes().max(1);
        let end: Option<i64> = row.get(3)?;
        let there = (end.unwrap_or(now_ms) - row.get::<_, i64>(2)?).max(0);
        used.paid_node_hours += nodes as f64 * there as f64 / 3_600_000.0;
        let cpu_seconds = useful.get(&row.get(0)?).copied().unwrap_or(0.0);
        used.useful_node_hours += cpu_seconds / capacity.num_cpus.max(1) as f64 / 3600.0;
        if end.is_none() {
            used.stop_by_ms = used.stop_by_ms.max(row.get(4)?);
        }
    }
    Ok(uses)
}

/// What attempts that succeeded asked for, by runner.
fn useful_cpu_seconds(
    connection: &Connection,
    id: WorkflowId,
) -> Result<HashMap<i64, f64>, ReadError> {
    let sql = "SELECT a.compute_node_id, total(a.exec_seconds * coalesce(j.num_cpus, r.num_cpus, 1)) FROM attempt a \
               JOIN job j ON j.id = a.job_id LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE a.workflow_id = ? AND a.state = 'completed' AND a.compute_node_id IS NOT NULL GROUP BY 1";
    Ok(connection.prepare_cached(sql)?.all([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?)
}
