//! Runners that people pause and send away.

use crate::support::{Test, text};
use serde_json::Value;

/// The first runner as `torc runners list` has it.
fn runner(test: &Test) -> Value {
    let list = test.torc(["-f", "json", "runners", "list", "--all"]).success().json();
    list["runners"][0].clone()
}

const SPEC: &str = "
name: w
jobs:
  - {name: first, command: 'echo up > up && read line < gate'}
  - {name: second, command: 'true'}
";

#[test]
fn a_drained_runner_ends_what_it_runs_and_takes_jobs_again_when_it_is_resumed() {
    let test = Test::new().spec(SPEC);
    let (gate, up) = (test.gate("gate"), test.gate("up"));
    let running = test.torc(["run", "workflow.yaml", "-j", "1"]).spawn();
    up.read();
    test.torc(["runners", "drain", "1"]).success().says("drained");
    gate.open();
    // Its end is reported with a claim, which gets nothing.
    let mut events = test.torc(["-f", "json", "events", "w", "--follow"]).spawn();
    events.wait_for_stdout("job_completed");
    events.signal("INT");
    events.wait();
    assert_eq!(test.statuses(), ["first completed", "second ready"], "it takes no job");
    assert_eq!(text(&runner(&test)["ordered"]), "drain");
    test.torc(["runners", "resume", "1"]).success();
    running.wait().expect(0);
    assert_eq!(test.statuses(), ["first completed", "second completed"]);
    test.torc(["runners", "drain", "1"]).exit(2).tells("has left");
    test.torc(["runners", "drain", "99"]).exit(2).tells("99");
}

#[test]
fn a_removed_runner_leaves_when_it_holds_no_job() {
    let test = Test::new().spec(SPEC);
    let (gate, up) = (test.gate("gate"), test.gate("up"));
    let running = test.torc(["run", "workflow.yaml", "-j", "1"]).spawn();
    up.read();
    test.torc(["runners", "remove", "1"]).success().says("leaves");
    gate.open();
    let done = running.wait();
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert_eq!(test.statuses(), ["first completed", "second ready"]);
    assert!(text(&runner(&test)["end_reason"]).contains("removed"), "{}", runner(&test));
    test.torc(["run", "workflow.yaml"]).success();
    assert_eq!(test.statuses(), ["first completed", "second completed"]);
}
