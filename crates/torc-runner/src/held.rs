//! Which attempts this runner holds, known to the thread that owns the state and to the one that
//! sends heartbeats.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use torc_model::api::AttemptRef;
use torc_model::ids::AttemptId;

/// Attempts that were granted and whose end the server does not know yet.
#[derive(Debug, Default)]
pub struct HeldList {
    tokens: Mutex<HashMap<AttemptId, String>>,
    absent: Mutex<Absent>,
}

/// Attempts that the server asked about and that are not here.
#[derive(Debug, Default)]
struct Absent {
    /// The server does not know yet.
    untold: BTreeSet<AttemptId>,
    /// Never to be started, even when the answer that grants them still arrives.
    all: BTreeSet<AttemptId>,
}

impl HeldList {
    fn lock(&self) -> MutexGuard<'_, HashMap<AttemptId, String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn absent(&self) -> MutexGuard<'_, Absent> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; false when it was there, or when it must not be started any more.
    pub fn insert(&self, id: AttemptId, token: &str) -> bool {
        !self.absent().all.contains(&id) && self.lock().insert(id, token.into()).is_none()
    }

    /// It is not here (any more), and the server will be told so.
    pub fn disclaim(&self, id: AttemptId) {
        let mut absent = self.absent();
        absent.all.insert(id);
        absent.untold.insert(id);
        self.lock().remove(&id);
    }

    /// What the server must be told to be absent.
    pub fn untold(&self) -> Vec<AttemptId> {
        self.absent().untold.iter().copied().collect()
    }

    /// The server was told so.
    pub fn told(&self, ids: &[AttemptId]) {
        self.absent().untold.retain(|id| !ids.contains(id));
    }

    /// Takes one out.
    pub fn remove(&self, id: AttemptId) {
        self.lock().remove(&id);
    }

    /// It is held.
    pub fn contains(&self, id: AttemptId) -> bool {
        self.lock().contains_key(&id)
    }

    /// All of them, for a heartbeat.
    pub fn refs(&self) -> Vec<AttemptRef> {
        self.lock().iter().map(|(id, token)| AttemptRef { id: *id, token: token.clone() }).collect()
    }
}
