//! The process dies at every failpoint; afterwards the same command goes on, and nothing ran twice
//! or was lost.

use crate::support::Test;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Jobs that record their own starts and ends, and notice an earlier attempt that is still alive.
const SPEC: &str = r#"
name: crash
failure_handlers:
  - name: h
    rules: [{exit_codes: [10], max_retries: 5, recovery_script: "echo \"$TORC_ATTEMPT_ID\" >> scripts"}]
jobs:
  - {name: flaky, command: "source witness.sh; [ -e failed_once ] || { touch failed_once; exit 10; }; done_now", failure_handler: h, max_lost_retries: 9}
  - {name: beside, command: "source witness.sh; done_now", max_lost_retries: 9}
  - {name: after, command: "source witness.sh; [ -e done_flaky ] && [ -e done_beside ] || echo early >> violations; done_now", depends_on: [flaky, beside], max_lost_retries: 9}
"#;

const WITNESS: &str = r#"
touch pids_$TORC_JOB_NAME
while read -r pid; do
    # A zombie has ended; its new parent has not waited for it yet.
    state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)
    case "$state" in ''|Z|X) ;; *) echo "$TORC_JOB_NAME overlaps, $pid is $state" >> violations ;; esac
done < pids_$TORC_JOB_NAME
echo $$ >> pids_$TORC_JOB_NAME
echo "start $TORC_JOB_NAME $TORC_RUN_ID $TORC_ATTEMPT_ID" >> witness
[ -e done_$TORC_JOB_NAME ] && echo "$TORC_JOB_NAME ran again after its success" >> again
done_now() { sleep 0.05; touch done_$TORC_JOB_NAME; }
"#;

/// One exchange with a server: status and body.
fn exchange(port: u16, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
    let request = format!(
        "{method} /torc-service/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("{answer}"));
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// A workflow with one job that a runner had begun when everything was killed.
fn killed_in_a_job(test: &Test) {
    let gate = test.gate("started");
    let run = test.torc(["run", "workflow.yaml"]).spawn();
    gate.read();
    run.signal("KILL");
    run.wait();
}

const ONE: &str = "name: one\njobs: [{name: a, command: '[ -e again ] || { touch again; echo go > started; exec sleep 1000; }'}]\n";

#[test]
fn nothing_is_served_until_recovery_is_done() {
    let test = Test::new().spec(ONE);
    killed_in_a_job(&test);
    let gate = test.gate("gate");
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a free port")
        .port();
    let server = test.torc(["server", "run", "--port", &port.to_string()]);
    let mut server = server
        .env("TORC_FAILPOINT", format!("recovery.looking@{}", test.path("gate").display()))
        .spawn();
    // It listens before it recovers. Nothing is said until then, so that is looked for.
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let token = test.read(".torc/token").trim().to_owned();
    let health = || exchange(port, "GET", "/health", &token, "").1;
    assert!(health().contains("\"recovering\""), "{}", health());
    let claim = r#"{"runner_id": 1, "key": "k", "resources": {"num_cpus": 1}}"#;
    let (status, told) = exchange(port, "POST", "/workflows/1/claim", &token, claim);
    assert!(status == 503 && told.contains("\"recovering\""), "{status} {told}");
    assert!(health().contains("\"recovering\""), "still: {}", health());
    gate.open();
    server.wait_for_stdout("http://");
    assert!(health().contains("\"ok\""), "{}", health());
    assert_eq!(test.statuses(), ["a ready"], "what was lost waits for its next attempt");
    test.torc(["run", "1"]).success();
}

#[test]
fn recovery_that_fails_serves_no_request() {
    let test = Test::new().spec(ONE);
    killed_in_a_job(&test);
    let database = rusqlite::Connection::open(test.path(".torc/torc.db")).expect("the database");
    let broken = "CREATE TRIGGER broken BEFORE UPDATE ON compute_node BEGIN SELECT RAISE(ABORT, 'no way'); END";
    database.execute_batch(broken).expect("a trigger");
    let before: i64 =
        database.query_row("SELECT count(*) FROM attempt", [], |row| row.get(0)).expect("attempts");
    std::fs::remove_file(test.path(".torc/server.json")).expect("what the killed one left");
    for call in [&["server", "run"][..], &["run", "1"]] {
        let done = test.torc(call).done();
        assert!(
            !matches!(done.code, Some(0 | 1)) && done.stderr.contains("no way"),
            "{call:?}: {}",
            done.stderr
        );
        assert!(
            !test.exists(".torc/server.json"),
            "no client is told of a server that does not serve"
        );
    }
    let after: i64 =
        database.query_row("SELECT count(*) FROM attempt", [], |row| row.get(0)).expect("attempts");
    assert_eq!((before, after), (1, 1), "nothing was given out");
    database.execute_batch("DROP TRIGGER broken").expect("mended");
    drop(database);
    test.torc(["run", "1"]).success();
}

#[test]
fn a_crash_at_any_point_loses_nothing_and_repeats_nothing() {
    // Those of the courier and of steps have tests of their own.
    let points = torc_failpoint::ALL
        .iter()
        .filter(|name| !name.starts_with("courier") && !name.starts_with("steps"));
    let mut kills = 0;
    for point in points {
        for nth in [1, 4] {
            let test = Test::new().spec(SPEC).file("witness.sh", WITNESS);
            let place = format!("{point}:{nth}");
            let first = test.torc(["run", "workflow.yaml"]).env("TORC_FAILPOINT", &place).done();
            if first.code.is_none() {
                kills += 1;
                // Killed when all was done: the same call would begin a new workflow.
                if test.exists("done_after")
                    && test.statuses().iter().all(|job| job.ends_with("completed"))
                {
                    continue;
                }
                let second = test.run();
                assert_eq!(second.code, Some(0), "{place}: {}{}", second.stdout, second.stderr);
            } else {
                assert_eq!(
                    first.code,
                    Some(0),
                    "{place} was not reached: {}{}",
                    first.stdout,
                    first.stderr
                );
            }
            assert_eq!(
                test.statuses(),
                ["flaky completed", "beside completed", "after completed"],
                "{place}"
            );
            assert!(!test.exists("violations"), "{place}: {}", test.read("violations"));
            let witness = test.read("witness");
            let starts: Vec<&str> = witness.lines().collect();
            let distinct: BTreeSet<&str> = starts.iter().copied().collect();
            assert_eq!(starts.len(), distinct.len(), "{place}: an attempt ran twice:\n{witness}");
        }
    }
    println!("{kills} kills, 0 violations");
    assert!(kills >= 20, "only {kills} of the failpoints were reached");
}
