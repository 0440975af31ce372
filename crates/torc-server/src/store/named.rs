//! What a plan names besides its jobs, in the rows of a workflow that exists: requirements, handlers,
//! schedulers, files, user data and families are told by their names. What the plan says of them is
//! taken over; rows that it does not name stay.

use super::create::signed;
use super::facts::FileFact;
use super::job_rows::produced_user_data;
use super::persist::json;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::{Connection, params};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use torc_engine::{CompiledHandler, HandlerIx};
use torc_model::ids::WorkflowId;
use torc_model::plan::Plan;

/// Rows of what a plan names, by the plan's own indexes.
#[derive(Default)]
pub struct Named {
    /// Requirements.
    pub requirements: Vec<i64>,
    /// Failure handlers.
    pub handlers: Vec<i64>,
    /// Slurm schedulers.
    pub schedulers: Vec<i64>,
    /// Files.
    pub files: Vec<i64>,
    /// User data.
    pub user_data: Vec<i64>,
    /// Numbers of the families.
    pub families: Vec<u32>,
    /// Index of each failure handler in the engine.
    pub handler_indexes: Vec<HandlerIx>,
}

/// Takes over what the plan names. The engine's handlers are brought up to date with their rows.
pub fn take(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    plan: &Plan,
    found: &[FileFact],
    said: &Said,
) -> Result<Named, Failed> {
    let mut named = Named {
        requirements: requirements(tx.db, id, plan)?,
        handlers: handlers(tx.db, id, plan)?,
        schedulers: schedulers(tx.db, id, plan)?,
        files: files(tx.db, id, plan, found)?,
        user_data: user_data(tx.db, id, plan, said)?,
        families: families(tx.db, id, plan)?,
        handler_indexes: Vec::new(),
    };
    let (compiled, indexes) = super::load::handlers(tx.db, id)?;
    named.handler_indexes = named.handlers.iter().map(|row| indexes[row]).collect();
    if !plan.failure_handlers.is_empty() {
        tx.workflow(id)?.set_handlers(compiled);
    }
    Ok(named)
}

fn requirements(db: &Connection, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    let mut put = db.prepare_cached(
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

fn handlers(db: &Connection, id: WorkflowId, plan: &Plan) -> Result<Vec<i64>, Failed> {
    let mut put = db.prepare_cached(
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

fn schedulers(db: &Connection, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    let mut put = db.prepare_cached(
        "INSERT INTO slurm_scheduler (workflow_id, name, definition) VALUES (?1, ?2, ?3)
         ON CONFLICT (workflow_id, name) DO UPDATE SET definition = ?3 RETURNING id",
    )?;
    plan.slurm_schedulers
        .iter()
        .map(|s| put.query_row(params![id.0, s.name, json(Some(s))?], |row| row.get(0)))
        .collect()
}

/// A file at another place was not seen yet. Most files are there already and stay: the comparison
/// has found their rows.
fn files(
    db: &Connection,
    id: WorkflowId,
    plan: &Plan,
    found: &[FileFact],
) -> rusqlite::Result<Vec<i64>> {
    let mut rows: Vec<i64> = found.iter().map(|file| file.id).collect();
    let mut update = db.prepare_cached(
        "UPDATE file SET path = ?2, mtime_ms = NULL, size = NULL, hash = NULL WHERE id = ?1",
    )?;
    let mut resize = db.prepare_cached("UPDATE file SET min_size = ?2 WHERE id = ?1")?;
    for (fact, file) in found.iter().zip(&plan.files) {
        if fact.has_moved {
            update.execute(params![fact.id, file.path])?;
        }
        if fact.is_resized {
            resize.execute(params![fact.id, signed(file.min_size)])?;
        }
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO file (workflow_id, name, path, min_size) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (row, file) in rows.iter_mut().zip(&plan.files).filter(|(row, _)| **row == 0) {
        *row = insert.insert(params![id.0, file.name, file.path, signed(file.min_size)])?;
    }
    Ok(rows)
}

fn user_data(
    db: &Connection,
    id: WorkflowId,
    plan: &Plan,
    said: &Said,
) -> rusqlite::Result<Vec<i64>> {
    let mut put = db.prepare_cached(
        "INSERT INTO user_data (workflow_id, name, data, is_ephemeral) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (workflow_id, name) DO UPDATE SET data = iif(?5, data, ?3), is_ephemeral = ?4 RETURNING id",
    )?;
    let produced = produced_user_data(plan);
    let mut ids = Vec::new();
    for (user_data, is_produced) in plan.user_data.iter().zip(produced) {
        let keeps = is_produced || said.keeps(&user_data.name, user_data.data.as_ref());
        let data = user_data.data.as_ref().map(ToString::to_string);
        let values = params![id.0, user_data.name, data, user_data.is_ephemeral, keeps];
        ids.push(put.query_row(values, |row| row.get(0))?);
    }
    Ok(ids)
}

/// A family keeps its number: the rows of its jobs need not be written again.
fn families(db: &Connection, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<u32>> {
    let mut statement =
        db.prepare_cached("SELECT number, name FROM family WHERE workflow_id = ?1")?;
    let known = statement.query_map([id.0], |row| Ok((row.get(1)?, row.get(0)?)))?;
    let known: HashMap<String, u32> = known.collect::<Result<_, _>>()?;
    let mut taken: HashSet<u32> = known.values().copied().collect();
    let mut insert =
        db.prepare_cached("INSERT INTO family (workflow_id, number, name) VALUES (?1, ?2, ?3)")?;
    let mut numbers = Vec::with_capacity(plan.families.len());
    for name in &plan.families {
        let number = match known.get(name) {
            Some(number) => *number,
            None => {
                let next = taken.iter().max().map_or(0, |last| last + 1);
                insert.execute(params![id.0, next, name])?;
                taken.insert(next);
                next
            }
        };
        numbers.push(number);
    }
    Ok(numbers)
}

/// What the old spec said of things that people may change in between: where the new one says the
/// same, what people set holds.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Said {
    /// Name.
    pub name: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// Free text to group by.
    pub project: Option<String>,
    /// The user's JSON.
    pub metadata: Option<Value>,
    user_data: Vec<SaidData>,
}

#[derive(Deserialize)]
struct SaidData {
    name: String,
    #[serde(default)]
    data: Option<Value>,
}

impl Said {
    /// Of a spec that cannot be read it is unknown what it said; then the new one is right in
    /// everything.
    pub fn new(spec: &str) -> Self {
        serde_json::from_str(spec).unwrap_or_default()
    }

    /// The spec says the same of this piece of user data as before.
    pub fn keeps(&self, name: &str, data: Option<&Value>) -> bool {
        let said = self.user_data.iter().find(|said| said.name == name);
        said.and_then(|said| said.data.as_ref()) == data
    }
}
