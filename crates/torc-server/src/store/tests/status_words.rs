//! SQL compares statuses with literals, because only those let SQLite use partial indexes. Here each of
//! them is tied to the words of the model: what is renamed, or means something else, fails.

use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::Path;
use torc_model::recovery::ClassificationState;
use torc_model::status::{
    ActionState, AllocationEnd, AllocationStatus, AttemptState, Cause, DeliveryState, EndDetail,
    EndedBy, JobStatus, Origin, Outcome, ReservationStatus,
};

/// A condition, and whether it holds for a word.
type Meaning<T> = (&'static str, fn(T) -> bool);

/// What SQL asks of `job.status`, and which statuses that means.
const ABOUT_JOBS: [Meaning<JobStatus>; 16] = [
    ("< 5", |s| !s.is_final() && s != JobStatus::PendingFailed),
    ("<> 5", |s| s != JobStatus::Completed),
    ("<> 9", |s| s != JobStatus::Disabled),
    ("= 1", |s| s == JobStatus::Blocked),
    ("= 2", |s| s == JobStatus::Ready),
    ("= 6", |s| s == JobStatus::Failed),
    ("= 7", |s| s == JobStatus::Canceled),
    ("= 10", |s| s == JobStatus::PendingFailed),
    (">= 6", |s| s.is_bad_end() || matches!(s, JobStatus::Disabled | JobStatus::PendingFailed)),
    ("IN (0, 1, 2, 3, 4, 10)", |s| !s.is_final()),
    ("IN (2, 3, 4, 6)", |s| s.is_held() || matches!(s, JobStatus::Ready | JobStatus::Failed)),
    ("IN (3, 4)", JobStatus::is_held),
    ("IN (3, 4, 6, 8, 10)", |s| s.is_held() || is_failure(s)),
    ("IN (6, 8, 10)", is_failure),
    ("NOT IN (2, 3, 4)", |s| !s.is_held() && s != JobStatus::Ready),
    ("NOT IN (5, 9)", |s| !s.satisfies()),
];

fn is_failure(status: JobStatus) -> bool {
    let fails = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
    fails.contains(&status)
}

/// Lists of states of attempts, and which they mean.
const ABOUT_ATTEMPTS: [Meaning<AttemptState>; 4] = [
    ("('queued', 'claimed', 'running')", AttemptState::is_live),
    ("('claimed', 'running')", |s| s.is_live() && s != AttemptState::Queued),
    ("('completed', 'failed', 'canceled', 'terminated')", |s| !s.is_live()),
    ("('completed', 'failed', 'terminated')", |s| !s.is_live() && s != AttemptState::Canceled),
];

/// Lists of statuses of allocations.
const ABOUT_ALLOCATIONS: [&str; 3] = [
    "('planned', 'pending')",
    "('planned', 'submitting', 'pending')",
    "('submitting', 'pending', 'active')",
];

fn is_state(word: &str) -> bool {
    AttemptState::parse(word).is_some()
        || ActionState::parse(word).is_some()
        || ClassificationState::parse(word).is_some()
        || DeliveryState::parse(word).is_some()
}

fn is_status(word: &str) -> bool {
    AllocationStatus::parse(word).is_some() || ReservationStatus::parse(word).is_some()
}

/// What follows `column` and an operator in the sources, as `IN (3, 4)` or `= 'held'`.
fn comparisons(source: &str, column: &str) -> Vec<String> {
    const OPERATORS: [&str; 9] =
        ["IS NOT ", "NOT IN ", "IN ", "IS ", "<> ", ">= ", "<= ", "= ", "< "];
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(column) {
        let is_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = &rest[at + column.len()..];
        let Some(after) = rest.strip_prefix(' ').filter(|_| is_word) else { continue };
        let Some(operator) = OPERATORS.iter().find(|o| after.starts_with(**o)) else { continue };
        let value = &after[operator.len()..];
        let is_literal = |c: char| c.is_ascii_digit() || c == '\'';
        let length = match value.chars().next() {
            Some('(') if value[1..].starts_with(is_literal) => value.find(')').map(|end| end + 1),
            Some('\'') => value[1..].find('\'').map(|end| end + 2),
            // No status has a number of three digits; those of HTTP have.
            Some(c) if c.is_ascii_digit() => {
                value.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits < 3)
            }
            _ => None,
        };
        let Some(length) = length else { continue };
        found.push(format!("{operator}{}", &value[..length]));
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).expect("a source file");
            found.push(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned());
        }
    }
}

/// The words that the schema's CHECK allows in a column.
fn checked_words(table: &str, column: &str) -> BTreeSet<String> {
    let schema = include_str!("../schema.sql");
    let from = schema.find(&format!("CREATE TABLE {table} (")).expect("the table");
    let columns = &schema[from..];
    let columns = &columns[..columns.find(") STRICT").expect("its end")];
    let at = columns.find(&format!("\n    {column} TEXT")).expect("the column");
    let definition = &columns[at + 1..];
    let next = definition.match_indices("\n    ").map(|(at, _)| at);
    let mut next = next.filter(|at| !definition[at + 5..].starts_with(' '));
    let definition = next.next().map_or(definition, |end| &definition[..end]);
    definition.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn columns_with_words_allow_those_of_the_model() {
    fn all<T: Copy>(words: &[T], text: fn(T) -> &'static str) -> BTreeSet<String> {
        words.iter().map(|word| text(*word).to_owned()).collect()
    }
    let causes = all(Cause::ALL, Cause::as_str);
    let rows = [
        ("attempt", "state", all(AttemptState::ALL, AttemptState::as_str)),
        ("attempt", "origin", all(Origin::ALL, Origin::as_str)),
        ("attempt", "ended_by", all(EndedBy::ALL, EndedBy::as_str)),
        ("attempt", "cause", causes.clone()),
        ("attempt", "detail", all(EndDetail::ALL, EndDetail::as_str)),
        ("attempt", "outcome", all(Outcome::ALL, Outcome::as_str)),
        ("scheduled_compute_node", "status", all(AllocationStatus::ALL, AllocationStatus::as_str)),
        ("scheduled_compute_node", "cause", causes),
        ("scheduled_compute_node", "ended_as", all(AllocationEnd::ALL, AllocationEnd::as_str)),
    ];
    for (table, column, words) in rows {
        assert_eq!(checked_words(table, column), words, "{table}.{column}");
    }
}

#[test]
fn statuses_in_sql_are_those_of_the_model() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = Vec::new();
    sources(&src.join("store"), &mut texts);
    sources(&src.join("boot"), &mut texts);
    let mut used = BTreeSet::new();
    for comparison in texts.iter().flat_map(|text| comparisons(text, "status")) {
        let words: Vec<&str> = comparison.split('\'').skip(1).step_by(2).collect();
        if words.is_empty() {
            let is_known = ABOUT_JOBS.iter().any(|(known, _)| *known == comparison);
            assert!(is_known, "say what `status {comparison}` means");
            used.insert(comparison);
        } else {
            assert!(words.iter().all(|word| is_status(word)), "status {comparison}");
            let list = comparison.split_once('(').map(|(_, list)| format!("({list}"));
            let is_known = list.is_none_or(|list| ABOUT_ALLOCATIONS.contains(&list.as_str()));
            assert!(is_known, "say what `status {comparison}` means");
        }
    }
    for comparison in texts.iter().flat_map(|text| comparisons(text, "state")) {
        let mut words = comparison.split('\'').skip(1).step_by(2);
        assert!(words.all(is_state), "state {comparison}");
        let list = comparison.split_once('(').map(|(_, list)| format!("({list}"));
        let is_known = list.is_none_or(|list| ABOUT_ATTEMPTS.iter().any(|(l, _)| *l == list));
        assert!(is_known, "say what `state {comparison}` means");
    }
    let unused: Vec<_> = ABOUT_JOBS.iter().filter(|(known, _)| !used.contains(*known)).collect();
    assert!(unused.is_empty(), "no longer asked: {unused:?}");
}

#[test]
fn what_sql_asks_of_statuses_is_what_the_words_mean() {
    let db = Connection::open_in_memory().expect("a database");
    let holds = |sql: String| db.query_row(&sql, [], |row| row.get::<_, bool>(0)).expect("a bool");
    for (condition, means) in ABOUT_JOBS {
        for status in JobStatus::ALL {
            let told = holds(format!("SELECT {} {condition}", status.code()));
            assert_eq!(told, means(*status), "{status} {condition}");
        }
    }
    for (list, means) in ABOUT_ATTEMPTS {
        for state in AttemptState::ALL {
            let told = holds(format!("SELECT '{state}' IN {list}"));
            assert_eq!(told, means(*state), "{state} IN {list}");
        }
    }
}
