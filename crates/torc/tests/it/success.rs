//! A job that counts as a success has succeeded: memory, shells, long commands, output files, time.

use crate::support::{Test, text};
use torc_model::words;

/// Memory limits by the kernel count what it killed; elsewhere the runner samples.
fn kernel_limits_memory() -> bool {
    let test = Test::new().spec(
        r#"
name: probe
resource_requirements: [{name: small, num_cpus: 1, memory: 60m}]
jobs:
  - {name: pipe, resource_requirements: small, tolerate_oom: true, command: "python3 -c 'x=bytearray(300<<20)' | cat"}
"#,
    );
    test.run();
    let evidence = test.last_attempt("pipe")["evidence"].to_string();
    evidence.contains("the kernel killed")
}

#[test]
fn a_kill_at_the_memory_limit_fails_the_job_whatever_its_shell_returns() {
    if !kernel_limits_memory() {
        eprintln!("skipped: no control group of this machine can limit memory");
        return;
    }
    let test = Test::new().spec(
        r#"
name: pipe
resource_requirements: [{name: small, num_cpus: 1, memory: 60m}]
jobs:
  - name: pipe
    resource_requirements: small
    command: "python3 -c 'x=bytearray(300<<20)' | cat > c.txt"
  - name: lines
    resource_requirements: small
    command: "python3 -c 'x=bytearray(300<<20)'\ntrue"
  - name: step
    resource_requirements: small
    steps: [{shell: "python3 -c 'x=bytearray(300<<20)' | cat > d.txt"}]
  - name: copes
    resource_requirements: small
    tolerate_oom: true
    command: "python3 -c 'x=bytearray(300<<20)' | cat > e.txt"
"#,
    );
    test.run().expect(1);
    assert_eq!(test.statuses(), ["pipe failed", "lines failed", "step failed", "copes completed"]);
    for job in ["pipe", "lines", "step"] {
        let attempt = test.last_attempt(job);
        assert_eq!(
            (&attempt["cause"], &attempt["return_code"]),
            (&"oom".into(), &137.into()),
            "{job}: {attempt}"
        );
    }
    test.torc(["why", "pipe"]).success().says("out of memory");
    let fixed = test.torc(["-f", "json", "recover", "--dry-run"]).success().json();
    assert_eq!(fixed["oom_fixed"], 3, "{fixed}");
}

#[test]
fn a_strict_shell_ends_at_the_first_failure() {
    let spec = |shell: &str| {
        format!(
            "name: strict\n{shell}jobs:\n  - {{name: lines, command: \"false\\necho after\"}}\n  - {{name: pipe, command: 'false | true'}}\n  \
             - {{name: unset, command: 'echo \"$NOT_SET_ANYWHERE\"'}}\n  - {{name: plain, command: 'ls -a'}}\n  \
             - {{name: mild, shell: default, command: 'false | true'}}\n  - {{name: step, steps: [{{shell: 'false | true'}}]}}\n"
        )
    };
    let test = Test::new().spec(&spec("shell: strict\n"));
    test.run().expect(1);
    assert_eq!(
        test.statuses(),
        [
            "lines failed",
            "pipe failed",
            "unset failed",
            "plain completed",
            "mild completed",
            "step failed"
        ]
    );
    let test = Test::new().spec(&spec(""));
    test.run().expect(0);
    let test = Test::new().spec(
        "name: one\njobs:\n  - {name: a, shell: strict, command: 'false | true'}\n  - {name: b, command: 'false | true'}\n",
    );
    test.run().expect(1);
    assert_eq!(test.statuses(), ["a failed", "b completed"]);
    Test::new()
        .spec("name: x\nshell: stric\njobs: [{name: a, command: 'true'}]\n")
        .torc(["check", "workflow.yaml"])
        .exit(2)
        .tells("strict");
}

#[test]
fn new_files_are_strict() {
    let test = Test::new();
    test.torc(["new", "sweep", "-o", "s.yaml"]).success();
    assert!(test.read("s.yaml").contains("shell: strict"), "{}", test.read("s.yaml"));
    test.torc(["check", "s.yaml"]).success();
}

#[test]
fn a_command_longer_than_an_argument_runs_from_a_file() {
    // 4000 paths of 50 bytes: 200 KiB, more than one argument of a program may have.
    let test = Test::new().spec(
        r#"
name: collect
files:
  - {name: "o_{i}", path: "results/a_rather_long_name_of_a_file_{i:05d}.txt", parameters: {i: "1:4000"}}
jobs:
  - name: make
    command: |
      mkdir -p results
      for i in $(seq -f %05g 1 4000); do echo $i > results/a_rather_long_name_of_a_file_$i.txt; done
    output_file_regexes: ["o_.*"]
  - name: inline
    command: "cat ${files.input.o_{i}} > all.txt; wc -l < all.txt > count.txt"
    parameters: {i: "1:4000"}
  - name: listed
    command: "xargs -a ${files.input.o_{i}.list} cat | wc -l > listed.txt; wc -l < \"${files.input.o_{i}.list}\" > list.txt"
    parameters: {i: "1:4000"}
"#,
    );
    test.run().expect(0);
    for name in ["count.txt", "listed.txt", "list.txt"] {
        assert_eq!(test.read(name).trim(), "4000", "{name}");
    }
}

#[test]
fn large_user_data_reaches_the_job() {
    let large = "x".repeat(300_000);
    let test = Test::new();
    test.write(
        "workflow.json",
        &format!(
            r#"{{"name": "large", "user_data": [{{"name": "big", "data": "{large}"}}, {{"name": "small", "data": 7}}],
 "jobs": [
  {{"name": "unused", "command": "true", "input_user_data": ["big"]}},
  {{"name": "shell", "command": "printf %s \"$TORC_USER_DATA_big\" | wc -c > shell.txt", "input_user_data": ["big", "small"]}},
  {{"name": "program", "command": "python3 -c 'import os; print(len(open(os.environ[\"TORC_USER_DATA_big_FILE\"]).read()))' > program.txt", "input_user_data": ["big"]}},
  {{"name": "step", "steps": [{{"shell": "printf %s \"$TORC_USER_DATA_big\" | wc -c > step.txt"}}], "input_user_data": ["big"]}},
  {{"name": "strict", "shell": "strict", "command": "printf %s \"$TORC_USER_DATA_big\" | wc -c > strict.txt", "input_user_data": ["big"]}}
 ]}}"#
        ),
    );
    test.torc(["run", "workflow.json"]).success();
    for name in ["shell.txt", "program.txt", "step.txt", "strict.txt"] {
        assert_eq!(test.read(name).trim(), "300002", "{name}");
    }
    let left = std::fs::read_dir(test.path("output/job_stdio")).expect("logs").flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().contains("_long"))
        .collect();
    assert!(left.is_empty(), "copies of the value stay: {left:?}");
}

#[test]
fn an_output_that_was_there_before_does_not_count_as_made() {
    let test = Test::new()
        .spec(
            r#"
name: stale
files: [{name: out, path: out.txt}, {name: kept, path: kept.txt}, {name: dated, path: dated.txt}, {name: stepped, path: stepped.txt}]
jobs:
  - {name: skips, command: "test -e out.txt && exit 0; echo new > out.txt", output_files: [out]}
  - {name: accepts, command: "true", output_files: [kept], accept_existing_outputs: true}
  - {name: dates, command: "echo x > dated.txt; touch -d 2001-01-01 dated.txt", output_files: [dated]}
  - {name: steps, steps: [{shell: "true"}], output_files: [stepped]}
"#,
        )
        .file("out.txt", "half")
        .file("kept.txt", "whole")
        .file("dated.txt", "old")
        .file("stepped.txt", "old");
    test.shell("touch -d 2020-01-01 out.txt stepped.txt; while [ \"$(stat -c %Z stepped.txt)\" -gt $(($(date +%s) - 1)) ]; do :; done").success();
    test.run().expect(1);
    assert_eq!(
        test.statuses(),
        ["skips failed", "accepts completed", "dates completed", "steps failed"]
    );
    for job in ["skips", "steps"] {
        let attempt = test.last_attempt(job);
        assert_eq!(attempt["cause"], "missing_output", "{attempt}");
        assert!(words::has(text(&attempt["error"]), "older than this attempt"), "{attempt}");
    }
    test.torc(["why", "skips"]).success().says("older");
    // Once it is gone the job writes it.
    std::fs::remove_file(test.path("out.txt")).expect("removed");
    test.torc(["jobs", "retry", "skips"]).success();
    test.torc(["run", "latest"]).exit(1);
    assert_eq!(test.read("out.txt"), "new\n");
}

#[test]
fn steps_that_are_not_repeated_have_made_their_outputs() {
    let test = Test::new().spec(
        r#"
name: resumed
files: [{name: first, path: first.txt}]
failure_handlers: [{name: again, rules: [{match_all_exit_codes: true, max_retries: 2}]}]
jobs:
  - name: two
    resume: step
    failure_handler: again
    output_files: [first]
    steps:
      - {shell: "echo made >> first.txt"}
      - {shell: "sleep 0.2; test -e flag || { touch flag; exit 1; }"}
"#,
    );
    test.run().expect(0);
    assert_eq!(test.read("first.txt"), "made\n");
}

#[test]
fn runtime_plans_and_only_a_limit_ends_a_job() {
    let test = Test::new().spec(
        r#"
name: time
resource_requirements: [{name: r, num_cpus: 1, runtime: 1s}]
execution_config: {sigterm_lead_seconds: 1}
jobs:
  - {name: plans, resource_requirements: r, command: "sleep 1.4"}
  - {name: enforces, resource_requirements: r, enforce_runtime: true, command: "sleep 60"}
  - {name: times_out, resource_requirements: r, timeout: 2s, command: "sleep 60"}
"#,
    );
    test.run().expect(1);
    assert_eq!(test.statuses(), ["plans completed", "enforces terminated", "times_out terminated"]);
    assert_eq!(test.last_attempt("plans")["time_limit_seconds"], serde_json::Value::Null);
    assert_eq!(test.last_attempt("enforces")["time_limit_seconds"], 1);
    assert_eq!(test.last_attempt("times_out")["time_limit_seconds"], 2);
    test.torc(["why", "times_out"]).success().says("longer than its `timeout` of 2 s");
    test.torc(["why", "enforces"]).success().says("longer than its `runtime` of 1 s");
    let plan = test.torc(["-f", "json", "recover", "--dry-run"]).success().json();
    let change = |job: &str| {
        let jobs = plan["jobs"].as_array().expect("jobs").clone();
        let found = jobs.into_iter().find(|found| found["name"] == job).expect("the job");
        found["changes"].clone()
    };
    assert_eq!(change("enforces"), serde_json::json!([{"field": "runtime", "from": 1, "to": 4}]));
    assert_eq!(change("times_out"), serde_json::json!([{"field": "timeout", "from": 2, "to": 8}]));
    let test = Test::new().spec(
        "name: all\nenforce_runtime: true\nexecution_config: {sigterm_lead_seconds: 1}\nresource_requirements: [{name: r, runtime: 1s}]\n\
         jobs:\n  - {name: a, resource_requirements: r, command: 'sleep 60'}\n  - {name: b, resource_requirements: r, enforce_runtime: false, command: 'sleep 1.3'}\n",
    );
    test.run().expect(1);
    assert_eq!(test.statuses(), ["a terminated", "b completed"]);
}

#[test]
fn a_cap_on_jobs_keeps_the_accounting_of_memory() {
    let spec = r#"
name: cap
resource_requirements: [{name: mem, num_cpus: 1, memory: 3g}]
jobs:
  - name: "j{i}"
    parameters: {i: "1:3"}
    resource_requirements: mem
    command: "echo + >> marks; sleep 0.3; echo - >> marks"
"#;
    let most = |args: &[&str]| {
        let test = Test::new().spec(spec);
        test.torc(["run", "workflow.yaml", "--memory", "4g", "--num-cpus", "8"].iter().chain(args))
            .success();
        let mut now = 0i32;
        test.read("marks")
            .lines()
            .map(|line| {
                now += if line == "+" { 1 } else { -1 };
                now
            })
            .max()
            .expect("marks")
    };
    assert_eq!(most(&["-j", "3"]), 1, "4g of memory are enough for one");
    assert!(most(&["-j", "3", "--ignore-resources"]) > 1);
    assert_eq!(most(&["-j", "1", "--ignore-resources"]), 1);
    let test = Test::new().spec("name: big\nresource_requirements: [{name: r, num_cpus: 64}]\njobs: [{name: a, resource_requirements: r, command: 'true'}]\n");
    test.torc(["run", "workflow.yaml", "-j", "1", "--num-cpus", "2"]).exit(1);
    test.torc(["run", "latest", "--ignore-resources", "--num-cpus", "2"]).success();
}
