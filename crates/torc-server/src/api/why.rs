//! Why a job is where it is: the scheduler's own sentence, with what a person wants to know next to
//! it.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::Path;
use super::openapi::Refusals;
use super::{Answer, App};
use crate::store::WaitingJobs;
use crate::store::read::Paging;
use axum::extract::State;
use torc_engine::Explanation;
use torc_model::api::{AttemptView, JobView, WaitGroup, WhyView, WorkflowWhyView};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{Action, Diagnosis, Facts, RecoverJob, diagnose};
use torc_model::status::{AttemptState, Cause, JobStatus, Origin, StatusReason};

/// Why a job is where it is.
#[utoipa::path(
    get,
    path = "/jobs/{id}/why",
    operation_id = "get_job_why",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job.")),
    responses((status = 200, description = "Why it is where it is.", body = WhyView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_why(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<WhyView> {
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
    let adjustments = app
        .reader()
        .list_adjustments(job.workflow_id, Some(JobId(id)), Paging::default())
        .await?
        .items;
    // What was canceled before it started shows nothing by itself; the summary says what is known.
    let tells =
        |ended: &&AttemptView| ended.started_ms.is_some() || ended.cause != Some(Cause::Canceled);
    let diagnosis = ended
        .as_ref()
        .filter(tells)
        .and_then(|ended| diagnose(&Facts { command: &job.command, ..Facts::from(ended) }));
    let mut details = blockers(&app, &explanation).await?;
    details.extend(ended.as_ref().map(ending).unwrap_or_default());
    details.extend(explanation.details.iter().cloned());
    let remedy = match job.status.is_bad_end() || job.status == JobStatus::PendingFailed {
        true => app.store().remedy(job.workflow_id, job.id).await?,
        false => None,
    };
    let mut hints = hints(&job, diagnosis.as_ref(), remedy.as_ref());
    if job.status == JobStatus::Blocked
        && let Some((blocker, _)) =
            explanation.because_of.iter().find(|(_, s)| *s == JobStatus::PendingFailed)
    {
        hints.push(format!(
            "job {blocker} waits for a verdict: `torc why {blocker}` shows what can be done"
        ));
    }
    hints.extend(explanation.hints.iter().cloned());
    let mut summary = explanation.summary;
    match (job.status, &attempt) {
        (JobStatus::Failed | JobStatus::Terminated, _) => {
            summary.extend(job.status_reason.iter().map(|reason| format!(": {}", reason.text())));
        }
        (JobStatus::Completed, Some(last)) if last.attempt_id > 1 => {
            summary += &format!(" at attempt {}", last.attempt_id);
            match count_failures(&app, last).await? {
                0 => {}
                1 => summary += " after 1 failure",
                many => summary += &format!(" after {many} failures"),
            }
            hints.push(format!("`torc jobs attempts {id}` shows them all"));
        }
        _ => {}
    }
    let is_bad = job.status.is_bad_end() || job.status == JobStatus::PendingFailed;
    if is_bad && ended.as_ref().is_some_and(|ended| ended.steps.is_some()) {
        hints.push(format!("`torc jobs steps {id}` shows what each step did"));
    }
    // One diagnosis for all: the decision's own where there is one.
    let diagnosis = remedy.as_ref().map(|remedy| remedy.diagnosis.clone()).or(diagnosis);
    let remedy = remedy.map(Box::new);
    Ok(Json(WhyView { summary, details, hints, attempt, job, diagnosis, remedy, adjustments }))
}

/// Why the jobs of a workflow that have not ended are where they are, grouped by reason.
#[utoipa::path(
    get,
    path = "/workflows/{id}/why",
    operation_id = "get_workflow_why",
    tag = "workflows",
    params(("id" = i64, Path, description = "The workflow.")),
    responses((status = 200, description = "What waits, and why.", body = WorkflowWhyView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_workflow_why(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<WorkflowWhyView> {
    let workflow_id = WorkflowId(id);
    caller.check(workflow_id)?;
    let waiting = app.store().explain_workflow(workflow_id).await?;
    let names = app
        .reader()
        .names_of_jobs(waiting.groups.iter().map(|group| group.sample).collect())
        .await?;
    let group = |group: WaitingJobs| WaitGroup {
        status: group.status,
        jobs: group.count,
        summary: group.explanation.summary,
        hints: group.explanation.hints,
        sample_name: names.get(&group.sample).cloned().unwrap_or_default(),
        sample: group.sample,
    };
    let left_out = waiting.left_out;
    let waiting = waiting.groups.into_iter().map(group).collect();
    Ok(Json(WorkflowWhyView { workflow_id, waiting, left_out }))
}

/// How many attempts of the last one's run failed before it. An attempt that saved its state to go
/// on did not.
async fn count_failures(app: &App, last: &AttemptView) -> Result<usize, ApiError> {
    let attempts = app
        .reader()
        .list_attempts(last.job_id, Paging { reverse: true, ..Paging::default() })
        .await?
        .items;
    let follows_failure = |attempt: &&AttemptView| {
        attempt.run_id == last.run_id
            && !matches!(attempt.origin, Origin::Initial | Origin::Requeued | Origin::Revised)
    };
    Ok(attempts.iter().filter(follows_failure).count())
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
    let state = match attempt.state {
        AttemptState::Failed => "failed".to_owned(),
        AttemptState::Terminated => "was stopped at a limit".to_owned(),
        AttemptState::Canceled => "was canceled".to_owned(),
        other => other.to_string(),
    };
    let mut line = format!("attempt {} of run {} {state}", attempt.attempt_id, attempt.run_id);
    match (attempt.cause, attempt.return_code) {
        (Some(Cause::Exit) | None, Some(code)) => line += &format!(" (exit code {code})"),
        (Some(cause), Some(code)) => line += &format!(" ({cause}, code {code})"),
        (Some(cause), None) => line += &format!(" ({cause})"),
        (None, None) => {}
    }
    // Which step it was is not in its exit code.
    let step = attempt.steps.as_ref().and(attempt.error.clone());
    [line].into_iter().chain(step).chain(attempt.decision.clone()).collect()
}

fn hints(job: &JobView, diagnosis: Option<&Diagnosis>, remedy: Option<&RecoverJob>) -> Vec<String> {
    let (id, workflow) = (job.id, job.workflow_id);
    let logs = format!("`torc logs {id}` shows its output");
    let advice = diagnosis.and_then(|d| d.kind.advice()).map(str::to_owned);
    match job.status {
        JobStatus::Uninitialized => {
            vec![format!("`torc workflows initialize {workflow}` starts the run")]
        }
        JobStatus::Failed if job.status_reason == Some(StatusReason::TooManyItemsFailed) => vec![
            format!("`torc items list {} --failed -w {workflow}` shows what failed", job.name),
            format!("`torc items retry {} -w {workflow}` runs it again", job.name),
        ],
        JobStatus::Failed | JobStatus::Terminated => {
            let as_it_is = || format!("`torc jobs retry {id}` runs it again as it is");
            let repair = repair(job, remedy).unwrap_or_else(as_it_is);
            advice.into_iter().chain([repair, logs]).collect()
        }
        JobStatus::PendingFailed => {
            let verdict = format!(
                "it waits for a verdict: `torc jobs classify {id} --retry`, or `--fail` to give up"
            );
            advice.into_iter().chain(repair(job, remedy)).chain([verdict, logs]).collect()
        }
        JobStatus::Canceled => {
            vec![format!(
                "`torc workflows reset-status {workflow} --failed-only` lets it run again, with what failed before it"
            )]
        }
        JobStatus::Running => vec![format!("`torc logs {id} --follow` shows its output")],
        JobStatus::Ready if job.held => vec![format!("`torc jobs release {id}` lets it go")],
        JobStatus::Blocked
        | JobStatus::Ready
        | JobStatus::Pending
        | JobStatus::Completed
        | JobStatus::Disabled => Vec::new(),
    }
}

/// What recovery would do about it, or why it can do nothing.
fn repair(job: &JobView, remedy: Option<&RecoverJob>) -> Option<String> {
    let remedy = remedy?;
    let what = match remedy.action {
        Action::MoreMemory => "gives it more memory and runs it again",
        Action::MoreTime => "gives it more time and runs it again",
        Action::Again => "runs it again",
        Action::Impossible => return Some(remedy.reason.clone()),
        Action::Skip => return None,
    };
    Some(format!("`torc recover {}` {what}", job.workflow_id))
}
