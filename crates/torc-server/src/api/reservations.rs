//! Reservations: pauses of claims, for work that must have a resource to itself.

use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::{Answer, App};
use axum::Json;
use axum::extract::State;
use torc_model::api::{CreateReservation, Page, ReservationToken, ReservationView};

/// Lists the newest reservations.
#[utoipa::path(
    get,
    path = "/reservations",
    operation_id = "list_reservations",
    tag = "reservations",
    responses((status = 200, description = "The newest reservations.", body = Page<ReservationView>), Refusals)
)]
pub async fn list_reservations(State(app): State<App>) -> Answer<Page<ReservationView>> {
    Ok(Json(Page::whole(app.store().reservations().await?)))
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
    Body(request): Body<CreateReservation>,
) -> Answer<ReservationView> {
    Ok(Json(app.store().create_reservation(request).await?))
}

/// One reservation, with what still runs in its scope.
#[utoipa::path(
    get,
    path = "/reservations/{id}",
    operation_id = "get_reservation",
    tag = "reservations",
    params(("id" = i64, Path, description = "The reservation.")),
    responses((status = 200, description = "The reservation.", body = ReservationView), Refusals)
)]
pub async fn get_reservation(State(app): State<App>, Path(id): Path<i64>) -> Answer<ReservationView> {
    Ok(Json(app.store().reservation(id).await?))
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
    Path(id): Path<i64>,
    Body(token): Body<ReservationToken>,
) -> Answer<ReservationView> {
    Ok(Json(app.store().renew_reservation(id, token).await?))
}

/// Ends a reservation; claims that waited for it look again.
#[utoipa::path(
    post,
    path = "/reservations/{id}/release",
    operation_id = "release_reservation",
    tag = "reservations",
    params(("id" = i64, Path, description = "The reservation.")),
    request_body = ReservationToken,
    responses((status = 200, description = "As it is now.", body = ReservationView), Refusals)
)]
pub async fn release_reservation(
    State(app): State<App>,
    Path(id): Path<i64>,
    Body(token): Body<ReservationToken>,
) -> Answer<ReservationView> {
    Ok(Json(app.store().release_reservation(id, token).await?))
}
