//! The page: its shell, its sessions, and what it is shown.

use crate::world::{OWNER, World, completion};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use torc_model::words;

fn browser(method: Method, uri: &str, token: Option<&str>) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::HOST, "localhost:8765")
        .header("sec-fetch-mode", "cors")
        .header("sec-fetch-site", "same-origin");
    if let Some(token) = token {
        request = request.header("x-torc-token", token);
    }
    request.body(Body::empty()).unwrap()
}

/// A token of the page with this scope, by way of a code.
async fn session(world: &World, scope: &str) -> String {
    let code = world.post("/ui_codes", &json!({"scope": scope, "label": "test"})).await.ok();
    let body = json!({"code": code["code"]});
    let made = world.call(Method::POST, "/ui_sessions", None, Some(&body)).await.ok();
    assert_eq!(made["session"]["scope"], scope);
    let again = world.call(Method::POST, "/ui_sessions", None, Some(&body)).await;
    assert_eq!((again.status, again.code()), (StatusCode::UNAUTHORIZED, "code_used"));
    made["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_shell_is_open_holds_no_data_and_works_below_a_prefix() {
    let world = World::new().await;
    for path in ["/ui/", "/ui/w/1/jobs", "/node/h1/99/ui/w/1/jobs"] {
        let answer = world.send(browser(Method::GET, path, None)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert_eq!(answer.headers["referrer-policy"], "no-referrer");
        assert!(!answer.headers.contains_key(header::SET_COOKIE));
        let text = answer.body.as_str().unwrap();
        let up = if path == "/ui/" { "" } else { "../../" };
        assert!(text.contains(&format!("src=\"{up}page.js\"")), "{text}");
        assert!(!text.contains("first"), "the shell names a workflow");
    }
    let script = world.send(browser(Method::GET, "/ui/page.js", None)).await;
    assert_eq!(script.headers[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert!(!script.headers.contains_key(header::CONTENT_ENCODING));
    let size = script.body.as_str().unwrap().len();
    let mut packed = browser(Method::GET, "/ui/page.js", None);
    packed.headers_mut().insert(header::ACCEPT_ENCODING, "gzip, deflate, br".parse().unwrap());
    let packed = world.front.answer(packed).await;
    assert_eq!(packed.headers()[header::CONTENT_ENCODING], "deflate");
    assert_eq!(packed.headers()[header::VARY], "accept-encoding");
    let bytes = http_body_util::BodyExt::collect(packed.into_body()).await.unwrap().to_bytes();
    assert!(bytes.len() * 2 < size, "{} of {size} bytes", bytes.len());
    let tag = script.headers[header::ETAG].clone();
    let mut again = browser(Method::GET, "/ui/page.js", None);
    again.headers_mut().insert(header::IF_NONE_MATCH, tag);
    assert_eq!(world.send(again).await.status, StatusCode::NOT_MODIFIED);
    let gone = world.send(browser(Method::GET, "/ui/gone.js", None)).await;
    assert_eq!(gone.status, StatusCode::UNAUTHORIZED);
    let mut foreign = browser(Method::GET, "/ui/", None);
    foreign.headers_mut().insert(header::HOST, "evil.example".parse().unwrap());
    assert_eq!(world.send(foreign).await.status, StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn a_session_reads_and_only_one_that_may_act_acts() {
    let world = World::new().await;
    let (read, act) = (session(&world, "read").await, session(&world, "act").await);
    let api = "/torc-service/v1";
    for token in [&read, &act] {
        let jobs = world.send(browser(Method::GET, &format!("{api}/jobs"), Some(token))).await;
        assert_eq!(jobs.headers[header::CACHE_CONTROL], "no-store");
        assert!(jobs.ok()["total_count"].as_i64().unwrap() >= 6);
        for hidden in ["/webhooks", "/ui_sessions", "/reservations"] {
            let answer =
                world.send(browser(Method::GET, &format!("{api}{hidden}"), Some(token))).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{hidden}");
        }
        let own = world
            .send(browser(Method::GET, &format!("{api}/ui_sessions/current"), Some(token)))
            .await;
        assert_eq!(own.ok()["label"], "test");
    }
    let body = json!({"workflow_id": world.first.workflow, "where": "status:failed",
                      "action": "retry", "dry_run": true});
    let call =
        async |token: &str| world.call(Method::POST, "/jobs/act", Some(token), Some(&body)).await;
    assert_eq!(call(&read).await.status, StatusCode::FORBIDDEN);
    assert_eq!(call(&act).await.ok()["done"], 1);
    for path in ["/workflows", "/ui_codes", "/jobs/cancel"] {
        let answer = world.call(Method::POST, path, Some(&act), Some(&json!({}))).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    // A foreign page has no use for a token that it got hold of.
    let mut foreign = browser(Method::GET, &format!("{api}/jobs"), Some(&act));
    foreign.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
    assert_eq!(world.send(foreign).await.status, StatusCode::FORBIDDEN);
    let mut foreign = browser(Method::GET, &format!("{api}/jobs"), Some(&act));
    foreign.headers_mut().insert(header::ORIGIN, "http://evil.example".parse().unwrap());
    assert_eq!(world.send(foreign).await.status, StatusCode::FORBIDDEN);

    let listed = world.get("/ui_sessions").await.ok();
    assert_eq!(listed["total_count"], 2);
    let id = &listed["items"][0]["id"];
    world.delete(&format!("/ui_sessions/{id}")).await.ok();
    let after = world.send(browser(Method::GET, &format!("{api}/jobs"), Some(&read))).await;
    assert_eq!(after.status, StatusCode::UNAUTHORIZED, "the session was ended");
    let own = browser(Method::DELETE, &format!("{api}/ui_sessions/current"), Some(&act));
    world.send(own).await.ok();
    let after = world.send(browser(Method::GET, &format!("{api}/jobs"), Some(&act))).await;
    assert_eq!(after.status, StatusCode::UNAUTHORIZED, "it ended itself");
    let text = serde_json::to_string(
        &world
            .database()
            .query_row("SELECT group_concat(hash) FROM ui_session", [], |row| {
                row.get::<_, Option<String>>(0)
            })
            .unwrap(),
    )
    .unwrap();
    assert!(!text.contains(&act) && !text.contains(&read), "tokens are stored as hashes only");
}

#[tokio::test]
async fn a_session_and_its_streams_end_with_the_token_that_made_its_link() {
    let world = World::new().await;
    let workflow = world.first.workflow;
    let new_token = async |more: Value| {
        let mut body = json!({"user": "mo", "role": "admin"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = world.post("/tokens", &body).await.ok();
        (made["token"].as_str().unwrap().to_owned(), made["id"].as_i64().unwrap())
    };
    let new_code = async |token: &str| {
        let body = json!({"scope": "act"});
        let made = world.call(Method::POST, "/ui_codes", Some(token), Some(&body)).await.ok();
        json!({"code": made["code"]})
    };
    let exchanged = async |code: Value| {
        let made = world.call(Method::POST, "/ui_sessions", None, Some(&code)).await.ok();
        made["token"].as_str().unwrap().to_owned()
    };
    let is_good = async |page: &str| {
        let answer = world.call(Method::GET, "/jobs", Some(page), None).await;
        assert!(matches!(answer.status, StatusCode::OK | StatusCode::UNAUTHORIZED), "{answer:?}");
        answer.status == StatusCode::OK
    };

    let (token, id) = new_token(json!({})).await;
    let page = exchanged(new_code(&token).await).await;
    assert!(is_good(&page).await);
    let path = format!("/workflows/{workflow}/pulse");
    let request = crate::world::request(Method::GET, &path, Some(&page), None);
    let mut pulse = world.front.answer(request).await.into_body().into_data_stream();
    pulse.next().await.unwrap().unwrap();
    // Who acts by the page is named like who acts by the token.
    let hold = json!({"workflow_id": workflow, "where": "", "action": "hold"});
    world.call(Method::POST, "/jobs/act", Some(&page), Some(&hold)).await.ok();
    let log = world.get("/server/audit?limit=1").await.ok();
    assert_eq!(log["items"][0]["user"], "mo", "{log}");

    let waiting = new_code(&token).await;
    let rotated = world.post(&format!("/tokens/{id}/rotate"), &json!({})).await.ok();
    assert!(!is_good(&page).await, "another secret ends the sessions of the old one");
    // Something happens, so that a frame is due.
    let release = json!({"workflow_id": workflow, "where": "", "action": "release"});
    world.post("/jobs/act", &release).await.ok();
    let rest = async {
        while let Some(chunk) = pulse.next().await {
            assert!(!chunk.unwrap().starts_with(b"event: pulse"));
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), rest)
        .await
        .expect("the end of the pulse");
    let late = world.call(Method::POST, "/ui_sessions", None, Some(&waiting)).await;
    assert_eq!((late.status, late.code()), (StatusCode::UNAUTHORIZED, "code_used"));

    let page = exchanged(new_code(rotated["token"].as_str().unwrap()).await).await;
    assert!(is_good(&page).await);
    assert_eq!(world.get("/ui_sessions").await.ok()["total_count"], 1, "the ended one is not told");
    world.delete(&format!("/tokens/{id}")).await.ok();
    assert!(!is_good(&page).await, "its token was revoked");
    assert_eq!(world.get("/ui_sessions").await.ok()["total_count"], 0);

    let (token, _) = new_token(json!({"expires_seconds": 1})).await;
    let page = exchanged(new_code(&token).await).await;
    let begin = std::time::Instant::now();
    while is_good(&page).await {
        assert!(begin.elapsed().as_secs() < 20, "it outlives its token");
        tokio::task::yield_now().await;
    }

    // Sessions of the server's own token stay.
    let own = session(&world, "read").await;
    assert!(is_good(&own).await);
}

fn swept(name: &str) -> Value {
    json!({
        "name": name,
        "jobs": [
            {"name": "prep", "command": "true"},
            {"name": "train_{i}", "command": "false", "depends_on": ["prep"], "parameters": {"i": "1:30"}},
            {"name": "report", "command": "true", "depends_on_regexes": ["train_.*"]}
        ]
    })
}

async fn sweep(world: &World) -> i64 {
    sweep_by(world).await.0
}

/// The workflow and its runner.
async fn sweep_by(world: &World) -> (i64, i64) {
    let created =
        world.post("/workflows", &json!({"spec": swept("sweep"), "initialize": true})).await.ok();
    let id = created["id"].as_i64().unwrap();
    let runner = world.post("/compute_nodes", &crate::world::registration(id, "r")).await.ok();
    let runner = runner["id"].as_i64().unwrap();
    for (key, code) in [("1", 0), ("2", 1)] {
        work(world, id, runner, key, code).await;
    }
    (id, runner)
}

/// What a runner gets ends with this code.
async fn work(world: &World, id: i64, runner: i64, key: &str, code: i64) {
    let claim = crate::world::claim(runner, key);
    let claimed = world.post(&format!("/workflows/{id}/claim"), &claim).await.ok();
    let attempts = claimed["attempts"].as_array().unwrap().clone();
    let ends: Vec<Value> = attempts.iter().map(|a| completion(a, code)).collect();
    let starts: Vec<Value> = attempts
        .iter()
        .map(|a| json!({"id": a["id"], "token": a["token"], "pid": 5, "at_ms": 1}))
        .collect();
    world.post("/attempts/start", &json!({"runner_id": runner, "items": starts})).await.ok();
    world.post("/attempts/complete", &json!({"runner_id": runner, "items": ends})).await.ok();
}

#[tokio::test]
async fn jobs_are_seen_by_family_from_memory_and_from_the_database() {
    let world = World::new().await;
    let id = sweep(&world).await;
    let view = world.get(&format!("/workflows/{id}/families")).await.ok();
    let families = view["families"].as_array().unwrap();
    let names: Vec<&str> = families.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["prep", "train", "report"]);
    assert_eq!(families[0]["counts"], json!({"completed": 1}));
    assert_eq!(families[1]["counts"], json!({"failed": 4, "ready": 26}));
    assert_eq!(families[2]["counts"], json!({"canceled": 1}));
    assert_eq!(view["total"], 32);
    assert_eq!(
        view["pace"]["ended"].as_array().unwrap().iter().filter_map(Value::as_i64).sum::<i64>(),
        5
    );
    // The same as the database counts it.
    let sql = "SELECT count(*) FROM job JOIN family f ON f.workflow_id = job.workflow_id AND f.number = job.family
               WHERE job.workflow_id = ?1 AND f.name = 'train' AND status = 6";
    let failed: i64 = world.database().query_row(sql, [id], |row| row.get(0)).unwrap();
    assert_eq!(failed, 4);

    // Only what a filter finds; the whole stays what it is.
    let some =
        world.get(&format!("/workflows/{id}/families?where=-status:ready%20-name:prep")).await.ok();
    assert_eq!(some["families"][1]["counts"], json!({"failed": 4}), "{some}");
    assert_eq!((&some["families"][0]["total"], &some["total"]), (&json!(0), &json!(5)));
    // From the counts that are there, or from rows where a name decides: `-name:none` holds for all.
    for filter in [
        "-status:completed",
        "status:bad",
        "family:train%20-status:ready",
        "-family:prep",
        "family:none",
    ] {
        let counted = world.get(&format!("/workflows/{id}/families?where={filter}")).await.ok();
        let rows = format!("/workflows/{id}/families?where={filter}%20-name:none");
        let rows = world.get(&rows).await.ok();
        assert_eq!(counted["families"], rows["families"], "{filter}");
        let listed = world.get(&format!("/jobs?workflow_id={id}&where={filter}")).await.ok();
        assert_eq!(counted["total"], listed["total_count"], "{filter}");
    }
    let wrong = world.get(&format!("/workflows/{id}/families?where=status:faild")).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);

    let graph = world.get(&format!("/workflows/{id}/graph")).await.ok();
    let edges: Vec<String> = graph["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| format!("{}-{} {}", e["from"], e["to"], e["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(edges, ["0-1 all", "1-2 all"]);
    assert_eq!(graph["nodes"][2]["rank"], 2);
    let job = world.get(&format!("/jobs?workflow_id={id}&name=train_7")).await.ok();
    let job = job["items"][0]["id"].as_i64().unwrap();
    let near = world.get(&format!("/workflows/{id}/graph?focus={job}&hops=1")).await.ok();
    assert_eq!(near["nodes"].as_array().unwrap().len(), 3);
    let graph = async |query: &str| world.get(&format!("/workflows/{id}/graph?{query}")).await;
    let ends =
        world.get(&format!("/jobs?workflow_id={id}&where=name~%5E(prep|report)%24")).await.ok();
    let [first, last] = [0, 1].map(|at| ends["items"][at]["id"].as_i64().unwrap());
    for between in [format!("focus={first}&to={last}"), format!("focus={last}&to={first}")] {
        let ways = graph(&between).await.ok();
        assert_eq!(ways["nodes"].as_array().unwrap().len(), 32, "{between}");
    }
    let apart = graph(&format!("focus={job}&to={}", job + 1)).await.ok();
    assert_eq!(apart["nodes"].as_array().unwrap().len(), 2, "neither waits for the other");
    assert_eq!(apart["edges"], json!([]));
    let by_prefix = graph("group=prefix").await.ok();
    assert_eq!(
        (&by_prefix["group"], &by_prefix["nodes"][1]["where"]),
        (&json!("prefix"), &json!("name~^train"))
    );
    assert_eq!(by_prefix["nodes"][1]["counts"]["failed"], 4);
    let tens = graph("group=pattern&pattern=%5Etrain_(.).%2B%24").await.ok();
    let filter = tens["nodes"][10]["where"].as_str().unwrap();
    assert_eq!(filter, "name~^train_1.+$");
    let query =
        format!("/jobs?workflow_id={id}&where={}", filter.replace('+', "%2B").replace('^', "%5E"));
    assert_eq!(world.get(&query).await.ok()["total_count"], tens["nodes"][10]["total"]);
    let all = graph("group=job").await.ok();
    assert_eq!(all["nodes"].as_array().unwrap().len(), 32);
    let opened = graph("open=1").await.ok();
    assert_eq!(opened["nodes"].as_array().unwrap().len(), 32, "its jobs and what is next to them");
    for (wrong, told) in [
        ("group=famly", "known: family, prefix, pattern, job"),
        ("group=pattern&pattern=x", "0 captures; it needs one"),
        ("group=pattern&pattern=(", "unclosed group"),
        ("pattern=(x)", "`pattern` is for `group=pattern`"),
        ("open=3", "no family 3"),
        ("to=1", "`to` needs `focus`"),
        ("open=0&offset=-1", "begins with 0"),
    ] {
        let answer = graph(wrong).await;
        assert!(answer.status.is_client_error(), "{wrong}");
        assert!(words::has(answer.body["error"]["message"].as_str().unwrap(), told), "{answer:?}");
    }
    let path = world.get(&format!("/workflows/{id}/critical_path")).await.ok();
    assert_eq!(path["seconds"], 1.0);
    let rows = world.get(&format!("/workflows/{id}/resources")).await.ok();
    assert_eq!(rows["items"][0]["seconds_median"], 0.5);
}

#[tokio::test]
async fn failures_are_grouped_and_their_filter_finds_them() {
    let world = World::new().await;
    let id = sweep(&world).await;
    let groups = world.get(&format!("/workflows/{id}/failures")).await.ok();
    let group = &groups["items"][0];
    assert_eq!(
        (&group["family"], &group["jobs"], &group["blocked"]),
        (&json!("train"), &json!(4), &json!(1))
    );
    assert_eq!(group["nodes"], json!([["here", 4]]));
    assert_eq!((&group["retries"], &group["raised"]), (&json!(0), &json!([])));
    let filter = group["where"].as_str().unwrap();
    let query = format!("/jobs?workflow_id={id}&where={}", filter.replace(' ', "%20"));
    assert_eq!(world.get(&query).await.ok()["total_count"], 4);

    let act = |dry_run: bool, action: &str| json!({"workflow_id": id, "where": filter, "action": action, "dry_run": dry_run});
    let plan = world.post("/jobs/act", &act(true, "retry")).await.ok();
    assert_eq!(
        (&plan["matched"], &plan["done"], &plan["others"]),
        (&json!(4), &json!(4), &json!(1))
    );
    assert_eq!(
        plan["command"],
        format!(
            "torc jobs act retry {id} --where 'status:failed,terminated,pending_failed family:train cause:exit exit:1'"
        )
    );
    assert_eq!(world.get(&query).await.ok()["total_count"], 4, "a dry run changes nothing");
    let done = world.post("/jobs/act", &act(false, "retry")).await.ok();
    assert_eq!((&done["done"], &done["others"]), (&plan["done"], &plan["others"]));
    assert_eq!(world.get(&query).await.ok()["total_count"], 0);
    let held = json!({"workflow_id": id, "where": "name~_(1|2)$", "action": "hold"});
    assert_eq!(world.post("/jobs/act", &held).await.ok()["done"], 2);
    let again = world.post("/jobs/act", &held).await.ok();
    assert_eq!((&again["done"], &again["skipped"]), (&json!(0), &json!([["already held", 2]])));
    let wrong = json!({"workflow_id": id, "where": "", "action": "memory", "value": "much"});
    assert_eq!(world.post("/jobs/act", &wrong).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let wrong = json!({"workflow_id": id, "where": "status:faild", "action": "hold"});
    let refused = world.post("/jobs/act", &wrong).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(words::has(refused.body["error"]["message"].as_str().unwrap(), "known: uninitialized"));
    let cancel = json!({"workflow_id": id, "where": "family:train", "action": "cancel"});
    let canceled = world.post("/jobs/act", &cancel).await.ok();
    assert_eq!((&canceled["done"], &canceled["others"]), (&json!(30), &json!(1)));
}

#[tokio::test]
async fn a_filter_finds_the_same_jobs_page_by_page() {
    let world = World::new().await;
    let id = sweep(&world).await;
    let count = async |filter: &str| {
        let path = format!("/jobs?workflow_id={id}&where={filter}");
        world.get(&path).await.ok()["total_count"].as_i64().unwrap()
    };
    for (filter, expected) in [
        ("train", 30),
        ("-train", 2),
        ("family:train%20status:failed", 4),
        ("status:bad", 5),
        ("-status:bad", 27),
        ("name~_[12]$", 2),
        ("exit:1", 4),
        ("-exit:1", 28),
        ("node:here", 5),
        ("time%3E0.4", 5),
        ("time%3E1h", 0),
        ("attempt%3E1", 0),
        ("held:no", 32),
        ("name:prep,report", 2),
        ("cause:exit", 4),
    ] {
        assert_eq!(count(filter).await, expected, "{filter}");
    }
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let path =
            format!("/jobs?workflow_id={id}&where=train&limit=7&after={after}&include_last=true");
        let page = world.get(&path).await.ok();
        let items = page["items"].as_array().unwrap().clone();
        let Some(last) = items.last() else { break };
        after = last["id"].as_i64().unwrap();
        seen.extend(items.iter().map(|job| job["id"].as_i64().unwrap()));
        assert!(items.iter().all(|job| job["family"] == "train"));
    }
    assert_eq!(seen.len(), 30);
    assert!(seen.is_sorted());
    let refused = world.get(&format!("/jobs?workflow_id={id}&where=x&after=1&sort_by=name")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_pulse_beats_when_something_happens_and_no_faster() {
    let world = World::new().await;
    let id = sweep(&world).await;
    let request =
        crate::world::request(Method::GET, &format!("/workflows/{id}/pulse"), Some(OWNER), None);
    let mut stream = world.front.answer(request).await.into_body().into_data_stream();
    let mut next = async || {
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(30), stream.next()).await;
        let bytes = chunk.expect("a frame").unwrap().unwrap();
        assert!(bytes.len() <= 8 << 10);
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
        serde_json::from_str::<Value>(&data).unwrap()
    };
    let first = next().await;
    assert_eq!(first["counts"][6], 4);
    assert_eq!(first["families"][1], json!([1, [0, 0, 26, 0, 0, 0, 4]]));
    let begin = std::time::Instant::now();
    for job in 0..20 {
        let hold = json!({"workflow_id": id, "where": format!("name:train_{}", job + 10), "action": "cancel"});
        world.post("/jobs/act", &hold).await.ok();
    }
    let mut frames = 0;
    loop {
        frames += 1;
        let frame = next().await;
        if frame["counts"][7] == 21 {
            break;
        }
    }
    let most = begin.elapsed().as_millis() / 500 + 2;
    assert!(frames <= most, "{frames} frames in {:?}", begin.elapsed());
}

#[tokio::test]
async fn the_pulse_tells_of_new_failures_and_of_the_jobs_that_are_asked_for() {
    let world = World::new().await;
    let (id, runner) = sweep_by(&world).await;
    let job = world.get(&format!("/jobs?workflow_id={id}&where=name:train_20")).await.ok();
    let job = job["items"][0]["id"].as_i64().unwrap();
    let many: Vec<String> = (0..201).map(|id| id.to_string()).collect();
    for wrong in ["x".to_owned(), many.join(",")] {
        let refused = world.get(&format!("/workflows/{id}/pulse?jobs={wrong}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
    }
    // A job of another workflow is not told of.
    let path = format!("/workflows/{id}/pulse?jobs={job},{}", world.first.running_job);
    let request = crate::world::request(Method::GET, &path, Some(OWNER), None);
    let mut stream = world.front.answer(request).await.into_body().into_data_stream();
    let mut next = async || {
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(30), stream.next()).await;
        let text = String::from_utf8(chunk.expect("a frame").unwrap().unwrap().to_vec()).unwrap();
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
        serde_json::from_str::<Value>(&data).unwrap()
    };
    let first = next().await;
    assert_eq!(first["jobs"], json!([[job, 2, 1]]));
    assert!(first["failures"].is_null(), "they were there before: {first}");
    work(&world, id, runner, "3", 7).await;
    let cancel = json!({"workflow_id": id, "where": "name:train_20", "action": "cancel"});
    world.post("/jobs/act", &cancel).await.ok();
    let (mut told, mut failures) = (Vec::new(), Vec::new());
    while told.is_empty() || failures.is_empty() {
        let frame = next().await;
        told.extend(frame["jobs"].as_array().into_iter().flatten().cloned());
        failures.extend(frame["failures"].as_array().into_iter().flatten().cloned());
    }
    assert_eq!(told, [json!([job, 7, 1])]);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!((&failures[0]["family"], &failures[0]["jobs"]), (&json!("train"), &json!(4)));
}

#[tokio::test]
async fn the_timeline_has_a_bar_for_every_attempt_that_started() {
    let world = World::new().await;
    let id = sweep(&world).await;
    let request =
        crate::world::request(Method::GET, &format!("/workflows/{id}/timeline"), Some(OWNER), None);
    let answer = world.front.answer(request).await;
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!(&bytes[..4], b"TTL1");
    assert_eq!(u32::from_le_bytes(bytes[4..8].try_into().unwrap()), 5);
    let names = u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
    let names: Value = serde_json::from_slice(&bytes[bytes.len() - names..]).unwrap();
    assert_eq!(names["runners"][0]["host"], "here");
    for wrong in
        ["rows=job", "from_ms=1", "rows=runner&from_ms=1", "rows=family&from_ms=5&until_ms=4"]
    {
        let refused = world.get(&format!("/workflows/{id}/timeline?{wrong}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}: {refused:?}");
    }
    let looked = world.get("/files?look=true").await;
    assert_eq!(looked.status, StatusCode::BAD_REQUEST, "{looked:?}");
}

#[tokio::test]
async fn a_forecast_with_failures_tried_again_has_more_to_do() {
    let world = World::new().await;
    let id = sweep(&world).await;
    let plain = world.get(&format!("/workflows/{id}/forecast")).await.ok();
    let again = world.get(&format!("/workflows/{id}/forecast?recover=true")).await.ok();
    // 26 were left; the 4 that failed and the one canceled behind them come on top.
    assert_eq!((&plain["jobs"], &again["jobs"]), (&json!(26), &json!(31)));
    assert_eq!(again["is_again"], false);
    let jobs = world.get(&format!("/jobs?workflow_id={id}&where=status:failed")).await.ok();
    assert_eq!(jobs["total_count"], 4, "nothing was changed");
}

#[tokio::test]
async fn an_allocation_that_waits_is_given_up_and_told_of() {
    let world = World::new().await;
    let spec = json!({
        "name": "w",
        "slurm_schedulers": [{"name": "short", "account": "a", "nodes": 2, "walltime": "01:00:00"}],
        "jobs": [{"name": "a", "command": "true", "scheduler": "short"}]
    });
    let created = world.post("/workflows", &json!({"spec": spec, "initialize": true})).await.ok();
    let id = created["id"].as_i64().unwrap();
    let (read, act) = (session(&world, "read").await, session(&world, "act").await);
    let asked = json!({"workflow_id": id, "scheduler": "short", "count": 1, "key": "k"});
    let nodes = "/scheduled_compute_nodes";
    let refused = world.call(Method::POST, nodes, Some(&read), Some(&asked)).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let made = world.call(Method::POST, nodes, Some(&act), Some(&asked)).await.ok();
    let allocation = made["items"][0]["id"].as_i64().unwrap();
    let queue = world.get(&format!("/workflows/{id}/families")).await.ok()["queue"].clone();
    assert_eq!(queue["allocations"], 1);
    let uses = world.get(&format!("/workflows/{id}/allocation_uses")).await.ok();
    assert_eq!(
        (&uses["items"][0]["nodes"], &uses["items"][0]["walltime_seconds"]),
        (&json!(2), &json!(3600))
    );
    let nothing = world.get(&format!("{nodes}/{allocation}/output")).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
    let wrong = world.get(&format!("{nodes}/{allocation}/output?stream=both")).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    let cancel = format!("{nodes}/{allocation}/cancel");
    for _ in 0..2 {
        let gone = world.call(Method::POST, &cancel, Some(&act), Some(&json!({}))).await.ok();
        assert_eq!((&gone["status"], &gone["ended_as"]), (&json!("complete"), &json!("not_sent")));
    }
    assert_eq!(world.get(&format!("/workflows/{id}/families")).await.ok().get("queue"), None);
    let unknown =
        world.call(Method::POST, &format!("{nodes}/999/cancel"), None, Some(&json!({}))).await;
    assert!(unknown.status.is_client_error());
}
