//! What arrives after what it tells of is over: the report of a runner that is gone, a look at the batch
//! system from before the allocation moved on.

use super::allocations::plan;
use super::*;
use torc_model::api::{ErrorCode, RunnerScheduler};
use torc_model::slurm::wire::{Observation, Observations, SubmissionOutcome};
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};

/// Two allocations that were sent as job 77.
async fn sent() -> Fixture {
    let f = Fixture::new(plan()).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    let orders = f.begin("me").await;
    f.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    f
}

/// A runner in the first allocation, which the batch system has started so often again.
async fn register(f: &Fixture, restarts: Option<i64>) -> Result<RunnerId, Refusal> {
    let request = RegisterRunner {
        workflow_id: f.id,
        key: format!("life {restarts:?}"),
        hostname: "node7".into(),
        boot_id: "b".into(),
        pid: 1,
        pid_start: 1,
        capacity: capacity(),
        time_left_seconds: Some(600),
        kind: RunnerKind::Slurm,
        scheduler: Some(RunnerScheduler {
            allocation_id: Some(1),
            slurm_job_id: Some("77_0".into()),
            node: Some(0),
            restarts,
            ..RunnerScheduler::default()
        }),
        label: None,
        output_dir: "/output".into(),
        force: false,
        pool_runner_id: None,
    };
    f.store.register_runner(request).await.map(|registered| registered.id)
}

const LIVE: &str = "SELECT sum(id) FROM compute_node WHERE ended_ms IS NULL AND allocation_id = 1";

#[tokio::test]
async fn the_late_registration_of_a_runner_that_is_gone_does_not_displace_its_successor() {
    let mut f = sent().await;
    let first = register(&f, Some(0)).await.expect("it is the first");
    let second = register(&f, Some(2)).await.expect("Slurm has started the allocation again");
    assert_eq!(f.scalar(LIVE).await, second.0, "{first} is gone");
    f.runner = second;
    assert_eq!(f.claim(vec![]).await.attempts.len(), 1);
    // The one between them died before its registration arrived.
    let refused = register(&f, Some(1)).await.expect_err("its successor is there");
    assert_eq!(refused.code, ErrorCode::RunnerEnded);
    f.restart();
    register(&f, Some(1)).await.expect_err("a restart does not forget it");
    assert_eq!(f.scalar(LIVE).await, second.0);
    assert_eq!(f.scalar("SELECT count(*) FROM attempt WHERE ended_ms IS NOT NULL").await, 0);
    let repeat = register(&f, Some(2)).await.expect("a repeat is answered like the first");
    assert_eq!(repeat, second);
    let third = register(&f, Some(3)).await.expect("Slurm has started the allocation again");
    assert_eq!(f.scalar(LIVE).await, third.0);
    assert_eq!(f.scalar("SELECT restarts FROM compute_node ORDER BY id DESC LIMIT 1").await, 3);
}

#[tokio::test]
async fn a_look_at_the_batch_system_from_before_the_allocation_moved_on_says_nothing() {
    let mut f = sent().await;
    let moves =
        async |f: &Fixture| f.scalar("SELECT moves FROM scheduled_compute_node WHERE id = 1").await;
    let look = async |f: &Fixture, verdict: &Verdict, moves: i64| {
        let items = vec![Observation {
            id: 1,
            verdict: verdict.clone(),
            slurm_job_id: None,
            is_missing: false,
            before: None,
            expected_start_ms: None,
            moves: Some(moves),
        }];
        let seen = Observations { items, dry_run: false };
        f.store.observe_allocations(seen).await.expect("observed")
    };
    let before = moves(&f).await;
    f.runner = register(&f, None).await.expect("registered");
    assert_eq!(f.claim(vec![]).await.attempts.len(), 1);
    // A new server has not heard from it for a long time.
    let silent =
        |tx: &mut Tx<'_>| Ok(tx.db.execute("UPDATE compute_node SET last_seen_ms = 0", [])?);
    f.store.writer.call(silent).await.expect("set");
    f.restart();
    let waiting = Verdict::Alive { phase: AllocationPhase::Waiting, reason: None };
    let ended = Verdict::Ended(AllocationEnding::vanished());
    for late in [&waiting, &ended] {
        let nothing = look(&f, late, before).await;
        assert_eq!((nothing.allocations_ended, nothing.runners_ended, nothing.unknown), (0, 0, 0));
    }
    assert_eq!(f.scalar(LIVE).await, f.runner.0);
    assert_eq!(f.statuses().await[0].1, JobStatus::Pending.code());
    // The same, seen since.
    let now = moves(&f).await;
    assert!(now > before);
    let over = look(&f, &ended, now).await;
    assert_eq!((over.allocations_ended, over.runners_ended), (1, 1));
}

#[tokio::test]
async fn an_allocation_that_is_being_sent_is_not_missed() {
    let f = Fixture::new(plan()).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    f.begin("me").await;
    let gone = Verdict::Ended(AllocationEnding::vanished());
    let seen = f.observe(1, gone, true).await;
    assert_eq!((seen.allocations_ended, seen.unknown), (0, 0), "{seen:?}");
    let open = "SELECT count(*) FROM scheduled_compute_node WHERE status = 'submitting'";
    assert_eq!(f.scalar(open).await, 2);
}
