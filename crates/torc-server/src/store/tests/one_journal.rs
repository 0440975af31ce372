//! Statements that write what the engine decides on stand in the journal.

use std::path::Path;

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

fn look(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            // The doctor repairs databases that no server has; tests may write what they like.
            if !["journal", "tests", "doctor"].contains(&name) {
                look(&path, found);
            }
            continue;
        }
        if !name.ends_with(".rs") || name == "tests.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let writes =
            lines.filter(|line| written(line).is_some_and(|table| TABLES.contains(&table)));
        found.extend(writes.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
}

#[test]
fn only_the_journal_writes_what_the_engine_decides_on() {
    let mut found = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.is_empty(), "write it in store/journal:\n{}", found.join("\n"));
    assert_eq!(written("\"INSERT OR IGNORE INTO job (id)\""), Some("job"));
    assert_eq!(written("tx.db.prepare(\"UPDATE workflow SET run_id = 1\")"), Some("workflow"));
    assert_eq!(written("ON CONFLICT (name) DO UPDATE SET max = ?2"), None);
}
