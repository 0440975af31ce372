//! Allocations in Slurm.

use super::super::allocation_rows::{COLUMNS, view};
use super::super::last_words::UNEXPLAINED;
use super::page::{Filter, List, Paging};
use super::{Audience, ReadError, Reader};
use torc_model::api::Page;
use torc_model::slurm::wire::AllocationView;

const LIST: List = List {
    rows: COLUMNS,
    table: "scheduled_compute_node n",
    key: "n.id",
    sorts: &[("id", "n.id"), ("created_ms", "n.created_ms"), ("status", "n.status")],
};

/// Which allocations.
#[derive(Clone, Default, Debug)]
pub struct AllocationFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// In this status.
    pub status: Option<String>,
    /// Of this Slurm job.
    pub slurm_job_id: Option<String>,
    /// With this name in Slurm.
    pub name: Option<String>,
    /// Over, and Slurm may still say why.
    pub is_unexplained: bool,
}

impl Reader {
    /// One page of allocations.
    pub async fn list_allocations(
        &self,
        filter: AllocationFilter,
        paging: Paging,
    ) -> Result<Page<AllocationView>, ReadError> {
        self.read(move |connection| {
            let mut wanted = Filter::default()
                .with("n.workflow_id = ?", filter.workflow_id)
                .seen_by("n.workflow_id", &filter.audience)
                .with("n.status = ?", filter.status)
                .with("n.slurm_job_id = ?", filter.slurm_job_id)
                .with("n.name = ?", filter.name);
            if filter.is_unexplained {
                wanted = wanted.always(UNEXPLAINED);
            }
            LIST.page(connection, wanted, &paging, view)
        })
        .await
    }

    /// One allocation.
    pub async fn get_allocation(&self, id: i64) -> Result<AllocationView, ReadError> {
        self.read(move |connection| LIST.get(connection, "allocation", id, view)).await
    }
}
