//! User data: JSON that jobs hand to each other.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::read::UserDataFilter;
use axum::extract::State;
use torc_model::api::{Page, UpdateUserData, UserDataView};

list_query! {
    /// Which pieces of user data.
    ListUserData {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// Exactly this name.
        name: Option<String>,
        /// Cleared by reinitialize, or kept.
        is_ephemeral: Option<bool>,
        /// Written by this job.
        producer_job_id: Option<i64>,
        /// Read by this job.
        consumer_job_id: Option<i64>,
    }
}

/// Lists user data.
#[utoipa::path(
    get,
    path = "/user_data",
    operation_id = "list_user_data",
    tag = "user data",
    params(ListUserData),
    responses((status = 200, description = "One page of user data.", body = Page<UserDataView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_user_data(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListUserData>,
) -> Answer<Page<UserDataView>> {
    let paging = query.paging()?;
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = UserDataFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        name: query.name,
        is_ephemeral: query.is_ephemeral,
        producer_job_id: query.producer_job_id,
        consumer_job_id: query.consumer_job_id,
    };
    Ok(Json(app.reader().list(filter, paging).await?))
}

/// One piece of user data.
#[utoipa::path(
    get,
    path = "/user_data/{id}",
    operation_id = "get_user_data",
    tag = "user data",
    params(("id" = i64, Path, description = "The piece of user data.")),
    responses((status = 200, description = "The piece of user data.", body = UserDataView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_user_data(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<UserDataView> {
    let data = app.reader().get::<UserDataView>(id).await?;
    caller.check(data.workflow_id)?;
    Ok(Json(data))
}

/// Gives a piece of user data a new value.
#[utoipa::path(
    put,
    path = "/user_data/{id}",
    operation_id = "update_user_data",
    tag = "user data",
    params(("id" = i64, Path, description = "The piece of user data.")),
    request_body = UpdateUserData,
    responses((status = 200, description = "As it is now.", body = UserDataView), Refusals),
    security(("token" = ["job"]))
)]
pub async fn update_user_data(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<UpdateUserData>,
) -> Answer<UserDataView> {
    caller.check(app.reader().get::<UserDataView>(id).await?.workflow_id)?;
    if let Some(job) = caller.job()
        && !app.reader().declares(job, id).await?
    {
        let message = format!("job {job} does not declare this user data as its output");
        return Err(ApiError::forbidden(message)
            .hint("name it in the job's `output_user_data`, or use the owner's token"));
    }
    app.store().update_user_data(id, request.data).await?;
    Ok(Json(app.reader().get::<UserDataView>(id).await?))
}
