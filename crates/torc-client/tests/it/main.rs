//! The client against a fake server (an in-test router that answers what each test needs).

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use torc_client::{Client, Error, Query};
use torc_model::api::{ErrorCode, JobView, Page};
use torc_model::ids::{RunnerId, WorkflowId};

async fn fake_server(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(listener, Router::new().nest("/torc-service/v1", router)).await
    });
    format!("http://{address}")
}

#[tokio::test]
async fn the_token_is_sent_and_a_refusal_is_told_with_its_hint() {
    let router = Router::new().route(
        "/health",
        get(|headers: HeaderMap| async move {
            assert_eq!(headers["authorization"], "Bearer wrong");
            let body = json!({"error": {"code": "unauthorized", "message": "unknown token", "hint": "log in"}});
            (StatusCode::UNAUTHORIZED, Json(body))
        }),
    );
    let client = Client::new(&fake_server(router).await, "wrong").unwrap();
    let error = client.health().await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(error.code(), Some(ErrorCode::Unauthorized));
    assert_eq!(error.to_string(), "unknown token (hint: log in)");
    assert!(!error.is_temporary());
}

#[tokio::test]
async fn a_port_without_a_server_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::new(&url, "t").unwrap().health().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }));
    assert!(error.is_temporary());
    let text = error.to_string();
    assert!(text.contains(&url) && text.to_lowercase().contains("refused"), "{text}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_after_the_time_limit() {
    let router = Router::new().route("/health", get(std::future::pending::<()>));
    let client = Client::new(&fake_server(router).await, "t")
        .unwrap()
        .with_time_limit(Duration::from_millis(50));
    assert!(matches!(client.health().await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn an_answer_that_is_not_ours_is_a_protocol_error() {
    let router = Router::new().route("/health", get(|| async { "<html>" }));
    let client = Client::new(&fake_server(router).await, "t").unwrap();
    assert!(matches!(client.health().await, Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn empty_answers_and_bodies_are_fine() {
    let router = Router::new()
        .route("/failure_handlers/7", delete(|| async { StatusCode::NO_CONTENT }))
        .route(
            "/compute_nodes/3/goodbye",
            post(|Json(_): Json<Value>| async { Json(json!({"actions": []})) }),
        );
    let client = Client::new(&fake_server(router).await, "t").unwrap();
    client.delete_failure_handler(7).await.unwrap();
    let goodbye = torc_model::api::Goodbye { reason: "done".into(), cause: None };
    assert!(client.goodbye(RunnerId(3), &goodbye).await.unwrap().actions.is_empty());
}

#[tokio::test]
async fn all_pages_are_read() {
    let router = Router::new().route(
        "/jobs",
        get(
            |axum::extract::Query(q): axum::extract::Query<
                std::collections::BTreeMap<String, String>,
            >| async move {
                assert_eq!(q["workflow_id"], "1");
                let offset: i64 = q["offset"].parse().unwrap();
                let items: Vec<i64> = (offset..(offset + 2).min(5)).collect();
                let has_more = offset + 2 < 5;
                Json(Page::part(items, offset, 5, has_more))
            },
        ),
    );
    let client = Client::new(&fake_server(router).await, "t").unwrap();
    let rows: Vec<i64> =
        client.list_all("/jobs", &Query::new().add("workflow_id", 1)).await.unwrap();
    assert_eq!(rows, [0, 1, 2, 3, 4]);
    assert!(matches!(
        client.list_all::<JobView>("/jobs", &Query::new().add("workflow_id", 1)).await,
        Err(Error::Protocol { .. })
    ));
}

#[tokio::test]
async fn an_event_stream_goes_on_where_it_broke_off() {
    type Asked = Arc<Mutex<Vec<Option<String>>>>;
    let asked = Asked::default();
    let router = Router::new()
        .route(
            "/workflows/1/events/stream",
            get(|State(asked): State<Asked>, headers: HeaderMap| async move {
                let last = headers.get("last-event-id").map(|v| v.to_str().unwrap().to_string());
                let next = last.as_ref().map_or(1, |l| l.parse::<i64>().unwrap() + 1);
                asked.lock().unwrap().push(last);
                // One whole event, then half of the next: the connection ends in the middle of it.
                let event = json!({"id": next, "workflow_id": 1, "timestamp_ms": 0, "kind": "job_started",
                    "job_id": null, "data": {}});
                format!(": ping\n\nid: {next}\nevent: job_started\ndata: {event}\n\ndata: {{\"id\":")
            }),
        )
        .with_state(asked.clone());
    let client = Client::new(&fake_server(router).await, "t").unwrap();
    let mut stream = client.stream_events(WorkflowId(1), None);
    for expected in 1..=3 {
        assert_eq!(stream.next().await.unwrap().id, expected);
    }
    assert_eq!(*asked.lock().unwrap(), [None, Some("1".into()), Some("2".into())]);
}

#[tokio::test]
async fn a_stream_of_an_unknown_workflow_is_refused_at_once() {
    let client = Client::new(&fake_server(Router::new()).await, "t").unwrap();
    let error = client.stream_events(WorkflowId(9), Some(4)).next().await.unwrap_err();
    assert_eq!(error.status(), Some(404));
}
