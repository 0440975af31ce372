//! Starting, stopping and starting again.

use crate::limits::exchange;
use crate::world::BASE;
use axum::http::Request;
use http_body_util::{BodyExt as _, Full};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use torc_model::api::ServerFile;
use torc_server::boot::Ended;
use torc_server::{Options, RunningServer, Server, StartError, backup, read_token};

fn server_file(state_dir: &Path) -> Option<ServerFile> {
    let text = std::fs::read(state_dir.join("server.json")).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

async fn call(server: &RunningServer, line: &str, body: &str) -> String {
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address(),
        server.token(),
        body.len()
    );
    exchange(server, request.as_bytes()).await
}

async fn create(server: &RunningServer) {
    let body = r#"{"spec": {"name": "kept", "jobs": [{"name": "a", "command": "true"}]}}"#;
    let answer = call(server, &format!("POST {BASE}/workflows"), body).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn state_token_and_address_are_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a/.torc");
    let first = Server::start(Options::new(&state)).await.unwrap();
    let file = server_file(&state).unwrap();
    assert_eq!((file.url.as_str(), file.token.as_str()), (first.url(), first.token()));
    assert_eq!(file.pid, i64::from(std::process::id()));
    assert!(first.address().ip().is_loopback());
    assert_eq!(read_token(&state).unwrap().as_deref(), Some(first.token()));
    create(&first).await;
    let (token, address) = (first.token().to_string(), first.address());
    first.shutdown().await;
    assert_eq!(server_file(&state), None, "a server that ended is not found");

    let second = Server::start(Options::new(&state)).await.unwrap();
    assert_eq!(second.token(), token);
    let answer = call(&second, &format!("GET {BASE}/workflows"), "").await;
    assert!(answer.contains("kept"), "{answer}");
    assert_eq!(second.address(), address, "runners of the first server ask there");
    second.shutdown().await;

    let other = std::net::TcpListener::bind(address).unwrap();
    let third = Server::start(Options::new(&state)).await.unwrap();
    assert_ne!(third.address(), address);
    drop(other);
    third.shutdown().await;
}

#[tokio::test]
async fn a_caller_in_the_same_process_asks_until_the_end_and_keeps_nothing_open() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Options::new(dir.path())).await.unwrap();
    create(&server).await;
    let inside = server.inside();
    let host = server.address().to_string();
    let ask = async |token: &str| {
        let request = Request::get(format!("{BASE}/workflows"))
            .header("host", &host)
            .header("authorization", format!("Bearer {token}"))
            .body(Full::default())
            .unwrap();
        let answer = inside.answer(request).await?;
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Ended>((status, String::from_utf8_lossy(&text).into_owned()))
    };
    let (status, text) = ask(server.token()).await.unwrap();
    assert!(status == 200 && text.contains("kept"), "{status} {text}");
    let (status, text) = ask("another token that the server never issued").await.unwrap();
    assert_eq!(status, 401, "{text}");

    let token = server.token().to_string();
    server.shutdown().await;
    ask(&token).await.unwrap_err();
    // The server's own tasks see its end when it is their turn.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open: Vec<_> = own.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        if !open.iter().any(|path| path.starts_with(dir.path())) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{open:?}");
        tokio::task::yield_now().await;
    }
    drop(inside);
}

#[tokio::test]
async fn everything_in_the_state_directory_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join(".torc");
    let server = Server::start(Options::new(&state)).await.unwrap();
    create(&server).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&state).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{:?}", entry.path());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "ids.json",
            "port",
            "server.json",
            "token",
            "torc.db",
            "torc.db-shm",
            "torc.db-wal",
            "torc.db.lock",
            "ui.sock"
        ]
    );
    server.shutdown().await;
    assert!(!state.join("ui.sock").exists(), "the socket goes with its server");
}

#[tokio::test]
async fn second_server_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start(Options::new(dir.path())).await.unwrap();
    let before = server_file(dir.path()).unwrap();
    let error = Server::start(Options::new(dir.path())).await.err().unwrap();
    assert!(matches!(error, StartError::Owned { owner: Some(_), .. }), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert_eq!(server_file(dir.path()).unwrap(), before);
    assert!(call(&first, &format!("GET {BASE}/health"), "").await.starts_with("HTTP/1.1 200"));
    first.shutdown().await;
}

#[tokio::test]
async fn dropped_server_stops_and_gives_the_database_free() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Options::new(dir.path())).await.unwrap();
    drop(server);
    let begun = std::time::Instant::now();
    loop {
        match Server::start(Options::new(dir.path())).await {
            Ok(next) => return next.shutdown().await,
            Err(StartError::Owned { .. }) if begun.elapsed().as_secs() < 20 => {
                tokio::task::yield_now().await
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn later_servers_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Options::new(dir.path())).await.unwrap();
    let mut other = server_file(dir.path()).unwrap();
    other.pid += 1;
    std::fs::write(dir.path().join("server.json"), serde_json::to_vec(&other).unwrap()).unwrap();
    server.shutdown().await;
    assert_eq!(server_file(dir.path()), Some(other));
}

#[tokio::test]
async fn backup_is_a_database_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Options::new(dir.path().join("state"))).await.unwrap();
    create(&server).await;
    let copy = dir.path().join("copy.db");
    server.backup(&copy).unwrap();
    assert!(server.backup(&copy).is_err(), "never over a file");
    server.shutdown().await;
    let options =
        Options { database: Some(copy.clone()), ..Options::new(dir.path().join("other")) };
    let restored = Server::start(options).await.unwrap();
    assert!(call(&restored, &format!("GET {BASE}/workflows"), "").await.contains("kept"));
    restored.shutdown().await;
    assert!(backup(&dir.path().join("missing.db"), &dir.path().join("x")).is_err());
}

#[tokio::test]
async fn unusable_tokens_and_addresses_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "short").unwrap();
    let error = Server::start(Options::new(dir.path())).await.err().unwrap();
    assert!(matches!(error, StartError::BadToken { .. }), "{error}");
    assert!(error.hint().unwrap().contains("delete"));
    let options =
        Options { host: Some("203.0.113.7".into()), ..Options::new(dir.path().join("b")) };
    let error = Server::start(options).await.err().unwrap();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    assert!(!dir.path().join("b").exists(), "nothing was made");
}

#[tokio::test]
async fn names_of_the_machine_are_allowed_only_when_given() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        Options { allowed_hosts: vec!["torc.example".into()], ..Options::new(dir.path()) };
    let server = Server::start(options).await.unwrap();
    for (host, status) in [("torc.example", "200"), ("localhost:1", "200"), ("evil.example", "421")]
    {
        let request =
            format!("GET {BASE}/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = exchange(&server, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
    }
    server.shutdown().await;
}
