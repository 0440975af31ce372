//! Commands as the store sends them.

use super::*;
use crate::{Change, LimitUse, Limits};
use crate::{
    Class, Clocks, Command, Done, Engine, JobIx, KnownRunner, LimitChange, Loaded, NewJob, On,
    RunnerChange, Scope, Wakes, Workflow,
};
use serde_json::json;
use torc_model::api::{AttemptRef, Capacity, ClaimRequest, CompletionReport, StartReport};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::status::{JobStatus, RunnerOrder};

const FLOW: WorkflowId = WorkflowId(1);
const ANN: RunnerId = RunnerId(1);
const AT: Clocks = Clocks { now: 1_000_000, uptime: 5_000 };

/// An engine with two ready jobs that use a licence, of which there is one, and a runner.
fn engine() -> Engine {
    let mut flow = Workflow::new(FLOW, Settings::default(), Vec::new());
    for id in 1..=2 {
        let uses = vec!["licence".to_owned()];
        flow.add_job(NewJob {
            id: JobId(id),
            priority: 0,
            position: id,
            family: 0,
            own_ms: None,
            class: Class { cpus: 1, nodes: 1, uses, ..Class::default() },
            handler: None,
            cancel_on_failure: true,
            max_lost: 3,
            parents: Vec::new(),
        });
    }
    flow.settle();
    let loaded = Loaded { next_attempt: 1, next_job: 3, ..Loaded::default() };
    let mut engine = Engine::restored(loaded);
    run(&mut engine, SetLimit { name: "licence", max: 1 });
    run(&mut engine, AddWorkflow { workflow: Box::new(flow), initialize: true });
    let runner = KnownRunner::new(FLOW, "host".into(), 7, Capacity::default());
    run(&mut engine, RegisterRunner { id: ANN, runner });
    engine
}

fn run<C: Command>(engine: &mut Engine, command: C) -> C::Reply {
    engine.handle(command, AT).reply.expect("it is granted")
}

fn request() -> ClaimRequest {
    let capacity = Capacity { num_cpus: 4, num_nodes: 1, ..Capacity::default() };
    let asked = json!({"runner_id": ANN, "key": "k", "limit": 2, "capacity": capacity});
    serde_json::from_value(asked).expect("a claim")
}

fn claim(engine: &mut Engine) -> ClaimAnswer {
    run(engine, Claim { workflow: FLOW, request: &request(), nonce: 7 })
}

/// The one attempt that the licence allows, taken by the runner.
fn taken(engine: &mut Engine) -> AttemptRef {
    let given = claim(engine).attempts;
    assert_eq!(given.len(), 1, "there is one licence");
    AttemptRef { id: given[0].attempt, token: given[0].token.clone() }
}

fn start(attempt: &AttemptRef) -> StartReport {
    StartReport { attempt: attempt.clone(), pid: 42, at_ms: AT.now }
}

fn end(attempt: &AttemptRef) -> CompletionReport {
    let told = json!({
        "id": attempt.id, "token": attempt.token, "return_code": 0, "started_ms": AT.now, "ended_ms": AT.now,
        "exec_seconds": 0.0,
    });
    serde_json::from_value(told).expect("a report")
}

fn is_row(change: &Change) -> bool {
    !matches!(change, Change::Event { .. })
}

#[test]
fn a_claim_says_what_keeps_a_runner_from_work() {
    let mut engine = engine();
    let (scope, token_hash) = (Scope::Workflow(FLOW), "h".to_owned());
    run(&mut engine, Reserve { scope, by: "ann", token_hash, ttl_ms: 3_000 });
    let answer = claim(&mut engine);
    let kept = KeptFromWork::Reserved { id: 1, by: "ann".into(), seconds: 3 };
    assert_eq!((answer.attempts.len(), answer.kept), (0, Some(kept)));
    run(&mut engine, ReleaseReservation { id: 1, token_hash: None });
    run(&mut engine, OrderRunner { runner: ANN, ordered: Some(RunnerOrder::Remove) });
    let answer = claim(&mut engine);
    assert_eq!(answer.kept, Some(KeptFromWork::Ordered(RunnerOrder::Remove)));
    assert!(answer.leave && answer.attempts.is_empty());
    run(&mut engine, OrderRunner { runner: ANN, ordered: None });
    assert_eq!(claim(&mut engine).attempts.len(), 1);
    // The answer was lost: the same again, and not the second job.
    assert_eq!(claim(&mut engine).attempts.len(), 1);
}

#[test]
fn a_start_whose_end_follows_is_told_and_its_rows_are_left_to_the_end() {
    let mut engine = engine();
    let attempt = taken(&mut engine);
    let report = start(&attempt);
    let started = ReportStart { runner: ANN, report: &report, is_followed: true };
    let done = engine.handle(On(FLOW, started), AT);
    assert_eq!(done.reply, Ok(Some(JobStatus::Running)));
    assert!(matches!(done.changes[..], [Change::Event { kind: EventKind::JobStarted, .. }]));
    let (workflow, runner, facts) = (FLOW, ANN, EndFacts::default());
    // The end does not count: the rows of the start are written after all.
    let forged = end(&AttemptRef { token: "x".into(), ..attempt.clone() });
    let report = &forged;
    let ended = ReportEnd { workflow, runner, report, started: Some(42), facts: facts.clone() };
    let done = engine.handle(ended, AT);
    assert_eq!(done.reply, Ok(None));
    let id = attempt.id;
    let rows = done.changes.iter().filter(|change| is_row(change)).collect::<Vec<_>>();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1], &Change::AttemptStarted { id, pid: 42, at: AT.now });
    // One that counts frees the licence, for which claims may wait anywhere.
    let report = &end(&attempt);
    let ended = ReportEnd { workflow, runner, report, started: Some(42), facts };
    let Done { reply, wakes, .. } = engine.handle(ended, AT);
    let reported = reply.expect("it is granted").expect("it is the runner's");
    assert_eq!((reported.ended.status, wakes), (JobStatus::Completed, Wakes::All));
    assert_eq!(engine.limits()["licence"].used, 0);
}

#[test]
fn a_runner_that_leaves_gives_back_what_it_had_not_begun_and_its_end_comes_last() {
    let mut engine = engine();
    taken(&mut engine);
    let leave = Leave { runner: ANN, workflow: FLOW, reason: "its time is over" };
    let done = engine.handle(leave, AT);
    assert_eq!((done.about, done.reply), (Some(FLOW), Ok(Vec::new())));
    let place = |is: fn(&Change) -> bool| done.changes.iter().position(is);
    let back = place(|change| matches!(change, Change::AttemptEnded(..)));
    let gone = place(|change| matches!(change, Change::Runner(ANN, RunnerChange::Ended(_))));
    assert!(back.is_some() && back < gone, "{:?}", done.changes);
    assert_eq!(engine.workflow(FLOW).map(Workflow::held_count), Some(0));
    assert!(engine.runners().get(&ANN).is_none());
}

#[test]
fn a_rehearsal_leaves_the_engine_as_it_was() {
    let mut engine = engine();
    let mut copy = engine.rehearsal(FLOW);
    run(&mut copy, On(FLOW, CancelWorkflow {}));
    assert_eq!(copy.workflow(FLOW).map(Workflow::is_complete), Some(true));
    assert_eq!(engine.workflow(FLOW).map(Workflow::is_complete), Some(false));
    assert_eq!(claim(&mut engine).attempts.len(), 1);
}

#[test]
fn a_workflow_takes_what_it_uses_of_limits_along_when_its_copy_is_dropped() {
    let mut engine = engine();
    taken(&mut engine);
    let copy = engine.workflow(FLOW).cloned().expect("it is loaded");
    engine.unload(FLOW);
    assert_eq!(engine.limits()["licence"].used, 0);
    engine.load(copy);
    assert_eq!(engine.limits()["licence"].used, 1);
    let done = engine.handle(RemoveLimit { name: "licence" }, AT);
    assert_eq!(done.changes, [Change::Limit(LimitChange::Removed("licence".into()))]);
    assert_eq!((done.about, engine.limits()), (None, &Limits::new()));
}

#[test]
fn a_reserved_limit_stays_reserved_when_rows_are_read_again() {
    let mut engine = engine();
    let (scope, token_hash) = (Scope::Limit("licence".into()), "h".to_owned());
    run(&mut engine, Reserve { scope, by: "ann", token_hash, ttl_ms: 3_000 });
    assert_eq!(claim(&mut engine).attempts, []);
    let flow = engine.workflow(FLOW).cloned().expect("it is loaded");
    // A commit failed: rows tell how many licences there are, and of the reservation.
    let licence = LimitUse { max: 1, ..LimitUse::default() };
    engine.reread(Engine::restored(Loaded {
        runners: engine.runners().clone(),
        limits: Limits::from_iter([("licence".to_owned(), licence)]),
        reservations: engine.reservations().clone(),
        next_attempt: engine.next_attempt(),
        next_job: engine.next_job(),
    }));
    engine.load(flow);
    assert_eq!(claim(&mut engine).attempts, []);
    run(&mut engine, ReleaseReservation { id: 1, token_hash: None });
    assert_eq!(claim(&mut engine).attempts.len(), 1);
}

#[test]
fn numbers_of_jobs_and_attempts_are_given_once() {
    let mut engine = engine();
    assert_eq!(run(&mut engine, TakeJobIds { count: 2 }), JobId(3));
    assert_eq!(run(&mut engine, TakeJobIds { count: 1 }), JobId(5));
    let attempt = run(&mut engine, TakeAttemptRow {});
    let queued = |job| engine.workflow(FLOW).and_then(|flow| flow.job(JobIx::new(job)).live());
    assert!([queued(0), queued(1)].iter().all(|live| *live < Some(AttemptId(attempt))));
}

#[test]
fn a_command_about_a_workflow_that_is_not_loaded_is_refused_and_changes_nothing() {
    let mut engine = engine();
    let done = engine.handle(On(WorkflowId(9), CancelWorkflow {}), AT);
    assert!(done.reply.is_err() && done.changes.is_empty());
    let done = engine.handle(DeleteWorkflow(FLOW), AT);
    assert_eq!((done.reply, done.changes), (Ok(vec![(ANN, None)]), vec![Change::WorkflowDeleted]));
    assert!(engine.workflow(FLOW).is_none() && engine.runners().get(&ANN).is_none());
}
