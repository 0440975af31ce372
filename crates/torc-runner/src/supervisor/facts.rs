//! What processes are told, and what they tell: limits, reasons to end them, and how they ended.

use crate::cleanup::{KernelMemory, Remains, SweepMemory};
use crate::monitor::{Sample, SampledUsage};
use crate::observe::Recent;
use crate::process::{LaunchError, Launched};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings that hold for all processes.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Between the termination signal and SIGKILL.
    pub grace: Duration,
    /// The same when the runner was told to stop, which what told it may not wait for.
    pub stop_grace: Duration,
    /// Asks a process to end.
    pub termination: Signal,
    /// The same before the end of an allocation, and how long SIGKILL waits then.
    pub time_up: (Signal, Duration),
    /// Between two looks at what processes use; None: no looks.
    pub sample_interval: Option<Duration>,
}

impl Rules {
    /// One signal and one grace for everything.
    pub fn uniform(
        grace: Duration,
        termination: Signal,
        sample_interval: Option<Duration>,
    ) -> Self {
        let time_up = (termination, grace);
        Self { grace, stop_grace: grace, termination, time_up, sample_interval }
    }

    /// What asks a process to end, and how long it has then.
    pub(super) fn request(&self, reason: &StopReason) -> (Signal, Duration) {
        match reason {
            // The memory is needed now, and the kernel would not ask either.
            StopReason::Memory { .. } => (Signal::KILL, self.grace),
            StopReason::RunnerTimeUp => self.time_up,
            StopReason::Stopped => (self.termination, self.stop_grace),
            StopReason::Canceled
            | StopReason::NotOurs
            | StopReason::OutOfContact
            | StopReason::Timeout { .. } => (self.termination, self.grace),
        }
    }
}

/// Why a process is ended by us.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StopReason {
    /// A user canceled it.
    Canceled,
    /// The runner was told to stop.
    Stopped,
    /// It is no longer ours.
    NotOurs,
    /// The server could not be reached for too long.
    OutOfContact,
    /// The runner's own time is over.
    RunnerTimeUp,
    /// It ran too long.
    Timeout {
        /// Its limit.
        limit: Duration,
    },
    /// It used too much memory.
    Memory {
        /// What it used.
        used_bytes: u64,
        /// Its limit.
        limit_bytes: u64,
    },
}

/// A signal that we sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentSignal {
    /// Number of the signal.
    pub signal: i32,
    /// When, since the start of the process.
    pub after: Duration,
}

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum How {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It never ran.
    NotStarted(LaunchError),
}

/// Everything that is known about an ended process.
#[derive(Clone, Debug)]
pub struct ProcessExit {
    /// Its number.
    pub id: u64,
    /// How it ended.
    pub how: How,
    /// Its start, in ms since 1970.
    pub started_ms: i64,
    /// Its end, in ms since 1970.
    pub ended_ms: i64,
    /// How long it ran.
    pub wall: Duration,
    /// CPU time of the whole tree.
    pub cpu: Duration,
    /// Highest memory: of the whole tree when it was looked at, else of its largest process.
    pub peak_memory_bytes: u64,
    /// What the looks saw.
    pub usage: SampledUsage,
    /// Why we ended it.
    pub stop: Option<StopReason>,
    /// What we sent it.
    pub journal: Vec<SentSignal>,
    /// What the kernel's accounting says.
    pub memory: Option<KernelMemory>,
    /// The kernel killed something on this machine for lack of memory while this process died.
    pub machine_oom: bool,
    /// Processes that did not die.
    pub survivors: Vec<i32>,
    /// What it did in the last part of its time, where a limit on that ended it.
    pub recent: Option<Recent>,
}

impl ProcessExit {
    /// It ended by itself and well, and the kernel killed no part of it.
    pub fn is_clean(&self) -> bool {
        let kills = self.memory.map_or(0, |memory| memory.oom_kills);
        self.how == How::Code(0) && self.stop.is_none() && kills == 0
    }
}

/// What the supervisor tells.
#[derive(Debug)]
pub enum ProcessEvent {
    /// A process runs.
    Started {
        /// Its number.
        id: u64,
        /// Its process id and group.
        pid: i32,
        /// When, in ms since 1970.
        at_ms: i64,
    },
    /// A process has been looked at.
    Sampled {
        /// What it uses.
        sample: Sample,
        /// CPU use since the last look, 100 per core.
        cpu_percent: Option<f64>,
    },
    /// A process and everything it started is gone.
    Ended(Box<ProcessExit>),
}

/// Answers of tasks.
#[derive(Debug)]
pub enum Done {
    /// A launch went well or badly.
    Launched(u64, Result<Launched, LaunchError>),
    /// A process must be waited for by a thread (where the kernel has no descriptors for
    /// processes).
    Unwatched(u64),
    /// Such a process ended.
    LeaderEnded(u64),
    /// A process has been cleaned up after.
    CleanedUp(u64, Remains, Duration),
    /// All processes have been looked at.
    Sampled(Vec<Sample>, Option<u64>),
    /// Leftovers have been swept, in this time.
    Swept(SweepMemory, Duration),
}
