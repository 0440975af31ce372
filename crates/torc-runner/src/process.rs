//! One process group: what to run, and how to start it. Watching and ending it is the executor's
//! business.

use crate::cgroup::{Cgroups, Group, JOIN_SCRIPT};
use crate::long::{self, Files};
use crate::outputs::Before;
use crate::places::is_of_a_step;
use crate::plain::{self, Plain};
use crate::procfs::TAG;
use crate::sys::{self, KernelLimits, Program, Spawn, SpawnError, Strings};
use crate::time;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_fence::{Mark, RunnerOwner};
use torc_model::plan::Shell;
use torc_model::status::EndDetail;

/// What to run and within which limits.
#[derive(Clone, Debug)]
pub struct ProcessOrder {
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
    /// Shell text runs after `set -euo pipefail`.
    pub shell: Shell,
    /// Whatever else few processes have.
    pub rest: Option<Box<OrderRest>>,
}

/// What must be done before a process starts.
#[derive(Clone, Debug, Default)]
pub struct OrderRest {
    /// What goes by file.
    pub files: Files,
    /// Output files to look at.
    pub outputs: Option<Arc<Before>>,
    /// Its memory limit may end a part of it.
    pub tolerates_oom: bool,
    /// It leaves no core dump, which would hold secrets.
    pub no_core: bool,
}

impl OrderRest {
    /// None if there is nothing in it.
    pub fn boxed(self) -> Option<Box<Self>> {
        let Self { files, outputs, tolerates_oom, no_core } = &self;
        let is_needed = *tolerates_oom
            || *no_core
            || outputs.is_some()
            || files.dir.is_some()
            || !files.lists.is_empty();
        is_needed.then(|| Box::new(self))
    }
}

/// Where a stream of output goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Output is thrown away.
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
    shell: PathBuf,
    /// The common environment.
    env: Vec<(OsString, OsString)>,
    /// Where processes start.
    working_dir: PathBuf,
    /// Memory limits by the kernel, where it lets us.
    pub cgroups: Option<Cgroups>,
    /// Tells which processes are the runner's.
    pub owner: RunnerOwner,
    /// What its processes are found by.
    mark: Option<Mark>,
    /// How to do without a shell where none is needed.
    plain: Option<Plain>,
    /// What a process reads that reads nothing, and where output goes that goes nowhere.
    null: File,
    /// How they are started.
    spawn: &'static dyn Spawn,
}

impl Setup {
    /// For processes that start in this directory.
    pub fn new(key: &str, working_dir: PathBuf, cgroups: Option<Cgroups>) -> io::Result<Self> {
        Self::with_env(key, inherited_env(), working_dir, cgroups)
    }

    /// For an agent, which is a step in Slurm: the step's own, if it is made for one job only.
    pub fn in_step(
        key: &str,
        working_dir: PathBuf,
        cgroups: Option<Cgroups>,
        is_own: bool,
    ) -> io::Result<Self> {
        let mut env = inherited_env();
        env.retain(|(name, _)| name.to_str().is_none_or(|name| !is_of_a_step(name, is_own)));
        Self::with_env(key, env, working_dir, cgroups)
    }

    fn with_env(
        key: &str,
        env: Vec<(OsString, OsString)>,
        working_dir: PathBuf,
        cgroups: Option<Cgroups>,
    ) -> io::Result<Self> {
        let shell = find_shell();
        let plain = Plain::new(&shell, &env, &working_dir);
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let (owner, mark) = (RunnerOwner::new(key), Mark::of_runner(key));
        if mark.is_none() {
            tracing::warn!(
                "the limit on file locks is set already: jobs that empty their environment and leave their parents may survive a kill of this runner"
            );
        }
        Ok(Self {
            shell,
            env,
            working_dir,
            cgroups,
            owner,
            mark,
            plain,
            null,
            spawn: sys::way_to_start(),
        })
    }
}

/// `bash`, or `sh` where there is none.
fn find_shell() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        ["/bin", "/usr/bin"].into_iter().map(PathBuf::from).chain(std::env::split_paths(&path));
    places
        .map(|dir| dir.join("bash"))
        .find(|bash| bash.is_file())
        .unwrap_or_else(|| "/bin/sh".into())
}

/// The runner's own environment without anything of ours: our token is none of a job's business,
/// and what an enclosing job was told must not be taken for this one's.
fn inherited_env() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"TORC_")).collect()
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
    /// What was missing or refused, where the system says so.
    pub detail: Option<EndDetail>,
}

impl LaunchError {
    fn new(what: &str, error: &io::Error) -> Self {
        let return_code = if error.kind() == io::ErrorKind::PermissionDenied { 126 } else { 127 };
        Self { message: format!("{what}: {error}"), return_code, detail: detail(error) }
    }
}

/// What of the system's errors recovery tells apart.
fn detail(error: &io::Error) -> Option<EndDetail> {
    use io::ErrorKind as Is;
    Some(match (error.kind(), error.raw_os_error()) {
        (Is::NotFound | Is::NotADirectory, _) => EndDetail::StartNotFound,
        (Is::PermissionDenied, _) => EndDetail::StartDenied,
        (Is::StorageFull, _) => EndDetail::StartDiskFull,
        (Is::QuotaExceeded, _) => EndDetail::StartQuota,
        (Is::WouldBlock | Is::OutOfMemory, _) | (_, Some(libc::EMFILE | libc::ENFILE)) => {
            EndDetail::StartLimit
        }
        (Is::StaleNetworkFileHandle | Is::ReadOnlyFilesystem, _) | (_, Some(libc::EIO)) => {
            EndDetail::StartFileSystem
        }
        _ => return None,
    })
}

/// Starts a process in a group of its own. Blocks until its program runs.
pub fn launch(setup: &Setup, order: &ProcessOrder) -> Result<Launched, LaunchError> {
    let long;
    let (order, prelude) = match prepare(setup, order)? {
        Some(values) => {
            long = ProcessOrder { env: values.env, ..order.clone() };
            (&long, values.prelude)
        }
        None => (order, String::new()),
    };
    let (stdout, stderr) = open_sinks(order)?;
    let stdin = match &order.stdin {
        Some(path) => {
            let what = || format!("cannot read `{}`", path.display());
            let file = torc_fs::open(path, torc_fs::Trust::Regular);
            Some(file.map_err(|error| LaunchError::new(&what(), &error))?)
        }
        None => None,
    };
    let stdio = [
        stdin.as_ref().unwrap_or(&setup.null).as_fd(),
        stdout.as_ref().unwrap_or(&setup.null).as_fd(),
        stderr.as_ref().unwrap_or(&setup.null).as_fd(),
    ];
    let group = match (&setup.cgroups, order.memory_limit) {
        (Some(cgroups), Some(limit)) => match cgroups.create(
            &format!("p{}", order.id),
            limit,
            order.rest.as_ref().is_some_and(|rest| rest.tolerates_oom),
        ) {
            Ok(group) => Some(group),
            Err(error) => {
                tracing::warn!(%error, "cannot make a control group; memory is watched by sampling");
                None
            }
        },
        _ => None,
    };
    let started = (Instant::now(), time::now_ms());
    torc_failpoint::hit("runner.before_spawn");
    match start(setup, order, &prelude, group.as_ref(), stdio) {
        Ok((pid, pidfd)) => {
            torc_failpoint::hit("runner.after_spawn");
            let pidfd = pidfd.or_else(|| sys::pidfd_open(pid).ok());
            let (started, started_ms) = started;
            Ok(Launched { pid, pidfd: pidfd.map(Arc::new), group, started, started_ms })
        }
        Err(error) => {
            if let Some(group) = group {
                group.remove();
            }
            Err(error)
        }
    }
}

/// Looks at output files and writes what goes by file; the environment if that has changed.
fn prepare(setup: &Setup, order: &ProcessOrder) -> Result<Option<long::Values>, LaunchError> {
    let Some(rest) = &order.rest else { return Ok(None) };
    if let Some(outputs) = &rest.outputs {
        outputs.look(&setup.working_dir);
    }
    long::write_lists(&rest.files.lists)
        .map_err(|error| LaunchError::new("cannot write a list of input files", &error))?;
    let Some(dir) = &rest.files.dir else { return Ok(None) };
    let values = long::values(&order.env, dir)
        .map_err(|error| LaunchError::new("cannot write a long value to a file", &error))?;
    Ok(Some(values))
}

type Started = (i32, Option<OwnedFd>);

fn start(
    setup: &Setup,
    order: &ProcessOrder,
    prelude: &str,
    group: Option<&Group>,
    stdio: [BorrowedFd<'_>; 3],
) -> Result<Started, LaunchError> {
    if let Some(started) = start_plainly(setup, order, group, stdio) {
        return Ok(started);
    }
    let env =
        environment(setup, order, &[]).map_err(|error| LaunchError::new("cannot start", &error))?;
    let dir = order.dir.as_ref().unwrap_or(&setup.working_dir);
    let script = script(order, prelude)?;
    let shell = setup.shell.as_os_str();
    let arguments: Vec<&OsStr> = match order.argv.as_slice() {
        [] => {
            let strict: &[&str] = match order.shell {
                Shell::Default => &[],
                Shell::Strict if !is_bash(&setup.shell) => {
                    return Err(LaunchError {
                        message: format!(
                            "`shell: strict` needs bash, and there is only `{}`",
                            setup.shell.display()
                        ),
                        return_code: 127,
                        detail: None,
                    });
                }
                Shell::Strict => &["-euo", "pipefail"],
            };
            let what = match &script {
                Some(script) => vec![script.as_os_str()],
                None => vec![OsStr::new("-c"), OsStr::new(&order.text)],
            };
            [shell].into_iter().chain(strict.iter().map(OsStr::new)).chain(what).collect()
        }
        argv => argv.iter().map(OsStr::new).collect(),
    };
    // Where nothing is found the name itself is tried, so that the error is the kernel's.
    let program = match order.argv.first() {
        None => setup.shell.clone(),
        Some(name) => plain::find(name, env_path(setup, order), dir).unwrap_or_else(|| name.into()),
    };
    let found = FoundProgram { path: &program, arguments: &arguments, env: &env };
    run(setup, order, &found, group, stdio).map_err(|error| match error {
        SpawnError::Process(error) => LaunchError::new("cannot make a process", &error),
        SpawnError::Directory(error) => {
            LaunchError::new(&format!("cannot start in `{}`", dir.display()), &error)
        }
        SpawnError::Program(error) if error.raw_os_error() == Some(libc::E2BIG) => {
            LaunchError::new(&too_long(order, &program), &error)
        }
        SpawnError::Program(error) => {
            LaunchError::new(&format!("cannot start `{}`", program.display()), &error)
        }
    })
}

/// Which part of an order is too long for the kernel although long ones went by file.
fn too_long(order: &ProcessOrder, program: &Path) -> String {
    let values: usize = order.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let words: usize = order.argv.iter().map(String::len).sum();
    let kib = |bytes: usize| bytes.div_ceil(1024);
    format!(
        "cannot start `{}`: its arguments have {} KiB and the job's own environment variables {} KiB, \
         more than the kernel takes",
        program.display(),
        kib(words),
        kib(values)
    )
}

/// A file with the shell text, if that is too long for an argument or values must be read first.
fn script(order: &ProcessOrder, prelude: &str) -> Result<Option<PathBuf>, LaunchError> {
    let is_long = order.text.len() > long::LONGEST || !prelude.is_empty();
    let dir = order.rest.as_ref().and_then(|rest| rest.files.dir.as_ref());
    let Some(dir) = dir.filter(|_| is_long && order.argv.is_empty()) else { return Ok(None) };
    // Lines of the text keep their numbers.
    let text = format!("{prelude}{}", order.text);
    long::script(&text, dir)
        .map(Some)
        .map_err(|error| LaunchError::new("cannot write a long command to a file", &error))
}

fn is_bash(shell: &Path) -> bool {
    shell.file_name() == Some(OsStr::new("bash"))
}

/// Runs the command's program without a shell if a shell would do the same; None if one is needed
/// after all.
fn start_plainly(
    setup: &Setup,
    order: &ProcessOrder,
    group: Option<&Group>,
    stdio: [BorrowedFd<'_>; 3],
) -> Option<Started> {
    let plain = setup.plain.as_ref().filter(|_| order.argv.is_empty() && order.dir.is_none())?;
    let words = plain::words(&order.text)
        .filter(|_| !order.env.iter().any(|(name, _)| plain::needs_shell(name)))?;
    let name = words.first()?;
    // In a relative place bash names the program in ways of its own.
    let program = plain::find(name, env_path(setup, order), &setup.working_dir)
        .filter(|file| file.is_absolute() || name.contains('/'))?;
    let env = environment(setup, order, &plain.variables(&program)).ok()?;
    let arguments: Vec<&OsStr> = words.iter().map(|word| OsStr::new(word.as_ref())).collect();
    let found = FoundProgram { path: &program, arguments: &arguments, env: &env };
    run(setup, order, &found, group, stdio).ok()
}

/// Where a process finds its programs.
fn env_path<'a>(setup: &'a Setup, order: &'a ProcessOrder) -> Option<&'a OsStr> {
    let own =
        order.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| OsStr::new(value));
    own.or_else(|| {
        setup.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str())
    })
}

/// The whole environment of a process. Of variables with one name the last wins.
fn environment(
    setup: &Setup,
    order: &ProcessOrder,
    more: &[(&str, &OsStr)],
) -> io::Result<Strings> {
    let own: Vec<(&[u8], &[u8])> = order
        .env
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .chain(more.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
        .chain([(TAG.as_bytes(), order.tag.as_bytes())])
        .collect();
    let mut env = Strings::default();
    for (name, value) in &setup.env {
        let name = name.as_bytes();
        if !own.iter().any(|(own, _)| *own == name) {
            env.push(&[name, b"=", value.as_bytes()])?;
        }
    }
    for (n, (name, value)) in own.iter().enumerate() {
        if !own[n + 1..].iter().any(|(later, _)| later == name) {
            env.push(&[name, b"=", value])?;
        }
    }
    Ok(env)
}

/// A program that was found, with what it is started with.
struct FoundProgram<'a> {
    path: &'a Path,
    /// Its name first.
    arguments: &'a [&'a OsStr],
    env: &'a Strings,
}

fn run(
    setup: &Setup,
    order: &ProcessOrder,
    found: &FoundProgram<'_>,
    group: Option<&Group>,
    stdio: [BorrowedFd<'_>; 3],
) -> Result<Started, SpawnError> {
    let FoundProgram { path: program, arguments, env } = *found;
    let mut argv = Strings::default();
    let mut add = |text: &OsStr| argv.push(&[text.as_bytes()]).map_err(SpawnError::Program);
    let path = match group {
        Some(group) => {
            // Joins its group by itself, then becomes the program.
            let procs = group.procs_file();
            let texts = ["sh", "-c", JOIN_SCRIPT, "torc"].map(OsStr::new);
            texts
                .into_iter()
                .chain([procs.as_os_str(), program.as_os_str()])
                .try_for_each(&mut add)?;
            arguments.iter().skip(1).try_for_each(|text| add(text))?;
            Path::new("/bin/sh")
        }
        None => {
            arguments.iter().try_for_each(|text| add(text))?;
            program
        }
    };
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let path = text(path).map_err(SpawnError::Program)?;
    let dir = text(order.dir.as_ref().unwrap_or(&setup.working_dir));
    let dir = dir.map_err(SpawnError::Directory)?;
    let limits = KernelLimits {
        mark: setup.mark.map(|mark| mark.limits(order.id)),
        no_core: order.rest.as_ref().is_some_and(|rest| rest.no_core),
    };
    setup.spawn.spawn(&Program { path: &path, argv: &argv, env, dir: &dir, stdio, limits })
}

/// Files for both streams; none where output goes nowhere.
fn open_sinks(order: &ProcessOrder) -> Result<(Option<File>, Option<File>), LaunchError> {
    let stdout = open_sink(&order.stdout)?;
    let stderr = match &order.stderr {
        Sink::SameAsStdout => match &stdout {
            Some(file) => Some(
                file.try_clone()
                    .map_err(|e| LaunchError::new("cannot share standard output", &e))?,
            ),
            None => None,
        },
        other => open_sink(other)?,
    };
    Ok((stdout, stderr))
}

fn open_sink(sink: &Sink) -> Result<Option<File>, LaunchError> {
    let file = match sink {
        Sink::Null | Sink::SameAsStdout => return Ok(None),
        // Appending keeps the pieces of several writers apart, for example when both streams go to
        // one file.
        Sink::Create(path) => torc_fs::create_log(path),
        Sink::Append(path) => torc_fs::append_log(path),
    };
    let path = sink.path().unwrap_or(Path::new("")).display();
    file.map(Some).map_err(|e| LaunchError::new(&format!("cannot write the log file `{path}`"), &e))
}

#[cfg(test)]
mod tests;
