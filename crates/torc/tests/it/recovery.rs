//! Real failures of real programs: what is said about them, and what recovery makes of them.

use crate::support::{Test, text};
use serde_json::Value;

/// Takes this many MiB, a little at a time.
const HOG: &str = r#"
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    long mib = argc > 1 ? atol(argv[1]) : 300;
    for (long i = 0; i < mib; i++) {
        char *p = malloc(1 << 20);
        if (!p) return 3;
        memset(p, 1, 1 << 20);
    }
    return 0;
}
"#;

/// A directory with the memory hog in it.
fn with_hog(spec: &str) -> Test {
    let test = Test::new().spec(spec).file("hog.c", HOG);
    test.shell("cc -O0 -o hog hog.c").success();
    test
}

fn why(test: &Test, job: &str) -> Value {
    test.torc(["-f", "json", "why", job]).success().json()
}

/// The job's memory for its next attempt.
fn memory(test: &Test, job: &str) -> String {
    text(&test.torc(["-f", "json", "jobs", "get", job]).success().json()["memory"]).to_string()
}

#[test]
fn causes_of_real_programs_are_found() {
    let test = with_hog(
        r#"
name: failures
checkpoint_exit_code: 85
files: [{name: out, path: never.txt}]
resource_requirements:
  - {name: small, num_cpus: 1, memory: 80m, runtime: 1m}
  - {name: short, num_cpus: 1, memory: 200m, runtime: 8s}
jobs:
  - {name: hog, resource_requirements: small, command: "bash -c './hog 300; exit $?'"}
  - {name: traceback, command: "python3 -c 'd = {}; d[1]'"}
  - {name: segv, command: "python3 -c 'import ctypes; ctypes.string_at(0)'"}
  - {name: outside, command: "(sleep 0.3; kill -KILL $$) & sleep 30"}
  - name: stubborn
    timeout: 1s
    command: |
      setsid sh -c 'trap "" TERM; while :; do sleep 1000; done' &
      trap "" TERM
      while :; do sleep 1; done
  - {name: forgetful, command: "true", output_files: [out]}
  - {name: full_disk, command: "dd if=/dev/zero of=/dev/full bs=1k count=1"}
  - {name: says_killed, command: "echo Killed >&2; exit 1"}
  - {name: own_bug, command: "echo 'db: connection refused' >&2; python3 -c 'raise ValueError(3)'"}
  - {name: refused, command: "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 1))'"}
  - {name: nearly_late, resource_requirements: short, command: "sleep 7.2; exit 1"}
  - {name: not_there, command: "no_such_program_at_all"}
  - {name: continues, command: "test -f saved || { touch saved; exit 85; }"}
"#,
    );
    test.run().expect(1);
    let expected = [
        ("hog", "oom"),
        ("traceback", "program_error"),
        ("segv", "crash"),
        ("outside", "killed"),
        ("stubborn", "timeout"),
        ("forgetful", "missing_output"),
        ("full_disk", "disk_full"),
        ("says_killed", "unknown"),
        ("own_bug", "program_error"),
        ("refused", "network"),
        ("nearly_late", "unknown"),
        ("not_there", "command_not_found"),
    ];
    let mut misses = Vec::new();
    for (job, kind) in expected {
        let card = why(&test, job);
        let diagnosis = &card["diagnosis"];
        println!(
            "{job:<12} {:<18} {:.2}  {}",
            text(&diagnosis["kind"]),
            diagnosis["confidence"],
            diagnosis["summary"]
        );
        if diagnosis["kind"] != kind {
            misses.push(format!("{job}: expected {kind}, {diagnosis}"));
        }
        assert!(!diagnosis["proof"].as_array().expect("proof").is_empty(), "{job}: {diagnosis}");
        assert!(!card["hints"].as_array().expect("hints").is_empty(), "{job}: {card}");
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
    let attempt = test.last_attempt("continues");
    assert_eq!(
        (&attempt["attempt_id"], &attempt["state"], &attempt["origin"]),
        (&2.into(), &"completed".into(), &"requeued".into())
    );
    test.torc(["why", "hog"]).success().says("evidence").says("kernel").says("torc recover");
    let summary = test.torc(["reports", "summary"]).success();
    summary.says("out of memory").says("ValueError: N").says("the disk is full");
}

const MIXED: &str = r#"
name: mixed
resource_requirements:
  - {name: shared, num_cpus: 1, memory: 100m, runtime: 1m}
jobs:
  - {name: hungry, resource_requirements: shared, command: "./hog 120"}
  - {name: slow, timeout: 1s, command: "test -f waited || { touch waited; sleep 30; }"}
  - {name: bug, command: "test -f fixed"}
  - {name: fine, resource_requirements: shared, command: "true"}
  - {name: after, command: "touch after.txt", depends_on: [hungry, slow]}
  - {name: after_bug, command: "touch after_bug.txt", depends_on: [bug]}
"#;

#[test]
fn recover_repairs_what_it_can_and_leaves_the_rest() {
    let test = with_hog(MIXED);
    test.run().expect(1);
    let bytes = || std::fs::read(test.path(".torc/torc.db")).expect("a database");
    let before = bytes();
    let dry = test.torc(["-f", "json", "recover", "--dry-run"]).done().expect(0).json();
    assert!(bytes() == before, "a dry run changed the database");
    let done = test.torc(["-f", "json", "recover"]).done().expect(0).json();
    assert_eq!(dry["jobs"], done["jobs"]);
    assert_eq!(dry["jobs_to_retry"], done["jobs_to_retry"]);
    assert_eq!(
        (&done["oom_fixed"], &done["timeout_fixed"], &done["other_failures"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(
        test.statuses(),
        [
            "hungry ready",
            "slow ready",
            "bug failed",
            "fine completed",
            "after blocked",
            "after_bug canceled"
        ]
    );
    assert_eq!((memory(&test, "hungry"), memory(&test, "fine")), ("212m".into(), "100m".into()));
    test.torc(["run", "latest"]).done().expect(1);
    assert_eq!(
        test.statuses(),
        [
            "hungry completed",
            "slow completed",
            "bug failed",
            "fine completed",
            "after completed",
            "after_bug canceled"
        ]
    );
    let attempt = test.last_attempt("hungry");
    assert_eq!(
        (&attempt["run_id"], &attempt["attempt_id"], &attempt["origin"]),
        (&1.into(), &2.into(), &"recovered".into())
    );
    test.torc(["why", "hungry"]).success().says("memory 100m -> 212m");
    // What is left has no known remedy.
    test.torc(["recover"]).done().expect(1).tells("nothing").tells("--retry-unknown");
}

#[test]
fn a_hook_decides_over_unknown_failures() {
    let test = Test::new().spec("name: hooked\njobs:\n  - {name: bug, command: 'test -f fixed'}\n");
    test.run().expect(1);
    test.write("bad.sh", "#!/bin/sh\necho \"$1 $TORC_WORKFLOW_ID\" > seen.txt\nexit 3\n");
    test.write("good.sh", "#!/bin/sh\ntouch fixed\n");
    test.shell("chmod +x bad.sh good.sh").success();
    test.torc(["recover", "--recovery-hook", "bad.sh"]).done().expect(1).tells("hook failed");
    assert_eq!(test.read("seen.txt"), "1 1\n");
    assert_eq!(test.statuses(), ["bug failed"]);
    test.torc(["recover", "--recovery-hook", "./good.sh"]).done().expect(0);
    test.torc(["run", "latest"]).done().expect(0);
    assert_eq!(test.statuses(), ["bug completed"]);
}

#[test]
fn refusals_of_recover_say_why() {
    let test = Test::new().spec("name: good\njobs:\n  - {name: a, command: 'true'}\n");
    test.run().expect(0);
    test.torc(["recover"]).success().tells("nothing to recover: every job of workflow 1 succeeded");
    assert_eq!(
        test.torc(["-f", "json", "recover"]).success().json()["jobs_to_retry"],
        Value::Array(Vec::new())
    );
    test.torc(["recover", "--memory-multiplier", "0.5"]).done().expect(2).tells("from 1 to 100");
    test.torc(["recover", "7"]).done().expect(2);
}

#[test]
fn a_hang_that_waits_for_another_program_is_tried_again_once_and_names_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // Connections are made by the kernel and never answered.
    let test = Test::new().spec(&format!(
        "name: peers\njobs:\n  - name: asks\n    timeout: 2s\n    command: 'exec 3<>/dev/tcp/127.0.0.1/{}; read -u 3 \
         line'\n  - {{name: sticks, timeout: 2s, command: 'mkfifo own && read line <own'}}\n",
        address.port()
    ));
    test.run().expect(1);
    let plan = test.torc(["-f", "json", "recover", "--dry-run"]).done().expect(0).json();
    let actions: Vec<_> = plan["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .map(|job| format!("{} {}", text(&job["name"]), text(&job["action"])))
        .collect();
    assert_eq!(actions, ["asks again", "sticks skip"], "{plan}");
    test.torc(["why", "asks"]).success().says(&format!("waiting for an answer from {address}"));
    test.torc(["recover"]).done().expect(0);
    test.torc(["run", "latest"]).done().expect(1);
    test.torc(["recover"]).done().expect(1).says("it reached its time limit twice in a row");
}

#[test]
fn no_job_gets_more_memory_than_the_machine_has() {
    let test = with_hog(
        "name: large\nresource_requirements:\n  - {name: r, num_cpus: 1, memory: 150m}\njobs:\n  - {name: hungry, \
         resource_requirements: r, command: './hog 400'}\n",
    );
    test.torc(["run", "workflow.yaml", "--memory", "200m"]).done().expect(1);
    test.torc(["recover"])
        .done()
        .expect(0)
        .says("150m -> 200m")
        .says("largest node known has 200m");
    test.torc(["run", "latest", "--memory", "200m"]).done().expect(1);
    test.torc(["recover"]).done().expect(1).says("cannot be recovered because");
}

#[test]
fn watch_recovers_with_a_runner_of_its_own_and_counts_its_rounds() {
    let test = with_hog(
        "name: watched\nresource_requirements:\n  - {name: r, num_cpus: 1, memory: 100m}\njobs:\n  - {name: hungry, \
         resource_requirements: r, command: './hog 230'}\n  - {name: after, command: 'true', depends_on: [hungry]}\n",
    );
    test.run().expect(1);
    // 100m -> 212m is not enough, and one round is all there is, however often it is started.
    let first = test
        .torc(["watch", "--recover", "--max-retries", "1", "--log-file", "w.log"])
        .done()
        .expect(1);
    first
        .tells("recovery round 1 of 1")
        .tells("starting one here")
        .tells("no recovery: 1 round of recovery");
    test.torc(["watch", "--recover", "--max-retries", "1"])
        .done()
        .expect(1)
        .tells("no recovery: 1 round of recovery");
    assert!(test.read("w.log").contains("recovery round 1 of 1"));
    // 212m -> 424m is.
    test.torc(["watch", "--recover", "--max-retries", "2"])
        .done()
        .expect(0)
        .tells("2 of 2 jobs succeeded");
    assert_eq!(memory(&test, "hungry"), "424m");
}

#[test]
fn watch_begins_what_it_is_to_run_and_else_says_who_does() {
    let test = Test::new().spec(
        "name: fresh\nfiles: [{name: in, path: in.txt}]\njobs:\n  - {name: only, command: 'true', input_files: [in]}\n",
    );
    test.torc(["create", "workflow.yaml"]).success();
    let refused = test.torc(["watch", "--recover"]).done().expect(2);
    refused.tells("in.txt").tells("`torc run 1 --force`");
    test.write("in.txt", "here");
    let mut watch = test.torc(["watch"]).spawn();
    watch.wait_for_stderr("workflow 1 `fresh` has not been started; `torc run 1` starts it");
    test.torc(["run", "1"]).success();
    watch.wait().expect(0).tells("1 of 1 job succeeded");
    test.torc(["workflows", "reset-status", "1"])
        .success()
        .tells("1 job will run again; `torc run 1` runs it");
    let again = test.torc(["watch", "--recover"]).done().expect(0);
    again.tells("starting one here").tells("1 of 1 job succeeded");
}

#[test]
fn reinitialize_names_what_it_leaves_alone() {
    let test = Test::new().file("in.txt", "wrong").spec(
        "name: left\nfiles: [{name: in, path: in.txt}]\njobs:\n  - {name: bad, command: 'grep right in.txt', \
         input_files: [in]}\n  - {name: after, command: 'true', depends_on: [bad]}\n",
    );
    test.run().expect(1);
    test.write("in.txt", "all is right");
    let left = test.torc(["workflows", "reinitialize", "1"]).success();
    let left = left.tells("0 jobs will run again\n").tells("(1 failed, 1 canceled)");
    left.tells("`torc workflows reset-status 1 --failed-only`");
    let reset = test.torc(["workflows", "reset-status", "1", "--failed-only"]).success();
    reset.tells("2 jobs will run again; `torc run 1` runs them");
    test.torc(["run", "1"]).success();
    let nothing = test.torc(["workflows", "reinitialize", "1", "--dry-run"]).success();
    assert!(!nothing.stderr.contains("left as they are"), "{}", nothing.stderr);
    std::fs::remove_file(test.path("in.txt")).unwrap();
    // A look ahead must not promise what the call itself refuses.
    test.torc(["workflows", "reinitialize", "1", "--dry-run"])
        .exit(2)
        .tells("1 input file does not exist: `in`");
    test.torc(["workflows", "reinitialize", "1"])
        .exit(2)
        .tells("1 input file does not exist: `in`");
    test.torc(["workflows", "reinitialize", "1", "--dry-run", "--force"]).success();
}

#[test]
fn watch_names_jobs_that_wait_for_a_verdict_and_goes_on() {
    let test = Test::new().spec(
        "name: asking\nuse_pending_failed: true\njobs:\n  - {name: odd, command: 'exit 9'}\n  - {name: after, command: \
         'true', depends_on: [odd]}\n",
    );
    test.run().expect(1);
    let mut watch = test.torc(["watch", "--recover"]).spawn();
    watch.wait_for_stderr("1 job waits for a verdict: odd (job 1)");
    test.torc(["status"]).success().says("waits for verdicts (`torc jobs classify -w 1`");
    test.torc(["cancel", "1"]).success();
    watch.wait().expect(1).tells("0 of 2 jobs succeeded");
}

#[test]
fn single_jobs_can_be_held_released_disabled_canceled_and_retried() {
    let test = Test::new().spec(
        "name: control\njobs:\n  - {name: a, command: 'true'}\n  - {name: b, command: 'true'}\n  - {name: c, command: \
         'exit 1'}\n  - {name: d, command: 'exit 1'}\n  - {name: e, command: 'true'}\n",
    );
    test.torc(["create", "workflow.yaml"]).success();
    test.torc(["workflows", "initialize", "1"]).success();
    test.torc(["jobs", "hold", "a", "b"]).success();
    test.torc(["jobs", "disable", "e"]).success();
    test.torc(["run", "1"]).done().expect(1);
    assert_eq!(test.statuses(), ["a ready", "b ready", "c failed", "d failed", "e disabled"]);
    test.torc(["jobs", "retry", "c", "d"]).success().says("attempt 2 of c").says("attempt 2 of d");
    test.torc(["jobs", "cancel", "b"]).success();
    test.torc(["jobs", "release", "a"]).success();
    test.torc(["run", "1"]).done().expect(1);
    assert_eq!(
        test.statuses(),
        ["a completed", "b canceled", "c failed", "d failed", "e disabled"]
    );
    let results = test.torc(["-f", "json", "results", "list", "--failed"]).success().json();
    assert_eq!(
        results["results"]
            .as_array()
            .expect("results")
            .iter()
            .filter(|r| r["cause"] == "exit")
            .count(),
        4
    );
}

#[test]
fn what_jobs_used_is_reported_corrected_and_drawn() {
    let test = with_hog(
        r#"
name: learning
resource_monitor: {granularity: time_series, sample_interval_seconds: 0.1}
resource_requirements:
  - {name: huge, num_cpus: 1, memory: 900m, runtime: 2h}
jobs:
  - {name: "one<&>", resource_requirements: huge, command: "./hog 60; sleep 0.6"}
  - {name: two, resource_requirements: huge, command: "./hog 90; sleep 0.6"}
"#,
    );
    test.run().expect(0);
    let report = test.torc(["-f", "json", "reports", "resources"]).success().json();
    let line = &report["resources"][0];
    assert_eq!((&line["group"], &line["jobs"]), (&"huge".into(), &2.into()), "{report}");
    let peak = line["peak_memory_bytes"].as_i64().expect("a peak");
    assert!((85 << 20..200 << 20).contains(&peak), "{peak}");
    assert_eq!(line["suggested_runtime"], "PT1M", "{line}");
    test.torc(["reports", "resources", "--correct"]).success().tells("2 jobs changed");
    let after = memory(&test, "two");
    assert_eq!(after, text(&line["suggested_memory"]), "{line}");
    let kept = &why(&test, "two")["adjustments"];
    let memory = kept
        .as_array()
        .expect("adjustments")
        .iter()
        .find(|a| a["field"] == "memory")
        .expect("memory");
    assert_eq!(memory["from"], 900 << 20, "{kept}");
    assert!(
        text(&memory["by"]).contains("torc reports correct")
            && text(&memory["why"]).contains("of its memory"),
        "{kept}"
    );
    test.torc(["plot", "resources", "-o", "use.html"]).success().says("use.html");
    let page = test.read("use.html");
    assert!(page.contains("one&lt;&amp;&gt;") && !page.contains("one<&>"), "names are escaped");
    assert!(page.contains("<polyline") && page.contains("Memory") && page.contains("CPUs in use"));
    for outside in ["http-equiv", "<script", "src=", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    test.torc(["plot", "resources", "-o", "use.svg", "--job", "two"]).success();
    assert!(test.read("use.svg").starts_with("<svg "));
    test.torc(["plot", "resources", "--job", "nobody"]).done().expect(2).tells("no samples");
}

#[test]
fn what_changed_runs_again_and_nothing_else() {
    let test = Test::new().spec(
        r#"
name: chain
files:
  - {name: in1, path: in1.txt}
  - {name: in2, path: in2.txt}
  - {name: mid1, path: mid1.txt}
  - {name: mid2, path: mid2.txt}
jobs:
  - {name: one, command: "cp in1.txt mid1.txt", input_files: [in1], output_files: [mid1]}
  - {name: two, command: "cp in2.txt mid2.txt", input_files: [in2], output_files: [mid2]}
  - {name: both, command: "cat mid1.txt mid2.txt", input_files: [mid1, mid2]}
"#,
    );
    test.write("in1.txt", "1");
    test.write("in2.txt", "2");
    test.run().expect(0);
    let again = |test: &Test| {
        let plan = test
            .torc(["-f", "json", "workflows", "reinitialize", "1", "--dry-run"])
            .success()
            .json();
        let jobs = plan["jobs"].as_array().expect("jobs").clone();
        jobs.iter()
            .map(|job| format!("{}: {}", text(&job["name"]), text(&job["reason"])))
            .collect::<Vec<_>>()
    };
    assert!(again(&test).is_empty());
    test.write("in1.txt", "longer than before");
    let changed = again(&test);
    assert_eq!(changed.len(), 2, "{changed:?}");
    assert!(changed[0].starts_with("one: ") && changed[1].starts_with("both: "), "{changed:?}");
    test.torc(["workflows", "reinitialize", "1"]).success();
    test.torc(["run", "1"]).done().expect(0);
    std::fs::remove_file(test.path("mid2.txt")).expect("an output");
    let gone = again(&test);
    assert!(
        gone.len() == 2 && gone[0].starts_with("two: ") && gone[1].starts_with("both: "),
        "{gone:?}"
    );
}

#[test]
fn a_touched_file_is_the_same_file_where_contents_are_compared() {
    let spec = "name: w\nFILES\nfiles: [{name: in, path: in.txt}]\njobs: [{name: a, command: cat in.txt, input_files: [in]}]\n";
    for (by, again) in [("", 1), ("compare_files_by: content", 0)] {
        let test = Test::new().spec(&spec.replace("FILES", by));
        test.write("in.txt", "one");
        test.run().expect(0);
        let changed = |test: &Test| {
            let plan = test
                .torc(["-f", "json", "workflows", "reinitialize", "1", "--dry-run"])
                .success()
                .json();
            plan["jobs"].as_array().map_or(0, Vec::len)
        };
        test.shell("touch -d '+1 hour' in.txt").success();
        assert_eq!(changed(&test), again, "`{by}`: touched");
        test.write("in.txt", "two");
        test.shell("touch -d '+1 hour' in.txt").success();
        assert_eq!(changed(&test), 1, "`{by}`: the same size, something else in it");
    }
}

#[test]
fn another_env_runs_again_what_it_reaches() {
    let spec = |common: &str, own: &str| {
        format!(
            "name: w\nenv: {{A: {common}}}\njobs:\n  - {{name: a, command: echo $A >> a.txt}}\n  \
             - {{name: b, command: echo $A >> b.txt, env: {{A: {own}}}}}\n"
        )
    };
    let test = Test::new().spec(&spec("one", "own"));
    test.run().expect(0);
    test.write("new.yaml", &spec("two", "own"));
    let call = ["workflows", "reinitialize", "1", "--spec", "new.yaml"];
    let done = test.torc(["-f", "json"].iter().chain(&call)).success().json();
    assert_eq!(done["jobs"].as_array().map(Vec::len), Some(1), "{done}");
    test.torc(["run", "1"]).success();
    assert_eq!((test.read("a.txt"), test.read("b.txt")), ("one\ntwo\n".into(), "own\n".into()));
}

#[test]
fn an_edited_spec_runs_again_what_it_changes_and_what_follows() {
    let spec = |command: &str, more: &str| {
        format!(
            "name: w\njobs:\n  - {{name: a, command: '{command}'}}\n  - {{name: b, command: echo b >> b.txt, depends_on: [a]}}\n  \
             - {{name: c, command: echo c >> c.txt}}\n{more}"
        )
    };
    let test = Test::new().spec(&spec("echo old > a.txt", ""));
    test.run().expect(0);
    test.write("new.yaml", &spec("echo new > a.txt", ""));
    let dry =
        test.torc(["workflows", "reinitialize", "1", "--spec", "new.yaml", "--dry-run"]).success();
    dry.says("its command is another");
    assert_eq!(
        test.statuses().iter().filter(|s| s.ends_with("completed")).count(),
        3,
        "nothing was changed"
    );
    let done = test
        .torc(["-f", "json", "workflows", "reinitialize", "1", "--spec", "new.yaml"])
        .success()
        .json();
    let names: Vec<&str> =
        done["jobs"].as_array().expect("jobs").iter().map(|j| text(&j["name"])).collect();
    assert_eq!(names, ["a", "b"]);
    test.torc(["run", "1"]).done().expect(0);
    assert_eq!(
        (test.read("a.txt"), test.read("b.txt"), test.read("c.txt")),
        ("new\n".into(), "b\nb\n".into(), "c\n".into())
    );
    test.write("new.yaml", &spec("echo new > a.txt", "  - {name: d, command: 'true'}\n"));
    let grown = test.torc(["workflows", "reinitialize", "1", "--spec", "new.yaml"]).success();
    grown.tells("plan: 1 new, 3 up to date");
}

#[test]
fn evidence_names_its_place_in_the_file() {
    let noise = "for i in range(3000): print('line', i, 'ä', file=sys.stderr)";
    let test = Test::new().file("fail.py", &format!("import sys\n{noise}\nraise KeyError('x')\n"));
    test.write("workflow.yaml", "name: w\njobs: [{name: a, command: python3 fail.py}]\n");
    test.run().expect(1);
    let card = why(&test, "a");
    let proof = card["diagnosis"]["proof"]
        .as_array()
        .expect("proof")
        .iter()
        .find(|p| p["source"] == "text");
    let proof = proof.expect("the program's words");
    let whole = std::fs::read(test.path(text(&card["attempt"]["stderr_path"]))).expect("the file");
    let at = |key: &str| proof[key].as_u64().expect("a place") as usize;
    assert!(at("start") > 8 << 10, "beyond what is kept");
    assert_eq!(String::from_utf8_lossy(&whole[at("start")..at("end")]).trim(), "KeyError: 'x'");
}

#[test]
fn one_job_can_be_reset_while_another_runs() {
    let test = Test::new().spec(
        "name: partly\njobs:\n  - {name: long, command: 'touch begun; while test ! -f go; do sleep 0.1; done'}\n  - {name: \
         quick, command: 'echo x >> quick.txt'}\n  - {name: after, command: 'echo x >> after.txt', depends_on: [quick]}\n  \
         - {name: other, command: 'echo x >> other.txt'}\n",
    );
    let run = test.torc(["run", "workflow.yaml", "-j", "4"]).spawn();
    test.shell("until test -f begun && test -f after.txt && test -f other.txt; do sleep 0.05; done; torc -q jobs list > /dev/null")
        .success();
    let settled = || test.statuses()[1..].iter().all(|job| job.ends_with("completed"));
    while !settled() {}
    test.torc(["workflows", "reset-status", "1", "--job", "quick"]).success();
    test.torc(["workflows", "initialize", "1"]).success();
    test.shell("until test $(cat after.txt | wc -l) = 2; do sleep 0.05; done; touch go").success();
    run.wait().expect(0);
    assert_eq!(
        (test.read("quick.txt"), test.read("after.txt"), test.read("other.txt")),
        ("x\nx\n".into(), "x\nx\n".into(), "x\n".into())
    );
}

#[test]
fn why_leads_from_a_blocked_job_to_the_recovery_of_what_waits_for_a_verdict() {
    let test = Test::new().spec(
        "name: slow\nuse_pending_failed: true\nresource_requirements: [{name: brief, runtime: PT1S}]\njobs:\n  \
         - {name: a, command: sleep 60, enforce_runtime: true, resource_requirements: brief}\n  - {name: b, command: 'true', depends_on: [a]}\n",
    );
    test.run().expect(1);
    assert_eq!(test.statuses(), ["a pending_failed", "b blocked"]);
    test.torc(["why", "b"])
        .success()
        .says("job 1 waits for a verdict: `torc why 1` shows what can be done");
    test.torc(["why", "1"])
        .success()
        .says("`torc recover 1` gives it more time and runs it again")
        .says("`torc jobs classify 1 --retry`");
    test.torc(["recover", "1", "--dry-run"]).success().says("runtime");
}
