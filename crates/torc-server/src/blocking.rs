//! Work for threads that may block.
//!
//! What carries the work knows nothing of its value: a thread pool that is instantiated for every
//! kind of work would be a good part of the program.

use std::sync::{Arc, Mutex, PoisonError};

/// Where work leaves its value for the one who asked for it.
pub struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Slot<T> {
    /// Leaves the value.
    pub fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// The value, if the work has come to its end.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The work panicked, or the server ends.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the work broke off")
    }
}

/// Does some work on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Interrupted> {
    let slot = Slot::default();
    let kept = slot.clone();
    run(Box::new(move || kept.put(work()))).await;
    slot.take().ok_or(Interrupted)
}

async fn run(work: Box<dyn FnOnce() + Send>) {
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::error!(%error, "work on a thread of its own broke off");
    }
}
