//! Workflow actions.

use super::Json;
use super::auth::Caller;
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::query::{self, list_query};
use super::{Answer, App};
use crate::store::read::ActionFilter;
use axum::extract::State;
use serde_json::Value;
use torc_model::api::{ActionReport, ActionView, Page};
use torc_model::ids::{ActionId, WorkflowId};
use torc_model::status::{ActionState, Trigger};

list_query! {
    /// Which actions.
    ListActions {
        /// With this trigger.
        trigger_type: Option<String>,
        /// In this state.
        state: Option<String>,
    }
}

/// Lists the actions of a workflow.
#[utoipa::path(
    get,
    path = "/workflows/{id}/actions",
    operation_id = "list_actions",
    tag = "actions",
    params(("id" = i64, Path, description = "The workflow."), ListActions),
    responses((status = 200, description = "One page of actions.", body = Page<ActionView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_actions(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<ListActions>,
) -> Answer<Page<ActionView>> {
    caller.check(WorkflowId(id))?;
    let paging = query.paging()?;
    let trigger = |text: &String| {
        query::word("trigger_type", text, Trigger::parse, Trigger::ALL, Trigger::as_str)
    };
    let state = |text: &String| {
        query::word("state", text, ActionState::parse, ActionState::ALL, ActionState::as_str)
    };
    let filter = ActionFilter {
        trigger: query.trigger_type.as_ref().map(trigger).transpose()?,
        state: query.state.as_ref().map(state).transpose()?,
    };
    app.reader().get_workflow(WorkflowId(id)).await?;
    Ok(Json(app.reader().list_actions(WorkflowId(id), filter, paging).await?))
}

/// A runner has executed an action. Safe to repeat.
#[utoipa::path(
    post,
    path = "/actions/{id}/complete",
    operation_id = "complete_action",
    tag = "actions",
    params(("id" = i64, Path, description = "The action.")),
    request_body = ActionReport,
    responses((status = 200, description = "It is recorded.", body = Value), Refusals),
    security(("token" = ["runner"]))
)]
pub async fn complete_action(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Body(report): Body<ActionReport>,
) -> Answer<Value> {
    app.check_action(&caller, ActionId(id)).await?;
    app.check_runner(&caller, report.runner_id).await?;
    app.store().complete_action(ActionId(id), report).await?;
    Ok(Json(serde_json::json!({})))
}
