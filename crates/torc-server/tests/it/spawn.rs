//! Jobs that add jobs, over the wire: who may, what is refused under which code, and what a repeat gets.

use crate::world::{OWNER, World, request};
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

fn piece(name: &str) -> Value {
    json!({"jobs": [{"name": name, "command": "true"}]})
}

#[tokio::test]
async fn a_repeat_is_answered_like_the_first_and_another_piece_is_refused_by_its_code() {
    let world = World::new().await;
    let path = format!("/jobs/{}/spawn_jobs", world.first.running_job);
    let token = world.first.job_token.as_str();
    let send = async |body: Value, token: &str| {
        world.send(request(Method::POST, &path, Some(token), Some(&body))).await
    };
    let first = send(piece("x"), token).await;
    assert_eq!(first.status, StatusCode::OK, "{first:?}");
    assert_eq!((&first.body["iteration"], &first.body["is_repeat"]), (&json!(1), &json!(false)));
    let again = send(piece("x"), token).await;
    assert_eq!(again.body["spawned_job_ids"], first.body["spawned_job_ids"], "{again:?}");
    assert_eq!(again.body["is_repeat"], true);

    let other = send(piece("y"), token).await;
    assert_eq!(other.status, StatusCode::CONFLICT, "{other:?}");
    assert_eq!(other.body["error"]["code"], "addition_differs");
    let keyed = |name: &str, key: &str| {
        let mut body = piece(name);
        body["key"] = json!(key);
        body
    };
    let taken = send(keyed("runs", "k"), token).await;
    assert_eq!(taken.body["error"]["code"], "name_taken", "{taken:?}");
    let wrong = send(json!({"key": "k", "jobs": [{"name": "z", "cmd": "true"}]}), token).await;
    assert_eq!(wrong.body["error"]["code"], "invalid_spec", "{wrong:?}");
    // What was refused is no use of its key.
    assert_eq!(send(keyed("y", "k"), token).await.status, StatusCode::OK);
    // The owner may, for the same job.
    assert_eq!(send(keyed("w", "own"), OWNER).await.status, StatusCode::OK);
    let jobs = world.get(&format!("/jobs?workflow_id={}", world.first.workflow)).await;
    assert_eq!(jobs.body["total_count"], 6, "{jobs:?}");
    assert_eq!((&jobs.body["count"], &jobs.body["max_limit"]), (&json!(6), &json!(10_000)));

    // A job that does not run adds nothing, and no job adds for another.
    let waiting = format!("/jobs/{}/spawn_jobs", world.first.job);
    let answer = world.send(request(Method::POST, &waiting, Some(OWNER), Some(&piece("v")))).await;
    assert_eq!(answer.body["error"]["code"], "wrong_status", "{answer:?}");
    let answer = world.send(request(Method::POST, &waiting, Some(token), Some(&piece("v")))).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer:?}");
}
