//! The guard: a small process beside a runner that ends the runner's jobs when the runner is
//! killed.
//!
//! It waits for the end of a pipe that only the runner holds, which comes however the runner dies,
//! and then ends every process with the runner's tag. Without it a killed runner's jobs would go
//! on, and on a machine that the server can not see they would go on beside their own retries.

use crate::cleanup;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The program's first argument that makes it a guard; the second is the runner's key.
pub const WORD: &str = "__guard";
/// A guard that was ended gets a successor after this long: whatever ended it may go on, and must
/// not make us start processes without end.
const AGAIN: Duration = Duration::from_secs(1);
/// What the runner writes when it leaves in good order.
const GOODBYE: u8 = b'b';
/// A process that was just being started when the runner died shows its tag only when its program
/// runs.
const SECOND_LOOK: Duration = Duration::from_millis(200);
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
    pipe: Mutex<Option<ChildStdin>>,
    is_over: AtomicBool,
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
        if let Some(mut pipe) = self.shared.lock().take() {
            // One that is gone needs no goodbye.
            let _ = pipe.write_all(&[GOODBYE]);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        drop(self.shared.lock().take());
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ChildStdin>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> io::Result<Child> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(&self.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
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
        *self.lock() = child.stdin.take();
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
                    Err(error) => tracing::warn!(%error, "can not start a guard"),
                }
            };
        }
    }
}

/// What the guard's own process does: waits for the end of its standard input, and ends what the
/// runner left.
pub fn watch(key: &str) {
    let mut word = [0];
    loop {
        match io::stdin().read(&mut word) {
            Ok(1) if word[0] == GOODBYE => return,
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    for _ in 0..2 {
        cleanup::kill_of_runner(key, PATIENCE);
        std::thread::sleep(SECOND_LOOK);
    }
    cleanup::kill_of_runner(key, PATIENCE);
}
