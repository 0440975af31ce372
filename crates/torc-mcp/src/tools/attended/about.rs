//! What an assistant may read about Torc itself, and tools that users of Torc 1.0.0 know.

use super::find_job;
use crate::library::{EXAMPLES, PAGES};
use crate::tools::{ToolCall, ToolError, to_value};
use serde::Deserialize;
use serde_json::{Value, json};
use torc_client::Query;
use torc_model::api::{Page, RunnerView, UpdateJob};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::RunnerState;
use torc_model::units::{Memory, Runtime};

pub async fn list_examples(_: ToolCall) -> Result<Value, ToolError> {
    let list = EXAMPLES.iter().map(|e| json!({"name": e.name, "title": e.title(), "uri": e.uri()}));
    Ok(json!({"examples": list.collect::<Vec<_>>()}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedPage {
    name: String,
}

pub async fn get_example(call: ToolCall) -> Result<Value, ToolError> {
    let NamedPage { name } = call.arguments()?;
    let wanted = name.trim_end_matches(".yaml");
    let found =
        EXAMPLES.iter().find(|e| e.name == wanted || e.name.ends_with(&format!("-{wanted}")));
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = EXAMPLES.iter().map(|e| e.name).collect();
        ToolError::Arguments(format!(
            "there is no example of this name; there are: {}",
            known.join(", ")
        ))
    })?;
    Ok(json!({"name": found.name, "format": "yaml", "text": found.text}))
}

pub async fn get_docs(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        #[serde(alias = "name")]
        topic: Option<String>,
    }
    let Arguments { topic } = call.arguments()?;
    let pages =
        || PAGES.iter().map(|p| json!({"topic": p.name, "title": p.title(), "uri": p.uri()}));
    let Some(topic) = topic else { return Ok(json!({"topics": pages().collect::<Vec<_>>()})) };
    let wanted = topic.trim_end_matches(".md");
    let found = PAGES.iter().find(|page| page.name == wanted).ok_or_else(|| {
        let known: Vec<&str> = PAGES.iter().map(|p| p.name).collect();
        ToolError::Arguments(format!(
            "there is no page of this name; there are: {}",
            known.join(", ")
        ))
    })?;
    Ok(json!({"topic": found.name, "title": found.title(), "text": found.text}))
}

/// Groups of jobs get other needs, for their next attempts.
pub async fn regroup(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Group {
        job_ids: Vec<JobId>,
        num_cpus: Option<u32>,
        num_gpus: Option<u32>,
        memory: Option<Memory>,
        runtime: Option<Runtime>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        workflow_id: WorkflowId,
        groups: Vec<Group>,
        dry_run: Option<bool>,
    }
    let Arguments { workflow_id, groups, dry_run } = call.arguments()?;
    call.check(workflow_id)?;
    // Nothing happens by a slip: a change must be asked for.
    let dry_run = dry_run.unwrap_or(true);
    let reason = format!("asked for by {}", call.settings.agent);
    call.ask(move |client| async move {
        let mut changed = Vec::new();
        for group in groups {
            let update = UpdateJob {
                memory: group.memory,
                runtime: group.runtime,
                num_cpus: group.num_cpus,
                num_gpus: group.num_gpus,
                ..UpdateJob::default()
            };
            if update == UpdateJob::default() {
                let why = "give `num_cpus`, `num_gpus`, `memory` or `runtime` for each group";
                return Err(ToolError::Arguments(why.into()));
            }
            let update = UpdateJob { reason: Some(reason.clone()), ..update };
            for id in group.job_ids {
                let job = find_job(&client, Some(workflow_id), id).await?;
                let job = if dry_run { job } else { client.update_job(id, &update).await? };
                changed.push(json!({"job_id": job.id, "name": job.name, "num_cpus": job.num_cpus,
                                    "num_gpus": job.num_gpus, "memory": job.memory, "runtime": job.runtime}));
            }
        }
        Ok(json!({"workflow_id": workflow_id, "dry_run": dry_run, "jobs": changed}))
    })
    .await
}

/// Runners whose results may still be on their disks: those that the server does not hear.
pub async fn offline(call: ToolCall) -> Result<Value, ToolError> {
    let super::OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    call.ask(move |client| async move {
        let query = Query::new().add("workflow_id", workflow_id);
        let page: Page<RunnerView> = client.get(&format!("/compute_nodes{query}")).await?;
        let silent: Vec<RunnerView> =
            page.items.into_iter().filter(|r| r.state == RunnerState::LostContact).collect();
        Ok(json!({"workflow_id": workflow_id, "out_of_contact": to_value(&silent)?,
                  "note": "runners keep results while the server is away and deliver them by themselves; \
                           `torc runner deliver DIR` delivers those of a runner that has ended"}))
    })
    .await
}
