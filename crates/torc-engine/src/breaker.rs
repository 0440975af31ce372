//! What bounds the retries that the server itself decides on: budgets of a job, of a cause of a job
//! and of a workflow, and a breaker for each cause. When many jobs fail for the same passing cause
//! within minutes, one of their retries runs; the others wait until it has succeeded, and one by one
//! take its place while it fails.
//!
//! All of it follows from the rows of such retries in a run, so that a restart changes nothing.

use super::change::Judged;
use std::collections::BTreeMap;
use torc_model::chance;
use torc_model::ids::{AttemptId, JobId};
use torc_model::plan::AutoRecover;
use torc_model::recovery::{Action, Diagnosis, FailureCard, RetryOutcome, Tried};
use torc_model::status::Cause;
use torc_model::words;

/// So many jobs with the same passing cause open the breaker ...
const STORM: i64 = 5;
/// ... when they failed within this time.
const STORM_MS: i64 = 300_000;
/// Retries that waited come back spread over this long, so that they are no new storm.
const SPREAD_MS: i64 = 10_000;

/// A retry that the server decided on, as its row says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoRetry<'a> {
    /// Its row.
    pub row: i64,
    /// The job.
    pub job: JobId,
    /// Why the job had failed.
    pub cause: &'a str,
    /// What is tried.
    pub tried: Tried,
    /// It waits for another retry of the same cause.
    pub waits: bool,
    /// When it was decided on.
    pub at: i64,
    /// How it went, and when that was known.
    pub outcome: Option<(RetryOutcome, i64)>,
}

/// The retries of a run, looked at for a job and the cause of its failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetriesSoFar<'a> {
    job: Option<JobId>,
    cause: &'a str,
    of_job: i64,
    of_cause: i64,
    of_workflow: i64,
    /// When a retry for the cause last succeeded.
    succeeded: i64,
    /// Other jobs that failed for the cause, and when last.
    others: BTreeMap<JobId, i64>,
    /// Retries for it that are queued or run and wait for no other.
    probes: usize,
    /// Those that wait, with their rows.
    waiting: Vec<(i64, JobId)>,
}

/// What a job meets that failed for a passing cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storm {
    /// Jobs, this one included, that failed for it lately, since a retry last succeeded.
    pub jobs: i64,
    /// Its retry waits for another one.
    pub waits: bool,
    /// It is the first that does.
    pub is_first_to_wait: bool,
}

/// What follows from the end of a retry for those that wait for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AfterRetry {
    /// Nothing.
    Nothing,
    /// It succeeded: all of them go on, each not before its time.
    AllGoOn(Vec<(i64, JobId, i64)>),
    /// It failed and no other one tries: this one does, not before this time.
    OneGoesOn(i64, JobId, i64),
}

impl<'a> RetriesSoFar<'a> {
    /// None seen yet. Without a job all those of the cause count as others.
    pub fn new(job: Option<JobId>, cause: &'a str) -> Self {
        Self {
            job,
            cause,
            of_job: 0,
            of_cause: 0,
            of_workflow: 0,
            succeeded: 0,
            others: BTreeMap::new(),
            probes: 0,
            waiting: Vec::new(),
        }
    }

    /// Takes one in.
    pub fn see(&mut self, retry: AutoRetry<'_>) {
        let (is_own, is_same) = (self.job == Some(retry.job), self.cause == retry.cause);
        self.of_workflow += 1;
        self.of_job += i64::from(is_own);
        self.of_cause += i64::from(is_own && is_same);
        if !is_same || retry.tried != Tried::Again {
            return;
        }
        if let Some((RetryOutcome::Succeeded, at)) = retry.outcome {
            self.succeeded = self.succeeded.max(at);
        }
        if is_own {
            return;
        }
        let last = self.others.entry(retry.job).or_insert(retry.at);
        *last = retry.at.max(*last);
        match (retry.outcome, retry.waits) {
            (None, false) => self.probes += 1,
            (None, true) => self.waiting.push((retry.row, retry.job)),
            (Some(_), _) => {}
        }
    }

    /// The number that another retry of the job would have.
    pub fn next_of_job(&self) -> i64 {
        self.of_job + 1
    }

    /// The same among those for this cause.
    pub fn next_of_cause(&self) -> u32 {
        u32::try_from(self.of_cause).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Which budget is spent, if one is; `workflow` is that of the workflow.
    pub fn spent(&self, settings: &AutoRecover, workflow: i64) -> Option<String> {
        let retries = |count: i64| words::count(count, "retry");
        if self.of_cause >= i64::from(settings.max_retries_per_cause) {
            return Some(format!(
                "{} for the same cause (`{}`) did not help (`max_retries_per_cause`)",
                retries(self.of_cause),
                self.cause
            ));
        }
        if self.of_job >= i64::from(settings.max_retries) {
            return Some(format!("it had {} in this run (`max_retries`)", retries(self.of_job)));
        }
        (self.of_workflow >= workflow).then(|| {
            format!(
                "the workflow had {} in this run (`max_workflow_retries`)",
                retries(self.of_workflow)
            )
        })
    }

    /// How many jobs fail for the cause just now, and what that means for one more.
    pub fn storm(&self, now: i64) -> Storm {
        let since = self.succeeded.max(now - STORM_MS);
        let jobs = 1 + self.others.values().filter(|at| **at > since).count() as i64;
        let waits = jobs >= STORM && self.probes > 0;
        Storm { jobs, waits, is_first_to_wait: waits && self.waiting.is_empty() }
    }

    /// What a retry for the cause that has told how it went means for those that wait.
    pub fn after(
        &self,
        outcome: Option<RetryOutcome>,
        settings: &AutoRecover,
        now: i64,
    ) -> AfterRetry {
        let unit = |row: i64| chance::unit(row.unsigned_abs());
        let Some((row, job)) = self.waiting.first() else { return AfterRetry::Nothing };
        if outcome == Some(RetryOutcome::Succeeded) {
            let spread = |row: i64| (unit(row) * SPREAD_MS as f64) as i64;
            let go_on = self.waiting.iter().map(|(row, job)| (*row, *job, now + spread(*row)));
            return AfterRetry::AllGoOn(go_on.collect());
        }
        if self.probes > 0 {
            return AfterRetry::Nothing;
        }
        AfterRetry::OneGoesOn(*row, *job, now + settings.wait_ms(2, unit(*row), None))
    }
}

/// The server may retry by itself what failed for this cause. What was lost, stopped or canceled is
/// no failure of the job.
pub fn is_for_the_server(cause: Cause) -> bool {
    cause != Cause::Canceled && cause != Cause::Checkpoint && !cause.is_loss() && !cause.is_stop()
}

/// A failure with a remedy of which the server is sure enough to retry it by itself.
#[derive(Clone, Copy, Debug)]
pub struct Curable<'a> {
    /// What is tried.
    pub tried: Tried,
    diagnosis: &'a Diagnosis,
    card: &'a FailureCard,
    settings: &'a AutoRecover,
}

impl<'a> Curable<'a> {
    /// An error: nothing is done, and why.
    pub fn new(
        diagnosis: &'a Diagnosis,
        card: &'a FailureCard,
        settings: &'a AutoRecover,
    ) -> Result<Self, Judged> {
        let tried = Tried::of(card.action).ok_or_else(|| Judged::Leave(card.why.clone()))?;
        let confidence = diagnosis.confidence;
        if confidence < settings.confidence {
            return Err(Judged::Leave(format!(
                "{} has only {:.0}% confidence, and {:.0}% are asked for",
                diagnosis.kind.title(),
                confidence * 100.0,
                settings.confidence * 100.0
            )));
        }
        Ok(Self { tried, diagnosis, card, settings })
    }

    /// What is done about it after the retries so far: the verdict on the attempt that ended now, and
    /// what its retry meets. `budget` is that of the workflow.
    pub fn judge(
        &self,
        attempt: AttemptId,
        so_far: &RetriesSoFar<'_>,
        budget: i64,
        now: i64,
    ) -> (Judged, Option<Storm>) {
        let Self { diagnosis, card, settings, .. } = self;
        if let Some(why) = so_far.spent(settings, budget) {
            return (Judged::Leave(why), None);
        }
        let mut text = format!(
            "recovered automatically ({}, {:.0}% confidence): {}",
            diagnosis.kind.title(),
            diagnosis.confidence * 100.0,
            card.why
        );
        let (mut storm, mut wait) = (Storm { jobs: 0, waits: false, is_first_to_wait: false }, 0);
        if card.action == Action::Again {
            storm = so_far.storm(now);
            let asked = diagnosis.needs.wait_seconds;
            let unit = chance::unit(attempt.0.unsigned_abs());
            wait = match storm.waits {
                // Only if the other one is never heard of again.
                true => (settings.max_delay_seconds * 1000.0) as i64,
                false => settings.wait_ms(so_far.next_of_cause(), unit, asked),
            };
            if storm.waits {
                text += &format!(
                    "; {} failed this way within minutes, so it waits until one of them has tried",
                    words::count(storm.jobs, "job")
                );
            } else if let Some(asked) = asked {
                text += &format!("; it was asked to wait {asked:.0} s");
            }
        }
        text +=
            &format!("; retry {} of {} of this job", so_far.next_of_job(), settings.max_retries);
        if wait > 0 && !storm.waits {
            text += &format!(", not before {:.1} s from now", wait as f64 / 1000.0);
        }
        let not_before = (wait > 0).then_some(now + wait);
        (Judged::Again { not_before, text }, Some(storm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: &str = "network";

    fn retry(row: i64, at: i64) -> AutoRetry<'static> {
        let (tried, job) = (Tried::Again, JobId(row));
        AutoRetry { row, job, cause: CAUSE, tried, waits: false, at, outcome: None }
    }

    fn seen(job: i64, retries: &[AutoRetry<'_>]) -> RetriesSoFar<'static> {
        let mut so_far = RetriesSoFar::new(Some(JobId(job)), CAUSE);
        retries.iter().for_each(|retry| so_far.see(*retry));
        so_far
    }

    #[test]
    fn the_fifth_job_with_the_same_cause_within_minutes_waits_for_another() {
        let now = 1_000_000;
        let four: Vec<_> = (1..=4).map(|row| retry(row, now - row)).collect();
        let storm = seen(5, &four).storm(now);
        assert_eq!(storm, Storm { jobs: 5, waits: true, is_first_to_wait: true });
        assert!(!seen(4, &four).storm(now).waits, "only four jobs fail");
        assert!(!seen(5, &four).storm(now + STORM_MS).waits, "they failed long ago");
        let mut passed = four.clone();
        passed[0].outcome = Some((RetryOutcome::Succeeded, now));
        assert_eq!(seen(5, &passed).storm(now).jobs, 1, "the cause has passed since");
        let other = AutoRetry { cause: "disk", ..retry(9, now) };
        assert_eq!(seen(5, &[other]).storm(now).jobs, 1, "another cause");
        let mut none_tries = four.clone();
        none_tries.iter_mut().for_each(|r| r.outcome = Some((RetryOutcome::FailedSame, now)));
        assert!(!seen(5, &none_tries).storm(now).waits, "there is none to wait for");
        let mut waits = four;
        waits[3].waits = true;
        assert!(!seen(5, &waits).storm(now).is_first_to_wait);
    }

    #[test]
    fn those_that_wait_go_on_when_one_succeeded_and_one_by_one_while_they_fail() {
        let settings = AutoRecover::default();
        let mut retries = vec![retry(1, 0), retry(2, 1), retry(3, 2)];
        retries[1].waits = true;
        retries[2].waits = true;
        let after = |retries: &[AutoRetry<'_>], outcome| {
            let mut so_far = RetriesSoFar::new(None, CAUSE);
            retries.iter().for_each(|retry| so_far.see(*retry));
            so_far.after(Some(outcome), &settings, 100)
        };
        assert_eq!(
            after(&retries, RetryOutcome::FailedSame),
            AfterRetry::Nothing,
            "one still tries"
        );
        retries[0].outcome = Some((RetryOutcome::FailedSame, 50));
        let AfterRetry::OneGoesOn(2, JobId(2), at) = after(&retries, RetryOutcome::FailedSame)
        else {
            panic!("the first of those that wait takes its place");
        };
        assert!(at >= 100);
        let AfterRetry::AllGoOn(all) = after(&retries, RetryOutcome::Succeeded) else {
            panic!("all go on");
        };
        assert_eq!(all.iter().map(|(row, ..)| *row).collect::<Vec<_>>(), [2, 3]);
        assert!(all.iter().all(|(_, _, at)| (100..100 + SPREAD_MS).contains(at)));
        assert_eq!(after(&retries[..1], RetryOutcome::Succeeded), AfterRetry::Nothing);
    }

    #[test]
    fn a_spent_budget_is_named_the_narrowest_first() {
        let settings =
            AutoRecover { max_retries: 3, max_retries_per_cause: 2, ..Default::default() };
        let own = |row, cause| AutoRetry { job: JobId(1), cause, ..retry(row, 0) };
        let of = |retries: &[AutoRetry<'_>], budget| seen(1, retries).spent(&settings, budget);
        assert_eq!(of(&[own(1, CAUSE)], 10), None);
        let same = of(&[own(1, CAUSE), own(2, CAUSE)], 10).expect("two for the cause");
        assert!(same.contains("max_retries_per_cause"), "{same}");
        let other = [own(1, "disk"), own(2, "disk"), own(3, "disk")];
        assert!(of(&other, 10).expect("three in all").contains("`max_retries`"));
        assert!(of(&[retry(7, 0)], 1).expect("the workflow's").contains("max_workflow_retries"));
    }
}
