//! Jobs that add jobs: a piece of a spec becomes jobs of a workflow that runs, in the transaction of
//! one request.
//!
//! A repeat with the same key answers as the first one did, so that an attempt that is tried again
//! after a crash adds nothing twice. The key belongs to the adding job and the run.

use super::job_rows::{self, Addition};
use super::journal::additions::{self, AdditionRow};
use super::journal::present::StoredWorkflow;
use super::journal::{self, UserDataRow};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use super::{lookups, people};
use rusqlite::Connection;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use torc_engine::commands::{HoldDependents, TellAdded};
use torc_engine::{JobIx, On};
use torc_model::api::{ErrorCode, SpawnJobs, SpawnedJobs};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, Plan, Settings};
use torc_spec::{Present, Spec};

/// The environment variable that tells an added job the lineage it belongs to, as Torc 1.0 does.
const LINEAGE: &str = "TORC_ORCHESTRATOR_LINEAGE_ID";
/// Most bytes of a key or a lineage.
const MAX_WORD: usize = 255;

/// The adding job.
struct Adder {
    id: JobId,
    workflow: WorkflowId,
    index: JobIx,
    run: i64,
    name: String,
    lineage: Option<String>,
}

/// Adds a piece. `by_job`: the adding job itself asks, which its workflow must allow.
pub fn spawn(
    tx: &mut Tx<'_>,
    job: JobId,
    request: &SpawnJobs,
    piece: &Spec,
    by_job: bool,
) -> Result<SpawnedJobs, Failed> {
    let adder = adder(tx, job)?;
    let settings = tx.workflow(adder.workflow)?.settings.clone();
    let limits = settings.dynamic_jobs;
    if by_job && !limits.allowed {
        let message = format!("the jobs of workflow {} may not add jobs", adder.workflow);
        return Err(Refusal::forbidden(message)
            .hint("write `dynamic_jobs: true` into its spec to allow it")
            .into());
    }
    tx.workflow(adder.workflow)?.may_add(adder.index)?;
    let key = word("key", request.key.as_deref())?.unwrap_or_default();
    let lineage = word("lineage", request.lineage.as_deref())?;
    let lineage = lineage.or_else(|| adder.lineage.clone()).unwrap_or_else(|| adder.name.clone());
    let hash = hash(request, piece);
    if let Some(known) = repeat(tx, &adder, &key, &hash)? {
        return Ok(known);
    }
    let stored = StoredWorkflow::new(tx.db, adder.workflow, settings.default_failure_handler);
    let (mut plan, there) = piece.plan_piece(&stored).map_err(super::submissions::wrong_spec)?;
    let adds = plan.jobs.len() > there.len();
    refuse_maps(&plan)?;
    refuse_other_meanings(&stored, &plan)?;
    let present = present_jobs(tx, &adder, &plan, &there)?;
    let new = plan.jobs.iter().filter(|job| !present.contains_key(&job.name)).count();
    let iteration = iteration(tx, &adder, &lineage, limits.max_iterations, adds)?;
    refuse_too_many(tx, &adder, new, limits.max_jobs)?;
    complete(&stored, settings, &mut plan, &lineage)?;
    let ids = add(tx, &adder, &mut plan, &there, &present, request)?;
    torc_failpoint::hit("spawn.inserted");
    if let Some(name) = record_name(&lineage, request, iteration, adds) {
        put_record(tx.db, adder.workflow, &name, request.state.as_ref())?;
    }
    let row = AdditionRow {
        adder: (adder.id, adder.run),
        key: &key,
        workflow: adder.workflow,
        place: (&lineage, iteration),
        hash: &hash,
        jobs: &ids,
        new,
    };
    additions::insert(tx.db, &row, tx.now)?;
    Ok(SpawnedJobs { spawned_job_ids: ids, iteration, lineage, is_repeat: false })
}

fn adder(tx: &mut Tx<'_>, job: JobId) -> Result<Adder, Failed> {
    let id = people::workflow_of(tx, job)?;
    let name = lookups::name_of(tx.db, job)?;
    let extra = lookups::job_extra(tx.db, job)?;
    let workflow = tx.workflow(id)?;
    let index = workflow.find(job).ok_or_else(|| Refusal::not_found("job", job.0))?;
    let run = workflow.run;
    Ok(Adder { id: job, workflow: id, index, run, name, lineage: extra.env.get(LINEAGE).cloned() })
}

/// A key or a lineage: text of one line.
fn word(field: &str, text: Option<&str>) -> Result<Option<String>, Refusal> {
    match text {
        None => Ok(None),
        Some(text) if text.is_empty() || text.len() > MAX_WORD => {
            Err(Refusal::invalid(field, format!("`{field}` has 1 to {MAX_WORD} bytes")))
        }
        Some(text) if text.chars().any(char::is_control) => {
            Err(Refusal::invalid(field, format!("`{field}` is one line of text")))
        }
        Some(text) => Ok(Some(text.to_owned())),
    }
}

/// What was asked for, in short.
fn hash(request: &SpawnJobs, piece: &Spec) -> String {
    let mut hash = Sha256::new();
    let state = request.state.as_ref().map(Value::to_string).unwrap_or_default();
    let parts = [
        piece.to_json(),
        state,
        request.lineage.clone().unwrap_or_default(),
        format!("{} {}", request.wait, request.now),
    ];
    for part in parts {
        // The length keeps neighbouring parts apart.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    crate::secret::hex(&hash.finalize()[..16])
}

/// What the first request with this key was answered.
fn repeat(
    tx: &Tx<'_>,
    adder: &Adder,
    key: &str,
    hash: &str,
) -> Result<Option<SpawnedJobs>, Failed> {
    match additions::find(tx.db, (adder.id, adder.run), key)? {
        None => Ok(None),
        Some((then, spawned)) if then == hash => Ok(Some(spawned)),
        Some(_) => {
            let (job, run) = (&adder.name, adder.run);
            let message = match key {
                "" => format!("job `{job}` has added other jobs in run {run} already"),
                key => {
                    format!("job `{job}` has added other jobs in run {run} under the key `{key}`")
                }
            };
            Err(Refusal::conflict(ErrorCode::AdditionDiffers, message)
                .hint("a job that adds more than once gives each piece a `key` of its own")
                .into())
        }
    }
}

fn refuse_maps(plan: &Plan) -> Result<(), Refusal> {
    match plan.jobs.iter().find(|job| job.extra.map.is_some()) {
        Some(job) => Err(Refusal::invalid(
            "jobs",
            format!("job `{}`: a job that is added cannot have `map` or `reduce`", job.name),
        )
        .hint("add one job per item, with `parameters`")),
        None => Ok(()),
    }
}

/// The jobs of the plan that the workflow has, by name: those that new ones depend on, and those that
/// the same job added in an earlier run, if they are the same.
fn present_jobs(
    tx: &Tx<'_>,
    adder: &Adder,
    plan: &Plan,
    there: &[String],
) -> Result<HashMap<String, JobId>, Failed> {
    let there: HashSet<&str> = there.iter().map(String::as_str).collect();
    let mut present = HashMap::new();
    for job in &plan.jobs {
        match additions::same_name(tx.db, adder.workflow, job)? {
            None => {}
            Some((id, by, is_same))
                if there.contains(job.name.as_str()) || (by == Some(adder.id) && is_same) =>
            {
                present.insert(job.name.clone(), id);
            }
            Some((_, by, _)) => {
                let message =
                    format!("workflow {} has a job `{}` already", adder.workflow, job.name);
                let hint = if by == Some(adder.id) {
                    "this job added it in an earlier run and with another command; give it another name"
                } else {
                    "names are unique in a workflow; give it another one"
                };
                return Err(Refusal::conflict(ErrorCode::NameTaken, message).hint(hint).into());
            }
        }
    }
    Ok(present)
}

/// The number of this addition in its lineage, within the cap.
fn iteration(
    tx: &Tx<'_>,
    adder: &Adder,
    lineage: &str,
    most: u32,
    adds: bool,
) -> Result<i64, Failed> {
    let so_far = additions::count_in_lineage(tx.db, adder.workflow, adder.run, lineage)?;
    if !adds {
        return Ok(so_far);
    }
    if so_far >= i64::from(most) {
        let message = format!(
            "jobs of lineage `{lineage}` have added jobs {so_far} times; `dynamic_jobs.max_iterations` is {most}"
        );
        return Err(Refusal::capped(message)
            .hint("raise it in the spec if the loop is meant to go on")
            .into());
    }
    Ok(so_far + 1)
}

fn refuse_too_many(tx: &Tx<'_>, adder: &Adder, new: usize, most: u32) -> Result<(), Failed> {
    let so_far = additions::count_jobs(tx.db, adder.workflow, adder.run)?;
    if so_far + new as i64 > i64::from(most) {
        let message = format!(
            "{so_far} jobs were added in run {}, and {new} more are beyond `dynamic_jobs.max_jobs`, {most}",
            adder.run
        );
        return Err(Refusal::capped(message).hint("raise it in the spec").into());
    }
    Ok(())
}

/// What belongs to the workflow as a whole, and to all jobs that are added.
fn complete(
    stored: &StoredWorkflow<'_>,
    settings: Settings,
    plan: &mut Plan,
    lineage: &str,
) -> Result<(), Failed> {
    plan.settings = settings;
    // It is told by its place among the handlers of the plan.
    plan.settings.default_failure_handler = stored.find_default_handler()?.and_then(|name| {
        let known = plan.failure_handlers.iter().position(|handler| handler.name == name);
        known.or_else(|| {
            plan.failure_handlers.push(stored.handler(&name)?);
            Some(plan.failure_handlers.len() - 1)
        })
    });
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let names: Vec<String> =
        plan.families.iter().map(|name| torc_model::family::of_added(name)).collect();
    let families: Vec<u32> = names
        .iter()
        .map(|name| {
            let next = numbers.len() as u32;
            *numbers.entry(name.clone()).or_insert(next)
        })
        .collect();
    plan.families = vec![String::new(); numbers.len()];
    for (name, number) in numbers {
        plan.families[number as usize] = name;
    }
    for job in &mut plan.jobs {
        job.family = families.get(job.family as usize).copied().unwrap_or_default();
        job.extra.env.insert(LINEAGE.into(), lineage.into());
    }
    Ok(())
}

/// Adds what is new; gives the rows of all jobs of the piece.
fn add(
    tx: &mut Tx<'_>,
    adder: &Adder,
    plan: &mut Plan,
    there: &[String],
    present: &HashMap<String, JobId>,
    request: &SpawnJobs,
) -> Result<Vec<JobId>, Failed> {
    let id = adder.workflow;
    let is_new = |job: &Job| !present.contains_key(&job.name);
    let fresh: Vec<usize> =
        plan.jobs.iter().enumerate().filter(|(_, job)| is_new(job)).map(|(at, _)| at).collect();
    let also_after: Vec<(usize, JobId)> = match request.now {
        true => Vec::new(),
        false => fresh.iter().map(|at| (*at, adder.id)).collect(),
    };
    let new = match fresh.is_empty() {
        true => Vec::new(),
        false => {
            let added_by = Some(adder.id);
            job_rows::add(tx, id, Addition { plan, present, also_after: &also_after, added_by })?
        }
    };
    if request.wait {
        tx.handle(On(id, HoldDependents { by: adder.index, added: &new }))?;
    }
    let count = new.len();
    tx.handle(On(id, TellAdded { by: adder.index, count }))?;
    let there: HashSet<&str> = there.iter().map(String::as_str).collect();
    let mut new = new.into_iter();
    let row = |job: &Job| present.get(&job.name).copied().or_else(|| new.next());
    let of_piece = plan.jobs.iter().filter(|job| !there.contains(job.name.as_str()));
    Ok(of_piece.filter_map(row).collect())
}

fn taken(what: &str, name: &str) -> Failed {
    let message = format!("the workflow has {what} `{name}` already, and it is not the same");
    Refusal::conflict(ErrorCode::NameTaken, message).hint("give it another name").into()
}

/// A piece does not change what jobs that are there go by.
fn refuse_other_meanings(stored: &StoredWorkflow<'_>, plan: &Plan) -> Result<(), Failed> {
    for wanted in &plan.resource_requirements {
        if stored.find_requirements(&wanted.name)?.is_some_and(|known| known != *wanted) {
            return Err(taken("resource requirements", &wanted.name));
        }
    }
    for wanted in &plan.failure_handlers {
        if stored.find_handler(&wanted.name)?.is_some_and(|known| known != *wanted) {
            return Err(taken("a failure handler", &wanted.name));
        }
    }
    for wanted in &plan.files {
        let known = stored.find_file(&wanted.name)?;
        if known.is_some_and(|(known, _)| known.name == wanted.name && known.path != wanted.path) {
            return Err(taken("a file", &wanted.name));
        }
    }
    for wanted in &plan.user_data {
        // Without a value it only names what is there.
        let known = stored.find_user_data(&wanted.name)?;
        if wanted.data.is_some() && known.is_some_and(|(known, _)| known.data != wanted.data) {
            return Err(taken("user data", &wanted.name));
        }
    }
    Ok(())
}

/// The user data that holds the state of a lineage, as clients of Torc 1.0 look for it.
fn record_name(lineage: &str, request: &SpawnJobs, iteration: i64, adds: bool) -> Option<String> {
    // Without jobs it is the final state; without a lineage of its own it was not asked for.
    match (adds, request.lineage.is_some() || request.state.is_some()) {
        (_, false) => None,
        (true, true) => Some(format!("__torc_lineage__{lineage}__g{iteration:06}")),
        (false, true) => Some(format!("__torc_lineage__{lineage}__final")),
    }
}

fn put_record(
    db: &Connection,
    id: WorkflowId,
    name: &str,
    state: Option<&Value>,
) -> rusqlite::Result<()> {
    let row =
        UserDataRow { name, data: state.map(Value::to_string), is_ephemeral: false, keeps: false };
    journal::put_user_data(db, id, &row).map(drop)
}
