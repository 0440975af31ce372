//! `--ai-recovery` with agents that are programs of ours: one that judges, and some that do not.

use crate::mcp::waiting;
use crate::support::mcp::{Http, Mcp};
use crate::support::{Test, processes_with, text};
use serde_json::{Value, json};

/// An agent that is this very test program, started again to run the test `NAME` with its task in
/// the environment.
pub fn this_program(name: &str) -> Value {
    let program = std::env::current_exe().expect("this program");
    json!({
        "command": [program, "--exact", name, "--nocapture", "--ignored"],
        "env": {"TASK_URL": "{mcp_url}", "TASK_TOKEN": "{mcp_token}", "TASK_WORKFLOW": "{workflow_id}"}
    })
}

/// The task of an agent that this test program was started as.
pub fn task() -> (Http, i64) {
    let value = |name| std::env::var(name).expect("started as an agent");
    (
        Http::connect(&value("TASK_URL"), &value("TASK_TOKEN")),
        value("TASK_WORKFLOW").parse().expect("an id"),
    )
}

fn with_agents(test: &Test) {
    let sh = |script: &str| json!({"command": ["sh", "-c", script]});
    let agents = json!({
        "judge": this_program("agents::judging_agent"),
        "stubborn": this_program("agents::stubborn_agent"),
        "idle": sh("echo I am sure that all is well; exit 0"),
        "stuck": sh("echo waiting; sleep 9731 & wait"),
        "curious": sh("env > seen; cat \"$PWD/seen\"; ls -la"),
        "absent": {"command": ["torc-no-such-agent"], "check": ["torc-no-such-agent", "--version"], "install": "apt"}
    });
    test.write("agents.json", &agents.to_string());
}

/// Started as an agent by the tests below: retries what was refused, gives up the rest.
#[test]
#[ignore = "an agent for the other tests"]
fn judging_agent() {
    let (mut mcp, workflow) = task();
    assert_eq!(mcp.tools().len(), 2);
    let list =
        mcp.call("list_pending_failed_jobs", json!({"workflow_id": workflow})).expect("a list");
    let verdicts: Vec<Value> = list["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| {
            let print = &group["fingerprint"];
            let action = if text(&print["template"]).contains("refused") { "retry" } else { "fail" };
            json!({"fingerprint": print["id"], "action": action, "confidence": 0.9, "reason": "by its words"})
        })
        .collect();
    mcp.call(
        "classify_and_resolve_failures",
        json!({"workflow_id": workflow, "classifications": verdicts}),
    )
    .expect("taken");
}

/// Started as an agent: asks the same again and again, whatever it is told.
#[test]
#[ignore = "an agent for the other tests"]
fn stubborn_agent() {
    let (mut mcp, workflow) = task();
    loop {
        // Refused after a while; it does not care.
        let _ = mcp.call("list_pending_failed_jobs", json!({"workflow_id": workflow}));
    }
}

#[test]
fn an_agent_that_calls_without_end_is_stopped() {
    let test = waiting();
    with_agents(&test);
    let done = test
        .torc([
            "recover",
            "1",
            "--ai-recovery",
            "--ai-agent",
            "stubborn",
            "--ai-rounds",
            "1",
            "--ai-max-calls",
            "2",
        ])
        .env("TORC_AGENTS", "agents.json")
        .exit(1);
    assert!(done.stderr.contains("it may call 2 times and would not end"), "{}", done.stderr);
}

#[test]
fn recover_lets_an_agent_judge_what_waits() {
    let test = waiting();
    with_agents(&test);
    let recover = |args: &[&str]| {
        let args: Vec<&str> =
            ["recover", "1", "--ai-recovery"].iter().chain(args).copied().collect();
        test.torc(args).env("TORC_AGENTS", "agents.json")
    };
    recover(&["--ai-agent", "absent"]).exit(2).tells("is not here").tells("apt");
    recover(&["--ai-agent", "nobody"]).exit(2).tells("known: absent, claude, codex");
    recover(&["--ai-agent", "idle", "--ai-rounds", "2"]).exit(1).tells("2 undecided");
    let stopped =
        recover(&["--ai-agent", "stuck", "--ai-rounds", "1", "--ai-timeout", "1s"]).exit(1);
    assert!(stopped.stderr.contains("was stopped after 1 s"), "{}", stopped.stderr);
    assert_eq!(processes_with("sleep 9731"), [0_u32; 0], "what the agent started ends with it");
    recover(&["--ai-agent", "judge", "--ai-rounds", "1", "--ai-max-calls", "1"])
        .exit(1)
        .tells("2 undecided");
    assert_eq!(test.statuses()[0], "flaky pending_failed");
    recover(&["--ai-agent", "judge"]).exit(0).tells("1 to be tried again, 1 failed for good");
    assert_eq!(
        test.statuses(),
        ["flaky ready", "broken failed", "after canceled", "fine completed"]
    );
    let logs: Vec<_> =
        std::fs::read_dir(test.path("output/ai_recovery")).expect("logs").flatten().collect();
    assert_eq!(logs.len(), 5, "two idle rounds, one stuck, one cut short, one that judged");
    let last = logs.iter().map(std::fs::DirEntry::path).max().expect("the last round");
    for name in ["prompt.txt", "stdout.txt", "stderr.txt", "calls.jsonl"] {
        assert!(last.join(name).is_file(), "{name}");
    }
    let calls = std::fs::read_to_string(last.join("calls.jsonl")).expect("calls");
    assert_eq!(calls.lines().count(), 2, "{calls}");
}

#[test]
fn an_agent_gets_no_way_to_the_server_besides_its_tools() {
    let test = waiting();
    with_agents(&test);
    test.torc(["recover", "1", "--ai-recovery", "--ai-agent", "curious", "--ai-rounds", "1"])
        .env("TORC_AGENTS", "agents.json")
        .env("TORC_DIR", test.path(".torc"))
        .exit(1);
    let logs = std::fs::read_dir(test.path("output/ai_recovery"))
        .expect("logs")
        .flatten()
        .next()
        .expect("a round");
    let seen = std::fs::read_to_string(logs.path().join("stdout.txt")).expect("what it saw");
    assert!(
        seen.contains("PATH=") && !seen.contains("TORC_DIR") && !seen.contains("TORC_TOKEN"),
        "{seen}"
    );
    let server = test.path(".torc/server.json");
    assert!(!seen.contains(&server.display().to_string()));
}

#[test]
fn watch_asks_the_agent_and_goes_on_with_what_it_decided() {
    let test = waiting();
    with_agents(&test);
    test.write("fixed", "");
    let done = test
        .torc(["watch", "1", "--recover", "--ai-recovery", "--ai-agent", "judge"])
        .env("TORC_AGENTS", "agents.json")
        .exit(1);
    assert!(done.stderr.contains("asking for verdicts"), "{}", done.stderr);
    assert_eq!(
        test.statuses(),
        ["flaky completed", "broken failed", "after canceled", "fine completed"]
    );
    test.torc(["watch", "1", "--ai-recovery"]).exit(2).tells("add `--recover`");
}

#[test]
fn the_record_decides_before_an_agent_is_asked() {
    let spec = "\
name: record
use_pending_failed: true
jobs:
  - {name: \"j{i}\", command: \"test -e fixed || { echo 'StoreError: refused by {i}' >&2; exit 1; }\", parameters: {i: \"1:6\"}}
";
    let test = Test::new().spec(spec);
    with_agents(&test);
    test.run().expect(1);
    for job in ["j1", "j2", "j3", "j4", "j5"] {
        test.torc(["jobs", "classify", job, "--retry"]).success();
    }
    test.write("fixed", "");
    test.torc(["run", "1"]).exit(1);
    let recover = ["recover", "1", "--ai-recovery", "--ai-agent", "idle", "--ai-rounds", "1"];
    let without =
        test.torc(recover.iter().chain(&["--no-memory"])).env("TORC_AGENTS", "agents.json").exit(1);
    assert!(without.stderr.contains("1 undecided"), "{}", without.stderr);
    test.torc(recover)
        .env("TORC_AGENTS", "agents.json")
        .exit(0)
        .says("earlier retries of such a failure succeeded")
        .tells("1 job queued again");
    test.torc(["run", "1"]).exit(0);
}
