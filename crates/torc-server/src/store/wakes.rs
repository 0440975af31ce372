//! Wakes claims that wait, by workflow.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use torc_model::ids::WorkflowId;

/// Who waits for what.
#[derive(Default)]
pub struct Wakes(Mutex<HashMap<WorkflowId, WorkflowWake>>);

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

impl Wakes {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkflowId, WorkflowWake>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of a workflow from now on.
    pub fn subscribe(&self, id: WorkflowId) -> Waiting {
        let mut all = self.lock();
        let WorkflowWake { work, news } = all.entry(id).or_default();
        Waiting { work: work.subscribe(), news: news.subscribe() }
    }

    /// There is work in a workflow. Runners of pools hear of it when it is their turn.
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

    /// Returns when the claim should look again; `own` wakes a runner of a pool when it is its turn.
    pub async fn changed(&mut self, own: Option<watch::Receiver<u64>>) {
        // The senders are gone only when the server ends.
        match own {
            None => _ = self.work.changed().await,
            Some(mut own) => tokio::select! {
                _ = self.news.changed() => {}
                _ = own.changed() => {}
            },
        }
    }
}
