//! Which processor a new process begins on: the one of the thread that starts it.
//!
//! Left to itself the kernel looks for the one with the least to do, and counts that thread, which does nothing but wait
//! until the program runs. On a busy machine that means another processor and the end of a turn there, milliseconds away.
//! So the thread keeps to its processor for this moment, and the new process with it. The process gives that up itself
//! before its program runs: the program never sees it, nor does anything it starts. When a program is loaded the kernel
//! looks for the best place again, and by then counts right.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::{LazyLock, OnceLock};

/// Every processor there may ever be.
static EVERYWHERE: LazyLock<CpuSet> = LazyLock::new(|| {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    all
});

/// This thread keeps to its processor until this is dropped.
pub struct Place {
    before: CpuSet,
}

impl Place {
    /// Keeps this thread where it is. Nothing where it can not be anywhere else, or where the kernel does not say.
    pub fn keep() -> Option<Self> {
        let now = sched_getaffinity(None).ok().filter(|now| now.count() > 1)?;
        let before = if is_everywhere(&now) { *EVERYWHERE } else { now };
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).ok()?;
        Some(Self { before })
    }

    /// For the process that this thread has started: it may be everywhere again. Makes system calls only.
    pub fn leave(&self) -> io::Result<()> {
        // What was allowed may be forbidden by now; the kernel takes what is allowed of everything.
        sched_setaffinity(None, &self.before).or_else(|_| sched_setaffinity(None, &EVERYWHERE))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            tracing::error!(%error, "a thread that starts jobs must stay on one processor");
        }
    }
}

/// These are all the processors that we could have. Whoever lists them would be kept to this list, and not get those that
/// are added later.
fn is_everywhere(now: &CpuSet) -> bool {
    static WIDEST: OnceLock<Option<CpuSet>> = OnceLock::new();
    let widest = WIDEST.get_or_init(|| {
        sched_setaffinity(None, &EVERYWHERE).ok()?;
        let widest = sched_getaffinity(None).ok();
        sched_setaffinity(None, now).ok()?;
        widest
    });
    widest.as_ref() == Some(now)
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
            let Some(place) = Place::keep() else { return eprintln!("there is one processor only") };
            assert_eq!(allowed().count(), 1);
            drop(place);
            assert!(allowed() == before);
        });
    }

    #[test]
    fn what_the_user_allowed_is_allowed_again_and_no_more() {
        alone(|| {
            let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed().is_set(*cpu)).collect();
            let Some((_, some)) = all.split_first().filter(|(_, some)| some.len() > 1) else {
                return eprintln!("there are two processors at most");
            };
            sched_setaffinity(None, &only(some)).unwrap();
            drop(Place::keep().unwrap());
            assert!(allowed() == only(some));
        });
    }

    #[test]
    fn a_thread_that_has_one_processor_is_left_alone() {
        alone(|| {
            sched_setaffinity(None, &only(&[sched_getcpu()])).unwrap();
            assert!(Place::keep().is_none());
        });
    }
}
