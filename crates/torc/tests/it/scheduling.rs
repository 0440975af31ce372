//! Which job starts next: priorities hold, wide jobs are not starved, the critical path goes first.

use crate::support::{Test, text};
use serde_json::Value;

/// The jobs in the order in which they started.
fn started(test: &Test) -> Vec<String> {
    test.read("order.txt").lines().map(Into::into).collect()
}

fn run(test: &Test, cpus: &str) {
    test.torc(["run", "workflow.yaml", "--num-cpus", cpus, "--memory", "8g"]).success();
}

fn job(test: &Test, name: &str) -> Value {
    let jobs = test.torc(["-f", "json", "jobs", "list"]).success().json();
    let jobs = jobs["jobs"].as_array().expect("jobs").clone();
    jobs.into_iter().find(|job| job["name"] == name).expect("the job")
}

/// Twenty narrow jobs of priority 0, and one of priority 100 that needs both CPUs and becomes ready
/// while they run.
const STARVE: &str = r#"
name: starve
resource_requirements: [{name: both, num_cpus: 2}]
jobs:
  - {name: first, priority: 50, command: "echo first >> order.txt"}
  - {name: wide, priority: 100, depends_on: [first], resource_requirements: both, command: "echo wide >> order.txt"}
  - name: narrow_{i}
    command: "echo narrow_{i} >> order.txt; sleep 0.2"
    parameters: {i: "1:20"}
"#;

#[test]
fn a_wide_job_of_high_priority_does_not_wait_for_narrow_ones() {
    let test = Test::new().spec(STARVE);
    run(&test, "2");
    let order = started(&test);
    assert_eq!(order.len(), 22);
    let at = order.iter().position(|name| name == "wide").expect("it ran");
    // One narrow job runs beside `first`, and what the runner had claimed with it may follow.
    assert!(at <= 4, "wide started as number {}: {order:?}", at + 1);
}

#[test]
fn why_tells_which_runner_is_reserved_for_a_wide_job() {
    let spec = r#"
name: reserved
resource_requirements: [{name: both, num_cpus: 2}]
jobs:
  - {name: long, command: "read line < gate"}
  - {name: first, priority: 50, command: "true"}
  - {name: wide, priority: 100, depends_on: [first], resource_requirements: both, command: "true"}
  - {name: narrow, depends_on: [first], command: "echo narrow >> order.txt"}
"#;
    let test = Test::new().spec(spec);
    let gate = test.gate("gate");
    let running = test.torc(["run", "workflow.yaml", "--num-cpus", "2", "--memory", "8g"]).spawn();
    let begun = std::time::Instant::now();
    let summary = loop {
        assert!(begun.elapsed().as_secs() < 60, "no runner is reserved");
        let said = test.torc(["-f", "json", "why", "wide"]).done();
        if said.stdout.contains("reserved") {
            break said.json()["summary"].as_str().map(str::to_owned).expect("a summary");
        }
    };
    assert!(summary.starts_with("it waits for 2 CPUs on "), "{summary}");
    let narrow = test.torc(["-f", "json", "why", "narrow"]).success().json();
    assert!(text(&narrow["summary"]).contains("is reserved for job"), "{narrow}");
    assert!(!test.exists("order.txt"), "the narrow job must not start before the wide one");
    gate.open();
    running.wait().expect(0);
    assert_eq!(started(&test), ["narrow"]);
}

/// `a_` jobs stand first in the file; `z` begins a chain of three.
const CHAIN: &str = r#"
jobs:
  - name: a_{i}
    command: "echo a_{i} >> order.txt"
    parameters: {i: "1:6"}
  - {name: z, command: "echo z >> order.txt"}
  - {name: z2, depends_on: [z], command: "echo z2 >> order.txt"}
  - {name: z3, depends_on: [z2], command: "echo z3 >> order.txt"}
"#;

#[test]
fn the_longest_chain_goes_first_unless_the_order_is_that_of_submission() {
    let test = Test::new().spec(&format!("name: chain\n{CHAIN}"));
    run(&test, "1");
    assert_eq!(started(&test)[..2], ["z", "z2"]);
    let test = Test::new().spec(&format!("name: chain\norder: submission\n{CHAIN}"));
    run(&test, "1");
    assert_eq!(started(&test)[0], "a_1");
    assert_eq!(started(&test)[6], "z");
}

#[test]
fn a_wrong_order_is_refused_with_the_right_words() {
    let test = Test::new().spec("name: w\norder: fifo\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["check", "workflow.yaml"]).exit(2).tells("submission");
}

#[test]
fn a_second_workflow_of_the_same_name_knows_how_long_its_jobs_took() {
    let spec = r#"
name: learn
jobs:
  - {name: quick, command: "echo quick >> order.txt"}
  - {name: slow, command: "echo slow >> order.txt; sleep 0.5"}
"#;
    let test = Test::new().spec(spec);
    run(&test, "1");
    assert_eq!(started(&test), ["quick", "slow"], "nothing is known, so the file decides");
    std::fs::remove_file(test.path("order.txt")).expect("it is there");
    let again = ["run", "workflow.yaml", "--new", "--num-cpus", "1", "--memory", "8g"];
    test.torc(again).success();
    assert_eq!(started(&test), ["slow", "quick"], "the longer one goes first");
    let slow = job(&test, "slow");
    assert_eq!(slow["estimate_source"], "own", "{slow}");
    let seconds = slow["estimate_seconds"].as_f64().expect("seconds");
    assert!((0.4..2.0).contains(&seconds), "{slow}");
}

#[test]
fn a_retry_that_waits_for_its_time_keeps_no_runner() {
    let spec = r#"
name: backoff
resource_requirements: [{name: both, num_cpus: 2}]
failure_handlers:
  - name: later
    rules: [{exit_codes: [3], max_retries: 2, backoff: {delay: 2s}}]
jobs:
  - name: wide
    priority: 100
    resource_requirements: both
    failure_handler: later
    command: "echo wide >> order.txt; test -e again || { touch again; exit 3; }"
  - name: narrow_{i}
    command: "echo narrow >> order.txt; sleep 0.1"
    parameters: {i: "1:6"}
"#;
    let test = Test::new().spec(spec);
    run(&test, "2");
    let order = started(&test);
    assert_eq!(order.first().map(String::as_str), Some("wide"));
    assert_eq!(order.last().map(String::as_str), Some("wide"), "{order:?}");
}

/// Eight jobs of an hour and one after them, by their `runtime`; a third of it is expected.
const HOURS: &str = r#"
name: hours
resource_requirements: [{name: hour, num_cpus: 1, runtime: 3h}]
jobs:
  - {name: "part_{i}", command: "test -e open || read line < gate || true", resource_requirements: hour, parameters: {i: "1:8"}}
  - {name: sum, command: "true", resource_requirements: hour, depends_on_regexes: ["^part_"]}
"#;

#[test]
fn status_tells_the_expected_end_its_interval_its_limit_and_its_bound() {
    let test = Test::new().spec(HOURS);
    let gate = test.gate("gate");
    let running = test.torc(["run", "workflow.yaml", "--num-cpus", "2", "--memory", "8g"]).spawn();
    let begun = std::time::Instant::now();
    let status = loop {
        assert!(begun.elapsed().as_secs() < 60, "no job runs");
        let said = test.torc(["-f", "json", "status"]).done();
        if said.stdout.contains("\"running\"") && said.json()["counts"]["running"] == 2 {
            break said.json();
        }
    };
    // Two CPUs, eight hours of parts and one more hour: five hours, of which seconds have gone.
    let forecast = &status["forecast"];
    let hours = |key: &str| forecast[key].as_f64().expect("a number") / 3600.0;
    assert!((4.9..=5.01).contains(&hours("seconds")), "{forecast}");
    assert!((4.9..=5.01).contains(&hours("bound_seconds")), "{forecast}");
    assert!(hours("low_seconds") < 5.0 && hours("high_seconds") > 5.0, "{forecast}");
    assert_eq!(
        (forecast["limited_by"].as_str(), forecast["cpus"].as_i64()),
        (Some("cpus"), Some(2))
    );
    let card = test.torc(["status"]).success();
    let line = card.stdout.lines().find(|line| line.trim_start().starts_with("end ")).expect("end");
    for part in
        ["in about ", ", limited by the number of CPUs; ", "cannot be faster than ", "with 2 CPUs"]
    {
        assert!(line.contains(part), "`{part}` is not in: {line}");
    }
    // Those that come later find it open.
    std::fs::write(test.path("open"), "").expect("it can be written");
    gate.open();
    running.wait().expect(0);
    let card = test.torc(["status"]).success();
    assert!(!card.stdout.contains("in about"), "it is over: {}", card.stdout);
}

#[test]
fn check_tells_the_expected_end_of_jobs_with_a_runtime_and_none_of_others() {
    let test = Test::new().spec(HOURS);
    let said = test.torc(["check", "workflow.yaml"]).success().stdout;
    let line = said.lines().find(|line| line.starts_with("end: in about ")).expect("a forecast");
    for part in [" to ", ", limited by ", "; cannot be faster than ", " here"] {
        assert!(line.contains(part), "`{part}` is not in: {line}");
    }
    let said = test.torc(["-f", "json", "check", "workflow.yaml"]).success().json();
    let forecast = &said["forecast"];
    assert_eq!((forecast["jobs"].as_i64(), forecast["unknown_jobs"].as_i64()), (Some(9), Some(0)));
    // However many CPUs there are, one part and the sum take two hours.
    assert!(forecast["bound_seconds"].as_f64().expect("a bound") >= 7199.0, "{forecast}");
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    let said = test.torc(["check", "workflow.yaml"]).success().stdout;
    assert!(!said.contains("end: "), "nothing is known: {said}");
}
