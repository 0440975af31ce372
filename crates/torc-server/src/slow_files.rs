//! Files that runners, jobs and specs name: on file systems that may never answer.
//!
//! Neither tokio's workers nor its pool for blocking calls may wait for them: a thread of that pool
//! that hangs would keep the process from ending.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use torc_fs::Hangs;

/// A file system that takes longer is taken for dead until it answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for each further look once the patience of a round is used up.
const LEAST: Duration = Duration::from_millis(20);

/// Does `work`, which looks at files in `place`, without keeping anything else waiting.
pub async fn look<T: Send + 'static>(
    place: PathBuf,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Hangs> {
    look_for(PATIENCE, place, work).await
}

/// The same with another patience, for work that takes its time on a good file system too.
pub async fn look_for<T: Send + 'static>(
    patience: Duration,
    place: PathBuf,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Hangs> {
    let (answer, heard) = oneshot::channel();
    let waiter = std::thread::Builder::new().name("torc-look".into()).spawn(move || {
        // The caller may have gone.
        let _ = answer.send(torc_fs::within(&place, patience, work));
    });
    waiter.map_err(|_| Hangs)?;
    heard.await.unwrap_or(Err(Hangs))
}

/// Several looks that share one patience: one place that hangs must not take the time of all.
pub struct Round {
    end: Instant,
}

impl Round {
    /// Begins now.
    pub fn begin() -> Self {
        Self { end: Instant::now() + PATIENCE }
    }

    /// Does `work` on a thread of its own and waits for it.
    pub fn look<T: Send + 'static>(
        &self,
        place: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hangs> {
        let left = self.end.saturating_duration_since(Instant::now());
        torc_fs::within(place, left.max(LEAST), work)
    }
}
