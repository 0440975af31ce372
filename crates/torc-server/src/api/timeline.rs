//! Attempts over time: one by one, or as a picture where they are too many for that.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use crate::store::read::{MAX_ATTEMPTS, PictureRows};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use torc_model::api::TimelineRows;
use torc_model::ids::WorkflowId;
use utoipa::IntoParams;

/// Which attempts.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetTimeline {
    /// Of this run only.
    pub run_id: Option<i64>,
    /// After the attempt with this row id: `after` of an earlier answer.
    pub after: Option<i64>,
    /// A picture of all attempts, where there are more than 300,000: narrow bars in rows of `runner` or
    /// `family` are drawn together.
    pub rows: Option<String>,
    /// With `rows`: only what ran after this, ms since 1970.
    pub from_ms: Option<i64>,
    /// With `rows`: only what ran before this.
    pub until_ms: Option<i64>,
}

/// Attempts over time, as columns of little-endian numbers.
///
/// The bytes: `TTL1`, u32 n, i64 base_ms, u32 flags (bit 0: more follow), u32 length of the JSON at
/// the end; then n times u32 each of job id, start, length (u32::MAX: it runs), wait before the
/// start (all in ms, starts since base_ms), and `runner << 16 | family << 4 | state`; then JSON with
/// `runners`, `family_cpus` (number of a family, CPUs that one of its jobs asks for) and `after`. States count queued, claimed, running, completed, failed, canceled,
/// terminated from 0.
///
/// A picture has `picture` in its JSON: the number of `attempts` in the window and of those `failed`,
/// `last_ms` (the last end of the run), and over the whole run CPUs `busy` and jobs `ready`, in slots of
/// equal length. A wait of u32::MAX marks a bar that stands for several attempts; its job is the first
/// of them.
#[utoipa::path(
    get,
    path = "/workflows/{id}/timeline",
    operation_id = "get_timeline",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow."), GetTimeline),
    responses((status = 200, description = "At most 300,000 bars.", body = String, content_type = "application/octet-stream"), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_timeline(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetTimeline>,
) -> Result<Response, ApiError> {
    let id = WorkflowId(id);
    caller.check(id)?;
    let stamp = app.stamp(id).await?;
    let bytes = match (query.picture()?, query.run_id, query.after.unwrap_or(0)) {
        (Some((by, window)), None, 0) if app.reader().count_ended(id).await? > MAX_ATTEMPTS => {
            match window {
                Some(_) => app.reader().picture(id, by, window).await?,
                None => {
                    let make = async { Ok(app.reader().picture(id, by, None).await?) };
                    let shown = &app.inner.shown;
                    let cache = match by {
                        PictureRows::Runner => &shown.picture_by_runner,
                        PictureRows::Family => &shown.picture_by_family,
                    };
                    (*cache.get(id, stamp, make).await?).clone()
                }
            }
        }
        (_, None, 0) => {
            let make = async { Ok(app.reader().timeline(id, None, 0).await?) };
            (*app.inner.shown.timeline.get(id, stamp, make).await?).clone()
        }
        (_, run, after) => app.reader().timeline(id, run, after).await?,
    };
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

impl GetTimeline {
    /// The rows and the window of a picture, if one is asked for.
    #[expect(clippy::type_complexity, reason = "rows and a window, taken apart where it is called")]
    fn picture(&self) -> Result<Option<(PictureRows, Option<(i64, i64)>)>, ApiError> {
        let word = |text: &str| {
            super::query::word("rows", text, TimelineRows::parse, TimelineRows::ALL, |rows| {
                rows.as_str()
            })
        };
        let Some(rows) = self.rows.as_deref().map(word).transpose()? else {
            return match self.from_ms.or(self.until_ms) {
                Some(_) => Err(ApiError::bad_query("from_ms", "a window needs `rows`")),
                None => Ok(None),
            };
        };
        let by = match rows {
            TimelineRows::Runner => PictureRows::Runner,
            TimelineRows::Family => PictureRows::Family,
        };
        let window = (self.from_ms, self.until_ms);
        match window {
            (None, None) => Ok(Some((by, None))),
            (from, until) if from.unwrap_or(0) >= until.unwrap_or(i64::MAX) => {
                Err(ApiError::bad_query("until_ms", "the window ends before it begins"))
            }
            // Bounds that no time reaches would make a pixel wider than all time.
            (Some(from), Some(until)) => Ok(Some((by, Some((from, until))))),
            _ => {
                Err(ApiError::bad_query("from_ms", "a window needs both `from_ms` and `until_ms`"))
            }
        }
    }
}
