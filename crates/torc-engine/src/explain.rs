//! Why is a job where it is? Answered by the code that decides, so that the answer is true.

use super::claim::{Claim, Limits, why_not};
use super::index::JobIx;
use super::workflow::Workflow;
use std::collections::BTreeMap;
use torc_model::api::Capacity;
use torc_model::class::Room;
use torc_model::ids::JobId;
use torc_model::labels;
use torc_model::status::{AttemptState, JobStatus, StatusReason};
use torc_model::words;

/// An answer for people. Job names are for the caller to fill in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// One sentence.
    pub summary: String,
    /// Jobs that stand in its way, at most ten.
    pub because_of: Vec<(JobId, JobStatus)>,
    /// How many there are in all.
    pub because_of_count: usize,
    /// More about it, one sentence each.
    pub details: Vec<String>,
    /// What to do about it, one sentence each.
    pub hints: Vec<String>,
}

/// The summary of a job that could run if only a runner took it.
pub const NO_RUNNER: &str = "no runner is there to take it";

/// A runner, as far as the answer needs it.
#[derive(Clone, PartialEq, Debug)]
pub struct RunnerFacts<'a> {
    /// The claim it would make.
    pub claim: Claim<'a>,
    /// Its host.
    pub host: &'a str,
}

/// Jobs that wait for one reason, as far as can be told without asking about each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingGroup {
    /// The status of all of them.
    pub status: JobStatus,
    /// How many there are.
    pub count: i64,
    /// One of them.
    pub sample: JobId,
}

impl Workflow {
    /// What waits, in one pass over the jobs. Only what is ready waits for a runner, so that only
    /// there its needs matter.
    pub fn waiting_groups(&self, now: i64) -> Vec<WaitingGroup> {
        let mut groups: BTreeMap<_, WaitingGroup> = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| !job.status().is_final()) {
            let status = job.status();
            let ready = (status == JobStatus::Ready)
                .then(|| (job.class, job.held_back, job.not_before.is_some_and(|at| at > now)));
            let group = WaitingGroup { status, count: 0, sample: job.id };
            groups.entry((status, ready)).or_insert(group).count += 1;
        }
        groups.into_values().collect()
    }

    /// Why this job is where it is.
    pub fn explain(
        &self,
        index: JobIx,
        runners: &[RunnerFacts<'_>],
        limits: &Limits,
        now: i64,
    ) -> Explanation {
        let job = &self.jobs[index];
        let blockers: Vec<(JobId, JobStatus)> = self
            .parents_of(index)
            .iter()
            .filter(|p| match job.status() {
                JobStatus::Canceled => self.jobs[**p].status().is_bad_end(),
                _ => !self.is_met(**p, index),
            })
            .map(|p| (self.jobs[*p].id, self.jobs[*p].status()))
            .collect();
        let summary = match job.status() {
            JobStatus::Uninitialized => "it waits for the workflow to be initialized".into(),
            JobStatus::Blocked => match blockers.as_slice() {
                [one] => format!("it waits for job {} which is {}", one.0, one.1),
                many => format!("it waits for {} jobs", many.len()),
            },
            JobStatus::Ready => self.explain_ready(index, runners, limits, now),
            JobStatus::Pending => "a runner took it and starts it as soon as it has room".into(),
            JobStatus::Running => match job.held().is_some_and(|h| h.cancel_requested) {
                true => "it is being stopped".into(),
                false => "it runs".into(),
            },
            JobStatus::Completed => "it succeeded".into(),
            JobStatus::Failed => "it failed".into(),
            JobStatus::Canceled if job.reason() == Some(StatusReason::DependencyFailed) => {
                "a job it depends on did not succeed".into()
            }
            JobStatus::Canceled if self.is_given_up(index) => StatusReason::GivenUp.text().into(),
            JobStatus::Canceled => "it was canceled".into(),
            JobStatus::Terminated => "it exceeded its time limit and was stopped".into(),
            JobStatus::Disabled => {
                "it is disabled; jobs that depend on it do not wait for it".into()
            }
            JobStatus::PendingFailed => {
                "it failed, no rule matches the failure, and it waits for a verdict".into()
            }
        };
        let because_of_count = blockers.len();
        let because_of = blockers.into_iter().take(10).collect();
        let shut = self.shut_limit(index, limits).filter(|_| job.status() == JobStatus::Ready);
        let hints = shut
            .map(|name| format!("`torc limits set {name} N` lets N of them run at once"))
            .into_iter()
            .collect();
        Explanation { summary, because_of, because_of_count, details: Vec::new(), hints }
    }

    fn explain_ready(
        &self,
        index: JobIx,
        runners: &[RunnerFacts<'_>],
        limits: &Limits,
        now: i64,
    ) -> String {
        let job = &self.jobs[index];
        if job.held_back {
            return "it is held back; `torc jobs release` lets it go".into();
        }
        if let Some(until) = job.not_before.filter(|t| *t > now) {
            return format!("its retry waits another {:.1} s", (until - now) as f64 / 1000.0);
        }
        if let Some(name) = self.shut_limit(index, limits) {
            return format!("limit `{name}` is 0, so nothing that uses it may start");
        }
        if runners.is_empty() {
            return NO_RUNNER.into();
        }
        let class = &self.classes[job.class];
        if let Some(said) = self.explain_kept(index, runners, now) {
            return said;
        }
        let mut reasons = Vec::new();
        let mut is_only_full = false;
        for runner in runners {
            if let Some(reason) =
                why_not(class, &runner.claim, limits, runner.claim.strict_scheduler)
            {
                reasons.push(format!("on {}: {reason}", runner.host));
                continue;
            }
            let whole = Room::of(runner.claim.capacity);
            if !whole.fits(class) {
                let lacks = whole.lacking(class).unwrap_or_default();
                reasons.push(format!(
                    "on {}: it needs {lacks} even when the runner is empty",
                    runner.host
                ));
                continue;
            }
            let room = self.room_of(runner.claim.runner, runner.claim.capacity);
            if !room.fits(class) {
                let lacks = room.lacking(class).unwrap_or_else(|| "a free slot".into());
                reasons.push(format!("on {}: it needs {lacks}", runner.host));
                is_only_full = true;
                continue;
            }
            if let Some(other) = self.keeps(runner.claim.runner).filter(|other| *other != index) {
                let other = self.jobs[other].id;
                reasons.push(format!("{} is reserved for job {other}", runner.host));
                is_only_full = true;
                continue;
            }
            return "it is next in the queue".into();
        }
        let what =
            if is_only_full { "it waits until a runner has room" } else { "no runner can take it" };
        format!("{what}: {}", reasons.join("; "))
    }

    /// A runner is kept for the job.
    fn explain_kept(&self, index: JobIx, runners: &[RunnerFacts<'_>], now: i64) -> Option<String> {
        let (id, start_at) = self.kept_for(index)?;
        let runner = runners.iter().find(|runner| runner.claim.runner == id)?;
        let class = &self.classes[self.jobs[index].class];
        let wants = self.room_of(runner.claim.runner, runner.claim.capacity).wanting(class)?;
        let when = match start_at {
            Some(at) if at > now => {
                format!(", about {}", words::duration((at - now) as f64 / 1000.0))
            }
            _ => String::new(),
        };
        Some(format!("it waits for {wants} on {}, reserved{when}", runner.host))
    }

    /// A named limit of 0 that the job uses: no runner and no end of another job changes that.
    fn shut_limit<'a>(&'a self, index: JobIx, limits: &Limits) -> Option<&'a str> {
        let uses = &self.classes[self.jobs[index].class].uses;
        uses.iter()
            .find(|name| limits.get(*name).is_some_and(|limit| limit.max <= 0))
            .map(String::as_str)
    }

    /// What a runner of this size lacks for the job even when it is empty.
    pub fn lacking(&self, index: JobIx, capacity: &Capacity) -> Option<String> {
        let job = &self.jobs[index];
        Room::of(capacity).lacking(&self.classes[job.next_class()])
    }

    /// Ready jobs that no runner of this size could ever take.
    pub fn never_fits(&self, capacity: &Capacity) -> bool {
        let whole = Room::of(capacity);
        !self.ready.queue.is_empty()
            && self.ready.queue.classes().all(|c| !whole.fits(&self.classes[c]))
    }

    /// Some ready job could be taken by a runner of this size with this label, if it were empty.
    pub fn has_ready_for(&self, capacity: &Capacity, label: Option<&str>) -> bool {
        let whole = Room::of(capacity);
        self.ready
            .queue
            .classes()
            .map(|c| &self.classes[c])
            .any(|c| labels::fit(c.label.as_deref(), label) && whole.fits(c))
    }

    /// The label that a runner must have to take this job.
    pub fn label_of(&self, index: JobIx) -> Option<&str> {
        self.classes[self.jobs[index].class].label.as_deref()
    }

    /// Attempts a runner holds that have not started yet.
    pub fn claimed_before(
        &self,
        runner: torc_model::ids::RunnerId,
        time: i64,
    ) -> Vec<torc_model::ids::AttemptId> {
        self.held_by(runner)
            .filter_map(|index| {
                let held = self.jobs[index].held()?;
                (held.state == AttemptState::Claimed && held.claimed_at <= time)
                    .then_some(held.attempt)
            })
            .collect()
    }
}
