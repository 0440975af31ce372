//! Rows of jobs as a plan or an import brings them. What becomes of jobs are `Change`s.

use super::json;
use rusqlite::{CachedStatement, Connection, params};
use torc_model::api::AttemptView;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, JobExtra};
use torc_model::status::{Adjustable, EndedBy, JobStatus, StatusReason};

/// The statements that write new jobs, prepared once for many of them.
pub struct JobStatements<'a> {
    pub insert: CachedStatement<'a>,
    /// What it depends on.
    pub depend: CachedStatement<'a>,
    /// What it reads and writes.
    pub item: CachedStatement<'a>,
}

impl<'a> JobStatements<'a> {
    /// Prepares them.
    pub fn new(db: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            insert: db.prepare_cached(
                "INSERT INTO job (id, workflow_id, name, command, invocation_script, steps, status, status_reason, priority,
                 position, resource_requirements_id, failure_handler_id, scheduler_id, cancel_on_blocking_job_failure, extra,
                 input_hash, family, added_by, estimate_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            )?,
            depend: db.prepare_cached(
                "INSERT OR IGNORE INTO job_depends_on (workflow_id, job_id, depends_on_job_id) VALUES (?1, ?2, ?3)",
            )?,
            item: db.prepare_cached(
                "INSERT OR IGNORE INTO job_item (job_id, kind, item_id) VALUES (?1, ?2, ?3)",
            )?,
        })
    }
}

/// Forgets what a job depends on, reads and writes.
pub fn untie(db: &Connection, workflow: WorkflowId, job: JobId) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM job_item WHERE job_id = ?1")?.execute([job.0])?;
    db.prepare_cached("DELETE FROM job_depends_on WHERE workflow_id = ?1 AND job_id = ?2")?
        .execute([workflow.0, job.0])?;
    Ok(())
}

/// What a new spec makes of a job's row, beside the texts of its entry.
pub struct Rewritten<'a> {
    /// The rest of the row.
    pub extra: &'a JobExtra,
    /// Its requirements.
    pub requirements: Option<i64>,
    /// Its failure handler.
    pub handler: Option<i64>,
    /// The scheduler that it is for.
    pub scheduler: Option<i64>,
    /// Its family.
    pub family: u32,
    /// Own memory and runtime, where they are others than the requirements'.
    pub own: [Option<i64>; 2],
    /// The same for CPUs and GPUs.
    pub own_numbers: [Option<u32>; 2],
}

/// Writes what a new spec says of a job that is there.
pub fn rewrite_job(
    db: &Connection,
    id: JobId,
    job: &Job,
    new: &Rewritten<'_>,
) -> rusqlite::Result<()> {
    let ([memory, runtime], [cpus, gpus]) = (new.own, new.own_numbers);
    db.prepare_cached(
        "UPDATE job SET command = ?2, invocation_script = ?3, steps = ?4, priority = ?5, extra = ?6,
         resource_requirements_id = ?7, failure_handler_id = ?8, scheduler_id = ?9,
         cancel_on_blocking_job_failure = ?10, memory_bytes = ?11, runtime_seconds = ?12, family = ?13,
         num_cpus = ?14, num_gpus = ?15
         WHERE id = ?1",
    )?
    .execute(params![
        id.0,
        job.command,
        job.invocation_script,
        job.steps.as_ref().map(ToString::to_string),
        job.priority,
        if new.extra.is_default() { None } else { json(Some(new.extra))? },
        new.requirements,
        new.handler,
        new.scheduler,
        job.cancel_on_blocking_job_failure,
        memory,
        runtime,
        new.family,
        cpus,
        gpus,
    ])?;
    Ok(())
}

/// Writes a limit that a job has of its own since an earlier server. A timeout is part of the spec.
pub fn own_limit(
    db: &Connection,
    job: JobId,
    limit: Adjustable,
    value: i64,
) -> rusqlite::Result<()> {
    let column = match limit {
        Adjustable::Memory => "memory_bytes",
        Adjustable::Runtime => "runtime_seconds",
        Adjustable::Cpus => "num_cpus",
        Adjustable::Gpus => "num_gpus",
        Adjustable::Timeout => return Ok(()),
    };
    let sql = format!("UPDATE job SET {column} = ?2 WHERE id = ?1");
    db.prepare_cached(&sql)?.execute(params![job.0, value])?;
    Ok(())
}

/// Where a job stood elsewhere.
pub struct ImportedJob {
    pub status: JobStatus,
    /// Why it stands there.
    pub reason: Option<StatusReason>,
    /// Its last attempt, and the run of it.
    pub tried: (i64, i64),
    /// Held back.
    pub held: bool,
    pub priority: i64,
}

/// Writes where a job stood elsewhere.
pub fn import_job(db: &Connection, job: JobId, past: &ImportedJob) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE job SET status = ?2, status_reason = ?3, attempt_id = ?4, attempt_run = ?5, held = ?6,
         priority = ?7 WHERE id = ?1",
    )?
    .execute(params![
        job.0,
        past.status.code(),
        past.reason.map(StatusReason::as_str),
        past.tried.0,
        past.tried.1,
        past.held,
        past.priority,
    ])?;
    Ok(())
}

/// The rows of this server that an attempt of another one is tied to.
pub struct ImportedAttempt {
    pub row: i64,
    pub workflow: WorkflowId,
    pub job: JobId,
    /// The attempt that it retried.
    pub retry_of: Option<i64>,
    /// Its runner.
    pub runner: Option<i64>,
    /// When it ended, and who or what ended it.
    pub end: (i64, EndedBy),
    /// Its files are of this machine.
    pub keeps_paths: bool,
}

/// Writes an attempt that ended elsewhere.
pub fn import_attempt(
    db: &Connection,
    new: &ImportedAttempt,
    attempt: &AttemptView,
) -> rusqlite::Result<()> {
    let path = |path: &Option<String>| path.clone().filter(|_| new.keeps_paths);
    db.prepare_cached(
        "INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, retry_of, created_ms,
         not_before_ms, recovery, compute_node_id, claimed_ms, started_ms, pid, memory_bytes,
         time_limit_seconds, ended_ms, ended_by, return_code, signal, cause, detail, error, evidence,
         exec_seconds, cpu_seconds, peak_memory_bytes, peak_cpu_percent, stdout_path, stderr_path, stderr_tail,
         outcome, decision, rule, script, steps, stderr_tail_start, observed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
         ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39)",
    )?
    .execute(params![
        new.row,
        new.workflow.0,
        new.job.0,
        attempt.run_id,
        attempt.attempt_id,
        attempt.state.as_str(),
        attempt.origin.as_str(),
        new.retry_of,
        attempt.created_ms,
        attempt.not_before_ms,
        json(attempt.recovery.as_ref())?,
        new.runner,
        attempt.claimed_ms,
        attempt.started_ms,
        attempt.pid,
        attempt.memory_bytes,
        attempt.time_limit_seconds,
        new.end.0,
        new.end.1.as_str(),
        attempt.return_code,
        attempt.signal,
        attempt.cause.map(|cause| cause.as_str()),
        attempt.detail.map(|detail| detail.as_str()),
        attempt.error,
        if attempt.evidence.is_empty() { None } else { json(Some(&attempt.evidence))? },
        attempt.exec_seconds,
        attempt.cpu_seconds,
        attempt.peak_memory_bytes,
        attempt.peak_cpu_percent,
        path(&attempt.stdout_path),
        path(&attempt.stderr_path),
        attempt.stderr_tail,
        attempt.outcome.map(|outcome| outcome.as_str()),
        attempt.decision,
        attempt.rule,
        json(attempt.script.as_ref())?,
        attempt.steps.as_ref().map(ToString::to_string),
        attempt.stderr_tail_start,
        json(attempt.observed.as_ref())?,
    ])?;
    Ok(())
}
