//! Reservations pause claims in their scope; named limits bound how many jobs use something at
//! once.

use super::journal::limits;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use torc_engine::commands::{
    self, ExpireReservations, KeptFromWork, RemoveLimit, RenewReservation, Reserve, SetLimit,
};
use torc_engine::{LimitUse, Reservations, Scope};
use torc_model::api::{
    CreateReservation, ErrorCode, LimitView, ReleaseReservation, ReservationToken, ReservationView,
};
use torc_model::ids::WorkflowId;
use torc_model::status::ReservationStatus;

const DEFAULT_TTL_SECONDS: i64 = 600;
pub const MAX_TTL_SECONDS: i64 = 86_400;
/// Most names in one message.
const MAX_NAMED: usize = 10;

/// Why claims of this workflow are paused.
pub fn paused(reservations: &Reservations, id: WorkflowId, uptime: i64) -> Option<String> {
    KeptFromWork::reserved(reservations, id, uptime).map(|kept| kept.text())
}

fn check_scope(tx: &mut Tx<'_>, text: &str) -> Result<Scope, Failed> {
    let scope = Scope::parse(text).ok_or_else(|| {
        Refusal::invalid("scope", format!("`{text}` is not `all`, `workflow:ID` or `limit:NAME`"))
    })?;
    match &scope {
        Scope::All => {}
        Scope::Workflow(id) => _ = tx.workflow(*id)?,
        Scope::Limit(name) if tx.state.engine.limits().contains_key(name) => {}
        Scope::Limit(name) => return Err(no_limit(tx, name).into()),
    }
    Ok(scope)
}

/// There is no limit of this name, but perhaps one that was meant.
fn no_limit(tx: &Tx<'_>, name: &str) -> Refusal {
    let known: Vec<&str> = tx.state.engine.limits().keys().map(String::as_str).collect();
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
    let scope = check_scope(tx, &request.scope)?;
    super::names::check_line("reserved_by", &request.reserved_by)?;
    let named = scope.to_string();
    tx.handle(Reserve {
        scope,
        by: &request.reserved_by,
        token_hash: crate::secret::hash_text(token),
        ttl_ms: ttl_ms(request.ttl_seconds)?,
    })?;
    let view = limits::active_reservation(tx.db, &named)?
        .ok_or_else(|| Refusal::internal("the reservation was not written"))?;
    let mut view = counted(tx, view);
    view.token = Some(token.to_owned());
    Ok(view)
}

/// A reservation with what still runs in its scope.
pub fn get(tx: &mut Tx<'_>, id: i64) -> Result<ReservationView, Failed> {
    let view = limits::find_reservation(tx.db, id)?;
    let view = view.ok_or_else(|| Refusal::not_found("reservation", id))?;
    Ok(counted(tx, view))
}

/// Says also what still runs in its scope.
fn counted(tx: &Tx<'_>, view: ReservationView) -> ReservationView {
    ReservationView { still_running: Some(running_in(tx, &view.scope)), ..view }
}

fn running_in(tx: &Tx<'_>, scope: &str) -> i64 {
    let held = |w: &torc_engine::Workflow| i64::from(w.held_count());
    match Scope::parse(scope) {
        Some(Scope::Workflow(id)) => tx.state.engine.workflow(id).map_or(0, held),
        Some(Scope::Limit(name)) => {
            tx.state.engine.limits().get(&name).map_or(0, |limit| limit.used)
        }
        Some(Scope::All) | None => tx.state.engine.workflows().values().map(held).sum(),
    }
}

/// Ends a reservation, by its token if one is given. One that has ended already, at boot for
/// example, answers 409.
pub fn release(
    tx: &mut Tx<'_>,
    id: i64,
    request: &ReleaseReservation,
) -> Result<ReservationView, Failed> {
    let known = get(tx, id)?;
    let hash = request.token.as_deref().map(crate::secret::hash_text);
    let release = commands::ReleaseReservation { id, token_hash: hash.as_deref() };
    tx.handle(release).map_err(|failed| ended_as(failed, &known))?;
    get(tx, id)
}

/// Gives a reservation more time.
pub fn renew(
    tx: &mut Tx<'_>,
    id: i64,
    token: &ReservationToken,
) -> Result<ReservationView, Failed> {
    let known = get(tx, id)?;
    let hash = crate::secret::hash_text(&token.token);
    let ttl_ms = ttl_ms(token.ttl_seconds)?;
    tx.handle(RenewReservation { id, token_hash: &hash, ttl_ms })
        .map_err(|failed| ended_as(failed, &known))?;
    get(tx, id)
}

/// Says also how a reservation ended.
fn ended_as(mut failed: Failed, known: &ReservationView) -> Failed {
    if let Failed::Refused(refusal) = &mut failed
        && refusal.code == ErrorCode::ReservationEnded
    {
        let how = match known.status {
            ReservationStatus::Active => ReservationStatus::Expired,
            ended => ended,
        };
        refusal.message = format!("{} ({how})", refusal.message);
    }
    failed
}

/// Reservations to expire: those whose time has come, or all.
pub fn due(tx: &mut Tx<'_>, all: bool) -> Result<Vec<ReservationView>, Failed> {
    let due = tx.state.engine.reservations().due(tx.uptime, all);
    due.into_iter().map(|(id, _)| get(tx, id)).collect()
}

/// Ends those whose time has come, or all.
pub fn expire(tx: &mut Tx<'_>, all: bool) -> Result<(), Failed> {
    tx.handle(ExpireReservations { all })
}

// ------------------------------------------------------------------------------------------- named
// limits

/// Sets a limit. Jobs that run already are counted.
pub fn set_limit(tx: &mut Tx<'_>, name: &str, max: i64) -> Result<LimitView, Failed> {
    if max < 0 {
        return Err(Refusal::invalid("max", "must not be negative").into());
    }
    super::names::check_name("name", name)?;
    tx.handle(SetLimit { name, max })?;
    let used = tx.state.engine.limits().get(name).map_or(0, |limit| limit.used);
    Ok(LimitView { name: name.to_owned(), max, used })
}

/// Removes a limit.
pub fn delete_limit(tx: &mut Tx<'_>, name: &str) -> Result<(), Failed> {
    match tx.handle(RemoveLimit { name })? {
        true => Ok(()),
        false => Err(no_limit(tx, name).into()),
    }
}

/// All limits and their use.
pub fn limits(tx: &Tx<'_>) -> Vec<LimitView> {
    let view = |(name, limit): (&String, &LimitUse)| LimitView {
        name: name.clone(),
        max: limit.max,
        used: limit.used,
    };
    tx.state.engine.limits().iter().map(view).collect()
}
