use super::*;
use crate::cli::recap::Failure;
use serde_json::{Value, json};
use torc_model::ids::JobId;

/// A watch at a desk: no server, no clock.
struct Desk {
    watcher: Watcher,
    now: Instant,
}

fn rules() -> Rules {
    Rules {
        workflow: WorkflowId(1),
        title: "workflow 1 `w`".into(),
        recover: false,
        ask_agents: false,
        max_rounds: 3,
        show_counts: false,
        is_verbose: false,
        is_for_slurm: false,
    }
}

fn status(counts: &[(JobStatus, i64)]) -> StatusView {
    let is_complete = counts.iter().all(|(status, _)| status.is_final());
    StatusView {
        workflow_id: WorkflowId(1),
        name: "w".into(),
        run_id: 1,
        counts: counts.iter().map(|(s, n)| (s.as_str().to_owned(), *n)).collect(),
        total: counts.iter().map(|(_, n)| n).sum(),
        is_complete,
        is_canceled: false,
        is_archived: false,
        active_runners: 0,
        lost_contact_runners: 0,
        started_ms: None,
        last_end_ms: None,
        recovered_steps: 0,
        ignored_steps: 0,
    }
}

fn event(id: i64, kind: EventKind, job: Option<i64>, data: Value) -> Box<EventView> {
    Box::new(EventView {
        id,
        workflow_id: WorkflowId(1),
        timestamp_ms: 0,
        kind,
        job_id: job.map(JobId),
        job_name: None,
        data,
    })
}

impl Desk {
    fn new(rules: Rules) -> Self {
        let now = Instant::now();
        Self { watcher: Watcher::new(rules, 10, now), now }
    }

    fn hear(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.watcher.handle(event, self.now, &mut out);
        out
    }

    fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        self.hear(Event::Answered(answer))
    }

    /// A look that finds these counts; what follows the display of them.
    fn look(&mut self, status: StatusView) -> Vec<Effect> {
        assert_eq!(self.hear(Event::LookDue), [Effect::Ask(Question::Status)]);
        let mut effects = self.answer(Answer::Status(Box::new(status.clone())));
        assert_eq!(effects.remove(0), Effect::Show(Box::new(status)));
        effects
    }

    /// A look at a workflow in which nothing moves, after all events were told.
    fn look_at_rest(&mut self, status: StatusView) -> Vec<Effect> {
        let last = self.watcher.last_event;
        assert_eq!(self.look(status), [Effect::Ask(Question::Events(last))]);
        self.answer(Answer::CaughtUp)
    }
}

fn tell(line: &str) -> Effect {
    Effect::Tell(line.into())
}

#[test]
fn a_complete_workflow_ends_the_watch_after_its_last_events_were_told() {
    let mut desk = Desk::new(rules());
    assert_eq!(
        desk.look(status(&[(JobStatus::Completed, 2)])),
        [Effect::Ask(Question::Events(10))]
    );
    assert_eq!(desk.answer(Answer::CaughtUp), [Effect::End(false)]);
}

#[test]
fn an_event_is_told_once_whichever_way_it_comes() {
    let mut desk = Desk::new(rules());
    let data = json!({ "cause": "exit", "return_code": 3 });
    let failed = event(11, EventKind::JobFailed, Some(7), data);
    assert_eq!(desk.watcher.detail(&failed), Detail::Failure);
    let failure = Failure { text: "a".into(), last_line: Some("no such file".into()) };
    let about = Described::Failure { name: "a".into(), seconds: 1.0, failure };
    assert_eq!(
        desk.hear(Event::Happened(failed.clone(), about.clone())),
        [Effect::TellFailure("failed: a (job 7), exit, code 3\n  | no such file".into())]
    );
    assert_eq!(desk.watcher.detail(&failed), Detail::None);
    assert_eq!(desk.hear(Event::Happened(failed, about)), []);
}

#[test]
fn failures_are_recovered_once_until_something_happens() {
    let mut desk = Desk::new(Rules { recover: true, ..rules() });
    let failed = status(&[(JobStatus::Failed, 1), (JobStatus::Completed, 1)]);
    let recover = Effect::Ask(Question::Recover(Vec::new()));
    assert_eq!(desk.look_at_rest(failed.clone()), [recover]);
    let done = Recovered::Done { rounds: 1, again: 1, left: 0 };
    assert_eq!(
        desk.answer(Answer::Recovered(done)),
        [tell("recovery round 1 of 3: 1 job queued again, 0 left as they are")]
    );
    assert_eq!(desk.watcher.stale_at, Some(desk.now));
    // Nothing has happened since: it is not tried again, and the watch ends as the jobs did.
    assert_eq!(desk.look_at_rest(failed.clone()), [Effect::End(false)]);
    let again = event(12, EventKind::JobFailed, Some(7), json!({}));
    desk.hear(Event::Happened(again, Described::Nothing));
    assert_eq!(desk.look_at_rest(failed), [Effect::Ask(Question::Recover(Vec::new()))]);
}

#[test]
fn what_cannot_be_recovered_ends_the_watch() {
    let mut desk = Desk::new(Rules { recover: true, ..rules() });
    desk.look_at_rest(status(&[(JobStatus::Failed, 2)]));
    let done = Recovered::Done { rounds: 1, again: 0, left: 2 };
    assert_eq!(
        desk.answer(Answer::Recovered(done)),
        [tell("2 failures cannot be recovered"), Effect::End(false)]
    );
}

#[test]
fn a_canceled_workflow_is_not_recovered() {
    let mut desk = Desk::new(Rules { recover: true, ..rules() });
    let canceled = StatusView { is_canceled: true, ..status(&[(JobStatus::Failed, 1)]) };
    assert_eq!(desk.look_at_rest(canceled), [Effect::End(false)]);
}

#[test]
fn recovery_on_slurm_waits_until_the_nodes_are_known() {
    let mut desk = Desk::new(Rules { recover: true, is_for_slurm: true, ..rules() });
    let failed = status(&[(JobStatus::Failed, 1)]);
    assert_eq!(desk.look_at_rest(failed.clone()), [Effect::Ask(Question::Shapes)]);
    assert_eq!(
        desk.answer(Answer::Shapes(Err("down".into()))),
        [tell("recovery waits until Slurm tells what nodes it has: down")]
    );
    assert_eq!(desk.watcher.stale_at, Some(desk.now + LOOK_AT_SLURM));
    desk.look_at_rest(failed);
    assert_eq!(
        desk.answer(Answer::Shapes(Ok(Vec::new()))),
        [Effect::Ask(Question::Recover(Vec::new()))]
    );
}

#[test]
fn a_runner_is_started_here_only_for_local_workflows_and_while_it_helps() {
    let mut desk = Desk::new(Rules { recover: true, ..rules() });
    let ready = status(&[(JobStatus::Ready, 1)]);
    assert_eq!(desk.look(ready.clone()), [Effect::Ask(Question::IsLocal)]);
    assert_eq!(
        desk.answer(Answer::IsLocal(true)),
        [tell("no runner is active: starting one here"), Effect::StartRunner]
    );
    // It runs: nothing is to be done.
    assert_eq!(desk.look(ready.clone()), []);
    assert_eq!(
        desk.hear(Event::RunnerLeft(Ok((LeaveReason::NothingToDo, false)))),
        [tell(&format!("the local runner left: {}", LeaveReason::NothingToDo))]
    );
    // It could do nothing: another one would not help.
    let stuck = tell("no runner is active for workflow 1 `w`; resume with `torc run 1`");
    assert_eq!(desk.look(ready.clone()), [stuck]);
    assert_eq!(desk.look(ready), [], "said once");
}

#[test]
fn without_recovery_the_watch_only_says_that_no_runner_is_there() {
    let mut desk = Desk::new(rules());
    let ready = status(&[(JobStatus::Ready, 1)]);
    let stuck = tell("no runner is active for workflow 1 `w`; resume with `torc run 1`");
    assert_eq!(desk.look(ready.clone()), [stuck]);
    let busy = StatusView { active_runners: 1, ..ready };
    assert_eq!(desk.look(busy), []);
}

#[test]
fn on_slurm_the_allocations_that_are_on_the_way_are_told() {
    let mut desk = Desk::new(Rules { is_for_slurm: true, ..rules() });
    let ready = status(&[(JobStatus::Ready, 1)]);
    assert_eq!(desk.look(ready.clone()), [Effect::Ask(Question::OpenAllocations)]);
    assert_eq!(
        desk.answer(Answer::OpenAllocations(2)),
        [tell("no runner is active for workflow 1 `w`; 2 allocations on the way")]
    );
    desk.look(ready);
    assert_eq!(
        desk.answer(Answer::OpenAllocations(0)),
        [tell(
            "no runner is active for workflow 1 `w`; `torc slurm regenerate 1 --submit` asks for nodes, \
             `--auto-schedule` does it here"
        )]
    );
}

#[test]
fn agents_are_asked_when_something_new_waits_and_not_more_often_than_allowed() {
    let rules = Rules { recover: true, ask_agents: true, max_rounds: 2, ..rules() };
    let mut desk = Desk::new(rules);
    let waiting = status(&[(JobStatus::PendingFailed, 1)]);
    let nothing = || Answer::Recovered(Recovered::Done { rounds: 0, again: 0, left: 1 });
    for round in 1..=2 {
        let id = 10 + round;
        let new = event(id, EventKind::JobPendingFailed, Some(7), json!({}));
        desk.hear(Event::Happened(new, Described::Nothing));
        desk.look_at_rest(waiting.clone());
        assert_eq!(
            desk.answer(nothing())[1..],
            [tell(&format!("asking for verdicts, round {round} of 2 at most")), Effect::Judge]
        );
        // While they judge nothing else is done.
        assert_eq!(desk.look_at_rest(waiting.clone()), []);
        assert_eq!(
            desk.hear(Event::Judged(Err("no agent".into()))),
            [tell("no verdicts: no agent")]
        );
        // Nothing new waits.
        assert_eq!(desk.look_at_rest(waiting.clone()), [Effect::Ask(Question::Waiting)]);
        desk.answer(Answer::Waiting(vec!["a (job 7)".into()], false));
    }
    let new = event(13, EventKind::JobPendingFailed, Some(7), json!({}));
    desk.hear(Event::Happened(new, Described::Nothing));
    desk.look_at_rest(waiting);
    assert_eq!(desk.answer(nothing())[1..], [Effect::Ask(Question::Waiting)]);
}

#[test]
fn jobs_that_have_not_begun_are_begun_once_where_they_are_to_run_here() {
    let mut desk = Desk::new(Rules { recover: true, ..rules() });
    let new = status(&[(JobStatus::Uninitialized, 1)]);
    assert_eq!(desk.look_at_rest(new.clone()), [Effect::Ask(Question::IsLocal)]);
    assert_eq!(desk.answer(Answer::IsLocal(true)), [Effect::Begin]);
    assert_eq!(
        desk.look_at_rest(new.clone()),
        [],
        "what still has not begun waits for something else"
    );
    let reset = event(11, EventKind::WorkflowReset, None, json!({}));
    desk.hear(Event::Happened(reset, Described::Nothing));
    desk.look_at_rest(new.clone());
    assert_eq!(
        desk.answer(Answer::IsLocal(false)),
        [tell(
            "jobs of workflow 1 `w` were reset and have not been started again; `torc run 1` starts them"
        )]
    );
    let mut desk = Desk::new(rules());
    assert_eq!(
        desk.look_at_rest(StatusView { run_id: 0, ..new }),
        [tell("workflow 1 `w` has not been started; `torc run 1` starts it")]
    );
}

#[test]
fn a_runners_end_is_told_unless_the_workflow_is_complete() {
    let end = || event(11, EventKind::RunnerEnded, None, json!({ "reason": "stopped" }));
    let mut desk = Desk::new(rules());
    assert_eq!(desk.hear(Event::Happened(end(), Described::Nothing)), []);
    let running = StatusView { active_runners: 1, ..status(&[(JobStatus::Running, 1)]) };
    assert_eq!(desk.look(running), [tell("runner ended: stopped")]);
    let mut desk = Desk::new(rules());
    desk.hear(Event::Happened(end(), Described::Nothing));
    assert_eq!(desk.look_at_rest(status(&[(JobStatus::Completed, 1)])), [Effect::End(false)]);
}

#[test]
fn ctrl_c_ends_the_watch_or_first_the_runner_of_our_own() {
    let mut desk = Desk::new(rules());
    assert_eq!(desk.hear(Event::Interrupted), [Effect::End(true)]);
    let mut desk = Desk::new(Rules { recover: true, ..rules() });
    desk.look(status(&[(JobStatus::Ready, 1)]));
    desk.answer(Answer::IsLocal(true));
    let stopping = tell("stopping: running jobs go back into the queue");
    assert_eq!(desk.hear(Event::Interrupted), [stopping, Effect::StopRunner(Shutdown::Stop)]);
    let killing = tell("killing running jobs");
    assert_eq!(desk.hear(Event::Interrupted), [killing, Effect::StopRunner(Shutdown::Kill)]);
    desk.hear(Event::RunnerLeft(Ok((LeaveReason::Stopped, true))));
    assert_eq!(desk.hear(Event::LookDue), [Effect::End(true)]);
}

#[test]
fn slurm_is_looked_at_once_at_a_time_and_soon_after_an_allocation_ended() {
    let mut desk = Desk::new(Rules { is_for_slurm: true, ..rules() });
    assert_eq!(desk.hear(Event::SlurmDue), [Effect::LookAtSlurm]);
    assert_eq!(desk.hear(Event::SlurmDue), []);
    assert_eq!(desk.hear(Event::LookedAtSlurm(vec!["two nodes".into()])), [tell("two nodes")]);
    assert_eq!(desk.watcher.slurm.look_at, Some(desk.now + LOOK_AT_SLURM));
    let ended = event(11, EventKind::AllocationEnded, None, json!({}));
    desk.hear(Event::Happened(ended, Described::Nothing));
    assert_eq!(desk.watcher.slurm.look_at, Some(desk.now + REFRESH));
    assert_eq!(desk.hear(Event::SlurmDue), [Effect::LookAtSlurm]);
}

#[test]
fn counts_are_told_when_they_change() {
    console::set_colors_enabled(false);
    let mut desk = Desk::new(Rules { show_counts: true, ..rules() });
    let running = |ended| StatusView {
        active_runners: 1,
        ..status(&[(JobStatus::Completed, ended), (JobStatus::Running, 2)])
    };
    assert_eq!(desk.look(running(1)), [tell("completed 1  running 2")]);
    assert_eq!(desk.look(running(1)), []);
    assert_eq!(desk.look(running(2)), [tell("completed 2  running 2")]);
}
