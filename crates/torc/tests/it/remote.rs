//! Runners on other machines, over a real sshd in namespaces of its own.
//!
//! `scripts/ssh-lab` makes the machines. `TORC_SSH_LAB` names its directory, or is `none` where it cannot be
//! had. Where it is missing these tests say so and are skipped; with `CI=true` that is a failure.

use crate::support::{Running, Test, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two machines, h1 and h2.
struct Machines {
    dir: PathBuf,
    /// Of this machine, as they see it.
    address: String,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ssh-lab")
}

impl Machines {
    fn start(test: &Test) -> Option<Self> {
        let Some(lab) = std::env::var_os("TORC_SSH_LAB").filter(|lab| lab != "none") else {
            let how = "no machines for the tests of `torc remote`; `scripts/ssh-lab` makes them";
            let is_none = std::env::var_os("TORC_SSH_LAB").is_some();
            assert!(is_none || std::env::var("CI").as_deref() != Ok("true"), "{how}");
            eprintln!("SKIPPED: {how}");
            return None;
        };
        let dir = test.path("lab");
        let done = Command::new(script())
            .arg("up")
            .arg(&dir)
            .env("TORC_SSH_LAB_DIR", lab)
            .output()
            .expect("the lab starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let address = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        Some(Self { dir, address })
    }

    fn ssh(&self) -> String {
        format!("ssh -F {}", self.dir.join("config").display())
    }

    /// What a shell on a machine says.
    fn on(&self, host: &str, command: &str) -> String {
        let config = self.dir.join("config");
        let out = Command::new("ssh").arg("-F").arg(config).args([host, command]).output();
        String::from_utf8_lossy(&out.expect("ssh runs").stdout).into_owned()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let down = Command::new(script()).arg("down").arg(&self.dir).status();
        assert!(
            std::thread::panicking() || down.is_ok_and(|down| down.success()),
            "hosts are left"
        );
    }
}

/// In the order in which they end: the machines are described in the test's directory.
struct World {
    machines: Machines,
    _server: Running,
    test: Test,
}

impl World {
    fn new() -> Option<Self> {
        let test = Test::new();
        let machines = Machines::start(&test)?;
        let mut server = test.torc(["server", "run", "--host", &machines.address]).spawn();
        server.wait_for_stdout("https://");
        Some(Self { machines, _server: server, test })
    }

    fn remote(&self, args: &[&str]) -> crate::support::Call {
        let state = self.test.path("state");
        self.test
            .torc([&["-f", "json", "remote"], args].concat())
            .env("TORC_SSH", self.machines.ssh())
            .env("XDG_STATE_HOME", state)
    }

    fn rows(&self, args: &[&str]) -> Vec<Value> {
        let list = self.remote(args).success().json();
        list["remote_runners"].as_array().expect("a list").clone()
    }
}

#[test]
fn a_pool_runs_on_machines_that_were_added_and_survives_lost_connections() {
    let Some(world) = World::new() else { return };
    let test = &world.test;
    test.write("hosts.txt", "# ours\nh1\nh2  # the other\n");
    world.remote(&["add", "--hosts-file", "hosts.txt"]).success();
    let listed = world.remote(&["list"]).success().json();
    assert_eq!(listed["hosts"], serde_json::json!(["h1", "h2"]));

    // The program is copied; the runner goes on when the connection has ended.
    let rows = world.rows(&["run", "--own-dir", "--", "-j", "1"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    let rows = world.rows(&["run", "--own-dir", "--", "-j", "1"]);
    assert!(rows.iter().all(|row| text(&row["note"]).contains("already")), "{rows:?}");
    test.write("w.yaml", "name: w\njobs: [{name: 'j_{i}', parameters: {i: '1:6'}, command: 'hostname; sleep 0.3'}]\n");
    let mut events = {
        test.torc(["create", "w.yaml", "--initialize"]).success();
        test.torc(["-f", "json", "events", "w", "--follow"]).spawn()
    };
    events.wait_for_stdout("workflow_completed");
    events.signal("INT");
    events.wait();

    // The token is in a file of its user alone, and in no list of processes, here or there.
    let token = test.read(".torc/token").trim().to_owned();
    for host in ["h1", "h2"] {
        let mode = world.machines.on(host, "stat -c %a .torc-remote/pool/token .torc-remote/pool");
        assert_eq!(mode, "600\n700\n", "{host}");
        let processes = world
            .machines
            .on(host, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'");
        assert!(processes.contains("--any"), "{processes}");
        assert!(!processes.contains(&token), "the token is in the list of processes of {host}");
        let logs = world.machines.on(host, "cat .torc-remote/pool/runner.log");
        assert!(!logs.contains(&token), "the token is in the log of {host}");
    }
    let status = world.rows(&["status"]);
    assert!(status.iter().all(|row| row["state"] == "running"), "{status:?}");

    // The server asks the machine for what its jobs wrote.
    let there = test.torc(["logs", "j_1", "-w", "w", "--stdout"]).success().stdout;
    assert!(["h1\n", "h2\n"].contains(&&*there), "{there}");

    // Logs come here, without the token.
    world.remote(&["logs", "--to", "collected"]).success();
    let logs = test.shell(
        "cat collected/*/pool/output/job_stdio/*.o | sort -u; find collected -name '*token*'",
    );
    let logs = logs.success().stdout;
    assert!(logs.lines().all(|line| ["h1", "h2"].contains(&line)) && !logs.is_empty(), "{logs}");
    world.remote(&["logs", "h1", "-n", "5"]).success().says("h1: == pool");

    let stopped = world.rows(&["stop"]);
    assert!(stopped.iter().all(|row| row["state"] == "stopped"), "{stopped:?}");
    assert_eq!(
        world.machines.on("h1", "ls .torc-remote/pool/token 2>&1 | wc -l; ls .torc-remote/pool"),
        world.machines.on("h2", "ls .torc-remote/pool/token 2>&1 | wc -l; ls .torc-remote/pool")
    );
    let status = world.rows(&["status"]);
    assert!(status.iter().all(|row| row["state"] == "ended"), "{status:?}");
}

#[test]
fn machines_that_cannot_be_reached_are_named_and_bad_calls_are_refused() {
    let Some(world) = World::new() else { return };
    let done = world.remote(&["status", "h1", "nowhere.invalid"]).exit(3).json();
    let rows = done["remote_runners"].as_array().expect("a list");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (text(&rows[0]["host"]), text(&rows[0]["state"])),
        ("nowhere.invalid", "unreachable")
    );
    world.remote(&["run"]).exit(2).tells("no machine");
    world.remote(&["add", "a;b"]).exit(2).tells("as ssh names it");
    // A server on the loopback address is another one there.
    let local = Test::new();
    let mut server = local.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    local.torc(["remote", "run", "h1"]).exit(2).tells("--server");
    // A program of another version is not used.
    world.machines.on("h1", "printf '#!/bin/sh\\necho torc 0.0.1\\n' > other; chmod 755 other");
    let other = format!("{}/other", world.machines.on("h1", "pwd").trim());
    let done = world.remote(&["run", "h1", "--program", &other]).exit(3).json();
    assert!(text(&done["remote_runners"][0]["note"]).contains("torc 0.0.1"), "{done}");
}
