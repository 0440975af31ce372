//! What the client asked and was answered: all that may be expected to last.

use crate::workload::PlannedWorkflow;
use std::collections::BTreeMap;
use torc_model::api::{AttemptView, EventView, JobView};
use torc_model::status::JobStatus;

/// A workflow whose creation was acknowledged.
#[derive(Clone, Debug)]
pub struct Created {
    /// Its id.
    pub id: i64,
    /// What must come of it.
    pub planned: PlannedWorkflow,
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
    /// The committed changes, in order.
    pub events: Vec<EventView>,
    /// What the client was answered, in order.
    pub answers: Vec<Answer>,
    /// Times in which no job could be claimed, from the answer to the reservation to the request that ended
    /// it, in ms since 1970.
    pub reservations: Vec<(i64, i64)>,
}

/// An answer about a workflow.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When it was asked, in microseconds since 1970.
    pub asked: i64,
    /// What it said.
    pub heard: Heard,
}

/// What an answer says.
#[derive(Clone, Debug)]
pub enum Heard {
    /// All jobs that there are, with their status.
    Jobs(Vec<(String, JobStatus)>),
    /// All attempts that have ended, by job and number; true for those that completed.
    Ends(Vec<((String, i64), bool)>),
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
pub struct ClientHistory {
    /// In the order of creation.
    pub workflows: Vec<Created>,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests whose answer never came.
    pub unanswered: u64,
    /// Answers that no request of this kind may get, such as an internal error.
    pub wrong: Vec<String>,
}
