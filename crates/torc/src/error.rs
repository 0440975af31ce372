//! Everything that can stop a command, with its wording and its exit code in one place.

use crate::exit::Exit;
use std::fmt;
use std::path::PathBuf;
use torc_model::api::ErrorInfo;

/// The result of every command.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command stopped.
#[derive(Debug)]
pub enum Error {
    /// The call does not make sense.
    Usage {
        /// What is wrong.
        message: String,
        /// What to do instead.
        hint: Option<String>,
    },
    /// The spec is wrong; the text shows where.
    Spec {
        /// The diagnostics, ready to print.
        rendered: String,
    },
    /// The file system said no.
    Io {
        /// What we were doing, as in "read", "create".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The server refused.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's words.
        info: ErrorInfo,
    },
    /// The server did not answer.
    Unreachable {
        /// Where we looked and what happened.
        message: String,
        /// What to do about it.
        hint: String,
        /// There was no connection, so the call certainly had no effect.
        is_unsent: bool,
    },
    /// The server inside this process could not start.
    Embedded {
        /// Where its state is, if that is what is wrong.
        dir: Option<PathBuf>,
        /// The cause, in one sentence.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The command did what it was asked, and could not say so.
    Untold {
        /// What was done.
        done: String,
        /// Why it could not be told.
        error: Box<Error>,
    },
    /// The reader of our output has gone (`torc jobs list | head`).
    OutputClosed,
}

impl Error {
    /// A call that does not make sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// A call that does not make sense, and what to do instead.
    pub fn usage_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// For `map_err`: wraps an I/O error with what was done to which path.
    pub fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }

    /// The same error, met after this was done.
    pub fn after(self, done: String) -> Self {
        match self {
            Self::OutputClosed => Self::OutputClosed,
            error => Self::Untold { done, error: Box::new(error) },
        }
    }

    /// The code this error ends the program with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } | Self::Spec { .. } | Self::Io { .. } => Exit::Usage,
            Self::Refused { status, .. } if *status >= 500 => Exit::Unreachable,
            Self::Refused { .. } => Exit::Usage,
            Self::Unreachable { .. } | Self::Embedded { .. } => Exit::Unreachable,
            Self::OutputClosed => Exit::Success,
            // Not the code for "nothing was changed".
            Self::Untold { .. } => Exit::JobsFailed,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Usage { hint, .. } | Self::Embedded { hint, .. } => hint.as_deref(),
            Self::Refused { info, .. } => info.hint.as_deref(),
            Self::Unreachable { hint, .. } => Some(hint),
            Self::Untold { error, .. } => error.hint(),
            Self::Spec { .. } | Self::Io { .. } | Self::OutputClosed => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { message, .. } => f.write_str(message),
            Self::Spec { rendered } => f.write_str(rendered.trim_end()),
            Self::Io { doing, path, source } => {
                write!(f, "cannot {doing} `{}`: {source}", path.display())
            }
            Self::Refused { info, .. } => match &info.field {
                Some(field) => write!(f, "{} (field `{field}`)", info.message),
                None => f.write_str(&info.message),
            },
            Self::Unreachable { message, .. } => f.write_str(message),
            Self::Embedded { dir: Some(dir), reason, .. } => {
                write!(f, "cannot open `{}`: {reason}", dir.display())
            }
            Self::Embedded { dir: None, reason, .. } => f.write_str(reason),
            Self::Untold { done, error } => write!(f, "{done}, but: {error}"),
            Self::OutputClosed => f.write_str("output closed"),
        }
    }
}

impl From<torc_client::Error> for Error {
    fn from(error: torc_client::Error) -> Self {
        match error {
            torc_client::Error::Refused { status, info } => Self::Refused { status, info },
            torc_client::Error::Config { message, hint } => Self::Usage { message, hint },
            torc_client::Error::Unreachable { .. } => Self::Unreachable {
                is_unsent: error.is_unsent(),
                message: error.to_string(),
                hint:
                    "is the server gone? `--url` (or `TORC_API_URL`) names another; without it the local state is used"
                        .into(),
            },
            torc_client::Error::Protocol { url, message } => Self::Unreachable {
                message: format!("the answer from `{url}` was not understood: {message}"),
                hint: "is this the address of a Torc server of the same version?".into(),
                is_unsent: false,
            },
        }
    }
}
