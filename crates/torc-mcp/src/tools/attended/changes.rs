//! What an assistant may change of a workflow that is there.

use super::find_job;
use crate::tools::{ToolCall, ToolError, to_value};
use serde::Deserialize;
use serde_json::Value;
use torc_model::api::UpdateJob;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::RecoverRequest;
use torc_model::units::{Memory, Runtime};

pub async fn update_resources(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        job_id: JobId,
        memory: Option<Memory>,
        runtime: Option<Runtime>,
        priority: Option<i64>,
        num_cpus: Option<u32>,
        num_gpus: Option<u32>,
    }
    let Arguments { job_id, memory, runtime, priority, num_cpus, num_gpus } = call.arguments()?;
    let update =
        UpdateJob { memory, runtime, priority, num_cpus, num_gpus, ..UpdateJob::default() };
    if update == UpdateJob::default() {
        let why = "give `num_cpus`, `num_gpus`, `memory`, `runtime` or `priority`";
        return Err(ToolError::Arguments(why.into()));
    }
    let bound = call.settings.workflow;
    let reason = Some(format!("asked for by {}", call.settings.agent));
    call.ask(move |client| async move {
        find_job(&client, bound, job_id).await?;
        let update = UpdateJob { reason, ..update };
        to_value(&client.update_job(job_id, &update).await?)
    })
    .await
}

pub async fn recover(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        workflow_id: WorkflowId,
        dry_run: Option<bool>,
        memory_multiplier: Option<f64>,
        runtime_multiplier: Option<f64>,
        retry_unknown: Option<bool>,
    }
    let arguments: Arguments = call.arguments()?;
    let id = arguments.workflow_id;
    call.check(id)?;
    let default = RecoverRequest::default();
    let request = RecoverRequest {
        // Nothing happens by a slip: a change must be asked for.
        dry_run: arguments.dry_run.unwrap_or(true),
        memory_multiplier: arguments.memory_multiplier,
        runtime_multiplier: arguments.runtime_multiplier,
        retry_unknown: arguments.retry_unknown.unwrap_or(false),
        by: Some(format!("{} ({})", call.settings.by, call.settings.agent)),
        ..default
    };
    call.ask(move |client| async move { to_value(&client.recover(id, &request).await?) }).await
}
