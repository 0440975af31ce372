//! Pool runners: whom they serve, how fairly, and what that costs.

use super::super::read::Audience;
use super::*;
use std::sync::Arc;
use torc_model::api::{PoolClaimRequest, RegisterPoolRunner};
use torc_model::ids::PoolRunnerId;
use torc_model::plan::Requirements;

/// A store without workflows.
struct World {
    store: Store,
    directory: tempfile::TempDir,
}

/// A simulated runner of a pool runner.
struct Child {
    workflow: WorkflowId,
    runner: RunnerId,
    held: Vec<torc_model::api::AttemptPacket>,
}

fn cpus(num_cpus: i64) -> Capacity {
    Capacity { num_cpus, memory_bytes: 64 << 30, num_nodes: 1, ..Capacity::default() }
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(open(&directory.path().join("torc.db"))).expect("a store");
        Self { store, directory }
    }

    async fn workflow(&self, owner: &str, jobs: usize, cpus: u32, initialize: bool) -> WorkflowId {
        let plan = Plan {
            name: format!("of_{owner}"),
            jobs: (0..jobs)
                .map(|n| Job { resource_requirements: Some(0), ..job(&format!("j{n}"), &[]) })
                .collect(),
            resource_requirements: vec![Requirements {
                name: "some".into(),
                num_cpus: cpus,
                ..Requirements::default()
            }],
            ..Plan::default()
        };
        let request = Creation {
            maker: None,
            spec: json!({}).into(),
            user: Some(owner.into()),
            initialize,
            force: false,
            key: None,
            directory: None,
            spec_path: None,
        };
        let create =
            self.store.writer.call(move |tx| create::create(tx, &request, plan, &[], Vec::new()));
        create.await.expect("created").id
    }

    async fn pool(&self, key: &str, num_cpus: i64, label: Option<&str>) -> PoolRunnerId {
        let request = RegisterPoolRunner {
            key: key.into(),
            hostname: "there".into(),
            pid: 1,
            capacity: cpus(num_cpus),
            label: label.map(Into::into),
        };
        self.store.register_pool_runner(request, None).await.expect("registered")
    }

    async fn next(&self, pool: PoolRunnerId, audience: &Audience) -> Option<WorkflowId> {
        let request = PoolClaimRequest::default();
        let answer = self.store.claim_for_pool(pool, request, audience.clone()).await;
        answer.expect("an answer").workflow_id
    }

    async fn child(&self, pool: PoolRunnerId, workflow: WorkflowId, num_cpus: i64) -> Child {
        let request = RegisterRunner {
            workflow_id: workflow,
            key: format!("{pool}-{workflow}-{}", getrandom::u64().unwrap()),
            hostname: "there".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start: 1,
            capacity: cpus(num_cpus),
            time_left_seconds: None,
            kind: RunnerKind::Local,
            scheduler: None,
            label: None,
            output_dir: "/output".into(),
            force: true,
            pool_runner_id: Some(pool),
        };
        let runner = self.store.register_runner(request).await.expect("registered").id;
        Child { workflow, runner, held: Vec::new() }
    }

    /// Reports the end of so many attempts and claims more; how many it got.
    async fn exchange(&self, child: &mut Child, ends: usize, num_cpus: i64) -> usize {
        let completed = child.held.drain(..ends).map(|packet| ended(&packet, 0)).collect();
        let request = ClaimRequest {
            runner_id: child.runner,
            key: getrandom::u64().unwrap().to_string(),
            limit: 100,
            capacity: cpus(num_cpus),
            time_left_seconds: None,
            prefetch: 50,
            wait_seconds: 0.0,
            started: Vec::new(),
            completed,
            strict_scheduler_match: false,
            is_alone: None,
        };
        let answer = self.store.claim(child.workflow, request).await.expect("an answer");
        let count = answer.attempts.len();
        child.held.extend(answer.attempts);
        count
    }
}

#[tokio::test]
async fn free_places_are_shared_equally_between_owners_whatever_they_have() {
    let world = World::new();
    for _ in 0..5 {
        world.workflow("alice", 100, 1, true).await;
    }
    let bob = world.workflow("bob", 100, 1, true).await;
    let pool = world.pool("p", 20, None).await;
    let mut children = Vec::new();
    while let Some(workflow) = world.next(pool, &Audience::All).await {
        children.push(world.child(pool, workflow, 20).await);
    }
    assert!(children.iter().any(|child| child.workflow == bob), "each workflow has its turn");
    // Each asks several times, in any order: the gate lets the right one through.
    for _ in 0..20 {
        for child in &mut children {
            world.exchange(child, 0, 20).await;
        }
    }
    let held = |owner: bool| -> usize {
        let of = children.iter().filter(|child| (child.workflow == bob) == owner);
        of.map(|child| child.held.len()).sum()
    };
    assert_eq!((held(true), held(false)), (10, 10), "20 CPUs, two owners");
}

#[tokio::test]
async fn what_others_of_a_pool_runner_hold_is_not_given_twice() {
    let world = World::new();
    let (one, two) =
        (world.workflow("alice", 9, 1, true).await, world.workflow("alice", 9, 1, true).await);
    let pool = world.pool("p", 4, None).await;
    world.next(pool, &Audience::All).await;
    let mut first = world.child(pool, one, 4).await;
    let mut second = world.child(pool, two, 4).await;
    let mut held = 0;
    for _ in 0..8 {
        held += world.exchange(&mut first, 0, 4).await + world.exchange(&mut second, 0, 4).await;
    }
    assert_eq!(held, 4);
    assert_eq!((first.held.len(), second.held.len()), (2, 2), "workflows of one owner alternate");
    let ends = first.held.len();
    assert_eq!(world.exchange(&mut first, ends, 4).await, 1, "then it is the other's turn");
    assert_eq!(world.exchange(&mut second, 0, 4).await, 1);
}

#[tokio::test]
async fn a_pool_runner_sees_what_its_token_sees_and_takes_what_fits() {
    let world = World::new();
    let alice = world.workflow("alice", 1, 1, true).await;
    world.workflow("bob", 1, 1, true).await;
    let large = world.workflow("alice", 1, 8, true).await;
    let of_alice = Audience::User(Arc::from("alice"));
    let pool = world.pool("p", 4, None).await;
    assert_eq!(world.next(pool, &of_alice).await, Some(alice), "`{large}` does not fit");
    assert_eq!(
        world.next(pool, &of_alice).await,
        None,
        "one was told already, the rest is not hers"
    );
    let labelled = world.pool("l", 4, Some("gpu")).await;
    assert_eq!(world.next(labelled, &Audience::All).await, None, "no job has its label");
}

#[tokio::test]
async fn one_job_calls_one_pool_runner_and_a_waiting_one_hears_of_new_work() {
    let world = World::new();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..10 {
        let pool = world.pool(&format!("p{n}"), 4, None).await;
        let store = world.store.clone();
        let request = PoolClaimRequest { wait_seconds: 30.0, ..PoolClaimRequest::default() };
        waiting.spawn(async move { store.claim_for_pool(pool, request, Audience::All).await });
    }
    // All of them wait when their number is that of open receivers.
    while world.store.writer.call(|tx| Ok(tx.state.pools.waiting())).await.unwrap() < 10 {
        tokio::task::yield_now().await;
    }
    let workflow = world.workflow("alice", 1, 1, true).await;
    let first = waiting.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(first.workflow_id, Some(workflow));
    world.store.flush().await.unwrap();
    assert_eq!(waiting.len(), 9, "the others were not woken for one job");
    waiting.abort_all();
}

#[tokio::test]
async fn a_drained_pool_runner_gets_nothing_also_after_a_restart() {
    let mut world = World::new();
    let workflow = world.workflow("alice", 4, 1, true).await;
    let pool = world.pool("p", 4, None).await;
    let mut child = world.child(pool, workflow, 4).await;
    assert_eq!(world.exchange(&mut child, 0, 4).await, 4);
    world.store.order_pool_runner(pool, Some(RunnerOrder::Drain)).await.unwrap();
    let path = world.directory.path().join("torc.db");
    world.store = Store::open(open(&path)).expect("a store");
    world.store.recover(Trigger::Sweep).await.unwrap();
    assert_eq!(world.next(pool, &Audience::All).await, None);
    let other = world.workflow("bob", 4, 1, true).await;
    assert_eq!(world.next(pool, &Audience::All).await, None);
    let job = world.store.explain_workflow(other).await.unwrap();
    let why = &job.groups[0].explanation;
    assert!(why.details.iter().any(|detail| detail.contains("is drained")), "{why:?}");
    assert!(why.hints.iter().any(|hint| hint.contains("resume --pool")), "{why:?}");
    world.store.order_pool_runner(pool, None).await.unwrap();
    let ends = child.held.len();
    world.exchange(&mut child, ends, 4).await;
    assert_eq!(world.next(pool, &Audience::All).await, Some(other));
}

#[tokio::test]
async fn workflows_with_nothing_to_give_are_not_looked_at() {
    let world = World::new();
    let pool = world.pool("p", 4, None).await;
    for _ in 0..200 {
        world.workflow("alice", 1, 1, false).await;
    }
    let one = world.workflow("bob", 1, 1, true).await;
    let indexed = world.store.writer.call(|tx| Ok(tx.state.pools.indexed())).await.unwrap();
    assert_eq!(indexed, 1);
    assert_eq!(world.next(pool, &Audience::All).await, Some(one));
}

/// Many that come at once are sent to all owners, before the first of them has taken anything.
#[tokio::test]
async fn pool_runners_that_come_at_once_are_shared_out_between_owners() {
    let world = World::new();
    for owner in ["alice", "bob", "carol", "dave"] {
        world.workflow(owner, 100, 1, true).await;
    }
    let mut given = std::collections::BTreeMap::new();
    for n in 0..40 {
        let pool = world.pool(&format!("p{n}"), 1, None).await;
        let workflow = world.next(pool, &Audience::All).await.expect("there is work");
        *given.entry(workflow).or_insert(0) += 1;
    }
    assert_eq!(given.into_values().collect::<Vec<_>>(), [10, 10, 10, 10]);
}

/// Pool runners of one CPU, each with a runner that holds a job and waits for more, and one more runner
/// without a job.
struct Busy {
    world: World,
    children: Vec<Child>,
    waiting: tokio::task::JoinSet<(WorkflowId, usize)>,
}

impl Busy {
    async fn new(owners: &[&str], count: usize) -> Self {
        let world = World::new();
        for owner in owners {
            world.workflow(owner, 10 * count, 1, true).await;
        }
        let mut children = Vec::new();
        for n in 0..count {
            let pool = world.pool(&format!("p{n}"), 1, None).await;
            let workflow = world.next(pool, &Audience::All).await.expect("there is work");
            let mut child = world.child(pool, workflow, 1).await;
            assert_eq!(world.exchange(&mut child, 0, 1).await, 1);
            children.push(child);
        }
        let mut busy = Self { world, children, waiting: tokio::task::JoinSet::new() };
        for n in 0..count {
            busy.listen(n).await;
        }
        busy
    }

    /// A runner waits for more, as it does while its job runs.
    async fn listen(&mut self, nth: usize) {
        let child = &self.children[nth];
        let (store, workflow) = (self.world.store.clone(), child.workflow);
        let request = ClaimRequest {
            runner_id: child.runner,
            key: getrandom::u64().unwrap().to_string(),
            limit: 100,
            capacity: cpus(1),
            time_left_seconds: None,
            prefetch: 0,
            wait_seconds: 60.0,
            started: Vec::new(),
            completed: Vec::new(),
            strict_scheduler_match: false,
            is_alone: None,
        };
        let before = self.world.store.metrics().waiting_claims.get();
        self.waiting.spawn(async move {
            let answer = store.claim(workflow, request).await.expect("an answer");
            (workflow, answer.attempts.len())
        });
        for _ in 0..1_000_000 {
            if self.world.store.metrics().waiting_claims.get() > before {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the claim does not wait");
    }

    /// How often a claim has looked for work, and how often a pool runner was looked at.
    async fn looks(&self) -> (u64, u64) {
        // What was woken by now has asked the writer before this does.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let choices = self.world.store.writer.call(|tx| Ok(tx.state.pools.choices)).await.unwrap();
        (self.world.store.metrics().claims.count(), choices)
    }
}

#[tokio::test]
async fn the_end_of_a_job_is_a_matter_of_its_own_pool_runner() {
    let mut busy = Busy::new(&["alice", "bob"], 60).await;
    let before = busy.looks().await;
    for nth in 0..10 {
        let child = &mut busy.children[nth];
        assert_eq!(busy.world.exchange(child, 1, 1).await, 1, "its workflow goes on there");
    }
    let after = busy.looks().await;
    assert_eq!(after.0 - before.0, 10, "no other claim was woken");
    assert!(after.1 - before.1 <= 30, "{} looks at pool runners for ten ends", after.1 - before.1);
}

#[tokio::test]
async fn a_runner_that_comes_wakes_no_claims_but_of_one_that_was_alone() {
    let busy = Busy::new(&["alice"], 20).await;
    let other = busy.world.workflow("bob", 1, 1, true).await;
    let before = busy.looks().await.0;
    let pool = busy.world.pool("late", 1, None).await;
    busy.world.child(pool, other, 1).await;
    busy.world.child(pool, busy.children[0].workflow, 1).await;
    assert_eq!(busy.looks().await.0, before);
}

#[tokio::test]
async fn a_waiting_runner_hears_when_its_pool_runner_has_room_again() {
    let world = World::new();
    let first = world.workflow("alice", 1, 1, true).await;
    let second = world.workflow("bob", 5, 1, true).await;
    let pool = world.pool("p", 1, None).await;
    let mut one = world.child(pool, first, 1).await;
    assert_eq!(world.exchange(&mut one, 0, 1).await, 1);
    let mut two = world.child(pool, second, 1).await;
    assert_eq!(world.exchange(&mut two, 0, 1).await, 0, "the CPU is in use");
    let mut busy = Busy { world, children: vec![two], waiting: tokio::task::JoinSet::new() };
    busy.listen(0).await;
    busy.world.exchange(&mut one, 1, 1).await;
    let woken = tokio::time::timeout(std::time::Duration::from_secs(20), busy.waiting.join_next());
    assert_eq!(woken.await.expect("it was woken").unwrap().unwrap(), (second, 1));
}

#[tokio::test]
async fn a_runner_that_others_came_before_hears_when_it_is_its_turn() {
    let world = World::new();
    let first = world.workflow("alice", 50, 1, true).await;
    let busy_elsewhere = world.pool("q", 4, None).await;
    let mut more = world.child(busy_elsewhere, first, 4).await;
    assert_eq!(world.exchange(&mut more, 0, 4).await, 4, "alice holds four CPUs");
    let pool = world.pool("p", 1, None).await;
    assert_eq!(world.next(pool, &Audience::All).await, Some(first));
    let mut one = world.child(pool, first, 1).await;
    // Bob holds nothing, so he is next; his runner does not come.
    let second = world.workflow("bob", 1, 1, true).await;
    assert_eq!(world.exchange(&mut one, 0, 1).await, 0, "others come first");
    let mut busy = Busy { world, children: vec![one], waiting: tokio::task::JoinSet::new() };
    busy.listen(0).await;
    // His job is taken elsewhere.
    let elsewhere = busy.world.pool("r", 1, None).await;
    let mut two = busy.world.child(elsewhere, second, 1).await;
    assert_eq!(busy.world.exchange(&mut two, 0, 1).await, 1);
    let woken = tokio::time::timeout(std::time::Duration::from_secs(20), busy.waiting.join_next());
    assert_eq!(woken.await.expect("it was woken").unwrap().unwrap(), (first, 1));
}
