//! Pieces of JSON that jobs hand to each other.

use super::Audience;
use super::page::{self, Filter, List, Listed};
use rusqlite::Row;
use torc_model::api::UserDataView;
use torc_model::ids::WorkflowId;

/// Which pieces of user data.
#[derive(Clone, Default, Debug)]
pub struct UserDataFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
    /// Cleared by reinitialize, or kept.
    pub is_ephemeral: Option<bool>,
    /// Written by this job.
    pub producer_job_id: Option<i64>,
    /// Read by this job.
    pub consumer_job_id: Option<i64>,
}

impl Listed for UserDataView {
    type Filter = UserDataFilter;
    const LIST: List = List {
        rows: "SELECT u.id, u.workflow_id, u.name, u.data, u.is_ephemeral FROM user_data u",
        table: "user_data u",
        key: "u.id",
        sorts: &[("id", "u.id"), ("name", "u.name")],
    };
    const WHAT: &'static str = "user data";

    fn conditions(filter: UserDataFilter) -> Filter {
        Filter::default()
            .with("u.workflow_id = ?", filter.workflow_id)
            .seen_by("u.workflow_id", &filter.audience)
            .with("u.name = ?", filter.name)
            .with("u.is_ephemeral = ?", filter.is_ephemeral)
            .with(
                "u.id IN (SELECT item_id FROM job_item WHERE job_id = ? AND kind = 'output_user_data')",
                filter.producer_job_id,
            )
            .with(
                "u.id IN (SELECT item_id FROM job_item WHERE job_id = ? AND kind = 'input_user_data')",
                filter.consumer_job_id,
            )
    }

    fn view(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            workflow_id: page::id(row, "workflow_id", WorkflowId)?,
            name: row.get("name")?,
            data: page::json(row, "data")?,
            is_ephemeral: row.get("is_ephemeral")?,
        })
    }
}
