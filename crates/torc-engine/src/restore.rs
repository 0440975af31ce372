//! From rows back to the engine: what a restart does. The store fills [`Rows`] from its database,
//! the simulator from its tables; what follows is the same for both.

use super::actions::NewAction;
use super::claim::Limits;
use super::index::ClassIx;
use super::jobs::{Held, Live, NewJob, Tries};
use super::order::FamilyTime;
use super::rules::CompiledHandler;
use super::workflow::Workflow;
use std::collections::BTreeSet;
use torc_model::api::RecoveryScript;
use torc_model::class::Class;
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::status::{Afterwards, JobStatus, Outcome, StatusReason};

/// A job and where its row says it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct JobRow {
    /// What it is made from.
    pub job: NewJob,
    /// Where it stands.
    pub status: JobStatus,
    /// Its attempts; number and run are 1 also when it never had one.
    pub tries: Tries,
    /// No runner may claim it.
    pub held_back: bool,
    /// Why it stands there.
    pub reason: Option<StatusReason>,
    /// What becomes of it when its running attempt has ended.
    pub afterwards: Option<Afterwards>,
}

/// A queued, claimed or running attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct LiveRow {
    /// Its row.
    pub id: AttemptId,
    /// Its job.
    pub job: JobId,
    /// Its number.
    pub number: u32,
    /// Not before this time.
    pub not_before: Option<i64>,
    /// Who has it.
    pub held: Option<Held>,
    /// The script that runs before it.
    pub recovery: Option<RecoveryScript>,
}

/// An attempt that has ended in the current run.
#[derive(Clone, PartialEq, Debug)]
pub struct EndedRow {
    /// Its row.
    pub id: AttemptId,
    /// Its job.
    pub job: JobId,
    /// Its number.
    pub number: u32,
    /// What the rules decided.
    pub outcome: Option<Outcome>,
    /// The rule that matched.
    pub rule: Option<usize>,
    /// The script that should have run before it, and did not or kept it from running.
    pub script: Option<Box<RecoveryScript>>,
}

/// Everything that is stored about a workflow and matters to the engine.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Its id.
    pub id: WorkflowId,
    /// The run.
    pub run: i64,
    /// A user canceled it.
    pub canceled: bool,
    /// Its settings.
    pub settings: Settings,
    /// Its failure handlers.
    pub handlers: Vec<CompiledHandler>,
    /// Its jobs, ordered by id.
    pub jobs: Vec<JobRow>,
    /// Live attempts.
    pub live: Vec<LiveRow>,
    /// Ended attempts of this run, ordered by id. Those of completed jobs may be left out.
    pub ended: Vec<EndedRow>,
    /// Actions; their jobs are given by index.
    pub actions: Vec<NewAction>,
    /// What is assumed of jobs about whose time nothing is known, in ms.
    pub typical_ms: Option<u32>,
    /// The times of families, by their number.
    pub families: Vec<FamilyTime>,
    /// Families and times in ms of the jobs that succeeded in this run.
    pub ends: Vec<(u32, u32)>,
}

impl Rows {
    /// The engine's state.
    pub fn restore(self) -> Workflow {
        let mut workflow = Workflow::new(self.id, self.settings, self.handlers);
        let run = self.run;
        workflow.run = run;
        workflow.canceled = self.canceled;
        for row in self.jobs {
            let index = workflow.add_job(row.job);
            workflow.restore_job(index, (row.status, row.reason), |job| {
                job.tries = row.tries;
                job.held_back = row.held_back;
                if row.afterwards.is_some() {
                    job.rare.edit(|rare| rare.afterwards = row.afterwards);
                }
            });
        }
        for row in self.live {
            let Some(index) = workflow.find(row.job) else { continue };
            let job = &mut workflow.jobs[index];
            job.tries.number = row.number;
            job.tries.run = run;
            job.live = match row.held {
                Some(held) => Live::Held(Box::new(held)),
                None => Live::Queued(row.id),
            };
            job.rare.edit(|rare| {
                rare.not_before = row.not_before;
                rare.script = row.recovery;
            });
        }
        for row in self.ended {
            let Some(index) = workflow.find(row.job) else { continue };
            let job = &mut workflow.jobs[index];
            job.last = Some(row.id);
            if job.live().is_none() && job.script.as_ref() != row.script.as_deref() {
                job.rare.edit(|rare| rare.script = row.script.map(|script| *script));
            }
            // What a rule gave before the job started over is forgotten.
            if let (Some(Outcome::Retried), Some(rule)) = (row.outcome, row.rule)
                && row.number > job.tries.before
            {
                workflow.restore_rule_use(index, rule);
            }
        }
        // The column starts at 1, as users know it; the engine counts attempts that were queued. A
        // job that was reset while the run went on has had its attempts refunded.
        for job in workflow.jobs.iter_mut() {
            let may_be_new = matches!(
                job.status(),
                JobStatus::Uninitialized
                    | JobStatus::Blocked
                    | JobStatus::Canceled
                    | JobStatus::Disabled
            );
            let has_none = job.live().is_none() && job.last.is_none() && job.tries.refunds == 0;
            if may_be_new && has_none && job.tries.number == 1 {
                job.tries.number = 0;
            }
        }
        for action in self.actions {
            workflow.add_action(action);
        }
        workflow.restore_times(self.typical_ms, self.families);
        for (family, ms) in self.ends {
            workflow.restore_end(family, ms);
        }
        workflow.settle();
        workflow
    }
}

impl Workflow {
    /// Adds what this workflow uses of the named limits: one share for each attempt that a runner
    /// has.
    pub fn count_limits(&self, limits: &mut Limits) {
        self.add_map_limits(limits);
        self.each_use(|name| {
            if let Some(limit) = limits.get_mut(name) {
                limit.used += 1;
            }
        });
    }

    /// Takes it away again, before this copy is dropped.
    pub fn discount_limits(&self, limits: &mut Limits) {
        self.each_use(|name| {
            if let Some(limit) = limits.get_mut(name) {
                limit.used -= 1;
            }
        });
    }

    /// How many of its held attempts take a share of a named limit.
    pub fn uses_of(&self, name: &str) -> i64 {
        let mut uses = 0;
        self.each_use(|used| uses += i64::from(used == name));
        uses
    }

    /// What the jobs need that may still run; none if the workflow is canceled.
    pub fn open_classes(&self) -> Vec<Class> {
        let open = self.jobs.iter().filter(|job| !self.canceled && !job.status().is_final());
        let classes: BTreeSet<ClassIx> =
            open.flat_map(|job| [job.class, job.next_class()]).collect();
        classes.into_iter().map(|class| self.classes[class].clone()).collect()
    }

    fn each_use(&self, mut see: impl FnMut(&str)) {
        for job in self.jobs.iter().filter(|job| job.held().is_some()) {
            self.classes[job.class].uses.iter().for_each(|name| see(name));
        }
    }
}
