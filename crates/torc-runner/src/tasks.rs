//! Work that may block: starting processes, looking at files, reading the process table, asking the server.
//!
//! Whoever has the state only says what is to be done; it is done after the state has been let go, because a file
//! system may hang and a server may not answer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One piece of work. What it finds out goes into a mailbox, quietly.
pub type Task = Box<dyn FnOnce() -> News + Send>;

/// Whether a task has left something in a mailbox that must be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// At once.
    Now,
    /// When somebody looks for another reason.
    Later,
}

/// Tasks in the order given.
#[derive(Default)]
pub struct Tasks {
    queue: Mutex<VecDeque<Task>>,
}

impl Tasks {
    /// Adds one.
    pub fn push(&self, task: impl FnOnce() -> News + Send + 'static) {
        self.lock().push_back(Box::new(task));
    }

    /// Takes the oldest, and says how many are left.
    pub fn pop(&self) -> Option<(Task, usize)> {
        let mut queue = self.lock();
        let task = queue.pop_front()?;
        Some((task, queue.len()))
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Does all there are, for callers with nothing else to do meanwhile.
    pub fn run_all(&self) {
        while let Some((task, _)) = self.pop() {
            task();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Task>> {
        // No code of ours runs under the lock, so what a panic elsewhere poisoned is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
