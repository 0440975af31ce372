//! What a process used, from `/proc`: its own CPU time without that of its children, its peak of
//! memory, what it wrote.

use crate::Result;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The peak of memory is gone with the process, so it is looked up this often while it lives.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a process used.
#[derive(Clone, Copy, Default, Debug)]
pub struct ProcessUsage {
    /// User and system time, without children.
    pub cpu: Duration,
    /// Highest resident memory.
    pub peak_bytes: u64,
    /// Handed to the kernel for writing to files and sockets.
    pub written_bytes: u64,
}

impl ProcessUsage {
    /// What was used since an earlier look.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            peak_bytes: self.peak_bytes,
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }
}

/// What a process has used so far. What cannot be read counts as nothing.
pub fn usage(pid: u32) -> ProcessUsage {
    ProcessUsage {
        cpu: cpu(pid),
        peak_bytes: status_bytes(pid, "VmHWM:"),
        written_bytes: written(pid),
    }
}

/// Memory that is resident now.
pub fn resident(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

fn cpu(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields =
        text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_nanos(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

fn status_bytes(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|l| l.split_ascii_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn written(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// A process whose use is looked at until it ends.
pub struct WatchedProcess {
    child: Child,
    begun: Instant,
    done: Arc<AtomicBool>,
    looker: JoinHandle<ProcessUsage>,
}

/// How a watched process ended.
pub struct Finished {
    /// Its status.
    pub status: ExitStatus,
    /// From just before its start to its end.
    pub wall: Duration,
    /// What it used.
    pub usage: ProcessUsage,
}

impl WatchedProcess {
    /// Starts a process.
    pub fn start(command: &mut Command) -> Result<Self> {
        let begun = Instant::now();
        let child = command.spawn().map_err(|e| format!("cannot start `{command:?}`: {e}"))?;
        let pid = child.id();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let looker = std::thread::spawn(move || {
            let mut last = ProcessUsage::default();
            while !seen.load(Ordering::Acquire) {
                let now = usage(pid);
                last.peak_bytes = last.peak_bytes.max(now.peak_bytes);
                last.written_bytes = last.written_bytes.max(now.written_bytes);
                std::thread::park_timeout(LOOK_EVERY);
            }
            last
        });
        Ok(Self { child, begun, done, looker })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<Finished> {
        let pid = i32::try_from(self.child.id())?;
        let pid_of = Pid::from_raw(pid).ok_or("a process has a number")?;
        // Until it is reaped its counters can be read, and those of its children are not in them
        // yet.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitid(WaitId::Pid(pid_of), options)
        {}
        let wall = self.begun.elapsed();
        let end = usage(self.child.id());
        self.done.store(true, Ordering::Release);
        self.looker.thread().unpark();
        let seen = self.looker.join().map_err(|_| "the watch over a process broke")?;
        let status = self.child.wait()?;
        let usage = ProcessUsage {
            cpu: end.cpu,
            peak_bytes: seen.peak_bytes.max(end.peak_bytes),
            written_bytes: seen.written_bytes.max(end.written_bytes),
        };
        Ok(Finished { status, wall, usage })
    }
}

/// Sizes of the files in a directory, its own directories not included.
pub fn directory_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

/// The environment of everything that is started, the same for all: a shell reads thirty more files
/// for a locale and takes a fifth longer, so it must not depend on who measures.
pub fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    const KEPT: [&str; 5] = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR"];
    let kept = KEPT.into_iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    kept.chain([("LC_ALL".into(), "C".into())])
}

/// Processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The machine in one line.
pub fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find(|l| l.starts_with("model name"))
        .and_then(|l| l.split_once(": "))
        .map(|(_, m)| m);
    let system = rustix::system::uname();
    let kernel = system.release().to_string_lossy().into_owned();
    format!("{} processors ({}), Linux {kernel}", processors(), model.unwrap_or("unknown model"))
}

/// Keeps every processor busy until it is dropped.
pub struct Busy {
    done: Arc<AtomicBool>,
}

impl Busy {
    /// One thread per processor.
    pub fn start() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        for _ in 0..processors() {
            let done = done.clone();
            std::thread::spawn(move || {
                let mut x = 1u64;
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        x = std::hint::black_box(
                            x.wrapping_mul(6364136223846793005).wrapping_add(1),
                        );
                    }
                }
            });
        }
        Self { done }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}
