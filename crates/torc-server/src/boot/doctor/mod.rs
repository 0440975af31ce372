//! Looks a database over: the file itself, references between rows, the schema, every promise about
//! jobs and attempts, and what runners left on this host. Says what is wrong, and repairs what can
//! be repaired.
//!
//! Looking changes nothing and may be done while a server runs. Repairing needs the database for
//! itself, keeps a copy of it first, and ends with the same recovery that every start of a server
//! runs.

mod checks;
mod host;

use super::database::{BUSY_TIMEOUT, Database};
use super::error::StartError;
use super::migrate::{self, MIGRATIONS};
use super::options::Options;
use super::private;
use crate::clock::now_ms;
use crate::store::{Store, Trigger};
use checks::{BY_CLOCK, CHECKS, CLOCK_WAS_SET_BACK, Check, LAST, RepairedBy, STATEMENTS};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Of each kind this many cases are told, and how many more there are.
const TOLD: usize = 20;

/// The triggers that protect attempts.
const GUARDS: [&str; 2] = ["attempt_guard", "attempt_cause_guard"];
const DROP_GUARDS: &str =
    "DROP TRIGGER IF EXISTS attempt_guard; DROP TRIGGER IF EXISTS attempt_cause_guard;";

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    /// What is promised.
    pub promise: String,
    /// What is there instead.
    pub what: String,
    /// A repair puts it right.
    pub can_repair: bool,
}

/// What was found and done.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Examined {
    /// What is wrong; after a repair, what still is.
    pub problems: Vec<Problem>,
    /// How many promises were looked at.
    pub checks: usize,
    /// What the repair did.
    pub repaired: Vec<String>,
    /// The copy that was made before the repair.
    pub copy: Option<PathBuf>,
}

/// Looks a database over. A server may be using it.
pub fn examine(database: &Path) -> Result<Examined, StartError> {
    let failed =
        |source| StartError::Database { doing: "look over", database: database.into(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    // Of rows that another version wrote nothing can be promised.
    migrate::refuse_newer(&connection, database)?;
    look_over(&connection).map_err(failed)
}

fn look_over(db: &Connection) -> rusqlite::Result<Examined> {
    // One moment for all checks of the database: a server may write meanwhile.
    db.execute_batch("BEGIN")?;
    let mut found = Examined::default();
    let mut problem = |promise: &str, what: String, can_repair| {
        found.problems.push(Problem { promise: promise.into(), what, can_repair });
    };
    let damage = integrity(db)?;
    let is_deep = |line: &String| !is_about_an_index(line) && !is_about_a_row(line);
    let is_readable = !damage.iter().any(is_deep);
    damage.iter().for_each(|line| problem("the file is intact", line.clone(), is_readable));
    if !is_readable {
        // What pages say that are not whole proves nothing.
        found.checks = 1;
        return Ok(found);
    }
    for (kind, name, _) in missing_schema(db)? {
        problem("the schema is complete", format!("{kind} `{name}` is missing"), true);
    }
    for reference in broken_references(db)? {
        problem("references hold", reference.to_string(), true);
    }
    let was_set_back = db.query_row(CLOCK_WAS_SET_BACK, [], |row| row.get(0))?;
    let by_clock = if was_set_back { &[] } else { BY_CLOCK };
    for check in CHECKS.iter().chain(by_clock) {
        let cases = cases(db, check)?;
        for what in cases {
            problem(check.promise, what, check.remedy != RepairedBy::None);
        }
    }
    // The processes of this host are compared with what the database says now.
    db.execute_batch("COMMIT")?;
    found.problems.extend(host::look(db)?);
    found.checks = CHECKS.len() + by_clock.len() + 3 + host::CHECKS;
    Ok(found)
}

fn cases(db: &Connection, check: &Check) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(check.sql)?;
    let mut rows = statement.query([])?;
    let (mut told, mut more) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if told.len() < TOLD { told.push(row.get(0)?) } else { more += 1 }
    }
    if more > 0 {
        told.push(format!("and {more} more like this"));
    }
    Ok(told)
}

/// What SQLite itself finds wrong with the file.
fn integrity(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({TOLD})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    match lines.collect::<rusqlite::Result<Vec<_>>>() {
        Ok(lines) => Ok(lines.into_iter().filter(|line| line != "ok").collect()),
        Err(error) if is_damage(&error) => Ok(vec![error.to_string()]),
        Err(error) => Err(error),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let codes = [rusqlite::ErrorCode::DatabaseCorrupt, rusqlite::ErrorCode::NotADatabase];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

/// An index can be made again out of its table.
fn is_about_an_index(line: &str) -> bool {
    line.contains("missing from index")
        || line.contains("wrong # of entries in index")
        || line.contains("in index")
        || line.starts_with("non-unique entry")
}

/// A row that its table would not take today. Other checks say more about it.
fn is_about_a_row(line: &str) -> bool {
    line.starts_with("CHECK constraint failed")
}

/// Kind, name and text of everything that a fresh database has.
fn fresh_schema() -> rusqlite::Result<Vec<(String, String, String)>> {
    let fresh = Connection::open_in_memory()?;
    migrate::create(&fresh)?;
    let mut statement = fresh
        .prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")?;
    let all = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    all.collect()
}

/// Kind, name and text of what a fresh database has and this one has not. An older schema is no
/// damage.
fn missing_schema(db: &Connection) -> rusqlite::Result<Vec<(String, String, String)>> {
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != MIGRATIONS.len() as i64 {
        return Ok(Vec::new());
    }
    let mut missing = Vec::new();
    for object in fresh_schema()? {
        let mut there =
            db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2")?;
        if there.query_row((&object.0, &object.1), |_| Ok(())).optional()?.is_none() {
            missing.push(object);
        }
    }
    Ok(missing)
}

/// A row that refers to one that is not there.
struct DanglingRow {
    table: String,
    row: Option<i64>,
    parent: String,
    column: String,
    is_optional: bool,
}

impl std::fmt::Display for DanglingRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = self.row.map_or_else(|| "a row".to_owned(), |row| format!("row {row}"));
        write!(
            f,
            "{row} of `{}` refers by `{}` to a row of `{}` that is not there",
            self.table, self.column, self.parent
        )
    }
}

fn broken_references(db: &Connection) -> rusqlite::Result<Vec<DanglingRow>> {
    let mut statement = db.prepare("PRAGMA foreign_key_check")?;
    let rows = statement.query_map([], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, Option<i64>>(1)?,
            row.get::<_, String>(2)?,
            row.get::<_, i64>(3)?,
        ))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (table, row, parent, key) = row?;
        let column: String = db.query_row(
            "SELECT \"from\" FROM pragma_foreign_key_list(?1) WHERE id = ?2",
            (&table, key),
            |row| row.get(0),
        )?;
        let is_optional = db.query_row(
            "SELECT NOT \"notnull\" FROM pragma_table_info(?1) WHERE name = ?2",
            (&table, &column),
            |row| row.get(0),
        )?;
        found.push(DanglingRow { table, row, parent, column, is_optional });
    }
    Ok(found)
}

/// Repairs what can be repaired. Needs the database for itself.
pub async fn repair(options: &Options) -> Result<Examined, StartError> {
    let path = options.database_path();
    let before = examine(&path)?;
    if before.problems.is_empty() {
        return Ok(before);
    }
    let Database { writer, lock, .. } = Database::open(options)?;
    let mut repaired = Vec::new();
    let copy = keep_copy(&writer, &path)?;
    mend_rows(&writer, &mut repaired).map_err(|source| StartError::Database {
        doing: "repair",
        database: path.clone(),
        source,
    })?;
    host::repair(&writer, &mut repaired).map_err(|source| StartError::Database {
        doing: "repair",
        database: path.clone(),
        source,
    })?;
    let store_failed = |message: String| StartError::Store { message };
    let store = Store::open(writer).map_err(|e| store_failed(e.to_string()))?;
    let recovered = store.recover(Trigger::Boot).await.map_err(|e| store_failed(e.to_string()))?;
    repaired.extend(recovered.details);
    let schema = fresh_schema().map_err(|e| store_failed(e.to_string()))?;
    let is_guard = |name: &str| GUARDS.contains(&name);
    let guards: Vec<String> = schema
        .into_iter()
        .filter(|(_, name, _)| is_guard(name))
        .map(|(_, _, sql)| sql + ";")
        .collect();
    let last = format!("{DROP_GUARDS} {}; {}", LAST.join(";"), guards.concat());
    store.settle(last).await.map_err(|e| store_failed(e.to_string()))?;
    drop(store);
    drop(lock);
    let after = examine(&path)?;
    Ok(Examined { repaired, copy: Some(copy), ..after })
}

/// A plain copy of the file: whatever is wrong with it, this can be made.
fn keep_copy(db: &Connection, path: &Path) -> Result<PathBuf, StartError> {
    // Into the file with what is still in the log. If that fails, the log stays and the copy is a
    // little older.
    if let Err(error) = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        tracing::warn!(%error, "the log could not be written into the database");
    }
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".before-repair-{}", now_ms()));
    let copy = PathBuf::from(name);
    let io = |source| StartError::Io { doing: "copy the database to", path: copy.clone(), source };
    let mut to = private::create_new(&copy).map_err(io)?;
    let mut from = std::fs::File::open(path).map_err(io)?;
    std::io::copy(&mut from, &mut to).and_then(|_| to.sync_all()).map_err(io)?;
    Ok(copy)
}

fn mend_rows(db: &Connection, repaired: &mut Vec<String>) -> rusqlite::Result<()> {
    let damage = |db| -> rusqlite::Result<Vec<String>> {
        Ok(integrity(db)?.into_iter().filter(|line| !is_about_a_row(line)).collect())
    };
    if !damage(db)?.is_empty() {
        db.execute_batch("REINDEX")?;
        let left = damage(db)?;
        if !left.is_empty() {
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
                Some(format!(
                    "the file is damaged and cannot be repaired: {}; restore a backup",
                    left[0]
                )),
            ));
        }
        repaired.push("all indexes were made again".into());
    }
    for (kind, name, _) in missing_schema(db)? {
        repaired.push(format!("{kind} `{name}` was made again"));
    }
    // Without the triggers that protect attempts, for as long as this takes: they may be what is
    // wrong.
    db.execute_batch(&format!("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE; {DROP_GUARDS}"))?;
    let mended = mend_in_transaction(db, repaired);
    let ended = match mended {
        Ok(()) => db.execute_batch("COMMIT"),
        Err(error) => {
            // The first error is the one to tell.
            let _ = db.execute_batch("ROLLBACK");
            Err(error)
        }
    };
    db.execute_batch("PRAGMA foreign_keys = ON")?;
    ended
}

fn mend_in_transaction(db: &Connection, repaired: &mut Vec<String>) -> rusqlite::Result<()> {
    // A row that goes may leave others behind that referred to it.
    loop {
        let broken = broken_references(db)?;
        if broken.is_empty() {
            break;
        }
        for reference in broken {
            let DanglingRow { table, row: Some(row), column, is_optional, .. } = &reference else {
                // Tables without row numbers: what refers to nothing is taken out whole.
                db.execute_batch(&format!(
                    "DELETE FROM \"{0}\" WHERE \"{1}\" IS NOT NULL AND NOT EXISTS (SELECT 1 FROM \"{2}\" WHERE id = \"{0}\".\"{1}\")",
                    reference.table, reference.column, reference.parent
                ))?;
                continue;
            };
            let sql = if *is_optional {
                format!("UPDATE \"{table}\" SET \"{column}\" = NULL WHERE rowid = ?1")
            } else {
                format!("DELETE FROM \"{table}\" WHERE rowid = ?1")
            };
            db.execute(&sql, [row])?;
            let done =
                if *is_optional { "the reference was taken out" } else { "the row was taken out" };
            repaired.push(format!("{reference}; {done}"));
        }
    }
    for sql in STATEMENTS {
        let before: Vec<&Check> =
            CHECKS.iter().filter(|check| check.remedy == RepairedBy::Statement(sql)).collect();
        let mut what = Vec::new();
        for check in before {
            what.extend(cases(db, check)?);
        }
        if !what.is_empty() {
            db.execute_batch(sql)?;
            repaired.extend(what.into_iter().map(|what| format!("put right: {what}")));
        }
    }
    for (.., sql) in missing_schema(db)? {
        db.execute_batch(&sql)?;
    }
    Ok(())
}
