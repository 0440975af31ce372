//! Opens the database: one owner, private files, and a journal that suits the file system.
//!
//! On a local disk: write-ahead log, readers beside the writer. Elsewhere the log's shared memory
//! does not work, so a rollback journal takes its place; readers and writer of this process then
//! wait for each other, and the lock file keeps other processes and machines away.

use super::error::StartError;
use super::file_system::FileSystem;
use super::lock::Lock;
use super::options::Options;
use super::{migrate, private};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Long enough for a slow disk, short enough for a person to get an answer.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// How commits reach the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Journal {
    /// Write-ahead log: readers never wait.
    Wal,
    /// Rollback journal: works without shared memory.
    Rollback,
}

/// An open database whose lock this process holds.
#[derive(Debug)]
pub struct Database {
    /// The only connection that may write.
    pub writer: Connection,
    /// Where it is.
    pub path: PathBuf,
    /// How commits reach the disk.
    pub journal: Journal,
    /// Keeps other servers away until it is dropped.
    pub lock: Lock,
}

impl Database {
    /// Opens or makes the database with the newest schema.
    pub fn open(options: &Options) -> Result<Self, StartError> {
        let path = options.database_path();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file_system = (options.detect_file_system)(directory).map_err(|source| {
            StartError::Io { doing: "look at the directory", path: directory.into(), source }
        })?;
        let lock = Lock::acquire(&path, &file_system)?;
        if let Some(previous) = &lock.previous {
            tracing::info!(owner = %previous, "the last server was not shut down cleanly");
        }
        // SQLite gives the journal and the log the mode of the database.
        drop(private::open_file(&path)?);
        let failed = |doing| {
            let path = path.clone();
            move |source| StartError::Database { doing, database: path, source }
        };
        let mut writer = connect(&path).map_err(failed("open"))?;
        let journal =
            set_journal(&writer, &file_system).map_err(failed("choose the journal of"))?;
        migrate::migrate(&mut writer, &path)?;
        Ok(Self { writer, path, journal, lock })
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // In KiB when negative. Little is read twice, and a commit after a page was split goes through
    // all of the cache.
    connection.pragma_update(None, "cache_size", -2_048)?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(connection)
}

fn set_journal(connection: &Connection, file_system: &FileSystem) -> rusqlite::Result<Journal> {
    let set = |mode: &str| -> rusqlite::Result<String> {
        connection.pragma_update_and_check(None, "journal_mode", mode, |row| row.get(0))
    };
    match file_system {
        FileSystem::Local if set("WAL")? == "wal" => {
            // Give the space of a burst back.
            connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
            Ok(Journal::Wal)
        }
        FileSystem::Local => rollback_journal(connection, "this file system"),
        FileSystem::Network(name) => rollback_journal(connection, name),
    }
}

/// A database that was last used on a local disk has a log. In exclusive mode SQLite can read it
/// without shared memory.
fn rollback_journal(connection: &Connection, place: &str) -> rusqlite::Result<Journal> {
    tracing::warn!(place, "no write-ahead log on this file system: commits are slower");
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "TRUNCATE", |row| row.get(0))?;
    connection.pragma_update_and_check(None, "locking_mode", "NORMAL", |_| Ok(()))?;
    // The lock is given up by the next read only.
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
    if mode == "truncate" {
        return Ok(Journal::Rollback);
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    Err(rusqlite::Error::SqliteFailure(code, Some(format!("the journal mode stays `{mode}`"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn nfs(_: &Path) -> std::io::Result<FileSystem> {
        Ok(FileSystem::Network("NFS".into()))
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    fn add_workflow(connection: &Connection) {
        let sql = "INSERT INTO workflow (name, user, settings, spec, created_ms) VALUES ('w', 'u', '{}', '{}', 0)";
        connection.execute(sql, []).unwrap();
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM workflow", [], |r| r.get(0)).unwrap()
    }

    #[test]
    fn local_database_has_a_log_full_sync_and_private_files() {
        let dir = tempfile::tempdir().unwrap();
        // Readable by others until it is opened.
        let path = dir.path().join("torc.db");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let database = Database::open(&Options::new(dir.path())).unwrap();
        assert_eq!(database.journal, Journal::Wal);
        let pragma = |name: &str| {
            database.writer.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).unwrap()
        };
        assert_eq!((pragma("synchronous"), pragma("foreign_keys")), (2, 1));
        add_workflow(&database.writer);
        for name in ["torc.db", "torc.db-wal", "torc.db-shm", "torc.db.lock"] {
            assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn network_database_works_without_shared_memory_and_with_readers() {
        let dir = tempfile::tempdir().unwrap();
        let local = Database::open(&Options::new(dir.path())).unwrap();
        add_workflow(&local.writer);
        // A copy that still has a log, as a killed server leaves it.
        let moved = dir.path().join("moved");
        std::fs::create_dir(&moved).unwrap();
        for name in ["torc.db", "torc.db-wal"] {
            std::fs::copy(dir.path().join(name), moved.join(name)).unwrap();
        }
        let options = Options { detect_file_system: nfs, ..Options::new(&moved) };
        let database = Database::open(&options).unwrap();
        assert_eq!(database.journal, Journal::Rollback);
        assert!(!moved.join("torc.db-shm").exists());
        assert_eq!(count(&database.writer), 1, "what the log held is kept");
        let reader =
            Connection::open_with_flags(&database.path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        add_workflow(&database.writer);
        assert_eq!(count(&reader), 2);
        add_workflow(&database.writer);
        assert_eq!(count(&reader), 3);
    }

    #[test]
    fn second_server_is_refused_before_it_touches_anything() {
        let dir = tempfile::tempdir().unwrap();
        let first = Database::open(&Options::new(dir.path())).unwrap();
        let error = Database::open(&Options::new(dir.path())).unwrap_err();
        assert!(matches!(error, StartError::Owned { owner: Some(_), .. }), "{error}");
        drop(first);
        Database::open(&Options::new(dir.path())).unwrap();
    }

    #[test]
    fn file_that_is_no_database_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("torc.db");
        let text = "not a database, whatever its name says ".repeat(100);
        std::fs::write(&path, &text).unwrap();
        let error = Database::open(&Options::new(dir.path())).unwrap_err();
        assert!(matches!(error, StartError::Database { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
