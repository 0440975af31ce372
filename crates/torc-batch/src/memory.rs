//! A batch system in memory, for tests: it gives out ids, keeps a queue, and loses answers when told
//! to. It starts nothing.

use crate::{BatchSystem, Known, Look, ScriptInput, Submitted};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use torc_model::slurm::observe::VANISHED_AFTER_MS;
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};
use torc_model::status::Cause;

/// A batch system in memory. Clones share one queue.
#[derive(Clone, Debug, Default)]
pub struct MemoryBatch {
    queue: Arc<Mutex<BatchQueue>>,
    submitted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct BatchQueue {
    jobs: Vec<Job>,
    lost_answers: usize,
    is_unreachable: bool,
}

/// A job of the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub verdict: Verdict,
}

impl MemoryBatch {
    /// The jobs that were submitted, in order; ended ones included.
    pub fn jobs(&self) -> Vec<Job> {
        self.queue().jobs.clone()
    }

    /// Waits for the next submission, or for one since the last wait.
    pub async fn submitted(&self) {
        self.submitted.notified().await;
    }

    /// Takes the next submissions without an answer that reaches the submitter.
    pub fn lose_answers(&self, count: usize) {
        self.queue().lost_answers = count;
    }

    /// Answers no question, or answers again.
    pub fn be_unreachable(&self, is_unreachable: bool) {
        self.queue().is_unreachable = is_unreachable;
    }

    /// A job ends for this cause.
    pub fn end(&self, id: &str, cause: Cause) {
        let ending = AllocationEnding {
            state: "ENDED".into(),
            cause,
            text: "the job has ended".into(),
            is_vanished: false,
        };
        for job in self.queue().jobs.iter_mut().filter(|job| job.id == id) {
            job.verdict = Verdict::Ended(ending.clone());
        }
    }

    /// Has never heard of this job.
    pub fn forget(&self, id: &str) {
        self.queue().jobs.retain(|job| job.id != id);
    }

    fn queue(&self) -> MutexGuard<'_, BatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchSystem for MemoryBatch {
    fn name(&self) -> &'static str {
        "the batch system in memory"
    }

    fn script(&self, submission: &ScriptInput<'_>) -> Result<String, String> {
        Ok(submission.name.to_owned())
    }

    async fn submit(&self, script: &Path) -> Submitted {
        let name = match std::fs::read_to_string(script) {
            Ok(name) => name,
            Err(error) => return Submitted::Refused(error.to_string()),
        };
        let mut queue = self.queue();
        let id = (queue.jobs.len() + 1).to_string();
        let verdict = Verdict::Alive { phase: AllocationPhase::Waiting, reason: None };
        queue.jobs.push(Job { id: id.clone(), name, verdict });
        self.submitted.notify_one();
        match queue.lost_answers.checked_sub(1) {
            Some(left) => {
                queue.lost_answers = left;
                Submitted::Ambiguous("the answer was lost".into())
            }
            None => Submitted::Id(id),
        }
    }

    async fn find(&self, name: &str) -> Result<Option<String>, String> {
        let queue = self.queue();
        match queue.is_unreachable {
            true => Err("it does not answer".into()),
            false => Ok(queue.jobs.iter().find(|job| job.name == name).map(|job| job.id.clone())),
        }
    }

    async fn look(&self, known: &[Known], now_ms: i64) -> Result<Vec<Look>, String> {
        let queue = self.queue();
        if queue.is_unreachable {
            return Err("it does not answer".into());
        }
        let look = |known: &Known| {
            let found = queue.jobs.iter().find(|job| job.name == known.name);
            let vanished = known.missing_since_ms.is_some_and(|t| now_ms - t >= VANISHED_AFTER_MS);
            match found {
                Some(job) => Look {
                    verdict: job.verdict.clone(),
                    slurm_job_id: Some(job.id.clone()),
                    is_missing: false,
                    before: None,
                    start: None,
                },
                None if vanished => Look {
                    verdict: Verdict::Ended(AllocationEnding::vanished()),
                    slurm_job_id: None,
                    is_missing: true,
                    before: None,
                    start: None,
                },
                None => Look { is_missing: true, ..Look::unknown("not in the queue") },
            }
        };
        Ok(known.iter().map(look).collect())
    }

    async fn cancel(&self, ids: &[String]) {
        ids.iter().for_each(|id| self.end(id, Cause::Lost));
    }
}
