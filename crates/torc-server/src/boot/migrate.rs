//! Brings a database to the newest schema, or refuses it.
//!
//! `PRAGMA user_version` is the number of migrations that were applied. Each one's checksum is kept
//! in `meta`, so that a database of a different build with the same number is noticed. Before an
//! upgrade a copy is made beside the file.

use super::backup;
use super::error::StartError;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use std::path::{Path, PathBuf};

/// The schema, and then every migration that was released after it, in order; entries are appended, never changed once
/// released.
pub const MIGRATIONS: &[&str] = &[include_str!("../store/schema.sql")];

/// "Torc" in ASCII, in the header of every database of ours.
const APPLICATION_ID: i64 = 0x546f_7263;

/// Applies what is missing.
pub fn migrate(connection: &mut Connection, database: &Path) -> Result<(), StartError> {
    migrate_with(connection, database, MIGRATIONS)
}

fn migrate_with(
    connection: &mut Connection,
    database: &Path,
    migrations: &[&str],
) -> Result<(), StartError> {
    let failed = |doing| {
        move |source| StartError::Database { doing, database: database.to_path_buf(), source }
    };
    let found: i64 = pragma(connection, "user_version").map_err(failed("read"))?;
    let known = migrations.len() as i64;
    check_is_ours(connection, database, found).map_err(failed("read"))??;
    // First, because a database of an unreleased version may have a higher number and yet be older.
    for (version, sql) in (1..=found).zip(migrations) {
        if applied_checksum(connection, version).map_err(failed("read"))? != Some(checksum(sql)) {
            return Err(StartError::ForeignSchema { database: database.into(), version });
        }
    }
    if found > known {
        return Err(StartError::NewerSchema { database: database.into(), found, known });
    }
    if found == known {
        return Ok(());
    }
    if found > 0 {
        let copy = backup_path(database, found);
        backup::copy_over(connection, &copy)?;
        tracing::info!(from = found, to = known, copy = %copy.display(), "upgrading the database");
    }
    apply(connection, migrations, found).map_err(failed("upgrade"))
}

/// What a new database consists of.
pub fn create(connection: &Connection) -> rusqlite::Result<()> {
    MIGRATIONS.iter().try_for_each(|sql| connection.execute_batch(sql))
}

/// All missing migrations in one transaction: the database has the old schema or the new one,
/// nothing between.
fn apply(connection: &mut Connection, migrations: &[&str], found: i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (version, sql) in (1..).zip(migrations).skip(found as usize) {
        transaction.execute_batch(sql)?;
        transaction.execute(
            "INSERT INTO meta (key, value) VALUES (?1, ?2)",
            (format!("migration_{version}"), checksum(sql)),
        )?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    transaction.commit()
}

/// An empty file becomes ours; a file with other content must say that it is.
fn check_is_ours(
    connection: &Connection,
    database: &Path,
    version: i64,
) -> rusqlite::Result<Result<(), StartError>> {
    let id: i64 = pragma(connection, "application_id")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    let fresh = tables == 0 && version == 0 && id == 0;
    Ok(if fresh || (id == APPLICATION_ID && version > 0) {
        Ok(())
    } else {
        Err(StartError::NotTorc { database: database.into() })
    })
}

fn applied_checksum(connection: &Connection, version: i64) -> rusqlite::Result<Option<String>> {
    let key = format!("migration_{version}");
    connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
        .optional()
}

/// Where the copy of a database goes before it is upgraded from `version`.
fn backup_path(database: &Path, version: i64) -> PathBuf {
    let mut name = database.as_os_str().to_os_string();
    name.push(format!(".bak-v{version}"));
    name.into()
}

fn checksum(sql: &str) -> String {
    crate::secret::hash_text(sql)
}

/// A database that a newer version of the program has written.
pub fn refuse_newer(connection: &Connection, database: &Path) -> Result<(), StartError> {
    let failed =
        |source| StartError::Database { doing: "read", database: database.to_path_buf(), source };
    let found: i64 = pragma(connection, "user_version").map_err(failed)?;
    let known = MIGRATIONS.len() as i64;
    match found > known {
        true => Err(StartError::NewerSchema { database: database.into(), found, known }),
        false => Ok(()),
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT; CREATE TABLE a (x INTEGER);";
    const TWO: &str = "ALTER TABLE a ADD COLUMN y INTEGER; INSERT INTO a VALUES (7, 8);";

    fn open(dir: &Path) -> (Connection, PathBuf) {
        let path = dir.join("torc.db");
        (Connection::open(&path).unwrap(), path)
    }

    fn version(connection: &Connection) -> i64 {
        pragma(connection, "user_version").unwrap()
    }

    #[test]
    fn fresh_database_gets_every_migration_and_a_second_call_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate_with(&mut connection, &path, &[ONE, TWO]).unwrap();
        assert_eq!(version(&connection), 2);
        migrate_with(&mut connection, &path, &[ONE, TWO]).unwrap();
        let rows: i64 = connection.query_row("SELECT count(*) FROM a", [], |r| r.get(0)).unwrap();
        assert_eq!(rows, 1);
        assert!(!backup_path(&path, 0).exists());
    }

    #[test]
    fn upgrade_leaves_a_private_copy_of_the_old_database() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate_with(&mut connection, &path, &[ONE]).unwrap();
        connection.execute("INSERT INTO a VALUES (1)", []).unwrap();
        // A copy that an interrupted upgrade left is replaced.
        std::fs::write(backup_path(&path, 1), "half").unwrap();
        migrate_with(&mut connection, &path, &[ONE, TWO]).unwrap();
        let copy = Connection::open(backup_path(&path, 1)).unwrap();
        assert_eq!(version(&copy), 1);
        assert_eq!(copy.query_row("SELECT x FROM a", [], |r| r.get::<_, i64>(0)).unwrap(), 1);
        assert_eq!(std::fs::metadata(backup_path(&path, 1)).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn failing_migration_leaves_the_old_schema() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate_with(&mut connection, &path, &[ONE]).unwrap();
        let broken =
            migrate_with(&mut connection, &path, &[ONE, TWO, "CREATE TABLE a (z INTEGER)"]);
        assert!(matches!(broken, Err(StartError::Database { doing: "upgrade", .. })));
        assert_eq!(version(&connection), 1);
        assert!(connection.prepare("SELECT y FROM a").is_err());
    }

    #[test]
    fn newer_changed_and_foreign_databases_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate_with(&mut connection, &path, &[ONE, TWO]).unwrap();
        let newer = migrate_with(&mut connection, &path, &[ONE]).unwrap_err();
        assert!(matches!(newer, StartError::NewerSchema { found: 2, known: 1, .. }), "{newer}");
        assert!(newer.hint().unwrap().contains("newer version"));
        let changed = migrate_with(&mut connection, &path, &[TWO, TWO]).unwrap_err();
        assert!(matches!(changed, StartError::ForeignSchema { version: 1, .. }), "{changed}");
        let mut other = Connection::open(dir.path().join("other.db")).unwrap();
        other.execute_batch("CREATE TABLE notes (x INTEGER)").unwrap();
        let foreign = migrate_with(&mut other, &path, &[ONE]).unwrap_err();
        assert!(matches!(foreign, StartError::NotTorc { .. }), "{foreign}");
    }

    /// The eleven migrations of the versions before the first release had version 11 and another first one.
    #[test]
    fn a_database_of_an_unreleased_version_is_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate_with(&mut connection, &path, &[ONE, TWO]).unwrap();
        let refused = migrate(&mut connection, &path).unwrap_err();
        assert!(matches!(refused, StartError::ForeignSchema { version: 1, .. }), "{refused}");
        assert!(refused.hint().unwrap().contains("move the file away"));
        assert_eq!(version(&connection), 2, "it is left as it was");
    }

    #[test]
    fn the_shipped_schema_takes_a_migration() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate(&mut connection, &path).unwrap();
        connection
            .execute("INSERT INTO named_limit (name, max) VALUES ('licence', 2)", [])
            .unwrap();
        let made_up = "ALTER TABLE named_limit ADD COLUMN note TEXT NOT NULL DEFAULT 'none'";
        let with_it: Vec<&str> = MIGRATIONS.iter().copied().chain([made_up]).collect();
        migrate_with(&mut connection, &path, &with_it).unwrap();
        assert_eq!(version(&connection), with_it.len() as i64);
        let kept: String = connection
            .query_row("SELECT name || max || note FROM named_limit", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, "licence2none");
    }

    #[test]
    fn shipped_schema_is_valid_and_its_references_hold() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        migrate(&mut connection, &path).unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        connection
            .execute_batch(
                "INSERT INTO workflow (name, user, settings, spec, created_ms) VALUES ('w', 'u', '{}', '{}', 0);
                 DELETE FROM workflow;",
            )
            .unwrap();
    }

    #[test]
    fn ended_attempts_are_frozen_and_events_go_with_their_workflow() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        migrate(&mut connection, &path).unwrap();
        connection
            .execute_batch(
                "INSERT INTO workflow (id, name, user, spec, settings, created_ms) VALUES (1, 'a', 'u', '{}', '{}', 1), (2, 'b', 'u', '{}', '{}', 1);
                 INSERT INTO job (id, workflow_id, name, command, status, position) VALUES (1, 1, 'j', 'true', 5, 0);
                 INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, ended_ms, ended_by)
                     VALUES (1, 1, 1, 1, 1, 'completed', 'initial', 1, 2, 'runner'), (2, 1, 1, 1, 2, 'queued', 'initial', 1, NULL, NULL);
                 INSERT INTO event (id, workflow_id, timestamp_ms, kind, data)
                     VALUES (3, 2, 1, 'x', '{}'), (4, 1, 1, 'y', '{}'), (7, 2, 1, 'z', '{}');",
            )
            .unwrap();
        let text =
            |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
        assert_eq!(
            text("SELECT group_concat(workflow_id || id || kind, ' ') FROM event"),
            "14y 23x 27z"
        );
        assert_eq!(
            text("SELECT group_concat(id || state, ' ') FROM attempt"),
            "1completed 2queued"
        );
        assert_eq!(text("PRAGMA integrity_check"), "ok");
        for refused in [
            "UPDATE attempt SET state = 'no such state' WHERE id = 2",
            "UPDATE attempt SET state = 'completed' WHERE id = 2",
            "UPDATE attempt SET ended_ms = 5 WHERE id = 2",
            "UPDATE attempt SET state = 'queued', ended_ms = NULL WHERE id = 1",
            "UPDATE attempt SET pid = 5 WHERE id = 1",
            "INSERT INTO event (workflow_id, id, timestamp_ms, kind, data) VALUES (3, 11, 1, 'x', '{}')",
        ] {
            assert!(connection.execute(refused, []).is_err(), "{refused}");
        }
        connection
            .execute("UPDATE attempt SET state = 'completed', ended_ms = 5, ended_by = 'runner' WHERE id = 2", [])
            .unwrap();
        connection.execute("DELETE FROM workflow WHERE id = 2", []).unwrap();
        assert_eq!(
            text("SELECT group_concat(id, ' ') FROM event"),
            "4",
            "events go with their workflow"
        );
    }
}
