//! Failures that wait for a verdict: the list stays small, however many there are and however much
//! they wrote.

use crate::world::{World, claim, completion, registration};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};

const MANY: i64 = 10_000;

#[tokio::test]
async fn ten_thousand_waiting_jobs_are_a_short_list() {
    let world = World::new().await;
    let spec = json!({"name": "many", "use_pending_failed": true, "jobs": [
        {"name": "j{i}", "command": "python fit.py {i}", "parameters": {"i": format!("1:{MANY}")}}]});
    let id = world.post("/workflows", &json!({"spec": spec})).await.ok()["id"].as_i64().unwrap();
    // As they would stand after all of them have failed in one of seven ways, the last hundred
    // before there were groups.
    let tail = "INFO step\n".repeat(400) + "ConnectionError: refused\n";
    let db = world.database();
    db.execute_batch("BEGIN").unwrap();
    db.execute("UPDATE job SET status = 10 WHERE workflow_id = ?1", [id]).unwrap();
    db.execute(
        "INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, ended_ms, ended_by,
         return_code, cause, stderr_tail) SELECT 1000000 + id, workflow_id, id, 1, 1, 'failed', 'initial', 1, 2, 'runner', 1, 'exit', ?2
         FROM job WHERE workflow_id = ?1",
        (id, &tail),
    )
    .unwrap();
    db.execute(
        "INSERT INTO failure (attempt, job_id, run_id, fingerprint, family, kind, program, template)
         SELECT 1000000 + id, id, 1, 'group' || (id % 7), 'family', 'network', 'python fit.py', 'ConnectionError: refused'
         FROM job WHERE workflow_id = ?1 ORDER BY id LIMIT ?2",
        (id, MANY - 100),
    )
    .unwrap();
    db.execute_batch("COMMIT").unwrap();

    let list = world.get(&format!("/workflows/{id}/pending_failures")).await.ok();
    assert_eq!((&list["pending_failed_count"], &list["group_count"]), (&json!(MANY), &json!(8)));
    let groups = list["groups"].as_array().unwrap();
    assert_eq!(groups.iter().map(|g| g["count"].as_i64().unwrap()).sum::<i64>(), MANY);
    assert!(
        groups.iter().all(|g| g["examples"].as_array().is_some_and(|e| e.len() == 2)),
        "{}",
        groups[0]
    );
    let bytes = list.to_string().len();
    assert!(bytes < 500_000, "{bytes} bytes");
    let one = world
        .get(&format!("/workflows/{id}/pending_failures?fingerprint=group3&examples=10"))
        .await
        .ok();
    assert_eq!(one["groups"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["groups"][0]["examples"].as_array().map(Vec::len), Some(10));
    for wrong in ["groups=0", "groups=101", "examples=11", "examples=-1", "nothing=1"] {
        let refused = world.get(&format!("/workflows/{id}/pending_failures?{wrong}")).await;
        assert!(refused.status.is_client_error(), "{wrong}");
    }
}

/// A job of a new workflow that has failed and waits: the workflow, the job and what the list says
/// about it.
async fn failed_with_output(world: &World, name: &str, size: u64, last_line: &str) -> Value {
    let spec = json!({"name": name, "use_pending_failed": true, "jobs": [{"name": "loud", "command": "false"}]});
    let id = world.post("/workflows", &json!({"spec": spec, "initialize": true})).await.ok()["id"]
        .as_i64()
        .unwrap();
    let runner =
        world.post("/compute_nodes", &registration(id, name)).await.ok()["id"].as_i64().unwrap();
    let claimed = world.post(&format!("/workflows/{id}/claim"), &claim(runner, name)).await.ok();
    let attempt = &claimed["attempts"][0];
    let started = json!({"id": attempt["id"], "token": attempt["token"], "pid": 5, "at_ms": 1});
    world.post("/attempts/start", &json!({"runner_id": runner, "items": [started]})).await.ok();
    let path = world.dir.path().join(format!("job_wf{id}_j{}_r1_a1.e", attempt["job_id"]));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(size)).unwrap();
    writeln!(file, "\n{last_line}").unwrap();
    let mut done = completion(attempt, 1);
    done["stderr_path"] = json!(path);
    done["stderr_tail"] = json!(last_line);
    done["cause"] = json!("exit");
    world.post("/attempts/complete", &json!({"runner_id": runner, "items": [done]})).await.ok();
    world.get(&format!("/workflows/{id}/pending_failures")).await.ok()["groups"][0]["examples"][0]
        .clone()
}

#[tokio::test]
async fn ten_gigabytes_of_output_cost_no_more_than_a_line() {
    let world = World::new().await;
    let small = failed_with_output(&world, "small", 0, "OSError: the end").await;
    assert_eq!(small["untrusted_stderr_tail"], json!("\nOSError: the end"));
    // Sparse: it takes no room, but reading all of it would take a while and much memory.
    let large = failed_with_output(&world, "large", 10 << 30, "OSError: the end").await;
    let tail = large["untrusted_stderr_tail"].as_str().unwrap();
    assert!(
        tail.len() <= 8 << 10 && tail.ends_with("\\u{0}\nOSError: the end"),
        "{} bytes",
        tail.len()
    );
    let secret =
        failed_with_output(&world, "secret", 0, "OSError: \u{1b}[2J password=correct-horse").await;
    assert_eq!(secret["untrusted_stderr_tail"], json!("\nOSError: \\u{1b}[2J password=[masked]"));
}
