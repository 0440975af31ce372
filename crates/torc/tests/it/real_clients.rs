//! Real MCP clients against the real server.
//!
//! `scripts/mcp-lab` installs them (Python SDK, inspector) and the agent programs of
//! `real_agents.rs`. `TORC_MCP_LAB` names a directory in which they are already, or is `none` where
//! they cannot be fetched. Where they are missing these tests say so and are skipped; with
//! `CI=true` that is a failure.

use crate::mcp::waiting;
use crate::support::{TORC, Test};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the clients are; `None` where they cannot be had. In CI missing clients are a failure.
pub fn lab() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("TORC_MCP_LAB").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: the packages of the MCP clients cannot be fetched here");
        return None;
    }
    let ready = named.unwrap_or_else(|| root.join("target/mcp-lab"));
    if ready.join("installed").is_file() {
        let done = Command::new(root.join("scripts/mcp-lab")).output().expect("scripts/mcp-lab");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "scripts/mcp-lab: {}\n{said}", done.status);
        return Some(String::from_utf8_lossy(&done.stdout).trim().into());
    }
    let how = "the MCP clients are not installed; `scripts/mcp-lab` installs them";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// A search path with them in front.
pub fn path_with(lab: &Path) -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!(
        "{}:{}:{own}",
        lab.join("npm/node_modules/.bin").display(),
        lab.join("python/bin").display()
    )
}

/// `torc mcp --http` with its address and token.
fn serve_http(test: &Test) -> (crate::support::Running, String, String) {
    let args = ["mcp", "--http", "0", "--http-token-file", "token", "--unattended", "-w", "1"];
    let mut server = test.torc(args).spawn();
    let line = server.wait_for_stdout("url");
    let url = line.split_whitespace().nth(1).expect("an address").to_owned();
    let token = test.read("token").trim().to_owned();
    (server, url, token)
}

const PYTHON: &str = r#"
import asyncio, json, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters

def target():
    if sys.argv[1] == "stdio":
        return StdioServerParameters(command=sys.argv[2], args=["mcp", "--unattended"])
    import httpx2 as httpx
    from mcp.client.streamable_http import streamable_http_client
    return streamable_http_client(sys.argv[2], http_client=httpx.AsyncClient(headers={"Authorization": "Bearer " + sys.argv[3]}))

async def main():
    for mode in ("auto", "legacy"):
        async with Client(target(), mode=mode) as client:
            tools = sorted(tool.name for tool in (await client.list_tools()).tools)
            assert tools == ["classify_and_resolve_failures", "list_pending_failed_jobs"], tools
            result = await client.call_tool("list_pending_failed_jobs", {"workflow_id": 1})
            assert not result.is_error, result
            listed = json.loads(result.content[0].text)
            assert listed["pending_failed_count"] == 2, listed
            verdict = {"job_id": 1, "action": "retry", "confidence": 0.9}
            result = await client.call_tool("classify_and_resolve_failures",
                {"workflow_id": 1, "classifications": [verdict], "dry_run": True})
            assert json.loads(result.content[0].text)["jobs_to_retry"] == 1, result
            result = await client.call_tool("classify_and_resolve_failures",
                {"workflow_id": 1, "classifications": [{"job_id": 99, "action": "retry"}]})
            assert result.is_error and "no job 99" in result.content[0].text, result
    print("PYTHON CLIENT OK")

asyncio.run(main())
"#;

#[test]
fn the_official_python_client_speaks_both_transports() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    test.write("client.py", PYTHON);
    let run = |args: &str| {
        test.shell(&format!("python client.py {args}")).env("PATH", path_with(&lab)).success()
    };
    run(&format!("stdio '{TORC}'")).says("PYTHON CLIENT OK");
    let (_server, url, token) = serve_http(&test);
    run(&format!("http {url} {token}")).says("PYTHON CLIENT OK");
}

/// Every tool that users of Torc know, with the arguments that they know.
const ASSISTANT: &str = r#"
import asyncio, json, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters

SPEC = {"name": "made", "jobs": [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "depends_on": ["a"]}]}
CALLS = [
    ("get_workflow_status", {"workflow_id": 1}, lambda a: a["counts"]["pending_failed"] == 2),
    ("get_workflow_summary", {"workflow_id": 1}, lambda a: sum(a["failures_by_kind"].values()) == 2),
    ("list_jobs_by_status", {"workflow_id": 1, "status": "completed"}, lambda a: a["jobs"][0]["name"] == "fine"),
    ("list_failed_jobs", {"workflow_id": 1}, lambda a: a["count"] == 2),
    ("get_job_details", {"job_id": 2}, lambda a: a["job"]["name"] == "broken" and len(a["attempts"]) == 1),
    ("get_job_logs", {"workflow_id": 1, "job_id": 2, "run_id": 1, "attempt_id": 1, "log_type": "stderr", "tail_lines": 5},
        lambda a: "LedgerError" in a["untrusted_output"]),
    ("list_results", {"workflow_id": 1}, lambda a: a["total_count"] == 3),
    ("list_results", {"workflow_id": 1, "failed_only": True, "run_id": 1}, lambda a: a["total_count"] == 2),
    ("list_results", {"workflow_id": 1, "return_code": 0}, lambda a: a["items"][0]["job_name"] == "fine"),
    ("analyze_workflow_logs", {"workflow_id": 1},
        lambda a: a["error_count"] == 2 and len(a["errors_by_type"]) > 0),
    ("check_resource_utilization", {"workflow_id": 1}, lambda a: a["attempts"] == 3),
    ("get_slurm_sacct", {"workflow_id": 1}, lambda a: a["records"] == [] and a["total_walltime_seconds"] == 0),
    ("get_execution_plan", {"spec_or_id": "1"}, lambda a: a["total_jobs"] == 4),
    ("get_execution_plan", {"spec_or_id": json.dumps(SPEC)}, lambda a: len(a["stages"]) == 2),
    ("update_job_resources", {"job_id": 1, "memory": "300m", "runtime": "5m"}, lambda a: a["memory"] == "300m"),
    ("recover_workflow", {"workflow_id": 1, "dry_run": True, "memory_multiplier": 2.0, "retry_unknown": True},
        lambda a: a["dry_run"] is True),
    ("create_workflow", {"spec_json": json.dumps(SPEC), "action": "validate"}, lambda a: a["valid"] is True),
    ("create_workflow", {"spec_json": json.dumps(SPEC), "action": "create_workflow"}, lambda a: a["id"] == 2),
    ("list_pending_failed_jobs", {"workflow_id": 1}, lambda a: a["pending_failed_count"] == 2),
    ("classify_and_resolve_failures",
        {"workflow_id": 1, "classifications": [{"job_id": 2, "action": "fail", "reason": "a typo"}], "dry_run": False},
        lambda a: a["jobs_to_fail"] == 1),
]

async def main():
    async with Client(StdioServerParameters(command=sys.argv[1], args=["mcp"])) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        assert {name for name, _, _ in CALLS} <= offered, offered
        for name, arguments, holds in CALLS:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, (name, result)
            answer = json.loads(result.content[0].text)
            assert holds(answer), (name, answer)
    print("ASSISTANT OK", len({name for name, _, _ in CALLS}))

asyncio.run(main())
"#;

#[test]
fn an_assistant_finds_every_tool_that_users_of_torc_know() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    test.write("client.py", ASSISTANT);
    test.shell(&format!("python client.py '{TORC}'"))
        .env("PATH", path_with(&lab))
        .success()
        .says("ASSISTANT OK 16");
    assert_eq!(
        test.statuses(),
        ["a ready", "b blocked"],
        "the newest workflow is the one that it made"
    );
    assert_eq!(test.torc(["-f", "json", "jobs", "get", "2"]).success().json()["status"], "failed");
}

#[test]
fn the_inspector_finds_nothing_wrong_over_both_transports() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    let run = |script: &str| test.shell(script).env("PATH", path_with(&lab)).success();
    let stdio = format!("mcp-inspector --cli '{TORC}' mcp");
    run(&format!("{stdio} --method tools/list --strict"))
        .says("list_pending_failed_jobs")
        .says("create_workflow");
    run(&format!(
        "{stdio} --method tools/call --tool-name list_pending_failed_jobs --tool-arg workflow_id=1"
    ))
    .says("pending_failed_count");
    let (_server, url, token) = serve_http(&test);
    let http = format!("mcp-inspector --cli {url} --header 'Authorization: Bearer {token}'");
    run(&format!("{http} --method tools/list --strict")).says("classify_and_resolve_failures");
    let arguments = json!({"workflow_id": 1, "classifications": [{"job_id": 2, "action": "fail"}]});
    run(&format!(
        "{http} --method tools/call --tool-name classify_and_resolve_failures --tool-args-json '{arguments}'"
    ))
    .says("jobs_to_fail");
    assert_eq!(test.statuses()[1], "broken failed");
}
