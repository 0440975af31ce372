//! The program under test: a server and a runner in one directory, recorded or not.

use crate::world::{kill, pid_of};
use rustix::fs::FlockOperation;
use rustix::process::{Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use torc_client::{Client, Query};
use torc_model::api::{AttemptView, JobView};
use torc_model::ids::WorkflowId;
use torc_model::status::JobStatus;

/// A file appears without a word.
const TICK: Duration = Duration::from_millis(5);
/// A server must be there this long after its start.
const BOOT: Duration = Duration::from_secs(60);
/// No request of a small workflow takes this long.
const CALL: Duration = Duration::from_secs(20);

/// Processes of the program, and where they work.
pub struct RecordedProgram {
    torc: PathBuf,
    /// What is recorded.
    pub root: PathBuf,
    outside: PathBuf,
    /// Preloaded into server and runner.
    pub recorder: Option<PathBuf>,
    /// The disk of the next process that is started with this name is full, as the recorder reads it.
    pub full: Option<(&'static str, String)>,
    port: u16,
    server: Option<Child>,
    runner: Option<Child>,
}

impl RecordedProgram {
    /// Nothing runs yet. Both directories are there, and `root` is empty.
    pub fn new(torc: &Path, root: &Path, outside: &Path) -> io::Result<Self> {
        for name in ["journal", "lock"] {
            File::create(outside.join(name))?;
        }
        Ok(Self {
            torc: torc.into(),
            root: root.canonicalize()?,
            outside: outside.canonicalize()?,
            recorder: None,
            full: None,
            port: std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
            server: None,
            runner: None,
        })
    }

    /// Where the records go.
    pub fn journal(&self) -> PathBuf {
        self.outside.join("journal")
    }

    /// How long it is now.
    pub fn journal_length(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.journal())?.len())
    }

    fn command(&self, name: &'static str, args: &[&str]) -> io::Result<Command> {
        let log = self.outside.join(format!("{name}.log"));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(&self.torc);
        let ours = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"TORC_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        if let Some(recorder) = &self.recorder {
            command.env("LD_PRELOAD", recorder).env("CHAOS_RECORD_ROOT", &self.root);
            command.env("CHAOS_RECORD_JOURNAL", self.journal());
            command.env("CHAOS_RECORD_LOCK", self.outside.join("lock"));
            if let Some((_, full)) = self.full.as_ref().filter(|(who, _)| *who == name) {
                command.env("CHAOS_RECORD_FULL", full);
            }
        }
        command.args(args).current_dir(&self.root).env("HOME", &self.outside).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Starts a server and waits until it can be asked. The error is its log when it ended instead.
    pub fn start_server(&mut self) -> io::Result<()> {
        let port = self.port.to_string();
        let log = self.outside.join("server.log");
        let before = fs::metadata(&log).map_or(0, |found| found.len());
        let mut child =
            self.command("server", &["-v", "server", "run", "--port", &port])?.spawn()?;
        let (pid, deadline) = (i64::from(child.id()), Instant::now() + BOOT);
        let written = |path: PathBuf| {
            let text = fs::read_to_string(path).ok()?;
            serde_json::from_str::<Value>(&text).ok()?.get("pid")?.as_i64()
        };
        while written(self.root.join(".torc/server.json")) != Some(pid) {
            let ended = child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                let text = fs::read(&log)?;
                let new = text.get(before as usize..).unwrap_or_default();
                let new = String::from_utf8_lossy(new);
                return Err(io::Error::other(format!("the server does not start: {new}")));
            }
            std::thread::sleep(TICK);
        }
        self.server = Some(child);
        Ok(())
    }

    /// The server has ended by itself.
    pub fn has_server_ended(&mut self) -> io::Result<bool> {
        Ok(match &mut self.server {
            Some(server) => server.try_wait()?.is_some(),
            None => true,
        })
    }

    /// Starts a runner.
    pub fn start_runner(&mut self, workflow: i64) -> io::Result<()> {
        let (url, workflow) = (format!("http://127.0.0.1:{}", self.port), workflow.to_string());
        let args = ["--url", &url, "--token-file", ".torc/token", "runner", &workflow];
        let args = [&args[..], &["-j", "5", "--num-cpus", "8", "--memory", "8g"]].concat();
        self.runner = Some(self.command("runner", &args)?.spawn()?);
        Ok(())
    }

    /// Waits for the end of the runner.
    pub fn await_runner(&mut self) -> io::Result<()> {
        match self.runner.take() {
            Some(mut runner) => runner.wait().map(drop),
            None => Ok(()),
        }
    }

    /// A runner has been started and has not ended.
    pub fn has_runner(&mut self) -> io::Result<bool> {
        Ok(match &mut self.runner {
            Some(runner) => runner.try_wait()?.is_none(),
            None => false,
        })
    }

    /// Waits until the runner has kept this many results.
    pub fn await_spool(&self, results: usize, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let files = fs::read_dir(self.root.join("output/.torc_spool"));
            let lines =
                files.into_iter().flatten().flatten().map(|file| {
                    fs::read_to_string(file.path()).unwrap_or_default().lines().count()
                });
            // The first line says whose results they are.
            if lines.max().is_some_and(|lines| lines > results) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("the runner keeps no results"));
            }
            std::thread::sleep(TICK);
        }
    }

    /// No process is in the middle of an operation while this is held.
    fn still(&self) -> io::Result<File> {
        let lock = File::open(self.outside.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    /// Kills the server between two operations.
    pub fn kill_server(&mut self) -> io::Result<()> {
        let still = self.still()?;
        if let Some(mut server) = self.server.take() {
            kill(&server);
            server.wait()?;
        }
        drop(still);
        Ok(())
    }

    /// Kills server and runner between two operations, and waits until nothing of them is left.
    pub fn kill_all(&mut self) -> io::Result<()> {
        let still = self.still()?;
        for mut child in self.runner.take().into_iter().chain(self.server.take()) {
            kill(&child);
            child.wait()?;
        }
        drop(still);
        Ok(())
    }

    /// Lets the server end in good order.
    pub fn stop_server(&mut self) -> io::Result<()> {
        if let Some(mut server) = self.server.take() {
            if let Some(pid) = pid_of(&server) {
                kill_process(pid, Signal::TERM)?;
            }
            server.wait()?;
        }
        Ok(())
    }

    /// What the doctor says; none when it finds nothing wrong.
    pub fn doctor(&self) -> io::Result<Option<String>> {
        let mut doctor = self.command("doctor", &["server", "doctor"])?;
        doctor.env_remove("LD_PRELOAD");
        let found = doctor.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        let text = [found.stdout, found.stderr].concat();
        Ok((!found.status.success()).then(|| String::from_utf8_lossy(&text).into_owned()))
    }

    /// A way to ask the server.
    pub fn talk(&self) -> io::Result<Talk> {
        let token = fs::read_to_string(self.root.join(".torc/token"))?;
        let client = Client::new(&format!("http://127.0.0.1:{}", self.port), &token);
        let client = client.map_err(io::Error::other)?.with_time_limit(CALL);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Talk { client, runtime })
    }
}

impl Drop for RecordedProgram {
    fn drop(&mut self) {
        for mut child in self.runner.take().into_iter().chain(self.server.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client whose calls wait.
pub struct Talk {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Talk {
    /// Asks for something to be done.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> io::Result<T> {
        self.runtime.block_on(self.client.post(path, body)).map_err(io::Error::other)
    }

    /// All ended attempts.
    pub fn attempts(&self, workflow: i64) -> io::Result<Vec<AttemptView>> {
        let query = Query::new().add("workflow_id", workflow).add("all_runs", true);
        let asked = self.client.list_all("/results", &query);
        self.runtime.block_on(asked).map_err(io::Error::other)
    }

    /// How many jobs run.
    pub fn running(&self, workflow: i64) -> io::Result<usize> {
        let query = Query::new().add("workflow_id", workflow);
        let asked = self.client.list_all::<JobView>("/jobs", &query);
        let jobs = self.runtime.block_on(asked).map_err(io::Error::other)?;
        Ok(jobs.iter().filter(|job| job.status == JobStatus::Running).count())
    }

    /// Everything has ended.
    pub fn is_complete(&self, workflow: i64) -> io::Result<bool> {
        let asked = self.client.is_complete(WorkflowId(workflow));
        Ok(self.runtime.block_on(asked).map_err(io::Error::other)?.is_complete)
    }

    /// The ids of all workflows.
    pub fn workflows(&self) -> io::Result<Vec<i64>> {
        let query = Query::new();
        let asked = self.client.list_all::<Value>("/workflows", &query);
        let found = self.runtime.block_on(asked).map_err(io::Error::other)?;
        Ok(found.iter().filter_map(|workflow| workflow["id"].as_i64()).collect())
    }
}
