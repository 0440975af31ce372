//! Why a request was not carried out, in the form that every answer takes.

use std::fmt;
use torc_model::api::{ErrorCode, ErrorInfo};
use torc_model::words;

/// A request that was not carried out. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Stable word for programs.
    pub code: ErrorCode,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The field of the request that is wrong.
    pub field: Option<String>,
}

impl Refusal {
    fn new(status: u16, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, code, message: words::message(message), hint: None, field: None }
    }

    /// There is no such thing.
    pub fn not_found(what: &str, id: i64) -> Self {
        Self::new(404, ErrorCode::NotFound, format!("there is no {what} {id}"))
    }

    /// There is no thing of this name.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(404, ErrorCode::NotFound, message)
    }

    /// It cannot be done in the present state.
    pub fn conflict(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(409, code, message)
    }

    /// The caller may not do it.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, ErrorCode::Forbidden, message)
    }

    /// Jobs have added as many jobs as they may.
    pub fn capped(message: impl Into<String>) -> Self {
        Self::new(422, ErrorCode::DynamicJobsLimit, message)
    }

    /// The request is wrong in itself.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(422, ErrorCode::Invalid, message) }
    }

    /// Our fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, ErrorCode::Internal, message)
    }

    /// The disk is full.
    pub fn out_of_space(message: impl Into<String>) -> Self {
        Self::new(507, ErrorCode::OutOfSpace, message)
            .hint("make room and try again; nothing was changed")
    }

    /// Not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, ErrorCode::Unavailable, message)
    }

    /// With advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With advice, if there is some.
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// As the body of an answer.
    pub fn info(&self) -> ErrorInfo {
        ErrorInfo {
            code: self.code.to_string(),
            message: self.message.clone(),
            hint: self.hint.clone(),
            field: self.field.clone(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
