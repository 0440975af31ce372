//! The live stream of events.

use crate::world::{OWNER, World, completion, registration, request};
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

/// Reads messages off a stream.
struct Messages {
    body: Body,
    text: String,
}

impl Messages {
    async fn open(world: &World, query: &str, last_event_id: Option<&str>) -> Self {
        Self::open_of(world, world.first.workflow, query, last_event_id).await
    }

    async fn open_of(
        world: &World,
        workflow: i64,
        query: &str,
        last_event_id: Option<&str>,
    ) -> Self {
        let path = format!("/workflows/{workflow}/events/stream{query}");
        let mut request = request(Method::GET, &path, Some(OWNER), None);
        if let Some(id) = last_event_id {
            request.headers_mut().insert("last-event-id", id.parse().unwrap());
        }
        let response = world.front.answer(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; None when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    message.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
                };
                let found = field("data:").map(|data| {
                    let event: Value = serde_json::from_str(data).unwrap();
                    assert_eq!(field("id:"), Some(event["id"].to_string().as_str()), "{message}");
                    assert_eq!(field("event:"), event["kind"].as_str(), "{message}");
                    event
                });
                self.text = rest.to_string();
                match found {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let frame = self.body.frame().await?.unwrap();
            self.text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    }
}

async fn all_ids(world: &World) -> Vec<i64> {
    let page = world.get(&format!("/workflows/{}/events", world.first.workflow)).await.ok();
    page["items"].as_array().unwrap().iter().map(|e| e["id"].as_i64().unwrap()).collect()
}

async fn make_events(world: &World) {
    let done =
        json!({"runner_id": world.first.runner, "items": [completion(&world.first.running, 0)]});
    world.post("/attempts/complete", &done).await.ok();
}

#[tokio::test]
async fn stream_repeats_the_past_and_goes_on_with_the_present() {
    let world = World::new().await;
    let past = all_ids(&world).await;
    assert!(past.len() > 3, "{past:?}");
    let mut stream = Messages::open(&world, "?after=0", None).await;
    let mut seen = Vec::new();
    for _ in &past {
        seen.push(stream.next().await.unwrap()["id"].as_i64().unwrap());
    }
    assert_eq!(seen, past);
    make_events(&world).await;
    let all = all_ids(&world).await;
    assert!(all.len() > past.len());
    for id in &all[past.len()..] {
        assert_eq!(stream.next().await.unwrap()["id"].as_i64(), Some(*id));
    }
}

#[tokio::test]
async fn stream_resumes_after_the_last_event() {
    let world = World::new().await;
    let past = all_ids(&world).await;
    let middle = past[1].to_string();
    // The header is what a browser sends by itself, so it is newer than the address.
    let mut stream = Messages::open(&world, "?after=0", Some(&middle)).await;
    assert_eq!(stream.next().await.unwrap()["id"].as_i64(), Some(past[2]));
    let mut new_only = Messages::open(&world, "", None).await;
    make_events(&world).await;
    let next = all_ids(&world).await[past.len()];
    assert_eq!(new_only.next().await.unwrap()["id"].as_i64(), Some(next));
}

#[tokio::test]
async fn stream_tells_of_its_own_workflow_only() {
    let world = World::new().await;
    let mut stream = Messages::open(&world, "", None).await;
    let other =
        json!({"runner_id": world.second.runner, "items": [completion(&world.second.running, 0)]});
    world.post("/attempts/complete", &other).await.ok();
    make_events(&world).await;
    assert_eq!(stream.next().await.unwrap()["workflow_id"].as_i64(), Some(world.first.workflow));
}

#[tokio::test]
async fn slow_reader_misses_nothing() {
    let world = World::new().await;
    let jobs = json!([{"name": "j_{i}", "command": "true", "parameters": {"i": "1:8500"}}]);
    let spec = json!({"spec": {"name": "many", "jobs": jobs}, "initialize": true});
    let workflow = world.post("/workflows", &spec).await.ok()["id"].as_i64().unwrap();
    let mut stream = Messages::open_of(&world, workflow, "?after=0", None).await;
    let first = stream.next().await.unwrap()["id"].as_i64().unwrap();
    // More than the channel holds, while the reader does not read.
    let capacity =
        json!({"num_cpus": 256, "memory_bytes": 1u64 << 40, "num_gpus": 0, "num_nodes": 1});
    let runner =
        world.post("/compute_nodes", &registration(workflow, "many")).await.ok()["id"].clone();
    let mut completed = Vec::new();
    for round in 0..100 {
        let claim = json!({
            "runner_id": runner, "key": format!("k{round}"), "limit": 256, "wait_seconds": 0.0, "capacity": capacity,
            "completed": completed
        });
        let answer = world.post(&format!("/workflows/{workflow}/claim"), &claim).await.ok();
        completed = answer["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attempt| completion(attempt, 0))
            .collect();
        if answer["workflow_complete"] == true {
            break;
        }
    }
    let all: Vec<i64> = {
        let database = world.database();
        let mut ids =
            database.prepare("SELECT id FROM event WHERE workflow_id = ?1 ORDER BY id").unwrap();
        ids.query_map([workflow], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert!(all.len() > 8500, "{}", all.len());
    let mut seen = vec![first];
    while seen.len() < all.len() {
        seen.push(stream.next().await.unwrap()["id"].as_i64().unwrap());
    }
    assert_eq!(seen, all, "all of them, in order and once");
}

#[tokio::test]
async fn shutdown_ends_streams_and_waiting_claims() {
    let world = World::new().await;
    let mut stream = Messages::open(&world, "", None).await;
    let mut wait = crate::world::claim(world.first.runner, "waits");
    wait["wait_seconds"] = json!(60.0);
    let path = format!("/workflows/{}/claim", world.first.workflow);
    let claim = world.post(&path, &wait);
    let stop = async {
        tokio::task::yield_now().await;
        world.stop.cancel();
    };
    let (answer, _) = tokio::join!(claim, stop);
    assert_eq!((answer.status, answer.code()), (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"));
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn bad_positions_are_refused() {
    let world = World::new().await;
    let path = format!("/workflows/{}/events/stream", world.first.workflow);
    let mut bad = request(Method::GET, &path, Some(OWNER), None);
    bad.headers_mut().insert("last-event-id", "x".parse().unwrap());
    assert_eq!(world.send(bad).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.get(&format!("{path}?after=x")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.get("/workflows/999/events/stream").await.status, StatusCode::NOT_FOUND);
}
