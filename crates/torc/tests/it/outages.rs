//! Outages: the server is away, or the network between it and a runner is, for longer than every
//! lease. Jobs run to their end, no result is lost, and no job runs twice.
//!
//! A runner in a UTS namespace has another host name, so that the server takes it for one of another
//! machine; a network namespace cuts it off for real. Both need root.

use crate::support::{Running, Test};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// The lease is 60 s, and so is the least disown deadline.
const LONGER_THAN_EVERY_LEASE: Duration = Duration::from_secs(66);
const PATIENCE: Duration = Duration::from_secs(90);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Namespaces can be made here. In CI that they cannot is a failure.
fn can_unshare() -> bool {
    let made = Command::new("unshare").args(["--uts", "--net", "true"]).status();
    let can = made.is_ok_and(|status| status.success());
    if !can {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no namespaces can be made here");
        eprintln!("skipped: namespaces need root");
    }
    can
}

fn lines(test: &Test, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(test.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn serve(test: &Test, args: &[&str]) -> Running {
    let mut server = test.torc([&["server", "run"], args].concat()).spawn();
    server.wait_for_stdout("://");
    server
}

/// Lines in the spools of all runners, without their headers.
fn spooled(test: &Test) -> usize {
    let files = std::fs::read_dir(test.path("output/.torc_spool")).into_iter().flatten().flatten();
    files
        .filter(|file| file.path().extension().is_some_and(|ending| ending == "jsonl"))
        .map(|file| {
            std::fs::read_to_string(file.path())
                .unwrap_or_default()
                .lines()
                .count()
                .saturating_sub(1)
        })
        .sum()
}

/// Every job ran once, by its own witness and by the server's record.
fn assert_once(test: &Test, jobs: usize) {
    let mut seen = lines(test, "witness");
    seen.sort();
    let before = seen.len();
    seen.dedup();
    assert_eq!((before, seen.len()), (jobs, jobs), "{seen:?}");
    let results = test.torc(["-f", "json", "results", "list"]).success().json();
    let results = results["results"].as_array().expect("results").clone();
    assert_eq!(results.len(), jobs, "{results:#?}");
    let is_good = |result: &Value| result["state"] == "completed" && result["attempt_id"] == 1;
    assert!(results.iter().all(is_good), "{results:#?}");
}

const FIFTY: &str = "name: w
compute_node_wait_for_healthy_database_minutes: MINUTES
jobs:
  - {name: 'j{i}', command: 'echo >> begun; until [ -e go ]; do sleep 0.2; done; echo $TORC_JOB_NAME >> witness',
     parameters: {i: '1:50'}}
";

/// Fifty jobs run; the server dies; they end.
fn fifty_without_server(minutes: u32, runner: impl FnOnce(&Test) -> Running) -> (Test, Running) {
    let test = Test::new().spec(&FIFTY.replace("MINUTES", &minutes.to_string()));
    let server = serve(&test, &[]);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let runner = runner(&test);
    until("fifty jobs run", || lines(&test, "begun").len() == 50);
    server.signal("KILL");
    drop(server);
    test.write("go", "");
    until("fifty results on disk", || spooled(&test) == 50);
    (test, runner)
}

const FIFTY_AT_ONCE: [&str; 5] = ["runner", "w", "-j", "50", "--ignore-resources"];

#[test]
fn a_server_that_is_away_for_longer_than_every_lease_loses_none_of_fifty_results() {
    let (test, runner) = fifty_without_server(20, |test| test.torc(FIFTY_AT_ONCE).spawn());
    // Not a wait for an event: the passing of the time is what is tested.
    std::thread::sleep(LONGER_THAN_EVERY_LEASE);
    let _server = serve(&test, &[]);
    runner.wait().expect(0);
    assert_once(&test, 50);
    assert_eq!(spooled(&test), 0, "delivered");
}

#[test]
fn results_of_a_runner_that_was_killed_meanwhile_count() {
    let (test, runner) = fifty_without_server(20, |test| test.torc(FIFTY_AT_ONCE).spawn());
    runner.signal("KILL");
    drop(runner);
    let _server = serve(&test, &[]);
    until("the server has read them", || {
        let status = test.torc(["-f", "json", "status"]).success().json();
        status["counts"]["completed"] == 50
    });
    assert_once(&test, 50);
}

#[test]
fn results_of_another_host_are_delivered_by_hand() {
    if !can_unshare() {
        return;
    }
    // It runs nothing and no server answers: it leaves at once, since it is told to wait for 0 min.
    let (test, runner) = fifty_without_server(0, |test| {
        test.shell(&format!(
            "exec unshare --uts sh -c 'hostname elsewhere; exec torc {}'",
            FIFTY_AT_ONCE.join(" ")
        ))
        .spawn()
    });
    let left = runner.wait();
    assert!(left.stderr.contains("no answer from the server"), "{}", left.stderr);
    let _server = serve(&test, &[]);
    let status = test.torc(["-f", "json", "status"]).success().json();
    // It was perhaps not told that they had started.
    let held = ["pending", "running"].map(|s| status["counts"][s].as_i64().unwrap_or(0));
    assert_eq!(held.iter().sum::<i64>(), 50, "unknown is not dead: {status}");
    let told = test.torc(["-f", "json", "runner", "deliver", "output"]).success().json();
    assert_eq!((&told["accepted"], &told["too_late"]), (&50.into(), &0.into()), "{told}");
    assert_once(&test, 50);
    assert_eq!(spooled(&test), 0, "delivered");
    test.torc(["runner", "deliver", "output"]).success().tells("0 results delivered");
}

/// A runner in namespaces of its own, as if on another machine, and a wire to it that can be cut.
struct Wire {
    name: String,
    server: String,
    runner: String,
}

/// Which packets do not arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cut {
    Both,
    ToServer,
    ToRunner,
}

fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Wire {
    /// `number` chooses the addresses: 0 to 60.
    fn new(number: u32) -> Self {
        let name = format!("torc{}x{number}", std::process::id() % 100_000);
        let address = |last: u32| format!("10.213.78.{}", 4 * number + last);
        let wire = Self { server: address(1), runner: address(2), name };
        let Self { name, server, runner } = &wire;
        ip(&format!("netns add {name}"));
        ip(&format!("link add {name}a type veth peer name {name}b netns {name}"));
        ip(&format!("addr add {server}/30 dev {name}a"));
        ip(&format!("link set {name}a up"));
        ip(&format!("-n {name} addr add {runner}/30 dev {name}b"));
        ip(&format!("-n {name} link set {name}b up"));
        wire
    }

    fn cut(&self, cut: Cut) {
        let Self { name, server, runner } = self;
        match cut {
            Cut::Both => ip(&format!("link set {name}a down")),
            Cut::ToRunner => ip(&format!("route add blackhole {runner}/32")),
            Cut::ToServer => ip(&format!("-n {name} route add blackhole {server}/32")),
        }
    }

    fn mend(&self, cut: Cut) {
        let Self { name, server, runner } = self;
        match cut {
            Cut::Both => ip(&format!("link set {name}a up")),
            Cut::ToRunner => ip(&format!("route del blackhole {runner}/32")),
            Cut::ToServer => ip(&format!("-n {name} route del blackhole {server}/32")),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Self { name, runner, .. } = self;
        for args in [
            format!("route del blackhole {runner}/32"),
            format!("link del {name}a"),
            format!("netns del {name}"),
        ] {
            // Some of it may not be there.
            let _ = Command::new("ip").args(args.split(' ')).output();
        }
    }
}

/// Ten jobs run on a runner that is cut off, end meanwhile, and ten more follow. A second runner on
/// the server's host would take whatever were given up.
fn partition(number: u32, cut: Cut) {
    let test = Test::new().spec(
        "name: w
jobs:
  - {name: 'a{i}', command: 'echo >> begun; until [ -e go ]; do sleep 0.2; done; echo $TORC_JOB_NAME >> witness',
     parameters: {i: '1:10'}}
  - {name: 'b{i}', command: 'echo $TORC_JOB_NAME >> witness', depends_on: ['a{i}'], parameters: {i: '1:10'}}
",
    );
    let wire = Wire::new(number);
    let _server = serve(&test, &["--host", &wire.server, "--insecure"]);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let call = format!(
        "exec ip netns exec {} unshare --uts sh -c 'hostname far{number}; exec torc runner w -j 10 --ignore-resources'",
        wire.name
    );
    let far = test.shell(&call).spawn();
    until("ten jobs run", || lines(&test, "begun").len() == 10);
    wire.cut(cut);
    let near = test.torc(["runner", "w"]).spawn();
    test.write("go", "");
    until("ten jobs have ended", || lines(&test, "witness").len() >= 10);
    // Not a wait for an event: the passing of the time is what is tested.
    std::thread::sleep(LONGER_THAN_EVERY_LEASE);
    let status = test.torc(["-f", "json", "status"]).success().json();
    let known = status["counts"]["completed"].as_i64().unwrap_or(0);
    assert!(known < 10, "{cut:?}: the wire was not cut: {status}");
    assert_eq!(status["counts"]["failed"].as_i64().unwrap_or(0), 0, "{cut:?}: {status}");
    wire.mend(cut);
    near.wait().expect(0);
    far.wait().expect(0);
    assert_once(&test, 20);
}

#[test]
fn a_partition_in_either_direction_loses_and_doubles_nothing() {
    if !can_unshare() {
        return;
    }
    std::thread::scope(|scope| {
        for (number, cut) in [(0, Cut::Both), (1, Cut::ToServer), (2, Cut::ToRunner)] {
            scope.spawn(move || partition(number, cut));
        }
    });
}
