//! The dispatcher alone: facts in, effects out. No process, no clock, no network.

use super::requests::{END_DELAY, REPORT_BYTES};
use super::*;
use std::collections::BTreeMap;
use std::collections::HashSet;
use torc_model::ids::JobId;
use torc_model::plan::ActionKind;
use torc_model::status::Trigger;

/// An attempt with the id `id` of a job that needs one CPU.
pub fn packet(id: i64) -> AttemptPacket {
    AttemptPacket {
        id: AttemptId(id),
        token: format!("t{id}"),
        job_id: JobId(id),
        job_name: format!("job{id}"),
        run_id: 1,
        attempt_id: 1,
        command: "true".into(),
        invocation_script: None,
        steps: None,
        env: BTreeMap::new(),
        num_cpus: 1,
        num_gpus: 0,
        num_nodes: 1,
        memory_bytes: None,
        time_limit_seconds: None,
        is_limited_by_runtime: false,
        stdio: None,
        output_files: Vec::new(),
        lists: Vec::new(),
        strictness: Default::default(),
        recovery: None,
    }
}

/// A dispatcher, its clock, and what it wants done, as text.
struct Desk {
    dispatcher: Dispatcher,
    held: Arc<HeldList>,
    now: Instant,
    last_exchange: Option<Arc<ClaimRequest>>,
}

impl Desk {
    fn new(change: impl FnOnce(&mut DispatcherSettings)) -> Self {
        let mut settings = DispatcherSettings {
            runner_id: RunnerId(1),
            key: "k".into(),
            capacity: Capacity { num_cpus: 2, ..Capacity::default() },
            gpus: Vec::new(),
            nodes: Vec::new(),
            prefetch: Prefetch::Adaptive,
            leave_when_stuck: true,
            idle_limit: None,
            ignore_completion: false,
            strict_scheduler_match: false,
            time_limit: TimeLimit {
                end: None,
                margin: Duration::ZERO,
                reason: StopReason::RunnerTimeUp,
            },
            wait_for_server: Duration::from_secs(1200),
            doubt: None,
            wall_clock: || 0,
        };
        change(&mut settings);
        let (held, now) = (Arc::new(HeldList::default()), Instant::now());
        Self {
            dispatcher: Dispatcher::new(settings, held.clone(), now),
            held,
            now,
            last_exchange: None,
        }
    }

    /// One that has its listener out, as every one has after its first moment.
    fn listening() -> Self {
        let mut desk = Self::new(|_| {});
        assert_eq!(desk.settle(), ["listen limit 256"]);
        desk
    }

    fn settle(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        self.dispatcher.settle(self.now, &mut out);
        self.expect_rest();
        self.describe(out)
    }

    /// An alarm that is due although the dispatcher has just settled would wake it without end.
    fn expect_rest(&self) {
        let alarm = self.dispatcher.next_alarm();
        assert!(alarm.is_none_or(|at| at > self.now), "an alarm is due again at once");
    }

    fn on(&mut self, event: Event) -> Vec<String> {
        let mut out = Vec::new();
        self.dispatcher.handle_event(event, self.now, &mut out);
        self.dispatcher.settle(self.now, &mut out);
        self.expect_rest();
        self.describe(out)
    }

    fn describe(&mut self, effects: Vec<Effect>) -> Vec<String> {
        effects.into_iter().filter_map(|effect| self.line(effect)).collect()
    }

    fn line(&mut self, effect: Effect) -> Option<String> {
        Some(match effect {
            Effect::Exchange(request) => {
                let started: Vec<i64> = request.started.iter().map(|r| r.attempt.id.0).collect();
                let completed: Vec<String> = request
                    .completed
                    .iter()
                    .map(|r| {
                        format!(
                            "{}{}",
                            r.attempt.id,
                            r.cause.map_or(String::new(), |c| format!(":{c}"))
                        )
                    })
                    .collect();
                let line = format!(
                    "exchange limit {} prefetch {} started {started:?} completed {completed:?}",
                    request.limit, request.prefetch
                );
                self.last_exchange = Some(request);
                line.replace('"', "")
            }
            Effect::Listen(request) => format!("listen limit {}", request.limit),
            Effect::Start(packet, gpus, 0) => format!("start {} {gpus:?}", packet.id),
            Effect::Start(packet, _, node) => format!("start {} on node {node}", packet.id),
            Effect::Stop(id, reason) => format!("stop {id} {reason:?}"),
            Effect::StopAll(reason) => format!("stop all {reason:?}"),
            Effect::KillAll(reason) => format!("kill all {reason:?}"),
            Effect::RunAction(packet) => format!("action {}", packet.id),
            Effect::ReportAction(result) => {
                format!("report action {} {}", result.id, result.return_code)
            }
            Effect::Spool(reports) => {
                format!("spool {:?}", reports.iter().map(|r| r.attempt.id.0).collect::<Vec<_>>())
            }
            Effect::ClearSpool => "clear spool".into(),
            Effect::Goodbye(goodbye) => {
                let cause = goodbye.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
                format!("goodbye: {}{cause}", goodbye.reason)
            }
            Effect::Tell(
                RunnerNotice::Started { .. }
                | RunnerNotice::Ended { .. }
                | RunnerNotice::Judged { .. },
            ) => {
                return None;
            }
            Effect::Tell(event) => {
                format!("tell {event:?}").split([' ', '{']).take(2).collect::<Vec<_>>().join(" ")
            }
            Effect::Exit => "exit".into(),
        })
    }

    fn heard(&mut self, ids: &[i64]) -> Vec<String> {
        self.hear(granted(ids))
    }

    /// An answer to a listener that has waited for a while.
    fn hear(&mut self, answer: ClaimResponse) -> Vec<String> {
        self.now += HASTY;
        self.on(Event::Heard(answer))
    }

    fn started(&mut self, id: i64) -> Vec<String> {
        self.on(Event::Started(StartReport { attempt: reference(id), pid: 1, at_ms: 0 }))
    }

    fn ended(&mut self, id: i64, seconds: f64, cause: Option<Cause>) -> Vec<String> {
        let report = CompletionReport {
            exec_seconds: seconds,
            cause,
            ..unstarted_report(packet(id), Cause::Exit, "", 0)
        };
        self.on(Event::Ended(Box::new(report)))
    }

    fn exchanged(&mut self, answer: ClaimResponse) -> Vec<String> {
        self.on(Event::Exchanged(answer))
    }

    fn later(&mut self, seconds: f64) -> Vec<String> {
        self.now += Duration::from_secs_f64(seconds);
        self.settle()
    }
}

fn reference(id: i64) -> AttemptRef {
    AttemptRef { id: AttemptId(id), token: format!("t{id}") }
}

fn granted(ids: &[i64]) -> ClaimResponse {
    ClaimResponse {
        attempts: ids.iter().map(|id| packet(*id)).collect(),
        ..ClaimResponse::default()
    }
}

fn complete() -> ClaimResponse {
    ClaimResponse { workflow_complete: true, idle: true, ..ClaimResponse::default() }
}

fn action(id: i64, trigger: Trigger) -> ActionPacket {
    ActionPacket {
        id: ActionId(id),
        trigger,
        what: ActionKind::RunCommands { commands: vec!["x".into()] },
    }
}

fn action_ended(id: i64) -> Event {
    Event::ActionEnded(ActionResult { id: ActionId(id), return_code: 0, error: None })
}

#[test]
fn a_whole_life_from_the_first_listener_to_the_goodbye() {
    let mut desk = Desk::listening();
    assert_eq!(desk.heard(&[1, 2, 3]), ["start 1 []", "start 2 []", "listen limit 256"]);
    assert_eq!(desk.started(1), [""; 0]);
    assert_eq!(desk.later(0.02), ["exchange limit 256 prefetch 0 started [1] completed []"]);
    // What happens while an exchange is out rides on the next.
    assert_eq!(desk.started(2), [""; 0]);
    assert_eq!(desk.ended(1, 1.0, None), ["start 3 []"]);
    assert_eq!(desk.ended(2, 1.0, Some(Cause::Exit)), [""; 0]);
    assert_eq!(
        desk.exchanged(ClaimResponse::default()),
        ["exchange limit 256 prefetch 0 started [2] completed [1, 2:exit]"]
    );
    assert_eq!(desk.held.refs().len(), 3);
    assert_eq!(desk.exchanged(granted(&[4])), ["start 4 []"]);
    assert_eq!(desk.held.refs().len(), 2);
    desk.ended(3, 1.0, None);
    desk.ended(4, 1.0, None);
    desk.exchanged(complete());
    assert_eq!(desk.exchanged(complete()), ["tell Leaving", "goodbye: the workflow is complete"]);
    assert!(desk.held.refs().is_empty());
    assert_eq!(desk.on(Event::GoodbyeAnswered(Vec::new())), ["exit"]);
    assert_eq!(
        (desk.dispatcher.reason(), desk.dispatcher.undelivered()),
        (LeaveReason::Complete, 0)
    );
    assert_eq!(desk.dispatcher.counts, EndCounts { succeeded: 3, failed: 1, ended: 0 });
}

#[test]
fn attempts_start_in_the_order_received_even_if_a_later_one_would_fit() {
    let mut desk = Desk::listening();
    let mut answer = granted(&[1, 2, 3]);
    answer.attempts[1].num_cpus = 2;
    assert_eq!(desk.on(Event::Heard(answer)), ["start 1 []", "listen limit 256"]);
    assert_eq!(desk.ended(1, 1.0, None)[0], "start 2 []");
    assert_eq!(desk.ended(2, 1.0, None)[0], "start 3 []");
}

#[test]
fn an_attempt_granted_twice_runs_once() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    assert_eq!(desk.heard(&[1]), ["listen limit 256"]);
    desk.ended(1, 1.0, None);
    assert_eq!(desk.heard(&[1]), ["listen limit 256"]);
}

#[test]
fn short_jobs_are_held_ahead_and_long_ones_are_not() {
    let prefetch = |seconds: f64| {
        let mut desk = Desk::listening();
        desk.heard(&[1]);
        desk.ended(1, seconds, None);
        desk.last_exchange.unwrap().prefetch
    };
    assert_eq!([60.0, 0.11, 0.09, 0.01, 0.001, 0.0].map(prefetch), [0, 1, 2, 20, 64, 64]);
    let mut desk = Desk::new(|s| s.prefetch = Prefetch::Fixed(7));
    desk.settle();
    desk.heard(&[1]);
    desk.ended(1, 1.0, None);
    assert_eq!(desk.last_exchange.unwrap().prefetch, 7);
}

#[test]
fn what_can_not_be_started_soon_is_given_back() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2, 3, 4]);
    assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + STALE));
    assert_eq!(desk.later(0.9), [""; 0]);
    assert_eq!(
        desk.later(0.2),
        ["exchange limit 256 prefetch 0 started [] completed [3:stopped, 4:stopped]"]
    );
    assert_eq!(desk.dispatcher.next_alarm(), None);
}

#[test]
fn what_was_given_back_is_not_taken_ahead_again() {
    let mut desk = Desk::new(|s| s.capacity.num_cpus = 200);
    desk.settle();
    let ids: Vec<i64> = (1..=202).collect();
    desk.heard(&ids);
    let lines = desk.later(1.1);
    assert_eq!(
        lines,
        ["exchange limit 256 prefetch 0 started [] completed [201:stopped, 202:stopped]"]
    );
}

#[test]
fn only_what_another_runner_could_start_is_given_back() {
    let mut desk = Desk::listening();
    let alone = |ids: &[i64]| Event::Heard(ClaimResponse { is_alone: true, ..granted(ids) });
    desk.on(alone(&[1, 2, 3, 4]));
    assert_eq!(desk.dispatcher.next_alarm(), None);
    assert_eq!(desk.later(60.0), [""; 0]);
    // Another runner comes.
    let lines = desk.on(Event::Heard(granted(&[])));
    assert!(
        lines.iter().any(|line| line.contains("completed [3:stopped, 4:stopped]")),
        "{lines:?}"
    );
}

#[test]
fn a_cancel_stops_what_runs_and_drops_what_waits() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2, 3]);
    let cancel = vec![AttemptId(1), AttemptId(3), AttemptId(99)];
    let lines = desk.on(Event::Heard(ClaimResponse { cancel, ..ClaimResponse::default() }));
    assert_eq!(
        lines,
        [
            "stop 1 Canceled",
            "exchange limit 256 prefetch 0 started [] completed [3:canceled]",
            "listen limit 256"
        ]
    );
}

#[test]
fn what_is_no_longer_ours_is_stopped_and_not_reported() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2, 3]);
    let not_yours = vec![AttemptId(1), AttemptId(3)];
    let answer = HeartbeatAnswer { not_yours, ..HeartbeatAnswer::default() };
    assert_eq!(desk.on(Event::Heartbeat(answer)), ["stop 1 NotOurs"]);
    assert_eq!(desk.ended(1, 1.0, Some(Cause::Stopped)), [""; 0]);
    assert_eq!(desk.held.refs(), [reference(2)]);
    assert_eq!(
        desk.held.untold(),
        [AttemptId(1), AttemptId(3)],
        "the server hears that they are gone"
    );
}

#[test]
fn only_a_grant_that_never_arrived_is_worth_a_word() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    let forgotten = |ids: &[i64]| HeartbeatAnswer {
        forgotten: ids.iter().map(|id| AttemptId(*id)).collect(),
        ..HeartbeatAnswer::default()
    };
    assert_eq!(desk.on(Event::Heartbeat(forgotten(&[1]))), [""; 0]);
    assert_eq!(desk.on(Event::Heartbeat(forgotten(&[1, 7]))), ["tell Warning"]);
    assert_eq!(desk.held.untold(), [AttemptId(7)]);
    assert!(!desk.held.insert(AttemptId(7), "late"), "what was said to be absent is never started");
    desk.held.told(&[AttemptId(7)]);
    assert!(desk.held.untold().is_empty());
}

#[test]
fn a_lost_node_loses_its_own_attempts_and_no_others() {
    let mut desk = Desk::new(|settings| {
        let node =
            |name: &str| Node { name: name.into(), cpus: 1, memory_bytes: 0, gpus: Vec::new() };
        settings.capacity =
            Capacity { num_cpus: 1, num_nodes: 2, spreads: true, ..Capacity::default() };
        settings.nodes = vec![node("n1"), node("n2")];
    });
    desk.settle();
    assert_eq!(desk.heard(&[1, 2])[..2], ["start 1 []", "start 2 on node 1"]);
    let proof_in = Duration::from_secs(70);
    let lost = Event::NodeLost { node: 1, name: "n2".into(), why: "it burns".into(), proof_in };
    assert_eq!(desk.on(lost), ["tell Warning"], "its processes may still live");
    assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + proof_in));
    desk.now += proof_in;
    let lines = desk.settle();
    assert!(lines.iter().any(|line| line.contains("2:node_fail")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("1:node_fail")), "{lines:?}");
    assert_eq!(desk.dispatcher.settings.capacity.num_nodes, 1);
    desk.heard(&[3]);
    let lines = desk.ended(1, 1.0, None);
    assert!(lines.contains(&"start 3 []".into()), "not on the lost node: {lines:?}");
}

#[test]
fn an_idle_runner_waits_for_a_lost_server_only_so_long_and_a_busy_one_for_ever() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    desk.on(Event::ServerLost("gone".into(), None));
    desk.now += Duration::from_secs(30 * 86_400);
    assert_eq!(desk.settle(), [""; 0], "a job runs");
    desk.ended(1, 1.0, None);
    assert_eq!(desk.dispatcher.reason(), LeaveReason::Stopped, "it works");
    desk.now += Duration::from_secs(1199);
    desk.settle();
    assert_eq!(desk.dispatcher.reason(), LeaveReason::Stopped, "it works");
    assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + Duration::from_secs(1)));
    desk.now += Duration::from_secs(1);
    let lines = desk.settle();
    assert!(lines.contains(&"exit".into()), "{lines:?}");
    assert_eq!(desk.dispatcher.reason(), LeaveReason::OutOfContact);
}

#[test]
fn a_runner_that_is_idle_for_too_long_rests_until_its_results_are_delivered() {
    let mut desk = Desk::new(|s| {
        s.idle_limit = Some(Duration::from_secs(5));
        s.ignore_completion = true;
    });
    desk.settle();
    desk.heard(&[1]);
    desk.on(Event::ServerLost("gone".into(), None));
    desk.ended(1, 1.0, None);
    desk.later(6.0);
    assert_eq!(desk.dispatcher.reason(), LeaveReason::Stopped, "it works");
    desk.exchanged(ClaimResponse::default());
    assert_eq!(desk.dispatcher.reason(), LeaveReason::Idle);
}

#[test]
fn time_that_the_batch_system_takes_away_or_gives_moves_the_end() {
    let mut desk = Desk::new(|settings| settings.time_limit.margin = Duration::from_secs(20));
    desk.settle();
    desk.heard(&[1]);
    desk.on(Event::TimeLeft(Some(Duration::from_secs(60))));
    desk.now += Duration::from_secs(39);
    assert_eq!(desk.settle(), [""; 0]);
    desk.on(Event::TimeLeft(Some(Duration::from_secs(120))));
    desk.now += Duration::from_secs(99);
    assert_eq!(desk.settle(), [""; 0]);
    desk.now += Duration::from_secs(1);
    assert_eq!(desk.settle(), ["tell Leaving", "stop all RunnerTimeUp"]);
    // Slurm takes the nodes away before the job has saved its state.
    assert_eq!(desk.on(Event::Shutdown(Shutdown::Stop)), ["stop all Stopped"]);
}

#[test]
fn a_stop_ends_jobs_gives_back_the_rest_and_says_goodbye_when_all_is_told() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2, 3]);
    let lines = desk.on(Event::Shutdown(Shutdown::Stop));
    assert_eq!(
        lines,
        [
            "tell Leaving",
            "stop all Stopped",
            "exchange limit 0 prefetch 0 started [] completed [3:stopped]"
        ]
    );
    assert_eq!(desk.on(Event::Shutdown(Shutdown::Stop)), [""; 0]);
    // An answer that was on its way grants one more.
    assert_eq!(desk.heard(&[4]), [""; 0]);
    desk.ended(1, 1.0, Some(Cause::Stopped));
    desk.ended(2, 1.0, Some(Cause::Stopped));
    assert_eq!(
        desk.exchanged(ClaimResponse::default()),
        ["exchange limit 0 prefetch 0 started [] completed [4:stopped, 1:stopped, 2:stopped]"]
    );
    assert_eq!(
        desk.exchanged(ClaimResponse::default()),
        ["goodbye: it was told to stop (stopped)"]
    );
    assert_eq!(desk.on(Event::GoodbyeAnswered(Vec::new())), ["exit"]);
}

#[test]
fn a_second_word_kills() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    desk.on(Event::Shutdown(Shutdown::Stop));
    assert_eq!(desk.on(Event::Shutdown(Shutdown::Kill)), ["kill all Stopped"]);
    desk.ended(1, 1.0, Some(Cause::Stopped));
    assert_eq!(
        desk.exchanged(ClaimResponse::default()),
        ["goodbye: it was told to stop (stopped)"]
    );
}

#[test]
fn results_are_kept_on_disk_while_the_server_is_away() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2, 3]);
    desk.ended(1, 1.0, None);
    desk.ended(2, 1.0, None);
    assert_eq!(
        desk.on(Event::ServerLost("refused".into(), None)),
        ["tell ServerLost", "spool [1, 2]"]
    );
    assert_eq!(desk.on(Event::ServerLost("refused".into(), None)), [""; 0]);
    assert_eq!(desk.ended(3, 1.0, None), ["spool [3]"]);
    assert_eq!(
        desk.exchanged(ClaimResponse::default()),
        ["tell ServerBack", "exchange limit 256 prefetch 0 started [] completed [2, 3]"]
    );
    // Only when the last of them is delivered.
    assert_eq!(desk.exchanged(ClaimResponse::default()), ["clear spool"]);
}

#[test]
fn a_runner_that_is_cut_off_ends_its_jobs_and_leaves_its_results_on_disk() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    assert_eq!(
        desk.on(Event::OutOfContact),
        ["tell ServerLost", "tell Leaving", "stop all OutOfContact"]
    );
    let lines = desk.ended(1, 1.0, Some(Cause::Stopped));
    assert_eq!(
        lines,
        ["spool [1]", "exchange limit 0 prefetch 0 started [] completed [1:stopped]", "exit"]
    );
    assert_eq!(
        (desk.dispatcher.reason(), desk.dispatcher.undelivered()),
        (LeaveReason::OutOfContact, 1)
    );
}

#[test]
fn a_stop_while_the_server_is_away_does_not_wait_for_ever() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    desk.on(Event::ServerLost("refused".into(), None));
    desk.on(Event::Shutdown(Shutdown::Stop));
    desk.ended(1, 1.0, Some(Cause::Stopped));
    assert_eq!(desk.later(14.0), [""; 0]);
    assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + Duration::from_secs(1)));
    assert_eq!(desk.later(1.0), ["exit"]);
}

#[test]
fn a_refusal_ends_everything_and_keeps_the_results() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2]);
    desk.ended(1, 1.0, None);
    let lines = desk.on(Event::Refused("unknown workflow".into()));
    assert_eq!(lines, ["tell Leaving", "stop all Stopped", "spool [1]"]);
    assert_eq!(desk.ended(2, 1.0, Some(Cause::Stopped)), ["spool [2]", "exit"]);
    assert_eq!(desk.dispatcher.reason(), LeaveReason::Refused("unknown workflow".into()));
}

#[test]
fn actions_that_prepare_come_before_jobs() {
    let mut desk = Desk::listening();
    let actions = vec![action(5, Trigger::OnWorkerStart), action(6, Trigger::OnJobsReady)];
    let lines = desk.on(Event::Heard(ClaimResponse { actions, ..granted(&[1]) }));
    assert_eq!(
        lines,
        ["tell ActionStarted", "action 5", "tell ActionStarted", "action 6", "listen limit 256"]
    );
    // However long it takes, the jobs that wait for it are not given back.
    assert_eq!(desk.later(100.0), [""; 0]);
    assert_eq!(desk.on(action_ended(5)), ["tell ActionEnded", "report action 5 0", "start 1 []"]);
    desk.ended(1, 1.0, None);
    // A runner does not leave before its actions are done and told.
    assert_eq!(desk.exchanged(complete()), [""; 0]);
    desk.on(Event::ActionReported(ActionId(5)));
    desk.on(action_ended(6));
    assert_eq!(desk.on(Event::ActionReported(ActionId(6)))[1], "goodbye: the workflow is complete");
}

#[test]
fn an_action_that_is_given_twice_is_executed_once() {
    let mut desk = Desk::listening();
    let given = || {
        Event::Heard(ClaimResponse {
            actions: vec![action(5, Trigger::OnJobsReady)],
            ..granted(&[])
        })
    };
    assert_eq!(desk.on(given())[..2], ["tell ActionStarted", "action 5"]);
    assert!(!desk.on(given()).contains(&"action 5".to_owned()), "it is being executed");
    desk.on(action_ended(5));
    assert!(!desk.on(given()).contains(&"action 5".to_owned()), "it is being reported");
    desk.on(Event::ActionReported(ActionId(5)));
    assert!(!desk.on(given()).contains(&"action 5".to_owned()), "an answer from before the report");
    desk.later(30.0);
    assert!(desk.on(given()).contains(&"action 5".to_owned()), "a new run");
}

#[test]
fn the_last_actions_come_with_the_goodbye() {
    let mut desk = Desk::listening();
    desk.on(Event::Heard(complete()));
    let lines = desk.on(Event::GoodbyeAnswered(vec![action(9, Trigger::OnWorkerComplete)]));
    assert_eq!(lines, ["tell ActionStarted", "action 9"]);
    assert_eq!(desk.on(action_ended(9)), ["tell ActionEnded", "report action 9 0"]);
    assert_eq!(desk.on(Event::ActionReported(ActionId(9))), ["exit"]);
}

#[test]
fn an_action_that_comes_too_late_is_reported_as_not_done() {
    let mut desk = Desk::listening();
    desk.heard(&[1]);
    desk.on(Event::Shutdown(Shutdown::Stop));
    let actions = vec![action(5, Trigger::OnJobsReady)];
    let lines = desk.on(Event::Heard(ClaimResponse { actions, ..ClaimResponse::default() }));
    assert_eq!(lines, ["tell ActionStarted", "tell ActionEnded", "report action 5 143"]);
}

#[test]
fn runners_leave_when_they_are_of_no_more_use() {
    let stuck = || ClaimResponse { idle: true, ..ClaimResponse::default() };
    let mut local = Desk::listening();
    assert_eq!(local.hear(stuck())[2], "goodbye: none of the remaining jobs can start here");

    let mut remote = Desk::new(|s| {
        s.leave_when_stuck = false;
        s.idle_limit = Some(Duration::from_secs(90));
    });
    remote.settle();
    assert_eq!(remote.hear(stuck()), ["listen limit 256"]);
    assert_eq!(remote.dispatcher.next_alarm(), Some(remote.now - HASTY + Duration::from_secs(90)));
    remote.later(80.0);
    remote.heard(&[1]);
    assert_eq!(remote.later(80.0), [""; 0]);
    remote.ended(1, 1.0, None);
    remote.exchanged(ClaimResponse::default());
    assert_eq!(remote.later(89.0), [""; 0]);
    assert_eq!(remote.later(1.0)[1], "goodbye: there was no work for too long");

    let mut faithful = Desk::new(|s| {
        s.ignore_completion = true;
        s.leave_when_stuck = false;
    });
    faithful.settle();
    assert_eq!(faithful.hear(complete()), ["listen limit 256"]);
}

#[test]
fn a_runner_whose_time_is_over_ends_its_jobs() {
    let mut desk = Desk::new(|s| s.time_limit.end = Some(Instant::now() + Duration::from_secs(60)));
    desk.settle();
    desk.heard(&[1]);
    desk.later(20.0);
    assert_eq!(
        desk.ended(1, 1.0, None),
        ["exchange limit 256 prefetch 0 started [] completed [1]"]
    );
    assert!(matches!(desk.last_exchange.as_ref().unwrap().time_left_seconds, Some(39..=40)));
    assert_eq!(desk.later(41.0), ["tell Leaving", "stop all RunnerTimeUp"]);
}

#[test]
fn results_wait_for_company_only_while_there_is_more_to_start() {
    let mut desk = Desk::listening();
    desk.heard(&[1, 2, 3, 4]);
    assert_eq!(desk.ended(1, 0.001, None), ["start 3 []"]);
    assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + END_DELAY));
    desk.now += Duration::from_millis(1);
    // The queue is empty now: what was held back is urgent.
    assert_eq!(
        desk.ended(2, 0.001, None),
        ["start 4 []", "exchange limit 256 prefetch 64 started [] completed [1, 2]"]
    );
    desk.exchanged(granted(&[5, 6]));
    desk.ended(3, 0.001, None);
    assert_eq!(
        desk.later(END_DELAY.as_secs_f64()),
        ["exchange limit 256 prefetch 64 started [] completed [3]"]
    );
}

#[test]
fn a_flood_of_reports_goes_out_in_pieces() {
    let mut desk = Desk::new(|s| s.capacity.max_parallel_jobs = Some(1000));
    desk.settle();
    desk.heard(&(1..=600).collect::<Vec<_>>());
    desk.started(1);
    desk.later(0.02);
    for id in 1..=600 {
        desk.ended(id, 1.0, None);
    }
    let sizes: Vec<usize> = (0..4)
        .map(|_| {
            desk.exchanged(ClaimResponse::default());
            desk.last_exchange.as_ref().unwrap().completed.len()
        })
        .collect();
    assert_eq!(sizes, [256, 256, 88, 88]);
    let keys: HashSet<String> = (0..3).map(|_| desk.dispatcher.claim(1, desk.now).key).collect();
    assert_eq!(keys.len(), 3);
}

#[test]
fn reports_with_much_output_go_out_in_smaller_pieces() {
    let mut desk = Desk::listening();
    let report = |tail: usize| CompletionReport {
        stderr_tail: Some("x".repeat(tail)),
        ..unstarted_report(packet(1), Cause::Exit, "", 0)
    };
    assert_eq!(desk.dispatcher.count_reports(), 0);
    desk.dispatcher.outbox.completed.extend((0..200).map(|_| report(8192)));
    assert_eq!(desk.dispatcher.count_reports(), REPORT_BYTES / (1000 + 6 * 8192));
    desk.dispatcher.outbox.completed.push_front(report(REPORT_BYTES));
    assert_eq!(desk.dispatcher.count_reports(), 1);
}

#[test]
fn a_server_that_does_not_wait_is_asked_less_and_less_often() {
    let mut desk = Desk::listening();
    let nothing = || Event::Heard(ClaimResponse::default());
    for pause in [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0] {
        assert_eq!(desk.on(nothing()), [""; 0]);
        assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + Duration::from_secs_f64(pause)));
        assert_eq!(desk.later(pause), ["listen limit 256"]);
    }
    desk.now += Duration::from_secs(30);
    assert_eq!(desk.on(nothing()), ["listen limit 256"]);
    assert_eq!(desk.on(Event::Heard(granted(&[1]))), ["start 1 []", "listen limit 256"]);
}

#[test]
fn a_failure_at_the_moment_of_the_stop_is_not_the_jobs_own() {
    let mut desk = Desk::new(|s| s.doubt = Some(Duration::from_secs(2)));
    desk.settle();
    desk.heard(&[1, 2, 3]);
    desk.on(Event::StopReason(LastWord {
        text: "the allocation was preempted",
        cause: Some(Cause::Preempted),
    }));
    // Its share is free at once; its end waits for a word.
    assert_eq!(desk.ended(1, 1.0, Some(Cause::Signal)), ["start 3 []"]);
    assert_eq!(desk.dispatcher.undelivered(), 1);
    assert_eq!(
        desk.on(Event::Shutdown(Shutdown::Stop)),
        [
            "tell Leaving",
            "stop all Stopped",
            "exchange limit 0 prefetch 0 started [] completed [1:preempted]"
        ]
    );
    // This one died of the same signal before ours reached it.
    assert_eq!(desk.ended(2, 1.0, Some(Cause::Exit)), [""; 0]);
    desk.ended(3, 1.0, None);
    assert_eq!(
        desk.exchanged(ClaimResponse::default()),
        ["exchange limit 0 prefetch 0 started [] completed [2:preempted, 3]"]
    );
    let evidence = &desk.last_exchange.as_ref().expect("sent").completed[0].evidence;
    assert!(
        evidence
            .iter()
            .any(|e| e.source == EvidenceSource::Scheduler && e.text.contains("preempted")),
        "{evidence:?}"
    );
    let last = desk.exchanged(ClaimResponse::default());
    assert_eq!(last, ["goodbye: it was told to stop: the allocation was preempted (preempted)"]);
    assert_eq!(desk.dispatcher.counts, EndCounts { succeeded: 1, failed: 0, ended: 2 });
}

#[test]
fn what_slurm_does_not_explain_stays_a_stop() {
    for word in [None, Some(LastWord { text: "the allocation was canceled", cause: None })] {
        let mut desk = Desk::new(|s| s.doubt = Some(Duration::from_secs(2)));
        desk.settle();
        desk.heard(&[1]);
        word.map(|word| desk.on(Event::StopReason(word)));
        desk.on(Event::Shutdown(Shutdown::Stop));
        let told = desk.ended(1, 1.0, Some(Cause::Exit));
        assert!(told[0].ends_with("completed [1:stopped]"), "{told:?}");
        let last = desk.exchanged(ClaimResponse::default());
        let why = word.map(|word| format!(": {}", word.text)).unwrap_or_default();
        assert_eq!(last, [format!("goodbye: it was told to stop{why} (stopped)")]);
    }
}

#[test]
fn a_failure_without_a_stop_is_told_after_a_moment() {
    let mut desk = Desk::new(|s| s.doubt = Some(Duration::from_secs(2)));
    desk.settle();
    desk.heard(&[1]);
    assert_eq!(desk.ended(1, 1.0, Some(Cause::Exit)), [""; 0]);
    assert_eq!(desk.dispatcher.next_alarm(), Some(desk.now + Duration::from_secs(2)));
    assert_eq!(desk.later(1.9), [""; 0]);
    let told = desk.later(0.1);
    assert!(told[0].ends_with("completed [1:exit]"), "{told:?}");
    // Told by its own limits, nothing is in doubt.
    desk.exchanged(granted(&[2]));
    let told = desk.ended(2, 1.0, Some(Cause::Timeout));
    assert!(told[0].ends_with("completed [2:timeout]"), "{told:?}");
}
