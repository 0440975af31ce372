//! Real MCP clients and a real agent program against the real server. Only the model is a script of ours.
//!
//! `scripts/mcp-lab` installs the clients (Python SDK, inspector, Claude Code). Where they can not be had, these tests say
//! so and are skipped; `TORC_MCP_LAB` names a directory in which they are already.

use crate::mcp::waiting;
use crate::support::{TORC, Test, text};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Where the clients are; `None` where they can not be had.
fn lab() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let is_named = std::env::var_os("TORC_MCP_LAB").is_some();
    let ready = std::env::var_os("TORC_MCP_LAB").map_or_else(|| root.join("target/mcp-lab"), PathBuf::from);
    if !is_named && !ready.join("installed").is_file() {
        eprintln!("SKIPPED: the MCP clients are not installed; `scripts/mcp-lab` installs them");
        return None;
    }
    let done = Command::new(root.join("scripts/mcp-lab")).output().expect("scripts/mcp-lab");
    if done.status.success() {
        return Some(String::from_utf8_lossy(&done.stdout).trim().into());
    }
    eprintln!("SKIPPED: scripts/mcp-lab failed:\n{}", String::from_utf8_lossy(&done.stderr));
    None
}

fn path_with(lab: &Path) -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{}:{}:{own}", lab.join("npm/node_modules/.bin").display(), lab.join("python/bin").display())
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
    let run = |args: &str| test.shell(&format!("python client.py {args}")).env("PATH", path_with(&lab)).success();
    run(&format!("stdio '{TORC}'")).says("PYTHON CLIENT OK");
    let (_server, url, token) = serve_http(&test);
    run(&format!("http {url} {token}")).says("PYTHON CLIENT OK");
}

#[test]
fn the_inspector_finds_nothing_wrong_over_both_transports() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    let run = |script: &str| test.shell(script).env("PATH", path_with(&lab)).success();
    let stdio = format!("mcp-inspector --cli '{TORC}' mcp");
    run(&format!("{stdio} --method tools/list --strict")).says("list_pending_failed_jobs").says("create_workflow");
    run(&format!("{stdio} --method tools/call --tool-name list_pending_failed_jobs --tool-arg workflow_id=1"))
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

/// A stand-in for a model's service on loopback. What it says next depends on the conversation alone.
struct ScriptedModel {
    url: String,
    /// The tools that were offered to it, per request.
    offered: Arc<Mutex<Vec<Vec<String>>>>,
}

impl ScriptedModel {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let offered = Arc::new(Mutex::new(Vec::new()));
        let seen = offered.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                std::thread::spawn(move || answer_all(stream, &seen));
            }
        });
        Self { url, offered }
    }
}

/// Answers requests on one connection until it closes.
fn answer_all(stream: TcpStream, offered: &Mutex<Vec<Vec<String>>>) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length, mut line) = (String::new(), 0, String::new());
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line.trim() != "" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = first.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
        let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (kind, text) = match path.as_str() {
            "/v1/messages" => {
                let tools = request["tools"].as_array().cloned().unwrap_or_default();
                let names: Vec<String> = tools.iter().filter_map(|t| Some(t["name"].as_str()?.to_owned())).collect();
                offered.lock().expect("not poisoned").push(names.clone());
                let message = message(&request, &names);
                match request["stream"].as_bool() {
                    Some(true) => ("text/event-stream", events(&message)),
                    _ => ("application/json", message.to_string()),
                }
            }
            "/v1/messages/count_tokens" => ("application/json", json!({"input_tokens": 100}).to_string()),
            _ => ("application/json", "{}".to_owned()),
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", text.len());
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(text.as_bytes())).is_err() {
            return;
        }
    }
}

/// First look, then judge by the words of each group, then say so.
fn message(request: &Value, tools: &[String]) -> Value {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let blocks: Vec<Value> =
        messages.iter().flat_map(|m| m["content"].as_array().cloned().unwrap_or_default()).collect();
    let turns = blocks.iter().filter(|b| b["type"] == "tool_use").count();
    let named = |end: &str| tools.iter().find(|name| name.ends_with(end)).cloned();
    let call = |name: String, input: Value| json!({"type": "tool_use", "id": format!("toolu_{turns}"), "name": name, "input": input});
    let say = |words: &str| json!({"type": "text", "text": words});
    let list = named("list_pending_failed_jobs").filter(|_| turns == 0);
    let classify = named("classify_and_resolve_failures").filter(|_| turns == 1);
    let content = match (list, classify) {
        (Some(list), _) => call(list, json!({"workflow_id": 1})),
        (None, Some(classify)) => {
            let result = blocks.iter().rfind(|b| b["type"] == "tool_result").cloned().unwrap_or(Value::Null);
            let text = match &result["content"] {
                Value::String(text) => text.clone(),
                Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
                _ => String::new(),
            };
            let listed: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
            let verdict = |group: &Value| {
                let print = &group["fingerprint"];
                let refused = print["template"].as_str().is_some_and(|t| t.contains("refused"));
                json!({"fingerprint": print["id"], "action": if refused { "retry" } else { "fail" },
                       "reason": "judged by a script", "confidence": 0.97})
            };
            let groups = listed["groups"].as_array().cloned().unwrap_or_default();
            let verdicts: Vec<Value> = groups.iter().map(verdict).collect();
            call(classify, json!({"workflow_id": 1, "classifications": verdicts}))
        }
        (None, None) => say("RECOVERED"),
    };
    let stop = if content["type"] == "tool_use" { "tool_use" } else { "end_turn" };
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": [content],
           "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 10}})
}

/// A message as a stream of events.
fn events(message: &Value) -> String {
    let block = &message["content"][0];
    let mut begin = message.clone();
    begin["content"] = json!([]);
    begin["stop_reason"] = Value::Null;
    let (start, delta) = match block["type"].as_str() {
        Some("tool_use") => {
            let mut start = block.clone();
            start["input"] = json!({});
            (start, json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}))
        }
        _ => (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]})),
    };
    let all = [
        ("message_start", json!({"message": begin})),
        ("content_block_start", json!({"index": 0, "content_block": start})),
        ("content_block_delta", json!({"index": 0, "delta": delta})),
        ("content_block_stop", json!({"index": 0})),
        (
            "message_delta",
            json!({"delta": {"stop_reason": message["stop_reason"], "stop_sequence": null}, "usage": {"output_tokens": 10}}),
        ),
        ("message_stop", json!({})),
    ];
    all.into_iter()
        .map(|(name, mut data)| {
            data["type"] = json!(name);
            format!("event: {name}\ndata: {data}\n\n")
        })
        .collect()
}

#[test]
fn the_real_claude_code_recovers_a_workflow() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    let model = ScriptedModel::start();
    let done = test
        .torc(["recover", "1", "--ai-recovery", "--ai-timeout", "100s"])
        .env("PATH", path_with(&lab))
        .env("ANTHROPIC_BASE_URL", &model.url)
        .env("ANTHROPIC_API_KEY", "dummy")
        .done();
    let round = std::fs::read_dir(test.path("output/ai_recovery")).map(|logs| {
        let logs = logs.flatten().flat_map(|dir| std::fs::read_dir(dir.path()).into_iter().flatten().flatten());
        logs.map(|file| {
            format!("{}:\n{}\n", file.path().display(), std::fs::read_to_string(file.path()).unwrap_or_default())
        })
        .collect::<String>()
    });
    assert_eq!(done.code, Some(0), "{}\n{round:?}", done.stderr);
    assert!(done.stderr.contains("1 to be tried again, 1 failed for good"), "{}\n{round:?}", done.stderr);
    assert_eq!(test.statuses(), ["flaky ready", "broken failed", "after canceled", "fine completed"]);
    let offered = model.offered.lock().expect("not poisoned").clone();
    let main = offered.iter().find(|tools| !tools.is_empty()).expect("it was offered tools");
    assert!(main.iter().all(|name| name.starts_with("mcp__torc__")), "only ours: {main:?}");
    let history = test.torc(["-f", "json", "jobs", "classify", "--history"]).success().json();
    let row = &history["classifications"][0];
    assert_eq!((text(&row["agent"]), text(&row["reason"])), ("claude", "judged by a script"));
}

#[test]
fn the_real_claude_code_takes_the_printed_registration() {
    let Some(lab) = lab() else { return };
    let test = waiting();
    let model = ScriptedModel::start();
    let snippet = test.torc(["mcp", "config", "claude"]).success().stdout;
    test.write("mcp.json", &snippet);
    let allowed = "mcp__torc__list_pending_failed_jobs,mcp__torc__classify_and_resolve_failures";
    test.shell(&format!(
        "echo 'Recover workflow 1' | claude --print --bare --no-session-persistence --mcp-config mcp.json \
         --strict-mcp-config --tools '' --allowedTools {allowed}"
    ))
    .env("PATH", path_with(&lab))
    .env("ANTHROPIC_BASE_URL", &model.url)
    .env("ANTHROPIC_API_KEY", "dummy")
    .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    .env("DISABLE_AUTOUPDATER", "1")
    .success()
    .says("RECOVERED");
    assert_eq!(test.statuses()[..2], ["flaky ready", "broken failed"]);
    let offered = model.offered.lock().expect("not poisoned").clone();
    assert!(offered.iter().flatten().any(|name| name == "mcp__torc__create_workflow"), "an assistant's tools");
}
