//! The page and the report from the command line: links, sessions, filters, files.

use crate::support::Test;

const SPEC: &str = "
name: sweep
jobs:
  - {name: prep, command: 'true'}
  - {name: 'train_{i}', command: 'echo out; if [ {i} = 3 ]; then echo \"</script><b>bad</b>\" >&2; exit 4; fi', depends_on: [prep], parameters: {i: '1:6'}}
  - {name: report, command: 'true', depends_on_regexes: ['train_.*']}
";

fn ran() -> Test {
    let test = Test::new().file("sweep.yaml", SPEC);
    test.torc(["run", "sweep.yaml"]).exit(1);
    test
}

#[test]
fn jobs_are_listed_and_acted_on_by_filter() {
    let test = ran();
    let listed = test
        .torc(["-f", "json", "jobs", "list", "--where", "family:train -status:completed"])
        .success();
    let listed = listed.json();
    assert_eq!(listed["total_count"], 1);
    assert_eq!(listed["jobs"][0]["name"], "train_3");
    assert_eq!(listed["jobs"][0]["family"], "train");
    let plan = test.torc(["jobs", "act", "retry", "--where", "exit:4", "--dry-run"]).success();
    assert!(plan.stdout.starts_with("retry: would be done with 1 job of 1"), "{}", plan.stdout);
    assert!(plan.stdout.contains("1 more job that had been canceled"), "{}", plan.stdout);
    let wrong = test.torc(["jobs", "list", "--where", "statsu:failed"]).exit(2);
    assert!(wrong.stderr.contains("unknown field `statsu` (known: status,"), "{}", wrong.stderr);
    let wrong = test.torc(["jobs", "act", "retyr", "--where", "x"]).exit(2);
    assert!(wrong.stderr.contains("did you mean `retry`?"), "{}", wrong.stderr);
}

#[test]
fn a_link_is_printed_and_its_server_ends_with_the_command() {
    let test = ran();
    let mut page = test.torc(["ui", "--no-browser", "sweep"]).spawn();
    let link = page.wait_for_stdout("http://127.0.0.1");
    assert!(link.contains("/ui/w/1#k="), "{link}");
    let seen = test.torc(["ui", "sessions"]).success();
    assert!(seen.stderr.contains("no sessions"), "{} {}", seen.stdout, seen.stderr);
    assert!(test.path(".torc/ui.sock").exists());
    page.signal("INT");
    page.wait();
    assert!(!test.path(".torc/ui.sock").exists());
}

#[test]
fn a_report_is_one_file_that_loads_nothing_and_runs_nothing_of_the_jobs() {
    let test = ran();
    test.torc(["report", "-o", "run.html"]).success();
    let html = test.read("run.html");
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
    for outside in ["src=\"", "href=\"http", "@import", "url(http"] {
        assert!(!html.contains(outside), "the report has `{outside}`");
    }
    // What jobs wrote ends no element and begins none.
    assert!(!html.contains("<b>bad</b>") && html.contains("&lt;b&gt;bad&lt;/b&gt;"));
    assert_eq!(html.matches("</script>").count(), 4);
    assert!(html.contains("<h2>Families</h2>") && html.contains("<td>train</td>"));
    test.torc(["report", "-o", "small.html", "--redact"]).success();
    let small = test.read("small.html");
    assert!(!small.contains("bad") || !small.contains("&lt;b&gt;"), "output is left out");
}

#[test]
fn a_report_tells_what_was_retried_and_stays_small_at_a_thousand_jobs() {
    let spec = "
name: many
failure_handlers: [{name: again, rules: [{exit_codes: [4], max_retries: 2}]}]
jobs:
  - {name: 'flaky_{i}', failure_handler: again, command: 'test -e tried_{i} || { touch tried_{i}; exit 4; }', parameters: {i: '1:3'}}
  - {name: 'work_{i}', command: 'true', parameters: {i: '1:1000'}}
";
    let test = Test::new().file("many.yaml", spec);
    test.torc(["run", "many.yaml", "--num-cpus", "8"]).success();
    let written = test.torc(["-f", "json", "report", "-o", "run.html"]).success().json();
    assert!(written["bytes"].as_i64().unwrap() <= 1 << 20, "{written}");
    let html = test.read("run.html");
    let retries = html.split_once("<h2>Retries</h2>").expect("a table").1;
    assert!(
        retries.contains("<td>flaky</td><td>3</td><td>3</td><td>3</td>"),
        "{}",
        &retries[..600]
    );
}

#[test]
fn a_trace_has_every_attempt() {
    let test = ran();
    test.torc(["export", "trace", "-o", "t.json"]).success();
    let trace: serde_json::Value = serde_json::from_str(&test.read("t.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let bars: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(bars.len(), 7);
    assert!(bars.iter().any(|bar| bar["name"] == "train_3" && bar["args"]["state"] == "failed"));
    assert!(bars.iter().all(|bar| bar["cat"] == "prep" || bar["cat"] == "train"));
}
