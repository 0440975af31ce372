//! A server that is kept tidy: old workflows go with their files, room is given back and shown, and
//! no id comes twice.

use crate::support::{Running, Test, text};
use serde_json::Value;

const SPEC: &str = "name: w
resource_monitor: {enabled: true, granularity: time_series, sample_interval_seconds: 1}
jobs:
  - {name: a, command: 'echo hello; sleep 1.5'}
";

fn files_in(test: &Test, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(test.path(dir)).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Lets a workflow have ended so many days ago.
fn age(test: &Test, workflow: i64, days: i64) {
    let db = rusqlite::Connection::open(test.path(".torc/torc.db")).expect("the database");
    let ms = days * 86_400_000;
    // Ended attempts never change, but for a test that has no month.
    db.execute_batch("DROP TRIGGER IF EXISTS attempt_guard").expect("without the guard");
    db.execute(
        "UPDATE attempt SET ended_ms = ended_ms - ?1 WHERE workflow_id = ?2",
        [ms, workflow],
    )
    .expect("an older attempt");
}

fn workflows(test: &Test) -> Vec<i64> {
    let list =
        test.torc(["-f", "json", "workflows", "list", "--include-archived"]).success().json();
    let list = list["workflows"].as_array().expect("a list").clone();
    let mut ids: Vec<i64> = list.iter().map(|w| w["id"].as_i64().expect("an id")).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn deleting_removes_logs_and_samples_when_asked() {
    let test = Test::new().spec(SPEC);
    test.run().expect(0);
    test.torc(["run", "--new", "workflow.yaml"]).success();
    let logs = files_in(&test, "output/job_stdio");
    assert!(logs.iter().any(|name| name.starts_with("job_wf1_")), "{logs:?}");
    assert_eq!(files_in(&test, "output/resource_utilization").len(), 2);

    test.torc(["workflows", "delete", "2", "--yes"]).success();
    assert_eq!(files_in(&test, "output/job_stdio"), logs, "they were not asked for");
    let done = test.torc(["-f", "json", "workflows", "delete", "1", "--yes", "--with-files"]);
    let done = done.success().json();
    assert_eq!(done["deleted"], serde_json::json!([1]));
    assert!(done["removed"]["files"].as_i64() >= Some(3), "{done}");
    let left = files_in(&test, "output/job_stdio");
    assert!(!left.is_empty() && left.iter().all(|name| name.starts_with("job_wf2_")), "{left:?}");
    assert_eq!(files_in(&test, "output/resource_utilization").len(), 1, "that of the other stays");
}

#[test]
fn files_of_running_jobs_are_not_removed() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'read line < gate'}]\n");
    let gate = test.gate("gate");
    let mut running = test.torc(["-v", "run", "workflow.yaml"]).spawn();
    running.wait_for_stderr("started");
    test.torc(["workflows", "delete", "w", "--yes", "--with-files", "--force"])
        .exit(2)
        .tells("running");
    assert_eq!(files_in(&test, "output/job_stdio").len(), 2);
    gate.open();
    running.wait().expect(0);
}

#[test]
fn old_workflows_are_pruned_and_young_and_running_ones_stay() {
    let test = Test::new()
        .spec("name: good\njobs: [{name: a, command: 'true'}]\n")
        .file("bad.yaml", "name: bad\njobs: [{name: a, command: 'false'}]\n");
    for spec in ["workflow.yaml", "bad.yaml", "workflow.yaml"] {
        test.torc(["run", "--new", spec]).done();
    }
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    for (workflow, days) in [(1, 40), (2, 40), (3, 20)] {
        age(&test, workflow, days);
    }
    let prune = |more: &[&str]| {
        let call = ["-f", "json", "workflows", "prune", "--older-than", "30d"];
        test.torc([&call[..], more].concat())
    };
    let ids = |view: &Value| -> Vec<i64> {
        let list = view["workflows"].as_array().expect("a list");
        list.iter().map(|w| w["id"].as_i64().expect("an id")).collect()
    };
    prune(&[]).exit(2).tells("--yes");
    let would = prune(&["--dry-run", "--with-files"]).success().json();
    assert_eq!((ids(&would), &would["dry_run"]), (vec![1, 2], &Value::Bool(true)));
    assert_eq!(would["workflows"][0]["removed"]["files"], 2);
    assert_eq!(workflows(&test), [1, 2, 3, 4], "a dry run changes nothing");
    assert_eq!(ids(&prune(&["--keep-failed", "--yes"]).success().json()), [1]);
    assert_eq!(workflows(&test), [2, 3, 4]);
    let done = prune(&["--with-files", "--yes"]).success().json();
    assert_eq!(ids(&done), [2]);
    let left = files_in(&test, "output/job_stdio");
    assert!(left.iter().all(|name| !name.starts_with("job_wf2_")), "{left:?}");
    assert!(left.iter().any(|name| name.starts_with("job_wf1_")), "not asked for: {left:?}");
    assert!(ids(&prune(&["--yes"]).success().json()).is_empty(), "a second time is nothing");
    test.torc(["workflows", "prune", "--older-than", "tomorrow"]).exit(2).tells("30d");
}

#[test]
fn archived_workflows_leave_the_list_and_come_back() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["create", "workflow.yaml"]).success();
    let listed = || {
        let list = test.torc(["-f", "json", "workflows", "list"]).success().json();
        list["total_count"].as_i64()
    };
    test.torc(["workflows", "archive", "w"]).success().says("archived");
    assert_eq!((listed(), workflows(&test)), (Some(0), vec![1]));
    test.torc(["workflows", "archive", "1", "--undo"]).success();
    assert_eq!(listed(), Some(1));
}

#[test]
fn usage_shows_who_takes_room_and_vacuum_gives_it_back() {
    let test = Test::new()
        .spec("name: large\njobs: [{name: 'a{i}', command: 'true', parameters: {i: '1:2000'}}]\n")
        .file("small.yaml", "name: small\njobs: [{name: a, command: 'yes | head -c 100000'}]\n");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    test.torc(["run", "small.yaml"]).success();
    let usage = test.torc(["-f", "json", "server", "usage"]).success().json();
    let list = usage["workflows"].as_array().expect("a list");
    let names: Vec<&str> = list.iter().map(|w| text(&w["name"])).collect();
    assert_eq!(names, ["large", "small"], "the largest first");
    assert_eq!((&list[0]["jobs"], &list[0]["files"]), (&Value::from(2000), &Value::from(0)));
    assert!(list[1]["file_bytes"].as_i64() >= Some(100_000), "{usage}");
    let bytes = |key: &str| usage[key].as_i64().expect(key);
    let shares: i64 = list.iter().map(|w| w["database_bytes"].as_i64().expect("bytes")).sum();
    assert!(shares > bytes("database_bytes") / 2 && shares <= bytes("database_bytes"), "{usage}");
    test.torc(["server", "usage"]).success().says("large");

    test.torc(["workflows", "delete", "large", "--yes"]).success();
    let vacuum = test.torc(["-f", "json", "server", "vacuum"]).success().json();
    let (before, after) = (vacuum["bytes_before"].as_i64(), vacuum["bytes_after"].as_i64());
    assert!(before > after.map(|after| after + 300_000), "{vacuum}");
    let size = std::fs::metadata(test.path(".torc/torc.db")).expect("the database").len();
    assert!(i64::try_from(size).ok() <= after, "{size}: {vacuum}");
    test.torc(["server", "doctor"]).success();
    assert_eq!(workflows(&test), [2]);
}

fn serve(test: &Test, args: &[&str]) -> Running {
    let mut running = test.torc([&["server", "run"], args].concat()).spawn();
    running.wait_for_stdout("http://");
    running
}

fn end(server: Running) {
    server.signal("TERM");
    server.wait().expect(0);
}

/// Runs a new workflow; its id, the id of its job and that of its attempt.
fn new_ids(test: &Test) -> [i64; 3] {
    let created = test.torc(["-f", "json", "create", "workflow.yaml", "--initialize"]);
    let id = created.success().json()["id"].as_i64().expect("an id");
    test.torc(["runner", &id.to_string()]).success();
    let attempt = test.last_attempt_of(&id.to_string(), "a");
    [id, attempt["job_id"].as_i64().expect("a job"), attempt["id"].as_i64().expect("an attempt")]
}

#[test]
fn ids_go_on_without_gaps_over_restarts_and_never_come_twice_after_a_restore() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    let server = serve(&test, &[]);
    assert_eq!(new_ids(&test), [1, 1, 1]);
    end(server);
    let server = serve(&test, &[]);
    assert_eq!(new_ids(&test), [2, 2, 2], "a restart is no restore");
    test.torc(["server", "backup", "copy.db"]).success();
    let mut last = new_ids(&test);
    assert_eq!(last, [3, 3, 3]);
    end(server);
    std::fs::copy(test.path(".torc/torc.db"), test.path("cold.db")).expect("a copy by hand");

    let restore = |copy: &str| {
        for name in ["torc.db", "torc.db-wal", "torc.db-shm"] {
            let _ = std::fs::remove_file(test.path(".torc").join(name));
        }
        std::fs::copy(test.path(copy), test.path(".torc/torc.db")).expect("a restored copy");
    };
    let mut check = |what: &str, args: &[&str]| {
        let server = serve(&test, args);
        let new = new_ids(&test);
        assert!(new.iter().zip(last).all(|(new, last)| *new > last), "{what}: {new:?} {last:?}");
        let next = new_ids(&test);
        assert_eq!(next.map(|id| id - 1), new, "{what}: and then one by one");
        last = next;
        end(server);
    };
    restore("copy.db");
    check("the backup in its place", &[]);
    restore("copy.db");
    check("the same again", &[]);
    check("the backup where it is", &["--database", "copy.db"]);
    restore("cold.db");
    check("a copy by hand", &[]);
    test.torc(["server", "doctor"]).success();
}

/// Attempts that are gone have used their ids all the same.
#[test]
fn ids_of_deleted_attempts_do_not_come_again_after_a_restart() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    let server = serve(&test, &[]);
    assert_eq!(new_ids(&test), [1, 1, 1]);
    test.torc(["workflows", "delete", "1", "--yes"]).success();
    end(server);
    let _server = serve(&test, &[]);
    assert_eq!(new_ids(&test), [2, 2, 2]);
}

/// On a file system of its own that is small from the beginning.
#[test]
fn a_disk_that_gets_full_is_told_before_it_hurts() {
    let test = Test::new();
    std::fs::create_dir(test.path("small")).expect("a directory");
    let mount = "mount -t tmpfs -o size=64m,mode=0700 tmpfs small";
    let probe = test.command("unshare", ["-m", "sh", "-c", mount]).done();
    if probe.code != Some(0) {
        eprintln!("SKIPPED: no file system can be mounted here: {}", probe.stderr);
        return;
    }
    let script = format!("{mount} && exec torc --dir small/.torc server run");
    let mut server = test.command("unshare", ["-m", "sh", "-c", &script]).spawn();
    let line = server.wait_for_stderr("nearly full");
    assert!(line.contains("WARN") && line.contains("torc workflows prune"), "{line}");
    server.signal("TERM");
    server.wait().expect(0);
}
