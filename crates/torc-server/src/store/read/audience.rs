//! Whose eyes a list is for.

use super::page::Filter;
use super::{ReadError, Reader};
use rusqlite::{Connection, OptionalExtension as _};
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
    /// As a word of the API, and the question for its workflow.
    fn lookup(self) -> (&'static str, &'static str) {
        match self {
            Self::Workflow => ("workflow", "SELECT id FROM workflow WHERE id = ?"),
            Self::Job => ("job", "SELECT workflow_id FROM job WHERE id = ?"),
            Self::Attempt => ("attempt", "SELECT workflow_id FROM attempt WHERE id = ?"),
            Self::Runner => ("compute node", "SELECT workflow_id FROM compute_node WHERE id = ?"),
            Self::Action => ("action", "SELECT workflow_id FROM workflow_action WHERE id = ?"),
            Self::File => ("file", "SELECT workflow_id FROM file WHERE id = ?"),
            Self::UserData => ("user data", "SELECT workflow_id FROM user_data WHERE id = ?"),
            Self::Requirements => (
                "resource requirements",
                "SELECT workflow_id FROM resource_requirements WHERE id = ?",
            ),
            Self::FailureHandler => {
                ("failure handler", "SELECT workflow_id FROM failure_handler WHERE id = ?")
            }
            Self::Scheduler => {
                ("slurm scheduler", "SELECT workflow_id FROM slurm_scheduler WHERE id = ?")
            }
            Self::Allocation => (
                "scheduled compute node",
                "SELECT workflow_id FROM scheduled_compute_node WHERE id = ?",
            ),
            Self::Classification => {
                ("classification", "SELECT workflow_id FROM classification WHERE id = ?")
            }
        }
    }

    /// It is not there, or the caller may not know that it is.
    pub fn not_found(self, id: i64) -> ReadError {
        ReadError::NotFound { what: self.lookup().0, id }
    }
}

impl Reader {
    /// The workflow that a thing belongs to.
    pub async fn workflow_of(&self, thing: Thing, id: i64) -> Result<WorkflowId, ReadError> {
        self.read(move |connection| {
            let found = super::page::find(connection, thing.lookup().1, id)?;
            found.map(WorkflowId).ok_or_else(|| thing.not_found(id))
        })
        .await
    }

    /// Who may see a workflow; None: there is none.
    pub async fn sharers(&self, id: WorkflowId) -> Result<Option<Sharers>, ReadError> {
        self.read(move |connection| Ok(sharers_of(connection, id)?)).await
    }
}

/// Who may see a workflow; None: there is none.
pub fn sharers_of(connection: &Connection, id: WorkflowId) -> rusqlite::Result<Option<Sharers>> {
    let owner: Option<String> = connection
        .prepare_cached("SELECT user FROM workflow WHERE id = ?")?
        .query_row([id.0], |row| row.get(0))
        .optional()?;
    let Some(owner) = owner else { return Ok(None) };
    let groups = connection
        .prepare_cached("SELECT group_id FROM workflow_access_group WHERE workflow_id = ?")?
        .query_map([id.0], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let members = connection
        .prepare_cached(
            "SELECT m.user FROM workflow_access_group g
             JOIN access_group_member m ON m.group_id = g.group_id WHERE g.workflow_id = ?",
        )?
        .query_map([id.0], |row| row.get(0))?
        .collect::<rusqlite::Result<HashSet<String>>>()?;
    Ok(Some(Sharers { owner, members, groups }))
}
