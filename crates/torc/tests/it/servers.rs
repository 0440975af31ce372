//! Servers that run by themselves: several runners, restarts, refusals.

use crate::support::{Running, Test, text};
use std::collections::BTreeMap;

struct Server {
    running: Running,
    url: String,
}

fn serve(test: &Test, args: &[&str]) -> Server {
    let mut running = test.torc([&["server", "run"], args].concat()).spawn();
    let url = running.wait_for_stdout("http://").trim().to_string();
    Server { running, url }
}

#[test]
fn two_runners_share_a_workflow_and_no_job_runs_twice() {
    let test = Test::new().spec(
        r#"
name: shared
jobs:
  - {name: "j_{i}", command: "echo {i} >> ran.txt", parameters: {i: "1:300"}}
  - {name: last, command: "echo last >> ran.txt", depends_on_regexes: ["^j_"]}
"#,
    );
    let server = serve(&test, &[]);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let runners = [
        test.torc(["runner", "shared", "-j", "2"]).spawn(),
        test.torc(["runner", "1", "-j", "2"]).spawn(),
    ];
    for runner in runners {
        runner.wait().expect(0);
    }
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for line in test.read("ran.txt").lines() {
        *times.entry(line.into()).or_default() += 1;
    }
    assert_eq!(times.len(), 301);
    assert!(times.values().all(|count| *count == 1), "{times:?}");
    let results = test.torc(["-f", "json", "results", "list"]).success().json();
    // What one runner held ahead of time may have gone back for the other one: such attempts never
    // began.
    let ended = results["results"].as_array().expect("results").iter();
    assert_eq!(ended.filter(|result| result["state"] == "completed").count(), 301);
    drop(server);
}

#[test]
fn a_runner_survives_a_server_that_is_killed_and_started_again() {
    let test = Test::new().spec("name: w\njobs:\n  - {name: a, command: 'read line < gate; echo a >> ran.txt'}\n  - {name: b, command: 'echo b >> ran.txt', depends_on: [a]}\n");
    let gate = test.gate("gate");
    let server = serve(&test, &[]);
    let port = server.url.rsplit(':').next().expect("a port").to_string();
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let mut runner = test.torc(["runner", "1"]).spawn();
    let mut events = test.torc(["events", "--follow"]).spawn();
    events.wait_for_stdout("job_started");
    drop(events);
    server.running.signal("KILL");
    server.running.wait();
    // The job ends while there is no server; the result is kept and delivered.
    gate.open();
    runner.wait_for_stderr("the server does not answer");
    let server = serve(&test, &["--port", &port]);
    runner.wait().expect(0).tells("2 of 2 jobs succeeded");
    assert_eq!(test.read("ran.txt"), "a\nb\n");
    assert_eq!(test.last_attempt("a")["attempt_id"], 1, "it was not run again");
    drop(server);
}

#[test]
fn a_server_stops_in_good_order() {
    let test = Test::new();
    let server = serve(&test, &[]);
    assert!(test.exists(".torc/server.json"));
    server.running.signal("TERM");
    server.running.wait().expect(0).tells("stopping");
    assert!(!test.exists(".torc/server.json"));
    test.torc(["workflows", "list"]).success().tells("no workflows");
}

#[test]
fn a_second_server_on_the_same_state_is_refused_with_the_owners_pid() {
    let test = Test::new();
    let server = serve(&test, &[]);
    let pid = server.running.pid().to_string();
    test.torc(["server", "run"]).exit(3).tells("in use by").tells(&pid);
}

#[test]
fn a_wrong_token_is_refused() {
    let test = Test::new().file("wrong", "0123456789012345678901234567890123456789");
    let server = serve(&test, &[]);
    let call = ["--url", &server.url, "--token-file", "wrong", "workflows", "list"];
    test.torc(call).exit(2).tells("token");
    let token = test.torc(["server", "token"]).success().stdout;
    test.write("right", &token);
    let elsewhere = Test::new();
    let right = test.path("right");
    let call = [
        "--url",
        &server.url,
        "--token-file",
        right.to_str().expect("a path"),
        "workflows",
        "list",
    ];
    elsewhere.torc(call).success().tells("no workflows");
}

#[test]
fn a_runner_joins_from_another_directory_and_works_where_the_workflow_is() {
    let test = Test::new().spec("name: far\njobs:\n  - {name: a, command: 'pwd > where.txt'}\n");
    let server = serve(&test, &[]);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let elsewhere = Test::new();
    let token = test.path(".torc/token");
    let call =
        ["--url", &server.url, "--token-file", token.to_str().expect("a path"), "runner", "far"];
    elsewhere.torc(call).success();
    let here = test.path("").canonicalize().expect("a directory");
    assert_eq!(test.read("where.txt").trim(), here.display().to_string());
}

#[test]
fn an_oversized_body_is_refused_and_changes_nothing() {
    let test = Test::new().spec(
        "name: u\nuser_data: [{name: v, data: 1}]\njobs:\n  - {name: a, command: 'true', input_user_data: [v]}\n",
    );
    test.torc(["create", "workflow.yaml"]).success();
    test.write("big.json", &format!("\"{}\"", "x".repeat(40 << 20)));
    test.torc(["user-data", "update", "v", "@big.json"])
        .exit(2)
        .tells("larger than")
        .tells("hint:");
    assert_eq!(test.torc(["user-data", "get", "v"]).success().stdout, "1\n");
}

#[test]
fn two_reinitialize_calls_at_once_do_not_disturb_each_other() {
    let test = Test::new()
        .spec("name: re\nfiles: [{name: in, path: in.txt}]\njobs:\n  - {name: a, command: 'cat ${files.input.in}'}\n  - {name: b, command: 'true', depends_on: [a]}\n")
        .file("in.txt", "one\n");
    let server = serve(&test, &[]);
    test.run().expect(0);
    test.write("in.txt", "two, which is longer\n");
    let calls =
        [0; 4].map(|_| test.torc(["-f", "json", "workflows", "reinitialize", "latest"]).spawn());
    let codes = calls.map(|call| call.wait().code);
    assert!(codes.iter().all(|code| matches!(code, Some(0 | 2))), "{codes:?}");
    assert!(codes.contains(&Some(0)), "{codes:?}");
    assert_eq!(test.statuses(), ["a ready", "b blocked"]);
    test.torc(["run", "latest"]).success();
    assert_eq!(test.statuses(), ["a completed", "b completed"]);
    assert_eq!(
        test.torc(["-q", "logs", "a", "--stdout"]).success().stdout,
        "two, which is longer\n"
    );
    drop(server);
}

#[test]
fn wrong_input_is_refused_and_the_database_stays_as_it_was() {
    let test = Test::new().spec("name: fine\njobs:\n  - {name: a, command: 'exit 1'}\n");
    test.run().expect(1);
    let state = || {
        let list = |what: &[&str]| test.torc([&["-f", "json"], what].concat()).success().stdout;
        [
            list(&["workflows", "list"]),
            list(&["jobs", "list"]),
            list(&["events"]),
            list(&["user-data", "list"]),
        ]
        .concat()
    };
    let before = state();
    let bad = [
        (
            "cycle.yaml",
            "name: c\njobs:\n  - {name: a, command: x, depends_on: [b]}\n  - {name: b, command: x, depends_on: [a]}\n",
            "cycle",
        ),
        ("typo.yaml", "name: c\njobs:\n  - {name: a, comand: x}\n", "comand"),
        (
            "twice.yaml",
            "name: c\njobs:\n  - {name: a, command: x}\n  - {name: a, command: y}\n",
            "a",
        ),
        (
            "dangling.yaml",
            "name: c\njobs:\n  - {name: a, command: x, depends_on: [missing]}\n",
            "missing",
        ),
        ("broken.yaml", "name: c\njobs: [\n", "broken.yaml"),
    ];
    for (name, spec, word) in bad {
        test.write(name, spec);
        for command in ["run", "create"] {
            let done = test.torc([command, name]).exit(2).tells(word).tells(name);
            assert_eq!(done.stdout, "", "{name}");
        }
    }
    let calls: &[&[&str]] = &[
        &["run", "missing.yaml"],
        &["run", "99"],
        &["status", "nobody"],
        &["why", "nobody"],
        &["logs", "a", "--attempt", "7"],
        &["jobs", "get", "999"],
        &["jobs", "enable", "a"],
        &["jobs", "update", "a"],
        &["jobs", "update", "a", "--memory", "lots"],
        &["jobs", "list", "-s", "sleepy"],
        &["user-data", "update", "x", "{"],
        &["user-data", "get", "x"],
        &["workflows", "delete", "1"],
        &["workflows", "reset-status", "1", "--job", "nobody"],
        &["failure-handlers", "get", "nobody"],
        &["exec"],
        &["exec", "-c", "true", "--param", "x"],
        &["run", "workflow.yaml", "--num-cpus", "0"],
    ];
    for call in calls {
        let done = test.torc(*call).exit(2);
        assert_eq!(done.stdout, "", "{call:?}");
        assert!(done.stderr.contains("error"), "{call:?}: {}", done.stderr);
    }
    assert_eq!(state(), before);
}

#[test]
fn a_full_disk_fails_the_job_and_not_the_runner() {
    let test = Test::new().spec(
        "name: full\njobs:\n  - {name: loud, command: 'head -c 5000000 /dev/zero'}\n  - {name: quiet, command: 'true', depends_on: [loud], cancel_on_blocking_job_failure: false}\n",
    );
    let disk = test.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let mounted = test.shell("mount -t tmpfs -o size=1m tmpfs disk").done();
    if mounted.code != Some(0) {
        eprintln!("skipped: a small disk cannot be mounted here: {}", mounted.stderr.trim());
        return;
    }
    let done = test.torc(["run", "workflow.yaml", "-o", "disk/out"]).done();
    let statuses = test.statuses();
    let attempt = test.last_attempt("loud");
    test.shell("umount disk").success();
    done.expect(1);
    assert_eq!(statuses, ["loud failed", "quiet completed"]);
    assert_ne!(attempt["return_code"], 0, "{attempt}");
}

#[test]
fn a_backup_is_a_database_that_a_server_can_use() {
    let test = Test::new().spec("name: kept\njobs:\n  - {name: a, command: 'true'}\n");
    test.run().expect(0);
    test.torc(["server", "backup", "copy.db"]).success().tells("wrote `copy.db`");
    test.torc(["server", "backup", "copy.db"]).exit(2).tells("copy.db");
    let other = Test::new();
    std::fs::create_dir(other.path(".torc")).expect("a directory");
    std::fs::copy(test.path("copy.db"), other.path(".torc/torc.db")).expect("a copy");
    let list = other.torc(["-f", "json", "workflows", "list"]).success().json();
    assert_eq!(text(&list["workflows"][0]["name"]), "kept");
}

#[test]
fn a_directory_is_found_by_its_server_though_the_database_is_elsewhere() {
    let test = Test::new().spec("name: away\njobs: [{name: a, command: 'true'}]\n");
    let server = serve(&test, &["--database", "x.db"]);
    assert!(!test.exists(".torc/torc.db"));
    test.torc(["create", "workflow.yaml"]).success();
    std::fs::create_dir(test.path("below")).expect("a directory");
    test.shell("cd below && torc workflows list").success().says("away");
    test.torc(["--dir", ".torc", "jobs", "list"]).success().says("a");
    server.running.signal("KILL");
    server.running.wait();
    for call in [&["status"][..], &["create", "workflow.yaml"], &["run", "workflow.yaml"]] {
        test.torc(call).exit(3).tells("does not answer").tells("--database").tells("server.json");
    }
    assert!(!test.exists(".torc/torc.db"), "no empty database takes its place");
}

#[test]
fn a_second_server_does_not_take_a_state_directory_over() {
    let test = Test::new();
    let first = serve(&test, &[]);
    let announced = test.read(".torc/server.json");
    let pid = first.running.pid().to_string();
    test.torc(["server", "run", "--database", "x.db"])
        .exit(3)
        .tells("is served by")
        .tells(&pid)
        .tells("--dir");
    assert_eq!(test.read(".torc/server.json"), announced);
    first.running.signal("TERM");
    first.running.wait().expect(0);
    // The other way round, and the usual database by another name is no second one.
    let second = serve(&test, &["--database", "x.db"]);
    let pid = second.running.pid().to_string();
    test.torc(["server", "run"]).exit(3).tells("in use by").tells(&pid);
    test.torc(["server", "run", "--database", "y.db"]).exit(3).tells("is served by").tells(&pid);
    second.running.signal("TERM");
    second.running.wait().expect(0);
    drop(serve(&test, &["--database", ".torc/../.torc/torc.db"]));
    let mut inside =
        test.shell("cd .torc && exec torc --dir . server run --database torc.db").spawn();
    inside.wait_for_stdout("http://");
}

/// A server that says that it is well, and is gone before the next question.
fn announce_an_ending_server(test: &Test) -> std::thread::JoinHandle<()> {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let file = serde_json::json!({
        "url": url, "token": "0".repeat(40), "embedded": true, "pid": 1, "hostname": "h", "started_ms": 1, "version": "0"
    });
    test.write(".torc/server.json", &file.to_string());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(listener);
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).expect("a request");
        let body = r#"{"status":"ok"}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .expect("an answer");
    })
}

#[test]
fn a_command_goes_on_when_the_server_it_found_ends_before_it_answers() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["create", "workflow.yaml"]).success();
    let calls: [&[&str]; 4] = [
        &["status"],
        &["user-data", "list"],
        &["-f", "json", "create", "workflow.yaml"],
        &["run", "--new", "workflow.yaml"],
    ];
    for call in calls {
        let server = announce_an_ending_server(&test);
        test.torc(call).success();
        server.join().expect("the server was asked");
    }
    let workflows = test.torc(["-f", "json", "workflows", "list"]).success().json();
    assert_eq!(workflows["total_count"], 3, "each was created once");
}

#[test]
fn a_directory_on_the_command_line_counts_more_than_a_server_in_the_environment() {
    let test = Test::new()
        .spec("name: outer\njobs:\n  - {name: a, command: 'torc --dir sub exec -c true'}\n");
    test.run().expect(0);
    let inner = test.torc(["--dir", "sub", "-f", "json", "workflows", "list"]).success().json();
    assert_eq!(inner["total_count"], 1, "{inner}");
    let outer = test.torc(["-f", "json", "workflows", "list"]).success().json();
    assert_eq!(outer["workflows"][0]["name"], "outer", "{outer}");
    let url = "http://127.0.0.1:1";
    test.torc(["--dir", "sub", "status"]).env("TORC_API_URL", url).success();
    test.torc(["--dir", "sub", "--url", url, "--token-file", "sub/token", "status"])
        .exit(3)
        .tells(url);
    test.torc(["status"])
        .env("TORC_DIR", "sub")
        .env("TORC_API_URL", url)
        .env("TORC_TOKEN", "t")
        .exit(3)
        .tells(url);
}
