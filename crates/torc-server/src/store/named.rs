//! What a plan names besides its jobs, in the rows of a workflow that exists: requirements, handlers,
//! schedulers, files, user data and families are told by their names. What the plan says of them is
//! taken over; rows that it does not name stay.

use super::facts::FileFact;
use super::job_rows::produced_user_data;
use super::journal::{self, UserDataRow, definitions, json};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use torc_engine::commands::SetHandlers;
use torc_engine::{CompiledHandler, HandlerIx, On};
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
        tx.handle(On(id, SetHandlers { handlers: compiled }))?;
    }
    Ok(named)
}

/// The rows of a plan's names in a workflow that has none yet.
pub fn fresh(db: &Connection, id: WorkflowId, plan: &Plan) -> Result<Named, Failed> {
    for (number, name) in plan.families.iter().enumerate() {
        journal::insert_family(db, id, number as u32, name)?;
    }
    Ok(Named {
        requirements: requirements(db, id, plan)?,
        handlers: handlers(db, id, plan)?,
        schedulers: schedulers(db, id, plan)?,
        files: plan
            .files
            .iter()
            .map(|file| journal::insert_file(db, id, file))
            .collect::<Result<_, _>>()?,
        user_data: user_data(db, id, plan, &Said::default())?,
        families: (0..plan.families.len() as u32).collect(),
        handler_indexes: (0..plan.failure_handlers.len()).map(HandlerIx::new).collect(),
    })
}

fn requirements(db: &Connection, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    plan.resource_requirements.iter().map(|new| journal::put_requirements(db, id, new)).collect()
}

fn handlers(db: &Connection, id: WorkflowId, plan: &Plan) -> Result<Vec<i64>, Failed> {
    let mut ids = Vec::new();
    for handler in &plan.failure_handlers {
        CompiledHandler::new(&handler.name, &handler.rules)
            .map_err(|e| Refusal::invalid("failure_handlers", e.to_string()))?;
        let rules = json(Some(&handler.rules))?.unwrap_or_default();
        ids.push(journal::put_handler(db, id, &handler.name, &rules)?);
    }
    Ok(ids)
}

fn schedulers(db: &Connection, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<i64>> {
    plan.slurm_schedulers.iter().map(|new| journal::put_scheduler(db, id, &new.name, new)).collect()
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
    for (fact, file) in found.iter().zip(&plan.files) {
        if fact.has_moved {
            journal::move_file(db, fact.id, &file.path)?;
        }
        if fact.is_resized {
            journal::resize_file(db, fact.id, file.min_size)?;
        }
    }
    for (row, file) in rows.iter_mut().zip(&plan.files).filter(|(row, _)| **row == 0) {
        *row = journal::insert_file(db, id, file)?;
    }
    Ok(rows)
}

fn user_data(
    db: &Connection,
    id: WorkflowId,
    plan: &Plan,
    said: &Said,
) -> rusqlite::Result<Vec<i64>> {
    let mut ids = Vec::new();
    for (user_data, is_produced) in plan.user_data.iter().zip(produced_user_data(plan)) {
        let row = UserDataRow {
            name: &user_data.name,
            data: user_data.data.as_ref().map(ToString::to_string),
            is_ephemeral: user_data.is_ephemeral,
            keeps: is_produced || said.keeps(&user_data.name, user_data.data.as_ref()),
        };
        ids.push(journal::put_user_data(db, id, &row)?);
    }
    Ok(ids)
}

/// A family keeps its number: the rows of its jobs need not be written again.
fn families(db: &Connection, id: WorkflowId, plan: &Plan) -> rusqlite::Result<Vec<u32>> {
    let known = definitions::names(db, id, definitions::Named::Families)?;
    let known: HashMap<String, u32> =
        known.into_iter().map(|(number, name)| (name, number as u32)).collect();
    let mut taken: HashSet<u32> = known.values().copied().collect();
    let mut numbers = Vec::with_capacity(plan.families.len());
    for name in &plan.families {
        let number = match known.get(name) {
            Some(number) => *number,
            None => {
                let next = taken.iter().max().map_or(0, |last| last + 1);
                journal::insert_family(db, id, next, name)?;
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
