//! The filter language as SQL: fixed texts with bound values, on the alias `j` of the table `job`.

use super::page::{Filter, containing};
use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::sync::Arc;
use torc_model::filter::{Comparison, FilterTest, Number};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::JobStatus;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The newest attempt that a runner has or had. Attempts that wait in the queue say nothing yet.
pub const NEWEST_ATTEMPT: &str = "(SELECT b.id FROM attempt b WHERE b.job_id = j.id AND b.state <> 'queued' \
                                  ORDER BY b.run_id DESC, b.attempt_id DESC LIMIT 1)";

/// Adds `name_matches(PATTERN, NAME)` to a connection. The compiled expression is kept for as long
/// as a statement runs.
pub fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("name_matches", 2, flags, |context| {
        let regex: Arc<regex::Regex> = context
            .get_or_create_aux(0, |value| Ok::<_, Error>(regex::Regex::new(value.as_str()?)?))?;
        Ok(regex.is_match(context.get_raw(1).as_str().unwrap_or_default()))
    })
}

/// Statuses with an index of their own, word for word as its condition says it.
const INDEXED: [(&[JobStatus], &str); 2] = [
    (&[JobStatus::Pending, JobStatus::Running], "j.status IN (3, 4)"),
    (
        &[JobStatus::Failed, JobStatus::Canceled, JobStatus::Terminated, JobStatus::PendingFailed],
        "j.status >= 6 AND j.status <> 9",
    ),
];

/// Adds that a job is in one of these statuses, by the index that holds all of them if there is one.
pub fn in_statuses(to: Filter, statuses: &[JobStatus]) -> Filter {
    if statuses.len() == JobStatus::ALL.len() {
        return to;
    }
    let indexed = INDEXED.iter().find(|(all, _)| statuses.iter().all(|one| all.contains(one)));
    let to = match indexed {
        Some((_, condition)) => to.always(condition),
        None => to,
    };
    to.one_of("j.status", statuses.iter().map(|status| status.code()))
}

/// Adds the conditions of a filter.
pub fn conditions(to: Filter, filter: &torc_model::filter::Filter) -> Filter {
    other_conditions(in_statuses(to, &filter.statuses()), filter)
}

/// Adds the conditions of a filter other than those on the status.
pub fn other_conditions(mut to: Filter, filter: &torc_model::filter::Filter) -> Filter {
    for term in &filter.terms {
        let Some((condition, value)) = condition(&term.test) else { continue };
        // What is not known of a job does not hold, and so its opposite does.
        let condition = match term.is_negated {
            true => format!("NOT coalesce(({condition}), 0)"),
            false => condition,
        };
        to = to.and(&condition, value);
    }
    to
}

/// None: a status, and all terms with one are a condition of their own.
fn condition(test: &FilterTest) -> Option<(String, Value)> {
    let attempt = |condition: &str| {
        format!(
            "EXISTS (SELECT 1 FROM attempt a LEFT JOIN compute_node n ON n.id = a.compute_node_id \
                 WHERE a.id = {NEWEST_ATTEMPT} AND {condition})"
        )
    };
    const IN: &str = "IN (SELECT value FROM json_each(?))";
    Some(match test {
        FilterTest::Contains(text) => (r"j.name LIKE ? ESCAPE '\'".into(), containing(text).into()),
        FilterTest::Name(names) => (format!("j.name {IN}"), json(names)),
        FilterTest::Matches(pattern) => ("name_matches(?, j.name)".into(), pattern.clone().into()),
        FilterTest::Id(ids) => (format!("j.id {IN}"), json(ids)),
        FilterTest::Status(_) => return None,
        FilterTest::Family(names) => {
            let found = "EXISTS (SELECT 1 FROM family f WHERE f.workflow_id = j.workflow_id \
                         AND f.number = j.family AND f.name";
            (format!("{found} {IN})"), json(names))
        }
        FilterTest::Cause(causes) => {
            let words: Vec<&str> = causes.iter().map(|cause| cause.as_str()).collect();
            (attempt(&format!("a.cause {IN}")), json(&words))
        }
        FilterTest::Node(names) => (attempt(&format!("n.hostname {IN}")), json(names)),
        FilterTest::Held(is_held) => ("j.held = ?".into(), i64::from(*is_held).into()),
        FilterTest::Number(number, comparison, value) => {
            (compared(*number, *comparison, attempt), Value::Real(*value))
        }
    })
}

fn compared(number: Number, comparison: Comparison, attempt: impl Fn(&str) -> String) -> String {
    let sign = comparison.sign();
    let seconds = "coalesce(a.exec_seconds, unixepoch('subsec') - a.started_ms / 1000.0)";
    match number {
        Number::Attempt => format!("j.attempt_id {sign} ?"),
        Number::Priority => format!("j.priority {sign} ?"),
        Number::Exit => attempt(&format!("a.return_code {sign} ?")),
        Number::Seconds => attempt(&format!("{seconds} {sign} ?")),
        Number::Memory => attempt(&format!("a.peak_memory_bytes {sign} ?")),
        Number::MemoryPercent => {
            attempt(&format!("100.0 * a.peak_memory_bytes / a.memory_bytes {sign} ?"))
        }
    }
}

/// Any number of values as one value of one SQL text.
fn json<T: serde::Serialize>(values: &[T]) -> Value {
    // Texts and numbers always become JSON.
    serde_json::to_string(values).unwrap_or_else(|_| "[]".into()).into()
}

impl Reader {
    /// The jobs of a workflow that a filter finds, in the order of their ids.
    pub async fn matching_jobs(
        &self,
        id: WorkflowId,
        filter: torc_model::filter::Filter,
    ) -> Result<Vec<JobId>, ReadError> {
        self.read(move |connection| {
            let all = Filter::default().with("j.workflow_id = ?", Some(id.0));
            let (sql, values) = conditions(all, &filter).into_parts();
            let sql = format!("SELECT j.id FROM job j{sql} ORDER BY j.id");
            Ok(connection
                .prepare_cached(&sql)?
                .all(params_from_iter(values), |row| row.get(0).map(JobId))?)
        })
        .await
    }

    /// Jobs of each family per status, of those that a filter finds.
    pub async fn count_matching(
        &self,
        id: WorkflowId,
        filter: torc_model::filter::Filter,
        families: usize,
    ) -> Result<crate::store::FamilyCounts, ReadError> {
        self.read(move |connection| {
            let all = Filter::default().with("j.workflow_id = ?", Some(id.0));
            let (sql, values) = conditions(all, &filter).into_parts();
            let sql = format!("SELECT j.family, j.status, count(*) FROM job j{sql} GROUP BY 1, 2");
            let mut counts = vec![[0u32; 11]; families];
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let (family, status): (u32, u32) = (row.get(0)?, row.get(1)?);
                let cell = counts.get_mut(family as usize);
                if let Some(cell) = cell.and_then(|row| row.get_mut(status as usize)) {
                    *cell = row.get(2)?;
                }
            }
            Ok(counts)
        })
        .await
    }
}
