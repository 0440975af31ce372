//! Groups of users who share workflows. Admins make and end them; their own admins say who is in them;
//! owners say which workflows they share.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::tokens::TokenScope;
use super::{Answer, App};
use axum::extract::State;
use torc_model::api::{
    AccessGroupView, AddMember, CreateAccessGroup, MemberView, Page, SharedWorkflow,
};
use torc_model::ids::WorkflowId;

/// In whose name groups are looked at and changed; None: in that of an admin.
fn user_of(caller: &Caller) -> Result<Option<String>, ApiError> {
    let Some(person) = caller.walled() else { return Ok(None) };
    match person.scope {
        TokenScope::User => Ok(Some(person.user.to_string())),
        TokenScope::Workflow(_) | TokenScope::Group(_) => {
            Err(ApiError::forbidden("a token for one workflow or one group is not good for this"))
        }
    }
}

/// Lists the groups: admins see all, others those they are in.
#[utoipa::path(
    get,
    path = "/access_groups",
    operation_id = "list_access_groups",
    tag = "access groups",
    responses((status = 200, description = "The groups.", body = Page<AccessGroupView>), Refusals)
)]
pub async fn list_access_groups(
    State(app): State<App>,
    caller: Caller,
) -> Answer<Page<AccessGroupView>> {
    Ok(Json(Page::whole(app.reader().access_groups(user_of(&caller)?).await?)))
}

/// Makes a group.
#[utoipa::path(
    post,
    path = "/access_groups",
    operation_id = "create_access_group",
    tag = "access groups",
    request_body = CreateAccessGroup,
    responses((status = 200, description = "The group.", body = AccessGroupView), Refusals)
)]
pub async fn create_access_group(
    State(app): State<App>,
    Body(request): Body<CreateAccessGroup>,
) -> Answer<AccessGroupView> {
    Ok(Json(app.store().create_access_group(request).await?))
}

/// One group.
#[utoipa::path(
    get,
    path = "/access_groups/{id}",
    operation_id = "get_access_group",
    tag = "access groups",
    params(("id" = i64, Path, description = "The group.")),
    responses((status = 200, description = "The group.", body = AccessGroupView), Refusals)
)]
pub async fn get_access_group(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<AccessGroupView> {
    Ok(Json(app.reader().access_group(id, user_of(&caller)?).await?))
}

/// Ends a group, with the tokens that were good for it only. Its workflows stay.
#[utoipa::path(
    delete,
    path = "/access_groups/{id}",
    operation_id = "delete_access_group",
    tag = "access groups",
    params(("id" = i64, Path, description = "The group.")),
    responses((status = 200, description = "The group that ended.", body = AccessGroupView), Refusals)
)]
pub async fn delete_access_group(
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Answer<AccessGroupView> {
    let of = app.clone();
    let gone = app.change_walls(async move {
        let gone = of.store().delete_access_group(id).await?;
        of.inner.auth.tokens.reload().await;
        Ok(gone)
    });
    Ok(Json(gone.await?))
}

/// Who is in a group.
#[utoipa::path(
    get,
    path = "/access_groups/{id}/members",
    operation_id = "list_access_group_members",
    tag = "access groups",
    params(("id" = i64, Path, description = "The group.")),
    responses((status = 200, description = "Its members.", body = Page<MemberView>), Refusals)
)]
pub async fn list_members(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Page<MemberView>> {
    app.reader().access_group(id, user_of(&caller)?).await?;
    Ok(Json(Page::whole(app.reader().access_group_members(id).await?)))
}

/// Puts a user into a group, or gives them another role in it.
#[utoipa::path(
    post,
    path = "/access_groups/{id}/members",
    operation_id = "add_access_group_member",
    tag = "access groups",
    params(("id" = i64, Path, description = "The group.")),
    request_body = AddMember,
    responses((status = 200, description = "The member.", body = MemberView), Refusals)
)]
pub async fn add_member(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<AddMember>,
) -> Answer<MemberView> {
    let (by, of) = (user_of(&caller)?, app.clone());
    let added = app.change_walls(async move { Ok(of.store().add_member(id, request, by).await?) });
    Ok(Json(added.await?))
}

/// Takes a user out of a group.
#[utoipa::path(
    delete,
    path = "/access_groups/{id}/members/{user_name}",
    operation_id = "remove_access_group_member",
    tag = "access groups",
    params(
        ("id" = i64, Path, description = "The group."),
        ("user_name" = String, Path, description = "The user.")
    ),
    responses((status = 200, description = "Who was in it.", body = MemberView), Refusals)
)]
pub async fn remove_member(
    State(app): State<App>,
    caller: Caller,
    Path((id, user)): Path<(i64, String)>,
) -> Answer<MemberView> {
    let (by, of) = (user_of(&caller)?, app.clone());
    let gone = app.change_walls(async move { Ok(of.store().remove_member(id, user, by).await?) });
    Ok(Json(gone.await?))
}

/// The groups that a user is in: one's own, or for admins those of every user.
#[utoipa::path(
    get,
    path = "/users/{user_name}/access_groups",
    operation_id = "list_user_access_groups",
    tag = "access groups",
    params(("user_name" = String, Path, description = "The user.")),
    responses((status = 200, description = "The groups.", body = Page<AccessGroupView>), Refusals)
)]
pub async fn list_user_groups(
    State(app): State<App>,
    caller: Caller,
    Path(user): Path<String>,
) -> Answer<Page<AccessGroupView>> {
    if user_of(&caller)?.is_some_and(|own| own != user) {
        return Err(ApiError::forbidden("only admins see in which groups other users are"));
    }
    Ok(Json(Page::whole(app.reader().access_groups(Some(user)).await?)))
}

/// The groups that a workflow is shared with.
#[utoipa::path(
    get,
    path = "/workflows/{id}/access_groups",
    operation_id = "list_workflow_access_groups",
    tag = "access groups",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "The groups.", body = Page<AccessGroupView>), Refusals)
)]
pub async fn list_workflow_groups(
    State(app): State<App>,
    Path(id): Path<WorkflowId>,
) -> Answer<Page<AccessGroupView>> {
    app.reader().get_workflow(id).await?;
    Ok(Json(Page::whole(app.reader().groups_of_workflow(id).await?)))
}

/// Shares a workflow with a group. Safe to repeat.
#[utoipa::path(
    put,
    path = "/workflows/{id}/access_groups/{group_id}",
    operation_id = "share_workflow",
    tag = "access groups",
    params(
        ("id" = i64, Path, description = "The workflow."),
        ("group_id" = i64, Path, description = "The group.")
    ),
    responses((status = 200, description = "It is shared.", body = SharedWorkflow), Refusals)
)]
pub async fn share_workflow(
    State(app): State<App>,
    caller: Caller,
    Path((id, group)): Path<(i64, i64)>,
) -> Answer<SharedWorkflow> {
    let (by, of) = (user_of(&caller)?, app.clone());
    let work = async move { Ok(of.store().share(WorkflowId(id), group, by).await?) };
    Ok(Json(app.change_walls(work).await?))
}

/// Shares a workflow no longer with a group.
#[utoipa::path(
    delete,
    path = "/workflows/{id}/access_groups/{group_id}",
    operation_id = "unshare_workflow",
    tag = "access groups",
    params(
        ("id" = i64, Path, description = "The workflow."),
        ("group_id" = i64, Path, description = "The group.")
    ),
    responses((status = 200, description = "It is shared no longer.", body = SharedWorkflow), Refusals)
)]
pub async fn unshare_workflow(
    State(app): State<App>,
    caller: Caller,
    Path((id, group)): Path<(i64, i64)>,
) -> Answer<SharedWorkflow> {
    user_of(&caller)?;
    let of = app.clone();
    let work = async move { Ok(of.store().unshare(WorkflowId(id), group).await?) };
    Ok(Json(app.change_walls(work).await?))
}
