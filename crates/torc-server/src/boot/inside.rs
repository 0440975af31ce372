//! The way in for callers in the same process: the same front, without a connection.
//!
//! The thread that asks does the work, as far as that is possible (see `store/writer.rs`). No other
//! thread has to be woken for it, neither there nor back, and nothing is copied through the kernel.

use super::listen::GRACE;
use crate::api::Front;
use axum::body::Bytes;
use axum::http::Request;
use axum::response::Response;
use http_body_util::Full;
use std::sync::{Arc, Weak};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The server has ended.
#[derive(Debug)]
pub struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server has ended")
    }
}

impl std::error::Error for Ended {}

/// Asks the server of this process, as long as there is one. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    /// A caller must not keep the database open.
    front: Weak<Front>,
    stop: CancellationToken,
    askers: TaskTracker,
}

impl InProcess {
    pub(super) fn new(front: &Arc<Front>, stop: CancellationToken) -> Self {
        Self { front: Arc::downgrade(front), stop, askers: TaskTracker::new() }
    }

    /// The answer to a request.
    pub async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Response, Ended> {
        // Counted first, and then looked: either the end waits for us, or we see it.
        let asker = self.askers.token();
        if self.stop.is_cancelled() {
            return Err(Ended);
        }
        // The front itself is given back at once: the shutdown must find no other owner.
        let answer = self.front.upgrade().ok_or(Ended)?.answer(request);
        let answer = answer.await;
        drop(asker);
        Ok(answer)
    }

    /// Waits, with a deadline, until the last caller has its answer. To be called after the stop.
    pub(super) async fn end(&self) {
        self.askers.close();
        if tokio::time::timeout(GRACE, self.askers.wait()).await.is_err() {
            tracing::warn!("a caller in this process still waits for an answer");
        }
    }
}
