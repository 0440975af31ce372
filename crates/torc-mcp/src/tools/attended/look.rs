//! Looking at workflows, jobs and how attempts ended.

use super::{MOST_ROWS, OfWorkflow, find_job};
use crate::tools::{ToolCall, ToolError, to_value};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use torc_client::Query;
use torc_model::api::{JobView, Page};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::RecoverRequest;
use torc_model::status::StatusReason;

pub async fn about_workflow(
    call: ToolCall,
    path: fn(WorkflowId) -> String,
) -> Result<Value, ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    call.ask(move |client| async move { Ok(client.get(&path(workflow_id)).await?) }).await
}

pub async fn list_workflows(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        limit: Option<i64>,
    }
    let Arguments { limit } = call.arguments()?;
    if let Some(bound) = call.settings.workflow {
        return Err(ToolError::OtherWorkflow { bound });
    }
    let query = Query::new()
        .add("reverse_sort", true)
        .add("limit", limit.unwrap_or(20).clamp(1, MOST_ROWS));
    call.ask(move |client| async move { Ok(client.get(&format!("/workflows{query}")).await?) })
        .await
}

pub async fn summary(call: ToolCall) -> Result<Value, ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    call.ask(move |client| async move {
        let status: Value = client.get(&format!("/workflows/{workflow_id}/status")).await?;
        let request = RecoverRequest { dry_run: true, ..RecoverRequest::default() };
        let (mut kinds, mut failures) = (BTreeMap::new(), Vec::new());
        match client.recover(workflow_id, &request).await {
            Ok(view) => {
                for job in &view.jobs {
                    *kinds.entry(job.diagnosis.kind.as_str()).or_insert(0_i64) += 1;
                }
                failures = view.jobs;
                failures.truncate(MOST_ROWS as usize);
            }
            // Nothing has failed.
            Err(torc_client::Error::Refused { status: 409, .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(json!({"status": status, "failures_by_kind": kinds, "failures": to_value(&failures)?}))
    })
    .await
}

pub async fn jobs_by_status(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        workflow_id: WorkflowId,
        status: String,
        limit: Option<i64>,
    }
    let Arguments { workflow_id, status, limit } = call.arguments()?;
    call.check(workflow_id)?;
    jobs(&call, workflow_id, status, limit).await
}

pub async fn failed_jobs(call: ToolCall) -> Result<Value, ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    jobs(&call, workflow_id, "failed,terminated,pending_failed".into(), None).await
}

async fn jobs(
    call: &ToolCall,
    id: WorkflowId,
    status: String,
    limit: Option<i64>,
) -> Result<Value, ToolError> {
    let limit = limit.unwrap_or(MOST_ROWS).clamp(1, MOST_ROWS);
    let query = Query::new().add("workflow_id", id).add("status", &status).add("limit", limit);
    call.ask(move |client| async move {
        let page: Page<JobView> = client.list_jobs(&query).await?;
        let rows: Vec<Value> = page
            .items
            .iter()
            .map(|job| {
                json!({"job_id": job.id, "name": job.name, "status": job.status, "command": job.command,
                       "attempt_id": job.attempt_id, "return_code": job.return_code, "reason": job.status_reason.map(StatusReason::text)})
            })
            .collect();
        Ok(json!({"workflow_id": id, "status": status, "count": page.total_count, "jobs": rows}))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfJob {
    job_id: JobId,
}

pub async fn job_details(call: ToolCall) -> Result<Value, ToolError> {
    let OfJob { job_id } = call.arguments()?;
    let bound = call.settings.workflow;
    call.ask(move |client| async move {
        let job = find_job(&client, bound, job_id).await?;
        let attempts = client.list_attempts(job_id).await?;
        let why = client.why(job_id).await?;
        Ok(json!({"job": to_value(&job)?, "attempts": to_value(&attempts.items)?, "why": to_value(&why)?}))
    })
    .await
}

pub async fn results(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        workflow_id: WorkflowId,
        job_id: Option<i64>,
        run_id: Option<i64>,
        return_code: Option<i64>,
        status: Option<String>,
        failed_only: Option<bool>,
        limit: Option<i64>,
    }
    let Arguments { workflow_id, job_id, run_id, return_code, status, failed_only, limit } =
        call.arguments()?;
    call.check(workflow_id)?;
    let limit = limit.unwrap_or(MOST_ROWS).clamp(1, MOST_ROWS);
    let mut query =
        Query::new().add("workflow_id", workflow_id).add("limit", limit).add("reverse_sort", true);
    for (name, value) in [("job_id", job_id), ("run_id", run_id), ("return_code", return_code)] {
        if let Some(value) = value {
            query = query.add(name, value);
        }
    }
    let states: &[&str] = match (&status, failed_only) {
        (Some(status), _) => &[status.as_str()],
        (None, Some(true)) => &["failed", "terminated"],
        (None, Some(false) | None) => &[],
    };
    // The server answers for one state at a time.
    let queries: Vec<Query> = match states {
        [] => vec![query],
        states => states.iter().map(|state| query.clone().add("status", state)).collect(),
    };
    call.ask(move |client| async move {
        let mut answer = Page::whole(Vec::new());
        for query in queries {
            let mut page: Page<Value> = client.get(&format!("/results{query}")).await?;
            answer.total_count += page.total_count;
            answer.has_more |= page.has_more;
            answer.items.append(&mut page.items);
        }
        to_value(&answer)
    })
    .await
}

pub async fn utilization(call: ToolCall) -> Result<Value, ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    call.ask(move |client| async move {
        let query = Query::new().add("workflow_id", workflow_id).add("limit", 10 * MOST_ROWS).add("reverse_sort", true);
        let page: Value = client.get(&format!("/results{query}")).await?;
        let rows = page["items"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let over: Vec<Value> = rows
            .filter_map(|row| {
                let share = |used: &str, given: &str| Some(row[used].as_f64()? / row[given].as_f64()?);
                let memory = share("peak_memory_bytes", "memory_bytes");
                let time = share("exec_seconds", "time_limit_seconds");
                let is_near = memory.is_some_and(|share| share > 0.9) || time.is_some_and(|share| share > 0.9);
                is_near.then(|| {
                    json!({"job_id": row["job_id"], "job_name": row["job_name"], "attempt_id": row["attempt_id"],
                           "memory_share": memory, "time_share": time, "peak_memory_bytes": row["peak_memory_bytes"],
                           "exec_seconds": row["exec_seconds"]})
                })
            })
            .take(MOST_ROWS as usize)
            .collect();
        Ok(json!({"workflow_id": workflow_id, "attempts": page["total_count"], "near_or_over_their_limits": over,
                  "hint": "`torc reports resources` shows all of it and can correct requests"}))
    })
    .await
}

pub async fn classifications(call: ToolCall) -> Result<Value, ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    let query = Query::new()
        .add("workflow_id", workflow_id)
        .add("limit", MOST_ROWS)
        .add("reverse_sort", true);
    call.ask(move |client| async move { to_value(&client.list_classifications(&query).await?) })
        .await
}
