//! `auto_recover`: the server itself lets failed jobs run again where that helps.

use crate::support::{Test, text};
use serde_json::Value;
use torc_model::words;

const REFUSED: &str =
    "echo 'curl: (7) Failed to connect to store port 80: Connection refused' >&2; exit 7";

fn attempts(test: &Test, job: &str) -> Vec<Value> {
    let all = test.torc(["-f", "json", "jobs", "attempts", job]).success().json();
    all["attempts"].as_array().expect("a list").clone()
}

fn events(test: &Test, kind: &str) -> Vec<Value> {
    let all = test.torc(["-f", "json", "events", "--kind", kind]).success().json();
    all["events"].as_array().expect("a list").clone()
}

fn mixed(top: &str) -> Test {
    Test::new().spec(&format!(
        r#"
name: night
{top}
resource_requirements:
  - {{name: small, num_cpus: 1, memory: 100m, runtime: 1m}}
jobs:
  - {{name: flaky, command: "test -f warm || {{ touch warm; {REFUSED}; }}"}}
  - {{name: hungry, resource_requirements: small, command: "python3 -c 'x = bytearray(130 << 20)'"}}
  - {{name: slow, timeout: 1s, command: "test -f hot || {{ touch hot; n=0; while :; do n=$((n+1)); done; }}"}}
  - {{name: broken, command: "python3 -c 'd = {{}}; d[1]'"}}
  - {{name: after, command: "true", depends_on: [flaky, hungry, slow]}}
"#
    ))
}

#[test]
fn the_server_acts_by_itself_and_says_what_and_why() {
    let test = mixed("auto_recover: {delay_seconds: 0.2}");
    test.run().expect(1).tells("4 of 5 jobs succeeded");
    for (job, word) in
        [("flaky", "this passes"), ("hungry", "out of memory"), ("slow", "ran too long")]
    {
        let all = attempts(&test, job);
        assert_eq!(all.len(), 2, "{job}: {all:?}");
        assert_eq!(text(&all[1]["origin"]), "auto", "{job}");
        assert_eq!(text(&all[0]["outcome"]), "Retried", "{job}");
        let decision = text(&all[0]["decision"]);
        assert!(
            words::has(decision, "recovered automatically") && words::has(decision, word),
            "{decision}"
        );
    }
    let broken = attempts(&test, "broken");
    assert_eq!(broken.len(), 1);
    let decision = text(&broken[0]["decision"]);
    assert!(words::has(decision, "not recovered automatically"), "{decision}");
    // What depends on them never heard of the failures.
    assert!(events(&test, "job_canceled").is_empty());
    assert_eq!(events(&test, "job_adjusted").len(), 2);
    test.torc(["why", "hungry"])
        .success()
        .says("changed")
        .says("memory 100m -> 212m")
        .says("auto_recover");
    test.torc(["why", "broken"]).success().says("remedy      skip");
}

#[test]
fn without_being_asked_the_server_retries_nothing_of_that() {
    let test = mixed("");
    test.run().expect(1);
    for job in ["flaky", "hungry", "slow", "broken"] {
        assert_eq!(attempts(&test, job).len(), 1, "{job}");
    }
    // What is asked for on the command line holds from then on.
    let test = Test::new().spec(&format!(
        "name: w\njobs: [{{name: a, command: \"test -f warm || {{ touch warm; {REFUSED}; }}\"}}]\n"
    ));
    test.torc(["run", "workflow.yaml", "--auto-recover"]).success();
    assert_eq!(text(&test.last_attempt("a")["origin"]), "auto");
}

#[test]
fn budgets_end_what_does_not_pass() {
    let test = Test::new().spec(&format!(
        "name: w\nauto_recover: {{delay_seconds: 0.01, max_retries_per_cause: 2}}\njobs: [{{name: a, command: \"{REFUSED}\"}}]\n"
    ));
    test.run().expect(1);
    let all = attempts(&test, "a");
    assert_eq!(all.len(), 3, "{all:?}");
    let decision = text(&all[2]["decision"]);
    assert!(words::has(decision, "max_retries_per_cause"), "{decision}");
}

#[test]
fn a_service_is_left_alone_for_as_long_as_it_asks() {
    let test = Test::new().spec(
        "name: w\nauto_recover: {delay_seconds: 0.01}\njobs: [{name: a, command: \"test -f warm || { touch warm; \
         echo '< Retry-After: 2' >&2; echo 'curl: (22) The requested URL returned error: 429' >&2; exit 22; }\"}]\n",
    );
    test.run().expect(0);
    let all = attempts(&test, "a");
    let (ended, started) = (
        all[0]["ended_ms"].as_i64().expect("a time"),
        all[1]["started_ms"].as_i64().expect("a time"),
    );
    assert!(started - ended >= 2000, "{} ms", started - ended);
    let decision = text(&all[0]["decision"]);
    assert!(words::has(decision, "asked to wait 2 s"), "{decision}");
}

#[test]
fn in_a_storm_one_retry_goes_ahead_and_the_others_follow_when_it_succeeds() {
    // The service comes back when a job has failed for the second time: until then only retries
    // that go ahead were made.
    let command = format!(
        "test -f up && exit 0; test -f seen_$TORC_JOB_NAME && touch up; touch seen_$TORC_JOB_NAME; {REFUSED}"
    );
    let jobs: Vec<String> = (0..12)
        .map(|n| format!("  - {{name: j{n}, command: '{}'}}", command.replace('\'', "''")))
        .collect();
    let test = Test::new().spec(&format!(
        "name: storm\nauto_recover: {{delay_seconds: 1, max_delay_seconds: 900}}\njobs:\n{}\n",
        jobs.join("\n")
    ));
    let begin = std::time::Instant::now();
    test.torc(["run", "workflow.yaml", "-j", "4"]).success();
    assert!(begin.elapsed().as_secs() < 60, "retries waited for nothing");
    assert_eq!(events(&test, "recovery_paused").len(), 1);
    let resumed = events(&test, "recovery_resumed");
    assert!(!resumed.is_empty());
    assert!(resumed[0]["data"]["jobs"].as_i64().is_some_and(|jobs| jobs >= 4), "{resumed:?}");
}

const RULES: &str = r#"
recovery_rules:
  - rule: pool
    kind: license
    nature: transient
    says: ["token pool * exhausted"]
    examples: ["farm: token pool `a` exhausted"]
    unlike: ["farm: no such token"]
"#;

#[test]
fn rules_of_a_spec_decide_before_those_that_come_with_the_program() {
    let job = "test -f warm || { touch warm; echo 'farm: token pool b exhausted' >&2; exit 3; }";
    let spec = |rules: &str| {
        format!(
            "name: w\nauto_recover: {{delay_seconds: 0.1}}\n{rules}jobs: [{{name: a, command: \"{job}\"}}]\n"
        )
    };
    let without = Test::new().spec(&spec(""));
    without.run().expect(1);
    let test = Test::new().spec(&spec(RULES.trim_start()));
    test.torc(["rules", "test", "workflow.yaml"])
        .success()
        .says("1 rule, 2 examples: all as they should be");
    test.run().expect(0);
    let all = attempts(&test, "a");
    let decision = text(&all[0]["decision"]);
    assert!(words::has(decision, "no licence was to be had"), "{decision}");
    // A file of a site, with a rule that does not do what it says.
    test.write(
        "site.yaml",
        "source: our handbook\nrules:\n  - {rule: odd, kind: network, nature: transient, says: ['gateway asleep'], \
         examples: ['KeyError: 1'], unlike: ['error: gateway asleep']}\n",
    );
    let wrong = test.torc(["rules", "test", "site.yaml"]).exit(1);
    wrong.says("own.odd: `KeyError: 1`").says("decides `error: gateway asleep`").says("2 problems");
    test.torc(["rules", "list", "site.odd"])
        .env("TORC_RULES", test.path("site.yaml"))
        .success()
        .says("our handbook");
    test.write("typo.yaml", "rules: [{rule: odd, kind: netwrk, nature: transient, says: [x]}]\n");
    test.torc(["rules", "test", "typo.yaml"]).exit(2).tells("network");
}

/// Mistakes of one run: retries of what never passes, what passes and was given up, and sizes that
/// were not enough.
fn mistakes(test: &Test, workflow: &str) -> usize {
    let attempts = |job: &str| {
        let words = ["-f", "json", "jobs", "attempts", job, "--workflow", workflow];
        let all = test.torc(words).success().json();
        all["attempts"].as_array().expect("a list").clone()
    };
    let futile: usize = ["dead_1", "dead_2"].iter().map(|job| attempts(job).len() - 1).sum();
    let ended_well = |job: &str| attempts(job).iter().any(|a| a["state"] == "completed");
    let given_up =
        ["odd_1", "odd_2", "flaky", "large"].iter().filter(|job| !ended_well(job)).count();
    futile + given_up + attempts("large").len().saturating_sub(2)
}

#[test]
fn the_same_failures_are_decided_better_the_second_time() {
    let once =
        "test -f $TORC_WORKFLOW_ID.$TORC_JOB_NAME || { touch $TORC_WORKFLOW_ID.$TORC_JOB_NAME;";
    let test = Test::new()
        .file("fetch.sh", "echo 'fetch: connection refused by store' >&2\nexit 7\n")
        .file("odd.py", "import os\nname = os.environ['TORC_WORKFLOW_ID'] + '.' + os.environ['TORC_JOB_NAME']\nif not os.path.exists(name):\n    open(name, 'w')\n    {}['batch']\n")
        .file("large.py", "x = bytearray(150 << 20)\n")
        .spec(&format!(
            r#"
name: mix
auto_recover: {{delay_seconds: 0.05}}
resource_requirements: [{{name: small, num_cpus: 1, memory: 60m, runtime: 1m}}]
jobs:
  - {{name: dead_1, command: "sh fetch.sh"}}
  - {{name: dead_2, command: "sh fetch.sh"}}
  - {{name: odd_1, command: "python3 odd.py"}}
  - {{name: odd_2, command: "python3 odd.py"}}
  - {{name: flaky, command: "{once} echo 'curl: (7) Failed to connect to store: Connection refused' >&2; exit 7; }}"}}
  - {{name: large, resource_requirements: small, command: "python3 large.py"}}
  - {{name: bug, command: "python3 -c 'raise ValueError(3)'"}}
"#
        ));
    test.run().expect(1);
    let first = mistakes(&test, "1");
    // A person tries what was given up, and it passes.
    test.torc(["jobs", "retry", "odd_1", "odd_2"]).success();
    test.torc(["run", "latest"]).exit(1);
    test.torc(["run", "workflow.yaml", "--new"]).exit(1);
    let second = mistakes(&test, "2");
    println!("mistakes: {first}, then {second}");
    assert!(first >= 6, "the mix is too easy: {first}");
    assert!(second * 10 <= first * 7, "{first} mistakes, then {second}");
    assert_eq!(attempts(&test, "bug").len(), 1);
    let known = test.torc(["-f", "json", "knowledge", "list"]).success().json();
    assert!(known["failures"].as_array().is_some_and(|all| all.len() >= 3), "{known}");
    let dead = text(&attempts(&test, "dead_1")[0]["decision"]).to_owned();
    assert!(words::has(&dead, "earlier retries of such a failure succeeded"), "{dead}");
}
