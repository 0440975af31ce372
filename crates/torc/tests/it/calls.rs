//! Commands act on the server that they name, and every caller is told what really happened.

use crate::support::{Running, Test, text};
use serde_json::json;
use torc_model::words;

const FAILS: &str = "name: far\njobs: [{name: a, command: 'exit 3'}]\n";

fn serve(test: &Test) -> (Running, String) {
    let mut running = test.torc(["server", "run"]).spawn();
    let url = running.wait_for_stdout("http://").trim().to_string();
    (running, url)
}

/// A server with a failed workflow, and a directory with a workflow of its own.
fn far_and_near() -> (Test, Running, String, Test, String) {
    let far = Test::new().spec(FAILS);
    far.run().expect(1);
    let (server, url) = serve(&far);
    let near = Test::new().spec("name: near\njobs: [{name: n, command: 'true'}]\n");
    near.run().expect(0);
    let token = far.path(".torc/token").display().to_string();
    (far, server, url, near, token)
}

#[test]
fn server_commands_never_answer_for_another_server() {
    let (far, server, url, near, token) = far_and_near();
    for command in [&["backup", "copy.db"][..], &["doctor"], &["token"]] {
        let call = [&["--url", &url, "--token-file", &token, "server"], command].concat();
        near.torc(call).exit(2).tells("belongs to the server at").tells("hint:");
        near.torc([&["server"], command].concat())
            .env("TORC_API_URL", &url)
            .env("TORC_TOKEN_FILE", &token)
            .exit(2)
            .tells(&url);
        assert!(!near.exists("copy.db"));
    }
    // Where that server's state is, they work on it.
    far.torc(["--url", &url, "server", "backup", "copy.db"]).success();
    assert!(far.exists("copy.db"));
    assert_eq!(
        far.torc(["--url", &url, "server", "token"]).success().stdout.trim(),
        far.read(".torc/token").trim()
    );
    far.torc(["--url", &url, "server", "doctor"]).success();
    near.torc(["server", "backup", "own.db"]).success();
    drop(server);
}

#[test]
fn a_recovery_hook_speaks_to_the_server_of_its_caller() {
    let (_far, server, url, near, token) = far_and_near();
    near.write("hook.sh", "torc -f json workflows list > seen.json\n");
    near.torc([
        "--url",
        &url,
        "--token-file",
        &token,
        "recover",
        "far",
        "--recovery-hook",
        "sh hook.sh",
    ])
    .success();
    assert!(near.read("seen.json").contains("\"far\""), "{}", near.read("seen.json"));
    drop(server);
}

#[test]
fn a_recovery_hook_finds_the_state_that_was_named() {
    let far = Test::new().spec(FAILS);
    far.run().expect(1);
    let near = Test::new().file("hook.sh", "torc -f json workflows list > seen.json\n");
    let dir = far.path(".torc").display().to_string();
    near.torc(["--dir", &dir, "recover", "far", "--recovery-hook", "sh hook.sh"]).success();
    assert!(near.read("seen.json").contains("\"far\""), "{}", near.read("seen.json"));
}

#[test]
fn hints_name_the_server_as_the_call_did() {
    let (_far, server, url, near, token) = far_and_near();
    let named = format!("`torc --url {url} --token-file {token} ");
    near.torc(["--url", &url, "--token-file", &token, "why", "a"]).success().says(&named);
    near.torc(["--url", &url, "--token-file", &token, "workflows", "initialize", "far"]).exit(2);
    let told = near.torc(["--url", &url, "--token-file", &token, "watch", "far"]).exit(1);
    assert!(
        !told.stderr.contains("`torc why") && !told.stderr.contains("`torc recover"),
        "{}",
        told.stderr
    );
    // What comes from the environment holds for the next call, too.
    let why = near
        .torc(["why", "a"])
        .env("TORC_API_URL", &url)
        .env("TORC_TOKEN_FILE", &token)
        .success()
        .says("`torc logs 1`");
    assert!(!why.stdout.contains("--url"), "{}", why.stdout);
    drop(server);
}

/// A request with the owner's token; answers with status and body.
fn post(test: &Test, url: &str, path: &str, body: &serde_json::Value) -> (i64, serde_json::Value) {
    let script = format!(
        r#"import json, sys, urllib.request, urllib.error
request = urllib.request.Request("{url}/torc-service/v1{path}", data=sys.argv[1].encode(), method="POST",
    headers={{"Authorization": "Bearer " + open(".torc/token").read().strip(), "Content-Type": "application/json"}})
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, json.loads(answer.read() or "null")]))
"#
    );
    test.write("post.py", &script);
    let done = test.shell(&format!("python3 post.py '{body}'")).success().json();
    (done[0].as_i64().expect("a status"), done[1].clone())
}

#[test]
fn the_second_of_two_calls_for_the_next_run_is_told_so() {
    let test = Test::new()
        .spec("name: w\nfiles: [{name: in, path: in.txt}]\njobs: [{name: a, command: cat in.txt, input_files: [in]}]\n")
        .file("in.txt", "1");
    test.run().expect(0);
    let (server, url) = serve(&test);
    test.write("in.txt", "22");
    for route in ["reinitialize", "reset_status"] {
        let run =
            test.torc(["-f", "json", "workflows", "get", "1"]).success().json()["run_id"].clone();
        // Both callers have seen the same run.
        let seen = json!({"run_id": run});
        let (status, first) = post(&test, &url, &format!("/workflows/1/{route}"), &seen);
        assert_eq!((status, first["jobs"].as_array().map(Vec::len)), (200, Some(1)), "{first}");
        let (status, second) = post(&test, &url, &format!("/workflows/1/{route}"), &seen);
        assert_eq!((status, text(&second["error"]["code"])), (409, "run_changed"), "{second}");
        if route == "reinitialize" {
            test.torc(["run", "1"]).success();
        }
    }
    drop(server);
}

#[test]
fn many_simultaneous_reinitializations_have_one_winner_or_the_same_answer() {
    let test = Test::new()
        .spec("name: w\nfiles: [{name: in, path: in.txt}]\njobs: [{name: a, command: cat in.txt, input_files: [in]}]\n")
        .file("in.txt", "1");
    test.run().expect(0);
    let (server, _) = serve(&test);
    test.write("in.txt", "22");
    let calls: Vec<Running> = (0..6)
        .map(|_| test.torc(["-f", "json", "workflows", "reinitialize", "1"]).spawn())
        .collect();
    let ends: Vec<_> = calls.into_iter().map(Running::wait).collect();
    let winners = ends
        .iter()
        .filter(|end| {
            end.code == Some(0) && end.json()["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1)
        })
        .count();
    assert_eq!(winners, 1, "{ends:?}");
    drop(server);
}

#[test]
fn a_disabled_job_is_not_a_failure_of_the_workflow() {
    let test = Test::new()
        .spec("name: d\njobs: [{name: a, command: 'true'}, {name: b, command: 'exit 1'}]\n");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    test.torc(["jobs", "disable", "b"]).success();
    test.torc(["run", "d"]).success();
    test.torc(["watch", "d"]).success().tells("1 disabled");
    test.torc(["status", "d", "--watch"]).success();
}

#[test]
fn a_rule_that_is_spent_by_another_says_so() {
    let test = Test::new().spec(
        r#"
name: budgets
failure_handlers:
  - name: two
    rules: [{exit_codes: [10], max_retries: 3}, {exit_codes: [11], max_retries: 2}]
jobs:
  - {name: a, failure_handler: two, command: "test $TORC_ATTEMPT_ID -lt 3 && exit 10; exit 11"}
"#,
    );
    test.run().expect(1);
    let attempt = test.last_attempt("a");
    assert_eq!(attempt["attempt_id"], 3);
    let decision = text(&attempt["decision"]);
    assert!(!decision.contains("3 of 2"), "{decision}");
    assert!(words::has(decision, "up to attempt 2"), "{decision}");
}

#[test]
fn an_action_does_not_fire_for_jobs_that_never_became_ready() {
    let test = Test::new().spec(
        r#"
name: acts
jobs:
  - {name: bad, command: "exit 1"}
  - {name: good, command: "true"}
  - {name: c1, command: "true", depends_on: [bad]}
  - {name: c2, command: "true", depends_on: [bad]}
  - {name: r1, command: "true", depends_on: [good]}
actions:
  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [c1, c2], commands: ["echo canceled >> log"]}
  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [r1], commands: ["echo ready >> log"]}
"#,
    );
    test.run().expect(1);
    assert_eq!(test.read("log"), "ready\n");
    // Once the cause is mended they do become ready.
    let test = Test::new().spec(
        "name: again\njobs:\n  - {name: bad, command: 'test -e mended'}\n  - {name: c1, command: 'true', depends_on: [bad]}\nactions:\n  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [c1], commands: ['echo ready >> log']}\n",
    );
    test.run().expect(1);
    assert!(!test.exists("log"));
    test.write("mended", "");
    test.torc(["jobs", "retry", "bad"]).success();
    test.torc(["run", "again"]).success();
    assert_eq!(test.read("log"), "ready\n");
}

#[test]
fn what_recovery_cannot_do_is_not_hinted_at() {
    let test = Test::new().spec(
        r#"
name: huge
resource_requirements: [{name: most, num_cpus: 1, memory: 64m}]
jobs:
  - name: eat
    resource_requirements: most
    command: python3 -c 'x = bytearray(400 << 20); import time; time.sleep(60)'
"#,
    );
    test.torc(["run", "workflow.yaml", "--memory", "64m"]).exit(1);
    let why = test.torc(["why", "eat"]).success().says("cannot be recovered");
    assert!(!why.stdout.contains("torc recover"), "{}", why.stdout);
}

#[test]
fn an_endless_line_of_a_job_does_not_fill_the_screen() {
    let test = Test::new().spec(
        "name: endless\njobs: [{name: a, command: 'head -c 200000 /dev/zero | tr \"\\0\" x >&2; exit 1'}]\n",
    );
    test.run().expect(1);
    let why = test.torc(["why", "a"]).success();
    let longest = why.stdout.lines().map(str::len).max().expect("lines");
    assert!(longest < 1500, "{longest}");
}
