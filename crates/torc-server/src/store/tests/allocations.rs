//! Allocations: asked for once, sent once, ended only by evidence.

use super::*;
use torc_model::api::ErrorCode;
use torc_model::api::RunnerScheduler;
use torc_model::plan::{Action, ActionKind, Requirements, SlurmScheduler};
use torc_model::slurm::wire::{
    BeginSubmission, Observation, Observations, RegenerateGroup, RegenerateRequest, ScheduleNodes,
    SubmissionOutcome, SubmissionReport,
};
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};
use torc_model::status::{RunnerKind, Trigger};
use torc_model::units::Runtime;

pub fn scheduler(name: &str) -> SlurmScheduler {
    SlurmScheduler {
        name: name.into(),
        account: "a".into(),
        nodes: 1,
        walltime: "00:10:00".into(),
        ..SlurmScheduler::default()
    }
}

pub fn plan() -> Plan {
    let schedule = ActionKind::ScheduleNodes {
        scheduler: "s".into(),
        scheduler_type: "slurm".into(),
        num_allocations: 2,
        start_one_worker_per_node: false,
        max_parallel_jobs: None,
    };
    let mut a = job("a", &[]);
    a.scheduler = Some(0);
    Plan {
        name: "w".into(),
        jobs: vec![a, job("b", &[0])],
        slurm_schedulers: vec![scheduler("s")],
        actions: vec![Action {
            trigger: Trigger::OnWorkflowStart,
            jobs: vec![],
            what: schedule,
            persistent: false,
        }],
        ..Plan::default()
    }
}

impl Fixture {
    pub async fn begin(&self, submitter: &str) -> Vec<torc_model::slurm::wire::SubmissionOrder> {
        let request = BeginSubmission { workflow_id: None, submitter: submitter.into() };
        self.store.begin_submission(request).await.expect("begun").items
    }

    pub async fn report(&self, name: &str, outcome: SubmissionOutcome) {
        let report = SubmissionReport {
            workflow_id: self.id,
            name: name.into(),
            submitter: "me".into(),
            outcome,
        };
        self.store.report_submission(report).await.expect("reported");
    }

    pub async fn observe(
        &self,
        id: i64,
        verdict: Verdict,
        is_missing: bool,
    ) -> torc_model::slurm::wire::ObservedView {
        let items = vec![Observation {
            id,
            verdict,
            slurm_job_id: None,
            is_missing,
            before: None,
            expected_start_ms: None,
            moves: None,
        }];
        self.store
            .observe_allocations(Observations { items, dry_run: false })
            .await
            .expect("observed")
    }

    /// A runner that is not on this host.
    pub async fn register_in(&mut self, allocation: i64, job: &str) -> Result<RunnerId, Refusal> {
        self.register_on(0, allocation, job).await
    }

    /// A runner on one of the nodes of an allocation.
    pub async fn register_on(
        &mut self,
        node: i64,
        allocation: i64,
        job: &str,
    ) -> Result<RunnerId, Refusal> {
        let request = RegisterRunner {
            workflow_id: self.id,
            key: format!("in-{allocation}-{job}-{node}-{}", self.claims),
            hostname: "node7".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start: 1,
            capacity: capacity(),
            time_left_seconds: Some(600),
            kind: RunnerKind::Slurm,
            scheduler: Some(RunnerScheduler {
                allocation_id: Some(allocation),
                slurm_job_id: Some(job.to_owned()),
                node: Some(node),
                ..RunnerScheduler::default()
            }),
            label: None,
            output_dir: "/output".into(),
            force: false,
            pool_runner_id: None,
        };
        self.store.register_runner(request).await.map(|r| r.id)
    }
}

#[tokio::test]
async fn a_triggered_action_is_written_down_and_sent_once() {
    let fixture = Fixture::new(plan()).await;
    assert_eq!(fixture.store.execute_schedules(fixture.id).await, Ok(1));
    assert_eq!(
        fixture.store.execute_schedules(fixture.id).await,
        Ok(0),
        "a second look finds nothing to do"
    );
    assert_eq!(
        fixture
            .scalar("SELECT count(*) FROM scheduled_compute_node WHERE status = 'planned'")
            .await,
        2
    );
    let orders = fixture.begin("me").await;
    assert_eq!((orders.len(), orders[0].count, orders[0].look_first), (1, 2, false));
    assert!(fixture.begin("another").await.is_empty(), "no other submitter sends it meanwhile");
    fixture.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    assert!(fixture.begin("another").await.is_empty());
    let ids = "SELECT count(*) FROM scheduled_compute_node WHERE status = 'pending' AND slurm_job_id IN ('77_0', '77_1')";
    assert_eq!(fixture.scalar(ids).await, 2);
}

#[tokio::test]
async fn after_an_interrupted_submission_the_next_one_looks_first() {
    let mut fixture = Fixture::new(plan()).await;
    fixture.store.execute_schedules(fixture.id).await.expect("executed");
    let orders = fixture.begin("me").await;
    fixture.report(&orders[0].name, SubmissionOutcome::Unknown("timed out".into())).await;
    fixture.restart();
    let again = fixture.begin("me too").await;
    assert_eq!((again.len(), again[0].look_first, &again[0].name), (1, true, &orders[0].name));
}

#[tokio::test]
async fn a_second_slurm_job_of_one_allocation_is_turned_away() {
    let mut fixture = Fixture::new(plan()).await;
    let request = ScheduleNodes {
        workflow_id: fixture.id.0,
        scheduler: "s".into(),
        count: 1,
        key: "k".into(),
        ..ScheduleNodes::default()
    };
    let made = fixture.store.schedule_nodes(request.clone()).await.expect("made").items;
    let again = fixture.store.schedule_nodes(request).await.expect("made").items;
    assert_eq!(made, again, "a repeat changes nothing");
    fixture.begin("me").await;
    fixture.register_in(made[0].id, "5").await.expect("the first");
    let refused = fixture.register_in(made[0].id, "6").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::DuplicateAllocation);
}

#[tokio::test]
async fn a_workflow_with_nodes_in_slurm_is_not_deleted_by_mistake() {
    let f = Fixture::new(plan()).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    let orders = f.begin("me").await;
    f.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    let refused = f.store.delete_workflow(f.id, false).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::AllocationsOpen, "{refused:?}");
    f.store.cancel_workflow(f.id).await.expect("canceled");
    f.begin("me").await;
    for allocation in [1, 2] {
        f.observe(allocation, Verdict::Ended(AllocationEnding::vanished()), true).await;
    }
    f.store.delete_workflow(f.id, false).await.expect("deleted");
}

#[tokio::test]
async fn only_evidence_ends_an_allocation_and_its_attempts() {
    let mut fixture = Fixture::new(plan()).await;
    fixture.store.execute_schedules(fixture.id).await.expect("executed");
    let orders = fixture.begin("me").await;
    fixture.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    fixture.runner = fixture.register_in(1, "77_0").await.expect("registered");
    assert_eq!(fixture.claim(vec![]).await.attempts.len(), 1);

    let unknown = Verdict::Unknown { why: "squeue did not answer".into() };
    assert_eq!(fixture.observe(1, unknown, true).await.unknown, 1);
    let running = Verdict::Alive { phase: AllocationPhase::Running, reason: None };
    fixture.observe(1, running, false).await;
    let ending = AllocationEnding {
        state: "PREEMPTED".into(),
        cause: Cause::Preempted,
        text: "preempted".into(),
        is_vanished: false,
    };
    let speaks = fixture.observe(1, Verdict::Ended(ending.clone()), false).await;
    assert_eq!((speaks.allocations_ended, speaks.unknown), (0, 1), "its runner has just spoken");

    // A new server has not heard from it for a long time.
    fixture
        .store
        .writer
        .call(|tx| Ok(tx.db.execute("UPDATE compute_node SET last_seen_ms = 0", [])?))
        .await
        .expect("set");
    fixture.restart();
    let ended = fixture.observe(1, Verdict::Ended(ending), false).await;
    assert_eq!(
        (ended.allocations_ended, ended.runners_ended, ended.slurm_jobs_failed),
        (1, 1, 1),
        "{ended:?}"
    );
    let sql = "SELECT count(*) FROM attempt WHERE state = 'failed' AND cause = 'preempted' AND return_code = -128";
    assert_eq!(fixture.scalar(sql).await, 1);
    assert_eq!(fixture.statuses().await[0], ("a".into(), 2, 2), "it is ready again");
    let cleaned = fixture.observe(2, Verdict::Ended(AllocationEnding::vanished()), true).await;
    assert_eq!((cleaned.allocations_ended, cleaned.pending_allocations_cleaned), (1, 1));
}

#[tokio::test]
async fn slurms_word_ends_no_runner_of_which_something_lives_on_this_host() {
    let mut fixture = Fixture::new(plan()).await;
    fixture.store.execute_schedules(fixture.id).await.expect("executed");
    let orders = fixture.begin("me").await;
    fixture.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    fixture.runner = fixture.register_in(1, "77_0").await.expect("registered");
    assert_eq!(fixture.claim(vec![]).await.attempts.len(), 1);
    let tag = crate::store::runner_tag(fixture.store.database_id(), fixture.runner);
    let process = |seconds: &str| {
        let mut command = std::process::Command::new("sleep");
        command.arg(seconds).env("TORC_ATTEMPT_TAG", format!("{tag}/1")).spawn().expect("one")
    };
    // As if this process were the runner, silent since long ago.
    let (own, host) = (std::process::id(), crate::boot::identity::hostname());
    let space = crate::boot::identity::process_space().expect("a boot id");
    let start = crate::boot::identity::pid_start(own).expect("a start");
    let place = format!(
        "UPDATE compute_node SET hostname = '{host}', boot_id = '{space}', pid = {own}, pid_start = {start}
         WHERE allocation_id = 1"
    );
    let change = async |fixture: &Fixture, sql: String| {
        let done = fixture.store.writer.call(move |tx| Ok(tx.db.execute_batch(&sql)?)).await;
        done.expect("changed");
    };
    change(&fixture, place).await;
    fixture.restart();
    let ended = || Verdict::Ended(AllocationEnding::vanished());
    let mut left = process("600");
    let alive = fixture.observe(1, ended(), false).await;
    assert_eq!((alive.runners_ended, alive.unknown), (0, 1), "{alive:?}");
    assert!(alive.details[0].contains("its runner is alive on this host"), "{alive:?}");
    assert!(left.try_wait().expect("a status").is_none(), "nothing of a living runner is ended");

    // Its process is gone, and it left one that Slurm knows nothing of: that ends before the retry.
    let gone = "UPDATE compute_node SET pid_start = 1 WHERE allocation_id = 1";
    change(&fixture, gone.into()).await;
    let gone = fixture.observe(1, ended(), false).await;
    assert_eq!((gone.runners_ended, gone.slurm_jobs_failed), (1, 1), "{gone:?}");
    let status = left.wait().expect("an end");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    assert_eq!(fixture.statuses().await[0], ("a".into(), 2, 2), "it is ready again");
}

#[tokio::test]
async fn why_no_runner_is_there_is_told_with_what_to_do() {
    let mut f = Fixture::new(plan()).await;
    f.leave(None).await;
    let why = async |f: &Fixture| {
        let told = f.store.explain(JobId(1)).await.expect("explained");
        (told.summary, told.details.join("; "), told.hints.join("; "))
    };
    let (summary, _, hints) = why(&f).await;
    assert!(
        summary.contains("Slurm has not been asked for nodes") && hints.contains("regenerate"),
        "{summary}: {hints}"
    );
    f.store.execute_schedules(f.id).await.expect("executed");
    let (_, details, hints) = why(&f).await;
    assert!(
        details.contains("allocation 2 was not sent") && hints.contains("torc watch"),
        "{details}: {hints}"
    );
    let orders = f.begin("me").await;
    f.report(
        &orders[0].name,
        SubmissionOutcome::Refused("Invalid partition name specified".into()),
    )
    .await;
    let (summary, details, hints) = why(&f).await;
    assert_eq!(summary, "Slurm refused the nodes that it needs: Invalid partition name specified");
    assert!(
        details.contains("scheduler `s`") && hints.contains("correct scheduler `s`"),
        "{details}: {hints}"
    );
    // What fits into nothing that can be asked for is told by what is in its way.
    let mut small = plan();
    small.slurm_schedulers[0].walltime = "00:01:00".into();
    small.resource_requirements = vec![Requirements {
        name: "long".into(),
        runtime: Some(Runtime(7200)),
        ..Requirements::default()
    }];
    small.jobs[0].resource_requirements = Some(0);
    let mut f = Fixture::new(small).await;
    f.leave(None).await;
    let (summary, details, hints) = why(&f).await;
    assert!(
        summary.contains("fits into no allocation") && details.contains("the walltime is"),
        "{summary}: {details}"
    );
    assert!(hints.contains("regenerate"), "{hints}");
}

#[tokio::test]
async fn regenerating_twice_asks_for_nothing_more() {
    let fixture = Fixture::new(plan()).await;
    let ids: Vec<JobId> = vec![JobId(1), JobId(2)];
    let group = |job: JobId, deferred: bool| RegenerateGroup {
        scheduler: scheduler(if deferred { "x_deferred" } else { "x" }),
        levels: vec![vec![job]],
        allocations: vec![1],
        has_dependencies: deferred,
        start_one_worker_per_node: false,
    };
    let request =
        RegenerateRequest { groups: vec![group(ids[0], false), group(ids[1], true)], submit: true };
    let first = fixture.store.regenerate(fixture.id, request.clone()).await.expect("regenerated");
    assert_eq!((first.actions_claimed, first.actions_created), (1, 1), "{first:?}");
    let second = fixture.store.regenerate(fixture.id, request).await.expect("regenerated");
    assert_eq!((second.allocations_created, second.actions_created), (0, 1), "{second:?}");
    assert!(second.schedulers_created.iter().all(|s| s.reused));
    let sql = "SELECT count(*) FROM scheduled_compute_node";
    assert_eq!(fixture.scalar(sql).await, 1);
    let waiting = "SELECT count(*) FROM workflow_action WHERE state = 'waiting'";
    assert_eq!(fixture.scalar(waiting).await, 1, "the first recovery action was retired");
    assert_eq!(
        fixture.store.execute_schedules(fixture.id).await,
        Ok(0),
        "the spec's own action never fires"
    );
}

#[tokio::test]
async fn what_an_earlier_call_kept_still_counts_and_serves_one_group_only() {
    let fixture = Fixture::new(plan()).await;
    // The spec asked for two allocations; both wait in Slurm.
    fixture.store.execute_schedules(fixture.id).await.expect("executed");
    let orders = fixture.begin("me").await;
    fixture.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    let group = |job: i64, name: &str| RegenerateGroup {
        scheduler: SlurmScheduler { partition: Some(name.into()), ..scheduler(name) },
        levels: vec![vec![JobId(job)]],
        allocations: vec![1],
        has_dependencies: false,
        start_one_worker_per_node: false,
    };
    let request = RegenerateRequest { groups: vec![group(1, "x"), group(2, "y")], submit: true };
    for call in 1..=3 {
        let done =
            fixture.store.regenerate(fixture.id, request.clone()).await.expect("regenerated");
        assert_eq!(
            (done.allocations_kept, done.allocations_created),
            (2, 0),
            "call {call}: {done:?}"
        );
    }
    // One of the two is gone: what is left serves one group, and the other gets one of its own.
    fixture.observe(1, Verdict::Ended(AllocationEnding::vanished()), true).await;
    for (call, made) in [(4, 1), (5, 0)] {
        let done =
            fixture.store.regenerate(fixture.id, request.clone()).await.expect("regenerated");
        assert_eq!(done.allocations_created, made, "call {call}: {done:?}");
    }
}

#[tokio::test]
async fn retried_jobs_get_nodes_of_their_own_accord_but_never_twice() {
    let mut plan = plan();
    plan.actions[0].trigger = Trigger::AutoScheduleOnReadyJobs;
    let mut fixture = Fixture::new(plan).await;
    assert_eq!(
        fixture.store.execute_schedules(fixture.id).await,
        Ok(0),
        "a first attempt is no retry"
    );
    let asked = "SELECT count(*) FROM scheduled_compute_node";
    let mut slurm_job = 100;
    for lost in 1..=2 {
        // The allocation in which it runs is lost.
        let request = ScheduleNodes {
            workflow_id: fixture.id.0,
            scheduler: "s".into(),
            count: 1,
            key: "by hand".into(),
            ..ScheduleNodes::default()
        };
        if lost == 1 {
            fixture.store.schedule_nodes(request).await.expect("made");
        }
        assert_eq!(fixture.scalar(asked).await, lost);
        let orders = fixture.begin("me").await;
        slurm_job += 1;
        fixture.report(&orders[0].name, SubmissionOutcome::Submitted(slurm_job.to_string())).await;
        fixture.runner =
            fixture.register_in(lost, &slurm_job.to_string()).await.expect("registered");
        assert_eq!(fixture.claim(vec![]).await.attempts.len(), 1);
        fixture
            .store
            .writer
            .call(|tx| Ok(tx.db.execute("UPDATE compute_node SET last_seen_ms = 0", [])?))
            .await
            .expect("set");
        fixture.restart();
        let ending = AllocationEnding {
            state: "NODE_FAIL".into(),
            cause: Cause::NodeFail,
            text: "a node failed".into(),
            is_vanished: false,
        };
        fixture.observe(lost, Verdict::Ended(ending), false).await;
        assert_eq!(fixture.statuses().await[0], ("a".into(), 2, lost + 1), "it is ready again");
        assert_eq!(fixture.store.execute_schedules(fixture.id).await, Ok(1));
        assert_eq!(fixture.scalar(asked).await, lost + 1, "one job needs one allocation, not two");
        assert_eq!(
            fixture.store.execute_schedules(fixture.id).await,
            Ok(0),
            "a second look asks for nothing"
        );
    }
    // One that never ran a job gets no successor: whatever is wrong would be wrong again.
    let ending = AllocationEnding {
        state: "FAILED".into(),
        cause: Cause::Lost,
        text: "the script failed".into(),
        is_vanished: false,
    };
    let orders = fixture.begin("me").await;
    fixture.report(&orders[0].name, SubmissionOutcome::Submitted("200".into())).await;
    fixture.observe(3, Verdict::Ended(ending), false).await;
    assert_eq!(fixture.store.execute_schedules(fixture.id).await, Ok(0));
    assert_eq!(fixture.scalar(asked).await, 3);
}

#[tokio::test]
async fn nodes_count_in_a_forecast_from_when_slurm_plans_to_start_them() {
    let mut plan = plan();
    let minutes = Requirements {
        name: "minutes".into(),
        num_cpus: 1,
        num_gpus: 0,
        num_nodes: 1,
        memory: None,
        runtime: Some(Runtime(300)),
    };
    plan.resource_requirements = vec![minutes];
    plan.jobs = vec![job("a", &[])];
    plan.jobs[0].resource_requirements = Some(0);
    let f = Fixture::new(plan).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    for order in f.begin("me").await {
        f.report(&order.name, SubmissionOutcome::Submitted("77".into())).await;
    }
    // What this runner had is what such nodes have.
    let bye = torc_model::api::Goodbye { reason: "done".into(), cause: None };
    f.store.goodbye(f.runner, bye).await.expect("left");
    let nothing = torc_model::forecast::Machines::default();
    let before = f.store.forecast(f.id, nothing.clone(), false).await.expect("made");
    assert_eq!(before.limited_by, torc_model::forecast::LimitedBy::Queue);
    assert!(before.seconds < 3_600.0, "Slurm has not said when: {before:?}");
    let start = f.scalar("SELECT max(started_ms) FROM compute_node").await + 3_600_000;
    let waiting =
        Verdict::Alive { phase: AllocationPhase::Waiting, reason: Some("Priority".into()) };
    let item = Observation {
        id: 2,
        verdict: waiting,
        slurm_job_id: None,
        is_missing: false,
        before: None,
        expected_start_ms: Some(start),
        moves: None,
    };
    let seen = Observations { items: vec![item], dry_run: false };
    f.store.observe_allocations(seen).await.expect("observed");
    let sql = "SELECT expected_start_ms FROM scheduled_compute_node WHERE id = 2";
    assert_eq!(f.scalar(sql).await, start);
    let after = f.store.forecast(f.id, nothing, false).await.expect("made");
    assert_eq!(after.limited_by, torc_model::forecast::LimitedBy::Queue);
    assert!((3_600.0..3_800.0).contains(&after.seconds), "{after:?}");
    assert!(after.bound_seconds >= 3_590.0, "{after:?}");
}
