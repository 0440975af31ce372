//! Bad input: always a clear answer in our form, and nothing changed.

use crate::world::{OWNER, World, operations, request, spec};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use torc_model::words;

fn raw(method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = request(method, path, Some(OWNER), None);
    request.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    *request.body_mut() = body.into();
    request
}

#[tokio::test]
async fn text_that_is_not_json_is_told_from_json_that_does_not_fit() {
    let world = World::new().await;
    for operation in operations().iter().filter(|o| o.has_body) {
        let path = world.first.path(&operation.path);
        for text in ["{", "\u{1}", "nul", "[1,", "\"\\ud800\""] {
            let answer = world.send(raw(operation.method.clone(), &path, text)).await;
            assert_eq!(
                answer.status,
                StatusCode::BAD_REQUEST,
                "{operation:?} with {text}: {answer:?}"
            );
            assert_eq!(answer.code(), "invalid_json");
        }
        let answer = world.send(raw(operation.method.clone(), &path, "[[[[1]]]]")).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{operation:?}: {answer:?}");
        let deep = "[".repeat(100_000);
        let answer = world.send(raw(operation.method.clone(), &path, deep)).await;
        assert!(answer.status.is_client_error(), "{operation:?}: {answer:?}");
        let mut form = raw(operation.method.clone(), &path, "a=1");
        form.headers_mut()
            .insert(header::CONTENT_TYPE, "application/x-www-form-urlencoded".parse().unwrap());
        let answer = world.send(form).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{operation:?}");
        answer.check_form();
    }
}

#[tokio::test]
async fn a_wrong_field_is_named() {
    let world = World::new().await;
    let mut body = world.first.body("complete_attempts");
    body["items"][0]["return_code"] = json!("many");
    let answer = world.post("/attempts/complete", &body).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer.body["error"]["field"], "items[0].return_code", "{answer:?}");
    let answer = world.put(&format!("/jobs/{}", world.first.job), &json!({"memory": "lots"})).await;
    assert_eq!(answer.body["error"]["field"], "memory", "{answer:?}");
    let answer = world.post("/workflows", &json!({})).await;
    assert!(words::has(answer.body["error"]["message"].as_str().unwrap(), "spec"), "{answer:?}");
}

#[tokio::test]
async fn queries_are_checked() {
    let world = World::new().await;
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=many", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("offset=-1", "offset"),
        ("sort_by=command", "sort_by"),
        ("sort_by=id;DROP%20TABLE%20job", "sort_by"),
        ("status=lost", "status"),
        ("status=11", "status"),
        ("workflow_id=x", "workflow_id"),
        ("held=perhaps", "held"),
    ] {
        let answer = world.get(&format!("/jobs?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {answer:?}");
        assert_eq!(answer.body["error"]["field"], field, "{query}: {answer:?}");
    }
    let events = format!("/workflows/{}/events", world.first.workflow);
    for (path, query, said) in [
        ("/jobs", "workflow_id=x", "expected a whole number"),
        ("/jobs", "status=faild", "did you mean `failed`?"),
        ("/scheduled_compute_nodes", "status=finished", "(known: planned, submitting, pending,"),
        ("/scheduled_compute_nodes", "unexplained=maybe", "expected"),
        (&events, "kind=job_faild", "did you mean `job_failed`?"),
        ("/webhooks/1/deliveries", "state=deliverd", "did you mean `delivered`?"),
    ] {
        let answer = world.get(&format!("{path}?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {answer:?}");
        assert!(words::has(&answer.body["error"].to_string(), said), "{query}: {answer:?}");
    }
    let unknown = world.get("/jobs?stauts=failed").await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
    let message = unknown.body["error"]["message"].as_str().unwrap();
    assert!(words::has(message, "stauts") && words::has(message, "status"), "{message}");
    let broken = world.get("/jobs?name=%ff%fe").await;
    assert!(!broken.status.is_server_error(), "{broken:?}");
    let known =
        world.get("/jobs?status=failed,running&status=blocked&limit=10000&sort_by=name").await.ok();
    assert_eq!(known["total_count"], 6, "{known}");
}

#[tokio::test]
async fn unknown_ids_are_not_found() {
    let world = World::new().await;
    for operation in operations().iter().filter(|o| o.path.contains("{id}")) {
        for id in ["999999", "-1", "0", "9223372036854775807"] {
            let path = operation
                .path
                .replace("{id}", id)
                .replace("{run_id}", "1")
                .replace("{group_id}", "999999")
                .replace("{user_name}", "x");
            let path = format!("{path}{}", world.first.query(&operation.id));
            let body = operation.has_body.then(|| world.first.body(&operation.id));
            let answer =
                world.call(operation.method.clone(), &path, Some(OWNER), body.as_ref()).await;
            // A runner that is gone may say goodbye twice, and a claim must name a runner of the
            // workflow.
            let expected: &[StatusCode] = match operation.id.as_str() {
                "goodbye" => &[StatusCode::OK],
                "claim" => &[StatusCode::NOT_FOUND, StatusCode::CONFLICT],
                _ => &[StatusCode::NOT_FOUND],
            };
            assert!(expected.contains(&answer.status), "{operation:?} with {id}: {answer:?}");
            answer.check_form();
        }
        for id in ["abc", "1.5", "9223372036854775808", "%00", "1%2F2", "latest%20"] {
            let path = operation
                .path
                .replace("{id}", id)
                .replace("{run_id}", "1")
                .replace("{group_id}", "999999")
                .replace("{user_name}", "x");
            let answer = world.call(operation.method.clone(), &path, Some(OWNER), None).await;
            assert_eq!(
                answer.status,
                StatusCode::BAD_REQUEST,
                "{operation:?} with {id}: {answer:?}"
            );
            assert_eq!(answer.code(), "invalid_path");
        }
    }
}

#[tokio::test]
async fn unknown_routes_and_methods_say_so() {
    let world = World::new().await;
    for path in ["/nothing", "/jobs/1/nothing", "/workflows/", "/"] {
        let answer = world.get(path).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::NOT_FOUND, "not_found"), "{path}");
    }
    let outside = Request::get("/jobs").header(header::HOST, "localhost");
    let outside = outside
        .header(header::AUTHORIZATION, format!("Bearer {OWNER}"))
        .body(Body::empty())
        .unwrap();
    let answer = world.send(outside).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.body["error"]["hint"].as_str().unwrap().contains("/torc-service/v1"));
    for (method, path) in
        [(Method::PATCH, "/jobs"), (Method::DELETE, "/health"), (Method::OPTIONS, "/workflows")]
    {
        let answer = world.call(method, path, Some(OWNER), None).await;
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn bodies_have_a_limit_and_whole_workflows_a_larger_one() {
    let world = World::new().await;
    let padding = "x".repeat(9 << 20);
    let answer = world
        .put(&format!("/workflows/{}", world.first.workflow), &json!({"description": padding}))
        .await;
    assert_eq!((answer.status, answer.code()), (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"));
    let mut large = spec("large");
    large["description"] = json!(padding);
    let created = world.post("/workflows", &json!({"spec": large})).await;
    assert_eq!(created.status, StatusCode::OK, "{:?}", created.body["error"]);
    // A body without an announced length is counted as it comes.
    let chunks =
        futures_util::stream::iter((0..10).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20])));
    let path = format!("/workflows/{}", world.first.workflow);
    let answer = world.send(raw(Method::PUT, &path, Body::from_stream(chunks))).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let broken = futures_util::stream::iter([Ok(vec![b'{']), Err(std::io::Error::other("gone"))]);
    let answer = world.send(raw(Method::PUT, &path, Body::from_stream(broken))).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "incomplete_body"));
}

#[tokio::test]
async fn a_bad_spec_is_explained_and_leaves_nothing() {
    let world = World::new().await;
    let count = || -> i64 {
        let sql = "SELECT (SELECT count(*) FROM workflow) + (SELECT count(*) FROM job) + (SELECT count(*) FROM event)";
        world.database().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let before = count();
    let bad: Vec<Value> = vec![
        json!(null),
        json!(5),
        json!({}),
        json!({"name": "x"}),
        json!({"name": "x", "jobs": [{"name": "a", "command": "true", "depends_on": ["b"]}]}),
        json!({"name": "x", "jobs": [{"name": "a", "command": "true"}, {"name": "a", "command": "true"}]}),
        json!({"name": "x", "jobs": [{"name": "a", "command": "true", "depends_on": ["a"]}]}),
        json!({"name": "x", "jbos": []}),
    ];
    for spec in bad {
        let answer = world.post("/workflows", &json!({"spec": spec, "initialize": true})).await;
        assert!(answer.status.is_client_error(), "{spec}: {answer:?}");
        answer.check_form();
    }
    assert_eq!(count(), before);
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up() {
    let world = World::new().await;
    // From here on only this request waits, so the clock jumps to its time limit.
    tokio::time::pause();
    let nothing = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let path = format!("/workflows/{}", world.first.workflow);
    let answer = world.send(raw(Method::PUT, &path, Body::from_stream(nothing))).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::REQUEST_TIMEOUT, "timeout"));
}

#[tokio::test]
async fn a_limit_that_is_not_there_cannot_be_reserved() {
    let world = World::new().await;
    let reserve = |scope: &str| json!({"scope": scope, "reserved_by": "test", "ttl_seconds": 60});
    let refused = world.post("/reservations", &reserve("limit:license")).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND, "{refused:?}");
    assert_eq!(
        refused.body["error"]["message"],
        words::message("there is no limit `license` (known: `licence`)")
    );
    assert_eq!(refused.body["error"]["hint"], "did you mean `licence`?");
    world.post("/reservations", &reserve("limit:licence")).await.ok();
}
