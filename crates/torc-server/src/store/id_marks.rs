//! No id is given twice, not even after an older copy of the database was put in its place.
//!
//! Logs, processes and batch jobs are named by ids, so an id that comes again would mix up two jobs. A
//! small file beside the token says how far ids may have gone. It is written before ids pass a mark,
//! not for each of them, and names the life of the server that wrote it; the database has the same
//! record. When the two disagree at a start, the database is older than the file, and ids go on
//! behind the marks.
//!
//! The file is not flushed: a machine that dies takes the last marks with it at worst, and that
//! matters only if an older copy is put in place right after.

use super::journal::meta;
use super::writer::State;
use crate::boot::private;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Row of `meta` with the record. A backup has none, so it always counts as older.
pub const KEY: &str = "id_marks";

/// Ids that the writer counts itself, with the key in `meta` that outlives deleted rows.
const COUNTED: [(&str, &str); 3] =
    [("attempt", "next_attempt_id"), ("job", "next_job_id"), ("event", "next_event_id")];

/// How far a new mark lies ahead: many for what there is much of, few for what people read.
fn step(name: &str) -> i64 {
    match name {
        "attempt" | "job" | "event" => 100_000,
        "workflow" => 10,
        _ => 1_000,
    }
}

/// How far ids may have gone.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Record {
    /// The database that it is about.
    database: String,
    /// Random: the life of the server that wrote it.
    life: String,
    /// The highest id that may have been given, by table.
    marks: BTreeMap<String, i64>,
}

/// Keeps the record ahead of the ids.
#[derive(Debug)]
pub struct Marks {
    file: PathBuf,
    record: Record,
    /// This life has written it.
    is_ours: bool,
    /// Where the ids stood at the start: a server that makes none writes nothing.
    start: BTreeMap<String, i64>,
}

impl Marks {
    /// Compares the file with the database and moves the ids on where the database is older. Before
    /// the writer reads where its ids stand.
    pub fn open(db: &Connection, file: PathBuf, database: &str) -> rusqlite::Result<Self> {
        let kept: Option<Record> =
            meta::get(db, KEY)?.and_then(|text| serde_json::from_str(&text).ok());
        let filed = read(&file).filter(|record| record.database == database);
        if let Some(filed) = &filed
            && is_older(kept.as_ref(), filed)
        {
            tracing::warn!("the database is older than its last server: ids go on behind the last");
            move_on(db, filed)?;
        }
        let mut record = kept.or(filed).unwrap_or_default();
        record.database = database.into();
        Ok(Self { file, record, is_ours: false, start: meta::sequences(db)? })
    }

    /// Writes new marks if ids of this transaction passed them, or are the first of this life; the
    /// transaction holds the same record. `looks` at what the database counts as well, of which routine
    /// requests make little.
    pub fn keep(&mut self, db: &Connection, state: &State, looks: bool) -> rusqlite::Result<()> {
        let engine = &state.engine;
        let counted = [engine.next_attempt(), engine.next_job(), state.next_event];
        let counted = counted.map(|next| next - 1);
        let is_passed = COUNTED.iter().zip(counted).any(|((name, _), id)| self.passed(name, id));
        if !is_passed && !looks {
            return Ok(());
        }
        let mut ids = meta::sequences(db)?;
        let is_first = !self.is_ours && ids != self.start;
        ids.extend(COUNTED.iter().zip(counted).map(|((name, _), id)| ((*name).to_owned(), id)));
        if !is_first && !ids.iter().any(|(name, id)| self.passed(name, *id)) {
            return Ok(());
        }
        if !self.is_ours {
            self.record.life = meta::random_text(db, 8)?;
            self.is_ours = true;
        }
        for (name, id) in ids {
            let ahead = id + step(&name);
            let mark = self.record.marks.entry(name).or_default();
            if id > *mark {
                *mark = ahead;
            }
        }
        let text = serde_json::to_string(&self.record)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        if let Err(error) = write(&self.file, &text) {
            // Only a restore would need it; work goes on.
            tracing::warn!(%error, file = %self.file.display(), "cannot note how far ids have gone");
        }
        meta::set(db, KEY, &text)
    }

    fn passed(&self, name: &str, id: i64) -> bool {
        id > self.record.marks.get(name).copied().unwrap_or_default()
    }
}

/// The file knows of ids that the database does not. Another life wrote it, or the same one later.
fn is_older(kept: Option<&Record>, filed: &Record) -> bool {
    let Some(kept) = kept.filter(|kept| kept.life == filed.life) else { return true };
    filed.marks.iter().any(|(name, mark)| kept.marks.get(name).is_none_or(|known| known < mark))
}

/// Ids go on behind the marks, each in the place where the next one is found.
fn move_on(db: &Connection, filed: &Record) -> rusqlite::Result<()> {
    for (name, mark) in &filed.marks {
        if let Some((_, key)) = COUNTED.iter().find(|(counted, _)| counted == name) {
            let next = meta::number(db, key)?.unwrap_or_default().max(mark + 1);
            meta::set(db, key, &next.to_string())?;
        } else {
            meta::raise_sequence(db, name, *mark)?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Whole or not at all, without a flush.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let temporary = private::temporary_name(file);
    private::create_new(&temporary)?.write_all(text.as_bytes())?;
    std::fs::rename(&temporary, file)
}
