//! The store on a real database: what the engine does is what the rows say, also after loading them
//! again.

mod actions;
pub mod agreement;
mod allocations;
mod bad_nodes;
mod classify;
mod crash_recovery;
mod growth;
mod last_words;
mod late_reports;
mod one_journal;
mod parked_claims;
mod pools;
mod remedies;
mod revise;
mod status_words;
mod unneeded;
mod webhooks;
mod webhooks_page;

use super::submissions::plan;
use super::writer::Tx;
use super::*;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use torc_model::api::{
    AttemptRef, Capacity, ClaimRequest, ClaimResponse, CompletionBatch, CompletionReport,
    ErrorCode, ReportVerdict, StartBatch, StartReport,
};
use torc_model::plan::{Backoff, FailureHandler, Job, JobExtra, JobRest, Plan, Rule};
use torc_model::status::{Cause, JobStatus, Outcome, RunnerKind};

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).expect("a database");
    db.pragma_update(None, "journal_mode", "WAL").expect("WAL");
    db.pragma_update(None, "foreign_keys", true).expect("foreign keys");
    let fresh: bool = db
        .query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
        .expect("a schema table");
    if fresh {
        crate::boot::create_schema(&db).expect("the schema");
    }
    db
}

struct Fixture {
    store: Store,
    directory: tempfile::TempDir,
    id: WorkflowId,
    runner: RunnerId,
    claims: u32,
}

fn job(name: &str, depends_on: &[usize]) -> Job {
    Job {
        name: name.into(),
        command: "true".into(),
        cancel_on_blocking_job_failure: true,
        rest: JobRest { depends_on: depends_on.to_vec(), ..JobRest::default() }.into(),
        ..Job::default()
    }
}

impl Fixture {
    async fn new(plan: Plan) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(open(&directory.path().join("torc.db"))).expect("a store");
        let request = Creation {
            maker: None,
            spec: json!({}).into(),
            user: None,
            initialize: true,
            force: false,
            key: None,
            directory: None,
            spec_path: None,
        };
        let created = store
            .writer
            .call(move |tx| create::create(tx, &request, plan, &[], Vec::new()))
            .await
            .expect("created");
        let mut fixture = Self { store, directory, id: created.id, runner: RunnerId(0), claims: 0 };
        fixture.register("r1").await;
        fixture
    }

    async fn register(&mut self, key: &str) {
        self.register_labelled(key, None).await;
    }

    async fn register_labelled(&mut self, key: &str, label: Option<&str>) {
        let request = RegisterRunner {
            workflow_id: self.id,
            key: key.into(),
            hostname: "here".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start: 1,
            capacity: capacity(),
            time_left_seconds: None,
            kind: RunnerKind::Local,
            scheduler: None,
            label: label.map(Into::into),
            output_dir: "/output".into(),
            force: false,
            pool_runner_id: None,
        };
        self.runner = self.store.register_runner(request).await.expect("registered").id;
    }

    /// A new server on the same file.
    fn restart(&mut self) {
        self.store = Store::open(open(&self.directory.path().join("torc.db"))).expect("a store");
    }

    /// A claim that does not wait.
    fn request(&self, key: &str, completed: Vec<CompletionReport>) -> ClaimRequest {
        ClaimRequest {
            runner_id: self.runner,
            key: key.into(),
            limit: 10,
            capacity: capacity(),
            time_left_seconds: None,
            prefetch: 0,
            wait_seconds: 0.0,
            started: Vec::new(),
            completed,
            strict_scheduler_match: false,
            is_alone: None,
        }
    }

    async fn claim_with(&mut self, key: &str, completed: Vec<CompletionReport>) -> ClaimResponse {
        self.store.claim(self.id, self.request(key, completed)).await.expect("claimed")
    }

    async fn claim(&mut self, completed: Vec<CompletionReport>) -> ClaimResponse {
        self.claims += 1;
        let key = format!("k{}", self.claims);
        self.claim_with(&key, completed).await
    }

    async fn statuses(&self) -> Vec<(String, i64, i64)> {
        self.store
            .writer
            .call(|tx| {
                let mut statement =
                    tx.db.prepare("SELECT name, status, attempt_id FROM job ORDER BY id")?;
                let rows =
                    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            })
            .await
            .expect("statuses")
    }

    async fn scalar(&self, sql: &'static str) -> i64 {
        self.store
            .writer
            .call(move |tx| Ok(tx.db.query_row(sql, [], |row| row.get(0))?))
            .await
            .expect("a number")
    }
}

fn capacity() -> Capacity {
    Capacity {
        num_cpus: 4,
        memory_bytes: 8 << 30,
        num_gpus: 0,
        num_nodes: 1,
        max_parallel_jobs: None,
        ignore_resources: false,
        spreads: false,
    }
}

fn ended(packet: &torc_model::api::AttemptPacket, code: i64) -> CompletionReport {
    CompletionReport {
        attempt: AttemptRef { id: packet.id, token: packet.token.clone() },
        return_code: code,
        signal: None,
        cause: (code != 0).then_some(Cause::Exit),
        detail: None,
        error: None,
        evidence: Vec::new(),
        started_ms: 1,
        ended_ms: 2,
        exec_seconds: 0.5,
        cpu_seconds: None,
        peak_memory_bytes: None,
        avg_memory_bytes: None,
        peak_cpu_percent: None,
        avg_cpu_percent: None,
        stdout_path: None,
        stderr_path: None,
        stderr_tail: None,
        stderr_tail_start: None,
        observed: None,
        script: None,
        steps: None,
    }
}

fn diamond() -> Plan {
    Plan {
        name: "diamond".into(),
        jobs: vec![job("a", &[]), job("b", &[0]), job("c", &[0]), job("d", &[1, 2])],
        ..Plan::default()
    }
}

#[tokio::test]
async fn a_diamond_runs_to_its_end_over_restarts() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    assert_eq!(first.attempts.len(), 1);
    f.restart();
    let second = f.claim(vec![ended(&first.attempts[0], 0)]).await;
    assert_eq!(second.attempts.iter().map(|a| a.job_name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    f.restart();
    let third = f.claim(vec![ended(&second.attempts[0], 0), ended(&second.attempts[1], 0)]).await;
    assert_eq!(third.attempts[0].job_name, "d");
    let last = f.claim(vec![ended(&third.attempts[0], 0)]).await;
    assert!(last.workflow_complete && last.attempts.is_empty());
    assert!(f.statuses().await.iter().all(|(_, status, attempt)| *status == 5 && *attempt == 1));
    assert_eq!(f.scalar("SELECT is_complete FROM workflow").await, 1);
    assert_eq!(f.scalar("SELECT count(*) FROM attempt WHERE state = 'completed'").await, 4);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'workflow_completed'").await, 1);
}

#[tokio::test]
async fn a_lost_answer_and_its_repeat_change_nothing_twice() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim_with("same", vec![]).await;
    let again = f.claim_with("same", vec![]).await;
    assert_eq!(first.attempts, again.attempts);
    let report = ended(&first.attempts[0], 0);
    let done = f.claim(vec![report.clone()]).await;
    assert_eq!(done.completed[0].result, ReportVerdict::Accepted);
    f.restart();
    let repeat = f.claim(vec![report]).await;
    assert_eq!(repeat.completed[0].result, ReportVerdict::Repeated);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'job_completed'").await, 1);
}

#[tokio::test]
async fn a_wrong_token_is_late_and_changes_nothing() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    let mut report = ended(&first.attempts[0], 0);
    report.attempt.token = "stale".into();
    let answer = f.claim(vec![report]).await;
    assert_eq!(answer.completed[0].result, ReportVerdict::Late);
    assert_eq!(f.statuses().await[0].1, 3);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'late_result'").await, 1);
}

#[tokio::test]
async fn a_rule_gives_retries_that_survive_restarts() {
    let rule =
        Rule { exit_codes: vec![10], recovery_script: Some("fix".into()), ..Rule::default() };
    let handler = FailureHandler { name: "h".into(), rules: vec![rule] };
    let flaky = Job { failure_handler: Some(0), ..job("flaky", &[]) };
    let plan = Plan {
        failure_handlers: vec![handler],
        jobs: vec![flaky, job("after", &[0])],
        ..Plan::default()
    };
    let mut f = Fixture::new(plan).await;
    let mut work = f.claim(vec![]).await.attempts;
    for attempt in 1..3 {
        assert_eq!(work[0].attempt_id, attempt);
        f.restart();
        let answer = f.claim(vec![ended(&work[0], 10)]).await;
        assert_eq!(answer.completed[0].outcome, Some(Outcome::Retried));
        let script = answer.attempts[0].recovery.clone().expect("a script");
        assert_eq!((script.failed_attempt_id, script.return_code), (attempt, 10));
        work = answer.attempts;
    }
    let answer = f.claim(vec![ended(&work[0], 10)]).await;
    assert_eq!(answer.completed[0].outcome, Some(Outcome::MaxRetriesExceeded));
    assert_eq!(f.statuses().await, [("flaky".into(), 6, 3), ("after".into(), 7, 1)]);
    assert_eq!(f.scalar("SELECT count(*) FROM attempt WHERE retry_of IS NOT NULL").await, 2);
}

/// What the writer tells of a workflow and what its rows say are the same at every step.
#[tokio::test]
async fn progress_is_what_the_rows_say() {
    let mut f = Fixture::new(diamond()).await;
    let reader = read::Reader::open(&f.directory.path().join("torc.db")).expect("a reader");
    let (id, now) = (f.id, crate::clock::now_ms());
    let same = async |f: &Fixture, step: &str| {
        let known = f.store.progress(id);
        let counts = known.map(|(progress, _)| progress.listed());
        assert!(known.is_some(), "{step}: the workflow is in memory");
        let told = reader.workflow_status(id, now, known).await.expect("a status");
        let rows = reader.workflow_status(id, now, None).await.expect("a status");
        assert_eq!(told, rows, "{step}");
        assert_eq!(
            reader.is_complete(id, known).await.unwrap(),
            reader.is_complete(id, None).await.unwrap(),
            "{step}"
        );
        for status in [
            vec![],
            vec![JobStatus::Pending, JobStatus::Running],
            vec![JobStatus::Failed],
            vec![JobStatus::Ready],
        ] {
            let filter = read::JobFilter { workflow_id: Some(id.0), status, ..Default::default() };
            let told =
                reader.list_jobs(filter.clone(), Default::default(), counts).await.expect("jobs");
            let rows = reader.list_jobs(filter, Default::default(), None).await.expect("jobs");
            assert_eq!(
                (told.items.len() as i64, told.total_count, told.has_more),
                (rows.total_count, rows.total_count, false)
            );
        }
        for text in ["status:failed,canceled", "-status:completed", "status:ready status:failed"] {
            let matching = torc_model::filter::Filter::parse(text).expect("a filter");
            let filter =
                read::JobFilter { workflow_id: Some(id.0), matching, ..Default::default() };
            let told =
                reader.list_jobs(filter.clone(), Default::default(), counts).await.expect("jobs");
            let rows = reader.list_jobs(filter, Default::default(), None).await.expect("jobs");
            assert_eq!(told, rows, "{step}: {text}");
        }
        told
    };
    same(&f, "created").await;
    let first = f.claim(vec![]).await;
    same(&f, "claimed").await;
    let second = f.claim(vec![ended(&first.attempts[0], 0)]).await;
    assert!(same(&f, "ended").await.last_end_ms.is_some());
    let third = f.claim(vec![ended(&second.attempts[0], 1), ended(&second.attempts[1], 0)]).await;
    assert!(third.workflow_complete);
    assert!(same(&f, "failed").await.is_complete);
    let update = UpdateWorkflow { name: Some("renamed".into()), ..Default::default() };
    f.store.update_workflow(id, update).await.expect("renamed");
    assert_eq!(same(&f, "renamed").await.name, "renamed");
    f.store.reset_status(id, ResetRequest::default()).await.expect("reset");
    same(&f, "reset").await;
    f.store.initialize(id, true).await.expect("initialized");
    same(&f, "initialized").await;
    f.store.cancel_workflow(id).await.expect("canceled");
    assert!(same(&f, "canceled").await.is_canceled);
    let goodbye = Goodbye { reason: "done".into(), cause: None };
    f.store.goodbye(f.runner, goodbye).await.expect("gone");
    assert_eq!(same(&f, "gone").await.active_runners, 0);
}

#[tokio::test]
async fn a_waiting_claim_wakes_when_work_comes() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    let store = f.store.clone();
    let waiting = ClaimRequest { wait_seconds: 30.0, ..f.request("listen", vec![]) };
    let id = f.id;
    let listener = tokio::spawn(async move { store.claim(id, waiting).await });
    let batch = CompletionBatch { runner_id: f.runner, items: vec![ended(&first.attempts[0], 0)] };
    f.store.complete(batch).await.expect("completed");
    let woken = tokio::time::timeout(Duration::from_secs(5), listener)
        .await
        .expect("in time")
        .expect("joined");
    assert_eq!(woken.expect("claimed").attempts.len(), 2);
}

#[tokio::test]
async fn a_start_is_reported_once() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    let attempt = AttemptRef { id: first.attempts[0].id, token: first.attempts[0].token.clone() };
    let batch =
        StartBatch { runner_id: f.runner, items: vec![StartReport { attempt, pid: 5, at_ms: 6 }] };
    for _ in 0..2 {
        let answer = f.store.start(batch.clone()).await.expect("started");
        assert_eq!(answer.results[0].result, ReportVerdict::Accepted);
    }
    assert_eq!(f.statuses().await[0].1, 4);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'job_started'").await, 1);
}

#[tokio::test]
async fn a_start_and_an_end_in_one_breath_say_as_much_as_two() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    let attempt = AttemptRef { id: first.attempts[0].id, token: first.attempts[0].token.clone() };
    let stolen = AttemptRef { id: attempt.id, token: "another".into() };
    let request = ClaimRequest {
        runner_id: f.runner,
        key: "both".into(),
        limit: 0,
        capacity: capacity(),
        time_left_seconds: None,
        prefetch: 0,
        wait_seconds: 0.0,
        started: vec![StartReport { attempt: attempt.clone(), pid: 55, at_ms: 6 }],
        completed: vec![CompletionReport { attempt: stolen, ..ended(&first.attempts[0], 0) }],
        strict_scheduler_match: false,
        is_alone: None,
    };
    // An end that is not accepted takes the start not with it.
    let answer = f.store.claim(f.id, request.clone()).await.expect("answered");
    assert_eq!(
        (answer.started[0].result, answer.completed[0].result),
        (ReportVerdict::Accepted, ReportVerdict::Late)
    );
    assert_eq!(f.scalar("SELECT pid FROM attempt WHERE state = 'running'").await, 55);
    assert_eq!(f.statuses().await[0].1, 4);

    let done = ClaimRequest {
        started: Vec::new(),
        completed: vec![ended(&first.attempts[0], 0)],
        limit: 10,
        ..request
    };
    let next = f.store.claim(f.id, done.clone()).await.expect("answered").attempts;
    let attempt = AttemptRef { id: next[0].id, token: next[0].token.clone() };
    let both = ClaimRequest {
        key: "both again".into(),
        started: vec![StartReport { attempt, pid: 66, at_ms: 7 }],
        completed: vec![ended(&next[0], 0)],
        ..done
    };
    let answer = f.store.claim(f.id, both).await.expect("answered");
    assert_eq!(answer.completed[0].job_status, Some(JobStatus::Completed));
    assert_eq!(
        f.scalar("SELECT pid FROM attempt WHERE state = 'completed' AND started_ms IS NOT NULL AND id > 1").await,
        66
    );
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'job_started'").await, 2);
    f.restart();
    assert_eq!(f.statuses().await.iter().map(|s| s.1).collect::<Vec<_>>(), [5, 5, 3, 1]);
}

#[tokio::test]
async fn a_runner_that_gives_back_what_it_was_stopped_in_gets_nothing_more() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    let request =
        |key: &str, limit: i64, wait_seconds: f64, completed: Vec<CompletionReport>| ClaimRequest {
            runner_id: f.runner,
            key: key.into(),
            limit,
            capacity: capacity(),
            time_left_seconds: None,
            prefetch: 0,
            wait_seconds,
            started: Vec::new(),
            completed,
            strict_scheduler_match: false,
            is_alone: None,
        };
    let stopped =
        CompletionReport { cause: Some(Cause::Stopped), ..ended(&first.attempts[0], 143) };
    f.store.claim(f.id, request("last", 0, 0.0, vec![stopped])).await.expect("answered");
    assert_eq!(f.statuses().await[0], ("a".into(), 2, 2), "it is ready again");
    let listener =
        f.store.claim(f.id, request("listener", 10, 0.01, vec![])).await.expect("answered");
    assert!(listener.attempts.is_empty(), "{listener:?}");
    let other =
        f.store.claim(f.id, request("changed its mind", 10, 0.0, vec![])).await.expect("answered");
    assert_eq!(other.attempts.len(), 1);
}

#[tokio::test]
async fn goodbye_gives_back_what_was_held() {
    let mut f = Fixture::new(diamond()).await;
    f.claim(vec![]).await;
    f.store.goodbye(f.runner, Goodbye { reason: "done".into(), cause: None }).await.expect("left");
    assert_eq!(f.statuses().await[0], ("a".into(), 2, 2));
    let free = "SELECT count(*) FROM attempt WHERE state = 'terminated' AND cause = 'stopped'";
    assert_eq!(f.scalar(free).await, 1, "it never started: no loss");
    f.register("r2").await;
    let second = f.claim(vec![]).await;
    assert_eq!(second.attempts[0].attempt_id, 2);
    let attempt = AttemptRef { id: second.attempts[0].id, token: second.attempts[0].token.clone() };
    let batch =
        StartBatch { runner_id: f.runner, items: vec![StartReport { attempt, pid: 5, at_ms: 6 }] };
    f.store.start(batch).await.expect("started");
    f.store.goodbye(f.runner, Goodbye { reason: "done".into(), cause: None }).await.expect("left");
    assert_eq!(
        f.scalar("SELECT return_code FROM attempt WHERE state = 'failed' AND cause = 'lost'").await,
        -128
    );
    assert_eq!(f.statuses().await[0], ("a".into(), 2, 3));
}

#[tokio::test]
async fn reset_starts_the_next_run_at_attempt_one() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    f.claim(vec![ended(&first.attempts[0], 1)]).await;
    assert_eq!(f.statuses().await.iter().map(|s| s.1).collect::<Vec<_>>(), [6, 7, 7, 7]);
    let dry = ResetRequest { failed_only: true, dry_run: true, ..ResetRequest::default() };
    let plan = f.store.reset_status(f.id, dry.clone()).await.expect("planned");
    assert_eq!(plan.jobs.len(), 4);
    assert_eq!(f.statuses().await[0].1, 6, "a dry run changes nothing");
    f.store.reset_status(f.id, ResetRequest { dry_run: false, ..dry }).await.expect("reset");
    f.store.initialize(f.id, false).await.expect("initialized");
    f.restart();
    let work = f.claim(vec![]).await;
    assert_eq!((work.attempts[0].run_id, work.attempts[0].attempt_id), (2, 1));
}

#[tokio::test]
async fn the_database_forbids_what_the_engine_would_never_do() {
    let mut f = Fixture::new(diamond()).await;
    let first = f.claim(vec![]).await;
    f.claim(vec![ended(&first.attempts[0], 0)]).await;
    let forbidden = [
        "UPDATE attempt SET return_code = 1 WHERE state = 'completed'",
        "UPDATE attempt SET state = 'queued' WHERE state = 'claimed'",
        "INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms)
         SELECT 9999, workflow_id, job_id, run_id, 77, 'queued', 'manual', 0 FROM attempt WHERE state = 'claimed' LIMIT 1",
        "UPDATE job SET status = 11",
    ];
    for sql in forbidden {
        let outcome = f.store.writer.call(move |tx| Ok(tx.db.execute(sql, [])?)).await;
        assert!(outcome.is_err(), "{sql}");
    }
    // The failed statements took nothing with them.
    assert_eq!(f.claim(vec![]).await.attempts.len(), 0);
    assert_eq!(f.statuses().await[0].1, 5);
}

#[tokio::test]
async fn a_hundred_thousand_jobs_are_created_in_seconds() {
    let jobs = (0..100_000)
        .map(|i| job(&format!("j{i}"), if i > 1 { &[0, 1][..] } else { &[] }))
        .collect();
    let started = Instant::now();
    let f = Fixture::new(Plan { name: "wide".into(), jobs, ..Plan::default() }).await;
    println!("created 100,000 jobs with 200,000 edges in {:?}", started.elapsed());
    assert_eq!(f.scalar("SELECT count(*) FROM job WHERE status = 1").await, 99_998);
}

/// SQLite looks up lists and remembers rows in tables that it builds for each statement. What is
/// done for every job must do without.
#[tokio::test]
async fn moving_a_job_along_builds_no_tables() {
    let f = Fixture::new(Plan { jobs: vec![job("a", &[])], ..Plan::default() }).await;
    let columns: Vec<String> = f
        .store
        .writer
        .call(|tx| {
            let mut names = tx.db.prepare(
                "SELECT name || ' = ' || name FROM pragma_table_info('attempt') WHERE pk = 0",
            )?;
            Ok(names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
        .await
        .expect("columns");
    for sql in [
        format!("UPDATE attempt SET {} WHERE id = ?1", columns.join(", ")),
        "UPDATE job SET status = ?2, status_reason = ?3, attempt_id = ?4 WHERE id = ?1".into(),
        "INSERT INTO event (workflow_id, id, timestamp_ms, kind, job_id, data) VALUES (?1, ?2, ?3, 'k', ?4, ?5)".into(),
    ] {
        let explain = format!("EXPLAIN {sql}");
        let steps: Vec<String> = f
            .store
            .writer
            .call(move |tx| {
                let mut steps = tx.db.prepare(&explain)?;
                let none = vec![rusqlite::types::Null; steps.parameter_count()];
                let steps = steps.query_map(rusqlite::params_from_iter(none), |row| row.get(1))?;
                Ok(steps.collect::<Result<_, _>>()?)
            })
            .await
            .expect("steps");
        assert!(steps.len() > 10 && !steps.contains(&"OpenEphemeral".to_owned()), "{sql}: {steps:?}");
    }
}

#[tokio::test]
async fn numbers_of_events_are_not_used_again() {
    let mut f = Fixture::new(Plan { jobs: vec![job("a", &[])], ..Plan::default() }).await;
    let last = f.scalar("SELECT max(id) FROM event").await;
    f.store.delete_workflow(f.id, true).await.expect("deleted");
    assert_eq!(f.scalar("SELECT count(*) FROM event").await, 0);
    f.restart();
    let plan = Plan { jobs: vec![job("a", &[])], ..Plan::default() };
    let request = Creation {
        maker: None,
        spec: json!({}).into(),
        user: None,
        initialize: true,
        force: false,
        key: None,
        directory: None,
        spec_path: None,
    };
    f.store
        .writer
        .call(move |tx| create::create(tx, &request, plan, &[], Vec::new()))
        .await
        .expect("created");
    assert_eq!(f.scalar("SELECT min(id) FROM event").await, last + 1);
}

#[tokio::test]
async fn who_is_alone_does_small_work_itself() {
    let f = Fixture::new(diamond()).await;
    let here = std::thread::current().id();
    let thread = |_: &mut writer::Tx<'_>| Ok(std::thread::current().id());
    f.store.writer.hold_for_quick(false);
    assert_ne!(f.store.writer.call_routine(thread).await.expect("done"), here, "the disk is slow");
    // The thread may still be busy with what comes after an answer.
    let mut is_done_here = false;
    for _ in 0..1000 {
        f.store.writer.hold_for_quick(true);
        is_done_here |= f.store.writer.call_routine(thread).await.expect("done") == here;
    }
    assert!(is_done_here);
    f.store.writer.hold_for_quick(true);
    assert_ne!(f.store.writer.call(thread).await.expect("done"), here, "it may be large");
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let (slow, other) = (f.store.clone(), f.store.clone());
    let slow =
        tokio::spawn(async move { slow.writer.call(move |_| Ok(wait.recv().is_ok())).await });
    tokio::task::yield_now().await;
    f.store.writer.hold_for_quick(true);
    let other = tokio::spawn(async move { other.writer.call_routine(thread).await });
    tokio::task::yield_now().await;
    release.send(()).expect("a receiver waits");
    assert!(slow.await.expect("joined").expect("done"));
    assert_ne!(other.await.expect("joined").expect("done"), here, "it is not alone");
}

/// A caller that does its own work may plan something for a time at which the thread still sleeps.
#[tokio::test]
async fn a_delayed_retry_is_given_out_in_time() {
    let backoff = Backoff { delay_seconds: 0.2, factor: 1.0, max_seconds: None, jitter: 0.0 };
    let rule = Rule { exit_codes: vec![3], backoff: Some(backoff), ..Rule::default() };
    let handler = FailureHandler { name: "h".into(), rules: vec![rule] };
    let flaky = Job { failure_handler: Some(0), ..job("flaky", &[]) };
    let mut f = Fixture::new(Plan {
        failure_handlers: vec![handler],
        jobs: vec![flaky],
        ..Plan::default()
    })
    .await;
    let first = f.claim(vec![]).await;
    let request = ClaimRequest {
        wait_seconds: 30.0,
        ..f.request("again", vec![ended(&first.attempts[0], 3)])
    };
    f.store.writer.hold_for_quick(true);
    let claim = tokio::time::timeout(Duration::from_secs(10), f.store.claim(f.id, request));
    let answer = claim.await.expect("in time").expect("claimed");
    assert_eq!(answer.attempts.len(), 1, "{answer:?}");
}

/// `anywhere`, then `special` for a runner with a label, then `after` for any again.
fn labelled() -> Plan {
    let mut special = job("special", &[0]);
    special.extra = JobExtra { label: Some("gpu-box".into()), ..JobExtra::default() }.into();
    Plan {
        name: "labels".into(),
        jobs: vec![job("anywhere", &[]), special, job("after", &[1])],
        ..Plan::default()
    }
}

#[tokio::test]
async fn a_runner_has_nothing_to_come_when_only_other_labels_are_ready() {
    let mut f = Fixture::new(labelled()).await;
    let first = f.claim(vec![]).await;
    let rest = f.claim(vec![ended(&first.attempts[0], 0)]).await;
    assert!(rest.idle && rest.attempts.is_empty(), "no runner could take `special`");
    let why = f.store.explain(JobId(2)).await.expect("why");
    assert!(why.summary.contains("no runner can take it"), "{}", why.summary);
    assert_eq!(why.hints, [format!("`torc runner {} --label gpu-box` takes it", f.id)]);

    let plain = f.runner;
    f.register_labelled("r2", Some("gpu-box")).await;
    let boxed = std::mem::replace(&mut f.runner, plain);
    assert!(
        !f.claim(vec![]).await.idle,
        "a runner with the label is there and may set `after` free"
    );
    f.runner = boxed;
    let special = f.claim(vec![]).await;
    assert_eq!(special.attempts[0].job_name, "special");
    let waits = f.claim(vec![ended(&special.attempts[0], 0)]).await;
    assert!(!waits.idle && waits.attempts.is_empty(), "`after` is for the other one");
    f.runner = plain;
    assert_eq!(f.claim(vec![]).await.attempts[0].job_name, "after");
}

#[tokio::test]
async fn a_runner_with_a_label_waits_for_those_who_do_the_rest() {
    let mut f = Fixture::new(labelled()).await;
    let goodbye = Goodbye { reason: "done".into(), cause: None };
    f.store.goodbye(f.runner, goodbye).await.expect("goodbye");
    f.register_labelled("r2", Some("gpu-box")).await;
    let nothing = f.claim(vec![]).await;
    assert!(!nothing.idle && nothing.attempts.is_empty());
}
