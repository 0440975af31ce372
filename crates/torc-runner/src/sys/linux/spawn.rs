//! Starts a program the cheap way: the child borrows our memory until its program runs, so that
//! nothing is copied however large we are, and the kernel hands out the descriptor of the new
//! process in the same call.
//!
//! The C library's `posix_spawn` does the same, but maps and unmaps a stack for each child, which
//! stops all our threads for a moment, and touches every signal there is.

use super::place::Place;
use crate::sys::start::{KernelLimits, Program, Spawn, SpawnError, set_limits};
use crate::sys::{reap, wait_for_end};
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Room for the few calls that a child makes before its program runs.
const STACK_BYTES: usize = 32 << 10;
/// Signals that this program or one of its libraries may handle.
const HANDLED: [c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCHLD,
    libc::SIGWINCH,
];

/// Shared with the child, which runs in our memory while this thread stands still.
struct SharedWithChild {
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    dir: *const c_char,
    stdio: [c_int; 3],
    limits: KernelLimits,
    /// Who starts it.
    parent: libc::pid_t,
    /// Where it was put, until its program runs.
    place: Option<Place>,
    /// What went wrong, written by the child: which step, and the error number.
    failure: Option<(SpawnStep, c_int)>,
}

#[derive(Clone, Copy)]
enum SpawnStep {
    Prepare,
    Enter,
    Run,
}

/// By `clone`, in our own memory.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Spawn for Linux {
    fn spawn(&self, program: &Program<'_>) -> Result<(i32, Option<OwnedFd>), SpawnError> {
        spawn(program)
    }
}

fn spawn(program: &Program<'_>) -> Result<(i32, Option<OwnedFd>), SpawnError> {
    let (argv, env) = (program.argv.pointers(), program.env.pointers());
    let mut child = SharedWithChild {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        dir: program.dir.as_ptr(),
        stdio: program.stdio.map(|fd| fd.as_raw_fd()),
        limits: program.limits,
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        place: Place::keep(),
        failure: None,
    };
    let mut stack = [const { MaybeUninit::<u128>::uninit() }; STACK_BYTES / 16];
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: a signal set is plain data for which all zeroes is a valid value.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the pointers are to live, writable variables. Nothing of ours may handle a signal in
    // the child, because it would do so in our memory: signals stay blocked until the child has
    // given up all handlers.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    // SAFETY: the stack is large enough for `become_program`, grows down from its end, is aligned,
    // and lives until this thread goes on, which VFORK delays until the child runs its program or
    // is gone. So do `child` and all it points to.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end;
        libc::clone(
            become_program,
            top.cast(),
            flags,
            (&raw mut child).cast::<c_void>(),
            &raw mut pidfd,
        )
    };
    let error = io::Error::last_os_error();
    // SAFETY: the pointer is to a live variable that the call above has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    drop(child.place.take());
    if pid < 0 {
        return Err(SpawnError::Process(error));
    }
    // SAFETY: the kernel has just made this descriptor for us, and no other owner has it.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    // SAFETY: `child` is a live variable; the child process may have written it behind the
    // compiler's back.
    match unsafe { (&raw const child.failure).read_volatile() } {
        None => Ok((pid, pidfd)),
        Some((step, code)) => {
            wait_for_end(pid);
            reap(pid);
            let error = io::Error::from_raw_os_error(code);
            Err(match step {
                SpawnStep::Prepare => SpawnError::Process(error),
                SpawnStep::Enter => SpawnError::Directory(error),
                SpawnStep::Run => SpawnError::Program(error),
            })
        }
    }
}

/// The life of a child until its program runs. Makes system calls only: no memory, no locks, no
/// panics.
extern "C" fn become_program(argument: *mut c_void) -> c_int {
    let child = argument.cast::<SharedWithChild>();
    // SAFETY: `spawn` made the pointer from a live variable and stands still; everything in it is
    // valid for these calls.
    unsafe {
        let step = prepare(&*child);
        let code = *libc::__errno_location();
        (&raw mut (*child).failure).write_volatile(Some((step, code)));
        libc::_exit(127)
    }
}

/// Returns only when something failed, with what it was.
///
/// # Safety
/// Every pointer in `child` must be good for the call it is used in, and the caller must be a
/// process that ends after.
unsafe fn prepare(child: &SharedWithChild) -> SpawnStep {
    // SAFETY: the caller promises good pointers; the rest are numbers and live local variables.
    unsafe {
        if libc::setpgid(0, 0) != 0 {
            return SpawnStep::Prepare;
        }
        // First of all: the guard or the server must find it after our death. A kernel that refuses
        // leaves the variable in its environment.
        set_limits(child.limits);
        for (target, fd) in (0..).zip(child.stdio) {
            if libc::dup2(fd, target) != target {
                return SpawnStep::Prepare;
            }
        }
        if libc::chdir(child.dir) != 0 {
            return SpawnStep::Enter;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        for signal in HANDLED {
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            // What was ignored when we were started stays ignored, as under any shell.
            if !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        // Rust ignores it for itself; other programs count on it.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        // Last, so that nothing else has to be done on another processor.
        if child.place.as_ref().is_some_and(|place| place.leave().is_err()) {
            return SpawnStep::Prepare;
        }
        // A runner that was killed meanwhile must not start anything any more. One that is killed
        // from here on leaves a process that carries its mark.
        if libc::getppid() != child.parent {
            *libc::__errno_location() = libc::ESRCH;
            return SpawnStep::Prepare;
        }
        libc::execve(child.path, child.argv, child.env);
    }
    SpawnStep::Run
}
