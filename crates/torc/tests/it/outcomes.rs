//! How jobs end, and what follows from it.

use crate::support::{Test, text};
use serde_json::Value;

/// The kinds of the events of the latest workflow, in order.
fn event_kinds(test: &Test) -> Vec<String> {
    let events = test.torc(["-f", "json", "events"]).success().json();
    events["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| text(&event["kind"]).to_string())
        .collect()
}

fn counts(test: &Test) -> Value {
    test.torc(["-f", "json", "status"]).success().json()["counts"].clone()
}

#[test]
fn all_succeeded_is_exit_0_and_said_so() {
    let test = Test::new().spec("name: ok\njobs:\n  - {name: a, command: 'true'}\n");
    test.run().expect(0).tells("1 of 1 job succeeded");
    assert_eq!(test.statuses(), ["a completed"]);
    let kinds = event_kinds(&test);
    assert_eq!(kinds.first().map(String::as_str), Some("workflow_started"), "{kinds:?}");
    assert!(kinds.iter().any(|kind| kind == "workflow_completed"), "{kinds:?}");
}

#[test]
fn a_failing_parent_cancels_a_wide_and_deep_graph_and_nothing_else() {
    // 30 chains of depth 30 hang below `bad`; 20 jobs and a chain have nothing to do with it.
    let mut spec = String::from(
        "name: big\njobs:\n  - {name: bad, command: 'exit 7'}\n  - {name: good, command: 'true'}\n",
    );
    for chain in 0..30 {
        for depth in 0..30 {
            let parent = if depth == 0 { "bad".into() } else { format!("c{chain}_{}", depth - 1) };
            spec += &format!(
                "  - {{name: c{chain}_{depth}, command: 'touch ran_c{chain}_{depth}', depends_on: [{parent}]}}\n"
            );
        }
    }
    for free in 0..20 {
        spec += &format!("  - {{name: free{free}, command: 'true', depends_on: [good]}}\n");
    }
    spec += "  - {name: anyway, command: 'true', depends_on: [bad], cancel_on_blocking_job_failure: false}\n";
    let test = Test::new().spec(&spec);
    test.run().expect(1).tells("bad").tells("code 7");
    let counts = counts(&test);
    assert_eq!(counts["failed"], 1, "{counts}");
    assert_eq!(counts["canceled"], 900, "{counts}");
    assert_eq!(counts["completed"], 22, "{counts}");
    let ran = std::fs::read_dir(test.path("")).expect("directory").flatten();
    let ran: Vec<_> =
        ran.filter(|file| file.file_name().to_string_lossy().starts_with("ran_")).collect();
    assert!(ran.is_empty(), "{ran:?}");
    test.torc(["why", "c3_29"]).success().says("canceled");
}

#[test]
fn an_exit_code_and_a_signal_are_told_apart() {
    let test = Test::new().spec(
        "name: ends\njobs:\n  - {name: code, command: 'exit 42'}\n  - {name: signal, command: 'kill -SEGV $$'}\n",
    );
    test.run().expect(1);
    let code = test.last_attempt("code");
    assert_eq!((&code["return_code"], &code["cause"]), (&42.into(), &"exit".into()), "{code}");
    assert_eq!(code["signal"], Value::Null);
    let signal = test.last_attempt("signal");
    assert_eq!(
        (&signal["return_code"], &signal["cause"]),
        (&139.into(), &"signal".into()),
        "{signal}"
    );
    assert_eq!(signal["signal"], 11);
}

#[test]
fn a_timeout_kills_grandchildren_too() {
    // The grandchild ignores TERM and moved to a session of its own; it must be gone all the same.
    let test = Test::new().spec(
        r#"
name: slow
execution_config: {sigkill_headroom_seconds: 1}
jobs:
  - name: stuck
    timeout: 1s
    command: |
      setsid sh -c 'trap "" TERM; echo $$ > grandchild.pid; while :; do sleep 1000; done' &
      sh -c 'trap "" TERM; echo $$ > child.pid; while :; do sleep 1000; done'
"#,
    );
    test.run().expect(1);
    let attempt = test.last_attempt("stuck");
    assert_eq!(
        (&attempt["return_code"], &attempt["cause"]),
        (&152.into(), &"timeout".into()),
        "{attempt}"
    );
    for name in ["child.pid", "grandchild.pid"] {
        let pid = test.read(name).trim().to_string();
        assert!(!std::path::Path::new("/proc").join(&pid).exists(), "{name} {pid} survived");
    }
    assert_eq!(test.statuses(), ["stuck terminated"]);
}

#[test]
fn too_much_memory_is_an_oom_with_evidence() {
    let test = Test::new().spec(
        r#"
name: hungry
resource_requirements: [{name: small, num_cpus: 1, memory: 64m, runtime: 5m}]
jobs:
  - name: eat
    resource_requirements: small
    command: python3 -c 'x = bytearray(400 * 1024 * 1024); import time; time.sleep(60)'
"#,
    );
    test.run().expect(1);
    let attempt = test.last_attempt("eat");
    assert_eq!(
        (&attempt["return_code"], &attempt["cause"]),
        (&137.into(), &"oom".into()),
        "{attempt}"
    );
    assert!(!attempt["evidence"].as_array().expect("evidence").is_empty(), "{attempt}");
    test.torc(["why", "eat"]).success().says("evidence").says("memory 64.0 MiB");
}

#[test]
fn a_missing_output_is_a_failure_that_names_the_file() {
    let test = Test::new().spec(
        r#"
name: forgetful
files: [{name: out, path: result.txt}]
jobs:
  - {name: forget, command: "echo not writing", output_files: [out]}
"#,
    );
    test.run().expect(1);
    let attempt = test.last_attempt("forget");
    assert_eq!(attempt["cause"], "missing_output", "{attempt}");
    test.torc(["why", "forget"]).success().says("result.txt");
}

#[test]
fn huge_binary_and_endless_lines_arrive_whole() {
    let test = Test::new().spec(
        r#"
name: loud
jobs:
  - {name: long, command: "head -c 20000000 /dev/zero | tr '\\0' x"}
  - {name: binary, command: "printf '\\000\\377\\033[31m'"}
"#,
    );
    test.run().expect(0);
    let path = test.torc(["logs", "long", "--stdout", "--path"]).success().stdout;
    assert_eq!(std::fs::metadata(path.trim()).expect("a log").len(), 20_000_000);
    let raw = test.shell("torc -q logs binary --stdout | od -An -tx1").success().stdout;
    assert_eq!(raw.trim(), "00 ff 1b 5b 33 31 6d");
}

#[test]
fn a_job_that_can_not_start_fails_and_the_runner_goes_on() {
    let test = Test::new().spec(
        "name: odd\njobs:\n  - {name: missing, command: 'exec /no/such/program'}\n  - {name: fine, command: 'true'}\n",
    );
    test.run().expect(1);
    assert_eq!(test.statuses(), ["missing failed", "fine completed"]);
    assert_eq!(test.last_attempt("missing")["return_code"], 127);
}

#[test]
fn jobs_know_who_they_are() {
    let test = Test::new().spec("name: env\njobs:\n  - {name: show, command: 'env | grep ^TORC_ | sort > env.txt; test -r $TORC_TOKEN_FILE; stat -c %a $TORC_TOKEN_FILE > mode.txt'}\n");
    test.run().expect(0);
    let env = test.read("env.txt");
    for expected in [
        "TORC_WORKFLOW_ID=1",
        "TORC_JOB_ID=1",
        "TORC_JOB_NAME=show",
        "TORC_RUN_ID=1",
        "TORC_ATTEMPT_ID=1",
        "TORC_OUTPUT_DIR=",
        "TORC_API_URL=http://127.0.0.1:",
    ] {
        assert!(env.contains(expected), "{expected} is not in\n{env}");
    }
    assert_eq!(test.read("mode.txt").trim(), "600");
}
