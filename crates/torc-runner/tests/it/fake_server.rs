//! A fake server: speaks the runner's protocol from memory, grants by CPUs, decides nothing. It
//! lets tests lose answers, kill and restart it, and look at everything that the runner said.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use torc_client::Client;
use torc_model::api::*;
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::{Execution, ResourceMonitor};
use torc_model::token::Key;

/// Everything it knows.
pub struct Inner {
    pub ready: VecDeque<AttemptPacket>,
    pub held: HashMap<AttemptId, AttemptPacket>,
    pub started: Vec<StartReport>,
    pub completed: Vec<CompletionReport>,
    pub registered: Vec<RegisterRunner>,
    pub goodbyes: Vec<String>,
    pub actions: Vec<ActionPacket>,
    pub last_actions: Vec<ActionPacket>,
    pub action_reports: Vec<(ActionId, ActionReport)>,
    pub cancel: Vec<AttemptId>,
    pub not_yours: Vec<AttemptId>,
    pub heartbeats: Vec<Heartbeat>,
    /// Answers that get lost on the way, from now on.
    pub lose_answers: u32,
    /// Nothing more will come.
    pub is_final: bool,
    pub execution: Execution,
    pub env: BTreeMap<String, String>,
    pub resource_monitor: ResourceMonitor,
    pub lease_seconds: i64,
    pub disown_seconds: i64,
    pub claims: u64,
    answers: HashMap<String, ClaimResponse>,
    next_id: i64,
}

#[derive(Clone)]
pub struct Shared {
    inner: Arc<Mutex<Inner>>,
    news: Arc<Notify>,
}

pub struct FakeServer {
    pub shared: Shared,
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl FakeServer {
    pub fn start() -> Self {
        let inner = Inner {
            ready: VecDeque::new(),
            held: HashMap::new(),
            started: Vec::new(),
            completed: Vec::new(),
            registered: Vec::new(),
            goodbyes: Vec::new(),
            actions: Vec::new(),
            last_actions: Vec::new(),
            action_reports: Vec::new(),
            cancel: Vec::new(),
            not_yours: Vec::new(),
            heartbeats: Vec::new(),
            lose_answers: 0,
            is_final: true,
            execution: Execution::default(),
            env: BTreeMap::new(),
            resource_monitor: ResourceMonitor::default(),
            lease_seconds: 60,
            disown_seconds: 2400,
            claims: 0,
            answers: HashMap::new(),
            next_id: 1,
        };
        let shared = Shared { inner: Arc::new(Mutex::new(inner)), news: Arc::default() };
        let mut server = Self { shared, address: ([127, 0, 0, 1], 0).into(), runtime: None };
        server.restart();
        server
    }

    /// Kills it: connections break, what it knows stays.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Starts it again at the same address.
    pub fn restart(&mut self) {
        self.kill();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // The old runtime closes its sockets in the background.
        let listener = (0..300)
            .find_map(|_| {
                let bound = std::net::TcpListener::bind(self.address).ok();
                if bound.is_none() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                bound
            })
            .expect("the address stays in use");
        listener.set_nonblocking(true).unwrap();
        self.address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/compute_nodes", post(register))
            .route("/compute_nodes/{id}/goodbye", post(goodbye))
            .route("/workflows/{id}/claim", post(claim))
            .route("/attempts/complete", post(complete))
            .route("/attempts/heartbeat", post(heartbeat))
            .route("/actions/{id}/complete", post(complete_action))
            .with_state(self.shared.clone());
        let router = Router::new().nest(BASE_PATH, router);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
                stream.set_nodelay(true).unwrap()
            });
            axum::serve(listener, router).await
        });
        self.runtime = Some(runtime);
    }

    pub fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), "server-token").unwrap()
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap()
    }

    /// Adds a job that needs one CPU; answers with its attempt's id.
    pub fn job(&self, command: &str) -> AttemptId {
        self.job_with(command, |_| {})
    }

    pub fn job_with(&self, command: &str, change: impl FnOnce(&mut AttemptPacket)) -> AttemptId {
        let mut inner = self.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        let mut packet = AttemptPacket {
            is_limited_by_runtime: false,
            id: AttemptId(id),
            token: format!("token{id}"),
            job_id: JobId(id),
            job_name: format!("job{id}"),
            run_id: 1,
            attempt_id: 1,
            command: command.into(),
            invocation_script: None,
            steps: None,
            env: BTreeMap::new(),
            num_cpus: 1,
            num_gpus: 0,
            num_nodes: 1,
            memory_bytes: None,
            time_limit_seconds: None,
            stdio: None,
            output_files: Vec::new(),
            lists: Vec::new(),
            strictness: Default::default(),
            recovery: None,
        };
        change(&mut packet);
        inner.ready.push_back(packet);
        drop(inner);
        self.shared.news.notify_waiters();
        AttemptId(id)
    }

    pub fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.shared.news.notify_waiters();
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, reached: impl Fn(&Inner) -> bool) {
        let waiting = async {
            loop {
                let news = self.shared.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if reached(&self.lock()) {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .unwrap_or_else(|_| panic!("waited in vain for {what}"));
    }

    /// The report about an attempt.
    pub fn report(&self, id: AttemptId) -> CompletionReport {
        let inner = self.lock();
        let mut found = inner.completed.iter().filter(|r| r.attempt.id == id);
        let report = found.next().expect("no report").clone();
        assert!(found.next().is_none(), "two reports about {id}");
        report
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn register(
    State(shared): State<Shared>,
    Json(body): Json<RegisterRunner>,
) -> Json<RunnerRegistered> {
    let mut inner = shared.inner.lock().unwrap();
    let body_key = body.key.clone();
    inner.registered.push(body);
    let id = i64::try_from(inner.registered.len()).unwrap();
    Json(RunnerRegistered {
        id: RunnerId(id),
        run_id: 1,
        lease_seconds: inner.lease_seconds,
        disown_seconds: Some(inner.disown_seconds),
        workflow_name: "fake".into(),
        env: inner.env.clone(),
        resource_monitor: inner.resource_monitor.clone(),
        execution: inner.execution.clone(),
        wait_for_server_seconds: 1200,
        idle_seconds: 0,
        ignore_completion: false,
        checkpoint_exit_code: None,
        tag: format!("fake{}-{id}", body_key),
        job_key: Key::of_server("server-token", "fake"),
    })
}

impl Inner {
    fn apply(&mut self, body: &ClaimRequest) -> ClaimResponse {
        self.claims += 1;
        let verdict = |id, result| ReportResult { id, result, outcome: None, job_status: None };
        let mut answer = ClaimResponse::default();
        for report in &body.started {
            self.started.push(report.clone());
            answer.started.push(verdict(report.attempt.id, ReportVerdict::Accepted));
        }
        for report in &body.completed {
            let result = self.complete(report);
            answer.completed.push(verdict(report.attempt.id, result));
        }
        self.grant(body, &mut answer);
        answer
    }

    fn complete(&mut self, report: &CompletionReport) -> ReportVerdict {
        let id = report.attempt.id;
        assert_eq!(report.attempt.token, format!("token{id}"));
        self.cancel.retain(|c| *c != id);
        if self.held.remove(&id).is_some() {
            self.completed.push(report.clone());
            ReportVerdict::Accepted
        } else if self.completed.iter().any(|r| r.attempt.id == id) {
            ReportVerdict::Repeated
        } else {
            ReportVerdict::Late
        }
    }

    fn grant(&mut self, body: &ClaimRequest, answer: &mut ClaimResponse) {
        let used: i64 = self.held.values().map(|p| p.num_cpus).sum();
        let mut free = body.capacity.num_cpus - used;
        let mut ahead = body.prefetch;
        let mut limit = body.limit;
        while limit > 0 {
            let Some(next) = self.ready.front() else { break };
            if next.num_cpus <= free {
                free -= next.num_cpus;
            } else if ahead + free > 0 {
                ahead -= next.num_cpus;
            } else {
                break;
            }
            limit -= 1;
            let packet = self.ready.pop_front().unwrap();
            self.held.insert(packet.id, packet.clone());
            answer.attempts.push(packet);
        }
        answer.cancel = self.cancel.clone();
        answer.actions = std::mem::take(&mut self.actions);
        let is_done = self.ready.is_empty() && self.held.is_empty() && self.is_final;
        (answer.workflow_complete, answer.idle) = (is_done, is_done);
    }
}

fn lose_if_asked(inner: &mut Inner) {
    if inner.lose_answers > 0 {
        inner.lose_answers -= 1;
        // Ends the connection without an answer, and without a message.
        std::panic::resume_unwind(Box::new(()));
    }
}

fn is_empty(answer: &ClaimResponse) -> bool {
    answer.attempts.is_empty()
        && answer.cancel.is_empty()
        && answer.actions.is_empty()
        && !answer.workflow_complete
}

async fn claim(
    State(shared): State<Shared>,
    Path(_): Path<WorkflowId>,
    Json(body): Json<ClaimRequest>,
) -> Json<ClaimResponse> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs_f64(body.wait_seconds);
    let mut answer = {
        let inner = shared.inner.lock().unwrap();
        let known = inner.answers.get(&body.key).cloned();
        drop(inner);
        match known {
            Some(answer) => return Json(answer),
            None => shared.inner.lock().unwrap().apply(&body),
        }
    };
    shared.news.notify_waiters();
    loop {
        let news = shared.news.notified();
        tokio::pin!(news);
        news.as_mut().enable();
        if is_empty(&answer) && body.wait_seconds > 0.0 {
            shared.inner.lock().unwrap().grant(&body, &mut answer);
        }
        if !is_empty(&answer) || tokio::time::timeout_at(deadline, news).await.is_err() {
            let mut inner = shared.inner.lock().unwrap();
            inner.answers.insert(body.key, answer.clone());
            if !answer.attempts.is_empty() || !body.completed.is_empty() {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    lose_if_asked(&mut inner)
                }));
                drop(inner);
                if let Err(panic) = result {
                    std::panic::resume_unwind(panic);
                }
            }
            return Json(answer);
        }
    }
}

async fn complete(
    State(shared): State<Shared>,
    Json(body): Json<CompletionBatch>,
) -> Json<ReportResults> {
    let mut inner = shared.inner.lock().unwrap();
    let results = body
        .items
        .iter()
        .map(|report| {
            let result = inner.complete(report);
            ReportResult { id: report.attempt.id, result, outcome: None, job_status: None }
        })
        .collect();
    drop(inner);
    shared.news.notify_waiters();
    Json(ReportResults { results })
}

async fn heartbeat(
    State(shared): State<Shared>,
    Json(body): Json<Heartbeat>,
) -> Json<HeartbeatAnswer> {
    let mut inner = shared.inner.lock().unwrap();
    let listed = |id: &AttemptId| body.held.iter().any(|held| held.id == *id);
    let answer = HeartbeatAnswer {
        cancel: Vec::new(),
        not_yours: inner.not_yours.iter().filter(|id| listed(id)).copied().collect(),
        forgotten: Vec::new(),
    };
    inner.heartbeats.push(body);
    drop(inner);
    shared.news.notify_waiters();
    Json(answer)
}

async fn goodbye(
    State(shared): State<Shared>,
    Path(_): Path<i64>,
    Json(body): Json<Goodbye>,
) -> Json<GoodbyeAnswer> {
    let mut inner = shared.inner.lock().unwrap();
    inner.goodbyes.push(body.reason);
    let actions = std::mem::take(&mut inner.last_actions);
    drop(inner);
    shared.news.notify_waiters();
    Json(GoodbyeAnswer { actions })
}

async fn complete_action(
    State(shared): State<Shared>,
    Path(id): Path<ActionId>,
    Json(body): Json<ActionReport>,
) -> (StatusCode, Json<Value>) {
    shared.inner.lock().unwrap().action_reports.push((id, body));
    shared.news.notify_waiters();
    (StatusCode::OK, Json(json!({})))
}
