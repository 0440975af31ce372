//! Walls between users: every route with every role on both sides of the wall.

use crate::access::least_role;
use crate::world::{Answer, OWNER, Operation, World, operations, request, spec};
use axum::http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use torc_model::words;

/// Where a person stands to the workflow of alice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    /// It is theirs.
    Own,
    /// They are in a group that it is shared with.
    Member,
    /// It is another's.
    Outside,
    /// Their token is good for it only, although it is another's.
    ForIt,
    /// Their token is good for the workflow of bob only, although alice's is their own.
    ForAnother,
    /// Their token is good for its group only, although they are not in it.
    ForItsGroup,
}

const STANDS: [Stand; 6] = [
    Stand::Own,
    Stand::Member,
    Stand::Outside,
    Stand::ForIt,
    Stand::ForAnother,
    Stand::ForItsGroup,
];

/// What an operation is about, said another way than in the server's table: by its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// One thing of a workflow.
    One,
    /// Only its owner may.
    Own,
    /// All things of a kind.
    List,
    /// Groups.
    Groups,
    /// Pool runners: of a user, and not of a workflow.
    Pools,
    /// Neither.
    Server,
}

fn about(operation: &Operation) -> About {
    const NOUNS: [&str; 14] = [
        "notifications",
        "workflows",
        "jobs",
        "attempts",
        "compute_nodes",
        "actions",
        "files",
        "user_data",
        "resource_requirements",
        "failure_handlers",
        "slurm_schedulers",
        "scheduled_compute_nodes",
        "classifications",
        "reservations",
    ];
    const ROOT: [&str; 3] = ["openapi.json", "metrics", "limits"];
    let parts: Vec<&str> = operation.path.trim_start_matches('/').split('/').collect();
    let is_read = operation.method == Method::GET;
    match parts.as_slice() {
        ["workflows", "{id}"] if operation.method == Method::DELETE => About::Own,
        ["workflows", "{id}", "access_groups", ..] if !is_read => About::Own,
        ["access_groups" | "users", ..] => About::Groups,
        ["pool_runners", ..] => About::Pools,
        ["workflows"] if !is_read => About::Server,
        ["workflows", "prune" | "import"] => About::Server,
        ["results"] => About::List,
        [noun] if NOUNS.contains(noun) && is_read => About::List,
        [noun, ..] if NOUNS.contains(noun) => About::One,
        [noun, ..] => {
            let shared = ["tokens", "webhooks", "deliveries", "server", "knowledge"];
            let page = ["ui_codes", "ui_sessions"];
            let is_known = [&ROOT[..], &shared, &page].iter().any(|list| list.contains(noun));
            assert!(is_known, "{operation:?}: which side of the wall is it on?");
            About::Server
        }
        [] => unreachable!("a path has a part"),
    }
}

/// A world in which alice shares her workflow with a group of carol, with one of everything in it.
async fn world() -> World {
    let mut world = World::new().await;
    let group = world.post("/access_groups", &json!({"name": "team"})).await.ok();
    let group = group["id"].as_i64().unwrap();
    let members = format!("/access_groups/{group}/members");
    for (user, role) in [("carol", "member"), ("alice", "admin")] {
        world.post(&members, &json!({"user_name": user, "role": role})).await.ok();
    }
    let path = format!("/workflows/{}/access_groups/{group}", world.first.workflow);
    world.put(&path, &json!({})).await.ok();
    for ids in [&world.first, &world.second] {
        let insert = "INSERT INTO classification (workflow_id, job_id, run_id, attempt_id, action, state, made_by,
            evidence, changes, fingerprint, family, created_ms, follows)
            VALUES (?1, ?2, 1, 1, 'retry', 'held', 'test', '[]', '[]', 'f', 'fam', 1, ?3)";
        world.database().execute(insert, [ids.workflow, ids.job, ids.attempt]).unwrap();
    }
    let scope = format!("workflow:{}", world.first.workflow);
    let reserve = json!({"scope": scope, "reserved_by": "x", "ttl_seconds": 60});
    let reserved = world.post("/reservations", &reserve).await.ok();
    let release = json!({"token": reserved["token"]});
    let id = reserved["id"].as_i64().unwrap();
    // Ended, so that it pauses nothing; it is still there to be asked for.
    world.post(&format!("/reservations/{id}/release"), &release).await.ok();
    let notify = world.post("/notifications", &world.first.body("create_notification")).await.ok();
    world.first.notification = notify["id"].as_i64().unwrap();
    // Of the server as a whole: not for those who have walls before them.
    let all = json!({"kind": "ntfy", "target": "https://ntfy.sh/all"});
    world.post("/notifications", &all).await.ok();
    let alice = world.post("/tokens", &json!({"user": "alice", "role": "operate"})).await.ok();
    let pool = json!({"key": "p", "hostname": "n", "pid": 1, "capacity": {"num_cpus": 1}});
    let token = alice["token"].as_str();
    world.call(Method::POST, "/pool_runners", token, Some(&pool)).await.ok();
    (world.first.reservation, world.first.group) = (id, group);
    (world.first.classification, world.second.classification) = (1, 2);
    world
}

async fn token(world: &World, stand: Stand, role: &str) -> String {
    let made = match stand {
        Stand::Own => json!({"user": "alice", "role": role}),
        Stand::Member => json!({"user": "carol", "role": role}),
        Stand::Outside => json!({"user": "dave", "role": role}),
        Stand::ForIt => {
            json!({"user": "dave", "role": role, "workflow_id": world.first.workflow})
        }
        Stand::ForAnother => {
            json!({"user": "alice", "role": role, "workflow_id": world.second.workflow})
        }
        Stand::ForItsGroup => {
            json!({"user": "dave", "role": role, "access_group_id": world.first.group})
        }
    };
    let made = world.post("/tokens", &made).await.ok();
    made["token"].as_str().unwrap().to_owned()
}

fn rows(answer: &Answer) -> Vec<Value> {
    answer.body["items"].as_array().unwrap_or_else(|| panic!("{answer:?}")).clone()
}

/// What must come back, given what the server's owner got for the same request.
fn expect(operation: &Operation, stand: Stand, role: &str, answer: &Answer, owner: &Answer) {
    let what = format!("{role} {stand:?} {operation:?}: {answer:?} where the owner gets {owner:?}");
    let refused = |answer: &Answer| {
        let hidden = [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN];
        assert!(hidden.contains(&answer.status), "{what}");
        assert!(!answer.body.to_string().contains("\"first\""), "it tells: {what}");
    };
    let rank = |role: &str| ["read", "operate", "admin"].iter().position(|r| *r == role);
    assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{what}");
    answer.check_form();
    if rank(role) < rank(least_role(operation)) {
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{what}");
        return;
    }
    let sees = !matches!(stand, Stand::Outside | Stand::ForAnother);
    if operation.id == "find_earlier_workflow" {
        assert!(owner.body["workflow"].is_object(), "nothing to be seen: {what}");
        assert_eq!(answer.status, StatusCode::OK, "{what}");
        assert_eq!(answer.body["workflow"].is_object(), sees, "{what}");
        return;
    }
    match about(operation) {
        About::One if sees => assert_eq!(answer.status, owner.status, "{what}"),
        About::One => refused(answer),
        About::Own if stand == Stand::Own => assert_eq!(answer.status, owner.status, "{what}"),
        About::Own => refused(answer),
        About::List => {
            assert_eq!(answer.status, StatusCode::OK, "{what}");
            let key = if operation.id == "list_workflows" { "id" } else { "workflow_id" };
            let is_first = |row: &Value| match operation.id.as_str() {
                "list_reservations" => row["scope"] == json!("workflow:1"),
                _ => row[key] == json!(1),
            };
            let of_first = ["list_reservations", "list_notifications"].contains(&&*operation.id);
            let all = rows(answer);
            assert!(rows(owner).iter().any(&is_first), "nothing to be seen: {what}");
            assert_eq!(all.iter().any(&is_first), sees, "{what}");
            let foreign = all.iter().any(|row| !is_first(row));
            let sees_another = stand == Stand::ForAnother && !of_first;
            assert_eq!(foreign, sees_another, "{what}");
        }
        About::Groups => match (stand, operation.id.as_str()) {
            (Stand::Outside, "list_access_groups") => assert_eq!(rows(answer).len(), 0, "{what}"),
            (Stand::Own, "list_user_access_groups")
            | (Stand::Member, "add_access_group_member") => {
                assert_eq!(answer.status, StatusCode::FORBIDDEN, "{what}");
            }
            (Stand::Own | Stand::Member, _) => assert_eq!(answer.status, owner.status, "{what}"),
            (Stand::Outside | Stand::ForIt | Stand::ForAnother | Stand::ForItsGroup, _) => {
                refused(answer);
            }
        },
        About::Pools => {
            let is_narrow = matches!(stand, Stand::ForIt | Stand::ForAnother);
            match operation.id.as_str() {
                _ if is_narrow => assert_eq!(answer.status, StatusCode::FORBIDDEN, "{what}"),
                "register_pool_runner" => assert!(answer.status.is_success(), "{what}"),
                "list_pool_runners" => {
                    assert_eq!(rows(owner).len(), 1, "nothing to be seen: {what}");
                    assert_eq!(rows(answer).len(), usize::from(stand == Stand::Own), "{what}");
                }
                _ if stand == Stand::Own => assert_eq!(answer.status, owner.status, "{what}"),
                _ => refused(answer),
            }
        }
        About::Server if ["create_workflow", "import_workflow"].contains(&&*operation.id) => {
            let may = !matches!(stand, Stand::ForIt | Stand::ForAnother);
            assert_eq!(answer.status.is_success(), may, "{what}");
        }
        About::Server => assert_eq!(answer.status, owner.status, "{what}"),
    }
}

/// Streams do not end by themselves; they have a test of their own.
fn is_tested(operation: &&Operation) -> bool {
    !operation.is_open() && !operation.id.starts_with("stream_")
}

#[tokio::test]
async fn every_route_keeps_the_walls_for_every_role_and_every_owner() {
    let shared = world().await;
    for operation in operations().iter().filter(is_tested) {
        let is_read = operation.method == Method::GET;
        let owner = match is_read {
            true => shared.send(operation.request(&shared.first, Some(OWNER))).await,
            false => {
                let fresh = world().await;
                fresh.send(operation.request(&fresh.first, Some(OWNER))).await
            }
        };
        for role in ["read", "operate"] {
            for stand in STANDS {
                let is_refused = matches!(stand, Stand::Outside | Stand::ForAnother)
                    || least_role(operation) != role && role == "read";
                // What changes nothing, or must not, needs no world of its own.
                let fresh = if is_read || is_refused { None } else { Some(world().await) };
                let world = fresh.as_ref().unwrap_or(&shared);
                let token = token(world, stand, role).await;
                let answer = world.send(operation.request(&world.first, Some(&token))).await;
                expect(operation, stand, role, &answer, &owner);
            }
        }
    }
    let workflow = shared.get("/workflows/1").await.ok();
    assert_eq!((&workflow["name"], &workflow["user"]), (&json!("first"), &json!("alice")));
}

/// `access_groups` of a spec counts when it is applied, too, and only in the owner's name.
#[tokio::test]
async fn a_spec_that_is_applied_says_who_shares_the_workflow() {
    let world = world().await;
    let alice = token(&world, Stand::Own, "operate").await;
    let carol = token(&world, Stand::Member, "operate").await;
    let shared = |groups: Value| {
        let mut spec = spec("shared");
        spec["access_groups"] = groups;
        spec
    };
    let new = json!({"spec": shared(json!(["team"])), "force": true});
    let made = world.call(Method::POST, "/workflows", Some(&alice), Some(&new)).await.ok();
    let path = format!("/workflows/{}", made["id"]);
    let apply = async |token: &str, groups: Value| {
        let body = json!({"spec": shared(groups), "force": true});
        world.call(Method::POST, &format!("{path}/apply"), Some(token), Some(&body)).await
    };
    assert_eq!(get(&world, &carol, &path).await.status, StatusCode::OK);
    let refused = apply(&carol, json!([])).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    assert_eq!(get(&world, &carol, &path).await.status, StatusCode::OK);
    apply(&alice, json!([])).await.ok();
    assert_eq!(get(&world, &carol, &path).await.status, StatusCode::NOT_FOUND);
    let unknown = apply(&alice, json!(["teem"])).await;
    assert!(words::has(&unknown.body.to_string(), "did you mean `team`"), "{unknown:?}");
    apply(&alice, json!(["team"])).await.ok();
    assert_eq!(get(&world, &carol, &path).await.status, StatusCode::OK);
}

async fn get(world: &World, token: &str, path: &str) -> Answer {
    world.call(Method::GET, path, Some(token), None).await
}

#[tokio::test]
async fn what_is_anothers_is_answered_as_if_it_were_not_there() {
    let world = world().await;
    let dave = token(&world, Stand::Outside, "operate").await;
    let is_about_one = |o: &&Operation| is_tested(o) && about(o) == About::One;
    for operation in operations().iter().filter(is_about_one) {
        if !operation.path.contains("{id}") {
            continue;
        }
        let there = world.send(operation.request(&world.first, Some(&dave))).await;
        let known = world.first.path(&operation.path);
        let parts: Vec<&str> = operation.path.split('/').collect();
        let at = parts.iter().position(|part| *part == "{id}").unwrap();
        let absent: Vec<&str> =
            known.split('/').enumerate().map(|(i, p)| if i == at { "99999" } else { p }).collect();
        let path = format!("{}{}", absent.join("/"), world.first.query(&operation.id));
        let body = operation.has_body.then(|| world.first.body(&operation.id));
        let not_there =
            world.call(operation.method.clone(), &path, Some(&dave), body.as_ref()).await;
        assert_eq!(there.status, not_there.status, "{operation:?}");
        let plain = |answer: &Answer, id: &str| answer.body.to_string().replace(id, "ID");
        let id = known.split('/').nth(at).unwrap();
        assert_eq!(plain(&there, id), plain(&not_there, "99999"), "{operation:?}");
    }
    for odd in ["%31", "+1", "01", "1%20", "1.0"] {
        let answer = get(&world, &dave, &format!("/workflows/{odd}/status")).await;
        assert!(answer.status.is_client_error(), "{odd}: {answer:?}");
        assert!(!answer.body.to_string().contains("first"), "{odd}: {answer:?}");
    }
}

#[tokio::test]
async fn a_workflow_belongs_to_the_user_of_the_token_that_made_it() {
    let world = world().await;
    let made = json!({"user": "erin", "role": "admin"});
    let admin = world.post("/tokens", &made).await.ok()["token"].as_str().unwrap().to_owned();
    let carol = token(&world, Stand::Member, "operate").await;
    let create = async |token: &str, spec: &Value| {
        let body = json!({"spec": spec, "user": "alice", "key": "same"});
        world.call(Method::POST, "/workflows", Some(token), Some(&body)).await
    };
    let mut own = spec("own");
    own["user"] = json!("bob");
    for (token, user) in [(&carol, "carol"), (&admin, "erin")] {
        let id = create(token, &own).await.ok()["id"].clone();
        assert_eq!(create(token, &own).await.ok()["id"], id, "a repeat is the same workflow");
        let workflow = world.get(&format!("/workflows/{id}")).await.ok();
        assert_eq!(workflow["user"], json!(user));
        let give = json!({"user": "dave"});
        let path = format!("/workflows/{id}");
        let given = world.call(Method::PUT, &path, Some(token), Some(&give)).await;
        assert_eq!(given.status.is_success(), user == "erin", "{given:?}");
    }
    // A member may not take over what is shared with them.
    let take = json!({"user": "carol"});
    let taken = world.call(Method::PUT, "/workflows/1", Some(&carol), Some(&take)).await;
    assert_eq!(taken.status, StatusCode::FORBIDDEN, "{taken:?}");
    // A spec shares with groups of its maker only.
    own["access_groups"] = json!(["team"]);
    let body = json!({"spec": own});
    let made = world.call(Method::POST, "/workflows", Some(&carol), Some(&body)).await.ok();
    let groups = get(&world, &carol, &format!("/workflows/{}/access_groups", made["id"])).await;
    assert_eq!(rows(&groups)[0]["name"], json!("team"));
    let dave = token(&world, Stand::Outside, "operate").await;
    let refused = world.call(Method::POST, "/workflows", Some(&dave), Some(&body)).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{refused:?}");
    assert!(words::has(
        refused.body["error"]["message"].as_str().unwrap(),
        "no access group `team`"
    ));
    own["access_groups"] = json!(["taem"]);
    let body = json!({"spec": own});
    let typo = world.call(Method::POST, "/workflows", Some(&carol), Some(&body)).await;
    assert!(typo.body["error"]["hint"].as_str().unwrap().contains("`team`"), "{typo:?}");
}

#[tokio::test]
async fn walls_change_at_once_also_for_what_is_answered_from_memory() {
    let world = world().await;
    let carol = token(&world, Stand::Member, "read").await;
    let status = async |token: &str| get(&world, token, "/workflows/1/status").await.status;
    // The second answer comes from memory.
    assert_eq!((status(&carol).await, status(&carol).await), (StatusCode::OK, StatusCode::OK));
    let group = world.first.group;
    let member = format!("/access_groups/{group}/members/carol");
    world.delete(&member).await.ok();
    assert_eq!(status(&carol).await, StatusCode::NOT_FOUND);
    let add = json!({"user_name": "carol"});
    world.post(&format!("/access_groups/{group}/members"), &add).await.ok();
    assert_eq!(status(&carol).await, StatusCode::OK);
    let shared = format!("/workflows/1/access_groups/{group}");
    world.delete(&shared).await.ok();
    assert_eq!(status(&carol).await, StatusCode::NOT_FOUND);
    world.put("/workflows/1", &json!({"user": "carol"})).await.ok();
    assert_eq!(status(&carol).await, StatusCode::OK);
    world.put("/workflows/1", &json!({"user": "alice"})).await.ok();
    assert_eq!(status(&carol).await, StatusCode::NOT_FOUND);
    world.put(&shared, &json!({})).await.ok();
    let for_group = token(&world, Stand::ForItsGroup, "read").await;
    assert_eq!((status(&carol).await, status(&for_group).await), (StatusCode::OK, StatusCode::OK));
    world.delete(&format!("/access_groups/{group}")).await.ok();
    assert_eq!(status(&carol).await, StatusCode::NOT_FOUND);
    assert_eq!(status(&for_group).await, StatusCode::UNAUTHORIZED, "it ended with its group");
}

#[tokio::test]
async fn a_page_sees_what_the_token_may_that_it_was_made_with() {
    let world = world().await;
    let session = async |token: &str| {
        let body = json!({"scope": "act"});
        let code = world.call(Method::POST, "/ui_codes", Some(token), Some(&body)).await.ok();
        let body = json!({"code": code["code"]});
        let made = world.call(Method::POST, "/ui_sessions", None, Some(&body)).await.ok();
        made["token"].as_str().unwrap().to_owned()
    };
    let (carol, dave) = (
        token(&world, Stand::Member, "operate").await,
        token(&world, Stand::Outside, "operate").await,
    );
    let (of_carol, of_dave, of_owner) =
        (session(&carol).await, session(&dave).await, session(OWNER).await);
    let count = async |token: &str| rows(&get(&world, token, "/workflows").await).len();
    assert_eq!(count(&of_carol).await, 1);
    assert_eq!(count(&of_dave).await, 0);
    assert_eq!(count(&of_owner).await, 2);
    let jobs = get(&world, &of_dave, "/workflows/1/status").await;
    assert_eq!(jobs.status, StatusCode::NOT_FOUND);
    let act = world.first.body("act_on_jobs");
    let acted = world.call(Method::POST, "/jobs/act", Some(&of_dave), Some(&act)).await;
    assert_eq!(acted.status, StatusCode::NOT_FOUND, "{acted:?}");
    world.call(Method::POST, "/jobs/act", Some(&of_carol), Some(&act)).await.ok();
}

#[tokio::test]
async fn a_stream_ends_when_its_reader_may_see_no_more() {
    let world = world().await;
    let (carol, dave) =
        (token(&world, Stand::Member, "read").await, token(&world, Stand::Outside, "read").await);
    for path in ["/workflows/1/events/stream", "/workflows/1/pulse"] {
        let refused = world.send(request(Method::GET, path, Some(&dave), None)).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
    let asked = request(Method::GET, "/workflows/1/events/stream?after=0", Some(&carol), None);
    let stream = world.front.answer(asked).await;
    assert_eq!(stream.status(), StatusCode::OK);
    let mut body = stream.into_body();
    assert!(body.frame().await.is_some_and(|frame| frame.is_ok()), "it begins");
    let group = world.first.group;
    world.delete(&format!("/access_groups/{group}/members/carol")).await.ok();
    // Something happens; she must not hear of it.
    world.post("/workflows/1/cancel", &json!({})).await.ok();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        rest.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    let rest = String::from_utf8(rest).unwrap();
    assert!(!rest.contains("canceled"), "{rest}");
}
