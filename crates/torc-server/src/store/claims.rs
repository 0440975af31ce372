//! How runners get work, wait for it and report: a request that waits holds no transaction.

use super::pool_runners::{self, PoolWait};
use super::writer::{Failed, Tx};
use super::{Refusal, Store, parked_claims, random, read, runners};
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_model::api::{
    ClaimRequest, ClaimResponse, CompletionBatch, PoolClaimRequest, PoolClaimResponse,
    ReportResult, ReportResults, StartBatch,
};
use torc_model::ids::{PoolRunnerId, RunnerId, WorkflowId};

impl Store {
    /// Gives work to a runner; waits for some if it asked to.
    pub async fn claim(
        &self,
        id: WorkflowId,
        request: ClaimRequest,
    ) -> Result<ClaimResponse, Refusal> {
        let asked = Instant::now();
        let deadline = asked + wait(request.wait_seconds);
        // Before the first look, so that nothing falls between the look and the wait.
        let mut wakes = self.writer.wakes(id);
        let mut reports: Option<(Vec<_>, Vec<_>)> = None;
        let mut request = Arc::new(request);
        let mut may_wait = Instant::now() < deadline;
        loop {
            let nonce = random()?;
            wakes.mark_unchanged();
            let this = request.clone();
            let begin = Instant::now();
            let (mut response, wait) = self
                .writer
                .call_routine(move |tx| parked_claims::claim(tx, id, &this, asked, nonce, may_wait))
                .await?;
            let metrics = self.metrics();
            metrics.claims.observe(begin.elapsed());
            let (started, completed) = reports.get_or_insert_with(|| {
                (std::mem::take(&mut response.started), std::mem::take(&mut response.completed))
            });
            let answer = match wait {
                None => Some(response),
                Some(wait) => {
                    let _counted = metrics.waiting_claims.enter();
                    let look = tokio::time::timeout_at(deadline.into(), wakes.until(wait));
                    // The last look takes the claim out of the writer, or hears what it was given.
                    look.await.unwrap_or_else(|_| {
                        may_wait = false;
                        None
                    })
                }
            };
            if let Some(mut response) = answer {
                metrics.claimed_attempts.add(response.attempts.len() as u64);
                response.started = std::mem::take(started);
                response.completed = std::mem::take(completed);
                return Ok(response);
            }
            if !(request.started.is_empty() && request.completed.is_empty()) {
                let again = Arc::make_mut(&mut request);
                again.started.clear();
                again.completed.clear();
            }
        }
    }

    /// Attempts started.
    pub async fn start(&self, batch: StartBatch) -> Result<ReportResults, Refusal> {
        self.reports(batch.runner_id, move |tx, id| {
            batch
                .items
                .iter()
                .map(|report| runners::start_one(tx, id, batch.runner_id, report, false))
                .collect()
        })
        .await
    }

    /// Attempts ended.
    pub async fn complete(&self, batch: CompletionBatch) -> Result<ReportResults, Refusal> {
        self.reports(batch.runner_id, move |tx, id| {
            batch
                .items
                .iter()
                .map(|report| runners::end_one(tx, id, batch.runner_id, report, None))
                .collect()
        })
        .await
    }

    async fn reports<F>(&self, runner: RunnerId, each: F) -> Result<ReportResults, Refusal>
    where
        F: FnOnce(&mut Tx<'_>, WorkflowId) -> Result<Vec<ReportResult>, Failed> + Send + 'static,
    {
        self.writer
            .call_routine(move |tx| {
                let id = runners::workflow_of(tx, runner)?;
                Ok(ReportResults { results: each(tx, id)? })
            })
            .await
    }

    /// Tells a pool runner which workflow to serve next; waits for one if it asked to.
    pub async fn claim_for_pool(
        &self,
        id: PoolRunnerId,
        mut request: PoolClaimRequest,
        audience: read::Audience,
    ) -> Result<PoolClaimResponse, Refusal> {
        let deadline = Instant::now() + wait(request.wait_seconds);
        loop {
            let (this, audience) = (request.clone(), audience.clone());
            let (response, waits) = self
                .writer
                .call_routine(move |tx| pool_runners::claim(tx, id, &this, &audience))
                .await?;
            let Some(PoolWait { mut wakes, at_most_ms }) = waits else { return Ok(response) };
            let pause = at_most_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs() + 1));
            let until = pause.map_or(deadline, |pause| deadline.min(Instant::now() + pause));
            let is_late = tokio::time::timeout_at(until.into(), wakes.changed()).await.is_err();
            if is_late && Instant::now() >= deadline {
                return Ok(response);
            }
            request.unable.clear();
        }
    }
}

/// A claim waits at most this long; then the runner asks again.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How long a claim may wait.
fn wait(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MAX_WAIT).min(MAX_WAIT)
}
