//! Looks for a text in the whole output of an attempt, in pieces and for a bounded time.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::{Answer, App, logs};
use crate::blocking::blocking;
use axum::extract::State;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use std::io::Read;
use std::time::{Duration, Instant};
use torc_model::api::{LogHit, LogSearchView};
use torc_model::ids::JobId;
use utoipa::IntoParams;

const DEFAULT_HITS: i64 = 200;
const MAX_HITS: i64 = 2000;
/// Characters of a hit, around the place.
const HIT_TEXT: usize = 400;
/// A line is looked at in parts of this size; a file may be one line of many gigabytes.
const LONGEST_LINE: usize = 1 << 20;
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

/// What is looked for.
enum Wanted {
    Text(Regex),
    Line(i64),
}

fn wanted(query: &SearchLogs) -> Result<Wanted, ApiError> {
    if let Some(line) = query.line {
        return Ok(Wanted::Line(line));
    }
    let Some(text) = query.text.as_deref().filter(|text| !text.is_empty()) else {
        return Err(ApiError::bad_query("text", "there is nothing to look for"));
    };
    let pattern = match query.regex.unwrap_or_default() {
        true => text.to_owned(),
        false => regex::escape(text),
    };
    let built = RegexBuilder::new(&pattern)
        .case_insensitive(!query.case.unwrap_or_default())
        .unicode(true)
        .size_limit(1 << 20)
        .build();
    built.map(Wanted::Text).map_err(|error| {
        let said = error.to_string();
        ApiError::bad_query("text", said.lines().last().unwrap_or("wrong").trim().to_owned())
    })
}

/// Reads to the end, or until `until`, with one line in memory.
fn search(
    mut from: impl Read,
    wanted: &Wanted,
    limit: usize,
    until: Instant,
) -> std::io::Result<LogSearchView> {
    let mut view = LogSearchView { total: 0, hits: Vec::new(), lines: 0, size: 0, searched: 0 };
    let mut buffer = vec![0u8; 256 << 10];
    let mut line: Vec<u8> = Vec::new();
    let (mut start, mut number) = (0i64, 1i64);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let piece = &rest[..end.map_or(rest.len(), |end| end + 1)];
            rest = &rest[piece.len()..];
            line.extend_from_slice(piece);
            if end.is_some() || line.len() >= LONGEST_LINE {
                judge(&mut view, wanted, limit, number, start, &line);
                start += line.len() as i64;
                number += i64::from(end.is_some());
                line.clear();
            }
        }
        view.searched += read as i64;
        if Instant::now() >= until {
            break;
        }
    }
    if !line.is_empty() {
        judge(&mut view, wanted, limit, number, start, &line);
        number += 1;
    }
    view.lines = number - 1;
    Ok(view)
}

fn judge(
    view: &mut LogSearchView,
    wanted: &Wanted,
    limit: usize,
    number: i64,
    start: i64,
    line: &[u8],
) {
    let place = match wanted {
        Wanted::Text(regex) => regex.find(line).map(|found| found.start()),
        Wanted::Line(wanted) => (*wanted == number).then_some(0),
    };
    let Some(place) = place else { return };
    view.total += 1;
    if view.hits.len() < limit {
        let from = place.saturating_sub(HIT_TEXT / 4);
        let end = (from + HIT_TEXT).min(line.len());
        let text = String::from_utf8_lossy(&line[from..end]);
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        view.hits.push(LogHit { line: number, offset: start, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8], query: SearchLogs) -> LogSearchView {
        let later = Instant::now() + TIME_LIMIT;
        search(text, &wanted(&query).unwrap(), 2, later).unwrap()
    }

    #[test]
    fn every_line_is_counted_and_the_first_ones_are_told_with_their_place() {
        let text = b"one\nTwo error\nthree\nan ERROR here\nerror at the end";
        let query = |text: &str| SearchLogs { text: Some(text.into()), ..SearchLogs::default() };
        let view = found(text, query("error"));
        assert_eq!((view.total, view.lines, view.searched), (3, 5, text.len() as i64));
        let hit = |line, offset, text: &str| LogHit { line, offset, text: text.into() };
        assert_eq!(view.hits, [hit(2, 4, "Two error"), hit(4, 20, "an ERROR here")]);
        let exact = SearchLogs { case: Some(true), ..query("ERROR") };
        assert_eq!(found(text, exact).total, 1);
        let regex = SearchLogs { regex: Some(true), ..query("^t") };
        assert_eq!(found(text, regex).total, 2);
        let line = SearchLogs { line: Some(3), ..SearchLogs::default() };
        assert_eq!(found(text, line).hits, [hit(3, 14, "three")]);
        assert!(wanted(&SearchLogs { regex: Some(true), ..query("(") }).is_err());
        assert!(wanted(&SearchLogs::default()).is_err());
    }

    #[test]
    fn a_file_that_is_one_endless_line_takes_little_memory_and_is_searched() {
        let text = [b"x".repeat(3 << 20), b"needle".to_vec()].concat();
        let query = SearchLogs { text: Some("needle".into()), ..SearchLogs::default() };
        let view = found(&text, query);
        assert_eq!((view.total, view.lines), (1, 1));
        assert!(view.hits[0].text.len() <= HIT_TEXT && view.hits[0].text.contains("needle"));
    }
}
