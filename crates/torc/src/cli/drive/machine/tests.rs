use super::*;
use serde_json::json;
use torc_model::api::ReportVerdict;
use torc_model::event::EventKind;
use torc_model::ids::WorkflowId;

struct Desk {
    follower: Follower,
    now: Instant,
}

impl Desk {
    fn new(wants: Wants) -> Self {
        console::set_colors_enabled_stderr(false);
        let now = Instant::now();
        Self { follower: Follower::with_runner(wants, now), now }
    }

    fn hear(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.follower.handle(event, self.now, &mut out);
        out
    }

    fn runner(&mut self, event: RunnerNotice) -> Vec<Effect> {
        self.hear(Event::Runner(event))
    }

    fn wait(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        self.hear(Event::Due)
    }

    fn start(&mut self, attempt: i64) -> Vec<Effect> {
        let (job_id, job_name) = (JobId(attempt), format!("job{attempt}"));
        let attempt = AttemptId(attempt);
        self.runner(RunnerNotice::Started { attempt, job_id, job_name, attempt_id: 1 })
    }

    fn end(&mut self, attempt: i64, number: i64, cause: Option<Cause>) -> Vec<Effect> {
        self.runner(RunnerNotice::Ended {
            attempt: AttemptId(attempt),
            job_id: JobId(attempt),
            job_name: format!("job{attempt}"),
            attempt_id: number,
            return_code: i64::from(cause.is_some()),
            cause,
            error: None,
            last_line: cause.map(|_| "no such file".into()),
            seconds: 1.0,
        })
    }

    fn judge(&mut self, attempt: i64, status: JobStatus) -> Vec<Effect> {
        self.runner(RunnerNotice::Judged {
            attempt: AttemptId(attempt),
            verdict: ReportVerdict::Accepted,
            outcome: None,
            job_status: Some(status),
        })
    }

    fn lose(&mut self, code: Option<ErrorCode>) -> Vec<Effect> {
        self.runner(RunnerNotice::ServerLost { message: "refused\nhint: start it".into(), code })
    }
}

fn tell(line: &str) -> Effect {
    Effect::Tell(line.into())
}

#[test]
fn a_failure_is_told_when_the_server_has_decided_what_follows() {
    let mut desk = Desk::new(Wants::default());
    desk.start(1);
    assert_eq!(desk.end(1, 1, Some(Cause::Exit)), []);
    assert_eq!(
        desk.judge(1, JobStatus::Ready),
        [tell("retrying: job1 (job 1) after 1.0s: exit, code 1\n  | no such file")]
    );
    desk.end(1, 2, Some(Cause::Exit));
    assert_eq!(
        desk.judge(1, JobStatus::Failed),
        [Effect::TellFailure(
            "failed: job1 (job 1), attempt 2 after 1.0s: exit, code 1\n  | no such file".into()
        )]
    );
    assert_eq!(desk.judge(1, JobStatus::Failed), [], "told once");
}

#[test]
fn jobs_that_were_stopped_with_their_runner_are_not_told_one_by_one() {
    let mut desk = Desk::new(Wants::default());
    desk.start(1);
    desk.end(1, 1, Some(Cause::Stopped));
    assert_eq!(desk.judge(1, JobStatus::Ready), []);
}

#[test]
fn where_output_is_shown_it_comes_before_the_verdict_and_the_last_line_is_not_repeated() {
    let mut desk = Desk::new(Wants { shows_output: true, ..Wants::default() });
    let (attempt, job) = (AttemptId(1), JobId(1));
    let begins = Effect::OutputBegins { attempt, job, number: 1, name: "job1".into() };
    assert_eq!(desk.start(1), [begins]);
    assert_eq!(desk.end(1, 1, Some(Cause::Exit)), [Effect::OutputEnds(attempt, job)]);
    assert_eq!(
        desk.judge(1, JobStatus::Failed),
        [
            Effect::OutputJudged(attempt, true),
            Effect::TellFailure("failed: job1 (job 1) after 1.0s: exit, code 1".into())
        ]
    );
}

#[test]
fn starts_and_ends_are_told_to_a_user_who_asks_for_them() {
    let mut desk = Desk::new(Wants { is_verbose: true, ..Wants::default() });
    assert_eq!(desk.start(1), [tell("started: job1 (job 1)")]);
    assert_eq!(desk.end(1, 2, None), [tell("finished: job1 (job 1), attempt 2 after 1.0s")]);
}

#[test]
fn the_counts_are_asked_for_at_most_twice_a_second_and_only_after_something_happened() {
    let mut desk = Desk::new(Wants { is_live: true, ..Wants::default() });
    let since = desk.now.into_std();
    for attempt in 1..=100 {
        desk.start(attempt);
    }
    assert_eq!(desk.follower.next_alarm(), Some(desk.now + REFRESH));
    let effects = desk.wait(REFRESH);
    let [Effect::Refresh(longest)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(longest.len(), NAMED);
    assert!(longest.iter().all(|(_, begin)| *begin == since));
    assert_eq!(desk.wait(REFRESH), []);
    desk.end(1, 1, None);
    assert_eq!(desk.follower.next_alarm(), Some(desk.now));
}

#[test]
fn a_server_that_hands_over_at_once_is_not_told() {
    let mut desk = Desk::new(Wants::default());
    assert_eq!(desk.lose(None), []);
    assert_eq!(desk.wait(Duration::ZERO), [Effect::TakeOver]);
    assert_eq!(desk.runner(RunnerNotice::ServerBack), []);
    assert_eq!(desk.wait(HAND_OVER), [Effect::Refresh(Vec::new())], "neither taken over nor told");
}

#[test]
fn a_server_that_stays_away_is_told_once_and_looked_for_again_and_again() {
    let mut desk = Desk::new(Wants::default());
    desk.lose(None);
    assert!(desk.wait(Duration::ZERO).contains(&Effect::TakeOver));
    let effects = desk.wait(HAND_OVER);
    assert!(effects.contains(&Effect::TakeOver), "{effects:?}");
    let told = effects.iter().find_map(|effect| match effect {
        Effect::Tell(line) => Some(line.as_str()),
        _ => None,
    });
    assert!(told.is_some_and(|line| line.contains("(refused; start it)")), "{effects:?}");
    assert_eq!(desk.wait(TAKE_OVER_AGAIN), [Effect::TakeOver]);
    assert_eq!(desk.runner(RunnerNotice::ServerBack), [tell("the server answers again")]);
}

#[test]
fn a_full_disk_is_told_at_once_and_so_is_its_end() {
    let mut desk = Desk::new(Wants::default());
    let effects = desk.lose(Some(ErrorCode::OutOfSpace));
    assert!(matches!(effects.as_slice(), [Effect::TellFailure(_)]), "{effects:?}");
    let back = desk.runner(RunnerNotice::ServerBack);
    assert_eq!(back, [tell("there is room on the disk again")]);
}

#[test]
fn what_jobs_wait_for_is_asked_only_while_nothing_runs_here() {
    let mut desk = Desk::new(Wants::default());
    assert_eq!(desk.wait(SILENCE), [Effect::AskWaiting]);
    assert_eq!(desk.hear(Event::Waiting(None)), []);
    assert_eq!(desk.wait(SILENCE), [Effect::AskWaiting], "asked again while nothing was said");
    desk.start(1);
    assert_eq!(desk.wait(SILENCE), [Effect::Refresh(Vec::new())]);
}

#[test]
fn a_failed_action_is_told_and_a_good_one_is_not() {
    let mut desk = Desk::new(Wants::default());
    let action = torc_model::ids::ActionId(3);
    let end = |return_code| RunnerNotice::ActionEnded { action, return_code, error: None };
    assert_eq!(desk.runner(end(0)), []);
    let told = Effect::TellFailure("action 3 failed with code 2".into());
    assert_eq!(desk.runner(end(2)), [told]);
}

#[test]
fn the_first_ctrl_c_stops_and_the_second_kills() {
    let mut desk = Desk::new(Wants::default());
    assert_eq!(desk.hear(Event::Interrupted)[1], Effect::Stop(Shutdown::Stop));
    assert_eq!(desk.hear(Event::Interrupted)[1], Effect::Stop(Shutdown::Kill));
    assert_eq!(desk.follower.interrupts, 2);
}

#[test]
fn a_run_of_another_process_is_followed_by_the_events_of_the_server() {
    console::set_colors_enabled_stderr(false);
    let now = Instant::now();
    let mut follower = Follower::new(Wants::default(), now);
    assert_eq!(follower.next_alarm(), None);
    let event = EventView {
        id: 1,
        workflow_id: WorkflowId(1),
        timestamp_ms: 0,
        kind: EventKind::JobFailed,
        job_id: Some(JobId(7)),
        job_name: None,
        data: json!({}),
    };
    let failure = Failure { text: "a (job 7): exit code 1".into(), last_line: None };
    let about = Described::Failure { name: "a".into(), seconds: 1.0, failure };
    let mut out = Vec::new();
    follower.handle(Event::Server(Box::new(event), about), now, &mut out);
    assert_eq!(out, [Effect::TellFailure("failed: a (job 7): exit code 1".into())]);
    assert_eq!(follower.next_alarm(), Some(now + REFRESH));
}
