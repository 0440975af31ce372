//! Reports on their way to the server: those that wait, those of the request that is under way, and
//! which of them are on disk as well.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use torc_model::api::{ClaimRequest, CompletionReport, StartReport};
use torc_model::ids::AttemptId;

#[derive(Default)]
pub(super) struct Outbox {
    pub started: Vec<StartReport>,
    pub completed: VecDeque<CompletionReport>,
    /// The exchange that the server has not answered; one at a time.
    pub in_flight: Option<Arc<ClaimRequest>>,
    /// When what waits for company must go out.
    pub due_at: Option<Instant>,
    /// Results that are kept on disk until they are delivered.
    pub spooled: HashSet<AttemptId>,
}

impl Outbox {
    /// Results that the server does not know of.
    pub fn undelivered(&self) -> usize {
        self.completed.len() + self.in_flight.as_ref().map_or(0, |request| request.completed.len())
    }

    /// The server knows all starts and ends.
    pub fn is_delivered(&self) -> bool {
        self.in_flight.is_none() && self.completed.is_empty() && self.started.is_empty()
    }

    /// The results that the server does not know of, those under way first.
    pub fn waiting(&self) -> Vec<CompletionReport> {
        let in_flight = self.in_flight.iter().flat_map(|request| &request.completed);
        in_flight.chain(&self.completed).cloned().collect()
    }

    /// Those of the results that are not on disk yet; from now on they count as spooled.
    pub fn spool(&mut self, results: Vec<CompletionReport>) -> Vec<CompletionReport> {
        results.into_iter().filter(|result| self.spooled.insert(result.attempt.id)).collect()
    }

    /// The server has these results. True if the last result on disk was among them.
    pub fn on_delivered(&mut self, results: &[CompletionReport]) -> bool {
        let has_spool = !self.spooled.is_empty();
        for report in results {
            self.spooled.remove(&report.attempt.id);
        }
        has_spool && self.spooled.is_empty()
    }
}
