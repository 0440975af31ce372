//! Recovery on seeded databases: every case twice, and the second time nothing may change.

use super::*;
use torc_model::api::RecoveryView;
use torc_model::status::RunnerKind;
use torc_model::words;

impl Fixture {
    async fn sql(&self, sql: &'static str) {
        self.store.writer.call(move |tx| Ok(tx.db.execute_batch(sql)?)).await.expect(sql);
    }

    /// A new server, and its recovery at boot.
    async fn reboot(&mut self) -> RecoveryView {
        self.restart();
        self.store.recover(Trigger::Boot).await.expect("recovered")
    }

    /// Every row of every table, as text.
    async fn dump(&self) -> String {
        self.store
            .writer
            .call(|tx| {
                let mut tables = tx
                    .db
                    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?;
                let names: Vec<String> =
                    tables.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
                let mut dump = String::new();
                for name in names {
                    let mut statement = tx.db.prepare(&format!("SELECT * FROM {name}"))?;
                    let columns = statement.column_count();
                    let mut rows = statement.query([])?;
                    while let Some(row) = rows.next()? {
                        for column in 0..columns {
                            dump += &format!("{:?} ", row.get_ref(column)?);
                        }
                        dump += &format!("-- {name}\n");
                    }
                }
                Ok(dump)
            })
            .await
            .expect("a dump")
    }

    /// Recovers again, in this server and in a new one: zeros, and not a byte changes.
    async fn settled(&mut self) {
        let before = self.dump().await;
        let nothing = RecoveryView::default();
        let asked = Trigger::Request { workflow: self.id, dry_run: false };
        assert_eq!(self.store.recover(asked).await.expect("recovered"), nothing);
        assert_eq!(self.store.recover(Trigger::Sweep).await.expect("recovered"), nothing);
        assert_eq!(self.reboot().await, nothing);
        assert_eq!(self.dump().await, before, "a second recovery changed the database");
        self.store
            .writer
            .call(|tx| {
                let ok: String = tx.db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
                assert_eq!(ok, "ok");
                let broken: i64 = tx.db.query_row(
                    "SELECT count(*) FROM pragma_foreign_key_check",
                    [],
                    |row| row.get(0),
                )?;
                assert_eq!(broken, 0);
                Ok(())
            })
            .await
            .expect("checks");
    }
}

fn flat(n: usize) -> Plan {
    Plan {
        name: "flat".into(),
        jobs: (1..=n).map(|i| job(&format!("j{i}"), &[])).collect(),
        ..Plan::default()
    }
}

const KILL_RUNNERS: &str =
    "UPDATE compute_node SET boot_id = 'an-earlier-boot', hostname = '%HOST%'";

/// The runner's row says that its host was started again since: evidence of death.
async fn runner_died(f: &Fixture) {
    let sql = KILL_RUNNERS.replace("%HOST%", &crate::boot::identity::hostname());
    f.store.writer.call(move |tx| Ok(tx.db.execute_batch(&sql)?)).await.expect("marked");
}

#[tokio::test]
async fn a_running_attempt_of_a_dead_runner_is_lost_and_retried_once() {
    let mut f = Fixture::new(flat(1)).await;
    f.claim(vec![]).await;
    runner_died(&f).await;
    let found = f.reboot().await;
    assert_eq!(
        (found.runners_ended, found.running_jobs_recovered, found.retries_created),
        (1, 1, 1)
    );
    assert_eq!(
        f.scalar("SELECT return_code FROM attempt WHERE state = 'failed' AND cause = 'lost'").await,
        -128
    );
    assert_eq!(f.scalar("SELECT count(*) FROM attempt WHERE ended_by = 'recovery'").await, 1);
    assert_eq!(
        f.scalar("SELECT count(*) FROM attempt WHERE state = 'queued' AND retry_of = 1").await,
        1
    );
    assert_eq!(f.statuses().await, [("j1".into(), 2, 2)]);
    f.settled().await;
}

#[tokio::test]
async fn a_running_job_without_an_attempt_gets_a_lost_one() {
    let mut f = Fixture::new(flat(2)).await;
    f.sql("DELETE FROM attempt; UPDATE job SET status = 4").await;
    let found = f.reboot().await;
    assert_eq!((found.running_jobs_recovered, found.retries_created), (2, 2));
    assert_eq!(
        f.scalar("SELECT count(*) FROM attempt WHERE state = 'failed' AND ended_by = 'recovery'")
            .await,
        2
    );
    assert_eq!(
        f.scalar("SELECT count(*) FROM attempt WHERE state = 'queued' AND retry_of IS NOT NULL")
            .await,
        2
    );
    f.settled().await;
}

#[tokio::test]
async fn a_running_job_whose_attempt_had_completed_is_completed() {
    let mut f = Fixture::new(diamond()).await;
    f.sql(
        "UPDATE attempt SET state = 'completed', ended_ms = 5, ended_by = 'runner', return_code = 0, token = 't', compute_node_id = 1;
         UPDATE job SET status = 4 WHERE id = 1",
    )
    .await;
    let found = f.reboot().await;
    assert_eq!(
        (found.jobs_repaired, found.retries_created > 0),
        (1, true),
        "its dependents were released"
    );
    assert_eq!(f.statuses().await.iter().map(|s| s.1).collect::<Vec<_>>(), [5, 2, 2, 1]);
    assert_eq!(
        f.scalar("SELECT count(*) FROM attempt WHERE job_id = 1").await,
        1,
        "no retry of a success"
    );
    f.settled().await;
}

#[tokio::test]
async fn a_failure_without_a_decision_is_decided_by_the_jobs_own_rules() {
    for (max_retries, expected_status, expected_retries) in [(3, 2, 1), (1, 6, 0)] {
        let rule = Rule { match_all_exit_codes: true, max_retries, ..Rule::default() };
        let handler = FailureHandler { name: "h".into(), rules: vec![rule] };
        let flaky = Job { failure_handler: Some(0), ..job("flaky", &[]) };
        let mut f = Fixture::new(Plan {
            failure_handlers: vec![handler],
            jobs: vec![flaky],
            ..Plan::default()
        })
        .await;
        f.sql(
            "UPDATE attempt SET state = 'failed', ended_ms = 5, ended_by = 'runner', return_code = 9, cause = 'exit', token = 't', compute_node_id = 1;
             UPDATE job SET status = 6",
        )
        .await;
        assert_eq!(f.reboot().await.retries_created, expected_retries);
        assert_eq!(f.statuses().await[0].1, expected_status);
        let before = f.dump().await;
        assert_eq!(f.reboot().await.retries_created, 0);
        assert_eq!(f.dump().await, before);
    }
}

#[tokio::test]
async fn recovered_jobs_keep_their_place_in_the_queue() {
    // Job1 and Job2 run, Job3 to Job5 wait: after the crash the order is Job1, Job2, Job3, Job4,
    // Job5.
    let mut f = Fixture::new(flat(5)).await;
    let two = ClaimRequest {
        runner_id: f.runner,
        key: "two".into(),
        limit: 2,
        capacity: capacity(),
        time_left_seconds: None,
        prefetch: 0,
        wait_seconds: 0.0,
        started: Vec::new(),
        completed: Vec::new(),
        strict_scheduler_match: false,
        is_alone: None,
    };
    f.store.claim(f.id, two).await.expect("claimed");
    runner_died(&f).await;
    assert_eq!(f.reboot().await.retries_created, 2);
    f.settled().await;
    f.register("r2").await;
    let mut order = Vec::new();
    let mut done = Vec::new();
    loop {
        let answer = f.claim(std::mem::take(&mut done)).await;
        if answer.attempts.is_empty() {
            break;
        }
        order.extend(answer.attempts.iter().map(|a| (a.job_name.clone(), a.attempt_id)));
        done.extend(answer.attempts.iter().map(|a| ended(a, 0)));
    }
    let expected = [("j1", 2), ("j2", 2), ("j3", 1), ("j4", 1), ("j5", 1)];
    assert_eq!(order, expected.map(|(name, attempt)| (name.to_owned(), attempt)));
}

#[tokio::test]
async fn losses_are_bounded_by_their_own_budget() {
    let mut f = Fixture::new(flat(1)).await;
    for loss in 1..=4 {
        f.claim(vec![]).await;
        runner_died(&f).await;
        let found = f.reboot().await;
        assert_eq!(found.retries_created, i64::from(loss <= 3), "loss {loss}");
        f.register(&format!("again{loss}")).await;
    }
    assert_eq!(f.statuses().await, [("j1".into(), 6, 4)]);
    f.settled().await;
}

#[tokio::test]
async fn a_runner_that_may_live_keeps_its_attempt() {
    let mut f = Fixture::new(flat(1)).await;
    let claimed = f.claim(vec![]).await;
    f.sql("UPDATE compute_node SET hostname = 'far-away', last_seen_ms = 0").await;
    let found = f.reboot().await;
    assert_eq!((found.runners_ended, found.running_jobs_recovered), (0, 0));
    let answer = f.claim(vec![ended(&claimed.attempts[0], 0)]).await;
    assert_eq!(
        answer.completed[0].result,
        ReportVerdict::Accepted,
        "a server restart is invisible to its jobs"
    );
}

#[tokio::test]
async fn a_dry_run_tells_and_changes_nothing() {
    let mut f = Fixture::new(flat(2)).await;
    f.sql("DELETE FROM attempt WHERE job_id = 1; UPDATE job SET status = 4 WHERE id = 1").await;
    f.restart();
    let before = f.dump().await;
    let swept = f.store.recover(Trigger::Sweep).await.expect("swept");
    assert_eq!(swept, RecoveryView::default(), "a sweep does not go through the jobs");
    let found =
        f.store.recover(Trigger::Request { workflow: f.id, dry_run: true }).await.expect("looked");
    assert_eq!((found.dry_run, found.jobs_repaired), (true, 1));
    assert_eq!(f.dump().await, before);
    f.reboot().await;
    f.settled().await;
}

#[tokio::test]
async fn canceled_and_waiting_jobs_are_never_retried() {
    let mut f = Fixture::new(flat(2)).await;
    f.claim(vec![]).await;
    f.store.cancel_workflow(f.id).await.expect("canceled");
    runner_died(&f).await;
    assert_eq!(f.reboot().await.retries_created, 0);
    assert_eq!(f.statuses().await.iter().map(|s| s.1).collect::<Vec<_>>(), [7, 7]);
    f.settled().await;
}

fn reserve(scope: &str, ttl: i64) -> CreateReservation {
    CreateReservation { scope: scope.into(), reserved_by: "me".into(), ttl_seconds: Some(ttl) }
}

#[tokio::test]
async fn a_reservation_pauses_claims_and_ends_at_boot() {
    let mut f = Fixture::new(flat(2)).await;
    let held = f.store.create_reservation(reserve("all", 600)).await.expect("reserved");
    let second = f.store.create_reservation(reserve("all", 600)).await.expect_err("only one");
    assert_eq!(
        (second.status, words::has(&second.message, &format!("reservation {}", held.id))),
        (409, true)
    );
    let paused = f.claim(vec![]).await;
    assert!(
        paused.attempts.is_empty()
            && paused.reason.as_deref().is_some_and(|r| words::has(r, "paused"))
    );
    assert!(!paused.idle, "a paused runner waits");
    assert_eq!(f.reboot().await.reservations_expired, 1);
    let token = ReleaseReservation { token: held.token };
    assert_eq!(
        f.store.release_reservation(held.id, token).await.expect_err("it has ended").status,
        409
    );
    assert_eq!(f.claim(vec![]).await.attempts.len(), 2, "the queue was not touched");
    f.settled().await;
}

#[tokio::test]
async fn a_release_wakes_those_who_wait() {
    let f = Fixture::new(flat(1)).await;
    let held = f
        .store
        .create_reservation(reserve(&format!("workflow:{}", f.id), 600))
        .await
        .expect("reserved");
    let request = ClaimRequest {
        runner_id: f.runner,
        key: "wait".into(),
        limit: 1,
        capacity: capacity(),
        time_left_seconds: None,
        prefetch: 0,
        wait_seconds: 30.0,
        started: Vec::new(),
        completed: Vec::new(),
        strict_scheduler_match: false,
        is_alone: None,
    };
    let (store, id) = (f.store.clone(), f.id);
    let waiting = tokio::spawn(async move { store.claim(id, request).await });
    let token = ReleaseReservation { token: held.token };
    f.store.release_reservation(held.id, token).await.expect("released");
    let answer = tokio::time::timeout(Duration::from_secs(5), waiting)
        .await
        .expect("in time")
        .expect("joined");
    assert_eq!(answer.expect("claimed").attempts.len(), 1);
}

#[tokio::test]
async fn a_short_reservation_ends_by_itself() {
    let f = Fixture::new(flat(1)).await;
    f.store.create_reservation(reserve("all", 1)).await.expect("reserved");
    let request = ClaimRequest {
        runner_id: f.runner,
        key: "wait".into(),
        limit: 1,
        capacity: capacity(),
        time_left_seconds: None,
        prefetch: 0,
        wait_seconds: 30.0,
        started: Vec::new(),
        completed: Vec::new(),
        strict_scheduler_match: false,
        is_alone: None,
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), f.store.claim(f.id, request))
        .await
        .expect("in time");
    assert_eq!(answer.expect("claimed").attempts.len(), 1);
}

#[tokio::test]
async fn a_named_limit_holds_over_runners_and_restarts() {
    let mut plan = flat(3);
    for job in &mut plan.jobs {
        job.extra.uses = vec!["ollama".into()];
    }
    let mut f = Fixture::new(plan).await;
    f.store.set_limit("ollama".into(), 1).await.expect("set");
    let first = f.claim(vec![]).await;
    assert_eq!(first.attempts.len(), 1);
    f.restart();
    f.register("r2").await;
    assert_eq!(
        f.claim(vec![]).await.attempts.len(),
        0,
        "another runner, another server, the same limit"
    );
    assert_eq!(f.store.limits().await.expect("limits")[0].used, 1);
    let held = f.store.create_reservation(reserve("limit:ollama", 600)).await.expect("reserved");
    assert_eq!(held.still_running, Some(1));
}

#[tokio::test]
async fn what_a_dead_runner_had_finished_and_could_not_tell_is_no_loss() {
    let mut f = Fixture::new(flat(2)).await;
    let claimed = f.claim(vec![]).await;
    runner_died(&f).await;
    let output = f.directory.path().join("out");
    std::fs::create_dir_all(output.join(".torc_spool")).expect("a directory");
    let done = serde_json::to_string(&ended(&claimed.attempts[0], 0)).expect("a report");
    let mut foreign = ended(&claimed.attempts[1], 0);
    foreign.attempt.token = "not its token".into();
    let foreign = serde_json::to_string(&foreign).expect("a report");
    let text = format!("{{\"whose\": 1}}\n{done}\n{foreign}\n{{\"torn");
    let tag = crate::store::load::runner_tag(f.store.database_id(), torc_model::ids::RunnerId(1));
    let spool = output.join(".torc_spool").join(format!("{tag}.jsonl"));
    std::fs::write(spool, text).expect("a spool");
    let dir = output.display().to_string();
    f.store
        .writer
        .call(move |tx| Ok(tx.db.execute("UPDATE compute_node SET output_dir = ?1", [dir])?))
        .await
        .expect("it worked there");
    let found = f.reboot().await;
    assert_eq!((found.runners_ended, found.retries_created), (1, 1), "{found:?}");
    assert_eq!(f.statuses().await, [("j1".into(), 5, 1), ("j2".into(), 2, 2)]);
    f.settled().await;
}

#[tokio::test]
async fn a_jump_of_the_clock_ends_no_runner() {
    let mut f = Fixture::new(flat(1)).await;
    let claimed = f.claim(vec![]).await;
    // As rows look when the clock was set forward by years since: only how long this server waited
    // counts.
    f.sql("UPDATE compute_node SET hostname = 'far-away', last_seen_ms = 0, started_ms = 0").await;
    let found = f.store.recover(Trigger::Sweep).await.expect("looked");
    assert_eq!((found.runners_ended, found.runners_silent), (0, 0));
    let answer = f.claim(vec![ended(&claimed.attempts[0], 0)]).await;
    assert_eq!(answer.completed[0].result, ReportVerdict::Accepted);
}

#[tokio::test]
async fn a_key_belongs_to_one_workflow_and_repeats_do_not_add_up() {
    let mut f = Fixture::new(flat(1)).await;
    for _ in 0..5 {
        f.register("r1").await;
    }
    assert_eq!(f.scalar("SELECT count(*) FROM compute_node").await, 1);
    let id = f.id;
    f.sql("INSERT INTO workflow (name, user, settings, spec, created_ms) SELECT 'other', user, settings, spec, 1 FROM workflow").await;
    f.restart();
    f.id = WorkflowId(id.0 + 1);
    let request = RegisterRunner {
        workflow_id: f.id,
        key: "r1".into(),
        hostname: "here".into(),
        boot_id: "b".into(),
        pid: 1,
        pid_start: 1,
        capacity: capacity(),
        time_left_seconds: None,
        kind: RunnerKind::Local,
        scheduler: None,
        label: None,
        output_dir: "/output".into(),
        force: false,
        pool_runner_id: None,
    };
    assert_eq!(
        f.store.register_runner(request).await.expect_err("another workflow's").code,
        torc_model::api::ErrorCode::WrongWorkflow
    );
}
