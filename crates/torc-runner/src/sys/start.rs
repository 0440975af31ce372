//! How programs are started: what every way of it is told, and the one of the standard library.

use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A way to start programs.
pub trait Spawn: Send + Sync + std::fmt::Debug {
    /// Starts a program in a process group of its own, with no signal blocked. Returns once it runs;
    /// with its number and, on kernels that have such a thing, its descriptor.
    fn spawn(&self, program: &Program<'_>) -> Result<(i32, Option<OwnedFd>), SpawnError>;
}

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

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).copied().chain([self.bytes.len()]);
        self.starts.iter().zip(ends).map(|(start, end)| &self.bytes[*start..end - 1])
    }

    /// As `execve` wants them. Good only as long as nothing is added.
    pub(super) fn pointers(&self) -> Vec<*const c_char> {
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
    pub limits: KernelLimits,
}

/// Limits of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelLimits {
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

/// By the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Std;

impl Spawn for Std {
    fn spawn(&self, program: &Program<'_>) -> Result<(i32, Option<OwnedFd>), SpawnError> {
        let dir = OsStr::from_bytes(program.dir.to_bytes());
        // The library does not tell which step has failed.
        let may_enter = rustix::fs::access(dir, rustix::fs::Access::EXEC_OK);
        may_enter.map_err(|error| SpawnError::Directory(error.into()))?;
        let path = OsStr::from_bytes(program.path.to_bytes());
        // The C library hands such a file to `sh`. Bash, which runs jobs, reads it by itself.
        if is_bare_text(&Path::new(dir).join(path)) {
            return Err(SpawnError::Program(io::Error::from_raw_os_error(libc::ENOEXEC)));
        }
        let stdio = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(Stdio::from);
        let [stdin, stdout, stderr] = program.stdio.map(stdio);
        let mut command = Command::new(path);
        let mut argv = program.argv.iter().map(OsStr::from_bytes);
        command.arg0(argv.next().unwrap_or_default()).args(argv);
        let pair = |line: &[u8]| {
            let at = line.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&line[..at], &line[at + 1..]);
            Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
        };
        command.env_clear().envs(program.env.iter().filter_map(pair));
        command.current_dir(dir).process_group(0);
        command.stdin(stdin.map_err(SpawnError::Process)?);
        command.stdout(stdout.map_err(SpawnError::Process)?);
        command.stderr(stderr.map_err(SpawnError::Process)?);
        let (limits, parent) = (program.limits, rustix::process::getpid());
        // SAFETY: the closure makes system calls only: no memory, no locks, no panics.
        unsafe {
            command.pre_exec(move || {
                set_limits(limits);
                // A runner that was killed meanwhile must not start anything any more.
                match rustix::process::getppid() == Some(parent) {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                }
            });
        }
        let child = command.spawn().map_err(SpawnError::Program)?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        Ok((pid, super::pidfd_open(pid).ok()))
    }
}

/// Neither a program for the kernel nor a script that names its interpreter.
fn is_bare_text(path: &Path) -> bool {
    // What may not be run, cannot be read or is too short is left to the kernel.
    if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return false;
    }
    let mut start = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && !start.starts_with(b"#!") && start != *b"\x7fELF"
}

/// Sets limits of this process. A kernel that refuses leaves the variable in its environment. Makes
/// system calls only.
pub(super) fn set_limits(limits: KernelLimits) {
    // First of all: the guard or the server must find it after our death.
    if let Some((runner, process)) = limits.mark {
        set_limit(libc::RLIMIT_LOCKS, runner);
        if let Some(process) = process {
            set_limit(libc::RLIMIT_RTTIME, process);
        }
    }
    if limits.no_core {
        set_limit(libc::RLIMIT_CORE, 0);
    }
}

/// Both the soft and the hard limit.
fn set_limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: the pointer is to a live variable of the right type.
    unsafe { libc::setrlimit64(resource, &raw const limit) };
}

#[cfg(test)]
mod tests;
