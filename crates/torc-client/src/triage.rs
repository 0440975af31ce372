//! Failures that wait for a verdict, and the verdicts.

use crate::{Client, Error, Query};
use std::time::Duration;
use torc_model::api::Page;
use torc_model::ids::WorkflowId;
use torc_model::recovery::{
    ClassificationView, ClassifyRequest, ClassifyView, MemoryRequest, PendingFailures,
    ResolveRequest,
};

/// Thousands of verdicts are one transaction.
const LARGE: Duration = Duration::from_secs(120);

impl Client {
    /// What waits for a verdict; `query` may hold `groups`, `examples` and `fingerprint`.
    pub async fn pending_failures(
        &self,
        id: WorkflowId,
        query: &Query,
    ) -> Result<PendingFailures, Error> {
        self.get(&format!("/workflows/{id}/pending_failures{query}")).await
    }

    /// Gives verdicts, all or none.
    pub async fn classify(
        &self,
        id: WorkflowId,
        body: &ClassifyRequest,
    ) -> Result<ClassifyView, Error> {
        self.with_time_limit(LARGE).post(&format!("/workflows/{id}/classify"), body).await
    }

    /// Lets the record of earlier verdicts decide where it is strong.
    pub async fn classify_from_memory(
        &self,
        id: WorkflowId,
        body: &MemoryRequest,
    ) -> Result<ClassifyView, Error> {
        self.with_time_limit(LARGE)
            .post(&format!("/workflows/{id}/classify_from_memory"), body)
            .await
    }

    /// Verdicts; `query` may hold `workflow_id`, `job_id` and `state`.
    pub async fn list_classifications(
        &self,
        query: &Query,
    ) -> Result<Page<ClassificationView>, Error> {
        self.get(&format!("/classifications{query}")).await
    }

    /// Carries out a verdict that waits for a person.
    pub async fn accept_classification(
        &self,
        id: i64,
        body: &ResolveRequest,
    ) -> Result<ClassificationView, Error> {
        self.post(&format!("/classifications/{id}/accept"), body).await
    }

    /// Drops a verdict that waits for a person.
    pub async fn reject_classification(
        &self,
        id: i64,
        body: &ResolveRequest,
    ) -> Result<ClassificationView, Error> {
        self.post(&format!("/classifications/{id}/reject"), body).await
    }
}
