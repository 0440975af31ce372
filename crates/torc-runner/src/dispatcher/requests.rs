//! What is sent to the server, and when: full batches under load, no delay when idle.

use super::{CLAIM_LIMIT, Dispatcher, DispatcherPhase, Effect, HASTY, PREFETCH_SECONDS};
use crate::config::Prefetch;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_model::api::{ClaimRequest, ClaimResponse, CompletionReport};

/// At most this many reports in one request; each may carry some kilobytes of output.
const REPORT_LIMIT: usize = 256;
/// At most about this much in one request; the server refuses bodies that are much larger.
pub(super) const REPORT_BYTES: usize = 2 << 20;
/// The longest pause after a listener that was answered too soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// That an attempt runs is told at most this late; nothing waits for it.
const START_DELAY: Duration = Duration::from_millis(20);
/// While there is more to start, results are told at most this often...
pub(super) const END_DELAY: Duration = Duration::from_millis(25);
/// ...or when there are this many.
const END_COUNT: usize = 64;
/// More would keep work from other runners for no gain.
const PREFETCH_LIMIT: f64 = 64.0;

impl Dispatcher {
    /// A server that has nothing and does not wait either must not be asked in a circle.
    pub(super) fn pause_if_hasty(&mut self, answer: &ClaimResponse, now: Instant) {
        let has_news = !answer.attempts.is_empty()
            || !answer.cancel.is_empty()
            || !answer.actions.is_empty()
            || answer.is_alone != self.is_alone;
        if has_news || self.listened_at + HASTY <= now {
            (self.listen_after, self.pause) = (None, HASTY);
        } else {
            self.listen_after = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn exchange_if_useful(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let delay = if !self.completed.is_empty() {
            let can_wait = !self.queue.is_empty() && self.completed.len() < END_COUNT;
            if can_wait { END_DELAY } else { Duration::ZERO }
        } else if !self.started.is_empty() {
            START_DELAY
        } else {
            return;
        };
        let due = self.exchange_at.map_or(now + delay, |at| at.min(now + delay));
        self.exchange_at = Some(due);
        if due > now || self.exchange.is_some() || self.is_refused || self.has_left {
            return;
        }
        self.exchange_at = None;
        let limit = if self.phase == DispatcherPhase::Working { CLAIM_LIMIT } else { 0 };
        let count = self.count_reports();
        let request = Arc::new(ClaimRequest {
            prefetch: self.prefetch(),
            started: std::mem::take(&mut self.started),
            completed: self.completed.drain(..count).collect(),
            ..self.claim(limit, now)
        });
        self.exchange = Some(request.clone());
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
        let sizes = self.completed.iter().map(size).scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        sizes
            .take(REPORT_LIMIT)
            .take_while(|sum| *sum <= REPORT_BYTES)
            .count()
            .max(1)
            .min(self.completed.len())
    }

    pub(super) fn claim(&mut self, limit: i64, now: Instant) -> ClaimRequest {
        self.claims += 1;
        let left = self.settings.end.map(|end| end.saturating_duration_since(now).as_secs());
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
            is_alone: Some(self.is_alone),
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
