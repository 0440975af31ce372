//! What people do to jobs: initialize, reset, retry, classify, cancel, hold, disable, adjust.

use super::change::{Change, NotedAdjustment};
use super::index::JobIx;
use super::jobs::{Live, Tries};
use super::machine::{JobEvent, Machine};
use super::workflow::{Next, Refused, Workflow};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::AttemptId;
use torc_model::recovery::Change as Adjusted;
use torc_model::status::{Adjustable, Afterwards, JobStatus, Origin, StatusReason};

/// Which jobs shall run again.
#[derive(Clone, PartialEq, Debug)]
pub enum Seeds {
    /// Every job that is not disabled.
    All,
    /// What failed, was canceled, terminated, or waits for a verdict.
    FailedOnly,
    /// These, by index.
    Named(Vec<JobIx>),
    /// These, by index, each for a reason found outside (changed files and the like).
    Changed(Vec<(JobIx, String)>),
}

/// Why a job runs again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A user named it.
    Asked,
    /// It ended like this.
    Ended(JobStatus),
    /// Something it was made from changed.
    Changed(String),
    /// This job, which it depends on, runs again.
    Upstream(JobIx),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::Ended(status) => write!(f, "it {}", status.clause()),
            Self::Changed(what) => f.write_str(what),
            Self::Upstream(_) => f.write_str("a job it depends on runs again"),
        }
    }
}

/// An attempt that its machine burnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BurntAttempt {
    /// Its row.
    pub id: AttemptId,
    /// Its run.
    pub run: i64,
    /// Its number.
    pub number: u32,
    /// The rule that retried it, if one did: that was no use of the rule.
    pub rule: Option<usize>,
}

/// What a job gets from its next attempt on; what is absent stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adjustment {
    /// Bytes.
    pub memory: Option<u64>,
    /// Seconds it is planned for.
    pub runtime: Option<u64>,
    /// Seconds after which an attempt is ended.
    pub timeout: Option<u64>,
    /// CPUs.
    pub cpus: Option<u32>,
    /// GPUs.
    pub gpus: Option<u32>,
    /// Higher runs first.
    pub priority: Option<i64>,
}

impl Adjustment {
    /// What a change of one limit comes to. A number that does not fit is none.
    fn of(change: &Adjusted) -> Self {
        let (to, small) = (u64::try_from(change.to).ok(), u32::try_from(change.to).ok());
        match change.field {
            Adjustable::Memory => Self { memory: to, ..Self::default() },
            Adjustable::Runtime => Self { runtime: to, ..Self::default() },
            Adjustable::Timeout => Self { timeout: to, ..Self::default() },
            Adjustable::Cpus => Self { cpus: small, ..Self::default() },
            Adjustable::Gpus => Self { gpus: small, ..Self::default() },
        }
    }
}

/// Why a job gets other limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Because<'a> {
    /// The number of the attempt after which it does.
    pub attempt: i64,
    /// One sentence.
    pub why: &'a str,
    /// Who wants it.
    pub by: &'a str,
}

impl Workflow {
    /// The jobs that would run again, in the order of the workflow, each with its first reason.
    /// Descendants of a job that runs again run again.
    pub fn plan_reset(&self, seeds: &Seeds) -> Result<Vec<(JobIx, Reason)>, Refused> {
        let all = self.jobs.indexes();
        let status = |i: JobIx| self.jobs[i].status();
        let first: Vec<(JobIx, Reason)> = match seeds {
            Seeds::All => all
                .filter(|i| status(*i) != JobStatus::Disabled)
                .map(|i| (i, Reason::Asked))
                .collect(),
            Seeds::FailedOnly => all
                .filter(|i| status(*i).is_bad_end() || status(*i) == JobStatus::PendingFailed)
                .map(|i| (i, Reason::Ended(status(i))))
                .collect(),
            Seeds::Named(named) => named.iter().map(|i| (*i, Reason::Asked)).collect(),
            Seeds::Changed(changed) => {
                changed.iter().map(|(i, why)| (*i, Reason::Changed(why.clone()))).collect()
            }
        };
        let mut chosen: BTreeMap<JobIx, Reason> = BTreeMap::new();
        let mut open: Vec<(JobIx, Reason)> = first.into_iter().rev().collect();
        while let Some((index, reason)) = open.pop() {
            let is_off = status(index) == JobStatus::Disabled
                && !(reason == Reason::Asked && self.may_enable(index));
            if is_off || chosen.contains_key(&index) {
                continue;
            }
            chosen.insert(index, reason);
            // A map is what its items are: it cannot end otherwise as long as they do not.
            open.extend(
                self.bad_items(index).into_iter().map(|item| (item, Reason::Ended(status(item)))),
            );
            let waiting = self.unfinished_items(index).into_iter();
            open.extend(waiting.map(|item| (item, Reason::Upstream(index))));
            open.extend(
                self.children_of(index).iter().map(|child| (*child, Reason::Upstream(index))),
            );
        }
        if let Some(index) = chosen.keys().find(|i| status(**i).is_held()) {
            let id = self.jobs[*index].id;
            return Err(Refused::new(
                ErrorCode::JobRunning,
                format!("job {id} is {}", status(*index)),
            )
            .hint("cancel it first, or wait until it has ended"));
        }
        chosen.retain(|i, _| status(*i) != JobStatus::Uninitialized);
        Ok(chosen.into_iter().collect())
    }

    /// Sends these jobs back to uninitialized and starts the next run, unless something of this run
    /// still runs: then the run goes on and they continue their numbering.
    pub fn reset(&mut self, chosen: &[(JobIx, Reason)], now: i64) {
        let next_run = self.held_count() == 0;
        self.send_back(chosen.iter().map(|(index, _)| *index), next_run, now);
        self.canceled = false;
        if next_run && self.run > 0 {
            self.run += 1;
            self.handlers.forget_all();
            self.requeue_ready(now);
            self.begin_idle();
        }
        self.cancel_all_dormant_items();
        let complete = self.is_complete();
        self.record(Change::Workflow { run: self.run, canceled: false, complete, started: false });
        self.event(
            EventKind::WorkflowReset,
            None,
            json!({"run_id": self.run, "jobs": chosen.len()}),
        );
        self.reset_actions();
        self.finish();
    }

    pub(super) fn send_back(
        &mut self,
        chosen: impl IntoIterator<Item = JobIx> + Clone,
        next_run: bool,
        now: i64,
    ) {
        for index in chosen.clone() {
            self.drop_queued(index, "the job was reset", now);
            self.forget_items(index);
            // The counters first: the move writes them down.
            let run = self.run;
            let job = &mut self.jobs[index];
            let is_first = next_run || job.tries.run != run;
            if is_first {
                job.tries.number = 0;
            }
            job.tries.renew();
            job.last = job.last.filter(|_| !is_first);
            self.shift(index, JobEvent::Reset, None);
        }
        let again: HashSet<JobIx> = chosen.into_iter().collect();
        self.handlers.forget(|job| again.contains(&job));
    }

    /// A new run began: jobs that wait in the queue begin it at attempt 1 too.
    fn requeue_ready(&mut self, now: i64) {
        for index in self.jobs.indexes() {
            if self.jobs[index].status() != JobStatus::Ready {
                continue;
            }
            self.drop_queued(index, "the next run began", now);
            self.count_attempt(index);
            self.record_job(index);
            self.queue_attempt(index, Next::fresh(Origin::Initial), now);
        }
    }

    /// A new run began: jobs that have not run in it have no attempt in it, whatever they had
    /// before.
    pub(super) fn begin_idle(&mut self) {
        for index in self.jobs.indexes() {
            let job = &mut self.jobs[index];
            if matches!(
                job.status(),
                JobStatus::Blocked | JobStatus::Canceled | JobStatus::Disabled
            ) {
                let was = (job.tries.number.max(1), job.tries.refunds, job.tries.lost);
                (job.tries, job.last) = (Tries::none(job.tries.run), None);
                if was != (1, 0, 0) {
                    self.record_job(index);
                }
            }
        }
    }

    /// Makes every uninitialized job blocked or ready (or canceled, when what it needs has failed
    /// already).
    pub fn initialize(&mut self, now: i64) -> usize {
        let fresh = self.fresh();
        let first_run = self.run == 0;
        if first_run {
            self.run = 1;
        }
        self.canceled = false;
        self.record(Change::Workflow {
            run: self.run,
            canceled: false,
            complete: self.is_complete(),
            started: true,
        });
        self.event(
            EventKind::WorkflowStarted,
            None,
            json!({"run_id": self.run, "jobs": fresh.len()}),
        );
        self.open(&fresh, now);
        self.trigger_start();
        self.finish();
        fresh.len()
    }

    /// The jobs that initializing opens.
    fn fresh(&self) -> Vec<JobIx> {
        let is_fresh =
            |i: &JobIx| self.jobs[*i].status() == JobStatus::Uninitialized && !self.is_dormant(*i);
        self.jobs.indexes().filter(is_fresh).collect()
    }

    pub(super) fn open(&mut self, fresh: &[JobIx], now: i64) {
        for index in fresh {
            let unmet = self.count_unmet(*index);
            self.jobs[*index].unmet = unmet;
            if unmet == 0 && self.gathers(*index) {
                self.shift(*index, JobEvent::InitializedBlocked, Some(StatusReason::WaitsForItems));
                self.gather(*index);
                self.propagate(*index, now);
            } else if unmet == 0 {
                self.make_ready(*index, JobEvent::InitializedReady, Origin::Initial, now);
            } else {
                let reason = self.gathers(*index).then_some(StatusReason::WaitsForItems);
                self.shift(*index, JobEvent::InitializedBlocked, reason);
            }
        }
        for index in fresh {
            self.cancel_if_hopeless(*index, now);
        }
    }

    /// A job that it depends on has ended badly; items are their map's business.
    pub(super) fn has_bad_parent(&self, index: JobIx) -> bool {
        self.parents_of(index).iter().any(|parent| {
            self.jobs[*parent].status().is_bad_end() && self.item_edge(*parent, index).is_none()
        })
    }

    /// A job that waits for one that has ended badly is canceled with it.
    pub(super) fn cancel_if_hopeless(&mut self, index: JobIx, now: i64) {
        let job = &self.jobs[index];
        let is_hopeless = job.status() == JobStatus::Blocked
            && job.cancel_on_failure
            && self.has_bad_parent(index);
        let why = Some(StatusReason::DependencyFailed);
        if is_hopeless && self.shift(index, JobEvent::DependencyEndedBadly, why) {
            self.propagate(index, now);
        }
    }

    /// `POST /jobs/{id}/retry/{run_id}?max_retries=N`: one more attempt, while its number allows
    /// it.
    pub fn retry(&mut self, index: JobIx, run: i64, max: i64, now: i64) -> Result<(), Refused> {
        self.may_retry(index, run, max)?;
        self.again(index, Origin::Manual, now);
        Ok(())
    }

    /// No runner claims jobs of a canceled workflow, so that nothing is run again in one.
    pub(super) fn refuse_canceled(&self) -> Result<(), Refused> {
        if self.canceled {
            return Err(Refused::new(
                ErrorCode::WorkflowCanceled,
                "the workflow is canceled; nothing of it would be started",
            )
            .hint("reset its jobs with `reset-status`, then initialize it"));
        }
        Ok(())
    }

    /// The four checks of [`Workflow::retry`], which change nothing.
    pub fn may_retry(&self, index: JobIx, run: i64, max: i64) -> Result<(), Refused> {
        let job = &self.jobs[index];
        if run != self.run {
            let message = format!("run {run} was given but the workflow is in run {}", self.run);
            return Err(Refused::new(ErrorCode::RunMismatch, message));
        }
        self.refuse_canceled()?;
        if !matches!(job.status(), JobStatus::Failed | JobStatus::Terminated) {
            let message = format!(
                "job {} is {}; only a failed or terminated job can be retried",
                job.id,
                job.status()
            );
            let refused = Refused::new(ErrorCode::WrongStatus, message);
            // Its process lives: a second attempt beside it would throw away what the first one
            // did.
            return Err(match job.status() {
                JobStatus::Pending | JobStatus::Running => refused.hint(
                    "wait for its end, or end it with `torc jobs cancel`; `torc workflows reset-status --job` lets it \
                         run again then",
                ),
                _ => refused,
            });
        }
        let number = if job.tries.run == run { i64::from(job.tries.number) } else { 0 };
        if number >= max {
            let message = match number == max {
                true => format!("job {} is at attempt {max} of {max}; no more retries", job.id),
                false => format!(
                    "job {} is at attempt {number}, and retries are allowed up to attempt {max} only",
                    job.id
                ),
            };
            return Err(Refused::new(ErrorCode::MaxRetriesExceeded, message));
        }
        Ok(())
    }

    /// Opens a job that ended badly and queues its next attempt.
    pub fn again(&mut self, index: JobIx, origin: Origin, now: i64) {
        if self.is_failed_by_items(index) {
            return self.run_bad_items_again(index, origin, now);
        }
        let was_final = self.jobs[index].status().is_final();
        debug_assert!(
            self.jobs[index].held().is_none(),
            "a job is opened again while a runner has it"
        );
        self.count_attempt(index);
        let job = &mut self.jobs[index];
        let (number, retry_of) = (job.tries.number, job.last);
        // What waits for its script does not run without it.
        let recovery = job.rare.edit(|rare| rare.script.take());
        let facts = json!({"attempt_id": number, "run_id": self.run, "by": origin});
        self.event(EventKind::JobRetried, Some(index), facts);
        self.shift(index, JobEvent::Requeued, None);
        self.queue_attempt(index, Next { retry_of, recovery, ..Next::fresh(origin) }, now);
        self.block_if_unmet(index, now);
        if was_final {
            self.reopen_dependents(index, now);
            self.take_up_items(index, origin, now);
        }
        self.finish();
    }

    /// A canceled workflow goes on: what was opened again may be claimed.
    pub fn resume(&mut self) {
        if self.canceled {
            self.canceled = false;
            self.record(Change::Workflow {
                run: self.run,
                canceled: false,
                complete: self.is_complete(),
                started: false,
            });
        }
    }

    /// An attempt turned out not to be its job's fault: it no longer counts against the user's
    /// rules, and a job that had failed with it gets another one from the budget for losses. Tells
    /// whether it did. Of a job that has started over since then no attempt counts, and none is given
    /// back. Nothing of a canceled workflow gets another attempt: no runner would take it.
    pub fn refund(&mut self, index: JobIx, burnt: &BurntAttempt, now: i64) -> bool {
        let BurntAttempt { id: attempt, run, number, rule } = *burnt;
        let job = &self.jobs[index];
        if run != self.run || !job.tries.counts(run, number) {
            return false;
        }
        if let Some(rule) = rule {
            self.handlers.take_back(index, rule);
        }
        self.record(Change::AttemptRefunded(attempt));
        let job = &mut self.jobs[index];
        job.tries.refunds += 1;
        let is_final = matches!(
            job.status(),
            JobStatus::Failed | JobStatus::Terminated | JobStatus::PendingFailed
        );
        let is_open = is_final && !self.canceled && job.last == Some(attempt);
        if is_open && job.tries.lost < job.max_lost {
            job.tries.lost += 1;
            self.again(index, Origin::Lost, now);
            return true;
        }
        self.record_job(index);
        false
    }

    /// A verdict on a job that waits for one: try again, or give up.
    pub fn classify(&mut self, index: JobIx, retry: bool, now: i64) -> Result<(), Refused> {
        let job = &self.jobs[index];
        if !self.settings.use_pending_failed {
            return Err(Refused::new(
                ErrorCode::NotOptedIn,
                "the workflow does not use `pending_failed`",
            )
            .hint("set `use_pending_failed: true` in the spec"));
        }
        if job.status() != JobStatus::PendingFailed {
            let message = format!("job {} is {}, not pending_failed", job.id, job.status());
            return Err(Refused::new(ErrorCode::WrongStatus, message));
        }
        if retry {
            self.again(index, Origin::Classified, now);
        } else {
            self.shift(index, JobEvent::FailedForGood, Some(StatusReason::ClassifiedPermanent));
            let attempt = self.jobs[index].tries.number;
            let facts = json!({"by": "classification", "run_id": self.run, "attempt_id": attempt});
            self.event(EventKind::JobFailed, Some(index), facts);
            self.propagate(index, now);
            self.finish();
        }
        Ok(())
    }

    /// Stops everything that is not final. What runs is stopped by its runner, which reports it.
    /// Where everything has ended there is nothing to stop: the workflow stays what it is.
    pub fn cancel(&mut self, now: i64) {
        if self.is_complete() {
            return;
        }
        self.canceled = true;
        self.record(Change::Workflow {
            run: self.run,
            canceled: true,
            complete: self.is_complete(),
            started: false,
        });
        self.event(EventKind::WorkflowCanceled, None, json!({"run_id": self.run}));
        for index in self.jobs.indexes() {
            self.stop_one(index, now);
        }
        self.finish();
    }

    /// Stops one job; what depends on it is canceled with it.
    pub fn cancel_job(&mut self, index: JobIx, now: i64) -> Result<(), Refused> {
        let job = &self.jobs[index];
        if job.status().is_final() {
            return Err(Refused::new(
                ErrorCode::WrongStatus,
                format!("job {} is already {}", job.id, job.status()),
            ));
        }
        self.stop_one(index, now);
        if self.jobs[index].status().is_final() {
            self.event(EventKind::JobCanceled, Some(index), json!({"by": "user"}));
            self.propagate(index, now);
        }
        self.finish();
        Ok(())
    }

    pub(super) fn stop_one(&mut self, index: JobIx, now: i64) {
        let job = &mut self.jobs[index];
        let status = job.status();
        if let Some(held) = job.held_mut() {
            if !held.cancel_requested {
                held.cancel_requested = true;
                let id = held.attempt;
                self.record(Change::AttemptCancelRequested(id));
            }
            // Who cancels a job does not want it to run again as a new revision says.
            self.set_afterwards(index, |then| then.filter(|then| *then == Afterwards::Remove));
        } else if !status.is_final() {
            self.drop_queued(index, "canceled", now);
            self.shift(index, JobEvent::Canceled, Some(StatusReason::CanceledByUser));
        }
    }

    /// Switches a job off; dependents treat it as satisfied.
    pub fn disable(&mut self, index: JobIx, now: i64) -> Result<(), Refused> {
        let job = &self.jobs[index];
        if job.status().after(JobEvent::Disabled).is_err() {
            let message = format!(
                "job {} is {}; only one that has not started can be disabled",
                job.id,
                job.status()
            );
            return Err(Refused::new(ErrorCode::WrongStatus, message));
        }
        self.drop_queued(index, "disabled", now);
        self.shift(index, JobEvent::Disabled, Some(StatusReason::DisabledByUser));
        self.event(EventKind::JobDisabled, Some(index), json!({}));
        self.propagate(index, now);
        self.finish();
        Ok(())
    }

    /// Switches a disabled job on again: it becomes what it would be, and what went ahead without
    /// it waits for it. That is so in a run that goes on; otherwise it waits for the next one.
    pub fn enable(&mut self, index: JobIx, now: i64) -> Result<(), Refused> {
        let job = &self.jobs[index];
        if job.status() != JobStatus::Disabled {
            return Err(Refused::new(
                ErrorCode::WrongStatus,
                format!("job {} is {}, not disabled", job.id, job.status()),
            ));
        }
        if !self.may_enable(index) {
            let message =
                format!("job {} is disabled because {}", job.id, StatusReason::ItemGone.text());
            return Err(Refused::new(ErrorCode::WrongStatus, message));
        }
        let chosen = self.plan_reset(&Seeds::Named(vec![index]))?;
        let goes_on =
            self.run > 0 && !self.canceled && !self.is_complete() && self.fresh().is_empty();
        self.event(EventKind::JobEnabled, Some(index), json!({}));
        if !goes_on {
            self.reset(&chosen, now);
            return Ok(());
        }
        self.send_back(chosen.iter().map(|(index, _)| *index), false, now);
        self.open(&self.fresh(), now);
        self.finish();
        Ok(())
    }

    /// Holds a job back from being claimed, or lets it go.
    pub fn hold(&mut self, index: JobIx, held_back: bool) {
        if self.jobs[index].held_back == held_back {
            return;
        }
        self.dequeue(index);
        self.jobs[index].held_back = held_back;
        self.enqueue(index);
        self.record(Change::JobHeld(self.jobs[index].id, held_back));
        self.event(
            if held_back { EventKind::JobHeld } else { EventKind::JobReleased },
            Some(index),
            json!({}),
        );
    }

    /// Assigns a job to another Slurm scheduler, from its next attempt on.
    pub fn assign_scheduler(&mut self, index: JobIx, scheduler: i64) {
        let job = &self.jobs[index];
        let mut class = self.classes[job.next_class()].clone();
        class.scheduler = Some(scheduler);
        let class = self.classes.number(class);
        self.dequeue(index);
        let job = &mut self.jobs[index];
        job.set_class(class);
        self.enqueue(index);
        self.record(Change::JobScheduler(self.jobs[index].id, scheduler));
    }

    /// Lets the queued attempt of a job be claimed at another time than was said. One that may be
    /// claimed already, or that a runner has, stays as it is.
    pub fn delay(&mut self, index: JobIx, not_before: Option<i64>) {
        let job = &self.jobs[index];
        let (Live::Queued(id), Some(_)) = (&job.live, job.not_before) else { return };
        let id = *id;
        self.dequeue(index);
        self.jobs[index].rare.edit(|rare| rare.not_before = not_before);
        self.enqueue(index);
        self.record(Change::AttemptDelayed { id, not_before });
    }

    /// What the next attempt of a job needs.
    pub fn next_class_of(&self, index: JobIx) -> &crate::Class {
        let job = &self.jobs[index];
        &self.classes[job.next_class()]
    }

    /// Gives a job other needs or another priority, from its next attempt on.
    pub fn adjust(&mut self, index: JobIx, by: Adjustment) {
        let Adjustment { memory, runtime, timeout, cpus, gpus, priority } = by;
        let mut class = self.next_class_of(index).clone();
        class.memory = memory.or(class.memory);
        class.runtime = runtime.or(class.runtime);
        class.timeout = timeout.or(class.timeout);
        class.cpus = cpus.unwrap_or(class.cpus);
        class.gpus = gpus.unwrap_or(class.gpus);
        let class = self.classes.number(class);
        self.dequeue(index);
        let job = &mut self.jobs[index];
        job.priority = priority.unwrap_or(job.priority);
        // A held attempt keeps the class it was claimed with: its share must be given back as it
        // was taken.
        job.set_class(class);
        self.enqueue(index);
        self.relevel([index]);
        self.record(Change::JobAdjusted(self.jobs[index].id, by));
    }

    /// Gives a job another limit and notes why.
    pub fn adjust_because(&mut self, index: JobIx, change: &Adjusted, because: Because<'_>) {
        self.adjust(index, Adjustment::of(change));
        let (job, Because { attempt, why, by }) = (self.jobs[index].id, because);
        let (run, change) = (self.run, change.clone());
        let data = json!({"field": change.field, "from": change.from.map(|v| change.written(v)),
                          "to": change.written(change.to), "why": why, "by": by});
        let (why, by) = (why.to_owned(), by.to_owned());
        let noted = NotedAdjustment { job, run, attempt, change, why, by };
        self.record(Change::AdjustmentNoted(Box::new(noted)));
        self.event(EventKind::JobAdjusted, Some(index), data);
    }

    /// Gives a job another priority, because a person says so.
    pub fn prioritize(&mut self, index: JobIx, priority: i64, why: Option<&str>, by: Option<&str>) {
        self.adjust(index, Adjustment { priority: Some(priority), ..Adjustment::default() });
        let data = json!({"priority": priority, "reason": why, "by": by});
        self.event(EventKind::JobChanged, Some(index), data);
    }

    /// Switches the server's own recovery of failures on or off.
    pub fn set_auto_recover(&mut self, is_enabled: bool) {
        self.settings.recovery.auto_recover.enabled = is_enabled;
        self.record(Change::Settings(Box::new(self.settings.clone())));
    }
}
