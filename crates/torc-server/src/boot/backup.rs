//! Copies of a database, taken while it is in use.

use super::error::StartError;
use super::private;
use rusqlite::{Connection, OpenFlags};
use std::io;
use std::path::Path;

/// Copies the database to `destination`, which must not exist. Sees one consistent state and does
/// not disturb the server that owns the database.
pub fn backup(database: &Path, destination: &Path) -> Result<(), StartError> {
    let failed = |source| StartError::Database { doing: "open", database: database.into(), source };
    if destination.symlink_metadata().is_ok() {
        let source = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file is there already, and a backup never replaces one",
        );
        return Err(StartError::Io { doing: "write the backup", path: destination.into(), source });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(failed)?;
    connection.busy_timeout(super::database::BUSY_TIMEOUT).map_err(failed)?;
    copy_over(&connection, destination)
}

/// Copies what a connection sees to `destination`, whole or not at all, replacing what is there.
pub fn copy_over(connection: &Connection, destination: &Path) -> Result<(), StartError> {
    let io =
        |source| StartError::Io { doing: "write the backup", path: destination.into(), source };
    let temporary = private::temporary_name(destination);
    // SQLite fills an empty file and leaves its mode alone; one that it made itself would be open
    // to all.
    let file = private::create_new(&temporary).map_err(io)?;
    let copied = copy(connection, &temporary, destination).and_then(|()| {
        file.sync_all()?;
        std::fs::rename(&temporary, destination)?;
        private::sync_parent(destination)
    });
    copied.map_err(|source| {
        // The first error is the one to tell; the leftover is harmless.
        let _ = std::fs::remove_file(&temporary);
        io(source)
    })
}

fn copy(connection: &Connection, temporary: &Path, destination: &Path) -> io::Result<()> {
    let name = temporary
        .to_str()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name is not UTF-8"))?;
    let copied = connection.execute("VACUUM INTO ?1", [name]).and_then(|_| mark_as_copy(temporary));
    copied.map_err(|e| {
        tracing::debug!(destination = %destination.display(), error = %e, "backup failed");
        io::Error::other(e)
    })
}

/// A copy counts as older than the database it was made from: when it is put in its place, ids go on
/// behind the last one (`store/id_marks.rs`).
fn mark_as_copy(copy: &Path) -> rusqlite::Result<()> {
    let copy = Connection::open(copy)?;
    let is_ours = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'meta')";
    if copy.query_row(is_ours, [], |row| row.get(0))? {
        copy.execute("DELETE FROM meta WHERE key = ?1", [crate::store::ID_MARKS])?;
    }
    copy.close().map_err(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn backup_of_a_database_in_use_is_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("torc.db");
        let live = Connection::open(&path).unwrap();
        live.execute_batch(
            "PRAGMA journal_mode=WAL; CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1), (2);",
        )
        .unwrap();
        live.execute_batch("BEGIN IMMEDIATE; INSERT INTO a VALUES (3);").unwrap();
        let copy = dir.path().join("copy.db");
        backup(&path, &copy).unwrap();
        live.execute_batch("COMMIT").unwrap();
        let rows: i64 = Connection::open(&copy)
            .unwrap()
            .query_row("SELECT count(*) FROM a", [], |r| r.get(0))
            .unwrap();
        assert_eq!(rows, 2);
        assert_eq!(std::fs::metadata(&copy).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn backup_never_replaces_a_file_and_leaves_nothing_when_it_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("torc.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (x INTEGER)").unwrap();
        let there = dir.path().join("there");
        std::fs::write(&there, "mine").unwrap();
        assert!(backup(&path, &there).is_err());
        assert_eq!(std::fs::read(&there).unwrap(), b"mine");
        assert!(backup(&path, &dir.path().join("no/such/directory")).is_err());
        assert!(backup(&dir.path().join("missing.db"), &dir.path().join("copy")).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
