//! The guard: a small process beside a runner that ends the runner's jobs when the runner is
//! killed, or when it stands still past its deadline.
//!
//! It waits for the end of a pipe that only the runner holds, which comes however the runner dies,
//! and then ends every process of the runner (see [`torc_fence`]). Without it a killed runner's
//! jobs would go on, and on a machine that the server cannot see they would go on beside their own
//! retries.
//!
//! The runner writes lines: first its key and process id, then, each time the server has answered,
//! until when it may do without another answer (milliseconds since boot). A runner that is stopped
//! (SIGSTOP, a debugger) cannot keep that deadline itself.

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The program's first argument that makes it a guard.
pub const WORD: &str = "__guard";
/// A guard that was ended gets a successor after this long: whatever ended it may go on, and must
/// not make us start processes without end.
const AGAIN: Duration = Duration::from_secs(1);
/// What the runner writes when it leaves in good order.
const GOODBYE: &str = "goodbye";
/// How often a guard with a deadline looks at the clock.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);
/// Looking for processes that do not die goes on for this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps a guard beside this process for as long as it is not dropped.
pub struct Guard {
    shared: Arc<Shared>,
}

struct Shared {
    command: Vec<OsString>,
    key: String,
    /// Its process id, for those who must leave it alone.
    pid: Arc<AtomicI32>,
    pipe: Mutex<Pipe>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Pipe {
    to_guard: Option<ChildStdin>,
    /// The last deadline, for a successor.
    deadline: Option<Duration>,
}

impl Guard {
    /// Starts a guard: `command` is a program with its first arguments that calls [`watch`].
    pub fn start(command: &[OsString], key: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            command: command.into(),
            key: key.into(),
            pid: Arc::default(),
            pipe: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let first = shared.spawn()?;
        let ours = shared.clone();
        std::thread::Builder::new()
            .name("torc-guard".into())
            .stack_size(128 << 10)
            .spawn(move || ours.keep(first))?;
        Ok(Self { shared })
    }

    /// Always its current process id, or 0.
    pub fn pid(&self) -> Arc<AtomicI32> {
        self.shared.pid.clone()
    }
}

impl Guard {
    /// The runner leaves in good order: there is nothing to end.
    pub fn dismiss(self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(mut pipe) = self.shared.lock().to_guard.take() {
            // One that is gone needs no goodbye.
            let _ = pipe.write_all(format!("{GOODBYE}\n").as_bytes());
        }
    }

    /// For the part of the runner that knows until when it may live.
    pub fn clock(&self) -> GuardClock {
        GuardClock { shared: self.shared.clone() }
    }
}

/// Tells the guard until when its runner may live without another answer of the server.
#[derive(Clone)]
pub struct GuardClock {
    shared: Arc<Shared>,
}

impl GuardClock {
    /// Until this time since boot.
    pub fn set(&self, deadline: Duration) {
        let mut pipe = self.shared.lock();
        pipe.deadline = Some(deadline);
        if let Some(to_guard) = pipe.to_guard.as_mut() {
            // A guard that is gone has a successor soon, which is told when it begins. One that
            // stands still does not block us.
            let _ = to_guard.write_all(deadline_line(deadline).as_bytes());
        }
    }
}

fn deadline_line(deadline: Duration) -> String {
    format!("{}\n", deadline.as_millis())
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        drop(self.shared.lock().to_guard.take());
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Pipe> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> io::Result<Child> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not ours: neither a job's tag, which would make it a leftover, nor what a test wants of
        // the runner.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TORC_"))
        {
            command.env_remove(name);
        }
        // A group of its own: what a terminal sends to the runner's group is not meant for it.
        let mut child = command.current_dir("/").process_group(0).spawn()?;
        self.pid.store(i32::try_from(child.id()).unwrap_or(0), Ordering::SeqCst);
        let mut pipe = self.lock();
        if let Some(mut to_guard) = child.stdin.take() {
            // Not as an argument: every user can read those.
            let mut words = format!("{} {}\n", self.key, std::process::id());
            words.extend(pipe.deadline.map(deadline_line));
            to_guard.write_all(words.as_bytes())?;
            let flags = rustix::fs::fcntl_getfl(&to_guard)?;
            rustix::fs::fcntl_setfl(&to_guard, flags | rustix::fs::OFlags::NONBLOCK)?;
            pipe.to_guard = Some(to_guard);
        }
        drop(pipe);
        Ok(child)
    }

    /// Waits for its end; if that was not ours, another one takes its place.
    fn keep(&self, mut child: Child) {
        loop {
            let status = child.wait();
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            tracing::warn!(?status, "the guard of this runner has ended; starting another one");
            child = loop {
                std::thread::sleep(AGAIN);
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                match self.spawn() {
                    Ok(child) => break child,
                    Err(error) => tracing::warn!(%error, "cannot start a guard"),
                }
            };
        }
    }
}

/// What the guard's own process does: reads the runner's key, waits for the end of its standard
/// input or for the runner's deadline, and ends what the runner left.
pub fn watch() {
    let mut input = GuardInput { bytes: Vec::new() };
    let Some((key, runner)) = input.introduction() else { return };
    match input.next() {
        GuardSignal::Goodbye => return,
        GuardSignal::Nothing => {}
        // The runner stands still past its deadline: the server gives its attempts to others.
        GuardSignal::Late => end_runner_itself(runner),
    }
    let deadline = boottime() + PATIENCE;
    while boottime() < deadline {
        let ended = torc_fence::end_runners(&[&key], PATIENCE);
        let is_over = |ended: &torc_fence::Ended| ended.survivors.is_empty() && ended.was_seen;
        if ended.get(&key).is_none_or(is_over) {
            return;
        }
    }
}

/// Kills the runner, stopped first so that it starts nothing more.
fn end_runner_itself(pid: i32) {
    // Our parent, or it has died and there is nothing to end.
    if pid <= 1 || rustix::process::getppid().map(|p| p.as_raw_nonzero().get()) != Some(pid) {
        return;
    }
    for signal in [Signal::STOP, Signal::KILL] {
        // It may die at any moment, which is what is wanted.
        let _ = crate::sys::signal_process(pid, signal);
    }
}

fn boottime() -> Duration {
    crate::sys::boottime()
}

/// What the guard hears from its runner.
struct GuardInput {
    bytes: Vec<u8>,
}

enum GuardSignal {
    Goodbye,
    /// The pipe is closed: the runner is gone.
    Nothing,
    /// The deadline has passed.
    Late,
}

impl GuardInput {
    /// The first line: the runner's key and process id.
    fn introduction(&mut self) -> Option<(String, i32)> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8(self.bytes.drain(..=end).collect()).ok()?;
                let (key, pid) = line.trim_end().split_once(' ')?;
                return Some((key.to_owned(), pid.parse().ok()?));
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Waits for a word that matters.
    fn next(&mut self) -> GuardSignal {
        let mut deadline: Option<Duration> = None;
        loop {
            while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                if line.trim_end() == GOODBYE {
                    return GuardSignal::Goodbye;
                }
                // Milliseconds since boot; what is no number means that there is no deadline.
                deadline = line.trim_end().parse().ok().map(Duration::from_millis);
            }
            if let Some(at) = deadline {
                // A timeout stands still while the machine sleeps, so it is not waited for longer
                // than this.
                let left = at.saturating_sub(boottime());
                if left.is_zero() {
                    return GuardSignal::Late;
                }
                match readable(left.min(LOOK_AT_CLOCK)) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(_) => return GuardSignal::Nothing,
                }
            }
            if !self.read() {
                return GuardSignal::Nothing;
            }
        }
    }

    /// Takes in what is there; false at the end.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 256];
        loop {
            match io::stdin().read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => {
                    self.bytes.extend_from_slice(&buffer[..length]);
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// Whether standard input has something to read within this time.
fn readable(within: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let timeout = rustix::event::Timespec {
        tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
