//! The state of one workflow, and the few moves that everything else is made of.

use super::actions::Action;
use super::avoidance::Avoidance;
use super::backfill::Backfill;
use super::change::{Change, End, NewAttempt};
use super::edges::Edges;
use super::machine::{JobEvent, Machine};
use super::order::Order;
use super::queue::{Key, Queue};
use super::rules::CompiledHandler;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use torc_model::api::{ErrorCode, RecoveryScript};
use torc_model::class::Class;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::sparse::Sparse;
use torc_model::status::{
    Afterwards, AttemptState, Cause, EndedBy, JobStatus, Origin, StatusReason,
};
use torc_model::words;

/// A request that cannot be granted. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Stable word for programs.
    pub code: ErrorCode,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Refused {
    /// Without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: words::message(message), hint: None }
    }

    /// With a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// An attempt that a runner has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Who.
    pub runner: RunnerId,
    /// Fencing token.
    pub token: String,
    /// The claim that took it.
    pub key: String,
    /// Claimed or running.
    pub state: AttemptState,
    /// Its runner must stop it.
    pub cancel_requested: bool,
    /// When it was claimed.
    pub claimed_at: i64,
    /// When it started, as far as its runner said.
    pub started_at: Option<i64>,
}

/// A job as the engine sees it. Texts (name, command) stay in the database.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Where it stands.
    pub status: JobStatus,
    /// Why it stands there, where that does not follow from the status.
    pub reason: Option<StatusReason>,
    /// No runner may claim it until a user releases it.
    pub held_back: bool,
    /// Canceled when a dependency ends badly.
    pub cancel_on_failure: bool,
    /// Higher first.
    pub priority: i64,
    /// Its place in the queue, for ever.
    pub position: i64,
    /// Index into [`Workflow::classes`].
    pub class: u32,
    /// Index into [`Workflow::handlers`].
    pub handler: Option<u32>,
    /// Budget for losses.
    pub max_lost: u32,
    /// Number of the current or last attempt in the run that [`Job::attempt_run`] names; the next
    /// one there is this plus one.
    pub attempt: u32,
    /// The run of that attempt. A job that has succeeded is left alone by later runs.
    pub attempt_run: i64,
    /// Retries paid from the budget for losses, in this run.
    pub lost_retries: u32,
    /// Attempts that do not count against the user's rules, in this run (losses among them).
    pub refunds: u32,
    /// Dependencies that are not met; counted while it is blocked.
    pub unmet: u32,
    /// Row of the live attempt.
    pub live: Option<AttemptId>,
    /// Row of the newest attempt that has ended, in this run.
    pub last: Option<AttemptId>,
    /// The runner that has the live attempt.
    pub held: Option<Box<Held>>,
    /// What few jobs have; it can be read like the job's own fields.
    pub rare: Sparse<Rare>,
}

impl Job {
    /// A revision took it out; only its history is left.
    pub fn is_removed(&self) -> bool {
        self.reason == Some(StatusReason::Removed)
    }
}

/// What few jobs have, and most of those not for long.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rare {
    /// The class of its next attempt, when that was changed while a runner has the current one.
    pub next_class: Option<u32>,
    /// The live attempt may not be claimed before this time.
    pub not_before: Option<i64>,
    /// The script that runs before the live attempt. Until a report says that it ran and did not
    /// keep the command from running, the next attempt needs it too.
    pub script: Option<RecoveryScript>,
    /// A new revision changed or removed the job while a runner has the live attempt.
    pub afterwards: Option<Afterwards>,
}

torc_model::plain!(Rare);

impl std::ops::Deref for Job {
    type Target = Rare;

    fn deref(&self) -> &Rare {
        &self.rare
    }
}

/// What a job is made from.
#[derive(Clone, PartialEq, Debug)]
pub struct NewJob {
    /// Its id; ids grow with the index.
    pub id: JobId,
    /// Higher first.
    pub priority: i64,
    /// Its place in the queue.
    pub position: i64,
    /// Number of its family.
    pub family: u32,
    /// What is known of its own time, in ms.
    pub own_ms: Option<u32>,
    /// What it needs.
    pub class: Class,
    /// Index into the handlers.
    pub handler: Option<u32>,
    /// Canceled when a dependency ends badly.
    pub cancel_on_failure: bool,
    /// Budget for losses.
    pub max_lost: u32,
    /// Indexes of the jobs it depends on.
    pub parents: Vec<u32>,
}

/// One workflow.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// Its id.
    pub id: WorkflowId,
    /// The run; 0 before the first initialization.
    pub run: i64,
    /// A user canceled it.
    pub canceled: bool,
    /// Its settings.
    pub settings: Settings,
    /// Its jobs, ordered by id.
    pub jobs: Vec<Job>,
    /// Its failure handlers.
    pub handlers: Vec<CompiledHandler>,
    /// Its actions.
    pub actions: Vec<Action>,
    pub(super) edges: Edges,
    /// Distinct needs of its jobs.
    pub classes: Vec<Class>,
    class_index: HashMap<Class, u32>,
    pub(super) queue: Queue,
    /// Retries that would rather run elsewhere. Not stored: it is a preference.
    pub(super) avoidance: Avoidance,
    pub(super) order: Order,
    /// Runners that are kept for jobs that fit nowhere. Not stored: the next claims make it anew.
    pub(super) backfill: Backfill,
    pub(super) counts: [u32; 11],
    /// Jobs that a revision took out; they are disabled.
    removed: u32,
    pub(super) live: HashMap<AttemptId, u32>,
    pub(super) by_runner: BTreeMap<RunnerId, BTreeSet<u32>>,
    /// Retries given per (job, rule) in this run.
    pub(super) rule_uses: HashMap<(u32, usize), u32>,
    pub(super) maps: super::maps::Maps,
    next_attempt: i64,
    was_complete: bool,
    changes: Vec<Change>,
    /// Moves of jobs and new attempts are not recorded: the caller reads them from the
    /// jobs.
    is_bulk: bool,
}

impl Workflow {
    /// A workflow without jobs. `next_attempt` is the first row number for its attempts.
    pub fn new(id: WorkflowId, settings: Settings, handlers: Vec<CompiledHandler>) -> Self {
        Self {
            id,
            run: 0,
            canceled: false,
            settings,
            jobs: Vec::new(),
            handlers,
            actions: Vec::new(),
            edges: Edges::default(),
            classes: Vec::new(),
            class_index: HashMap::new(),
            queue: Queue::default(),
            avoidance: Avoidance::default(),
            order: Order::default(),
            backfill: Backfill::default(),
            counts: [0; 11],
            removed: 0,
            live: HashMap::new(),
            by_runner: BTreeMap::new(),
            rule_uses: HashMap::new(),
            maps: Default::default(),
            next_attempt: 1,
            was_complete: false,
            changes: Vec::new(),
            is_bulk: false,
        }
    }

    /// Adds an uninitialized job. Ids must grow; parents may come later in the list.
    pub fn add_job(&mut self, new: NewJob) -> u32 {
        let index = self.jobs.len() as u32;
        debug_assert!(self.jobs.last().is_none_or(|j| j.id < new.id), "job ids must grow");
        let class = self.class_of(new.class);
        self.jobs.push(Job {
            id: new.id,
            status: JobStatus::Uninitialized,
            reason: None,
            held_back: false,
            cancel_on_failure: new.cancel_on_failure,
            priority: new.priority,
            position: new.position,
            class,
            handler: new.handler,
            max_lost: new.max_lost,
            attempt: 0,
            attempt_run: 1,
            lost_retries: 0,
            refunds: 0,
            unmet: 0,
            live: None,
            last: None,
            held: None,
            rare: Sparse::default(),
        });
        self.counts[JobStatus::Uninitialized as usize] += 1;
        self.edges.add(&new.parents);
        self.order.add(new.family, new.own_ms);
        index
    }

    /// The number of a class, new or known.
    pub fn class_of(&mut self, class: Class) -> u32 {
        if let Some(index) = self.class_index.get(&class) {
            return *index;
        }
        let index = self.classes.len() as u32;
        self.classes.push(class.clone());
        self.class_index.insert(class, index);
        index
    }

    /// Puts a stored job back where it stood. The caller then calls [`Workflow::settle`] once.
    pub fn restore_job(&mut self, index: u32, status: JobStatus, restore: impl FnOnce(&mut Job)) {
        let job = &mut self.jobs[index as usize];
        self.counts[job.status as usize] -= 1;
        job.status = status;
        self.counts[status as usize] += 1;
        restore(job);
    }

    /// Remembers that a rule gave a retry, while restoring.
    pub fn restore_rule_use(&mut self, index: u32, rule: usize) {
        *self.rule_uses.entry((index, rule)).or_default() += 1;
    }

    /// Computes everything that is derived (counters, queue, owners) after restoring.
    pub fn settle(&mut self) {
        self.edges.settle();
        self.queue = Queue::default();
        self.removed = self.jobs.iter().filter(|job| job.is_removed()).count() as u32;
        self.live.clear();
        self.by_runner.clear();
        self.rank_all();
        for index in 0..self.jobs.len() as u32 {
            let blocked = self.jobs[index as usize].status == JobStatus::Blocked;
            self.jobs[index as usize].unmet = if blocked { self.count_unmet(index) } else { 0 };
            let job = &self.jobs[index as usize];
            if let Some(live) = job.live {
                self.live.insert(live, index);
            }
            if let Some(held) = &job.held {
                self.by_runner.entry(held.runner).or_default().insert(index);
            }
            self.enqueue(index);
        }
        self.queue.compact();
        self.settle_actions();
        self.was_complete = self.is_complete();
    }

    /// First row number that new attempts of this workflow may take.
    pub fn set_next_attempt(&mut self, next: i64) {
        self.next_attempt = next;
    }

    /// The row number after the last one given.
    pub fn next_attempt(&self) -> i64 {
        self.next_attempt
    }

    /// What happened since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Index of a job.
    pub fn find(&self, id: JobId) -> Option<u32> {
        self.jobs.binary_search_by_key(&id, |j| j.id).ok().map(|i| i as u32)
    }

    /// Index of the job that this live attempt belongs to.
    pub fn find_live(&self, id: AttemptId) -> Option<u32> {
        self.live.get(&id).copied()
    }

    /// Jobs per status, by the status' integer; without those that a revision took out.
    pub fn counts(&self) -> [u32; 11] {
        let mut counts = self.counts;
        counts[JobStatus::Disabled as usize] -= self.removed;
        counts
    }

    /// Every job is final. A workflow without jobs is complete once it was initialized.
    pub fn is_complete(&self) -> bool {
        let done: u32 =
            JobStatus::ALL.iter().filter(|s| s.is_final()).map(|s| self.counts[*s as usize]).sum();
        (self.run > 0 || done > 0) && done as usize == self.jobs.len()
    }

    /// Attempts that some runner has.
    pub fn held_count(&self) -> u32 {
        self.counts[JobStatus::Pending as usize] + self.counts[JobStatus::Running as usize]
    }

    /// Jobs that a runner has, by index.
    pub fn held_by(&self, runner: RunnerId) -> impl Iterator<Item = u32> + '_ {
        self.by_runner.get(&runner).into_iter().flatten().copied()
    }

    /// Runners that have something.
    pub fn runners_with_work(&self) -> BTreeSet<RunnerId> {
        self.by_runner.iter().filter(|(_, s)| !s.is_empty()).map(|(r, _)| *r).collect()
    }

    /// Something could be claimed right now by a runner that is large enough.
    pub fn has_ready(&self) -> bool {
        !self.queue.is_empty()
    }

    /// When the next delayed attempt is due.
    pub fn next_due(&self) -> Option<i64> {
        self.queue.next_due().into_iter().chain(self.avoidance.next_end()).min()
    }

    /// Indexes of the jobs that this job depends on.
    pub fn parents_of(&self, index: u32) -> &[u32] {
        self.edges.parents(index)
    }

    /// Indexes of the jobs that depend on this job.
    pub fn children_of(&self, index: u32) -> &[u32] {
        self.edges.children(index)
    }

    // ------------------------------------------------------------------------------- the common
    // moves

    pub(super) fn record(&mut self, change: Change) {
        if !(self.is_bulk && matches!(change, Change::Job { .. } | Change::AttemptQueued(_))) {
            self.changes.push(change);
        }
    }

    /// Initializes a workflow whose jobs are not stored yet: the store writes each job as it stands
    /// afterwards, and its first attempt if it has one, so that a list of a million changes need
    /// not exist.
    pub fn initialize_unstored(&mut self, now: i64) {
        self.is_bulk = true;
        self.initialize(now);
        self.is_bulk = false;
        self.queue.compact();
    }

    /// Makes room for jobs to come.
    pub fn reserve(&mut self, jobs: usize) {
        self.jobs.reserve_exact(jobs);
        self.edges.reserve(jobs);
    }

    pub(super) fn event(&mut self, kind: EventKind, job: Option<u32>, data: Value) {
        let job = job.map(|i| self.jobs[i as usize].id);
        self.record(Change::Event { kind, job, data });
    }

    /// Moves a job by the table; a move the table forbids is a defect of the engine and changes
    /// nothing.
    pub(super) fn shift(
        &mut self,
        index: u32,
        event: JobEvent,
        reason: Option<StatusReason>,
    ) -> bool {
        let job = &self.jobs[index as usize];
        let Ok(next) = job.status.after(event) else {
            debug_assert!(false, "{event:?} on {} job {}", job.status, job.id);
            return false;
        };
        let was = job.status;
        self.dequeue(index);
        self.counts[was as usize] -= 1;
        self.counts[next as usize] += 1;
        let job = &mut self.jobs[index as usize];
        self.removed -= u32::from(job.is_removed());
        job.status = next;
        if next != JobStatus::Blocked {
            job.unmet = 0;
        }
        job.reason = reason;
        self.removed += u32::from(job.is_removed());
        self.record_job(index);
        self.note_for_actions(index);
        self.order.is_reopened |= was.is_final() && !next.is_final();
        true
    }

    /// The row of a job as it stands.
    pub(super) fn record_job(&mut self, index: u32) {
        let job = &self.jobs[index as usize];
        self.record(Change::Job {
            id: job.id,
            status: job.status,
            reason: job.reason,
            attempt: job.attempt.max(1),
            attempt_run: job.attempt_run,
            lost_retries: job.lost_retries,
            refunds: job.refunds,
            own_ms: self.order.own_ms(index),
        });
    }

    pub(super) fn key(&self, index: u32) -> Key {
        let job = &self.jobs[index as usize];
        (Reverse(job.priority), Reverse(self.order.rank(index)), job.position, index)
    }

    /// Puts a ready job where claims look, unless something else holds it back.
    pub(super) fn enqueue(&mut self, index: u32) {
        let job = &self.jobs[index as usize];
        if job.status != JobStatus::Ready || job.live.is_none() || job.held_back {
            return;
        }
        match job.not_before {
            Some(until) => self.queue.delay(until, index),
            None => self.queue.push(job.class, self.key(index)),
        }
    }

    /// A job no longer waits, or its place in the order changes for a reason of its own.
    pub(super) fn dequeue(&mut self, index: u32) {
        self.backfill.release(index);
        self.unqueue(index);
    }

    /// Takes a job from where claims look, to put it back with another rank.
    pub(super) fn unqueue(&mut self, index: u32) {
        let job = &self.jobs[index as usize];
        if job.status == JobStatus::Ready {
            let (class, until) = (job.class, job.not_before);
            self.queue.remove(class, self.key(index), until);
        }
    }

    /// Moves delayed jobs whose time has come to where claims look.
    pub fn wake_delayed(&mut self, now: i64) {
        self.avoidance.expire(now);
        for index in self.queue.due(now) {
            self.jobs[index as usize].rare.edit(|rare| rare.not_before = None);
            self.enqueue(index);
        }
    }

    pub(super) fn new_attempt_id(&mut self) -> AttemptId {
        let id = AttemptId(self.next_attempt);
        self.next_attempt += 1;
        id
    }

    /// Queues the next attempt of a job that has just become ready.
    pub(super) fn queue_attempt(&mut self, index: u32, next: Next, now: i64) -> AttemptId {
        let id = self.new_attempt_id();
        let run = self.run;
        let job = &mut self.jobs[index as usize];
        debug_assert!(job.live.is_none(), "two live attempts of job {}", job.id);
        job.live = Some(id);
        job.rare.edit(|rare| {
            rare.not_before = next.not_before;
            rare.script.clone_from(&next.recovery);
        });
        let attempt = NewAttempt {
            id,
            job: job.id,
            run,
            number: job.attempt,
            origin: next.origin,
            retry_of: next.retry_of,
            not_before: next.not_before,
            recovery: next.recovery,
            at: now,
        };
        self.live.insert(id, index);
        self.record(Change::AttemptQueued(Box::new(attempt)));
        self.enqueue(index);
        id
    }

    /// Counts the next attempt of a job. In a run that it has not been part of it begins at 1, and
    /// nothing was retried or refunded.
    pub(super) fn count_attempt(&mut self, index: u32) {
        let run = self.run;
        let job = &mut self.jobs[index as usize];
        if job.attempt_run != run {
            job.attempt_run = run;
            (job.attempt, job.refunds, job.lost_retries, job.last) = (0, 0, 0, None);
        }
        job.attempt += 1;
    }

    /// Makes a job ready for its first attempt in this run (or the next one, if it had some
    /// already).
    pub(super) fn make_ready(&mut self, index: u32, event: JobEvent, origin: Origin, now: i64) {
        self.count_attempt(index);
        if self.shift(index, event, None) {
            self.queue_attempt(index, Next::fresh(origin), now);
        }
    }

    /// A dependency counts as met for this job.
    pub(super) fn is_met(&self, parent: u32, child: u32) -> bool {
        let status = self.jobs[parent as usize].status;
        if let Some(waits) = self.item_edge(parent, child) {
            return !waits || status.is_final();
        }
        status.satisfies() || (status.is_bad_end() && !self.jobs[child as usize].cancel_on_failure)
    }

    pub(super) fn count_unmet(&self, index: u32) -> u32 {
        self.parents_of(index).iter().filter(|p| !self.is_met(**p, index)).count() as u32
    }

    /// A job has just become final: releases or cancels what depended on it, at any depth.
    pub(super) fn propagate(&mut self, index: u32, now: i64) {
        let mut ended = vec![index];
        while let Some(parent) = ended.pop() {
            for i in 0..self.children_of(parent).len() {
                let child = self.children_of(parent)[i];
                if self.jobs[child as usize].status != JobStatus::Blocked {
                    continue;
                }
                // A map that has not looked for its items yet does not count them.
                if self.item_edge(parent, child) == Some(false) {
                    continue;
                }
                if self.is_met(parent, child) {
                    if self.jobs[parent as usize].status.is_bad_end() {
                        ended.extend(self.give_up_items(child, now));
                    }
                    self.jobs[child as usize].unmet -= 1;
                    if self.jobs[child as usize].unmet == 0 && self.gathers(child) {
                        self.gather(child);
                        ended.push(child);
                    } else if self.jobs[child as usize].unmet == 0 {
                        self.make_ready(child, JobEvent::DependenciesMet, Origin::Initial, now);
                    }
                } else if self.jobs[parent as usize].status.is_bad_end()
                    && self.shift(
                        child,
                        JobEvent::DependencyEndedBadly,
                        Some(StatusReason::DependencyFailed),
                    )
                {
                    let because = self.jobs[parent as usize].id;
                    self.event(
                        EventKind::JobCanceled,
                        Some(child),
                        json!({"because_of_job_id": because}),
                    );
                    ended.push(child);
                }
            }
        }
    }

    /// A final job was opened again: takes back what its end had given to or done to its
    /// dependents.
    pub(super) fn reopen_dependents(&mut self, index: u32, now: i64) {
        let mut opened = vec![index];
        while let Some(parent) = opened.pop() {
            for i in 0..self.children_of(parent).len() {
                let child = self.children_of(parent)[i];
                // A map that has not looked for its items yet does not wait for them.
                if self.item_edge(parent, child) == Some(false) {
                    continue;
                }
                let job = &self.jobs[child as usize];
                match job.status {
                    JobStatus::Completed | JobStatus::Failed
                        if self.item_edge(parent, child) == Some(true) =>
                    {
                        self.shift(
                            child,
                            JobEvent::ItemReopened,
                            Some(StatusReason::WaitsForItems),
                        );
                        self.jobs[child as usize].unmet = self.count_unmet(child);
                        opened.push(child);
                    }
                    JobStatus::Blocked => self.jobs[child as usize].unmet = self.count_unmet(child),
                    JobStatus::Ready => {
                        self.drop_queued(child, "a job it depends on runs again", now);
                        self.shift(child, JobEvent::DependencyReopened, None);
                        self.jobs[child as usize].unmet = self.count_unmet(child);
                    }
                    JobStatus::Canceled if job.reason == Some(StatusReason::DependencyFailed) => {
                        let still_bad = self.parents_of(child).iter().any(|p| {
                            self.jobs[*p as usize].status.is_bad_end()
                                && self.item_edge(*p, child).is_none()
                        });
                        if !still_bad && self.shift(child, JobEvent::DependencyReopened, None) {
                            self.jobs[child as usize].unmet = self.count_unmet(child);
                            opened.push(child);
                        }
                    }
                    JobStatus::Uninitialized
                    | JobStatus::Pending
                    | JobStatus::Running
                    | JobStatus::Completed
                    | JobStatus::Failed
                    | JobStatus::Canceled
                    | JobStatus::Terminated
                    | JobStatus::Disabled
                    | JobStatus::PendingFailed => {}
                }
            }
        }
    }

    /// Gives an attempt to the placeholder runner, so that it can be ended like any
    /// other.
    pub(super) fn hold_for_recovery(
        &mut self,
        index: u32,
        id: AttemptId,
        runner: RunnerId,
        token: String,
        now: i64,
    ) {
        let job = &mut self.jobs[index as usize];
        job.live = Some(id);
        job.held = Some(Box::new(Held {
            runner,
            token,
            key: "recovery".into(),
            state: AttemptState::Claimed,
            cancel_requested: false,
            claimed_at: now,
            started_at: None,
        }));
        self.live.insert(id, index);
        self.by_runner.entry(runner).or_default().insert(index);
    }

    /// Ends an attempt that its job, being where it is, cannot have.
    pub(super) fn drop_live(&mut self, index: u32, limits: &mut super::claim::Limits, now: i64) {
        if self.jobs[index as usize].held.is_none() {
            self.drop_queued(index, "crash recovery: its job had moved on", now);
            return;
        }
        let id = self.jobs[index as usize].live;
        self.release(index, limits);
        if let Some(id) = id {
            self.record_dropped(id, "crash recovery: its job had moved on", now);
        }
    }

    /// A job came back to the queue although a job it depends on was opened again meanwhile: it
    /// waits for it.
    pub(super) fn block_if_unmet(&mut self, index: u32, now: i64) {
        let unmet = self.count_unmet(index);
        if unmet > 0 {
            self.drop_queued(index, "a job it depends on runs again", now);
            self.shift(index, JobEvent::DependencyReopened, None);
            self.jobs[index as usize].unmet = unmet;
        }
    }

    /// Ends the queued attempt of a job that will not run now.
    pub(super) fn drop_queued(&mut self, index: u32, why: &str, now: i64) {
        self.dequeue(index);
        let job = &mut self.jobs[index as usize];
        debug_assert!(job.held.is_none(), "a held attempt is not dropped");
        if let Some(id) = job.live.take() {
            job.rare.edit(|rare| rare.not_before = None);
            job.last = Some(id);
            self.live.remove(&id);
            self.record_dropped(id, why, now);
        }
    }

    fn record_dropped(&mut self, id: AttemptId, why: &str, now: i64) {
        let end = End {
            state: Some(AttemptState::Canceled),
            cause: Some(Cause::Canceled),
            error: Some(words::message(why)),
            ..End::new(EndedBy::Dropped, now)
        };
        self.record(Change::AttemptEnded(id, Box::new(end)));
    }

    /// Notices that the workflow became complete, or no longer is. Every public move ends with it.
    pub(super) fn finish(&mut self) {
        self.rank_reopened();
        let complete = self.is_complete();
        if complete == self.was_complete {
            return;
        }
        self.was_complete = complete;
        self.record(Change::Workflow {
            run: self.run,
            canceled: self.canceled,
            complete,
            started: false,
        });
        if complete {
            let counts: BTreeMap<_, _> = JobStatus::ALL
                .iter()
                .filter(|s| s.is_final())
                .map(|s| (s.as_str(), self.counts[*s as usize]))
                .collect();
            self.event(
                EventKind::WorkflowCompleted,
                None,
                json!({"run_id": self.run, "counts": counts}),
            );
            self.trigger_completion();
        }
    }
}

/// How the next attempt differs from a first one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Next {
    pub origin: Origin,
    pub retry_of: Option<AttemptId>,
    pub not_before: Option<i64>,
    pub recovery: Option<RecoveryScript>,
}

impl Next {
    pub fn fresh(origin: Origin) -> Self {
        Self { origin, retry_of: None, not_before: None, recovery: None }
    }
}
