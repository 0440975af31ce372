//! The life of a run: interrupted, killed, watched, canceled, gone on with.

use crate::support::{Running, Test, processes_with, text};

/// One job that waits at a gate, and one after it.
const GATED: &str = r#"
name: gated
jobs:
  - {name: first, command: "echo begun > begun.txt; read line < gate; echo first >> order.txt"}
  - {name: second, command: "echo second >> order.txt", depends_on: [first]}
"#;

fn start(test: &Test) -> Running {
    let mut run = test.torc(["run", "workflow.yaml"]).spawn();
    run.wait_for_stderr("created workflow");
    run
}

/// Waits until a job of the latest workflow has this status.
fn wait_for_status(test: &Test, job: &str, kind: &str) {
    let id = test.torc(["-f", "json", "jobs", "get", job]).success().json()["id"].clone();
    let mut events = test.torc(["-f", "json", "events", "--follow"]).spawn();
    loop {
        let line = events.wait_for_stdout(kind);
        let event: serde_json::Value = serde_json::from_str(&line).expect("an event");
        if event["job_id"] == id {
            return;
        }
    }
}

#[test]
fn a_second_terminal_sees_the_live_run() {
    let test = Test::new().spec(GATED);
    let gate = test.gate("gate");
    let run = start(&test);
    wait_for_status(&test, "first", "job_started");
    let status = test.torc(["-f", "json", "status"]).success().json();
    assert_eq!(status["counts"]["running"], 1, "{status}");
    assert_eq!(status["active_runners"], 1, "{status}");
    test.torc(["why", "second"]).success().says("it waits for").says("first");
    gate.open();
    run.wait().expect(0).tells("2 of 2 jobs succeeded");
    assert_eq!(test.read("order.txt"), "first\nsecond\n");
    assert!(!test.exists(".torc/server.json"), "the address of a server that is gone");
}

#[test]
fn the_same_spec_again_watches_a_run_that_is_alive() {
    let test = Test::new().spec(GATED);
    let gate = test.gate("gate");
    let run = start(&test);
    wait_for_status(&test, "first", "job_started");
    let mut watcher = test.torc(["run", "workflow.yaml"]).spawn();
    watcher.wait_for_stderr("watching it");
    gate.open();
    run.wait().expect(0);
    watcher.wait().expect(0).tells("2 of 2 jobs succeeded");
    assert_eq!(test.torc(["-f", "json", "workflows", "list"]).success().json()["total_count"], 1);
    assert_eq!(test.read("order.txt"), "first\nsecond\n");
}

#[test]
fn ctrl_c_ends_jobs_gently_and_the_same_command_goes_on() {
    let test = Test::new().spec(
        r#"
name: gentle
jobs:
  - name: work
    command: |
      trap 'echo asked >> asked.txt; exit 0' TERM
      echo $TORC_ATTEMPT_ID >> attempts.txt
      if [ $TORC_ATTEMPT_ID = 1 ]; then read line < gate & wait; fi
"#,
    );
    test.gate("gate");
    let mut run = start(&test);
    wait_for_status(&test, "work", "job_started");
    run.signal("INT");
    run.wait_for_stderr("stopping");
    run.wait().expect(130).tells("resume with `torc run 1`");
    assert_eq!(test.read("asked.txt"), "asked\n");
    assert_eq!(test.statuses(), ["work ready"]);
    test.run().expect(0).tells("resuming gentle (workflow 1)");
    assert_eq!(test.read("attempts.txt").lines().count(), 2);
}

#[test]
fn a_second_ctrl_c_kills() {
    let test = Test::new().spec(
        r#"
name: stubborn
jobs:
  - {name: deaf, command: "trap '' TERM INT; echo $$ > pid.txt; while :; do read line < gate; done"}
"#,
    );
    test.gate("gate");
    let mut run = start(&test);
    wait_for_status(&test, "deaf", "job_started");
    run.signal("INT");
    run.wait_for_stderr("stopping");
    run.signal("INT");
    run.wait_for_stderr("killing");
    run.wait().expect(130);
    let pid = test.read("pid.txt").trim().to_string();
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "the job survived");
    assert_eq!(test.statuses(), ["deaf ready"]);
}

#[test]
fn after_a_kill_the_same_command_goes_on_and_what_was_done_stays_done() {
    let test = Test::new().spec(
        r#"
name: crash
jobs:
  - {name: before, command: "echo before >> order.txt"}
  - {name: during, command: "[ $TORC_ATTEMPT_ID -gt 1 ] || read line < gate; echo during >> order.txt", depends_on: [before]}
  - {name: after, command: "echo after >> order.txt", depends_on: [during]}
"#,
    );
    test.gate("gate");
    let run = start(&test);
    wait_for_status(&test, "during", "job_started");
    run.signal("KILL");
    run.wait();
    test.run().expect(0).tells("resuming crash (workflow 1)");
    assert_eq!(test.read("order.txt"), "before\nduring\nafter\n");
    let attempts = test.torc(["-f", "json", "jobs", "attempts", "during"]).success().json();
    let attempts = attempts["attempts"].as_array().expect("attempts").clone();
    assert_eq!(attempts.len(), 2);
    assert_eq!(
        (&attempts[0]["cause"], &attempts[0]["return_code"]),
        (&"lost".into(), &(-128).into())
    );
    assert_eq!(attempts[1]["retry_of"], attempts[0]["id"]);
    let leftover = processes_with(&test.path("").display().to_string());
    assert!(leftover.is_empty(), "{leftover:?}");
}

#[test]
fn a_complete_workflow_is_up_to_date_and_new_starts_over() {
    let test = Test::new().spec("name: again\njobs:\n  - {name: a, command: 'true'}\n");
    test.run().expect(0).tells("created workflow 1");
    test.run().expect(0).tells("up to date: 1 of 1 job");
    test.torc(["run", "1"]).success().tells("is complete already");
    test.torc(["run", "workflow.yaml", "--new"]).success().tells("created workflow 2");
    test.torc(["run", "again"]).success().tells("workflow 2 `again` is complete already");
    test.torc(["create", "workflow.yaml"]).success().says("created workflow 3");
    test.run().expect(0).tells("resuming again (workflow 3)");
    test.torc(["run", "latest", "--new"]).exit(2).tells("`--new` needs a spec");
}

#[test]
fn what_was_canceled_runs_with_the_same_command() {
    let test = Test::new().spec("name: bad\njobs:\n  - {name: a, command: 'true'}\n");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    test.torc(["cancel", "1"]).success();
    test.run().expect(0).tells("1 that did not succeed").tells("a: it was canceled");
    assert_eq!(test.statuses(), ["a completed"]);
}

#[test]
fn a_short_time_limit_is_used() {
    let test = Test::new().spec("name: quick\njobs:\n  - {name: a, command: 'true'}\n");
    test.torc(["run", "workflow.yaml", "--time-limit", "15s"])
        .success()
        .tells("1 of 1 job succeeded");
}

#[test]
fn a_runner_finds_a_server_that_was_killed_and_started_again() {
    let test = Test::new().spec(GATED);
    let gate = test.gate("gate");
    test.torc(["create", "--initialize", "workflow.yaml"]).success();
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://127.0.0.1");
    let runner = test.torc(["runner", "1"]).spawn();
    wait_for_status(&test, "first", "job_started");
    server.signal("KILL");
    server.wait();
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://127.0.0.1");
    gate.open();
    runner.wait().expect(0);
    server.signal("TERM");
    server.wait();
    assert_eq!(test.read("order.txt"), "first\nsecond\n");
}

#[test]
fn cancel_stops_what_runs() {
    let test = Test::new().spec(GATED);
    test.gate("gate");
    let run = start(&test);
    wait_for_status(&test, "first", "job_started");
    test.torc(["cancel", "latest"]).success().says("canceled gated (workflow 1)");
    run.wait().expect(1).tells("2 canceled");
    assert_eq!(test.statuses(), ["first canceled", "second canceled"]);
    assert_eq!(text(&test.last_attempt("first")["cause"]), "canceled");
    assert!(!test.exists("order.txt"));
}

#[test]
fn a_run_takes_over_the_server_of_a_run_that_ends() {
    let test = Test::new().spec(GATED).file(
        "other.yaml",
        "name: other\njobs:\n  - {name: x, command: 'read line < other_gate; echo x > x.txt; torc status other'}\n",
    );
    let (gate, other_gate) = (test.gate("gate"), test.gate("other_gate"));
    let first = start(&test);
    wait_for_status(&test, "first", "job_started");
    // Only `-v` tells of a server that is back within a moment.
    let mut second = test.torc(["-v", "run", "other.yaml"]).spawn();
    second.wait_for_stderr("created workflow 2");
    wait_for_status(&test, "other/x", "job_started");
    gate.open();
    first.wait().expect(0);
    second.wait_for_stderr("the server answers again");
    other_gate.open();
    second.wait().expect(0).tells("1 of 1 job succeeded");
    assert_eq!(test.read("x.txt"), "x\n");
}

#[test]
fn a_run_takes_over_from_a_watched_status_that_served_for_a_killed_server() {
    let test = Test::new().spec(GATED);
    let gate = test.gate("gate");
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://127.0.0.1");
    let run = start(&test);
    wait_for_status(&test, "first", "job_started");
    let mut status = test.torc(["status", "--watch"]).spawn();
    status.wait_for_stdout("running 1");
    server.signal("KILL");
    server.wait();
    gate.open();
    assert!(status.wait().expect(0).stdout.contains("2 of 2 jobs succeeded"));
    run.wait().expect(0).tells("2 of 2 jobs succeeded");
    assert_eq!(test.read("order.txt"), "first\nsecond\n");
}

#[test]
fn in_the_background_it_outlives_the_call() {
    let test = Test::new().spec(GATED);
    let gate = test.gate("gate");
    let started = test.torc(["-f", "json", "run", "workflow.yaml", "--detach"]).success().json();
    assert_eq!(started["workflow_id"], 1);
    gate.open();
    let mut watcher = test.torc(["run", "latest"]).spawn();
    watcher.wait_for_stderr("workflow 1 complete: 2 of 2 jobs succeeded");
    watcher.wait().expect(0);
    assert_eq!(test.read("order.txt"), "first\nsecond\n");
}

#[test]
fn time_is_up_after_the_limit() {
    let test = Test::new().spec(GATED);
    test.gate("gate");
    let done =
        test.torc(["run", "workflow.yaml", "--time-limit", "1s"]).exit(1).tells("resume with");
    assert!(done.stderr.contains("not complete"), "{}", done.stderr);
    assert_eq!(test.statuses()[1], "second blocked");
}

#[test]
fn a_job_that_can_never_fit_is_explained_and_the_run_ends() {
    let test = Test::new().spec(
        r#"
name: big
resource_requirements: [{name: huge, num_cpus: 100000, memory: 1g, runtime: 1h}]
jobs:
  - {name: whale, command: "true", resource_requirements: huge}
  - {name: fish, command: "true"}
"#,
    );
    test.run().expect(1).tells("whale: it needs 100,000 CPUs");
    assert_eq!(test.statuses(), ["whale ready", "fish completed"]);
}

#[test]
fn a_job_for_another_label_is_explained_and_the_run_ends() {
    let test = Test::new().spec(
        "name: labels\njobs:\n  - {name: anywhere, command: 'true'}\n  - {name: special, command: 'true', label: gpu-box, depends_on: anywhere}\n",
    );
    test.run()
        .expect(1)
        .tells("special: it waits for a runner with the label `gpu-box`")
        .tells("hint: `torc runner 1 --label gpu-box`");
    assert_eq!(test.statuses(), ["anywhere completed", "special ready"]);
    let why = test
        .torc(["why", "special"])
        .success()
        .says("label `gpu-box`")
        .says("`torc runner 1 --label gpu-box`");
    assert!(!why.stdout.contains("torc run 1"), "{}", why.stdout);
    test.torc(["runner", "1", "--label", "gpu-box"]).success();
    assert_eq!(test.statuses(), ["anywhere completed", "special completed"]);
}

#[test]
fn a_job_with_several_labels_waits_for_a_runner_that_has_them_all() {
    let test = Test::new().spec(
        "name: labels\njobs:\n  - {name: one, command: 'true', labels: [windows]}\n  - {name: both, command: 'true', \
         labels: [windows, gpu], depends_on: one}\n",
    );
    test.torc(["create", "workflow.yaml"]).success();
    let mut windows = test.torc(["runner", "1", "--label", "windows"]).spawn();
    windows.wait_for_stderr("it needs a runner with the labels `gpu,windows`");
    windows.wait_for_stderr("hint: `torc runner 1 --label gpu,windows` takes it");
    assert_eq!(test.statuses(), ["one completed", "both ready"]);
    test.torc(["runner", "1", "--label", "gpu", "--label", "windows,big"]).success();
    windows.wait().expect(0);
    assert_eq!(test.statuses(), ["one completed", "both completed"]);
}

#[test]
fn a_runner_with_a_label_says_what_it_waits_for() {
    let test = Test::new().spec(
        "name: labels\njobs:\n  - {name: anywhere, command: 'true'}\n  - {name: special, command: 'true', label: gpu-box, depends_on: anywhere}\n",
    );
    test.torc(["create", "workflow.yaml"]).success();
    let mut boxed = test.torc(["runner", "1", "--label", "gpu-box"]).spawn();
    boxed.wait_for_stderr("waiting: anywhere: no runner can take it");
    boxed.wait_for_stderr("hint: `torc runner 1` takes it");
    test.torc(["runner", "1"]).success();
    boxed.wait().expect(0);
    assert_eq!(test.statuses(), ["anywhere completed", "special completed"]);
}

/// Quick jobs first, so that the runner takes more ahead; then slow ones that say when they begin.
const QUICK_THEN_SLOW: &str = r#"
name: w
jobs:
  - {name: "quick_{i}", command: "true", parameters: {i: "1:30"}}
  - name: "slow_{i}"
    command: "echo $TORC_JOB_NAME $TORC_ATTEMPT_ID >> begun; echo up > up; read line < gate"
    parameters: {i: "1:8"}
    depends_on_regexes: ["^quick"]
    max_lost_retries: 0
"#;

#[test]
fn what_a_killed_runner_had_not_begun_is_no_loss() {
    let test = Test::new().spec(QUICK_THEN_SLOW);
    let (up, gate) = (test.gate("up"), test.gate("gate"));
    let run = test.torc(["run", "workflow.yaml", "-j", "1"]).spawn();
    up.read();
    run.signal("KILL");
    run.wait();
    let statuses = test.statuses();
    let count = |status: &str| statuses.iter().filter(|line| line.ends_with(status)).count();
    assert_eq!((count("failed"), count("ready")), (1, 7), "{statuses:?}");
    drop((up, gate));
}
