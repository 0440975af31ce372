//! Commands on the whole engine: what claims, heartbeats, orders and ends are answered, and whom they wake.

use super::*;
use crate::commands::{Claim, *};
use serde_json::json;
use torc_model::api::{AttemptRef, ClaimRequest, CompletionReport, ErrorCode, Heartbeat};
use torc_model::api::{Evidence, StepEvents};
use torc_model::event::EventKind;
use torc_model::plan::{Backoff, Rule};
use torc_model::status::{AllocationStatus, Cause, EvidenceSource, JobStatus, RunnerOrder};
use torc_model::steps::StepEvent;
use torc_model::words;

const FLOW: WorkflowId = WorkflowId(1);
const ANN: RunnerId = RunnerId(1);
const BOB: RunnerId = RunnerId(2);

/// An engine with one workflow, which is initialized, and a runner with four CPUs.
struct Desk {
    engine: Engine,
    at: Clocks,
}

impl Desk {
    fn new(jobs: Vec<NewJob>) -> Self {
        let next_job = jobs.len() as i64 + 1;
        Self::with(Chronicle::plain(jobs).flow, next_job)
    }

    fn with(flow: Workflow, next_job: i64) -> Self {
        let workflow = Box::new(flow);
        let loaded = Loaded { next_attempt: 1, next_job, ..Loaded::default() };
        let at = Clocks { now: 1_000_000, uptime: 50_000 };
        let mut desk = Self { engine: Engine::restored(loaded), at };
        desk.run(AddWorkflow { workflow, initialize: true });
        desk.come(ANN, 4);
        desk
    }

    /// A runner registers on a host of its own.
    fn come(&mut self, id: RunnerId, cpus: i64) -> Wakes {
        let runner = KnownRunner::new(FLOW, format!("host{id}"), 7, node(cpus));
        self.done(RegisterRunner { id, runner }).wakes
    }

    fn done<C: Command>(&mut self, command: C) -> Done<C::Reply> {
        self.engine.handle(command, self.at)
    }

    fn run<C: Command>(&mut self, command: C) -> C::Reply {
        self.done(command).reply.expect("it is granted")
    }

    fn code<C: Command>(&mut self, command: C) -> Option<ErrorCode> {
        self.done(command).reply.err().map(|refused| refused.code)
    }

    fn known(&mut self, id: RunnerId) -> &mut KnownRunner {
        self.engine.runners.get_mut(&id).expect("it is there")
    }

    fn claim(&mut self, request: &ClaimRequest) -> ClaimAnswer {
        self.run(Claim { workflow: FLOW, request, nonce: 7 })
    }

    /// Asks for all that a runner with four CPUs can take.
    fn ask(&mut self, runner: RunnerId, key: &str) -> ClaimAnswer {
        self.claim(&request(runner, key, 99, 4))
    }

    /// The attempt of a job, as its runner knows it.
    fn held(&self, at: usize) -> AttemptRef {
        let held = self.flow().job(ix(at)).held().expect("it was claimed");
        AttemptRef { id: held.attempt, token: held.token.clone() }
    }

    fn flow(&self) -> &Workflow {
        self.engine.workflow(FLOW).expect("it is loaded")
    }

    fn report(&mut self, runner: RunnerId, report: &CompletionReport) -> Done<Option<Reported>> {
        let facts = EndFacts::default();
        self.done(ReportEnd { workflow: FLOW, runner, report, started: None, facts })
    }

    fn end(&mut self, runner: RunnerId, at: usize, cause: Option<Cause>) -> Done<Option<Reported>> {
        let report = report(&self.held(at), cause);
        self.report(runner, &report)
    }
}

fn request(runner: RunnerId, key: &str, limit: i64, cpus: i64) -> ClaimRequest {
    let capacity = node(cpus);
    let asked = json!({"runner_id": runner, "key": key, "limit": limit, "capacity": capacity});
    serde_json::from_value(asked).expect("a claim")
}

fn report(attempt: &AttemptRef, cause: Option<Cause>) -> CompletionReport {
    let code = i64::from(cause.is_some());
    let told = json!({
        "id": attempt.id, "token": attempt.token, "return_code": code, "cause": cause,
        "started_ms": 1_000_000, "ended_ms": 1_000_000, "exec_seconds": 0.1,
    });
    serde_json::from_value(told).expect("a report")
}

fn jobs(count: usize) -> Vec<NewJob> {
    vec![job(&[]); count]
}

fn numbers(given: &[Claimed]) -> Vec<usize> {
    given.iter().map(|claimed| claimed.index.at()).collect()
}

fn gone(text: &str) -> Lost {
    let evidence = Evidence { source: EvidenceSource::Node, text: text.into() };
    Lost { cause: Cause::Lost, evidence }
}

#[test]
fn a_word_of_a_runner_counts_when_it_names_its_own_workflow_or_none() {
    let mut desk = Desk::new(jobs(1));
    let hear = |runner, workflow| Hear { runner, workflow };
    assert_eq!(desk.run(hear(ANN, None)), FLOW);
    assert_eq!(desk.known(ANN).heard, Some(50_000));
    desk.at.uptime = 60_000;
    let other = hear(ANN, Some(WorkflowId(2)));
    assert_eq!(desk.code(other), Some(ErrorCode::WrongWorkflow));
    assert_eq!(desk.known(ANN).heard, Some(50_000), "that was no word");
    assert_eq!(desk.run(hear(ANN, Some(FLOW))), FLOW);
    assert_eq!(desk.known(ANN).heard, Some(60_000));
    assert_eq!(desk.code(hear(BOB, None)), Some(ErrorCode::RunnerEnded));
}

#[test]
fn a_claim_takes_at_most_what_it_asks_for_and_never_more_than_a_thousand() {
    for (limit, given) in [(-5, 0), (0, 0), (2, 2), (1_000, 1_000), (i64::MAX, 1_000)] {
        let mut desk = Desk::new(jobs(1_002));
        let answer = desk.claim(&request(ANN, "k", limit, 2_000));
        assert_eq!(answer.attempts.len(), given, "asked for {limit}");
    }
}

#[test]
fn what_is_kept_for_later_is_bound_by_what_is_asked_for() {
    for (prefetch, given) in [(-1, 2), (0, 2), (1, 3), (i64::MAX, 5)] {
        let mut desk = Desk::new(jobs(9));
        let asked = ClaimRequest { prefetch, ..request(ANN, "k", 5, 2) };
        assert_eq!(desk.claim(&asked).attempts.len(), given, "{prefetch} for later");
    }
}

#[test]
fn a_runner_that_was_stopped_and_wants_nothing_gets_nothing_until_it_asks_again() {
    let mut desk = Desk::new(jobs(2));
    let attempt = AttemptRef { id: AttemptId(77), token: "t".into() };
    let stopped = vec![report(&attempt, Some(Cause::Stopped))];
    let failed = vec![report(&attempt, Some(Cause::Exit))];
    let last = |completed: &Vec<CompletionReport>, wait_seconds| ClaimRequest {
        completed: completed.clone(),
        wait_seconds,
        ..request(ANN, "last", 0, 4)
    };
    let waiting = || ClaimRequest { wait_seconds: 30.0, ..request(ANN, "wait", 1, 4) };
    // A claim that waits was sent before, and an attempt that failed says nothing of the runner.
    for harmless in [last(&stopped, 0.5), last(&failed, 0.0)] {
        desk.claim(&harmless);
        assert!(!desk.known(ANN).leaving);
    }
    desk.claim(&last(&stopped, 0.0));
    assert!(desk.known(ANN).leaving);
    assert_eq!(desk.claim(&waiting()).attempts, []);
    // A second one that reports nothing does not bring it back; one that asks does.
    desk.claim(&request(ANN, "none", 0, 4));
    assert_eq!(desk.claim(&waiting()).attempts, []);
    assert_eq!(desk.claim(&request(ANN, "again", 1, 4)).attempts.len(), 1);
    assert!(!desk.known(ANN).leaving);
}

#[test]
fn a_runner_that_is_not_known_gets_no_work() {
    let mut desk = Desk::new(jobs(1));
    let answer = desk.ask(BOB, "k");
    assert_eq!((answer.attempts, answer.kept), (Vec::new(), None));
    assert!(!answer.leave && !answer.idle, "there is work for others");
}

#[test]
fn a_claim_keeps_in_mind_what_its_runner_has() {
    let mut desk = Desk::new(jobs(1));
    desk.claim(&request(ANN, "k", 1, 3));
    assert_eq!(desk.known(ANN).capacity.num_cpus, 3);
}

#[test]
fn a_repeated_claim_gets_the_same_jobs_also_when_its_runner_is_kept_from_work_meanwhile() {
    let mut desk = Desk::new(jobs(2));
    let asked = request(ANN, "k", 1, 4);
    let first = desk.claim(&asked).attempts;
    assert_eq!(first.len(), 1);
    assert_eq!(desk.claim(&asked).attempts, first);
    desk.run(OrderRunner { runner: ANN, ordered: Some(RunnerOrder::Drain) });
    assert_eq!(desk.claim(&asked).attempts, first);
    assert_eq!(desk.claim(&request(ANN, "other", 1, 4)).attempts, []);
}

#[test]
fn nothing_is_to_come_only_when_nothing_runs_or_is_due_and_no_runner_fits_what_is_ready() {
    let large = but(job(&[]), |job| job.class.cpus = 16);
    let mut desk = Desk::new(vec![large, job(&[])]);
    let mut keys = (1..).map(|key| key.to_string());
    let mut ask = |desk: &mut Desk| desk.ask(ANN, &keys.next().unwrap_or_default());
    let answer = ask(&mut desk);
    assert_eq!((numbers(&answer.attempts), answer.idle), (vec![1], false), "it got work");
    assert!(!ask(&mut desk).idle, "it holds something");
    assert!(desk.end(ANN, 1, None).reply.is_ok());
    let answer = ask(&mut desk);
    assert!(answer.idle && !answer.is_complete, "nothing fits it");
    desk.run(OrderRunner { runner: ANN, ordered: Some(RunnerOrder::Drain) });
    let answer = ask(&mut desk);
    assert!(!answer.idle && answer.kept.is_some(), "a person may let it work again");
    desk.run(OrderRunner { runner: ANN, ordered: None });
    desk.come(BOB, 16);
    assert!(!ask(&mut desk).idle, "the other one takes it");
    assert_eq!(desk.claim(&request(BOB, "b", 9, 16)).attempts.len(), 1);
    assert!(!ask(&mut desk).idle, "the other one holds it");
    assert!(desk.end(BOB, 0, None).reply.is_ok());
    let answer = ask(&mut desk);
    assert!(!answer.idle && answer.is_complete, "it is over, which is more");
}

#[test]
fn a_job_that_becomes_due_later_is_something_to_come() {
    let backoff = Backoff { delay_seconds: 5.0, factor: 1.0, max_seconds: None, jitter: 0.0 };
    let backoff = Some(backoff);
    let again = Rule { match_all_exit_codes: true, backoff, ..Rule::default() };
    let jobs = vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)))];
    let flow = Chronicle::new(Default::default(), vec![handler(&[again])], jobs).flow;
    let mut desk = Desk::with(flow, 2);
    assert_eq!(desk.ask(ANN, "k").attempts.len(), 1);
    assert!(desk.end(ANN, 0, Some(Cause::Exit)).reply.is_ok());
    let answer = desk.ask(ANN, "l");
    assert_eq!((answer.attempts.len(), answer.idle), (0, false));
    desk.at.now += 4_999;
    assert_eq!(desk.run(WakeDelayed {}).len(), 0);
    let at = desk.at.now + 1_000;
    desk.run(On(FLOW, DelayJob { job: ix(0), not_before: Some(at) }));
    desk.at.now = at - 1;
    assert_eq!(desk.ask(ANN, "m").attempts.len(), 0, "it was put off");
    desk.at.now = at;
    assert!(desk.run(WakeDelayed {}).into_iter().eq([FLOW]));
    assert_eq!(desk.ask(ANN, "n").attempts.len(), 1);
}

#[test]
fn a_removed_runner_leaves_when_it_holds_nothing_and_a_drained_one_stays() {
    let mut desk = Desk::new(jobs(1));
    let order = |ordered| OrderRunner { runner: ANN, ordered };
    desk.run(order(Some(RunnerOrder::Drain)));
    let answer = desk.ask(ANN, "a");
    assert_eq!(answer.kept, Some(KeptFromWork::Ordered(RunnerOrder::Drain)));
    assert!(!answer.leave);
    desk.run(order(None));
    assert_eq!(desk.ask(ANN, "b").attempts.len(), 1);
    desk.run(order(Some(RunnerOrder::Remove)));
    assert!(!desk.ask(ANN, "b").leave, "the answer brings an attempt again");
    assert!(!desk.ask(ANN, "c").leave, "it holds an attempt");
    assert!(desk.end(ANN, 0, None).reply.is_ok());
    assert!(desk.ask(ANN, "d").leave);
}

#[test]
fn what_is_asked_of_a_pool_runner_holds_for_the_runners_that_it_starts() {
    let mut desk = Desk::new(jobs(1));
    let asked = request(ANN, "k", 1, 4);
    let mut ordered = |own, of_pool| {
        desk.run(OrderRunner { runner: ANN, ordered: own });
        let (workflow, request, pool_order) = (FLOW, &asked, of_pool);
        let begun = desk.run(BeginClaim { workflow, request, pool_order });
        let (kept, may_take) = (begun.kept.clone(), begun.may_take);
        let answer = desk.run(FinishClaim { workflow, request, pool_order, begun });
        (kept, may_take, answer.leave)
    };
    use RunnerOrder::{Drain, Remove};
    let kept = |order| Some(KeptFromWork::Ordered(order));
    assert_eq!(ordered(None, None), (None, true, false));
    assert_eq!(ordered(None, Some(Drain)), (kept(Drain), false, false));
    assert_eq!(ordered(None, Some(Remove)), (kept(Remove), false, true));
    assert_eq!(ordered(Some(Drain), Some(Remove)), (kept(Remove), false, true));
    assert_eq!(ordered(Some(Remove), Some(Drain)), (kept(Remove), false, true));
}

#[test]
fn an_order_to_stop_is_told_once_by_claims_and_by_every_heartbeat() {
    let mut desk = Desk::new(jobs(2));
    assert_eq!(desk.ask(ANN, "k").attempts.len(), 2);
    let (first, second) = (desk.held(0), desk.held(1));
    let start = |attempt: &AttemptRef| torc_model::api::StartReport {
        attempt: attempt.clone(),
        pid: 1,
        at_ms: 1,
    };
    for attempt in [&first, &second] {
        let report = &start(attempt);
        desk.run(On(FLOW, ReportStart { runner: ANN, report, is_followed: false }));
    }
    desk.run(On(FLOW, CancelJob { job: ix(0) }));
    assert_eq!(desk.ask(ANN, "l").cancel, [first.id]);
    assert_eq!(desk.ask(ANN, "m").cancel, []);
    desk.run(On(FLOW, CancelJobs { jobs: &[ix(0), ix(1)] }));
    assert_eq!(desk.ask(ANN, "n").cancel, [second.id], "the other one was told");
    let held = vec![first.clone(), second.clone()];
    let beat = &Heartbeat { runner_id: ANN, held, gone: Vec::new(), step_events: Vec::new() };
    for _ in 0..2 {
        let cancel = desk.run(Beat { beat, written: &[] }).cancel;
        assert_eq!(cancel, [first.id, second.id]);
    }
}

#[test]
fn a_runner_hears_whether_it_is_alone_and_the_first_one_is_woken_when_it_no_longer_is() {
    let mut desk = Desk::new(Vec::new());
    assert!(desk.ask(ANN, "k").is_alone);
    assert_eq!(desk.come(BOB, 1), Wakes::Workflow);
    assert!(!desk.ask(ANN, "l").is_alone && !desk.ask(BOB, "l").is_alone);
    assert_eq!(desk.come(RunnerId(3), 1), Wakes::None, "both knew it already");
    desk.known(BOB).leaving = true;
    desk.known(RunnerId(3)).leaving = true;
    assert!(desk.ask(ANN, "m").is_alone, "who is leaving takes nothing");
    assert_eq!(desk.come(RunnerId(4), 1), Wakes::Workflow);
    let mut fresh = Desk::new(Vec::new());
    fresh.engine.runners.remove(ANN);
    assert_eq!(fresh.come(ANN, 1), Wakes::None, "the first one finds none");
}

#[test]
fn a_runner_that_must_stop_soon_gets_what_ends_before() {
    let lasting = |seconds| but(job(&[]), move |job| job.class.runtime = Some(seconds));
    let mut desk = Desk::new(vec![lasting(100), lasting(101), lasting(50)]);
    let now = desk.at.now;
    desk.known(ANN).stop_by = Some(now + 100_999);
    assert_eq!(numbers(&desk.ask(ANN, "k").attempts), [0, 2]);
    // What it says itself is newer.
    let asked = ClaimRequest { time_left_seconds: Some(101), ..request(ANN, "l", 9, 4) };
    assert_eq!(numbers(&desk.claim(&asked).attempts), [1]);
}

#[test]
fn a_runner_gets_work_for_its_label_and_its_scheduler() {
    let labelled = but(job(&[]), |job| job.class.label = Some("gpu".into()));
    let scheduled = but(job(&[]), |job| job.class.scheduler = Some(5));
    let jobs = || vec![labelled.clone(), scheduled.clone()];
    let strict =
        |runner| ClaimRequest { strict_scheduler_match: true, ..request(runner, "k", 9, 4) };
    let mut desk = Desk::new(jobs());
    desk.known(ANN).label = Some("gpu".into());
    assert_eq!(numbers(&desk.claim(&strict(ANN)).attempts), [0]);
    let mut desk = Desk::new(jobs());
    desk.known(ANN).scheduler = Some(6);
    assert_eq!(desk.claim(&strict(ANN)).attempts, []);
    assert_eq!(numbers(&desk.ask(ANN, "l").attempts), [1], "rather another's than nothing");
    let mut desk = Desk::new(jobs());
    desk.known(ANN).scheduler = Some(5);
    assert_eq!(numbers(&desk.claim(&strict(ANN)).attempts), [1]);
}

#[test]
fn a_canceled_workflow_gives_no_work_until_it_goes_on() {
    let mut desk = Desk::new(jobs(1));
    desk.run(On(FLOW, HoldJob { job: ix(0), held: true }));
    assert_eq!(desk.ask(ANN, "k").attempts, []);
    desk.run(On(FLOW, HoldJob { job: ix(0), held: false }));
    desk.engine.workflows.get_mut(&FLOW).expect("it is loaded").canceled = true;
    let (workflow, request) = (FLOW, &request(ANN, "l", 9, 4));
    let capacity = &request.capacity;
    let take = TakeJobs { workflow, request, limit: 9, prefetch: 0, capacity, nonce: 1 };
    assert_eq!(desk.run(take), []);
    desk.run(On(FLOW, Resume {}));
    assert_eq!(desk.run(take).len(), 1);
}

#[test]
fn what_keeps_a_runner_from_work_is_said_with_its_time() {
    let mut desk = Desk::new(jobs(1));
    let (scope, token_hash) = (Scope::All, "h".to_owned());
    let reserve = Reserve { scope, by: "ann", token_hash, ttl_ms: 9_999 };
    assert_eq!(desk.done(reserve).wakes, Wakes::None);
    let kept = desk.ask(ANN, "k").kept.expect("it is reserved");
    assert_eq!(kept, KeptFromWork::Reserved { id: 1, by: "ann".into(), seconds: 9 });
    assert!(kept.text().contains("reservation 1 (ann), at most 9 s more"), "{}", kept.text());
    desk.at.uptime += 9_998;
    let seconds = |kept| match kept {
        Some(KeptFromWork::Reserved { seconds, .. }) => Some(seconds),
        _ => None,
    };
    assert_eq!(seconds(desk.ask(ANN, "l").kept), Some(0));
    desk.at.uptime += 1;
    let answer = desk.ask(ANN, "m");
    assert_eq!((answer.kept, answer.attempts.len()), (None, 1));
    assert_eq!(desk.done(ExpireReservations { all: false }).wakes, Wakes::All);
    let texts = [
        KeptFromWork::Quarantined { seconds: 5, why: "three failures".into() }.text(),
        KeptFromWork::Ordered(RunnerOrder::Drain).text(),
        KeptFromWork::Ordered(RunnerOrder::Remove).text(),
        KeptFromWork::OthersFirst.text(),
    ];
    for (text, word) in texts.iter().zip(["5 s: three failures", "resume", "removed", "others"]) {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_bad_machine_gets_no_work_for_a_while_and_is_then_tried_again() {
    let mut desk = Desk::new(jobs(3));
    let kept = Quarantine { why: "jobs fail".into(), until: desk.at.now + 5_000 };
    let quarantine = |runner, kept| QuarantineRunner {
        runner,
        workflow: FLOW,
        kept,
        burnt: vec![(JobId(99), BurntAttempt { id: AttemptId(9), run: 1, number: 1, rule: None })],
    };
    assert_eq!(desk.done(quarantine(BOB, kept.clone())).changes, [], "it has ended");
    let changes = desk.done(quarantine(ANN, kept)).changes;
    let told = changes.iter().find_map(|change| match change {
        Change::Event { kind: EventKind::RunnerQuarantined, data, .. } => Some(data),
        _ => None,
    });
    let told = told.expect("people hear of it");
    assert_eq!((&told["refunded"], &told["queued_again"]), (&json!(1), &json!(0)));
    let answer = desk.ask(ANN, "k");
    assert_eq!(answer.attempts, []);
    assert!(matches!(answer.kept, Some(KeptFromWork::Quarantined { .. })));
    assert!(!answer.idle, "it is tried again");
    desk.at.now += 4_999;
    assert_eq!(desk.ask(ANN, "l").attempts, []);
    desk.at.now += 1;
    let request = request(ANN, "m", 1, 4);
    let done = desk.done(Claim { workflow: FLOW, request: &request, nonce: 1 });
    assert_eq!(done.reply.expect("it is granted").attempts.len(), 1);
    let is_told =
        |change: &Change| matches!(change, Change::Event { kind: EventKind::RunnerTriedAgain, .. });
    assert!(done.changes.iter().any(is_told));
    assert_eq!(desk.done(ReleaseRunner(ANN)).changes, [], "it is released already");
    assert_eq!(desk.code(ReleaseRunner(BOB)), Some(ErrorCode::RunnerEnded));
}

#[test]
fn a_job_that_failed_on_a_bad_machine_is_queued_again_and_counted() {
    let mut desk = Desk::new(jobs(2));
    assert_eq!(desk.ask(ANN, "k").attempts.len(), 2);
    let burnt = [0, 1].map(|at| {
        let burnt = BurntAttempt { id: desk.held(at).id, run: 1, number: 1, rule: None };
        assert!(desk.end(ANN, at, Some(Cause::Exit)).reply.is_ok());
        (JobId(at as i64 + 1), burnt)
    });
    let kept = Quarantine { why: "jobs fail".into(), until: desk.at.now + 5_000 };
    let (runner, workflow, burnt) = (ANN, FLOW, burnt.to_vec());
    let changes = desk.done(QuarantineRunner { runner, workflow, kept, burnt }).changes;
    let told = changes.iter().find_map(|change| match change {
        Change::Event { kind: EventKind::RunnerQuarantined, data, .. } => Some(data),
        _ => None,
    });
    let told = told.expect("people hear of it");
    assert_eq!((&told["refunded"], &told["queued_again"]), (&json!(2), &json!(2)));
    assert_eq!(statuses(desk.flow()), [JobStatus::Ready; 2]);
}

#[test]
fn a_runner_that_asked_before_there_were_actions_is_greeted_when_there_are() {
    let mut desk = Desk::new(jobs(1));
    assert_eq!(desk.ask(ANN, "k").actions, []);
    let id = torc_model::ids::ActionId(1);
    let action = NewAction {
        id,
        trigger: torc_model::status::Trigger::OnWorkerStart,
        jobs: Vec::new(),
        persistent: true,
        is_recovery: false,
        schedules_nodes: false,
        state: torc_model::status::ActionState::Waiting,
        by: None,
    };
    desk.run(On(FLOW, AddLateAction { action }));
    assert_eq!(desk.ask(ANN, "l").actions, [id]);
    assert_eq!(desk.ask(ANN, "m").actions, []);
}

#[test]
fn an_order_makes_all_waiting_claims_look_again_and_none_is_given_to_who_has_ended() {
    let mut desk = Desk::new(jobs(1));
    let order = |runner| OrderRunner { runner, ordered: Some(RunnerOrder::Drain) };
    let done = desk.done(order(ANN));
    assert_eq!((done.wakes, done.about, done.changes.len()), (Wakes::All, Some(FLOW), 1));
    assert_eq!(desk.known(ANN).ordered, Some(RunnerOrder::Drain));
    assert_eq!(desk.code(order(BOB)), Some(ErrorCode::RunnerEnded));
}

#[test]
fn what_holds_up_the_end_of_a_runner_is_kept_as_the_last_sweep_saw_it() {
    let mut desk = Desk::new(jobs(1));
    let note = |runner, holdup| NoteHoldup { runner, holdup };
    desk.run(note(ANN, Some(Holdup::Stopped)));
    desk.run(note(BOB, Some(Holdup::Unproved)));
    assert_eq!(desk.known(ANN).holdup, Some(Holdup::Stopped));
    desk.run(note(ANN, None));
    assert_eq!(desk.known(ANN).holdup, None);
}

#[test]
fn each_sign_of_life_of_a_runner_is_written() {
    let mut desk = Desk::new(jobs(1));
    let beat = |runner_id| Heartbeat {
        runner_id,
        held: Vec::new(),
        gone: Vec::new(),
        step_events: Vec::new(),
    };
    let done = desk.done(Beat { beat: &beat(ANN), written: &[] });
    assert_eq!(
        (done.about, &done.changes[..]),
        (Some(FLOW), &[Change::Runner(ANN, RunnerChange::Seen)][..])
    );
    assert_eq!(desk.code(Beat { beat: &beat(BOB), written: &[] }), Some(ErrorCode::RunnerEnded));
}

#[test]
fn a_command_needs_the_workflow_that_it_moves() {
    let desk = Desk::new(jobs(1));
    let engine = &desk.engine;
    let request = &request(ANN, "k", 1, 1);
    let (workflow, runner, capacity) = (FLOW, ANN, &request.capacity);
    let (lost, reason) = (&gone("it is gone"), "it died");
    let kept = Quarantine { why: "bad".into(), until: 1 };
    let report = &report(&AttemptRef { id: AttemptId(1), token: "t".into() }, None);
    let take = TakeJobs { workflow, request, limit: 1, prefetch: 0, capacity, nonce: 1 };
    let known = KnownRunner::new(FLOW, "host".into(), 7, node(1));
    let beat = |runner_id| Heartbeat {
        runner_id,
        held: Vec::new(),
        gone: Vec::new(),
        step_events: Vec::new(),
    };
    let facts = EndFacts::default();
    let begun = Begun { actions: Vec::new(), kept: None, attempts: Vec::new(), may_take: true };
    let needs = [
        Claim { workflow, request, nonce: 7 }.needs(engine),
        BeginClaim { workflow, request, pool_order: None }.needs(engine),
        FinishClaim { workflow, request, pool_order: None, begun }.needs(engine),
        take.needs(engine),
        RegisterRunner { id: BOB, runner: known }.needs(engine),
        Beat { beat: &beat(ANN), written: &[] }.needs(engine),
        Leave { runner, workflow, reason }.needs(engine),
        EndRunner { runner, workflow, lost, reason, unbegun: &[] }.needs(engine),
        QuarantineRunner { runner, workflow, kept, burnt: Vec::new() }.needs(engine),
        ReportEnd { workflow, runner, report, started: None, facts }.needs(engine),
        On(FLOW, CancelWorkflow {}).needs(engine),
    ];
    assert_eq!(needs, [Some(FLOW); 11]);
    assert_eq!(Beat { beat: &beat(BOB), written: &[] }.needs(engine), None, "it has ended");
}

#[test]
fn an_attempts_row_is_taken_once() {
    let mut desk = Desk::new(jobs(1));
    let first = desk.run(TakeAttemptRow {});
    assert_eq!(desk.run(TakeAttemptRow {}), first + 1);
    assert_eq!(desk.ask(ANN, "k").attempts.len(), 1);
    assert_ne!(desk.held(0).id, AttemptId(first));
    assert_eq!(desk.engine.next_attempt(), first + 2);
}

#[test]
fn a_canceled_job_is_not_opened_with_those_that_failed() {
    let mut desk = Desk::new(jobs(2));
    assert_eq!(numbers(&desk.claim(&request(ANN, "k", 1, 1)).attempts), [0]);
    assert!(desk.end(ANN, 0, Some(Cause::Exit)).reply.is_ok());
    desk.run(On(FLOW, CancelJob { job: ix(1) }));
    let origin = torc_model::status::Origin::Recovered;
    desk.run(On(FLOW, RunAgain { jobs: &[ix(0), ix(1)], origin }));
    assert_eq!(statuses(desk.flow()), [JobStatus::Ready, JobStatus::Canceled]);
}

#[test]
fn claims_look_again_when_the_job_that_a_runner_is_kept_for_no_longer_waits() {
    let sized = |cpus, seconds: u32, priority| {
        but(job(&[]), |job| {
            (job.class.cpus, job.own_ms, job.priority) = (cpus, Some(seconds * 1_000), priority);
        })
    };
    let mut desk = Desk::new(vec![sized(1, 10, 9), sized(4, 30, 5), sized(1, 60, 0)]);
    let hold =
        |desk: &mut Desk, at: usize, held| desk.done(On(FLOW, HoldJob { job: ix(at), held }));
    [1, 2].into_iter().for_each(|at| assert!(hold(&mut desk, at, true).reply.is_ok()));
    assert_eq!(numbers(&desk.ask(ANN, "k").attempts), [0]);
    [1, 2].into_iter().for_each(|at| assert_eq!(hold(&mut desk, at, false).wakes, Wakes::None));
    assert_eq!(desk.ask(ANN, "l").attempts, [], "the runner is kept for the wide job");
    assert_eq!(hold(&mut desk, 1, true).wakes, Wakes::Workflow);
    assert_eq!(numbers(&desk.ask(ANN, "m").attempts), [2]);
}

#[test]
fn what_is_on_disk_is_not_remembered_of_a_runner_that_ended() {
    for is_on_disk in [true, false] {
        let mut desk = Desk::new(jobs(1));
        let rows = |desk: &Desk| Loaded {
            runners: desk.engine.runners().clone(),
            next_attempt: desk.engine.next_attempt(),
            next_job: desk.engine.next_job(),
            ..Loaded::default()
        };
        let before = rows(&desk);
        desk.run(Hear { runner: ANN, workflow: None });
        desk.run(Leave { runner: ANN, workflow: FLOW, reason: "it leaves" });
        if is_on_disk {
            desk.engine.committed();
        }
        desk.engine.reread(Engine::restored(before));
        assert_eq!(desk.known(ANN).heard, (!is_on_disk).then_some(50_000));
    }
}

#[test]
fn a_ready_job_that_gets_another_scheduler_stays_in_the_queue() {
    let mut desk = Desk::new(jobs(1));
    desk.run(On(FLOW, AssignSchedulers { jobs: &[JobId(1), JobId(99)], scheduler: 5 }));
    desk.known(ANN).scheduler = Some(5);
    let strict = ClaimRequest { strict_scheduler_match: true, ..request(ANN, "k", 1, 1) };
    assert_eq!(numbers(&desk.claim(&strict).attempts), [0]);
    assert_eq!(desk.flow().class_of(ix(0)).scheduler, Some(5));
}

#[test]
fn events_of_steps_are_told_once_and_only_by_who_holds_the_attempt() {
    let mut desk = Desk::new(jobs(1));
    desk.ask(ANN, "k");
    let attempt = desk.held(0);
    let event = |path: &str| StepEvent {
        kind: EventKind::StepFinished,
        at_ms: 1,
        path: path.into(),
        data: serde_json::Map::new(),
    };
    let mut tell = |attempt: &AttemptRef, written, from, paths: &[&str]| {
        let events = paths.iter().map(|path| event(path)).collect();
        let step_events = vec![StepEvents { attempt: attempt.clone(), from, events }];
        let beat = Heartbeat { runner_id: ANN, held: Vec::new(), gone: Vec::new(), step_events };
        let changes = desk.done(Beat { beat: &beat, written: &[written] }).changes;
        let paths = changes.iter().filter_map(|change| match change {
            Change::Event { data, .. } => data["step"].as_str().map(str::to_owned),
            _ => None,
        });
        let counts = changes.iter().filter_map(|change| match change {
            Change::AttemptSteps(id, count) => Some((*id, *count)),
            _ => None,
        });
        (paths.collect::<Vec<_>>(), counts.collect::<Vec<_>>())
    };
    let id = attempt.id;
    let told = |paths: &[&str], count| {
        (paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>(), vec![(id, count)])
    };
    assert_eq!(tell(&attempt, 0, 0, &["a", "b"]), told(&["a", "b"], 2));
    assert_eq!(tell(&attempt, 2, 1, &["b", "c"]), told(&["c"], 3));
    assert_eq!(tell(&attempt, 3, 1, &["b", "c"]), (Vec::new(), Vec::new()), "a repeat");
    assert_eq!(tell(&attempt, 3, 4, &["e"]), (Vec::new(), Vec::new()), "one is missing");
    let stranger = AttemptRef { token: "another".into(), ..attempt };
    assert_eq!(tell(&stranger, 3, 3, &["d"]), (Vec::new(), Vec::new()));
}

#[test]
fn what_a_dead_runner_had_not_begun_is_queued_again_at_no_cost_and_the_rest_is_lost() {
    let mut desk = Desk::new(jobs(3));
    assert_eq!(desk.ask(ANN, "k").attempts.len(), 3);
    let unbegun = [desk.held(1).id, AttemptId(999)];
    let lost = &gone("its node is down");
    let (runner, workflow, reason) = (ANN, FLOW, "it died");
    let done = desk.done(EndRunner { runner, workflow, lost, reason, unbegun: &unbegun });
    assert_eq!(done.reply, Ok(2), "two attempts ended with it");
    let lost: Vec<u32> = desk.flow().jobs().map(|job| job.tries.lost).collect();
    assert_eq!(lost, [1, 0, 1]);
    assert_eq!(statuses(desk.flow()), [JobStatus::Ready; 3]);
    assert!(desk.engine.runners().get(&ANN).is_none());
}

#[test]
fn the_end_of_a_job_with_a_named_limit_wakes_all_who_may_wait_for_it() {
    let limited = but(job(&[]), |job| job.class.uses = vec!["licence".into()]);
    let mut desk = Desk::new(vec![limited, job(&[]), job(&[])]);
    desk.ask(ANN, "k");
    assert_eq!(desk.end(ANN, 0, None).wakes, Wakes::All);
    assert_eq!(desk.end(ANN, 1, None).wakes, Wakes::None, "nothing waits for it");
    let last = report(&desk.held(2), None);
    assert!(matches!(desk.report(ANN, &last).reply, Ok(Some(_))));
    let late = desk.report(ANN, &last);
    assert_eq!((late.reply, late.changes), (Ok(None), Vec::new()), "it is not its any more");
}

#[test]
fn three_failures_in_no_time_where_others_succeed_are_the_fault_of_the_machine_unless_canceled() {
    for is_canceled in [false, true] {
        let once = but(job(&[]), |job| job.cancel_on_failure = false);
        let mut desk = Desk::new(vec![once; 6]);
        desk.come(BOB, 3);
        assert_eq!(desk.claim(&request(BOB, "b", 3, 3)).attempts.len(), 3);
        assert_eq!(desk.claim(&request(ANN, "a", 3, 3)).attempts.len(), 3);
        for runner in [ANN, BOB] {
            desk.run(Hear { runner, workflow: None });
        }
        for at in 0..3 {
            let reported = desk.end(BOB, at, None).reply.expect("granted").expect("its own");
            assert_eq!(reported.burnt, None);
        }
        if is_canceled {
            for at in 3..6 {
                let report = &torc_model::api::StartReport {
                    attempt: desk.held(at),
                    pid: 1,
                    at_ms: desk.at.now,
                };
                desk.run(On(FLOW, ReportStart { runner: ANN, report, is_followed: false }));
                desk.run(On(FLOW, CancelJob { job: ix(at) }));
            }
        }
        let mut burnt = None;
        for at in 3..6 {
            assert_eq!(burnt, None);
            let end = desk.end(ANN, at, Some(Cause::Exit));
            burnt = end.reply.expect("granted").expect("its own").burnt;
        }
        assert_eq!(burnt.is_none(), is_canceled, "{burnt:?}");
    }
}

#[test]
fn what_a_job_captured_counts_when_it_succeeded_and_the_rest_of_its_steps_is_told() {
    for (cause, captured) in [(None, 1), (Some(Cause::Exit), 0)] {
        let mut desk = Desk::new(jobs(1));
        desk.ask(ANN, "k");
        let event =
            |path: &str| json!({"kind": "step_finished", "at_ms": 1, "path": path, "data": {}});
        let steps = json!({"events": [event("a"), event("b")], "captures": {"x": 5}});
        let report = CompletionReport { steps: Some(steps), ..report(&desk.held(0), cause) };
        let facts = EndFacts { steps_written: 1, ..EndFacts::default() };
        let (workflow, runner, report) = (FLOW, ANN, &report);
        let done = desk.done(ReportEnd { workflow, runner, report, started: None, facts });
        let captures = done.changes.iter().filter(|c| matches!(c, Change::Captured(..)));
        assert_eq!(captures.count(), captured);
        let steps = done.changes.iter().filter_map(|change| match change {
            Change::Event { data, .. } => data["step"].as_str(),
            _ => None,
        });
        assert_eq!(steps.collect::<Vec<_>>(), ["b"]);
    }
}

#[test]
fn nothing_is_captured_of_a_job_that_captured_nothing() {
    let mut desk = Desk::new(jobs(1));
    desk.ask(ANN, "k");
    let steps = json!({"events": [], "captures": {}});
    let report = CompletionReport { steps: Some(steps), ..report(&desk.held(0), None) };
    let changes = desk.report(ANN, &report).changes;
    assert!(!changes.iter().any(|change| matches!(change, Change::Captured(..))));
}

#[test]
fn items_that_a_map_found_take_numbers_that_no_job_has() {
    let mut c = Chronicle::plain(jobs(1));
    c.flow.set_map(ix(0), MapJob { is_dynamic: true, ..MapJob::default() });
    let mut desk = Desk::with(c.flow, 40);
    desk.ask(ANN, "k");
    let new = vec![NewItem { name: "item".into(), extra: None }; 2];
    let found = FoundItems { new, kept: Vec::new(), changed: Vec::new(), gone: Vec::new() };
    let facts = EndFacts { found: Some(found), ..EndFacts::default() };
    let (workflow, runner, report) = (FLOW, ANN, &report(&desk.held(0), None));
    desk.run(ReportEnd { workflow, runner, report, started: None, facts });
    let ids: Vec<JobId> = desk.flow().jobs().map(|job| job.id()).collect();
    assert_eq!(ids, [JobId(1), JobId(40), JobId(41)]);
    assert_eq!((desk.run(TakeJobIds { count: 0 }), desk.engine.next_job()), (JobId(42), 42));
}

#[test]
fn a_leaving_runner_says_why_and_executes_its_last_actions() {
    let mut desk = Desk::new(jobs(1));
    desk.ask(ANN, "k");
    let done = desk.done(Leave { runner: ANN, workflow: FLOW, reason: "its time is over" });
    assert_eq!(done.reply, Ok(Vec::new()));
    let ended = done.changes.iter().find_map(|change| match change {
        Change::Runner(ANN, RunnerChange::Ended(why)) => Some(why.as_str()),
        _ => None,
    });
    assert_eq!(ended, Some("its time is over"));
    assert_eq!(
        (statuses(desk.flow()), desk.flow().job(ix(0)).tries.lost),
        (vec![JobStatus::Ready], 0)
    );
}

#[test]
fn what_cannot_happen_to_an_allocation_changes_nothing() {
    let mut desk = Desk::new(jobs(1));
    let step = |event| StepAllocation {
        workflow: FLOW,
        id: 3,
        life: AllocationLife::planned(None),
        event,
    };
    let done = desk.done(step(AllocationEvent::Missing));
    assert_eq!((done.reply, done.changes), (Ok(false), Vec::new()));
    let taken = AllocationEvent::Taken { submitter: "s".into(), until: 5 };
    let done = desk.done(step(taken));
    assert_eq!((done.reply, done.about), (Ok(true), Some(FLOW)));
    assert!(
        matches!(&done.changes[..], [Change::Allocation(3, life)] if life.submission.is_some())
    );
}

#[test]
fn a_runner_of_an_allocation_that_began_again_replaces_the_one_on_its_node() {
    let mut desk = Desk::new(jobs(1));
    desk.ask(ANN, "k");
    let arrive = |restarts, node, runners| ArriveInAllocation {
        workflow: FLOW,
        id: 3,
        life: AllocationLife {
            job: Some("7".into()),
            restarts: Some(1),
            ..AllocationLife::planned(None)
        },
        arrival: Arrival { job: "7".into(), restarts: Some(restarts) },
        node: Some(node),
        runners,
    };
    let code = |done: Done<()>| done.reply.map_err(|refused| refused.code);
    let there = [(ANN, Some(0))];
    let late = desk.done(arrive(0, 0, &there));
    assert_eq!((code(late), desk.flow().held_count()), (Err(ErrorCode::RunnerEnded), 1));
    let life = AllocationLife { job: Some("8".into()), ..AllocationLife::planned(None) };
    let other = desk.done(ArriveInAllocation { life, ..arrive(1, 0, &there) });
    assert_eq!((code(other), desk.flow().held_count()), (Err(ErrorCode::DuplicateAllocation), 1));
    let beside = desk.done(arrive(1, 1, &there));
    assert_eq!((code(beside), desk.flow().held_count()), (Ok(()), 1), "it is on another node");
    let again = desk.done(arrive(2, 0, &there));
    let told = again.changes.iter().any(|change| {
        matches!(change, Change::Event { kind: EventKind::AllocationStarted, data, .. }
            if data["slurm_job_id"] == "7")
    });
    assert_eq!((code(again), told, desk.flow().held_count()), (Ok(()), true, 0));
}

#[test]
fn an_allocation_that_is_given_up_before_it_was_sent_is_over_at_once() {
    let mut desk = Desk::new(jobs(1));
    let mut give_up = |status| {
        let life = AllocationLife { status, ..AllocationLife::planned(None) };
        let scheduler = "s";
        let done = desk.done(GiveUpAllocation { workflow: FLOW, id: 3, life, scheduler });
        let last = done.changes.iter().rev().find_map(|change| match change {
            Change::Allocation(3, life) => Some((life.status, life.unneeded_since.is_some())),
            _ => None,
        });
        let told = done.changes.iter().find_map(|change| match change {
            Change::Event { kind, .. } => Some(*kind),
            _ => None,
        });
        (last, told)
    };
    use AllocationStatus::{Active, Complete, Pending, Planned};
    let (ended, unneeded) = (EventKind::AllocationEnded, EventKind::AllocationUnneeded);
    assert_eq!(give_up(Planned), (Some((Complete, true)), Some(ended)));
    assert_eq!(give_up(Pending), (Some((Pending, true)), Some(unneeded)));
    assert_eq!(give_up(Active), (None, None));
}

#[test]
fn runners_of_an_allocation_that_is_over_end_for_its_reason() {
    let mut desk = Desk::new(jobs(1));
    desk.ask(ANN, "k");
    let gone = RunnersGone { cause: Cause::Preempted, text: "it was preempted".into() };
    let done =
        desk.done(EndRunnersIn { workflow: FLOW, job: Some("7"), runners: &[ANN], gone: &gone });
    let end = done.changes.iter().find_map(|change| match change {
        Change::AttemptEnded(_, end) => Some((end.ending.cause, end.ending.evidence[0].clone())),
        _ => None,
    });
    let Some((Some(Cause::Preempted), evidence)) = end else { panic!("{end:?}") };
    assert_eq!(evidence.text, words::message("Slurm job 7: it was preempted"));
}

#[test]
fn a_map_takes_its_limit_along_when_its_workflow_is_unloaded() {
    let mut c = Chronicle::plain(jobs(1));
    c.flow.set_map(ix(0), MapJob { max_parallel: Some(2), ..MapJob::default() });
    let mut engine = Engine::default();
    let at = Clocks { now: 0, uptime: 0 };
    let licence = engine.handle(SetLimit { name: "licence", max: 1 }, at);
    assert_eq!(licence.wakes, Wakes::All);
    let add = AddWorkflow { workflow: Box::new(c.flow), initialize: true };
    assert!(engine.handle(add, at).reply.is_ok());
    let names = |engine: &Engine| engine.limits().keys().cloned().collect::<Vec<_>>();
    let own = limit_name(JobId(1));
    assert!(names(&engine).contains(&own));
    let copy = engine.workflow(FLOW).cloned().expect("it is loaded");
    engine.unload(FLOW);
    assert_eq!(names(&engine), ["licence"]);
    engine.load(copy);
    engine.forget(FLOW);
    assert!(engine.workflow(FLOW).is_none());
}
