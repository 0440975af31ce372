//! What jobs and allocations wrote. Read through the server, from the end, with a bound: files may
//! be of any size.

use super::{MOST_ROWS, OfWorkflow, find_job};
use crate::tools::{ToolCall, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use torc_client::{Client, Query};
use torc_model::api::JobView;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::untrusted;
use torc_model::slurm::logs::{Issue, LogSeverity, scan};

/// Of a log, at most this many bytes are read, from the end.
const LOG_BYTES: i64 = 64 << 10;
/// Lines shown of each kind of problem.
const SAMPLES: usize = 5;

/// The end of what a job wrote.
pub async fn job_logs(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        workflow_id: Option<WorkflowId>,
        job_id: JobId,
        run_id: Option<i64>,
        attempt_id: Option<i64>,
        log_type: Option<String>,
        tail_lines: Option<usize>,
    }
    let Arguments { workflow_id, job_id, run_id, attempt_id, log_type, tail_lines } =
        call.arguments()?;
    let bound = call.settings.workflow.or(workflow_id);
    let mut query = Query::new()
        .add("stream", log_type.unwrap_or_else(|| "stderr".into()))
        .add("offset", -LOG_BYTES)
        .add("limit", LOG_BYTES);
    if let Some(run) = run_id {
        query = query.add("run_id", run);
    }
    if let Some(attempt) = attempt_id {
        query = query.add("attempt_id", attempt);
    }
    call.ask(move |client| async move {
        find_job(&client, bound, job_id).await?;
        let log = client.job_log(job_id, &query).await?;
        let lines: Vec<&str> = log.text.lines().collect();
        let last = &lines[lines.len().saturating_sub(tail_lines.unwrap_or(untrusted::TAIL_LINES).min(1000))..];
        Ok(json!({"job_id": job_id, "run_id": log.run_id, "attempt_id": log.attempt_id, "stream": log.stream,
                  "size": log.size, "untrusted_output": last.join("\n")}))
    })
    .await
}

/// One kind of problem.
#[derive(Default)]
struct Kind {
    count: usize,
    samples: Vec<Value>,
}

/// Known problems in the output of failed jobs and of allocations.
pub async fn analyze(call: ToolCall) -> Result<Value, ToolError> {
    let OfWorkflow { workflow_id } = call.arguments()?;
    call.check(workflow_id)?;
    let cluster = call.settings.cluster.clone();
    call.ask(move |client| async move {
        let query = Query::new()
            .add("workflow_id", workflow_id)
            .add("status", "failed,terminated,pending_failed")
            .add("limit", MOST_ROWS);
        let failed = client.list_jobs(&query).await?;
        let mut kinds: BTreeMap<(LogSeverity, String), Kind> = BTreeMap::new();
        let (mut files, mut with_errors) = (0_usize, Vec::new());
        for job in &failed.items {
            for stream in ["stderr", "stdout"] {
                let Some(text) = tail(&client, job, stream).await? else { continue };
                files += 1;
                let issues = scan(&text);
                if !issues.is_empty() {
                    with_errors.push(json!({"job_id": job.id, "name": job.name, "stream": stream}));
                }
                for issue in issues {
                    note(&mut kinds, issue, || json!({"job_id": job.id, "name": job.name, "stream": stream}));
                }
            }
        }
        if let Some(cluster) = cluster {
            for (file, issues) in cluster.log_issues(client, workflow_id).await? {
                files += 1;
                if !issues.is_empty() {
                    with_errors.push(json!({"file": file}));
                }
                for issue in issues {
                    note(&mut kinds, issue, || json!({"file": file}));
                }
            }
        }
        let count = |of: fn(LogSeverity) -> bool| -> usize {
            kinds.iter().filter(|((severity, _), _)| of(*severity)).map(|(_, kind)| kind.count).sum()
        };
        let (errors, warnings) = (count(|s| s > LogSeverity::Warning), count(|s| s == LogSeverity::Warning));
        // The worst first.
        let by_type: Vec<Value> = kinds
            .into_iter()
            .rev()
            .map(|((severity, what), kind)| {
                json!({"type": what, "severity": severity, "count": kind.count, "sample_errors": kind.samples})
            })
            .collect();
        Ok(json!({"workflow_id": workflow_id, "failed_jobs": failed.total_count, "failed_jobs_read": failed.items.len(),
                  "files_parsed": files, "error_count": errors, "warning_count": warnings, "errors_by_type": by_type,
                  "files_with_errors": with_errors,
                  "note": format!("read: the last {} KiB of each output of failed jobs", LOG_BYTES >> 10)}))
    })
    .await
}

fn note(
    kinds: &mut BTreeMap<(LogSeverity, String), Kind>,
    issue: Issue,
    place: impl Fn() -> Value,
) {
    let kind = kinds.entry((issue.severity, issue.description)).or_default();
    kind.count += 1;
    if kind.samples.len() < SAMPLES {
        let mut sample = place();
        sample["untrusted_line"] = json!(issue.line);
        kind.samples.push(sample);
    }
}

/// The end of one output of a job's newest attempt; `None` where there is none.
async fn tail(client: &Client, job: &JobView, stream: &str) -> Result<Option<String>, ToolError> {
    let query =
        Query::new().add("stream", stream).add("offset", -LOG_BYTES).add("limit", LOG_BYTES);
    match client.job_log(job.id, &query).await {
        Ok(log) => Ok((log.size > 0).then_some(log.text)),
        // It never started, or its output is gone.
        Err(torc_client::Error::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
