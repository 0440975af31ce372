//! Reservations pause claims in their scope; named limits bound how many jobs use something at
//! once.

use super::read::page;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use torc_model::api::{CreateReservation, ErrorCode, LimitView, ReservationToken, ReservationView};
use torc_model::core::LimitUse;
use torc_model::ids::WorkflowId;
use torc_model::status::{JobStatus, ReservationStatus};

const DEFAULT_TTL_SECONDS: i64 = 600;
const MAX_TTL_SECONDS: i64 = 86_400;
/// Most names in one message.
const MAX_NAMED: usize = 10;

/// An active reservation, as far as claims need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Active {
    /// Its row.
    pub id: i64,
    /// Who holds it.
    pub reserved_by: String,
    /// Until when at most, by the clock that nobody can set: its life is bounded whatever happens
    /// to the other one.
    pub until: i64,
}

/// Active reservations by scope.
pub type Reservations = BTreeMap<String, Active>;

/// The active ones. At boot recovery ends them all; after a failed commit they get what is left of
/// their time.
pub fn load(db: &Connection) -> rusqlite::Result<Reservations> {
    let (now, uptime) = (crate::clock::now_ms(), crate::clock::boottime_ms());
    let mut statement = db.prepare(
        "SELECT scope, id, reserved_by, expires_ms FROM reservation WHERE status = 'ACTIVE'",
    )?;
    let rows = statement.query_map([], |row| {
        let left = (row.get::<_, i64>(3)? - now).clamp(0, MAX_TTL_SECONDS * 1000);
        Ok((
            row.get(0)?,
            Active { id: row.get(1)?, reserved_by: row.get(2)?, until: uptime + left },
        ))
    })?;
    rows.collect()
}

/// Why claims of this workflow are paused.
pub fn paused(reservations: &Reservations, id: WorkflowId, uptime: i64) -> Option<String> {
    if reservations.is_empty() {
        return None;
    }
    ["all".to_owned(), format!("workflow:{id}")].iter().find_map(|scope| {
        let active = reservations.get(scope).filter(|r| r.until > uptime)?;
        let left = (active.until - uptime).max(0) / 1000;
        Some(format!(
            "claims are paused by reservation {} of {} for at most {left} s",
            active.id, active.reserved_by
        ))
    })
}

fn check_scope(tx: &mut Tx<'_>, scope: &str) -> Result<(), Failed> {
    let wrong = || {
        Refusal::invalid("scope", format!("`{scope}` is not `all`, `workflow:ID` or `limit:NAME`"))
    };
    match scope.split_once(':') {
        None if scope == "all" => Ok(()),
        Some(("workflow", id)) => {
            let id = id.parse().map_err(|_| wrong())?;
            tx.workflow(WorkflowId(id)).map(|_| ())
        }
        Some(("limit", name)) if !name.is_empty() => match tx.state.limits.contains_key(name) {
            true => Ok(()),
            false => Err(no_limit(tx, name).into()),
        },
        Some(_) | None => Err(wrong().into()),
    }
}

/// There is no limit of this name, but perhaps one that was meant.
fn no_limit(tx: &Tx<'_>, name: &str) -> Refusal {
    let known: Vec<&str> = tx.state.limits.keys().map(String::as_str).collect();
    let listed: Vec<String> =
        known.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    let message = match (known.len(), known.len().saturating_sub(MAX_NAMED)) {
        (0, _) => format!("there is no limit `{name}`; this server has none"),
        (_, 0) => format!("there is no limit `{name}` (known: {})", listed.join(", ")),
        (_, more) => {
            format!("there is no limit `{name}` (known: {} and {more} more)", listed.join(", "))
        }
    };
    let hint = match torc_spec::nearest(name, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("`torc limits set {name} MAX` makes it"),
    };
    Refusal::unknown(message).hint(hint)
}

fn ttl_ms(seconds: Option<i64>) -> Result<i64, Refusal> {
    match seconds.unwrap_or(DEFAULT_TTL_SECONDS) {
        ttl @ 1..=MAX_TTL_SECONDS => Ok(ttl * 1000),
        _ => {
            Err(Refusal::invalid("ttl_seconds", format!("must be between 1 and {MAX_TTL_SECONDS}")))
        }
    }
}

/// Makes a reservation, unless its scope has one.
pub fn create(
    tx: &mut Tx<'_>,
    request: &CreateReservation,
    token: &str,
) -> Result<ReservationView, Failed> {
    check_scope(tx, &request.scope)?;
    super::names::check_line("reserved_by", &request.reserved_by)?;
    let ttl = ttl_ms(request.ttl_seconds)?;
    if let Some(old) = tx.state.reservations.get(&request.scope).cloned() {
        if old.until > tx.uptime {
            let message =
                format!("reservation {} of {} holds `{}`", old.id, old.reserved_by, request.scope);
            let hint = format!("it ends in {} s at the latest", (old.until - tx.uptime) / 1000);
            return Err(Refusal::conflict(ErrorCode::Reserved, message).hint(hint).into());
        }
        end(tx, old.id, &request.scope, ReservationStatus::Expired)?;
    }
    let expires = tx.now + ttl;
    let id = tx
        .db
        .prepare_cached(
            "INSERT INTO reservation (scope, reserved_by, token_hash, reserved_ms, expires_ms, status)
             VALUES (?1, ?2, ?3, ?4, ?5, 'ACTIVE')",
        )?
        .insert(params![request.scope, request.reserved_by, crate::secret::hash_text(token), tx.now, expires])?;
    let active = Active { id, reserved_by: request.reserved_by.clone(), until: tx.uptime + ttl };
    tx.state.reservations.insert(request.scope.clone(), active);
    pause_limits(tx);
    let mut view = get(tx, id)?;
    view.token = Some(token.to_owned());
    Ok(view)
}

/// A reservation with what still runs in its scope.
pub fn get(tx: &mut Tx<'_>, id: i64) -> Result<ReservationView, Failed> {
    let row = tx
        .db
        .prepare_cached(
            "SELECT id, scope, reserved_by, reserved_ms, expires_ms, ended_ms, status FROM reservation WHERE id = ?1",
        )?
        .query_row([id], view)
        .optional()?;
    let mut view = row.ok_or_else(|| Refusal::not_found("reservation", id))?;
    view.still_running = Some(running_in(tx, &view.scope));
    Ok(view)
}

/// The newest reservations.
pub fn list(tx: &Tx<'_>) -> Result<Vec<ReservationView>, Failed> {
    let mut statement = tx.db.prepare_cached(
        "SELECT id, scope, reserved_by, reserved_ms, expires_ms, ended_ms, status FROM reservation ORDER BY id DESC LIMIT 1000",
    )?;
    Ok(statement.query_map([], view)?.collect::<Result<_, _>>()?)
}

fn view(row: &rusqlite::Row<'_>) -> rusqlite::Result<ReservationView> {
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

fn running_in(tx: &Tx<'_>, scope: &str) -> i64 {
    let held = |w: &torc_model::core::Workflow| i64::from(w.held_count());
    match scope.split_once(':') {
        Some(("workflow", id)) => {
            id.parse().ok().and_then(|id| tx.state.workflows.get(&WorkflowId(id))).map_or(0, held)
        }
        Some(("limit", name)) => tx.state.limits.get(name).map_or(0, |l| l.used),
        Some(_) | None => tx.state.workflows.values().map(held).sum(),
    }
}

/// Ends a reservation by its token. One that has ended already, at boot for example, answers 409.
pub fn release(
    tx: &mut Tx<'_>,
    id: i64,
    token: &ReservationToken,
) -> Result<ReservationView, Failed> {
    let scope = active_scope(tx, id, &token.token)?;
    end(tx, id, &scope, ReservationStatus::Released)?;
    get(tx, id)
}

/// Gives a reservation more time.
pub fn renew(
    tx: &mut Tx<'_>,
    id: i64,
    token: &ReservationToken,
) -> Result<ReservationView, Failed> {
    let scope = active_scope(tx, id, &token.token)?;
    let ttl = ttl_ms(token.ttl_seconds)?;
    let expires = tx.now + ttl;
    tx.db
        .prepare_cached("UPDATE reservation SET expires_ms = ?2 WHERE id = ?1")?
        .execute([id, expires])?;
    if let Some(active) = tx.state.reservations.get_mut(&scope) {
        active.until = tx.uptime + ttl;
    }
    get(tx, id)
}

fn active_scope(tx: &mut Tx<'_>, id: i64, token: &str) -> Result<String, Failed> {
    let row: Option<(String, String, String)> = tx
        .db
        .prepare_cached("SELECT scope, token_hash, status FROM reservation WHERE id = ?1")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let (scope, hash, status) = row.ok_or_else(|| Refusal::not_found("reservation", id))?;
    if hash != crate::secret::hash_text(token) {
        return Err(Refusal::conflict(
            ErrorCode::WrongToken,
            format!("the token is not that of reservation {id}"),
        )
        .into());
    }
    let live = tx.state.reservations.get(&scope).is_some_and(|r| r.id == id && r.until > tx.uptime);
    let is_active = ReservationStatus::parse(&status) == Some(ReservationStatus::Active);
    if !is_active || !live {
        let message = format!(
            "reservation {id} has ended ({})",
            if is_active { ReservationStatus::Expired.as_str() } else { &status }
        );
        return Err(Refusal::conflict(ErrorCode::ReservationEnded, message)
            .hint("make a new one")
            .into());
    }
    Ok(scope)
}

/// Reservations to expire: those whose time has come, or all.
pub fn due(tx: &Tx<'_>, all: bool) -> Result<Vec<ReservationView>, Failed> {
    if tx.state.reservations.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = tx.db.prepare_cached(
        "SELECT id, scope, reserved_by, reserved_ms, expires_ms, ended_ms, status FROM reservation
         WHERE status = 'ACTIVE' ORDER BY id",
    )?;
    let active: Vec<ReservationView> = statement.query_map([], view)?.collect::<Result<_, _>>()?;
    let is_over = |r: &ReservationView| {
        tx.state
            .reservations
            .get(&r.scope)
            .is_none_or(|known| known.id != r.id || known.until <= tx.uptime)
    };
    Ok(active.into_iter().filter(|r| all || is_over(r)).collect())
}

/// Ends a reservation; claims that waited for it look again.
pub fn end(tx: &mut Tx<'_>, id: i64, scope: &str, status: ReservationStatus) -> Result<(), Failed> {
    tx.db
        .prepare_cached(
            "UPDATE reservation SET status = ?2, ended_ms = ?3 WHERE id = ?1 AND status = 'ACTIVE'",
        )?
        .execute(params![id, status.as_str(), tx.now])?;
    tx.state.reservations.remove(scope);
    pause_limits(tx);
    tx.wake_all();
    Ok(())
}

/// Tells the limits which of them are reserved.
fn pause_limits(tx: &mut Tx<'_>) {
    let reserved: Vec<String> = tx
        .state
        .reservations
        .keys()
        .filter_map(|s| s.strip_prefix("limit:"))
        .map(str::to_owned)
        .collect();
    for (name, limit) in &mut tx.state.limits {
        limit.paused = reserved.contains(name);
    }
}

// ------------------------------------------------------------------------------------------- named
// limits

/// Sets a limit. Jobs that run already are counted.
pub fn set_limit(tx: &mut Tx<'_>, name: &str, max: i64) -> Result<LimitView, Failed> {
    if max < 0 {
        return Err(Refusal::invalid("max", "must not be negative").into());
    }
    super::names::check_name("name", name)?;
    tx.db
        .prepare_cached(
            "INSERT INTO named_limit (name, max) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET max = ?2",
        )?
        .execute(params![name, max])?;
    let used = tx.state.workflows.values().map(|w| uses(w, name)).sum();
    tx.state.limits.insert(name.to_owned(), LimitUse { max, used, paused: false });
    pause_limits(tx);
    tx.wake_all();
    Ok(LimitView { name: name.to_owned(), max, used })
}

fn uses(workflow: &torc_model::core::Workflow, name: &str) -> i64 {
    let takes = |j: &&torc_model::core::Job| {
        j.held.is_some() && workflow.classes[j.class as usize].uses.iter().any(|u| u == name)
    };
    let held = [JobStatus::Pending, JobStatus::Running];
    workflow.jobs.iter().filter(|j| held.contains(&j.status)).filter(takes).count() as i64
}

/// Removes a limit.
pub fn delete_limit(tx: &mut Tx<'_>, name: &str) -> Result<(), Failed> {
    if tx.state.limits.remove(name).is_none() {
        return Err(no_limit(tx, name).into());
    }
    tx.db.prepare_cached("DELETE FROM named_limit WHERE name = ?1")?.execute([name])?;
    tx.wake_all();
    Ok(())
}

/// All limits and their use.
pub fn limits(tx: &Tx<'_>) -> Vec<LimitView> {
    let view = |(name, limit): (&String, &LimitUse)| LimitView {
        name: name.clone(),
        max: limit.max,
        used: limit.used,
    };
    tx.state.limits.iter().map(view).collect()
}
