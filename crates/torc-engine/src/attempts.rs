//! The attempts of a workflow that have not ended: which job each belongs to, and which jobs each
//! runner has.

use super::index::JobIx;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use torc_model::ids::{AttemptId, RunnerId};

/// Live attempts by row and by runner, and the next free row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attempts {
    live: HashMap<AttemptId, JobIx>,
    by_runner: BTreeMap<RunnerId, BTreeSet<JobIx>>,
    next: i64,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { live: HashMap::new(), by_runner: BTreeMap::new(), next: 1 }
    }
}

impl Attempts {
    /// Forgets all but the next free row.
    pub fn clear(&mut self) {
        self.live.clear();
        self.by_runner.clear();
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// First row that a new attempt may take.
    pub fn set_next(&mut self, next: i64) {
        self.next = next;
    }

    pub fn next(&self) -> i64 {
        self.next
    }

    /// A row for a new attempt.
    pub fn new_row(&mut self) -> AttemptId {
        let id = AttemptId(self.next);
        self.next += 1;
        id
    }

    /// A job has a new attempt.
    pub fn add(&mut self, id: AttemptId, job: JobIx) {
        self.live.insert(id, job);
    }

    /// The attempt has ended before a runner took it.
    pub fn remove(&mut self, id: AttemptId) {
        self.live.remove(&id);
    }

    /// The job that a live attempt belongs to.
    pub fn job_of(&self, id: AttemptId) -> Option<JobIx> {
        self.live.get(&id).copied()
    }

    /// A runner took the attempt of a job.
    pub fn give(&mut self, runner: RunnerId, job: JobIx) {
        self.by_runner.entry(runner).or_default().insert(job);
    }

    /// The attempt that a runner had of a job is over.
    pub fn take_back(&mut self, id: AttemptId, runner: RunnerId, job: JobIx) {
        self.live.remove(&id);
        if let Some(jobs) = self.by_runner.get_mut(&runner) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.by_runner.remove(&runner);
            }
        }
    }

    /// The jobs that a runner has.
    pub fn held_by(&self, runner: RunnerId) -> impl Iterator<Item = JobIx> + '_ {
        self.by_runner.get(&runner).into_iter().flatten().copied()
    }

    /// The runners that have something.
    pub fn runners(&self) -> impl Iterator<Item = RunnerId> + '_ {
        self.by_runner.keys().copied()
    }
}
