//! Attempts over time, as columns of little-endian numbers: a hundred thousand of them are 2 MB.
//!
//! ```text
//! "TTL1"  u32 n  i64 base_ms  u32 flags (bit 0: more follow)  u32 length of the names' JSON
//! u32 job[n]  u32 start[n]  u32 length[n]  u32 wait[n]  u32 meta[n]   JSON {"runners": [...], ...}
//! ```
//!
//! Times are ms since `base_ms`; a length of `u32::MAX` is an attempt that runs. `meta` holds the
//! index of the runner (16 bits), the family (12 bits) and the state's place in `AttemptState::ALL`
//! (4 bits).

use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
use foldhash::fast::RandomState;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::HashMap;
use torc_model::api::Capacity;
use torc_model::ids::WorkflowId;
use torc_model::status::AttemptState;

/// A map of millions of ids.
pub type Map<V> = HashMap<i64, V, RandomState>;

/// Attempts in one answer at most.
pub const MAX_ATTEMPTS: i64 = 300_000;

impl Reader {
    /// Attempts that have started, in the order of their ids, after the attempt `after`.
    pub async fn timeline(
        &self,
        id: WorkflowId,
        run_id: Option<i64>,
        after: i64,
    ) -> Result<Vec<u8>, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT a.id, a.job_id, a.created_ms, a.started_ms, a.ended_ms, a.compute_node_id, j.family, a.state \
                       FROM attempt a JOIN job j ON j.id = a.job_id \
                       WHERE a.workflow_id = ?1 AND a.started_ms IS NOT NULL AND (?2 IS NULL OR a.run_id = ?2) \
                       AND a.id > ?3 ORDER BY a.id LIMIT ?4";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query((id.0, run_id, after, MAX_ATTEMPTS + 1))?;
            let mut columns = Columns::default();
            let mut runners = Vec::new();
            let mut index = Map::default();
            while let Some(row) = rows.next()? {
                if columns.job.len() as i64 == MAX_ATTEMPTS {
                    columns.more = true;
                    break;
                }
                let runner = row.get::<_, Option<i64>>(5)?.unwrap_or(0);
                let runner = place(&mut index, &mut runners, runner);
                let state: String = row.get(7)?;
                let state = AttemptState::ALL.iter().position(|s| s.as_str() == state);
                columns.push(&Bar {
                    id: row.get(0)?,
                    job: row.get(1)?,
                    created: row.get(2)?,
                    started: row.get(3)?,
                    ended: row.get(4)?,
                    meta: meta(runner, row.get(6)?, state.unwrap_or(0)),
                });
            }
            let cursor = columns.last_id;
            let (named, cpus) = (self::runners(connection, runners)?, family_cpus(connection, id)?);
            Ok(columns.into_bytes(&json!({"runners": named, "family_cpus": cpus, "after": cursor})))
        })
        .await
    }
}

/// The place of a runner among those that were seen before.
pub fn place(index: &mut Map<u32>, named: &mut Vec<i64>, runner: i64) -> u32 {
    let next = index.len() as u32;
    *index.entry(runner).or_insert_with(|| {
        named.push(runner);
        next
    })
}

/// Runner, family and state in one number.
pub fn meta(runner: u32, family: u32, state: usize) -> u32 {
    (runner.min(0xffff) << 16) | (family.min(0xfff) << 4) | state as u32
}

/// What is told of runners.
pub fn runners(connection: &Connection, ids: Vec<i64>) -> Result<Vec<Value>, ReadError> {
    let sql = "SELECT hostname, kind, ended_ms, stop_by_ms, started_ms, capacity FROM compute_node WHERE id = ?";
    let mut host = connection.prepare_cached(sql)?;
    let named = ids.into_iter().map(|runner| {
        let facts = host.query_row([runner], |row| {
            let capacity: Capacity = super::page::json(row, "capacity")?.unwrap_or_default();
            Ok(json!({"cpus": capacity.num_cpus * capacity.equal_nodes(),
                      "id": runner, "host": row.get::<_, String>(0)?, "kind": row.get::<_, String>(1)?,
                      "ended_ms": row.get::<_, Option<i64>>(2)?, "stop_by_ms": row.get::<_, Option<i64>>(3)?,
                      "started_ms": row.get::<_, i64>(4)?}))
        });
        facts.unwrap_or_else(|_| json!({"id": runner, "host": "?", "kind": "?"}))
    });
    Ok(named.collect())
}

/// CPUs that a job of each family asks for.
pub fn family_cpus(connection: &Connection, id: WorkflowId) -> Result<Vec<(i64, i64)>, ReadError> {
    let sql = "SELECT j.family, max(coalesce(j.num_cpus, r.num_cpus, 1)) FROM job j \
               LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id \
               WHERE j.workflow_id = ? GROUP BY 1 ORDER BY 1";
    Ok(connection.prepare_cached(sql)?.all([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// An attempt that has started.
#[derive(Clone, Debug)]
pub struct Bar {
    pub id: i64,
    pub job: i64,
    pub created: i64,
    pub started: i64,
    pub ended: Option<i64>,
    pub meta: u32,
}

/// What is sent.
#[derive(Default)]
pub struct Columns {
    job: Vec<u32>,
    started: Vec<i64>,
    length: Vec<u32>,
    wait: Vec<u32>,
    meta: Vec<u32>,
    /// The first start.
    pub base: Option<i64>,
    last_id: i64,
    more: bool,
}

impl Columns {
    /// How many bars there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.job.len()
    }

    /// Adds a bar that may stand for several attempts.
    pub fn push_drawn(&mut self, bar: &Bar, several: bool) {
        self.push(bar);
        if let Some(wait) = self.wait.last_mut().filter(|_| several) {
            *wait = super::picture::SEVERAL;
        }
    }

    /// Adds an attempt.
    pub fn push(&mut self, bar: &Bar) {
        let short = |ms: i64| u32::try_from(ms.max(0)).unwrap_or(u32::MAX - 1);
        self.job.push(u32::try_from(bar.job).unwrap_or(u32::MAX));
        self.started.push(bar.started);
        self.length.push(bar.ended.map_or(u32::MAX, |ended| short(ended - bar.started)));
        self.wait.push(short(bar.started - bar.created));
        self.meta.push(bar.meta);
        self.base = Some(self.base.map_or(bar.started, |base| base.min(bar.started)));
        self.last_id = bar.id;
    }

    /// As they are sent, with names behind them.
    pub fn into_bytes(self, names: &Value) -> Vec<u8> {
        let names = names.to_string();
        let base = self.base.unwrap_or(0);
        let mut bytes = Vec::with_capacity(24 + self.job.len() * 20 + names.len());
        bytes.extend_from_slice(b"TTL1");
        bytes.extend_from_slice(&(self.job.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&base.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.more).to_le_bytes());
        bytes.extend_from_slice(&(names.len() as u32).to_le_bytes());
        let starts = self.started.iter().map(|at| u32::try_from(at - base).unwrap_or(u32::MAX));
        let starts: Vec<u32> = starts.collect();
        for column in [&self.job, &starts, &self.length, &self.wait, &self.meta] {
            column.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        bytes.extend_from_slice(names.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_the_head_of_this_file_says() {
        let mut columns = Columns::default();
        let bar = |id, started, ended| Bar { id, job: 7, created: 900, started, ended, meta: 5 };
        columns.push(&bar(1, 2000, Some(2500)));
        columns.push(&bar(2, 1000, None));
        let bytes = columns.into_bytes(&json!({"runners": []}));
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(&bytes[..4], b"TTL1");
        assert_eq!((number(4), number(16)), (2, 0));
        assert_eq!(i64::from_le_bytes(bytes[8..16].try_into().unwrap()), 1000);
        let column = |c: usize| (number(24 + c * 8), number(28 + c * 8));
        assert_eq!(
            [column(0), column(1), column(2), column(3), column(4)],
            [(7, 7), (1000, 0), (500, u32::MAX), (1100, 100), (5, 5)]
        );
        assert_eq!(&bytes[64..], br#"{"runners":[]}"#);
        assert_eq!(number(20) as usize, bytes.len() - 64);
    }
}
