//! Failure handlers.

use super::page::{self, Filter, List, Listed, NamedFilter};
use rusqlite::Row;
use torc_model::api::FailureHandlerView;
use torc_model::ids::WorkflowId;

impl Listed for FailureHandlerView {
    type Filter = NamedFilter;
    const LIST: List = List {
        rows: "SELECT h.id, h.workflow_id, h.name, h.rules FROM failure_handler h",
        table: "failure_handler h",
        key: "h.id",
        sorts: &[("id", "h.id"), ("name", "h.name")],
    };
    const WHAT: &'static str = "failure handler";

    fn conditions(filter: NamedFilter) -> Filter {
        Filter::default()
            .with("h.workflow_id = ?", filter.workflow_id)
            .seen_by("h.workflow_id", &filter.audience)
            .with("h.name = ?", filter.name)
    }

    fn view(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            workflow_id: page::id(row, "workflow_id", WorkflowId)?,
            name: row.get("name")?,
            rules: row.get("rules")?,
        })
    }
}
