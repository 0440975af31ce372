//! Disks that fail and disks that are full: what cannot be made durable is refused, what was
//! acknowledged stays, and the server goes on when the disk does.
//!
//! The faults come from a small library in front of the C library, so that they need neither root
//! nor another file system. It is compiled here, with the compiler that also compiles SQLite.

use crate::support::{Running, Test};
use std::path::PathBuf;
use std::process::Command;
use torc_model::words;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A directory with a server whose disk can be broken.
struct World {
    test: Test,
    library: PathBuf,
}

impl World {
    fn new(spec: &str) -> Self {
        let test = Test::new().spec(spec).file("faults.c", include_str!("disk_faults.c"));
        let library = test.path("faults.so");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(test.path("faults.c"))
            .arg("-ldl")
            .status();
        assert!(built.expect("a C compiler").success(), "the library compiles");
        Self { test, library }
    }

    fn serve(&self, port: &str) -> (Running, String) {
        let call = self.test.torc(["server", "run", "--port", port]);
        let call = call.env("LD_PRELOAD", &self.library).env("DISK_FAULT", self.test.path("fault"));
        let mut running = call.spawn();
        let url = running.wait_for_stdout("http://").trim().to_owned();
        (running, url.rsplit(':').next().expect("a port").to_owned())
    }

    fn fail(&self, what: &str, error: i32) {
        // Whole or not at all: the server may look at any moment.
        self.test.write("fault.new", &format!("{what} {error}\n"));
        std::fs::rename(self.test.path("fault.new"), self.test.path("fault"))
            .expect("the disk fails");
    }

    fn heal(&self) {
        std::fs::remove_file(self.test.path("fault")).expect("the disk is well");
    }

    fn names(&self) -> Vec<String> {
        let all = self.test.torc(["-f", "json", "workflows", "list"]).success().json();
        let all = all["workflows"].as_array().expect("a list").clone();
        let mut names: Vec<String> =
            all.iter().map(|w| w["name"].as_str().unwrap_or_default().to_owned()).collect();
        names.sort();
        names
    }

    fn create(&self, name: &str) -> crate::support::Done {
        self.test.write(
            &format!("{name}.yaml"),
            &format!("name: {name}\njobs: [{{name: a, command: 'true'}}]\n"),
        );
        self.test.torc(["create", &format!("{name}.yaml"), "--initialize"]).done()
    }
}

#[test]
fn what_can_not_be_written_is_refused_and_what_was_acknowledged_stays() {
    let world = World::new("name: unused\njobs: [{name: a, command: 'true'}]\n");
    let (server, port) = world.serve("0");
    world.create("before").expect(0);
    let faults = [
        ("fsync", EIO, "the database failed"),
        ("write", ENOSPC, "the disk of the database is full"),
        ("write", EIO, "the database failed"),
    ];
    for (what, error, said) in faults {
        world.fail(what, error);
        for name in ["refused", "refused-too"] {
            let refused = world.create(name);
            assert_ne!(refused.code, Some(0), "{what} {error}: {}", refused.stdout);
            assert!(words::has(&refused.stderr, said), "{what} {error}: {}", refused.stderr);
        }
        assert_eq!(
            world.names(),
            ["before"],
            "{what} {error}: reading goes on, and nothing of it counts"
        );
        world.heal();
    }
    world.create("after").expect(0);
    server.signal("KILL");
    server.wait();
    let (server, _) = world.serve(&port);
    let names = world.names();
    // What was refused may have reached the disk all the same; then it is whole. What was
    // acknowledged must be there.
    assert!(names.contains(&"before".into()) && names.contains(&"after".into()), "{names:?}");
    world.test.torc(["server", "doctor"]).success();
    drop(server);
}

#[test]
fn a_result_waits_for_the_disk() {
    let spec = "name: w\njobs:\n  - {name: a, command: 'read line < gate; echo a >> ran'}\n  - {name: b, command: 'echo b >> ran', depends_on: [a]}\n";
    let world = World::new(spec);
    let gate = world.test.gate("gate");
    let (server, _) = world.serve("0");
    world.test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let mut runner = world.test.torc(["runner", "w"]).spawn();
    let mut events = world.test.torc(["events", "--follow"]).spawn();
    events.wait_for_stdout("job_started");
    drop(events);
    world.fail("fsync", EIO);
    gate.open();
    runner.wait_for_stderr("the server does not answer");
    assert_eq!(
        world.test.statuses(),
        ["a running", "b blocked"],
        "nothing that is not durable is told"
    );
    world.heal();
    runner.wait().expect(0).tells("2 of 2 jobs succeeded");
    assert_eq!(world.test.read("ran"), "a\nb\n");
    drop(server);
    world.test.torc(["server", "doctor"]).success();
}
