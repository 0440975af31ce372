//! Two workflows with one of everything, behind the front, on a real database file.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::token::{Grant, Key};
use torc_server::api::{App, Front, Hosts};
use torc_server::boot::{Database, Options};
use torc_server::store::Store;
use torc_server::store::read::Reader;

/// Good for everything.
pub const OWNER: &str = "the-owner-token-of-the-tests-0123456789";
pub const BASE: &str = "/torc-service/v1";

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: axum::http::HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The stable word of a refusal.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The body of a success.
    pub fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// A refusal has our form, whatever caused it.
    pub fn check_form(&self) {
        if self.status.is_success() {
            return;
        }
        let error = &self.body["error"];
        let is_text = |key: &str| error[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("code") && is_text("message"), "not our form: {self:?}");
    }
}

/// The ids of one workflow's things.
#[derive(Clone, Debug)]
pub struct Ids {
    pub workflow: i64,
    pub job: i64,
    pub running_job: i64,
    pub attempt: i64,
    pub runner: i64,
    pub action: i64,
    pub file: i64,
    pub user_data: i64,
    pub requirements: i64,
    pub failure_handler: i64,
    pub scheduler: i64,
    pub allocation: i64,
    /// 1: there is none, unless a test made one.
    pub classification: i64,
    pub reservation: i64,
    pub notification: i64,
    pub group: i64,
    /// A token of this workflow's runners.
    pub token: String,
    /// The token of the running attempt.
    pub job_token: String,
    /// A running attempt and the token that proves the right to it.
    pub running: Value,
}

pub struct World {
    pub app: App,
    pub front: Front,
    pub first: Ids,
    pub second: Ids,
    pub stop: CancellationToken,
    /// The server's key.
    pub key: Key,
    /// Keeps the lock.
    database: Database,
    pub dir: tempfile::TempDir,
}

/// One of everything.
pub fn spec(name: &str) -> Value {
    json!({
        "name": name,
        "dynamic_jobs": true,
        "order": "submission",
        "files": [{"name": "f", "path": "f.txt"}],
        "user_data": [{"name": "u", "data": {"n": 3}}],
        "resource_requirements": [{"name": "small", "num_cpus": 1, "memory": "1g", "runtime": "PT10M"}],
        "failure_handlers": [{"name": "h", "rules": [{"exit_codes": [10], "max_retries": 3}]}],
        "slurm_schedulers": [{"name": "s", "account": "acct", "nodes": 1, "walltime": "00:30:00"}],
        "limits": {"licence": 2},
        "jobs": [
            {"name": "fails", "command": "exit 1", "resource_requirements": "small", "failure_handler": "h",
             "output_files": ["f"]},
            {"name": "runs", "command": "sleep 1", "output_user_data": ["u"]},
            {"name": "waits", "command": "true", "depends_on": ["runs"], "scheduler": "s"}
        ],
        "actions": [{"trigger_type": "on_worker_start", "action_type": "run_commands", "commands": ["true"],
                     "persistent": true}]
    })
}

pub fn registration(workflow: i64, key: &str) -> Value {
    json!({
        "workflow_id": workflow, "key": key, "hostname": "here", "boot_id": "b", "pid": 1, "pid_start": 1,
        "capacity": {"num_cpus": 4, "memory_bytes": 8589934592u64, "num_gpus": 0, "num_nodes": 1},
        "kind": "local", "output_dir": "/nowhere"
    })
}

pub fn claim(runner: i64, key: &str) -> Value {
    json!({
        "runner_id": runner, "key": key, "limit": 4, "wait_seconds": 0.0,
        "capacity": {"num_cpus": 4, "memory_bytes": 8589934592u64, "num_gpus": 0, "num_nodes": 1}
    })
}

pub fn completion(attempt: &Value, code: i64) -> Value {
    json!({
        "id": attempt["id"], "token": attempt["token"], "return_code": code, "started_ms": 1, "ended_ms": 2,
        "exec_seconds": 0.5
    })
}

impl World {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut database = Database::open(&Options::new(dir.path())).unwrap();
        let spare = rusqlite::Connection::open_in_memory().unwrap();
        let writer = std::mem::replace(&mut database.writer, spare);
        let store = Store::open(writer).unwrap();
        let reader = Reader::open(&database.path).unwrap();
        let stop = CancellationToken::new();
        let hosts = Hosts::new("127.0.0.1".parse().unwrap(), []);
        let key = Key::of_server(OWNER, store.database_id());
        let app = App::new(store, reader, OWNER, hosts, stop.clone());
        let mut world = Self {
            app: app.clone(),
            front: Front::new(app),
            first: Ids::nothing(),
            second: Ids::nothing(),
            stop,
            key,
            database,
            dir,
        };
        world.first = world.fill("first", "alice").await;
        world.second = world.fill("second", "bob").await;
        world
    }

    async fn fill(&self, name: &str, user: &str) -> Ids {
        let request = json!({"spec": spec(name), "user": user, "initialize": true,
            "directory": "/somewhere"});
        let created = self.post("/workflows", &request).await.ok();
        let workflow = created["id"].as_i64().unwrap();
        let registered = self.post("/compute_nodes", &registration(workflow, name)).await.ok();
        let runner = registered["id"].as_i64().unwrap();
        let job_key: Key = serde_json::from_value(registered["job_key"].clone()).unwrap();
        assert_eq!(job_key, self.key.of_runner(RunnerId(runner)));
        let claimed = self
            .post(&format!("/workflows/{workflow}/claim"), &claim(runner, &format!("{name}-1")))
            .await
            .ok();
        let attempts = claimed["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 2, "{claimed}");
        let started: Vec<Value> = attempts
            .iter()
            .map(|a| json!({"id": a["id"], "token": a["token"], "pid": 5, "at_ms": 1}))
            .collect();
        self.post("/attempts/start", &json!({"runner_id": runner, "items": started})).await.ok();
        let done = json!({"runner_id": runner, "items": [completion(&attempts[0], 1)]});
        self.post("/attempts/complete", &done).await.ok();
        let first_of = async |path: &str| {
            let page = self.get(&format!("{path}?workflow_id={workflow}")).await.ok();
            page["items"][0]["id"].as_i64().unwrap_or_else(|| panic!("nothing at {path}: {page}"))
        };
        let actions = self.get(&format!("/workflows/{workflow}/actions")).await.ok();
        let wanted = json!({"workflow_id": workflow, "scheduler": "s", "count": 1, "key": "k"});
        let allocations = self.post("/scheduled_compute_nodes", &wanted).await.ok();
        let allocation = allocations["items"][0]["id"].as_i64().unwrap();
        Ids {
            workflow,
            job: attempts[0]["job_id"].as_i64().unwrap(),
            running_job: attempts[1]["job_id"].as_i64().unwrap(),
            attempt: attempts[0]["id"].as_i64().unwrap(),
            runner,
            action: actions["items"][0]["id"].as_i64().unwrap(),
            file: first_of("/files").await,
            user_data: first_of("/user_data").await,
            requirements: first_of("/resource_requirements").await,
            failure_handler: first_of("/failure_handlers").await,
            scheduler: first_of("/slurm_schedulers").await,
            allocation,
            classification: 1,
            reservation: 1,
            notification: 1,
            group: 1,
            token: self.key.sign(&Grant::Runner {
                workflow: WorkflowId(workflow),
                allocation: allocations["items"][0]["name"].as_str().unwrap().into(),
            }),
            job_token: job_key.sign(&Grant::Job {
                workflow: WorkflowId(workflow),
                runner: RunnerId(runner),
                job: JobId(attempts[1]["job_id"].as_i64().unwrap()),
                attempt: AttemptId(attempts[1]["id"].as_i64().unwrap()),
            }),
            running: attempts[1].clone(),
        }
    }

    /// A request in all its details.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.front.answer(request).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
        };
        Answer { status: head.status, headers: head.headers, body }
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Answer {
        self.send(request(method, path, token, body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Some(OWNER), None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, path, Some(OWNER), Some(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::PUT, path, Some(OWNER), Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, Some(OWNER), None).await
    }

    /// The database as another program sees it.
    pub fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.database.path).unwrap()
    }
}

/// Outside of the base path, for programs that watch the server.
fn is_at_root(path: &str) -> bool {
    path == "/metrics" || path.starts_with("/health/")
}

pub fn request(
    method: Method,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(if is_at_root(path) { path.to_owned() } else { format!("{BASE}{path}") })
        .header(header::HOST, "127.0.0.1:1");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    match body {
        Some(body) => request
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(serde_json::to_vec(body).unwrap()))
            .unwrap(),
        None => request.body(Body::empty()).unwrap(),
    }
}

impl Ids {
    fn nothing() -> Self {
        Self {
            workflow: 0,
            job: 0,
            running_job: 0,
            attempt: 0,
            runner: 0,
            action: 0,
            file: 0,
            user_data: 0,
            requirements: 0,
            failure_handler: 0,
            scheduler: 0,
            allocation: 0,
            classification: 0,
            reservation: 0,
            notification: 0,
            group: 0,
            token: String::new(),
            job_token: String::new(),
            running: Value::Null,
        }
    }

    /// A path of the table with this workflow's ids in it. A new noun must be added here.
    pub fn path(&self, template: &str) -> String {
        let noun = template.split('/').nth(1).unwrap_or_default();
        let id = match noun {
            _ if !template.contains("{id}") => 0,
            "workflows" => self.workflow,
            "jobs" if template.ends_with("/spawn_jobs") => self.running_job,
            "jobs" => self.job,
            "attempts" => self.attempt,
            "compute_nodes" => self.runner,
            "actions" => self.action,
            "files" => self.file,
            "user_data" => self.user_data,
            "resource_requirements" => self.requirements,
            "failure_handlers" => self.failure_handler,
            "slurm_schedulers" => self.scheduler,
            "scheduled_compute_nodes" => self.allocation,
            // There is none; who may not ask is refused all the same.
            "tokens" | "webhooks" | "deliveries" | "ui_sessions" => 1,
            "classifications" => self.classification,
            "reservations" => self.reservation,
            "notifications" => self.notification,
            "pool_runners" => 1,
            "access_groups" => self.group,
            other => panic!("the test knows no `{other}`: add it to `Ids::path`"),
        };
        let path = template
            .replace("{id}", &id.to_string())
            .replace("{run_id}", "1")
            .replace("{group_id}", &self.group.to_string())
            .replace("{user_name}", "carol")
            .replace("{name}", "licence")
            .replace("{user}", "carol")
            .replace("{fingerprint}", "0123456789abcdef");
        assert!(!path.contains('{'), "the test cannot fill `{template}`");
        path
    }

    /// A good body for an operation that takes one. A new operation with a body must be added here.
    pub fn body(&self, operation: &str) -> Value {
        let running = json!({"id": self.running["id"], "token": self.running["token"]});
        match operation {
            "create_workflow" | "import_workflow" => json!({"spec": spec("new")}),
            "prune_workflows" => json!({"older_than_seconds": 0, "dry_run": true}),
            "update_workflow" => json!({"description": "text"}),
            "reinitialize_workflow" => json!({"dry_run": true, "force": true}),
            "apply_spec" => json!({"spec": spec("world"), "dry_run": true, "force": true}),
            "reset_workflow_status" => json!({"failed_only": true, "dry_run": true}),
            "claim" => claim(self.runner, "next"),
            "complete_action" => json!({"runner_id": self.runner, "return_code": 0}),
            "start_attempts" => {
                json!({"runner_id": self.runner, "items": [{"id": running["id"], "token": running["token"], "pid": 7, "at_ms": 2}]})
            }
            "complete_attempts" => {
                json!({"runner_id": self.runner, "items": [completion(&self.running, 0)]})
            }
            "heartbeat" => json!({"runner_id": self.runner, "held": [running]}),
            "cancel_jobs" => json!({"job_ids": [self.running_job]}),
            "retry_jobs" => {
                json!({"jobs": [{"job_id": self.running_job, "run_id": 1, "max_retries": 3}]})
            }
            "spawn_jobs" => json!({"jobs": [{"name": "added", "command": "true"}]}),
            "update_job" => json!({"priority": 5}),
            "register_compute_node" => {
                registration(self.workflow, &format!("again-{}", self.workflow))
            }
            "goodbye" => json!({"reason": "done"}),
            "create_scheduled_compute_nodes" => {
                json!({"workflow_id": self.workflow, "scheduler": "s", "count": 2, "key": "more"})
            }
            "begin_submission" => json!({"workflow_id": self.workflow, "submitter": "me"}),
            "report_submission" => {
                json!({"workflow_id": self.workflow, "name": "x", "submitter": "me", "outcome": {"submitted": "7"}})
            }
            "observe_scheduled_compute_nodes" => {
                json!({"items": [{"id": self.allocation, "verdict": {"verdict": "unknown", "why": "down"}}]})
            }
            "regenerate" => json!({"groups": [], "submit": false}),
            "update_user_data" => json!({"data": [1, 2]}),
            "create_failure_handler" => {
                json!({"workflow_id": self.workflow, "name": "new", "rules": "[]"})
            }
            "update_failure_handler" => json!({"name": "other"}),
            "sync_status" | "recover_workflow" => json!({"dry_run": true}),
            "create_reservation" => {
                json!({"scope": format!("workflow:{}", self.workflow), "reserved_by": "test", "ttl_seconds": 60})
            }
            "renew_reservation" | "release_reservation" => json!({"token": "none"}),
            "set_limit" => json!({"max": 2}),
            "take_knowledge" => json!({"torc_knowledge": 1, "failures": []}),
            "classify_failures" => {
                json!({"classifications": [{"job_id": self.job, "action": "retry"}], "dry_run": true})
            }
            "classify_from_memory" => json!({"dry_run": true}),
            "accept_classification" | "reject_classification" => json!({"by": "test"}),
            "retry_items" | "drop_items" => json!({"job": "map"}),
            "act_on_jobs" => {
                json!({"workflow_id": self.workflow, "where": "status:failed", "action": "retry", "dry_run": true})
            }
            "register_pool_runner" => {
                json!({"key": "pool", "hostname": "here", "pid": 1, "capacity": {"num_cpus": 1}})
            }
            "claim_for_pool" => json!({"wait_seconds": 0.0}),
            "pool_reads" => json!({"wait_seconds": 0.0}),
            "pool_goodbye" => json!({"reason": "done"}),
            "set_share" => json!({"weight": 2.0}),
            "quarantine_node" => json!({"hostname": "here", "release": true}),
            "create_ui_code" => json!({"scope": "read"}),
            "create_token" => json!({"user": "new", "role": "read"}),
            "create_ui_session" => json!({"code": "none"}),
            "create_access_group" => json!({"name": "another"}),
            "add_access_group_member" => json!({"user_name": "erin"}),
            "create_notification" => {
                json!({"kind": "ntfy", "target": "https://ntfy.sh/topic", "workflow_id": self.workflow})
            }
            "create_webhook" => json!({"url": "https://example.org/hook"}),
            other => panic!("the test knows no body for `{other}`: add it to `Ids::body`"),
        }
    }

    /// The query an operation cannot do without.
    pub fn query(&self, operation: &str) -> &'static str {
        match operation {
            "retry_job" => "?max_retries=3",
            "search_job_logs" => "?text=x",
            "forget_knowledge" => "?all=true",
            "find_earlier_workflow" => "?name=first&directory=/somewhere",
            _ => "",
        }
    }
}

/// Every operation of the table, from the document that is made of it.
pub fn operations() -> Vec<Operation> {
    let document = torc_server::api::document();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push(Operation {
                method: method.to_uppercase().parse().unwrap(),
                path: path
                    .strip_prefix(BASE)
                    .or_else(|| is_at_root(path).then_some(path))
                    .unwrap_or_else(|| panic!("{path} is outside"))
                    .to_string(),
                id: operation["operationId"].as_str().unwrap().to_string(),
                has_body: operation.get("requestBody").is_some(),
                security: operation.get("security").cloned(),
            });
        }
    }
    assert!(operations.len() > 40, "the table cannot be that small: {}", operations.len());
    operations
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub method: Method,
    pub path: String,
    pub id: String,
    pub has_body: bool,
    pub security: Option<Value>,
}

impl Operation {
    pub fn is_open(&self) -> bool {
        self.security == Some(json!([{}]))
    }

    fn has_role(&self, role: &str) -> bool {
        let roles = self.security.as_ref().and_then(|s| s[0]["token"].as_array());
        roles.is_some_and(|roles| roles.contains(&json!(role)))
    }

    pub fn is_for_runners(&self) -> bool {
        self.has_role("runner")
    }

    pub fn is_for_jobs(&self) -> bool {
        self.has_role("job")
    }

    /// A good request to this operation, about this workflow's things.
    pub fn request(&self, ids: &Ids, token: Option<&str>) -> Request<Body> {
        let body = self.has_body.then(|| ids.body(&self.id));
        let path = format!("{}{}", ids.path(&self.path), ids.query(&self.id));
        request(self.method.clone(), &path, token, body.as_ref())
    }
}
