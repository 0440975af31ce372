//! What a new user runs into: a directory that is gone, a limit of zero, a failure without a word.

use crate::support::Test;
use torc_model::words;

#[test]
fn jobs_run_nowhere_else_when_their_directory_is_gone() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'pwd > here.txt'}]\n");
    test.shell("mkdir p && cd p && torc --dir ../.torc create ../workflow.yaml").success();
    std::fs::remove_dir(test.path("p")).expect("it is empty");
    let missing = test.path("p").display().to_string();
    for call in [&["run", "w"][..], &["runner", "w"], &["run", "w", "--detach"]] {
        let told = test.torc(call).exit(2).stderr;
        assert!(told.contains(&missing) && told.contains("--work-dir"), "{call:?}: {told}");
    }
    assert_eq!(test.statuses(), ["a uninitialized"]);
    assert!(
        !test.exists("here.txt") && !test.exists("p") && !test.exists("output"),
        "nothing was made or started"
    );

    test.torc(["run", "w", "--work-dir", "q"]).exit(2);
    std::fs::create_dir(test.path("q")).expect("a directory");
    test.torc(["run", "w", "--work-dir", "q"]).success();
    assert_eq!(
        test.read("q/here.txt").trim(),
        test.path("q").canonicalize().expect("it is there").display().to_string()
    );
}

#[test]
fn a_job_that_runs_is_not_retried() {
    let test =
        Test::new().spec("name: w\njobs: [{name: a, command: 'echo up > up; read line < gate'}]\n");
    let (up, gate) = (test.gate("up"), test.gate("gate"));
    let run = test.torc(["run", "workflow.yaml"]).spawn();
    up.read();
    let told = test.torc(["jobs", "retry", "a"]).exit(2).stderr;
    assert!(words::has(&told, "can be retried") && told.contains("reset-status --job"), "{told}");
    test.torc(["jobs", "disable", "a"]).exit(2);
    gate.open();
    assert_eq!(run.wait().code, Some(0));
    assert_eq!(test.last_attempt("a")["attempt_id"], 1);
}

#[test]
fn what_a_spec_may_not_ask_for_no_request_may() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["create", "workflow.yaml"]).success();
    for option in ["--memory", "--runtime"] {
        let told = test.torc(["jobs", "update", "a", option, "0"]).exit(2).stderr;
        assert!(words::has(&told, "more than zero"), "{option}: {told}");
    }
}

#[test]
fn a_limit_of_zero_is_told() {
    let test = Test::new()
        .spec("name: w\nlimits: {lic: 0}\njobs: [{name: a, command: 'true', uses: [lic]}]\n");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let told = test.torc(["why", "a"]).success().stdout;
    assert!(told.contains("limit `lic` is 0") && told.contains("torc limits set lic"), "{told}");
    let mut run = test.torc(["run", "w"]).spawn();
    run.wait_for_stderr("limit `lic` is 0");
    test.torc(["limits", "set", "lic", "1"]).success();
    assert_eq!(run.wait().code, Some(0));
}

#[test]
fn every_failure_of_a_step_is_told_where_people_look() {
    let spec = r#"
name: w
jobs:
  - name: large
    steps:
      - {shell: "head -c 300000 /dev/zero | tr '\\0' x", capture: {big: stdout}}
      - {name: use, shell: 'echo "${big}"'}
  - name: number
    steps: [{shell: "echo hi", capture: {n: number}}]
  - name: word
    steps:
      - {shell: "exit 3", on_failure: {strategy: custom, commands: ["echo Recovered > $OUTCOME_FILE"]}}
  - {name: late, command: sleep 60, timeout: 1s}
  - {name: slow, command: sleep 60, enforce_runtime: true, resource_requirements: short}
resource_requirements: [{name: short, num_cpus: 1, runtime: 1s}]
"#;
    let test = Test::new().spec(spec);
    test.run().expect(1);
    let steps = |job: &str| test.torc(["jobs", "steps", job]).success().stdout;
    let why = |job: &str| test.torc(["why", job]).success().stdout;
    assert!(
        steps("large").contains("use [shell] try 1: failed (variable 1)"),
        "{}",
        steps("large")
    );
    for job in ["large", "number"] {
        assert!(
            !why(job).contains("cause unknown") && !why(job).contains("does not say why"),
            "{}",
            why(job)
        );
        assert!(why(job).contains("a step did not give what it should"), "{}", why(job));
    }
    for told in [steps("word"), why("word"), test.torc(["logs", "word"]).success().stdout] {
        assert!(
            told.contains("`Recovered`") && told.contains("`recovered`, `retry` or `failed`"),
            "{told}"
        );
    }
    assert!(
        why("late").contains("it ran longer than its `timeout` of 1 s: ended after"),
        "{}",
        why("late")
    );
    assert!(
        why("slow").contains("its `runtime` of 1 s, which `enforce_runtime` makes a limit"),
        "{}",
        why("slow")
    );
}

#[test]
fn a_limit_may_be_called_anything() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true', uses: ['a/b ?%#']}]\n");
    test.torc(["limits", "set", "a/b ?%#", "2"]).success();
    test.torc(["create", "workflow.yaml"]).success();
    let limits = test.torc(["-f", "json", "limits", "list"]).success().json();
    assert_eq!(
        (&limits["limits"][0]["name"], &limits["limits"][0]["max"]),
        (&"a/b ?%#".into(), &2.into())
    );
    test.torc(["limits", "delete", "a/b ?%#"]).success();
    test.torc(["limits", "set", "", "2"]).exit(2).tells("must not be empty");
}

#[test]
fn an_export_says_what_was_changed_since() {
    let spec = "name: w
resource_requirements: [{name: small, num_cpus: 2, memory: 500m, runtime: 1h}]
jobs:
  - {name: a, command: 'true', resource_requirements: small}
  - {name: b, command: 'true', resource_requirements: small}
  - {name: c, command: 'true'}
  - {name: 'd{i}', command: 'true', parameters: {i: '1:2'}}
";
    let test = Test::new().spec(spec);
    test.torc(["create", "workflow.yaml"]).success();
    test.torc(["jobs", "update", "a", "--memory", "2g", "--priority", "4"]).success();
    test.torc(["jobs", "update", "c", "--runtime", "2h"]).success();
    test.torc(["jobs", "update", "d1", "--memory", "1g"]).success();
    let warned = test.torc(["workflows", "export", "w", "-o", "now.yaml"]).success().stderr;
    assert!(warned.contains("1 job") && warned.contains("d1"), "{warned}");
    test.torc(["create", "now.yaml"]).success();
    let job =
        |name: &str| test.torc(["-f", "json", "jobs", "get", name, "-w", "2"]).success().json();
    let needs = |name: &str| {
        let job = job(name);
        ["num_cpus", "memory", "runtime", "priority"].map(|key| job[key].to_string()).join(" ")
    };
    assert_eq!(needs("a"), r#"2 "2g" "PT1H" 4"#);
    assert_eq!(needs("b"), r#"2 "500m" "PT1H" 0"#);
    assert_eq!(needs("c"), r#"1 null "PT2H" 0"#);
}

#[test]
fn a_wrong_call_of_run_creates_nothing() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    for options in [
        "--memory-gb nan",
        "--memory-gb=-1",
        "--memory-gb inf",
        "--work-dir nope",
        "-o /proc/nope/x",
    ] {
        test.shell(&format!("torc run workflow.yaml {options}")).exit(2);
        assert!(!test.exists(".torc"), "{options}");
    }
    test.torc(["exec", "-p", "i=1:3", "-c", "echo {i}", "-p", "i=2"]).exit(2).tells("given twice");
    test.torc(["run", "workflow.yaml", "--memory-gb", "1.5"]).success();
    test.torc(["workflows", "export", "latest", "-o", "-"]).success().says("\"name\"");
    assert!(!test.exists("-"));
}

#[test]
fn a_dropped_item_is_gone_from_what_was_made_of_all() {
    let spec = r#"
name: w
jobs:
  - {name: m, map: {items: [a, b, bad], tolerate: 1}, steps: [{shell: 'test "${item}" != bad'}]}
  - {name: r, reduce: m, steps: [{shell: "echo total ${map.total} failed ${map.failed} > sum"}]}
"#;
    let test = Test::new().spec(spec);
    test.run().expect(1);
    assert_eq!(test.read("sum"), "total 3 failed 1\n");
    test.torc(["items", "drop", "m", "bad"]).success();
    test.torc(["run", "latest"]).success();
    assert_eq!(test.read("sum"), "total 2 failed 0\n");
}
