//! The doctor: databases that were damaged on purpose, what is said about them, and what a repair
//! makes of them.

use crate::support::{Done, Test};
use rusqlite::Connection;

const SPEC: &str = r#"
name: w
failure_handlers:
  - {name: h, rules: [{exit_codes: [7], max_retries: 2}]}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 1g, runtime: 10m}
jobs:
  - {name: a, command: "exit 7", failure_handler: h, resource_requirements: small}
  - {name: b, command: "true"}
  - {name: c, command: "true", depends_on: [b]}
"#;

/// A finished workflow whose database was changed behind the server's back.
fn damaged(sql: &str) -> Test {
    let test = Test::new().spec(SPEC);
    test.torc(["run", "workflow.yaml"]).exit(1);
    examine(&test).expect(0);
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    db.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
        .expect("no protection");
    // But for those that are to be missed, the triggers are gone only for the time of the damage.
    let guards: Vec<(String, String)> = db
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .and_then(|mut all| all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .expect("the triggers");
    let guards: Vec<_> = guards.into_iter().filter(|(name, _)| !sql.contains(name)).collect();
    for (name, _) in &guards {
        db.execute_batch(&format!("DROP TRIGGER {name}")).expect("no protection");
    }
    db.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    for (_, create) in &guards {
        db.execute_batch(create).expect("the trigger again");
    }
    test
}

fn examine(test: &Test) -> Done {
    test.torc(["server", "doctor"]).done()
}

fn job(name: &str) -> String {
    format!("(SELECT id FROM job WHERE name = '{name}')")
}

#[test]
fn what_is_wrong_is_said_and_repaired() {
    // The damage, what is said about it, and the statuses of the three jobs after the repair.
    let b = job("b");
    let cases = [
        (
            format!("UPDATE job SET status = 2 WHERE id = {b}"),
            "no lost job: job 2 (b) is ready, but nothing is queued for it",
            ["a failed", "b ready", "c completed"],
        ),
        (
            format!("UPDATE job SET status = 4 WHERE id = {b}; DELETE FROM attempt WHERE job_id = {b}"),
            "no lost job: job 2 (b) is pending or running, but has no such attempt",
            ["a failed", "b ready", "c completed"],
        ),
        (
            format!("UPDATE job SET status = 4 WHERE id = {b}"),
            "acknowledged is final: job 2 (b) has status 4, but attempt 1 of this run completed",
            ["a failed", "b completed", "c completed"],
        ),
        (
            format!(
                "UPDATE job SET status = 4 WHERE id = {b};
                 UPDATE attempt SET state = 'running', ended_ms = NULL, outcome = NULL WHERE job_id = {b}"
            ),
            "no ghost: attempt",
            ["a failed", "b ready", "c completed"],
        ),
        (
            format!("UPDATE attempt SET outcome = NULL WHERE job_id = {} AND attempt_id = 2", job("a")),
            "no lost retry: job 1 (a) failed, and it was not decided what follows",
            ["a failed", "b completed", "c completed"],
        ),
        (
            format!(
                "UPDATE attempt SET outcome = NULL WHERE job_id = {a} AND attempt_id = 1;
                 DELETE FROM attempt WHERE job_id = {a} AND attempt_id = 2; UPDATE job SET attempt_id = 1 WHERE id = {a}",
                a = job("a")
            ),
            "no lost retry: job 1 (a) failed, and it was not decided what follows",
            ["a ready", "b completed", "c completed"],
        ),
        (
            "UPDATE workflow SET is_complete = 0, job_count = 7".to_owned(),
            "a workflow knows its jobs: workflow 1 says 7 jobs, there are 3",
            ["a failed", "b completed", "c completed"],
        ),
        (
            format!("UPDATE attempt SET ended_ms = NULL WHERE job_id = {b}"),
            "an ended attempt has an end: attempt",
            ["a failed", "b completed", "c completed"],
        ),
        (
            "DROP INDEX attempt_one_retry; DROP TRIGGER attempt_guard".to_owned(),
            "the schema is complete: index `attempt_one_retry` is missing",
            ["a failed", "b completed", "c completed"],
        ),
        (
            "DELETE FROM resource_requirements".to_owned(),
            "references hold: row 1 of `job` refers by `resource_requirements_id` to a row of `resource_requirements`",
            ["a failed", "b completed", "c completed"],
        ),
        (
            "INSERT INTO job_depends_on SELECT 1, id, 99 FROM job WHERE name = 'c'".to_owned(),
            "no lost job: job 3 depends on job 99, and one of them is not there",
            ["a failed", "b completed", "c completed"],
        ),
        (
            "DROP INDEX reservation_one_active;
             INSERT INTO reservation (scope, reserved_by, token_hash, reserved_ms, expires_ms, status)
             VALUES ('all', 'x', 'h', 1, 2, 'ACTIVE'), ('all', 'y', 'h', 1, 2, 'ACTIVE')"
                .to_owned(),
            "one reservation per scope: scope `all` has 2 active reservations",
            ["a failed", "b completed", "c completed"],
        ),
        (
            format!(
                "DROP INDEX attempt_one_live; UPDATE job SET status = 2 WHERE id = {b};
                 INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms)
                 SELECT 90, workflow_id, id, 1, 2, 'queued', 'manual', 1 FROM job WHERE id = {b};
                 INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms)
                 SELECT 91, workflow_id, id, 1, 3, 'queued', 'manual', 1 FROM job WHERE id = {b}"
            ),
            "no duplicate execution: job 2 has 2 live attempts",
            ["a failed", "b ready", "c completed"],
        ),
    ];
    for (damage, said, statuses) in cases {
        let test = damaged(&damage);
        examine(&test).expect(1).says(said).tells("--repair");
        let repaired = test.torc(["server", "doctor", "--repair"]).done();
        // Attempts that are gone have no events, and the other way round: that is told and stays.
        let left: Vec<&str> =
            repaired.stdout.lines().filter(|line| !line.starts_with("repaired: ")).collect();
        let is_told = |line: &&str| line.starts_with("an ended attempt has its event");
        assert!(left.iter().all(is_told), "{damage}: {}{}", repaired.stdout, repaired.stderr);
        assert!(repaired.stderr.contains("before-repair"), "{damage}: {}", repaired.stderr);
        assert_eq!(test.statuses(), statuses, "{damage}");
        let again = test.torc(["server", "doctor", "--repair"]).done();
        let more: Vec<&str> =
            again.stdout.lines().filter(|line| line.starts_with("repaired: ")).collect();
        assert_eq!(more, [] as [&str; 0], "{damage}: a second repair finds nothing");
    }
}

#[test]
fn a_map_that_found_its_items_is_sound() {
    let test = Test::new().spec(
        "name: w\njobs:\n  - name: each\n    map: {items: {command: 'echo x; echo y'}}\n    steps: [{shell: 'echo \"${item}\"'}]\n",
    );
    test.torc(["run", "workflow.yaml"]).success();
    examine(&test).expect(0);
}

#[test]
fn what_can_not_be_repaired_is_said_and_left_alone() {
    let test = damaged("UPDATE attempt SET attempt_id = 5 WHERE attempt_id = 2");
    let said = examine(&test)
        .expect(1)
        .says("attempts are numbered without a gap: job 1 has 2 attempts in run 1");
    assert!(!said.stderr.contains("--repair"), "{}", said.stderr);

    // Half of the file is gone.
    let test = Test::new().spec(SPEC);
    test.torc(["run", "workflow.yaml"]).exit(1);
    let path = test.path(".torc/torc.db");
    let db = Connection::open(&path).expect("the database");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("no log");
    drop(db);
    let mut bytes = std::fs::read(&path).expect("the database");
    assert!(bytes.len() > 40_000, "{}", bytes.len());
    bytes[16_384..32_768].fill(0xa5);
    std::fs::write(&path, &bytes).expect("damaged");
    examine(&test).expect(1).says("the file is intact: ");
    test.torc(["server", "doctor", "--repair"]).exit(3).tells("restore a backup");
    assert_eq!(std::fs::read(&path).expect("the database"), bytes, "it was not made worse");
}

#[test]
fn a_damaged_index_is_made_again() {
    let test = Test::new().spec(SPEC);
    test.torc(["run", "workflow.yaml"]).exit(1);
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    // An index that does not know its rows: emptied by swapping its definition for a while.
    db.execute_batch(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'ON job (workflow_id)', 'ON job (workflow_id) WHERE status = 99')
         WHERE name = 'job_by_workflow';
         PRAGMA writable_schema = RESET;
         REINDEX job_by_workflow;
         PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, ' WHERE status = 99', '') WHERE name = 'job_by_workflow';
         PRAGMA writable_schema = RESET;",
    )
    .expect("damaged");
    drop(db);
    examine(&test).expect(1).says("the file is intact: ").says("job_by_workflow");
    test.torc(["server", "doctor", "--repair"]).success().says("all indexes were made again");
    examine(&test).expect(0).tells("nothing is wrong");
}

#[test]
fn looking_is_allowed_beside_a_server_and_repairing_is_not() {
    let test = Test::new().spec(SPEC);
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    examine(&test).expect(0);
    test.torc(["server", "backup", "copy.db"]).success();
    test.torc(["server", "doctor", "--database", "copy.db"]).success().tells("nothing is wrong");
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    db.execute_batch("UPDATE workflow SET job_count = 4").expect("damaged");
    examine(&test).expect(1).says("workflow 1 says 4 jobs, there are 3");
    test.torc(["server", "doctor", "--repair"]).exit(3).tells("in use by");
}

/// Two attempts of job `a`, the second of which has these times.
fn with_second_attempt(claimed: i64, sql: &str) -> String {
    format!(
        "UPDATE attempt SET claimed_ms = 1000, started_ms = 1000, ended_ms = 5000 WHERE job_id = 1 AND attempt_id = 1;
         UPDATE attempt SET created_ms = 900, claimed_ms = {claimed}, started_ms = {claimed}, ended_ms = 6000
         WHERE job_id = 1 AND attempt_id = 2; {sql}"
    )
}

#[test]
fn attempts_that_overlap_by_their_times_are_named() {
    examine(&damaged(&with_second_attempt(5000, ""))).expect(0);
    examine(&damaged(&with_second_attempt(4000, "")))
        .expect(1)
        .says("no duplicate execution: by the recorded times, attempt 2 of job 1 (run 1) began 1000 ms before the end of attempt 1");
    // Taken before it was queued: the clock was set back, which proves nothing.
    let set_back = with_second_attempt(
        4000,
        "UPDATE attempt SET created_ms = 4500 WHERE job_id = 1 AND attempt_id = 2",
    );
    examine(&damaged(&set_back)).expect(0);
}

#[test]
fn an_attempt_that_was_given_up_and_ran_on_is_named() {
    let told = |ended: i64| {
        let event = format!(
            "INSERT INTO event (workflow_id, id, timestamp_ms, kind, data) SELECT 1, 9999, (SELECT max(timestamp_ms) FROM event), 'late_result',
             json_object('attempt', id, 'ended_ms', {ended}) FROM attempt WHERE job_id = 1 AND attempt_id = 1"
        );
        with_second_attempt(5000, &event)
    };
    examine(&damaged(&told(4900))).expect(0);
    examine(&damaged(&told(5700)))
        .expect(1)
        .says("no duplicate execution: attempt 1 of job 1 was given up, but ran for 700 ms beside attempt 2");
}

#[test]
fn a_limit_that_was_exceeded_is_named() {
    let spec = "name: w\njobs:\n  - {name: a, command: 'true', uses: [licence]}\n  - {name: b, command: 'true', uses: [licence]}\n";
    let test = Test::new().spec(spec);
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    test.torc(["limits", "set", "licence", "1"]).success();
    test.torc(["run", "workflow.yaml"]).success();
    examine(&test).expect(0);
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    let said =
        "limits hold: limit `licence` is 1; by the recorded times, 2 attempts had it at once";
    // As if both had run for a second at the same time.
    db.execute_batch(
        "DROP TRIGGER attempt_guard;
         UPDATE attempt SET claimed_ms = (SELECT min(claimed_ms) FROM attempt), ended_ms = (SELECT max(ended_ms) FROM attempt) + 1000",
    )
    .expect("damaged");
    examine(&test).expect(1).says(said);
    // A limit that was lowered since then was not exceeded.
    test.torc(["limits", "set", "licence", "2"]).success();
    test.torc(["limits", "set", "licence", "1"]).success();
    let left = examine(&test).expect(1);
    assert!(!left.stdout.contains("limits hold"), "{}", left.stdout);
}

/// A runner that the database says has ended, and the tag of its processes.
fn ended_runner(test: &Test) -> String {
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    db.query_row(
        "SELECT substr(value, 1, 12) || '-' || (SELECT min(id) FROM compute_node) FROM meta WHERE key = 'database_id'",
        [],
        |row| row.get(0),
    )
    .expect("an id")
}

#[test]
fn a_process_of_an_ended_attempt_is_named_and_ended() {
    // It has no environment: only its mark tells whose it is.
    let spec = "name: w\njobs:\n  - {name: a, command: 'env -i /bin/sh -c \"echo \\$\\$ > pid; exec sleep 600\"'}\n";
    let test = Test::new().spec(spec);
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let runner = test.torc(["runner", "w"]).spawn();
    test.shell("until [ -s pid ]; do sleep 0.05; done").success();
    let pid: u32 = test.read("pid").trim().parse().expect("a number");
    server.signal("KILL");
    server.wait();
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    // As if the attempt had been given up while its process lives.
    db.execute_batch(
        "UPDATE compute_node SET ended_ms = 1, end_reason = 'x';
         UPDATE attempt SET state = 'failed', ended_ms = claimed_ms + 1, ended_by = 'recovery', outcome = 'Error', cause = 'lost';
         UPDATE job SET status = 6",
    )
    .expect("changed");
    let found = examine(&test).expect(1);
    let line =
        found.stdout.lines().find(|line| line.starts_with("nothing of an ended attempt runs"));
    let line = line.unwrap_or_else(|| panic!("{}", found.stdout));
    assert!(line.contains("of runner 1, which has ended, these processes live: "), "{line}");
    assert!(line.contains(&pid.to_string()), "{line}");
    let lives =
        || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    assert!(lives(), "looking ends nothing");
    let repaired = test.torc(["server", "doctor", "--repair"]).done();
    assert!(repaired.stdout.contains("repaired: put right: of runner 1"), "{}", repaired.stdout);
    assert!(!lives());
    assert!(!examine(&test).stdout.contains("nothing of an ended attempt runs"));
    runner.signal("KILL");
    runner.wait();
}

#[test]
fn a_process_of_one_ended_attempt_is_named_while_its_runner_has_other_work() {
    let spec = "name: w
jobs:
  - {name: a, command: 'env -i /bin/sh -c \"echo \\$\\$ > a.pid; exec sleep 600\"'}
  - name: b
    steps:
      - {shell: 'true'}
      - {shell: 'echo $$ > b.pid; exec sleep 601'}
";
    let test = Test::new().spec(spec);
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let runner = test.torc(["runner", "w", "-j", "2"]).spawn();
    test.shell("until [ -s a.pid ] && [ -s b.pid ]; do sleep 0.05; done").success();
    examine(&test).expect(0);
    let pid = |file: &str| test.read(file).trim().to_owned();
    let (of_a, of_b) = (pid("a.pid"), pid("b.pid"));
    let lives = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    };
    server.signal("KILL");
    server.wait();
    // As if the attempt of `a` had been given up while its process lives beside that of `b`.
    let db = Connection::open(test.path(".torc/torc.db")).expect("the database");
    db.execute_batch(
        "UPDATE attempt SET state = 'failed', ended_ms = claimed_ms + 1, ended_by = 'recovery',
             outcome = 'Error', cause = 'lost' WHERE job_id = (SELECT id FROM job WHERE name = 'a');
         UPDATE job SET status = 6 WHERE name = 'a'",
    )
    .expect("changed");
    let found = examine(&test).expect(1);
    let is_about_processes = |line: &&str| line.starts_with("nothing of an ended attempt runs");
    let line = found.stdout.lines().find(is_about_processes);
    let line = line.unwrap_or_else(|| panic!("{}", found.stdout));
    assert!(
        line.contains(
            "of attempt 1 of job 1 (a), which has ended on runner 1, these processes live: "
        ),
        "{line}"
    );
    let named: Vec<&str> =
        line.rsplit(": ").next().expect("a list").split([',', ' ']).map(str::trim).collect();
    assert!(named.contains(&of_a.as_str()) && !named.contains(&of_b.as_str()), "{line}");
    assert!(lives(&of_a) && lives(&of_b), "looking ends nothing");
    let repaired = test.torc(["server", "doctor", "--repair"]).done();
    assert!(repaired.stdout.contains("repaired: put right: of attempt"), "{}", repaired.stdout);
    assert!(!lives(&of_a), "the leftover was ended");
    assert!(lives(&of_b), "a living attempt's process is left alone");
    runner.signal("KILL");
    runner.wait();
}

/// The control group that the runners of this test make theirs in.
fn own_memory_group() -> Option<std::path::PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let of = |start: &str, top: &str| {
        let line = text.lines().find(|line| line.contains(start))?;
        let path = line.splitn(3, ':').nth(2)?.trim_start_matches('/').to_owned();
        let dir = std::path::Path::new(top).join(path);
        // Only the kernel makes this file in a directory.
        dir.join("cgroup.procs").exists().then_some(dir)
    };
    of(":memory:", "/sys/fs/cgroup/memory").or_else(|| of("0::", "/sys/fs/cgroup"))
}

#[test]
fn a_control_group_of_an_ended_runner_is_named_and_removed() {
    let test = Test::new().spec(SPEC);
    test.torc(["run", "workflow.yaml"]).exit(1);
    let dir = own_memory_group().map(|top| top.join(format!("torc-{}", ended_runner(&test))));
    let Some(dir) = dir.filter(|dir| std::fs::create_dir_all(dir.join("p1")).is_ok()) else {
        return eprintln!("skipped: no control group can be made here");
    };
    // A runner that starts beside this test removes the groups that no runner holds.
    let held = std::fs::File::open(&dir).expect("the group");
    held.lock().expect("nothing else knows this group");
    examine(&test).expect(1).says(
        "control groups end with their runners: runner 1 has ended, its control group is there:",
    );
    test.torc(["server", "doctor", "--repair"]).success();
    assert!(!dir.exists(), "it was removed");
    examine(&test).expect(0);
}
