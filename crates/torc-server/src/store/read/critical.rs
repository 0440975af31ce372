//! The critical path of a run, and where its time went.

use super::{ReadError, Reader, page};
use crate::store::journal::definitions;
use rusqlite::Connection;
use torc_model::api::{Capacity, CriticalJob, CriticalPathView};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::JobStatus;

/// Jobs of a critical path that are named.
const MAX_NAMED: usize = 200;

impl Reader {
    /// The longest way through the jobs of the current run, by the time they took.
    pub async fn critical_path(
        &self,
        id: WorkflowId,
        now_ms: i64,
    ) -> Result<CriticalPathView, ReadError> {
        self.read(move |connection| critical(connection, id, now_ms)).await
    }
}

/// What the attempts of a run took.
#[derive(Default)]
struct Spent {
    /// Jobs of the workflow, by id.
    ids: Vec<i64>,
    /// Of each job: its time, its first start and its last end.
    seconds: Vec<f64>,
    begin: Vec<i64>,
    end: Vec<i64>,
    work: f64,
    lost: f64,
    lost_cpu: f64,
    waited: f64,
    starts: i64,
    last_start: i64,
    last_end: i64,
    /// Each attempt's span and CPUs.
    held: Vec<(i64, i64, f64)>,
}

fn critical(
    connection: &Connection,
    id: WorkflowId,
    now_ms: i64,
) -> Result<CriticalPathView, ReadError> {
    let (run, started): (i64, Option<i64>) = connection
        .prepare_cached("SELECT run_id, run_started_ms FROM workflow WHERE id = ?")?
        .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => {
                ReadError::NotFound { what: "workflow", id: id.0 }
            }
            other => other.into(),
        })?;
    let spent = spent(connection, id, run, now_ms)?;
    let path = path(connection, id, &spent)?;
    let (there, idle_end, no_runner) = runners(connection, id, started, &spent)?;
    let elapsed = started.map_or(0.0, |s| (spent.last_end - s).max(0) as f64 / 1000.0);
    Ok(CriticalPathView {
        workflow_id: id,
        jobs: named(connection, &path, &spent)?,
        length: path.len() as i64,
        seconds: path.iter().map(|index| spent.seconds[*index]).sum(),
        work_cpu_seconds: spent.work,
        lost_seconds: spent.lost,
        waited_seconds: if spent.starts == 0 { 0.0 } else { spent.waited / spent.starts as f64 },
        elapsed_seconds: elapsed,
        lost_cpu_seconds: spent.lost_cpu,
        there_cpu_seconds: there,
        idle_end_cpu_seconds: idle_end,
        no_runner_seconds: no_runner.min(elapsed),
    })
}

fn spent(
    connection: &Connection,
    id: WorkflowId,
    run: i64,
    now_ms: i64,
) -> Result<Spent, ReadError> {
    let mut all = Spent { ids: definitions::job_ids(connection, id)?, ..Spent::default() };
    all.seconds = vec![0.0; all.ids.len()];
    (all.begin, all.end) = (vec![i64::MAX; all.ids.len()], vec![0; all.ids.len()]);
    let sql = "SELECT a.job_id, a.exec_seconds, a.started_ms, a.ended_ms, a.created_ms, a.state, coalesce(j.num_cpus, r.num_cpus, 1) \
               FROM attempt a JOIN job j ON j.id = a.job_id \
               LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE a.workflow_id = ? AND a.run_id = ? AND a.started_ms IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((id.0, run))?;
    while let Some(row) = rows.next()? {
        let (start, end): (i64, Option<i64>) = (row.get(2)?, row.get(3)?);
        let until = end.unwrap_or(now_ms);
        let took = match row.get::<_, Option<f64>>(1)? {
            Some(seconds) => seconds,
            None => (until - start).max(0) as f64 / 1000.0,
        };
        let cpus: f64 = row.get(6)?;
        all.starts += 1;
        all.waited += (start - row.get::<_, i64>(4)?).max(0) as f64 / 1000.0;
        all.last_start = all.last_start.max(start);
        all.last_end = all.last_end.max(until);
        all.held.push((start, until, cpus));
        match row.get::<_, String>(5)?.as_str() {
            "completed" => all.work += took * cpus,
            "failed" | "terminated" | "canceled" => {
                all.lost += took;
                all.lost_cpu += took * cpus;
            }
            _ => {}
        }
        if let Ok(index) = all.ids.binary_search(&row.get(0)?) {
            all.seconds[index] += took;
            all.begin[index] = all.begin[index].min(start);
            all.end[index] = all.end[index].max(until);
        }
    }
    Ok(all)
}

fn path(connection: &Connection, id: WorkflowId, spent: &Spent) -> Result<Vec<usize>, ReadError> {
    let index_of = |job: i64| spent.ids.binary_search(&job).ok();
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); spent.ids.len()];
    let mut open = vec![0u32; spent.ids.len()];
    definitions::each_parent(connection, id, |job, parent| {
        if let (Some(from), Some(to)) = (index_of(parent.0), index_of(job.0)) {
            children[from].push(to as u32);
            open[to] += 1;
        }
    })?;
    Ok(longest(&spent.seconds, &children, open))
}

fn named(
    connection: &Connection,
    path: &[usize],
    spent: &Spent,
) -> Result<Vec<CriticalJob>, ReadError> {
    let mut describe =
        connection.prepare_cached("SELECT name, status, family FROM job WHERE id = ?")?;
    let mut jobs = Vec::new();
    let mut before: Option<usize> = None;
    for index in path.iter().take(MAX_NAMED) {
        let id = spent.ids[*index];
        let (name, status, family): (String, i64, i64) =
            describe.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        // What never started has no time at which it did.
        let gap = before
            .filter(|before| spent.end[*before] > 0 && spent.end[*index] > 0)
            .map_or(0, |before| (spent.begin[*index] - spent.end[before]).max(0));
        before = Some(*index);
        jobs.push(CriticalJob {
            job_id: JobId(id),
            name,
            status: JobStatus::from_code(status).unwrap_or(JobStatus::Uninitialized),
            family,
            seconds: spent.seconds[*index],
            gap_seconds: gap as f64 / 1000.0,
        });
    }
    Ok(jobs)
}

/// CPU seconds that runners were there during the run, those of them that were free after the last
/// start, and how long there was no runner at first.
fn runners(
    connection: &Connection,
    id: WorkflowId,
    started: Option<i64>,
    spent: &Spent,
) -> Result<(f64, f64, f64), ReadError> {
    let Some(begin) = started.filter(|_| spent.starts > 0) else { return Ok((0.0, 0.0, 0.0)) };
    let (mut there, mut after) = (0.0, 0.0);
    let mut first = i64::MAX;
    let sql = "SELECT capacity, started_ms, ended_ms FROM compute_node WHERE workflow_id = ? AND kind <> 'recovery'";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let capacity: Capacity = page::json(row, "capacity")?.unwrap_or_default();
        let cpus = (capacity.num_cpus * capacity.equal_nodes()) as f64;
        let from = row.get::<_, i64>(1)?.max(begin);
        let until = row.get::<_, Option<i64>>(2)?.unwrap_or(i64::MAX).min(spent.last_end);
        if until <= from {
            continue;
        }
        first = first.min(from);
        there += cpus * seconds_in(from, until);
        after += cpus * seconds_in(from.max(spent.last_start), until);
    }
    let busy: f64 = spent
        .held
        .iter()
        .map(|(start, end, cpus)| cpus * seconds_in((*start).max(spent.last_start), *end))
        .sum();
    let no_runner = if first == i64::MAX { 0 } else { first - begin };
    Ok((there, (after - busy).max(0.0), no_runner as f64 / 1000.0))
}

fn seconds_in(from: i64, until: i64) -> f64 {
    (until - from).max(0) as f64 / 1000.0
}

/// The nodes of the heaviest way, first to last.
fn longest(weight: &[f64], children: &[Vec<u32>], mut open: Vec<u32>) -> Vec<usize> {
    let mut best = weight.to_vec();
    let mut before: Vec<Option<usize>> = vec![None; weight.len()];
    let mut ready: Vec<usize> = (0..weight.len()).filter(|node| open[*node] == 0).collect();
    let mut end: Option<usize> = None;
    while let Some(node) = ready.pop() {
        if end.is_none_or(|end| best[node] > best[end]) {
            end = Some(node);
        }
        for child in children[node].iter().map(|child| *child as usize) {
            if best[node] + weight[child] > best[child] || before[child].is_none() {
                best[child] = best[node] + weight[child];
                before[child] = Some(node);
            }
            open[child] -= 1;
            if open[child] == 0 {
                ready.push(child);
            }
        }
    }
    let mut path: Vec<usize> = std::iter::successors(end, |node| before[*node]).collect();
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_way_is_found_whatever_the_order() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3; 2 takes longest. 4 stands alone.
        let children = vec![vec![1, 2], vec![3], vec![3], vec![], vec![]];
        let path = longest(&[1.0, 2.0, 5.0, 1.0, 6.5], &children, vec![0, 1, 1, 2, 0]);
        assert_eq!(path, [0, 2, 3]);
        let alone = longest(&[1.0, 2.0, 5.0, 1.0, 9.5], &children, vec![0, 1, 1, 2, 0]);
        assert_eq!(alone, [4]);
        assert!(longest(&[], &[], Vec::new()).is_empty());
    }
}
