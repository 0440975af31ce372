//! What a new revision does to a workflow that is over, and to one that runs.

use super::*;
use torc_model::plan::Rule;
use torc_model::status::{Cause, JobStatus};

fn new(id: i64, parents: &[usize]) -> NewJob {
    but(job(parents), |job| (job.id, job.position) = (JobId(id), id))
}

fn added(jobs: Vec<NewJob>) -> Revision {
    Revision { added: jobs, ..Revision::default() }
}

/// The runs that the changes say began.
fn started(flow: &mut Workflow) -> Vec<i64> {
    let changes = flow.take_changes().into_iter();
    let run = |change| match change {
        Change::Workflow { run, started: true, .. } => Some(run),
        _ => None,
    };
    changes.filter_map(run).collect()
}

#[test]
fn new_jobs_begin_the_next_run_of_a_workflow_that_is_over_also_of_a_canceled_one() {
    for is_canceled in [false, true] {
        let mut c = Chronicle::plain(vec![job(&[])]);
        c.flow.initialize(0);
        if is_canceled {
            c.flow.cancel(0);
        } else {
            c.finish();
        }
        assert!(c.flow.is_complete());
        c.flow.take_changes();
        assert_eq!(c.flow.revise(added(vec![new(2, &[])]), 0).expect("it is over"), [ix(1)]);
        assert_eq!((c.flow.run, c.flow.canceled, c.flow.is_complete()), (2, false, false));
        assert_eq!(started(&mut c.flow), [2]);
        assert_eq!(c.take(1, 9), [1]);
    }
}

#[test]
fn a_revision_that_runs_nothing_leaves_a_workflow_over() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[])]);
    c.flow.initialize(0);
    c.finish();
    c.flow.take_changes();
    let removed = Revision { removed: vec![ix(1)], ..Revision::default() };
    c.flow.revise(removed, 0).expect("it is over");
    assert_eq!((c.flow.run, c.flow.is_complete()), (1, true));
    assert!(started(&mut c.flow).is_empty());
}

#[test]
fn a_workflow_that_has_not_begun_stays_so() {
    let mut c = Chronicle::plain(Vec::new());
    c.flow.revise(added(vec![new(1, &[])]), 0).expect("it has not begun");
    assert_eq!((c.flow.run, statuses(&c.flow)), (0, vec![JobStatus::Uninitialized]));
    let removed = Revision { removed: vec![ix(0)], ..Revision::default() };
    c.flow.revise(removed, 0).expect("it has not begun");
    assert_eq!((c.flow.run, started(&mut c.flow)), (0, Vec::new()));
}

#[test]
fn rules_give_their_retries_anew_in_the_next_run() {
    let once = Rule { match_all_exit_codes: true, max_retries: 2, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[once])], jobs);
    c.flow.initialize(0);
    for run in [1, 2] {
        assert_eq!(c.flow.run, run);
        for status in [JobStatus::Ready, JobStatus::Failed] {
            assert_eq!(c.take(1, 1), [0]);
            c.end(0, Some(Cause::Exit), 1);
            assert_eq!(c.flow.job(ix(0)).status(), status, "run {run}");
        }
        let again = Revision { again: vec![ix(0)], ..Revision::default() };
        c.flow.revise(again, c.now).expect("it is over");
    }
}

#[test]
fn what_a_rule_gave_in_an_earlier_run_does_not_count_for_a_job_that_stayed_failed() {
    let once = Rule { match_all_exit_codes: true, max_retries: 2, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[once])], jobs);
    c.flow.initialize(0);
    for run in 1..=3 {
        for status in [JobStatus::Ready, JobStatus::Failed] {
            assert_eq!(c.take(1, 1), [0]);
            c.end(0, Some(Cause::Exit), 1);
            assert_eq!(c.flow.job(ix(0)).status(), status, "run {run}");
        }
        // A new job begins the next run, in which a person retries the failed one.
        c.flow.revise(added(vec![new(1 + run, &[])]), c.now).expect("it is over");
        let given = c.take(2, 1);
        assert_eq!((c.flow.run, given.len()), (run + 1, 1));
        c.end(given[0], None, 0);
        c.flow.retry(ix(0), run + 1, 9, c.now).expect("it failed");
    }
}

#[test]
fn the_next_run_of_a_revision_triggers_what_waits_for_its_start() {
    let mut c = Chronicle::plain(vec![job(&[])]);
    c.flow.add_action(NewAction {
        id: torc_model::ids::ActionId(1),
        trigger: torc_model::status::Trigger::OnWorkflowStart,
        jobs: Vec::new(),
        persistent: false,
        is_recovery: false,
        schedules_nodes: false,
        state: torc_model::status::ActionState::Waiting,
        by: None,
    });
    c.flow.settle();
    c.flow.initialize(0);
    c.finish();
    let states = |c: &Chronicle| c.flow.actions().map(|action| action.state).collect::<Vec<_>>();
    c.flow.retire_schedules();
    let mut given = KnownRunner::new(WorkflowId(1), "a".into(), 7, node(1)).begin_actions(
        RunnerId(1),
        &c.flow,
        "k",
        0,
    );
    c.flow.give_actions(RunnerId(1), &mut given);
    c.flow.action_done(torc_model::ids::ActionId(1), RunnerId(1), None);
    assert_eq!(states(&c), [torc_model::status::ActionState::Executed]);
    c.flow.revise(added(vec![new(2, &[])]), 0).expect("it is over");
    assert_eq!(states(&c), [torc_model::status::ActionState::Triggered]);
}

#[test]
fn what_waits_behind_a_removed_job_does_not_make_jobs_before_it_urgent() {
    let sized = |ms, parents: &[usize]| but(job(parents), |job| job.own_ms = Some(ms));
    let jobs = vec![sized(10, &[]), sized(10, &[0]), sized(100_000, &[1]), sized(1_000, &[])];
    let mut c = Chronicle::plain(jobs);
    c.flow.initialize(0);
    assert!(c.flow.rank(ix(0)) > c.flow.rank(ix(3)));
    let removed = vec![ix(1)];
    c.flow.revise(Revision { removed, ..Revision::default() }, 0).expect("it is live");
    assert!(c.flow.rank(ix(0)) < c.flow.rank(ix(3)));
}

#[test]
fn a_job_that_is_revised_while_it_runs_has_all_retries_of_its_rule_each_time() {
    let once = Rule { match_all_exit_codes: true, max_retries: 2, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[once])], jobs);
    c.flow.initialize(0);
    for life in 1..=3 {
        assert_eq!(c.take(1, 1), [0]);
        c.end(0, Some(Cause::Exit), 1);
        assert_eq!(c.flow.job(ix(0)).status(), JobStatus::Ready, "life {life}");
        assert_eq!(c.take(1, 1), [0]);
        let again = Revision { again: vec![ix(0)], ..Revision::default() };
        c.flow.revise(again, c.now).expect("it is live");
        c.end(0, None, 0);
    }
}

#[test]
fn a_revision_of_a_run_that_goes_on_does_not_begin_it_anew() {
    let mut c = Chronicle::plain(vec![job(&[])]);
    c.flow.initialize(0);
    c.flow.add_action(NewAction {
        id: torc_model::ids::ActionId(1),
        trigger: torc_model::status::Trigger::OnWorkflowStart,
        jobs: Vec::new(),
        persistent: false,
        is_recovery: false,
        schedules_nodes: false,
        state: torc_model::status::ActionState::Waiting,
        by: None,
    });
    c.flow.revise(added(vec![new(2, &[])]), 0).expect("it is live");
    let states = c.flow.actions().map(|action| action.state).collect::<Vec<_>>();
    assert_eq!(states, [torc_model::status::ActionState::Waiting]);
}

#[test]
fn what_waited_for_a_removed_job_goes_ahead_unless_the_workflow_was_canceled_or_has_not_begun() {
    let remove = || Revision { removed: vec![ix(0)], ..Revision::default() };
    let jobs = || Chronicle::plain(vec![job(&[]), job(&[0])]);
    let mut c = jobs();
    c.flow.initialize(0);
    c.flow.revise(remove(), 0).expect("it is live");
    assert_eq!(c.take(1, 9), [1]);
    let mut c = jobs();
    c.flow.revise(remove(), 0).expect("it has not begun");
    assert_eq!(statuses(&c.flow), [JobStatus::Disabled, JobStatus::Uninitialized]);
    let mut c = jobs();
    c.flow.initialize(0);
    c.flow.cancel(0);
    c.flow.revise(remove(), 0).expect("it is over");
    assert_eq!(statuses(&c.flow), [JobStatus::Disabled, JobStatus::Canceled]);
}

#[test]
fn a_job_that_a_failure_canceled_runs_when_the_failed_job_is_removed() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0]), job(&[1]), job(&[])]);
    c.flow.initialize(0);
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, Some(Cause::Exit), 1);
    let removed = Revision { removed: vec![ix(0)], ..Revision::default() };
    c.flow.revise(removed, c.now).expect("it is live");
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Disabled, Ready, Blocked, Ready]);
}
