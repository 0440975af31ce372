//! Verdicts: all or none, within limits, with a memory of what came of them.

use super::*;
use torc_model::api::{AttemptPacket, ErrorCode};
use torc_model::plan::{Requirements, Settings};
use torc_model::recovery::{Classification, ClassificationState, Verdict};
use torc_model::units::Memory;

const GIB: u64 = 1 << 30;

fn failed(packet: &AttemptPacket, stderr: &str) -> CompletionReport {
    CompletionReport { stderr_tail: Some(stderr.into()), ..ended(packet, 1) }
}

fn on(job: JobId, action: Verdict) -> Classification {
    Classification {
        job_id: Some(job),
        fingerprint: None,
        action,
        memory: None,
        runtime: None,
        reason: Some("because".into()),
        confidence: None,
        evidence: vec!["a line".into()],
    }
}

fn by_agent(classifications: Vec<Classification>) -> ClassifyRequest {
    ClassifyRequest {
        classifications,
        dry_run: false,
        by: Some("test".into()),
        agent: Some("robot".into()),
    }
}

/// `count` jobs that have all failed and wait, each with a child.
async fn waiting(count: usize, stderr: impl Fn(usize) -> String) -> (Fixture, Vec<JobId>) {
    let needs = Requirements {
        name: "small".into(),
        memory: Some(Memory(GIB)),
        num_cpus: 1,
        ..Requirements::default()
    };
    let mut jobs: Vec<Job> = (0..count)
        .map(|n| Job {
            resource_requirements: Some(0),
            command: "python fit.py".into(),
            ..job(&format!("j{n}"), &[])
        })
        .collect();
    jobs.extend((0..count).map(|n| job(&format!("after{n}"), &[n])));
    let plan = Plan {
        name: "w".into(),
        settings: Settings { use_pending_failed: true, ..Settings::default() },
        resource_requirements: vec![needs],
        jobs,
        ..Plan::default()
    };
    let mut f = Fixture::new(plan).await;
    let mut ids = Vec::new();
    while ids.len() < count {
        let work = f.claim(vec![]).await.attempts;
        assert!(!work.is_empty());
        let ends =
            work.iter().zip(ids.len()..).map(|(packet, n)| failed(packet, &stderr(n))).collect();
        ids.extend(work.iter().map(|packet| packet.job_id));
        let batch = CompletionBatch { runner_id: f.runner, items: ends };
        f.store.complete(batch).await.expect("reported");
    }
    (f, ids)
}

/// Runs what is ready once, each ending as `code` and `stderr` say.
async fn run_again(f: &mut Fixture, code: i64, stderr: &str) {
    let work = f.claim(vec![]).await.attempts;
    assert!(!work.is_empty());
    let ends = work.iter().map(|packet| match code {
        0 => ended(packet, 0),
        _ => failed(packet, stderr),
    });
    let batch = CompletionBatch { runner_id: f.runner, items: ends.collect() };
    f.store.complete(batch).await.expect("reported");
}

async fn outcomes(f: &Fixture) -> Vec<(String, String, Option<String>)> {
    f.store
        .writer
        .call(|tx| {
            let mut statement =
                tx.db.prepare("SELECT action, state, outcome FROM classification ORDER BY id")?;
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .await
        .expect("rows")
}

fn row(action: &str, state: &str, outcome: Option<&str>) -> (String, String, Option<String>) {
    (action.into(), state.into(), outcome.map(str::to_owned))
}

#[tokio::test]
async fn verdicts_are_taken_all_or_none() {
    let (f, ids) = waiting(2, |n| format!("ValueError: bad {n}\n")).await;
    let more = Classification { memory: Some(Memory(2 * GIB)), ..on(ids[0], Verdict::Retry) };
    for wrong in [
        on(JobId(ids[1].0 + 1), Verdict::Retry),
        on(JobId(99_999), Verdict::Fail),
        on(ids[0], Verdict::Fail),
        Classification { memory: Some(Memory(1)), ..on(ids[1], Verdict::Retry) },
        Classification { memory: Some(Memory(1 << 50)), ..on(ids[1], Verdict::Retry) },
        Classification { confidence: Some(2.0), ..on(ids[1], Verdict::Retry) },
        Classification { job_id: None, ..on(ids[1], Verdict::Retry) },
        Classification {
            job_id: None,
            fingerprint: Some("none".into()),
            ..on(ids[1], Verdict::Retry)
        },
    ] {
        let refused = f.store.classify(f.id, by_agent(vec![more.clone(), wrong.clone()])).await;
        assert_eq!(refused.expect_err("refused").code, ErrorCode::NotClassified, "{wrong:?}");
    }
    assert_eq!(f.statuses().await.iter().map(|s| s.1).collect::<Vec<_>>(), [10, 10, 1, 1]);
    assert_eq!(f.scalar("SELECT count(*) FROM classification").await, 0);
    let dry = ClassifyRequest {
        dry_run: true,
        ..by_agent(vec![more.clone(), on(ids[1], Verdict::Fail)])
    };
    let view = f.store.classify(f.id, dry).await.expect("told");
    assert_eq!(
        (view.jobs_to_retry, view.jobs_to_fail, view.jobs_canceled, view.still_pending),
        (1, 1, 1, 0)
    );
    assert_eq!(f.scalar("SELECT count(*) FROM classification").await, 0);
    let view = f
        .store
        .classify(f.id, by_agent(vec![more, on(ids[1], Verdict::Fail)]))
        .await
        .expect("taken");
    assert_eq!((view.jobs_to_retry, view.jobs_to_fail, view.jobs_canceled), (1, 1, 1));
    let now = f.statuses().await;
    assert_eq!(now[0], ("j0".into(), 2, 2));
    assert_eq!(now.iter().map(|s| s.1).collect::<Vec<_>>(), [2, 6, 1, 7]);
    assert_eq!(f.scalar("SELECT memory_bytes FROM job WHERE name = 'j0'").await, 2 * GIB as i64);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'job_classified'").await, 2);
}

#[tokio::test]
async fn a_workflow_must_have_opted_in() {
    let f = Fixture::new(diamond()).await;
    let refused = f.store.classify(f.id, by_agent(vec![on(JobId(1), Verdict::Retry)])).await;
    assert_eq!(refused.expect_err("refused").code, ErrorCode::NotOptedIn);
}

#[tokio::test]
async fn an_unsure_verdict_waits_for_a_person() {
    let (f, ids) = waiting(2, |n| format!("ValueError: bad {n}\n")).await;
    let hook = CreateWebhook {
        url: "https://example.org/hook".into(),
        secret: None,
        events: vec!["job.classification_held".into()],
        workflow_id: None,
        allow_private: false,
    };
    f.store.create_webhook(hook).await.expect("a webhook");
    let unsure = |job| Classification { confidence: Some(0.5), ..on(job, Verdict::Retry) };
    let view =
        f.store.classify(f.id, by_agent(vec![unsure(ids[0]), unsure(ids[1])])).await.expect("held");
    assert_eq!((view.jobs_held, view.jobs_to_retry, view.still_pending), (2, 0, 2));
    assert!(view.results.iter().all(|r| r.state == ClassificationState::Held && r.note.is_some()));
    assert_eq!(f.statuses().await[0].1, 10);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'classification_held'").await, 2);
    assert_eq!(
        f.scalar("SELECT count(*) FROM webhook_delivery WHERE payload LIKE '%\"final\":false%'")
            .await,
        2
    );
    f.store.accept_classification(1, Some("me".into())).await.expect("accepted");
    f.store.reject_classification(2, Some("me".into())).await.expect("rejected");
    assert_eq!(f.statuses().await.iter().take(2).map(|s| s.1).collect::<Vec<_>>(), [2, 10]);
    assert_eq!(
        f.store.accept_classification(2, None).await.expect_err("done").code,
        ErrorCode::WrongStatus
    );
    // A person's own word overtakes what is held.
    f.store.classify(f.id, by_agent(vec![unsure(ids[1])])).await.expect("held");
    let update =
        UpdateJob { status: Some(torc_model::status::JobStatus::Failed), ..UpdateJob::default() };
    f.store.update_job(ids[1], update).await.expect("classified by hand");
    let states: Vec<String> = outcomes(&f).await.into_iter().map(|(_, state, _)| state).collect();
    assert_eq!(states, ["applied", "rejected", "superseded", "applied"]);
}

#[tokio::test]
async fn like_failures_are_one_group_and_one_verdict_serves_them_all() {
    let (f, _) =
        waiting(30, |n| format!("noise {n}\nOSError: host node{n} gave up after {n} s\n")).await;
    let groups = "SELECT count(DISTINCT fingerprint) FROM failure";
    assert_eq!(f.scalar(groups).await, 1);
    let print: String = f
        .store
        .writer
        .call(|tx| {
            Ok(tx.db.query_row("SELECT fingerprint FROM failure LIMIT 1", [], |row| row.get(0))?)
        })
        .await
        .expect("a fingerprint");
    let all =
        Classification { job_id: None, fingerprint: Some(print), ..on(JobId(0), Verdict::Retry) };
    let view = f.store.classify(f.id, by_agent(vec![all])).await.expect("taken");
    assert_eq!((view.total_classifications, view.jobs_to_retry), (30, 30));
}

#[tokio::test]
async fn what_failed_twice_the_same_way_is_permanent_and_outcomes_are_remembered_over_restarts() {
    let (mut f, ids) = waiting(1, |_| "StoreError: refused by store1\n".into()).await;
    f.store.classify(f.id, by_agent(vec![on(ids[0], Verdict::Retry)])).await.expect("taken");
    f.restart();
    run_again(&mut f, 1, "StoreError: refused by store22\n").await;
    assert_eq!(outcomes(&f).await, [row("retry", "applied", Some("failed_same"))]);
    let sure = Classification { confidence: Some(1.0), ..on(ids[0], Verdict::Retry) };
    let view = f.store.classify(f.id, by_agent(vec![sure])).await.expect("taken");
    assert_eq!(view.results[0].action, Verdict::Fail);
    assert!(
        view.results[0].note.as_ref().is_some_and(|note| note.contains("permanent")),
        "{view:?}"
    );
    assert_eq!(f.statuses().await.iter().map(|s| s.1).collect::<Vec<_>>(), [6, 7]);
    assert_eq!(f.scalar("SELECT failed_same FROM failure_memory").await, 1);
}

#[tokio::test]
async fn a_strong_record_decides_without_asking() {
    let (mut f, ids) = waiting(6, |n| format!("StoreError: refused by store{n}\n")).await;
    let none = f.store.classify_from_memory(f.id, false).await.expect("nothing known");
    assert_eq!(none.total_classifications, 0);
    let five = ids[..5].iter().map(|job| on(*job, Verdict::Retry)).collect();
    f.store.classify(f.id, by_agent(five)).await.expect("taken");
    while f.scalar("SELECT count(*) FROM job WHERE status = 2").await > 0 {
        run_again(&mut f, 0, "").await;
    }
    assert_eq!(f.scalar("SELECT succeeded FROM failure_memory WHERE action = 'again'").await, 5);
    let dry = f.store.classify_from_memory(f.id, true).await.expect("told");
    assert_eq!(
        (dry.jobs_to_retry, f.scalar("SELECT count(*) FROM job WHERE status = 10").await),
        (1, 1)
    );
    let view = f.store.classify_from_memory(f.id, false).await.expect("decided");
    assert_eq!((view.jobs_to_retry, view.results[0].job_id), (1, ids[5]));
    assert_eq!(
        f.scalar(
            "SELECT count(*) FROM classification WHERE agent = 'memory' AND reason LIKE '5 of 5%'"
        )
        .await,
        1
    );
}

#[tokio::test]
async fn what_is_known_is_decided_without_a_record_and_what_is_not_waits() {
    let texts = ["KeyError: 'x'\n", "ConnectionError: refused by store1\n", "LedgerError: odd\n"];
    let (f, ids) = waiting(3, |n| texts[n].into()).await;
    let dry = RecoverRequest { dry_run: true, ..RecoverRequest::default() };
    let cards = f.store.recover_failed(f.id, dry).await.expect("cards").jobs;
    let view = f.store.classify_from_memory(f.id, false).await.expect("decided");
    let mut said: Vec<_> = view.results.iter().map(|r| (r.job_id, r.action)).collect();
    said.sort_by_key(|(job, _)| *job);
    assert_eq!(said, [(ids[0], Verdict::Fail), (ids[1], Verdict::Retry)], "{view:?}");
    assert_eq!(view.still_pending, 1);
    for (job, action) in said {
        let card = cards.iter().find(|card| card.job_id == job).expect("a card");
        assert_eq!(card.action.is_retry(), action == Verdict::Retry, "{card:?}");
    }
}

#[tokio::test]
async fn outcomes_of_long_ago_are_shown_and_decide_nothing() {
    let (mut f, ids) = waiting(6, |n| format!("StoreError: refused by store{n}\n")).await;
    let five = ids[..5].iter().map(|job| on(*job, Verdict::Retry)).collect();
    f.store.classify(f.id, by_agent(five)).await.expect("taken");
    while f.scalar("SELECT count(*) FROM job WHERE status = 2").await > 0 {
        run_again(&mut f, 0, "").await;
    }
    let decided = async |f: &Fixture| {
        f.store.classify_from_memory(f.id, true).await.expect("told").jobs_to_retry
    };
    let age = async |f: &Fixture, days: i64| {
        let sql = "UPDATE failure_memory SET day = day - ?1";
        f.store.writer.call(move |tx| Ok(tx.db.execute(sql, [days])?)).await.expect("older");
    };
    assert_eq!(decided(&f).await, 1);
    age(&f, 180).await;
    assert_eq!(decided(&f).await, 1, "still of these days");
    age(&f, 2).await;
    assert_eq!(decided(&f).await, 0, "too long ago");
    let print = f
        .store
        .writer
        .call(|tx| Ok(super::super::waiting::waiting(tx.db, WorkflowId(1), None)?))
        .await;
    let print = print.expect("one that waits").remove(0).fingerprint;
    let record = f
        .store
        .writer
        .call(move |tx| Ok(super::super::waiting::record(tx.db, &print, tx.now)?))
        .await;
    let record = record.expect("a record");
    assert_eq!(
        (record.again.tries, record.older.succeeded, record.older.tries),
        (0, 5, 5),
        "but not forgotten"
    );
}

#[tokio::test]
async fn a_lost_retry_says_nothing_and_the_next_one_does() {
    let (mut f, ids) = waiting(1, |_| "OSError: x\n".into()).await;
    f.store.classify(f.id, by_agent(vec![on(ids[0], Verdict::Retry)])).await.expect("taken");
    let work = f.claim(vec![]).await.attempts;
    let lost = CompletionReport { cause: Some(Cause::Lost), ..ended(&work[0], -128) };
    let work = f.claim(vec![lost]).await.attempts;
    assert_eq!(outcomes(&f).await[0].2, None);
    f.restart();
    f.claim(vec![ended(&work[0], 0)]).await;
    assert_eq!(outcomes(&f).await, [row("retry", "applied", Some("succeeded"))]);
}
