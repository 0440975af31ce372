//! The ready queue: one ordered set per class, so that a claim looks at heads only.

use super::index::{ClassIx, JobIx};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The order of dispatch: priority and rank (higher first), position, index. Total, and the same
/// after a restart.
pub type Key = (Reverse<i64>, Reverse<u16>, i64, JobIx);

/// Jobs of a class that a claim may pass over; the rest waits behind them.
const LOOK_AHEAD: usize = 64;

#[cfg(test)]
thread_local! {
    /// Jobs that were looked at, for the test that claims do not become dearer with their number.
    pub static LOOKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A job of the queue is looked at.
fn look(key: &&Key) {
    #[cfg(test)]
    LOOKED.with(|looked| looked.set(looked.get() + 1));
    let _ = key;
}

/// Jobs that may be claimed, by class, and those that must wait for a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    by_class: BTreeMap<ClassIx, BTreeSet<Key>>,
    delayed: BTreeSet<(i64, JobIx)>,
}

impl Queue {
    /// Adds a job.
    pub fn push(&mut self, class: ClassIx, key: Key) {
        self.by_class.entry(class).or_default().insert(key);
    }

    /// Adds a job that may not be claimed before a time.
    pub fn delay(&mut self, until: i64, index: JobIx) {
        self.delayed.insert((until, index));
    }

    /// Removes a job, wherever it is.
    pub fn remove(&mut self, class: ClassIx, key: Key, until: Option<i64>) {
        if let Some(set) = self.by_class.get_mut(&class) {
            set.remove(&key);
            if set.is_empty() {
                self.by_class.remove(&class);
            }
        }
        if let Some(until) = until {
            self.delayed.remove(&(until, key.3));
        }
    }

    /// Takes less memory after many jobs were added: sets that grow in order are half empty.
    pub fn compact(&mut self) {
        for set in self.by_class.values_mut() {
            *set = std::mem::take(set).into_iter().collect();
        }
    }

    /// Jobs whose time has come.
    pub fn due(&mut self, now: i64) -> Vec<JobIx> {
        let mut due = Vec::new();
        while let Some(&(until, index)) = self.delayed.first() {
            if until > now {
                break;
            }
            self.delayed.pop_first();
            due.push(index);
        }
        due
    }

    /// When the next delayed job is due.
    pub fn next_due(&self) -> Option<i64> {
        self.delayed.first().map(|(until, _)| *until)
    }

    /// The first job in the order of dispatch among the classes that `fits` accepts and the jobs
    /// that `skips` does not pass over.
    pub fn first(
        &self,
        mut fits: impl FnMut(ClassIx) -> bool,
        skips: impl Fn(JobIx) -> bool,
    ) -> Option<Key> {
        self.by_class
            .iter()
            .filter(|(class, _)| fits(**class))
            .filter_map(|(_, set)| {
                set.iter().take(LOOK_AHEAD).inspect(look).find(|key| !skips(key.3))
            })
            .min()
            .copied()
    }

    /// The first job of each class, but for those that `skips` passes over.
    pub fn heads(&self, skips: impl Fn(JobIx) -> bool) -> impl Iterator<Item = (ClassIx, Key)> {
        self.by_class.iter().filter_map(move |(class, set)| {
            let key = set.iter().take(LOOK_AHEAD).inspect(look).find(|key| !skips(key.3))?;
            Some((*class, *key))
        })
    }

    /// All jobs that can be claimed now are of one class.
    pub fn is_uniform(&self) -> bool {
        self.by_class.len() < 2
    }

    /// Nothing can be claimed now.
    pub fn is_empty(&self) -> bool {
        self.by_class.is_empty()
    }

    /// The classes that have jobs ready.
    pub fn classes(&self) -> impl Iterator<Item = ClassIx> + '_ {
        self.by_class.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rank: u16, at: usize) -> Key {
        (Reverse(0), Reverse(rank), at as i64, JobIx::new(at))
    }

    #[test]
    fn the_first_is_the_highest_of_the_classes_that_fit_and_of_the_jobs_that_are_not_passed_over() {
        let [narrow, wide] = [ClassIx::new(0), ClassIx::new(1)];
        let mut queue = Queue::default();
        assert!(queue.is_empty() && queue.is_uniform());
        queue.push(narrow, key(5, 1));
        queue.push(narrow, key(7, 2));
        assert!(queue.is_uniform() && !queue.is_empty());
        queue.push(wide, key(6, 3));
        assert!(!queue.is_uniform());
        let first = |queue: &Queue, fits: &[ClassIx], skips: &[usize]| {
            let fits = |class| fits.contains(&class);
            queue.first(fits, |job| skips.contains(&job.at())).map(|key| key.3.at())
        };
        assert_eq!(first(&queue, &[narrow, wide], &[]), Some(2));
        assert_eq!(first(&queue, &[narrow, wide], &[2]), Some(3));
        assert_eq!(first(&queue, &[narrow], &[2]), Some(1));
        assert_eq!(first(&queue, &[], &[]), None);
        let heads: Vec<_> =
            queue.heads(|job| job.at() == 2).map(|(c, key)| (c, key.3.at())).collect();
        assert_eq!(heads, [(narrow, 1), (wide, 3)]);
        assert_eq!(queue.classes().collect::<Vec<_>>(), [narrow, wide]);
        let before = queue.clone();
        queue.compact();
        assert_eq!(queue, before);
        queue.remove(wide, key(6, 3), None);
        assert_eq!(queue.classes().collect::<Vec<_>>(), [narrow]);
    }

    #[test]
    fn what_waits_for_a_time_is_due_at_that_time_in_order() {
        let mut queue = Queue::default();
        for (until, at) in [(30, 1), (10, 2), (20, 3)] {
            queue.delay(until, JobIx::new(at));
        }
        queue.remove(ClassIx::new(0), key(0, 3), Some(20));
        assert_eq!((queue.next_due(), queue.due(9)), (Some(10), vec![]));
        assert_eq!(queue.due(10), [JobIx::new(2)]);
        assert_eq!(queue.next_due(), Some(30));
        assert!(queue.is_empty(), "none of them can be claimed");
    }

    #[test]
    fn so_many_jobs_of_a_class_are_passed_over_and_no_more() {
        let mut queue = Queue::default();
        for at in 0..=LOOK_AHEAD {
            queue.push(ClassIx::new(0), key(0, at));
        }
        let first =
            |below: usize| queue.first(|_| true, |job| job.at() < below).map(|key| key.3.at());
        assert_eq!(first(LOOK_AHEAD - 1), Some(LOOK_AHEAD - 1));
        assert_eq!(first(LOOK_AHEAD), None);
    }
}
