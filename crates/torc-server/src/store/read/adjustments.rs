//! What recovery changed for jobs, and what it learned.

use super::page::{self, Filter, List, Paging};
use super::{ReadError, Reader};
use rusqlite::Row;
use torc_model::api::Page;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{AdjustmentView, Change, KnownFailure};
use torc_model::status::Adjustable;

const LIST: List = List {
    rows: "SELECT d.*, j.name AS job_name FROM adjustment d JOIN job j ON j.id = d.job_id",
    table: "adjustment d",
    key: "d.id",
    sorts: &[("id", "d.id"), ("job_id", "d.job_id")],
};

impl Reader {
    /// What was learned from retries: of all failures, or of one.
    pub async fn knowledge(&self, only: Option<String>) -> Result<Vec<KnownFailure>, ReadError> {
        self.read(move |connection| Ok(crate::store::knowledge::list(connection, only.as_deref())?))
            .await
    }

    /// The changes that recovery made in a workflow, or for one job of it, oldest first.
    pub async fn list_adjustments(
        &self,
        workflow: WorkflowId,
        job: Option<JobId>,
        paging: Paging,
    ) -> Result<Page<AdjustmentView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("d.workflow_id = ?", Some(workflow.0))
                .with("d.job_id = ?", job.map(|job| job.0));
            LIST.page(connection, filter, &paging, view)
        })
        .await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<AdjustmentView> {
    Ok(AdjustmentView {
        id: row.get("id")?,
        workflow_id: page::id(row, "workflow_id", WorkflowId)?,
        job_id: page::id(row, "job_id", JobId)?,
        job_name: row.get("job_name")?,
        run_id: row.get("run_id")?,
        attempt_id: row.get("attempt_id")?,
        change: Change {
            field: page::word(row, "field", Adjustable::parse)?,
            from: row.get("from_value")?,
            to: row.get("to_value")?,
        },
        why: row.get("why")?,
        by: row.get("made_by")?,
        created_ms: row.get("created_ms")?,
    })
}
