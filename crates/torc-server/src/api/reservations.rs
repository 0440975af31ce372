//! Reservations: pauses of claims, for work that must have a resource to itself.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::{Answer, App};
use crate::store::Refusal;
use axum::extract::State;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use torc_engine::Scope as ReservedScope;
use torc_model::api::{
    CreateReservation, EventView, Page, ReleaseReservation, ReservationToken, ReservationView,
};
use torc_model::event::EventKind;
use torc_model::status::ReservationStatus;
use utoipa::IntoParams;

/// The caller may see a reservation: of a workflow that they may see, or of what concerns all users.
async fn check_seen(app: &App, caller: &Caller, view: &ReservationView) -> Result<(), ApiError> {
    match ReservedScope::parse(&view.scope) {
        Some(ReservedScope::Workflow(id)) => app
            .check(caller, id)
            .await
            .map_err(|_| ApiError::from(Refusal::not_found("reservation", view.id))),
        Some(ReservedScope::All | ReservedScope::Limit(_)) | None => Ok(()),
    }
}

/// The caller may change what is reserved in this scope.
async fn check_scope(app: &App, caller: &Caller, scope: &str) -> Result<(), ApiError> {
    if caller.walled().is_none() {
        return Ok(());
    }
    match ReservedScope::parse(scope) {
        Some(ReservedScope::Workflow(id)) => app.check(caller, id).await,
        Some(ReservedScope::All | ReservedScope::Limit(_)) => {
            let message = format!("only admins reserve `{scope}`: it concerns all users");
            Err(ApiError::forbidden(message)
                .field("scope")
                .hint("`workflow:ID` reserves a workflow of your own"))
        }
        // The store says what a scope is.
        None => Ok(()),
    }
}

/// The caller may change this reservation.
async fn check_changed(app: &App, caller: &Caller, id: i64) -> Result<(), ApiError> {
    if caller.walled().is_none() {
        return Ok(());
    }
    let view = app.store().reservation(id).await?;
    check_seen(app, caller, &view).await?;
    check_scope(app, caller, &view.scope).await
}

/// Lists the newest reservations.
#[utoipa::path(
    get,
    path = "/reservations",
    operation_id = "list_reservations",
    tag = "reservations",
    responses((status = 200, description = "The newest reservations.", body = Page<ReservationView>), Refusals)
)]
pub async fn list_reservations(
    State(app): State<App>,
    caller: Caller,
) -> Answer<Page<ReservationView>> {
    let mut seen = Vec::new();
    for view in app.store().reservations().await? {
        if check_seen(&app, &caller, &view).await.is_ok() {
            seen.push(view);
        }
    }
    Ok(Json(Page::whole(seen)))
}

/// Pauses claims in a scope. At most one reservation is active in a scope.
#[utoipa::path(
    post,
    path = "/reservations",
    operation_id = "create_reservation",
    tag = "reservations",
    request_body = CreateReservation,
    responses((status = 200, description = "It is active.", body = ReservationView), Refusals)
)]
pub async fn create_reservation(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<CreateReservation>,
) -> Answer<ReservationView> {
    check_scope(&app, &caller, &request.scope).await?;
    Ok(Json(app.store().create_reservation(request).await?))
}

/// How long to wait for room.
#[derive(Deserialize, IntoParams, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetReservation {
    /// Answer when at most this many jobs still run in its scope.
    until_running: Option<i64>,
    /// Wait for that this long at most (0 to 50); then answer as it is.
    wait_seconds: Option<i64>,
}

/// Less than what the server gives a request.
const LONGEST_WAIT_SECONDS: i64 = 50;

/// One reservation, with what still runs in its scope.
#[utoipa::path(
    get,
    path = "/reservations/{id}",
    operation_id = "get_reservation",
    tag = "reservations",
    params(("id" = i64, Path, description = "The reservation."), GetReservation),
    responses((status = 200, description = "The reservation.", body = ReservationView), Refusals)
)]
pub async fn get_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetReservation>,
) -> Answer<ReservationView> {
    let wait = query.wait_seconds.unwrap_or(0);
    if !(0..=LONGEST_WAIT_SECONDS).contains(&wait) {
        return Err(ApiError::bad_query(
            "wait_seconds",
            format!("must be between 0 and {LONGEST_WAIT_SECONDS}"),
        ));
    }
    let until = Instant::now() + Duration::from_secs(wait.unsigned_abs());
    // Before the first look, so that no end falls between a look and the wait after it.
    let mut events = app.store().subscribe();
    loop {
        let view = app.store().reservation(id).await?;
        check_seen(&app, &caller, &view).await?;
        let has_room = query
            .until_running
            .is_none_or(|most| view.still_running.is_none_or(|running| running <= most));
        if has_room
            || view.status != ReservationStatus::Active
            || !next_end(&mut events, until, &app).await
        {
            return Ok(Json(view));
        }
    }
}

/// Waits until something may have ended. Tells whether it is worth to look again.
async fn next_end(events: &mut Receiver<Arc<EventView>>, until: Instant, app: &App) -> bool {
    loop {
        let event = tokio::select! {
            () = tokio::time::sleep_until(until) => return false,
            () = app.inner.stop.cancelled() => return false,
            event = events.recv() => event,
        };
        match event {
            // A job that begins makes no room.
            Ok(event) if event.kind == EventKind::JobStarted => {}
            // Whatever was missed may have been an end.
            Ok(_) | Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}

/// Gives a reservation more time.
#[utoipa::path(
    post,
    path = "/reservations/{id}/renew",
    operation_id = "renew_reservation",
    tag = "reservations",
    params(("id" = i64, Path, description = "The reservation.")),
    request_body = ReservationToken,
    responses((status = 200, description = "As it is now.", body = ReservationView), Refusals)
)]
pub async fn renew_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(token): Body<ReservationToken>,
) -> Answer<ReservationView> {
    check_changed(&app, &caller, id).await?;
    Ok(Json(app.store().renew_reservation(id, token).await?))
}

/// Ends a reservation; claims that waited for it look again.
#[utoipa::path(
    post,
    path = "/reservations/{id}/release",
    operation_id = "release_reservation",
    tag = "reservations",
    params(("id" = i64, Path, description = "The reservation.")),
    request_body = ReleaseReservation,
    responses((status = 200, description = "As it is now.", body = ReservationView), Refusals)
)]
pub async fn release_reservation(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<ReleaseReservation>,
) -> Answer<ReservationView> {
    check_changed(&app, &caller, id).await?;
    Ok(Json(app.store().release_reservation(id, request).await?))
}
