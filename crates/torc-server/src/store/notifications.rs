//! Notifications: endpoints of the outbox whose reader is a person.
//!
//! A person gets one message per group of events, not one per job. The row of the outbox has the group's
//! key, and the database refuses a second one, so that a crash, a retry or ten thousand failures at
//! once cannot make two.

use super::Store;
use super::journal::json;
use super::load::parse;
use super::read::page;
use super::refusal::Refusal;
use super::webhooks::{Endpoint, check_url};
use super::writer::{Failed, Tx};
use crate::mail::Mail;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::{Value, json};
use torc_model::api::{CreateNotification, EventView, NotificationView, NotifyEvent, NotifyKind};
use torc_model::event::EventKind;
use torc_model::ids::WorkflowId;

/// A target of more bytes is a mistake.
const LONGEST: usize = 4096;

impl Store {
    /// Who is told of what.
    pub async fn notifications(&self) -> Result<Vec<NotificationView>, Refusal> {
        self.writer
            .call(|tx| {
                let mut statement = tx.db.prepare_cached(&format!("{VIEW} ORDER BY w.id"))?;
                let rows = statement.query_map([], view)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// One of them.
    pub async fn notification(&self, id: i64) -> Result<NotificationView, Refusal> {
        self.writer.call(move |tx| get(tx, id)).await
    }

    /// A new one, or the same that there is.
    pub async fn create_notification(
        &self,
        new: CreateNotification,
    ) -> Result<NotificationView, Refusal> {
        self.writer.call(move |tx| create(tx, &new)).await
    }

    /// Puts a message into the outbox that says nothing but that it came.
    pub async fn test_notification(&self, id: i64) -> Result<NotificationView, Refusal> {
        self.writer
            .call(move |tx| {
                get(tx, id)?;
                let payload = json!({"event": "test", "timestamp_ms": tx.now}).to_string();
                // Negative, as there is no event; one per test.
                let least: i64 = tx
                    .db
                    .prepare_cached(
                        "SELECT min(0, coalesce(min(event_id), 0)) FROM webhook_delivery WHERE webhook_id = ?1",
                    )?
                    .query_row([id], |row| row.get(0))?;
                let message = OutboxMessage {
                    endpoint: id,
                    event: least - 1,
                    name: "test",
                    payload: &payload,
                    group: None,
                };
                insert(tx.db, &message, tx.now)?;
                *tx.outbox = true;
                get(tx, id)
            })
            .await
    }
}

/// A message for an endpoint, as it stands in the outbox.
struct OutboxMessage<'a> {
    endpoint: i64,
    /// Negative where there is no event.
    event: i64,
    name: &'a str,
    payload: &'a str,
    group: Option<&'a str>,
}

fn insert(db: &Connection, message: &OutboxMessage<'_>, now: i64) -> rusqlite::Result<usize> {
    let OutboxMessage { endpoint, event, name, payload, group } = *message;
    db.prepare_cached(
        "INSERT OR IGNORE INTO webhook_delivery (webhook_id, event_id, event, payload, state, next_try_ms, created_ms, group_key)
         VALUES (?1, ?2, ?3, ?4, 'pending', ?5, ?5, ?6)",
    )?
    .execute(params![endpoint, event, name, payload, now, group])
}

/// What people hear of an event.
fn told(event: &EventView) -> Option<NotifyEvent> {
    match event.kind {
        EventKind::WorkflowCompleted => Some(NotifyEvent::End),
        EventKind::JobFailed | EventKind::JobTerminated => {
            let will_retry = event.data.get("will_retry").and_then(Value::as_bool);
            (will_retry != Some(true)).then_some(NotifyEvent::Failure)
        }
        EventKind::JobPendingFailed | EventKind::ClassificationHeld => Some(NotifyEvent::Verdict),
        _ => None,
    }
}

/// The group that an event belongs to; its first makes the message.
fn group(db: &Connection, kind: NotifyEvent, event: &EventView) -> rusqlite::Result<String> {
    let run: i64 = match event.data.get("run_id").and_then(Value::as_i64) {
        Some(run) => run,
        None => db
            .prepare_cached("SELECT run_id FROM workflow WHERE id = ?1")?
            .query_row([event.workflow_id.0], |row| row.get(0))?,
    };
    let workflow = event.workflow_id;
    Ok(match kind {
        // A run may end more than once: a job is retried by hand, and it ends again.
        NotifyEvent::End => format!("end {workflow} {run} {}", event.id),
        NotifyEvent::Failure => format!("failure {workflow} {run}"),
        // What waits after the next verdict is another group.
        NotifyEvent::Verdict => {
            let verdicts: i64 = db
                .prepare_cached(
                    "SELECT count(*) FROM classification WHERE workflow_id = ?1 AND decided_ms IS NOT NULL",
                )?
                .query_row([workflow.0], |row| row.get(0))?;
            format!("verdict {workflow} {run} {verdicts}")
        }
    })
}

/// Writes a message for an endpoint of a person, if it wants this event and its group has none.
/// Tells whether there is one.
pub fn enqueue(db: &Connection, endpoint: &Endpoint, event: &EventView) -> rusqlite::Result<bool> {
    let Some(kind) = told(event) else { return Ok(false) };
    if !endpoint.wants(kind.as_str(), event.workflow_id) {
        return Ok(false);
    }
    let group = group(db, kind, event)?;
    let is_new = db
        .prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM webhook_delivery WHERE webhook_id = ?1 AND group_key = ?2)",
        )?
        .query_row(params![endpoint.id(), group], |row| row.get::<_, bool>(0))?;
    if !is_new {
        return Ok(false);
    }
    let payload = super::webhooks::payload(db, kind.as_str(), event)?;
    let message = OutboxMessage {
        endpoint: endpoint.id(),
        event: event.id,
        name: kind.as_str(),
        payload: &payload,
        group: Some(&group),
    };
    insert(db, &message, event.timestamp_ms)?;
    Ok(true)
}

fn check(new: &CreateNotification) -> Result<(), Refusal> {
    let wrong = |message: String| Refusal::invalid("target", message);
    if new.target.len() > LONGEST {
        return Err(wrong(format!("`target` has more than {LONGEST} bytes")));
    }
    match new.kind {
        NotifyKind::Slack | NotifyKind::Teams | NotifyKind::Ntfy => {
            check_url("target", &new.target, new.allow_private)
        }
        NotifyKind::Mail => Mail::parse(&new.target).map(drop).map_err(wrong),
        NotifyKind::Command => {
            let argv: Result<Vec<String>, _> = serde_json::from_str(&new.target);
            match argv.as_deref() {
                Ok([program, ..]) if program.starts_with('/') => Ok(()),
                _ => Err(wrong(
                    "a command is a JSON list that begins with the whole path of a program".into(),
                )),
            }
        }
    }
}

fn create(tx: &mut Tx<'_>, new: &CreateNotification) -> Result<NotificationView, Failed> {
    check(new)?;
    if let Some(id) = new.workflow_id {
        tx.workflow(id)?;
    }
    let events = json(Some(&new.events))?;
    let known: Option<i64> = tx
        .db
        .prepare_cached(
            "SELECT id FROM webhook WHERE kind = ?1 AND url = ?2 AND workflow_id IS ?3 AND events = ?4",
        )?
        .query_row(
            params![new.kind.as_str(), new.target, new.workflow_id.map(|id| id.0), events],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(id) = known {
        return get(tx, id);
    }
    let id = tx
        .db
        .prepare_cached(
            "INSERT INTO webhook (kind, url, secret, events, workflow_id, allow_private, created_ms)
             VALUES (?1, ?2, '', ?3, ?4, ?5, ?6)",
        )?
        .insert(params![
            new.kind.as_str(),
            new.target,
            events,
            new.workflow_id.map(|id| id.0),
            new.allow_private,
            tx.now
        ])?;
    let words = new.events.iter().map(|event| event.as_str().to_owned()).collect();
    tx.state.webhooks.push(Endpoint::new(id, words, new.workflow_id, Some(new.kind)));
    get(tx, id)
}

const VIEW: &str = "SELECT w.id, w.kind, w.url, w.events, w.workflow_id, w.created_ms,
    (SELECT count(*) FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'pending') AS pending,
    (SELECT count(*) FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'dead') AS dead,
    (SELECT d.last_error FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.last_error IS NOT NULL
     ORDER BY d.id DESC LIMIT 1) AS last_error
    FROM webhook w WHERE w.kind <> 'webhook'";

fn view(row: &Row<'_>) -> rusqlite::Result<NotificationView> {
    let kind = page::word(row, "kind", NotifyKind::parse)?;
    let (events, target): (String, String) = (row.get("events")?, row.get("url")?);
    Ok(NotificationView {
        id: row.get("id")?,
        kind,
        target: shown(kind, &target),
        events: parse(&events)?,
        workflow_id: row.get::<_, Option<i64>>("workflow_id")?.map(WorkflowId),
        created_ms: row.get("created_ms")?,
        pending: row.get("pending")?,
        dead: row.get("dead")?,
        last_error: row.get("last_error")?,
    })
}

/// The path of such a URL is the right to write there: only its host is shown.
fn shown(kind: NotifyKind, target: &str) -> String {
    match kind {
        NotifyKind::Mail | NotifyKind::Command => target.to_owned(),
        NotifyKind::Slack | NotifyKind::Teams | NotifyKind::Ntfy => {
            let uri = target.parse::<axum::http::Uri>().ok();
            let host = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?)));
            host.map_or_else(String::new, |(scheme, host)| format!("{scheme}://{host}/..."))
        }
    }
}

fn get(tx: &Tx<'_>, id: i64) -> Result<NotificationView, Failed> {
    let row =
        tx.db.prepare_cached(&format!("{VIEW} AND w.id = ?1"))?.query_row([id], view).optional()?;
    row.ok_or_else(|| Refusal::not_found("notification", id).into())
}
