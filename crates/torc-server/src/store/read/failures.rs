//! Failures of a workflow by cause, with the evidence of one of each.

use super::page;
use super::{ReadError, Reader};
use crate::store::cards::{self, Decided};
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, HashMap, HashSet};
use torc_model::api::{
    FailureCounts, FailureDiagnosis, FailureGroup, FailureRemedy, FailureSample, Raised,
};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Execution, Settings};
use torc_model::recovery::{Caps, Policy};
use torc_model::status::{Adjustable, Cause, JobStatus, StatusReason};

/// Groups that are given; the largest.
const MAX_GROUPS: usize = 50;
/// Of the end of standard error, characters that are given.
const TAIL: usize = 2000;

/// What failures of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    family: i64,
    cause: Option<Cause>,
    return_code: Option<i64>,
    signal: Option<i64>,
}

#[derive(Default)]
struct Group {
    jobs: Vec<i64>,
    waiting: i64,
    retries: i64,
    nodes: HashMap<String, i64>,
    first_ms: Option<i64>,
    last_ms: Option<i64>,
    /// Row of the attempt that ended last.
    sample: i64,
    sample_ms: i64,
}

impl Reader {
    /// The groups, those with the most jobs lost first. `caps` is what a remedy may ask for.
    pub async fn failure_groups(&self, id: WorkflowId) -> Result<Vec<FailureGroup>, ReadError> {
        self.read(move |connection| groups(connection, id)).await
    }
}

fn groups(connection: &Connection, id: WorkflowId) -> Result<Vec<FailureGroup>, ReadError> {
    let sql = "SELECT j.id, j.status, j.family, a.id, a.cause, a.return_code, a.signal, a.ended_ms, n.hostname, j.attempt_id \
               FROM job j LEFT JOIN attempt a ON a.id = (SELECT b.id FROM attempt b WHERE b.job_id = j.id \
               AND b.ended_ms IS NOT NULL ORDER BY b.run_id DESC, b.attempt_id DESC LIMIT 1) \
               LEFT JOIN compute_node n ON n.id = a.compute_node_id \
               WHERE j.workflow_id = ?1 AND j.status >= 6 AND j.status <> 9 AND j.status IN (6, 8, 10) \
               AND j.status_reason IS NOT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((id.0, StatusReason::TooManyItemsFailed.as_str()))?;
    let mut groups = BTreeMap::<Key, Group>::new();
    while let Some(row) = rows.next()? {
        let key = Key {
            family: row.get(2)?,
            cause: row.get::<_, Option<String>>(4)?.as_deref().and_then(Cause::parse),
            return_code: row.get(5)?,
            signal: row.get(6)?,
        };
        let group = groups.entry(key).or_default();
        let status: i64 = row.get(1)?;
        let ended: Option<i64> = row.get(7)?;
        group.jobs.push(row.get(0)?);
        group.retries += (row.get::<_, i64>(9)? - 1).max(0);
        group.waiting += i64::from(status == JobStatus::PendingFailed.code());
        if let Some(host) = row.get::<_, Option<String>>(8)? {
            *group.nodes.entry(host).or_default() += 1;
        }
        group.first_ms = match (group.first_ms, ended) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        group.last_ms = group.last_ms.max(ended);
        if let Some(attempt) = row.get::<_, Option<i64>>(3)?
            && (group.sample == 0 || ended.unwrap_or(0) >= group.sample_ms)
        {
            (group.sample, group.sample_ms) = (attempt, ended.unwrap_or(0));
        }
    }
    let blocked = Blocked::load(connection, id)?;
    let adjusted = adjustments(connection, id)?;
    let mut found = Vec::with_capacity(groups.len());
    for (key, group) in groups.into_iter().filter(|(_, group)| group.sample != 0) {
        let behind = blocked.behind(&group.jobs);
        found.push((behind + group.jobs.len() as i64, behind, key, group));
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.2.cmp(&b.2)));
    found.truncate(MAX_GROUPS);
    found
        .into_iter()
        .map(|(_, behind, key, group)| {
            let raised = raised(&adjusted, &group.jobs);
            view(connection, id, behind, &key, group, raised)
        })
        .collect()
}

/// What was changed for a job.
type Adjusted = (Adjustable, Option<i64>, i64);

/// What was changed for the jobs of a workflow in its current run.
fn adjustments(
    connection: &Connection,
    id: WorkflowId,
) -> Result<HashMap<i64, Vec<Adjusted>>, ReadError> {
    let sql = "SELECT job_id, field, from_value, to_value FROM adjustment WHERE workflow_id = ?1 \
               AND run_id = (SELECT run_id FROM workflow WHERE id = ?1) ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    let mut found: HashMap<i64, Vec<Adjusted>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let change = (page::word(row, "field", Adjustable::parse)?, row.get(2)?, row.get(3)?);
        found.entry(row.get(0)?).or_default().push(change);
    }
    Ok(found)
}

/// The changes of some jobs, by what was raised.
fn raised(adjusted: &HashMap<i64, Vec<Adjusted>>, jobs: &[i64]) -> Vec<Raised> {
    let mut all: Vec<Raised> = Vec::new();
    for changes in jobs.iter().filter_map(|job| adjusted.get(job)) {
        let mut seen = Vec::new();
        for (field, from, to) in changes {
            let at = all.iter().position(|known| known.field == *field).unwrap_or_else(|| {
                all.push(Raised { field: *field, from: *from, to: *to, jobs: 0 });
                all.len() - 1
            });
            let known = &mut all[at];
            known.from = known.from.into_iter().chain(*from).min();
            known.to = known.to.max(*to);
            if !seen.contains(field) {
                seen.push(*field);
                known.jobs += 1;
            }
        }
    }
    all
}

/// Canceled jobs and what they wait for.
struct Blocked {
    children: HashMap<i64, Vec<i64>>,
}

impl Blocked {
    fn load(connection: &Connection, id: WorkflowId) -> rusqlite::Result<Self> {
        let sql = "SELECT d.depends_on_job_id, d.job_id FROM job j JOIN job_depends_on d \
                   ON d.workflow_id = j.workflow_id AND d.job_id = j.id \
                   WHERE j.workflow_id = ? AND j.status >= 6 AND j.status <> 9 AND j.status = 7";
        let mut children: HashMap<i64, Vec<i64>> = HashMap::new();
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            children.entry(row.get(0)?).or_default().push(row.get(1)?);
        }
        Ok(Self { children })
    }

    /// Canceled jobs behind these, at any depth.
    fn behind(&self, jobs: &[i64]) -> i64 {
        let mut seen = HashSet::new();
        let mut open: Vec<i64> = jobs.to_vec();
        while let Some(job) = open.pop() {
            for child in self.children.get(&job).into_iter().flatten() {
                if seen.insert(*child) {
                    open.push(*child);
                }
            }
        }
        seen.len() as i64
    }
}

fn view(
    connection: &Connection,
    id: WorkflowId,
    blocked: i64,
    key: &Key,
    group: Group,
    raised: Vec<Raised>,
) -> Result<FailureGroup, ReadError> {
    let sql = "SELECT a.*, j.name AS job_name, \
               (SELECT f.name FROM family f WHERE f.workflow_id = j.workflow_id AND f.number = j.family) AS family_name \
               FROM attempt a JOIN job j ON j.id = a.job_id WHERE a.id = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let execution = execution(connection, id)?;
    let failure = cards::failure(connection, group.sample, &execution)?;
    let decided = match &failure {
        Some(failure) => {
            let caps = caps(connection, id)?;
            failure.decide(connection, &caps, &Policy::default(), crate::clock::now_ms())?
        }
        None => None,
    };
    // With a cause there is always a diagnosis.
    let Some(decided) = decided else {
        return Err(rusqlite::Error::QueryReturnedNoRows.into());
    };
    let (family, sample) = statement.query_row([group.sample], sample)?;
    let mut nodes: Vec<(String, i64)> = group.nodes.into_iter().collect();
    nodes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    nodes.truncate(5);
    let Decided { diagnosis, record, card, .. } = decided;
    Ok(FailureGroup {
        filter: filter(&family, key),
        family,
        cause: key.cause,
        return_code: key.return_code,
        signal: key.signal,
        diagnosis: FailureDiagnosis {
            kind: diagnosis.kind,
            confidence: diagnosis.confidence,
            summary: diagnosis.summary,
            proof: diagnosis.proof,
        },
        counts: FailureCounts {
            jobs: group.jobs.len() as i64,
            waiting: group.waiting,
            blocked,
            retries: group.retries,
        },
        sample,
        nodes,
        first_ms: group.first_ms,
        last_ms: group.last_ms,
        remedy: FailureRemedy {
            action: card.action,
            changes: card.changes,
            why: card.why,
            chance: card.chance,
            record,
        },
        raised,
    })
}

/// The largest machine that has worked for this workflow; Slurm allocations say nothing about the
/// largest node of a cluster.
fn caps(connection: &Connection, id: WorkflowId) -> rusqlite::Result<Caps> {
    let sql = "SELECT max(CAST(capacity ->> 'memory_bytes' AS INTEGER) / max(1, coalesce(capacity ->> 'num_nodes', 1))), \
               sum(kind = 'slurm') FROM compute_node WHERE workflow_id = ?";
    connection.prepare_cached(sql)?.query_row([id.0], |row| {
        let memory: Option<i64> = row.get(0)?;
        let slurm: Option<i64> = row.get(1)?;
        let memory = memory.filter(|_| slurm == Some(0)).and_then(|m| u64::try_from(m).ok());
        Ok(Caps { memory_bytes: memory.filter(|m| *m > 0), runtime_seconds: None })
    })
}

fn execution(connection: &Connection, id: WorkflowId) -> rusqlite::Result<Execution> {
    let sql = "SELECT settings FROM workflow WHERE id = ?";
    let settings: Option<Settings> =
        connection.prepare_cached(sql)?.query_row([id.0], |row| page::json(row, "settings"))?;
    Ok(settings.unwrap_or_default().execution)
}

/// The family of a job, and what is shown of its attempt.
fn sample(row: &Row<'_>) -> rusqlite::Result<(String, FailureSample)> {
    let tail: String = row.get::<_, Option<String>>("stderr_tail")?.unwrap_or_default();
    let start = tail.char_indices().rev().nth(TAIL - 1).map_or(0, |(at, _)| at);
    let family = row.get::<_, Option<String>>("family_name")?.unwrap_or_else(|| "jobs".into());
    let sample = FailureSample {
        job: page::id(row, "job_id", JobId)?,
        name: row.get("job_name")?,
        attempt: row.get("attempt_id")?,
        run: row.get("run_id")?,
        tail: tail[start..].to_owned(),
    };
    Ok((family, sample))
}

/// The filter that finds the jobs of a group.
fn filter(family: &str, key: &Key) -> String {
    let mut text = format!("status:failed,terminated,pending_failed family:{}", quoted(family));
    if let Some(cause) = key.cause {
        text += &format!(" cause:{cause}");
    }
    if let Some(code) = key.return_code {
        text += &format!(" exit:{code}");
    }
    text
}

fn quoted(text: &str) -> String {
    match text.contains(char::is_whitespace) {
        true => format!("\"{text}\""),
        false => text.to_owned(),
    }
}
