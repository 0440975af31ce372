//! Outputs of jobs on machines that the server cannot see: it asks the pool runner there, which reads them.
//!
//! Only the pool runner is asked whose runner executed the attempt: it could have written anything into that
//! output anyway.

use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::{Answer, App, Json};
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use torc_model::api::{LogPiece, PoolReads, PoolReadsRequest, ReadLog};
use torc_model::ids::PoolRunnerId;

/// A pool runner that does not answer in this time is not there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions that are open at the same time; more are refused.
const MAX_OPEN: usize = 256;

/// What was asked and not answered yet.
#[derive(Default)]
pub struct Reads {
    open: Mutex<Open>,
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct Open {
    next: i64,
    asked: BTreeMap<i64, Asked>,
}

struct Asked {
    pool: PoolRunnerId,
    order: ReadLog,
    is_told: bool,
    answer: oneshot::Sender<LogPiece>,
}

impl Reads {
    /// Asks a pool runner for a piece of a file.
    pub async fn ask(
        &self,
        pool: PoolRunnerId,
        path: String,
        offset: i64,
        limit: i64,
    ) -> Result<LogPiece, ApiError> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut open = self.lock();
            if open.asked.len() >= MAX_OPEN {
                return Err(ApiError::not_found(
                    "too many outputs of other machines are being read",
                ));
            }
            open.next += 1;
            let id = open.next;
            let order = ReadLog { id, path, offset, limit };
            open.asked.insert(id, Asked { pool, order, is_told: false, answer });
            id
        };
        self.news.send_modify(|version| *version += 1);
        let piece = tokio::time::timeout(PATIENCE, answered).await;
        self.lock().asked.remove(&id);
        match piece {
            Ok(Ok(piece)) => Ok(piece),
            _ => Err(ApiError::not_found(format!(
                "pool runner {pool}, which has the output, does not answer"
            ))),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, pool: PoolRunnerId) -> Vec<ReadLog> {
        let mut open = self.lock();
        let new = open.asked.values_mut().filter(|asked| asked.pool == pool && !asked.is_told);
        new.map(|asked| {
            asked.is_told = true;
            asked.order.clone()
        })
        .collect()
    }

    fn answer(&self, pool: PoolRunnerId, piece: LogPiece) {
        let mut open = self.lock();
        // One pool runner does not answer for another.
        if open.asked.get(&piece.id).is_some_and(|asked| asked.pool == pool)
            && let Some(asked) = open.asked.remove(&piece.id)
        {
            // A client that went away needs no answer.
            let _ = asked.answer.send(piece);
        }
    }
}

/// A pool runner hands over pieces of outputs, and waits for what else is to be read. Safe to repeat.
#[utoipa::path(
    post,
    path = "/pool_runners/{id}/reads",
    operation_id = "pool_reads",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The pool runner.")),
    request_body = PoolReadsRequest,
    responses((status = 200, description = "What it should read.", body = PoolReads), Refusals)
)]
pub async fn pool_reads(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<PoolReadsRequest>,
) -> Answer<PoolReads> {
    let id = PoolRunnerId(id);
    app.check_pool(&caller, id).await?;
    let reads = &app.inner.reads;
    let mut news = reads.news.subscribe();
    for piece in request.pieces {
        reads.answer(id, piece);
    }
    let wait =
        Duration::try_from_secs_f64(request.wait_seconds.clamp(0.0, 60.0)).unwrap_or_default();
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let items = reads.take(id);
        if !items.is_empty() {
            return Ok(Json(PoolReads { items }));
        }
        tokio::select! {
            changed = tokio::time::timeout_at(deadline, news.changed()) => {
                if changed.is_err() {
                    return Ok(Json(PoolReads::default()));
                }
            }
            () = app.inner.stop.cancelled() => return Err(ApiError::shutting_down()),
        }
    }
}
