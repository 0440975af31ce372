//! Brings a database to the newest schema, or refuses it.
//!
//! `PRAGMA user_version` is the number of migrations that were applied. Each one's checksum is kept
//! in `meta`, so that a database of a different build with the same number is noticed. Before an
//! upgrade a copy is made beside the file.

use super::backup;
use super::error::StartError;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use std::path::{Path, PathBuf};

/// Every migration ever released, in order; entries are appended, never changed once released.
pub const MIGRATIONS: &[&str] = &[
    include_str!("../store/schema.sql"),
    include_str!("../store/migration_2.sql"),
    include_str!("../store/migration_3.sql"),
    include_str!("../store/migration_4.sql"),
    include_str!("../store/migration_5.sql"),
    include_str!("../store/migration_6.sql"),
    include_str!("../store/migration_7.sql"),
    include_str!("../store/migration_8.sql"),
    include_str!("../store/migration_9.sql"),
    include_str!("../store/migration_10.sql"),
    include_str!("../store/migration_11.sql"),
];

/// What all of them together make of an empty database. Adding and renaming costs more than all
/// tables, and a new database has nothing to carry over. A test writes this file and sees to it
/// that it is the same.
pub const NEWEST: &str = include_str!("../store/newest.sql");

/// "Torc" in ASCII, in the header of every database of ours.
const APPLICATION_ID: i64 = 0x546f_7263;

/// Applies what is missing.
pub fn migrate(connection: &mut Connection, database: &Path) -> Result<(), StartError> {
    bring_up(connection, database, MIGRATIONS, Some(NEWEST))
}

#[cfg(test)]
fn migrate_with(
    connection: &mut Connection,
    database: &Path,
    migrations: &[&str],
) -> Result<(), StartError> {
    bring_up(connection, database, migrations, None)
}

/// `newest` is what an empty database gets instead of the migrations.
fn bring_up(
    connection: &mut Connection,
    database: &Path,
    migrations: &[&str],
    newest: Option<&str>,
) -> Result<(), StartError> {
    let failed = |doing| {
        move |source| StartError::Database { doing, database: database.to_path_buf(), source }
    };
    let found: i64 = pragma(connection, "user_version").map_err(failed("read"))?;
    let known = migrations.len() as i64;
    check_is_ours(connection, database, found).map_err(failed("read"))??;
    if found > known {
        return Err(StartError::NewerSchema { database: database.into(), found, known });
    }
    for (version, sql) in (1..=found).zip(migrations) {
        if applied_checksum(connection, version).map_err(failed("read"))? != Some(checksum(sql)) {
            return Err(StartError::ForeignSchema { database: database.into(), version });
        }
    }
    if found == known {
        return Ok(());
    }
    if found > 0 {
        let copy = backup_path(database, found);
        backup::copy_over(connection, &copy)?;
        tracing::info!(from = found, to = known, copy = %copy.display(), "upgrading the database");
    }
    apply(connection, migrations, found, newest.filter(|_| found == 0)).map_err(failed("upgrade"))
}

/// All missing migrations in one transaction: the database has the old schema or the new one,
/// nothing between.
fn apply(
    connection: &mut Connection,
    migrations: &[&str],
    found: i64,
    newest: Option<&str>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(newest) = newest {
        transaction.execute_batch(newest)?;
    }
    for (version, sql) in (1..).zip(migrations).skip(found as usize) {
        if newest.is_none() {
            transaction.execute_batch(sql)?;
        }
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

    /// Everything in a database: its schema, and the rows of its tables as text.
    fn content(connection: &Connection) -> Vec<String> {
        let mut lines = Vec::new();
        let mut add = |sql: &str| {
            let mut statement = connection.prepare(sql).unwrap();
            let columns = statement.column_count();
            let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<String> {
                let values = (0..columns).map(|i| row.get_ref(i).map(|value| format!("{value:?}")));
                values.collect::<rusqlite::Result<Vec<_>>>().map(|values| values.join(" "))
            };
            lines.extend(statement.query_map([], row).unwrap().map(Result::unwrap));
        };
        add("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name");
        let mut tables = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
            .unwrap();
        for table in tables.query_map([], |row| row.get::<_, String>(0)).unwrap() {
            let table = table.unwrap();
            add(&format!("SELECT '{table}', * FROM \"{table}\" ORDER BY 2"));
        }
        lines
    }

    /// The schema of a database as a script, and the rows of `meta` that do not tell of migrations.
    fn script(connection: &Connection) -> String {
        let mut text =
            String::from("-- Written by a test from all migrations; never edited by hand.\n\n");
        let sql = "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
                   ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, rowid";
        let meta = "SELECT 'INSERT INTO meta (key, value) VALUES (' || quote(key) || ', ' || quote(value) || ');'
                    FROM meta WHERE key NOT LIKE 'migration_%' ORDER BY key";
        for sql in [sql, meta] {
            let mut statement = connection.prepare(sql).unwrap();
            for line in statement.query_map([], |row| row.get::<_, String>(0)).unwrap() {
                text += &line.unwrap();
                text += "\n\n";
            }
        }
        text.trim_end().to_string() + "\n"
    }

    #[test]
    fn an_empty_database_gets_what_all_migrations_make_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut by_migrations = Connection::open(dir.path().join("old.db")).unwrap();
        migrate_with(&mut by_migrations, Path::new("old.db"), MIGRATIONS).unwrap();
        let newest = script(&by_migrations);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/newest.sql");
            return std::fs::write(path, newest).unwrap();
        }
        let how = "write `newest.sql` anew with `UPDATE_SCHEMA=1 cargo test -p torc-server --lib migrations_make`";
        assert!(newest == NEWEST, "{how}");
        let (mut at_once, path) = open(dir.path());
        migrate(&mut at_once, &path).unwrap();
        assert_eq!(content(&at_once), content(&by_migrations), "{how}");
        assert_eq!(version(&at_once), version(&by_migrations));
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
    fn attempts_and_events_keep_their_rows_and_their_rules() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = open(dir.path());
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        migrate_with(&mut connection, &path, &MIGRATIONS[..10]).unwrap();
        connection
            .execute_batch(
                "INSERT INTO workflow (id, name, user, spec, settings, created_ms) VALUES (1, 'a', 'u', '{}', '{}', 1), (2, 'b', 'u', '{}', '{}', 1);
                 INSERT INTO job (id, workflow_id, name, command, status, position) VALUES (1, 1, 'j', 'true', 5, 0);
                 INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, ended_ms)
                     VALUES (1, 1, 1, 1, 1, 'completed', 'initial', 1, 2), (2, 1, 1, 1, 2, 'queued', 'initial', 1, NULL);
                 INSERT INTO event (id, workflow_id, timestamp_ms, kind, data)
                     VALUES (3, 2, 1, 'x', '{}'), (4, 1, 1, 'y', '{}'), (7, 2, 1, 'z', '{}'), (9, 2, 1, 'gone', '{}');
                 DELETE FROM event WHERE id = 9;",
            )
            .unwrap();
        migrate(&mut connection, &path).unwrap();
        let text =
            |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
        assert_eq!(
            text("SELECT group_concat(workflow_id || id || kind, ' ') FROM event"),
            "14y 23x 27z"
        );
        assert_eq!(text("SELECT value FROM meta WHERE key = 'next_event_id'"), "10");
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
            .execute("UPDATE attempt SET state = 'completed', ended_ms = 5 WHERE id = 2", [])
            .unwrap();
        connection.execute("DELETE FROM workflow WHERE id = 2", []).unwrap();
        assert_eq!(
            text("SELECT group_concat(id, ' ') FROM event"),
            "4",
            "events go with their workflow"
        );
    }
}
