//! The threads of a runner, by the leader/followers pattern. All of them are alike: the one that is
//! told that something has happened takes the state, lets it decide, lets it go, and does itself
//! what was decided. So the thread that hears of the end of a process starts the next one, and no
//! other has to be woken for it.
//!
//! ```text
//!   ┌▶ wait: for the poller, ─▶ look: the state, under its lock ─▶ tasks, without the lock ─┐
//!   │  or for a process                                                                     │
//!   └───────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A thread that has started a process waits for its end in person if it can be spared: the kernel
//! wakes it on the processor that the process has just left, and the next one starts there. A
//! thread that hears of it from the poller is woken anywhere, mostly at the cost of another
//! process, while the processor that became free stands idle.
//!
//! Tasks may block for long, on a file system that hangs for example. There is always a thread at
//! the poller.

use crate::error::Error;
use crate::sys::{self, Alarm, Poller, Wake};
use crate::tasks::{Child, FollowUp, Task, Tasks};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Keys of the poller that stay here.
const CALL_KEY: u64 = u64::MAX - 2;
const ALARM_KEY: u64 = u64::MAX - 3;
/// Alarms go off this much late, so that what is due is really due when a thread looks.
const LATE: Duration = Duration::from_micros(100);

/// The state, and what it decides.
pub trait EventHandler: Send + 'static {
    /// What is there to tell in the end.
    type Outcome: Send + 'static;

    /// Takes in what has happened; `ready` is what the poller said. Answers when all is over.
    fn look(&mut self, ready: &[u64], now: Instant) -> Option<Self::Outcome>;

    /// When to look even if nothing happens.
    fn next_alarm(&self) -> Option<Instant>;
}

type Answer<M> = oneshot::Sender<Result<<M as EventHandler>::Outcome, Error>>;

struct ThreadPool<M: EventHandler> {
    handler: Mutex<Guarded<M>>,
    poller: Arc<Poller>,
    tasks: Arc<Tasks>,
    alarm: Alarm,
    /// Asks one of those who wait for help with tasks.
    call: Wake,
    counts: Mutex<ThreadCounts>,
    is_over: AtomicBool,
    answer: Mutex<Option<Answer<M>>>,
}

struct Guarded<M> {
    handler: M,
    /// When the alarm will go off, or has.
    alarm_at: Option<Instant>,
}

#[derive(Debug)]
struct ThreadCounts {
    threads: usize,
    /// How many of them do a task.
    busy: usize,
    /// How many of them wait for the end of a process in person.
    attending: usize,
    max: Bounds,
}

/// How many threads there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// In all.
    pub threads: usize,
    /// Those who wait for the end of a process in person.
    pub attending: usize,
}

impl ThreadCounts {
    /// How many wait for the poller, or are on their way to it.
    fn free(&self) -> usize {
        self.threads.saturating_sub(self.busy + self.attending)
    }
}

/// Starts the first of the threads. The answer comes when all is over, or never if the state breaks
/// down.
pub fn start<M: EventHandler>(
    handler: M,
    poller: Arc<Poller>,
    tasks: Arc<Tasks>,
    max: Bounds,
) -> io::Result<oneshot::Receiver<Result<M::Outcome, Error>>> {
    let (sender, receiver) = oneshot::channel();
    let (alarm, call) = (Alarm::new()?, Wake::new()?);
    poller.add(&alarm, ALARM_KEY)?;
    poller.add(&call, CALL_KEY)?;
    let pool = Arc::new(ThreadPool {
        handler: Mutex::new(Guarded { handler, alarm_at: None }),
        poller,
        tasks,
        alarm,
        call,
        counts: Mutex::new(ThreadCounts { threads: 0, busy: 0, attending: 0, max }),
        is_over: AtomicBool::new(false),
        answer: Mutex::new(Some(sender)),
    });
    pool.spawn_thread(&mut lock(&pool.counts), true)?;
    Ok(receiver)
}

/// For what is whole even after its holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: EventHandler> ThreadPool<M> {
    fn spawn_thread(
        self: &Arc<Self>,
        counts: &mut ThreadCounts,
        looks_at_once: bool,
    ) -> io::Result<()> {
        let pool = self.clone();
        let thread = std::thread::Builder::new().name("torc-runner".into()).stack_size(1 << 20);
        thread.spawn(move || pool.work(looks_at_once))?;
        counts.threads += 1;
        Ok(())
    }

    fn work(self: Arc<Self>, looks_at_once: bool) {
        let _guard = PanicGuard(&self);
        let mut ready = Vec::new();
        let mut must_look = looks_at_once;
        loop {
            self.act(&mut ready, must_look);
            if self.is_over.load(Ordering::Acquire) {
                // The next one who waits hears it, too.
                return self.call.signal();
            }
            if let Err(error) = self.poller.wait(None, &mut ready) {
                self.end(Err(Error::system("wait", error)));
            }
            must_look = ready.iter().any(|key| *key != CALL_KEY);
            ready.retain(|key| !matches!(*key, CALL_KEY | ALARM_KEY));
        }
    }

    /// Looks if need be, and does tasks as long as there are any for this thread.
    fn act(self: &Arc<Self>, ready: &mut Vec<u64>, mut must_look: bool) {
        loop {
            if must_look && let Some(outcome) = self.look(ready) {
                self.tasks.run_all();
                self.end(outcome);
            }
            ready.clear();
            let Some(task) = self.take_task() else { return };
            let follow_up = task();
            lock(&self.counts).busy -= 1;
            must_look = self.follow_up(follow_up, ready);
        }
    }

    /// Sees to what a task has left to do. Answers whether to look, and at what.
    fn follow_up(self: &Arc<Self>, follow_up: FollowUp, ready: &mut Vec<u64>) -> bool {
        match follow_up {
            FollowUp::Now => true,
            FollowUp::Later => false,
            FollowUp::Child(child) if self.attend(&child) => {
                ready.push(child.key);
                true
            }
            FollowUp::Child(child) => matches!(child.leave(), FollowUp::Now),
        }
    }

    /// Waits for the end of a process, unless there is something better to do for this thread.
    fn attend(self: &Arc<Self>, child: &Child) -> bool {
        let mut counts = lock(&self.counts);
        let may_attend =
            counts.attending < counts.max.attending && self.leaves_another(&mut counts);
        // Others have been called for the tasks that are left, if there are enough of them.
        if !may_attend || self.tasks.len() >= counts.free() {
            return false;
        }
        counts.attending += 1;
        drop(counts);
        sys::wait_for_end(child.pid);
        lock(&self.counts).attending -= 1;
        true
    }

    /// Without this thread there is still another one to look.
    fn leaves_another(self: &Arc<Self>, counts: &mut ThreadCounts) -> bool {
        counts.free() > 1
            || (counts.threads < counts.max.threads && self.spawn_thread(counts, false).is_ok())
    }

    fn look(&self, ready: &[u64]) -> Option<Result<M::Outcome, Error>> {
        // The mutex is poisoned: the thread that panicked with the state has ended the runner.
        let mut guarded = self.handler.lock().ok()?;
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let now = Instant::now();
        if let Some(outcome) = guarded.handler.look(ready, now) {
            self.is_over.store(true, Ordering::Release);
            return Some(Ok(outcome));
        }
        let next = guarded.handler.next_alarm()?;
        // One that goes off too early does no harm and saves setting it anew for each change of
        // plans.
        if guarded.alarm_at.is_none_or(|at| at <= now || next < at) {
            guarded.alarm_at = Some(next);
            if let Err(error) = self.alarm.set(next.saturating_duration_since(now) + LATE) {
                return Some(Err(Error::system("set an alarm", error)));
            }
        }
        None
    }

    /// The next task, if this thread may do it.
    fn take_task(self: &Arc<Self>) -> Option<Task> {
        let mut counts = lock(&self.counts);
        if self.tasks.is_empty() {
            return None;
        }
        // Those who are busy will do this task, too; without any, late is better than never.
        if !self.leaves_another(&mut counts) && counts.busy > 0 {
            return None;
        }
        let (task, left) = self.tasks.pop()?;
        counts.busy += 1;
        if left > 0 && counts.free() > 0 {
            self.call.signal();
        }
        Some(task)
    }

    fn end(&self, outcome: Result<M::Outcome, Error>) {
        self.is_over.store(true, Ordering::Release);
        if let Some(sender) = lock(&self.answer).take() {
            // A receiver that has gone does not need it.
            let _ = sender.send(outcome);
        }
    }
}

/// A thread that panics takes all the others with it: what it had in hand is lost, and nothing
/// would ever come of it.
struct PanicGuard<'a, M: EventHandler>(&'a ThreadPool<M>);

impl<M: EventHandler> Drop for PanicGuard<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_over.store(true, Ordering::Release);
            drop(lock(&self.0.answer).take());
            self.0.call.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Inbox, Mailbox, mailbox};
    use std::sync::{Barrier, mpsc};

    /// Counts messages; at each it does what it is told, and it ends at `end`.
    struct Counter {
        inbox: Inbox<u32>,
        on_message: Box<dyn FnMut(u32) + Send>,
        seen: u32,
        end: u32,
        alarm: Option<Instant>,
    }

    impl EventHandler for Counter {
        type Outcome = u32;

        fn look(&mut self, ready: &[u64], now: Instant) -> Option<u32> {
            let mut messages = Vec::new();
            self.inbox.take(ready, &mut messages);
            for message in messages {
                self.seen += 1;
                (self.on_message)(message);
            }
            if self.alarm.is_some_and(|at| at <= now) {
                self.alarm = None;
                self.seen += 100;
            }
            (self.seen >= self.end).then_some(self.seen)
        }

        fn next_alarm(&self) -> Option<Instant> {
            self.alarm
        }
    }

    fn begin(
        end: u32,
        max_threads: usize,
        alarm: Option<Instant>,
        on_message: impl FnOnce(Arc<Tasks>, Mailbox<u32>) -> Box<dyn FnMut(u32) + Send>,
    ) -> (Mailbox<u32>, oneshot::Receiver<Result<u32, Error>>) {
        let (sender, inbox) = mailbox(7).unwrap();
        let poller = Arc::new(Poller::new().unwrap());
        inbox.join(&poller).unwrap();
        let tasks = Arc::new(Tasks::default());
        let on_message = on_message(tasks.clone(), sender.clone());
        let handler = Counter { inbox, on_message, seen: 0, end, alarm };
        (
            sender,
            start(handler, poller, tasks, Bounds { threads: max_threads, attending: 2 }).unwrap(),
        )
    }

    #[test]
    fn tasks_run_side_by_side_and_none_is_lost() {
        let (told, heard) = mpsc::channel();
        // Three tasks must be inside at once for any of them to get out.
        let barrier = Arc::new(Barrier::new(3));
        let (sender, outcome) = begin(60, 4, None, |tasks, answers| {
            Box::new(move |message| {
                if message >= 100 {
                    return;
                }
                let (barrier, told, answers) = (barrier.clone(), told.clone(), answers.clone());
                tasks.push(move || {
                    barrier.wait();
                    told.send(message).unwrap();
                    answers.send_quietly(100 + message);
                    FollowUp::Now
                });
            })
        });
        (0..30).for_each(|n| sender.send(n));
        assert_eq!(outcome.blocking_recv().unwrap().unwrap(), 60);
        let mut done: Vec<u32> = heard.try_iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn one_thread_looks_however_many_tasks_hang() {
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let (sender, outcome) = begin(40, 3, None, |tasks, _| {
            Box::new(move |_| {
                let wait = wait.clone();
                tasks.push(move || {
                    let _ = lock(&wait).recv();
                    FollowUp::Later
                });
            })
        });
        // All but one thread hang after a few of these; the end is seen all the same, and only then
        // can they go on.
        (0..40).for_each(|n| sender.send(n));
        drop(release);
        assert_eq!(outcome.blocking_recv().unwrap().unwrap(), 40);
    }

    #[test]
    fn an_alarm_wakes_a_thread_that_looks() {
        let (_sender, outcome) =
            begin(100, 2, Some(Instant::now() + Duration::from_millis(5)), |_, _| Box::new(|_| {}));
        assert_eq!(outcome.blocking_recv().unwrap().unwrap(), 100);
    }

    /// Starts a process for each message and counts those whose end it hears of.
    struct Parent {
        inbox: Inbox<u32>,
        poller: Arc<Poller>,
        tasks: Arc<Tasks>,
        children: Arc<Mutex<Vec<std::process::Child>>>,
        ended: Vec<u64>,
        end: usize,
    }

    impl EventHandler for Parent {
        type Outcome = Vec<u64>;

        fn look(&mut self, ready: &[u64], _: Instant) -> Option<Vec<u64>> {
            let mut messages = Vec::new();
            self.inbox.take(ready, &mut messages);
            for message in messages {
                let (poller, children) = (self.poller.clone(), self.children.clone());
                self.tasks.push(move || {
                    let child = std::process::Command::new("sleep").arg("0.1").spawn().unwrap();
                    let pid = child.id().cast_signed();
                    lock(&children).push(child);
                    let key = 100 + u64::from(message);
                    FollowUp::Child(Child::new(pid, key, move || {
                        let pidfd = Box::leak(Box::new(sys::pidfd_open(pid).unwrap()));
                        poller.add_once(&*pidfd, key).unwrap();
                        FollowUp::Later
                    }))
                });
            }
            self.ended.extend(ready.iter().filter(|key| (100..200).contains(*key)));
            (self.ended.len() == self.end).then(|| std::mem::take(&mut self.ended))
        }

        fn next_alarm(&self) -> Option<Instant> {
            None
        }
    }

    #[test]
    fn the_end_of_every_process_is_heard_once_whichever_thread_waits_for_it() {
        for attending in [0, 2, 20] {
            let (sender, inbox) = mailbox(7).unwrap();
            let poller = Arc::new(Poller::new().unwrap());
            inbox.join(&poller).unwrap();
            let tasks = Arc::new(Tasks::default());
            let children = Arc::new(Mutex::new(Vec::new()));
            let handler = Parent {
                inbox,
                poller: poller.clone(),
                tasks: tasks.clone(),
                children: children.clone(),
                ended: Vec::new(),
                end: 10,
            };
            let outcome = start(handler, poller, tasks, Bounds { threads: 5, attending }).unwrap();
            (0..10).for_each(|n| sender.send(n));
            let mut ended = outcome.blocking_recv().unwrap().unwrap();
            ended.sort_unstable();
            assert_eq!(ended, (100..110).collect::<Vec<_>>());
            lock(&children).iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
        }
    }

    #[test]
    fn a_breakdown_is_told() {
        for in_task in [false, true] {
            let (sender, outcome) = begin(100, 2, None, |tasks, _| {
                Box::new(move |_| match in_task {
                    false => panic!("a bug in the state"),
                    true => tasks.push(|| panic!("a bug in a task")),
                })
            });
            sender.send(1);
            assert!(outcome.blocking_recv().is_err());
        }
    }
}
