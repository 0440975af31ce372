//! Jobs that add jobs: a running job gives its workflow more to do.

use super::change::Change;
use super::index::JobIx;
use super::workflow::{Refused, Workflow};
use serde_json::json;
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::JobId;
use torc_model::status::JobStatus;

impl Workflow {
    /// Whether a job may add jobs now. Only one that a runner has may: a workflow that is complete
    /// stays so, because no job of it can add any.
    pub fn may_add(&self, index: JobIx) -> Result<(), Refused> {
        let job = &self.jobs[index];
        let Some(held) = job.held() else {
            let message =
                format!("job {} is {}; only a running job adds jobs", job.id, job.status());
            return Err(Refused::new(ErrorCode::WrongStatus, message));
        };
        if self.canceled || held.cancel_requested {
            let message = format!("job {} is being canceled and adds no jobs", job.id);
            return Err(Refused::new(ErrorCode::BeingCanceled, message));
        }
        Ok(())
    }

    /// What depends on a job waits for jobs that it has added, too.
    pub fn hold_dependents(&mut self, by: JobIx, added: &[JobIx], now: i64) {
        let ids: Vec<JobId> = added.iter().map(|job| self.jobs[*job].id).collect();
        let dependents: Vec<JobIx> =
            self.children_of(by).iter().copied().filter(|child| !added.contains(child)).collect();
        for dependent in &dependents {
            self.record(Change::JobWaitsFor(self.jobs[*dependent].id, ids.clone()));
            for job in added {
                self.edges.link(*job, *dependent);
            }
            self.relevel(added.iter().copied());
            match self.jobs[*dependent].status() {
                JobStatus::Blocked => {
                    self.jobs[*dependent].unmet = self.count_unmet(*dependent);
                }
                JobStatus::Ready => self.block_if_unmet(*dependent, now),
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

    /// Tells that a job has added so many.
    pub fn tell_added(&mut self, by: JobIx, count: usize) {
        let run = self.run;
        self.event(EventKind::JobsAdded, Some(by), json!({"run_id": run, "jobs": count}));
    }
}
