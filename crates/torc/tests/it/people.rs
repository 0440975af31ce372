//! People with tokens of their own: what they may do, whose workflows they make, and who changed what.

use crate::support::{Running, Test, text};
use serde_json::Value;

struct Server {
    running: Running,
    url: String,
}

fn serve(test: &Test) -> Server {
    let mut running = test.torc(["server", "run", "--log-format", "json"]).spawn();
    let url = running.wait_for_stdout("http://").trim().to_owned();
    Server { running, url }
}

/// A new token in the file `NAME.token`; its id.
fn token(test: &Test, name: &str, role: &str, more: &[&str]) -> i64 {
    let call = ["-f", "json", "tokens", "create", "--user", name, "--role", role];
    let made = test.torc([&call[..], more].concat()).success().json();
    test.write(&format!("{name}.token"), text(&made["token"]));
    made["id"].as_i64().expect("an id")
}

impl Server {
    /// A call with the token of a user.
    fn as_user(&self, test: &Test, name: &str, args: &[&str]) -> crate::support::Call {
        let file = format!("{name}.token");
        test.torc([&["--url", &self.url, "--token-file", &file], args].concat())
    }
}

const SPEC: &str = "name: w\nuser: root\njobs: [{name: a, command: 'true'}]\n";

#[test]
fn each_role_may_do_its_part_and_nothing_else() {
    let test = Test::new().spec(SPEC);
    let server = serve(&test);
    token(&test, "reader", "read", &[]);
    token(&test, "worker", "operate", &["--name", "laptop"]);
    token(&test, "boss", "admin", &[]);

    server.as_user(&test, "reader", &["create", "workflow.yaml"]).exit(2).tells("`operate`");
    server.as_user(&test, "worker", &["create", "workflow.yaml", "--initialize"]).success();
    server.as_user(&test, "worker", &["runner", "w"]).success();
    server.as_user(&test, "reader", &["status", "w"]).exit(2).tells("not found");
    test.torc(["access-groups", "create", "team"]).success();
    for name in ["reader", "worker"] {
        test.torc(["access-groups", "add-user", "team", name]).success();
    }
    server.as_user(&test, "worker", &["access-groups", "add-workflow", "w", "team"]).success();
    server.as_user(&test, "reader", &["status", "w"]).success().says("1 of 1");
    server.as_user(&test, "reader", &["logs", "a", "-w", "w"]).done();
    server
        .as_user(&test, "reader", &["workflows", "delete", "w", "--yes"])
        .exit(2)
        .tells("`operate`");
    server.as_user(&test, "worker", &["tokens", "list"]).exit(2).tells("`admin`");
    server.as_user(&test, "worker", &["server", "vacuum"]).exit(2).tells("`admin`");
    server.as_user(&test, "boss", &["tokens", "list"]).success().says("laptop");

    // The owner is whose token it was, whatever the spec or the caller says.
    let get = ["-f", "json", "workflows", "get", "w"];
    let workflow = server.as_user(&test, "reader", &get).success().json();
    assert_eq!(text(&workflow["user"]), "worker");
}

#[test]
fn a_workflow_is_seen_by_its_owner_its_groups_and_admins_only() {
    let shared = "name: shared\naccess_groups: [climate]\njobs: [{name: a, command: 'true'}]\n";
    let test = Test::new().spec(SPEC);
    test.write("shared.yaml", shared);
    let server = serve(&test);
    test.torc(["access-groups", "create", "climate", "-d", "models"]).success();
    for (name, role) in [("alice", "admin"), ("bob", "member")] {
        let add = ["access-groups", "add-user", "climate", name, "--role", role];
        test.torc(add).success().says(role);
    }
    for name in ["alice", "bob", "dave"] {
        token(&test, name, "operate", &[]);
    }
    token(&test, "boss", "admin", &[]);
    server.as_user(&test, "alice", &["create", "shared.yaml", "--initialize"]).success();
    server.as_user(&test, "alice", &["create", "workflow.yaml"]).success();
    let names = |name: &str| {
        let list = ["-f", "json", "workflows", "list"];
        let list = server.as_user(&test, name, &list).success().json();
        let all = list["workflows"].as_array().expect("a list").clone();
        all.iter().map(|w| text(&w["name"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("alice").len(), 2);
    assert_eq!(names("bob"), ["shared"]);
    assert_eq!(names("dave"), [""; 0]);
    assert_eq!(names("boss").len(), 2);

    // A member runs and changes it, but neither deletes it nor gives it to others.
    server.as_user(&test, "bob", &["runner", "shared"]).success();
    server.as_user(&test, "bob", &["status", "shared"]).success().says("1 of 1");
    let delete = ["workflows", "delete", "1", "--yes"];
    server.as_user(&test, "bob", &delete).exit(2).tells("belongs to alice");
    server.as_user(&test, "dave", &delete).exit(2).tells("1");
    server.as_user(&test, "dave", &["runner", "1"]).exit(2);
    server.as_user(&test, "dave", &["create", "shared.yaml"]).exit(2).tells("`climate`");
    let add = ["access-groups", "add-user", "climate", "dave"];
    server.as_user(&test, "bob", &add).exit(2).tells("admins of the group");
    server.as_user(&test, "alice", &add).success();
    assert_eq!(names("dave"), ["shared"]);
    let remove = ["access-groups", "remove-user", "climate", "dave"];
    server.as_user(&test, "dave", &remove).success().says("no longer");
    assert_eq!(names("dave"), [""; 0]);
    server
        .as_user(&test, "bob", &["access-groups", "list-members", "climate"])
        .success()
        .says("alice");
    server.as_user(&test, "dave", &["access-groups", "list-members", "1"]).exit(2);
    test.torc(["access-groups", "get", "climaet"]).exit(2).tells("`climate`");

    // Tokens for one workflow or one group reach no further.
    token(&test, "ci", "read", &["--workflow", "shared"]);
    assert_eq!(names("ci"), ["shared"]);
    token(&test, "dash", "read", &["--group", "climate"]);
    assert_eq!(names("dash"), ["shared"]);
    test.torc(["tokens", "list"]).success().says("workflow 1").says("group 1");
    let all = ["tokens", "create", "--user", "x", "--role", "admin", "--workflow", "shared"];
    test.torc(all).exit(2).tells("admin");
    test.torc(["access-groups", "delete", "climate"]).success();
    assert_eq!(names("bob"), [""; 0]);
    server.as_user(&test, "dash", &["workflows", "list"]).exit(2).tells("token");
}

#[test]
fn groups_in_a_spec_do_no_harm_where_there_is_one_user() {
    let test =
        Test::new().spec("name: w\naccess_groups: [climate]\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["run", "workflow.yaml"]).success().tells("one user");
}

#[test]
fn tokens_end_by_time_by_rotation_and_by_revocation_without_a_restart() {
    let test = Test::new().spec(SPEC);
    let server = serve(&test);
    let id = token(&test, "alice", "read", &["--expires", "30d"]).to_string();
    let list = |name: &str| server.as_user(&test, name, &["workflows", "list"]);
    list("alice").success();
    let old = test.read("alice.token");
    let rotated = test.torc(["-f", "json", "tokens", "rotate", &id]).success().json();
    list("alice").exit(2).tells("token");
    test.write("alice.token", text(&rotated["token"]));
    list("alice").success();
    let shown = test.torc(["-f", "json", "tokens", "list"]).success().json();
    let shown = &shown["tokens"][0];
    assert!(shown["last_used_ms"].as_i64() >= shown["created_ms"].as_i64(), "{shown}");
    assert!(shown.get("token").is_none() && shown.get("hash").is_none(), "{shown}");

    token(&test, "brief", "read", &["--expires", "1s"]);
    // Only time ends it.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    list("brief").exit(2).tells("expired");
    test.torc(["tokens", "revoke", &id]).success().says("revoked");
    list("alice").exit(2).tells("token");
    test.torc(["tokens", "revoke", &id]).exit(2).tells("there is no token");
    test.torc(["tokens", "create", "--user", "x", "--role", "king"]).exit(2).tells("operate");

    // Only hashes are on disk, also in the log of the database, and the server's log has none.
    let secrets = [old, text(&rotated["token"]).to_owned(), test.read("brief.token")];
    for name in ["torc.db", "torc.db-wal"] {
        let bytes = std::fs::read(test.path(".torc").join(name)).expect(name);
        let all = String::from_utf8_lossy(&bytes);
        assert!(secrets.iter().all(|secret| !all.contains(secret.trim())), "{name}");
    }
    server.running.signal("TERM");
    let log = server.running.wait().expect(0).stderr;
    assert!(secrets.iter().all(|secret| !log.contains(secret.trim())), "{log}");
}

#[test]
fn tokens_outlive_a_restart_and_who_changed_what_is_kept() {
    let test = Test::new().spec(SPEC);
    let server = serve(&test);
    let id = token(&test, "alice", "operate", &[]);
    server.as_user(&test, "alice", &["create", "workflow.yaml", "--initialize"]).success();
    server.as_user(&test, "alice", &["runner", "w"]).success();
    server.running.signal("TERM");
    server.running.wait().expect(0);
    let server = serve(&test);
    server.as_user(&test, "alice", &["status", "w"]).success();
    server.as_user(&test, "alice", &["workflows", "delete", "w", "--yes"]).success();
    server.as_user(&test, "alice", &["workflows", "delete", "w", "--yes"]).exit(2);
    server.as_user(&test, "alice", &["tokens", "revoke", "1"]).exit(2);

    let audit = test.torc(["-f", "json", "server", "audit"]).success().json();
    let entries = audit["entries"].as_array().expect("a list");
    let said: Vec<String> = entries
        .iter()
        .map(|e| format!("{} {} {}", text(&e["user"]), text(&e["method"]), text(&e["path"])))
        .collect();
    assert_eq!(
        said,
        ["alice DELETE /workflows/1", "alice POST /workflows", "owner POST /tokens"],
        "changes only, the newest first; neither reads, nor refusals, nor what runners report"
    );
    assert_eq!(
        (&entries[0]["token_id"], &entries[2]["token_id"]),
        (&Value::from(id), &Value::Null)
    );
    assert!(!text(&entries[0]["request_id"]).is_empty());
    let by = test.torc(["-f", "json", "server", "audit", "--user", "owner"]).success().json();
    assert_eq!(by["entries"].as_array().map(Vec::len), Some(1));
    test.torc(["server", "audit"]).success().says("/workflows/1");
}
