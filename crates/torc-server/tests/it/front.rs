//! What is answered before the routes says the same as they do, and to the same callers.

use crate::world::{Answer, OWNER, World, completion, request};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::json;

/// By the shortest way there is. The first questions fill the memories it is answered from.
async fn status(world: &World, id: i64, token: &str) -> Answer {
    let path = format!("/workflows/{id}/status");
    world.get(&path).await.ok();
    world.call(Method::GET, &path, Some(token), None).await;
    world.call(Method::GET, &path, Some(token), None).await
}

/// Through the routes: the front knows no question with a query.
async fn routed_status(world: &World, id: i64, token: &str) -> Answer {
    world.call(Method::GET, &format!("/workflows/{id}/status?"), Some(token), None).await
}

#[tokio::test]
async fn both_ways_give_the_same_status() {
    let world = World::new().await;
    let (id, token) = (world.first.workflow, world.first.token.as_str());
    for token in [OWNER, token] {
        let (short, routed) =
            (status(&world, id, token).await, routed_status(&world, id, token).await);
        // The routes say how long an answer is, the front leaves it to what sends it: so it is
        // known who answered.
        let says_length = |answer: &Answer| answer.headers.contains_key(header::CONTENT_LENGTH);
        assert!(!says_length(&short) && says_length(&routed));
        assert_eq!(
            short.headers.get(header::CONTENT_TYPE),
            routed.headers.get(header::CONTENT_TYPE)
        );
        assert_eq!(short.ok(), routed.ok());
    }
}

#[tokio::test]
async fn a_status_is_never_older_than_the_last_change() {
    let world = World::new().await;
    let (id, runner) = (world.first.workflow, world.first.runner);
    let before = status(&world, id, OWNER).await.ok();
    let done = json!({"runner_id": runner, "items": [completion(&world.first.running, 0)]});
    world.post("/attempts/complete", &done).await.ok();
    let after = world.get(&format!("/workflows/{id}/status")).await.ok();
    assert_eq!((&before["counts"]["running"], &after["counts"]["running"]), (&json!(1), &json!(0)));
    assert_eq!(after["counts"]["completed"], 1);
    assert_eq!(after, routed_status(&world, id, OWNER).await.ok());

    world.put(&format!("/workflows/{id}"), &json!({"is_archived": true})).await.ok();
    assert_eq!(world.get(&format!("/workflows/{id}/status")).await.ok()["is_archived"], true);
    world.post(&format!("/workflows/{id}/cancel"), &json!({})).await.ok();
    assert_eq!(world.get(&format!("/workflows/{id}/status")).await.ok()["is_canceled"], true);
    world.delete(&format!("/workflows/{id}")).await.ok();
    assert_eq!(world.get(&format!("/workflows/{id}/status")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn who_may_not_ask_is_refused_though_the_answer_is_at_hand() {
    let world = World::new().await;
    let id = world.first.workflow;
    let path = format!("/workflows/{id}/status");
    let foreign = world.second.token.as_str();
    assert_eq!(status(&world, id, foreign).await.status, StatusCode::FORBIDDEN);
    assert_eq!(status(&world, id, "no such token").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(world.call(Method::GET, &path, None, None).await.status, StatusCode::UNAUTHORIZED);

    let with = async |name: HeaderName, value: &'static str| {
        let mut asked = request(Method::GET, &path, Some(OWNER), None);
        asked.headers_mut().insert(name, HeaderValue::from_static(value));
        world.send(asked).await.status
    };
    assert_eq!(with(header::HOST, "127.0.0.1:1").await, StatusCode::OK);
    assert_eq!(with(header::HOST, "evil.example").await, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(with(header::ORIGIN, "http://evil.example").await, StatusCode::FORBIDDEN);
    assert_eq!(
        with(HeaderName::from_static("sec-fetch-site"), "cross-site").await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        world.call(Method::DELETE, &path, Some(OWNER), None).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
}
