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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_found_by_row_and_by_runner_until_they_end() {
        let (a, b) = (JobIx::new(1), JobIx::new(2));
        let mut attempts = Attempts::default();
        assert_eq!((attempts.new_row(), attempts.next()), (AttemptId(1), 2));
        attempts.set_next(7);
        let (first, second) = (attempts.new_row(), attempts.new_row());
        assert_eq!((first, second), (AttemptId(7), AttemptId(8)));
        attempts.add(first, a);
        attempts.add(second, b);
        attempts.give(RunnerId(1), a);
        attempts.give(RunnerId(1), b);
        attempts.give(RunnerId(2), b);
        let held =
            |attempts: &Attempts, runner| attempts.held_by(RunnerId(runner)).collect::<Vec<_>>();
        assert_eq!((held(&attempts, 1), held(&attempts, 2)), (vec![a, b], vec![b]));
        attempts.take_back(second, RunnerId(1), b);
        assert_eq!((held(&attempts, 1), attempts.job_of(second)), (vec![a], None));
        attempts.take_back(first, RunnerId(1), a);
        assert_eq!(attempts.runners().collect::<Vec<_>>(), [RunnerId(2)]);
        attempts.add(first, a);
        attempts.remove(first);
        assert_eq!(attempts.job_of(first), None);
        attempts.add(first, a);
        attempts.clear();
        assert_eq!((attempts.len(), attempts.runners().count(), attempts.next()), (0, 0, 9));
    }
}
