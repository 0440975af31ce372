//! Notifications: endpoints of the outbox whose reader is a person.
//!
//! A person gets one message per group of events, not one per job. The row of the outbox has the group's
//! key, and the database refuses a second one, so that a crash, a retry or ten thousand failures at
//! once cannot make two.

use super::Store;
use super::journal::outbox::{self, EndpointRow, EndpointState, OutboxMessage};
use super::journal::verdicts;
use super::load::parse;
use super::lookups;
use super::refusal::Refusal;
use super::webhooks::{Endpoint, check_url};
use super::writer::{Failed, Tx};
use crate::mail::Mail;
use rusqlite::Connection;
use serde_json::{Value, json};
use torc_model::api::{CreateNotification, EventView, NotificationView, NotifyEvent, NotifyKind};
use torc_model::event::EventKind;

/// A target of more bytes is a mistake.
const LONGEST: usize = 4096;

impl Store {
    /// Who is told of what.
    pub async fn notifications(&self) -> Result<Vec<NotificationView>, Refusal> {
        self.writer
            .call(|tx| {
                let rows = outbox::endpoints(tx.db, None)?.into_iter();
                Ok(rows.filter_map(|row| view(row).transpose()).collect::<Result<_, _>>()?)
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
                let message = OutboxMessage {
                    endpoint: id,
                    // One per test.
                    event: outbox::number_without_event(tx.db, id)?,
                    name: "test",
                    payload: &payload,
                    group: None,
                };
                outbox::insert_delivery(tx.db, &message, tx.now)?;
                tx.consequences.outbox = true;
                get(tx, id)
            })
            .await
    }
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
        None => lookups::run_of(db, event.workflow_id)?.unwrap_or_default(),
    };
    let workflow = event.workflow_id;
    Ok(match kind {
        // A run may end more than once: a job is retried by hand, and it ends again.
        NotifyEvent::End => format!("end {workflow} {run} {}", event.id),
        NotifyEvent::Failure => format!("failure {workflow} {run}"),
        // What waits after the next verdict is another group.
        NotifyEvent::Verdict => {
            let decided = verdicts::count_decided(db, workflow)?;
            format!("verdict {workflow} {run} {decided}")
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
    if outbox::has_message(db, endpoint.id(), &group)? {
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
    outbox::insert_delivery(db, &message, event.timestamp_ms)?;
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
    let words: Vec<String> = new.events.iter().map(|event| event.as_str().to_owned()).collect();
    let alike = |one: &&Endpoint| one.is_of(new.kind, &words, new.workflow_id);
    for one in tx.state.webhooks.iter().filter(alike) {
        let row = outbox::endpoints(tx.db, Some(one.id()))?.pop();
        if row.is_some_and(|row| row.url == new.target) {
            return get(tx, one.id());
        }
    }
    let row = EndpointRow {
        kind: Some(new.kind),
        url: &new.target,
        secret: "",
        events: &new.events,
        workflow: new.workflow_id,
        allow_private: new.allow_private,
    };
    let id = outbox::insert_endpoint(tx.db, &row, tx.now)?;
    tx.state.webhooks.push(Endpoint::new(id, words, new.workflow_id, Some(new.kind)));
    get(tx, id)
}

/// None: a program is told, and not a person.
fn view(row: EndpointState) -> rusqlite::Result<Option<NotificationView>> {
    let Some(kind) = row.kind else { return Ok(None) };
    Ok(Some(NotificationView {
        id: row.id,
        kind,
        target: shown(kind, &row.url),
        events: parse(&row.events)?,
        workflow_id: row.workflow,
        created_ms: row.created_ms,
        pending: row.pending,
        dead: row.dead,
        last_error: row.last_error,
    }))
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
    let row = outbox::endpoints(tx.db, Some(id))?.pop();
    let view = row.map(view).transpose()?.flatten();
    view.ok_or_else(|| Refusal::not_found("notification", id).into())
}
