//! Who may call what: every route of the table, with every kind of token.

use crate::world::{OWNER, Operation, World, completion, operations, registration, request};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use serde_json::json;

/// Streams do not end by themselves, so their bodies are not read here.
fn ends(operation: &Operation) -> bool {
    !operation.id.starts_with("stream_")
}

#[tokio::test]
async fn only_health_and_the_exchange_of_codes_are_open() {
    let open: Vec<String> =
        operations().into_iter().filter(Operation::is_open).map(|o| o.id).collect();
    let expected = ["get_health_live", "get_health_ready", "get_health", "create_ui_session"];
    assert_eq!(open, expected);
}

/// What a job's token may read, and a runner's as well. Opening a route is a decision: it must be
/// made here too.
const READS: &[&str] = &[
    "diff_job_logs",
    "get_attempt",
    "get_compute_node",
    "get_critical_path",
    "get_failure_handler",
    "get_families",
    "get_file",
    "get_graph",
    "get_job",
    "get_job_logs",
    "get_job_samples",
    "get_job_why",
    "get_metrics",
    "get_openapi",
    "get_resource_requirements",
    "get_scheduled_compute_node",
    "get_slurm_scheduler",
    "get_timeline",
    "get_user_data",
    "get_workflow",
    "get_workflow_spec",
    "get_workflow_status",
    "get_workflow_why",
    "get_forecast",
    "is_workflow_complete",
    "list_actions",
    "list_adjustments",
    "list_compute_nodes",
    "list_events",
    "list_failure_handlers",
    "list_failures",
    "list_family_resources",
    "list_files",
    "list_job_attempts",
    "list_jobs",
    "list_relations",
    "list_resource_requirements",
    "list_results",
    "list_revisions",
    "list_scheduled_compute_nodes",
    "get_allocation_output",
    "list_allocation_uses",
    "list_slurm_schedulers",
    "list_user_data",
    "list_workflows",
    "search_job_logs",
    "stream_events",
    "stream_pulse",
];
/// What only runners and the owner may do.
const RUNNERS: &[&str] = &[
    "begin_submission",
    "claim",
    "complete_action",
    "complete_attempts",
    "create_scheduled_compute_nodes",
    "goodbye",
    "heartbeat",
    "observe_scheduled_compute_nodes",
    "register_compute_node",
    "report_submission",
    "start_attempts",
];
/// What only jobs, actions and the owner may do.
const JOBS: &[&str] = &["spawn_jobs", "update_user_data"];

fn runner_may(operation: &Operation) -> bool {
    [READS, RUNNERS].iter().any(|list| list.contains(&operation.id.as_str()))
}

fn job_may(operation: &Operation) -> bool {
    [READS, JOBS].iter().any(|list| list.contains(&operation.id.as_str()))
}

#[tokio::test]
async fn the_document_says_what_the_table_says() {
    let all = operations();
    for operation in &all {
        assert_eq!(operation.is_for_runners(), runner_may(operation), "{operation:?}");
        assert_eq!(operation.is_for_jobs(), job_may(operation), "{operation:?}");
    }
    for id in [READS, RUNNERS, JOBS].concat() {
        assert!(all.iter().any(|operation| operation.id == id), "there is no {id}");
    }
}

/// Every route with every kind of token, against one table.
#[tokio::test]
async fn each_token_may_do_what_the_table_says_and_nothing_else() {
    for operation in operations().iter().filter(|o| ends(o) && o.id != "create_ui_session") {
        // Each in a world of its own: some of them destroy it.
        let world = World::new().await;
        let ids = &world.first;
        let stranger = if operation.is_open() { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        for token in [None, Some("wrong")] {
            let answer = world.send(operation.request(ids, token)).await;
            assert_eq!(answer.status, stranger, "{operation:?} with {token:?}: {answer:?}");
        }
        let known = [
            ("job", ids.job_token.as_str(), job_may(operation)),
            ("runner", ids.token.as_str(), runner_may(operation)),
            ("owner", OWNER, true),
        ];
        for (who, token, may) in known {
            let answer = world.send(operation.request(ids, Some(token))).await;
            let is_refused = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(is_refused, !may && !operation.is_open(), "{who} {operation:?}: {answer:?}");
            assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{who} {operation:?}");
            answer.check_form();
        }
    }
}

/// The least role for an operation, said another way than in the server's table.
pub fn least_role(operation: &Operation) -> &'static str {
    const OF_ADMINS: [&str; 6] =
        ["/webhooks", "/deliveries", "/tokens", "/server", "/ui_sessions", "/knowledge"];
    const SHARED: [&str; 1] = ["/limits"];
    const GROUPS: [&str; 2] = ["/access_groups", "/access_groups/{id}"];
    let is_read = operation.method == Method::GET;
    let begins = |list: &[&str]| list.iter().any(|begin| operation.path.starts_with(begin));
    match () {
        () if operation.path == "/ui_sessions/current" => "read",
        () if begins(&OF_ADMINS) || operation.path == "/workflows/prune" => "admin",
        () if begins(&SHARED) && !is_read => "admin",
        () if GROUPS.contains(&operation.path.as_str()) && !is_read => "admin",
        () if is_read => "read",
        () => "operate",
    }
}

/// Every route with every role of people.
#[tokio::test]
async fn each_role_may_do_what_the_table_says_and_nothing_else() {
    const ROLES: [&str; 3] = ["read", "operate", "admin"];
    // In which groups another user is, is a matter of walls.
    let is_of_another = |o: &Operation| o.id == "list_user_access_groups";
    let is_tested = |o: &&Operation| ends(o) && !o.is_open() && !is_of_another(o);
    for operation in operations().iter().filter(is_tested) {
        let world = World::new().await;
        let least = ROLES.iter().position(|role| *role == least_role(operation));
        for (rank, role) in ROLES.iter().enumerate() {
            // The owner of the workflow: the walls are for another test.
            let made = json!({"user": "alice", "role": role});
            let made = world.post("/tokens", &made).await.ok();
            let token = made["token"].as_str().unwrap();
            let answer = world.send(operation.request(&world.first, Some(token))).await;
            let is_refused = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(is_refused, Some(rank) < least, "{role} {operation:?}: {answer:?}");
            assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{role} {operation:?}");
            answer.check_form();
        }
    }
}

#[tokio::test]
async fn a_jobs_token_ends_with_its_attempt_and_its_workflow() {
    let world = World::new().await;
    let ids = &world.first;
    let read = format!("/workflows/{}", ids.workflow);
    let ask = async |token: &str| world.call(Method::GET, &read, Some(token), None).await.status;
    assert_eq!(ask(&ids.job_token).await, StatusCode::OK);
    let ended = json!({"runner_id": ids.runner, "items": [completion(&ids.running, 0)]});
    world.post("/attempts/complete", &ended).await.ok();
    assert_eq!(ask(&ids.job_token).await, StatusCode::UNAUTHORIZED);

    let other = &world.second;
    for token in [&other.job_token, &other.token] {
        let known = world.call(Method::GET, "/openapi.json", Some(token), None).await;
        assert_eq!(known.status, StatusCode::OK);
    }
    world.delete(&format!("/workflows/{}?force=true", other.workflow)).await;
    world.delete(&format!("/workflows/{}", other.workflow)).await;
    let gone = world.get(&format!("/workflows/{}", other.workflow)).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let job = world.call(Method::GET, "/openapi.json", Some(&other.job_token), None).await;
    assert_eq!(job.status, StatusCode::UNAUTHORIZED);
    // A runner's token that was just used counts a moment longer without another look.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let runner = world.call(Method::GET, "/openapi.json", Some(&other.token), None).await;
    assert_eq!(runner.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_job_writes_the_user_data_that_it_declares_only() {
    let world = World::new().await;
    let ids = &world.first;
    let path = format!("/user_data/{}", ids.user_data);
    let body = json!({"data": 5});
    let token = Some(ids.job_token.as_str());
    world.call(Method::PUT, &path, token, Some(&body)).await.ok();
    world.database().execute("DELETE FROM job_item WHERE kind = 'output_user_data'", []).unwrap();
    let answer = world.call(Method::PUT, &path, token, Some(&body)).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer:?}");
    assert!(answer.body.to_string().contains("output_user_data"), "{answer:?}");
}

/// A client that knows another runner's public name can neither speak as it nor name processes that
/// this server did not start.
#[tokio::test]
async fn a_runner_is_known_by_a_secret_and_named_by_the_server() {
    let world = World::new().await;
    let ids = &world.first;
    let listed = world.get("/compute_nodes").await.ok().to_string();
    let again = world.post("/compute_nodes", &registration(ids.workflow, "first")).await.ok();
    assert_eq!(again["id"], json!(ids.runner), "a repeat with the same secret is the same runner");
    let tag = again["tag"].as_str().unwrap();
    assert!(!listed.contains("\"key\""), "{listed}");
    let other = world.post("/compute_nodes", &registration(ids.workflow, tag)).await.ok();
    assert_ne!(other["id"], json!(ids.runner), "the public name is not the secret");
    assert_ne!(other["tag"], again["tag"]);
    let kept: String = world
        .database()
        .query_row("SELECT group_concat(register_key) FROM compute_node", [], |row| row.get(0))
        .unwrap();
    assert!(!kept.contains("first"), "the database holds hashes only: {kept}");
    let elsewhere = World::new().await;
    let foreign = elsewhere.post("/compute_nodes", &registration(1, tag)).await.ok();
    assert_ne!(foreign["tag"], again["tag"], "each server names its own runners");
}

#[tokio::test]
async fn nodes_are_asked_for_within_a_bound() {
    let world = World::new().await;
    let ids = &world.first;
    let token = Some(ids.token.as_str());
    let ask = async |key: &str| {
        let body = json!({"workflow_id": ids.workflow, "scheduler": "s", "count": 999, "key": key});
        world.call(Method::POST, "/scheduled_compute_nodes", token, Some(&body)).await
    };
    ask("one").await.ok();
    let refused = ask("two").await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "too_many_allocations"));
}

#[tokio::test]
async fn every_request_without_a_good_token_is_refused() {
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
            let is_health = method == Method::GET || method == Method::HEAD;
            let is_open = operation.is_open() && operation.method == Method::GET && is_health;
            // Who exchanges a code has no token yet; without a code nothing comes of it.
            if operation.path == "/ui_sessions" && method == Method::POST {
                continue;
            }
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
async fn a_runners_token_is_good_for_its_own_workflow_only() {
    let world = World::new().await;
    for operation in operations().iter().filter(|o| ends(o) && o.id != "create_ui_session") {
        let token = Some(world.first.token.as_str());
        let own = world.send(operation.request(&world.first, token)).await;
        let has_way_in = runner_may(operation) || operation.is_open();
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
async fn a_runners_token_sees_its_own_workflow_only_in_lists() {
    let world = World::new().await;
    let token = Some(world.first.token.as_str());
    let lists =
        operations().into_iter().filter(|o| o.method == Method::GET && !o.path.contains('{'));
    let mut seen = 0;
    for operation in lists.filter(|o| o.id.starts_with("list_") && runner_may(o)) {
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

/// For load balancers: without a token, one word, and a status that says it all.
#[tokio::test]
async fn a_server_is_alive_while_it_recovers_and_ready_when_it_serves() {
    let world = World::new().await;
    let ask = async |path: &str| {
        let answer = world.call(Method::GET, path, None, None).await;
        (answer.status, answer.body["status"].as_str().unwrap().to_owned())
    };
    let well = |word: &str| (StatusCode::OK, word.to_owned());
    let ill = |word: &str| (StatusCode::SERVICE_UNAVAILABLE, word.to_owned());
    assert_eq!((ask("/health/live").await, ask("/health/ready").await), (well("ok"), well("ok")));
    world.app.set_open(false);
    assert_eq!(
        (ask("/health/live").await, ask("/health/ready").await),
        (well("ok"), ill("recovering"))
    );
    let metrics = world.get("/metrics").await.ok();
    assert!(metrics.as_str().unwrap().contains("\ntorc_ready 0\n"), "{metrics}");
    world.app.set_open(true);
    assert_eq!(ask("/health/ready").await, well("ok"));
    world.stop.cancel();
    assert_eq!(
        (ask("/health/live").await, ask("/health/ready").await),
        (well("ok"), ill("ending"))
    );
    let request = Request::get("/health").header(header::HOST, "127.0.0.1:1");
    let plain = world.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(plain.ok(), json!({"status": "ok"}), "also where load balancers look");
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
        // None or two: no request by RFC 9112. Another: one for another server.
        let expected = match headers.iter().filter(|(name, _)| *name == "host").count() {
            1 => StatusCode::MISDIRECTED_REQUEST,
            _ => StatusCode::BAD_REQUEST,
        };
        assert_eq!(answer.status, expected, "{headers:?}");
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
