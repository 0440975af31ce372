//! Failure handlers.

use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use rusqlite::Row;
use torc_model::api::{FailureHandlerView, Page};
use torc_model::ids::WorkflowId;

const LIST: List = List {
    rows: "SELECT h.id, h.workflow_id, h.name, h.rules FROM failure_handler h",
    table: "failure_handler h",
    key: "h.id",
    sorts: &[("id", "h.id"), ("name", "h.name")],
};

/// Which failure handlers.
#[derive(Clone, Default, Debug)]
pub struct FailureHandlerFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
}

impl Reader {
    /// One page of failure handlers.
    pub async fn list_failure_handlers(
        &self,
        filter: FailureHandlerFilter,
        paging: Paging,
    ) -> Result<Page<FailureHandlerView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("h.workflow_id = ?", filter.workflow_id)
                .seen_by("h.workflow_id", &filter.audience)
                .with("h.name = ?", filter.name);
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// One failure handler.
    pub async fn get_failure_handler(&self, id: i64) -> Result<FailureHandlerView, ReadError> {
        self.read(move |connection| LIST.get(connection, "failure handler", id, view)).await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<FailureHandlerView> {
    Ok(FailureHandlerView {
        id: row.get("id")?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        name: row.get("name")?,
        rules: row.get("rules")?,
    })
}
