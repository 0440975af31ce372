//! Whose eyes a list is for.

use super::page::Filter;
use super::{ReadError, Reader};
use crate::store::journal::lookups;
use crate::store::rows::Rows as _;
use rusqlite::Connection;
use std::collections::HashSet;
use std::sync::Arc;
use torc_model::ids::WorkflowId;

/// Of which workflows a list tells.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Audience {
    /// All of them.
    #[default]
    All,
    /// This user's own, and those of their groups.
    User(Arc<str>),
    /// Those of this group.
    Group(i64),
}

impl Filter {
    /// Only rows whose `column`, a workflow's id, the audience may see.
    pub fn seen_by(self, column: &'static str, audience: &Audience) -> Self {
        match audience {
            Audience::All => self,
            Audience::User(user) => {
                let condition = format!(
                    "{column} IN (WITH me(name) AS (VALUES (?)) \
                     SELECT own.id FROM workflow own JOIN me ON own.user = me.name \
                     UNION SELECT shared.workflow_id FROM access_group_member m JOIN me ON m.user = me.name \
                     JOIN workflow_access_group shared ON shared.group_id = m.group_id)"
                );
                self.and(&condition, user.to_string().into())
            }
            Audience::Group(id) => {
                let condition = format!(
                    "{column} IN (SELECT workflow_id FROM workflow_access_group WHERE group_id = ?)"
                );
                self.and(&condition, (*id).into())
            }
        }
    }
}

/// Who may see a workflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sharers {
    /// Whose it is.
    pub owner: String,
    /// The members of its groups.
    pub members: HashSet<String>,
    /// Its groups.
    pub groups: Vec<i64>,
}

/// What an id in a path names. Each belongs to a workflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thing {
    /// A workflow itself.
    Workflow,
    /// A job.
    Job,
    /// An attempt.
    Attempt,
    /// A runner.
    Runner,
    /// An action.
    Action,
    /// A file.
    File,
    /// A piece of user data.
    UserData,
    /// Resource requirements.
    Requirements,
    /// A failure handler.
    FailureHandler,
    /// A Slurm scheduler.
    Scheduler,
    /// An allocation.
    Allocation,
    /// A verdict.
    Classification,
}

impl Thing {
    /// As a word of the API, and its table.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Workflow => ("workflow", "workflow"),
            Self::Job => ("job", "job"),
            Self::Attempt => ("attempt", "attempt"),
            Self::Runner => ("compute node", "compute_node"),
            Self::Action => ("action", "workflow_action"),
            Self::File => ("file", "file"),
            Self::UserData => ("user data", "user_data"),
            Self::Requirements => ("resource requirements", "resource_requirements"),
            Self::FailureHandler => ("failure handler", "failure_handler"),
            Self::Scheduler => ("slurm scheduler", "slurm_scheduler"),
            Self::Allocation => ("scheduled compute node", "scheduled_compute_node"),
            Self::Classification => ("classification", "classification"),
        }
    }

    /// The workflow that it belongs to.
    pub fn workflow(self, connection: &Connection, id: i64) -> Result<WorkflowId, ReadError> {
        let column = if self == Self::Workflow { "id" } else { "workflow_id" };
        let sql = format!("SELECT {column} FROM {} WHERE id = ?", self.place().1);
        let found = super::page::find(connection, &sql, id)?;
        found.map(WorkflowId).ok_or_else(|| self.not_found(id))
    }

    /// It is not there, or the caller may not know that it is.
    pub fn not_found(self, id: i64) -> ReadError {
        ReadError::NotFound { what: self.place().0, id }
    }
}

impl Reader {
    /// The workflow that a thing belongs to.
    pub async fn workflow_of(&self, thing: Thing, id: i64) -> Result<WorkflowId, ReadError> {
        self.read(move |connection| thing.workflow(connection, id)).await
    }

    /// Who may see a workflow; None: there is none.
    pub async fn sharers(&self, id: WorkflowId) -> Result<Option<Sharers>, ReadError> {
        self.read(move |connection| Ok(sharers_of(connection, id)?)).await
    }
}

/// Who may see a workflow; None: there is none.
pub fn sharers_of(connection: &Connection, id: WorkflowId) -> rusqlite::Result<Option<Sharers>> {
    let Some((_, owner)) = lookups::name_and_user(connection, id)? else { return Ok(None) };
    let groups = connection
        .prepare_cached("SELECT group_id FROM workflow_access_group WHERE workflow_id = ?")?
        .all([id.0], |row| row.get(0))?;
    let members = connection
        .prepare_cached(
            "SELECT m.user FROM workflow_access_group g
             JOIN access_group_member m ON m.group_id = g.group_id WHERE g.workflow_id = ?",
        )?
        .all([id.0], |row| row.get(0))?;
    Ok(Some(Sharers { owner, members, groups }))
}
