//! The graph of a workflow: by families, around one job, and between two.

use super::jobs::dependencies;
use super::{ReadError, Reader};
use crate::store::journal::definitions;
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap, HashSet};
use torc_model::api::{GraphEdge, GraphGroup, GraphNode, GraphView};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::layout;
use torc_model::status::JobStatus;

/// Nodes around one job.
const MAX_AROUND: usize = 200;
/// Jobs of a family that are drawn as nodes when it is opened.
const MAX_OPENED: i64 = 60;
/// Jobs of a larger family that are given at once.
const MAX_CELLS: i64 = 2000;

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
            let id = super::Thing::Job.workflow(connection, job.0)?;
            around(connection, id, &[job.0], hops)
        })
        .await
    }

    /// The jobs on all ways between two, laid out; only the two where there is no way.
    pub async fn graph_between(
        &self,
        id: WorkflowId,
        one: JobId,
        other: JobId,
    ) -> Result<GraphView, ReadError> {
        self.read(move |connection| {
            let jobs = between(&EdgeLists::of(connection, id)?, one.0, other.0);
            let left_out = jobs.len().saturating_sub(MAX_AROUND);
            let chosen = &jobs[..jobs.len() - left_out];
            laid_out(connection, id, chosen, left_out as i64)
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
}

/// How jobs of two families of these sizes depend on each other.
pub(super) fn kind(from: i64, to: i64, count: i64) -> &'static str {
    match count {
        count if count == from * to => "all",
        count if from == to && count == from => "1:1",
        _ => "n:m",
    }
}

/// Who waits for whom, both ways.
struct EdgeLists {
    children: HashMap<i64, Vec<i64>>,
    parents: HashMap<i64, Vec<i64>>,
}

impl EdgeLists {
    fn of(connection: &Connection, id: WorkflowId) -> Result<Self, ReadError> {
        let mut edges = Self { children: HashMap::new(), parents: HashMap::new() };
        definitions::each_parent(connection, id, |child, parent| {
            edges.children.entry(parent.0).or_default().push(child.0);
            edges.parents.entry(child.0).or_default().push(parent.0);
        })?;
        Ok(edges)
    }
}

/// All that is reached from a job, itself included.
fn reached(from: i64, next: &HashMap<i64, Vec<i64>>) -> HashSet<i64> {
    let mut seen = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for other in next.get(&node).into_iter().flatten() {
            if seen.insert(*other) {
                open.push(*other);
            }
        }
    }
    seen
}

/// What lies on the ways between two jobs, the two first, then by id.
fn between(edges: &EdgeLists, one: i64, other: i64) -> Vec<i64> {
    let behind = reached(one, &edges.children);
    let (first, last) = if behind.contains(&other) { (one, other) } else { (other, one) };
    let (down, up) = (reached(first, &edges.children), reached(last, &edges.parents));
    let mut middle: Vec<i64> = down.intersection(&up).copied().collect();
    middle.retain(|job| *job != one && *job != other);
    middle.sort_unstable();
    let mut jobs = vec![one, other];
    jobs.dedup();
    jobs.extend(middle);
    jobs
}

/// What is up to `hops` steps before and behind these jobs.
fn around(
    connection: &Connection,
    workflow: WorkflowId,
    jobs: &[i64],
    hops: usize,
) -> Result<GraphView, ReadError> {
    let edges = EdgeLists::of(connection, workflow)?;
    let mut chosen: Vec<i64> = jobs.to_vec();
    let mut known: HashSet<i64> = jobs.iter().copied().collect();
    let mut left_out = HashSet::new();
    for next in [&edges.parents, &edges.children] {
        let mut edge = jobs.to_vec();
        for _ in 0..hops {
            let mut found = Vec::new();
            for other in edge.iter().filter_map(|node| next.get(node)).flatten() {
                if known.contains(other) {
                    continue;
                }
                if chosen.len() < MAX_AROUND {
                    known.insert(*other);
                    chosen.push(*other);
                    found.push(*other);
                } else {
                    left_out.insert(*other);
                }
            }
            edge = found;
        }
    }
    laid_out(connection, workflow, &chosen, left_out.len() as i64)
}

/// These jobs with the edges between them.
fn laid_out(
    connection: &Connection,
    workflow: WorkflowId,
    chosen: &[i64],
    left_out: i64,
) -> Result<GraphView, ReadError> {
    let index: HashMap<i64, u32> =
        chosen.iter().enumerate().map(|(at, job)| (*job, at as u32)).collect();
    let mut pairs = Vec::new();
    let mut edges = Vec::new();
    for node in chosen {
        for JobId(parent) in dependencies(connection, workflow, JobId(*node))? {
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
        left_out,
        cells: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_between_two_jobs_are_found_whichever_is_named_first() {
        // 1 -> 2 -> 4, 1 -> 3 -> 4 -> 5, and 6 beside them.
        let mut edges = EdgeLists { children: HashMap::new(), parents: HashMap::new() };
        for (parent, child) in [(1, 2), (1, 3), (2, 4), (3, 4), (4, 5)] {
            edges.children.entry(parent).or_default().push(child);
            edges.parents.entry(child).or_default().push(parent);
        }
        assert_eq!(between(&edges, 1, 4), [1, 4, 2, 3]);
        assert_eq!(between(&edges, 5, 2), [5, 2, 4]);
        assert_eq!(between(&edges, 6, 2), [6, 2], "there is no way");
        assert_eq!(between(&edges, 3, 3), [3]);
    }

    #[test]
    fn kinds_of_edges_have_names() {
        assert_eq!(kind(5, 5, 5), "1:1");
        assert_eq!(kind(5, 1, 5), "all");
        assert_eq!(kind(5, 5, 7), "n:m");
        assert_eq!(kind(1, 1, 1), "all");
    }
}
