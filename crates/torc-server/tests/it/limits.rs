//! A real listener: what it takes, what it cuts, and how it ends.

use crate::world::BASE;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use torc_server::{Options, RunningServer, Server};

async fn start() -> (RunningServer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Server::start(Options::new(dir.path().join("state"))).await.unwrap(), dir)
}

/// Sends bytes and reads until the server closes.
pub async fn exchange(server: &RunningServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn head(server: &RunningServer, first_line: &str, more: &str) -> String {
    format!(
        "{first_line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n{more}\r\n",
        server.address(),
        server.token()
    )
}

#[tokio::test]
async fn headers_are_limited_in_number_and_size() {
    let (server, _dir) = start().await;
    let line = format!("GET {BASE}/workflows");
    let many: String = (0..100).map(|i| format!("x-{i}: 1\r\n")).collect();
    let answer = exchange(&server, head(&server, &line, &many).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let large = format!("x-large: {}\r\n", "a".repeat(200 << 10));
    let answer = exchange(&server, head(&server, &line, &large).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = exchange(
        &server,
        head(&server, &format!("{line}?name={}", "a".repeat(200 << 10)), "").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    for garbage in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "\u{16}\u{3}\u{1}\u{2}"] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(garbage.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(
            !answer.starts_with(b"HTTP/1.1 2") && !answer.starts_with(b"HTTP/1.1 5"),
            "{garbage:?}"
        );
    }
    assert!(
        exchange(&server, head(&server, &line, "").as_bytes()).await.starts_with("HTTP/1.1 200")
    );
    server.shutdown().await;
}

#[tokio::test]
async fn sender_of_too_large_a_body_gets_to_read_why() {
    let (server, _dir) = start().await;
    let size = 20 << 20;
    let head =
        head(&server, &format!("PUT {BASE}/workflows/1"), &format!("Content-Length: {size}\r\n"));
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + size, b' ');
    let answer = exchange(&server, &bytes).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    server.shutdown().await;
}

#[tokio::test]
async fn strangers_do_not_hold_connections() {
    let (server, _dir) = start().await;
    // Without `Connection: close`: it is the server that closes.
    let stranger = format!("GET {BASE}/workflows HTTP/1.1\r\nHost: {}\r\n\r\n", server.address());
    let answer =
        tokio::time::timeout(Duration::from_secs(20), exchange(&server, stranger.as_bytes()))
            .await
            .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 401") && answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let (server, _dir) = start().await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    for _ in 0..3 {
        let request = format!(
            "GET {BASE}/health HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            server.address(),
            server.token()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.contains("active_workflows") {
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer).await.unwrap();
            assert!(n > 0, "the server closed: {text}");
            text += std::str::from_utf8(&buffer[..n]).unwrap();
        }
    }
    server.shutdown().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_connections: 1, ..Options::new(dir.path()) };
    let server = Server::start(options).await.unwrap();
    let mut first = TcpStream::connect(server.address()).await.unwrap();
    // It shows a good token, so that it is not closed for others.
    let hello = format!(
        "GET {BASE}/health HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address(),
        server.token()
    );
    first.write_all(hello.as_bytes()).await.unwrap();
    assert!(first.read(&mut [0; 4096]).await.unwrap() > 0);
    let request = head(&server, &format!("GET {BASE}/health"), "");
    let mut second = Box::pin(exchange(&server, request.as_bytes()));
    let early = tokio::time::timeout(Duration::from_millis(200), second.as_mut()).await;
    assert!(early.is_err(), "it was served although the limit is one");
    drop(first);
    assert!(second.as_mut().await.starts_with("HTTP/1.1 200"));
    drop(second);
    server.shutdown().await;
}

#[tokio::test]
async fn idle_connections_without_a_token_do_not_keep_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_connections: 8, ..Options::new(dir.path()) };
    let server = Server::start(options).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..32 {
        idle.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let request = head(&server, &format!("GET {BASE}/health"), "");
    let answer =
        tokio::time::timeout(Duration::from_secs(10), exchange(&server, request.as_bytes()));
    let answer = answer.await.expect("served long before idle connections time out");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(idle);
    server.shutdown().await;
}

#[tokio::test]
async fn a_peer_that_floods_costs_another_peer_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_connections: 8, ..Options::new(dir.path()) };
    let server = Server::start(options).await.unwrap();
    // The oldest of all, but the only one of its address.
    let mut slow = TcpStream::connect(server.address()).await.unwrap();
    let mut flood = Vec::new();
    for _ in 0..32 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        flood.push(socket.connect(server.address()).await.unwrap());
    }
    let request = head(&server, &format!("GET {BASE}/health"), "");
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    slow.read_exact(&mut answer).await.expect("it was not closed for the others");
    assert_eq!(answer, b"HTTP/1.1 200");
    drop(flood);
    server.shutdown().await;
}

/// Sends a body with the owner's token and reads the answer's.
async fn post(server: &RunningServer, path: &str, body: &Value) -> Value {
    let answer = exchange(server, with_body(server, path, body).as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

fn with_body(server: &RunningServer, path: &str, body: &Value) -> String {
    let body = body.to_string();
    let more = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    head(server, &format!("POST {BASE}{path}"), &more) + &body
}

/// Runners wait at the server for half a minute. Their token was seen when they asked.
#[tokio::test]
async fn callers_that_wait_for_an_answer_are_not_closed_as_strangers() {
    let dir = tempfile::tempdir().unwrap();
    // At most eight of them may be strangers.
    let options = Options { max_connections: 16, ..Options::new(dir.path()) };
    let server = Server::start(options).await.unwrap();
    let capacity = json!({"num_cpus": 1, "memory_bytes": 1 << 30, "num_nodes": 1});
    let spec = json!({"name": "w", "jobs": [{"name": "a", "command": "true"}, {"name": "b", "command": "true"}]});
    let created = post(&server, "/workflows", &json!({"spec": spec, "initialize": true})).await;
    let workflow = &created["id"];
    let runner = json!({
        "workflow_id": workflow, "key": "k", "hostname": "there", "boot_id": "b", "pid": 1, "pid_start": 1,
        "capacity": capacity, "kind": "local", "output_dir": "/tmp",
    });
    let runner = post(&server, "/compute_nodes", &runner).await["id"].clone();
    let path = format!("/workflows/{workflow}/claim");
    let claim = |key: &str, wait: i64| json!({"runner_id": runner, "key": key, "limit": 1, "capacity": capacity, "wait_seconds": wait});
    let held = post(&server, &path, &claim("first", 0)).await;
    assert_eq!(held["attempts"].as_array().unwrap().len(), 1);
    let mut waiting = Vec::new();
    for n in 1..=12 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = with_body(&server, &path, &claim(&format!("wait-{n}"), 60));
        stream.write_all(request.as_bytes()).await.unwrap();
        waiting.push(stream);
        // The next one comes when this one waits: all of them together would be strangers for a moment.
        let metrics = head(&server, "GET /metrics", "");
        let gauge = format!("torc_claims_waiting {n}\n");
        while !exchange(&server, metrics.as_bytes()).await.contains(&gauge) {}
    }
    let cancel = format!("/workflows/{workflow}/cancel");
    post(&server, &cancel, &json!({})).await;
    for (n, mut stream) in waiting.into_iter().enumerate() {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "claim {n}: `{answer}`");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_streams() {
    let (server, _dir) = start().await;
    let body = r#"{"spec": {"name": "w", "jobs": [{"name": "a", "command": "true"}]}}"#;
    let more = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let created = exchange(
        &server,
        (head(&server, &format!("POST {BASE}/workflows"), &more) + body).as_bytes(),
    )
    .await;
    let created: Value = serde_json::from_str(created.split_once("\r\n\r\n").unwrap().1).unwrap();
    let path = format!("{BASE}/workflows/{}/events/stream", created["id"]);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(head(&server, &format!("GET {path}"), "").as_bytes()).await.unwrap();
    let mut buffer = [0; 1024];
    let n = stream.read(&mut buffer).await.unwrap();
    assert!(buffer[..n].starts_with(b"HTTP/1.1 200"));
    let idle = TcpStream::connect(server.address()).await.unwrap();
    let begun = Instant::now();
    server.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(idle);
}
