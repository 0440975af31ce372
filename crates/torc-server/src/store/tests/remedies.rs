//! Recovery of what failed: the right jobs, the right changes, nothing else.

use super::*;
use torc_model::api::{AttemptPacket, ErrorCode, Evidence};
use torc_model::plan::{JobExtra, JobSettings, Requirements, Settings};
use torc_model::recovery::{Action, RecoverRequest};
use torc_model::status::{EvidenceSource, JobStatus};
use torc_model::units::{Memory, Runtime};

const GIB: u64 = 1 << 30;

fn needs(name: &str, memory: Option<u64>, runtime: Option<u64>) -> Requirements {
    Requirements {
        name: name.into(),
        memory: memory.map(Memory),
        runtime: runtime.map(Runtime),
        ..Requirements::default()
    }
}

fn oom(packet: &AttemptPacket) -> CompletionReport {
    CompletionReport {
        cause: Some(Cause::Oom),
        evidence: vec![Evidence {
            source: EvidenceSource::Kernel,
            text: "the kernel killed 1 of its processes".into(),
        }],
        peak_memory_bytes: packet.memory_bytes,
        ..ended(packet, 137)
    }
}

fn timeout(packet: &AttemptPacket) -> CompletionReport {
    CompletionReport { cause: Some(Cause::Timeout), ..ended(packet, 152) }
}

fn lost(packet: &AttemptPacket) -> CompletionReport {
    CompletionReport { cause: Some(Cause::Lost), ..ended(packet, -128) }
}

/// Settings under which `runtime` ends attempts.
fn enforcing() -> Settings {
    let mut settings = Settings::default();
    settings.execution.enforce_runtime = true;
    settings
}

/// One job per cause, three of them with a child.
fn mixed() -> Plan {
    let settings = JobSettings { max_lost_retries: Some(0), ..JobSettings::default() };
    let no_loss = JobExtra { settings, ..JobExtra::default() };
    let with = |name: &str, parents: &[usize], rr: usize| Job {
        resource_requirements: Some(rr),
        ..job(name, parents)
    };
    Plan {
        name: "mixed".into(),
        settings: enforcing(),
        resource_requirements: vec![
            needs("small", Some(GIB), Some(60)),
            needs("plain", None, None),
        ],
        jobs: vec![
            with("oom", &[], 0),
            with("slow", &[], 0),
            Job { extra: no_loss.into(), ..with("lost", &[], 1) },
            with("bug", &[], 1),
            with("fine", &[], 0),
            with("after_oom", &[0], 1),
            with("after_bug", &[3], 1),
            with("after_both", &[0, 3], 1),
        ],
        ..Plan::default()
    }
}

async fn fail_mixed() -> Fixture {
    let mut f = Fixture::new(mixed()).await;
    let work = f.claim(vec![]).await.attempts;
    let mut rest = work.clone();
    rest.extend(f.claim(work.iter().map(report).collect()).await.attempts);
    let late: Vec<_> = rest[work.len()..].to_vec();
    f.claim(late.iter().map(report).collect()).await;
    f
}

fn report(packet: &AttemptPacket) -> CompletionReport {
    match packet.job_name.as_str() {
        "oom" => oom(packet),
        "slow" => timeout(packet),
        "lost" => lost(packet),
        "bug" => {
            CompletionReport { stderr_tail: Some("KeyError: 'x'\n".into()), ..ended(packet, 1) }
        }
        _ => ended(packet, 0),
    }
}

fn status(f: &[(String, i64, i64)], name: &str) -> (i64, i64) {
    f.iter().find(|(n, _, _)| n == name).map(|(_, s, a)| (*s, *a)).expect("a job")
}

/// Everything that is on disk, as text.
async fn dump(f: &Fixture) -> String {
    f.store
        .writer
        .call(|tx| {
            let mut out = String::new();
            for table in [
                "workflow",
                "job",
                "attempt",
                "event",
                "adjustment",
                "recovery_round",
                "compute_node",
                "resource_requirements",
            ] {
                let mut statement = tx.db.prepare(&format!("SELECT * FROM {table} ORDER BY 1"))?;
                let columns = statement.column_count();
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    for column in 0..columns {
                        out += &format!("{:?}|", row.get_ref(column)?);
                    }
                    out.push('\n');
                }
            }
            Ok(out)
        })
        .await
        .expect("a dump")
}

#[tokio::test]
async fn only_what_can_be_repaired_runs_again_and_its_canceled_children_wait_again() {
    let mut f = fail_mixed().await;
    let before = f.statuses().await;
    assert_eq!(status(&before, "after_both"), (JobStatus::Canceled.code(), 1));
    let view = f.store.recover_failed(f.id, RecoverRequest::default()).await.expect("recovered");
    let actions: Vec<_> = view.jobs.iter().map(|j| (j.name.as_str(), j.action)).collect();
    assert_eq!(
        actions,
        [
            ("oom", Action::MoreMemory),
            ("slow", Action::MoreTime),
            ("lost", Action::Again),
            ("bug", Action::Skip)
        ]
    );
    assert_eq!(
        (view.oom_fixed, view.timeout_fixed, view.unknown_retried, view.other_failures),
        (1, 1, 0, 1)
    );
    let after = f.statuses().await;
    for name in ["oom", "slow", "lost"] {
        assert_eq!(status(&after, name), (JobStatus::Ready.code(), 2), "{name}");
    }
    assert_eq!(status(&after, "bug"), (JobStatus::Failed.code(), 1));
    assert_eq!(status(&after, "fine"), (JobStatus::Completed.code(), 1));
    assert_eq!(status(&after, "after_oom"), (JobStatus::Blocked.code(), 1));
    assert_eq!(status(&after, "after_bug"), (JobStatus::Canceled.code(), 1));
    assert_eq!(status(&after, "after_both"), (JobStatus::Canceled.code(), 1));
    assert_eq!(view.reopened.len(), 1);
    // The change belongs to the job, not to what other jobs share with it, and survives a restart.
    assert_eq!(
        f.scalar("SELECT memory_bytes FROM resource_requirements WHERE name = 'small'").await,
        GIB as i64
    );
    f.restart();
    let work = f.claim(vec![]).await.attempts;
    let packet = |name: &str| work.iter().find(|p| p.job_name == name).expect("claimed").clone();
    assert_eq!(packet("oom").memory_bytes, Some(2 * GIB as i64));
    assert_eq!(
        (packet("slow").memory_bytes, packet("slow").time_limit_seconds),
        (Some(GIB as i64), Some(240))
    );
    assert_eq!((packet("oom").run_id, packet("oom").attempt_id), (1, 2), "the same run");
    assert_eq!(
        f.scalar(
            "SELECT count(*) FROM adjustment WHERE field = 'memory' AND from_value = 1073741824"
        )
        .await,
        1
    );
    assert_eq!(
        f.scalar(
            "SELECT count(*) FROM attempt WHERE origin = 'recovered' AND retry_of IS NOT NULL"
        )
        .await,
        3
    );
}

#[tokio::test]
async fn a_dry_run_shows_the_same_table_and_changes_nothing() {
    let f = fail_mixed().await;
    let database = f.directory.path().join("torc.db");
    let files = || {
        ["", "-wal"]
            .map(|end| std::fs::read(format!("{}{end}", database.display())).unwrap_or_default())
    };
    let (before, bytes) = (dump(&f).await, files());
    let dry = RecoverRequest { dry_run: true, ..RecoverRequest::default() };
    let planned = f.store.recover_failed(f.id, dry).await.expect("planned");
    assert_eq!(dump(&f).await, before);
    assert!(files() == bytes, "the files changed");
    let done = f.store.recover_failed(f.id, RecoverRequest::default()).await.expect("recovered");
    assert_eq!(
        (planned.jobs, planned.jobs_to_retry, planned.reopened),
        (done.jobs, done.jobs_to_retry, done.reopened)
    );
}

#[tokio::test]
async fn unknown_causes_run_again_only_when_asked() {
    let f = fail_mixed().await;
    let request = RecoverRequest { retry_unknown: true, ..RecoverRequest::default() };
    let view = f.store.recover_failed(f.id, request).await.expect("recovered");
    assert_eq!((view.unknown_retried, view.other_failures), (1, 0));
    let after = f.statuses().await;
    assert_eq!(status(&after, "bug"), (JobStatus::Ready.code(), 2));
    assert_eq!(status(&after, "after_both"), (JobStatus::Blocked.code(), 1));
}

#[tokio::test]
async fn refusals_say_exactly_why() {
    let mut f = Fixture::new(mixed()).await;
    let code = async |f: &Fixture, request: RecoverRequest| {
        f.store.recover_failed(f.id, request).await.expect_err("refused").code
    };
    assert_eq!(code(&f, RecoverRequest::default()).await, ErrorCode::NothingToRecover);
    let lower = RecoverRequest { memory_multiplier: Some(0.5), ..RecoverRequest::default() };
    assert_eq!(code(&f, lower).await, ErrorCode::Invalid);
    let nan = RecoverRequest { runtime_multiplier: Some(f64::NAN), ..RecoverRequest::default() };
    assert_eq!(code(&f, nan).await, ErrorCode::Invalid);
    let work = f.claim(vec![]).await.attempts;
    f.store.cancel_workflow(f.id).await.expect("canceled");
    assert_eq!(code(&f, RecoverRequest::default()).await, ErrorCode::BeingCanceled);
    f.claim(work.iter().map(|p| ended(p, 0)).collect()).await;
    assert_eq!(code(&f, RecoverRequest::default()).await, ErrorCode::NothingToRecover);
}

#[tokio::test]
async fn rounds_are_counted_over_restarts_and_bounded() {
    let mut f = fail_mixed().await;
    let round = RecoverRequest { max_rounds: Some(2), ..RecoverRequest::default() };
    for expected in 1..=2 {
        let view = f.store.recover_failed(f.id, round.clone()).await.expect("recovered");
        assert_eq!(view.rounds, expected);
        f.restart();
        let work = f.claim(vec![]).await.attempts;
        f.claim(work.iter().map(report).collect()).await;
    }
    let refused = f.store.recover_failed(f.id, round).await.expect_err("exhausted");
    assert_eq!(refused.code, ErrorCode::RoundsExhausted);
    // A person may go on; that is no automatic round.
    assert!(f.store.recover_failed(f.id, RecoverRequest::default()).await.is_ok());
    assert_eq!(f.scalar("SELECT count(*) FROM recovery_round").await, 2);
}

#[tokio::test]
async fn a_timeout_of_its_own_is_raised_and_nothing_is_lowered() {
    let extra = JobExtra { timeout: Some(Runtime(10)), ..JobExtra::default() };
    let slow = Job { extra: extra.into(), resource_requirements: Some(0), ..job("slow", &[]) };
    let plan = Plan {
        resource_requirements: vec![needs("long", None, Some(3600))],
        jobs: vec![slow],
        ..Plan::default()
    };
    let mut f = Fixture::new(plan).await;
    let work = f.claim(vec![]).await.attempts;
    assert_eq!(work[0].time_limit_seconds, Some(10));
    f.claim(vec![timeout(&work[0])]).await;
    f.store.recover_failed(f.id, RecoverRequest::default()).await.expect("recovered");
    f.restart();
    assert_eq!(f.claim(vec![]).await.attempts[0].time_limit_seconds, Some(40));
    assert_eq!(f.scalar("SELECT count(*) FROM job WHERE runtime_seconds IS NULL").await, 1);
}

#[tokio::test]
async fn works_while_other_jobs_run() {
    let mut f = Fixture::new(mixed()).await;
    let work = f.claim(vec![]).await.attempts;
    let first = work.iter().find(|p| p.job_name == "oom").expect("oom").clone();
    f.claim(vec![oom(&first)]).await;
    let view = f.store.recover_failed(f.id, RecoverRequest::default()).await.expect("recovered");
    assert_eq!(view.jobs_to_retry, [first.job_id]);
    let others: Vec<_> = work.iter().filter(|p| p.job_name != "oom").map(|p| ended(p, 0)).collect();
    let next = f.claim(others).await;
    assert!(next.completed.iter().all(|r| r.result == ReportVerdict::Accepted));
    assert_eq!(next.attempts[0].job_name, "oom");
}

/// A job that shall be: its behaviour, its parents, what memory or time it really needs.
#[derive(Clone)]
struct Made {
    behaviour: u64,
    need: u64,
    parents: Vec<usize>,
}

/// What becomes of each job, computed from the behaviours alone: final status, attempts, memory,
/// time.
fn oracle(jobs: &[Made]) -> Vec<(i64, i64, Option<u64>, u64)> {
    let grow = |mut have: u64, need: u64, step: fn(u64) -> u64, cap: u64| {
        let mut tries = 1;
        while have < need {
            if have >= cap {
                return (tries, have, false);
            }
            have = step(have).min(cap);
            tries += 1;
        }
        (tries, have, true)
    };
    let mut out: Vec<(i64, i64, Option<u64>, u64)> = Vec::new();
    for made in jobs {
        let blocked = made.parents.iter().any(|p| out[*p].0 != 5);
        if blocked {
            out.push((7, 0, None, 0));
            continue;
        }
        let (tries, memory, time, good) = match made.behaviour {
            0 => {
                let (tries, memory, good) = grow(GIB, made.need, |m| m * 2, 8 * GIB);
                (tries, memory, 60, good)
            }
            1 => {
                let (tries, time, good) = grow(60, made.need, |t| t * 4, u64::MAX);
                (tries, GIB, time, good)
            }
            2 => (2, GIB, 60, true),
            3 => (1, GIB, 60, false),
            _ => (1, GIB, 60, true),
        };
        out.push((if good { 5 } else { 6 }, tries, Some(memory), time));
    }
    out
}

#[tokio::test]
async fn a_thousand_jobs_with_mixed_causes_end_as_an_oracle_predicts() {
    let mut seed = 0x5eed_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let made: Vec<Made> = (0..1000)
        .map(|i| {
            let behaviour = random(10);
            let need = match behaviour {
                0 => GIB + random(9 * GIB),
                1 => 60 + random(400),
                _ => 0,
            };
            let parents = if i > 50 && random(3) == 0 { vec![random(i) as usize] } else { vec![] };
            Made { behaviour, need, parents }
        })
        .collect();
    let settings = JobSettings { max_lost_retries: Some(0), ..JobSettings::default() };
    let no_loss = JobExtra { settings, ..JobExtra::default() };
    let jobs = made.iter().enumerate().map(|(i, m)| Job {
        extra: no_loss.clone().into(),
        resource_requirements: Some(0),
        ..job(&format!("j{i}"), &m.parents)
    });
    let plan = Plan {
        settings: enforcing(),
        resource_requirements: vec![needs("all", Some(GIB), Some(60))],
        jobs: jobs.collect(),
        ..Plan::default()
    };
    let mut f = Fixture::new(plan).await;
    let answer = |packet: &AttemptPacket| {
        let index: usize = packet.job_name[1..].parse().expect("a number");
        let m = &made[index];
        match m.behaviour {
            0 if packet.memory_bytes.unwrap_or(0) < m.need as i64 => oom(packet),
            1 if packet.time_limit_seconds.unwrap_or(0) < m.need as i64 => timeout(packet),
            2 if packet.attempt_id == 1 => lost(packet),
            3 => ended(packet, 1),
            _ => ended(packet, 0),
        }
    };
    let mut rounds = 0;
    loop {
        let mut work = f.claim(vec![]).await.attempts;
        while !work.is_empty() {
            work = f.claim(work.iter().map(answer).collect()).await.attempts;
        }
        let view =
            f.store.recover_failed(f.id, RecoverRequest::default()).await.expect("recovered");
        if view.jobs_to_retry.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 20, "no end in sight");
    }
    let rows: Vec<(i64, i64, i64, i64)> = f
        .store
        .writer
        .call(|tx| {
            let mut statement = tx.db.prepare(
                "SELECT j.status, (SELECT count(*) FROM attempt a WHERE a.job_id = j.id AND a.started_ms IS NOT NULL),
                 coalesce(j.memory_bytes, r.memory_bytes), coalesce(j.runtime_seconds, r.runtime_seconds)
                 FROM job j JOIN resource_requirements r ON r.id = j.resource_requirements_id ORDER BY j.id",
            )?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .await
        .expect("rows");
    let mut completed = 0;
    for (i, ((status, attempts, memory, time), expected)) in
        rows.iter().zip(oracle(&made)).enumerate()
    {
        assert_eq!(
            (*status, *attempts),
            (expected.0, expected.1),
            "job {i} of behaviour {}",
            made[i].behaviour
        );
        if let Some(expected_memory) = expected.2 {
            assert_eq!((*memory as u64, *time as u64), (expected_memory, expected.3), "job {i}");
        }
        completed += i64::from(*status == 5);
    }
    println!("{completed} of 1000 jobs completed after {rounds} rounds of recovery");
    assert!(completed > 500 && rounds >= 3);
}
