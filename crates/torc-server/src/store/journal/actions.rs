//! Rows of actions that a plan or a recovery brings. What becomes of them are `Change`s.

use super::json;
use super::load::parse;
use crate::store::read::page;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use torc_model::ids::{ActionId, JobId, WorkflowId};
use torc_model::plan::ActionKind;
use torc_model::status::{ActionState, Trigger};

/// A new action.
pub struct ActionRow<'a> {
    /// When it is due.
    pub trigger: Trigger,
    /// What is done.
    pub what: &'a ActionKind,
    /// For which jobs.
    pub jobs: &'a [JobId],
    /// For every runner that comes or goes.
    pub persistent: bool,
    /// A recovery added it.
    pub is_recovery: bool,
}

/// Writes an action that waits for its trigger.
pub fn insert_action(
    db: &Connection,
    workflow: WorkflowId,
    action: &ActionRow<'_>,
) -> rusqlite::Result<ActionId> {
    db.prepare_cached(
        "INSERT INTO workflow_action (workflow_id, trigger_type, what, job_ids, persistent, is_recovery, state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .insert(params![
        workflow.0,
        action.trigger.as_str(),
        json(Some(action.what))?,
        json(Some(&action.jobs))?,
        action.persistent,
        action.is_recovery,
        ActionState::Waiting.as_str(),
    ])
    .map(ActionId)
}

/// Workflows with triggered actions that ask for nodes.
pub fn workflows_with_schedules(db: &Connection) -> rusqlite::Result<Vec<WorkflowId>> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT workflow_id FROM workflow_action WHERE state = 'triggered'
         AND what ->> 'action_type' = 'schedule_nodes' ORDER BY 1",
    )?;
    statement.query_map([], |row| row.get(0).map(WorkflowId))?.collect()
}

/// Deletes an action that a new spec does not have.
pub fn delete_action(db: &Connection, id: ActionId) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM workflow_action WHERE id = ?1")?.execute([id.0])?;
    Ok(())
}

/// An action, as its row has it.
pub struct StoredAction {
    pub workflow: WorkflowId,
    /// When it is due.
    pub trigger: Trigger,
    /// What is done.
    pub what: ActionKind,
    /// A recovery added it.
    pub is_recovery: bool,
}

/// One action.
pub fn action(db: &Connection, id: ActionId) -> rusqlite::Result<Option<StoredAction>> {
    db.prepare_cached(
        "SELECT workflow_id, trigger_type, what, is_recovery FROM workflow_action WHERE id = ?1",
    )?
    .find([id.0], |row| {
        Ok(StoredAction {
            workflow: WorkflowId(row.get(0)?),
            trigger: page::word(row, 1, Trigger::parse)?,
            what: parse(&row.get::<_, String>(2)?)?,
            is_recovery: row.get(3)?,
        })
    })
}

/// An action that the spec defines, with the texts of its row.
pub struct DefinedAction {
    pub id: ActionId,
    /// When it is due.
    pub trigger: String,
    /// What is done.
    pub what: String,
    /// For which jobs, in the order of their rows.
    pub jobs: Vec<JobId>,
    /// For every runner that comes or goes.
    pub persistent: bool,
    /// What became of it.
    pub state: ActionState,
}

/// The actions of a workflow, without those that a recovery added.
pub fn defined_actions(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<DefinedAction>> {
    db.prepare_cached(
        "SELECT id, trigger_type, what, job_ids, persistent, state FROM workflow_action
         WHERE workflow_id = ?1 AND is_recovery = 0 ORDER BY id",
    )?
    .all([id.0], |row| {
        let mut jobs: Vec<JobId> = parse(&row.get::<_, String>(3)?)?;
        jobs.sort();
        Ok(DefinedAction {
            id: ActionId(row.get(0)?),
            trigger: row.get(1)?,
            what: row.get(2)?,
            jobs,
            persistent: row.get(4)?,
            state: page::word(row, 5, ActionState::parse)?,
        })
    })
}
