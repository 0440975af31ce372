//! The outbox of webhooks: a delivery is a row of the transaction that made its event.

use super::journal::json;
use super::load::parse;
use super::lookups;
use super::read::page;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use crate::courier;
use rusqlite::{Connection, OptionalExtension, Row, params};
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

/// The endpoints, at boot.
pub fn load(db: &Connection) -> rusqlite::Result<Vec<Endpoint>> {
    let mut statement =
        db.prepare("SELECT id, events, workflow_id, kind FROM webhook ORDER BY id")?;
    let rows = statement.query_map([], |row| {
        let events: String = row.get(1)?;
        Ok(Endpoint {
            id: row.get(0)?,
            events: parse(&events)?,
            workflow: row.get::<_, Option<i64>>(2)?.map(WorkflowId),
            kind: NotifyKind::parse(&row.get::<_, String>(3)?),
        })
    })?;
    rows.collect()
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
        db.prepare_cached(
            "INSERT OR IGNORE INTO webhook_delivery (webhook_id, event_id, event, payload, state, next_try_ms, created_ms)
             VALUES (?1, ?2, ?3, ?4, 'pending', ?5, ?5)",
        )?
        .execute(params![endpoint.id, event.id, name, payload, event.timestamp_ms])?;
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
    let id = tx
        .db
        .prepare_cached(
            "INSERT INTO webhook (url, secret, events, workflow_id, allow_private, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .insert(params![
            new.url,
            secret,
            json(Some(&new.events))?,
            new.workflow_id.map(|w| w.0),
            new.allow_private,
            tx.now
        ])?;
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

const VIEW: &str = "SELECT w.id, w.url, w.events, w.workflow_id, w.allow_private, w.created_ms,
    (SELECT count(*) FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'pending'),
    (SELECT count(*) FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'dead') FROM webhook w
    WHERE w.kind = 'webhook'";

fn view(row: &Row<'_>) -> rusqlite::Result<WebhookView> {
    let events: String = row.get(2)?;
    Ok(WebhookView {
        id: row.get(0)?,
        url: row.get(1)?,
        events: parse(&events)?,
        workflow_id: row.get::<_, Option<i64>>(3)?.map(WorkflowId),
        allow_private: row.get(4)?,
        created_ms: row.get(5)?,
        pending: row.get(6)?,
        dead: row.get(7)?,
        secret: None,
    })
}

/// One endpoint.
pub fn get(tx: &Tx<'_>, id: i64) -> Result<WebhookView, Failed> {
    let row =
        tx.db.prepare_cached(&format!("{VIEW} AND w.id = ?1"))?.query_row([id], view).optional()?;
    row.ok_or_else(|| Refusal::not_found("webhook", id).into())
}

/// All endpoints.
pub fn list(tx: &Tx<'_>) -> Result<Vec<WebhookView>, Failed> {
    Ok(tx
        .db
        .prepare_cached(&format!("{VIEW} ORDER BY w.id"))?
        .query_map([], view)?
        .collect::<Result<_, _>>()?)
}

/// Removes an endpoint with its deliveries.
pub fn delete(tx: &mut Tx<'_>, id: i64) -> Result<(), Failed> {
    let gone = tx.db.prepare_cached("DELETE FROM webhook WHERE id = ?1")?.execute([id])?;
    if gone == 0 {
        return Err(Refusal::not_found("webhook", id).into());
    }
    tx.state.webhooks.retain(|e| e.id != id);
    Ok(())
}

const DELIVERY: &str =
    "SELECT id, webhook_id, event, payload, state, tries, next_try_ms, last_error, created_ms, delivered_ms
    FROM webhook_delivery";

fn delivery(row: &Row<'_>) -> rusqlite::Result<DeliveryView> {
    let payload: String = row.get(3)?;
    Ok(DeliveryView {
        id: row.get(0)?,
        webhook_id: row.get(1)?,
        event: row.get(2)?,
        payload: parse(&payload)?,
        state: page::word(row, "state", DeliveryState::parse)?,
        tries: row.get(5)?,
        next_try_ms: row.get(6)?,
        last_error: row.get(7)?,
        created_ms: row.get(8)?,
        delivered_ms: row.get(9)?,
    })
}

/// The newest deliveries of an endpoint, all or those in one state.
pub fn deliveries(
    tx: &Tx<'_>,
    webhook: i64,
    state: Option<DeliveryState>,
) -> Result<Vec<DeliveryView>, Failed> {
    get(tx, webhook)?;
    let sql = format!(
        "{DELIVERY} WHERE webhook_id = ?1 AND (?2 IS NULL OR state = ?2) ORDER BY id DESC LIMIT 1000"
    );
    Ok(tx
        .db
        .prepare_cached(&sql)?
        .query_map(params![webhook, state.map(DeliveryState::as_str)], delivery)?
        .collect::<Result<_, _>>()?)
}

/// Tries a delivery again, from the beginning.
pub fn redeliver(tx: &mut Tx<'_>, id: i64) -> Result<DeliveryView, Failed> {
    let changed = tx
        .db
        .prepare_cached(
            "UPDATE webhook_delivery SET state = 'pending', tries = 0, next_try_ms = ?2, delivered_ms = NULL WHERE id = ?1",
        )?
        .execute([id, tx.now])?;
    if changed == 0 {
        return Err(Refusal::not_found("delivery", id).into());
    }
    *tx.outbox = true;
    Ok(tx.db.prepare_cached(&format!("{DELIVERY} WHERE id = ?1"))?.query_row([id], delivery)?)
}

/// Deliveries to try now, and when the next one is due. One that lies further ahead than the longest
/// wait was put there by a clock that has been set back since: it is due.
pub fn due(tx: &Tx<'_>, limit: i64) -> Result<(Vec<Due>, Option<i64>), Failed> {
    let mut statement = tx.db.prepare_cached(
        "SELECT d.id, w.url, w.secret, w.allow_private, d.payload, d.tries, w.kind FROM webhook_delivery d
         JOIN webhook w ON w.id = d.webhook_id WHERE d.state = 'pending' AND (d.next_try_ms <= ?1 OR d.next_try_ms > ?3)
         ORDER BY d.next_try_ms, d.id LIMIT ?2",
    )?;
    let longest = BACKOFF_SECONDS.iter().max().copied().unwrap_or_default() * 1000;
    let rows = statement.query_map([tx.now, limit, tx.now + longest], |row| {
        Ok(Due {
            id: row.get(0)?,
            url: row.get(1)?,
            secret: row.get(2)?,
            allow_private: row.get(3)?,
            payload: row.get(4)?,
            tries: row.get(5)?,
            kind: NotifyKind::parse(&row.get::<_, String>(6)?),
        })
    })?;
    let due = rows.collect::<Result<_, _>>()?;
    let next = tx
        .db
        .prepare_cached("SELECT min(next_try_ms) FROM webhook_delivery WHERE state = 'pending' AND next_try_ms > ?1")?
        .query_row([tx.now], |row| row.get(0))?;
    Ok((due, next))
}

/// Notes how a try went.
pub fn tried(tx: &mut Tx<'_>, id: i64, outcome: &Result<(), String>) -> Result<(), Failed> {
    match outcome {
        Ok(()) => tx.db.prepare_cached(
            "UPDATE webhook_delivery SET state = 'delivered', tries = tries + 1, next_try_ms = NULL, last_error = NULL,
             delivered_ms = ?2 WHERE id = ?1 AND state = 'pending'",
        )?.execute([id, tx.now])?,
        Err(error) => {
            let tries: Option<i64> = tx
                .db
                .prepare_cached("SELECT tries FROM webhook_delivery WHERE id = ?1 AND state = 'pending'")?
                .query_row([id], |row| row.get(0))
                .optional()?;
            let Some(tries) = tries else { return Ok(()) };
            let wait = usize::try_from(tries).ok().and_then(|t| BACKOFF_SECONDS.get(t));
            let (state, next) = match wait {
                Some(seconds) => (DeliveryState::Pending, Some(tx.now + seconds * 1000)),
                None => (DeliveryState::Dead, None),
            };
            tx.db
                .prepare_cached(
                    "UPDATE webhook_delivery SET state = ?2, tries = tries + 1, next_try_ms = ?3, last_error = ?4 WHERE id = ?1",
                )?
                .execute(params![id, state.as_str(), next, error])?
        }
    };
    Ok(())
}
