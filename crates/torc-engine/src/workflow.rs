//! The state of one workflow, and the few moves that everything else is made of.

use super::actions::Actions;
use super::attempts::Attempts;
use super::avoidance::Avoidance;
use super::backfill::Backfill;
use super::change::{Change, End, NewAttempt};
use super::classes::Classes;
use super::edges::Edges;
use super::handlers::Handlers;
use super::index::JobIx;
use super::jobs::{Held, Job, Jobs, Live, NewJob, Tries};
use super::machine::{JobEvent, Machine};
use super::maps::Maps;
use super::order::Order;
use super::queue::{Key, Queue};
use super::rules::CompiledHandler;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::api::{ErrorCode, RecoveryScript};
use torc_model::attempt::Ending;
use torc_model::class::Class;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::status::{AttemptState, Cause, EndedBy, JobStatus, Origin, StatusReason};
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
    pub(super) jobs: Jobs,
    pub(super) handlers: Handlers,
    pub(super) actions: Actions,
    pub(super) edges: Edges,
    pub(super) classes: Classes,
    pub(super) ready: Ready,
    pub(super) order: Order,
    pub(super) attempts: Attempts,
    pub(super) maps: Maps,
    was_complete: bool,
    journal: Journal,
}

/// Jobs that may be claimed, and what decides which runner gets them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    pub queue: Queue,
    /// Retries that would rather run elsewhere. Not stored: it is a preference.
    pub avoidance: Avoidance,
    /// Runners that are kept for jobs that fit nowhere. Not stored: the next claims make it anew.
    pub backfill: Backfill,
}

/// What happened since the store last took it.
#[derive(Clone, Debug, Default)]
struct Journal {
    changes: Vec<Change>,
    /// Moves of jobs and new attempts are not recorded: the caller reads them from the jobs.
    is_bulk: bool,
}

impl Journal {
    fn record(&mut self, change: Change) {
        if !(self.is_bulk && matches!(change, Change::Job { .. } | Change::AttemptQueued(_))) {
            self.changes.push(change);
        }
    }
}

impl Workflow {
    /// A workflow without jobs.
    pub fn new(id: WorkflowId, settings: Settings, handlers: Vec<CompiledHandler>) -> Self {
        Self {
            id,
            run: 0,
            canceled: false,
            settings,
            jobs: Jobs::default(),
            handlers: Handlers::new(handlers),
            actions: Actions::default(),
            edges: Edges::default(),
            classes: Classes::default(),
            ready: Ready::default(),
            order: Order::default(),
            attempts: Attempts::default(),
            maps: Maps::default(),
            was_complete: false,
            journal: Journal::default(),
        }
    }

    /// Adds an uninitialized job. Ids must grow; parents may come later in the list.
    pub fn add_job(&mut self, mut new: NewJob) -> JobIx {
        let class = self.classes.number(std::mem::take(&mut new.class));
        self.edges.add(&new.parents);
        self.order.add(new.family, new.own_ms);
        self.jobs.push(new.into_job(class))
    }

    /// Puts a stored job back where it stood. The caller then calls [`Workflow::settle`] once.
    pub(super) fn restore_job(
        &mut self,
        index: JobIx,
        (status, reason): (JobStatus, Option<StatusReason>),
        restore: impl FnOnce(&mut Job),
    ) {
        self.jobs.set_status(index, status, reason);
        restore(&mut self.jobs[index]);
    }

    /// Remembers that a rule gave a retry, while restoring.
    pub(super) fn restore_rule_use(&mut self, index: JobIx, rule: usize) {
        self.handlers.count_use(index, rule);
    }

    /// Computes everything that is derived (counters, queue, owners) after restoring.
    pub fn settle(&mut self) {
        self.edges.settle();
        self.ready.queue = Queue::default();
        self.attempts.clear();
        self.rank_all();
        for index in self.jobs.indexes() {
            let blocked = self.jobs[index].status() == JobStatus::Blocked;
            self.jobs[index].unmet = if blocked { self.count_unmet(index) } else { 0 };
            let job = &self.jobs[index];
            if let Some(live) = job.live() {
                self.attempts.add(live, index);
            }
            if let Some(held) = job.held() {
                self.attempts.give(held.runner, index);
            }
            self.enqueue(index);
        }
        self.ready.queue.compact();
        self.settle_actions();
        self.was_complete = self.is_complete();
    }

    /// First row that new attempts of this workflow may take.
    pub fn set_next_attempt(&mut self, next: i64) {
        self.attempts.set_next(next);
    }

    /// The row after the last one given.
    pub fn next_attempt(&self) -> i64 {
        self.attempts.next()
    }

    /// What happened since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.journal.changes)
    }

    /// Index of a job.
    pub fn find(&self, id: JobId) -> Option<JobIx> {
        self.jobs.find(id)
    }

    /// Index of the job that this live attempt belongs to.
    pub fn find_live(&self, id: AttemptId) -> Option<JobIx> {
        self.attempts.job_of(id)
    }

    /// A job.
    pub fn job(&self, index: JobIx) -> &Job {
        &self.jobs[index]
    }

    /// All jobs, in the order of their indexes.
    pub fn jobs(&self) -> std::slice::Iter<'_, Job> {
        self.jobs.iter()
    }

    /// The indexes of all jobs.
    pub fn indexes(
        &self,
    ) -> impl DoubleEndedIterator<Item = JobIx> + ExactSizeIterator + Clone + use<> {
        self.jobs.indexes()
    }

    /// The number of jobs, those that a revision took out among them.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// It has no jobs.
    pub fn is_empty(&self) -> bool {
        self.jobs.len() == 0
    }

    /// What the present attempt of a job needs.
    pub fn class_of(&self, index: JobIx) -> &Class {
        &self.classes[self.jobs[index].class]
    }

    /// Gives the workflow other failure handlers, in the order in which jobs name them.
    pub fn set_handlers(&mut self, handlers: Vec<CompiledHandler>) {
        self.handlers.replace(handlers);
    }

    /// Jobs per status, by the status' integer; without those that a revision took out.
    pub fn counts(&self) -> [u32; 11] {
        self.jobs.counts()
    }

    /// How many jobs a revision took out.
    pub fn removed(&self) -> u32 {
        self.jobs.removed()
    }

    /// Every job is final. A workflow without jobs is complete once it was initialized.
    pub fn is_complete(&self) -> bool {
        let done = self.jobs.done();
        (self.run > 0 || done > 0) && done as usize == self.jobs.len()
    }

    /// Attempts that some runner has.
    pub fn held_count(&self) -> u32 {
        self.jobs.count(JobStatus::Pending) + self.jobs.count(JobStatus::Running)
    }

    /// Jobs that a runner has, by index.
    pub fn held_by(&self, runner: RunnerId) -> impl Iterator<Item = JobIx> + '_ {
        self.attempts.held_by(runner)
    }

    /// Runners that have something.
    pub fn runners_with_work(&self) -> BTreeSet<RunnerId> {
        self.attempts.runners().collect()
    }

    /// Something could be claimed right now by a runner that is large enough.
    pub fn has_ready(&self) -> bool {
        !self.ready.queue.is_empty()
    }

    /// When the next delayed attempt is due.
    pub fn next_due(&self) -> Option<i64> {
        self.ready.queue.next_due().into_iter().chain(self.ready.avoidance.next_end()).min()
    }

    /// Indexes of the jobs that this job depends on.
    pub fn parents_of(&self, index: JobIx) -> &[JobIx] {
        self.edges.parents(index)
    }

    /// Indexes of the jobs that depend on this job.
    pub fn children_of(&self, index: JobIx) -> &[JobIx] {
        self.edges.children(index)
    }

    // ------------------------------------------------------------------------------- the common
    // moves

    pub(crate) fn record(&mut self, change: Change) {
        self.journal.record(change);
    }

    /// Of what was recorded and not taken yet only what people hear of is written now.
    pub(crate) fn leave_rows_to_the_end(&mut self) {
        self.journal.changes.retain(|change| matches!(change, Change::Event { .. }));
    }

    /// Initializes a workflow whose jobs are not stored yet: the store writes each job as it stands
    /// afterwards, and its first attempt if it has one, so that a list of a million changes need
    /// not exist.
    pub fn initialize_unstored(&mut self, now: i64) {
        self.journal.is_bulk = true;
        self.initialize(now);
        self.journal.is_bulk = false;
        self.ready.queue.compact();
    }

    /// Makes room for jobs to come.
    pub fn reserve(&mut self, jobs: usize) {
        self.jobs.reserve(jobs);
        self.edges.reserve(jobs);
    }

    pub(super) fn event(&mut self, kind: EventKind, job: Option<JobIx>, data: Value) {
        let job = job.map(|i| self.jobs[i].id);
        self.record(Change::Event { kind, job, data });
    }

    /// Moves a job by the table; a move the table forbids is a defect of the engine and changes
    /// nothing.
    pub(super) fn shift(
        &mut self,
        index: JobIx,
        event: JobEvent,
        reason: Option<StatusReason>,
    ) -> bool {
        let job = &self.jobs[index];
        let Ok(next) = job.status().after(event) else {
            debug_assert!(false, "{event:?} on {} job {}", job.status(), job.id);
            return false;
        };
        let was = job.status();
        self.dequeue(index);
        self.jobs.set_status(index, next, reason);
        self.record_job(index);
        self.note_for_actions(index);
        self.order.is_reopened |= was.is_final() && !next.is_final();
        if next.is_final() {
            self.note_ended_map(index);
        }
        true
    }

    /// The row of a job as it stands.
    pub(crate) fn record_job(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        self.record(Change::Job {
            id: job.id,
            status: job.status(),
            reason: job.reason(),
            tries: Tries { number: job.tries.number.max(1), ..job.tries },
            own_ms: self.order.own_ms(index),
        });
    }

    pub(super) fn key(&self, index: JobIx) -> Key {
        let job = &self.jobs[index];
        (Reverse(job.priority), Reverse(self.order.rank(index)), job.position, index)
    }

    /// Puts a ready job where claims look, unless something else holds it back.
    pub(super) fn enqueue(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        if job.status() != JobStatus::Ready || job.live().is_none() || job.held_back {
            return;
        }
        match job.not_before {
            Some(until) => self.ready.queue.delay(until, index),
            None => self.ready.queue.push(job.class, self.key(index)),
        }
    }

    /// A job no longer waits, or its place in the order changes for a reason of its own.
    pub(super) fn dequeue(&mut self, index: JobIx) {
        self.ready.backfill.release(index);
        self.unqueue(index);
    }

    /// Takes a job from where claims look, to put it back with another rank.
    pub(super) fn unqueue(&mut self, index: JobIx) {
        let job = &self.jobs[index];
        if job.status() == JobStatus::Ready {
            let (class, until) = (job.class, job.not_before);
            self.ready.queue.remove(class, self.key(index), until);
        }
    }

    /// Moves delayed jobs whose time has come to where claims look.
    pub fn wake_delayed(&mut self, now: i64) {
        self.ready.avoidance.expire(now);
        for index in self.ready.queue.due(now) {
            self.jobs[index].rare.edit(|rare| rare.not_before = None);
            self.enqueue(index);
        }
    }

    /// Queues the next attempt of a job that has just become ready.
    pub(super) fn queue_attempt(&mut self, index: JobIx, next: Next, now: i64) -> AttemptId {
        let id = self.attempts.new_row();
        let run = self.run;
        let job = &mut self.jobs[index];
        debug_assert!(job.live().is_none(), "two live attempts of job {}", job.id);
        job.live = Live::Queued(id);
        job.rare.edit(|rare| {
            rare.not_before = next.not_before;
            rare.script.clone_from(&next.recovery);
        });
        let attempt = NewAttempt {
            id,
            job: job.id,
            run,
            number: job.tries.number,
            origin: next.origin,
            retry_of: next.retry_of,
            not_before: next.not_before,
            recovery: next.recovery,
            at: now,
        };
        self.attempts.add(id, index);
        self.record(Change::AttemptQueued(Box::new(attempt)));
        self.enqueue(index);
        id
    }

    /// Counts the next attempt of a job. In a run that it has not been part of it begins at 1, and
    /// nothing was retried or refunded.
    pub(super) fn count_attempt(&mut self, index: JobIx) {
        let run = self.run;
        let job = &mut self.jobs[index];
        if job.tries.run != run {
            (job.tries, job.last) = (Tries::none(run), None);
        }
        job.tries.number += 1;
    }

    /// Makes a job ready for its first attempt in this run (or the next one, if it had some
    /// already).
    pub(super) fn make_ready(&mut self, index: JobIx, event: JobEvent, origin: Origin, now: i64) {
        self.count_attempt(index);
        if self.shift(index, event, None) {
            self.queue_attempt(index, Next::fresh(origin), now);
        }
    }

    /// A dependency counts as met for this job.
    pub(super) fn is_met(&self, parent: JobIx, child: JobIx) -> bool {
        let status = self.jobs[parent].status();
        if let Some(waits) = self.item_edge(parent, child) {
            return !waits || status.is_final();
        }
        status.satisfies() || (status.is_bad_end() && !self.jobs[child].cancel_on_failure)
    }

    pub(super) fn count_unmet(&self, index: JobIx) -> u32 {
        self.parents_of(index).iter().filter(|p| !self.is_met(**p, index)).count() as u32
    }

    /// A job has just become final: releases or cancels what depended on it, at any depth.
    pub(super) fn propagate(&mut self, index: JobIx, now: i64) {
        let mut ended = vec![index];
        while let Some(parent) = ended.pop() {
            for i in 0..self.children_of(parent).len() {
                let child = self.children_of(parent)[i];
                if self.jobs[child].status() != JobStatus::Blocked {
                    continue;
                }
                // A map that has not looked for its items yet does not count them.
                if self.item_edge(parent, child) == Some(false) {
                    continue;
                }
                if self.is_met(parent, child) {
                    if self.jobs[parent].status().is_bad_end() {
                        ended.extend(self.give_up_items(child, now));
                    }
                    self.jobs[child].unmet -= 1;
                    if self.jobs[child].unmet == 0 && self.gathers(child) {
                        self.gather(child);
                        ended.push(child);
                    } else if self.jobs[child].unmet == 0 {
                        self.make_ready(child, JobEvent::DependenciesMet, Origin::Initial, now);
                    }
                } else if self.jobs[parent].status().is_bad_end()
                    && self.shift(
                        child,
                        JobEvent::DependencyEndedBadly,
                        Some(StatusReason::DependencyFailed),
                    )
                {
                    let because = self.jobs[parent].id;
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
    pub(super) fn reopen_dependents(&mut self, index: JobIx, now: i64) {
        let mut opened = vec![index];
        while let Some(parent) = opened.pop() {
            for i in 0..self.children_of(parent).len() {
                let child = self.children_of(parent)[i];
                // A map that has not looked for its items yet does not wait for them.
                if self.item_edge(parent, child) == Some(false) {
                    continue;
                }
                let job = &self.jobs[child];
                match job.status() {
                    JobStatus::Completed | JobStatus::Failed
                        if self.item_edge(parent, child) == Some(true) =>
                    {
                        self.shift(
                            child,
                            JobEvent::ItemReopened,
                            Some(StatusReason::WaitsForItems),
                        );
                        self.jobs[child].unmet = self.count_unmet(child);
                        opened.push(child);
                    }
                    JobStatus::Blocked => self.jobs[child].unmet = self.count_unmet(child),
                    JobStatus::Ready => {
                        self.drop_queued(child, "a job it depends on runs again", now);
                        self.shift(child, JobEvent::DependencyReopened, None);
                        self.jobs[child].unmet = self.count_unmet(child);
                    }
                    JobStatus::Canceled if job.reason() == Some(StatusReason::DependencyFailed) => {
                        let still_bad = self.parents_of(child).iter().any(|p| {
                            self.jobs[*p].status().is_bad_end()
                                && self.item_edge(*p, child).is_none()
                        });
                        if !still_bad && self.shift(child, JobEvent::DependencyReopened, None) {
                            self.jobs[child].unmet = self.count_unmet(child);
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
        index: JobIx,
        id: AttemptId,
        runner: RunnerId,
        token: String,
        now: i64,
    ) {
        self.jobs[index].live = Live::Held(Box::new(Held {
            attempt: id,
            runner,
            token,
            key: "recovery".into(),
            state: AttemptState::Claimed,
            cancel_requested: false,
            claimed_at: now,
            started_at: None,
        }));
        self.attempts.add(id, index);
        self.attempts.give(runner, index);
    }

    /// Ends an attempt that its job, being where it is, cannot have.
    pub(super) fn drop_live(&mut self, index: JobIx, limits: &mut super::claim::Limits, now: i64) {
        if self.jobs[index].held().is_none() {
            self.drop_queued(index, "crash recovery: its job had moved on", now);
            return;
        }
        let id = self.jobs[index].live();
        self.release(index, limits);
        if let Some(id) = id {
            self.record_dropped(id, "crash recovery: its job had moved on", now);
        }
    }

    /// A job came back to the queue although a job it depends on was opened again meanwhile: it
    /// waits for it.
    pub(super) fn block_if_unmet(&mut self, index: JobIx, now: i64) {
        let unmet = self.count_unmet(index);
        if unmet > 0 {
            self.drop_queued(index, "a job it depends on runs again", now);
            self.shift(index, JobEvent::DependencyReopened, None);
            self.jobs[index].unmet = unmet;
        }
    }

    /// Ends the queued attempt of a job that will not run now.
    pub(super) fn drop_queued(&mut self, index: JobIx, why: &str, now: i64) {
        self.dequeue(index);
        let job = &mut self.jobs[index];
        debug_assert!(job.held().is_none(), "a held attempt is not dropped");
        if let Live::Queued(id) = job.live {
            job.live = Live::None;
            job.rare.edit(|rare| rare.not_before = None);
            self.attempts.remove(id);
            self.record_dropped(id, why, now);
        }
    }

    fn record_dropped(&mut self, id: AttemptId, why: &str, now: i64) {
        let ending = Ending {
            cause: Some(Cause::Canceled),
            error: Some(words::message(why)),
            ..Ending::default()
        };
        let state = Some(AttemptState::Canceled);
        let end = End { state, ending, ..End::new(EndedBy::Dropped, now) };
        self.record(Change::AttemptEnded(id, Box::new(end)));
    }

    /// Notices that the workflow became complete, or no longer is. Every public move ends with it.
    pub(super) fn finish(&mut self) {
        self.rank_reopened();
        self.cancel_dormant_items();
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
                .map(|s| (s.as_str(), self.jobs.count(*s)))
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
