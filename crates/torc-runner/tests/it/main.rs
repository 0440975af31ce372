//! The runner with real processes against a fake server.

mod fake_server;
mod steps;

use fake_server::FakeServer;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use torc_model::api::{ActionPacket, FileRef, RecoveryScript};
use torc_model::ids::{ActionId, AttemptId, WorkflowId};
use torc_model::plan::{ActionKind, OnScriptFailure, Stdio, StdioMode};
use torc_model::status::{Cause, EndDetail, EvidenceSource, Trigger};
use torc_runner::{Config, Error, LeaveReason, Runner, RunnerNotice, RunnerSummary, Shutdown};

/// A fake server and runners that work for it in one directory.
struct Lab {
    server: FakeServer,
    dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// A runner that leaves ends every child of its process that is not awaited elsewhere. `cargo test`
/// runs tests as threads of one process, so that one runner would end jobs of another.
static ONE_RUNNER: Mutex<()> = Mutex::new(());

/// A runner at work.
struct Work {
    task: JoinHandle<Result<RunnerSummary, Error>>,
    shutdown: watch::Sender<Shutdown>,
    events: mpsc::UnboundedReceiver<RunnerNotice>,
}

impl Lab {
    fn new() -> Self {
        // A test that failed leaves nothing behind that the next one looks at.
        let _alone = ONE_RUNNER.lock().unwrap_or_else(PoisonError::into_inner);
        Self { server: FakeServer::start(), dir: tempfile::tempdir().unwrap(), _alone }
    }

    fn begin(&self) -> Work {
        self.begin_with(|_| {})
    }

    fn begin_with(&self, change: impl FnOnce(&mut Config)) -> Work {
        let (sender, events) = mpsc::unbounded_channel();
        let mut config =
            Config::new(self.server.client(), WorkflowId(1), self.dir.path().join("output"));
        config.capacity.num_cpus = 4;
        config.working_dir = self.dir.path().into();
        config.events = Some(sender);
        change(&mut config);
        let (shutdown, receiver) = watch::channel(Shutdown::Run);
        Work { task: tokio::spawn(Runner::new(config).run(receiver)), shutdown, events }
    }

    async fn run(&self) -> RunnerSummary {
        self.begin().end().await
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    fn log(&self, name: &str) -> String {
        self.text(&format!("output/job_stdio/{name}"))
    }

    async fn until_file(&self, name: &str) {
        until_file(&self.dir.path().join(name)).await;
    }
}

impl Work {
    async fn end(self) -> RunnerSummary {
        tokio::time::timeout(Duration::from_secs(60), self.task)
            .await
            .expect("the runner hangs")
            .unwrap()
            .unwrap()
    }

    async fn event(&mut self, wanted: impl Fn(&RunnerNotice) -> bool) -> RunnerNotice {
        let search = async {
            loop {
                let event = self.events.recv().await.expect("the runner has ended");
                if wanted(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), search).await.expect("no such event")
    }
}

async fn until_file(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    // Made by a shell, which sends no notice.
    while !path.exists() {
        assert!(Instant::now() < deadline, "waited in vain for {}", path.display());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_and_are_reported_once() {
    let lab = Lab::new();
    let good: Vec<AttemptId> =
        (0..40).map(|n| lab.server.job(&format!("echo {n}; exit 0"))).collect();
    let bad = lab.server.job("echo oops >&2; exit 3");
    let summary = lab.run().await;
    assert_eq!((summary.succeeded, summary.failed, summary.reason), (40, 1, LeaveReason::Complete));
    for id in &good {
        let report = lab.server.report(*id);
        assert_eq!((report.return_code, report.cause, report.stderr_tail), (0, None, None));
        assert!(report.cpu_seconds.is_some());
        assert_ne!(report.peak_memory_bytes, Some(0), "a peak that is not known is not nothing");
    }
    let report = lab.server.report(bad);
    assert_eq!((report.return_code, report.cause), (3, Some(Cause::Exit)));
    assert_eq!(report.stderr_tail.as_deref(), Some("oops\n"));
    assert_eq!(lab.log("job_wf1_j7_r1_a1.o"), "6\n");
    let inner = lab.server.lock();
    let started: HashSet<AttemptId> = inner.started.iter().map(|r| r.attempt.id).collect();
    assert_eq!((started.len(), inner.started.len()), (41, 41));
    assert_eq!(inner.goodbyes, ["the workflow is complete"]);
    let registered = &inner.registered[0];
    assert!(registered.pid > 0 && registered.pid_start > 0 && !registered.boot_id.is_empty());
    // In order, nothing of the runner itself stays behind.
    assert_eq!(std::fs::read_dir(lab.dir.path().join("output/.torc_runners")).unwrap().count(), 0);
    assert!(!lab.dir.path().join("output/.torc_spool").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_see_their_environment_and_a_token_file_but_not_our_token() {
    let lab = Lab::new();
    lab.server.change(|s| drop(s.env.insert("GREETING".into(), "hello".into())));
    let job = "env | sort | grep -e ^TORC_ -e ^GREETING; echo $(cat $TORC_TOKEN_FILE); stat -c %a $TORC_TOKEN_FILE; pwd";
    lab.server.job(job);
    lab.run().await;
    let output = lab.log("job_wf1_j1_r1_a1.o");
    let root = lab.dir.path().canonicalize().unwrap();
    for expected in [
        "GREETING=hello",
        "TORC_WORKFLOW_ID=1",
        "TORC_JOB_ID=1",
        "TORC_JOB_NAME=job1",
        "TORC_RUN_ID=1",
        "TORC_ATTEMPT_ID=1",
        &format!("TORC_API_URL={}/torc-service/v1", lab.server.client().url()),
        &format!("TORC_OUTPUT_DIR={}", root.join("output").display()),
        root.to_str().unwrap(),
    ] {
        assert!(output.lines().any(|line| line == expected), "no `{expected}` in:\n{output}");
    }
    let token = output.lines().find(|line| line.starts_with("job.")).expect("a token");
    let server = torc_model::token::Key::of_server("server-token", "fake");
    let key = server.of_runner(torc_model::ids::RunnerId(1));
    // The fake gives out its own key; a real server gives each runner one that is derived from it.
    assert_eq!(key.read(token), None);
    assert!(token.starts_with("job.1.1.1.1."), "{token}");
    assert!(output.lines().any(|line| line == "600"), "{output}");
    assert!(!output.contains("server-token"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_jobs_run_at_once_than_there_are_cpus() {
    let lab = Lab::new();
    // Each notes how many are inside; making a directory is atomic.
    let job =
        "mkdir in.$TORC_JOB_ID; ls -d in.* | wc -l >> counts; sleep 0.05; rmdir in.$TORC_JOB_ID";
    for _ in 0..12 {
        lab.server.job(job);
    }
    let summary = lab.begin_with(|c| c.capacity.num_cpus = 3).end().await;
    assert_eq!(summary.succeeded, 12);
    let most = lab.text("counts").lines().map(|line| line.trim().parse::<u32>().unwrap()).max();
    assert_eq!(most, Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_comes_later_is_heard_of_at_once() {
    let lab = Lab::new();
    lab.server.change(|s| s.is_final = false);
    let work = lab.begin();
    lab.server.until("a listener", |s| s.claims > 0).await;
    let start = Instant::now();
    let id = lab.server.job("true");
    lab.server.until("the report", |s| s.completed.iter().any(|r| r.attempt.id == id)).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    lab.server.change(|s| s.is_final = true);
    assert_eq!(work.end().await.reason, LeaveReason::Complete);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_lose_and_repeat_nothing() {
    let lab = Lab::new();
    lab.server.change(|s| s.lose_answers = 5);
    let ids: Vec<AttemptId> =
        (0..100).map(|_| lab.server.job("echo x >> ran.$TORC_JOB_ID")).collect();
    let summary = lab.run().await;
    assert_eq!(summary.succeeded, 100);
    assert_eq!(lab.server.lock().lose_answers, 0);
    for id in ids {
        assert_eq!(lab.server.report(id).cause, None);
        assert_eq!(lab.text(&format!("ran.{id}")), "x\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restart_is_invisible_to_jobs_and_results_wait_on_disk() {
    let mut lab = Lab::new();
    let long = lab.server.job("touch ready; while [ ! -e go ]; do sleep 0.02; done; echo done");
    let mut work = lab.begin();
    lab.until_file("ready").await;
    lab.server.kill();
    work.event(|e| matches!(e, RunnerNotice::ServerLost { .. })).await;
    std::fs::write(lab.dir.path().join("go"), "").unwrap();
    work.event(|e| matches!(e, RunnerNotice::Ended { .. })).await;
    let spool = lab.dir.path().join("output/.torc_spool");
    let deadline = Instant::now() + Duration::from_secs(10);
    let file = loop {
        // First the directory is made, then the file, then it is written.
        let file = std::fs::read_dir(&spool)
            .ok()
            .and_then(|mut files| files.next())
            .map(|file| file.unwrap().path());
        if let Some(file) =
            file.filter(|file| std::fs::read_to_string(file).unwrap().lines().count() >= 2)
        {
            break file;
        }
        assert!(Instant::now() < deadline, "the result is not on disk");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    lab.server.restart();
    work.event(|e| matches!(e, RunnerNotice::ServerBack)).await;
    let summary = work.end().await;
    assert_eq!((summary.succeeded, summary.undelivered), (1, 0));
    assert_eq!(lab.server.report(long).return_code, 0);
    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_cut_off_ends_its_jobs_and_the_next_one_delivers_for_it() {
    let mut lab = Lab::new();
    lab.server.change(|s| {
        (s.lease_seconds, s.disown_seconds) = (1, 3);
    });
    let id = lab.server.job("touch ready; sleep 100");
    let work = lab.begin();
    lab.until_file("ready").await;
    lab.server.kill();
    let summary = work.end().await;
    assert_eq!(
        (summary.reason, summary.ended, summary.undelivered),
        (LeaveReason::OutOfContact, 1, 1)
    );
    assert!(lab.server.lock().completed.is_empty());

    // The process lives on, but its runner has left, and said so beside the results.
    let files = std::fs::read_dir(lab.dir.path().join("output/.torc_spool")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let [spool, left] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(spool.with_extension("left"), *left);
    lab.server.restart();
    let mut work = lab.begin();
    work.event(
        |e| matches!(e, RunnerNotice::Warning { message } if message.contains("delivered 1")),
    )
    .await;
    work.end().await;
    assert_eq!(lab.server.report(id).cause, Some(Cause::Stopped));
    assert!(!spool.exists() && !left.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_ends_the_job_and_says_so() {
    let lab = Lab::new();
    let id = lab.server.job("touch ready; sleep 100");
    let work = lab.begin();
    lab.until_file("ready").await;
    lab.server.change(|s| s.cancel.push(id));
    let summary = work.end().await;
    assert_eq!((summary.ended, summary.reason), (1, LeaveReason::Complete));
    let report = lab.server.report(id);
    assert_eq!(
        (report.return_code, report.signal, report.cause),
        (143, Some(15), Some(Cause::Canceled))
    );
    assert_eq!(report.evidence[0].source, EvidenceSource::Journal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_longer_ours_is_stopped_and_not_reported() {
    let lab = Lab::new();
    lab.server.change(|s| s.lease_seconds = 1);
    let id = lab.server.job("touch ready; sleep 100");
    let work = lab.begin();
    lab.until_file("ready").await;
    lab.server.change(|s| {
        s.not_yours.push(id);
        s.held.remove(&id);
    });
    let summary = work.end().await;
    assert_eq!(summary.ended, 1);
    let inner = lab.server.lock();
    assert!(inner.completed.is_empty());
    assert!(
        inner.heartbeats.iter().any(|h| h.held.iter().any(|a| a.id == id && a.token == "token1"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_gives_jobs_time_and_a_second_one_does_not() {
    let lab = Lab::new();
    let polite = lab
        .server
        .job("trap 'echo saved; exit 0' TERM; touch ready1; while :; do sleep 0.02; done");
    let waiting = lab.server.job("true");
    let work = lab.begin_with(|c| c.capacity.num_cpus = 1);
    lab.until_file("ready1").await;
    work.shutdown.send(Shutdown::Stop).unwrap();
    let summary = work.end().await;
    assert_eq!((summary.ended, summary.reason), (1, LeaveReason::Stopped));
    let report = lab.server.report(polite);
    assert_eq!((report.return_code, report.cause), (143, Some(Cause::Stopped)));
    assert_eq!(lab.log("job_wf1_j1_r1_a1.o"), "saved\n");
    // It was not taken, or taken and given back; in both cases it did not run.
    let completed = lab.server.lock().completed.clone();
    assert!(
        completed
            .iter()
            .filter(|r| r.attempt.id == waiting)
            .all(|r| r.cause == Some(Cause::Stopped))
    );
    assert!(!lab.dir.path().join("output/job_stdio/job_wf1_j2_r1_a1.o").exists());
    drop(lab);

    let lab = Lab::new();
    let stubborn = lab.server.job("trap '' TERM; touch ready2; while :; do sleep 0.02; done");
    let mut work = lab.begin();
    lab.until_file("ready2").await;
    work.shutdown.send(Shutdown::Stop).unwrap();
    work.event(|e| matches!(e, RunnerNotice::Leaving { .. })).await;
    work.shutdown.send(Shutdown::Kill).unwrap();
    work.end().await;
    let report = lab.server.report(stubborn);
    assert_eq!(
        (report.return_code, report.signal, report.cause),
        (137, Some(9), Some(Cause::Stopped))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_and_are_told_with_their_evidence() {
    let lab = Lab::new();
    lab.server.change(|s| s.execution.grace_seconds = 0.3);
    let script =
        "(trap '' TERM; setsid bash -c 'trap \"\" TERM; touch in; sleep 100; true' & sleep 100)";
    let late = lab.server.job_with(script, |p| p.time_limit_seconds = Some(1));
    let greedy = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 100; true";
    let large = lab.server.job_with(greedy, |p| p.memory_bytes = Some(60_000_000));
    lab.run().await;
    let report = lab.server.report(late);
    assert_eq!((report.return_code, report.cause), (152, Some(Cause::Timeout)));
    assert!(report.exec_seconds >= 1.0 && report.exec_seconds < 8.0, "{}", report.exec_seconds);
    assert!(report.error.unwrap().contains("limit of 1 s"));
    let report = lab.server.report(large);
    assert_eq!((report.return_code, report.cause), (137, Some(Cause::Oom)), "{report:?}");
    assert!(
        report
            .evidence
            .iter()
            .any(|e| matches!(e.source, EvidenceSource::Kernel | EvidenceSource::Node)),
        "{:?}",
        report.evidence
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_outputs_are_named() {
    let lab = Lab::new();
    let id = lab.server.job_with("touch here.csv", |p| {
        let file =
            |name: &str| FileRef { name: name.into(), path: format!("{name}.csv"), min_size: 0 };
        p.output_files = vec![file("here"), file("gone")];
    });
    lab.run().await;
    let report = lab.server.report(id);
    assert_eq!((report.return_code, report.cause), (1, Some(Cause::MissingOutput)));
    assert!(report.error.unwrap().contains("`gone.csv`"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_start_fails_alone() {
    let lab = Lab::new();
    let broken = lab.server.job("true \0");
    let steps = lab.server.job_with("", |p| p.steps = Some(serde_json::json!("no tree")));
    let blocked = lab.server.job("true");
    // Its log cannot be made: something else has that name.
    let name = format!("output/job_stdio/job_wf1_j{blocked}_r1_a1.o");
    std::fs::create_dir_all(lab.dir.path().join(name)).unwrap();
    let fine = lab.server.job("true");
    let summary = lab.run().await;
    assert_eq!((summary.failed, summary.succeeded), (3, 1));
    for (id, code) in [(broken, 127), (steps, 127), (blocked, 126)] {
        let report = lab.server.report(id);
        assert_eq!(
            (report.return_code, report.cause),
            (code, Some(Cause::SpawnError)),
            "{report:?}"
        );
    }
    assert!(lab.server.report(blocked).error.unwrap().contains("job_wf1_j3_r1_a1.o"));
    assert_eq!(lab.server.report(fine).cause, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_script_runs_before_its_attempt() {
    let lab = Lab::new();
    let script = |script: &str, on_failure| RecoveryScript {
        script: script.into(),
        timeout_seconds: 600,
        on_failure,
        failed_attempt_id: 1,
        return_code: 10,
    };
    let with = |text: &'static str, on_failure| {
        lab.server.job_with(
            "cat fixed >&2; echo job $TORC_ATTEMPT_ID ${TORC_RETURN_CODE-none}",
            move |p| {
                p.attempt_id = 2;
                p.recovery = Some(script(text, on_failure));
            },
        )
    };
    let fixing = with(
        "echo $TORC_ATTEMPT_ID $TORC_RETURN_CODE > fixed; head -c 50000000 /dev/zero; exit 5",
        OnScriptFailure::Continue,
    );
    let fatal = with("exit 6", OnScriptFailure::Fail);
    lab.begin_with(|c| c.capacity.num_cpus = 1).end().await;
    let report = lab.server.report(fixing);
    assert_eq!((report.return_code, report.cause), (0, None));
    assert_eq!(report.script.unwrap().return_code, 5);
    assert_eq!(
        (lab.log("job_wf1_j1_r1_a2.e"), lab.log("job_wf1_j1_r1_a2.o")),
        ("1 10\n".into(), "job 2 none\n".into())
    );
    let report = lab.server.report(fatal);
    assert_eq!((report.return_code, report.cause), (6, Some(Cause::Exit)));
    assert_eq!(report.detail, Some(EndDetail::RecoveryScript));
    assert!(!lab.dir.path().join("output/job_stdio/job_wf1_j2_r1_a2.o").exists());
    assert_eq!(lab.server.lock().started.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_run_in_order_and_are_reported() {
    let lab = Lab::new();
    let action = |id, trigger, commands: &[&str]| ActionPacket {
        id: ActionId(id),
        trigger,
        what: ActionKind::RunCommands { commands: commands.iter().map(|c| (*c).into()).collect() },
    };
    let nodes = ActionKind::ScheduleNodes {
        scheduler: "s".into(),
        scheduler_type: "slurm".into(),
        num_allocations: 1,
        start_one_worker_per_node: false,
        max_parallel_jobs: None,
    };
    lab.server.job("cat order > seen");
    lab.server.change(|s| {
        let first = [
            "sleep 0.2; echo $TORC_WORKFLOW_ID > order",
            "echo two >> order; echo out; cat $TORC_TOKEN_FILE",
        ];
        s.actions.push(action(1, Trigger::OnWorkerStart, &first));
        s.actions.push(action(2, Trigger::OnJobsReady, &["true", "exit 4", "touch never"]));
        s.actions.push(ActionPacket {
            id: ActionId(3),
            trigger: Trigger::OnJobsReady,
            what: nodes,
        });
        s.last_actions.push(action(4, Trigger::OnWorkerComplete, &["touch last"]));
    });
    lab.run().await;
    assert_eq!(lab.text("seen"), "1\ntwo\n");
    let output = lab.text("output/actions/action_wf1_1.o");
    assert!(output.starts_with("out\naction.1.1.1."), "its own token: {output}");
    assert!(lab.dir.path().join("last").exists() && !lab.dir.path().join("never").exists());
    let inner = lab.server.lock();
    let report =
        |id| &inner.action_reports.iter().find(|(found, _)| *found == ActionId(id)).unwrap().1;
    assert_eq!((report(1).return_code, report(1).error.clone()), (0, None));
    assert_eq!(
        (report(2).return_code, report(2).error.as_deref()),
        (4, Some("command `exit 4`: exit code 4"))
    );
    assert_eq!(report(3).error.as_deref(), Some("this runner cannot schedule nodes"));
    assert_eq!(report(4).return_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_goes_where_it_is_wanted() {
    let lab = Lab::new();
    let stdio = |mode, delete_on_success| Some(Stdio { mode, delete_on_success });
    let command = "echo out; echo err >&2; exit $((TORC_JOB_ID == 1 ? 3 : 0))";
    let combined = lab.server.job_with(command, |p| p.stdio = stdio(StdioMode::Combined, true));
    let dropped = lab.server.job_with(command, |p| p.stdio = stdio(StdioMode::Combined, true));
    let none = lab.server.job_with(command, |p| p.stdio = stdio(StdioMode::None, false));
    lab.run().await;
    let report = lab.server.report(combined);
    assert_eq!(report.stderr_tail.as_deref(), Some("out\nerr\n"));
    assert_eq!(report.stdout_path, report.stderr_path);
    for id in [dropped, none] {
        let report = lab.server.report(id);
        assert_eq!((report.return_code, report.stdout_path, report.stderr_path), (0, None, None));
    }
    assert_eq!(std::fs::read_dir(lab.dir.path().join("output/job_stdio")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_attempts_use_can_be_kept_as_a_series() {
    let lab = Lab::new();
    lab.server.change(|s| {
        s.resource_monitor.time_series = true;
        s.resource_monitor.sample_interval_seconds = 0.2;
    });
    let id = lab.server.job("for i in {1..20}; do : {1..20000}; sleep 0.05; done");
    lab.run().await;
    let report = lab.server.report(id);
    assert!(report.avg_memory_bytes > Some(0) && report.peak_cpu_percent > Some(0.0), "{report:?}");
    let dir = lab.dir.path().join("output/resource_utilization");
    let file = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let lines: Vec<serde_json::Value> = std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert!(lines.len() >= 2, "{lines:?}");
    assert!(lines.iter().all(|l| l["job_name"] == "job1" && l["memory_bytes"].as_i64() > Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_an_error_with_its_address() {
    let mut lab = Lab::new();
    lab.server.kill();
    let work = lab.begin_with(|c| c.limits.patience = Duration::from_millis(200));
    let error = work.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains(lab.server.client().url()), "{error}");
}
