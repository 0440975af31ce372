//! The client of a world: creates workflows, watches them, retries, and writes down what it was
//! answered.

use crate::history::{Answer, ClientHistory, Created, Heard, Retries};
use crate::plan::PlanRng;
use crate::receiver::{SECRET, now};
use crate::workload::{BAD_ITEM, DEAD_ITEM, DEAD_KEY, LIMITS, MAP, PlannedWorkflow};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use torc_client::{Client, Error, Query};
use torc_model::api::{
    ActionView, AttemptView, CreateWorkflow, EventView, ItemsRequest, JobView, LimitView,
};
use torc_model::ids::WorkflowId;
use torc_model::status::{ActionState, AttemptState, JobStatus};

/// Between two looks at a workflow. Events would tell sooner, but the stream is part of what is
/// under test, and what it leaves out must show: an oracle that waits for an event waits for ever
/// for one that was lost.
const LOOK: Duration = Duration::from_millis(100);
/// A call that a killed server leaves unanswered must not hold the client up.
const CALL: Duration = Duration::from_secs(10);
/// Looks between two reservations.
const RESERVE_EVERY: u64 = 12;

/// What the world and its client tell each other.
#[derive(Default)]
pub struct Shared {
    /// The workflow to work on.
    pub current: Mutex<Option<i64>>,
    /// No new workflows: the faults have stopped.
    pub draining: AtomicBool,
    /// Everything has ended.
    pub done: AtomicBool,
    /// Give up.
    pub abort: AtomicBool,
}

impl Shared {
    /// The workflow to work on.
    pub fn current(&self) -> Option<i64> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_current(&self, id: Option<i64>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn is_over(&self) -> bool {
        self.abort.load(Ordering::SeqCst)
    }
}

/// Sets up what the workflows need, while nothing fails yet.
pub async fn prepare(client: &Client, hook: &str) -> Result<(), Error> {
    for (name, max) in LIMITS {
        client.put::<Value>(&format!("/limits/{name}"), &json!({"max": max})).await?;
    }
    client
        .post::<Value>("/webhooks", &json!({"url": hook, "secret": SECRET, "allow_private": true}))
        .await?;
    Ok(())
}

/// One client.
pub struct WorkloadClient {
    /// Talks to the server.
    pub client: Client,
    /// Tells the world.
    pub shared: Arc<Shared>,
    /// Where the workflows are submitted from.
    pub directory: String,
    /// What it did.
    pub history: ClientHistory,
}

impl WorkloadClient {
    /// Works through workflows until the faults have stopped and the last one has ended.
    pub async fn run(mut self, mut workload: PlanRng) -> ClientHistory {
        self.client = self.client.with_time_limit(CALL);
        for number in 0.. {
            if self.shared.draining.load(Ordering::SeqCst) || self.shared.is_over() {
                break;
            }
            let planned = PlannedWorkflow::draw(&mut workload, number);
            let Some(id) = self.create(&planned, number).await else { break };
            self.shared.set_current(Some(id));
            self.grow(id, &planned).await;
            let created = Created {
                id,
                planned,
                seen_completed: Default::default(),
                retries: Retries::default(),
                item_retries: Retries::default(),
                jobs: Vec::new(),
                attempts: Vec::new(),
                events: Vec::new(),
                answers: Vec::new(),
                reservations: Vec::new(),
            };
            let created = self.watch(created).await;
            self.history.workflows.push(created);
        }
        self.shared.set_current(None);
        self.shared.done.store(true, Ordering::SeqCst);
        self.history
    }

    /// Counts an answer. None when there was none, or when it may come later.
    fn note<T>(&mut self, what: &str, answer: Result<T, Error>) -> Option<Result<T, Error>> {
        match answer {
            Err(Error::Unreachable { .. }) => {
                self.history.unanswered += 1;
                None
            }
            Err(error) if error.is_temporary() => {
                self.history.answered += 1;
                // Saying that it cannot is allowed only while it comes up or goes down.
                if error.status() != Some(503) {
                    self.history.wrong.push(format!("{what}: {error}"));
                }
                None
            }
            other => {
                self.history.answered += 1;
                Some(other)
            }
        }
    }

    /// Repeats with the same key until it is answered: it must be created once.
    async fn create(&mut self, planned: &PlannedWorkflow, number: usize) -> Option<i64> {
        let body = CreateWorkflow {
            spec: planned.first_spec(),
            user: None,
            initialize: true,
            force: false,
            key: Some(format!("chaos-{number}")),
            directory: Some(self.directory.clone()),
            spec_path: None,
        };
        while !self.shared.is_over() {
            let answer = self.client.with_time_limit(CALL).post::<Value>("/workflows", &body).await;
            match self.note("create", answer) {
                Some(Ok(created)) => return created["id"].as_i64(),
                Some(Err(error)) => {
                    self.history.wrong.push(format!("create: {error}"));
                    return None;
                }
                None => tokio::time::sleep(LOOK).await,
            }
        }
        None
    }

    /// Two people apply the whole spec at the same time, until one of them is answered: its jobs must
    /// be added once, whatever is killed meanwhile.
    async fn grow(&mut self, id: i64, planned: &PlannedWorkflow) {
        let body = json!({"spec": planned.spec});
        let path = format!("/workflows/{id}/apply");
        while !self.shared.is_over() {
            let call = || self.client.post::<Value>(&path, &body);
            let (first, second) = tokio::join!(call(), call());
            let mut is_done = false;
            for answer in [first, second] {
                match self.note("apply", answer) {
                    Some(Ok(_)) => is_done = true,
                    // The other one was first.
                    Some(Err(error)) if error.status() == Some(409) => {}
                    Some(Err(error)) => self.history.wrong.push(format!("apply: {error}")),
                    None => {}
                }
            }
            if is_done {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn watch(&mut self, mut created: Created) -> Created {
        let id = WorkflowId(created.id);
        let mut retried = false;
        let mut looks = 0;
        while !self.shared.is_over() {
            tokio::time::sleep(LOOK).await;
            looks += 1;
            if looks % RESERVE_EVERY == 0 {
                self.reserve(&mut created).await;
            }
            self.limits_hold().await;
            let query = Query::new().add("workflow_id", created.id);
            let asked = now();
            let results = self
                .client
                .list_all::<AttemptView>("/results", &query.clone().add("all_runs", true))
                .await;
            let Some(Ok(results)) = self.note("results", results) else { continue };
            for attempt in results.iter().filter(|a| a.state == AttemptState::Completed) {
                created
                    .seen_completed
                    .entry((attempt.job_name.clone(), attempt.attempt_id))
                    .or_insert_with(now);
            }
            let ends = results.iter().filter(|a| !a.state.is_live());
            let ends = ends
                .map(|a| ((a.job_name.clone(), a.attempt_id), a.state == AttemptState::Completed));
            created.answers.push(Answer { asked, heard: Heard::Ends(ends.collect()) });
            let asked = now();
            let jobs = self.client.list_all::<JobView>("/jobs", &query).await;
            let Some(Ok(jobs)) = self.note("jobs", jobs) else { continue };
            let heard = jobs.iter().map(|job| (job.name.clone(), job.status)).collect();
            created.answers.push(Answer { asked, heard: Heard::Jobs(heard) });
            let broken =
                jobs.iter().find(|job| job.name == "broken" && job.status == JobStatus::Failed);
            if let Some(broken) = broken.filter(|_| !retried) {
                retried = true;
                self.retry_twice(broken, &mut created).await;
                continue;
            }
            let bad = jobs.iter().find(|job| job.name == BAD_ITEM);
            if bad.is_some_and(|bad| bad.status == JobStatus::Failed) {
                self.retry_item(&mut created).await;
                continue;
            }
            let dead = jobs.iter().find(|job| job.name == DEAD_ITEM);
            if dead.is_some_and(|dead| dead.status == JobStatus::Failed) {
                self.drop_item(&created).await;
                continue;
            }
            let is_dropped = dead.is_some_and(|dead| dead.status == JobStatus::Disabled);
            let is_repaired = bad.is_some_and(|bad| bad.status == JobStatus::Completed);
            let complete = self.client.is_complete(id).await;
            let actions = self.client.list_actions(id).await;
            let Some(Ok(actions)) = self.note("actions", actions) else { continue };
            let is_open = |action: &ActionView| {
                !matches!(action.state, ActionState::Executed | ActionState::Failed)
            };
            if let Some(Ok(view)) = self.note("is_complete", complete)
                && view.is_complete
                && retried
                && is_repaired
                && is_dropped
                && !actions.items.iter().any(is_open)
                && self.finish(&mut created).await
            {
                break;
            }
        }
        created
    }

    /// Nothing of the workflow is claimed for a moment. Only a reservation that lasted until it was
    /// released counts: a server that starts again ends it.
    async fn reserve(&mut self, created: &mut Created) {
        let body = json!({"scope": format!("workflow:{}", created.id), "reserved_by": "chaos", "ttl_seconds": 60});
        let answer = self.client.post::<Value>("/reservations", &body).await;
        let Some(Ok(made)) = self.note("reserve", answer) else { return };
        let from = now() / 1000;
        tokio::time::sleep(LOOK).await;
        let to = now() / 1000;
        let path = format!("/reservations/{}/release", made["id"]);
        let answer = self.client.post::<Value>(&path, &json!({"token": made["token"]})).await;
        if let Some(Ok(_)) = self.note("release", answer) {
            created.reservations.push((from, to));
        }
    }

    async fn limits_hold(&mut self) {
        let answer = self.client.list_all::<LimitView>("/limits", &Query::new()).await;
        let Some(Ok(limits)) = self.note("limits", answer) else { return };
        for limit in limits.iter().filter(|limit| limit.used > limit.max) {
            let text =
                format!("limit {}: {} in use, {} allowed", limit.name, limit.used, limit.max);
            self.history.wrong.push(text);
        }
    }

    /// Two people ask for the same retry at the same time.
    async fn retry_twice(&mut self, job: &JobView, created: &mut Created) {
        // What was applied after the first jobs had all ended has begun another run.
        let workflow = self.client.get_workflow(job.workflow_id).await;
        let run = match self.note("get", workflow) {
            Some(Ok(workflow)) => workflow.run_id,
            Some(Err(_)) | None => 1,
        };
        let call = || self.client.retry_job(job.id, run, job.attempt_id + 1);
        let (first, second) = tokio::join!(call(), call());
        for answer in [first, second] {
            match self.note("retry", answer) {
                Some(Ok(_)) => created.retries.acknowledged += 1,
                // The other one was first.
                Some(Err(error))
                    if error.status().is_some_and(|status| (400..500).contains(&status)) => {}
                Some(Err(error)) => self.history.wrong.push(format!("retry: {error}")),
                None => created.retries.unknown += 1,
            }
        }
    }

    /// Puts right what the bad item stumbles over, and two people ask for it to run again. Called
    /// until it is no longer failed: an answer may get lost before the request was carried out.
    async fn retry_item(&mut self, created: &mut Created) {
        let dir = std::path::Path::new(&self.directory).join("repaired");
        if let Err(error) = std::fs::write(dir.join(created.id.to_string()), "") {
            self.history.wrong.push(format!("the harness cannot repair an item: {error}"));
        }
        let request = items_request(BAD_ITEM.trim_start_matches("each/"));
        let call = || self.client.retry_items(WorkflowId(created.id), &request);
        let (first, second) = tokio::join!(call(), call());
        for answer in [first, second] {
            match self.note("retry of items", answer) {
                Some(Ok(page)) => created.item_retries.acknowledged += page.items.len() as u64,
                // The other one was first.
                Some(Err(error))
                    if error.status().is_some_and(|status| (400..500).contains(&status)) => {}
                Some(Err(error)) => self.history.wrong.push(format!("retry of items: {error}")),
                None => created.item_retries.unknown += 1,
            }
        }
    }

    /// Two people take the item that always fails out of the count. Called until it is no longer failed.
    async fn drop_item(&mut self, created: &Created) {
        let request = items_request(DEAD_KEY);
        let call = || self.client.drop_items(WorkflowId(created.id), &request);
        let (first, second) = tokio::join!(call(), call());
        let mut dropped = 0;
        for answer in [first, second] {
            match self.note("drop of items", answer) {
                Some(Ok(page)) => dropped += page.items.len(),
                // The other one was first.
                Some(Err(error))
                    if error.status().is_some_and(|status| (400..500).contains(&status)) => {}
                Some(Err(error)) => self.history.wrong.push(format!("drop of items: {error}")),
                None => {}
            }
        }
        if dropped > 1 {
            self.history.wrong.push(format!("an item was dropped {dropped} times"));
        }
    }

    /// Reads how everything ended; false when the server was killed meanwhile.
    async fn finish(&mut self, created: &mut Created) -> bool {
        let query = Query::new().add("workflow_id", created.id);
        let jobs = self.client.list_all::<JobView>("/jobs", &query).await;
        let Some(Ok(jobs)) = self.note("jobs", jobs) else { return false };
        let mut attempts = Vec::new();
        for job in &jobs {
            let page = self.client.list_attempts(job.id).await;
            let Some(Ok(page)) = self.note("attempts", page) else { return false };
            attempts.extend(page.items);
        }
        let path = format!("/workflows/{}/events", created.id);
        let events = self.client.list_all::<EventView>(&path, &Query::new()).await;
        let Some(Ok(events)) = self.note("events", events) else { return false };
        created.events = events;
        (created.jobs, created.attempts) = (jobs, attempts);
        true
    }
}

fn items_request(key: &str) -> ItemsRequest {
    ItemsRequest { job: MAP.into(), keys: vec![key.into()], filter: None, item: None }
}
