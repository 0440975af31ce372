//! Families, how a run has gone so far, and what its families used.

use super::page;
use super::runners::lease_begin;
use super::{ReadError, Reader};
use crate::store::journal::definitions::{self, Named};
use crate::store::rows::Rows as _;
use rusqlite::Connection;
use std::collections::BTreeMap;
use torc_model::api::{Capacity, CpuSums, FamilyResources, FamilySeconds, PaceView, QueueView};
use torc_model::ids::WorkflowId;
use torc_model::slurm::reason;

/// Slots of the pace.
const SLOTS: i64 = 60;
/// Attempts of a family that are given one by one.
const DOTS: usize = 120;
const GIB: f64 = (1u64 << 30) as f64;

/// What a workflow's families are.
#[derive(Clone, Debug, Default)]
pub struct FamilyIndex {
    /// Names by number.
    pub names: Vec<String>,
    /// The family of each job, in the order of their ids.
    pub of_jobs: Vec<u32>,
}

/// What is shown beside the counts of a workflow.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Name of the workflow.
    pub name: String,
    /// The run.
    pub run_id: i64,
    /// It began at.
    pub started_ms: Option<i64>,
    /// The last attempt ended at.
    pub last_end_ms: Option<i64>,
    /// Every job is final.
    pub is_complete: bool,
    /// A user canceled it.
    pub is_canceled: bool,
    /// What the runners have.
    pub cpus: CpuSums,
    /// Runners that have been silent for too long.
    pub lost_contact_runners: i64,
    /// Attempts that ended in the last minute.
    pub ended_last_minute: i64,
    /// What waits in the batch system's queue.
    pub queue: Option<QueueView>,
}

impl Reader {
    /// The families of a workflow and of each of its jobs.
    pub async fn family_index(&self, id: WorkflowId) -> Result<FamilyIndex, ReadError> {
        self.read(move |connection| {
            let names = definitions::names(connection, id, Named::Families)?;
            let mut names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
            let of_jobs: Vec<u32> = connection
                .prepare_cached("SELECT family FROM job WHERE workflow_id = ? ORDER BY id")?
                .all([id.0], |row| row.get(0))?;
            // Databases from before families have none.
            while names.len() <= of_jobs.iter().max().map_or(0, |last| *last as usize) {
                names.push("jobs".into());
            }
            Ok(FamilyIndex { names, of_jobs })
        })
        .await
    }

    /// Jobs of each family per status, for a workflow that is not in memory.
    pub async fn count_families(
        &self,
        id: WorkflowId,
        families: usize,
    ) -> Result<crate::store::FamilyCounts, ReadError> {
        self.read(move |connection| {
            let sql =
                "SELECT family, status, count(*) FROM job WHERE workflow_id = ? AND status_reason IS NOT 'removed' \
                 GROUP BY 1, 2";
            let mut counts = vec![[0u32; 11]; families];
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([id.0])?;
            while let Some(row) = rows.next()? {
                let (family, status): (u32, u32) = (row.get(0)?, row.get(1)?);
                let cell = counts.get_mut(family as usize);
                if let Some(cell) = cell.and_then(|row| row.get_mut(status as usize)) {
                    *cell = row.get(2)?;
                }
            }
            Ok(counts)
        })
        .await
    }

    /// Jobs of each group per status; `index` says which job is in which group.
    pub async fn count_groups(
        &self,
        id: WorkflowId,
        index: &FamilyIndex,
    ) -> Result<crate::store::FamilyCounts, ReadError> {
        let (groups, size) = (index.of_jobs.clone(), index.names.len());
        self.read(move |connection| {
            let sql = "SELECT status, status_reason IS 'removed' FROM job WHERE workflow_id = ? ORDER BY id";
            let mut counts = vec![[0u32; 11]; size];
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([id.0])?;
            let mut groups = groups.iter();
            while let (Some(row), Some(group)) = (rows.next()?, groups.next()) {
                let status: u32 = row.get(0)?;
                let cell = counts.get_mut(*group as usize);
                if let Some(cell) = cell.and_then(|row| row.get_mut(status as usize))
                    && !row.get::<_, bool>(1)?
                {
                    *cell += 1;
                }
            }
            Ok(counts)
        })
        .await
    }

    /// What is shown beside the counts; every query goes by an index of the few rows it needs.
    pub async fn surroundings(
        &self,
        id: WorkflowId,
        now_ms: i64,
    ) -> Result<Surroundings, ReadError> {
        self.read(move |connection| surroundings(connection, id, now_ms)).await
    }

    /// How attempts ended over the run.
    pub async fn pace(
        &self,
        id: WorkflowId,
        begin_ms: i64,
        end_ms: i64,
    ) -> Result<PaceView, ReadError> {
        self.read(move |connection| pace(connection, id, begin_ms, end_ms)).await
    }

    /// What the families of a workflow asked for and used in its current run.
    pub async fn family_resources(
        &self,
        id: WorkflowId,
    ) -> Result<Vec<FamilyResources>, ReadError> {
        self.read(move |connection| resources(connection, id)).await
    }
}

fn surroundings(
    connection: &Connection,
    id: WorkflowId,
    now_ms: i64,
) -> Result<Surroundings, ReadError> {
    let sql = "SELECT name, run_id, run_started_ms, is_complete, is_canceled, \
               (SELECT max(ended_ms) FROM attempt WHERE workflow_id = w.id AND ended_ms IS NOT NULL) \
               FROM workflow w WHERE id = ?";
    let mut all = connection
        .prepare_cached(sql)?
        .query_row([id.0], |row| {
            Ok(Surroundings {
                name: row.get(0)?,
                run_id: row.get(1)?,
                started_ms: row.get(2)?,
                is_complete: row.get(3)?,
                is_canceled: row.get(4)?,
                last_end_ms: row.get(5)?,
                ..Surroundings::default()
            })
        })
        .map_err(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => {
                ReadError::NotFound { what: "workflow", id: id.0 }
            }
            other => other.into(),
        })?;
    let sql = "SELECT coalesce(sum(coalesce(j.num_cpus, r.num_cpus, 1)), 0) FROM job j \
               LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE j.workflow_id = ? AND j.status IN (3, 4)";
    all.cpus.busy = connection.prepare_cached(sql)?.query_row([id.0], |row| row.get(0))?;
    let sql = "SELECT count(*) FROM attempt WHERE workflow_id = ?1 AND ended_ms IS NOT NULL AND ended_ms > ?2";
    all.ended_last_minute =
        connection.prepare_cached(sql)?.query_row((id.0, now_ms - 60_000), |row| row.get(0))?;
    let sql = "SELECT capacity, last_seen_ms FROM compute_node WHERE workflow_id = ? AND ended_ms IS NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let capacity: Capacity = page::json(row, "capacity")?.unwrap_or_default();
        let is_silent = row.get::<_, i64>("last_seen_ms")? < lease_begin(now_ms);
        all.cpus.all += capacity.num_cpus * capacity.equal_nodes();
        all.cpus.runners += i64::from(!is_silent);
        all.lost_contact_runners += i64::from(is_silent);
    }
    all.queue = queue(connection, id)?;
    Ok(all)
}

/// Allocations that wait, with what is known of the one that has waited longest.
fn queue(connection: &Connection, id: WorkflowId) -> Result<Option<QueueView>, ReadError> {
    let sql = "SELECT reason, coalesce(submitted_ms, created_ms), expected_start_ms FROM scheduled_compute_node \
               WHERE workflow_id = ? AND status IN ('planned', 'submitting', 'pending') AND unneeded_since_ms IS NULL \
               ORDER BY 2, id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    let mut queue: Option<QueueView> = None;
    while let Some(row) = rows.next()? {
        let expected: Option<i64> = row.get(2)?;
        if let Some(known) = &mut queue {
            known.allocations += 1;
            let earliest = known.expected_start_ms.into_iter().chain(expected).min();
            known.expected_start_ms = earliest;
            continue;
        }
        queue = Some(QueueView {
            allocations: 1,
            since_ms: row.get(1)?,
            why: row.get::<_, Option<String>>(0)?.as_deref().map(reason::text),
            expected_start_ms: expected,
        });
    }
    Ok(queue)
}

fn pace(
    connection: &Connection,
    id: WorkflowId,
    begin_ms: i64,
    end_ms: i64,
) -> Result<PaceView, ReadError> {
    // A slot is at least a second: fractions of it only show noise.
    let slot_ms = ((end_ms - begin_ms).max(0) / SLOTS + 1).max(1000);
    let slots = ((end_ms - begin_ms).max(0) / slot_ms + 1) as usize;
    let mut view = PaceView {
        begin_ms,
        slot_ms,
        ended: vec![0; slots],
        failed: vec![0; slots],
        running: vec![0; slots],
    };
    let sql = "SELECT started_ms, ended_ms, state <> 'completed' FROM attempt \
               WHERE workflow_id = ?1 AND coalesce(ended_ms, ?2) >= ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((id.0, begin_ms))?;
    let slot = |ms: i64| usize::try_from((ms - begin_ms).max(0) / slot_ms).unwrap_or(0);
    while let Some(row) = rows.next()? {
        let (start, end): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        if let Some(count) = start.and_then(|start| view.running.get_mut(slot(start))) {
            *count += 1;
        }
        let Some(at) = end.map(slot).filter(|at| *at < slots) else { continue };
        view.ended[at] += 1;
        view.failed[at] += i64::from(row.get::<_, bool>(2)?);
        view.running[at] -= i64::from(start.is_some());
    }
    // So far these are changes.
    let mut now = 0;
    for count in &mut view.running {
        now += *count;
        *count = now;
    }
    Ok(view)
}

#[derive(Default)]
struct Used {
    seconds: Vec<f64>,
    memory: Vec<i64>,
    cpu_seconds: f64,
    measured_seconds: f64,
    asked_cpu_seconds: f64,
    wasted_cpu_seconds: f64,
    wasted_byte_seconds: f64,
    memory_asked: Option<i64>,
    seconds_asked: Option<i64>,
    cpus_asked: i64,
    dots: Vec<(f64, i64)>,
}

fn resources(connection: &Connection, id: WorkflowId) -> Result<Vec<FamilyResources>, ReadError> {
    let sql = "SELECT j.family, a.exec_seconds, a.cpu_seconds, a.peak_memory_bytes, a.memory_bytes, \
               coalesce(j.num_cpus, r.num_cpus, 1), coalesce(j.runtime_seconds, r.runtime_seconds) \
               FROM attempt a JOIN job j ON j.id = a.job_id \
               LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE a.workflow_id = ?1 AND a.ended_ms IS NOT NULL AND a.state = 'completed' \
               AND a.run_id = (SELECT run_id FROM workflow WHERE id = ?1)";
    let mut families = BTreeMap::<i64, Used>::new();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let used = families.entry(row.get(0)?).or_default();
        let seconds: f64 = row.get::<_, Option<f64>>(1)?.unwrap_or(0.0);
        let (cpu, peak, given): (Option<f64>, Option<i64>, Option<i64>) =
            (row.get(2)?, row.get(3)?, row.get(4)?);
        let cpus: i64 = row.get(5)?;
        used.seconds.push(seconds);
        used.cpus_asked = used.cpus_asked.max(cpus);
        used.seconds_asked = used.seconds_asked.max(row.get(6)?);
        used.memory_asked = used.memory_asked.max(given);
        used.asked_cpu_seconds += cpus as f64 * seconds;
        if let Some(cpu) = cpu {
            used.cpu_seconds += cpu;
            used.measured_seconds += seconds;
            used.wasted_cpu_seconds += (cpus as f64 * seconds - cpu).max(0.0);
        }
        if let Some(peak) = peak {
            used.memory.push(peak);
            used.wasted_byte_seconds +=
                given.map_or(0, |given| (given - peak).max(0)) as f64 * seconds;
        }
        // The first ones of each family, then every other of them makes room for every second.
        used.dots.push((seconds, peak.unwrap_or(0)));
    }
    let names = definitions::names(connection, id, Named::Families)?;
    let names: BTreeMap<i64, String> = names.into_iter().collect();
    let view = |(number, used): (i64, Used)| {
        let name = names.get(&number).cloned().unwrap_or_else(|| "jobs".into());
        summed(number, name, used)
    };
    Ok(families.into_iter().map(view).collect())
}

fn summed(number: i64, name: String, mut used: Used) -> FamilyResources {
    used.seconds.sort_by(f64::total_cmp);
    used.memory.sort_unstable();
    let memory_max = used.memory.last().copied();
    let step = used.dots.len().div_ceil(DOTS).max(1);
    FamilyResources {
        number,
        name,
        attempts: used.seconds.len() as i64,
        seconds: FamilySeconds {
            median: used.seconds.get(used.seconds.len() / 2).copied(),
            max: used.seconds.last().copied(),
            sum: used.seconds.iter().sum(),
            asked: used.seconds_asked,
        },
        cpus_asked: used.cpus_asked.max(1),
        cpus_used: (used.measured_seconds > 0.0).then(|| used.cpu_seconds / used.measured_seconds),
        memory_asked: used.memory_asked,
        memory_median: used.memory.get(used.memory.len() / 2).copied(),
        memory_max,
        wasted_cpu_hours: used.wasted_cpu_seconds / 3600.0,
        wasted_gib_hours: used.wasted_byte_seconds / GIB / 3600.0,
        memory_proposed: proposal(memory_max, used.memory_asked),
        dots: used.dots.iter().step_by(step).copied().collect(),
    }
}

/// A fifth more than the highest use, in whole steps of 16 MiB, if that is less than what was asked
/// for.
fn proposal(highest: Option<i64>, asked: Option<i64>) -> Option<i64> {
    const STEP: i64 = 16 << 20;
    let enough = (highest? as f64 * 1.2) as i64;
    let proposed = (enough / STEP + 1) * STEP;
    (proposed < asked?).then_some(proposed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_above_what_was_used_and_below_what_was_asked_for() {
        let gib = 1i64 << 30;
        assert_eq!(
            proposal(Some(gib), Some(8 * gib)),
            Some((gib * 6 / 5 / (16 << 20) + 1) * (16 << 20))
        );
        assert_eq!(proposal(Some(7 * gib), Some(8 * gib)), None);
        assert_eq!(proposal(None, Some(gib)), None);
        assert_eq!(proposal(Some(gib), None), None);
    }
}
