//! The graph of a workflow: by families, around one job, and its critical path.

use super::{ReadError, Reader};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use torc_model::api::{CriticalJob, CriticalPathView, GraphEdge, GraphGroup, GraphNode, GraphView};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::layout;
use torc_model::status::JobStatus;

/// Nodes around one job.
const MAX_AROUND: usize = 200;
/// Jobs of a family that are drawn as nodes when it is opened.
const MAX_OPENED: i64 = 60;
/// Jobs of a larger family that are given at once.
const MAX_CELLS: i64 = 2000;
/// Jobs of a critical path that are named.
const MAX_NAMED: usize = 200;

/// The part of the family graph that does not change while jobs run.
#[derive(Clone, Debug)]
pub struct FamilyGraph {
    /// The edges between families.
    pub edges: Vec<GraphEdge>,
    /// A place for each family, by number.
    pub places: Vec<layout::Place>,
}

impl Reader {
    /// How families depend on each other, laid out. `families` is how many there are.
    pub async fn family_graph(
        &self,
        id: WorkflowId,
        families: usize,
    ) -> Result<FamilyGraph, ReadError> {
        self.read(move |connection| {
            let mut sizes = vec![0i64; families];
            let mut statement = connection.prepare_cached(
                "SELECT family, count(*) FROM job WHERE workflow_id = ? GROUP BY 1",
            )?;
            let mut rows = statement.query([id.0])?;
            while let Some(row) = rows.next()? {
                if let Some(size) = sizes.get_mut(row.get::<_, u32>(0)? as usize) {
                    *size = row.get(1)?;
                }
            }
            let sql = "SELECT p.family, j.family, count(*) FROM job_depends_on d \
                       JOIN job j ON j.id = d.job_id JOIN job p ON p.id = d.depends_on_job_id \
                       WHERE d.workflow_id = ? GROUP BY 1, 2 ORDER BY 1, 2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([id.0])?;
            let mut edges = Vec::new();
            while let Some(row) = rows.next()? {
                let (from, to, count): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                // A map waits for its items, which are of its own family.
                if from != to {
                    let kind = kind(sizes[from as usize], sizes[to as usize], count).to_owned();
                    edges.push(GraphEdge { from, to, count, kind });
                }
            }
            let pairs: Vec<(u32, u32)> =
                edges.iter().map(|edge| (edge.from as u32, edge.to as u32)).collect();
            let places = layout::layers(families, &pairs);
            Ok(FamilyGraph { edges, places })
        })
        .await
    }

    /// The jobs up to `hops` steps before and behind one, laid out.
    pub async fn graph_around(&self, job: JobId, hops: usize) -> Result<GraphView, ReadError> {
        self.read(move |connection| {
            let id: Option<i64> =
                super::page::find(connection, "SELECT workflow_id FROM job WHERE id = ?", job.0)?;
            let id = id.ok_or(ReadError::NotFound { what: "job", id: job.0 })?;
            around(connection, WorkflowId(id), &[job.0], hops)
        })
        .await
    }

    /// The jobs of a family: as nodes with what is next to them, or as cells from the `offset`th on
    /// when there are too many.
    pub async fn opened_family(
        &self,
        id: WorkflowId,
        family: i64,
        offset: i64,
    ) -> Result<GraphView, ReadError> {
        self.read(move |connection| {
            let total: i64 = connection
                .prepare_cached("SELECT count(*) FROM job WHERE workflow_id = ? AND family = ?")?
                .query_row((id.0, family), |row| row.get(0))?;
            let sql = "SELECT id, status FROM job WHERE workflow_id = ? AND family = ? ORDER BY id LIMIT ? OFFSET ?";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement
                .query_map((id.0, family, MAX_CELLS, offset), |row| Ok((row.get(0)?, row.get(1)?)))?;
            let cells = rows.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
            if total <= MAX_OPENED {
                let jobs: Vec<i64> = cells.iter().map(|(job, _)| *job).collect();
                return around(connection, id, &jobs, 1);
            }
            Ok(GraphView {
                workflow_id: id,
                group: GraphGroup::Job,
                nodes: Vec::new(),
                edges: Vec::new(),
                left_out: total - cells.len() as i64,
                cells,
            })
        })
        .await
    }

    /// The longest way through the jobs of the current run, by the time they took.
    pub async fn critical_path(
        &self,
        id: WorkflowId,
        now_ms: i64,
    ) -> Result<CriticalPathView, ReadError> {
        self.read(move |connection| critical(connection, id, now_ms)).await
    }
}

/// How jobs of two families of these sizes depend on each other.
pub(super) fn kind(from: i64, to: i64, count: i64) -> &'static str {
    match count {
        count if count == from * to => "all",
        count if from == to && count == from => "1:1",
        _ => "n:m",
    }
}

/// What is up to `hops` steps before and behind these jobs.
fn around(
    connection: &Connection,
    workflow: WorkflowId,
    jobs: &[i64],
    hops: usize,
) -> Result<GraphView, ReadError> {
    let id = workflow.0;
    let up = "SELECT depends_on_job_id FROM job_depends_on WHERE workflow_id = ? AND job_id = ?";
    let mut children: HashMap<i64, Vec<i64>> = HashMap::new();
    let mut statement = connection.prepare_cached(
        "SELECT depends_on_job_id, job_id FROM job_depends_on WHERE workflow_id = ?",
    )?;
    let mut rows = statement.query([id])?;
    while let Some(row) = rows.next()? {
        children.entry(row.get(0)?).or_default().push(row.get(1)?);
    }
    let parents = |job: i64| -> rusqlite::Result<Vec<i64>> {
        connection.prepare_cached(up)?.query_map([id, job], |row| row.get(0))?.collect()
    };
    let mut chosen: Vec<i64> = jobs.to_vec();
    let mut left_out = std::collections::HashSet::new();
    for is_up in [true, false] {
        let mut edge = jobs.to_vec();
        for _ in 0..hops {
            let mut next = Vec::new();
            for node in &edge {
                let near = match is_up {
                    true => parents(*node)?,
                    false => children.get(node).cloned().unwrap_or_default(),
                };
                for other in near {
                    if chosen.contains(&other) {
                        continue;
                    }
                    if chosen.len() < MAX_AROUND {
                        chosen.push(other);
                        next.push(other);
                    } else {
                        left_out.insert(other);
                    }
                }
            }
            edge = next;
        }
    }
    let index: HashMap<i64, u32> =
        chosen.iter().enumerate().map(|(at, job)| (*job, at as u32)).collect();
    let mut pairs = Vec::new();
    let mut edges = Vec::new();
    for node in &chosen {
        for parent in parents(*node)? {
            if let Some(from) = index.get(&parent) {
                pairs.push((*from, index[node]));
                edges.push(GraphEdge { from: parent, to: *node, count: 1, kind: "1:1".into() });
            }
        }
    }
    let places = layout::layers(chosen.len(), &pairs);
    let mut describe = connection.prepare_cached("SELECT name, status FROM job WHERE id = ?")?;
    let mut nodes = Vec::with_capacity(chosen.len());
    for (node, place) in chosen.iter().zip(places) {
        let (name, status): (String, i64) =
            describe.query_row([node], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let status = JobStatus::from_code(status).unwrap_or(JobStatus::Uninitialized);
        nodes.push(GraphNode {
            id: *node,
            name,
            filter: None,
            total: 1,
            counts: BTreeMap::from([(status.as_str().to_owned(), 1)]),
            rank: i64::from(place.rank),
            across: f64::from(place.across),
        });
    }
    Ok(GraphView {
        workflow_id: workflow,
        group: GraphGroup::Job,
        nodes,
        edges,
        left_out: left_out.len() as i64,
        cells: Vec::new(),
    })
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
    let mut ids = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT id FROM job WHERE workflow_id = ? ORDER BY id")?;
    for row in statement.query_map([id.0], |row| row.get::<_, i64>(0))? {
        ids.push(row?);
    }
    let index_of = |job: i64| ids.binary_search(&job).ok();
    let mut seconds = vec![0f64; ids.len()];
    let (mut work, mut lost, mut waited, mut starts, mut last_end) = (0.0, 0.0, 0.0, 0i64, 0i64);
    let sql = "SELECT a.job_id, a.exec_seconds, a.started_ms, a.ended_ms, a.created_ms, a.state, coalesce(r.num_cpus, 1) \
               FROM attempt a JOIN job j ON j.id = a.job_id \
               LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE a.workflow_id = ? AND a.run_id = ? AND a.started_ms IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((id.0, run))?;
    while let Some(row) = rows.next()? {
        let (start, end): (i64, Option<i64>) = (row.get(2)?, row.get(3)?);
        let took = match row.get::<_, Option<f64>>(1)? {
            Some(seconds) => seconds,
            None => (end.unwrap_or(now_ms) - start).max(0) as f64 / 1000.0,
        };
        starts += 1;
        waited += (start - row.get::<_, i64>(4)?).max(0) as f64 / 1000.0;
        last_end = last_end.max(end.unwrap_or(now_ms));
        match row.get::<_, String>(5)?.as_str() {
            "completed" => work += took * row.get::<_, f64>(6)?,
            "failed" | "terminated" | "canceled" => lost += took,
            _ => {}
        }
        if let Some(index) = index_of(row.get(0)?) {
            seconds[index] += took;
        }
    }
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); ids.len()];
    let mut open = vec![0u32; ids.len()];
    let mut statement = connection.prepare_cached(
        "SELECT depends_on_job_id, job_id FROM job_depends_on WHERE workflow_id = ?",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        if let (Some(from), Some(to)) = (index_of(row.get(0)?), index_of(row.get(1)?)) {
            children[from].push(to as u32);
            open[to] += 1;
        }
    }
    let path = longest(&seconds, &children, open);
    let mut describe =
        connection.prepare_cached("SELECT name, status, family FROM job WHERE id = ?")?;
    let mut jobs = Vec::new();
    for index in path.iter().take(MAX_NAMED) {
        let (name, status, family): (String, i64, i64) =
            describe.query_row([ids[*index]], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        jobs.push(CriticalJob {
            job_id: JobId(ids[*index]),
            name,
            status: JobStatus::from_code(status).unwrap_or(JobStatus::Uninitialized),
            family,
            seconds: seconds[*index],
        });
    }
    Ok(CriticalPathView {
        workflow_id: id,
        jobs,
        length: path.len() as i64,
        seconds: path.iter().map(|index| seconds[*index]).sum(),
        work_cpu_seconds: work,
        lost_seconds: lost,
        waited_seconds: if starts == 0 { 0.0 } else { waited / starts as f64 },
        elapsed_seconds: started.map_or(0.0, |s| (last_end - s).max(0) as f64 / 1000.0),
    })
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

    #[test]
    fn kinds_of_edges_have_names() {
        assert_eq!(kind(5, 5, 5), "1:1");
        assert_eq!(kind(5, 1, 5), "all");
        assert_eq!(kind(5, 5, 7), "n:m");
        assert_eq!(kind(1, 1, 1), "all");
    }
}
