//! Failures that wait for a verdict, like ones together. What is answered is bounded, however many
//! there are.

use super::{AttemptLogs, ReadError, Reader};
use crate::store::cards;
use crate::store::load::parse;
use crate::store::rows::Rows as _;
use crate::store::waiting::{self, Waiting};
use rusqlite::Connection;
use std::collections::HashMap;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::recovery::{
    Caps, Diagnosis, PendingEnd, PendingExample, PendingFailures, PendingGroup, PendingNeeds,
    Policy, Proposal, untrusted,
};
use torc_model::units::{Memory, Runtime};

/// Of names and commands, this much is shown.
const LONGEST_NAME: usize = 200;
const LONGEST_COMMAND: usize = 1000;

/// How much of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingQuery {
    /// Groups at most.
    pub groups: usize,
    /// Jobs in detail per group, at most.
    pub examples: usize,
    /// Only this group.
    pub fingerprint: Option<String>,
}

impl Reader {
    /// What waits for a verdict, and where the output of each example is.
    pub async fn pending_failures(
        &self,
        id: WorkflowId,
        query: PendingQuery,
        now: i64,
    ) -> Result<(PendingFailures, HashMap<JobId, AttemptLogs>), ReadError> {
        self.read(move |db| {
            let workflow: Option<(String, String)> = db
                .prepare_cached("SELECT name, settings FROM workflow WHERE id = ?1")?
                .find([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let (name, settings) =
                workflow.ok_or(ReadError::NotFound { what: "workflow", id: id.0 })?;
            let settings: Settings = parse(&settings)?;
            let all = waiting::waiting(db, id, None)?;
            let pending_failed_count = all.len() as i64;
            let groups = grouped(all);
            let group_count = groups.len() as i64;
            let wanted = groups
                .into_iter()
                .filter(|g| query.fingerprint.as_ref().is_none_or(|f| g[0].fingerprint.id == *f));
            let mut logs = HashMap::new();
            let mut shown = Vec::new();
            for group in wanted.take(query.groups) {
                shown.push(view(db, &group, &settings, query.examples, now, &mut logs)?);
            }
            let view = PendingFailures {
                workflow_id: id,
                workflow_name: untrusted::line(&name, LONGEST_NAME),
                pending_failed_count,
                confidence_threshold: settings.recovery.classification_threshold,
                group_count,
                groups: shown,
            };
            Ok((view, logs))
        })
        .await
    }
}

/// The largest group first; of equal ones the one whose first job comes first.
fn grouped(all: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Vec<Waiting>> = Vec::new();
    for job in all {
        let at = *index.entry(job.fingerprint.id.clone()).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(job);
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

fn view(
    db: &Connection,
    group: &[Waiting],
    settings: &Settings,
    examples: usize,
    now: i64,
    logs: &mut HashMap<JobId, AttemptLogs>,
) -> Result<PendingGroup, ReadError> {
    let mut shown = Vec::new();
    for job in group.iter().take(examples) {
        if let Some(example) = example(db, job, settings, now, logs)? {
            shown.push(example);
        }
    }
    Ok(PendingGroup {
        fingerprint: group[0].fingerprint.clone(),
        count: group.len() as i64,
        job_ids: group.iter().map(|job| job.job).collect(),
        repeated: group.iter().filter(|job| job.is_repeated).count() as i64,
        record: waiting::record(db, &group[0].fingerprint, now)?,
        examples: shown,
    })
}

fn example(
    db: &Connection,
    job: &Waiting,
    settings: &Settings,
    now: i64,
    logs: &mut HashMap<JobId, AttemptLogs>,
) -> Result<Option<PendingExample>, ReadError> {
    let failure = cards::failure(db, job.attempt, &settings.execution)?;
    let Some(failure) = failure else { return Ok(None) };
    let decided = failure.decide(db, &Caps::default(), &Policy::default(), now)?;
    let failed = &failure.ended;
    let sql = "SELECT a.workflow_id, a.stdout_path, a.stderr_path, n.output_dir, n.hostname, \
               (SELECT max(c.id) FROM classification c WHERE c.job_id = a.job_id AND c.state = 'held' \
                AND c.attempt_id = a.attempt_id AND c.run_id = a.run_id) \
               FROM attempt a LEFT JOIN compute_node n ON n.id = a.compute_node_id WHERE a.id = ?1";
    let (place, hostname, held): (AttemptLogs, Option<String>, Option<i64>) =
        db.prepare_cached(sql)?.query_row([job.attempt], |row| {
            let place = AttemptLogs {
                workflow_id: row.get(0).map(WorkflowId)?,
                run_id: job.run,
                attempt_id: job.number,
                stdout_path: row.get(1)?,
                stderr_path: row.get(2)?,
                script_stdout_path: None,
                script_stderr_path: None,
                output_dir: row.get(3)?,
                pool_runner: None,
            };
            Ok((place, row.get(4)?, row.get(5)?))
        })?;
    logs.insert(job.job, place);
    Ok(Some(PendingExample {
        job_id: job.job,
        name: untrusted::line(&job.name, LONGEST_NAME),
        command: untrusted::line(&failed.command, LONGEST_COMMAND),
        run_id: job.run,
        attempt_id: job.number,
        ending: PendingEnd {
            return_code: failed.ending.return_code,
            signal: failed.ending.signal,
            cause: failed.ending.cause,
        },
        proposal: decided.as_ref().map(|decided| Proposal {
            action: decided.card.action,
            changes: decided.card.changes.clone(),
            why: untrusted::line(&decided.card.why, LONGEST_NAME),
            chance: decided.card.chance,
            cost_seconds: decided.card.cost_seconds,
        }),
        diagnosis: decided.map(|decided| harmless(decided.diagnosis)),
        exec_time_minutes: failed.usage.exec_seconds.map(|seconds| seconds / 60.0),
        hostname: hostname.map(|name| untrusted::line(&name, LONGEST_NAME)),
        needs: PendingNeeds {
            memory: job.current.memory_bytes.map(Memory),
            peak_memory: job.current.peak_memory_bytes.map(Memory),
            runtime: job.current.runtime_seconds.map(Runtime),
        },
        untrusted_stderr_tail: untrusted::tail(failed.output.stderr_tail.as_deref().unwrap_or("")),
        stderr_read_error: None,
        held_classification_id: held,
    }))
}

/// The job's words inside a diagnosis are as hostile as its output.
fn harmless(mut diagnosis: Diagnosis) -> Diagnosis {
    const LONGEST: usize = 400;
    diagnosis.summary = untrusted::line(&diagnosis.summary, LONGEST);
    for proof in &mut diagnosis.proof {
        proof.text = untrusted::line(&proof.text, LONGEST);
    }
    for doubt in &mut diagnosis.doubts {
        *doubt = untrusted::line(doubt, LONGEST);
    }
    diagnosis
}
