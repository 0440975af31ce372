//! An edited spec for a workflow that exists: the same jobs, done differently.
//!
//! Jobs and everything they refer to are told by their names. What the spec says of them is taken
//! over, and from then on they run as it says; a spec with other jobs or other dependencies is
//! another workflow and is refused. What the spec no longer names stays as a row that nobody uses.
//! Two things are not the spec's alone: what a recovery gave a job stays unless the spec asks for
//! at least as much, and what somebody set since holds where the spec says the same as before.

use super::create::produced_user_data;
use super::load::parse;
use super::map;
use super::persist::json;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::{OptionalExtension, params};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use torc_engine::CompiledHandler;
use torc_model::api::ErrorCode;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, JobExtra, Plan, Settings};
use torc_model::steps::Role;
use torc_model::units::Runtime;

/// Most names in one message.
const MAX_NAMED: usize = 5;

/// Kind and name of the files and user data that a job reads and writes.
type Items = BTreeSet<(String, String)>;

/// A stored job: what it does, and what it was given.
struct Stored {
    id: JobId,
    command: String,
    invocation_script: Option<String>,
    steps: Option<String>,
    extra: JobExtra,
    /// Its own values, and those of its requirements.
    memory: (Option<i64>, Option<i64>),
    runtime: (Option<i64>, Option<i64>),
    items: Items,
}

/// What a spec changes about jobs.
pub struct Edited {
    /// The jobs that it makes do something else: they run again.
    pub jobs: Vec<JobId>,
    /// The jobs that it gives other variables, with their names. That alone is no reason to run
    /// again.
    pub other_env: Vec<(JobId, String)>,
}

/// What the spec changes. Refuses a spec that has other jobs or other dependencies.
pub fn edited(tx: &Tx<'_>, id: WorkflowId, plan: &Plan) -> Result<Edited, Failed> {
    let stored = stored(tx, id)?;
    check_same_graph(tx, id, plan, &stored)?;
    let differs = |job: &Job, then: &Stored| {
        let steps = job.steps.as_ref().map(ToString::to_string);
        job.command != then.command
            || job.invocation_script != then.invocation_script
            || steps != then.steps
            || items(plan, job) != then.items
            || map_role(&job.extra) != map_role(&then.extra)
    };
    let mut maps = BTreeSet::new();
    let (mut changed, mut same_items) = (Vec::new(), Vec::new());
    for job in &plan.jobs {
        let Some(then) = stored.get(&job.name) else { continue };
        let role = job.extra.map.as_ref().and_then(|map| Role::from_value(map).ok());
        match (role, differs(job, then)) {
            (Some(Role::Map(_)), true) => {
                maps.insert(job.name.as_str());
                changed.push(then.id);
            }
            (_, true) => changed.push(then.id),
            (Some(Role::Item { of, .. }), false) => same_items.push((of, then.id)),
            (_, false) => {}
        }
    }
    // What an item does is written in its map.
    changed.extend(
        same_items.into_iter().filter(|(of, _)| maps.contains(of.as_str())).map(|(_, id)| id),
    );
    Ok(Edited { jobs: changed, other_env: other_env(tx, id, plan, &stored)? })
}

fn other_env(
    tx: &Tx<'_>,
    id: WorkflowId,
    plan: &Plan,
    stored: &BTreeMap<String, Stored>,
) -> Result<Vec<(JobId, String)>, Failed> {
    type Env = BTreeMap<String, String>;
    let settings: String = tx
        .db
        .prepare_cached("SELECT settings FROM workflow WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))?;
    let common: Env = parse::<Settings>(&settings)?.env;
    // A job's own variables win, so that a change of the workflow's may not reach it.
    let together = |common: &Env, own: &Env| {
        let mut all = common.clone();
        all.extend(own.clone());
        all
    };
    let differs = |job: &Job, then: &Stored| {
        (common != plan.settings.env || job.extra.env != then.extra.env)
            && together(&common, &then.extra.env) != together(&plan.settings.env, &job.extra.env)
    };
    let jobs = plan.jobs.iter().filter_map(|job| Some((job, stored.get(&job.name)?)));
    Ok(jobs
        .filter(|(job, then)| differs(job, then))
        .map(|(job, then)| (then.id, job.name.clone()))
        .collect())
}

/// What a map, an item or a reduce is about. How many items run at once and how many may fail
/// changes none of them.
fn map_role(extra: &JobExtra) -> Option<Value> {
    let role = Role::from_value(extra.map.as_ref()?).ok()?;
    match role {
        Role::Map(settings) => serde_json::to_value(settings.items).ok(),
        Role::Item { .. } | Role::Reduce(_) => extra.map.clone(),
    }
}

fn items(plan: &Plan, job: &Job) -> Items {
    let files = |kind: &'static str, list: &[usize]| -> Vec<(String, String)> {
        list.iter().map(|at| (kind.to_owned(), plan.files[*at].name.clone())).collect()
    };
    let data = |kind: &'static str, list: &[usize]| -> Vec<(String, String)> {
        list.iter().map(|at| (kind.to_owned(), plan.user_data[*at].name.clone())).collect()
    };
    [
        files("input_file", &job.input_files),
        files("output_file", &job.output_files),
        data("input_user_data", &job.input_user_data),
        data("output_user_data", &job.output_user_data),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Takes the spec over. The engine's copy is stale afterwards; the caller drops it.
pub fn apply(tx: &Tx<'_>, id: WorkflowId, mut plan: Plan) -> Result<(), Failed> {
    let stored = stored(tx, id)?;
    let rows: Vec<JobId> =
        plan.jobs.iter().filter_map(|job| stored.get(&job.name)).map(|then| then.id).collect();
    map::set_limits(&mut plan.jobs, |index| rows[index]);
    let said = said(tx, id)?;
    super::families::insert(tx.db, id, &plan.families)?;
    let requirements = take_requirements(tx, id, &plan)?;
    let handlers = take_handlers(tx, id, &plan)?;
    let schedulers = take_schedulers(tx, id, &plan)?;
    let files = take_files(tx, id, &plan)?;
    let user_data = take_user_data(tx, id, &plan, &said)?;
    let mut update = tx.db.prepare_cached(
        "UPDATE job SET command = ?2, invocation_script = ?3, steps = ?4, priority = ?5, extra = ?6, position = ?7,
         resource_requirements_id = ?8, failure_handler_id = ?9, scheduler_id = ?10,
         cancel_on_blocking_job_failure = ?11, memory_bytes = ?12, runtime_seconds = ?13, family = ?14 WHERE id = ?1",
    )?;
    let mut forget = tx.db.prepare_cached("DELETE FROM job_item WHERE job_id = ?1")?;
    let mut item = tx.db.prepare_cached(
        "INSERT OR IGNORE INTO job_item (job_id, kind, item_id) VALUES (?1, ?2, ?3)",
    )?;
    for (position, job) in plan.jobs.iter().enumerate() {
        let Some(then) = stored.get(&job.name) else { continue };
        let mut extra = (*job.extra).clone();
        extra.timeout = timeout(tx, then, extra.timeout)?;
        let needs = job.resource_requirements.map(|r| &plan.resource_requirements[r]);
        let memory = needs.and_then(|r| r.memory).map(|m| m.0 as i64);
        let runtime = needs.and_then(|r| r.runtime).map(|r| r.0 as i64);
        update.execute(params![
            then.id.0,
            job.command,
            job.invocation_script,
            job.steps.as_ref().map(ToString::to_string),
            job.priority,
            if extra.is_default() { None } else { json(Some(&extra))? },
            position as i64,
            job.resource_requirements.map(|r| requirements[r]),
            job.failure_handler.map(|h| handlers[h]),
            job.scheduler.map(|s| schedulers[s]),
            job.cancel_on_blocking_job_failure,
            own_value(then.memory, memory),
            own_value(then.runtime, runtime),
            job.family,
        ])?;
        if items(&plan, job) == then.items {
            continue;
        }
        forget.execute([then.id.0])?;
        let lists: [(&str, &[usize], &[i64]); 4] = [
            ("input_file", &job.input_files, &files),
            ("output_file", &job.output_files, &files),
            ("input_user_data", &job.input_user_data, &user_data),
            ("output_user_data", &job.output_user_data, &user_data),
        ];
        for (kind, list, ids) in lists {
            for at in list {
                item.execute(params![then.id.0, kind, ids[*at]])?;
            }
        }
    }
    take_actions(tx, id, &plan, &rows)?;
    take_workflow(tx, id, &plan, &handlers, &said)
}

/// What a job keeps of its own beyond its requirements: nothing that the new spec asks for as well.
fn own_value((own, before): (Option<i64>, Option<i64>), asked: Option<i64>) -> Option<i64> {
    own.filter(|own| asked == before || asked.is_some_and(|asked| asked < *own))
}

/// The longer of what a recovery allowed and what the spec allows.
fn timeout(tx: &Tx<'_>, then: &Stored, asked: Option<Runtime>) -> Result<Option<Runtime>, Failed> {
    let (Some(now), Some(asked)) = (then.extra.timeout, asked) else { return Ok(asked) };
    if asked >= now {
        return Ok(Some(asked));
    }
    let raised: Option<i64> = tx
        .db
        .prepare_cached(
            "SELECT to_value FROM adjustment WHERE job_id = ?1 AND field = 'timeout' ORDER BY id DESC LIMIT 1",
        )?
        .query_row([then.id.0], |row| row.get(0))
        .optional()?;
    Ok(Some(if raised == i64::try_from(now.0).ok() { now } else { asked }))
}

fn take_requirements(tx: &Tx<'_>, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    let mut put = tx.db.prepare_cached(
        "INSERT INTO resource_requirements (workflow_id, name, num_cpus, num_gpus, num_nodes, memory_bytes, runtime_seconds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (workflow_id, name) DO UPDATE SET num_cpus = ?3, num_gpus = ?4, num_nodes = ?5, memory_bytes = ?6,
         runtime_seconds = ?7 RETURNING id",
    )?;
    plan.resource_requirements
        .iter()
        .map(|r| {
            let (memory, runtime) = (r.memory.map(|m| m.0 as i64), r.runtime.map(|t| t.0 as i64));
            let values =
                params![id.0, r.name, r.num_cpus, r.num_gpus, r.num_nodes, memory, runtime];
            put.query_row(values, |row| row.get(0))
        })
        .collect()
}

fn take_handlers(tx: &Tx<'_>, id: WorkflowId, plan: &Plan) -> Result<Vec<i64>, Failed> {
    let mut put = tx.db.prepare_cached(
        "INSERT INTO failure_handler (workflow_id, name, rules) VALUES (?1, ?2, ?3)
         ON CONFLICT (workflow_id, name) DO UPDATE SET rules = ?3 RETURNING id",
    )?;
    let mut ids = Vec::new();
    for handler in &plan.failure_handlers {
        CompiledHandler::new(&handler.name, &handler.rules)
            .map_err(|e| Refusal::invalid("failure_handlers", e.to_string()))?;
        ids.push(
            put.query_row(params![id.0, handler.name, json(Some(&handler.rules))?], |row| {
                row.get(0)
            })?,
        );
    }
    Ok(ids)
}

fn take_schedulers(tx: &Tx<'_>, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    let mut put = tx.db.prepare_cached(
        "INSERT INTO slurm_scheduler (workflow_id, name, definition) VALUES (?1, ?2, ?3)
         ON CONFLICT (workflow_id, name) DO UPDATE SET definition = ?3 RETURNING id",
    )?;
    plan.slurm_schedulers
        .iter()
        .map(|s| put.query_row(params![id.0, s.name, json(Some(s))?], |row| row.get(0)))
        .collect()
}

/// A file at another place was not seen yet.
fn take_files(tx: &Tx<'_>, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    let mut put = tx.db.prepare_cached(
        "INSERT INTO file (workflow_id, name, path) VALUES (?1, ?2, ?3)
         ON CONFLICT (workflow_id, name) DO UPDATE SET path = ?3, mtime_ms = iif(path = ?3, mtime_ms, NULL),
         size = iif(path = ?3, size, NULL), hash = iif(path = ?3, hash, NULL) RETURNING id",
    )?;
    plan.files
        .iter()
        .map(|f| put.query_row(params![id.0, f.name, f.path], |row| row.get(0)))
        .collect()
}

fn take_user_data(
    tx: &Tx<'_>,
    id: WorkflowId,
    plan: &Plan,
    said: &Said,
) -> rusqlite::Result<Vec<i64>> {
    let mut put = tx.db.prepare_cached(
        "INSERT INTO user_data (workflow_id, name, data, is_ephemeral) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (workflow_id, name) DO UPDATE SET data = iif(?5, data, ?3), is_ephemeral = ?4 RETURNING id",
    )?;
    let produced = produced_user_data(plan);
    let mut ids = Vec::new();
    for (user_data, is_produced) in plan.user_data.iter().zip(produced) {
        let keeps = is_produced || said.data(&user_data.name) == user_data.data.as_ref();
        let data = user_data.data.as_ref().map(ToString::to_string);
        let values = params![id.0, user_data.name, data, user_data.is_ephemeral, keeps];
        ids.push(put.query_row(values, |row| row.get(0))?);
    }
    Ok(ids)
}

/// Actions that the new spec has as well stay as they are; `rows` are its jobs.
fn take_actions(tx: &Tx<'_>, id: WorkflowId, plan: &Plan, rows: &[JobId]) -> Result<(), Failed> {
    type Described = (String, String, Vec<JobId>, bool);
    let mut statement = tx.db.prepare_cached(
        "SELECT id, trigger_type, what, job_ids, persistent, state FROM workflow_action
         WHERE workflow_id = ?1 AND is_recovery = 0 ORDER BY id",
    )?;
    let had = statement.query_map([id.0], |row| {
        let mut jobs: Vec<JobId> = parse(&row.get::<_, String>(3)?)?;
        jobs.sort();
        Ok((row.get(0)?, (row.get(1)?, row.get(2)?, jobs, row.get(4)?), row.get(5)?))
    })?;
    let mut had: Vec<(i64, Described, String)> = had.collect::<Result<_, _>>()?;
    let mut insert = tx.db.prepare_cached(
        "INSERT INTO workflow_action (workflow_id, trigger_type, what, job_ids, persistent, state)
         VALUES (?1, ?2, ?3, ?4, ?5, 'waiting')",
    )?;
    for action in &plan.actions {
        let mut jobs: Vec<JobId> = action.jobs.iter().map(|at| rows[*at]).collect();
        jobs.sort();
        let what = json(Some(&action.what))?.unwrap_or_default();
        let wanted = (action.trigger.as_str().to_owned(), what, jobs, action.persistent);
        match had.iter().position(|(_, described, _)| *described == wanted) {
            Some(at) => drop(had.remove(at)),
            None => {
                let (trigger, what, jobs, persistent) = wanted;
                insert.execute(params![id.0, trigger, what, json(Some(&jobs))?, persistent])?;
            }
        }
    }
    for (action, _, state) in had {
        if state == "claimed" {
            let message = format!("the spec changes action {action}, which a runner carries out");
            return Err(Refusal::conflict(ErrorCode::ActionRunning, message)
                .hint("wait until it is done")
                .into());
        }
        tx.db.prepare_cached("DELETE FROM workflow_action WHERE id = ?1")?.execute([action])?;
    }
    Ok(())
}

fn take_workflow(
    tx: &Tx<'_>,
    id: WorkflowId,
    plan: &Plan,
    handlers: &[i64],
    said: &Said,
) -> Result<(), Failed> {
    let mut settings = plan.settings.clone();
    // The engine counts handlers in the order of their rows.
    settings.default_failure_handler = match settings.default_failure_handler {
        Some(handler) => Some(
            tx.db
                .prepare_cached(
                    "SELECT count(*) FROM failure_handler WHERE workflow_id = ?1 AND id < ?2",
                )?
                .query_row([id.0, handlers[handler]], |row| row.get::<_, i64>(0))?
                as usize,
        ),
        None => None,
    };
    tx.db
        .prepare_cached(
            "UPDATE workflow SET spec = ?2, settings = ?3, name = iif(?4, name, ?5),
             description = iif(?6, description, ?7), project = iif(?8, project, ?9), metadata = iif(?10, metadata, ?11)
             WHERE id = ?1",
        )?
        .execute(params![
            id.0,
            plan.spec,
            json(Some(&settings))?,
            said.name.as_ref() == Some(&plan.name),
            plan.name,
            said.description == plan.description,
            plan.description,
            said.project == plan.project,
            plan.project,
            said.metadata == plan.metadata,
            plan.metadata.as_ref().map(ToString::to_string),
        ])?;
    Ok(())
}

/// What the old spec said of things that people may change in between.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    name: Option<String>,
    description: Option<String>,
    project: Option<String>,
    metadata: Option<Value>,
    user_data: Vec<SaidData>,
}

#[derive(Deserialize)]
struct SaidData {
    name: String,
    #[serde(default)]
    data: Option<Value>,
}

impl Said {
    fn data(&self, name: &str) -> Option<&Value> {
        self.user_data.iter().find(|data| data.name == name)?.data.as_ref()
    }
}

fn said(tx: &Tx<'_>, id: WorkflowId) -> Result<Said, Failed> {
    let text: String = tx
        .db
        .prepare_cached("SELECT spec FROM workflow WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))?;
    // Of one that cannot be read nobody knows what it said; then the new one is right in
    // everything.
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

fn stored(tx: &Tx<'_>, id: WorkflowId) -> Result<BTreeMap<String, Stored>, Failed> {
    let mut items = stored_items(tx, id)?;
    let mut statement = tx.db.prepare_cached(
        "SELECT j.name, j.id, j.command, j.invocation_script, j.steps, j.extra, j.memory_bytes, r.memory_bytes,
                j.runtime_seconds, r.runtime_seconds
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id WHERE j.workflow_id = ?1",
    )?;
    let rows = statement.query_map([id.0], |row| {
        let id = JobId(row.get(1)?);
        let extra: Option<String> = row.get(5)?;
        let job = Stored {
            id,
            command: row.get(2)?,
            invocation_script: row.get(3)?,
            steps: row.get(4)?,
            extra: extra.as_deref().map(parse).transpose()?.unwrap_or_default(),
            memory: (row.get(6)?, row.get(7)?),
            runtime: (row.get(8)?, row.get(9)?),
            items: items.remove(&id).unwrap_or_default(),
        };
        Ok((row.get(0)?, job))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn stored_items(tx: &Tx<'_>, id: WorkflowId) -> rusqlite::Result<HashMap<JobId, Items>> {
    let mut statement = tx.db.prepare_cached(
        "SELECT i.job_id, i.kind, f.name FROM job j JOIN job_item i ON i.job_id = j.id JOIN file f ON f.id = i.item_id
         WHERE j.workflow_id = ?1 AND i.kind IN ('input_file', 'output_file')
         UNION ALL
         SELECT i.job_id, i.kind, u.name FROM job j JOIN job_item i ON i.job_id = j.id
         JOIN user_data u ON u.id = i.item_id
         WHERE j.workflow_id = ?1 AND i.kind IN ('input_user_data', 'output_user_data')",
    )?;
    let mut rows = statement.query([id.0])?;
    let mut all: HashMap<JobId, Items> = HashMap::new();
    while let Some(row) = rows.next()? {
        all.entry(JobId(row.get(0)?)).or_default().insert((row.get(1)?, row.get(2)?));
    }
    Ok(all)
}

fn check_same_graph(
    tx: &Tx<'_>,
    id: WorkflowId,
    plan: &Plan,
    stored: &BTreeMap<String, Stored>,
) -> Result<(), Failed> {
    let planned: BTreeSet<&str> = plan.jobs.iter().map(|j| j.name.as_str()).collect();
    let added: Vec<&str> =
        planned.iter().copied().filter(|name| !stored.contains_key(*name)).collect();
    let (found, removed): (Vec<&str>, Vec<&str>) = stored
        .keys()
        .map(String::as_str)
        .filter(|name| !planned.contains(name))
        .partition(|name| is_found_item(plan, &stored[*name]));
    for (what, names) in
        [("has jobs that the workflow has not", added), ("lacks jobs of the workflow", removed)]
    {
        if !names.is_empty() {
            return Err(other_workflow(format!("the spec {what}: {}", listed(&names))));
        }
    }
    if !found.is_empty() {
        let message = format!(
            "a map of the workflow has found items, which no spec lists: {}",
            listed(&found)
        );
        return Err(other_workflow(message));
    }
    let mut statement = tx.db.prepare_cached(
        "SELECT job_id, depends_on_job_id FROM job_depends_on WHERE workflow_id = ?1",
    )?;
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
    let names: Vec<&str> = stored
        .iter()
        .filter(|(_, job)| moved.contains(&job.id))
        .map(|(name, _)| name.as_str())
        .collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(other_workflow(format!(
            "the spec gives jobs other dependencies: {}",
            listed(&names)
        ))),
    }
}

/// An item that a map of the plan finds while it runs.
fn is_found_item(plan: &Plan, job: &Stored) -> bool {
    match job.extra.map.as_ref().and_then(|map| Role::from_value(map).ok()) {
        Some(Role::Item { of, .. }) => plan.jobs.iter().any(|job| job.name == of),
        Some(Role::Map(_) | Role::Reduce(_)) | None => false,
    }
}

fn other_workflow(message: String) -> Failed {
    Refusal::conflict(ErrorCode::OtherGraph, message).hint("create a new workflow from it").into()
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MAX_NAMED {
        format!(" and {} more", names.len() - MAX_NAMED)
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}
