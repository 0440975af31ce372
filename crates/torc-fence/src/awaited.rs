//! Children of this process that are no jobs, such as the command of a notification. A server and
//! a runner may share a process; then the runner's search for orphans sees all of its children.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

static PIDS: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

/// A child that the part of the program that started it waits for: until this is dropped, a runner
/// in the same process neither reaps nor ends it.
#[derive(Debug)]
pub struct Awaited(i32);

impl Awaited {
    /// To be called right after the start: a runner must see an orphan twice before it acts.
    pub fn new(pid: i32) -> Self {
        pids().insert(pid);
        Self(pid)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        pids().remove(&self.0);
    }
}

/// Another part of this program waits for the process.
pub fn is_awaited(pid: i32) -> bool {
    pids().contains(&pid)
}

fn pids() -> MutexGuard<'static, HashSet<i32>> {
    // Adding and removing a number leaves no half-done state behind.
    PIDS.lock().unwrap_or_else(PoisonError::into_inner)
}
