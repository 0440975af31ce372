//! Rows of endpoints and of the outbox: programs (`webhook`) and people are told through the same two tables.

use super::json;
use super::load::parse;
use crate::store::read::page;
use crate::store::rows::Rows as _;
use crate::store::webhooks::{BACKOFF_SECONDS, Due, Endpoint};
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use torc_model::api::{DeliveryView, NotifyKind};
use torc_model::ids::WorkflowId;
use torc_model::status::DeliveryState;

/// The kind of endpoints that are programs.
const PROGRAM: &str = "webhook";

/// A new endpoint.
pub struct EndpointRow<'a, E> {
    /// How a person is told; None: a program.
    pub kind: Option<NotifyKind>,
    /// Where to.
    pub url: &'a str,
    /// Signs deliveries to programs.
    pub secret: &'a str,
    /// The events it wants.
    pub events: &'a [E],
    /// Of this workflow only.
    pub workflow: Option<WorkflowId>,
    /// Loopback and private addresses are allowed.
    pub allow_private: bool,
}

/// Writes an endpoint.
pub fn insert_endpoint<E: Serialize>(
    db: &Connection,
    new: &EndpointRow<'_, E>,
    now: i64,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO webhook (kind, url, secret, events, workflow_id, allow_private, created_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .insert(params![
        new.kind.map_or(PROGRAM, |kind| kind.as_str()),
        new.url,
        new.secret,
        json(Some(&new.events))?,
        new.workflow.map(|id| id.0),
        new.allow_private,
        now
    ])
}

/// Deletes an endpoint with its deliveries; false: it is not there.
pub fn delete_endpoint(db: &Connection, id: i64) -> rusqlite::Result<bool> {
    Ok(db.prepare_cached("DELETE FROM webhook WHERE id = ?1")?.execute([id])? > 0)
}

/// An endpoint with what became of its deliveries.
pub struct EndpointState {
    pub id: i64,
    /// How a person is told; None: a program.
    pub kind: Option<NotifyKind>,
    /// Where to.
    pub url: String,
    /// The events it wants, as JSON.
    pub events: String,
    /// Of this workflow only.
    pub workflow: Option<WorkflowId>,
    /// Loopback and private addresses are allowed.
    pub allow_private: bool,
    /// Since when.
    pub created_ms: i64,
    /// Deliveries that wait.
    pub pending: i64,
    /// Deliveries that were given up.
    pub dead: i64,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// All endpoints, or the one with this id.
pub fn endpoints(db: &Connection, id: Option<i64>) -> rusqlite::Result<Vec<EndpointState>> {
    db.prepare_cached(
        "SELECT w.id, w.kind, w.url, w.events, w.workflow_id, w.allow_private, w.created_ms,
         (SELECT count(*) FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'pending'),
         (SELECT count(*) FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.state = 'dead'),
         (SELECT d.last_error FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.last_error IS NOT NULL
          ORDER BY d.id DESC LIMIT 1)
         FROM webhook w WHERE ?1 IS NULL OR w.id = ?1 ORDER BY w.id",
    )?
    .all([id], |row| {
        Ok(EndpointState {
            id: row.get(0)?,
            kind: NotifyKind::parse(&row.get::<_, String>(1)?),
            url: row.get(2)?,
            events: row.get(3)?,
            workflow: row.get::<_, Option<i64>>(4)?.map(WorkflowId),
            allow_private: row.get(5)?,
            created_ms: row.get(6)?,
            pending: row.get(7)?,
            dead: row.get(8)?,
            last_error: row.get(9)?,
        })
    })
}

/// The endpoints as the writer keeps them in memory, without a count of their deliveries.
pub fn load_endpoints(db: &Connection) -> rusqlite::Result<Vec<Endpoint>> {
    db.prepare_cached("SELECT id, events, workflow_id, kind FROM webhook ORDER BY id")?.all(
        [],
        |row| {
            let events: String = row.get(1)?;
            let workflow = row.get::<_, Option<i64>>(2)?.map(WorkflowId);
            let kind = NotifyKind::parse(&row.get::<_, String>(3)?);
            Ok(Endpoint::new(row.get(0)?, parse(&events)?, workflow, kind))
        },
    )
}

/// A message for an endpoint, as it stands in the outbox.
pub struct OutboxMessage<'a> {
    /// For whom.
    pub endpoint: i64,
    /// Negative where there is no event.
    pub event: i64,
    /// Of the event.
    pub name: &'a str,
    /// The body.
    pub payload: &'a str,
    /// The database refuses a second message of the same group.
    pub group: Option<&'a str>,
}

/// Puts a message into the outbox; one that is there already stays as it is.
pub fn insert_delivery(
    db: &Connection,
    message: &OutboxMessage<'_>,
    now: i64,
) -> rusqlite::Result<()> {
    let OutboxMessage { endpoint, event, name, payload, group } = *message;
    db.prepare_cached(
        "INSERT OR IGNORE INTO webhook_delivery (webhook_id, event_id, event, payload, state, next_try_ms, created_ms, group_key)
         VALUES (?1, ?2, ?3, ?4, 'pending', ?5, ?5, ?6)",
    )?
    .execute(params![endpoint, event, name, payload, now, group])?;
    Ok(())
}

/// An endpoint has a message of this group.
pub fn has_message(db: &Connection, endpoint: i64, group: &str) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM webhook_delivery WHERE webhook_id = ?1 AND group_key = ?2)",
    )?
    .query_row(params![endpoint, group], |row| row.get(0))
}

/// The number of a message of an endpoint that no event made: one less than the least, below zero.
pub fn number_without_event(db: &Connection, endpoint: i64) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT min(0, coalesce(min(event_id), 0)) - 1 FROM webhook_delivery WHERE webhook_id = ?1",
    )?
    .query_row([endpoint], |row| row.get(0))
}

const DELIVERY: &str =
    "SELECT id, webhook_id, event, payload, state, tries, next_try_ms, last_error, created_ms, delivered_ms
    FROM webhook_delivery";

fn delivery_view(row: &Row<'_>) -> rusqlite::Result<DeliveryView> {
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
    db: &Connection,
    endpoint: i64,
    state: Option<DeliveryState>,
) -> rusqlite::Result<Vec<DeliveryView>> {
    let sql = format!(
        "{DELIVERY} WHERE webhook_id = ?1 AND (?2 IS NULL OR state = ?2) ORDER BY id DESC LIMIT 1000"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let state = state.map(DeliveryState::as_str);
    let rows = statement.query_map(params![endpoint, state], delivery_view)?;
    rows.collect()
}

/// One delivery.
pub fn delivery(db: &Connection, id: i64) -> rusqlite::Result<Option<DeliveryView>> {
    let sql = format!("{DELIVERY} WHERE id = ?1");
    db.prepare_cached(&sql)?.find([id], delivery_view)
}

/// Deliveries to try now, and when the next one is due. One that lies further ahead than the longest
/// wait was put there by a clock that has been set back since: it is due.
pub fn due(db: &Connection, limit: i64, now: i64) -> rusqlite::Result<(Vec<Due>, Option<i64>)> {
    let mut statement = db.prepare_cached(
        "SELECT d.id, w.url, w.secret, w.allow_private, d.payload, d.tries, w.kind FROM webhook_delivery d
         JOIN webhook w ON w.id = d.webhook_id WHERE d.state = 'pending' AND (d.next_try_ms <= ?1 OR d.next_try_ms > ?3)
         ORDER BY d.next_try_ms, d.id LIMIT ?2",
    )?;
    let longest = BACKOFF_SECONDS.iter().max().copied().unwrap_or_default() * 1000;
    let rows = statement.query_map([now, limit, now + longest], |row| {
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
    let due = rows.collect::<rusqlite::Result<_>>()?;
    let next = db
        .prepare_cached("SELECT min(next_try_ms) FROM webhook_delivery WHERE state = 'pending' AND next_try_ms > ?1")?
        .query_row([now], |row| row.get(0))?;
    Ok((due, next))
}

/// How a delivery goes on.
pub struct Tried<'a> {
    /// Where it stands.
    pub state: DeliveryState,
    /// How often it was tried.
    pub tries: i64,
    /// When it is tried next.
    pub next_try_ms: Option<i64>,
    /// What went wrong last.
    pub error: Option<&'a str>,
    /// When it reached its endpoint.
    pub delivered_ms: Option<i64>,
}

/// Writes how a delivery goes on.
pub fn write_delivery(db: &Connection, id: i64, tried: &Tried<'_>) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE webhook_delivery SET state = ?2, tries = ?3, next_try_ms = ?4, last_error = ?5, delivered_ms = ?6
         WHERE id = ?1",
    )?
    .execute(params![
        id,
        tried.state.as_str(),
        tried.tries,
        tried.next_try_ms,
        tried.error,
        tried.delivered_ms
    ])?;
    Ok(())
}
