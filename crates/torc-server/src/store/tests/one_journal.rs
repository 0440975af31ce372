//! Statements that write what the engine decides on stand in the journal, and no SQL stands anywhere but there and
//! in the read models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tables whose rows the engine's state is read from, or that record what it decided.
const TABLES: [&str; 26] = [
    "addition",
    "adjustment",
    "attempt",
    "classification",
    "compute_node",
    "event",
    "failure_handler",
    "family",
    "file",
    "job",
    "job_depends_on",
    "job_item",
    "named_limit",
    "pool_runner",
    "recovery_round",
    "refunded_attempt",
    "remedy",
    "reservation",
    "resource_requirements",
    "revision",
    "scheduled_compute_node",
    "slurm_scheduler",
    "user_data",
    "user_share",
    "workflow",
    "workflow_action",
];

/// Folders with SQL: the writer's statements, the readers' statements, and those of the doctor, who looks at
/// databases that no server has open.
const WITH_SQL: [&str; 3] = ["store/journal/", "store/read/", "boot/doctor/"];

/// Files with SQL that stand elsewhere: they make a database, and look whether a file is one.
const OF_DATABASES: [&str; 3] = ["boot/backup.rs", "boot/database.rs", "boot/migrate.rs"];

/// `INSERT OR IGNORE INTO job (...)` writes `job`.
fn written(line: &str) -> Option<&str> {
    let after = |word: &str| line.split_once(word).map(|(_, rest)| rest);
    let update = after("UPDATE ").filter(|rest| rest.contains(" SET "));
    let rest = after("INSERT INTO ")
        .or_else(|| after("INSERT OR IGNORE INTO "))
        .or_else(|| after("INSERT OR REPLACE INTO "))
        .or_else(|| after("DELETE FROM "))
        .or(update)?;
    rest.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next()
}

/// A line that begins a statement or hands one to SQLite.
fn holds_sql(line: &str) -> bool {
    const BEGINS: [&str; 6] =
        ["SELECT ", "INSERT INTO ", "INSERT OR ", "UPDATE ", "DELETE FROM ", "WITH "];
    let code = line.trim_start();
    let text = code.split_once('"').map_or("", |(_, text)| text.trim_start());
    let begins = |word: &&str| {
        let word = *word;
        code.starts_with(word) || text.starts_with(word) || code.contains(&format!("\"{word}"))
    };
    let has = |part: &&str| code.contains(*part);
    BEGINS.iter().any(begins)
        || [".prepare(", ".prepare_cached(", " IS NOT NULL", " IS NULL", " AND n."].iter().any(has)
}

/// Hands out the path below `src` and the code of each file, without tests and comments.
fn each_source(src: &Path, folder: &Path, each: &mut impl FnMut(&str, &[&str])) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "tests" {
                each_source(src, &path, each);
            }
            continue;
        }
        if !name.ends_with(".rs") || name == "tests.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines: Vec<&str> =
            code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let below = path.strip_prefix(src).expect("below the sources");
        each(below.to_str().expect("a plain path"), &lines);
    }
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn only_the_journal_writes_what_the_engine_decides_on() {
    let mut found = Vec::new();
    each_source(&src(), &src(), &mut |path, lines| {
        // The doctor repairs databases that no server has.
        if path.starts_with("store/journal/") || path.starts_with("boot/doctor/") {
            return;
        }
        let writes = |line: &&&str| written(line).is_some_and(|table| TABLES.contains(&table));
        found.extend(lines.iter().filter(writes).map(|line| format!("{path}: {}", line.trim())));
    });
    assert!(found.is_empty(), "write it in store/journal:\n{}", found.join("\n"));
    assert_eq!(written("\"INSERT OR IGNORE INTO job (id)\""), Some("job"));
    assert_eq!(written("tx.db.prepare(\"UPDATE workflow SET run_id = 1\")"), Some("workflow"));
    assert_eq!(written("ON CONFLICT (name) DO UPDATE SET max = ?2"), None);
}

#[test]
fn sql_stands_in_the_journal_and_the_read_models_only() {
    let mut with_sql: BTreeMap<String, String> = BTreeMap::new();
    each_source(&src(), &src(), &mut |path, lines| {
        let is_allowed = WITH_SQL.iter().any(|folder| path.starts_with(folder));
        if let (false, Some(line)) = (is_allowed, lines.iter().find(|line| holds_sql(line))) {
            with_sql.insert(path.to_owned(), line.trim().to_owned());
        }
    });
    let is_new = |(path, _): &(&String, &String)| !OF_DATABASES.contains(&path.as_str());
    let new: Vec<_> = with_sql.iter().filter(is_new).collect();
    assert!(new.is_empty(), "put it into store/journal or store/read: {new:#?}");
    let moved: Vec<_> = OF_DATABASES.iter().filter(|path| !with_sql.contains_key(**path)).collect();
    assert!(moved.is_empty(), "they have no SQL any more, take them off the list: {moved:?}");
    for line in [
        "db.prepare(sql)",
        "\"n.ended_as = 'left' AND n.cause\"",
        "let sql = \"SELECT 1\";",
        "    INSERT INTO job",
        "f(\" WITH a AS\")",
    ] {
        assert!(holds_sql(line), "{line}");
    }
    for line in ["told(\"select a job\")", "\"PRAGMA page_size\"", "With(1)"] {
        assert!(!holds_sql(line), "{line}");
    }
}
