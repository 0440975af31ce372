//! The search in the whole output of an attempt.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::{Answer, App, logs};
use crate::blocking::blocking;
use axum::extract::State;
use serde::Deserialize;
use std::time::{Duration, Instant};
use torc_model::api::LogSearchView;
use torc_model::ids::JobId;
use torc_model::log_search::{Wanted, search};
use utoipa::IntoParams;

const DEFAULT_HITS: i64 = 200;
const MAX_HITS: i64 = 2000;
/// Then the answer says how far it came.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// What to look for, and where.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchLogs {
    /// What to look for.
    pub text: Option<String>,
    /// It is a regular expression.
    pub regex: Option<bool>,
    /// Capitals and small letters differ.
    pub case: Option<bool>,
    /// The line with this number instead, from 1.
    pub line: Option<i64>,
    /// As for the output itself.
    pub stream: Option<String>,
    /// Of this run; the newest unless given.
    pub run_id: Option<i64>,
    /// Of this attempt; the newest unless given.
    pub attempt_id: Option<i64>,
    /// At most this many lines; 200 unless given.
    #[param(minimum = 1, maximum = 2000)]
    pub limit: Option<i64>,
}

/// Looks for a text in the whole output of an attempt.
#[utoipa::path(
    get,
    path = "/jobs/{id}/logs/search",
    operation_id = "search_job_logs",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job."), SearchLogs),
    responses((status = 200, description = "How many lines have it, and the first of them.", body = LogSearchView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn search_logs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<SearchLogs>,
) -> Answer<LogSearchView> {
    let job = JobId(id);
    caller.check(app.reader().workflow_of_job(job).await?)?;
    let limit = query.limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        let message = format!("`limit` is {limit}; it goes from 1 to {MAX_HITS}");
        return Err(ApiError::bad_query("limit", message));
    }
    let wanted = wanted(&query)?;
    let found = app.reader().find_logs(job, query.run_id, query.attempt_id).await?;
    let found = found.ok_or_else(|| {
        ApiError::not_found(format!("job {id} has no such attempt that has started"))
    })?;
    let task = blocking(move || {
        let file = logs::open_stream(job, &found, query.stream.as_deref())?;
        let size = file.metadata().map_or(0, |facts| facts.len()) as i64;
        let mut view = search(file, &wanted, limit as usize, Instant::now() + TIME_LIMIT)
            .map_err(|error| ApiError::not_found(format!("cannot read the output: {error}")))?;
        view.size = size;
        Ok(view)
    });
    task.await
        .map_err(|error| {
            tracing::error!(%error, "searching a log failed");
            ApiError::internal()
        })?
        .map(Json)
}

fn wanted(query: &SearchLogs) -> Result<Wanted, ApiError> {
    if let Some(line) = query.line {
        return Ok(Wanted::Line(line));
    }
    let Some(text) = query.text.as_deref().filter(|text| !text.is_empty()) else {
        return Err(ApiError::bad_query("text", "there is nothing to look for"));
    };
    let (is_regex, has_case) = (query.regex.unwrap_or_default(), query.case.unwrap_or_default());
    Wanted::text(text, is_regex, has_case).map_err(|error| ApiError::bad_query("text", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_nothing_or_by_a_broken_pattern_is_refused() {
        assert!(wanted(&SearchLogs::default()).is_err());
        let broken = |regex| SearchLogs { text: Some("(".into()), regex, ..SearchLogs::default() };
        assert!(wanted(&broken(Some(true))).is_err());
        assert!(wanted(&broken(None)).is_ok());
    }
}
