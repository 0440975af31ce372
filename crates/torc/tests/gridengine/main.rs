//! Workflows on a real Grid Engine: the words of the spec are Slurm's, the batch system is not.
//!
//! `scripts/gridengine-lab start` makes it. Each job writes a line of its own at its end: the witness.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const WITNESS: &str = "echo $TORC_JOB_NAME >> witness";

/// A test's directory, and Grid Engine, which it has for itself.
struct Engine {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
    _lock: File,
}

/// Grid Engine, or a message why there is none. In CI that is a failure, unless it cannot be had at all.
fn engine() -> Option<Engine> {
    let lab = std::env::var("TORC_GRIDENGINE_LAB").unwrap_or_default();
    if lab == "none" {
        eprintln!("SKIPPED: Grid Engine cannot be had here");
        return None;
    }
    let file = PathBuf::from(&lab).join("env");
    if lab.is_empty() || !file.is_file() {
        let how = "no Grid Engine: `scripts/gridengine-lab start`, then set TORC_GRIDENGINE_LAB to its directory";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
        eprintln!("skipped: {how}");
        return None;
    }
    let path = std::env::var("PATH").expect("a path");
    let mut env: Vec<(String, String)> = std::fs::read_to_string(file)
        .expect("readable")
        .lines()
        .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.replace("$PATH", &path)))
        .collect();
    env.push(("TORC_BATCH_SYSTEM".into(), "gridengine".into()));
    let lock = File::create(Path::new(&lab).join("test.lock")).expect("a lock file");
    lock.lock().expect("Grid Engine for ourselves");
    let engine = Engine { dir: tempfile::tempdir().expect("a directory"), env, _lock: lock };
    engine.heal();
    Some(engine)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.heal();
        let file = self.dir.path().join(".torc/server.json");
        let server =
            std::fs::read(file).ok().and_then(|t| serde_json::from_slice::<Value>(&t).ok());
        if let Some(pid) = server.and_then(|server| server["pid"].as_i64()) {
            self.run("kill", &[&pid.to_string()]);
        }
    }
}

impl Engine {
    /// Whatever an earlier test did to it: both daemons run, and nothing is queued.
    fn heal(&self) {
        self.lab(&["signal", "qmaster", "CONT"]);
        self.lab(&["signal", "execd", "CONT"]);
        let started = self.lab(&["start"]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        self.run("qdel", &["-u", "*"]);
        self.wait("an empty queue", 60, || self.queue().is_empty());
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/gridengine-lab");
        self.run(&script.display().to_string(), arguments)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).envs(self.env.iter().cloned());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.command(program).args(arguments).output();
        output.unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Lines of `qstat`: one for each job and task.
    fn queue(&self) -> Vec<String> {
        let text = self.run("qstat", &["-u", "*", "-g", "d"]).stdout;
        String::from_utf8_lossy(&text).lines().skip(2).map(str::to_owned).collect()
    }

    fn torc(&self, arguments: &[&str]) -> String {
        let output = self.run(env!("CARGO_BIN_EXE_torc"), arguments);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "torc {arguments:?}: {}\n{out}\n{err}", output.status);
        out.into_owned()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.torc(&[&["-f", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn submit(&self, spec: &str) -> Value {
        std::fs::write(self.dir.path().join("spec.yaml"), spec).expect("written");
        self.json(&["submit", "spec.yaml", "--server-host", "127.0.0.1"])
    }

    fn allocations(&self) -> Vec<Value> {
        let view = self.json(&["slurm", "allocations"]);
        view["scheduled_compute_nodes"].as_array().cloned().unwrap_or_default()
    }

    fn counts(&self) -> BTreeMap<String, i64> {
        let status = self.json(&["status"]);
        let counts = status["counts"].as_object().unwrap_or_else(|| panic!("no counts: {status}"));
        counts.iter().map(|(k, v)| (k.clone(), v.as_i64().unwrap_or(0))).collect()
    }

    fn attempts(&self) -> Vec<(String, String)> {
        let rows =
            self.json(&["results", "list"])["results"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rows.iter().map(|row| (text(&row["job_name"]), text(&row["cause"]))).collect()
    }

    /// Looks again and again: Grid Engine sends no notice of what happens.
    fn wait(&self, what: &str, seconds: u64, ready: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(seconds);
        while !ready() {
            assert!(Instant::now() < until, "no {what} after {seconds} s: {:?}", self.queue());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn wait_for(&self, status: &str, jobs: i64, seconds: u64) {
        let until = Instant::now() + Duration::from_secs(seconds);
        while self.counts().get(status).copied().unwrap_or(0) != jobs {
            let state = || (self.counts(), self.allocations(), self.attempts(), self.queue());
            assert!(Instant::now() < until, "not {jobs} {status}: {:#?}", state());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn assert_witnessed_once(&self, jobs: usize) {
        let text = std::fs::read_to_string(self.dir.path().join("witness")).unwrap_or_default();
        let mut seen: Vec<&str> = text.lines().collect();
        assert_eq!(seen.len(), jobs, "{seen:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), jobs, "{seen:?}");
    }

    fn regenerate(&self) {
        let arguments = ["slurm", "regenerate", "latest", "--account", "a", "--submit"];
        self.json(&arguments);
        let before = self.allocations().len();
        self.json(&arguments);
        assert_eq!(self.allocations().len(), before, "a second regenerate asked for more");
    }
}

fn spec(count: usize, command: &str, allocations: usize, more: &str) -> String {
    format!(
        "name: w
resource_requirements: [{{name: small, num_cpus: 1, memory: 100m, runtime: 1m}}]
slurm_schedulers:
  - {{name: s, account: a, partition: main.q, walltime: '00:10:00', ntasks_per_node: 2, mem: 500m{more}}}
jobs:
  - {{name: 'j{{i}}', command: '{command}', resource_requirements: small, scheduler: s, max_lost_retries: 9, parameters: {{i: '1:{count}'}}}}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: {allocations}}}
"
    )
}

#[test]
fn jobs_run_once_each_in_an_array_of_allocations() {
    let Some(engine) = engine() else { return };
    let sent = engine.submit(&spec(8, &format!("sleep 1; {WITNESS}"), 2, ""));
    let ids: Vec<&str> = sent["allocations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|allocation| allocation["slurm_job_id"].as_str())
        .collect();
    assert!(ids.len() == 2 && ids[0].ends_with("_0") && ids[1].ends_with("_1"), "{sent}");
    engine.wait_for("completed", 8, 90);
    engine.assert_witnessed_once(8);
    engine.wait("ended allocations", 60, || {
        engine.allocations().iter().all(|a| a["status"] == "complete")
    });
    // Two slots, so two jobs at a time in each; the output of each allocation has its own name.
    let output = engine.dir.path().join("output");
    for id in ids {
        let name = sent["allocations"][0]["name"].as_str().expect("a name");
        let log = output.join(format!("slurm_output_{name}_sl{id}.o"));
        assert!(log.is_file(), "{}", log.display());
    }
}

#[test]
fn watch_asks_for_nodes_when_they_are_gone() {
    let Some(engine) = engine() else { return };
    engine.submit(&spec(2, &format!("sleep 4; {WITNESS}"), 1, ""));
    engine.wait_for("running", 2, 60);
    let id = engine.allocations()[0]["slurm_job_id"].as_str().expect("an id").to_owned();
    engine.run("qdel", &[&id]);
    // Grid Engine announces the end, so that the worker can say good-bye.
    engine.wait_for("ready", 2, 60);
    assert!(
        engine.attempts().iter().all(|(_, cause)| cause == "stopped"),
        "{:?}",
        engine.attempts()
    );
    engine.torc(&["watch", "latest", "--auto-schedule"]);
    engine.assert_witnessed_once(2);
    assert_eq!(engine.allocations().len(), 2);
}

#[test]
fn recover_asks_for_nodes_for_what_failed() {
    let Some(engine) = engine() else { return };
    engine.submit(&spec(2, &format!("test -e fixed && {WITNESS}"), 1, ""));
    engine.wait_for("failed", 2, 60);
    std::fs::write(engine.dir.path().join("fixed"), "").expect("written");
    engine.torc(&["recover", "latest", "--retry-unknown"]);
    engine.wait_for("completed", 2, 90);
    engine.assert_witnessed_once(2);
    assert!(engine.allocations().len() == 2, "{:?}", engine.allocations());
}

#[test]
fn a_worker_that_dies_with_its_allocation_is_found_by_asking() {
    let Some(engine) = engine() else { return };
    engine.submit(&spec(2, &format!("sleep 6; {WITNESS}"), 1, ""));
    engine.wait_for("running", 2, 60);
    let dir = engine.dir.path().join("output/.torc_runners");
    let files = std::fs::read_dir(&dir).expect("runners").flatten().map(|entry| entry.path());
    let record =
        files.filter(|f| f.extension().is_some_and(|e| e == "json")).last().expect("a runner");
    let record: Value =
        serde_json::from_slice(&std::fs::read(record).expect("readable")).expect("JSON");
    // No time for last words.
    engine.run("kill", &["-KILL", &record["pid"].to_string()]);
    engine.wait("end in Grid Engine", 60, || engine.queue().is_empty());
    engine.torc(&["workflows", "sync-status", "latest"]);
    engine.wait("ended allocation", 60, || engine.allocations()[0]["status"] == "complete");
    engine.wait_for("ready", 2, 60);
    let lost = engine.attempts().into_iter().filter(|(_, cause)| cause == "lost").count();
    assert_eq!(lost, 2, "{:?}", engine.attempts());
    engine.regenerate();
    engine.wait_for("completed", 2, 90);
    engine.assert_witnessed_once(2);
}

#[test]
fn an_absent_master_fails_no_job() {
    let Some(engine) = engine() else { return };
    engine.submit(&spec(2, &format!("sleep 8; {WITNESS}"), 1, ""));
    engine.wait_for("running", 2, 60);
    assert!(engine.lab(&["signal", "qmaster", "KILL"]).status.success());
    let synced = engine.json(&["workflows", "sync-status", "latest"]);
    assert!(synced["slurm"]["unreachable"].is_string(), "{synced}");
    assert_eq!(engine.counts().get("running"), Some(&2));
    assert!(engine.lab(&["start"]).status.success());
    engine.wait_for("completed", 2, 90);
    engine.assert_witnessed_once(2);
    assert_eq!(engine.attempts().len(), 2, "no job was tried again: {:?}", engine.attempts());
}

#[test]
fn allocations_of_a_chain_run_one_at_a_time_and_cancel_ends_them() {
    let Some(engine) = engine() else { return };
    let command = format!("until [ -e go ]; do sleep 0.2; done; {WITNESS}");
    engine.submit(&spec(6, &command, 1, ", serialize_allocations: true"));
    engine.wait_for("running", 2, 60);
    engine.torc(&["slurm", "schedule-nodes", "latest"]);
    engine.wait("second link", 30, || engine.queue().len() == 2);
    let waits = engine.queue().iter().filter(|line| line.contains(" hqw ")).count();
    assert_eq!(waits, 1, "{:?}", engine.queue());
    engine.torc(&["cancel", "latest"]);
    engine.wait("empty queue", 60, || engine.queue().is_empty());
    engine.wait_for("canceled", 6, 30);
}

#[test]
fn what_grid_engine_refuses_is_told() {
    let Some(engine) = engine() else { return };
    let text = spec(1, "true", 1, "").replace("main.q", "nowhere.q");
    std::fs::write(engine.dir.path().join("spec.yaml"), text).expect("written");
    let refused = engine
        .run(env!("CARGO_BIN_EXE_torc"), &["submit", "spec.yaml", "--server-host", "127.0.0.1"]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("Grid Engine refused") && said.contains("nowhere.q"), "{said}");
    let wide = spec(1, "true", 1, ", nodes: 2");
    std::fs::write(engine.dir.path().join("wide.yaml"), wide).expect("written");
    let refused = engine
        .run(env!("CARGO_BIN_EXE_torc"), &["submit", "wide.yaml", "--server-host", "127.0.0.1"]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("an allocation has one node"), "{said}");
}
