//! What the client asked and was answered: all that may be expected to last.

use crate::workload::Planned;
use std::collections::BTreeMap;
use torc_model::api::{AttemptView, JobView};

/// A workflow whose creation was acknowledged.
#[derive(Clone, Debug)]
pub struct Created {
    /// Its id.
    pub id: i64,
    /// What must come of it.
    pub planned: Planned,
    /// Attempts that the client saw as completed, by job and attempt, and when it first did
    /// (microseconds since 1970).
    pub seen_completed: BTreeMap<(String, i64), i64>,
    /// What became of the client's retries of `broken`.
    pub retries: Retries,
    /// And of those of the item that fails until it is retried.
    pub item_retries: Retries,
    /// Jobs as they were in the end.
    pub jobs: Vec<JobView>,
    /// Attempts as they were in the end.
    pub attempts: Vec<AttemptView>,
}

/// Retries of one job that a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retries {
    /// Those that were acknowledged.
    pub acknowledged: u64,
    /// Those whose answer was lost.
    pub unknown: u64,
}

/// Everything that one client did.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order of creation.
    pub workflows: Vec<Created>,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests whose answer never came.
    pub unanswered: u64,
    /// Answers that no request of this kind may get, such as an internal error.
    pub wrong: Vec<String>,
}
