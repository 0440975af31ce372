//! Pool runners: they stay, and serve every workflow that their token may see.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::clock::now_ms;
use crate::store::read::{Audience, PoolRunnerFilter, ReadError};
use axum::extract::State;
use torc_model::api::{
    Goodbye, Page, PoolClaimRequest, PoolClaimResponse, PoolRunnerView, RegisterPoolRunner,
    SetShare, ShareView,
};
use torc_model::ids::PoolRunnerId;
use torc_model::status::RunnerOrder;

list_query! {
    /// Which pool runners.
    ListPoolRunners {
        /// Still there as far as known, or gone.
        is_active: Option<bool>,
    }
}

/// In whose name a pool runner works, None: in that of the server's owner; and what it may see.
fn whose(caller: &Caller) -> Result<(Option<String>, Audience), ApiError> {
    caller.check_pools()?;
    Ok(match caller.person() {
        Some(person) => (Some(person.user.to_string()), person.audience()),
        None => (None, Audience::All),
    })
}

impl App {
    /// The caller may speak for this pool runner: it is theirs, or they are an admin.
    pub(super) async fn check_pool(
        &self,
        caller: &Caller,
        id: PoolRunnerId,
    ) -> Result<PoolRunnerView, ApiError> {
        caller.check_pools()?;
        let found = self.reader().get_pool_runner(id, now_ms()).await?;
        match caller.walled() {
            Some(person) if found.user.as_deref() != Some(&*person.user) => {
                Err(ReadError::NotFound { what: "pool runner", id: id.0 }.into())
            }
            _ => Ok(found),
        }
    }
}

/// Lists pool runners: admins see all, others their own.
#[utoipa::path(
    get,
    path = "/pool_runners",
    operation_id = "list_pool_runners",
    tag = "compute nodes",
    params(ListPoolRunners),
    responses((status = 200, description = "One page of pool runners.", body = Page<PoolRunnerView>), Refusals)
)]
pub async fn list_pool_runners(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListPoolRunners>,
) -> Answer<Page<PoolRunnerView>> {
    let paging = query.paging()?;
    caller.check_pools()?;
    let user = caller.walled().map(|person| person.user.to_string());
    let filter = PoolRunnerFilter { user, is_active: query.is_active };
    Ok(Json(app.reader().list_pool_runners(filter, paging, now_ms()).await?))
}

/// A pool runner introduces itself. Safe to repeat.
#[utoipa::path(
    post,
    path = "/pool_runners",
    operation_id = "register_pool_runner",
    tag = "compute nodes",
    request_body = RegisterPoolRunner,
    responses((status = 200, description = "As it is known now.", body = PoolRunnerView), Refusals)
)]
pub async fn register_pool_runner(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<RegisterPoolRunner>,
) -> Answer<PoolRunnerView> {
    let (user, _) = whose(&caller)?;
    let id = app.store().register_pool_runner(request, user).await?;
    Ok(Json(app.reader().get_pool_runner(id, now_ms()).await?))
}

/// A pool runner asks which workflow to serve next, and waits for one if it wants. Safe to repeat.
#[utoipa::path(
    post,
    path = "/pool_runners/{id}/claim",
    operation_id = "claim_for_pool",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The pool runner.")),
    request_body = PoolClaimRequest,
    responses((status = 200, description = "What it should do.", body = PoolClaimResponse), Refusals)
)]
pub async fn claim_for_pool(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<PoolClaimRequest>,
) -> Answer<PoolClaimResponse> {
    let id = PoolRunnerId(id);
    app.check_pool(&caller, id).await?;
    let (_, audience) = whose(&caller)?;
    tokio::select! {
        answer = app.store().claim_for_pool(id, request, audience) => Ok(Json(answer?)),
        () = app.inner.stop.cancelled() => Err(ApiError::shutting_down()),
    }
}

/// A pool runner leaves. Safe to repeat.
#[utoipa::path(
    post,
    path = "/pool_runners/{id}/goodbye",
    operation_id = "pool_goodbye",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The pool runner.")),
    request_body = Goodbye,
    responses((status = 200, description = "As it is known now.", body = PoolRunnerView), Refusals)
)]
pub async fn pool_goodbye(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(request): Body<Goodbye>,
) -> Answer<PoolRunnerView> {
    let id = PoolRunnerId(id);
    app.check_pool(&caller, id).await?;
    app.store().pool_goodbye(id, request.reason).await?;
    Ok(Json(app.reader().get_pool_runner(id, now_ms()).await?))
}

async fn order(
    app: App,
    caller: &Caller,
    id: PoolRunnerId,
    ordered: Option<RunnerOrder>,
) -> Answer<PoolRunnerView> {
    app.check_pool(caller, id).await?;
    app.store().order_pool_runner(id, ordered).await?;
    Ok(Json(app.reader().get_pool_runner(id, now_ms()).await?))
}

/// A pool runner and its runners take no more jobs; what they hold goes on. Safe to repeat.
#[utoipa::path(
    post,
    path = "/pool_runners/{id}/drain",
    operation_id = "drain_pool_runner",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The pool runner.")),
    responses((status = 200, description = "As it is now.", body = PoolRunnerView), Refusals)
)]
pub async fn drain(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<PoolRunnerView> {
    order(app, &caller, PoolRunnerId(id), Some(RunnerOrder::Drain)).await
}

/// A pool runner that was drained or removed takes jobs again.
#[utoipa::path(
    post,
    path = "/pool_runners/{id}/resume",
    operation_id = "resume_pool_runner",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The pool runner.")),
    responses((status = 200, description = "As it is now.", body = PoolRunnerView), Refusals)
)]
pub async fn resume(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<PoolRunnerView> {
    order(app, &caller, PoolRunnerId(id), None).await
}

/// A pool runner takes no more jobs and leaves when its runners hold none. Safe to repeat.
#[utoipa::path(
    post,
    path = "/pool_runners/{id}/remove",
    operation_id = "remove_pool_runner",
    tag = "compute nodes",
    params(("id" = i64, Path, description = "The pool runner.")),
    responses((status = 200, description = "As it is now.", body = PoolRunnerView), Refusals)
)]
pub async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<PoolRunnerView> {
    order(app, &caller, PoolRunnerId(id), Some(RunnerOrder::Remove)).await
}

/// Lists the users that were given more or less of the pools than others.
#[utoipa::path(
    get,
    path = "/server/shares",
    operation_id = "list_shares",
    tag = "server",
    responses((status = 200, description = "All that were set.", body = Page<ShareView>), Refusals)
)]
pub async fn list_shares(State(app): State<App>) -> Answer<Page<ShareView>> {
    Ok(Json(Page::whole(app.store().shares().await?)))
}

/// Sets how much of the pools a user gets beside others.
#[utoipa::path(
    put,
    path = "/server/shares/{user}",
    operation_id = "set_share",
    tag = "server",
    params(("user" = String, Path, description = "The owner of workflows.")),
    request_body = SetShare,
    responses((status = 200, description = "As it is now.", body = ShareView), Refusals)
)]
pub async fn set_share(
    State(app): State<App>,
    Path(user): Path<String>,
    Body(request): Body<SetShare>,
) -> Answer<ShareView> {
    Ok(Json(app.store().set_share(user, request.weight).await?))
}
