//! The kinds of failure that are told apart, and what each of them asks for.

use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// What happened to an attempt, finer than its cause.
    Kind {
        /// It used more memory than it may, or than there was.
        Oom = "oom",
        /// A GPU's memory was not enough.
        GpuOom = "gpu_oom",
        /// It ran longer than its own limit.
        Timeout = "timeout",
        /// The time of its runner or allocation was over first.
        Walltime = "walltime",
        /// The scheduler gave its node to another job.
        Preempted = "preempted",
        /// Its node failed.
        NodeFail = "node_fail",
        /// Its runner is gone.
        Lost = "lost",
        /// A person stopped it.
        Canceled = "canceled",
        /// Its runner was told to stop.
        Stopped = "stopped",
        /// It saved its state and asked to be continued.
        Checkpoint = "checkpoint",
        /// Exit 0, but a declared file is not there.
        MissingOutput = "missing_output",
        /// There is no such program.
        CommandNotFound = "command_not_found",
        /// The program may not be executed, or a file not be used.
        Permission = "permission",
        /// It could not be started for another reason.
        SpawnError = "spawn_error",
        /// The script that was to run before its command failed, so that the command never ran.
        RecoveryScript = "recovery_script",
        /// A step of it did not give what it should, although its program may have succeeded.
        Step = "step",
        /// Another process killed it.
        Killed = "killed",
        /// A fault of the program at the level of the machine: SIGSEGV, SIGABRT and the like.
        Crash = "crash",
        /// The disk is full.
        DiskFull = "disk_full",
        /// The user's share of the disk is used up.
        Quota = "quota",
        /// Another machine could not be reached.
        Network = "network",
        /// A file system failed.
        FileSystem = "file_system",
        /// A limit on processes, threads or open files was reached.
        ProcessLimit = "process_limit",
        /// A licence was not to be had.
        License = "license",
        /// A module or shared library is not installed.
        MissingModule = "missing_module",
        /// A file that it reads is not there.
        MissingFile = "missing_file",
        /// A parallel program ended all its parts, and its output does not say why.
        MpiAbort = "mpi_abort",
        /// The program reported an error of its own.
        ProgramError = "program_error",
        /// Nothing says why.
        Unknown = "unknown",
    }
}

impl Kind {
    /// What happened, in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Oom => "out of memory",
            Self::GpuOom => "out of GPU memory",
            Self::Timeout => "ran longer than its limit",
            Self::Walltime => "its runner's time was over",
            Self::Preempted => "preempted",
            Self::NodeFail => "its node failed",
            Self::Lost => "its runner is gone",
            Self::Canceled => "canceled",
            Self::Stopped => "its runner was stopped",
            Self::Checkpoint => "saved its state to be continued",
            Self::MissingOutput => "an output file is missing",
            Self::CommandNotFound => "a program was not found",
            Self::Permission => "permission denied",
            Self::SpawnError => "could not be started",
            Self::RecoveryScript => "its recovery script failed",
            Self::Step => "a step did not give what it should",
            Self::Killed => "killed from outside",
            Self::Crash => "crashed",
            Self::DiskFull => "the disk is full",
            Self::Quota => "the disk quota is used up",
            Self::Network => "another machine could not be reached",
            Self::FileSystem => "a file system failed",
            Self::ProcessLimit => "a limit on processes or open files was reached",
            Self::License => "no licence was to be had",
            Self::MissingModule => "a module or library is not installed",
            Self::MissingFile => "a file it reads is missing",
            Self::MpiAbort => "a parallel program aborted",
            Self::ProgramError => "the program reported an error",
            Self::Unknown => "cause unknown",
        }
    }

    /// What a person can do about it that recovery cannot.
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::GpuOom => Some(
                "give it a larger GPU or let it use less GPU memory; more main memory does not help",
            ),
            Self::CommandNotFound => {
                Some("correct the command, or load the environment that has the program")
            }
            Self::Permission => Some("check the rights of the file that the message names"),
            Self::Crash => Some(
                "the same input will most likely crash again; a debugger or core file shows where",
            ),
            Self::DiskFull => Some("make room on the disk, then try it again"),
            Self::Quota => Some("free some of your quota, then try it again"),
            Self::Network | Self::FileSystem => {
                Some("this often passes: `torc jobs retry`, or a failure handler with `backoff`")
            }
            Self::ProcessLimit => {
                Some("raise the limit (`ulimit -u`, `ulimit -n`) or run fewer jobs at once")
            }
            Self::License => {
                Some("name the licence in `uses` and set its number with `torc limits set`")
            }
            Self::MissingModule => Some("install it, or load the environment that has it"),
            Self::MissingFile => Some("make the file, or correct its path"),
            Self::MissingOutput => Some("correct the command or the path under `files`"),
            Self::MpiAbort => Some("the first part that failed says why; look at the whole output"),
            Self::RecoveryScript => {
                Some("correct `recovery_script`; the command itself did not run in this attempt")
            }
            Self::Killed => {
                Some("find out who killed it: another user, a script, or a limit outside of Torc")
            }
            Self::Oom
            | Self::Timeout
            | Self::Walltime
            | Self::Preempted
            | Self::NodeFail
            | Self::Lost
            | Self::Canceled
            | Self::Stopped
            | Self::Checkpoint
            | Self::SpawnError
            | Self::Step
            | Self::ProgramError
            | Self::Unknown => None,
        }
    }
}
