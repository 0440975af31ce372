//! Slurm schedulers: how to ask for nodes.

use super::page::{self, Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use rusqlite::Row;
use torc_model::api::{Page, SlurmSchedulerView};
use torc_model::ids::WorkflowId;

const LIST: List = List {
    rows: "SELECT s.id, s.workflow_id, s.name, s.definition FROM slurm_scheduler s",
    table: "slurm_scheduler s",
    key: "s.id",
    sorts: &[("id", "s.id"), ("name", "s.name")],
};

/// Which Slurm schedulers.
#[derive(Clone, Default, Debug)]
pub struct SchedulerFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
}

impl Reader {
    /// One page of Slurm schedulers.
    pub async fn list_schedulers(
        &self,
        filter: SchedulerFilter,
        paging: Paging,
    ) -> Result<Page<SlurmSchedulerView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("s.workflow_id = ?", filter.workflow_id)
                .seen_by("s.workflow_id", &filter.audience)
                .with("s.name = ?", filter.name);
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }

    /// One Slurm scheduler.
    pub async fn get_scheduler(&self, id: i64) -> Result<SlurmSchedulerView, ReadError> {
        self.read(move |connection| LIST.get(connection, "slurm scheduler", id, view)).await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<SlurmSchedulerView> {
    let definition: Option<torc_model::plan::SlurmScheduler> = page::json(row, "definition")?;
    let mut scheduler = definition.unwrap_or_default();
    scheduler.name = row.get("name")?;
    Ok(SlurmSchedulerView {
        id: row.get("id")?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        scheduler,
    })
}
