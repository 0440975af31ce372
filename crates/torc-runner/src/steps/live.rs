//! Events of steps on their way to the server while their attempt runs: with the next heartbeat,
//! which comes sooner for them. The report at the end has them all again, and the server counts
//! what it has seen.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use torc_model::api::{AttemptRef, StepEvents};
use torc_model::ids::AttemptId;
use torc_model::steps::StepEvent;

/// One request carries no more than this; the rest follows, or comes with the report.
const MAX_SENT: usize = 500;

#[derive(Debug)]
struct ToldProgress {
    token: String,
    /// How many the server has answered for.
    sent: usize,
    /// Those after them.
    waiting: Vec<StepEvent>,
}

/// What has happened and is not told yet, per attempt.
#[derive(Debug, Default)]
pub struct Live {
    attempts: Mutex<BTreeMap<AttemptId, ToldProgress>>,
    news: Notify,
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, ToldProgress>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened.
    pub fn push(&self, attempt: AttemptId, token: &str, event: StepEvent) {
        let mut attempts = self.lock();
        let told = attempts.entry(attempt).or_insert_with(|| ToldProgress {
            token: token.to_owned(),
            sent: 0,
            waiting: Vec::new(),
        });
        told.waiting.push(event);
        drop(attempts);
        self.news.notify_one();
    }

    /// The attempt has ended: its report tells the rest.
    pub fn end(&self, attempt: AttemptId) {
        self.lock().remove(&attempt);
    }

    /// Waits until something has happened.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// What is to be told now.
    pub fn untold(&self) -> Vec<StepEvents> {
        let mut left = MAX_SENT;
        let mut all = Vec::new();
        for (id, told) in self.lock().iter().filter(|(_, told)| !told.waiting.is_empty()) {
            let events: Vec<StepEvent> = told.waiting.iter().take(left).cloned().collect();
            left -= events.len();
            all.push(StepEvents {
                attempt: AttemptRef { id: *id, token: told.token.clone() },
                from: told.sent as u64,
                events,
            });
            if left == 0 {
                break;
            }
        }
        all
    }

    /// The server has these.
    pub fn told(&self, all: &[StepEvents]) {
        let mut attempts = self.lock();
        for sent in all {
            if let Some(told) =
                attempts.get_mut(&sent.attempt.id).filter(|told| told.sent as u64 == sent.from)
            {
                told.waiting.drain(..sent.events.len());
                told.sent += sent.events.len();
            }
        }
        if attempts.values().any(|told| !told.waiting.is_empty()) {
            self.news.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_model::event::EventKind;

    fn event(kind: EventKind) -> StepEvent {
        StepEvent { kind, at_ms: 1, path: String::new(), data: Default::default() }
    }

    #[test]
    fn what_was_answered_for_is_not_sent_again_and_the_rest_is() {
        let live = Live::default();
        live.push(AttemptId(1), "t", event(EventKind::StepStarted));
        live.push(AttemptId(1), "t", event(EventKind::StepFinished));
        let first = live.untold();
        assert_eq!((first.len(), first[0].from, first[0].events.len()), (1, 0, 2));
        assert_eq!(live.untold(), first, "the answer was lost: the same again");
        live.push(AttemptId(1), "t", event(EventKind::StepIgnored));
        live.told(&first);
        live.told(&first);
        let second = live.untold();
        assert_eq!(
            (second[0].from, second[0].events.clone()),
            (2, vec![event(EventKind::StepIgnored)])
        );
        live.end(AttemptId(1));
        assert!(live.untold().is_empty());
    }
}
