//! Which processor a new process begins on: the one of the thread that starts it.
//!
//! Left to itself the kernel looks for the one with the least to do, and counts that thread, which
//! does nothing but wait until the program runs. On a busy machine that means another processor and
//! the end of a turn there, milliseconds away. So the thread keeps to its processor for this
//! moment, and the new process with it. The process gives that up itself before its program runs:
//! the program never sees it, nor does anything it starts. When a program is loaded the kernel
//! looks for the best place again, and by then counts right.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::LazyLock;

/// Every processor there may ever be. A thread that may use these gets those that are added later,
/// too.
static EVERYWHERE: LazyLock<CpuSet> = LazyLock::new(|| {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    all
});

/// What the kernel makes of that here. Asked by a thread of its own, so that no other thread is
/// changed by it.
static WIDEST: LazyLock<Option<CpuSet>> = LazyLock::new(|| {
    let ask = || sched_setaffinity(None, &EVERYWHERE).and_then(|()| sched_getaffinity(None)).ok();
    std::thread::Builder::new().spawn(ask).ok()?.join().ok()?
});

/// This thread keeps to its processor until this is dropped.
pub struct Place(());

impl Place {
    /// Keeps this thread where it is, if it may be everywhere else as well. One that a user has
    /// given a list of processors is left alone, and so are all while some are away: what is
    /// allowed now would become a list for good.
    pub fn keep() -> Option<Self> {
        let now = sched_getaffinity(None).ok().filter(|now| now.count() > 1)?;
        if WIDEST.as_ref() != Some(&now) {
            return None;
        }
        let cpu = sched_getcpu();
        if cpu >= CpuSet::MAX_CPU {
            return None;
        }
        let mut here = CpuSet::new();
        here.set(cpu);
        sched_setaffinity(None, &here).ok()?;
        Some(Self(()))
    }

    /// For the process that this thread has started: it may be everywhere again. Makes system calls
    /// only.
    pub fn leave(&self) -> io::Result<()> {
        sched_setaffinity(None, &EVERYWHERE)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            tracing::error!(%error, "a thread that starts jobs must stay on one processor");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    fn only(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    /// In a thread of its own: others must keep their processors.
    fn alone(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_keeps_to_its_processor_for_a_moment() {
        alone(|| {
            let before = allowed();
            let Some(place) = Place::keep() else {
                return eprintln!("there is one processor only");
            };
            assert_eq!(allowed().count(), 1);
            drop(place);
            assert!(allowed() == before);
        });
    }

    #[test]
    fn what_the_user_allowed_is_allowed_again_and_no_more() {
        alone(|| {
            let all: Vec<usize> =
                (0..CpuSet::MAX_CPU).filter(|cpu| allowed().is_set(*cpu)).collect();
            let Some((_, some)) = all.split_first().filter(|(_, some)| !some.is_empty()) else {
                return eprintln!("there is one processor only");
            };
            let before = allowed();
            assert!(Place::keep().is_some());
            assert!(allowed() == before);
            sched_setaffinity(None, &only(some)).unwrap();
            assert!(Place::keep().is_none());
            assert!(allowed() == only(some));
        });
    }
}
