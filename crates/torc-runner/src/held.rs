//! Which attempts this runner holds, known to the thread that owns the state and to the one that sends heartbeats.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use torc_model::api::AttemptRef;
use torc_model::ids::AttemptId;

/// Attempts that were granted and whose end the server does not know yet.
#[derive(Debug, Default)]
pub struct HeldList {
    tokens: Mutex<HashMap<AttemptId, String>>,
}

impl HeldList {
    fn lock(&self) -> MutexGuard<'_, HashMap<AttemptId, String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; false when it was there.
    pub fn insert(&self, id: AttemptId, token: &str) -> bool {
        self.lock().insert(id, token.into()).is_none()
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
