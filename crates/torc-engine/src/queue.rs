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
