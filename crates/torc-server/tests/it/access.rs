//! Who may call what: every route of the table, with every kind of token.

use crate::world::{OWNER, Operation, World, operations, request};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use serde_json::json;

/// Streams do not end by themselves, so their bodies are not read here.
fn ends(operation: &Operation) -> bool {
    operation.id != "stream_events"
}

#[tokio::test]
async fn only_health_is_open() {
    let open: Vec<String> =
        operations().into_iter().filter(Operation::is_open).map(|o| o.id).collect();
    assert_eq!(open, ["get_health"]);
}

/// Opening a route to runners and jobs is a decision: it must be made here as well.
#[tokio::test]
async fn workflow_tokens_may_call_exactly_these() {
    let mut open: Vec<String> =
        operations().into_iter().filter(Operation::is_for_workflows).map(|o| o.id).collect();
    open.sort();
    let expected = [
        "begin_submission",
        "claim",
        "complete_action",
        "complete_attempts",
        "create_scheduled_compute_nodes",
        "get_attempt",
        "get_compute_node",
        "get_failure_handler",
        "get_file",
        "get_job",
        "get_job_logs",
        "get_job_why",
        "get_openapi",
        "get_resource_requirements",
        "get_scheduled_compute_node",
        "get_slurm_scheduler",
        "get_user_data",
        "get_workflow",
        "get_workflow_spec",
        "get_workflow_status",
        "goodbye",
        "heartbeat",
        "is_workflow_complete",
        "list_actions",
        "list_adjustments",
        "list_compute_nodes",
        "list_events",
        "list_failure_handlers",
        "list_files",
        "list_job_attempts",
        "list_jobs",
        "list_resource_requirements",
        "list_results",
        "list_scheduled_compute_nodes",
        "list_slurm_schedulers",
        "list_user_data",
        "list_workflows",
        "observe_scheduled_compute_nodes",
        "register_compute_node",
        "report_submission",
        "start_attempts",
        "stream_events",
        "update_user_data",
    ];
    assert_eq!(open, expected);
}

#[tokio::test]
async fn nobody_gets_in_without_a_good_token() {
    let world = World::new().await;
    for operation in operations().iter().filter(|o| !o.is_open()) {
        for token in [None, Some(""), Some("wrong"), Some(&OWNER[1..])] {
            let answer = world.send(operation.request(&world.first, token)).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{operation:?} with {token:?}");
            answer.check_form();
        }
        for value in
            [format!("Basic {OWNER}"), OWNER.to_string(), format!("Bearer {OWNER}, Bearer {OWNER}")]
        {
            let mut request = operation.request(&world.first, None);
            request.headers_mut().insert(header::AUTHORIZATION, value.parse().unwrap());
            assert_eq!(
                world.send(request).await.status,
                StatusCode::UNAUTHORIZED,
                "{operation:?} with {value}"
            );
        }
        let mut twice = operation.request(&world.first, Some(OWNER));
        twice.headers_mut().append(header::AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(
            world.send(twice).await.status,
            StatusCode::UNAUTHORIZED,
            "{operation:?} with two tokens"
        );
    }
}

#[tokio::test]
async fn no_method_is_a_way_around() {
    let world = World::new().await;
    let methods =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "ODD"];
    for operation in operations() {
        for method in methods {
            let method: Method = method.parse().unwrap();
            let is_open = operation.is_open() && (method == Method::GET || method == Method::HEAD);
            let answer = world
                .send(request(method.clone(), &world.first.path(&operation.path), None, None))
                .await;
            let expected = if is_open { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(answer.status, expected, "{method} {}", operation.path);
        }
    }
    for path in ["/", "/nothing", "/jobs/", "/workflows//status", "/../etc", "/health/"] {
        let answer = world.send(request(Method::GET, path, None, None)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn owner_may_call_everything() {
    for operation in operations().iter().filter(|o| ends(o)) {
        // Each in a world of its own: some of them destroy it.
        let world = World::new().await;
        let answer = world.send(operation.request(&world.first, Some(OWNER))).await;
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        assert!(
            !refused.contains(&answer.status) && !answer.status.is_server_error(),
            "{operation:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn workflow_token_is_good_for_its_own_workflow_only() {
    let world = World::new().await;
    for operation in operations().iter().filter(|o| ends(o)) {
        let token = Some(world.first.token.as_str());
        let own = world.send(operation.request(&world.first, token)).await;
        let has_way_in = operation.is_for_workflows() || operation.is_open();
        assert_eq!(
            own.status == StatusCode::FORBIDDEN,
            !has_way_in,
            "{operation:?} on its own: {own:?}"
        );
        let about_one_thing = operation.path.contains("{id}") || operation.has_body;
        if about_one_thing {
            let other = world.send(operation.request(&world.second, token)).await;
            assert_eq!(
                other.status,
                StatusCode::FORBIDDEN,
                "{operation:?} on another's: {other:?}"
            );
        }
    }
}

#[tokio::test]
async fn workflow_token_sees_its_own_workflow_only_in_lists() {
    let world = World::new().await;
    let token = Some(world.first.token.as_str());
    let lists =
        operations().into_iter().filter(|o| o.method == Method::GET && !o.path.contains('{'));
    let mut seen = 0;
    for operation in lists.filter(|o| o.id.starts_with("list_") && o.is_for_workflows()) {
        let all = world.get(&operation.path).await.ok();
        let own = world.call(Method::GET, &operation.path, token, None).await.ok();
        let key = if operation.id == "list_workflows" { "id" } else { "workflow_id" };
        let rows = own["items"].as_array().unwrap();
        assert!(!rows.is_empty(), "{operation:?}");
        assert!(
            rows.iter().all(|row| row[key] == json!(world.first.workflow)),
            "{operation:?}: {own}"
        );
        assert!(all["total_count"].as_i64() > own["total_count"].as_i64(), "{operation:?}");
        if key == "workflow_id" {
            let path = format!("{}?workflow_id={}", operation.path, world.second.workflow);
            let other = world.call(Method::GET, &path, token, None).await;
            assert_eq!(other.status, StatusCode::FORBIDDEN, "{operation:?}");
        }
        seen += 1;
    }
    assert!(seen >= 9, "only {seen} lists");
}

#[tokio::test]
async fn runner_of_another_workflow_can_not_be_spoken_for() {
    let world = World::new().await;
    let token = Some(world.first.token.as_str());
    let path = format!("/workflows/{}/claim", world.first.workflow);
    let body = crate::world::claim(world.second.runner, "k");
    let answer = world.call(Method::POST, &path, token, Some(&body)).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer:?}");
}

#[tokio::test]
async fn health_says_more_to_those_who_may_know() {
    let world = World::new().await;
    let stranger = world.call(Method::GET, "/health", None, None).await.ok();
    assert_eq!(stranger, json!({"status": "ok"}));
    let wrong = world.call(Method::GET, "/health", Some("wrong"), None).await.ok();
    assert_eq!(wrong, json!({"status": "ok"}));
    let owner = world.get("/health").await.ok();
    assert_eq!(
        (owner["status"].as_str(), owner["active_workflows"].as_i64()),
        (Some("ok"), Some(2))
    );
}

fn with_headers(headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = request(Method::GET, "/workflows", Some(OWNER), None);
    request.headers_mut().remove(header::HOST);
    for (name, value) in headers {
        let name: header::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn foreign_names_and_foreign_pages_are_refused() {
    let world = World::new().await;
    let good = ("host", "127.0.0.1:1");
    for headers in [
        vec![good],
        vec![("host", "localhost:9")],
        vec![("host", "[::1]:9")],
        vec![good, ("origin", "http://127.0.0.1:1"), ("sec-fetch-site", "same-origin")],
        vec![good, ("sec-fetch-site", "none")],
    ] {
        assert_eq!(world.send(with_headers(&headers)).await.status, StatusCode::OK, "{headers:?}");
    }
    for headers in [
        vec![],
        vec![("host", "evil.example")],
        vec![("host", "evil.example:80")],
        vec![("host", "10.1.2.3:80")],
        vec![("host", "127.0.0.1.evil.example")],
        vec![("host", "")],
        vec![good, ("host", "evil.example")],
    ] {
        let answer = world.send(with_headers(&headers)).await;
        assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST, "{headers:?}");
        answer.check_form();
    }
    for headers in [
        vec![good, ("origin", "http://evil.example")],
        vec![good, ("origin", "null")],
        vec![good, ("sec-fetch-site", "cross-site")],
        vec![good, ("sec-fetch-site", "same-site")],
    ] {
        assert_eq!(
            world.send(with_headers(&headers)).await.status,
            StatusCode::FORBIDDEN,
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn no_answer_invites_other_sites() {
    let world = World::new().await;
    for operation in operations().iter().filter(|o| ends(o) && o.method == Method::GET) {
        let answer = world.send(operation.request(&world.first, Some(OWNER))).await;
        assert!(
            answer.headers.keys().all(|name| !name.as_str().starts_with("access-control")),
            "{operation:?}"
        );
    }
}
