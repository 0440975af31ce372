//! The table of runners: who takes work, who is judged, and which actions an answer brings.

use super::*;
use torc_model::api::{AttemptRef, Capacity, Heartbeat};
use torc_model::ids::ActionId;
use torc_model::status::{ActionState, Cause, RunnerOrder, Trigger};

const FLOW: WorkflowId = WorkflowId(1);

fn runner(host: &str, cpus: i64) -> KnownRunner {
    KnownRunner::new(FLOW, host.into(), 7, node(cpus))
}

/// Runners 1, 2, ... with these CPUs, each on its own host, all heard at `uptime`.
fn runners(cpus: &[i64], uptime: i64) -> Runners {
    let mut runners = Runners::default();
    for (at, cpus) in cpus.iter().enumerate() {
        let known = runner(&format!("host{at}"), *cpus);
        runners.insert(RunnerId(at as i64 + 1), KnownRunner { heard: Some(uptime), ..known });
    }
    runners
}

fn ids(list: &[i64]) -> Vec<ActionId> {
    list.iter().copied().map(ActionId).collect()
}

/// A workflow with a job and these actions, whose run has begun.
fn with_actions(actions: &[(i64, Trigger, bool)]) -> Workflow {
    let mut c = Chronicle::plain(vec![job(&[])]);
    for (id, trigger, persistent) in actions {
        c.flow.add_action(NewAction {
            id: ActionId(*id),
            trigger: *trigger,
            jobs: Vec::new(),
            persistent: *persistent,
            is_recovery: false,
            schedules_nodes: false,
            state: ActionState::Waiting,
            by: None,
        });
    }
    c.flow.settle();
    c.flow.initialize(0);
    c.flow
}

/// What the answer to a claim brings runner 1.
fn answer(known: &mut KnownRunner, flow: &mut Workflow, key: &str, uptime: i64) -> Vec<ActionId> {
    let mut given = known.begin_actions(RunnerId(1), flow, key, uptime);
    flow.give_actions(RunnerId(1), &mut given);
    known.gave_actions(key, &given.ids, uptime);
    given.ids
}

#[test]
fn a_runner_is_greeted_once_and_gets_a_triggered_action_once() {
    let mut flow = with_actions(&[
        (1, Trigger::OnWorkflowStart, false),
        (2, Trigger::OnWorkerStart, true),
        (3, Trigger::OnWorkerComplete, true),
    ]);
    let mut known = runner("a", 1);
    assert_eq!(answer(&mut known, &mut flow, "k1", 0), ids(&[1, 2]));
    assert_eq!(answer(&mut known, &mut flow, "k2", 1), []);
    assert_eq!(flow.last_actions(RunnerId(1)), ids(&[3]));
    // A second runner is greeted too, but what the first one executes stays with the first one.
    let mut given = runner("b", 1).begin_actions(RunnerId(2), &flow, "k1", 1);
    flow.give_actions(RunnerId(2), &mut given);
    assert_eq!(given.ids, ids(&[2]));
}

#[test]
fn a_greeted_runner_still_gets_actions_that_are_triggered_later() {
    let mut flow = with_actions(&[(1, Trigger::OnWorkflowComplete, false)]);
    let mut known = runner("a", 1);
    assert_eq!(answer(&mut known, &mut flow, "k1", 0), []);
    flow.cancel(1);
    assert_eq!(answer(&mut known, &mut flow, "k2", 1), ids(&[1]));
}

#[test]
fn a_repeated_claim_gets_the_actions_of_the_first_answer_again() {
    let mut flow =
        with_actions(&[(1, Trigger::OnWorkflowStart, false), (2, Trigger::OnWorkerStart, true)]);
    let mut known = runner("a", 1);
    assert_eq!(answer(&mut known, &mut flow, "k1", 0), ids(&[1, 2]));
    assert_eq!(answer(&mut known, &mut flow, "k1", 10), ids(&[1, 2]));
    flow.action_done(ActionId(1), RunnerId(1), None);
    assert_eq!(answer(&mut known, &mut flow, "k1", 20), ids(&[2]), "the other one is done");
    assert_eq!(answer(&mut known, &mut flow, "k2", 30), [], "this claim is not a repeat");
}

#[test]
fn an_action_that_is_not_reported_within_30_seconds_is_given_again() {
    let mut flow =
        with_actions(&[(1, Trigger::OnWorkflowStart, false), (2, Trigger::OnWorkflowStart, false)]);
    let mut known = runner("a", 1);
    let start = 1_000_000;
    assert_eq!(answer(&mut known, &mut flow, "k1", start), ids(&[1, 2]));
    flow.action_done(ActionId(1), RunnerId(1), None);
    assert_eq!(answer(&mut known, &mut flow, "k2", start + 29_999), []);
    assert_eq!(answer(&mut known, &mut flow, "k3", start + 30_000), ids(&[2]));
    // That counts as given anew.
    assert_eq!(answer(&mut known, &mut flow, "k4", start + 59_999), []);
}

#[test]
fn after_a_restart_of_the_server_the_first_claim_gets_its_open_actions_but_no_greeting() {
    let mut flow =
        with_actions(&[(1, Trigger::OnWorkflowStart, false), (2, Trigger::OnWorkerStart, true)]);
    let mut known = runner("a", 1);
    assert_eq!(answer(&mut known, &mut flow, "k1", 0), ids(&[1, 2]));
    let mut known = runner("a", 1).restored(None, None);
    assert_eq!(answer(&mut known, &mut flow, "k2", 1), ids(&[1]));
    assert_eq!(answer(&mut known, &mut flow, "k3", 2), []);
}

#[test]
fn of_the_actions_that_answers_brought_the_last_64_are_remembered() {
    let mut flow = with_actions(&[(1, Trigger::OnWorkerStart, true)]);
    let mut known = runner("a", 1);
    assert_eq!(answer(&mut known, &mut flow, "first", 0), ids(&[1]));
    let others: Vec<ActionId> = (2..65).map(ActionId).collect();
    known.gave_actions("others", &others, 1);
    assert_eq!(known.begin_actions(RunnerId(1), &flow, "first", 2).ids, ids(&[1]));
    known.gave_actions("one more", &ids(&[65]), 1);
    assert_eq!(known.begin_actions(RunnerId(1), &flow, "first", 2).ids, []);
}

#[test]
fn a_workflow_is_listed_while_it_has_a_runner() {
    let mut runners = runners(&[1, 1], 0);
    assert!(runners.contains_key(&RunnerId(2)) && !runners.contains_key(&RunnerId(3)));
    runners.remove(RunnerId(1));
    assert_eq!(runners.workflows().into_iter().collect::<Vec<_>>(), [FLOW]);
    assert!(runners.of(FLOW).map(|(id, _)| id).eq([RunnerId(2)]));
    runners.remove(RunnerId(2));
    assert!(runners.workflows().is_empty());
}

#[test]
fn no_runner_takes_what_fits_neither_the_one_that_asks_nor_another_that_takes_work() {
    let mut c = Chronicle::plain(vec![but(job(&[]), |job| job.class.cpus = 4)]);
    c.flow.initialize(0);
    let asks = RunnerId(1);
    let is_stuck = |runners: &Runners, cpus| runners.no_runner_takes(&c.flow, asks, &node(cpus));
    let mut runners = runners(&[1, 8], 0);
    assert!(!is_stuck(&runners, 1), "the second one takes it");
    assert!(!is_stuck(&runners, 4), "the one that asks takes it");
    for change in [
        (|known: &mut KnownRunner| known.leaving = true) as fn(&mut KnownRunner),
        |known| known.ordered = Some(RunnerOrder::Drain),
        |known| known.capacity.num_cpus = 3,
    ] {
        let mut runners = runners.clone();
        change(runners.get_mut(&RunnerId(2)).expect("it is there"));
        assert!(is_stuck(&runners, 1));
        assert!(!is_stuck(&runners, 4));
    }
    // Its own earlier capacity does not count, only the one with which it asks now.
    runners.get_mut(&asks).expect("it is there").capacity.num_cpus = 8;
    runners.remove(RunnerId(2));
    assert!(is_stuck(&runners, 1));
}

#[test]
fn a_runner_with_a_label_is_stuck_only_when_no_job_ever_fits_it() {
    let jobs = vec![job(&[]), but(job(&[0]), |job| job.class.cpus = 4)];
    let mut c = Chronicle::plain(jobs);
    c.flow.initialize(0);
    let mut runners = runners(&[1], 0);
    runners.get_mut(&RunnerId(1)).expect("it is there").label = Some("large".into());
    let tiny = Capacity { num_cpus: 0, ..node(0) };
    assert!(!runners.no_runner_takes(&c.flow, RunnerId(1), &node(4)));
    assert!(runners.no_runner_takes(&c.flow, RunnerId(1), &tiny));
}

#[test]
fn a_retry_may_avoid_the_whole_host_when_a_live_runner_is_on_another_one() {
    let now = 1_000_000;
    let mut runners = runners(&[1, 1], now - LEASE_MS);
    runners.insert(RunnerId(3), runner("host0", 1));
    assert_eq!(runners.neighbours(FLOW, "host0", now), [RunnerId(1), RunnerId(3)]);
    assert_eq!(runners.neighbours(FLOW, "host0", now + 1), [], "its lease is over");
    let kept = Quarantine { why: "bad".into(), until: now };
    runners.step(RunnerId(2), RunnerEvent::Quarantined(kept, 0, 0));
    assert_eq!(runners.neighbours(FLOW, "host0", now), [], "it gets no work");
}

#[test]
fn a_machine_on_which_jobs_fail_at_once_is_judged_by_successes_on_other_live_machines() {
    let clocks = Clocks { now: 5_000, uptime: 1_000_000 };
    let judge = |heard: i64, other: &str| {
        let mut runners = runners(&[1], clocks.uptime);
        let known = KnownRunner { heard: Some(heard), ..runner(other, 1) };
        runners.insert(RunnerId(2), known);
        let mut tell = |runner: i64, id: i64, cause| {
            runners.judge(RunnerId(runner), (JobId(id), AttemptId(id)), (cause, 0.1), clocks)
        };
        for id in 11..=13 {
            assert_eq!(tell(2, id, None), None, "a success is not judged");
        }
        assert_eq!(tell(1, 1, Some(Cause::Exit)), None);
        assert_eq!(tell(1, 2, Some(Cause::Exit)), None);
        tell(1, 3, Some(Cause::Exit))
    };
    let burnt = judge(clocks.uptime, "other").expect("three failures here, three successes there");
    assert_eq!((burnt.attempts.len(), burnt.quarantine.until), (3, 5_000 + QUARANTINE_MS));
    assert_eq!(judge(clocks.uptime - LEASE_MS - 1, "other"), None, "the other one is silent");
    assert_eq!(judge(clocks.uptime, "host0"), None, "that is the same machine");
}

#[test]
fn a_success_on_a_bad_machine_does_not_lead_to_a_quarantine() {
    let mut runners = runners(&[1, 1], 0);
    let clocks = Clocks { now: 0, uptime: 0 };
    let mut tell = |runner: i64, id: i64, cause| {
        runners.judge(RunnerId(runner), (JobId(id), AttemptId(id)), (cause, 0.1), clocks)
    };
    // The failures here come before it is known that the jobs succeed elsewhere.
    (1..=3).for_each(|id| assert_eq!(tell(1, id, Some(Cause::Exit)), None));
    (11..=13).for_each(|id| assert_eq!(tell(2, id, None), None));
    assert_eq!(tell(1, 4, None), None);
}

#[test]
fn a_claimed_attempt_that_a_heartbeat_does_not_list_is_forgotten_after_30_seconds() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[])]);
    c.flow.initialize(0);
    c.now = 100_000;
    assert_eq!(c.take(1, 2), [0, 1]);
    let held = |c: &Chronicle, at: usize| {
        let held = c.flow.job(ix(at)).held().expect("it was claimed");
        AttemptRef { id: held.attempt, token: held.token.clone() }
    };
    let (first, second) = (held(&c, 0), held(&c, 1));
    let beat = |list: &[&AttemptRef]| Heartbeat {
        runner_id: RunnerId(1),
        held: list.iter().map(|held| (*held).clone()).collect(),
        gone: Vec::new(),
        step_events: Vec::new(),
    };
    let mut tell = |beat: &Heartbeat, now| c.flow.heartbeat(beat, &mut c.limits, now);
    assert_eq!(tell(&beat(&[&first]), 129_999).forgotten, []);
    let answer = tell(&beat(&[&first]), 130_000);
    assert_eq!((answer.forgotten, answer.not_yours), (vec![second.id], Vec::new()));
    let stranger = AttemptRef { token: "another".into(), ..first };
    assert_eq!(tell(&beat(&[&stranger, &second]), 130_000).not_yours, [stranger.id]);
}
