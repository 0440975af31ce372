//! What is said about allocations in Slurm.

use crate::{Client, Error, Query};
use torc_model::ids::WorkflowId;
use torc_model::slurm::wire::{
    AllocationView, Allocations, BeginSubmission, Observations, ObservedView, RegenerateRequest,
    RegeneratedView, ScheduleNodes, SubmissionOrders, SubmissionReport,
};

impl Client {
    /// Every allocation; `query` holds `workflow_id`, `status`, `name` or `slurm_job_id`.
    pub async fn list_allocations(&self, query: &Query) -> Result<Vec<AllocationView>, Error> {
        self.list_all("/scheduled_compute_nodes", query).await
    }

    /// Asks for allocations. A repeat with the same key gets the same ones.
    pub async fn schedule_nodes(&self, body: &ScheduleNodes) -> Result<Allocations, Error> {
        self.post("/scheduled_compute_nodes", body).await
    }

    /// Gives up an allocation that waits.
    pub async fn cancel_allocation(&self, id: i64) -> Result<AllocationView, Error> {
        self.post(&format!("/scheduled_compute_nodes/{id}/cancel"), &serde_json::json!({})).await
    }

    /// Takes up what waits to be sent to Slurm.
    pub async fn begin_submission(
        &self,
        body: &BeginSubmission,
    ) -> Result<SubmissionOrders, Error> {
        self.post("/scheduled_compute_nodes/begin", body).await
    }

    /// Tells how sending went.
    pub async fn report_submission(&self, body: &SubmissionReport) -> Result<Allocations, Error> {
        self.post("/scheduled_compute_nodes/submitted", body).await
    }

    /// Tells what was seen of allocations in Slurm.
    pub async fn observe_allocations(&self, body: &Observations) -> Result<ObservedView, Error> {
        self.post("/scheduled_compute_nodes/observe", body).await
    }

    /// Gives jobs that still have to run new schedulers.
    pub async fn regenerate(
        &self,
        id: WorkflowId,
        body: &RegenerateRequest,
    ) -> Result<RegeneratedView, Error> {
        self.post(&format!("/workflows/{id}/regenerate"), body).await
    }
}
