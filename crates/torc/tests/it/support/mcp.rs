//! A small MCP client over both transports, written against the protocol and not with our SDK.

use super::{TORC, Test};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const VERSION: &str = "2025-06-18";

/// Something that takes MCP requests.
pub trait Mcp {
    /// Sends a request and hands back its result.
    fn request(&mut self, method: &str, params: Value) -> Value;

    /// Calls a tool; the error is the text of the refusal.
    fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, String> {
        let result = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        match result["isError"].as_bool() {
            Some(true) => Err(text),
            _ => Ok(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {result}"))),
        }
    }

    /// The names of the tools.
    fn tools(&mut self) -> Vec<String> {
        let list = self.request("tools/list", json!({}));
        list["tools"]
            .as_array()
            .expect("tools")
            .iter()
            .map(|t| t["name"].as_str().expect("a name").into())
            .collect()
    }
}

fn hello() -> Value {
    json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
}

/// Over standard input and output.
pub struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: i64,
}

impl Pipe {
    /// Starts a program and greets it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a program");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut client = Self { child, input, output, next: 1 };
        let info = client.request("initialize", hello());
        assert!(info["serverInfo"]["name"].is_string(), "{info}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// Starts `torc mcp` in the test's directory.
    pub fn torc(test: &Test, args: &[&str]) -> Self {
        let mut command = Command::new(TORC);
        command.arg("mcp").args(args).current_dir(test.path("."));
        for name in ["TORC_DIR", "TORC_API_URL", "TORC_TOKEN", "TORC_TOKEN_FILE"] {
            command.env_remove(name);
        }
        Self::start(command)
    }

    /// What it cost so far: bytes that it read from anywhere, and the most memory that it held at
    /// once.
    pub fn cost(&self) -> (u64, u64) {
        let field = |file: &str, name: &str| -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))
                .expect("it runs");
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("{name}: {text}"));
            line.split_whitespace()
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or_else(|| panic!("{name}: {text}"))
        };
        (field("io", "rchar:"), field("status", "VmHWM:") << 10)
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().expect("open"), "{message}").expect("it reads");
    }

    /// Closes its input and waits for its end.
    pub fn end(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().expect("an exit status").code()
    }
}

impl Mcp for Pipe {
    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).expect("it answers") > 0,
                "it ended instead of answering {method}"
            );
            let answer: Value =
                serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            if answer["id"] == json!(id) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Over HTTP.
pub struct Http {
    address: String,
    token: String,
    next: i64,
}

impl Http {
    /// Greets the server at this address.
    pub fn connect(url: &str, token: &str) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let mut client = Self { address, token: token.to_owned(), next: 1 };
        let info = client.request("initialize", hello());
        assert!(info["serverInfo"]["name"].is_string(), "{info}");
        client
    }

    /// One exchange with these headers: status and body.
    pub fn exchange(address: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Content-Length: {}\r\nConnection: close\r\n",
            body.len()
        );
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not HTTP: {answer}"));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| panic!("not HTTP: {head}"));
        (status, body.to_owned())
    }
}

impl Mcp for Http {
    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let bearer = format!("Bearer {}", self.token);
        let address = self.address.clone();
        let headers = [
            ("Host", address.as_str()),
            ("Authorization", &bearer),
            ("MCP-Protocol-Version", VERSION),
        ];
        let (status, body) = Self::exchange(&address, &headers, &body);
        assert_eq!(status, 200, "{method}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }
}
