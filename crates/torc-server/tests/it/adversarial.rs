//! What the API once took and must refuse. docs/reliability.md lists the test of every such case.

use crate::world::World;
use axum::http::StatusCode;
use serde_json::{Value, json};

#[tokio::test]
async fn an_empty_value_in_a_query_is_refused_and_not_left_out() {
    let world = World::new().await;
    for path in [
        "/jobs?workflow_id=",
        "/jobs?limit=",
        "/jobs?limit",
        "/workflows?include_archived=",
        "/results?workflow_id=&limit=1",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}: {answer:?}");
    }
}

#[test]
fn the_document_lets_an_item_be_any_value() {
    let document: Value =
        serde_json::from_str(include_str!("../../../../docs/openapi.json")).expect("the document");
    let item = document.pointer("/components/schemas/ItemView/properties/item").expect("an item");
    assert_eq!(item.get("type"), None, "a string is an item too: {item}");
}

#[tokio::test]
async fn names_and_numbers_that_a_spec_may_not_have_are_refused() {
    let world = World::new().await;
    let (job, workflow) = (world.first.job, world.first.workflow);
    for priority in [i64::MIN, i64::MAX, -1_000_000_001] {
        let answer = world.put(&format!("/jobs/{job}"), &json!({"priority": priority})).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{priority}: {answer:?}");
    }
    for name in ["a\nb", "a\r\nX: y", "", "..", "../x", "a\u{0}b"] {
        let answer = world.put(&format!("/workflows/{workflow}"), &json!({"name": name})).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{name:?}: {answer:?}");
    }
    for name in ["a%0d%0aX:%20y", "..", "%2e%2e%2fx", "a%00b"] {
        let answer = world.put(&format!("/limits/{name}"), &json!({"max": 1})).await;
        assert!(answer.status.is_client_error(), "{name}: {answer:?}");
    }
    let limits = world.get("/limits").await.ok();
    let odd = |limit: &Value| limit["name"].as_str().is_none_or(|n| n.contains(['.', '\r', '\n']));
    assert!(!limits["items"].as_array().expect("a list").iter().any(odd), "{limits}");
}

#[tokio::test]
async fn a_webhook_url_with_a_user_or_a_password_is_refused_without_showing_it() {
    let world = World::new().await;
    for url in ["https://user:hunter2@example.com/hook", "https://hunter2@example.com/"] {
        let answer = world.post("/webhooks", &json!({"url": url})).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{answer:?}");
        assert!(!answer.body.to_string().contains("hunter2"), "{answer:?}");
    }
}
