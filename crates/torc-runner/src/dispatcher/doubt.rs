//! Failures that may not be the job's own.
//!
//! A batch system that takes its nodes back signals everything on them at once, the jobs and their
//! runner alike, and it is chance whose end or signal is seen first. So a failure is kept back for
//! a moment: if the runner is told to stop meanwhile, the job was stopped with it.

use super::Active;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use torc_model::api::{CompletionReport, Evidence, TOLD_TO_STOP};
use torc_model::status::{Cause, EndDetail, EvidenceSource};

/// What is kept back, oldest first.
pub(super) struct Doubts {
    /// How long; `None`: only their runner signals jobs.
    patience: Option<Duration>,
    waiting: VecDeque<(Instant, Active, CompletionReport)>,
}

impl Doubts {
    pub fn new(patience: Option<Duration>) -> Self {
        Self { patience, waiting: VecDeque::new() }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The same signal that stops the runner may have ended this attempt.
    pub fn concerns(&self, report: &CompletionReport) -> bool {
        self.patience.is_some() && report.cause.is_some_and(Cause::is_end_of_program)
    }

    pub fn keep(&mut self, active: Active, report: CompletionReport, now: Instant) {
        self.waiting.push_back((now + self.patience.unwrap_or_default(), active, report));
    }

    pub fn next_alarm(&self) -> Option<Instant> {
        self.waiting.front().map(|(until, ..)| *until)
    }

    /// Failures that turned out to be the jobs' own.
    pub fn take_due(&mut self, now: Instant) -> Vec<(Active, CompletionReport)> {
        let count = self.waiting.iter().take_while(|(until, ..)| *until <= now).count();
        self.waiting.drain(..count).map(|(_, active, report)| (active, report)).collect()
    }

    pub fn take_all(&mut self) -> Vec<(Active, CompletionReport)> {
        self.waiting.drain(..).map(|(_, active, report)| (active, report)).collect()
    }
}

/// The attempt ended because its runner was to stop.
pub(super) fn stopped_with_its_runner(mut report: CompletionReport) -> CompletionReport {
    let text = format!(
        "it ended with {} at the moment when its runner was told to stop",
        report.return_code
    );
    report.evidence.push(Evidence { source: EvidenceSource::Journal, text });
    report.cause = Some(Cause::Stopped);
    report.detail = Some(EndDetail::ToldToStop);
    report.error = Some(TOLD_TO_STOP.into());
    report
}
