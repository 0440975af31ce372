//! What bounds the server's own retries: numbers and times that follow from the rules.

use super::*;
use torc_model::chance;
use torc_model::ids::AttemptId;
use torc_model::plan::AutoRecover;
use torc_model::recovery::{Action, Diagnosis, FailureCard, RetryOutcome, Tried};
use torc_model::status::Cause;

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

fn diagnosis(confidence: f64) -> Diagnosis {
    serde_json::from_value(serde_json::json!({
        "kind": "network", "nature": "transient", "confidence": confidence, "summary": "s", "proof": [], "doubts": [],
    }))
    .expect("a diagnosis")
}

fn card(action: Action) -> FailureCard {
    FailureCard { action, changes: Vec::new(), why: "w".into(), chance: 0.5, cost_seconds: None }
}

#[test]
fn only_a_remedy_of_which_the_server_is_sure_is_tried_by_itself() {
    let settings = AutoRecover { confidence: 0.8, ..AutoRecover::default() };
    let tried = |confidence, action| {
        Curable::new(&diagnosis(confidence), &card(action), &settings).map(|curable| curable.tried)
    };
    assert_eq!(tried(0.8, Action::Again), Ok(Tried::Again));
    assert_eq!(tried(0.9, Action::MoreMemory), Ok(Tried::MoreMemory));
    assert_eq!(tried(1.0, Action::Skip), Err(Judged::Leave("w".into())));
    let Err(Judged::Leave(why)) = tried(0.79, Action::Again) else { panic!("it is not sure") };
    assert!(why.contains("79% confidence, and 80% are asked for"), "{why}");
    assert!(is_for_the_server(Cause::Exit) && is_for_the_server(Cause::Oom));
    for cause in [Cause::Canceled, Cause::Checkpoint, Cause::Lost, Cause::Stopped, Cause::Walltime]
    {
        assert!(!is_for_the_server(cause), "{cause}");
    }
}

#[test]
fn a_retry_waits_its_time_or_for_another_one_and_none_is_tried_past_the_budget() {
    let settings = AutoRecover { max_delay_seconds: 600.0, ..AutoRecover::default() };
    let (now, attempt) = (1_000_000, AttemptId(9));
    let judge = |action, retries: &[AutoRetry<'_>], budget| {
        let (diagnosis, card) = (diagnosis(1.0), card(action));
        let curable = Curable::new(&diagnosis, &card, &settings).expect("it is sure");
        curable.judge(attempt, &seen(Some(1), retries), budget, now)
    };
    let (Judged::Again { not_before, text }, Some(storm)) = judge(Action::Again, &[], 10) else {
        panic!("it is tried again")
    };
    let wait = settings.wait_ms(1, chance::unit(9), None);
    assert_eq!((not_before, storm.waits), ((wait > 0).then_some(now + wait), false));
    assert!(text.contains(": w; retry 1 of"), "{text}");
    let others: Vec<_> =
        (2..=5).map(|job| AutoRetry { at: now, ..retry(job, job, "network", false) }).collect();
    let (Judged::Again { not_before, text }, Some(storm)) = judge(Action::Again, &others, 10)
    else {
        panic!("it is tried again")
    };
    assert_eq!((not_before, storm.waits, storm.jobs), (Some(now + 600_000), true, 5));
    assert!(text.contains("5 jobs failed this way") && !text.contains("not before"), "{text}");
    let (Judged::Again { not_before, .. }, Some(storm)) = judge(Action::MoreMemory, &others, 10)
    else {
        panic!("it is tried again")
    };
    assert_eq!((not_before, storm.waits), (None, false), "more memory helps in a storm too");
    assert!(matches!(judge(Action::Again, &others, 4), (Judged::Leave(_), None)));
}
