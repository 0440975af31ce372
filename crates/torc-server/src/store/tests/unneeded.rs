//! Allocations that nothing needs any more: marked before Slurm is asked, and not counted
//! from then on.

use super::allocations::{plan, scheduler};
use super::*;
use torc_model::plan::{Requirements, SlurmScheduler};
use torc_model::slurm::wire::{
    RegenerateGroup, RegenerateRequest, ScheduleNodes, SubmissionOutcome,
};
use torc_model::slurm::{AllocationEnding, Verdict};
use torc_model::units::{Memory, Runtime};

const MARKED: &str = "SELECT count(*) FROM scheduled_compute_node WHERE status = 'pending' AND unneeded_since_ms IS NOT NULL";
const OPEN: &str = "SELECT count(*) FROM scheduled_compute_node WHERE status <> 'complete' AND unneeded_since_ms IS NULL";

/// One job for allocations of one hour, and one that takes longer and so fits nowhere but in its
/// own.
fn two_kinds() -> Plan {
    let mut plan = plan();
    plan.slurm_schedulers =
        vec![scheduler("s"), SlurmScheduler { walltime: "10:00:00".into(), ..scheduler("long") }];
    plan.jobs = vec![job("a", &[]), job("b", &[])];
    plan.resource_requirements = vec![requirements("short", 60), requirements("long", 7200)];
    for (index, job) in plan.jobs.iter_mut().enumerate() {
        (job.scheduler, job.resource_requirements) = (Some(index), Some(index));
    }
    plan
}

fn requirements(name: &str, seconds: u64) -> Requirements {
    Requirements {
        name: name.into(),
        num_cpus: 1,
        num_gpus: 0,
        num_nodes: 1,
        memory: None,
        runtime: Some(Runtime(seconds)),
    }
}

/// The first of both jobs has ended; two allocations made for it wait in Slurm.
async fn first_job_is_over() -> Fixture {
    let mut f = Fixture::new(two_kinds()).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    let orders = f.begin("me").await;
    f.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    let claimed = f.claim(vec![]).await.attempts;
    let a = claimed.iter().find(|attempt| attempt.job_name == "a").expect("given").clone();
    f.begin("me").await;
    assert_eq!(f.scalar(MARKED).await, 0, "its job has not ended yet");
    f.claim(vec![ended(&a, 0)]).await;
    f
}

#[tokio::test]
async fn what_no_remaining_job_could_use_is_marked_for_good() {
    let mut f = first_job_is_over().await;
    f.begin("me").await;
    assert_eq!(f.scalar(MARKED).await, 2);
    f.restart();
    assert_eq!(f.scalar(MARKED).await, 2, "a client that reaches Slurm still finds it");
    f.begin("me").await;
    assert_eq!(
        f.scalar("SELECT count(*) FROM event WHERE kind = 'allocation_unneeded'").await,
        2,
        "told once"
    );
    f.observe(1, Verdict::Ended(AllocationEnding::vanished()), true).await;
    let reason = "SELECT count(*) FROM scheduled_compute_node WHERE status = 'complete' AND reason LIKE 'no longer needed%'";
    assert_eq!(f.scalar(reason).await, 1);
    // Slurm was faster: it started, and may be used like any other.
    f.register_in(2, "77_1").await.expect("registered");
    assert_eq!((f.scalar(MARKED).await, f.scalar(OPEN).await), (0, 1));
}

#[tokio::test]
async fn what_is_marked_does_not_count_as_on_its_way() {
    let f = first_job_is_over().await;
    f.begin("me").await;
    let group = RegenerateGroup {
        scheduler: scheduler("s"),
        levels: vec![vec![JobId(1)]],
        allocations: vec![1],
        has_dependencies: false,
        start_one_worker_per_node: false,
    };
    let request = RegenerateRequest { groups: vec![group], submit: true };
    let done = f.store.regenerate(f.id, request).await.expect("regenerated");
    assert_eq!((done.allocations_created, done.allocations_kept), (1, 0), "{done:?}");
}

#[tokio::test]
async fn what_was_not_sent_yet_never_is() {
    let f = first_job_is_over().await;
    let request = |scheduler: &str| ScheduleNodes {
        workflow_id: f.id.0,
        scheduler: scheduler.into(),
        count: 1,
        key: scheduler.into(),
        ..ScheduleNodes::default()
    };
    f.store.schedule_nodes(request("s")).await.expect("made");
    f.store.schedule_nodes(request("long")).await.expect("made");
    let orders = f.begin("me").await;
    assert_eq!(
        orders.iter().map(|order| order.scheduler.name.as_str()).collect::<Vec<_>>(),
        ["long"]
    );
    let sql = "SELECT count(*) FROM scheduled_compute_node WHERE state = 'NOT_SENT' AND reason = 'no longer needed'";
    assert_eq!(f.scalar(sql).await, 1);
}

#[tokio::test]
async fn nodes_that_jobs_have_outgrown_are_not_kept_for_them() {
    let mut plan = plan();
    plan.slurm_schedulers[0].mem = Some("1g".into());
    plan.resource_requirements =
        vec![Requirements { memory: Some(Memory(4 << 30)), ..requirements("big", 60) }];
    plan.jobs.iter_mut().for_each(|job| job.resource_requirements = Some(0));
    let f = Fixture::new(plan).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    let group = RegenerateGroup {
        scheduler: SlurmScheduler { mem: Some("5g".into()), ..scheduler("x") },
        levels: vec![vec![JobId(1)]],
        allocations: vec![2],
        has_dependencies: false,
        start_one_worker_per_node: false,
    };
    let request = RegenerateRequest { groups: vec![group], submit: true };
    let done = f.store.regenerate(f.id, request).await.expect("regenerated");
    assert_eq!((done.allocations_created, done.allocations_kept), (2, 0), "{done:?}");
}
