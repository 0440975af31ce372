//! A stand-in for a model's service on loopback, in the dialects of three services. It holds no
//! state: what it says next follows from the conversation alone, so that repeats and side requests
//! of an agent cannot put it out of step.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A conversation as far as it matters here, whatever the dialect.
pub struct Conversation {
    /// The tools that the model may call.
    tools: Vec<String>,
    /// What its calls brought so far.
    pub results: Vec<Value>,
    /// Everything that it was sent, as JSON.
    pub request: String,
}

/// What the model does next: the end of a tool's name, and its arguments; `None` when it has
/// nothing more to do.
pub type Script = fn(&Conversation) -> Option<(&'static str, Value)>;

/// What the model says.
enum Said {
    Call { tool: String, input: Value },
    Words(&'static str),
}

/// The service.
pub struct ScriptedModel {
    /// Its address, without a path.
    pub url: String,
    offered: Arc<Mutex<Vec<Vec<String>>>>,
}

impl ScriptedModel {
    /// Starts to listen.
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let offered = Arc::new(Mutex::new(Vec::new()));
        let seen = offered.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                std::thread::spawn(move || answer_all(stream, script, &seen));
            }
        });
        Self { url, offered }
    }

    /// The tools that were offered to it, per request that offered any.
    pub fn offered(&self) -> Vec<Vec<String>> {
        self.offered.lock().expect("not poisoned").clone()
    }
}

/// First look, then judge by the words of each group, then say so.
pub fn judge_by_words(conversation: &Conversation) -> Option<(&'static str, Value)> {
    match conversation.results.as_slice() {
        [] => Some(("list_pending_failed_jobs", json!({"workflow_id": 1}))),
        [listed] => {
            let verdict = |print: &Value| {
                let refused = print["template"].as_str().is_some_and(|t| t.contains("refused"));
                json!({"fingerprint": print["id"], "action": if refused { "retry" } else { "fail" },
                       "reason": "judged by a script", "confidence": 0.97})
            };
            let verdicts: Vec<Value> = fingerprints(listed).map(verdict).collect();
            Some((
                "classify_and_resolve_failures",
                json!({"workflow_id": 1, "classifications": verdicts}),
            ))
        }
        _ => None,
    }
}

/// The fingerprints of the groups in an answer of `list_pending_failed_jobs`.
pub fn fingerprints(listed: &Value) -> impl Iterator<Item = &Value> {
    listed["groups"].as_array().into_iter().flatten().map(|group| &group["fingerprint"])
}

/// Answers requests on one connection until it closes.
fn answer_all(stream: TcpStream, script: Script, offered: &Mutex<Vec<Vec<String>>>) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Some((path, request)) = read_request(&mut reader) {
        let dialect = Dialect::of(&path);
        let (kind, text) = match dialect {
            Some(dialect) => {
                let conversation = dialect.read(&request);
                if !conversation.tools.is_empty() {
                    offered.lock().expect("not poisoned").push(conversation.tools.clone());
                }
                dialect.write(
                    &request,
                    &path,
                    &next(script, &conversation),
                    conversation.results.len(),
                )
            }
            None if path.ends_with("/count_tokens") => {
                ("application/json", json!({"input_tokens": 100}).to_string())
            }
            None => ("application/json", "{}".to_owned()),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(text.as_bytes())).is_err() {
            return;
        }
    }
}

/// Path and body of the next request.
fn read_request(reader: &mut impl BufRead) -> Option<(String, Value)> {
    let (mut first, mut length, mut line) = (String::new(), 0, String::new());
    if reader.read_line(&mut first).unwrap_or(0) == 0 {
        return None;
    }
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line.trim() != "" {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    Some((path, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

fn next(script: Script, conversation: &Conversation) -> Said {
    let Some((name, input)) = script(conversation) else { return Said::Words("RECOVERED") };
    match conversation.tools.iter().find(|tool| tool.ends_with(name)) {
        Some(tool) => Said::Call { tool: tool.clone(), input },
        // A side request, such as one for a title.
        None => Said::Words("ok"),
    }
}

/// The services that agents speak to.
#[derive(Clone, Copy)]
enum Dialect {
    /// Anthropic's: Claude Code.
    Messages,
    /// OpenAI's: Codex.
    Responses,
    /// Google's: Gemini CLI.
    Contents,
}

impl Dialect {
    fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        match () {
            () if path == "/v1/messages" => Some(Self::Messages),
            () if path.ends_with("/responses") => Some(Self::Responses),
            () if path.contains("enerateContent") => Some(Self::Contents),
            () => None,
        }
    }

    fn read(self, request: &Value) -> Conversation {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Messages => {
                let blocks =
                    list(&request["messages"]).into_iter().flat_map(|m| list(&m["content"]));
                let results =
                    blocks.filter(|b| b["type"] == "tool_result").map(|b| json_in(&b["content"]));
                Conversation {
                    tools: names(&request["tools"]),
                    results: results.collect(),
                    request: request.to_string(),
                }
            }
            Self::Responses => {
                let items = list(&request["input"])
                    .into_iter()
                    .filter(|i| i["type"] == "function_call_output");
                let tools = list(&request["tools"]).into_iter().flat_map(|tool| match tool["type"]
                    .as_str()
                {
                    // The tools of an MCP server come as one group.
                    Some("namespace") => {
                        let space = tool["name"].as_str().unwrap_or_default();
                        names(&tool["tools"]).iter().map(|name| format!("{space}/{name}")).collect()
                    }
                    // A tool without a name of its own is called by its type.
                    kind => vec![tool["name"].as_str().or(kind).unwrap_or_default().to_owned()],
                });
                Conversation {
                    tools: tools.collect(),
                    results: items.map(|i| json_in(&i["output"])).collect(),
                    request: request.to_string(),
                }
            }
            Self::Contents => {
                let tools = list(&request["tools"]);
                let tools =
                    tools.iter().flat_map(|group| names(&group["functionDeclarations"])).collect();
                let parts = list(&request["contents"])
                    .into_iter()
                    .flat_map(|content| list(&content["parts"]));
                let answers = parts.filter(|p| p["functionResponse"].is_object());
                let results =
                    answers.map(|p| json_in(&p["functionResponse"]["response"]["output"]));
                Conversation { tools, results: results.collect(), request: request.to_string() }
            }
        }
    }

    /// The type and the text of the answer. Agents tell calls apart by their ids, which count what
    /// was called before.
    fn write(
        self,
        request: &Value,
        path: &str,
        said: &Said,
        turn: usize,
    ) -> (&'static str, String) {
        const STREAM: &str = "text/event-stream";
        match self {
            Self::Messages => match request["stream"].as_bool() {
                Some(true) => (STREAM, message_events(&message(request, said, turn))),
                _ => ("application/json", message(request, said, turn).to_string()),
            },
            Self::Responses => (STREAM, response_events(request, said, turn)),
            Self::Contents => {
                let part = match said {
                    Said::Call { tool, input } => {
                        json!({"functionCall": {"name": tool, "args": input}})
                    }
                    Said::Words(words) => json!({"text": words}),
                };
                let answer = json!({
                    "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
                    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
                    "modelVersion": "scripted"
                });
                match path.contains(":streamGenerateContent") {
                    true => (STREAM, format!("data: {answer}\n\n")),
                    false => ("application/json", answer.to_string()),
                }
            }
        }
    }
}

fn names(tools: &Value) -> Vec<String> {
    tools
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
        .collect()
}

/// The JSON in what a call brought: agents put it into blocks, fences and remarks of their own.
fn json_in(content: &Value) -> Value {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        other => return other.clone(),
    };
    let inner = |open: char, close: char| {
        let (from, to) = (text.find(open)?, text.rfind(close)?);
        serde_json::from_str::<Value>(text.get(from..=to)?).ok()
    };
    let blocks = || inner('[', ']').filter(|v| v[0]["text"].is_string()).map(|v| json_in(&v));
    inner('{', '}').or_else(blocks).unwrap_or(Value::Null)
}

fn message(request: &Value, said: &Said, turn: usize) -> Value {
    let (content, stop) = match said {
        Said::Call { tool, input } => (
            json!({"type": "tool_use", "id": format!("toolu_{turn}"), "name": tool, "input": input}),
            "tool_use",
        ),
        Said::Words(words) => (json!({"type": "text", "text": words}), "end_turn"),
    };
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": [content],
           "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 10}})
}

/// A message as a stream of events.
fn message_events(message: &Value) -> String {
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
        _ => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": block["text"]}),
        ),
    };
    events([
        ("message_start", json!({"message": begin})),
        ("content_block_start", json!({"index": 0, "content_block": start})),
        ("content_block_delta", json!({"index": 0, "delta": delta})),
        ("content_block_stop", json!({"index": 0})),
        (
            "message_delta",
            json!({"delta": {"stop_reason": message["stop_reason"], "stop_sequence": null}, "usage": {"output_tokens": 10}}),
        ),
        ("message_stop", json!({})),
    ])
}

/// A response as a stream of events.
fn response_events(request: &Value, said: &Said, turn: usize) -> String {
    let item = match said {
        Said::Call { tool, input } => {
            let mut call = json!({"type": "function_call", "id": format!("fc_{turn}"), "call_id": format!("call_{turn}"),
                                  "name": tool, "arguments": input.to_string(), "status": "completed"});
            if let Some((space, name)) = tool.split_once('/') {
                call["namespace"] = json!(space);
                call["name"] = json!(name);
            }
            call
        }
        Said::Words(words) => {
            json!({"type": "message", "id": format!("msg_{turn}"), "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "text": words, "annotations": []}]})
        }
    };
    let begun = json!({"id": "resp_1", "object": "response", "status": "in_progress", "model": request["model"], "output": []});
    let mut ended = begun.clone();
    ended["status"] = json!("completed");
    ended["output"] = json!([item]);
    ended["usage"] = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
                            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20});
    events([
        ("response.created", json!({"response": begun})),
        ("response.output_item.added", json!({"output_index": 0, "item": item})),
        ("response.output_item.done", json!({"output_index": 0, "item": item})),
        ("response.completed", json!({"response": ended})),
    ])
}

fn events(all: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let line = |(name, mut data): (&str, Value)| {
        data["type"] = json!(name);
        format!("event: {name}\ndata: {data}\n\n")
    };
    all.into_iter().map(line).collect()
}
