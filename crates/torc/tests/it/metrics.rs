//! A server as programs see it that watch it: `/metrics`, health, and its log.
//!
//! `scripts/prometheus-lab` fetches promtool. `TORC_PROMTOOL` names it, or is `none` where it cannot
//! be had: then the strict parser here judges alone.

use crate::support::{Running, Test, text};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Server {
    running: Running,
    address: String,
    token: String,
}

fn serve(test: &Test, args: &[&str]) -> Server {
    let mut running = test.torc([&["server", "run"], args].concat()).spawn();
    let url = running.wait_for_stdout("http://").trim().to_owned();
    let address = url.strip_prefix("http://").expect("plain HTTP").to_owned();
    Server { running, address, token: test.read(".torc/token").trim().to_owned() }
}

/// The head and the body of an answer.
fn ask(address: &str, request: &str, headers: &[(&str, &str)]) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut text = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{text}\r\n").as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

impl Server {
    fn metrics(&self) -> String {
        let bearer = format!("Bearer {}", self.token);
        let (head, body) = ask(&self.address, "GET /metrics", &[("authorization", &bearer)]);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        body
    }

    fn end(self) -> String {
        self.running.signal("TERM");
        self.running.wait().expect(0).stderr
    }
}

/// The program promtool; `None` where it cannot be had.
fn promtool() -> Option<PathBuf> {
    let named = std::env::var_os("TORC_PROMTOOL").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: promtool cannot be had here");
        return None;
    }
    let program = named.unwrap_or_else(|| "promtool".into());
    if Command::new(&program).arg("--version").output().is_ok_and(|done| done.status.success()) {
        return Some(program);
    }
    let how = "no promtool to judge `/metrics`; `scripts/prometheus-lab` fetches it";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// What promtool says about some input; nothing when all is well.
fn judged(program: &Path, args: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let done = child.wait_with_output().expect("it ends");
    match done.status.success() && done.stderr.is_empty() {
        true => String::new(),
        false => String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
    }
}

/// Samples by their name with labels. Stricter than the format: every family has a help and a type,
/// its samples stand together, no sample comes twice, and buckets only grow.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let (mut samples, mut families) = (BTreeMap::new(), HashSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut bucket = 0.0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').expect("a name and its help");
            assert!(about.len() > 5 && about.ends_with('.'), "{line}");
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            let of = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type");
            let (typed, of) = of.split_once(' ').expect("a name and its type");
            assert_eq!(typed, name);
            (family, kind, bucket) = (name.to_owned(), of.to_owned(), 0.0);
            assert!(name.starts_with("torc_"), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let bare = name.split('{').next().expect("a name");
        let suffix = bare.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line}"));
        let suffixes: &[&str] =
            if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line} in {family}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value >= 0.0, "{line}");
        if suffix == "_bucket" {
            assert!(value >= bucket, "{line} after {bucket}");
            bucket = value;
        } else if suffix == "_count" {
            assert_eq!(value, bucket, "{line}: the last bucket has all");
        }
        assert!(samples.insert(name.to_owned(), value).is_none(), "{name} comes twice");
    }
    samples
}

const SPEC: &str = "name: w
jobs:
  - {name: good, command: 'true'}
  - {name: bad, command: 'exit 3'}
  - {name: after, command: 'true', depends_on: bad}
  - {name: again, command: 'test -e here || { touch here; exit 7; }', retries: 1}
";

#[test]
fn metrics_are_clean_and_count_what_happened() {
    let test = Test::new().spec(SPEC);
    let server = serve(&test, &[]);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let before = parsed(&server.metrics());
    assert_eq!(before[r#"torc_jobs{status="ready"}"#], 3.0);
    assert_eq!(before["torc_queue_jobs"], 3.0);
    assert_eq!(before[r#"torc_workflows{state="active"}"#], 1.0);
    test.torc(["runner", "w"]).exit(1);
    let text = server.metrics();
    if let Some(promtool) = promtool() {
        assert_eq!(judged(&promtool, &["check", "metrics"], &text), "");
        // The judge is awake.
        assert_ne!(judged(&promtool, &["check", "metrics"], "# TYPE a counter\na 1\n"), "");
    }
    let samples = parsed(&text);
    let all = |name: &str| {
        let of = |(key, _): &(&String, &f64)| key.split('{').next() == Some(name);
        samples.iter().filter(of).map(|(_, value)| value).sum::<f64>()
    };
    for (sample, expected) in [
        (r#"torc_jobs{status="completed"}"#, 2.0),
        (r#"torc_jobs{status="failed"}"#, 1.0),
        (r#"torc_jobs{status="canceled"}"#, 1.0),
        ("torc_queue_jobs", 0.0),
        (r#"torc_workflows{state="active"}"#, 0.0),
        (r#"torc_attempts_ended_total{cause="success"}"#, 2.0),
        (r#"torc_attempts_ended_total{cause="exit"}"#, 2.0),
        (r#"torc_events_total{kind="job_retried"}"#, 1.0),
        (r#"torc_events_total{kind="workflow_completed"}"#, 1.0),
        ("torc_attempts_claimed_total", 4.0),
        ("torc_claims_waiting", 0.0),
        ("torc_commit_failures_total", 0.0),
        ("torc_ready", 1.0),
    ] {
        assert_eq!(samples[sample], expected, "{sample}");
    }
    assert_eq!(all("torc_jobs"), 4.0);
    assert_eq!(all("torc_attempts_ended_total"), 4.0);
    assert!(samples["torc_claim_duration_seconds_count"] >= 2.0);
    assert!(samples["torc_commit_duration_seconds_count"] >= 4.0);
    assert!(samples["torc_commit_requests_total"] >= samples["torc_commit_duration_seconds_count"]);
    assert!(samples["torc_database_bytes"] > 100_000.0);
    assert!(samples["torc_disk_free_bytes"] > 0.0);
    assert!(samples[r#"torc_http_responses_total{code="2xx"}"#] > 5.0);

    // Another server of the same database has counted nothing, and knows the jobs all the same.
    server.end();
    let server = serve(&test, &[]);
    let samples = parsed(&server.metrics());
    assert_eq!(samples[r#"torc_jobs{status="completed"}"#], 2.0);
    assert_eq!(samples[r#"torc_jobs{status="failed"}"#], 1.0);
    assert_eq!(samples[r#"torc_attempts_ended_total{cause="exit"}"#], 0.0);
    test.torc(["workflows", "reset-status", "w", "--failed-only"]).success();
    test.torc(["workflows", "initialize", "w"]).done();
    let samples = parsed(&server.metrics());
    assert_eq!(samples[r#"torc_jobs{status="failed"}"#], 0.0, "{samples:?}");
    test.torc(["workflows", "delete", "w", "--yes", "--force"]).success();
    assert_eq!(parsed(&server.metrics())[r#"torc_jobs{status="completed"}"#], 0.0);
}

#[test]
fn a_token_of_any_role_reads_metrics_and_no_token_does_not() {
    let script = "import os, urllib.request as u\n\
        token = open(os.environ['TORC_TOKEN_FILE']).read().strip()\n\
        url = os.environ['TORC_API_URL'].split('/torc-service')[0] + '/metrics'\n\
        ask = u.Request(url, headers={'Authorization': 'Bearer ' + token})\n\
        open('seen.txt', 'w').write(u.urlopen(ask).read().decode())\n";
    let test = Test::new()
        .file("ask.py", script)
        .spec("name: w\njobs:\n  - {name: a, command: 'python3 ask.py'}\n");
    let server = serve(&test, &[]);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    test.torc(["runner", "w"]).success();
    let seen = parsed(&test.read("seen.txt"));
    assert_eq!(seen[r#"torc_jobs{status="running"}"#], 1.0);
    assert_eq!(seen[r#"torc_runners{kind="local",state="active"}"#], 1.0);
    let (head, body) = ask(&server.address, "GET /metrics", &[]);
    assert!(head.starts_with("HTTP/1.1 401") && !body.contains("torc_jobs"), "{head}\n{body}");
    let (head, _) = ask(&server.address, "GET /health/ready", &[]);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[test]
fn the_log_in_json_names_the_request_and_never_the_token() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    let server = serve(&test, &["--log-format", "json"]);
    test.torc(["create", "workflow.yaml"]).success();
    let bearer = format!("Bearer {}", server.token);
    let given = [("authorization", bearer.as_str()), ("x-request-id", "from-a.proxy_7")];
    let (head, _) = ask(&server.address, "GET /torc-service/v1/workflows/99", &given);
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert!(head.contains("x-request-id: from-a.proxy_7"), "{head}");
    let (head, _) = ask(&server.address, "GET /torc-service/v1/jobs", &[("x-request-id", "a b")]);
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let made = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect("an id");
    assert_ne!(made, "a b");

    let token = server.token.clone();
    let log = server.end();
    assert!(!log.contains(&token), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .filter(|l| l.starts_with('{'))
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let request = |id: &str| {
        let of = |line: &&Value| line["request_id"] == id;
        lines.iter().find(of).unwrap_or_else(|| panic!("{id} is not in\n{log}"))
    };
    let missing = request("from-a.proxy_7");
    assert_eq!((text(&missing["level"]), &missing["status"]), ("INFO", &Value::from(404)));
    assert_eq!(text(&missing["path"]), "/torc-service/v1/workflows/99");
    assert!(text(&missing["timestamp"]).ends_with('Z') && missing["seconds"].is_f64(), "{missing}");
    assert_eq!(request(made)["status"], 401);
    let is_creation = |line: &&Value| line["method"] == "POST" && line["status"] == 200;
    let created: Vec<&Value> = lines.iter().filter(is_creation).collect();
    assert_eq!(created.len(), 1, "a change is told, once:\n{log}");
    assert_eq!(text(&created[0]["path"]), "/torc-service/v1/workflows");
    assert!(created[0]["request_id"].is_string(), "{log}");
}

/// What the log says of the client of a request that comes through a proxy on this machine, and whether the page tells
/// browsers to come back by HTTPS.
fn told_of_client(options: &[&str]) -> (String, bool) {
    let test = Test::new();
    let server = serve(&test, &[&["--log-format", "json"], options].concat());
    let forwarded = [
        ("x-request-id", "through-a-proxy"),
        ("x-forwarded-for", "198.51.100.1, 203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("sec-fetch-mode", "navigate"),
    ];
    let (head, _) = ask(&server.address, "GET /torc-service/v1/jobs", &forwarded);
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let log = server.end();
    let line = log.lines().find(|line| line.contains("through-a-proxy")).expect("its line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    (text(&line["client"]).to_owned(), head.contains("strict-transport-security"))
}

#[test]
fn forwarded_headers_count_from_proxies_that_were_named() {
    assert_eq!(told_of_client(&[]), ("127.0.0.1".into(), false));
    assert_eq!(told_of_client(&["--trusted-proxy", "10.0.0.1"]), ("127.0.0.1".into(), false));
    let named = told_of_client(&["--trusted-proxy", "127.0.0.0/8"]);
    assert_eq!(named, ("203.0.113.7".into(), true));
    let test = Test::new();
    test.torc(["server", "run", "--trusted-proxy", "proxy"]).exit(2).tells("10.0.0.0/8");
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_there_are() {
    let test = Test::new();
    let server = serve(&test, &[]);
    let samples = parsed(&server.metrics());
    let known: HashSet<&str> = samples.keys().filter_map(|key| key.split('{').next()).collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for name in ["grafana-dashboard.json", "prometheus-alerts.yaml", "monitoring.md"] {
        let text = std::fs::read_to_string(docs.join(name)).expect(name);
        let mut words = HashSet::new();
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            // The crate, in what `RUST_LOG` takes.
            if word.starts_with("torc_") && word != "torc_server" {
                words.insert(word);
            }
        }
        assert!(words.len() > 5, "{name}");
        for word in words {
            let is_family = known.iter().any(|known| {
                known.strip_prefix(word).is_some_and(|rest| ["", "_bucket"].contains(&rest))
            });
            assert!(is_family, "{name} names `{word}`, which `/metrics` does not have");
        }
        if name.ends_with(".json") {
            serde_json::from_str::<Value>(&text).expect("JSON");
        }
        if let Some(promtool) = promtool().filter(|_| name.ends_with(".yaml")) {
            let file = docs.join(name);
            let file = file.to_str().expect("text");
            assert_eq!(judged(&promtool, &["check", "rules", file], ""), "", "{name}");
        }
    }
}

/// The page of metrics, made of what a server says about each.
fn page(metrics: &str) -> String {
    let mut page = String::from(
        "# Every metric\n\nWhat `GET /metrics` of a [server](monitoring.md) answers. This page is made of such an answer by \
         the tests, which fail when it is out of date.\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    let mut families: Vec<[&str; 3]> = Vec::new();
    let mut labels: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for line in metrics.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            families.push([name, "", help]);
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            families.last_mut().expect("a family")[1] = kind;
        } else if let Some((_, rest)) = line.split_once('{') {
            let name = families.last().expect("a family")[0];
            let inside = rest.split_once('}').expect("an end").0;
            for (label, value) in inside.split(',').filter_map(|pair| pair.split_once('=')) {
                let values = labels.entry(name).or_default().entry(label).or_default();
                let value = value.trim_matches('"');
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }
    for [name, kind, help] in families {
        let labels = labels.get(name).into_iter().flatten().filter(|(label, _)| **label != "le");
        let labels: Vec<String> = labels
            .map(|(label, values)| match values.len() {
                _ if *label == "version" => format!("`{label}`"),
                0..=14 => format!("`{label}`: {}", values.join(", ")),
                _ => format!("`{label}`: see [words](words.md)"),
            })
            .collect();
        page.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join("; ")));
    }
    page
}

#[test]
fn the_page_of_metrics_is_what_a_server_says() {
    let test = Test::new();
    let server = serve(&test, &[]);
    let page = page(&server.metrics());
    server.end();
    let path = crate::docs::root().join("docs/metrics.md");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/metrics.md is out of date; UPDATE_EXPECTED=1 writes it anew");
}
