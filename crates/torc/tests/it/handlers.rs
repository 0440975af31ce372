//! Failure handlers against a small independent oracle, and the seed's own example in two formats.

use crate::support::{Test, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use torc_model::words;

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[derive(Clone)]
struct Rule {
    codes: Vec<i64>,
    all: bool,
    max: i64,
    script: bool,
}

/// How one job behaves and is handled.
struct Case {
    name: String,
    rules: Vec<Rule>,
    /// What attempt 1, 2, ... exits with; 0 afterwards.
    codes: Vec<i64>,
}

struct Expected {
    status: &'static str,
    attempts: i64,
    outcomes: Vec<Option<&'static str>>,
    /// Failed attempt and its code, for each run of the recovery script.
    scripts: Vec<(i64, i64)>,
}

/// The documented rule, written a second time: precise before catch-all, a retry while the
/// attempt's number is lower.
fn oracle(case: &Case, pending: bool) -> Expected {
    let mut expected =
        Expected { status: "", attempts: 1, outcomes: Vec::new(), scripts: Vec::new() };
    loop {
        let code = case.codes.get(expected.attempts as usize - 1).copied().unwrap_or(0);
        if code == 0 {
            expected.outcomes.push(None);
            expected.status = "completed";
            return expected;
        }
        let precise = case.rules.iter().find(|r| r.codes.contains(&code));
        let rule = precise.or_else(|| case.rules.iter().find(|r| r.all));
        let (outcome, status) = match rule {
            Some(rule) if expected.attempts < rule.max => {
                expected.outcomes.push(Some("Retried"));
                if rule.script {
                    expected.scripts.push((expected.attempts, code));
                }
                expected.attempts += 1;
                continue;
            }
            Some(_) => ("MaxRetriesExceeded", "failed"),
            None if case.rules.is_empty() => {
                ("NoHandler", if pending { "pending_failed" } else { "failed" })
            }
            None => ("NoMatchingRule", if pending { "pending_failed" } else { "failed" }),
        };
        expected.outcomes.push(Some(outcome));
        expected.status = status;
        return expected;
    }
}

fn cases(count: usize, seed: u64) -> Vec<Case> {
    let mut dice = Dice(seed);
    let mut cases = Vec::new();
    for n in 0..count {
        let mut rules = Vec::new();
        for _ in 0..dice.roll(4) {
            let all = dice.roll(3) == 0;
            let codes = if all {
                vec![]
            } else {
                (0..=dice.roll(2)).map(|_| 10 + dice.roll(4) as i64).collect()
            };
            rules.push(Rule {
                codes,
                all,
                max: 1 + dice.roll(4) as i64,
                script: dice.roll(3) == 0,
            });
        }
        let codes =
            (0..dice.roll(5)).map(|_| [10, 11, 12, 13, 1, 139][dice.roll(6) as usize]).collect();
        cases.push(Case { name: format!("job_{n}"), rules, codes });
    }
    cases
}

fn spec(cases: &[Case], pending: bool) -> Value {
    let handlers: Vec<Value> = cases
        .iter()
        .filter(|c| !c.rules.is_empty())
        .map(|case| {
            let rules: Vec<Value> = case
                .rules
                .iter()
                .map(|rule| {
                    let mut value = json!({"max_retries": rule.max});
                    if rule.all {
                        value["match_all_exit_codes"] = json!(true);
                    } else {
                        value["exit_codes"] = json!(rule.codes);
                    }
                    if rule.script {
                        value["recovery_script"] =
                            json!("echo \"$TORC_JOB_NAME $TORC_ATTEMPT_ID $TORC_RETURN_CODE\" >> scripts.txt");
                    }
                    value
                })
                .collect();
            json!({"name": format!("h_{}", case.name), "rules": rules})
        })
        .collect();
    let jobs: Vec<Value> = cases
        .iter()
        .map(|case| {
            let arms: String = case
                .codes
                .iter()
                .enumerate()
                .map(|(i, code)| match code {
                    139 => format!("{}) kill -SEGV $$;; ", i + 1),
                    code => format!("{}) exit {code};; ", i + 1),
                })
                .collect();
            let mut job =
                json!({"name": case.name, "command": format!("case $TORC_ATTEMPT_ID in {arms}*) exit 0;; esac")});
            if !case.rules.is_empty() {
                job["failure_handler"] = json!(format!("h_{}", case.name));
            }
            job
        })
        .collect();
    json!({"name": "oracle", "use_pending_failed": pending, "failure_handlers": handlers, "jobs": jobs})
}

fn check(count: usize, seed: u64, pending: bool) {
    let cases = cases(count, seed);
    let test = Test::new().file("workflow.json", &spec(&cases, pending).to_string());
    test.torc(["run", "workflow.json", "--max-parallel-jobs", "8"]).done();
    let jobs = test.torc(["-f", "json", "jobs", "list", "--limit", "5000"]).success().json();
    let results = test
        .torc(["-f", "json", "results", "list", "--all-runs", "--limit", "9000"])
        .success()
        .json();
    let mut outcomes: BTreeMap<String, Vec<(i64, Option<String>)>> = BTreeMap::new();
    for result in results["results"].as_array().expect("results") {
        let outcome = result["outcome"].as_str().map(str::to_owned);
        let number = result["attempt_id"].as_i64().expect("a number");
        outcomes.entry(text(&result["job_name"]).to_owned()).or_default().push((number, outcome));
    }
    let scripts = std::fs::read_to_string(test.path("scripts.txt")).unwrap_or_default();
    let mut ran: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for line in scripts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        ran.entry(words[0])
            .or_default()
            .push((words[1].parse().expect("attempt"), words[2].parse().expect("code")));
    }
    let jobs = jobs["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), cases.len());
    for (job, case) in jobs.iter().zip(&cases) {
        let expected = oracle(case, pending);
        let place = format!("{} with codes {:?}", case.name, case.codes);
        assert_eq!(
            (text(&job["name"]), text(&job["status"])),
            (case.name.as_str(), expected.status),
            "{place}"
        );
        assert_eq!(job["attempt_id"].as_i64(), Some(expected.attempts), "{place}");
        let mut seen = outcomes.remove(&case.name).unwrap_or_default();
        seen.sort();
        let seen: Vec<Option<String>> = seen.into_iter().map(|(_, outcome)| outcome).collect();
        let wanted: Vec<Option<String>> =
            expected.outcomes.iter().map(|o| o.map(str::to_owned)).collect();
        assert_eq!(seen, wanted, "{place}");
        assert_eq!(ran.remove(case.name.as_str()).unwrap_or_default(), expected.scripts, "{place}");
    }
}

#[test]
fn two_hundred_and_fifty_cases_end_as_the_oracle_says() {
    check(250, 0x5eed, false);
}

#[test]
fn with_pending_failed_the_uncovered_ones_wait() {
    check(60, 0xcafe, true);
}

#[test]
fn a_thousand_flaky_jobs_end_as_the_oracle_says() {
    check(1000, 0xf1a4, false);
}

const SEED_YAML: &str = r#"
name: retry
failure_handlers:
  - name: h
    rules:
      - {exit_codes: [10], recovery_script: "./fix.sh", max_retries: 3}
      - {match_all_exit_codes: true, max_retries: 1}
jobs:
  - {name: flaky, command: "[ $TORC_ATTEMPT_ID -ge 3 ] || exit 10", failure_handler: h}
  - {name: after, command: "true", depends_on: [flaky]}
"#;

const SEED_KDL: &str = r#"
name "retry"
failure_handler "h" {
    rule { exit_codes 10; recovery_script "./fix.sh"; max_retries 3; }
    rule { match_all_exit_codes #true; max_retries 1; }
}
job "flaky" { command "[ $TORC_ATTEMPT_ID -ge 3 ] || exit 10"; failure_handler "h"; }
job "after" { command "true"; depends_on "flaky"; }
"#;

#[test]
fn the_example_of_the_design_runs_in_yaml_and_kdl() {
    for (name, spec) in [("w.yaml", SEED_YAML), ("w.kdl", SEED_KDL)] {
        let fix = "#!/bin/sh\necho \"$TORC_ATTEMPT_ID $TORC_RETURN_CODE $TORC_JOB_NAME $TORC_WORKFLOW_ID ${TORC_API_URL:+url} ${TORC_OUTPUT_DIR:+out}\" >> fixed\n";
        let test = Test::new().file(name, spec).file("fix.sh", fix);
        test.shell("chmod +x fix.sh").success();
        test.torc(["run", name]).success();
        assert_eq!(test.read("fixed"), "1 10 flaky 1 url out\n2 10 flaky 1 url out\n", "{name}");
        assert_eq!(test.statuses(), ["flaky completed", "after completed"]);
        for attempt in 1..=3 {
            assert!(
                test.exists(&format!("output/job_stdio/job_wf1_j1_r1_a{attempt}.o")),
                "each attempt has its own log"
            );
        }
    }
}

#[test]
fn a_failing_script_stops_only_those_who_asked_for_it() {
    let spec = r#"
name: scripts
failure_handlers:
  - name: careless
    rules: [{exit_codes: [1], recovery_script: "exit 7", max_retries: 2}]
  - name: careful
    rules: [{exit_codes: [1], recovery_script: "exit 7", max_retries: 2, on_script_failure: fail}]
  - name: hangs
    rules: [{exit_codes: [1], recovery_script: "sleep 1000 & sleep 1000", max_retries: 2, script_timeout: 1s}]
jobs:
  - {name: a, command: "[ $TORC_ATTEMPT_ID -ge 2 ]", failure_handler: careless}
  - {name: b, command: "[ $TORC_ATTEMPT_ID -ge 2 ]", failure_handler: careful}
  - {name: c, command: "[ $TORC_ATTEMPT_ID -ge 2 ]", failure_handler: hangs}
"#;
    let test = Test::new().spec(spec);
    test.run();
    assert_eq!(test.statuses(), ["a completed", "b failed", "c completed"]);
    assert_eq!(test.last_attempt("a")["script"]["return_code"], 7);
    assert_eq!(test.last_attempt("c")["script"]["timed_out"], true);
}

#[test]
fn a_job_does_not_run_again_without_the_script_that_failed() {
    let spec = |pending: bool| {
        format!(
            r#"
name: careful
use_pending_failed: {pending}
failure_handlers:
  - name: h
    rules: [{{exit_codes: [10], max_retries: 5, recovery_script: "echo $TORC_ATTEMPT_ID >> scripts; test -f fixed", on_script_failure: fail}}]
jobs:
  - {{name: a, command: "echo $TORC_ATTEMPT_ID >> ran; test -f fixed || exit 10", failure_handler: h}}
"#
        )
    };
    let classify: &[&str] = &["jobs", "classify", "a", "--retry"];
    for (pending, again) in [(true, classify), (false, &["jobs", "retry", "a"])] {
        let test = Test::new().spec(&spec(pending));
        test.run().expect(1);
        test.torc(again.iter().copied()).success();
        test.run().expect(1);
        assert_eq!(
            (test.read("ran").as_str(), test.read("scripts").as_str()),
            ("1\n", "1\n1\n"),
            "{again:?}"
        );
        std::fs::write(test.path("fixed"), "").expect("a file");
        test.torc(again.iter().copied()).success();
        test.run().expect(0);
        assert_eq!(
            (test.read("ran").as_str(), test.read("scripts").as_str()),
            ("1\n4\n", "1\n1\n1\n"),
            "{again:?}"
        );
    }
}

#[test]
fn a_verdict_moves_a_waiting_job_and_only_such_a_job() {
    let spec = "name: verdict\nuse_pending_failed: true\njobs:\n  - {name: a, command: '[ $TORC_ATTEMPT_ID -ge 2 ]'}\n  - {name: b, command: exit 3}\n  - {name: c, command: 'true', depends_on: [a]}\n  - {name: d, command: 'true', depends_on: [b]}\n";
    let test = Test::new().spec(spec);
    test.run();
    assert_eq!(test.statuses(), ["a pending_failed", "b pending_failed", "c blocked", "d blocked"]);
    let again =
        test.torc(["workflows", "reset-status", "latest", "--failed-only", "--dry-run"]).success();
    assert!(again.stdout.contains('a') && again.stdout.contains('b'), "{}", again.stdout);
}

#[test]
fn what_a_recovery_script_wrote_and_why_it_failed_is_shown() {
    let spec = r#"
name: scripts
failure_handlers:
  - name: bad
    rules: [{exit_codes: [7], recovery_script: "echo BAD-OUT; echo BAD-ERR >&2; exit 9", on_script_failure: fail, max_retries: 2}]
  - name: good
    rules: [{exit_codes: [7], recovery_script: "echo GOOD-OUT; touch repaired", max_retries: 2}]
jobs:
  - {name: f, command: "exit 7", failure_handler: bad}
  - {name: g, command: "test -e repaired || exit 7; echo OWN", failure_handler: good}
"#;
    let test = Test::new().spec(spec);
    test.run().expect(1);
    assert_eq!(test.statuses(), ["f failed", "g completed"]);
    let why = test.torc(["-f", "json", "why", "f"]).success().json();
    assert_eq!(why["diagnosis"]["kind"], "recovery_script", "{why:#}");
    assert_eq!(why["diagnosis"]["summary"], words::message("exit code 9"), "{why:#}");
    let attempts = test.torc(["jobs", "attempts", "f"]).success();
    attempts.says("exit code 9, with which the recovery script failed");

    let stdout = |args: &[&str]| test.torc(args).success().stdout;
    assert_eq!(stdout(&["logs", "f"]), "BAD-OUT\nBAD-ERR\n", "all that the attempt has");
    assert_eq!(stdout(&["logs", "f", "--script", "--stderr"]), "BAD-ERR\n");
    assert_eq!(stdout(&["logs", "g"]), "OWN\n");
    assert_eq!(stdout(&["logs", "g", "--script"]), "GOOD-OUT\n");
    let none = test.torc(["logs", "g", "--script", "--attempt", "1"]).success();
    none.tells("a recovery script before attempt 1 left no log files");
}

#[test]
fn handlers_name_failures_by_the_words_of_their_diagnosis() {
    let spec = r#"
name: words
failure_handlers:
  - {name: outages, rules: [{causes: [network, license], max_retries: 2}]}
  - {name: passing, rules: [{causes: [transient], max_retries: 2}]}
jobs:
  - {name: refused, failure_handler: outages, command: "[ $TORC_ATTEMPT_ID -ge 2 ] || { echo 'curl: (7) Failed to connect to store: Connection refused' >&2; exit 7; }"}
  - {name: locked, failure_handler: passing, command: "[ $TORC_ATTEMPT_ID -ge 2 ] || { echo 'sqlite3.OperationalError: database is locked' >&2; exit 1; }"}
  - {name: bug, failure_handler: outages, command: "[ $TORC_ATTEMPT_ID -ge 2 ] || { echo \"KeyError: 'x'\" >&2; exit 1; }"}
  - {name: typo, failure_handler: passing, command: "[ $TORC_ATTEMPT_ID -ge 2 ] || { echo \"KeyError: 'x'\" >&2; exit 1; }"}
"#;
    let test = Test::new().spec(spec);
    test.run();
    let expected = ["refused completed", "locked completed", "bug failed", "typo failed"];
    assert_eq!(test.statuses(), expected);
    let unknown = spec.replace("[network, license]", "[netwrok]");
    let refused = Test::new().spec(&unknown).torc(["check", "workflow.yaml"]).done();
    assert!(refused.stderr.contains("network"), "{}", refused.stderr);
}
