//! What the rows say of attempts that failed, and of their jobs.

use super::load::parse;
use crate::store::cards::Failure;
use crate::store::waiting::{EndedAttempt, Waiting};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use torc_model::attempt::{Ending, Output, Usage};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Execution, JobExtra};
use torc_model::recovery::{Current, Fingerprint, Kind, Rules};
use torc_model::status::{Cause, EndDetail, JobStatus, StatusReason};

/// All that wait in a workflow, or one of them, in the order of the workflow.
pub fn waiting(
    db: &Connection,
    id: WorkflowId,
    job: Option<JobId>,
) -> rusqlite::Result<Vec<Waiting>> {
    let mut statement = db.prepare_cached(
        "SELECT j.id, j.name, j.extra, coalesce(j.memory_bytes, r.memory_bytes),
                coalesce(j.runtime_seconds, r.runtime_seconds), a.id, a.run_id, a.attempt_id, a.peak_memory_bytes,
                f.fingerprint, f.family, f.kind, f.program, f.exception, f.template,
                (SELECT count(*) FROM failure g WHERE g.job_id = j.id AND g.run_id = a.run_id
                    AND g.fingerprint = f.fingerprint)
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id
         JOIN attempt a ON a.id = (SELECT b.id FROM attempt b WHERE b.job_id = j.id AND b.ended_ms IS NOT NULL
            ORDER BY b.run_id DESC, b.attempt_id DESC LIMIT 1)
         LEFT JOIN failure f ON f.attempt = a.id
         WHERE j.workflow_id = ?1 AND j.status = 10 AND j.status >= 6 AND j.status <> 9 AND (?2 IS NULL OR j.id = ?2) ORDER BY j.id",
    )?;
    let mut rows = statement.query(params![id.0, job.map(|j| j.0)])?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        let extra: Option<String> = row.get(2)?;
        let extra: JobExtra = extra.as_deref().map(parse).transpose()?.unwrap_or_default();
        let attempt: i64 = row.get(5)?;
        let fingerprint = match row.get::<_, Option<String>>(9)? {
            Some(id) => Fingerprint {
                id,
                family: row.get(10)?,
                kind: Kind::parse(&row.get::<_, String>(11)?).unwrap_or(Kind::Unknown),
                program: row.get(12)?,
                exception: row.get(13)?,
                template: row.get(14)?,
            },
            // It failed before failures were told apart.
            None => match failed(db, attempt)? {
                Some(failed) => failed.fingerprint(),
                None => continue,
            },
        };
        let unsigned = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok());
        waiting.push(Waiting {
            job: JobId(row.get(0)?),
            name: row.get(1)?,
            attempt,
            run: row.get(6)?,
            number: row.get(7)?,
            current: Current {
                memory_bytes: unsigned(row.get(3)?),
                runtime_seconds: unsigned(row.get(4)?),
                timeout_seconds: extra.timeout.map(|t| t.0),
                peak_memory_bytes: unsigned(row.get(8)?),
                ..Current::default()
            },
            fingerprint,
            is_repeated: row.get::<_, i64>(15)? > 1,
        });
    }
    Ok(waiting)
}

const ENDED: &str = "SELECT a.id, a.job_id, a.run_id, a.retry_of, a.state, j.command, a.cause, a.return_code, a.signal, \
    a.exec_seconds, a.stderr_tail, a.time_limit_seconds, a.peak_memory_bytes, a.memory_bytes, a.error, a.evidence, a.stderr_tail_start, a.detail, a.cpu_seconds, a.observed, a.attempt_id, \
    (SELECT c.hostname FROM compute_node c WHERE c.id = a.compute_node_id), \
    (SELECT json_extract(w.settings, '$.recovery_rules') FROM workflow w WHERE w.id = a.workflow_id) \
    FROM attempt a JOIN job j ON j.id = a.job_id";

/// An attempt by its row.
pub fn failed(db: &Connection, attempt: i64) -> rusqlite::Result<Option<EndedAttempt>> {
    db.prepare_cached(&format!("{ENDED} WHERE a.id = ?1"))?
        .query_row([attempt], row_to_failed)
        .optional()
}

/// The newest ended attempt of a job.
pub fn last_ended(db: &Connection, job: JobId) -> rusqlite::Result<Option<EndedAttempt>> {
    let newest = "WHERE a.job_id = ?1 AND a.ended_ms IS NOT NULL ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1";
    db.prepare_cached(&format!("{ENDED} {newest}"))?.query_row([job.0], row_to_failed).optional()
}

fn row_to_failed(row: &Row<'_>) -> rusqlite::Result<EndedAttempt> {
    let (cause, evidence): (Option<String>, Option<String>) = (row.get(6)?, row.get(15)?);
    let observed: Option<String> = row.get(19)?;
    Ok(EndedAttempt {
        attempt: row.get(0)?,
        job: JobId(row.get(1)?),
        run: row.get(2)?,
        number: row.get(20)?,
        host: row.get(21)?,
        retry_of: row.get(3)?,
        state: row.get(4)?,
        command: row.get(5)?,
        ending: Ending {
            return_code: row.get(7)?,
            signal: row.get(8)?,
            cause: cause.as_deref().and_then(Cause::parse),
            detail: row.get::<_, Option<String>>(17)?.as_deref().and_then(EndDetail::parse),
            error: row.get(14)?,
            evidence: evidence.as_deref().map(parse).transpose()?.unwrap_or_default(),
        },
        usage: Usage {
            exec_seconds: row.get(9)?,
            cpu_seconds: row.get(18)?,
            peak_memory_bytes: row.get(12)?,
            ..Usage::default()
        },
        output: Output {
            stderr_tail: row.get(10)?,
            stderr_tail_start: row.get(16)?,
            ..Output::default()
        },
        time_limit_seconds: row.get(11)?,
        memory_bytes: row.get(13)?,
        observed: observed.as_deref().map(parse).transpose()?,
        rules: row
            .get::<_, Option<String>>(22)?
            .map(|text| parse(&text).map(Rules::of_workflow))
            .transpose()?,
    })
}

/// The last attempts of jobs that ended badly or wait for a verdict, or of one of them, in the order of the jobs.
pub fn newest_failed(
    db: &Connection,
    id: WorkflowId,
    only: Option<JobId>,
) -> rusqlite::Result<Vec<i64>> {
    // One job is found by its key, without a look at all the others.
    let which = if only.is_some() {
        "j.id = ?3 AND j.workflow_id = ?1"
    } else {
        "j.workflow_id = ?1 AND ?3 IS NULL"
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT a.id FROM job j
         JOIN attempt a ON a.id = (SELECT b.id FROM attempt b WHERE b.job_id = j.id AND b.ended_ms IS NOT NULL
            ORDER BY b.run_id DESC, b.attempt_id DESC LIMIT 1)
         WHERE {which} AND j.status >= 6 AND j.status <> 9 AND j.status IN (6, 8, 10) AND j.status_reason IS NOT ?2
         ORDER BY j.id",
    ))?;
    // A map that failed because of its items follows them.
    let rows = statement.query_map(
        params![id.0, StatusReason::TooManyItemsFailed.as_str(), only.map(|job| job.0)],
        |row| row.get::<_, i64>(0),
    )?;
    rows.collect()
}

/// The job of an ended attempt.
pub fn of_attempt(
    db: &Connection,
    ended: EndedAttempt,
    execution: &Execution,
) -> rusqlite::Result<Failure> {
    let mut statement = db.prepare_cached(
        "SELECT j.name, j.status, j.status_reason, j.extra, coalesce(j.memory_bytes, r.memory_bytes),
                coalesce(j.runtime_seconds, r.runtime_seconds), coalesce(j.num_cpus, r.num_cpus, 1), coalesce(j.num_gpus, r.num_gpus, 0),
                j.workflow_id, j.family
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id WHERE j.id = ?1",
    )?;
    statement.query_row([ended.job.0], |row| {
        let extra: Option<String> = row.get(3)?;
        let extra: JobExtra = extra.as_deref().map(parse).transpose()?.unwrap_or_default();
        let reason: Option<String> = row.get(2)?;
        let unsigned = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok());
        Ok(Failure {
            job: ended.job,
            name: row.get(0)?,
            status: JobStatus::from_code(row.get(1)?).unwrap_or(JobStatus::Failed),
            is_permanent: reason.as_deref().and_then(StatusReason::parse)
                == Some(StatusReason::ClassifiedPermanent),
            num_cpus: row.get(6)?,
            num_gpus: row.get(7)?,
            current: Current {
                memory_bytes: unsigned(row.get(4)?),
                runtime_seconds: unsigned(row.get(5)?),
                timeout_seconds: extra.timeout.map(|t| t.0),
                enforces_runtime: execution.enforces_runtime(&extra),
                exec_seconds: ended.usage.exec_seconds,
                peak_memory_bytes: unsigned(ended.usage.peak_memory_bytes),
                known_bytes: None,
                known_seconds: None,
            },
            workflow: WorkflowId(row.get(8)?),
            family: row.get(9)?,
            ended,
        })
    })
}

/// Failed attempts of a run of a job before the one with this number, newest first.
pub fn failed_before(
    db: &Connection,
    job: JobId,
    run: i64,
    number: i64,
    most: i64,
) -> rusqlite::Result<Vec<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM attempt WHERE job_id = ?1 AND run_id = ?2 AND attempt_id < ?3 AND cause IS NOT NULL
         ORDER BY attempt_id DESC LIMIT ?4",
    )?;
    statement.query_map([job.0, run, number, most], |row| row.get(0))?.collect()
}

/// Peak memory and time of jobs of a family that succeeded, among the attempts of the workflow that ended last.
pub fn used_by_family(
    db: &Connection,
    id: WorkflowId,
    family: i64,
    among: i64,
) -> rusqlite::Result<Vec<(Option<u64>, Option<f64>)>> {
    let mut statement = db.prepare_cached(
        "SELECT e.peak_memory_bytes, e.exec_seconds FROM (
            SELECT job_id, state, peak_memory_bytes, exec_seconds FROM attempt
            WHERE workflow_id = ?1 AND ended_ms IS NOT NULL ORDER BY ended_ms DESC LIMIT ?3) e
         JOIN job j ON j.id = e.job_id WHERE j.family = ?2 AND e.state = 'completed'",
    )?;
    let rows = statement.query_map([id.0, family, among], |row| {
        let peak: Option<i64> = row.get(0)?;
        Ok((peak.and_then(|bytes| u64::try_from(bytes).ok()), row.get(1)?))
    })?;
    rows.collect()
}
