//! An edited spec for a workflow that exists: the same jobs, done differently.
//!
//! Jobs are told by their names. What a job does, its limits, its priority and the named requirements are taken over;
//! a spec with other jobs or other dependencies is another workflow.

use super::persist::json;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::params;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, Plan};

/// Most names in one message.
const MAX_NAMED: usize = 5;

/// A stored job: what it does.
struct Stored {
    id: JobId,
    command: String,
    invocation_script: Option<String>,
    steps: Option<String>,
}

/// The jobs that the spec makes do something else. Refuses a spec that has other jobs or other dependencies.
pub fn edited(tx: &Tx<'_>, id: WorkflowId, plan: &Plan) -> Result<Vec<JobId>, Failed> {
    let stored = stored(tx, id)?;
    check_same_graph(tx, id, plan, &stored)?;
    let differs = |job: &Job, then: &Stored| {
        let steps = job.steps.as_ref().map(ToString::to_string);
        job.command != then.command || job.invocation_script != then.invocation_script || steps != then.steps
    };
    let pairs = plan.jobs.iter().filter_map(|job| Some((job, stored.get(&job.name)?)));
    Ok(pairs.filter(|(job, then)| differs(job, then)).map(|(_, then)| then.id).collect())
}

/// Takes the spec over. The engine's copy is stale afterwards; the caller drops it.
pub fn apply(tx: &Tx<'_>, id: WorkflowId, spec: &serde_json::Value, plan: &Plan) -> Result<(), Failed> {
    let stored = stored(tx, id)?;
    let mut update = tx.db.prepare_cached(
        "UPDATE job SET command = ?2, invocation_script = ?3, steps = ?4, priority = ?5, extra = ?6 WHERE id = ?1",
    )?;
    for job in &plan.jobs {
        let Some(then) = stored.get(&job.name) else { continue };
        let extra = if job.extra.is_default() { None } else { json(Some(&*job.extra))? };
        let steps = job.steps.as_ref().map(ToString::to_string);
        update.execute(params![then.id.0, job.command, job.invocation_script, steps, job.priority, extra])?;
    }
    let mut update = tx.db.prepare_cached(
        "UPDATE resource_requirements SET num_cpus = ?3, num_gpus = ?4, num_nodes = ?5, memory_bytes = ?6,
         runtime_seconds = ?7 WHERE workflow_id = ?1 AND name = ?2",
    )?;
    for r in &plan.resource_requirements {
        let (memory, runtime) = (r.memory.map(|m| m.0 as i64), r.runtime.map(|t| t.0 as i64));
        update.execute(params![id.0, r.name, r.num_cpus, r.num_gpus, r.num_nodes, memory, runtime])?;
    }
    tx.db.prepare_cached("UPDATE workflow SET spec = ?2 WHERE id = ?1")?.execute(params![id.0, spec.to_string()])?;
    Ok(())
}

fn stored(tx: &Tx<'_>, id: WorkflowId) -> Result<BTreeMap<String, Stored>, Failed> {
    let mut statement =
        tx.db.prepare_cached("SELECT name, id, command, invocation_script, steps FROM job WHERE workflow_id = ?1")?;
    let rows = statement.query_map([id.0], |row| {
        let job =
            Stored { id: JobId(row.get(1)?), command: row.get(2)?, invocation_script: row.get(3)?, steps: row.get(4)? };
        Ok((row.get(0)?, job))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn check_same_graph(tx: &Tx<'_>, id: WorkflowId, plan: &Plan, stored: &BTreeMap<String, Stored>) -> Result<(), Failed> {
    let planned: BTreeSet<&str> = plan.jobs.iter().map(|j| j.name.as_str()).collect();
    let added: Vec<&str> = planned.iter().copied().filter(|name| !stored.contains_key(*name)).collect();
    let removed: Vec<&str> = stored.keys().map(String::as_str).filter(|name| !planned.contains(name)).collect();
    for (what, names) in [("has jobs that the workflow has not", added), ("lacks jobs of the workflow", removed)] {
        if !names.is_empty() {
            return Err(other_workflow(format!("the spec {what}: {}", listed(&names))));
        }
    }
    let mut statement =
        tx.db.prepare_cached("SELECT job_id, depends_on_job_id FROM job_depends_on WHERE workflow_id = ?1")?;
    let rows = statement.query_map([id.0], |row| Ok((JobId(row.get(0)?), JobId(row.get(1)?))))?;
    let had: BTreeSet<(JobId, JobId)> = rows.collect::<Result<_, _>>()?;
    let row = |job: &Job| stored.get(&job.name).map(|s| s.id);
    let wanted: BTreeSet<(JobId, JobId)> = plan
        .jobs
        .iter()
        .flat_map(|job| job.depends_on.iter().map(move |parent| (job, &plan.jobs[*parent])))
        .filter_map(|(job, parent)| Some((row(job)?, row(parent)?)))
        .collect();
    let moved: BTreeSet<JobId> = had.symmetric_difference(&wanted).map(|(job, _)| *job).collect();
    let names: Vec<&str> =
        stored.iter().filter(|(_, job)| moved.contains(&job.id)).map(|(name, _)| name.as_str()).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(other_workflow(format!("the spec gives jobs other dependencies: {}", listed(&names)))),
    }
}

fn other_workflow(message: String) -> Failed {
    Refusal::conflict("other_graph", message).hint("create a new workflow from it").into()
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MAX_NAMED { format!(" and {} more", names.len() - MAX_NAMED) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
