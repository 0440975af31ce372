//! What bounds the server's own retries: numbers and times that follow from the rules.

use super::*;
use torc_model::chance;
use torc_model::plan::AutoRecover;
use torc_model::recovery::{RetryOutcome, Tried};

fn retry(row: i64, job: i64, cause: &'static str, waits: bool) -> AutoRetry<'static> {
    AutoRetry { row, job: JobId(job), cause, tried: Tried::Again, waits, at: 0, outcome: None }
}

fn seen(job: Option<i64>, retries: &[AutoRetry<'_>]) -> RetriesSoFar<'static> {
    let mut so_far = RetriesSoFar::new(job.map(JobId), "network");
    retries.iter().for_each(|retry| so_far.see(*retry));
    so_far
}

#[test]
fn the_next_retry_is_numbered_among_those_of_the_job_and_of_its_cause() {
    let numbers = |so_far: RetriesSoFar<'_>| (so_far.next_of_job(), so_far.next_of_cause());
    assert_eq!(numbers(seen(Some(1), &[])), (1, 1));
    let retries = [
        retry(1, 1, "network", false),
        retry(2, 1, "disk", false),
        retry(3, 1, "disk", false),
        retry(4, 2, "network", false),
    ];
    assert_eq!(numbers(seen(Some(1), &retries)), (4, 2));
}

#[test]
fn the_last_failure_of_each_job_tells_whether_it_fails_just_now() {
    let now = 10_000_000;
    let at = |row, job, at| AutoRetry { at, ..retry(row, job, "network", false) };
    // The first of five jobs failed long ago, and again a moment ago.
    let mut retries: Vec<AutoRetry<'_>> = (1..=4).map(|job| at(job, job, now - 10)).collect();
    retries[0].at = 0;
    assert_eq!(seen(Some(9), &retries).storm(now).jobs, 4);
    retries.push(at(5, 1, now - 10));
    assert_eq!(seen(Some(9), &retries).storm(now).jobs, 5);
    retries.swap(0, 4);
    assert_eq!(seen(Some(9), &retries).storm(now).jobs, 5, "in any order");
}

#[test]
fn a_workflows_budget_is_spent_when_it_had_that_many_retries() {
    let settings = AutoRecover::default();
    let retries = [retry(1, 2, "disk", false), retry(2, 3, "disk", false)];
    assert_eq!(seen(Some(1), &[]).spent(&settings, 1), None);
    assert_eq!(seen(Some(1), &retries[..1]).spent(&settings, 2), None);
    assert!(seen(Some(1), &retries).spent(&settings, 2).is_some());
}

#[test]
fn retries_that_waited_are_spread_over_ten_seconds_or_wait_as_a_second_retry_does() {
    let (now, settings) = (1_000_000, AutoRecover::default());
    let so_far = seen(None, &[retry(5, 5, "network", true), retry(6, 6, "network", true)]);
    let at = |row: i64| now + (chance::unit(row.unsigned_abs()) * 10_000.0) as i64;
    assert_eq!(
        so_far.after(Some(RetryOutcome::Succeeded), &settings, now),
        AfterRetry::AllGoOn(vec![(5, JobId(5), at(5)), (6, JobId(6), at(6))])
    );
    let wait = settings.wait_ms(2, chance::unit(5), None);
    assert_eq!(
        so_far.after(Some(RetryOutcome::FailedSame), &settings, now),
        AfterRetry::OneGoesOn(5, JobId(5), now + wait)
    );
}
