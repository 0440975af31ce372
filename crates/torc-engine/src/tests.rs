//! Random graphs and random histories: whatever happens in whatever order, the invariants hold
//! after every step.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use torc_model::api::{Capacity, ErrorCode, Evidence};
use torc_model::attempt::Ending;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::{Rule, Settings};
use torc_model::status::{
    Afterwards, AttemptState, Cause, DispatchOrder, EndedBy, EvidenceSource, JobStatus, Origin,
    RunningJobs, StatusReason,
};

const fn ix(at: usize) -> JobIx {
    JobIx::new(at)
}

/// What the changes say, kept apart from the engine: the database of the test.
#[derive(Default)]
struct Ledger {
    jobs: BTreeMap<JobId, JobStatus>,
    attempts: BTreeMap<AttemptId, (JobId, AttemptState)>,
    numbers: HashSet<(JobId, i64, u32)>,
    retried: HashSet<AttemptId>,
}

impl Ledger {
    fn write(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Job { id, status, .. } => {
                    self.jobs.insert(id, status);
                }
                Change::AttemptQueued(new) => {
                    let live = self
                        .attempts
                        .values()
                        .filter(|(job, state)| *job == new.job && state.is_live())
                        .count();
                    assert_eq!(live, 0, "two live attempts of job {}", new.job);
                    assert!(
                        self.numbers.insert((new.job, new.run, new.number)),
                        "attempt number given twice: {new:?}"
                    );
                    if let Some(of) = new.retry_of {
                        assert!(self.retried.insert(of), "attempt {of} retried twice");
                        assert!(!self.attempts[&of].1.is_live(), "a live attempt was retried");
                    }
                    self.attempts.insert(new.id, (new.job, AttemptState::Queued));
                }
                Change::AttemptClaimed { id, .. } => self.step(id, AttemptEvent::Claimed),
                Change::AttemptStarted { id, .. } => self.step(id, AttemptEvent::Started),
                Change::AttemptEnded(id, end) => {
                    self.step(id, AttemptEvent::Ended(end.state.expect("an end has a state")));
                }
                Change::MapExpanded(..)
                | Change::ItemsAdded { .. }
                | Change::ItemChanged(..)
                | Change::JobAdjusted(..)
                | Change::JobScheduler(..)
                | Change::AdjustmentNoted(_)
                | Change::JobWaitsFor(..)
                | Change::RecoveryActionsGone
                | Change::Settings(_)
                | Change::ItemGone(..)
                | Change::JobHeld(..)
                | Change::Times { .. }
                | Change::JobAfterwards(..)
                | Change::AttemptCancelRequested(_)
                | Change::AttemptDelayed { .. }
                | Change::Event { .. }
                | Change::Action { .. }
                | Change::AttemptRefunded(_)
                | Change::AttemptExplained { .. }
                | Change::AttemptSteps(..)
                | Change::Captured(..)
                | Change::Runner(..)
                | Change::Limit(_)
                | Change::Reservation(_)
                | Change::JobIdsTaken(_)
                | Change::Allocation(..)
                | Change::WorkflowDeleted
                | Change::Workflow { .. } => {}
            }
        }
    }

    fn step(&mut self, id: AttemptId, event: AttemptEvent) {
        let (_, state) = self.attempts.get_mut(&id).expect("the attempt was queued before");
        *state = state.after(event).expect("attempts move one way");
    }
}

struct World {
    workflow: Workflow,
    ledger: Ledger,
    limits: Limits,
    capacity: Capacity,
    now: i64,
    nonce: u64,
}

impl World {
    fn new(edges: &[(usize, usize)], careless: &[bool], rules: bool, pending: bool) -> Self {
        let rule = |codes: &[i32], all| Rule {
            exit_codes: codes.to_vec(),
            match_all_exit_codes: all,
            ..Rule::default()
        };
        let handlers = if rules {
            let backoff = torc_model::plan::Backoff {
                delay_seconds: 5.0,
                factor: 2.0,
                max_seconds: None,
                jitter: 0.5,
            };
            let list = [
                Rule { backoff: Some(backoff), ..rule(&[1], false) },
                Rule { max_retries: 2, ..rule(&[], true) },
            ];
            vec![CompiledHandler::new("h", &list).expect("valid rules")]
        } else {
            Vec::new()
        };
        let settings = Settings { use_pending_failed: pending, ..Settings::default() };
        let mut workflow = Workflow::new(WorkflowId(1), settings, handlers);
        for (i, careless) in careless.iter().enumerate() {
            let parents = edges
                .iter()
                .filter(|(_, to)| *to == i)
                .map(|(from, _)| JobIx::new(*from))
                .collect();
            workflow.add_job(NewJob {
                id: JobId(i as i64 + 1),
                priority: (i % 3) as i64,
                position: i as i64,
                family: 0,
                own_ms: None,
                class: Class {
                    cpus: 1 + (i % 2) as u32,
                    nodes: 1,
                    uses: limit_of(i),
                    ..Class::default()
                },
                handler: (rules && i % 4 != 3).then_some(HandlerIx::new(0)),
                cancel_on_failure: !careless,
                max_lost: 2,
                parents,
            });
        }
        workflow.settle();
        let limits =
            Limits::from([("licence".to_owned(), LimitUse { max: 1, ..LimitUse::default() })]);
        let capacity =
            Capacity { num_cpus: 3, memory_bytes: 1 << 30, num_nodes: 1, ..Capacity::default() };
        Self { workflow, ledger: Ledger::default(), limits, capacity, now: 1000, nonce: 7 }
    }

    fn claim(&mut self, runner: i64, limit: usize, prefetch: usize) {
        self.nonce += 1;
        let claim = Claim {
            runner: RunnerId(runner),
            key: "k",
            limit,
            prefetch,
            capacity: &self.capacity,
            time_left: None,
            scheduler: None,
            strict_scheduler: false,
            label: None,
            now: self.now,
            nonce: self.nonce,
        };
        for claimed in self.workflow.claim(&claim, &mut self.limits) {
            for parent in self.workflow.parents_of(claimed.index) {
                assert!(
                    self.workflow.is_met(*parent, claimed.index),
                    "a child was claimed before its parents"
                );
            }
        }
    }

    fn held(&self, pick: usize) -> Option<JobIx> {
        let held: Vec<JobIx> =
            self.workflow.indexes().filter(|i| self.workflow.jobs[*i].held().is_some()).collect();
        (!held.is_empty()).then(|| held[pick % held.len()])
    }

    fn end(&mut self, index: JobIx, cause: Option<Cause>, code: i64) {
        let ending = Ending { cause, return_code: Some(code), ..Ending::default() };
        let end = End { ending, ..End::new(EndedBy::Runner, self.now) };
        self.workflow.ended(index, end, &mut self.limits);
    }

    fn lose(&mut self, runner: i64) {
        let evidence = Evidence { source: EvidenceSource::Node, text: "gone".into() };
        let causes = [Cause::Lost, Cause::Preempted, Cause::NodeFail, Cause::Walltime];
        let lost = Lost { cause: causes[self.nonce as usize % causes.len()], evidence };
        self.workflow.runner_lost(RunnerId(runner), &lost, &mut self.limits, self.now);
    }

    fn reset(&mut self, seeds: &Seeds) {
        if let Ok(chosen) = self.workflow.plan_reset(seeds) {
            self.workflow.reset(&chosen, self.now);
        }
    }

    /// One random step.
    fn step(&mut self, op: u8, pick: usize) {
        let index = JobIx::new(pick % self.workflow.jobs.len());
        let runner = (pick % 3) as i64 + 1;
        match op % 24 {
            0 | 1 => self.claim(runner, 4, 0),
            2 => self.claim(runner, 8, 3),
            3 | 4 => {
                if let Some(i) = self.held(pick) {
                    self.workflow.started(i, 1, self.now);
                }
            }
            5..=8 => {
                if let Some(i) = self.held(pick) {
                    self.end(i, None, 0);
                }
            }
            9 => self.end_held(pick, Cause::Exit, 1),
            10 => self.end_held(pick, Cause::Exit, 2),
            11 => self.end_held(pick, Cause::Timeout, 152),
            12 => {
                let causes = [Cause::Stopped, Cause::Preempted, Cause::NodeFail, Cause::Walltime];
                self.end_held(pick, causes[pick % causes.len()], 143);
            }
            13 => self.lose(runner),
            14 => {
                let _ = self.workflow.cancel_job(index, self.now);
            }
            15 => {
                let run = self.workflow.run;
                let _ = self.workflow.retry(index, run, 4, self.now);
            }
            16 => {
                let _ = self.workflow.classify(index, pick.is_multiple_of(2), self.now);
            }
            17 => self.workflow.hold(index, pick.is_multiple_of(2)),
            18 => {
                if pick.is_multiple_of(5) {
                    let _ = self.workflow.disable(index, self.now);
                } else if pick.is_multiple_of(3) {
                    let _ = self.workflow.enable(index, self.now);
                } else {
                    let by = super::Adjustment {
                        memory: Some(1 << 20),
                        priority: Some((pick % 7) as i64),
                        ..Default::default()
                    };
                    self.workflow.adjust(index, by);
                }
            }
            19 => {
                let seeds =
                    [Seeds::FailedOnly, Seeds::Named(vec![index]), Seeds::All][pick % 3].clone();
                self.reset(&seeds);
                if pick.is_multiple_of(2) {
                    self.workflow.initialize(self.now);
                }
            }
            20 => {
                if pick.is_multiple_of(4) {
                    self.workflow.cancel(self.now);
                }
            }
            21 | 22 => self.revise(index, pick),
            _ => self.now += 3000,
        }
    }

    /// A random revision: a new job or two, a job with other parents, one that is removed, one that
    /// runs again with what depends on it.
    fn revise(&mut self, index: JobIx, pick: usize) {
        let count = self.workflow.jobs.len();
        let running = if pick.is_multiple_of(2) { RunningJobs::Stop } else { RunningJobs::Finish };
        let mut revision = Revision { running, ..Revision::default() };
        // Parents come before their children, so that no cycle can arise.
        let parents = |below: usize, seed: usize| -> Vec<JobIx> {
            JobIx::range(0..below).filter(|i| (i.at() + seed).is_multiple_of(4)).collect()
        };
        if count < 40 {
            for new in 0..pick % 3 {
                revision.added.push(NewJob {
                    id: JobId((count + new) as i64 + 1),
                    priority: 0,
                    position: (count + new) as i64,
                    family: 0,
                    own_ms: None,
                    class: Class { cpus: 1, nodes: 1, ..Class::default() },
                    handler: None,
                    cancel_on_failure: !pick.is_multiple_of(7),
                    max_lost: 2,
                    parents: parents(count + new, pick),
                });
            }
        }
        let job = &self.workflow.jobs[index];
        let is_removed = |job: &Job| {
            job.reason() == Some(StatusReason::Removed)
                || job.afterwards == Some(Afterwards::Remove)
        };
        let mut again = BTreeSet::new();
        if pick.is_multiple_of(5) && !is_removed(job) {
            revision.removed.push(index);
        } else if pick.is_multiple_of(3) {
            revision.changed.push(ChangedJob {
                index,
                priority: 3,
                family: 0,
                class: Class { cpus: 2, nodes: 1, ..Class::default() },
                handler: job.handler,
                cancel_on_failure: job.cancel_on_failure,
                max_lost: 1,
                parents: Some(parents(index.at(), pick / 3)),
            });
            again.insert(index);
        } else {
            again.insert(index);
        }
        let others = |i: JobIx| match revision.changed.first().filter(|c| c.index == i) {
            Some(changed) => changed.parents.clone().unwrap_or_default(),
            None => self.workflow.parents_of(i).to_vec(),
        };
        for i in JobIx::range(index.at()..count) {
            if others(i).iter().any(|parent| again.contains(parent)) {
                again.insert(i);
            }
        }
        revision.again = again
            .into_iter()
            .filter(|i| {
                let job = &self.workflow.jobs[*i];
                let waits = matches!(
                    job.status(),
                    JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready
                );
                !(waits || is_removed(job) && *i != index)
            })
            .collect();
        let (run, was_complete) = (self.workflow.run, self.workflow.is_complete());
        if self.workflow.revise(revision, self.now).is_ok() {
            assert!(self.workflow.run == run || was_complete, "a run that goes on is the same one");
        }
    }

    fn end_held(&mut self, pick: usize, cause: Cause, code: i64) {
        if let Some(i) = self.held(pick) {
            self.end(i, Some(cause), code);
        }
    }

    fn check(&mut self) {
        let changes = self.workflow.take_changes();
        self.ledger.write(changes);
        let w = &self.workflow;
        let mut counts = [0; 11];
        let mut licences = 0;
        for (index, job) in w.indexes().zip(w.jobs()) {
            counts[job.status() as usize] += 1;
            let written =
                self.ledger.jobs.get(&job.id).copied().unwrap_or(JobStatus::Uninitialized);
            assert_eq!(written, job.status(), "what was written is what is");
            let live =
                matches!(job.status(), JobStatus::Ready | JobStatus::Pending | JobStatus::Running);
            assert_eq!(job.live().is_some(), live, "job {} is {}", job.id, job.status());
            assert_eq!(job.held().is_some(), job.status().is_held());
            if job.status() == JobStatus::Blocked {
                assert_eq!(job.unmet, w.count_unmet(index), "the counter of job {}", job.id);
                assert!(job.unmet > 0, "job {} is blocked by nothing", job.id);
                let dead = w.parents_of(index).iter().any(|p| w.jobs[*p].status().is_bad_end());
                assert!(
                    !(dead && job.cancel_on_failure),
                    "job {} waits for what will not come",
                    job.id
                );
            }
            if let Some(id) = job.live() {
                let state = job.held().map_or(AttemptState::Queued, |h| h.state);
                assert_eq!(self.ledger.attempts.get(&id), Some(&(job.id, state)));
            }
            licences += i64::from(job.held().is_some() && !w.classes[job.class].uses.is_empty());
        }
        for status in JobStatus::ALL.iter().copied() {
            assert_eq!(counts[status as usize], w.jobs.count(status), "{status}");
        }
        assert!(licences <= 1, "a named limit was exceeded");
        assert_eq!(self.limits["licence"].used, licences);
        let all_final = w.jobs.iter().all(|j| j.status().is_final());
        assert_eq!(w.is_complete(), all_final);
        let live = self.ledger.attempts.values().filter(|(_, s)| s.is_live()).count();
        assert_eq!(live, w.attempts.len());
    }

    /// Faults stop: everything reaches an end.
    fn drain(&mut self) {
        self.workflow.canceled = false;
        for _ in 0..10 * self.workflow.jobs.len() + 10 {
            self.now += 3_600_000;
            self.workflow.initialize(self.now);
            for runner in 1..4 {
                self.claim(runner, 100, 0);
            }
            for index in self.workflow.indexes() {
                self.workflow.hold(index, false);
                if self.workflow.jobs[index].status() == JobStatus::PendingFailed {
                    self.workflow.classify(index, false, self.now).expect("it waits for a verdict");
                }
                if self.workflow.jobs[index].held().is_some() {
                    self.end(index, None, 0);
                }
            }
            self.check();
            if self.workflow.is_complete() {
                return;
            }
        }
        panic!("jobs were lost: {:?}", self.workflow.jobs);
    }
}

fn limit_of(i: usize) -> Vec<String> {
    if i % 5 == 2 { vec!["licence".to_owned()] } else { Vec::new() }
}

type History = (Vec<(usize, usize)>, Vec<bool>, bool, bool, Vec<(u8, usize)>);

fn histories() -> impl Strategy<Value = History> {
    (2usize..12).prop_flat_map(|n| {
        let edge = (0..n - 1, 0..n - 1).prop_map(|(a, b)| (a.min(b), a.max(b) + 1));
        let edges =
            prop::collection::btree_set(edge, 0..2 * n).prop_map(|s| s.into_iter().collect());
        let careless = prop::collection::vec(prop::bool::weighted(0.2), n);
        let ops = prop::collection::vec((any::<u8>(), 0usize..1000), 1..120);
        (edges, careless, any::<bool>(), any::<bool>(), ops)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_after_every_step((edges, careless, rules, pending, ops) in histories()) {
        let mut world = World::new(&edges, &careless, rules, pending);
        world.workflow.initialize(world.now);
        world.check();
        for (op, pick) in ops {
            world.step(op, pick);
            world.check();
        }
        world.drain();
    }

    /// Restoring from what was written gives the same state: same statuses, same counters, same
    /// order of dispatch.
    #[test]
    fn a_restored_workflow_is_the_same((edges, careless, rules, pending, ops) in histories()) {
        let mut world = World::new(&edges, &careless, rules, pending);
        world.workflow.initialize(world.now);
        for (op, pick) in ops {
            world.step(op, pick);
        }
        let mut restored = world.workflow.clone();
        restored.settle();
        prop_assert_eq!(&restored.ready.queue, &world.workflow.ready.queue);
        prop_assert_eq!(&restored.jobs, &world.workflow.jobs);
        prop_assert_eq!(&restored.attempts, &world.workflow.attempts);
    }
}

fn chain(n: usize) -> World {
    let edges: Vec<_> = (1..n).map(|i| (i - 1, i)).collect();
    World::new(&edges, &vec![false; n], false, false)
}

#[test]
fn a_failure_cancels_ten_thousand_levels() {
    let mut world = chain(10_000);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    world.end(ix(0), Some(Cause::Exit), 1);
    assert!(world.workflow.is_complete());
    assert_eq!(world.workflow.counts()[JobStatus::Canceled as usize], 9_999);
    world.check();
}

#[test]
fn a_late_success_does_not_hide_an_early_failure() {
    // a -> (b, c) -> d -> e; b fails first, c succeeds later.
    let mut world =
        World::new(&[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)], &[false; 5], false, false);
    world.workflow.initialize(0);
    world.capacity.num_cpus = 8;
    world.claim(1, 9, 0);
    world.end(ix(0), None, 0);
    world.claim(1, 9, 0);
    world.end(ix(1), Some(Cause::Exit), 1);
    world.end(ix(2), None, 0);
    let statuses: Vec<_> = world.workflow.jobs.iter().map(|j| j.status().as_str()).collect();
    assert_eq!(statuses, ["completed", "failed", "completed", "canceled", "canceled"]);
    world.check();
    // A retry of b brings d and e back.
    world.workflow.retry(ix(1), 1, 3, 5).expect("it may be retried");
    let statuses: Vec<_> = world.workflow.jobs.iter().map(|j| j.status().as_str()).collect();
    assert_eq!(statuses, ["completed", "ready", "completed", "blocked", "blocked"]);
    world.check();
}

#[test]
fn an_enabled_job_becomes_what_it_would_be() {
    use JobStatus::{Blocked, Completed, Disabled, Ready, Uninitialized};
    let mut world = chain(3);
    let statuses =
        |world: &World| world.workflow.jobs.iter().map(|j| j.status()).collect::<Vec<_>>();
    world.workflow.disable(ix(1), 0).expect("it has not started");
    world.workflow.enable(ix(1), 0).expect("it is disabled");
    assert_eq!((statuses(&world), world.workflow.run), (vec![Uninitialized; 3], 0));
    world.workflow.initialize(0);
    world.workflow.disable(ix(0), 0).expect("it has not started");
    assert_eq!(statuses(&world), [Disabled, Ready, Blocked]);
    world.workflow.enable(ix(0), 0).expect("it is disabled");
    assert_eq!((statuses(&world), world.workflow.run), (vec![Ready, Blocked, Blocked], 1));
    world.check();
    world.workflow.disable(ix(1), 0).expect("it has not started");
    while !world.workflow.is_complete() {
        world.claim(1, 1, 0);
        let index = world.held(0).expect("one can run");
        world.end(index, None, 0);
    }
    world.workflow.enable(ix(1), 0).expect("it is disabled");
    assert_eq!(
        (statuses(&world), world.workflow.run),
        (vec![Completed, Uninitialized, Uninitialized], 2)
    );
    let refused = world.workflow.enable(ix(1), 0).expect_err("it is not disabled");
    assert_eq!(refused.code, ErrorCode::WrongStatus);
    world.check();
}

fn new_job(id: i64, parents: &[usize]) -> NewJob {
    NewJob {
        id: JobId(id),
        priority: 0,
        position: id,
        family: 0,
        own_ms: None,
        class: Class { cpus: 1, nodes: 1, ..Class::default() },
        handler: None,
        cancel_on_failure: true,
        max_lost: 3,
        parents: parents.iter().copied().map(JobIx::new).collect(),
    }
}

#[test]
fn added_jobs_depend_on_present_and_on_new_ones() {
    use JobStatus::{Blocked, Completed, Ready};
    let statuses =
        |world: &World| world.workflow.jobs.iter().map(|j| j.status()).collect::<Vec<_>>();
    let mut world = chain(2);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    world.end(ix(0), None, 0);
    // One waits for what is done, one for what is not, one for a new one.
    let added = vec![new_job(3, &[0]), new_job(4, &[1]), new_job(5, &[2, 3])];
    assert_eq!(world.workflow.add_jobs(added, 1), Ok(vec![ix(2), ix(3), ix(4)]));
    assert_eq!(statuses(&world), [Completed, Ready, Ready, Blocked, Blocked]);
    assert_eq!(world.workflow.run, 1, "the run continues");
    world.check();
    world.drain();
    // To what is over, new jobs are the next run; what is done stays done.
    world.workflow.add_jobs(vec![new_job(6, &[4])], 2).expect("added");
    assert_eq!(statuses(&world)[5], Ready);
    assert_eq!((world.workflow.run, world.workflow.jobs[ix(5)].tries.number), (2, 1));
    world.check();
}

#[test]
fn a_job_that_changes_while_it_runs_runs_again_whatever_its_end() {
    for running in [RunningJobs::Finish, RunningJobs::Stop] {
        let mut world = chain(2);
        world.workflow.initialize(0);
        world.claim(1, 1, 0);
        let revision = Revision { again: vec![ix(0)], running, ..Revision::default() };
        world.workflow.revise(revision, 1).expect("applied");
        let is_stopped = !world.workflow.orders_for(RunnerId(1)).is_empty();
        assert_eq!(is_stopped, running == RunningJobs::Stop);
        world.end(ix(0), None, 0);
        let job = &world.workflow.jobs[ix(0)];
        assert_eq!((job.status(), job.tries.number, job.afterwards), (JobStatus::Ready, 2, None));
        assert_eq!(
            world.workflow.jobs[ix(1)].status(),
            JobStatus::Blocked,
            "it waits for the new result"
        );
        world.check();
        world.drain();
    }
}

#[test]
fn a_job_that_is_removed_while_it_runs_goes_when_it_has_ended() {
    let mut world = chain(2);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    let revision = Revision { removed: vec![ix(0)], ..Revision::default() };
    world.workflow.revise(revision, 1).expect("applied");
    assert_eq!(world.workflow.jobs[ix(0)].status(), JobStatus::Pending);
    world.end(ix(0), Some(Cause::Exit), 1);
    let job = &world.workflow.jobs[ix(0)];
    assert_eq!((job.status(), job.reason()), (JobStatus::Disabled, Some(StatusReason::Removed)));
    assert_eq!(world.workflow.jobs[ix(1)].status(), JobStatus::Ready);
    world.check();
}

#[test]
fn a_user_who_cancels_a_changed_job_is_obeyed() {
    let mut world = chain(1);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    world
        .workflow
        .revise(Revision { again: vec![ix(0)], ..Revision::default() }, 1)
        .expect("applied");
    world.workflow.cancel_job(ix(0), 2).expect("it runs");
    world.end(ix(0), Some(Cause::Signal), 143);
    assert_eq!(world.workflow.jobs[ix(0)].status(), JobStatus::Canceled);
    world.check();
}

#[test]
fn what_is_complete_can_not_be_canceled() {
    let mut world = chain(1);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    world.end(ix(0), Some(Cause::Exit), 1);
    world.check();
    world.workflow.cancel(1);
    assert!(!world.workflow.canceled);
    assert!(world.workflow.take_changes().is_empty());
}

#[test]
fn losses_do_not_use_up_the_rules() {
    let mut world = World::new(&[], &[false], true, false);
    world.workflow.initialize(0);
    for expected in [Origin::Lost, Origin::Lost] {
        world.claim(1, 1, 0);
        world.lose(1);
        let queued = world.workflow.take_changes().into_iter().find_map(|c| match c {
            Change::AttemptQueued(new) if new.retry_of.is_some() => Some(new.origin),
            _ => None,
        });
        assert_eq!(queued, Some(expected));
    }
    // Code 1 has three attempts by its rule: two retries are still there after two losses.
    for wanted in [JobStatus::Ready, JobStatus::Ready, JobStatus::Failed] {
        world.now += 3_600_000;
        world.claim(1, 1, 0);
        world.end(ix(0), Some(Cause::Exit), 1);
        assert_eq!(world.workflow.jobs[ix(0)].status(), wanted);
    }
    assert_eq!(world.workflow.jobs[ix(0)].tries.number, 5);
}

#[test]
fn an_attempt_that_runs_is_not_retried() {
    let mut world = World::new(&[], &[false], false, false);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    for is_started in [false, true] {
        if is_started {
            world.workflow.started(ix(0), 1, 1);
        }
        let refused = world.workflow.retry(ix(0), 1, 3, 5).expect_err("its process lives");
        assert_eq!(refused.code, ErrorCode::WrongStatus);
        assert!(refused.hint.is_some_and(|hint| hint.contains("torc jobs cancel")));
        assert!(world.workflow.jobs[ix(0)].held().is_some(), "it continues");
    }
    world.end(ix(0), Some(Cause::Exit), 1);
    world.workflow.retry(ix(0), 1, 3, 6).expect("it ended badly");
    world.check();
}

#[test]
fn an_attempt_that_never_arrived_goes_back_at_no_cost() {
    let mut world = World::new(&[], &[false], false, false);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    let lost = world.workflow.jobs[ix(0)].live().expect("it was claimed");
    world.workflow.never_arrived(RunnerId(2), lost, &mut world.limits, 5);
    assert_eq!(
        world.workflow.jobs[ix(0)].status(),
        JobStatus::Pending,
        "another runner has no say"
    );
    world.workflow.never_arrived(RunnerId(1), lost, &mut world.limits, 5);
    let job = &world.workflow.jobs[ix(0)];
    assert_eq!(
        (job.status(), job.tries.number, job.tries.refunds, job.tries.lost),
        (JobStatus::Ready, 2, 1, 0)
    );
    world.check();
}

#[test]
fn nodes_that_were_taken_away_cost_nothing_unless_the_runner_died() {
    for cause in [Cause::Stopped, Cause::Preempted, Cause::NodeFail, Cause::Walltime] {
        let mut world = World::new(&[], &[false], true, false);
        world.workflow.initialize(0);
        // More often than any budget allows, and the job's rules speak of every failure.
        for round in 1..=20 {
            world.claim(1, 1, 0);
            world.end(ix(0), Some(cause), 143);
            let job = &world.workflow.jobs[ix(0)];
            assert_eq!(
                (job.status(), job.tries.refunds, job.tries.lost),
                (JobStatus::Ready, round, 0),
                "{cause}"
            );
        }
        let ended = |c: &Change| matches!(c, Change::AttemptEnded(_, end) if end.state == Some(AttemptState::Terminated));
        assert_eq!(
            world.workflow.take_changes().iter().filter(|c| ended(c)).count(),
            20,
            "{cause}"
        );
        // The ends of these were not seen: they are losses.
        world.claim(1, 1, 0);
        let evidence = Evidence { source: EvidenceSource::Scheduler, text: "gone".into() };
        let lost = Lost { cause, evidence };
        if cause != Cause::Stopped {
            world.workflow.runner_lost(RunnerId(1), &lost, &mut world.limits, 5);
            let job = &world.workflow.jobs[ix(0)];
            assert_eq!(
                (job.status(), job.tries.refunds, job.tries.lost),
                (JobStatus::Ready, 21, 1),
                "{cause}"
            );
        }
    }
}

#[test]
fn a_reset_writes_the_counters_it_sets() {
    let mut world = World::new(&[], &[false], true, false);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    world.lose(1);
    world.workflow.take_changes();
    world.reset(&Seeds::All);
    let written = world.workflow.take_changes().into_iter().find_map(|c| match c {
        Change::Job { status: JobStatus::Uninitialized, tries, .. } => {
            Some((tries.number, tries.lost, tries.refunds))
        }
        _ => None,
    });
    assert_eq!(written, Some((1, 0, 0)));
}

#[test]
fn a_job_that_a_run_left_alone_begins_at_attempt_1_when_it_is_reset_in_that_run() {
    // Both succeed in run 1; in run 2 the second one runs alone, and the first is reset beside it.
    let mut world = World::new(&[], &[false, false], false, false);
    world.workflow.initialize(0);
    for _ in 0..2 {
        world.claim(1, 1, 0);
        let index = world.held(0).expect("one is held");
        world.end(index, None, 0);
    }
    world.reset(&Seeds::Named(vec![ix(1)]));
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    assert_eq!(world.held(0), Some(ix(1)));
    world.reset(&Seeds::Named(vec![ix(0)]));
    world.workflow.initialize(0);
    let job = &world.workflow.jobs[ix(0)];
    assert_eq!((world.workflow.run, job.status()), (2, JobStatus::Ready));
    assert_eq!((job.tries.number, job.tries.run, job.tries.refunds), (1, 2, 0));
    world.check();
}

#[test]
fn a_workflow_that_is_canceled_before_it_began_is_complete() {
    let mut world = World::new(&[], &[false, false], false, false);
    world.workflow.cancel(1);
    world.check();
    assert!(world.workflow.is_complete());
}

#[test]
fn nothing_of_a_canceled_workflow_is_retried() {
    let mut world = World::new(&[], &[false, false], false, false);
    world.workflow.initialize(0);
    world.claim(1, 1, 0);
    let index = world.held(0).expect("one is held");
    world.end(index, Some(Cause::Exit), 1);
    world.workflow.cancel(5);
    let refused = world.workflow.retry(index, 1, 3, 6).expect_err("it would wait for ever");
    assert_eq!(refused.code, ErrorCode::WorkflowCanceled);
}

#[test]
fn dispatch_follows_priority_then_rank_then_position() {
    // Priority is the index modulo three; odd ones need two CPUs.
    assert_eq!(dispatch(DispatchOrder::CriticalPath), [5, 2, 1, 4, 3, 0]);
    assert_eq!(dispatch(DispatchOrder::Submission), [2, 5, 1, 4, 0, 3]);
}

fn dispatch(order: DispatchOrder) -> Vec<i64> {
    let mut world = World::new(&[], &[false; 6], false, false);
    world.workflow.settings.order = order;
    world.workflow.settle();
    world.capacity.num_cpus = 100;
    world.limits.clear();
    world.workflow.initialize(0);
    world.workflow.take_changes();
    world.claim(1, 6, 0);
    world
        .workflow
        .take_changes()
        .into_iter()
        .filter_map(|c| match c {
            Change::Job { id, .. } => Some(id.0 - 1),
            _ => None,
        })
        .collect()
}

#[test]
fn a_rule_gives_no_more_retries_than_it_says() {
    let mut world = World::new(&[], &[false], true, false);
    world.workflow.initialize(0);
    // As if every attempt had turned out not to be the job's fault: by their number there is always
    // room.
    world.workflow.jobs[ix(0)].tries.refunds = 100;
    for _ in 0..10 {
        world.claim(1, 1, 0);
        let Some(index) = world.held(0) else { break };
        world.end(index, Some(Cause::Exit), 5);
    }
    let job = &world.workflow.jobs[ix(0)];
    assert_eq!(
        (job.status(), job.tries.number),
        (JobStatus::Failed, 3),
        "the rule for all codes says 2"
    );
}
