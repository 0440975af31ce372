//! What is given back to a job whose machine was to blame, and what a job that starts over keeps: nothing
//! of what it was before counts for it or against it.

use super::*;
use torc_model::plan::Rule;
use torc_model::status::{Afterwards, Cause, JobStatus, Outcome, RunningJobs};

/// A job with one rule that retries any failure up to this attempt, and a job for a larger runner.
fn ruled(max_retries: u32) -> Chronicle {
    let rule = Rule { match_all_exit_codes: true, max_retries, ..Rule::default() };
    let jobs = vec![
        but(job(&[]), |job| job.handler = Some(HandlerIx::new(0))),
        but(job(&[]), |job| job.class.cpus = 50),
    ];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[rule])], jobs);
    c.initialize();
    c
}

/// Lets the first job run and fail until it is not tried again; answers how often it ran.
fn runs(c: &mut Chronicle) -> usize {
    let mut runs = 0;
    while c.take(1, 1).contains(&0) {
        c.end(0, Some(Cause::Exit), 1);
        runs += 1;
    }
    assert_eq!(c.flow.job(ix(0)).status(), JobStatus::Failed);
    runs
}

fn reset(c: &mut Chronicle) {
    let chosen = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("it does not run");
    c.flow.reset(&chosen, c.now);
    c.flow.initialize(c.now);
}

/// The first attempt of the first run, which the rule retried, turns out to be its machine's fault.
fn refund_first(c: &mut Chronicle) -> bool {
    let burnt = BurntAttempt { id: AttemptId(101), run: 1, number: 1, rule: Some(0) };
    c.flow.refund(ix(0), &burnt, c.now)
}

#[test]
fn an_attempt_that_its_machine_burnt_leaves_room_for_another_one() {
    let mut c = ruled(2);
    c.take(1, 1);
    c.end(0, Some(Cause::Exit), 1);
    assert!(!refund_first(&mut c), "the rule had queued the next one already");
    assert_eq!(runs(&mut c), 2, "after the one that did not count");
}

#[test]
fn a_job_that_failed_on_a_bad_machine_stays_failed_in_a_canceled_workflow() {
    let mut c = ruled(1);
    assert_eq!(runs(&mut c), 1);
    c.flow.cancel(c.now);
    assert!(c.flow.canceled && c.flow.is_complete());
    let burnt = BurntAttempt { id: AttemptId(101), run: 1, number: 1, rule: None };
    assert!(!c.flow.refund(ix(0), &burnt, c.now));
    assert_eq!(c.flow.job(ix(0)).status(), JobStatus::Failed);
}

#[test]
fn what_was_burnt_in_an_earlier_run_is_not_given_back() {
    let mut c = ruled(2);
    assert_eq!(runs(&mut c), 2);
    reset(&mut c);
    assert_eq!(c.flow.run, 2);
    c.flow.take_changes();
    assert!(!refund_first(&mut c));
    assert_eq!(c.flow.take_changes(), [], "nothing follows");
    c.take(1, 1);
    c.end(0, Some(Cause::Exit), 1);
    refund_first(&mut c);
    assert_eq!(runs(&mut c), 1, "the rule allows two attempts in this run, too");
}

#[test]
fn what_was_burnt_before_a_job_waits_for_the_next_run_leaves_it_without_attempts() {
    let mut c = ruled(2);
    runs(&mut c);
    let chosen = c.flow.plan_reset(&Seeds::All).expect("nothing runs");
    c.flow.reset(&chosen, c.now);
    refund_first(&mut c);
    let tries = c.flow.job(ix(0)).tries;
    assert_eq!((tries.number, tries.refunds), (0, 0));
}

#[test]
fn what_was_burnt_before_a_job_was_reset_in_a_run_that_goes_on_is_not_given_back() {
    let mut c = ruled(2);
    assert_eq!(c.take(2, 51).len(), 2);
    c.end(0, Some(Cause::Exit), 1);
    assert_eq!(runs(&mut c), 1);
    reset(&mut c);
    assert_eq!((c.flow.run, c.flow.job(ix(0)).attempt()), (1, 3), "the other job runs");
    refund_first(&mut c);
    assert_eq!(runs(&mut c), 2, "as many as the rule allows, and no more");
}

#[test]
fn a_revision_that_changes_a_running_job_gives_it_all_retries_of_its_rules() {
    let mut c = ruled(2);
    c.take(1, 1);
    c.end(0, Some(Cause::Exit), 1);
    c.take(1, 1);
    let again = vec![ix(0)];
    let revision = Revision { again, running: RunningJobs::Finish, ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    assert_eq!(c.flow.job(ix(0)).afterwards(), Some(Afterwards::RunAgain));
    c.end(0, Some(Cause::Exit), 1);
    let tries = c.flow.job(ix(0)).tries;
    assert_eq!((tries.number, tries.refunds, tries.before), (3, 2, 2));
    refund_first(&mut c);
    assert_eq!(runs(&mut c), 2);
}

/// What a restart reads of a job that has failed twice, the second time for good.
fn rows(tries: Tries) -> Rows {
    let rule = Rule { match_all_exit_codes: true, max_retries: 2, ..Rule::default() };
    let ended = |number: u32, outcome| EndedRow {
        id: AttemptId(i64::from(number)),
        job: JobId(1),
        number,
        outcome: Some(outcome),
        rule: Some(0),
        script: None,
    };
    let new = but(job(&[]), |job| (job.id, job.handler) = (JobId(1), Some(HandlerIx::new(0))));
    Rows {
        id: WorkflowId(1),
        run: 1,
        canceled: false,
        settings: Default::default(),
        handlers: vec![handler(&[rule])],
        jobs: vec![JobRow {
            job: new,
            status: JobStatus::Failed,
            tries,
            held_back: false,
            reason: None,
            afterwards: None,
        }],
        live: Vec::new(),
        ended: vec![ended(1, Outcome::Retried), ended(2, Outcome::MaxRetriesExceeded)],
        actions: Vec::new(),
        typical_ms: None,
        families: Vec::new(),
        ends: Vec::new(),
    }
}

#[test]
fn a_restart_counts_what_rules_gave_since_the_job_started_over() {
    for (before, uses) in [(0, 1), (1, 0), (2, 0)] {
        let tries = Tries { number: 2, before, ..Tries::none(1) };
        let flow = rows(tries).restore();
        assert_eq!(flow.handlers.uses(ix(0), 0), uses, "after attempt {before}");
    }
}
