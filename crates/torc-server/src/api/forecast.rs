//! When a workflow is expected to be over.

use super::auth::Caller;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::{Answer, App, Json};
use axum::extract::State;
use serde::Deserialize;
use torc_model::forecast::{ForecastView, Machines};
use torc_model::ids::WorkflowId;
use utoipa::IntoParams;

/// The machines to assume, where they are others than those that are there.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetForecast {
    /// Number of nodes to assume.
    #[param(minimum = 1, maximum = 10000)]
    pub nodes: Option<i64>,
    /// CPUs of each node.
    #[param(minimum = 1)]
    pub cores: Option<i64>,
    /// Memory of each node in bytes.
    #[param(minimum = 1)]
    pub memory_bytes: Option<i64>,
    /// GPUs of each node.
    #[param(minimum = 0)]
    pub gpus: Option<i64>,
    /// With everything that failed tried again now; for workflows of at most 20,000 jobs.
    pub recover: Option<bool>,
}

/// When a workflow is expected to be over: with the runners that are there, or with the machines that
/// are asked about. Of a complete workflow: how long all of it would take once more.
#[utoipa::path(
    get,
    path = "/workflows/{id}/forecast",
    operation_id = "get_forecast",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow."), GetForecast),
    responses((status = 200, description = "The forecast.", body = ForecastView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_forecast(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetForecast>,
) -> Answer<ForecastView> {
    caller.check(WorkflowId(id))?;
    let GetForecast { nodes, cores, memory_bytes, gpus, recover } = query;
    let recover = recover == Some(true);
    let nodes = nodes.map(|nodes| nodes.clamp(1, 10_000));
    let assumed = Machines { nodes, cores, memory_bytes, gpus };
    let id = WorkflowId(id);
    if assumed == Machines::default() && !recover {
        let make = async { Ok(app.store().forecast(id, assumed, false).await?) };
        let stamp = app.reader().last_event_id(id).await?;
        let seen = app.inner.shown.forecast.get(id, stamp, make).await?;
        return Ok(Json((*seen).clone()));
    }
    Ok(Json(app.store().forecast(id, assumed, recover).await?))
}
