//! Actions, trigger by trigger.

use super::*;
use std::collections::HashSet;
use torc_model::ids::ActionId;
use torc_model::status::{ActionState, Trigger};

fn action(id: i64, trigger: Trigger, jobs: &[usize]) -> NewAction {
    NewAction {
        id: ActionId(id),
        trigger,
        jobs: jobs.iter().copied().map(JobIx::new).collect(),
        persistent: false,
        is_recovery: false,
        schedules_nodes: false,
        state: ActionState::Waiting,
        by: None,
    }
}

/// What waits for a runner, for the server and for a job.
fn ask(c: &mut Chronicle) {
    let flow = &c.flow;
    let said = format!(
        "   waits: {} {} schedules {:?} states {:?}",
        flow.has_triggered_action(false),
        flow.has_triggered_action(true),
        flow.triggered_schedules(),
        flow.actions().map(|a| (a.id.0, a.state.as_str(), a.by)).collect::<Vec<_>>()
    );
    say!(c, said);
}

#[test]
fn every_trigger_comes_once_and_is_executed_by_one_runner() {
    use Trigger::*;
    let again = Rule { match_all_exit_codes: true, max_retries: 3, ..Rule::default() };
    let tried = |parents: &[usize]| but(job(parents), |job| job.handler = Some(HandlerIx::new(0)));
    let jobs = vec![tried(&[]), job(&[0]), job(&[]), job(&[1])];
    let mut c = Chronicle::new(Settings::default(), vec![handler(&[again])], jobs);
    say!(c, c.flow.has_no_actions());
    let nodes = |new: NewAction| NewAction { schedules_nodes: true, ..new };
    for new in [
        action(1, OnWorkflowStart, &[]),
        action(2, OnWorkflowComplete, &[]),
        action(3, OnJobsReady, &[1, 2]),
        action(4, OnJobsComplete, &[0, 2]),
        NewAction { persistent: true, ..action(5, OnWorkerStart, &[]) },
        action(6, OnWorkerStart, &[]),
        nodes(action(7, OnWorkerComplete, &[])),
        nodes(action(8, AutoScheduleOnReadyJobs, &[])),
        nodes(action(9, OnJobsReady, &[3])),
        NewAction { is_recovery: true, ..action(10, OnWorkflowStart, &[]) },
        nodes(action(11, AutoScheduleOnReadyJobs, &[2])),
        action(12, OnJobsComplete, &[]),
        nodes(action(13, OnWorkflowStart, &[])),
    ] {
        c.flow.add_action(new);
    }
    c.flow.settle();
    say!(c, format!("{} {}", c.flow.has_no_actions(), c.flow.looks_after_retries()));
    say!(c, format!("{:?}", c.flow.jobs_of_action(ActionId(3))));
    say!(c, format!("{:?}", c.flow.jobs_of_action(ActionId(99))));
    c.initialize();
    ask(&mut c);
    let given = c.flow.claim_actions(RunnerId(1), false);
    c.note(format!("runner 1 executes {given:?}"));
    let given = c.flow.claim_actions(RunnerId(2), true);
    c.note(format!("runner 2 executes {given:?}"));
    for (runner, nodes) in [(1, false), (2, true)] {
        for trigger in [OnWorkerStart, OnWorkerComplete] {
            let given = c.flow.worker_actions(RunnerId(runner), trigger, nodes);
            c.note(format!("{trigger} of runner {runner}: {given:?}"));
        }
    }
    ask(&mut c);
    for (id, runner, error) in
        [(1, 2, None), (1, 1, None), (1, 1, None), (5, 3, None), (10, 1, Some("no")), (99, 1, None)]
    {
        c.flow.action_done(ActionId(id), RunnerId(runner), error.map(str::to_owned));
        c.note(format!("runner {runner} has done {id}"));
    }
    // It is tried again: what looks after retries asks for nodes, once.
    c.claim(1, 1);
    c.end(0, Some(Cause::Exit), 1);
    ask(&mut c);
    say!(
        c,
        format!("{:?} {:?}", c.flow.ready_jobs_of(ActionId(8)), c.flow.ready_jobs_of(ActionId(11)))
    );
    say!(
        c,
        format!("{:?} {:?}", c.flow.ready_jobs_of(ActionId(1)), c.flow.ready_jobs_of(ActionId(99)))
    );
    c.flow.schedule_done(ActionId(8), None);
    c.note("nodes were asked for");
    c.flow.look_after_ready_jobs();
    c.note("an allocation is over");
    c.flow.schedule_done(ActionId(8), Some("none left".into()));
    c.note("nodes were refused");
    c.flow.schedule_done(ActionId(99), None);
    c.flow.look_after_ready_jobs();
    c.note("an allocation is over again");
    // The jobs of 3 were ready at the same time, and those of 4 are complete.
    c.claim(1, 9);
    c.end(0, None, 0);
    c.end(2, None, 0);
    ask(&mut c);
    let given = c.flow.claim_actions(RunnerId(4), false);
    c.note(format!("runner 4 executes {given:?}"));
    c.lose(5);
    c.lose(4);
    ask(&mut c);
    let count = c.flow.retire_schedules();
    c.note(format!("{count} never ask"));
    let count = c.flow.retire_schedules();
    c.note(format!("{count} never ask"));
    c.flow.add_late_action(action(20, OnJobsComplete, &[0]));
    c.flow.add_late_action(action(21, OnJobsComplete, &[0, 3]));
    c.flow.add_late_action(action(22, OnJobsReady, &[3]));
    c.note("late ones");
    c.claim(1, 9);
    c.end(1, Some(Cause::Exit), 1);
    ask(&mut c);
    let all = c.flow.plan_reset(&Seeds::All).expect("nothing runs");
    c.flow.reset(&all, c.now);
    c.note("a new run");
    ask(&mut c);
    c.flow.remove_actions(&HashSet::from([ActionId(1), ActionId(8), ActionId(11)]));
    say!(c, c.flow.looks_after_retries());
    c.initialize();
    ask(&mut c);
    c.flow.cancel(c.now);
    c.note("canceled");
    c.flow.look_after_ready_jobs();
    c.note("nothing is looked after");
    c.is(include_str!("actions.txt"));
}

/// What can no longer become ready is not waited for, and where nothing is left there is nothing to do.
#[test]
fn an_action_for_ready_jobs_does_not_wait_for_those_that_never_will_be() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[]), job(&[0]), job(&[1])]);
    c.flow.add_action(action(1, Trigger::OnJobsReady, &[2, 3]));
    c.flow.add_action(action(2, Trigger::OnJobsReady, &[3]));
    c.flow.settle();
    c.initialize();
    c.claim(1, 2);
    c.end(1, Some(Cause::Exit), 1);
    ask(&mut c);
    c.end(0, None, 0);
    ask(&mut c);
    c.is(include_str!("actions_of_ready_jobs.txt"));
}
