//! Work that may block: starting processes, looking at files, reading the process table, asking the
//! server.
//!
//! The thread that has the state only says what is to be done; it is done after the state has been
//! let go, because a file system may hang and a server may not answer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One piece of work. What it finds out goes into a mailbox, quietly.
pub type Task = Box<dyn FnOnce() -> FollowUp + Send>;

/// What a thread that has done a task should do next.
#[derive(Debug)]
pub enum FollowUp {
    /// Look: there is something in a mailbox.
    Now,
    /// What is in a mailbox may wait until a thread looks for another reason.
    Later,
    /// The same, and see to it that the end of this process is heard of.
    Child(Child),
}

/// A process that has just been started and is not watched yet.
pub struct Child {
    /// Its number.
    pub pid: i32,
    /// What to look with when it has ended, as if the poller had said so.
    pub key: u64,
    watch: Box<dyn FnOnce() -> FollowUp + Send>,
}

impl Child {
    /// Who will not wait for its end in person lets `watch` see to it.
    pub fn new(pid: i32, key: u64, watch: impl FnOnce() -> FollowUp + Send + 'static) -> Self {
        Self { pid, key, watch: Box::new(watch) }
    }

    /// Lets others watch it.
    pub fn leave(self) -> FollowUp {
        (self.watch)()
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child")
            .field("pid", &self.pid)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Tasks in the order given.
#[derive(Default)]
pub struct Tasks {
    queue: Mutex<VecDeque<Task>>,
}

impl Tasks {
    /// Adds one.
    pub fn push(&self, task: impl FnOnce() -> FollowUp + Send + 'static) {
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
        self.len() == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Does all there are, for callers with nothing else to do meanwhile.
    pub fn run_all(&self) {
        while let Some((task, _)) = self.pop() {
            if let FollowUp::Child(child) = task() {
                child.leave();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Task>> {
        // No code of ours runs under the lock, so what a panic elsewhere poisoned is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
