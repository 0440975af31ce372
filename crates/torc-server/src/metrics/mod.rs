//! What the server counts about itself, for `/metrics`.
//!
//! Counters and histograms are atomics that the threads at work add to; nothing here takes a lock or
//! asks the database. What the database and the file system know is read when a scraper asks
//! (`api/metrics.rs`).

mod histogram;
pub mod process;
mod text;

pub use histogram::Histogram;
pub use text::{MetricKind, MetricsText};

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::status::Cause;

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One counter per variant of an enum, by its place.
#[derive(Debug)]
struct Counters<const N: usize>([Counter; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

/// A number that goes up and down.
#[derive(Default, Debug)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// One more for as long as the guard lives, also when its task is dropped halfway.
    pub fn enter(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Relaxed);
        GaugeGuard(self)
    }

    /// How much it is.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Counted in a [`Gauge`] until it is dropped.
pub struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Everything that is counted since the start of this server.
#[derive(Default, Debug)]
pub struct Metrics {
    /// From the begin of a transaction to the commit on disk, with all requests that shared it.
    pub commits: Histogram,
    /// Transactions that the disk or the database refused.
    pub failed_commits: Counter,
    /// Requests in committed transactions.
    pub committed_requests: Counter,
    /// From a claim to its answer, without the time that it waited for work.
    pub claims: Histogram,
    /// Claims that wait for work now.
    pub waiting_claims: Gauge,
    /// Attempts that were given to runners.
    pub claimed_attempts: Counter,
    /// Answers by the first digit of their status.
    answers: [Counter; 5],
    /// Tries of webhook deliveries that were accepted, and that were not.
    pub deliveries: [Counter; 2],
    events: Counters<{ EventKind::ALL.len() }>,
    /// Ends of attempts: at 0 those that succeeded, behind it by cause.
    ends: Counters<{ Cause::ALL.len() + 1 }>,
}

/// The label of attempts that succeeded, which have no cause.
const SUCCESS: &str = "success";

impl Metrics {
    /// Events whose transaction is on disk.
    pub fn committed(&self, events: &[EventView]) {
        for event in events {
            self.events.0[event.kind as usize].add(1);
            if let Some(end) = end_of(event) {
                self.ends.0[end].add(1);
            }
        }
    }

    /// A request was answered.
    pub fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.answers[class].add(1);
    }

    /// The counters, as a scraper reads them.
    pub fn write(&self, text: &mut MetricsText) {
        text.family(
            "torc_attempts_ended_total",
            MetricKind::Counter,
            "Attempts that ended since the start of the server, by cause.",
        );
        let causes = Cause::ALL.iter().map(|cause| cause.as_str());
        for (cause, count) in std::iter::once(SUCCESS).chain(causes).zip(&self.ends.0) {
            text.sample(&[("cause", cause)], count.get());
        }
        text.one(
            "torc_attempts_claimed_total",
            MetricKind::Counter,
            "Attempts that were given to runners since the start of the server.",
            self.claimed_attempts.get(),
        );
        text.histogram(
            "torc_claim_duration_seconds",
            "Time from a runner's claim to its answer, without waiting for work.",
            &self.claims,
        );
        text.one(
            "torc_claims_waiting",
            MetricKind::Gauge,
            "Claims of runners that wait for work now.",
            self.waiting_claims.get(),
        );
        text.histogram(
            "torc_commit_duration_seconds",
            "Time from the begin of a transaction to its commit on disk.",
            &self.commits,
        );
        text.one(
            "torc_commit_requests_total",
            MetricKind::Counter,
            "Requests whose transaction was committed; several share one commit.",
            self.committed_requests.get(),
        );
        text.one(
            "torc_commit_failures_total",
            MetricKind::Counter,
            "Transactions that could not be committed.",
            self.failed_commits.get(),
        );
        text.family(
            "torc_events_total",
            MetricKind::Counter,
            "Events that were committed, by kind.",
        );
        for (kind, count) in EventKind::ALL.iter().zip(&self.events.0) {
            text.sample(&[("kind", kind.as_str())], count.get());
        }
        text.family(
            "torc_http_responses_total",
            MetricKind::Counter,
            "Answers by class of status.",
        );
        for (code, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(&self.answers) {
            text.sample(&[("code", code)], count.get());
        }
        text.family(
            "torc_webhook_tries_total",
            MetricKind::Counter,
            "Tries of webhook deliveries, by whether the receiver accepted them.",
        );
        for (outcome, count) in ["accepted", "failed"].into_iter().zip(&self.deliveries) {
            text.sample(&[("outcome", outcome)], count.get());
        }
    }
}

/// Where the end that an event tells of is counted. Events of jobs without an attempt of their own
/// (a map whose items are done, a job that was canceled before it started) tell of no end.
fn end_of(event: &EventView) -> Option<usize> {
    let tells_of_an_end = matches!(
        event.kind,
        EventKind::JobCanceled
            | EventKind::JobCompleted
            | EventKind::JobFailed
            | EventKind::JobPendingFailed
            | EventKind::JobRetried
            | EventKind::JobTerminated
    );
    if !tells_of_an_end {
        return None;
    }
    match event.data.get("cause")? {
        serde_json::Value::Null => Some(0),
        word => Cause::parse(word.as_str()?).map(|cause| cause as usize + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use torc_model::ids::WorkflowId;

    fn event(kind: EventKind, data: serde_json::Value) -> EventView {
        let (workflow_id, id) = (WorkflowId(1), 1);
        EventView { id, workflow_id, timestamp_ms: 0, kind, job_id: None, job_name: None, data }
    }

    #[test]
    fn an_end_is_counted_by_its_cause_and_what_is_no_end_is_not() {
        let metrics = Metrics::default();
        metrics.committed(&[
            event(EventKind::JobCompleted, json!({"attempt_id": 1, "cause": null})),
            event(EventKind::JobCompleted, json!({"total": 3, "successful": 3})),
            event(EventKind::JobRetried, json!({"cause": "oom", "will_retry": true})),
            event(EventKind::JobFailed, json!({"cause": "oom"})),
            event(EventKind::LateResult, json!({"cause": "exit"})),
            event(EventKind::JobCanceled, json!({"because_of_job_id": 2})),
        ]);
        let mut text = MetricsText::default();
        metrics.write(&mut text);
        let text = text.finish();
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        has(r#"torc_attempts_ended_total{cause="success"} 1"#);
        has(r#"torc_attempts_ended_total{cause="oom"} 2"#);
        has(r#"torc_attempts_ended_total{cause="exit"} 0"#);
        has(r#"torc_attempts_ended_total{cause="canceled"} 0"#);
        has(r#"torc_events_total{kind="job_completed"} 2"#);
    }
}
