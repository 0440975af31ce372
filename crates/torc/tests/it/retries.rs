//! Retries under fire: kills between every two steps of the retry path, people who race, and
//! scripts that misbehave.

use crate::support::{Running, Test, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use torc_model::api::UpdateJob;
use torc_model::ids::JobId;
use torc_model::status::JobStatus;
use torc_model::words;

/// Fails once with 10, then succeeds; its rule has a script. Both write down what they did.
const SPEC: &str = r#"
name: path
failure_handlers:
  - name: h
    rules: [{exit_codes: [10], max_retries: 5, recovery_script: "echo \"script $TORC_ATTEMPT_ID\" >> witness"}]
jobs:
  - {name: flaky, command: "echo \"start $TORC_ATTEMPT_ID\" >> witness; [ -e failed ] || { touch failed; exit 10; }", failure_handler: h, max_lost_retries: 9}
  - {name: after, command: "echo after >> witness", depends_on: [flaky], max_lost_retries: 9}
"#;

fn serve(test: &Test, port: &str, point: Option<&str>) -> (Running, String) {
    let mut call = test.torc(["server", "run", "--port", port]);
    if let Some(point) = point {
        call = call.env("TORC_FAILPOINT", point);
    }
    let mut running = call.spawn();
    let url = running.wait_for_stdout("http://").trim().to_owned();
    (running, url.rsplit(':').next().expect("a port").to_owned())
}

fn attempts(test: &Test, job: &str) -> Vec<Value> {
    let all = test.torc(["-f", "json", "jobs", "attempts", job]).success().json();
    all["attempts"].as_array().expect("a list").clone()
}

/// Whatever was killed: one retry per failure, its script first, and everything at its end.
fn retried_exactly_once(test: &Test, place: &str) {
    assert_eq!(test.statuses(), ["flaky completed", "after completed"], "{place}");
    let list = attempts(test, "flaky");
    let numbers: Vec<i64> = list.iter().filter_map(|a| a["attempt_id"].as_i64()).collect();
    assert_eq!(numbers, (1..=list.len() as i64).collect::<Vec<_>>(), "{place}: {list:#?}");
    let retried: BTreeSet<i64> = list.iter().filter_map(|a| a["retry_of"].as_i64()).collect();
    assert_eq!(
        retried.len(),
        list.len() - 1,
        "{place}: each attempt but the last was retried once"
    );
    let witness = test.read("witness");
    let starts: Vec<&str> = witness.lines().filter(|line| line.starts_with("start")).collect();
    let distinct: BTreeSet<&str> = starts.iter().copied().collect();
    assert_eq!(starts.len(), distinct.len(), "{place}: an attempt ran twice:\n{witness}");
    for failed in list.iter().filter(|a| a["return_code"] == 10) {
        let number = failed["attempt_id"].as_i64().expect("a number");
        let script = witness.lines().position(|line| line == format!("script {number}"));
        let next = witness.lines().position(|line| {
            line.strip_prefix("start ")
                .and_then(|n| n.parse::<i64>().ok())
                .is_some_and(|n| n > number)
        });
        assert!(
            script.is_some_and(|script| next.is_none_or(|next| script < next)),
            "{place}:\n{witness}"
        );
    }
}

#[test]
fn a_killed_runner_anywhere_on_the_retry_path_gives_one_retry() {
    let points = [
        "runner.after_exit",
        "runner.before_claim",
        "runner.after_answer",
        "runner.before_spawn",
        "runner.after_spawn",
    ];
    let mut kills = 0;
    for point in points {
        for nth in 1..=4 {
            let place = format!("{point}:{nth}");
            let test = Test::new().spec(SPEC);
            let (server, _) = serve(&test, "0", None);
            test.torc(["create", "workflow.yaml", "--initialize"]).success();
            let first = test.torc(["runner", "1"]).env("TORC_FAILPOINT", &place).spawn().wait();
            if first.code.is_none() {
                kills += 1;
                if !test.statuses().iter().all(|job| job.ends_with("completed")) {
                    test.torc(["runner", "1"]).success();
                }
            }
            retried_exactly_once(&test, &place);
            drop(server);
        }
    }
    assert!(kills >= 12, "only {kills} kills");
}

#[test]
fn a_killed_server_anywhere_on_the_retry_path_gives_one_retry() {
    let mut kills = 0;
    for point in ["store.before_commit", "store.after_commit"] {
        for nth in 1..=9 {
            let place = format!("{point}:{nth}");
            let test = Test::new().spec(SPEC);
            let (server, port) = serve(&test, "0", None);
            test.torc(["create", "workflow.yaml", "--initialize"]).success();
            server.signal("KILL");
            server.wait();
            let call = || test.torc(["server", "run", "--port", &port]);
            let mut armed = call().env("TORC_FAILPOINT", &place).spawn();
            // The first commits are those of its own recovery: then it dies before it can serve.
            let is_up = armed.comes_up("http://");
            let pid = armed.pid();
            let next = call();
            // As soon as it is dead, the next one takes its place.
            let guard = std::thread::spawn(move || {
                let is_killed = armed.wait().code.is_none();
                let mut next = is_killed.then(|| next.spawn());
                next.as_mut().map(|next| next.wait_for_stdout("http://"));
                next
            });
            let (guard, second) = if is_up {
                (Some(guard), None)
            } else {
                (None, guard.join().expect("the next server"))
            };
            let url = format!("http://127.0.0.1:{port}");
            test.torc(["--url", &url, "--token-file", ".torc/token", "runner", "1"]).success();
            let second = match guard {
                None => second,
                Some(guard) => {
                    // If it never came to that place, it is still there and is told to stop.
                    let _ =
                        Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status();
                    guard.join().expect("the next server")
                }
            };
            kills += u32::from(second.is_some());
            retried_exactly_once(&test, &place);
            drop(second);
        }
    }
    assert!(kills >= 12, "only {kills} kills");
}

#[test]
fn racing_retries_give_one_attempt() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'exit 3'}]\n");
    let (_server, _) = serve(&test, "0", None);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    test.torc(["runner", "1"]).exit(1);
    assert_eq!(test.statuses(), ["a failed"]);
    let calls: Vec<Running> = (0..6).map(|_| test.torc(["jobs", "retry", "a"]).spawn()).collect();
    let done: Vec<_> = calls.into_iter().map(Running::wait).collect();
    let wins = done.iter().filter(|done| done.code == Some(0)).count();
    assert_eq!(wins, 1, "{done:#?}");
    assert!(
        done.iter()
            .filter(|done| done.code != Some(0))
            .all(|done| words::has(&done.stderr, "only a failed or terminated")),
        "{done:#?}"
    );
    let list = attempts(&test, "a");
    assert_eq!(list.len(), 2, "{list:#?}");
    assert_eq!(text(&list[1]["origin"]), "manual");
}

#[test]
fn racing_verdicts_give_one_decision() {
    let test = Test::new().spec("name: w\nuse_pending_failed: true\njobs:\n  - {name: a, command: 'exit 3'}\n  - {name: b, command: 'true', depends_on: [a]}\n");
    let (_server, port) = serve(&test, "0", None);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    test.torc(["runner", "1"]).done();
    assert_eq!(test.statuses(), ["a pending_failed", "b blocked"]);
    let client =
        torc_client::Client::new(&format!("http://127.0.0.1:{port}"), &test.read(".torc/token"))
            .expect("a client");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let calls: Vec<_> = (0..6)
        .map(|i| if i % 2 == 0 { JobStatus::Ready } else { JobStatus::Failed })
        .map(|status| {
            let (client, update) =
                (client.clone(), UpdateJob { status: Some(status), ..UpdateJob::default() });
            runtime.spawn(async move { (status, client.update_job(JobId(1), &update).await) })
        })
        .collect();
    let done: Vec<_> =
        calls.into_iter().map(|call| runtime.block_on(call).expect("an answer")).collect();
    let won: Vec<JobStatus> =
        done.iter().filter(|(_, answer)| answer.is_ok()).map(|(status, _)| *status).collect();
    assert_eq!(won.len(), 1, "{done:#?}");
    let refused = |answer: &Result<_, torc_client::Error>| {
        answer.as_ref().err().and_then(torc_client::Error::status)
    };
    assert_eq!(
        done.iter().filter_map(|(_, answer)| refused(answer)).collect::<Vec<_>>(),
        [409; 5],
        "{done:#?}"
    );
    let expected = if won == [JobStatus::Ready] {
        ["a ready", "b blocked"]
    } else {
        ["a failed", "b canceled"]
    };
    assert_eq!(test.statuses(), expected);
    assert_eq!(attempts(&test, "a").len(), if won == [JobStatus::Ready] { 2 } else { 1 });
}

#[test]
fn scripts_that_misbehave_harm_no_other_job() {
    let spec = r#"
name: scripts
failure_handlers:
  - name: deletes
    rules: [{exit_codes: [1], recovery_script: "echo gone; rm -f output/job_stdio/*_recovery.*", max_retries: 2}]
  - name: talks
    rules: [{exit_codes: [1], recovery_script: "head -c 1000000000 /dev/zero", max_retries: 2}]
  - name: forks
    rules: [{exit_codes: [1], recovery_script: "(setsid sleep 7531 &) ; sleep 7531 & disown; echo forked", max_retries: 2}]
jobs:
  - {name: deletes, command: "[ $TORC_ATTEMPT_ID -ge 2 ]", failure_handler: deletes}
  - {name: talks, command: "[ $TORC_ATTEMPT_ID -ge 2 ]", failure_handler: talks}
  - {name: forks, command: "[ $TORC_ATTEMPT_ID -ge 2 ]", failure_handler: forks}
"#;
    let test = Test::new().spec(spec);
    test.run().expect(0);
    assert_eq!(test.statuses(), ["deletes completed", "talks completed", "forks completed"]);
    for job in ["deletes", "talks", "forks"] {
        assert_eq!(test.last_attempt(job)["script"]["return_code"], 0, "{job}");
    }
    assert_eq!(
        crate::support::processes_with("sleep\u{0}7531"),
        [] as [u32; 0],
        "nothing of a script survives it"
    );
    // What it said is on disk as it said it; it is not read whole.
    let said = test.torc(["logs", "talks"]).done();
    assert!(said.stdout.len() + said.stderr.len() < 10_000_000, "{} bytes", said.stdout.len());
}
