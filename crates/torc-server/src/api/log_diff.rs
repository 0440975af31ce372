//! Compares the outputs of two attempts of a job: what differs between one that failed and the one
//! before it is often why.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::{Answer, App, logs};
use crate::store::read::AttemptLogs;
use axum::extract::State;
use serde::Deserialize;
use torc_model::api::{DiffWord, LogDiffLine, LogDiffView, LogSide};
use torc_model::compare::{Line, compare};
use torc_model::ids::JobId;
use torc_model::status::Stream;
use utoipa::IntoParams;

/// Bytes at the end of each output that are compared.
const BYTES: i64 = 256 << 10;
const DEFAULT_LINES: i64 = 500;
const MAX_LINES: i64 = 2000;
const DEFAULT_AROUND: i64 = 2;
const MAX_AROUND: i64 = 100;

/// Which attempts, and how much of them.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffLogs {
    /// As for the output itself.
    pub stream: Option<String>,
    /// The later attempt is of this run; of the newest unless given.
    pub run_id: Option<i64>,
    /// The later attempt; the newest unless given.
    pub attempt_id: Option<i64>,
    /// The earlier attempt is of this run; of the later one's unless given.
    pub before_run_id: Option<i64>,
    /// The earlier attempt; the one before the later one unless given.
    pub before_attempt_id: Option<i64>,
    /// Equal lines that stay beside each difference; 2 unless given.
    #[param(minimum = 0, maximum = 100)]
    pub around: Option<i64>,
    /// Lines of the comparison from this one on, from 0.
    #[param(minimum = 0)]
    pub offset: Option<i64>,
    /// At most this many lines; 500 unless given.
    #[param(minimum = 1, maximum = 2000)]
    pub limit: Option<i64>,
}

/// Compares the ends of the outputs of two attempts of a job.
///
/// The last 256 KiB and 1,500 lines of each are compared line by line. Numbers, times and the
/// directories of paths do not count.
#[utoipa::path(
    get,
    path = "/jobs/{id}/logs/diff",
    operation_id = "diff_job_logs",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job."), DiffLogs),
    responses((status = 200, description = "What differs.", body = LogDiffView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn diff_logs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<DiffLogs>,
) -> Answer<LogDiffView> {
    let job = JobId(id);
    caller.check(app.reader().workflow_of_job(job).await?)?;
    let stream = logs::named_stream(query.stream.as_deref())?;
    let limit = bounded("limit", query.limit, DEFAULT_LINES, 1, MAX_LINES)?;
    let around = bounded("around", query.around, DEFAULT_AROUND, 0, MAX_AROUND)?;
    let offset = bounded("offset", query.offset, 0, 0, i64::MAX)?;
    let later = app.reader().find_logs(job, query.run_id, query.attempt_id).await?;
    let later = later.ok_or_else(|| missing(job))?;
    let earlier = match (query.before_run_id, query.before_attempt_id) {
        (None, None) => {
            app.reader().find_logs_before(job, later.run_id, later.attempt_id).await?.ok_or_else(
                || {
                    let which = format!("attempt {} of run {}", later.attempt_id, later.run_id);
                    ApiError::not_found(format!("no attempt of job {job} started before {which}"))
                },
            )?
        }
        (run, attempt) => {
            let run = run.unwrap_or(later.run_id);
            let found = app.reader().find_logs(job, Some(run), attempt).await?;
            found.ok_or_else(|| missing(job))?
        }
    };
    let (before, behind) =
        (side(&app, job, &earlier, stream).await?, side(&app, job, &later, stream).await?);
    let lines = compare(&before.1, &behind.1, around as usize);
    let differ = lines.iter().any(|line| matches!(line, Line::Gone(_) | Line::New(_)));
    let total_count = lines.len() as i64;
    let shown = lines.into_iter().skip(offset as usize).take(limit as usize);
    Ok(Json(LogDiffView {
        job_id: job,
        stream,
        earlier: before.0,
        later: behind.0,
        differ,
        total_count,
        offset,
        lines: shown.map(line).collect(),
    }))
}

fn missing(job: JobId) -> ApiError {
    ApiError::not_found(format!("job {job} has no such attempt that has started"))
}

fn bounded(
    field: &'static str,
    given: Option<i64>,
    default: i64,
    least: i64,
    most: i64,
) -> Result<i64, ApiError> {
    let value = given.unwrap_or(default);
    match (least..=most).contains(&value) {
        true => Ok(value),
        false if most == i64::MAX => {
            Err(ApiError::bad_query(field, format!("`{field}` is {value}; it begins with {least}")))
        }
        false => Err(ApiError::bad_query(
            field,
            format!("`{field}` is {value}; it goes from {least} to {most}"),
        )),
    }
}

/// The lines at the end of an output.
async fn side(
    app: &App,
    job: JobId,
    of: &AttemptLogs,
    stream: Stream,
) -> Result<(LogSide, Vec<String>), ApiError> {
    let (_, piece) = logs::read(app, job, of, stream, -BYTES, BYTES).await?;
    // A line that is cut at its begin would differ for nothing.
    let text = match piece.offset > 0 {
        true => piece.text.split_once('\n').map_or(piece.text.as_str(), |(_, rest)| rest),
        false => piece.text.as_str(),
    };
    let side = LogSide {
        run_id: of.run_id,
        attempt_id: of.attempt_id,
        size: piece.size,
        read: piece.length,
    };
    Ok((side, text.lines().map(str::to_owned).collect()))
}

fn line(line: Line) -> LogDiffLine {
    let told = |kind, text| LogDiffLine { kind, text, lines: None };
    match line {
        Line::Same(text) => told(DiffWord::Same, text),
        Line::Gone(text) => told(DiffWord::Gone, text),
        Line::New(text) => told(DiffWord::New, text),
        Line::Equal(count) => {
            LogDiffLine { lines: Some(count as i64), ..told(DiffWord::Equal, String::new()) }
        }
    }
}
