//! What keeps a runner from working at all.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a runner could not begin or had to give up.
#[derive(Debug)]
pub enum Error {
    /// The server could not be reached or said no.
    Client(torc_client::Error),
    /// A directory cannot be used.
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The operating system denies something basic.
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The thread that owns the state died of a bug.
    Broken,
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.into(), source }
    }

    pub(crate) fn system(what: &'static str, source: io::Error) -> Self {
        Self::System { what, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Io { what, path, source } => {
                write!(f, "cannot {what} `{}`: {source}", path.display())
            }
            Self::System { what, source } => write!(f, "cannot {what}: {source}"),
            Self::Broken => f.write_str("the runner broke down; this is a bug"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Io { source, .. } | Self::System { source, .. } => Some(source),
            Self::Broken => None,
        }
    }
}
