//! Workflow actions.

use super::page::{self, Filter, List, Paging};
use super::{ReadError, Reader};
use rusqlite::Row;
use torc_model::api::{ActionView, Page};
use torc_model::ids::{ActionId, RunnerId, WorkflowId};
use torc_model::status::{ActionState, Trigger};

const LIST: List = List {
    rows: "SELECT a.* FROM workflow_action a",
    table: "workflow_action a",
    key: "a.id",
    sorts: &[("id", "a.id"), ("trigger_type", "a.trigger_type"), ("state", "a.state")],
};

/// Which actions.
#[derive(Clone, Default, Debug)]
pub struct ActionFilter {
    /// With this trigger.
    pub trigger: Option<Trigger>,
    /// In this state.
    pub state: Option<ActionState>,
}

impl Reader {
    /// One page of a workflow's actions.
    pub async fn list_actions(
        &self,
        workflow: WorkflowId,
        filter: ActionFilter,
        paging: Paging,
    ) -> Result<Page<ActionView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("a.workflow_id = ?", Some(workflow.0))
                .with("a.trigger_type = ?", filter.trigger.map(|t| t.as_str().to_string()))
                .with("a.state = ?", filter.state.map(|s| s.as_str().to_string()));
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// One action.
    pub async fn get_action(&self, id: ActionId) -> Result<ActionView, ReadError> {
        self.read(move |connection| LIST.get(connection, "action", id.0, view)).await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<ActionView> {
    Ok(ActionView {
        id: page::id(row, "id", ActionId)?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        trigger_type: page::word(row, "trigger_type", Trigger::parse)?,
        what: page::json(row, "what")?.unwrap_or_default(),
        job_ids: page::json(row, "job_ids")?.unwrap_or_default(),
        persistent: row.get("persistent")?,
        is_recovery: row.get("is_recovery")?,
        state: page::word(row, "state", ActionState::parse)?,
        executed_by: page::maybe_id(row, "executed_by", RunnerId)?,
        executed_ms: row.get("executed_ms")?,
        error: row.get("error")?,
    })
}
