//! The MCP server from outside, over both transports.

use crate::support::mcp::{Http, Mcp, Pipe};
use crate::support::{TORC, Test, text};
use serde_json::{Value, json};
use std::process::Command;
use torc_model::words;

/// Two failures that wait, one with a child, and one job that is done.
pub const SPEC: &str = "\
name: verdicts
use_pending_failed: true
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m}
jobs:
  - {name: flaky, resource_requirements: small, command: \"test -e fixed || { echo 'StoreError: store 7 refused, token=abcdef123456' >&2; exit 1; }\"}
  - {name: broken, command: \"echo 'LedgerError: sums differ' >&2; exit 1\"}
  - {name: after, command: \"true\", depends_on: [broken]}
  - {name: fine, command: \"true\"}
";

/// A directory in which [`SPEC`] has run.
pub fn waiting() -> Test {
    let test = Test::new().spec(SPEC);
    test.run().expect(1);
    assert_eq!(
        test.statuses(),
        ["flaky pending_failed", "broken pending_failed", "after blocked", "fine completed"]
    );
    test
}

fn classify(job: i64, action: &str) -> Value {
    json!({"job_id": job, "action": action, "reason": "a test", "confidence": 0.9})
}

/// What must hold over both transports.
fn judge(test: &Test, mcp: &mut impl Mcp) {
    assert_eq!(mcp.tools(), ["list_pending_failed_jobs", "classify_and_resolve_failures"]);
    let list = mcp.call("list_pending_failed_jobs", json!({"workflow_id": 1})).expect("a list");
    assert_eq!(list["pending_failed_count"], json!(2));
    let groups = list["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 2, "{list}");
    let flaky = &groups[0]["examples"][0];
    assert_eq!(
        (&flaky["job_id"], &flaky["attempt_id"], &flaky["return_code"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let tail = text(&flaky["untrusted_stderr_tail"]);
    assert!(
        tail.contains("StoreError: store 7 refused") && !tail.contains("abcdef123456"),
        "{tail}"
    );
    assert!(text(&list["guidance"]).contains("Often transient"), "{list}");

    for (wrong, message) in [
        (json!([classify(4, "retry")]), "is completed, not pending_failed"),
        (json!([classify(3, "fail")]), "is blocked, not pending_failed"),
        (json!([classify(1, "retry"), classify(99, "fail")]), "workflow 1 has no job 99"),
        (json!([{"job_id": 1, "action": "retry", "memory": "1k"}]), "never lowered"),
    ] {
        let refused = mcp.call(
            "classify_and_resolve_failures",
            json!({"workflow_id": 1, "classifications": wrong}),
        );
        assert!(refused.as_ref().is_err_and(|e| words::has(e, message)), "{message}: {refused:?}");
    }
    let refused = mcp.call("list_pending_failed_jobs", json!({"workflow_id": 2}));
    assert!(refused.is_err_and(|e| words::has(&e, "only answers for workflow 1")));
    assert!(
        mcp.call("recover_workflow", json!({"workflow_id": 1}))
            .is_err_and(|e| e.contains("no tool"))
    );

    let verdicts = json!([{"job_id": 1, "action": "retry", "memory": "200m", "reason": "store was down"},
                          {"fingerprint": groups[1]["fingerprint"]["id"], "action": "fail", "confidence": 0.95}]);
    let dry = mcp
        .call(
            "classify_and_resolve_failures",
            json!({"workflow_id": 1, "classifications": verdicts, "dry_run": true}),
        )
        .expect("told");
    assert_eq!((&dry["jobs_to_retry"], &dry["jobs_canceled"]), (&json!(1), &json!(1)));
    assert_eq!(test.statuses()[0], "flaky pending_failed");
    let done = mcp
        .call(
            "classify_and_resolve_failures",
            json!({"workflow_id": 1, "classifications": verdicts}),
        )
        .expect("taken");
    assert_eq!(done["results"].as_array().map(Vec::len), Some(2), "{done}");
    assert_eq!(
        test.statuses(),
        ["flaky ready", "broken failed", "after canceled", "fine completed"]
    );
    let job = test.torc(["-f", "json", "jobs", "get", "flaky"]).success().json();
    assert_eq!((&job["attempt_id"], &job["memory"]), (&json!(2), &json!("200m")));
    test.write("fixed", "");
    test.torc(["run", "1"]).exit(1);
    let history = test.torc(["-f", "json", "jobs", "classify", "--history"]).success().json();
    let rows = history["classifications"].as_array().expect("rows");
    assert_eq!(
        (&rows[0]["outcome"], &rows[0]["agent"]),
        (&json!("succeeded"), &json!("robot")),
        "{history}"
    );
    assert_eq!((&rows[1]["action"], &rows[1]["state"]), (&json!("fail"), &json!("applied")));
}

#[test]
fn an_agent_judges_over_standard_input_and_output() {
    let test = waiting();
    let mut mcp = Pipe::torc(&test, &["--unattended", "--workflow", "1", "--agent-name", "robot"]);
    judge(&test, &mut mcp);
    assert_eq!(mcp.end(), Some(0));
}

#[test]
fn an_agent_judges_over_http_with_a_token() {
    let test = waiting();
    let args = [
        "mcp",
        "--http",
        "0",
        "--http-token-file",
        "token",
        "--unattended",
        "-w",
        "1",
        "--agent-name",
        "robot",
    ];
    let mut server = test.torc(args).spawn();
    let line = server.wait_for_stdout("url");
    let url = line.split_whitespace().nth(1).expect("an address").to_owned();
    let token = test.read("token").trim().to_owned();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let bearer = format!("Bearer {token}");
    for headers in [
        vec![("Host", address.as_str())],
        vec![("Host", &address), ("Authorization", "Bearer wrong")],
        vec![("Host", &address), ("Authorization", &bearer), ("Authorization", "Bearer x")],
    ] {
        assert_eq!(Http::exchange(&address, &headers, ping).0, 401, "{headers:?}");
    }
    let (status, _) =
        Http::exchange(&address, &[("Host", "evil.example"), ("Authorization", &bearer)], ping);
    assert_eq!(status, 403, "another host");
    let foreign = [
        ("Host", address.as_str()),
        ("Authorization", &bearer),
        ("Origin", "https://evil.example"),
    ];
    assert_eq!(Http::exchange(&address, &foreign, ping).0, 403, "another origin");
    judge(&test, &mut Http::connect(&url, &token));
    server.signal("INT");
    server.wait().expect(0);
}

#[test]
fn an_assistant_gets_more_tools_under_the_old_name() {
    let test = waiting();
    let link = test.path("torc-mcp-server");
    std::os::unix::fs::symlink(TORC, &link).expect("a link");
    let mut command = Command::new(&link);
    command.current_dir(test.path("."));
    let mut mcp = Pipe::start(command);
    let tools = mcp.tools();
    for known in [
        "get_workflow_status",
        "list_failed_jobs",
        "get_job_logs",
        "recover_workflow",
        "create_workflow",
    ] {
        assert!(tools.contains(&known.to_owned()), "{tools:?}");
    }
    let status = mcp.call("get_workflow_status", json!({"workflow_id": 1})).expect("a status");
    assert_eq!(status["workflow_id"], json!(1), "{status}");
    let failed = mcp.call("list_failed_jobs", json!({"workflow_id": 1})).expect("jobs");
    assert_eq!(failed["count"], json!(2));
    let logs = mcp.call("get_job_logs", json!({"job_id": 2})).expect("logs");
    assert_eq!(logs["untrusted_output"], json!("LedgerError: sums differ"));
    let details = mcp.call("get_job_details", json!({"job_id": 1})).expect("details");
    assert_eq!(details["job"]["name"], json!("flaky"));
    let plan = mcp.call("get_execution_plan", json!({"workflow_id": 1})).expect("a plan");
    assert_eq!(
        (&plan["total_jobs"], plan["stages"].as_array().map(Vec::len)),
        (&json!(4), Some(2))
    );
    for tool in [
        "get_workflow_summary",
        "list_results",
        "check_resource_utilization",
        "list_classifications",
    ] {
        mcp.call(tool, json!({"workflow_id": 1})).unwrap_or_else(|e| panic!("{tool}: {e}"));
    }
    let dry = mcp
        .call("recover_workflow", json!({"workflow_id": 1, "retry_unknown": true}))
        .expect("a plan");
    assert_eq!(dry["dry_run"], json!(true));
    let update = json!({"job_id": 1, "memory": "300m", "num_cpus": 2});
    let changed = mcp.call("update_job_resources", update).expect("changed");
    assert_eq!((&changed["memory"], &changed["num_cpus"]), (&json!("300m"), &json!(2)));
    let groups = json!([{"job_ids": [1, 2], "num_cpus": 3}]);
    let call = |dry_run: bool| json!({"workflow_id": 1, "groups": groups, "dry_run": dry_run});
    let dry = mcp.call("regroup_job_resources", call(true)).expect("a plan");
    assert_eq!(dry["jobs"][0]["num_cpus"], json!(2));
    let done = mcp.call("regroup_job_resources", call(false)).expect("changed");
    assert_eq!(done["jobs"][1]["num_cpus"], json!(3));
    for tool in ["analyze_resource_usage", "check_offline_journals"] {
        mcp.call(tool, json!({"workflow_id": 1})).unwrap_or_else(|e| panic!("{tool}: {e}"));
    }
    let examples = mcp.call("list_examples", json!({})).expect("a list");
    assert_eq!(examples["examples"][0]["name"], json!("01-hello"));
    let example = mcp.call("get_example", json!({"name": "diamond"})).expect("an example");
    assert!(text(&example["text"]).contains("depends_on"), "{example}");
    let docs = mcp.call("get_docs", json!({"topic": "failure-handlers"})).expect("a page");
    assert!(text(&docs["text"]).contains("exit_codes"), "{docs}");
    mcp.call("get_docs", json!({"topic": "nothing"})).expect_err("there is no such page");
    let spec = json!({"name": "made", "jobs": [{"name": "a", "command": "true"}]});
    let wrong = mcp.call("create_workflow", json!({"spec": {"name": "x", "jobs": [{"nam": "a"}]}}));
    assert!(wrong.as_ref().is_err_and(|e| e.contains("nam")), "{wrong:?}");
    assert_eq!(
        mcp.call("create_workflow", json!({"spec": spec})).expect("checked")["valid"],
        json!(true)
    );
    let made = mcp
        .call("create_workflow", json!({"spec": spec, "action": "create_workflow"}))
        .expect("made");
    assert_eq!(made["id"], json!(2));
    assert_eq!(mcp.call("list_workflows", json!({})).expect("a list")["total_count"], json!(2));
    assert_eq!(mcp.end(), Some(0));
}

#[test]
fn a_person_judges_on_the_command_line() {
    let test = waiting();
    test.torc(["jobs", "classify"])
        .success()
        .says("LedgerError: sums differ")
        .says("2 jobs wait for a verdict");
    test.torc(["jobs", "classify", "flaky"]).exit(2).tells("--retry");
    test.torc(["jobs", "classify", "fine", "--retry"]).exit(2).tells("not pending_failed");
    test.torc(["jobs", "classify", "flaky", "--retry", "--dry-run"])
        .success()
        .says("nothing was changed");
    test.torc(["jobs", "classify", "broken", "--fail", "--reason", "a typo"])
        .success()
        .says("1 job canceled with them");
    // An unsure agent: its verdict waits for a person.
    let mut mcp = Pipe::torc(&test, &["--unattended", "--agent-name", "robot"]);
    let unsure = json!([{"job_id": 1, "action": "retry", "confidence": 0.3, "reason": "may be the network"}]);
    let held = mcp.call(
        "classify_and_resolve_failures",
        json!({"workflow_id": 1, "classifications": unsure}),
    );
    assert_eq!(held.expect("held")["jobs_held"], json!(1));
    test.torc(["jobs", "classify", "--pending"]).success().says("may be the network").says("30%");
    test.torc(["jobs", "classify", "--accept", "2"]).success().says("applied");
    assert_eq!(test.statuses()[..2], ["flaky ready", "broken failed"]);
    test.torc(["jobs", "classify", "--reject", "2"]).exit(2).tells("is applied, not held");
    test.torc(["jobs", "classify", "--pending", "-f", "json"]).success().says("\"total_count\": 0");
}

#[test]
fn ten_gigabytes_of_standard_error_cost_no_more_than_a_few_lines() {
    let lines: String = (0..60).map(|n| format!("OSError: line {n}\n")).collect();
    let spec = "name: loud\nuse_pending_failed: true\njobs: [{name: loud, command: 'cat lines >&2; exit 1'}]\n";
    let list = |size: u64| {
        let test = Test::new().spec(spec).file("lines", &lines);
        test.run().expect(1);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(test.path("output/job_stdio/job_wf1_j1_r1_a1.e"));
        // Sparse: it takes no room on the disk, but reading all of it would read all of these
        // bytes.
        file.and_then(|file| {
            std::os::unix::fs::FileExt::write_all_at(&file, lines.as_bytes(), size)
        })
        .expect("written");
        let mut mcp = Pipe::torc(&test, &["--unattended", "-w", "1"]);
        let (before, began) = (mcp.cost(), std::time::Instant::now());
        let answer =
            mcp.call("list_pending_failed_jobs", json!({"workflow_id": 1})).expect("a list");
        let (took, after) = (began.elapsed(), mcp.cost());
        let tail = text(&answer["groups"][0]["examples"][0]["untrusted_stderr_tail"]).to_owned();
        let shown: Vec<&str> = tail.lines().collect();
        assert_eq!(
            (shown.len(), shown[0], shown[49]),
            (50, "OSError: line 10", "OSError: line 59")
        );
        let cost = (after.0 - before.0, after.1);
        eprintln!(
            "{size} bytes before the end: read {} bytes, peak memory {} bytes, took {took:?}",
            cost.0, cost.1
        );
        cost
    };
    let (small, large) = (list(0), list(10 << 30));
    // A call opens the database, which costs now more, now less: far from gigabytes.
    assert!(large.0 < small.0 + (4 << 20), "bytes read: {} and {}", small.0, large.0);
    assert!(large.1 < small.1 + (32 << 20), "bytes of memory: {} and {}", small.1, large.1);
}

#[test]
fn registering_with_an_agent_is_one_snippet() {
    let test = Test::new();
    let claude = test.torc(["mcp", "config", "claude"]).success().json();
    assert_eq!(claude["mcpServers"]["torc"]["args"], json!(["mcp"]));
    test.torc(["mcp", "config", "codex"]).success().says("[mcp_servers.torc]");
    for agent in ["gemini", "copilot", "other"] {
        let snippet = test.torc(["mcp", "config", agent]).success().json();
        assert!(snippet["mcpServers"]["torc"]["command"].is_string(), "{snippet}");
    }
    assert!(
        test.torc(["mcp", "config", "opencode"]).success().json()["mcp"]["torc"]["command"]
            .is_array()
    );
    test.write("more.md", "- Our licence server is down on Mondays: `retry`.\n");
    test.torc(["mcp", "guidance"])
        .env("TORC_RECOVERY_GUIDANCE", "more.md")
        .success()
        .says("Often permanent")
        .says("down on Mondays");
}

#[test]
fn the_example_of_a_server_of_ones_own_answers() {
    let examples =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-mcp-server");
    let mut command = Command::new("python3");
    command.arg(examples.join("site_status.py")).env_remove("SITE_OUTAGES");
    let mut mcp = Pipe::start(command);
    assert_eq!(mcp.tools(), ["was_service_down"]);
    let mut down = |service: &str, time: &str| {
        mcp.call("was_service_down", json!({"service": service, "time": time}))
    };
    assert_eq!(down("storage", "2026-03-01T10:15").expect("an answer")["down"], json!(true));
    assert_eq!(down("storage", "2026-03-01T12:00").expect("an answer")["down"], json!(false));
    assert_eq!(
        down("other", "2026-03-01T12:00").expect("an answer")["known_services"],
        json!(["licences", "storage"])
    );
    assert!(down("storage", "yesterday").is_err());
    assert_eq!(mcp.end(), Some(0));
    // The agents beside it are ones that Torc can read.
    let test = Test::new();
    test.torc(["mcp", "agents"])
        .env("TORC_AGENTS", examples.join("agents.json"))
        .success()
        .says("claude-with-site");
}

#[test]
fn an_assistant_reads_the_documentation_as_resources_and_as_a_skill() {
    let test = Test::new();
    let mut mcp = Pipe::torc(&test, &[]);
    let list = mcp.request("resources/list", json!({}));
    let list = list["resources"].as_array().expect("a list").clone();
    assert!(list.len() > 40, "{}", list.len());
    for resource in &list {
        let answer = mcp.request("resources/read", json!({"uri": resource["uri"]}));
        let read = text(&answer["contents"][0]["text"]);
        assert!(!read.is_empty(), "{resource}");
    }
    test.torc(["mcp", "skill", "skills/torc"]).success().says("skills/torc/SKILL.md");
    let first = test.read("skills/torc/SKILL.md");
    assert!(first.starts_with("---\nname: torc\ndescription: "), "{first}");
    // Every link leads to a file, and every example runs as far as its check.
    let links = first.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut seen = 0;
    for link in links {
        assert!(test.exists(&format!("skills/torc/{link}")), "{link}");
        if link.ends_with(".yaml") {
            test.torc(["check", &format!("skills/torc/{link}")]).success();
        }
        seen += 1;
    }
    assert_eq!(seen, list.len());
}
