//! Notifications: messages to people, on the outbox of webhooks.

use super::Json;
use super::auth::{Caller, Scope};
use super::error::ApiError;
use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::{Answer, App};
use crate::store::Refusal;
use axum::extract::State;
use torc_model::api::{CreateNotification, NotificationView, NotifyKind, Page};

/// The caller may see and change it: a workflow's by those who see the workflow, the server's by
/// admins.
async fn check(app: &App, caller: &Caller, view: &NotificationView) -> Result<(), ApiError> {
    let hidden = || ApiError::from(Refusal::not_found("notification", view.id));
    match view.workflow_id {
        Some(id) => app.check(caller, id).await.map_err(|_| hidden()),
        None if caller.walled().is_some() => Err(hidden()),
        None => Ok(()),
    }
}

/// Lists who is told of what.
#[utoipa::path(
    get,
    path = "/notifications",
    operation_id = "list_notifications",
    tag = "notifications",
    responses((status = 200, description = "All that the caller may see.", body = Page<NotificationView>), Refusals)
)]
pub async fn list_notifications(
    State(app): State<App>,
    caller: Caller,
) -> Answer<Page<NotificationView>> {
    let mut seen = Vec::new();
    for view in app.store().notifications().await? {
        if check(&app, &caller, &view).await.is_ok() {
            seen.push(view);
        }
    }
    Ok(Json(Page::whole(seen)))
}

/// What a caller may ask for: people of their own workflows and public addresses, admins more, and
/// programs on the server's machine its owner alone.
async fn check_new(app: &App, caller: &Caller, new: &CreateNotification) -> Result<(), ApiError> {
    if new.kind == NotifyKind::Command && *caller != Caller::Known(Scope::Owner) {
        let message = "only the server's owner lets it run a program";
        return Err(ApiError::forbidden(message).field("kind"));
    }
    if let Some(id) = new.workflow_id {
        app.check(caller, id).await?;
    }
    if caller.walled().is_none() {
        return Ok(());
    }
    let needs_admin = match () {
        () if new.workflow_id.is_none() => Some(("workflow_id", "messages of all workflows")),
        () if new.allow_private => Some(("allow_private", "private addresses")),
        () if new.kind == NotifyKind::Mail => Some(("kind", "mail")),
        () => None,
    };
    match needs_admin {
        Some((field, what)) => {
            let message = format!("{what} need an admin of the server");
            Err(ApiError::forbidden(message).field(field))
        }
        None => Ok(()),
    }
}

/// Asks for messages. The same twice is the same.
#[utoipa::path(
    post,
    path = "/notifications",
    operation_id = "create_notification",
    tag = "notifications",
    request_body = CreateNotification,
    responses((status = 200, description = "It is there.", body = NotificationView), Refusals)
)]
pub async fn create_notification(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<CreateNotification>,
) -> Answer<NotificationView> {
    check_new(&app, &caller, &request).await?;
    Ok(Json(app.store().create_notification(request).await?))
}

/// Ends messages.
#[utoipa::path(
    delete,
    path = "/notifications/{id}",
    operation_id = "delete_notification",
    tag = "notifications",
    params(("id" = i64, Path, description = "Which.")),
    responses((status = 200, description = "What there was.", body = NotificationView), Refusals)
)]
pub async fn delete_notification(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<NotificationView> {
    let view = app.store().notification(id).await?;
    check(&app, &caller, &view).await?;
    app.store().delete_webhook(id).await?;
    Ok(Json(view))
}

/// Sends a message now, to see that it arrives.
#[utoipa::path(
    post,
    path = "/notifications/{id}/test",
    operation_id = "test_notification",
    tag = "notifications",
    params(("id" = i64, Path, description = "Which.")),
    responses((status = 200, description = "The message is on its way.", body = NotificationView), Refusals)
)]
pub async fn test_notification(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<NotificationView> {
    let view = app.store().notification(id).await?;
    check(&app, &caller, &view).await?;
    Ok(Json(app.store().test_notification(id).await?))
}
