//! What a runner says to the server.

use crate::{Client, Error};
use std::time::Duration;
use torc_model::api::*;
use torc_model::ids::{ActionId, PoolRunnerId, RunnerId, WorkflowId};

/// On top of what a request waits at the server, for the commit and the way back.
const MARGIN: Duration = Duration::from_secs(30);

impl Client {
    /// Introduces a runner. A repeat with the same key gets the same id.
    pub async fn register_runner(&self, body: &RegisterRunner) -> Result<RunnerRegistered, Error> {
        self.post("/compute_nodes", body).await
    }

    /// Asks for work and reports in the same request. A repeat with the same key gets the same
    /// answer.
    pub async fn claim(
        &self,
        workflow: WorkflowId,
        body: &ClaimRequest,
    ) -> Result<ClaimResponse, Error> {
        let wait = Duration::try_from_secs_f64(body.wait_seconds).unwrap_or_default();
        self.post_within(&format!("/workflows/{workflow}/claim"), body, wait + MARGIN).await
    }

    /// Introduces a pool runner. A repeat with the same key gets the same id.
    pub async fn register_pool_runner(
        &self,
        body: &RegisterPoolRunner,
    ) -> Result<PoolRunnerView, Error> {
        self.post("/pool_runners", body).await
    }

    /// Asks which workflow a pool runner should serve next.
    pub async fn claim_for_pool(
        &self,
        pool: PoolRunnerId,
        body: &PoolClaimRequest,
    ) -> Result<PoolClaimResponse, Error> {
        let wait = Duration::try_from_secs_f64(body.wait_seconds).unwrap_or_default();
        self.post_within(&format!("/pool_runners/{pool}/claim"), body, wait + MARGIN).await
    }

    /// Hands over pieces of outputs, and waits for what else a pool runner should read.
    pub async fn pool_reads(
        &self,
        pool: PoolRunnerId,
        body: &PoolReadsRequest,
    ) -> Result<PoolReads, Error> {
        let wait = Duration::try_from_secs_f64(body.wait_seconds).unwrap_or_default();
        self.post_within(&format!("/pool_runners/{pool}/reads"), body, wait + MARGIN).await
    }

    /// Says that a pool runner leaves. Safe to repeat.
    pub async fn pool_goodbye(&self, pool: PoolRunnerId, body: &Goodbye) -> Result<(), Error> {
        let path = format!("/pool_runners/{pool}/goodbye");
        self.post::<PoolRunnerView>(&path, body).await.map(drop)
    }

    /// Reports starts. Safe to repeat.
    pub async fn start_attempts(&self, body: &StartBatch) -> Result<ReportResults, Error> {
        self.post("/attempts/start", body).await
    }

    /// Reports ends. Safe to repeat.
    pub async fn complete_attempts(&self, body: &CompletionBatch) -> Result<ReportResults, Error> {
        self.post("/attempts/complete", body).await
    }

    /// Says that a runner lives and what it holds. Safe to repeat.
    pub async fn heartbeat(&self, body: &Heartbeat) -> Result<HeartbeatAnswer, Error> {
        self.post("/attempts/heartbeat", body).await
    }

    /// Says that a runner leaves; the answer holds what it must still do. Safe to repeat.
    pub async fn goodbye(&self, runner: RunnerId, body: &Goodbye) -> Result<GoodbyeAnswer, Error> {
        self.post(&format!("/compute_nodes/{runner}/goodbye"), body).await
    }

    /// Says how an action went. Safe to repeat.
    pub async fn complete_action(
        &self,
        action: ActionId,
        body: &ActionReport,
    ) -> Result<(), Error> {
        self.post::<serde_json::Value>(&format!("/actions/{action}/complete"), body).await.map(drop)
    }
}
