//! Rows of reservations and named limits.

use crate::store::read::page;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, Row, params};
use torc_engine::{LimitChange, ReservationChange};
use torc_model::api::ReservationView;
use torc_model::status::ReservationStatus;

/// Writes what happened to a reservation.
pub fn reservation(db: &Connection, change: ReservationChange) -> rusqlite::Result<()> {
    match change {
        ReservationChange::Began { id, scope, reserved_by, token_hash, at, expires } => db
            .prepare_cached(
                "INSERT INTO reservation (id, scope, reserved_by, token_hash, reserved_ms, expires_ms, status)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                id,
                scope.to_string(),
                reserved_by,
                token_hash,
                at,
                expires,
                ReservationStatus::Active.as_str(),
            ])?,
        ReservationChange::Renewed { id, expires } => db
            .prepare_cached("UPDATE reservation SET expires_ms = ?2 WHERE id = ?1")?
            .execute([id, expires])?,
        ReservationChange::Ended { id, status, at } => db
            .prepare_cached("UPDATE reservation SET status = ?2, ended_ms = ?3 WHERE id = ?1")?
            .execute(params![id, status.as_str(), at])?,
    };
    Ok(())
}

/// Writes what became of a named limit. One that is set to what it was keeps the time of its change.
pub fn write_limit(db: &Connection, change: LimitChange, now: i64) -> rusqlite::Result<()> {
    match change {
        LimitChange::Set { name, max } => db
            .prepare_cached(
                "INSERT INTO named_limit (name, max, changed_ms) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET max = ?2, changed_ms = ?3 WHERE max <> ?2",
            )?
            .execute(params![name, max, now])?,
        LimitChange::Removed(name) => {
            db.prepare_cached("DELETE FROM named_limit WHERE name = ?1")?.execute([name])?
        }
    };
    Ok(())
}

const RESERVATIONS: &str =
    "SELECT id, scope, reserved_by, reserved_ms, expires_ms, ended_ms, status FROM reservation";

fn reservation_view(row: &Row<'_>) -> rusqlite::Result<ReservationView> {
    Ok(ReservationView {
        id: row.get(0)?,
        scope: row.get(1)?,
        reserved_by: row.get(2)?,
        reserved_ms: row.get(3)?,
        expires_ms: row.get(4)?,
        ended_ms: row.get(5)?,
        status: page::word(row, "status", ReservationStatus::parse)?,
        token: None,
        still_running: None,
    })
}

/// One reservation.
pub fn find_reservation(db: &Connection, id: i64) -> rusqlite::Result<Option<ReservationView>> {
    db.prepare_cached(&format!("{RESERVATIONS} WHERE id = ?1"))?.find([id], reservation_view)
}

/// The active reservation of a scope.
pub fn active_reservation(
    db: &Connection,
    scope: &str,
) -> rusqlite::Result<Option<ReservationView>> {
    db.prepare_cached(&format!("{RESERVATIONS} WHERE scope = ?1 AND status = 'ACTIVE'"))?
        .find([scope], reservation_view)
}

/// The newest reservations.
pub fn reservations(db: &Connection) -> rusqlite::Result<Vec<ReservationView>> {
    db.prepare_cached(&format!("{RESERVATIONS} ORDER BY id DESC LIMIT 1000"))?
        .all([], reservation_view)
}
