//! Answers that are not a success: always JSON, always with a word for programs and a sentence for
//! people.

use super::Json;
use crate::store::Refusal;
use crate::store::read::{Paging, ReadError};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use torc_model::api::{ErrorBody, ErrorCode, ErrorInfo};
use torc_model::words;

/// An answer that is not a success.
#[derive(Clone, PartialEq, Debug)]
pub struct ApiError {
    status: StatusCode,
    info: ErrorInfo,
}

impl ApiError {
    /// With a status, a stable word and a sentence.
    pub fn new(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            status,
            info: ErrorInfo {
                code: code.to_string(),
                message: words::message(message),
                hint: None,
                field: None,
            },
        }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.info.message
    }

    /// What to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.info.hint = Some(hint.into());
        self
    }

    /// The part of the request that is wrong.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.info.field = Some(field.into());
        self
    }

    /// A query parameter that says something impossible.
    pub fn bad_query(field: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidQuery, message).field(field)
    }

    /// No token, or an invalid one.
    pub fn unauthorized(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, message)
            .hint(
                "`torc server token` on the server's machine prints the token, for `--token-file`; other clients send it as \
                 `Authorization: Bearer TOKEN`",
            )
    }

    /// A good token, but not for this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorCode::Forbidden, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, message)
    }

    /// The server is about to end.
    pub fn shutting_down() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::ShuttingDown,
            "the server is shutting down",
        )
        .hint("send the request again; it is safe to repeat")
    }

    /// Files that the answer needs are on a file system that does not answer.
    pub fn hangs(_: torc_fs::Hangs) -> Self {
        let message = "the file system with the files of this workflow does not answer";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::FileSystemHangs, message)
            .hint("send the request again when it is back")
    }

    /// Our own fault. Details go to the log, not to the caller.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ErrorCode::Internal,
            "the server made a mistake",
        )
        .hint("its log says more")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let unauthorized = self.status == StatusCode::UNAUTHORIZED;
        let mut response = (self.status, Json(ErrorBody { error: self.info })).into_response();
        if unauthorized {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            // Callers without a good token do not get to hold connections.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotFound { .. } => Self::not_found(error.to_string()),
            ReadError::UnknownSort { .. } => Self::bad_query("sort_by", error.to_string()),
            ReadError::Database(ref source) if is_busy(source) => {
                tracing::warn!(%error, "a read had to wait too long");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Busy, "the database is busy")
                    .hint("try again")
            }
            ReadError::Database(_) | ReadError::Gone => {
                tracing::error!(%error, "a read failed");
                Self::internal()
            }
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status =
            StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // The writer has logged a full disk.
        if status.is_server_error() && refusal.code != ErrorCode::OutOfSpace {
            tracing::error!(code = %refusal.code, message = refusal.message, "a change failed");
        }
        let Refusal { code, message, hint, field, .. } = refusal;
        Self { status, info: ErrorInfo { code: code.to_string(), message, hint, field } }
    }
}

/// Refuses a page that is larger than the bound.
pub fn check_paging(offset: Option<i64>, limit: Option<i64>) -> Result<(i64, i64), ApiError> {
    let offset = offset.unwrap_or(0);
    let limit = limit.unwrap_or(Paging::DEFAULT_LIMIT);
    if offset < 0 {
        return Err(ApiError::bad_query(
            "offset",
            format!("`offset` is {offset}; it counts from 0"),
        ));
    }
    if !(1..=Paging::MAX_LIMIT).contains(&limit) {
        let message = format!("`limit` is {limit}; it goes from 1 to {}", Paging::MAX_LIMIT);
        return Err(ApiError::bad_query("limit", message).hint("ask for the rest with `offset`"));
    }
    Ok((offset, limit))
}
