//! Resource requirements.

use super::jobs::{memory_text, runtime_text};
use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use rusqlite::Row;
use torc_model::api::{Page, RequirementsView};
use torc_model::ids::WorkflowId;

const LIST: List = List {
    rows: "SELECT r.* FROM resource_requirements r",
    table: "resource_requirements r",
    key: "r.id",
    sorts: &[
        ("id", "r.id"),
        ("name", "r.name"),
        ("num_cpus", "r.num_cpus"),
        ("num_gpus", "r.num_gpus"),
        ("num_nodes", "r.num_nodes"),
        ("memory", "r.memory_bytes"),
        ("runtime", "r.runtime_seconds"),
    ],
};

/// Which resource requirements.
#[derive(Clone, Default, Debug)]
pub struct RequirementsFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
    /// Those of this job.
    pub job_id: Option<i64>,
}

impl Reader {
    /// One page of resource requirements.
    pub async fn list_requirements(
        &self,
        filter: RequirementsFilter,
        paging: Paging,
    ) -> Result<Page<RequirementsView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("r.workflow_id = ?", filter.workflow_id)
                .seen_by("r.workflow_id", &filter.audience)
                .with("r.name = ?", filter.name)
                .with(
                    "r.id = (SELECT resource_requirements_id FROM job WHERE id = ?)",
                    filter.job_id,
                );
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// One set of resource requirements.
    pub async fn get_requirements(&self, id: i64) -> Result<RequirementsView, ReadError> {
        self.read(move |connection| LIST.get(connection, "resource requirements", id, view)).await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<RequirementsView> {
    Ok(RequirementsView {
        id: row.get("id")?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        name: row.get("name")?,
        num_cpus: row.get("num_cpus")?,
        num_gpus: row.get("num_gpus")?,
        num_nodes: row.get("num_nodes")?,
        memory: row.get::<_, Option<i64>>("memory_bytes")?.map(memory_text),
        runtime: row.get::<_, Option<i64>>("runtime_seconds")?.map(runtime_text),
    })
}
