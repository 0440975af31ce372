//! `torc exec --direct`: one command in the place of the next job.

use crate::support::{Running, Test, text};

fn serve(test: &Test) -> Running {
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    server
}

fn reservations(test: &Test) -> Vec<String> {
    let all = test.torc(["-f", "json", "reservations", "list"]).success().json();
    let all = all["reservations"].as_array().expect("a list").clone();
    all.iter().map(|r| format!("{} {}", text(&r["scope"]), text(&r["status"]))).collect()
}

#[test]
fn it_comes_before_what_waits_and_after_what_runs() {
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: a, command: 'read line < gate; echo a >> order'}\n  - {name: b, command: 'echo b >> order', depends_on: [a]}\n  - {name: c, command: 'echo c >> order', depends_on: [b]}\n",
    );
    let gate = test.gate("gate");
    let _server = serve(&test);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let runner = test.torc(["runner", "w", "-j", "1"]).spawn();
    let mut events = test.torc(["events", "--follow"]).spawn();
    events.wait_for_stdout("job_started");
    drop(events);
    let mut direct =
        test.torc(["exec", "--direct", "--", "bash", "-c", "echo direct >> order"]).spawn();
    direct.wait_for_stderr("waiting for one of 1 running jobs to end");
    let why = test.torc(["why", "b"]).done();
    assert!(why.stdout.contains("reservation") || why.stdout.contains("a"), "{}", why.stdout);
    // A second one is told who is first.
    test.torc(["exec", "--direct", "--", "true"]).exit(2).tells("reservation 1 of");
    gate.open();
    direct.wait().expect(0);
    runner.wait().expect(0);
    assert_eq!(test.read("order"), "a\ndirect\nb\nc\n");
    assert_eq!(reservations(&test), ["all RELEASED"]);
}

#[test]
fn it_releases_when_it_is_interrupted_or_fails() {
    let test = Test::new();
    let _server = serve(&test);
    test.torc(["limits", "set", "gpu", "1"]).success();
    test.torc(["exec", "--direct", "--scope", "limit:gpus", "--", "true"])
        .exit(2)
        .tells("did you mean `gpu`?");
    test.torc(["exec", "--direct", "--scope", "limit:gpu", "--", "bash", "-c", "exit 4"])
        .exit(1)
        .tells("returned 4");
    let gate = test.gate("gate");
    let direct = test
        .torc(["exec", "--direct", "--", "bash", "-c", "echo go > gate; exec sleep 1000"])
        .spawn();
    assert_eq!(std::fs::read_to_string(gate_path(&test)).expect("it runs"), "go\n");
    assert_eq!(reservations(&test), ["all ACTIVE", "limit:gpu RELEASED"]);
    direct.signal("INT");
    direct.wait().expect(1).tells("ended by signal 15");
    assert_eq!(reservations(&test), ["all RELEASED", "limit:gpu RELEASED"]);
    drop(gate);
}

#[test]
fn a_reservation_needs_a_server_that_stays() {
    let test = Test::new().spec("name: w\njobs:\n  - {name: a, command: 'true'}\n");
    test.torc(["create", "workflow.yaml"]).success();
    test.torc(["reservations", "create", "all"]).exit(2).tells("torc server run");
    assert!(reservations(&test).is_empty());
    let _server = serve(&test);
    test.torc(["reservations", "create", "all"])
        .success()
        .says("reservation 1 is active: no new job starts for ");
    assert_eq!(reservations(&test), ["all ACTIVE"]);
}

fn gate_path(test: &Test) -> std::path::PathBuf {
    test.path("gate")
}

#[test]
fn it_needs_no_server_and_takes_exactly_one_command() {
    let test = Test::new();
    test.torc(["exec", "--direct", "--", "sh", "-c", "echo here > out"]).success();
    assert_eq!(test.read("out"), "here\n");
    test.torc(["exec", "--direct", "-c", "true"]).exit(2);
    test.torc(["exec", "--direct"]).exit(2);
    test.torc(["exec", "--direct", "--", "no-such-program"]).exit(2).tells("no-such-program");
}
