//! What an assistant may change of a workflow that is there.

use super::{find_job, object, tool};
use crate::tools::{Tool, ToolCall, ToolError, to_value};
use serde::Deserialize;
use serde_json::{Value, json};
use torc_model::api::UpdateJob;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::RecoverRequest;
use torc_model::units::{Memory, Runtime};

/// The tools, and below what they do.
pub fn tools() -> Vec<Tool> {
    vec![
        tool(
            "update_job_resources",
            "Changes the CPUs, GPUs, memory, runtime or priority of a job's next attempts.",
            false,
            || {
                object(
                    json!({"job_id": {"type": "integer"}, "memory": {"type": "string"},
                           "runtime": {"type": "string"}, "priority": {"type": "integer"},
                           "num_cpus": {"type": "integer", "minimum": 1},
                           "num_gpus": {"type": "integer", "minimum": 0}}),
                    &["job_id"],
                )
            },
            |call| Box::pin(update_resources(call)),
        ),
        tool(
            "recover_workflow",
            "Gives failed jobs what their diagnosis asks for and queues them again. Only tells what it would do unless \
             `dry_run` is false.",
            false,
            || {
                object(
                    json!({"workflow_id": {"type": "integer"}, "dry_run": {"type": "boolean"},
                           "memory_multiplier": {"type": "number"}, "runtime_multiplier": {"type": "number"},
                           "retry_unknown": {"type": "boolean"}}),
                    &["workflow_id"],
                )
            },
            |call| Box::pin(recover(call)),
        ),
    ]
}

async fn update_resources(call: ToolCall) -> Result<Value, ToolError> {
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

async fn recover(call: ToolCall) -> Result<Value, ToolError> {
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
