//! Questions to the cluster that a workflow runs on. This crate knows none: the program does.

use super::OfWorkflow;
use crate::backend::Cluster;
use crate::tools::{ToolCall, ToolError};
use serde_json::{Value, json};
use std::sync::Arc;
use torc_model::ids::WorkflowId;

fn of_call(call: &ToolCall) -> Result<(WorkflowId, Arc<dyn Cluster>), ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    match call.settings.cluster.clone() {
        Some(cluster) => Ok((workflow_id, cluster)),
        None => Err(ToolError::Torc("this server knows no cluster".into())),
    }
}

/// How many allocations of which shape are needed.
pub async fn propose(call: ToolCall) -> Result<Value, ToolError> {
    let (workflow, cluster) = of_call(&call)?;
    call.ask(move |client| async move {
        let plan = cluster.propose(client, workflow).await;
        Ok(plan.unwrap_or_else(|| json!({"note": "this workflow does not run on a cluster"})))
    })
    .await
}

/// What the accounting says.
pub async fn accounting(call: ToolCall) -> Result<Value, ToolError> {
    let (workflow, cluster) = of_call(&call)?;
    call.ask(move |client| async move { cluster.accounting(client, workflow).await }).await
}
