//! What can go wrong with a call.

use std::fmt;
use torc_model::api::{ErrorCode, ErrorInfo};

/// Why a call gave no answer that could be used.
#[derive(Debug)]
pub enum Error {
    /// No answer came: the server is down, the address is wrong, or the time limit passed. The
    /// request may have had its effect all the same, so only repeat what is safe to repeat.
    Unreachable {
        /// Where the server was looked for.
        url: String,
        /// What the network said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server understood and said no.
    Refused {
        /// HTTP status.
        status: u16,
        /// What the server said.
        info: ErrorInfo,
    },
    /// The answer makes no sense, for example because something else listens at the address.
    Protocol {
        /// Where the server was looked for.
        url: String,
        /// What was wrong with the answer.
        message: String,
    },
    /// The call itself cannot be made: a bad address, an unreadable token file, no server known.
    Config {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl Error {
    /// The same call may succeed later: no answer came, or the server said that it is busy or
    /// broken for now.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            Self::Protocol { .. } | Self::Config { .. } => false,
        }
    }

    /// There was no connection, so that nothing was sent.
    pub fn is_unsent(&self) -> bool {
        self.came_to_a_connection() == Some(false)
    }

    /// The connection was there and broke, as against one that never came about.
    pub(crate) fn is_broken(&self) -> bool {
        self.came_to_a_connection() == Some(true)
    }

    /// None when it is no fault of the connection.
    fn came_to_a_connection(&self) -> Option<bool> {
        let Self::Unreachable { source, .. } = self else { return None };
        source.downcast_ref::<hyper_util::client::legacy::Error>().map(|error| !error.is_connect())
    }

    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Protocol { .. } | Self::Config { .. } => None,
        }
    }

    /// The stable word of a refusal, if it is one of ours.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { info, .. } => ErrorCode::parse(&info.code),
            Self::Unreachable { .. } | Self::Protocol { .. } | Self::Config { .. } => None,
        }
    }
}

/// One line: runners and logs print it inside other texts.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { url, source } => {
                write!(f, "no answer from the server at `{url}`: {}", innermost(source.as_ref()))
            }
            Self::Refused { info, .. } => {
                f.write_str(&info.message)?;
                if let Some(field) = &info.field {
                    write!(f, " (field `{field}`)")?;
                }
                match &info.hint {
                    Some(hint) => write!(f, " (hint: {hint})"),
                    None => Ok(()),
                }
            }
            Self::Protocol { url, message } => write!(
                f,
                "the answer from `{url}` was not understood: {message} (hint: is this the address of a Torc \
                 server of the same version?)"
            ),
            Self::Config { message, hint } => {
                f.write_str(message)?;
                match hint {
                    Some(hint) => write!(f, " (hint: {hint})"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(source.as_ref()),
            Self::Refused { .. } | Self::Protocol { .. } | Self::Config { .. } => None,
        }
    }
}

/// The HTTP layers wrap each other's errors; only the last one ("connection refused") tells people
/// something.
fn innermost<'a>(
    mut error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
