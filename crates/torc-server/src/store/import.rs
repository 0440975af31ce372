//! A workflow with its past, out of an export: one transaction makes it and writes down what happened to
//! it elsewhere. Ids are given anew; names tell what belongs together.
//!
//! What was ready or ran there is uninitialized here, because nothing of it runs here: `torc run` opens it.

use super::create::{self, Creation};
use super::persist::json;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::params;
use std::collections::{HashMap, HashSet};
use torc_model::api::{AttemptView, EventView, JobView, Past, RunnerView, WorkflowCreated};
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::Plan;
use torc_model::recovery::{AdjustmentView, ClassificationView};
use torc_model::status::{Adjustable, JobStatus};

/// Rows of this server by the ids of the other one.
struct Ids {
    workflow: WorkflowId,
    jobs: HashMap<JobId, JobId>,
    runners: HashMap<RunnerId, i64>,
    attempts: HashMap<AttemptId, i64>,
}

/// Makes the workflow, and writes its past.
pub fn import(
    tx: &mut Tx<'_>,
    request: &Creation,
    plan: Plan,
    past: &Past,
    keeps_paths: bool,
    warnings: Vec<String>,
) -> Result<WorkflowCreated, Failed> {
    let before = tx.state.next_job;
    let mut created = create::create(tx, request, plan, &[], warnings)?;
    if tx.state.next_job == before && created.job_count > 0 {
        // A repeat: the first one wrote it all.
        return Ok(created);
    }
    let mut ids = Ids {
        workflow: created.id,
        jobs: jobs_by_name(tx, created.id, &past.jobs)?,
        runners: HashMap::new(),
        attempts: HashMap::new(),
    };
    let left = past.jobs.len() - ids.jobs.len();
    if left > 0 {
        created.warnings.push(format!(
            "{left} jobs that were added while it ran are not part of the spec: they were not imported"
        ));
    }
    for runner in &past.runners {
        ids.runner(tx, runner)?;
    }
    let mut attempts: Vec<&AttemptView> = past.attempts.iter().collect();
    attempts.sort_by_key(|attempt| attempt.id);
    for attempt in attempts {
        ids.attempt(tx, attempt, keeps_paths)?;
    }
    for event in &past.events {
        ids.event(tx, event)?;
    }
    for verdict in &past.classifications {
        ids.verdict(tx, verdict)?;
    }
    for adjustment in &past.adjustments {
        ids.adjustment(tx, adjustment)?;
    }
    for data in &past.user_data {
        let text = data.data.as_ref().filter(|data| !data.is_null()).map(ToString::to_string);
        tx.db
            .prepare_cached("UPDATE user_data SET data = ?3 WHERE workflow_id = ?1 AND name = ?2")?
            .execute(params![created.id.0, data.name, text])?;
    }
    created.run_id = ids.jobs(tx, past)?;
    // The rows were written behind the engine's back.
    super::people::reload(tx, created.id);
    Ok(created)
}

fn jobs_by_name(
    tx: &Tx<'_>,
    id: WorkflowId,
    jobs: &[JobView],
) -> Result<HashMap<JobId, JobId>, Failed> {
    let mut statement = tx.db.prepare_cached("SELECT name, id FROM job WHERE workflow_id = ?1")?;
    let rows = statement.query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: HashMap<String, i64> = rows.collect::<Result<_, _>>()?;
    let known = |job: &JobView| Some((job.id, JobId(*rows.get(&job.name)?)));
    Ok(jobs.iter().filter_map(known).collect())
}

impl Ids {
    fn runner(&mut self, tx: &mut Tx<'_>, runner: &RunnerView) -> Result<(), Failed> {
        let ended = runner.ended_ms.unwrap_or(runner.last_seen_ms);
        let row = tx
            .db
            .prepare_cached(
                "INSERT INTO compute_node (workflow_id, register_key, hostname, boot_id, pid, pid_start, kind, capacity,
                 output_dir, started_ms, last_seen_ms, ended_ms, end_reason)
                 VALUES (?1, ?2, ?3, '', ?4, 0, ?5, ?6, '', ?7, ?8, ?9, ?10)",
            )?
            .insert(params![
                self.workflow.0,
                format!("import-{}-{}", self.workflow, runner.id),
                runner.hostname,
                runner.pid,
                runner.kind.as_str(),
                json(Some(&runner.capacity))?,
                runner.started_ms,
                runner.last_seen_ms,
                ended,
                runner.end_reason.as_deref().unwrap_or("imported"),
            ])?;
        self.runners.insert(runner.id, row);
        Ok(())
    }

    /// Only ended attempts are history; what ran elsewhere does not run here.
    fn attempt(
        &mut self,
        tx: &mut Tx<'_>,
        attempt: &AttemptView,
        keeps_paths: bool,
    ) -> Result<(), Failed> {
        let (Some(job), Some(ended), Some(by)) =
            (self.jobs.get(&attempt.job_id), attempt.ended_ms, attempt.ended_by)
        else {
            return Ok(());
        };
        if attempt.state.is_live() {
            return Err(Refusal::invalid("attempts", "an attempt has ended and is live").into());
        }
        let row = tx.state.next_attempt;
        tx.state.next_attempt += 1;
        // A path names a file of the machine that it came from; only the owner of this server may say
        // that it is one of this machine.
        let path = |path: &Option<String>| path.clone().filter(|_| keeps_paths);
        tx.db
            .prepare_cached(
                "INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, retry_of, created_ms,
                 not_before_ms, recovery, compute_node_id, claimed_ms, started_ms, pid, memory_bytes,
                 time_limit_seconds, ended_ms, ended_by, return_code, signal, cause, detail, error, evidence,
                 exec_seconds, cpu_seconds, peak_memory_bytes, peak_cpu_percent, stdout_path, stderr_path, stderr_tail,
                 outcome, decision, rule, script, steps, stderr_tail_start, observed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
                 ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39)",
            )?
            .execute(params![
                row,
                self.workflow.0,
                job.0,
                attempt.run_id,
                attempt.attempt_id,
                attempt.state.as_str(),
                attempt.origin.as_str(),
                attempt.retry_of.and_then(|of| self.attempts.get(&of)),
                attempt.created_ms,
                attempt.not_before_ms,
                json(attempt.recovery.as_ref())?,
                attempt.compute_node_id.and_then(|of| self.runners.get(&of)),
                attempt.claimed_ms,
                attempt.started_ms,
                attempt.pid,
                attempt.memory_bytes,
                attempt.time_limit_seconds,
                ended,
                by.as_str(),
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
        self.attempts.insert(attempt.id, row);
        Ok(())
    }

    fn event(&self, tx: &mut Tx<'_>, event: &EventView) -> Result<(), Failed> {
        let id = tx.state.next_event;
        tx.state.next_event += 1;
        tx.db
            .prepare_cached(
                "INSERT INTO event (workflow_id, id, timestamp_ms, kind, job_id, data)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                self.workflow.0,
                id,
                event.timestamp_ms,
                event.kind.as_str(),
                event.job_id.and_then(|job| self.jobs.get(&job)).map(|job| job.0),
                event.data.to_string(),
            ])?;
        Ok(())
    }

    fn verdict(&self, tx: &mut Tx<'_>, verdict: &ClassificationView) -> Result<(), Failed> {
        let Some(job) = self.jobs.get(&verdict.job_id) else { return Ok(()) };
        let follows = tx
            .db
            .prepare_cached(
                "SELECT coalesce(max(id), 0) FROM attempt WHERE job_id = ?1 AND run_id = ?2 AND attempt_id = ?3",
            )?
            .query_row(params![job.0, verdict.run_id, verdict.attempt_id], |row| row.get::<_, i64>(0))?;
        tx.db
            .prepare_cached(
                "INSERT INTO classification (workflow_id, job_id, run_id, attempt_id, action, state, made_by, agent,
                 reason, confidence, evidence, changes, fingerprint, family, note, created_ms, decided_by, decided_ms,
                 follows, outcome, outcome_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, '', ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
            )?
            .execute(params![
                self.workflow.0,
                job.0,
                verdict.run_id,
                verdict.attempt_id,
                verdict.action.as_str(),
                verdict.state.as_str(),
                verdict.by,
                verdict.agent,
                verdict.reason,
                verdict.confidence,
                json(Some(&verdict.evidence))?,
                json(Some(&verdict.changes))?,
                verdict.fingerprint.as_deref().unwrap_or_default(),
                verdict.note,
                verdict.created_ms,
                verdict.decided_by,
                verdict.decided_ms,
                follows,
                verdict.outcome.map(|outcome| outcome.as_str()),
                verdict.outcome_ms,
            ])?;
        Ok(())
    }

    fn adjustment(&self, tx: &mut Tx<'_>, adjustment: &AdjustmentView) -> Result<(), Failed> {
        let Some(job) = self.jobs.get(&adjustment.job_id) else { return Ok(()) };
        let change = &adjustment.change;
        tx.db
            .prepare_cached(
                "INSERT INTO adjustment (workflow_id, job_id, run_id, attempt_id, field, from_value, to_value, why,
                 made_by, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                self.workflow.0,
                job.0,
                adjustment.run_id,
                adjustment.attempt_id,
                change.field.as_str(),
                change.from,
                change.to,
                adjustment.why,
                adjustment.by,
                adjustment.created_ms,
            ])?;
        let column = match change.field {
            Adjustable::Memory => "memory_bytes",
            Adjustable::Runtime => "runtime_seconds",
            Adjustable::Cpus => "num_cpus",
            Adjustable::Gpus => "num_gpus",
            // The spec that was exported says it.
            Adjustable::Timeout => return Ok(()),
        };
        let sql = format!("UPDATE job SET {column} = ?2 WHERE id = ?1");
        tx.db.prepare_cached(&sql)?.execute(params![job.0, change.to])?;
        Ok(())
    }

    /// Writes how the jobs stand, and which run it is; answers the run.
    fn jobs(&self, tx: &mut Tx<'_>, past: &Past) -> Result<i64, Failed> {
        // What waits for others, or for a verdict, waits here too; what waited for a runner is opened anew.
        let is_kept = |job: &JobView| {
            let waits = [JobStatus::Blocked, JobStatus::PendingFailed];
            job.status.is_final() || waits.contains(&job.status)
        };
        let of_run =
            |attempt: &&AttemptView| attempt.run_id == past.run_id && attempt.ended_ms.is_some();
        let tried: HashSet<JobId> =
            past.attempts.iter().filter(of_run).map(|attempt| attempt.job_id).collect();
        // An attempt that is opened here must not have the number of one that is history.
        let collides = past.jobs.iter().any(|job| !is_kept(job) && tried.contains(&job.id));
        let run = past.run_id + i64::from(collides);
        for job in &past.jobs {
            let Some(row) = self.jobs.get(&job.id) else { continue };
            let status = if is_kept(job) { job.status } else { JobStatus::Uninitialized };
            let reason = job.status_reason.filter(|_| is_kept(job)).map(|reason| reason.as_str());
            let (attempt, of_run) =
                if is_kept(job) { (job.attempt_id, past.run_id) } else { (1, run) };
            tx.db
                .prepare_cached(
                    "UPDATE job SET status = ?2, status_reason = ?3, attempt_id = ?4, attempt_run = ?5, held = ?6,
                     priority = ?7 WHERE id = ?1",
                )?
                .execute(params![
                    row.0,
                    status.code(),
                    reason,
                    attempt.max(1),
                    of_run.max(1),
                    job.held,
                    job.priority,
                ])?;
        }
        let jobs: i64 = tx
            .db
            .prepare_cached(
                "SELECT count(*) FROM job WHERE workflow_id = ?1 AND status NOT IN (5, 6, 7, 8, 9)",
            )?
            .query_row([self.workflow.0], |row| row.get(0))?;
        tx.db
            .prepare_cached(
                "UPDATE workflow SET run_id = ?2, run_started_ms = ?3, is_canceled = ?4, is_complete = ?5 WHERE id = ?1",
            )?
            .execute(params![
                self.workflow.0,
                run,
                past.run_started_ms,
                past.is_canceled,
                jobs == 0 && run > 0
            ])?;
        Ok(run)
    }
}
