//! A new revision of a workflow's jobs, applied while the workflow lives: jobs are added, changed and
//! removed, and some run again. The caller decides what differs; this is how the jobs move.

use super::change::Change;
use super::index::{HandlerIx, JobIx};
use super::jobs::NewJob;
use super::machine::JobEvent;
use super::maps::MapJob;
use super::workflow::{Refused, Workflow};
use serde_json::json;
use torc_model::api::ErrorCode;
use torc_model::class::Class;
use torc_model::event::EventKind;
use torc_model::status::{Afterwards, JobStatus, RunningJobs, StatusReason};

/// What becomes of the jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct Revision {
    /// New jobs. Their parents are indexes of present jobs and of new ones; the first new job gets the
    /// index after the last present one.
    pub added: Vec<NewJob>,
    /// Present jobs with other needs or other parents. That alone does not make them run again.
    pub changed: Vec<ChangedJob>,
    /// Jobs that are taken out, by index.
    pub removed: Vec<JobIx>,
    /// Present jobs that run again although they have ended or run now, by index. Those that wait for
    /// them wait again; those that have ended and depend on them must be in this list too.
    pub again: Vec<JobIx>,
    /// Jobs that count as completed without running, by index; new ones among them.
    pub accepted: Vec<JobIx>,
    /// Jobs that are maps from now on, new or present, or no longer; by index.
    pub maps: Vec<(JobIx, Option<MapJob>)>,
    /// Items of maps, new or present, each with its map; by index.
    pub items: Vec<(JobIx, JobIx)>,
    /// What to do with the running attempts of those that run again or are removed.
    pub running: RunningJobs,
}

impl Default for Revision {
    fn default() -> Self {
        Self {
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            again: Vec::new(),
            accepted: Vec::new(),
            maps: Vec::new(),
            items: Vec::new(),
            running: RunningJobs::Finish,
        }
    }
}

/// A present job as it is from now on.
#[derive(Clone, PartialEq, Debug)]
pub struct ChangedJob {
    /// Which.
    pub index: JobIx,
    /// Higher first.
    pub priority: i64,
    /// Number of its family.
    pub family: u32,
    /// What its next attempt needs.
    pub class: Class,
    /// Index into the handlers.
    pub handler: Option<HandlerIx>,
    /// Canceled when a dependency ends badly.
    pub cancel_on_failure: bool,
    /// Budget for losses.
    pub max_lost: u32,
    /// Its parents, where they are others.
    pub parents: Option<Vec<JobIx>>,
}

impl Workflow {
    /// Adds jobs to a live workflow: those whose parents are done are ready at once. Answers with their
    /// indexes.
    pub fn add_jobs(&mut self, added: Vec<NewJob>, now: i64) -> Result<Vec<JobIx>, Refused> {
        self.revise(Revision { added, ..Revision::default() }, now)
    }

    /// Applies a revision. A workflow that is over begins its next run, if something is to run; one that
    /// runs goes on. Answers with the indexes of the new jobs.
    pub fn revise(&mut self, revision: Revision, now: i64) -> Result<Vec<JobIx>, Refused> {
        if self.canceled && !self.is_complete() {
            let message = format!("workflow {} is being canceled", self.id);
            return Err(Refused::new(ErrorCode::BeingCanceled, message)
                .hint("wait until its running jobs have ended"));
        }
        let Revision { added, changed, removed, again, accepted, maps, items, running } = revision;
        let is_over = self.run > 0 && self.is_complete();
        let next_run = is_over && added.len() + again.len() > accepted.len();
        let facts = json!({
            "added": added.len(), "changed": changed.len(), "removed": removed.len(),
            "again": again.len(), "accepted": accepted.len(),
        });
        let first = self.jobs.len();
        for job in added {
            self.add_job(job);
        }
        let new: Vec<JobIx> = JobIx::range(first..self.jobs.len()).collect();
        for (index, map) in maps {
            self.change_map(index, map);
        }
        for (item, map) in items {
            self.set_item(item, map, false);
        }
        let mut moved = Vec::new();
        let is_more_than_growth = changed.len() + removed.len() + again.len() > 0;
        for job in changed {
            if let Some(parents) = &job.parents {
                self.edges.set_parents(job.index, parents);
                moved.push(job.index);
            }
            self.change_job(job);
        }
        if next_run {
            self.run += 1;
            self.canceled = false;
            self.handlers.forget_all();
            self.begin_idle();
        }
        for index in removed {
            self.edges.set_parents(index, &[]);
            self.untie(index);
            match self.jobs[index].status().is_held() {
                true => self.after_its_attempt(index, Afterwards::Remove, running),
                false => self.take_out(index, now),
            }
        }
        if is_more_than_growth {
            self.rank_all();
        } else {
            self.relevel(new.iter().copied());
        }
        let (held, back): (Vec<JobIx>, Vec<JobIx>) =
            again.into_iter().partition(|index| self.jobs[*index].status().is_held());
        for index in &held {
            self.after_its_attempt(*index, Afterwards::RunAgain, running);
        }
        let back: Vec<JobIx> = back
            .into_iter()
            .filter(|index| self.jobs[*index].status() != JobStatus::Uninitialized)
            .collect();
        self.send_back(back.iter().copied(), next_run, now);
        for index in accepted {
            self.shift(index, JobEvent::InitializedBlocked, None);
            self.shift(index, JobEvent::Succeeded, Some(StatusReason::Accepted));
        }
        let is_live = self.run > 0 && !self.canceled;
        if is_live {
            for index in &back {
                if !self.jobs[*index].status().satisfies() {
                    self.reopen_dependents(*index, now);
                }
            }
            for index in moved {
                self.wait_for_parents(index, now);
            }
        }
        self.event(EventKind::WorkflowRevised, None, facts);
        if next_run {
            let run = self.run;
            let complete = self.is_complete();
            self.record(Change::Workflow { run, canceled: false, complete, started: true });
            self.event(
                EventKind::WorkflowStarted,
                None,
                json!({"run_id": run, "jobs": new.len() + back.len()}),
            );
            self.reset_actions();
        }
        if is_live {
            let is_fresh = |index: &JobIx| {
                self.jobs[*index].status() == JobStatus::Uninitialized && !self.is_dormant(*index)
            };
            let fresh: Vec<JobIx> =
                back.into_iter().chain(new.iter().copied()).filter(is_fresh).collect();
            self.open(&fresh, now);
        }
        if next_run {
            self.trigger_start();
        }
        self.finish();
        Ok(new)
    }

    fn change_job(&mut self, change: ChangedJob) {
        let class = self.classes.number(change.class);
        let index = change.index;
        self.dequeue(index);
        self.order.set_family(index, change.family);
        let job = &mut self.jobs[index];
        job.priority = change.priority;
        job.handler = change.handler;
        job.cancel_on_failure = change.cancel_on_failure;
        job.max_lost = change.max_lost;
        // A held attempt keeps the class it was claimed with: its share must be given back as it was
        // taken.
        job.set_class(class);
        self.enqueue(index);
    }

    /// Remembers what becomes of a job that a runner has, and stops it if so wanted.
    fn after_its_attempt(&mut self, index: JobIx, then: Afterwards, running: RunningJobs) {
        if running == RunningJobs::Stop {
            let job = &mut self.jobs[index];
            let live = job.live();
            if let (Some(held), Some(id)) = (job.held_mut(), live)
                && !held.cancel_requested
            {
                held.cancel_requested = true;
                self.record(Change::AttemptCancelRequested(id));
            }
        }
        self.set_afterwards(index, |_| Some(then));
    }

    /// Changes what becomes of a job when its attempt has ended; answers with what it was.
    pub(super) fn set_afterwards(
        &mut self,
        index: JobIx,
        change: impl FnOnce(Option<Afterwards>) -> Option<Afterwards>,
    ) -> Option<Afterwards> {
        let job = &mut self.jobs[index];
        let (was, id) = (job.afterwards, job.id);
        let then = change(was);
        if then != was {
            job.rare.edit(|rare| rare.afterwards = then);
            self.record(Change::JobAfterwards(id, then));
        }
        was
    }

    /// Takes a job out that no runner has. What still waits for it goes ahead.
    pub(super) fn take_out(&mut self, index: JobIx, now: i64) {
        if self.jobs[index].status() != JobStatus::Uninitialized {
            self.drop_queued(index, "the job was removed", now);
            self.shift(index, JobEvent::Reset, None);
        }
        self.shift(index, JobEvent::Disabled, Some(StatusReason::Removed));
        self.relevel([index]);
        // A run that is over stays so: what was canceled with this job is there for the next one.
        if self.run > 0 && !self.canceled {
            for child in self.children_of(index).to_vec() {
                self.wait_for_parents(child, now);
            }
        }
    }

    /// A job that has not begun got other parents: it waits for those, and for no others.
    fn wait_for_parents(&mut self, index: JobIx, now: i64) {
        let job = &self.jobs[index];
        match job.status() {
            JobStatus::Ready => {
                self.block_if_unmet(index, now);
                self.cancel_if_hopeless(index, now);
            }
            JobStatus::Blocked => {
                self.shift(index, JobEvent::Reset, None);
                self.open(&[index], now);
            }
            JobStatus::Canceled
                if job.reason() == Some(StatusReason::DependencyFailed)
                    && !self.has_bad_parent(index) =>
            {
                self.shift(index, JobEvent::Reset, None);
                self.reopen_dependents(index, now);
                self.open(&[index], now);
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
