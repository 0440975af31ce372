//! Why a job is where it is: the scheduler's own sentence, with what a person wants to know next to it.

use super::auth::Caller;
use super::error::ApiError;
use super::extract::Path;
use super::openapi::Refusals;
use super::{Answer, App};
use crate::store::read::Paging;
use axum::Json;
use axum::extract::State;
use torc_model::api::{AttemptView, JobView, WhyView};
use torc_model::core::Explanation;
use torc_model::ids::JobId;
use torc_model::status::{AttemptState, JobStatus};

/// Why a job is where it is.
#[utoipa::path(
    get,
    path = "/jobs/{id}/why",
    operation_id = "get_job_why",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job.")),
    responses((status = 200, description = "Why it is where it is.", body = WhyView), Refusals),
    security(("token" = ["workflow"]))
)]
pub async fn get_why(State(app): State<App>, caller: Caller, Path(id): Path<i64>) -> Answer<WhyView> {
    caller.check(app.reader().workflow_of_job(JobId(id)).await?)?;
    let explanation = app.store().explain(JobId(id)).await?;
    let job = app.reader().get_job(JobId(id)).await?;
    let newest = Paging { limit: 1, reverse: true, ..Paging::default() };
    let attempt = app.reader().list_attempts(JobId(id), newest).await?.items.pop();
    let mut details = blockers(&app, &explanation).await?;
    details.extend(attempt.as_ref().map(ending).unwrap_or_default());
    Ok(Json(WhyView { summary: explanation.summary, details, hints: hints(&job), attempt, job }))
}

async fn blockers(app: &App, explanation: &Explanation) -> Result<Vec<String>, ApiError> {
    let ids = explanation.because_of.iter().map(|(id, _)| *id).collect();
    let names = app.reader().names_of_jobs(ids).await?;
    let mut lines: Vec<String> = explanation
        .because_of
        .iter()
        .map(|(id, status)| match names.get(id) {
            Some(name) => format!("job {id} `{name}` is {status}"),
            None => format!("job {id} is {status}"),
        })
        .collect();
    let more = explanation.because_of_count.saturating_sub(explanation.because_of.len());
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    Ok(lines)
}

/// How the newest attempt ended, if it ended badly.
fn ending(attempt: &AttemptView) -> Vec<String> {
    if attempt.state.is_live() || attempt.state == AttemptState::Completed {
        return Vec::new();
    }
    let mut line = format!("attempt {} of run {} is {}", attempt.attempt_id, attempt.run_id, attempt.state);
    if let Some(cause) = attempt.cause {
        line += &format!(", cause {cause}");
    }
    if let Some(code) = attempt.return_code {
        line += &format!(", return code {code}");
    }
    let evidence = attempt.evidence.iter().map(|e| format!("evidence ({}): {}", e.source, e.text));
    [line].into_iter().chain(attempt.error.clone()).chain(evidence).chain(attempt.decision.clone()).collect()
}

fn hints(job: &JobView) -> Vec<String> {
    let (id, workflow) = (job.id, job.workflow_id);
    match job.status {
        JobStatus::Uninitialized => vec![format!("`torc workflows initialize {workflow}` starts the run")],
        JobStatus::Failed | JobStatus::Terminated => vec![
            format!("`torc logs {id}` shows its output"),
            format!("`torc workflows reset-status {workflow} --failed-only` lets what failed run again"),
        ],
        JobStatus::PendingFailed => vec![
            format!("`torc logs {id}` shows its output"),
            "it waits for a verdict: set its status to `ready` to try again, or to `failed` to give up".into(),
        ],
        JobStatus::Canceled => {
            vec![format!("`torc workflows reset-status {workflow}` lets it run again")]
        }
        JobStatus::Running => vec![format!("`torc logs {id} --follow` shows its output")],
        JobStatus::Ready if job.held => vec!["set `held` to false to let it go".into()],
        JobStatus::Blocked | JobStatus::Ready | JobStatus::Pending | JobStatus::Completed | JobStatus::Disabled => {
            Vec::new()
        }
    }
}
