//! The outbox of webhooks: a delivery is a row of the transaction that made its event.

pub use super::journal::outbox::load_endpoints as load;
use super::journal::outbox::{self, EndpointRow, EndpointState, OutboxMessage, Tried};
use super::load::parse;
use super::lookups;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use crate::courier;
use rusqlite::Connection;
use serde_json::{Value, json};
use torc_model::api::{CreateWebhook, DeliveryView, EventView, NotifyKind, WebhookView};
use torc_model::event::EventKind;
use torc_model::ids::WorkflowId;
use torc_model::status::DeliveryState;

/// The events an endpoint may ask for.
pub const EVENTS: [&str; 6] = [
    "job.run.completed",
    "job.run.failed",
    "job.run.skipped",
    "job.pending_failed",
    "job.classification_held",
    "workflow.completed",
];

/// Waits between tries, in seconds. After the last one the delivery is dead until a user asks for
/// it again.
pub const BACKOFF_SECONDS: [i64; 6] = [5, 15, 45, 135, 405, 1215];

/// An endpoint, as far as the outbox needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    id: i64,
    events: Vec<String>,
    workflow: Option<WorkflowId>,
    /// How a person is told; None: a program.
    kind: Option<NotifyKind>,
}

impl Endpoint {
    /// As its row has it.
    pub fn new(
        id: i64,
        events: Vec<String>,
        workflow: Option<WorkflowId>,
        kind: Option<NotifyKind>,
    ) -> Self {
        Self { id, events, workflow, kind }
    }

    /// Its row.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Tells a person in this way of these events of this workflow.
    pub fn is_of(&self, kind: NotifyKind, events: &[String], workflow: Option<WorkflowId>) -> bool {
        self.kind == Some(kind) && self.events == events && self.workflow == workflow
    }

    /// Wants events of this name and workflow.
    pub fn wants(&self, name: &str, workflow: WorkflowId) -> bool {
        let has_name = self.events.is_empty() || self.events.iter().any(|event| event == name);
        has_name && self.workflow.is_none_or(|own| own == workflow)
    }
}

/// A delivery to try now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Due {
    /// Its row.
    pub id: i64,
    /// Where to.
    pub url: String,
    /// Signs it.
    pub secret: String,
    /// Loopback and private addresses are allowed.
    pub allow_private: bool,
    /// The body.
    pub payload: String,
    /// How often it was tried.
    pub tries: i64,
    /// How a person is told; None: a program.
    pub kind: Option<NotifyKind>,
}

/// What the world hears of an event; none for what is only ours.
fn public_name(event: &EventView) -> Option<&'static str> {
    match event.kind {
        EventKind::JobCompleted => Some("job.run.completed"),
        // A user asked for another attempt. If the last one had ended before, its end was told
        // then.
        EventKind::JobRetried if event.data.get("will_retry").is_none() => None,
        EventKind::JobFailed | EventKind::JobTerminated | EventKind::JobRetried => {
            Some("job.run.failed")
        }
        EventKind::JobCanceled => Some("job.run.skipped"),
        EventKind::JobPendingFailed => Some("job.pending_failed"),
        EventKind::ClassificationHeld => Some("job.classification_held"),
        EventKind::WorkflowCompleted => Some("workflow.completed"),
        _ => None,
    }
}

/// Writes a delivery for every webhook that wants this event. Tells whether there was one.
pub fn enqueue(
    db: &Connection,
    endpoints: &[Endpoint],
    event: &EventView,
) -> rusqlite::Result<bool> {
    let mut any = false;
    for person in endpoints.iter().filter(|endpoint| endpoint.kind.is_some()) {
        any |= super::notifications::enqueue(db, person, event)?;
    }
    let Some(name) = public_name(event) else { return Ok(any) };
    for endpoint in endpoints {
        if endpoint.kind.is_some() || !endpoint.wants(name, event.workflow_id) {
            continue;
        }
        let payload = payload(db, name, event)?;
        let message = OutboxMessage {
            endpoint: endpoint.id,
            event: event.id,
            name,
            payload: &payload,
            group: None,
        };
        outbox::insert_delivery(db, &message, event.timestamp_ms)?;
        any = true;
    }
    Ok(any)
}

/// The body: flat, without output or secrets.
pub fn payload(db: &Connection, name: &str, event: &EventView) -> rusqlite::Result<String> {
    let data = &event.data;
    let will_retry = data
        .get("will_retry")
        .and_then(Value::as_bool)
        .unwrap_or(event.kind == EventKind::JobRetried);
    let job_name: Option<String> = match event.job_id {
        Some(job) => lookups::job_name(db, job)?,
        None => None,
    };
    let workflow_name = lookups::workflow_name(db, event.workflow_id)?;
    let body = json!({
        "event": name,
        "event_id": event.id,
        "timestamp_ms": event.timestamp_ms,
        "workflow_id": event.workflow_id,
        "workflow_name": workflow_name,
        "job_id": event.job_id,
        "job_name": job_name,
        "run_id": data.get("run_id"),
        "attempt_id": data.get("attempt_id"),
        "return_code": data.get("return_code"),
        "cause": data.get("cause"),
        "outcome": data.get("outcome"),
        "will_retry": will_retry,
        "final": !will_retry && !matches!(name, "job.pending_failed" | "job.classification_held"),
        "counts": data.get("counts"),
        "classification_id": data.get("classification_id"),
    });
    Ok(body.to_string())
}

/// A new endpoint.
pub fn create(tx: &mut Tx<'_>, new: &CreateWebhook, made_up: &str) -> Result<WebhookView, Failed> {
    check(new)?;
    if let Some(id) = new.workflow_id {
        tx.workflow(id)?;
    }
    let secret = new.secret.clone().unwrap_or_else(|| made_up.to_owned());
    let row = EndpointRow {
        kind: None,
        url: &new.url,
        secret: &secret,
        events: &new.events,
        workflow: new.workflow_id,
        allow_private: new.allow_private,
    };
    let id = outbox::insert_endpoint(tx.db, &row, tx.now)?;
    tx.state.webhooks.push(Endpoint::new(id, new.events.clone(), new.workflow_id, None));
    let mut view = get(tx, id)?;
    view.secret = Some(secret);
    Ok(view)
}

fn check(new: &CreateWebhook) -> Result<(), Refusal> {
    if let Some(unknown) = new.events.iter().find(|e| !EVENTS.contains(&e.as_str())) {
        return Err(Refusal::invalid(
            "events",
            format!("`{unknown}` is not an event; known events: {}", EVENTS.join(", ")),
        ));
    }
    check_url("url", &new.url, new.allow_private)
}

/// A URL that the courier would post to.
pub fn check_url(field: &str, url: &str, allow_private: bool) -> Result<(), Refusal> {
    let parsed: Result<axum::http::Uri, _> = url.parse();
    let uri = parsed.map_err(|e| Refusal::invalid(field, format!("`{url}` is not a URL: {e}")))?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        // It would be shown in lists and kept in the database as it is.
        let message = "the URL holds a user or a password, which would be shown to others";
        return Err(Refusal::invalid(field, message)
            .hint("leave it out: deliveries are signed with the webhook's secret"));
    }
    // What the courier would refuse at every try is refused at once.
    let address = uri.host().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
    if let Some(address) = address.filter(|ip| !allow_private && !courier::is_public(*ip)) {
        return Err(Refusal::invalid(field, format!("`{address}` is not a public address"))
            .hint("for a program of your own beside the server say `--allow-private`"));
    }
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(()),
        (Some("http"), Some(_)) if allow_private => Ok(()),
        (Some("http"), Some(_)) => {
            Err(Refusal::invalid(field, "deliveries over plain http need `allow_private`").hint(
                "use https; for a program of your own beside the server say `--allow-private`",
            ))
        }
        _ => Err(Refusal::invalid(field, format!("`{url}` is not an http or https URL"))),
    }
}

/// None: a person is told, and not a program.
fn view(row: EndpointState) -> rusqlite::Result<Option<WebhookView>> {
    if row.kind.is_some() {
        return Ok(None);
    }
    Ok(Some(WebhookView {
        id: row.id,
        url: row.url,
        events: parse(&row.events)?,
        workflow_id: row.workflow,
        allow_private: row.allow_private,
        created_ms: row.created_ms,
        pending: row.pending,
        dead: row.dead,
        secret: None,
    }))
}

/// One endpoint.
pub fn get(tx: &Tx<'_>, id: i64) -> Result<WebhookView, Failed> {
    let row = outbox::endpoints(tx.db, Some(id))?.pop();
    row.map(view).transpose()?.flatten().ok_or_else(|| Refusal::not_found("webhook", id).into())
}

/// All endpoints.
pub fn list(tx: &Tx<'_>) -> Result<Vec<WebhookView>, Failed> {
    let rows = outbox::endpoints(tx.db, None)?.into_iter();
    Ok(rows.filter_map(|row| view(row).transpose()).collect::<Result<_, _>>()?)
}

/// Removes an endpoint with its deliveries.
pub fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Failed> {
    if !outbox::delete_endpoint(tx.db, id)? {
        return Err(Refusal::not_found("webhook", id).into());
    }
    tx.state.webhooks.retain(|e| e.id != id);
    Ok(())
}

/// The newest deliveries of an endpoint, all or those in one state.
pub fn deliveries(
    tx: &Tx<'_>,
    webhook: i64,
    state: Option<DeliveryState>,
) -> Result<Vec<DeliveryView>, Failed> {
    get(tx, webhook)?;
    Ok(outbox::deliveries(tx.db, webhook, state)?)
}

/// Tries a delivery again, from the beginning.
pub fn redeliver(tx: &mut Tx<'_>, id: i64) -> Result<DeliveryView, Failed> {
    let Some(mut delivery) = outbox::delivery(tx.db, id)? else {
        return Err(Refusal::not_found("delivery", id).into());
    };
    delivery.state = DeliveryState::Pending;
    delivery.tries = 0;
    delivery.next_try_ms = Some(tx.now);
    delivery.delivered_ms = None;
    let again = Tried {
        state: delivery.state,
        tries: delivery.tries,
        next_try_ms: delivery.next_try_ms,
        error: delivery.last_error.as_deref(),
        delivered_ms: delivery.delivered_ms,
    };
    outbox::write_delivery(tx.db, id, &again)?;
    tx.consequences.outbox = true;
    Ok(delivery)
}

/// Notes how a try went, unless the delivery waits no longer.
pub fn tried(tx: &mut Tx<'_>, id: i64, outcome: &Result<(), String>) -> Result<(), Failed> {
    let waiting = outbox::delivery(tx.db, id)?.filter(|one| one.state == DeliveryState::Pending);
    let Some(before) = waiting else { return Ok(()) };
    let tries = before.tries + 1;
    let tried = match outcome {
        Ok(()) => Tried {
            state: DeliveryState::Delivered,
            tries,
            next_try_ms: None,
            error: None,
            delivered_ms: Some(tx.now),
        },
        Err(error) => {
            let wait = usize::try_from(before.tries).ok().and_then(|t| BACKOFF_SECONDS.get(t));
            let next = wait.map(|seconds| tx.now + seconds * 1000);
            let state = if next.is_some() { DeliveryState::Pending } else { DeliveryState::Dead };
            Tried { state, tries, next_try_ms: next, error: Some(error), delivered_ms: None }
        }
    };
    outbox::write_delivery(tx.db, id, &tried)?;
    Ok(())
}
