//! Secrets stay where they belong: no token is in a log, a list of processes, an error or a core dump.

use crate::support::{Test, text};

/// Every kind of token that a run makes, besides the owner's.
fn tokens(test: &Test) -> Vec<String> {
    let made = ["-f", "json", "tokens", "create", "--user", "alice", "--role", "operate"];
    let made = test.torc(made).success().json();
    let person = text(&made["token"]).to_owned();
    test.write("alice.token", &person);
    vec![person, test.read(".torc/token").trim().to_owned()]
}

#[test]
fn no_token_is_in_a_log_a_list_of_processes_or_an_error() {
    // The job looks at everything that its user may see of processes, and tells its own token to the test.
    let look = r"
        cat $TORC_TOKEN_FILE > job.token
        cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' > processes
        torc status > /dev/null
        exit 3
    ";
    let test =
        Test::new().spec("name: w\njobs: [{name: a, command: sh look.sh}]\n").file("look.sh", look);
    let mut server = test.torc(["-vv", "server", "run", "--log-format", "json"]).spawn();
    let url = server.wait_for_stdout("http://").trim().to_owned();
    let mut secrets = tokens(&test);
    let mut said = String::new();
    let mut call = |args: &[&str]| {
        let done = test
            .torc([&["-vv", "--url", &url, "--token-file", "alice.token"], args].concat())
            .done();
        said += &done.stdout;
        said += &done.stderr;
    };
    call(&["create", "workflow.yaml", "--initialize"]);
    call(&["runner", "w"]);
    call(&["why", "a"]);
    call(&["logs", "a"]);
    call(&["-f", "json", "events", "w"]);
    // Refused, not there, not reachable, and a token that is not one.
    call(&["tokens", "list"]);
    call(&["status", "99"]);
    for args in [
        &["--url", "http://127.0.0.1:1", "--token-file", "alice.token", "status"][..],
        &["--url", &url.replace("http", "https"), "--token-file", "alice.token", "status"],
        &["--url", &url, "--token-file", "workflow.yaml", "status"],
        &["-f", "json", "tokens", "list"],
        &["-f", "json", "server", "audit"],
        &["config", "show"],
    ] {
        let done = test.torc([&["-vv"], args].concat()).done();
        said += &done.stdout;
        said += &done.stderr;
    }
    // The limit of the server itself, as the kernel knows it: a crash leaves nothing on disk.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a line");
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    server.signal("TERM");
    let log = server.wait();
    said += &log.stdout;
    said += &log.stderr;
    secrets.push(test.read("job.token").trim().to_owned());
    assert!(said.contains("/torc-service/v1/"), "the log of requests is looked at");
    let processes = test.read("processes");
    assert!(processes.contains("alice.token"), "the runner is among the processes: {processes}");
    for secret in &secrets {
        assert!(secret.len() > 20, "{secret}");
        assert!(!said.contains(secret), "a token was said");
        assert!(!processes.contains(secret), "a token is in the list of processes");
    }
    // On disk only in the files that are for it; of people's tokens only hashes.
    let holds = |secret: &str| {
        let found = test.command("grep", ["-rlaF", "--", secret, "."]).done().stdout;
        let mut files: Vec<String> = found.lines().map(str::to_owned).collect();
        files.sort();
        files
    };
    assert_eq!(holds(&secrets[0]), ["./alice.token"]);
    assert_eq!(holds(&secrets[1]), ["./.torc/token"]);
    assert_eq!(
        holds(&secrets[2]),
        ["./job.token"],
        "the file of the job's token went with its runner"
    );
}
