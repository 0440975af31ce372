//! Orders and verdicts, without any process.

use super::verdict::Verdict;
use super::*;
use crate::cleanup::KernelMemory;
use crate::monitor::SampledUsage;
use crate::process::LaunchError;
use crate::supervisor::SentSignal;
use torc_model::api::{FileRef, RecoveryScript};
use torc_model::ids::{AttemptId, JobId};
use torc_model::status::{EndDetail, EvidenceSource};
use torc_model::token::Key;

fn packet() -> AttemptPacket {
    AttemptPacket {
        id: AttemptId(70),
        token: "secret".into(),
        job_id: JobId(7),
        job_name: "train".into(),
        run_id: 2,
        attempt_id: 3,
        command: "python x.py".into(),
        invocation_script: None,
        steps: None,
        env: BTreeMap::from([("A".into(), "job".into()), ("TORC_JOB_ID".into(), "forged".into())]),
        num_cpus: 1,
        num_gpus: 0,
        num_nodes: 1,
        memory_bytes: Some(1000),
        time_limit_seconds: Some(60),
        is_limited_by_runtime: false,
        stdio: None,
        output_files: Vec::new(),
        lists: Vec::new(),
        strictness: Default::default(),
        recovery: None,
    }
}

fn context(dir: &Path) -> AttemptContext {
    AttemptContext {
        workflow_name: "w".into(),
        workflow_id: WorkflowId(1),
        key: "k".into(),
        output_dir: dir.into(),
        working_dir: dir.into(),
        runner_id: RunnerId(1),
        tokens: TokenFiles::new(dir, Key::of_server("o", "d")),
        api_url: "http://h:1".into(),
        tls_ca: None,
        env: BTreeMap::from([("A".into(), "workflow".into()), ("B".into(), "b".into())]),
        execution: Execution::default(),
        checkpoint_exit_code: Some(85),
        time_series: None,
        live: Default::default(),
    }
}

fn exit(how: How) -> ProcessExit {
    ProcessExit {
        id: 1,
        how,
        started_ms: 1000,
        ended_ms: 3000,
        wall: Duration::from_secs(2),
        cpu: Duration::from_secs(1),
        peak_memory_bytes: 5000,
        usage: SampledUsage::default(),
        stop: None,
        journal: Vec::new(),
        memory: None,
        machine_oom: false,
        survivors: Vec::new(),
        recent: None,
    }
}

fn recovery(on_failure: OnScriptFailure) -> RecoveryScript {
    RecoveryScript {
        script: "fix it".into(),
        timeout_seconds: 600,
        on_failure,
        failed_attempt_id: 2,
        return_code: 10,
    }
}

fn last<'a>(order: &'a ProcessOrder, name: &str) -> Option<&'a str> {
    order.env.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

fn line(verdict: &Verdict) -> String {
    let Verdict { return_code, signal, cause, error, evidence, .. } = verdict;
    let evidence: Vec<String> =
        evidence.iter().map(|e| format!("{}: {}", e.source, e.text)).collect();
    let cause = cause.map_or("success", Cause::as_str);
    format!(
        "{return_code} {signal:?} {cause} | {} | {}",
        error.as_deref().unwrap_or(""),
        evidence.join("; ")
    )
}

#[test]
fn the_kernels_figure_counts_when_it_killed_for_memory() {
    let with = |peak_memory_bytes, oom_kills| {
        let memory = Some(KernelMemory { oom_kills, peak_bytes: Some(7000), cache_bytes: None });
        ProcessExit { peak_memory_bytes, memory, ..exit(How::Signal(9)) }
    };
    assert_eq!(peak_memory(&exit(How::Code(0))), Some(5000));
    assert_eq!(peak_memory(&with(5000, 0)), Some(5000), "file cache is no use");
    assert_eq!(peak_memory(&with(0, 0)), None);
    assert_eq!(peak_memory(&with(0, 1)), Some(7000), "dead before the first look");
    assert_eq!(peak_memory(&with(8000, 1)), Some(8000));
}

fn judged(exit: &ProcessExit, checkpoint: Option<i64>) -> Verdict {
    let execution = Execution::default();
    let rules = Rules { execution: &execution, checkpoint, tolerates_oom: false };
    judge(exit, &rules, &Lacking::default())
}

#[test]
fn verdicts_follow_the_strongest_evidence() {
    let sent = |signal, after| SentSignal { signal, after: Duration::from_millis(after) };
    let oom = Some(KernelMemory { oom_kills: 2, peak_bytes: Some(999 << 20), cache_bytes: None });
    let stopped = |how, stop, journal: &[SentSignal]| ProcessExit {
        stop: Some(stop),
        journal: journal.into(),
        ..exit(how)
    };
    let limit = Duration::from_millis(1500);
    let cases = [
        exit(How::Code(0)),
        exit(How::Code(3)),
        exit(How::Code(85)),
        exit(How::Signal(11)),
        exit(How::NotStarted(LaunchError {
            message: "no".into(),
            return_code: 126,
            detail: Some(EndDetail::StartDenied),
        })),
        stopped(How::Signal(15), StopReason::Canceled, &[sent(15, 1000)]),
        stopped(How::Code(0), StopReason::Canceled, &[sent(15, 1000)]),
        stopped(
            How::Signal(9),
            StopReason::Stopped,
            &[sent(15, 1000), sent(9, 2000), sent(9, 2500)],
        ),
        stopped(How::Code(0), StopReason::Timeout { limit }, &[sent(15, 1500)]),
        stopped(How::Signal(15), StopReason::RunnerTimeUp, &[sent(15, 1500)]),
        stopped(
            How::Signal(9),
            StopReason::Memory { used_bytes: 9 << 20, limit_bytes: 5 << 20 },
            &[sent(9, 10)],
        ),
        ProcessExit { memory: oom, ..exit(How::Signal(9)) },
        ProcessExit { memory: oom, ..exit(How::Code(137)) },
        ProcessExit { memory: oom, ..exit(How::Code(0)) },
        // A kill of ours is never taken for the kernel's.
        ProcessExit { memory: oom, ..stopped(How::Signal(9), StopReason::Canceled, &[sent(9, 1)]) },
        ProcessExit { machine_oom: true, ..exit(How::Signal(9)) },
        ProcessExit { survivors: vec![5], ..exit(How::Code(1)) },
    ];
    let lines: Vec<String> = cases.iter().map(|e| line(&judged(e, Some(85)))).collect();
    let kernel = "kernel: the kernel killed 2 of its processes for exceeding the limit; highest use 999.0 MiB";
    assert_eq!(
        lines,
        [
            "0 None success |  | ".to_string(),
            "3 None exit | exit code 3 | exit: exit code 3".into(),
            "85 None checkpoint | saved its state and asked to be continued | exit: exit code 85".into(),
            "139 Some(11) signal | killed by SIGSEGV | exit: ended by SIGSEGV".into(),
            "126 None spawn_error | no | ".into(),
            "143 Some(15) canceled | canceled | journal: we sent SIGTERM after 1.0 s; exit: ended by SIGTERM".into(),
            "143 None canceled | canceled | journal: we sent SIGTERM after 1.0 s; exit: exit code 0".into(),
            "137 Some(9) stopped | the runner was told to stop | journal: we sent SIGTERM after 1.0 s; \
             journal: we sent SIGKILL after 2.0 s; exit: ended by SIGKILL"
                .into(),
            "152 None timeout | ran longer than its limit of 1.5 s | journal: we sent SIGTERM after 1.5 s; \
             exit: exit code 0"
                .into(),
            "143 Some(15) walltime | the allocation's time was over before the job's end | \
             journal: the walltime of its runner was nearly over; journal: we sent SIGTERM after 1.5 s; \
             exit: ended by SIGTERM"
                .into(),
            "137 Some(9) oom | used more memory than its limit | journal: we sent SIGKILL after 0.0 s; \
             node: 9.0 MiB were in use; the limit is 5.0 MiB; exit: ended by SIGKILL"
                .into(),
            format!("137 Some(9) oom | used more memory than its limit | {kernel}; exit: ended by SIGKILL"),
            format!("137 None oom | used more memory than its limit | {kernel}; exit: exit code 137"),
            format!(
                "137 None oom | exit code 0, but a part of it used more memory than its limit | {kernel}; \
                 exit: exit code 0"
            ),
            "137 Some(9) canceled | canceled | journal: we sent SIGKILL after 0.0 s; exit: ended by SIGKILL".into(),
            "137 Some(9) oom | killed because the machine ran out of memory | kernel: the machine's count of \
             out-of-memory kills rose when it died of SIGKILL; exit: ended by SIGKILL"
                .into(),
            "1 None exit | exit code 1 | exit: exit code 1; node: processes [5] did not end although they were killed"
                .into(),
        ]
    );
}

#[test]
fn missing_outputs_are_named_and_a_few_are_enough() {
    let missing: Vec<String> = (0..12).map(|n| format!("`f{n}`")).collect();
    let execution = Execution::default();
    let rules = Rules { execution: &execution, checkpoint: None, tolerates_oom: false };
    let lacking = Lacking { missing, ..Lacking::default() };
    let verdict = judge(&exit(How::Code(0)), &rules, &lacking);
    assert_eq!((verdict.return_code, verdict.cause), (1, Some(Cause::MissingOutput)));
    let error = verdict.error.unwrap();
    assert!(error.ends_with("`f8`, `f9` and 2 more"), "{error}");
}

#[test]
fn the_job_environment_wins_over_the_workflow_s_and_ours_over_both() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = TokenFiles::new(dir.path(), Key::of_server("o", "d"));
    let context = AttemptContext { tokens, ..context(Path::new("/out")) };
    let order = Attempt::new(packet(), vec!["0".into(), "2".into()]).order(&context, 9);
    assert_eq!((last(&order, "A"), last(&order, "B")), (Some("job"), Some("b")));
    assert_eq!(
        (last(&order, "TORC_JOB_ID"), last(&order, "TORC_ATTEMPT_ID")),
        (Some("7"), Some("3"))
    );
    assert_eq!(
        (last(&order, "TORC_RUN_ID"), last(&order, "TORC_JOB_NAME")),
        (Some("2"), Some("train"))
    );
    assert_eq!(
        (last(&order, "TORC_WORKFLOW_ID"), last(&order, "TORC_OUTPUT_DIR")),
        (Some("1"), Some("/out"))
    );
    assert_eq!(
        (last(&order, "TORC_API_URL"), last(&order, "TORC_TOKEN_FILE")),
        (Some("http://h:1/torc-service/v1"), dir.path().join("1").to_str())
    );
    assert_eq!(
        (last(&order, "CUDA_VISIBLE_DEVICES"), last(&order, "TORC_RETURN_CODE")),
        (Some("0,2"), None)
    );
    assert!(order.env.iter().all(|(_, value)| !value.contains("secret")));
    assert_eq!((order.time_limit, order.memory_limit), (Some(Duration::from_secs(60)), Some(1000)));
    assert_eq!(order.stdout, Sink::Create("/out/job_stdio/job_wf1_j7_r2_a3.o".into()));
    assert_eq!(order.stderr, Sink::Create("/out/job_stdio/job_wf1_j7_r2_a3.e".into()));
    assert_eq!(order.tag, "k/9");
    let order = Attempt::new(packet(), Vec::new()).order(&context, 9);
    assert_eq!(last(&order, "CUDA_VISIBLE_DEVICES"), None);
}

#[test]
fn the_invocation_script_comes_first_and_limits_may_be_off() {
    let mut context = context(Path::new("/out"));
    context.execution.limit_resources = false;
    context.execution.stdio.mode = StdioMode::Combined;
    let order = Attempt::new(
        AttemptPacket { invocation_script: Some("srun -n1".into()), ..packet() },
        Vec::new(),
    )
    .order(&context, 1);
    assert_eq!(order.text, "srun -n1 python x.py");
    assert_eq!(order.memory_limit, None);
    assert_eq!(
        (order.stdout.path().and_then(|p| p.extension()), order.stderr),
        (Some("log".as_ref()), Sink::SameAsStdout)
    );
}

#[test]
fn a_recovery_script_runs_first_with_the_words_of_the_failed_attempt() {
    let context = context(Path::new("/out"));
    let packet = AttemptPacket { recovery: Some(recovery(OnScriptFailure::Continue)), ..packet() };
    let attempt = Box::new(Attempt::new(packet, Vec::new()));
    let order = attempt.order(&context, 1);
    assert_eq!(order.text, "fix it");
    assert_eq!(
        (last(&order, "TORC_ATTEMPT_ID"), last(&order, "TORC_RETURN_CODE")),
        (Some("2"), Some("10"))
    );
    assert_eq!(order.stderr, Sink::Create("/out/job_stdio/job_wf1_j7_r2_a3_recovery.e".into()));
    assert_eq!((order.time_limit, order.memory_limit), (Some(Duration::from_secs(600)), None));

    let (attempt, next) = attempt.on_exit(&context, exit(How::Code(4)), None, 2);
    let AfterProcess::Run(order) = next else { panic!("{next:?}") };
    assert_eq!(
        (order.text.as_str(), order.id, last(&order, "TORC_ATTEMPT_ID")),
        ("python x.py", 2, Some("3"))
    );
    let (attempt, next) = attempt.unwrap().on_exit(&context, exit(How::Code(0)), None, 3);
    assert!(attempt.is_none());
    let AfterProcess::Report(finish) = next else { panic!("{next:?}") };
    let report = finish.report(&context);
    assert_eq!((report.return_code, report.cause), (0, None));
    let script = report.script.unwrap();
    assert_eq!((script.return_code, script.timed_out, script.exec_seconds), (4, false, 2.0));
}

#[test]
fn a_script_that_must_not_fail_fails_the_attempt_and_a_stop_is_no_failure_of_it() {
    let context = context(Path::new("/nowhere"));
    let attempt = |on_failure| {
        Box::new(Attempt::new(
            AttemptPacket { recovery: Some(recovery(on_failure)), ..packet() },
            Vec::new(),
        ))
    };
    let report = |next| match next {
        AfterProcess::Report(finish) => Finish::report(*finish, &context),
        AfterProcess::Run(order) => panic!("{order:?}"),
        AfterProcess::Steps(attempt) => panic!("{attempt:?}"),
    };
    let (_, next) = attempt(OnScriptFailure::Fail).on_exit(&context, exit(How::Code(4)), None, 2);
    let failed = report(next);
    assert_eq!((failed.return_code, failed.cause), (4, Some(Cause::Exit)));
    assert_eq!(failed.error.as_deref(), Some("exit code 4"));
    assert_eq!(failed.detail, Some(EndDetail::RecoveryScript));
    assert!(failed.stderr_path.unwrap().ends_with("_recovery.e"));

    let canceled = ProcessExit { stop: Some(StopReason::Canceled), ..exit(How::Signal(15)) };
    let (_, next) = attempt(OnScriptFailure::Continue).on_exit(&context, canceled, None, 2);
    assert_eq!(report(next).cause, Some(Cause::Canceled));

    // Told to stop in the moment between script and command.
    let (_, next) = attempt(OnScriptFailure::Continue).on_exit(
        &context,
        exit(How::Code(0)),
        Some(StopReason::Stopped),
        2,
    );
    assert_eq!(report(next).cause, Some(Cause::Stopped));

    let limit = Duration::from_secs(600);
    let late = ProcessExit { stop: Some(StopReason::Timeout { limit }), ..exit(How::Signal(9)) };
    let (attempt, next) = attempt(OnScriptFailure::Continue).on_exit(&context, late, None, 2);
    assert!(matches!(next, AfterProcess::Run(_)));
    let script = attempt.unwrap().script.unwrap();
    assert_eq!((script.return_code, script.timed_out), (152, true));
}

#[test]
fn the_report_looks_at_files() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    std::fs::create_dir(dir.path().join("job_stdio")).unwrap();
    let log = dir.path().join("job_stdio/job_wf1_j7_r2_a3.e");
    let output =
        |name: &str| FileRef { name: name.into(), path: format!("{name}.csv"), min_size: 0 };
    let packet = AttemptPacket { output_files: vec![output("a"), output("b")], ..packet() };
    let finish = |how| Finish {
        packet: packet.clone(),
        stage: Stage::Command,
        script: None,
        exit: exit(how),
        outputs: None,
    };

    std::fs::write(&log, [b"x".repeat(20_000), b"\xff\0end\n".to_vec()].concat()).unwrap();
    std::fs::write(dir.path().join("a.csv"), "").unwrap();
    assert!(!finish(How::Code(0)).is_quick(&context));
    let report = finish(How::Code(0)).report(&context);
    assert_eq!(
        report.error.as_deref(),
        Some("exit code 0, but output files are missing: `b.csv` (b)")
    );
    let tail = report.stderr_tail.unwrap();
    assert!(tail.ends_with("x\u{fffd}\0end\n") && tail.len() <= 8192 + 2, "{}", tail.len());

    std::fs::write(dir.path().join("b.csv"), "").unwrap();
    let report = finish(How::Code(0)).report(&context);
    assert_eq!((report.cause, report.stderr_tail), (None, None));
    assert_eq!(
        (report.exec_seconds, report.cpu_seconds, report.avg_cpu_percent),
        (2.0, Some(1.0), Some(50.0))
    );
    assert_eq!(
        (report.started_ms, report.ended_ms, report.peak_memory_bytes),
        (1000, 3000, Some(5000))
    );
    assert_eq!(report.stderr_path.as_deref(), log.to_str());
    // A failure does not ask for outputs.
    assert_eq!(finish(How::Code(2)).report(&context).cause, Some(Cause::Exit));
}

#[test]
fn logs_of_a_success_may_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let context = context(dir.path());
    std::fs::create_dir(dir.path().join("job_stdio")).unwrap();
    let stdio = Stdio { mode: StdioMode::NoStdout, delete_on_success: true };
    let packet = AttemptPacket { stdio: Some(stdio), ..packet() };
    let log = dir.path().join("job_stdio/job_wf1_j7_r2_a3.e");
    let finish = |how| Finish {
        packet: packet.clone(),
        stage: Stage::Command,
        script: None,
        exit: exit(how),
        outputs: None,
    };
    std::fs::write(&log, "e").unwrap();
    let report = finish(How::Code(1)).report(&context);
    assert!(log.exists() && report.stderr_path.is_some() && report.stdout_path.is_none());
    let report = finish(How::Code(0)).report(&context);
    assert!(!log.exists() && report.stderr_path.is_none());
}

#[test]
fn an_attempt_that_never_started_says_so() {
    let report = unstarted_report(packet(), Cause::Stopped, "the runner was told to stop", 5);
    assert_eq!(
        (report.return_code, report.cause, report.exec_seconds),
        (143, Some(Cause::Stopped), 0.0)
    );
    assert_eq!((report.started_ms, report.cpu_seconds), (5, None));
}

#[test]
fn a_state_saved_when_the_time_was_over_is_a_checkpoint() {
    let limit = Duration::from_secs(60);
    for (stop, cause) in [
        (StopReason::RunnerTimeUp, Cause::Walltime),
        (StopReason::Timeout { limit }, Cause::Timeout),
    ] {
        let saved = ProcessExit { stop: Some(stop.clone()), ..exit(How::Code(85)) };
        let verdict = judged(&saved, Some(85));
        assert_eq!((verdict.cause, verdict.return_code), (Some(Cause::Checkpoint), 85), "{stop:?}");
        let other = ProcessExit { stop: Some(stop), ..exit(How::Code(1)) };
        assert_eq!(judged(&other, Some(85)).cause, Some(cause));
    }
    // A person's word is stronger.
    let canceled = ProcessExit { stop: Some(StopReason::Canceled), ..exit(How::Code(85)) };
    assert_eq!(judged(&canceled, Some(85)).cause, Some(Cause::Canceled));
}

#[test]
fn a_success_with_a_killed_child_is_one_only_where_the_job_says_so() {
    let memory = Some(KernelMemory { oom_kills: 1, peak_bytes: Some(7), cache_bytes: None });
    let ended = ProcessExit { memory, ..exit(How::Code(0)) };
    let verdict = judged(&ended, None);
    assert_eq!((verdict.cause, verdict.return_code), (Some(Cause::Oom), 137));
    let execution = Execution::default();
    let rules = Rules { execution: &execution, checkpoint: None, tolerates_oom: true };
    let verdict = judge(&ended, &rules, &Lacking::default());
    assert_eq!((verdict.cause, verdict.return_code), (None, 0));
    assert_eq!(
        verdict.evidence.iter().map(|e| e.source).collect::<Vec<_>>(),
        [EvidenceSource::Kernel]
    );
    let failed = ProcessExit { memory, ..exit(How::Code(3)) };
    assert_eq!(judge(&failed, &rules, &Lacking::default()).cause, Some(Cause::Oom));
    let lacking = Lacking { missing: vec!["`f`".into()], ..Lacking::default() };
    assert_eq!(judge(&ended, &rules, &lacking).cause, Some(Cause::MissingOutput));
}
