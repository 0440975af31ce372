//! A workflow as a whole: when it is complete, what is recorded, and what people change of it.

use super::*;
use torc_model::ids::ActionId;
use torc_model::plan::Rule;
use torc_model::recovery::Change as Adjusted;
use torc_model::status::{ActionState, Adjustable, Cause, JobStatus, StatusReason, Trigger};

#[test]
fn a_workflow_without_jobs_is_complete_once_it_was_initialized() {
    let mut flow = Chronicle::plain(Vec::new()).flow;
    assert!(flow.is_empty() && !flow.is_complete());
    flow.initialize(0);
    assert!(flow.is_complete());
    assert!(!Chronicle::plain(vec![job(&[])]).flow.is_empty());
}

#[test]
fn a_workflow_whose_only_job_is_disabled_is_complete_before_it_begins() {
    let mut flow = Chronicle::plain(vec![job(&[])]).flow;
    assert!(!flow.is_complete());
    flow.disable(ix(0), 0).expect("it has not begun");
    assert!(flow.is_complete());
}

#[test]
fn a_workflow_that_is_not_stored_yet_records_no_jobs_until_it_is() {
    let jobs = || Chronicle::plain(vec![job(&[]), job(&[0])]).flow;
    let (mut bulk, mut plain) = (jobs(), jobs());
    bulk.initialize_unstored(0);
    plain.initialize(0);
    let is_job = |change: &Change| matches!(change, Change::Job { .. } | Change::AttemptQueued(_));
    let rest: Vec<Change> = plain.take_changes().into_iter().filter(|c| !is_job(c)).collect();
    assert_eq!(bulk.take_changes(), rest);
    assert_eq!(statuses(&bulk), [JobStatus::Ready, JobStatus::Blocked]);
    assert_eq!(bulk.difference(&plain), None);
    bulk.cancel(1);
    assert!(bulk.take_changes().iter().any(is_job), "from then on all is recorded");
}

#[test]
fn jobs_that_a_revision_took_out_are_counted_apart_until_they_come_back() {
    let mut flow = Chronicle::plain(vec![job(&[]), job(&[])]).flow;
    flow.initialize(0);
    let removed = vec![ix(0), ix(1)];
    flow.revise(Revision { removed, ..Revision::default() }, 0).expect("it is live");
    let disabled = JobStatus::Disabled as usize;
    assert_eq!((flow.removed(), flow.counts()[disabled]), (2, 0));
    flow.jobs.set_status(ix(1), JobStatus::Uninitialized, None);
    assert_eq!((flow.removed(), flow.counts()[JobStatus::Uninitialized as usize]), (1, 1));
    flow.jobs.set_status(ix(1), JobStatus::Disabled, Some(StatusReason::Dropped));
    assert_eq!((flow.removed(), flow.counts()[disabled]), (1, 1));
}

#[test]
fn new_failure_handlers_decide_from_then_on() {
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let never = Rule { exit_codes: vec![9], ..Rule::default() };
    let always = Rule { match_all_exit_codes: true, max_retries: 9, ..Rule::default() };
    for (is_replaced, status) in [(false, JobStatus::Failed), (true, JobStatus::Ready)] {
        let handlers = vec![handler(std::slice::from_ref(&never))];
        let mut c = Chronicle::new(Default::default(), handlers, jobs.clone());
        c.flow.initialize(0);
        if is_replaced {
            c.flow.set_handlers(vec![handler(std::slice::from_ref(&always))]);
        }
        assert_eq!(c.take(1, 1), [0]);
        c.end(0, Some(Cause::Exit), 1);
        assert_eq!(c.flow.job(ix(0)).status(), status);
        assert_eq!(c.flow.job(ix(0)).handler(), Some(HandlerIx::new(0)));
        assert_eq!(c.flow.job(ix(0)).attempt(), 1 + u32::from(is_replaced));
    }
}

#[test]
fn a_job_is_adjusted_for_its_next_attempt_and_the_reason_is_noted() {
    let mut flow = Chronicle::plain(vec![job(&[])]).flow;
    flow.initialize(0);
    flow.take_changes();
    let change = Adjusted { field: Adjustable::Memory, from: None, to: 4 << 30 };
    flow.adjust_because(ix(0), &change, Because { attempt: 3, why: "it ran out", by: "recovery" });
    assert_eq!(flow.next_class_of(ix(0)).memory, Some(4 << 30));
    let changes = flow.take_changes();
    let noted = changes.iter().find_map(|change| match change {
        Change::AdjustmentNoted(noted) => Some((noted.attempt, noted.why.as_str())),
        _ => None,
    });
    assert_eq!(noted, Some((3, "it ran out")));
    assert!(matches!(&changes[..], [Change::JobAdjusted(..), _, Change::Event { .. }]));
}

#[test]
fn a_person_moves_a_job_ahead_of_the_others() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[])]);
    c.flow.initialize(0);
    c.flow.take_changes();
    c.flow.prioritize(ix(1), 5, Some("a deadline"), Some("ada"));
    let changes = c.flow.take_changes();
    let data = changes.iter().find_map(|change| match change {
        Change::Event { data, .. } => Some(data.clone()),
        _ => None,
    });
    let expected = serde_json::json!({"priority": 5, "reason": "a deadline", "by": "ada"});
    assert_eq!(data, Some(expected));
    assert_eq!(c.take(1, 1), [1]);
}

#[test]
fn of_the_jobs_in_its_way_a_job_names_ten() {
    let mut jobs = vec![job(&[]); 11];
    jobs.push(job(&(0..11).collect::<Vec<_>>()));
    let mut flow = Chronicle::plain(jobs).flow;
    flow.initialize(0);
    let why = flow.explain(ix(11), &[], &Limits::new(), 0);
    assert_eq!((why.because_of.len(), why.because_of_count), (10, 11));
}

#[test]
fn a_job_says_how_long_its_next_attempt_waits() {
    let mut flow = Chronicle::plain(vec![job(&[])]).flow;
    flow.initialize(0);
    flow.jobs[ix(0)].rare.edit(|rare| rare.not_before = Some(6_500));
    let said = |now| flow.explain(ix(0), &[], &Limits::new(), now).summary;
    assert_eq!(said(5_000), "its retry waits another 1.5 s");
    assert_eq!(said(6_500), NO_RUNNER, "its time has come");
}

#[test]
fn nothing_is_due_once_a_retry_may_go_to_any_runner_again() {
    let again = Rule { match_all_exit_codes: true, max_retries: 9, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0))), job(&[])];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[again])], jobs);
    c.flow.initialize(0);
    assert_eq!((c.take(1, 1), c.take(2, 1)), (vec![0], vec![1]));
    c.end(0, Some(Cause::Exit), 1);
    let due = c.flow.next_due().expect("the other runner has the first chance until then");
    c.flow.wake_delayed(due - 1);
    assert_eq!(c.flow.next_due(), Some(due));
    c.flow.wake_delayed(due);
    assert_eq!(c.flow.next_due(), None);
}

#[test]
fn a_job_says_whether_it_is_held_back() {
    let mut flow = Chronicle::plain(vec![job(&[])]).flow;
    flow.initialize(0);
    assert!(!flow.job(ix(0)).is_held_back());
    flow.hold(ix(0), true);
    assert!(flow.job(ix(0)).is_held_back() && !flow.has_ready());
}

#[test]
fn the_servers_own_recovery_is_switched_and_stored() {
    let mut flow = Chronicle::plain(Vec::new()).flow;
    for is_enabled in [true, false] {
        flow.set_auto_recover(is_enabled);
        let changes = flow.take_changes();
        let [Change::Settings(stored)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(stored.recovery.auto_recover.enabled, is_enabled);
        assert_eq!(flow.settings.recovery.auto_recover.enabled, is_enabled);
    }
}

/// A workflow whose only job failed once and is ready again, and an action that asks for nodes.
fn with_schedule(trigger: Trigger) -> Workflow {
    let again = Rule { match_all_exit_codes: true, max_retries: 9, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[again])], jobs);
    c.flow.initialize(0);
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, Some(Cause::Exit), 1);
    c.flow.add_action(NewAction {
        id: ActionId(1),
        trigger,
        jobs: Vec::new(),
        persistent: false,
        is_recovery: false,
        schedules_nodes: true,
        state: ActionState::Waiting,
        by: None,
    });
    c.flow.settle();
    c.flow
}

fn state(flow: &Workflow) -> Option<ActionState> {
    flow.actions().next().map(|action| action.state)
}

#[test]
fn nodes_are_asked_for_again_when_an_allocation_left_a_retried_job_behind() {
    let mut flow = with_schedule(Trigger::AutoScheduleOnReadyJobs);
    flow.look_after_ready_jobs();
    assert_eq!(flow.triggered_schedules(), [ActionId(1)]);
    flow.schedule_done(ActionId(1), None);
    assert_eq!(state(&flow), Some(ActionState::Waiting), "it looks after the next one");
    flow.canceled = true;
    flow.look_after_ready_jobs();
    assert_eq!(state(&flow), Some(ActionState::Waiting), "no job of a canceled workflow runs");
}

#[test]
fn an_action_that_looks_after_some_jobs_looks_after_no_others() {
    for (about, is_triggered) in [(0, true), (1, false)] {
        let again = Rule { match_all_exit_codes: true, max_retries: 9, ..Rule::default() };
        let first = but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)));
        let mut c =
            Chronicle::new(Default::default(), vec![handler(&[again])], vec![first, job(&[0])]);
        c.flow.add_action(NewAction {
            id: ActionId(1),
            trigger: Trigger::AutoScheduleOnReadyJobs,
            jobs: vec![ix(about)],
            persistent: false,
            is_recovery: false,
            schedules_nodes: true,
            state: ActionState::Waiting,
            by: None,
        });
        c.flow.settle();
        c.flow.initialize(0);
        assert_eq!(c.take(1, 1), [0]);
        c.end(0, Some(Cause::Exit), 1);
        assert_eq!(state(&c.flow) == Some(ActionState::Triggered), is_triggered);
    }
}

#[test]
fn an_action_that_asks_for_nodes_once_does_so_once() {
    let mut flow = with_schedule(Trigger::OnWorkflowStart);
    flow.look_after_ready_jobs();
    assert_eq!(state(&flow), Some(ActionState::Waiting), "it is not about retried jobs");
    flow.trigger_start();
    flow.schedule_done(ActionId(1), None);
    assert_eq!(state(&flow), Some(ActionState::Executed));
    let mut flow = with_schedule(Trigger::OnWorkflowStart);
    assert_eq!((flow.retire_schedules(), state(&flow)), (1, Some(ActionState::Executed)));
}

#[test]
fn what_is_canceled_while_rows_are_repaired_is_passed_on_to_jobs_before_it_in_the_list() {
    // Each waits for the next one; the first does not mind how that ends.
    let first = but(job(&[1]), |job| job.cancel_on_failure = false);
    let mut c = Chronicle::plain(vec![first, job(&[2]), job(&[])]);
    c.flow.initialize(0);
    c.flow.jobs[ix(2)].live = crate::jobs::Live::None;
    c.flow.jobs.set_status(ix(2), JobStatus::Failed, None);
    let now = c.now;
    let done = c.flow.repair(&Default::default(), RunnerId(9), &mut c.limits, now);
    assert_eq!(done, [(ix(1), Repair::Released)]);
    assert_eq!(statuses(&c.flow), [JobStatus::Ready, JobStatus::Canceled, JobStatus::Failed]);
}

/// A workflow whose only job, which has a rule for any failure, stands like this.
fn standing(status: JobStatus) -> Chronicle {
    let again = Rule { match_all_exit_codes: true, max_retries: 9, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let mut c = Chronicle::new(Default::default(), vec![handler(&[again])], jobs);
    c.flow.run = 1;
    c.flow.jobs.set_status(ix(0), status, None);
    c.flow.take_changes();
    c
}

#[test]
fn the_attempt_that_a_repair_writes_down_is_the_first_where_no_other_was_counted() {
    let mut c = standing(JobStatus::Running);
    let now = c.now;
    let done = c.flow.repair(&Default::default(), RunnerId(9), &mut c.limits, now);
    assert_eq!(done, [(ix(0), Repair::AttemptWritten)]);
    let changes = c.flow.take_changes().into_iter();
    let number = |change| match change {
        Change::AttemptQueued(new) => Some(new.number),
        _ => None,
    };
    assert_eq!(changes.filter_map(number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_script_that_ran_before_a_crash_does_not_run_again_when_the_end_is_decided() {
    for has_run in [true, false] {
        let mut c = standing(JobStatus::Running);
        c.flow.jobs[ix(0)].tries.number = 1;
        let script = torc_model::api::RecoveryScript {
            script: "fix".into(),
            timeout_seconds: 9,
            on_failure: torc_model::plan::OnScriptFailure::Continue,
            failed_attempt_id: 1,
            return_code: 2,
        };
        c.flow.jobs[ix(0)].rare.edit(|rare| rare.script = Some(script.clone()));
        let result = torc_model::api::ScriptResult {
            return_code: 0,
            exec_seconds: 1.0,
            timed_out: false,
            stdout_path: None,
            stderr_path: None,
        };
        let end = End { script: has_run.then_some(result), ..end(Some(Cause::Exit), 1, 0) };
        let (id, state) = (torc_model::ids::AttemptId(7), torc_model::status::AttemptState::Failed);
        let last = LastEnd { id, state, end, decided: false };
        let now = c.now;
        let done = c.flow.repair(&[(ix(0), last)].into(), RunnerId(9), &mut c.limits, now);
        assert_eq!(done, [(ix(0), Repair::Decided)]);
        let next = c.flow.take_changes().into_iter().find_map(|change| match change {
            Change::AttemptQueued(new) => Some(new.recovery),
            _ => None,
        });
        assert_eq!(next, Some(Some(script).filter(|_| !has_run)));
    }
}
