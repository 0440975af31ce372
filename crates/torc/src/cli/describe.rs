//! Attempts and jobs in one line each, the same words in every command.

use crate::output::{escape, human};
use torc_model::api::{AttemptView, JobView, WorkflowView};
use torc_model::status::{AttemptState, JobStatus};

/// `2 of run 1: failed (exit, code 3) after 1.2s on node7`.
pub fn attempt(attempt: &AttemptView) -> String {
    let mut text = format!("{} of run {}: {}", attempt.attempt_id, attempt.run_id, attempt.state);
    let cause = attempt.cause.map(|cause| cause.as_str().to_string());
    let code = attempt.return_code.filter(|code| *code != 0).map(|code| format!("code {code}"));
    let details: Vec<String> = cause.into_iter().chain(code).collect();
    if !details.is_empty() {
        text += &format!(" ({})", details.join(", "));
    }
    match (attempt.state, attempt.exec_seconds, attempt.started_ms) {
        (AttemptState::Running, _, Some(started)) => {
            text += &format!(" for {}", human::since(started))
        }
        (_, Some(seconds), _) => text += &format!(" after {}", human::seconds(seconds)),
        _ => {}
    }
    if let Some(host) = &attempt.hostname {
        text += &format!(" on {host}");
    }
    text
}

/// `memory 64.0 MiB, time 5m 00s`, if the attempt had any limit.
pub fn limits(attempt: &AttemptView) -> Option<String> {
    let memory = attempt.memory_bytes.map(|bytes| format!("memory {}", human::bytes(bytes)));
    let time = attempt
        .time_limit_seconds
        .map(|seconds| format!("time {}", human::seconds(seconds as f64)));
    let parts: Vec<String> = memory.into_iter().chain(time).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `memory 37.8 MiB, CPU 1.2s`, as far as known.
pub fn usage(attempt: &AttemptView) -> Option<String> {
    let memory = attempt.peak_memory_bytes.map(|bytes| format!("memory {}", human::bytes(bytes)));
    let cpu = attempt.cpu_seconds.map(|seconds| format!("CPU {}", human::seconds(seconds)));
    let parts: Vec<String> = memory.into_iter().chain(cpu).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `train_3 (job 7): code 1, attempt 2: out of memory`.
pub fn failed_job(job: &JobView) -> String {
    let mut text = format!("{} (job {})", job.name, job.id);
    if job.status != JobStatus::Failed {
        text += &format!(", {}", job.status);
    }
    if let Some(code) = job.return_code {
        text += &format!(", code {code}");
    }
    if job.attempt_id > 1 {
        text += &format!(", attempt {}", job.attempt_id);
    }
    if let Some(reason) = job.status_reason {
        text += &format!(": {}", reason.text());
    }
    text
}

/// `train_3 (job 7 of workflow 2)`.
pub fn job(job: &JobView) -> String {
    format!("{} (job {} of workflow {})", escape::line(&job.name), job.id, job.workflow_id)
}

/// `sweep (workflow 2)`.
pub fn workflow(workflow: &WorkflowView) -> String {
    format!("{} (workflow {})", escape::line(&workflow.name), workflow.id)
}
