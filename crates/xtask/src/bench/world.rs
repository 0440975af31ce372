//! The program under test: its server in a fresh directory, and what is done with it through its
//! command line and API.

use super::machine::{self, Finished, ProcessUsage, WatchedProcess};
use crate::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use torc_client::{Client, discovery};
use torc_model::api::{CreateWorkflow, StatusView, WorkflowCreated};
use torc_model::ids::WorkflowId;

/// A server that does not answer in this time never will.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where everything happens. Nothing is deleted before the end: deleting files slows down making
/// new ones.
pub struct Arena {
    /// The program.
    pub torc: PathBuf,
    /// Runs what speaks HTTP.
    pub runtime: tokio::runtime::Runtime,
    dir: PathBuf,
    taken: std::cell::Cell<usize>,
    keep: bool,
}

impl Arena {
    /// An empty place for all runs.
    pub fn new(torc: PathBuf, parent: Option<&Path>, keep: bool) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let dir = unused(&parent)?;
        let dir = dir.canonicalize()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { torc, runtime, dir, taken: std::cell::Cell::new(0), keep })
    }

    /// A directory that nothing has used yet.
    pub fn fresh(&self) -> Result<PathBuf> {
        self.taken.set(self.taken.get() + 1);
        let dir = self.dir.join(self.taken.get().to_string());
        std::fs::create_dir(&dir)?;
        Ok(dir)
    }

    /// A server in a fresh directory.
    pub fn server(&self) -> Result<Server<'_>> {
        Server::start(self, self.fresh()?)
    }

    /// A workflow in a fresh directory, created and initialized, with no server.
    pub fn workflow(&self, spec: &Value) -> Result<PathBuf> {
        let dir = self.fresh()?;
        std::fs::write(dir.join("spec.json"), serde_json::to_vec(spec)?)?;
        let status = self.command(&dir, &["-q", "create", "--initialize", "spec.json"]).status()?;
        if status.success() { Ok(dir) } else { Err(format!("create: {status}").into()) }
    }

    /// Runs such a workflow to its end by `torc run`: server and runner are one process.
    pub fn run(&self, dir: &Path) -> Result<Finished> {
        let cpus = machine::processors().to_string();
        let finished = WatchedProcess::start(
            &mut self.command(dir, &["-q", "run", "latest", "--num-cpus", &cpus]),
        )?
        .finish()?;
        let status = finished.status;
        if status.success() {
            Ok(finished)
        } else {
            Err(format!("the workflow did not succeed: {status}").into())
        }
    }

    /// A call of the command line.
    pub fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.torc);
        command.args(args).current_dir(dir).env_clear().envs(machine::environment());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("everything is kept in {}", self.dir.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Makes a directory. One of an earlier run may have been kept, and numbers of processes come
/// again.
fn unused(parent: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(parent)
        .map_err(|e| format!("cannot make `{}`: {e}", parent.display()))?;
    let mut n = 0;
    loop {
        let dir = parent.join(format!("torc-bench-{}-{n}", std::process::id()));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => n += 1,
            Err(error) => return Err(format!("cannot make `{}`: {error}", dir.display()).into()),
        }
    }
}

/// A running server.
pub struct Server<'a> {
    arena: &'a Arena,
    /// Holds the state directory and all logs.
    pub dir: PathBuf,
    /// Speaks to it.
    pub client: Client,
    child: std::process::Child,
}

impl<'a> Server<'a> {
    /// Starts the server of a directory, new or used before, and waits until it answers.
    pub fn start(arena: &'a Arena, dir: PathBuf) -> Result<Self> {
        let log = std::fs::File::create(dir.join("server.log"))?;
        let mut command = Command::new(&arena.torc);
        command.args(["server", "run"]).current_dir(&dir).env_clear().envs(machine::environment());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child =
            command.spawn().map_err(|e| format!("cannot start `{}`: {e}", arena.torc.display()))?;
        let begun = Instant::now();
        let client = loop {
            let file = discovery::read_server_file(&dir.join(discovery::STATE_DIR));
            let found = file.ok().filter(|f| f.pid == i64::from(child.id()));
            if let Some(file) = found {
                let client = Client::local(&file)?;
                if arena.runtime.block_on(client.health()).is_ok() {
                    break client.with_time_limit(Duration::from_secs(600));
                }
            }
            if begun.elapsed() > START_LIMIT {
                return Err(format!(
                    "the server does not answer; see `{}`",
                    dir.join("server.log").display()
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        Ok(Self { arena, dir, client, child })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has used so far.
    pub fn usage(&self) -> ProcessUsage {
        machine::usage(self.pid())
    }

    /// Size of the database, with its log.
    pub fn database_bytes(&self) -> u64 {
        machine::directory_bytes(&self.dir.join(discovery::STATE_DIR))
    }

    /// Stores and initializes a workflow.
    pub fn create(&self, spec: Value) -> Result<WorkflowCreated> {
        let request = CreateWorkflow {
            spec,
            user: None,
            initialize: true,
            force: false,
            key: None,
            directory: Some(self.dir.display().to_string()),
            spec_path: None,
        };
        Ok(self.arena.runtime.block_on(self.client.create_workflow(&request))?)
    }

    /// How the jobs stand.
    pub fn status(&self, id: WorkflowId) -> Result<StatusView> {
        Ok(self.arena.runtime.block_on(self.client.workflow_status(id))?)
    }

    /// How many jobs are done.
    pub fn completed(&self, id: WorkflowId) -> Result<usize> {
        Ok(usize::try_from(self.status(id)?.counts["completed"])?)
    }

    /// A call of the command line, in the server's directory.
    pub fn command(&self, args: &[&str]) -> Command {
        self.arena.command(&self.dir, args)
    }

    /// Starts a runner that takes as many jobs at once as there are processors.
    pub fn runner(&self, id: WorkflowId) -> Result<WatchedProcess> {
        let cpus = machine::processors().to_string();
        WatchedProcess::start(&mut self.command(&[
            "-q",
            "runner",
            &id.to_string(),
            "--num-cpus",
            &cpus,
        ]))
    }

    /// Runs a workflow to its end.
    pub fn run(&self, id: WorkflowId, jobs: usize) -> Result<Run> {
        let before = self.usage();
        let runner = self.runner(id)?.finish()?;
        let run = Run {
            jobs,
            server: self.usage().since(before),
            runner,
            database_bytes: self.database_bytes(),
        };
        let done = self.status(id)?;
        if !run.runner.status.success() || !done.is_complete {
            return Err(format!(
                "the workflow did not succeed: {} {:?}",
                run.runner.status, done.counts
            )
            .into());
        }
        Ok(run)
    }

    /// Ends it without a chance to say goodbye; answers with its directory.
    pub fn kill(mut self) -> Result<PathBuf> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(std::mem::take(&mut self.dir))
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A workflow that was run.
pub struct Run {
    /// How many jobs it had.
    pub jobs: usize,
    /// What the server used meanwhile.
    pub server: ProcessUsage,
    /// The runner: from its start to its end.
    pub runner: Finished,
    /// Database and log at the end.
    pub database_bytes: u64,
}

impl Run {
    /// Jobs per second, the runner's start and end included.
    pub fn rate(&self) -> f64 {
        self.jobs as f64 / self.runner.wall.as_secs_f64()
    }

    /// CPU time of the server per job, in ms.
    pub fn server_ms(&self) -> f64 {
        self.server.cpu.as_secs_f64() * 1e3 / self.jobs as f64
    }

    /// CPU time of the runner per job, in ms, without that of the jobs.
    pub fn runner_ms(&self) -> f64 {
        self.runner.usage.cpu.as_secs_f64() * 1e3 / self.jobs as f64
    }
}
