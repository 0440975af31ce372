//! Wakes claims that wait, by workflow.

use super::parked_claims::ClaimWait;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use torc_model::api::ClaimResponse;
use torc_model::ids::WorkflowId;

/// Who waits for what.
#[derive(Default)]
pub struct WorkflowWakes(Mutex<HashMap<WorkflowId, WorkflowWake>>);

#[derive(Default)]
struct WorkflowWake {
    /// Grows with work and with news.
    work: watch::Sender<u64>,
    /// Grows with news that concern every runner: orders to stop, actions, the end.
    news: watch::Sender<u64>,
}

/// A claim that waits.
pub struct Waiting {
    work: watch::Receiver<u64>,
    news: watch::Receiver<u64>,
}

impl WorkflowWakes {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkflowId, WorkflowWake>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of a workflow from now on.
    pub fn subscribe(&self, id: WorkflowId) -> Waiting {
        let mut all = self.lock();
        let WorkflowWake { work, news } = all.entry(id).or_default();
        Waiting { work: work.subscribe(), news: news.subscribe() }
    }

    /// Delayed work of a workflow is due. Runners of pools hear of it when it is their turn.
    pub fn work(&self, id: WorkflowId) {
        self.wake(id, false);
    }

    /// There is something that every runner of a workflow should know.
    pub fn news(&self, id: WorkflowId) {
        self.wake(id, true);
    }

    fn wake(&self, id: WorkflowId, is_news: bool) {
        let mut all = self.lock();
        let Some(WorkflowWake { work, news }) = all.get(&id) else { return };
        if work.receiver_count() == 0 {
            all.remove(&id);
            return;
        }
        work.send_modify(|version| *version += 1);
        if is_news {
            news.send_modify(|version| *version += 1);
        }
    }
}

impl Waiting {
    /// What has happened up to now is known.
    pub fn mark_unchanged(&mut self) {
        self.work.mark_unchanged();
        self.news.mark_unchanged();
    }

    /// Returns with the answer that the writer gave, or with nothing when the claim should look again.
    pub async fn until(&mut self, wait: ClaimWait) -> Option<ClaimResponse> {
        // The senders of wakes are gone only when the server ends.
        match wait {
            ClaimWait::Parked(answer) => tokio::select! {
                biased;
                answer = answer => answer.ok(),
                _ = self.work.changed() => None,
            },
            ClaimWait::Pool(mut own) => tokio::select! {
                _ = self.news.changed() => None,
                _ = own.changed() => None,
            },
        }
    }
}
