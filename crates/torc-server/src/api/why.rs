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
use torc_model::recovery::{Diagnosis, Facts, Kind, diagnose};
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
    // A retry waits or runs: what is to be explained is the attempt before it.
    let ended = match &attempt {
        Some(live) if live.state.is_live() => match live.retry_of {
            Some(before) => Some(app.reader().get_attempt(before).await?),
            None => None,
        },
        other => other.clone(),
    };
    let adjustments = app.reader().list_adjustments(job.workflow_id, Some(JobId(id)), Paging::default()).await?.items;
    let diagnosis = ended.as_ref().and_then(|ended| diagnose(&Facts::from(ended)));
    let mut details = blockers(&app, &explanation).await?;
    details.extend(ended.as_ref().map(ending).unwrap_or_default());
    let hints = hints(&job, diagnosis.as_ref());
    Ok(Json(WhyView { summary: explanation.summary, details, hints, attempt, job, diagnosis, adjustments }))
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
    [line].into_iter().chain(attempt.decision.clone()).collect()
}

fn hints(job: &JobView, diagnosis: Option<&Diagnosis>) -> Vec<String> {
    let (id, workflow) = (job.id, job.workflow_id);
    let logs = format!("`torc logs {id}` shows its output");
    let advice = diagnosis.and_then(|d| d.kind.advice()).map(str::to_owned);
    match job.status {
        JobStatus::Uninitialized => vec![format!("`torc workflows initialize {workflow}` starts the run")],
        JobStatus::Failed | JobStatus::Terminated => {
            let repair = match diagnosis.filter(|d| d.is_sure()).map(|d| d.kind) {
                Some(Kind::Oom) => format!("`torc recover {workflow}` gives it more memory and runs it again"),
                Some(Kind::Timeout) => format!("`torc recover {workflow}` gives it more time and runs it again"),
                Some(Kind::Lost | Kind::Preempted | Kind::NodeFail | Kind::Walltime | Kind::Stopped) => {
                    format!("`torc recover {workflow}` runs it again")
                }
                Some(_) | None => format!("`torc jobs retry {id}` runs it again as it is"),
            };
            advice.into_iter().chain([repair, logs]).collect()
        }
        JobStatus::PendingFailed => {
            let verdict = format!("it waits for a verdict: `torc jobs classify {id} --retry`, or `--fail` to give up");
            advice.into_iter().chain([verdict, logs]).collect()
        }
        JobStatus::Canceled => {
            vec![format!("`torc workflows reset-status {workflow}` lets it run again")]
        }
        JobStatus::Running => vec![format!("`torc logs {id} --follow` shows its output")],
        JobStatus::Ready if job.held => vec![format!("`torc jobs release {id}` lets it go")],
        JobStatus::Blocked | JobStatus::Ready | JobStatus::Pending | JobStatus::Completed | JobStatus::Disabled => {
            Vec::new()
        }
    }
}
