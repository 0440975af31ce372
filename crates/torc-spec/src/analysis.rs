//! What a plan would do: stages, widths, the critical path, and the graph in several notations.

use crate::diagnostic::{Diagnostics, Severity};
use crate::lint;
use crate::plan::{self, graph};
use crate::recovery::{self, Recovery};
use crate::spec::Spec;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use torc_model::plan::{Job, Plan};

/// The size of the largest node that is known, to tell jobs that would never start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargestNode {
    /// CPUs of the node.
    pub num_cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// GPUs; none if they were not counted.
    pub num_gpus: Option<u32>,
}

/// Where a workflow would run, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Site<'a> {
    /// The largest node.
    pub machine: Option<LargestNode>,
    /// The directory that paths of files start from.
    pub dir: Option<&'a Path>,
}

/// A plan with everything that can be said about it beforehand.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    /// The plan.
    pub plan: Plan,
    /// Its shape.
    pub analysis: Analysis,
    /// What is doubtful.
    pub warnings: Diagnostics,
}

/// The shape of a plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Analysis {
    /// Name of the workflow.
    pub name: String,
    /// How many jobs there are.
    pub jobs: usize,
    /// How many dependencies there are.
    pub dependencies: usize,
    /// Most jobs in one stage: how many could run at once.
    pub width: usize,
    /// Jobs of one stage can run at the same time.
    pub stages: Vec<PlanStage>,
    /// The chain that takes longest, by the runtimes that jobs ask for, else by the number of jobs.
    pub critical_path: Vec<String>,
    /// How long that chain takes at most, if every job in it has a runtime.
    pub critical_seconds: Option<u64>,
    /// The graph: one node per job, or one per definition if there are many jobs.
    pub graph: Graph,
    /// What follows failures, where something does.
    pub recovery: Vec<Recovery>,
}

/// Jobs that can run at the same time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlanStage {
    /// How many jobs.
    pub jobs: usize,
    /// Indexes of the graph's nodes.
    pub nodes: Vec<usize>,
}

/// Nodes and edges.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Graph {
    /// The nodes.
    pub nodes: Vec<PlanNode>,
    /// From a node to one that waits for it.
    pub edges: Vec<(usize, usize)>,
}

/// One job, or all instances of a definition in one stage.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlanNode {
    /// Name of the job or of the definition.
    pub name: String,
    /// How many jobs it stands for.
    pub jobs: usize,
    /// From 1.
    pub stage: usize,
}

impl PlanNode {
    /// The name, with the number of jobs if it is not one.
    pub fn label(&self) -> String {
        if self.jobs == 1 { self.name.clone() } else { format!("{} x{}", self.name, self.jobs) }
    }
}

/// Above this number of jobs a drawing shows definitions instead.
const MAX_DRAWN: usize = 60;

impl Spec {
    /// Plans, and looks for everything doubtful. Of the directory only the names of input files are
    /// looked up.
    pub fn check(&self, site: Site<'_>) -> Result<CheckedPlan, Diagnostics> {
        let planned = plan::plan(self, self.to_json())?;
        let mut warnings = planned.warnings;
        warnings.extend(lint::lint(self, &planned.plan, &planned.origins, site));
        warnings.sort();
        let analysis = analyse(self, &planned.plan, &planned.origins);
        Ok(CheckedPlan { plan: planned.plan, analysis, warnings })
    }
}

impl Spec {
    /// Plans, and looks for what is doubtful wherever it runs: what [`Spec::check`] warns of,
    /// without its notes.
    pub fn plan_and_doubts(&self) -> Result<(Plan, Diagnostics), Diagnostics> {
        let planned = plan::plan(self, self.to_json())?;
        let mut warnings = planned.warnings;
        let doubts = lint::lint(self, &planned.plan, &planned.origins, Site::default());
        doubts
            .iter()
            .filter(|doubt| doubt.severity == Severity::Warning)
            .for_each(|doubt| warnings.push(doubt.clone()));
        warnings.sort();
        Ok((planned.plan, warnings))
    }
}

fn runtime(plan: &Plan, job: &Job) -> Option<u64> {
    let asked =
        job.resource_requirements.and_then(|index| plan.resource_requirements[index].runtime);
    match (asked, job.extra.timeout) {
        (Some(a), Some(b)) => Some(a.0.min(b.0)),
        (one, other) => one.or(other).map(|runtime| runtime.0),
    }
}

fn analyse(spec: &Spec, plan: &Plan, origins: &[usize]) -> Analysis {
    let order = graph::topological(&plan.jobs);
    let mut stage = vec![0usize; plan.jobs.len()];
    // Longest chain up to and including each job: seconds, then jobs, and the job before it.
    let mut longest: Vec<(u64, usize, Option<usize>)> = vec![(0, 0, None); plan.jobs.len()];
    for index in order {
        let job = &plan.jobs[index];
        stage[index] = job.depends_on.iter().map(|parent| stage[*parent] + 1).max().unwrap_or(0);
        let before = job.depends_on.iter().copied().max_by_key(|parent| {
            let (seconds, jobs, _) = longest[*parent];
            (seconds, jobs, std::cmp::Reverse(*parent))
        });
        let (seconds, jobs) =
            before.map_or((0, 0), |parent| (longest[parent].0, longest[parent].1));
        longest[index] = (seconds + runtime(plan, job).unwrap_or(0), jobs + 1, before);
    }
    let end = (0..plan.jobs.len())
        .max_by_key(|job| (longest[*job].0, longest[*job].1, std::cmp::Reverse(*job)));
    let mut chain: Vec<usize> = std::iter::successors(end, |job| longest[*job].2).collect();
    chain.reverse();
    let known = chain.iter().all(|job| runtime(plan, &plan.jobs[*job]).is_some());
    let graph = graph_of(spec, plan, origins, &stage);
    let names: Vec<String> = spec.document.jobs().map(|job| job.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let count = stage.iter().map(|stage| stage + 1).max().unwrap_or(0);
    let mut stages: Vec<PlanStage> =
        (0..count).map(|_| PlanStage { jobs: 0, nodes: Vec::new() }).collect();
    stage.iter().for_each(|stage| stages[*stage].jobs += 1);
    for (index, node) in graph.nodes.iter().enumerate() {
        stages[node.stage - 1].nodes.push(index);
    }
    Analysis {
        name: plan.name.clone(),
        jobs: plan.jobs.len(),
        dependencies: plan.jobs.iter().map(|job| job.depends_on.len()).sum(),
        width: stages.iter().map(|stage| stage.jobs).max().unwrap_or(0),
        stages,
        critical_seconds: (known && !chain.is_empty())
            .then(|| chain.last().map_or(0, |job| longest[*job].0)),
        critical_path: chain.into_iter().map(|job| plan.jobs[job].name.clone()).collect(),
        graph,
        recovery: recovery::of_plan(plan, origins, &names),
    }
}

fn graph_of(spec: &Spec, plan: &Plan, origins: &[usize], stage: &[usize]) -> Graph {
    let many = plan.jobs.len() > MAX_DRAWN;
    let mut groups: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut nodes: Vec<PlanNode> = Vec::new();
    let mut node_of = Vec::with_capacity(plan.jobs.len());
    for (index, job) in plan.jobs.iter().enumerate() {
        let key = if many { (origins[index], stage[index]) } else { (index, 0) };
        let node = *groups.entry(key).or_insert_with(|| {
            nodes.push(PlanNode { name: job.name.clone(), jobs: 0, stage: stage[index] + 1 });
            nodes.len() - 1
        });
        nodes[node].jobs += 1;
        if nodes[node].jobs == 2 {
            let definition = spec.document.job(origins[index]);
            nodes[node].name =
                definition.map(|definition| definition.name.clone()).unwrap_or_default();
        }
        node_of.push(node);
    }
    let mut edges = BTreeSet::new();
    for (index, job) in plan.jobs.iter().enumerate() {
        edges.extend(job.depends_on.iter().map(|parent| (node_of[*parent], node_of[index])));
    }
    Graph { nodes, edges: edges.into_iter().collect() }
}
