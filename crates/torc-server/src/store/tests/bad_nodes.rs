//! A machine on which everything fails at once, beside one that works.

use super::*;
use torc_model::api::QuarantineRequest;
use torc_model::status::{JobStatus, RunnerKind};
use torc_model::words;

async fn claim_as(
    f: &mut Fixture,
    runner: RunnerId,
    completed: Vec<CompletionReport>,
    limit: i64,
) -> ClaimResponse {
    f.claims += 1;
    let request = ClaimRequest {
        runner_id: runner,
        key: format!("n{}", f.claims),
        limit,
        capacity: capacity(),
        time_left_seconds: None,
        prefetch: 0,
        wait_seconds: 0.0,
        started: Vec::new(),
        completed,
        strict_scheduler_match: false,
        is_alone: None,
    };
    f.store.claim(f.id, request).await.expect("claimed")
}

async fn register_on(f: &Fixture, host: &str) -> RunnerId {
    let request = RegisterRunner {
        workflow_id: f.id,
        key: host.into(),
        hostname: host.into(),
        boot_id: "b".into(),
        pid: 1,
        pid_start: 1,
        capacity: capacity(),
        time_left_seconds: None,
        kind: RunnerKind::Slurm,
        scheduler: None,
        label: None,
        output_dir: "/output".into(),
        force: false,
        pool_runner_id: None,
    };
    f.store.register_runner(request).await.expect("registered").id
}

fn flat(jobs: usize) -> Plan {
    let rule = Rule { exit_codes: vec![1], max_retries: 2, ..Rule::default() };
    let jobs = (0..jobs)
        .map(|i| Job { failure_handler: (i % 2 == 0).then_some(0), ..job(&format!("j{i}"), &[]) });
    Plan {
        jobs: jobs.collect(),
        failure_handlers: vec![FailureHandler { name: "h".into(), rules: vec![rule] }],
        ..Plan::default()
    }
}

#[tokio::test]
async fn a_bad_node_is_noticed_and_what_it_burnt_is_given_back() {
    let mut f = Fixture::new(flat(12)).await;
    let (good, bad) = (register_on(&f, "good").await, register_on(&f, "bad").await);
    let work = claim_as(&mut f, good, vec![], 4).await.attempts;
    let held = claim_as(&mut f, bad, vec![], 4).await.attempts;
    claim_as(&mut f, good, work.iter().map(|p| ended(p, 0)).collect(), 0).await;
    // Two failures are not enough, the third is.
    let two = claim_as(&mut f, bad, held[..2].iter().map(|p| ended(p, 1)).collect(), 0).await;
    assert_eq!(two.completed.len(), 2);
    assert_eq!(f.scalar("SELECT count(*) FROM compute_node WHERE quarantine IS NOT NULL").await, 0);
    claim_as(&mut f, bad, vec![ended(&held[2], 1)], 0).await;
    assert_eq!(
        f.scalar(
            "SELECT count(*) FROM compute_node WHERE quarantine IS NOT NULL AND hostname = 'bad'"
        )
        .await,
        1
    );
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'runner_quarantined'").await, 1);
    let refused = claim_as(&mut f, bad, vec![], 4).await;
    assert!(
        refused.attempts.is_empty()
            && words::has(&refused.reason.expect("a reason"), "gets no work for another")
    );
    // Whether a rule had retried them or not, all three are queued again, and none counts against
    // the rules.
    let burnt: Vec<_> = f
        .statuses()
        .await
        .into_iter()
        .filter(|(_, status, attempt)| *status == JobStatus::Ready.code() && *attempt == 2)
        .collect();
    assert_eq!(burnt.len(), 3, "{burnt:?}");
    assert_eq!(f.scalar("SELECT sum(refunds) FROM job").await, 3);
    // The verdict is kept over a restart.
    f.restart();
    assert!(claim_as(&mut f, bad, vec![], 4).await.attempts.is_empty());
    let again = claim_as(&mut f, good, vec![], 10).await.attempts;
    assert!(!again.is_empty());
    // What it burnt is no use of a rule either, before and after a restart: a wait that grows with
    // the uses starts over.
    assert_eq!(f.scalar("SELECT count(*) FROM refunded_attempt").await, 3);
    // When its time is over it is tried again.
    f.store
        .writer
        .call(|tx| Ok(tx.db.execute("UPDATE compute_node SET quarantine_until_ms = 1", [])?))
        .await
        .expect("set");
    f.restart();
    let back = claim_as(&mut f, good, again.iter().map(|p| ended(p, 1)).collect(), 0).await;
    assert_eq!(back.completed.len(), again.len());
    let work = claim_as(&mut f, bad, vec![], 4).await;
    assert!(!work.attempts.is_empty(), "{:?}", work.reason);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'runner_tried_again'").await, 1);
    assert_eq!(f.scalar("SELECT count(*) FROM compute_node WHERE quarantine IS NOT NULL").await, 0);
}

/// The tests of the store compare memory and rows before each commit.
#[tokio::test]
async fn what_a_bad_node_burnt_before_a_reset_is_not_given_back() {
    let mut f = Fixture::new(flat(12)).await;
    let (good, bad) = (register_on(&f, "good").await, register_on(&f, "bad").await);
    let work = claim_as(&mut f, good, vec![], 4).await.attempts;
    let held = claim_as(&mut f, bad, vec![], 4).await.attempts;
    claim_as(&mut f, good, work.iter().map(|p| ended(p, 0)).collect(), 0).await;
    // Two failures, one of which a rule retried; then both jobs start over beside the others.
    claim_as(&mut f, bad, held[..2].iter().map(|p| ended(p, 1)).collect(), 0).await;
    let reset = torc_model::api::ResetRequest {
        jobs: held[..2].iter().map(|packet| packet.job_name.clone()).collect(),
        force: true,
        ..Default::default()
    };
    f.store.reset_status(f.id, reset).await.expect("reset");
    f.store.initialize(f.id, true).await.expect("initialized");
    claim_as(&mut f, bad, vec![ended(&held[2], 1)], 0).await;
    assert_eq!(f.scalar("SELECT count(*) FROM compute_node WHERE quarantine IS NOT NULL").await, 1);
    assert_eq!(f.scalar("SELECT count(*) FROM refunded_attempt").await, 1, "the third one alone");
    f.restart();
    assert_eq!(claim_as(&mut f, good, vec![], 4).await.attempts.len(), 4);
}

#[tokio::test]
async fn jobs_that_fail_everywhere_accuse_no_node() {
    let mut f = Fixture::new(flat(12)).await;
    let (one, two) = (register_on(&f, "one").await, register_on(&f, "two").await);
    for _ in 0..6 {
        for runner in [one, two] {
            let work = claim_as(&mut f, runner, vec![], 2).await.attempts;
            claim_as(&mut f, runner, work.iter().map(|p| ended(p, 1)).collect(), 0).await;
        }
    }
    assert_eq!(f.scalar("SELECT count(*) FROM compute_node WHERE quarantine IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_retry_prefers_another_host_for_a_while() {
    let mut f = Fixture::new(flat(3)).await;
    let (one, two) = (register_on(&f, "one").await, register_on(&f, "two").await);
    let first = claim_as(&mut f, one, vec![], 1).await.attempts;
    let other = claim_as(&mut f, two, vec![], 1).await.attempts;
    let next = claim_as(&mut f, one, vec![ended(&first[0], 1)], 1).await;
    assert_eq!(next.attempts[0].job_name, "j2", "not the retry, although it is first in the queue");
    let elsewhere = claim_as(&mut f, two, vec![ended(&other[0], 0)], 1).await;
    assert_eq!(
        (elsewhere.attempts[0].job_name.as_str(), elsewhere.attempts[0].attempt_id),
        ("j0", 2)
    );
}

#[tokio::test]
async fn a_user_keeps_work_from_a_machine_and_lets_it_come_again() {
    let mut f = Fixture::new(flat(12)).await;
    let (slow, other) = (register_on(&f, "slow").await, register_on(&f, "other").await);
    let request = |hostname: &str, release: bool, seconds: Option<i64>| {
        let reason = Some("its disk is slow".to_owned());
        QuarantineRequest { hostname: hostname.into(), release, seconds, reason }
    };
    let set = f.store.set_quarantine(f.id, request("slow", false, None)).await.expect("set");
    assert_eq!((set.runners, set.until_ms.is_some()), (1, true));
    let answer = claim_as(&mut f, slow, vec![], 4).await;
    assert!(answer.attempts.is_empty());
    assert!(words::has(&answer.reason.expect("a reason"), "its disk is slow"));
    assert_eq!(claim_as(&mut f, other, vec![], 4).await.attempts.len(), 4);

    let set = f.store.set_quarantine(f.id, request("slow", true, None)).await.expect("released");
    assert_eq!((set.runners, set.until_ms), (1, None));
    assert_eq!(claim_as(&mut f, slow, vec![], 4).await.attempts.len(), 4);
    assert_eq!(f.scalar("SELECT count(*) FROM compute_node WHERE quarantine IS NOT NULL").await, 0);
    assert_eq!(f.scalar("SELECT count(*) FROM event WHERE kind = 'runner_tried_again'").await, 1);

    for (wrong, told) in [
        (request("none", false, None), "no runner on `none`"),
        (request("slow", false, Some(0)), "it goes from 1"),
    ] {
        let refused = f.store.set_quarantine(f.id, wrong).await.expect_err("refused");
        assert!(words::has(&refused.message, told), "{refused:?}");
    }
}
