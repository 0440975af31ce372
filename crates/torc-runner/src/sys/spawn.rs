//! Starts a program the cheap way: the child borrows our memory until its program runs, so that
//! nothing is copied however large we are, and the kernel hands out the descriptor of the new
//! process in the same call.
//!
//! The C library's `posix_spawn` does the same, but maps and unmaps a stack for each child, which
//! stops all our threads for a moment, and touches every signal there is.

use super::place::Place;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

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

/// Strings for a new program, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Strings {
    /// Adds one string, made of these parts.
    pub fn push(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if parts.iter().any(|part| part.contains(&0)) {
            let message = "a NUL byte stands in an argument or in a variable";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.starts.push(self.bytes.len());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.push(0);
        Ok(())
    }

    /// As `execve` wants them. Good only as long as nothing is added.
    fn pointers(&self) -> Vec<*const c_char> {
        let base = self.bytes.as_ptr();
        // All starts are inside of the piece, so the sum is too.
        let pointers = self.starts.iter().map(|start| base.wrapping_add(*start).cast());
        pointers.chain([std::ptr::null()]).collect()
    }
}

/// What to start, and how.
#[derive(Debug)]
pub struct Program<'a> {
    /// The file; it is not looked for.
    pub path: &'a CStr,
    /// Its name and arguments.
    pub argv: &'a Strings,
    /// Its whole environment.
    pub env: &'a Strings,
    /// Where it starts.
    pub dir: &'a CStr,
    /// Its standard input, output and error; none of them may be below 3.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Limits of the kernel for it and all that it starts.
    pub limits: Limits,
}

/// Limits of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Those by which it can be found: see [`torc_fence::Mark::limits`].
    pub mark: Option<(u64, Option<u64>)>,
    /// It leaves no core dump.
    pub no_core: bool,
}

/// Which part of a start went wrong.
#[derive(Debug)]
pub enum SpawnError {
    /// No process could be made.
    Process(io::Error),
    /// The directory cannot be entered.
    Directory(io::Error),
    /// The program cannot be run.
    Program(io::Error),
}

/// Shared with the child, which runs in our memory while this thread stands still.
struct Child {
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    dir: *const c_char,
    stdio: [c_int; 3],
    limits: Limits,
    /// Who starts it.
    parent: libc::pid_t,
    /// Where it was put, until its program runs.
    place: Option<Place>,
    /// What went wrong, written by the child: which step, and the error number.
    failure: Option<(Step, c_int)>,
}

#[derive(Clone, Copy)]
enum Step {
    Prepare,
    Enter,
    Run,
}

/// Starts a program in a process group of its own, with no signal blocked. Returns once it runs;
/// with its number and, on kernels that have such a thing, its descriptor.
pub fn spawn(program: &Program<'_>) -> Result<(i32, Option<OwnedFd>), SpawnError> {
    let (argv, env) = (program.argv.pointers(), program.env.pointers());
    let mut child = Child {
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
    super::turns::keep_to_this_thread();
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
            super::wait_for_end(pid);
            super::reap(pid);
            let error = io::Error::from_raw_os_error(code);
            Err(match step {
                Step::Prepare => SpawnError::Process(error),
                Step::Enter => SpawnError::Directory(error),
                Step::Run => SpawnError::Program(error),
            })
        }
    }
}

/// The life of a child until its program runs. Makes system calls only: no memory, no locks, no
/// panics.
extern "C" fn become_program(argument: *mut c_void) -> c_int {
    let child = argument.cast::<Child>();
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
unsafe fn prepare(child: &Child) -> Step {
    // SAFETY: the caller promises good pointers; the rest are numbers and live local variables.
    unsafe {
        if libc::setpgid(0, 0) != 0 {
            return Step::Prepare;
        }
        // First of all: the guard or the server must find it after our death. A kernel that refuses
        // leaves the variable in its environment.
        if let Some((runner, process)) = child.limits.mark {
            set_limit(libc::RLIMIT_LOCKS, runner);
            if let Some(process) = process {
                set_limit(libc::RLIMIT_RTTIME, process);
            }
        }
        if child.limits.no_core {
            set_limit(libc::RLIMIT_CORE, 0);
        }
        for (target, fd) in (0..).zip(child.stdio) {
            if libc::dup2(fd, target) != target {
                return Step::Prepare;
            }
        }
        if libc::chdir(child.dir) != 0 {
            return Step::Enter;
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
            return Step::Prepare;
        }
        // A runner that was killed meanwhile must not start anything any more. One that is killed
        // from here on leaves a process that carries its mark.
        if libc::getppid() != child.parent {
            *libc::__errno_location() = libc::ESRCH;
            return Step::Prepare;
        }
        libc::execve(child.path, child.argv, child.env);
    }
    Step::Run
}

/// Both the soft and the hard limit.
///
/// # Safety
/// None beyond that of the call: it takes a pointer to a live variable.
unsafe fn set_limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: the pointer is to a live variable of the right type.
    unsafe { libc::setrlimit64(resource, &raw const limit) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Reap, reap, wait_for_end};
    use std::ffi::CString;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    fn strings(list: &[&str]) -> Strings {
        let mut strings = Strings::default();
        list.iter().for_each(|text| strings.push(&[text.as_bytes()]).unwrap());
        strings
    }

    fn start(path: &str, argv: &[&str], dir: &str, out: &File) -> Result<i32, SpawnError> {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let program = Program {
            path: &CString::new(path).unwrap(),
            argv: &strings(argv),
            env: &strings(&["NAME=value of it"]),
            dir: &CString::new(dir).unwrap(),
            stdio: [null.as_fd(), out.as_fd(), null.as_fd()],
            limits: Limits {
                mark: torc_fence::Mark::of_runner("spawn").map(|mark| mark.limits(77)),
                no_core: false,
            },
        };
        spawn(&program).map(|(pid, pidfd)| {
            assert!(pidfd.is_some());
            pid
        })
    }

    #[test]
    fn a_program_gets_arguments_variables_directory_and_output() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = File::create(&path).unwrap();
        let text = r#"echo "$0|$1|$NAME|$PWD|$(ps -o pgid= -p $$ | tr -d ' ')|$$"; cat; exit 5"#;
        let pid = start(
            "/bin/sh",
            &["me", "-c", text, "zero", "one two"],
            dir.path().to_str().unwrap(),
            &out,
        )
        .unwrap();
        wait_for_end(pid);
        let Reap::Ended(reaped) = reap(pid) else { panic!("not reaped") };
        assert_eq!(reaped.status.code(), Some(5));
        let mut seen = String::new();
        File::open(path).unwrap().read_to_string(&mut seen).unwrap();
        let dir = dir.path().display();
        assert_eq!(seen, format!("zero|one two|value of it|{dir}|{pid}|{pid}\n"));
    }

    #[test]
    fn signals_are_as_a_program_expects_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = File::create(&path).unwrap();
        let pid = start("/bin/cat", &["cat", "/proc/self/status"], "/", &out).unwrap();
        wait_for_end(pid);
        reap(pid);
        let seen = std::fs::read_to_string(path).unwrap();
        let mask = |name: &str| {
            let line = seen.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        assert_eq!((mask("SigBlk"), mask("SigCgt")), (0, 0), "{seen}");
        assert_eq!(mask("SigIgn") >> (libc::SIGPIPE - 1) & 1, 0, "{seen}");
    }

    #[test]
    fn a_program_and_what_it_starts_carry_the_mark_whatever_they_shed() {
        let out = File::create("/dev/null").unwrap();
        let text = "env -i /usr/bin/setsid -f /bin/sleep 7731; exec -a other sleep 7732";
        let pid = start("/bin/bash", &["bash", "-c", text], "/", &out).unwrap();
        let is_sleep = |p: &&torc_fence::procfs::Process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", p.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("sleep\x007731") || line.contains("other\x007732")
        };
        let found = loop {
            let table = torc_fence::procfs::Table::read().unwrap();
            let found: Vec<i32> = table.all().filter(is_sleep).map(|p| p.pid).collect();
            if found.len() == 2 {
                break found;
            }
        };
        let marks: Vec<_> = found.iter().map(|pid| torc_fence::mark::read(*pid)).collect();
        for pid in &found {
            crate::sys::signal_process(*pid, rustix::process::Signal::KILL).unwrap();
        }
        wait_for_end(pid);
        reap(pid);
        let runner = torc_fence::mark::runner_number("spawn");
        let expected = torc_fence::mark::Found { runner, process: Some(77) };
        assert_eq!(marks, [Some(expected); 2]);
    }

    #[test]
    fn a_program_may_run_on_the_same_processors_as_we_and_so_may_we_afterwards() {
        let allowed = |text: &str| {
            text.lines().find(|line| line.starts_with("Cpus_allowed:")).map(str::to_owned).unwrap()
        };
        let own = || allowed(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
        let before = own();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = File::create(&path).unwrap();
        let pid = start("/bin/cat", &["cat", "/proc/self/status"], "/", &out).unwrap();
        wait_for_end(pid);
        reap(pid);
        assert_eq!(allowed(&std::fs::read_to_string(path).unwrap()), before);
        assert_eq!(own(), before);
        start("/no/such/program", &["x"], "/", &out).unwrap_err();
        assert_eq!(own(), before);
    }

    #[test]
    fn each_failure_says_what_it_was_and_leaves_no_child() {
        let out = File::create("/dev/null").unwrap();
        let missing = start("/no/such/program", &["x"], "/", &out);
        assert!(
            matches!(&missing, Err(SpawnError::Program(e)) if e.kind() == io::ErrorKind::NotFound),
            "{missing:?}"
        );
        let no_dir = start("/bin/sh", &["sh"], "/no/such/dir", &out);
        assert!(
            matches!(&no_dir, Err(SpawnError::Directory(e)) if e.kind() == io::ErrorKind::NotFound),
            "{no_dir:?}"
        );
        let denied = start("/etc/passwd", &["x"], "/", &out);
        let is_denied = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
        assert!(matches!(&denied, Err(SpawnError::Program(e)) if is_denied(e)), "{denied:?}");
    }

    #[test]
    fn a_nul_byte_is_refused() {
        assert!(Strings::default().push(&[b"x", b"y\0"]).is_err());
    }
}
