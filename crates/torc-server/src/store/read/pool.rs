//! The read-only connections.

use super::workflows::RememberedStatuses;
use crate::blocking::{Slot, blocking};
use crate::boot::StartError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// More would wait for the disk or the processor anyway.
const CONNECTIONS: usize = 4;
/// A rollback journal makes readers wait for commits.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a read gave nothing.
#[derive(Debug)]
pub enum ReadError {
    /// There is no such row.
    NotFound {
        /// What was looked for, as a word of the API.
        what: &'static str,
        /// Its id.
        id: i64,
    },
    /// The request asks for an order that the list does not have.
    UnknownSort {
        /// As asked for.
        asked: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The database refused.
    Database(rusqlite::Error),
    /// The thread that read is gone.
    Gone,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound { what, id } => write!(f, "{what} {id} not found"),
            Self::UnknownSort { asked, known } => {
                write!(f, "cannot sort by `{asked}` (known: {})", known.join(", "))
            }
            Self::Database(error) => write!(f, "cannot read the database: {error}"),
            Self::Gone => f.write_str("the read was interrupted"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

type Query = Box<dyn FnOnce(&Connection) -> Result<(), ReadError> + Send>;

/// Answers every question that changes nothing. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    rests: Mutex<RememberedStatuses>,
}

impl Reader {
    /// Opens the first connection; the others follow when they are needed. The writer must be open
    /// already.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        let first = connect(path).map_err(|source| StartError::Database {
            doing: "read",
            database: path.into(),
            source,
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.into(),
                idle: Mutex::new(vec![first]),
                permits: Arc::new(Semaphore::new(CONNECTIONS)),
                rests: Mutex::default(),
            }),
        })
    }

    /// The file of the database.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What is remembered of statuses.
    pub(super) fn rests(&self) -> MutexGuard<'_, RememberedStatuses> {
        self.inner.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `query` on a blocking thread inside one read transaction.
    pub async fn read<T, F>(&self, query: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, ReadError> + Send + 'static,
    {
        let slot = Slot::default();
        let kept = slot.clone();
        self.run(Box::new(move |db| query(db).map(|answer| kept.put(answer)))).await?;
        slot.take().ok_or(ReadError::Gone)
    }

    async fn run(&self, query: Query) -> Result<(), ReadError> {
        let permit =
            self.inner.permits.clone().acquire_owned().await.map_err(|_| ReadError::Gone)?;
        let inner = self.inner.clone();
        let task = blocking(move || {
            // Lives as long as the connection is out, also when the caller has gone away.
            let _permit = permit;
            inner.read(query)
        });
        task.await.map_err(|_| ReadError::Gone)?
    }
}

impl Inner {
    fn read(&self, query: Query) -> Result<(), ReadError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let answer = query(&transaction);
        transaction.finish()?;
        if !matches!(answer, Err(ReadError::Database(_))) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        answer
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // In KiB when negative.
    connection.pragma_update(None, "cache_size", -16_384)?;
    super::matching::add_functions(&connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}
