//! Slurm schedulers: how to ask for nodes.

use super::page::{self, Filter, List, Listed, NamedFilter};
use rusqlite::Row;
use torc_model::api::SlurmSchedulerView;
use torc_model::ids::WorkflowId;

impl Listed for SlurmSchedulerView {
    type Filter = NamedFilter;
    const LIST: List = List {
        rows: "SELECT s.id, s.workflow_id, s.name, s.definition FROM slurm_scheduler s",
        table: "slurm_scheduler s",
        key: "s.id",
        sorts: &[("id", "s.id"), ("name", "s.name")],
    };
    const WHAT: &'static str = "slurm scheduler";

    fn conditions(filter: NamedFilter) -> Filter {
        Filter::default()
            .with("s.workflow_id = ?", filter.workflow_id)
            .seen_by("s.workflow_id", &filter.audience)
            .with("s.name = ?", filter.name)
    }

    fn view(row: &Row<'_>) -> rusqlite::Result<Self> {
        let definition: Option<torc_model::plan::SlurmScheduler> = page::json(row, "definition")?;
        let mut scheduler = definition.unwrap_or_default();
        scheduler.name = row.get("name")?;
        Ok(Self {
            id: row.get("id")?,
            workflow_id: page::id(row, "workflow_id", WorkflowId)?,
            scheduler,
        })
    }
}
