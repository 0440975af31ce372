//! The attempts that run here, and what they leave free.

use crate::resources::{Free, Share};
use std::collections::HashMap;
use std::time::Instant;
use torc_model::api::AttemptRef;
use torc_model::ids::{AttemptId, JobId};

/// An attempt that was started and has not ended.
pub(super) struct Active {
    pub share: Share,
    pub job_id: JobId,
    pub job_name: String,
    pub attempt_id: i64,
    pub is_ours: bool,
    /// With its node an attempt may be lost: what a report about that must name.
    pub reference: Option<AttemptRef>,
}

/// Attempts with their shares of the runner's resources.
pub(super) struct RunningAttempts {
    pub free: Free,
    pub attempts: HashMap<AttemptId, Active>,
    /// Since when nothing runs.
    pub idle_since: Option<Instant>,
}

impl RunningAttempts {
    pub fn new(free: Free, now: Instant) -> Self {
        Self { free, attempts: HashMap::new(), idle_since: Some(now) }
    }

    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    pub fn insert(&mut self, id: AttemptId, active: Active) {
        self.attempts.insert(id, active);
        self.idle_since = None;
    }

    /// Takes an attempt out that has ended. Its share is free again.
    pub fn remove(&mut self, id: AttemptId, now: Instant) -> Option<Active> {
        let mut active = self.attempts.remove(&id)?;
        self.free.give_back(std::mem::take(&mut active.share));
        if self.attempts.is_empty() {
            self.idle_since = Some(now);
        }
        Some(active)
    }

    /// Attempts whose process is on this node, or that only use it.
    pub fn on_node(&self, node: usize, runs_there: bool) -> Vec<AttemptId> {
        let is_on = |active: &Active| {
            active.share.on.contains(&node) && (active.share.node() == node) == runs_there
        };
        let mut ids: Vec<AttemptId> =
            self.attempts.iter().filter(|(_, active)| is_on(active)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }
}
