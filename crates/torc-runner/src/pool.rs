//! A few threads for work that blocks: starting processes, looking at files, reading the process table.
//!
//! Starting a process suspends its thread until the new program runs, and a file system may hang; neither may stop the
//! thread that watches the other processes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that call one function for each task, in the order given. They are made when needed and kept.
pub struct Pool<T: Send + 'static> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
    work: Box<dyn Fn(T) + Send + Sync>,
}

struct State<T> {
    queue: VecDeque<T>,
    idle: usize,
    threads: usize,
    max_threads: usize,
    is_closed: bool,
}

impl<T: Send + 'static> Pool<T> {
    /// At most `max_threads` threads that do `work`.
    pub fn new(max_threads: usize, work: impl Fn(T) + Send + Sync + 'static) -> Self {
        let state = State { queue: VecDeque::new(), idle: 0, threads: 0, max_threads, is_closed: false };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), ready: Condvar::new(), work: Box::new(work) }) }
    }

    /// Hands over a task.
    pub fn push(&self, task: T) {
        let mut state = self.shared.lock();
        state.queue.push_back(task);
        if state.queue.len() <= state.idle || state.threads == state.max_threads {
            drop(state);
            self.shared.ready.notify_one();
            return;
        }
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("torc-work".into()).stack_size(512 << 10);
        match thread.spawn(move || shared.run()) {
            Ok(_) => state.threads += 1,
            // No thread to be had: without any other one the work is done here, late rather than never.
            Err(error) if state.threads == 0 => {
                tracing::warn!(%error, "can not start a thread");
                let tasks = std::mem::take(&mut state.queue);
                drop(state);
                tasks.into_iter().for_each(|task| (self.shared.work)(task));
            }
            Err(_) => {}
        }
    }
}

impl<T: Send + 'static> Drop for Pool<T> {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.ready.notify_all();
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code of ours runs under the lock, so what a panic elsewhere poisoned is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                drop(state);
                (self.work)(task);
                state = self.lock();
            } else if state.is_closed {
                return;
            } else {
                state.idle += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc;

    #[test]
    fn tasks_run_side_by_side_up_to_the_limit_and_none_is_lost() {
        let (sender, receiver) = mpsc::channel();
        let barrier = Barrier::new(3);
        let pool = Pool::new(3, move |task: usize| {
            // Three tasks must be inside at once for any of them to get out.
            barrier.wait();
            sender.send(task).unwrap();
        });
        (0..30).for_each(|task| pool.push(task));
        let mut done: Vec<usize> = receiver.iter().take(30).collect();
        done.sort_unstable();
        assert_eq!(done, (0..30).collect::<Vec<_>>());
        assert_eq!(pool.shared.lock().threads, 3);
    }
}
