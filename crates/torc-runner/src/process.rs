//! One process group: what to run, and how to start it. Watching and ending it is the executor's business.

use crate::cgroup::{Cgroups, Group, JOIN_SCRIPT};
use crate::procfs::TAG;
use crate::{sys, time};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to run and within which limits.
#[derive(Clone, Debug)]
pub struct Order {
    /// Names the process in this runner; never used twice.
    pub id: u64,
    /// Marks it and its descendants: see [`TAG`].
    pub tag: String,
    /// Shell text.
    pub text: String,
    /// Program and arguments instead of shell text, when not empty.
    pub argv: Vec<String>,
    /// On top of the common environment; later ones win.
    pub env: Vec<(String, String)>,
    /// Where it starts, instead of where all do.
    pub dir: Option<PathBuf>,
    /// What it reads; nothing unless set.
    pub stdin: Option<PathBuf>,
    /// Where standard output goes.
    pub stdout: Sink,
    /// Where standard error goes.
    pub stderr: Sink,
    /// It is ended after this long.
    pub time_limit: Option<Duration>,
    /// It is killed when it uses more.
    pub memory_limit: Option<u64>,
}

/// Where a stream of output goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Nowhere.
    Null,
    /// To a new file.
    Create(PathBuf),
    /// To the end of a file.
    Append(PathBuf),
    /// Standard error only: to where standard output goes.
    SameAsStdout,
}

impl Sink {
    /// The file, if it is one of its own.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Create(path) | Self::Append(path) => Some(path),
            Self::Null | Self::SameAsStdout => None,
        }
    }
}

/// What all processes of a runner share.
#[derive(Debug)]
pub struct Setup {
    /// Runs the text.
    pub shell: PathBuf,
    /// The common environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where processes start.
    pub working_dir: PathBuf,
    /// Memory limits by the kernel, where it lets us.
    pub cgroups: Option<Cgroups>,
}

impl Setup {
    /// `bash`, or `sh` where there is none.
    pub fn find_shell() -> PathBuf {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = ["/bin", "/usr/bin"].into_iter().map(PathBuf::from).chain(std::env::split_paths(&path));
        places.map(|dir| dir.join("bash")).find(|bash| bash.is_file()).unwrap_or_else(|| "/bin/sh".into())
    }

    /// The runner's own environment without anything of ours: our token is none of a job's business, and what an
    /// enclosing job was told must not be taken for this one's.
    pub fn inherited_env() -> Vec<(OsString, OsString)> {
        std::env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"TORC_")).collect()
    }
}

/// A process that runs.
#[derive(Debug)]
pub struct Launched {
    /// Its id, and that of its group.
    pub pid: i32,
    /// Tells of its end; None on kernels that have no such thing.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// Limits its memory.
    pub group: Option<Group>,
    /// When it started.
    pub started: Instant,
    /// The same, in ms since 1970.
    pub started_ms: i64,
}

/// A process that could not be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaunchError {
    /// What a person should read.
    pub message: String,
    /// As a shell would say it: 126 or 127.
    pub return_code: i32,
}

impl LaunchError {
    fn new(what: &str, error: &io::Error) -> Self {
        let return_code = if error.kind() == io::ErrorKind::PermissionDenied { 126 } else { 127 };
        Self { message: format!("{what}: {error}"), return_code }
    }
}

/// Starts a process in a group of its own. Blocks until its program runs.
pub fn launch(setup: &Setup, order: &Order) -> Result<Launched, LaunchError> {
    let (stdout, stderr) = open_sinks(order)?;
    let stdin = match &order.stdin {
        Some(path) => {
            let file = File::open(path);
            let what = || format!("can not read `{}`", path.display());
            Stdio::from(file.map_err(|error| LaunchError::new(&what(), &error))?)
        }
        None => Stdio::null(),
    };
    let program = order.argv.first().map_or(setup.shell.as_path(), Path::new);
    let working_dir = order.dir.as_ref().unwrap_or(&setup.working_dir);
    let group = match (&setup.cgroups, order.memory_limit) {
        (Some(cgroups), Some(limit)) => match cgroups.create(&format!("p{}", order.id), limit) {
            Ok(group) => Some(group),
            Err(error) => {
                tracing::warn!(%error, "can not make a control group; memory is watched by sampling");
                None
            }
        },
        _ => None,
    };
    // Only calls that the C library can turn into one posix_spawn: no code of ours runs between fork and exec.
    let mut command = match &group {
        Some(group) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(JOIN_SCRIPT).arg("torc").arg(group.procs_file()).arg(program);
            command
        }
        None => Command::new(program),
    };
    match order.argv.get(1..) {
        Some(arguments) => command.args(arguments),
        None => command.arg("-c").arg(&order.text),
    };
    command
        .env_clear()
        .envs(setup.env.iter().map(|(name, value)| (name, value)))
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .env(TAG, &order.tag)
        .current_dir(working_dir)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    let (started, started_ms) = (Instant::now(), time::now_ms());
    torc_failpoint::hit("runner.before_spawn");
    match command.spawn() {
        Ok(child) => {
            torc_failpoint::hit("runner.after_spawn");
            // A pid is never negative nor larger than the kernel's limit of 2^22.
            let pid = child.id() as i32;
            Ok(Launched { pid, pidfd: sys::pidfd_open(pid).ok().map(Arc::new), group, started, started_ms })
        }
        Err(error) => {
            if let Some(group) = group {
                group.remove();
            }
            let what = if working_dir.is_dir() {
                format!("can not start `{}`", program.display())
            } else {
                format!("can not start in `{}`", working_dir.display())
            };
            Err(LaunchError::new(&what, &error))
        }
    }
}

fn open_sinks(order: &Order) -> Result<(Stdio, Stdio), LaunchError> {
    let stdout = open_sink(&order.stdout)?;
    let stderr = match &order.stderr {
        Sink::SameAsStdout => match &stdout {
            Some(file) => Some(file.try_clone().map_err(|e| LaunchError::new("can not share standard output", &e))?),
            None => None,
        },
        other => open_sink(other)?,
    };
    let stdio = |file: Option<File>| file.map_or_else(Stdio::null, Stdio::from);
    Ok((stdio(stdout), stdio(stderr)))
}

fn open_sink(sink: &Sink) -> Result<Option<File>, LaunchError> {
    let file = match sink {
        Sink::Null | Sink::SameAsStdout => return Ok(None),
        // Appending keeps the pieces of several writers apart, for example when both streams go to one file.
        Sink::Create(path) => {
            OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_APPEND).open(path)
        }
        Sink::Append(path) => OpenOptions::new().append(true).create(true).open(path),
    };
    let path = sink.path().unwrap_or(Path::new("")).display();
    file.map(Some).map_err(|e| LaunchError::new(&format!("can not create the log file `{path}`"), &e))
}
