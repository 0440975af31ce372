//! What is known of the server: whether it answers, and what its last answer said.

use std::time::Instant;
use torc_model::api::ClaimResponse;

/// Whether the server answers this runner.
#[derive(Default)]
pub(super) struct ServerContact {
    /// Since when the server has not answered.
    pub lost_since: Option<Instant>,
    /// The server said no, for good: it is not asked again.
    pub is_refused: bool,
}

impl ServerContact {
    /// Results cannot be delivered now.
    pub fn is_broken(&self) -> bool {
        self.lost_since.is_some() || self.is_refused
    }
}

/// How workflow and runner stand, by the last answer to a claim.
#[derive(Default)]
pub(super) struct ClaimStanding {
    pub is_complete: bool,
    pub is_stuck: bool,
    /// No other runner could do what we hold.
    pub is_alone: bool,
    /// A person removed this runner.
    pub is_removed: bool,
}

impl ClaimStanding {
    pub fn of(answer: &ClaimResponse) -> Self {
        Self {
            is_complete: answer.workflow_complete,
            is_stuck: answer.idle,
            is_alone: answer.is_alone,
            is_removed: answer.leave,
        }
    }
}
