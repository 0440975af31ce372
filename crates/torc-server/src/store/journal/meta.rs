//! What the database knows of itself: its id, and how far ids have gone.

use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// A value by its key.
pub fn get(db: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?.find([key], |row| row.get(0))
}

/// Sets a value.
pub fn set(db: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
    )?
    .execute([key, value])?;
    Ok(())
}

/// A value that is a number; None where there is none.
pub fn number(db: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    Ok(get(db, key)?.and_then(|text| text.parse().ok()))
}

/// Two hexadecimal digits for each of so many random bytes.
pub fn random_text(db: &Connection, bytes: i64) -> rusqlite::Result<String> {
    db.query_row("SELECT lower(hex(randomblob(?1)))", [bytes], |row| row.get(0))
}

/// The last ids that the database has counted, by table.
pub fn sequences(db: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    db.prepare_cached("SELECT name, seq FROM sqlite_sequence")?
        .all([], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The database counts the ids of a table on from at least this one. The sequence has no key of its own,
/// and a row only after the first id.
pub fn raise_sequence(db: &Connection, table: &str, least: i64) -> rusqlite::Result<()> {
    let raised = db.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1",
        params![table, least],
    )?;
    if raised == 0 {
        db.execute(
            "INSERT INTO sqlite_sequence (name, seq)
             SELECT name, ?2 FROM sqlite_master WHERE type = 'table' AND name = ?1",
            params![table, least],
        )?;
    }
    Ok(())
}

/// Runs a statement without values that moves no row, such as one about a savepoint.
pub fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}
