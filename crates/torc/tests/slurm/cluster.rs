//! The cluster that the tests use, and a place of their own for each of them.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A test's directory, its server, and the cluster, which it has for itself.
pub struct Cluster {
    pub dir: tempfile::TempDir,
    /// Held for as long as the test runs: tests break the cluster on purpose.
    _lock: File,
}

/// What a program wrote that runs beside the test.
const SAID: &str = "said.log";

/// The cluster, or a message why there is none. In CI a missing cluster is a failure.
pub fn cluster() -> Option<Cluster> {
    let lab = std::env::var_os("SLURM_LAB_DIR")
        .map(PathBuf::from)
        .filter(|lab| lab.join("env").is_file());
    let Some(lab) = lab.filter(|_| std::env::var_os("SLURM_CONF").is_some()) else {
        let how =
            "no Slurm cluster: `scripts/slurm-lab start`, then `eval \"$(scripts/slurm-lab env)\"`";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
        eprintln!("skipped: {how}");
        return None;
    };
    let lock = File::create(lab.join("test.lock")).expect("a lock file");
    lock.lock().expect("the cluster for ourselves");
    let cluster = Cluster { dir: tempfile::tempdir().expect("a directory"), _lock: lock };
    cluster.heal();
    Some(cluster)
}

/// The cluster has this: `SLURM_LAB_SACCT` or `SLURM_LAB_OOM`.
pub fn has(what: &str) -> bool {
    std::env::var(what).as_deref() == Ok("1")
}

/// The long form of the tests was asked for: `scripts/slurm-campaign`.
pub fn is_campaign() -> bool {
    has("TORC_SLURM_CAMPAIGN")
}

/// For tests that take minutes: they belong to the campaign.
pub fn campaign() -> Option<Cluster> {
    if !is_campaign() {
        eprintln!("skipped: takes long; `scripts/slurm-campaign` runs it");
        return None;
    }
    cluster()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.heal();
        let file = self.dir.path().join(".torc/server.json");
        let pid =
            std::fs::read_to_string(file).ok().and_then(|t| serde_json::from_str::<Value>(&t).ok());
        if let Some(pid) = pid.and_then(|v| v["pid"].as_i64()) {
            run(self.dir.path(), "kill", &[&pid.to_string()]);
        }
    }
}

fn run(dir: &Path, program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"))
}

impl Cluster {
    /// Whatever an earlier test did to it: all daemons run, all nodes are there, nothing is queued.
    fn heal(&self) {
        for name in ["slurmctld", "slurmd.n1", "slurmd.n2", "slurmd.n3", "slurmd.g1"] {
            self.lab(&["signal", name, "CONT"]);
        }
        assert!(
            self.lab(self.start_arguments()).status.success(),
            "the cluster does not come back"
        );
        for node in ["n1", "n2", "n3", "g1"] {
            run(
                self.dir.path(),
                "scontrol",
                &["update", &format!("nodename={node}"), "state=resume"],
            );
        }
        run(self.dir.path(), "scancel", &["--user", "root"]);
        self.wait("an empty queue", 60, || {
            self.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
        });
    }

    /// What starts the same kind of cluster again.
    pub fn start_arguments(&self) -> &'static [&'static str] {
        if has("SLURM_LAB_SACCT") { &["start", "--full"] } else { &["start"] }
    }

    /// `scripts/slurm-lab`.
    pub fn lab(&self, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm-lab");
        run(self.dir.path(), &script.display().to_string(), arguments)
    }

    /// A program of Slurm.
    pub fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&run(self.dir.path(), program, arguments).stdout).into_owned()
    }

    /// A program, whatever it answers.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Output {
        run(self.dir.path(), program, arguments)
    }

    /// Runs `torc`; it must succeed.
    pub fn torc(&self, arguments: &[&str]) -> String {
        let output = self.try_torc(arguments);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "torc {arguments:?}: {}\n{out}\n{err}", output.status);
        out.into_owned()
    }

    /// Starts `torc` and goes on.
    pub fn spawn_torc(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torc"));
        let command = command.args(arguments).current_dir(self.dir.path());
        let said = File::create(self.dir.path().join(SAID)).expect("a file");
        command.stdout(Stdio::null()).stderr(said).spawn().expect("started")
    }

    /// Kills the server; answers where it listened. No command may be called until there is another one:
    /// it would open the database itself.
    pub fn kill_server(&self) -> String {
        let text = std::fs::read(self.dir.path().join(".torc/server.json")).expect("a server");
        let server: Value = serde_json::from_slice(&text).expect("JSON");
        self.slurm("kill", &["-KILL", &server["pid"].to_string()]);
        server["url"].as_str().expect("an address").to_owned()
    }

    /// Starts a server in this directory that listens where the earlier one did.
    pub fn serve_at(&self, url: &str) -> Child {
        let address = url.rsplit('/').next().unwrap_or_default();
        let (host, port) = address.rsplit_once(':').expect("a host and a port");
        let server = self.spawn_torc(&["server", "run", "--host", host, "--port", port]);
        let file = self.dir.path().join(".torc/server.json");
        self.wait("server", 60, || {
            let text = std::fs::read(&file).unwrap_or_default();
            let found: Value = serde_json::from_slice(&text).unwrap_or_default();
            found["pid"] == server.id()
        });
        server
    }

    /// Writes a program that stands in for one of Slurm's: does `first`, then what the real one
    /// does.
    pub fn stand_in(&self, program: &str, first: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = self.dir.path().join("stand_ins");
        std::fs::create_dir_all(&dir).expect("made");
        let real = self.slurm("sh", &["-c", &format!("command -v {program}")]);
        let file = dir.join(program);
        let text = format!("#!/bin/sh\n{first}\nexec {} \"$@\"\n", real.trim());
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
            .expect("executable");
    }

    /// Starts `torc`, which finds the stand-ins before Slurm's own programs, and goes on.
    pub fn spawn_torc_beside_stand_ins(&self, arguments: &[&str]) -> Child {
        let path = std::env::var("PATH").expect("a path");
        let path = format!("{}:{path}", self.dir.path().join("stand_ins").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_torc"));
        let command = command.args(arguments).current_dir(self.dir.path()).env("PATH", path);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started")
    }

    /// Runs `torc`.
    pub fn try_torc(&self, arguments: &[&str]) -> Output {
        run(self.dir.path(), env!("CARGO_BIN_EXE_torc"), arguments)
    }

    /// Runs `torc -f json`; it must succeed.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.torc(&[&["-f", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// What a tool of `torc mcp` answers about the first workflow.
    pub fn mcp(&self, tool: &str) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torc"));
        command
            .arg("mcp")
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let call = json!({"name": tool, "arguments": {"workflow_id": 1}});
        let mut input = child.stdin.take().expect("a pipe");
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
        ] {
            writeln!(input, "{message}").expect("it reads");
        }
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let answers =
            lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
        let answer = answers.into_iter().find(|answer| answer["id"] == 2).expect("an answer");
        drop(input);
        child.wait().expect("its end");
        answer["result"].clone()
    }

    /// Writes a spec and submits it.
    pub fn submit(&self, spec: &str) -> Value {
        std::fs::write(self.dir.path().join("spec.yaml"), spec).expect("written");
        self.json(&["submit", "spec.yaml"])
    }

    /// The allocations of the newest workflow.
    pub fn allocations(&self) -> Vec<Value> {
        self.json(&["slurm", "allocations"])["scheduled_compute_nodes"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// Jobs per status of the newest workflow.
    pub fn counts(&self) -> BTreeMap<String, i64> {
        let status = self.json(&["status"]);
        let counts = status["counts"].as_object().unwrap_or_else(|| panic!("no counts: {status}"));
        counts.iter().map(|(k, v)| (k.clone(), v.as_i64().unwrap_or(0))).collect()
    }

    /// How the attempts of the newest workflow ended: (job, attempt, state, cause).
    pub fn attempts(&self) -> Vec<(String, i64, String, String)> {
        let results = self.json(&["results", "list"]);
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        let rows = results["results"].as_array().cloned().unwrap_or_default();
        rows.iter()
            .map(|r| {
                (
                    text(&r["job_name"]),
                    r["attempt_id"].as_i64().unwrap_or(0),
                    text(&r["state"]),
                    text(&r["cause"]),
                )
            })
            .collect()
    }

    /// Waits until so many attempts have ended for this cause. Slurm may say only later why it took
    /// nodes away. Each has evidence that says so.
    pub fn wait_for_cause(&self, cause: &str, attempts: usize, evidence: &str) {
        let rows = || -> Vec<Value> {
            let rows =
                self.json(&["results", "list"])["results"].as_array().cloned().unwrap_or_default();
            rows.into_iter().filter(|row| row["cause"] == cause).collect()
        };
        let until = Instant::now() + Duration::from_secs(60);
        while rows().len() != attempts {
            let is_late = Instant::now() >= until;
            assert!(
                !is_late,
                "{attempts} were to end for `{cause}`: {:?}\n{:?}",
                self.attempts(),
                self.allocations()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        for row in rows() {
            let texts: Vec<_> = row["evidence"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|e| e["text"].to_string())
                .collect();
            let says = |text: &String| text.to_lowercase().contains(&evidence.to_lowercase());
            assert!(texts.iter().any(says), "no `{evidence}` in {texts:?}");
        }
    }

    /// Waits until `ready`. It looks again and again: Slurm sends no notice of what happens, and
    /// what the program does is looked at from outside, as people do.
    pub fn wait(&self, what: &str, seconds: u64, ready: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(seconds);
        while !ready() {
            assert!(Instant::now() < until, "no {what} after {seconds} s");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until every job of the newest workflow has succeeded.
    pub fn wait_for_success(&self, jobs: i64, seconds: u64) {
        let done = || self.counts().get("completed").copied().unwrap_or(0) == jobs;
        let until = Instant::now() + Duration::from_secs(seconds);
        while !done() {
            let stuck = Instant::now() >= until;
            assert!(
                !stuck,
                "{:?}\n{:?}\n{:#?}\n{}",
                self.counts(),
                self.allocations(),
                self.attempts(),
                std::fs::read_to_string(self.dir.path().join(SAID)).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until so many jobs of the newest workflow run.
    pub fn wait_for_running(&self, jobs: i64) {
        self.wait("running job", 60, || self.counts().get("running").copied().unwrap_or(0) >= jobs);
    }

    /// Each job's witness: how often it wrote its line at its end.
    pub fn witnesses(&self) -> BTreeMap<String, usize> {
        let mut seen = BTreeMap::new();
        let text = std::fs::read_to_string(self.dir.path().join("witness")).unwrap_or_default();
        for line in text.lines() {
            *seen.entry(line.to_owned()).or_default() += 1;
        }
        seen
    }

    /// Every job succeeded exactly once, by its own witness.
    pub fn assert_witnessed_once(&self, jobs: usize) {
        let seen = self.witnesses();
        assert_eq!(seen.len(), jobs, "{seen:?}");
        assert!(seen.values().all(|n| *n == 1), "{seen:?}");
    }

    /// The newest allocation's id in Slurm.
    pub fn slurm_job(&self) -> String {
        let all = self.allocations();
        let id = all.last().and_then(|a| a["slurm_job_id"].as_str());
        id.unwrap_or_else(|| panic!("not in Slurm: {all:?}")).to_owned()
    }

    /// The process of the one runner that works here.
    pub fn runner_pid(&self) -> String {
        let dir = self.dir.path().join("output/.torc_runners");
        let files = std::fs::read_dir(&dir).expect("runners").flatten().map(|e| e.path());
        let record =
            files.filter(|f| f.extension().is_some_and(|e| e == "json")).last().expect("a runner");
        let record: Value =
            serde_json::from_slice(&std::fs::read(record).expect("readable")).expect("JSON");
        record["pid"].to_string()
    }

    /// Asks for new allocations, twice: the second call must not ask for more.
    pub fn regenerate(&self, more: &[&str]) {
        let arguments =
            [&["slurm", "regenerate", "latest", "--account", "a", "--submit"], more].concat();
        self.json(&arguments);
        let before = self.allocations().len();
        self.json(&arguments);
        assert_eq!(self.allocations().len(), before, "a second regenerate asked for more");
    }
}
