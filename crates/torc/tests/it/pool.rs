//! Runners that stay and serve every workflow that their token may see.

use crate::support::{Running, Test, text};
use serde_json::Value;

struct Server {
    _running: Running,
    url: String,
}

fn serve(test: &Test) -> Server {
    let mut running = test.torc(["server", "run"]).spawn();
    let url = running.wait_for_stdout("http://").trim().to_owned();
    Server { _running: running, url }
}

impl Server {
    /// A new token of a user in `NAME.token`.
    fn token(&self, test: &Test, name: &str, role: &str) {
        let call = ["-f", "json", "tokens", "create", "--user", name, "--role", role];
        let made = test.torc(call).success().json();
        test.write(&format!("{name}.token"), text(&made["token"]));
    }

    fn as_user(&self, test: &Test, name: &str, args: &[&str]) -> crate::support::Call {
        let file = format!("{name}.token");
        test.torc([&["--url", &self.url, "--token-file", &file], args].concat())
    }

    /// A workflow of a user that is ready to run; each job leaves a line in `ran`.
    fn workflow(&self, test: &Test, user: &str, name: &str, jobs: usize) {
        let spec = format!(
            "name: {name}\njobs:\n  - {{name: 'j_{{i}}', parameters: {{i: '1:{jobs}'}}, command: 'echo {user} >> ran'}}\n"
        );
        test.write(&format!("{name}.yaml"), &spec);
        let file = format!("{name}.yaml");
        self.as_user(test, user, &["create", &file, "--initialize"]).success();
    }
}

fn pool(test: &Test) -> Value {
    test.torc(["-f", "json", "runners", "pool", "--all"]).success().json()["pool_runners"][0]
        .clone()
}

#[test]
fn one_runner_serves_all_workflows_of_all_users_and_leaves_when_there_is_no_more() {
    let test = Test::new();
    let server = serve(&test);
    for (user, workflow) in [("alice", "w1"), ("bob", "w2"), ("bob", "w3")] {
        if !test.exists(&format!("{user}.token")) {
            server.token(&test, user, "operate");
        }
        server.workflow(&test, user, workflow, 3);
    }
    // With a token of the server's owner it sees all.
    test.torc(["runner", "--any", "-j", "2", "--max-idle", "2s"])
        .success()
        .tells("no work for too long");
    let ran = test.read("ran");
    let count = |user: &str| ran.lines().filter(|line| *line == user).count();
    assert_eq!((count("alice"), count("bob")), (3, 6), "{ran}");
    for workflow in ["w1", "w2", "w3"] {
        test.torc(["status", workflow]).success().says("3 of 3");
    }
    assert_eq!(pool(&test)["state"], "ended", "{}", pool(&test));
    test.torc(["server", "doctor"]).success();
}

#[test]
fn a_pool_runner_of_a_user_leaves_the_workflows_of_others_alone() {
    let test = Test::new();
    let server = serve(&test);
    for user in ["alice", "bob"] {
        server.token(&test, user, "operate");
        server.workflow(&test, user, &format!("of_{user}"), 2);
    }
    server.as_user(&test, "alice", &["runner", "--any", "--max-idle", "2s"]).success();
    assert_eq!(test.read("ran"), "alice\nalice\n");
    server.as_user(&test, "bob", &["status", "of_bob"]).done().says("0 of 2");
    // Whose it is, is seen by its owner and by admins.
    let seen = |user: &str| {
        let list = server.as_user(&test, user, &["-f", "json", "runners", "pool", "--all"]);
        list.success().json()["pool_runners"].as_array().expect("a list").len()
    };
    assert_eq!((seen("alice"), seen("bob")), (1, 0));
    server.as_user(&test, "bob", &["runners", "drain", "--pool", "1"]).exit(2).tells("not found");
    let made =
        ["-f", "json", "tokens", "create", "--user", "eve", "--role", "operate", "--workflow", "1"];
    let made = test.torc(made).success().json();
    test.write("eve.token", text(&made["token"]));
    server.as_user(&test, "eve", &["runner", "--any"]).exit(2).tells("workflow 1 only");
}

#[test]
fn a_drained_pool_runner_takes_nothing_and_why_says_so() {
    let test = Test::new();
    let server = serve(&test);
    server.token(&test, "alice", "operate");
    let mut running = test.torc(["runner", "--any", "-j", "1"]).spawn();
    running.wait_for_stderr("pool runner 1 serves");
    test.torc(["runners", "drain", "--pool", "1"]).success().says("drained");
    server.workflow(&test, "alice", "w", 1);
    test.torc(["why", "j_1"])
        .success()
        .says("pool runner 1")
        .says("drained")
        .says("resume --pool 1");
    let mut events = test.torc(["-f", "json", "events", "w", "--follow"]).spawn();
    test.torc(["runners", "resume", "--pool", "1"]).success();
    events.wait_for_stdout("workflow_completed");
    events.signal("INT");
    events.wait();
    test.torc(["runners", "remove", "--pool", "1"]).success().says("leaves");
    running.wait().expect(0);
    assert!(text(&pool(&test)["end_reason"]).contains("removed"), "{}", pool(&test));
}

#[test]
fn a_pool_runner_that_is_stopped_gives_back_what_it_runs() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'echo up > up; sleep 600'}]\n");
    let up = test.gate("up");
    let _server = serve(&test);
    let running = test.torc(["runner", "--any"]).spawn();
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    up.read();
    running.signal("TERM");
    running.wait().expect(0);
    assert_eq!(test.statuses(), ["a ready"]);
    test.torc(["runners", "share", "alice", "0"]).exit(2).tells("weight");
    test.torc(["runners", "share", "alice", "2.5"]).success();
    test.torc(["runners", "share"]).success().says("alice").says("2.5");
}
