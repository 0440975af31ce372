//! Slurm schedulers: how to ask for nodes.

use super::Json;
use super::auth::Caller;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::list_query;
use super::{Answer, App};
use crate::store::read::NamedFilter;
use axum::extract::State;
use torc_model::api::{Page, SlurmSchedulerView};

list_query! {
    /// Which Slurm schedulers.
    ListSchedulers {
        /// Of this workflow.
        workflow_id: Option<i64>,
        /// Exactly this name.
        name: Option<String>,
    }
}

/// Lists Slurm schedulers.
#[utoipa::path(
    get,
    path = "/slurm_schedulers",
    operation_id = "list_slurm_schedulers",
    tag = "slurm schedulers",
    params(ListSchedulers),
    responses((status = 200, description = "One page of Slurm schedulers.", body = Page<SlurmSchedulerView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_schedulers(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListSchedulers>,
) -> Answer<Page<SlurmSchedulerView>> {
    let paging = query.paging()?;
    let within = app.within(&caller, query.workflow_id).await?;
    let filter = NamedFilter {
        workflow_id: within.workflow_id,
        audience: within.audience,
        name: query.name,
    };
    Ok(Json(app.reader().list(filter, paging).await?))
}

/// One Slurm scheduler.
#[utoipa::path(
    get,
    path = "/slurm_schedulers/{id}",
    operation_id = "get_slurm_scheduler",
    tag = "slurm schedulers",
    params(("id" = i64, Path, description = "The Slurm scheduler.")),
    responses((status = 200, description = "The Slurm scheduler.", body = SlurmSchedulerView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_scheduler(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<SlurmSchedulerView> {
    let scheduler = app.reader().get::<SlurmSchedulerView>(id).await?;
    caller.check(scheduler.workflow_id)?;
    Ok(Json(scheduler))
}
