//! A workflow with its past, out of an export: one transaction makes it and writes down what happened to
//! it elsewhere. Ids are given anew; names tell what belongs together.
//!
//! What was ready or ran there is uninitialized here, because nothing of it runs here: `torc run` opens it.

use super::create::{self, Creation};
use super::journal::{
    self, ImportedAttempt, ImportedJob, RunnerRow, VerdictRow, attempts, definitions,
};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use std::collections::{HashMap, HashSet};
use torc_engine::NotedAdjustment;
use torc_engine::commands::TakeAttemptRow;
use torc_model::api::{AttemptView, EventView, JobView, Past, RunnerView, WorkflowCreated};
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::Plan;
use torc_model::recovery::{AdjustmentView, ClassificationView};
use torc_model::status::JobStatus;

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
    let before = tx.state.engine.next_job();
    let mut created = create::create(tx, request, plan, &[], warnings)?;
    if tx.state.engine.next_job() == before && created.job_count > 0 {
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
        journal::import_user_data(tx.db, created.id, &data.name, text.as_deref())?;
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
    let mut rows: HashMap<String, JobId> = HashMap::new();
    definitions::each_job(tx.db, id, |row| {
        rows.insert(row.name.to_owned(), row.id);
        Ok::<(), Failed>(())
    })?;
    let known = |job: &JobView| Some((job.id, *rows.get(&job.name)?));
    Ok(jobs.iter().filter_map(known).collect())
}

impl Ids {
    fn runner(&mut self, tx: &mut Tx<'_>, runner: &RunnerView) -> Result<(), Failed> {
        let ended = runner.ended_ms.unwrap_or(runner.last_seen_ms);
        let past = RunnerRow {
            key: &format!("import-{}-{}", self.workflow, runner.id),
            host: &runner.hostname,
            process: (runner.pid, 0),
            kind: Some(runner.kind),
            capacity: runner.capacity.clone(),
            started: runner.started_ms,
            last_seen: runner.last_seen_ms,
            end: Some((ended, runner.end_reason.as_deref().unwrap_or("imported"))),
            ..RunnerRow::default()
        };
        let row = journal::insert_runner(tx.db, self.workflow, &past)?.0;
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
        let row = tx.handle(TakeAttemptRow {})?;
        let new = ImportedAttempt {
            row,
            workflow: self.workflow,
            job: *job,
            retry_of: attempt.retry_of.and_then(|of| self.attempts.get(&of)).copied(),
            runner: attempt.compute_node_id.and_then(|of| self.runners.get(&of)).copied(),
            end: (ended, by),
            // A path names a file of the machine that it came from; only the owner of this server may
            // say that it is one of this machine.
            keeps_paths,
        };
        journal::import_attempt(tx.db, &new, attempt)?;
        self.attempts.insert(attempt.id, row);
        Ok(())
    }

    fn event(&self, tx: &mut Tx<'_>, event: &EventView) -> Result<(), Failed> {
        let id = tx.state.next_event;
        tx.state.next_event += 1;
        let job = event.job_id.and_then(|job| self.jobs.get(&job)).copied();
        let data = event.data.to_string();
        journal::event(tx.db, self.workflow, id, event.timestamp_ms, (event.kind, job, &data))?;
        Ok(())
    }

    fn verdict(&self, tx: &mut Tx<'_>, verdict: &ClassificationView) -> Result<(), Failed> {
        let (said, end) = (&verdict.said, &verdict.end);
        let Some(job) = self.jobs.get(&verdict.job_id) else { return Ok(()) };
        let follows = attempts::row_of(tx.db, *job, verdict.run_id, verdict.attempt_id)?;
        let row = VerdictRow {
            job: *job,
            tried: (verdict.run_id, verdict.attempt_id),
            action: said.action,
            state: verdict.state,
            by: (&said.by, said.agent.as_deref()),
            reason: said.reason.clone(),
            confidence: said.confidence,
            evidence: &said.evidence,
            changes: &said.changes,
            print: (verdict.fingerprint.as_deref().unwrap_or_default(), ""),
            note: verdict.note.as_deref(),
            created: verdict.created_ms,
            decided: (end.decided_ms, end.decided_by.as_deref()),
            follows,
            outcome: (end.outcome, end.outcome_ms),
        };
        journal::insert_verdict(tx.db, self.workflow, &row)?;
        Ok(())
    }

    fn adjustment(&self, tx: &mut Tx<'_>, adjustment: &AdjustmentView) -> Result<(), Failed> {
        let Some(job) = self.jobs.get(&adjustment.job_id) else { return Ok(()) };
        let change = &adjustment.change;
        let noted = NotedAdjustment {
            job: *job,
            run: adjustment.run_id,
            attempt: adjustment.attempt_id,
            change: change.clone(),
            why: adjustment.why.clone(),
            by: adjustment.by.clone(),
        };
        journal::adjustment(tx.db, self.workflow, &noted, adjustment.created_ms)?;
        journal::own_limit(tx.db, *job, change.field, change.to)?;
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
            let reason = job.status_reason.filter(|_| is_kept(job));
            let (attempt, of_run) =
                if is_kept(job) { (job.attempt_id, past.run_id) } else { (1, run) };
            let past = ImportedJob {
                status,
                reason,
                tried: (attempt.max(1), of_run.max(1)),
                held: job.held,
                priority: job.priority,
            };
            journal::import_job(tx.db, *row, &past)?;
        }
        let mut is_complete = run > 0;
        definitions::each_status(tx.db, self.workflow, |_, status| {
            is_complete &= status.is_final()
        })?;
        journal::import_workflow(tx.db, self.workflow, past, run, is_complete)?;
        Ok(run)
    }
}
