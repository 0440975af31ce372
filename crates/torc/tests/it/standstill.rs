//! Standing still: server, runner, guard and jobs are stopped (SIGSTOP), each alone and all
//! together, for longer than the lease, the gap after which a server notices its own sleep, and the
//! disown deadline. Nothing may be lost, and nothing may run twice.
//!
//! The worlds stand still at the same time, in threads of one test: they only wait.

use crate::support::{Running, TORC, Test};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The lease is 60 s, the least disown deadline as well, and the gap 30 s.
const PAUSE: Duration = Duration::from_secs(66);
/// After the pause everything ends within this time.
const PATIENCE: Duration = Duration::from_secs(90);

/// `short` ends while others stand still, `long` waits until they are awake. Each takes its lock, or
/// says that another process has it.
const SPEC: &str = r#"
name: w
disown_seconds: 60
jobs:
  - {name: long, command: "bash job.sh long"}
  - {name: short, command: "bash job.sh short"}
  - {name: after, command: "bash job.sh after", depends_on: [long, short]}
"#;
const JOB: &str = r#"
exec 9>>"$1.lock"
flock -n 9 || echo overlap >> "$1.log"
echo "start $TORC_ATTEMPT_ID" >> "$1.log"
case $1 in
    long) until [ -e go ]; do sleep 0.2; done ;;
    short) until [ -e asleep ]; do sleep 0.2; done; sleep 2 ;;
esac
echo "end $TORC_ATTEMPT_ID" >> "$1.log"
"#;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Server,
    Runner,
    Guard,
    Jobs,
    Everything,
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn below(pid: u32) -> Vec<u32> {
    let direct = children(pid);
    direct.iter().flat_map(|child| below(*child)).chain(direct.iter().copied()).collect()
}

fn exe(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The guard of a runner, and the processes of its jobs.
fn beside(runner: u32) -> (Vec<u32>, Vec<u32>) {
    below(runner).into_iter().partition(|pid| exe(*pid) == exe(runner))
}

fn signal(pids: &[u32], name: &str) {
    for pid in pids {
        // A short job may have ended by itself.
        let mut kill = Command::new("kill");
        let _ = kill.args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct World {
    test: Test,
    server: Running,
}

impl World {
    fn new() -> Self {
        let test = Test::new().spec(SPEC).file("job.sh", JOB);
        let mut server = test.torc(["server", "run"]).spawn();
        server.wait_for_stdout("http://");
        test.torc(["create", "workflow.yaml", "--initialize"]).success();
        Self { test, server }
    }

    fn log(&self, job: &str) -> String {
        fs::read_to_string(self.test.path(&format!("{job}.log"))).unwrap_or_default()
    }

    fn await_begin(&self) {
        until("both jobs run", || {
            ["long", "short"].iter().all(|job| self.log(job).contains("start"))
        });
    }
}

fn stand_still(who: Who) {
    let world = World::new();
    let first = world.test.torc(["runner", "w"]).spawn();
    world.await_begin();
    // It would take over whatever were given up.
    let second = world.test.torc(["runner", "w"]).spawn();
    let (guard, jobs) = beside(first.pid());
    assert_eq!(guard.len(), 1, "{who:?}: {guard:?}, jobs {jobs:?}");
    assert!(!jobs.is_empty(), "{who:?}");
    // With a guard it has registered.
    until("the second runner is there", || !beside(second.pid()).0.is_empty());
    let (second_guard, _) = beside(second.pid());
    let server = vec![world.server.pid()];
    // Those who wake first come first: a server that wakes before its runners could speak.
    let sleepers: Vec<Vec<u32>> = match who {
        Who::Server => vec![server],
        Who::Runner => vec![vec![first.pid()]],
        Who::Guard => vec![guard],
        Who::Jobs => vec![jobs],
        Who::Everything => {
            vec![server, second_guard, vec![second.pid()], guard, vec![first.pid()], jobs]
        }
    };
    sleepers.iter().rev().for_each(|pids| signal(pids, "STOP"));
    world.test.write("asleep", "");
    std::thread::sleep(PAUSE);
    if who == Who::Runner {
        let told = world.test.torc(["why", "long"]).done().stdout;
        assert!(told.contains("stopped") || told.contains("stands still"), "{told}");
    }
    for pids in &sleepers {
        signal(pids, "CONT");
        // Time for several looks of the one that wakes before the others.
        std::thread::sleep(Duration::from_secs(3));
    }
    world.test.write("go", "");
    for runner in [first, second] {
        let done = runner.wait();
        assert_eq!(done.code, Some(0), "{who:?}: {}{}", done.stdout, done.stderr);
    }
    for job in ["long", "short", "after"] {
        assert_eq!(world.log(job), "start 1\nend 1\n", "{who:?}: {job}");
    }
    assert_eq!(
        world.test.statuses(),
        ["long completed", "short completed", "after completed"],
        "{who:?}"
    );
    world.test.torc(["server", "doctor"]).success();
}

/// A runner that the server cannot see, because it says that it is on another host. Its guard keeps
/// the deadline while the runner stands still: its job is dead before its retry starts.
fn guard_keeps_the_fence() {
    let world = World::new();
    let root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let flags: &[&str] = if root { &["--uts"] } else { &["--user", "--map-root-user", "--uts"] };
    let probe = Command::new("unshare").args(flags).args(["hostname", "elsewhere"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no host of another name can be made here (unshare --uts)");
    }
    let script = format!("hostname elsewhere; exec {TORC} runner w");
    let log = fs::File::create(world.test.path("first.log")).expect("a file");
    let mut first = Command::new("unshare")
        .args(flags)
        .args(["sh", "-c", &script])
        .current_dir(world.test.path(""))
        .env("HOME", world.test.path(""))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log)
        .process_group(0)
        .spawn()
        .expect("a runner");
    world.await_begin();
    world.test.write("asleep", "");
    until("the short job counts", || world.test.statuses().contains(&"short completed".to_owned()));
    let second = world.test.torc(["runner", "w"]).spawn();
    let (_, jobs) = beside(first.id());
    assert!(!jobs.is_empty());
    signal(&[first.id()], "STOP");
    until("the guard ends the runner", || first.try_wait().is_ok_and(|status| status.is_some()));
    // Its processes were stopped and killed by the guard; a zombie's parent is gone, too.
    until("the guard ends the job", || jobs.iter().all(|pid| exe(*pid).is_none()));
    assert_eq!(world.log("long"), "start 1\n", "the retry starts later");
    world.test.write("go", "");
    let done = second.wait();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(world.log("long"), "start 1\nstart 2\nend 2\n");
    assert_eq!(world.log("short"), "start 1\nend 1\n");
    world.test.torc(["server", "doctor"]).success();
}

#[test]
fn a_part_that_stands_still_for_longer_than_every_deadline_loses_and_doubles_nothing() {
    std::thread::scope(|scope| {
        for who in [Who::Server, Who::Runner, Who::Guard, Who::Jobs, Who::Everything] {
            scope.spawn(move || stand_still(who));
        }
        scope.spawn(guard_keeps_the_fence);
    });
}
