//! Why a server could not start, and what to do about it.

use super::lock::Owner;
use std::fmt;
use std::path::PathBuf;

/// Why a server could not start.
#[derive(Debug)]
pub enum StartError {
    /// Something with a file or directory failed.
    Io {
        /// Fits after "cannot".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file or directory belongs to another user.
    NotOurs {
        /// The file or directory of another user.
        path: PathBuf,
        /// Its owner's user id.
        uid: u32,
    },
    /// Others may change a file that must be ours alone.
    Writable {
        /// The file or directory that others can write.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The token file holds something that cannot be a token.
    BadToken {
        /// The file.
        path: PathBuf,
    },
    /// Another server has the database open.
    Owned {
        /// The database.
        database: PathBuf,
        /// Who, as far as it said.
        owner: Option<Box<Owner>>,
    },
    /// A server with its database elsewhere, or another such server, has the state directory.
    DirectoryOwned {
        /// The state directory.
        dir: PathBuf,
        /// Who, as far as it said.
        owner: Option<Box<Owner>>,
    },
    /// A server on another machine had the database open and never said that it closed it.
    OwnedElsewhere {
        /// The database.
        database: PathBuf,
        /// The lock file.
        lock: PathBuf,
        /// The server that has it.
        owner: Box<Owner>,
    },
    /// The file system cannot lock files.
    NoLocks {
        /// The lock file.
        lock: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The database was written by a newer program.
    NewerSchema {
        /// The database.
        database: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The database's schema has the right number but other content.
    ForeignSchema {
        /// The database.
        database: PathBuf,
        /// The version.
        version: i64,
    },
    /// The file is no database of ours.
    NotTorc {
        /// The file.
        database: PathBuf,
    },
    /// SQLite refused.
    Database {
        /// Fits after "cannot".
        doing: &'static str,
        /// The database.
        database: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The state in the database could not be taken up.
    Store {
        /// The cause, in one sentence.
        message: String,
    },
    /// The address cannot be listened on.
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or its key cannot be used.
    Tls {
        /// The file.
        path: PathBuf,
        /// The cause, in one sentence.
        message: String,
    },
    /// The operating system gave no randomness.
    NoRandomness {
        /// The cause, in one sentence.
        message: String,
    },
}

impl StartError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "choose a directory that you may write to with `--dir`".into()
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "free some space, or choose another place with `--dir`".into()
            }
            Self::Io { .. } | Self::Store { .. } | Self::NoRandomness { .. } => return None,
            Self::Tls { .. } => {
                "`--tls-cert` takes a PEM file with the certificate and its chain, `--tls-key` its key"
                    .into()
            }
            Self::NotOurs { .. } => "run as its owner, or choose another place with `--dir`".into(),
            Self::Writable { path, .. } => {
                format!("if you trust its content: `chmod 600 {}`", path.display())
            }
            Self::BadToken { path } => {
                format!("delete `{}`; a new token is made at the next start", path.display())
            }
            Self::Owned { owner: Some(owner), .. } => format!(
                "use that server, or stop it first (`kill {}` on {}); two servers would destroy each other's work",
                owner.pid, owner.host
            ),
            Self::DirectoryOwned { owner: Some(owner), .. } => format!(
                "serve another directory with `--dir`, or stop that server first (`kill {}` on {})",
                owner.pid, owner.host
            ),
            Self::DirectoryOwned { owner: None, .. } => {
                "serve another directory with `--dir`".into()
            }
            Self::Owned { owner: None, .. } => {
                "wait for it to end, or use another state directory".into()
            }
            Self::OwnedElsewhere { lock, owner, .. } => format!(
                "start on {} to go on there; if that process is gone for good, delete `{}`",
                owner.host,
                lock.display()
            ),
            Self::NoLocks { .. } => "put the database on a local disk with `--database`, \
                 or ask for the file system to be mounted with locks (`-o flock` for Lustre)"
                .into(),
            Self::NewerSchema { .. } => {
                "use the newer version of torc that wrote it, or restore a backup".into()
            }
            Self::ForeignSchema { .. } => {
                "open it with the version of torc that made it, or move the file away to start over"
                    .into()
            }
            Self::NotTorc { .. } => "choose another file with `--database`".into(),
            Self::Database { source, .. } => match source.sqlite_error_code() {
                Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
                    "the file is damaged: restore a backup (`torc.db.bak-*` or your own)".into()
                }
                Some(rusqlite::ErrorCode::DiskFull) => "free some space on the disk".into(),
                Some(rusqlite::ErrorCode::DatabaseBusy) => {
                    "another program has it open; close that first".into()
                }
                _ => return None,
            },
            Self::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                "choose another port with `--port`, or 0 for any free one".into()
            }
            Self::Listen { .. } => "give a name or an address of this machine with `--host`".into(),
        })
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => {
                write!(f, "cannot {doing} `{}`: {source}", path.display())
            }
            Self::NotOurs { path, uid } => {
                write!(f, "`{}` belongs to another user (uid {uid})", path.display())
            }
            Self::Writable { path, mode } => {
                write!(f, "`{}` can be changed by other users (mode {mode:04o})", path.display())
            }
            Self::BadToken { path } => write!(f, "`{}` does not hold a token", path.display()),
            Self::Owned { database, owner: Some(owner) } => {
                write!(f, "the database `{}` is in use by {owner}", database.display())
            }
            Self::Owned { database, owner: None } => {
                write!(f, "the database `{}` is in use by another process", database.display())
            }
            Self::DirectoryOwned { dir, owner: Some(owner) } => {
                write!(f, "the state directory `{}` is served by {owner}", dir.display())
            }
            Self::DirectoryOwned { dir, owner: None } => {
                write!(f, "the state directory `{}` is served by another process", dir.display())
            }
            Self::OwnedElsewhere { database, owner, .. } => {
                write!(
                    f,
                    "the database `{}` is on a network file system and was last opened by {owner}, which never closed it",
                    database.display()
                )
            }
            Self::NoLocks { lock, source } => {
                write!(f, "cannot lock `{}`: {source}", lock.display())
            }
            Self::NewerSchema { database, found, known } => write!(
                f,
                "the database `{}` has schema version {found}; this program knows versions up to {known}",
                database.display()
            ),
            Self::ForeignSchema { database, version } => {
                write!(
                    f,
                    "the database `{}` has another schema than this version of torc (migration {version} differs)",
                    database.display()
                )
            }
            Self::NotTorc { database } => {
                write!(f, "`{}` is not a database of torc", database.display())
            }
            Self::Database { doing, database, source } => {
                write!(f, "cannot {doing} the database `{}`: {source}", database.display())
            }
            Self::Store { message } => {
                write!(f, "cannot take up the state in the database: {message}")
            }
            Self::Listen { address, source } => {
                write!(f, "cannot listen on `{address}`: {source}")
            }
            Self::Tls { path, message } => {
                write!(f, "cannot use `{}` for TLS: {message}", path.display())
            }
            Self::NoRandomness { message } => write!(f, "cannot make a token: {message}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. }
            | Self::NoLocks { source, .. }
            | Self::Listen { source, .. } => Some(source),
            Self::Database { source, .. } => Some(source),
            _ => None,
        }
    }
}
