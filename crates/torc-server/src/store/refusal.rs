//! Why a request was not carried out, in the form that every answer takes.

use std::fmt;
use torc_model::api::ErrorInfo;

/// A request that was not carried out. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Stable word for programs.
    pub code: &'static str,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The field of the request that is wrong.
    pub field: Option<String>,
}

impl Refusal {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None, field: None }
    }

    /// There is no such thing.
    pub fn not_found(what: &str, id: i64) -> Self {
        Self::new(404, "not_found", format!("there is no {what} {id}"))
    }

    /// There is no thing of this name.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", message)
    }

    /// It can not be done in the present state.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(409, code, message)
    }

    /// The request is wrong in itself.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(422, "invalid", message) }
    }

    /// Our fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "internal", message)
    }

    /// The disk is full.
    pub fn out_of_space(message: impl Into<String>) -> Self {
        Self::new(507, "out_of_space", message).hint("make room and try again; nothing was changed")
    }

    /// Not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "unavailable", message)
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
            code: self.code.to_owned(),
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
