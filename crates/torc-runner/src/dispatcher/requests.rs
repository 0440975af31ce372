//! What is sent to the server, and when: full batches under load, no delay when idle.

use super::{CLAIM_LIMIT, Dispatcher, DispatcherPhase, Effect, PREFETCH_SECONDS};
use crate::config::Prefetch;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_model::api::{ClaimRequest, ClaimResponse, CompletionReport};

/// At most this many reports in one request; each may carry some kilobytes of output.
const REPORT_LIMIT: usize = 256;
/// At most about this much in one request; the server refuses bodies that are much larger.
pub(super) const REPORT_BYTES: usize = 2 << 20;
/// That an attempt runs is told at most this late; nothing waits for it.
const START_DELAY: Duration = Duration::from_millis(20);
/// While there is more to start, results are told at most this often...
pub(super) const END_DELAY: Duration = Duration::from_millis(25);
/// ...or when there are this many.
const END_COUNT: usize = 64;
/// More would keep work from other runners for no gain.
const PREFETCH_LIMIT: f64 = 64.0;

impl Dispatcher {
    /// The answer to a listener says something that this runner did not know.
    pub(super) fn has_news(&self, answer: &ClaimResponse) -> bool {
        !answer.attempts.is_empty()
            || !answer.cancel.is_empty()
            || !answer.actions.is_empty()
            || answer.is_alone != self.standing.is_alone
    }

    pub(super) fn exchange_if_useful(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let delay = if !self.outbox.completed.is_empty() {
            let can_wait = !self.queue.is_empty() && self.outbox.completed.len() < END_COUNT;
            if can_wait { END_DELAY } else { Duration::ZERO }
        } else if !self.outbox.started.is_empty() {
            START_DELAY
        } else {
            return;
        };
        let due = self.outbox.due_at.map_or(now + delay, |at| at.min(now + delay));
        self.outbox.due_at = Some(due);
        if due > now
            || self.outbox.in_flight.is_some()
            || self.contact.is_refused
            || self.departure.has_left
        {
            return;
        }
        self.outbox.due_at = None;
        let limit = if self.departure.phase == DispatcherPhase::Working { CLAIM_LIMIT } else { 0 };
        let count = self.count_reports();
        let request = Arc::new(ClaimRequest {
            prefetch: self.prefetch(),
            started: std::mem::take(&mut self.outbox.started),
            completed: self.outbox.completed.drain(..count).collect(),
            ..self.claim(limit, now)
        });
        self.outbox.in_flight = Some(request.clone());
        out.push(Effect::Exchange(request));
    }

    /// How many reports go into the next request: at least one, if there is any.
    pub(super) fn count_reports(&self) -> usize {
        // Written as JSON, a byte of output may become six.
        let size = |report: &CompletionReport| {
            let excerpts = report.observed.iter().flat_map(|observed| &observed.excerpts);
            let kept: usize = excerpts.map(|excerpt| excerpt.text.len()).sum();
            1000 + 6 * (report.stderr_tail.as_ref().map_or(0, String::len) + kept)
        };
        let sizes = self.outbox.completed.iter().map(size).scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        sizes
            .take(REPORT_LIMIT)
            .take_while(|sum| *sum <= REPORT_BYTES)
            .count()
            .max(1)
            .min(self.outbox.completed.len())
    }

    pub(super) fn claim(&mut self, limit: i64, now: Instant) -> ClaimRequest {
        self.claims += 1;
        let left =
            self.settings.time_limit.end.map(|end| end.saturating_duration_since(now).as_secs());
        ClaimRequest {
            runner_id: self.settings.runner_id,
            key: format!("{}-{}", self.settings.key, self.claims),
            limit,
            capacity: self.settings.capacity.clone(),
            time_left_seconds: left.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
            prefetch: 0,
            wait_seconds: 0.0,
            started: Vec::new(),
            completed: Vec::new(),
            strict_scheduler_match: self.settings.strict_scheduler_match,
            is_alone: Some(self.standing.is_alone),
        }
    }

    pub(super) fn prefetch(&self) -> i64 {
        match (self.settings.prefetch, self.average_seconds) {
            (Prefetch::Fixed(count), _) => i64::from(count),
            (Prefetch::Adaptive, None) => 0,
            (Prefetch::Adaptive, Some(average)) => {
                // The cast saturates, and the value is small and not negative.
                (PREFETCH_SECONDS * self.slots() / average.max(1e-6)).min(PREFETCH_LIMIT) as i64
            }
        }
    }

    /// How many jobs can run at once, if they are small.
    pub(super) fn slots(&self) -> f64 {
        let capacity = &self.settings.capacity;
        let cpus = capacity.num_cpus.saturating_mul(capacity.equal_nodes());
        let by_cpus = (!capacity.ignore_resources).then_some(cpus);
        let most = by_cpus.into_iter().chain(capacity.max_parallel_jobs).min();
        most.unwrap_or(cpus).max(1) as f64
    }
}
