//! A workflow's life through the API.

use crate::world::{World, claim, completion, registration};
use axum::http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn from_creation_to_completion() {
    let world = World::new().await;
    let spec = json!({"name": "chain", "jobs": [
        {"name": "a", "command": "true"}, {"name": "b", "command": "true", "depends_on": ["a"]}]});
    let request = json!({"spec": spec, "initialize": true, "key": "once", "user": "ann"});
    let created = world.post("/workflows", &request).await.ok();
    assert_eq!(
        world.post("/workflows", &request).await.ok()["id"],
        created["id"],
        "a repeat makes no second one"
    );
    let id = created["id"].as_i64().unwrap();
    let view = world.get(&format!("/workflows/{id}")).await.ok();
    assert_eq!(
        (view["user"].as_str(), view["job_count"].as_i64(), view["run_id"].as_i64()),
        (Some("ann"), Some(2), Some(1))
    );
    assert_eq!(world.get(&format!("/workflows/{id}/spec")).await.ok()["name"], "chain");
    let runner =
        world.post("/compute_nodes", &registration(id, "chain")).await.ok()["id"].as_i64().unwrap();

    for (round, name) in ["a", "b"].iter().enumerate() {
        let claimed = world
            .post(&format!("/workflows/{id}/claim"), &claim(runner, &format!("c{round}")))
            .await
            .ok();
        let attempts = claimed["attempts"].as_array().unwrap();
        assert_eq!(
            (attempts.len(), attempts[0]["job_name"].as_str()),
            (1, Some(*name)),
            "{claimed}"
        );
        let done = json!({"runner_id": runner, "items": [completion(&attempts[0], 0)]});
        let answer = world.post("/attempts/complete", &done).await.ok();
        assert_eq!(answer["results"][0]["result"], "accepted");
        assert_eq!(
            world.post("/attempts/complete", &done).await.ok()["results"][0]["result"],
            "repeated"
        );
    }
    let status = world.get(&format!("/workflows/{id}/status")).await.ok();
    assert_eq!(
        (status["is_complete"].as_bool(), status["counts"]["completed"].as_i64()),
        (Some(true), Some(2)),
        "{status}"
    );
    assert_eq!(world.get(&format!("/workflows/{id}/is_complete")).await.ok()["is_complete"], true);
    let results = world.get(&format!("/results?workflow_id={id}")).await.ok();
    assert_eq!(results["total_count"], 2);
    let kinds = world.get(&format!("/workflows/{id}/events")).await.ok();
    assert!(
        kinds["items"].as_array().unwrap().iter().any(|e| e["kind"] == "workflow_completed"),
        "{kinds}"
    );

    let reset = world
        .post(&format!("/workflows/{id}/reset_status?dry_run=true&job=b"), &json!(null))
        .await
        .ok();
    assert_eq!(reset["jobs"].as_array().unwrap().len(), 1, "{reset}");
    let last = results["items"][1]["job_id"].as_i64().unwrap();
    let by_id = world
        .post(&format!("/workflows/{id}/reset_status?dry_run=true&job_id={last}"), &json!(null))
        .await
        .ok();
    assert_eq!(by_id["jobs"], reset["jobs"]);
    let foreign = world.first.job;
    let answer =
        world.post(&format!("/workflows/{id}/reset_status?job_id={foreign}"), &json!(null)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);

    world.delete(&format!("/workflows/{id}")).await.ok();
    assert_eq!(world.get(&format!("/workflows/{id}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(world.get(&format!("/jobs?workflow_id={id}")).await.ok()["total_count"], 0);
}

#[tokio::test]
async fn changes_are_seen_by_the_next_read() {
    let world = World::new().await;
    let ids = &world.first;
    let path = format!("/workflows/{}", ids.workflow);
    let changed = world.put(&path, &json!({"description": "new", "is_archived": true})).await.ok();
    assert_eq!(
        (changed["description"].as_str(), changed["is_archived"].as_bool()),
        (Some("new"), Some(true))
    );
    let visible = world.get("/workflows").await.ok();
    assert_eq!(visible["total_count"], 1, "archived ones are hidden");
    assert_eq!(world.get("/workflows?include_archived=true").await.ok()["total_count"], 2);
    assert_eq!(world.get("/workflows?is_archived=true").await.ok()["total_count"], 1);

    let data = world
        .put(&format!("/user_data/{}", ids.user_data), &json!({"data": {"x": [1]}}))
        .await
        .ok();
    assert_eq!(data["data"], json!({"x": [1]}));
    let job = world
        .put(&format!("/jobs/{}", ids.job), &json!({"priority": 7, "memory": "3g"}))
        .await
        .ok();
    assert_eq!((job["priority"].as_i64(), job["memory"].as_str()), (Some(7), Some("3g")));

    let rules = json!([{"exit_codes": [3], "max_retries": 2}]).to_string();
    let new = json!({"workflow_id": ids.workflow, "name": "made", "rules": rules});
    let made = world.post("/failure_handlers", &new).await.ok();
    let path = format!("/failure_handlers/{}", made["id"]);
    assert_eq!(world.put(&path, &json!({"name": "renamed"})).await.ok()["name"], "renamed");
    world.delete(&path).await.ok();
    assert_eq!(world.get(&path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn failed_job_is_explained_and_retried() {
    let world = World::new().await;
    let ids = &world.first;
    let why = world.get(&format!("/jobs/{}/why", ids.job)).await.ok();
    assert_eq!(why["job"]["status"], "failed", "{why}");
    assert_eq!(why["attempt"]["return_code"], 1);
    assert!(
        why["details"]
            .as_array()
            .unwrap()
            .iter()
            .any(|d| d.as_str().unwrap().contains("exit code 1")),
        "{why}"
    );
    assert!(!why["hints"].as_array().unwrap().is_empty());
    let wrong_run =
        world.post(&format!("/jobs/{}/retry/9?max_retries=3", ids.job), &json!(null)).await;
    assert!(wrong_run.status.is_client_error(), "{wrong_run:?}");
    let none_left =
        world.post(&format!("/jobs/{}/retry/1?max_retries=1", ids.job), &json!(null)).await;
    assert!(none_left.status.is_client_error(), "{none_left:?}");
    let job =
        world.post(&format!("/jobs/{}/retry/1?max_retries=3", ids.job), &json!(null)).await.ok();
    assert_eq!((job["status"].as_str(), job["attempt_id"].as_i64()), (Some("ready"), Some(2)));
    let attempts = world.get(&format!("/jobs/{}/attempts", ids.job)).await.ok();
    assert_eq!(attempts["items"][1]["retry_of"], attempts["items"][0]["id"]);
    let blocked =
        world.get(&format!("/jobs?workflow_id={}&status=blocked", ids.workflow)).await.ok();
    let why = world.get(&format!("/jobs/{}/why", blocked["items"][0]["id"])).await.ok();
    assert!(why["details"][0].as_str().unwrap().contains("`runs` is running"), "{why}");
}

#[tokio::test]
async fn cancel_reaches_jobs_and_workflows() {
    let world = World::new().await;
    let ids = &world.first;
    let canceled = world.post("/jobs/cancel", &json!({"job_ids": [ids.running_job]})).await.ok();
    assert_eq!(canceled["job_ids"], json!([ids.running_job]));
    let beat = json!({"runner_id": ids.runner, "held": [{"id": ids.running["id"], "token": ids.running["token"]}]});
    let answer = world.post("/attempts/heartbeat", &beat).await.ok();
    assert_eq!(answer["cancel"], json!([ids.running["id"]]), "{answer}");
    let status = world
        .post(&format!("/workflows/{}/cancel", world.second.workflow), &json!(null))
        .await
        .ok();
    assert_eq!(status["is_canceled"], true);
}

#[tokio::test]
async fn output_is_read_in_pieces() {
    let world = World::new().await;
    let ids = &world.first;
    let name = format!("job_wf{}_j{}_r1_a1.o", ids.workflow, ids.running_job);
    let path = world.dir.path().join(&name);
    std::fs::write(&path, "first\nsecond\n").unwrap();
    let mut done = completion(&ids.running, 0);
    done["stdout_path"] = json!(path);
    done["stderr_path"] = json!("/etc/passwd");
    world.post("/attempts/complete", &json!({"runner_id": ids.runner, "items": [done]})).await.ok();
    let logs = format!("/jobs/{}/logs", ids.running_job);
    let all = world.get(&logs).await.ok();
    assert_eq!((all["text"].as_str(), all["size"].as_i64()), (Some("first\nsecond\n"), Some(13)));
    let piece = world.get(&format!("{logs}?offset=-7&limit=6")).await.ok();
    assert_eq!((piece["text"].as_str(), piece["next_offset"].as_i64()), (Some("second"), Some(12)));
    let stolen = world.get(&format!("{logs}?stream=stderr")).await;
    assert_eq!(
        stolen.status,
        StatusCode::NOT_FOUND,
        "a report cannot make the server read other files: {stolen:?}"
    );
    assert_eq!(world.get(&format!("{logs}?stream=other")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.get(&format!("{logs}?limit=2000000")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.get(&format!("{logs}?attempt_id=7")).await.status, StatusCode::NOT_FOUND);
}

/// Both attempts have started; their outputs differ in a number and in their last line.
#[tokio::test]
async fn outputs_of_two_attempts_are_compared() {
    let world = World::new().await;
    let ids = &world.first;
    let (job, workflow) = (ids.running_job, ids.workflow);
    let path = |attempt: i64| {
        let name = format!("job_wf{workflow}_j{job}_r1_a{attempt}.o");
        world.dir.path().join(name).display().to_string()
    };
    std::fs::write(path(1), "step 1\nstep 2\nstep 3\nstep 4\nbroken\n").unwrap();
    let mut done = completion(&ids.running, 3);
    done["stdout_path"] = json!(path(1));
    world.post("/attempts/complete", &json!({"runner_id": ids.runner, "items": [done]})).await.ok();
    let diff = format!("/jobs/{job}/logs/diff");
    let alone = world.get(&diff).await;
    assert_eq!(alone.status, StatusCode::NOT_FOUND, "there is nothing to compare with: {alone:?}");
    let sql = format!(
        "INSERT INTO attempt (workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, claimed_ms, started_ms, ended_ms, ended_by,
             token, compute_node_id, stdout_path)
         SELECT workflow_id, job_id, run_id, 2, 'completed', 'handler', created_ms, claimed_ms, started_ms, ended_ms, ended_by, 't2', compute_node_id, '{}'
         FROM attempt WHERE job_id = {job} AND attempt_id = 1",
        path(2)
    );
    world.database().execute_batch(&sql).unwrap();
    std::fs::write(path(2), "step 7\nstep 8\nstep 3\nstep 4\nfine\n").unwrap();
    let view = world.get(&diff).await.ok();
    assert_eq!((&view["differ"], &view["total_count"]), (&json!(true), &json!(5)), "{view}");
    assert_eq!(
        (&view["earlier"]["attempt_id"], &view["later"]["attempt_id"]),
        (&json!(1), &json!(2))
    );
    let line = |kind: &str, text: &str| json!({"kind": kind, "text": text});
    let expected = json!([
        {"kind": "equal", "text": "", "lines": 2},
        line("same", "step 3"),
        line("same", "step 4"),
        line("gone", "broken"),
        line("new", "fine"),
    ]);
    assert_eq!(view["lines"], expected);
    let page = world.get(&format!("{diff}?offset=3&limit=1&around=2")).await.ok();
    assert_eq!(page["lines"], json!([line("gone", "broken")]), "{page}");
    let back = world.get(&format!("{diff}?attempt_id=1&before_attempt_id=2&around=0")).await.ok();
    assert_eq!(back["lines"][1], line("gone", "fine"), "{back}");
    let first = world.get(&format!("{diff}?attempt_id=1")).await;
    assert_eq!(first.status, StatusCode::NOT_FOUND, "none is before the first: {first:?}");
    for wrong in ["limit=0", "limit=2001", "around=101", "offset=-1", "stream=other", "nearby=1"] {
        let refused = world.get(&format!("{diff}?{wrong}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}: {refused:?}");
    }
}

#[tokio::test]
async fn waiting_claim_wakes_when_work_appears() {
    let world = World::new().await;
    let ids = &world.first;
    let mut request = claim(ids.runner, "waits");
    request["wait_seconds"] = json!(50.0);
    let path = format!("/workflows/{}/claim", ids.workflow);
    let waiting = world.post(&path, &request);
    let finish = async {
        tokio::task::yield_now().await;
        let done = json!({"runner_id": ids.runner, "items": [completion(&ids.running, 0)]});
        world.post("/attempts/complete", &done).await.ok()
    };
    let begun = std::time::Instant::now();
    let (claimed, _) = tokio::join!(waiting, finish);
    assert_eq!(claimed.ok()["attempts"][0]["job_name"], "waits");
    assert!(begun.elapsed().as_secs() < 20, "it was woken, it did not time out");
}
