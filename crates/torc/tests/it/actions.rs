//! Actions: each fires once at its trigger, or once per worker.

use crate::support::Test;

const SPEC: &str = r#"
name: acts
jobs:
  - {name: a, command: "true"}
  - {name: "b_{i}", command: "true", depends_on: [a], parameters: {i: "1:4"}}
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: ["echo start >> log"]}
  - {trigger_type: on_jobs_ready, action_type: run_commands, job_name_regexes: ["^b_"], commands: ["echo ready >> log"]}
  - {trigger_type: on_jobs_complete, action_type: run_commands, job_name_regexes: ["^b_"], commands: ["echo done >> log"]}
  - {trigger_type: on_worker_start, action_type: run_commands, commands: ["echo worker >> log"], persistent: true}
  - {trigger_type: on_worker_complete, action_type: run_commands, commands: ["echo leave >> log"], persistent: true}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ["echo end >> log", "echo end2 >> log"]}
"#;

#[test]
fn every_trigger_fires_once() {
    let test = Test::new().spec(SPEC);
    assert_eq!(test.run().code, Some(0));
    let log = test.read("log");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["done", "end", "end2", "leave", "ready", "start", "worker"]);
}

#[test]
fn an_action_about_canceled_jobs_fires_too() {
    let spec = "name: canceled\njobs:\n  - {name: a, command: exit 1}\n  - {name: b, command: 'true', depends_on: [a]}\nactions:\n  - {trigger_type: on_jobs_complete, action_type: run_commands, jobs: [a, b], commands: ['echo over >> log']}\n  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ['echo end >> log']}\n";
    let test = Test::new().spec(spec);
    assert_eq!(test.run().code, Some(1));
    let log = test.read("log");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["end", "over"]);
}

#[test]
fn an_action_is_not_forgotten_when_its_runner_dies_after_the_last_job() {
    let test = Test::new().spec(
        "name: dies\njobs:\n  - {name: a, command: 'true'}\nactions:\n  - trigger_type: on_workflow_complete\n    action_type: run_commands\n    commands: ['if mkdir once; then kill -9 $PPID; else echo done >> log; fi']\n",
    );
    assert_eq!(test.run().code, None);
    assert!(!test.path("log").exists());
    test.torc(["run", "latest"]).success();
    assert_eq!(test.read("log"), "done\n");
    test.torc(["run", "latest"]).success().tells("is complete already");
    assert_eq!(test.read("log"), "done\n");
}
