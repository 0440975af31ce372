//! A temporary directory, the real program in it, and what it answered.

pub mod mcp;
pub mod model;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use torc_model::words;

/// Longer than anything takes on a loaded machine; a test that hangs fails with its output instead.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program under test.
pub const TORC: &str = env!("CARGO_BIN_EXE_torc");

/// One test's own directory: state, specs and outputs live and die with it.
pub struct Test {
    dir: TempDir,
}

impl Test {
    /// An empty directory.
    pub fn new() -> Self {
        Self {
            dir: tempfile::Builder::new()
                .prefix("torc-it-")
                .tempdir()
                .expect("a temporary directory"),
        }
    }

    /// With the workflow `workflow.yaml`.
    pub fn spec(self, text: &str) -> Self {
        self.file("workflow.yaml", text)
    }

    /// With a file.
    pub fn file(self, name: &str, text: &str) -> Self {
        self.write(name, text);
        self
    }

    /// Writes a file now.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("inside the directory"))
            .expect("directories for a file");
        fs::write(path, text).expect("a file");
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The content of a file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The file is there.
    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// A call of the program with these arguments, not yet made.
    pub fn torc<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Call {
        self.command(TORC, args)
    }

    /// A call of a shell with the program on its path.
    pub fn shell(&self, script: &str) -> Call {
        self.command("bash", ["-c", script])
    }

    /// A call of any program.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Call {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            // But the one that replaces every sentence: scripts/test-scrambled is about the program.
            if name.to_string_lossy().starts_with("TORC_") && name != "TORC_SCRAMBLED_MESSAGES" {
                command.env_remove(name);
            }
        }
        let bin = Path::new(TORC).parent().expect("a directory").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{bin}:{path}"))
            .env("TZ", "UTC")
            .env("NO_COLOR", "1")
            .env("HOME", self.dir.path());
        Call { command, stdin: None }
    }

    /// A pipe with a name: who reads from it waits until the test opens it.
    pub fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success(), "mkfifo {}", path.display());
        Gate { path }
    }

    /// Runs `torc run workflow.yaml` to its end and hands back what it said.
    pub fn run(&self) -> Done {
        self.torc(["run", "workflow.yaml"]).done()
    }

    /// The jobs of the latest workflow as `name status` pairs, in the order of the workflow.
    pub fn statuses(&self) -> Vec<String> {
        let jobs = self.torc(["-f", "json", "jobs", "list"]).success().json();
        let jobs = jobs["jobs"].as_array().expect("a list of jobs").clone();
        jobs.iter().map(|job| format!("{} {}", text(&job["name"]), text(&job["status"]))).collect()
    }

    /// The newest attempt of a job of this workflow.
    pub fn last_attempt_of(&self, workflow: &str, job: &str) -> Value {
        let words = ["-f", "json", "jobs", "attempts", job, "--workflow", workflow];
        let attempts = self.torc(words).success().json();
        attempts["attempts"].as_array().and_then(|list| list.last()).expect("an attempt").clone()
    }

    /// The newest attempt of a job.
    pub fn last_attempt(&self, job: &str) -> Value {
        let attempts = self.torc(["-f", "json", "jobs", "attempts", job]).success().json();
        attempts["attempts"].as_array().and_then(|list| list.last()).expect("an attempt").clone()
    }
}

/// Lets a job wait for the test without either of them looking at a clock: the job runs `read line
/// < NAME`.
pub struct Gate {
    path: PathBuf,
}

impl Gate {
    /// Waits until a process writes into it.
    pub fn read(&self) {
        let path = self.path.clone();
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(fs::read(path)));
        receiver.recv_timeout(PATIENCE).expect("a word from the job").expect("the gate opens");
    }

    /// Waits until a job stands at the gate, and lets it pass.
    pub fn open(&self) {
        // Opening blocks until a reader comes; a job that never comes must not block the test for
        // ever.
        let path = self.path.clone();
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(fs::write(path, "go\n")));
        receiver.recv_timeout(PATIENCE).expect("a job at the gate").expect("the gate opens");
    }
}

/// Processes whose command line holds this text, besides the one that looks.
pub fn processes_with(needle: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(needle)
        })
        .collect()
}

/// A JSON string's text.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// A call that has not been made.
#[must_use]
pub struct Call {
    command: Command,
    stdin: Option<String>,
}

impl Call {
    /// With a variable in its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// With text on its standard input.
    pub fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Makes the call and waits for its end.
    pub fn done(self) -> Done {
        self.spawn().wait()
    }

    /// Makes the call and expects success.
    pub fn success(self) -> Done {
        self.exit(0)
    }

    /// Makes the call and expects this exit code.
    pub fn exit(self, code: i32) -> Done {
        let call = format!("{:?}", self.command);
        let done = self.done();
        assert_eq!(
            done.code,
            Some(code),
            "{call}\n--- stdout\n{}\n--- stderr\n{}",
            done.stdout,
            done.stderr
        );
        done
    }

    /// Makes the call and goes on at once.
    pub fn spawn(mut self) -> Running {
        if self.stdin.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        if let (Some(text), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            std::thread::spawn(move || pipe.write_all(text.as_bytes()));
        }
        let stdout = lines_of(child.stdout.take().expect("a pipe"));
        let stderr = lines_of(child.stderr.take().expect("a pipe"));
        Running { child, stdout, stderr, seen: Done::default() }
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// A call under way. Killed when dropped, so that a failing test leaves nothing behind.
pub struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    seen: Done,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line of standard output holds this text.
    pub fn wait_for_stdout(&mut self, needle: &str) -> String {
        wait_for(&self.stdout, &mut self.seen.stdout, needle)
            .unwrap_or_else(|| self.not_seen(needle))
    }

    /// Waits until a line of standard output holds this text, or until it has ended without. Tells
    /// which.
    pub fn comes_up(&mut self, needle: &str) -> bool {
        wait_for(&self.stdout, &mut self.seen.stdout, needle).is_some()
    }

    /// Waits until a line of standard error holds this text.
    pub fn wait_for_stderr(&mut self, needle: &str) -> String {
        wait_for(&self.stderr, &mut self.seen.stderr, needle)
            .unwrap_or_else(|| self.not_seen(needle))
    }

    fn not_seen(&mut self, needle: &str) -> ! {
        self.seen.stdout.extend(self.stdout.try_iter());
        self.seen.stderr.extend(self.stderr.try_iter());
        panic!(
            "`{needle}` never came\n--- stdout\n{}\n--- stderr\n{}",
            self.seen.stdout, self.seen.stderr
        )
    }

    /// Sends a signal, such as `INT`.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill").success(), "kill -{name}");
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Done {
        let status = self.wait_for_exit();
        self.seen.stdout.extend(self.stdout.iter());
        self.seen.stderr.extend(self.stderr.iter());
        let mut done = std::mem::take(&mut self.seen);
        done.code = status.code();
        done
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        // The pipes close with the program; reading them to their end is the wait, and it cannot
        // block the program.
        let deadline = Instant::now() + PATIENCE;
        for (pipe, seen) in
            [(&self.stderr, &mut self.seen.stderr), (&self.stdout, &mut self.seen.stdout)]
        {
            loop {
                match pipe.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(line) => seen.push_str(&line),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => panic!("still running; seen so far:\n{seen}"),
                }
            }
        }
        self.child.wait().expect("an exit status")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line with this text; None when the program ended without it, or takes too long.
fn wait_for(pipe: &Receiver<String>, seen: &mut String, needle: &str) -> Option<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let line = pipe.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
        seen.push_str(&line);
        if line.contains(needle) {
            return Some(line);
        }
    }
}

/// What a call answered.
#[derive(Default, Debug)]
pub struct Done {
    /// Exit code; None when a signal ended it.
    pub code: Option<i32>,
    /// Its data.
    pub stdout: String,
    /// Its talk.
    pub stderr: String,
}

impl Done {
    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in:\n{}\n{}", self.stdout, self.stderr))
    }

    /// Expects this exit code.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Expects this text in the data.
    pub fn says(self, needle: &str) -> Self {
        assert!(
            words::has(&self.stdout, needle),
            "`{needle}` is not in\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Expects this text in the talk.
    pub fn tells(self, needle: &str) -> Self {
        assert!(words::has(&self.stderr, needle), "`{needle}` is not in\n{}", self.stderr);
        self
    }
}
