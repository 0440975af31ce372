//! Waits for slots of the agent on behalf of attempts: one thread for each slot that is waited for,
//! asleep until its holder, in this process or another, lets go. What it gets goes to the
//! attempt that has waited longest.

use super::agent;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use torc_model::ids::AttemptId;

#[derive(Default)]
struct State {
    waiting: VecDeque<AttemptId>,
    watched: HashSet<PathBuf>,
}

/// Who waits for a slot.
#[derive(Clone, Default)]
pub struct Slots(Arc<Mutex<State>>);

impl Slots {
    /// Lets an attempt wait. `give` gets the slot; it may come although the attempt has stopped
    /// waiting.
    pub fn wait(
        &self,
        id: AttemptId,
        paths: Vec<PathBuf>,
        give: impl Fn(AttemptId, File) + Clone + Send + 'static,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.push_back(id);
        for path in paths {
            if !state.watched.insert(path.clone()) {
                continue;
            }
            let (slots, give) = (self.clone(), give.clone());
            let watch = {
                let path = path.clone();
                move || slots.watch(&path, &give)
            };
            if let Err(error) = std::thread::Builder::new()
                .name("torc-slot".into())
                .stack_size(64 << 10)
                .spawn(watch)
            {
                tracing::warn!(%error, "cannot wait for a slot of the agent");
                state.watched.remove(&path);
            }
        }
    }

    /// The attempt waits no more.
    pub fn forget(&self, id: AttemptId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.retain(|other| *other != id);
    }

    fn watch(&self, path: &PathBuf, give: &impl Fn(AttemptId, File)) {
        loop {
            let slot = agent::wait_for_slot(path);
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match (slot, state.waiting.pop_front()) {
                (Ok(slot), Some(id)) => give(id, slot),
                (Ok(_), None) => {
                    state.watched.remove(path);
                    return;
                }
                (Err(error), id) => {
                    tracing::warn!(path = %path.display(), %error, "cannot wait for a slot of the agent");
                    state.watched.remove(path);
                    // Another slot may be free for it.
                    id.into_iter().for_each(|id| state.waiting.push_front(id));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn the_longest_waiting_gets_the_slot_that_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let paths = agent::slots(1, dir.path(), 1);
        let held = agent::free_slot(&paths).unwrap().unwrap();
        let (sender, receiver) = channel();
        let slots = Slots::default();
        for id in 1..=3 {
            let sender = sender.clone();
            slots.wait(AttemptId(id), paths.clone(), move |id, slot| {
                sender.send((id, slot)).unwrap()
            });
        }
        slots.forget(AttemptId(2));
        assert!(receiver.try_recv().is_err());
        drop(held);
        let next = || receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        let (first, slot) = next();
        assert!(receiver.try_recv().is_err(), "one at a time");
        drop(slot);
        assert_eq!((first, next().0), (AttemptId(1), AttemptId(3)));
    }
}
