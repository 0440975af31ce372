//! Resource requirements.

use super::Audience;
use super::jobs::{memory_text, runtime_text};
use super::page::{self, Filter, List, Listed};
use rusqlite::Row;
use torc_model::api::RequirementsView;
use torc_model::ids::WorkflowId;

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

impl Listed for RequirementsView {
    type Filter = RequirementsFilter;
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
    const WHAT: &'static str = "resource requirements";

    fn conditions(filter: RequirementsFilter) -> Filter {
        Filter::default()
            .with("r.workflow_id = ?", filter.workflow_id)
            .seen_by("r.workflow_id", &filter.audience)
            .with("r.name = ?", filter.name)
            .with("r.id = (SELECT resource_requirements_id FROM job WHERE id = ?)", filter.job_id)
    }

    fn view(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
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
}
