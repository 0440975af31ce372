//! How soon the scheduler lets a thread run that wakes up, for how long at a time.
//!
//! On processors that jobs keep busy, every step of server and runner would wait for a whole turn
//! of theirs, and so would a new process. Short turns come soon, and give no larger share. Kernels
//! that know no such wish ignore it.

use std::cell::Cell;
use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicBool, Ordering};

/// The shortest turn that the scheduler grants, in nanoseconds.
const SHORT_TURN: u64 = 100_000;

/// A part of this process has asked for short turns.
static ARE_SHORT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread starts has turns of the usual length.
    static ARE_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Asks for short turns of this thread, and of all threads and processes that it makes from now on,
/// jobs excepted.
pub fn prefer_short_turns() {
    ARE_SHORT.store(true, Ordering::Relaxed);
    ask(|wish| wish.sched_runtime = SHORT_TURN);
}

/// A thread that starts jobs keeps its wish to itself. The new process must not say so itself:
/// a thread that changes its wish gives up its turn, and would wait for a whole one of another's
/// just before its program runs.
pub(super) fn keep_to_this_thread() {
    if ARE_SHORT.load(Ordering::Relaxed) && !ARE_OWN.replace(true) {
        ask(|wish| wish.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64);
    }
}

fn ask(for_what: impl FnOnce(&mut libc::sched_attr)) {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: `sched_attr` is plain data for which all zeroes is a valid value.
    let mut wish: libc::sched_attr = unsafe { zeroed() };
    // SAFETY: the pointer is to a live, writable variable of the size given; 0 is the calling
    // thread.
    let is_known =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut wish, size, 0) } == 0;
    // A user who chose another policy knows better, and a thread with precedence needs no more;
    // jobs would lose it.
    if is_known && wish.sched_policy == libc::SCHED_OTHER.cast_unsigned() && wish.sched_nice >= 0 {
        for_what(&mut wish);
        // SAFETY: the pointer is to a live variable that holds its size. What fails changes
        // nothing, and nothing depends on it.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::Linux;
    use crate::sys::{Program, Spawn as _, Strings, reap, wait_for_end};
    use std::os::fd::AsFd as _;

    /// The turn of a thread as the kernel shows it, where it does.
    fn turn(text: &str) -> Option<&str> {
        text.lines()
            .find(|line| line.starts_with("se.slice"))
            .and_then(|line| line.rsplit(' ').next())
    }

    fn turn_of_child() -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let out = std::fs::File::create(dir.path().join("out")).unwrap();
        let mut argv = Strings::default();
        for word in ["cat", "/proc/self/sched"] {
            argv.push(&[word.as_bytes()]).unwrap();
        }
        let program = Program {
            path: c"/bin/cat",
            argv: &argv,
            env: &Strings::default(),
            dir: c"/",
            stdio: [null.as_fd(), out.as_fd(), out.as_fd()],
            limits: Default::default(),
        };
        let (pid, _) = Linux.spawn(&program).unwrap();
        wait_for_end(pid);
        reap(pid);
        turn(&std::fs::read_to_string(dir.path().join("out")).unwrap()).map(str::to_owned)
    }

    #[test]
    fn a_thread_gets_short_turns_and_a_job_the_usual_ones() {
        std::thread::spawn(|| {
            let Some(usual) = turn_of_child() else {
                return eprintln!("this kernel does not show turns");
            };
            prefer_short_turns();
            let own = std::fs::read_to_string("/proc/thread-self/sched").unwrap();
            let own = turn(&own).unwrap();
            assert!(
                own == "100000" || own == usual,
                "{own}: neither short nor of a kernel that cannot"
            );
            assert_eq!(turn_of_child().unwrap(), usual);
        })
        .join()
        .unwrap();
    }
}
