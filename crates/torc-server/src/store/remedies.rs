//! `torc recover`: gives every failed job what its diagnosis asks for, in one transaction.
//!
//! The table of a dry run comes from the same code; a dry run stops before the first change.

use super::cards::{self, Failure};
use super::journal;
use super::outcomes::{self, By, QueuedRetry};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::Connection;
use serde_json::json;
use std::collections::BTreeSet;
use torc_engine::commands::{AdjustJob, Resume, RunAgain};
use torc_engine::{Because, JobIx, On};
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{
    Action, Caps, Change, Diagnosis, Kind, LARGEST_MULTIPLIER, Policy, RecoverJob, RecoverRequest,
    RecoverView, Tried,
};
use torc_model::status::{JobStatus, Origin, RunnerKind};
use torc_model::words;

/// Recovers what can be, or tells what would be recovered.
pub fn recover(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &RecoverRequest,
) -> Result<RecoverView, Failed> {
    let policy = policy(request)?;
    check(tx, id)?;
    let rounds = rounds(tx, id)?;
    if let Some(max) = request.max_rounds.filter(|max| rounds >= *max) {
        let were = if rounds == 1 { "was" } else { "were" };
        let message = format!(
            "{} of recovery {were} made in this run; the limit is {max}",
            words::count(rounds, "round")
        );
        return Err(Refusal::conflict(ErrorCode::RoundsExhausted, message)
            .hint(format!("`torc recover {id}` recovers it all the same"))
            .into());
    }
    let execution = tx.workflow(id)?.settings.execution.clone();
    let mut failures = cards::failures(tx.db, id, None, &execution)?;
    if !request.job_ids.is_empty() {
        let wanted: BTreeSet<JobId> = request.job_ids.iter().copied().collect();
        failures.retain(|failure| wanted.contains(&failure.job));
    }
    if failures.is_empty() {
        return Err(nothing_failed(tx, id)?.into());
    }
    let caps = caps(tx.db, id, request)?;
    let mut jobs = Vec::with_capacity(failures.len());
    for failure in &failures {
        let caps =
            caps.within(&request.shapes, failure.num_cpus, failure.num_gpus, &failure.current);
        jobs.extend(plan(tx, failure, &caps, &policy)?);
    }
    let by = request.by.clone().unwrap_or_else(|| "recover".into());
    let reopened = match request.dry_run {
        true => would_reopen(tx, id, &jobs)?,
        false => apply(tx, id, &jobs, &failures, &by)?,
    };
    let retried: Vec<&RecoverJob> = jobs.iter().filter(|job| job.action.is_retry()).collect();
    let count = |action: Action| jobs.iter().filter(|job| job.action == action).count() as i64;
    let unknown = |job: &&&RecoverJob| job.action == Action::Again && is_unknown(&job.diagnosis);
    let round = !request.dry_run && request.max_rounds.is_some() && !retried.is_empty();
    if round {
        let run = tx.workflow(id)?.run;
        journal::insert_round(tx.db, id, run, &by, retried.len(), tx.now)?;
    }
    Ok(RecoverView {
        workflow_id: id,
        run_id: tx.workflow(id)?.run,
        dry_run: request.dry_run,
        memory_multiplier: policy.memory_multiplier,
        runtime_multiplier: policy.runtime_multiplier,
        rounds: rounds + i64::from(round),
        orphans: torc_model::api::RecoveryView::default(),
        jobs_to_retry: retried.iter().map(|job| job.job_id).collect(),
        reopened,
        oom_fixed: count(Action::MoreMemory),
        timeout_fixed: count(Action::MoreTime),
        unknown_retried: retried.iter().filter(unknown).count() as i64,
        other_failures: count(Action::Skip) + count(Action::Impossible),
        jobs,
    })
}

fn policy(request: &RecoverRequest) -> Result<Policy, Refusal> {
    let fields = [
        ("memory_multiplier", request.memory_multiplier),
        ("runtime_multiplier", request.runtime_multiplier),
    ];
    for (field, value) in fields {
        let Some(value) = value else { continue };
        if !(1.0..=LARGEST_MULTIPLIER).contains(&value) {
            return Err(Refusal::invalid(
                field,
                format!("must be between 1 and {LARGEST_MULTIPLIER}; it is {value}"),
            ));
        }
    }
    Ok(Policy {
        memory_multiplier: request.memory_multiplier,
        runtime_multiplier: request.runtime_multiplier,
        retry_unknown: request.retry_unknown,
        no_memory: request.no_memory,
    })
}

/// What must hold before anything is recovered. Other jobs may run.
fn check(tx: &mut Tx<'_>, id: WorkflowId) -> Result<(), Failed> {
    super::people::refuse_archived(tx, id)?;
    let workflow = tx.workflow(id)?;
    if workflow.run == 0 {
        return Err(Refusal::conflict(
            ErrorCode::NotInitialized,
            format!("workflow {id} was never started"),
        )
        .hint(format!("`torc run {id}` starts it"))
        .into());
    }
    if workflow.canceled && workflow.held_count() > 0 {
        let held = workflow.held_count();
        let are = if held == 1 { "is" } else { "are" };
        let message = format!(
            "workflow {id} was canceled and {} of it {are} still being stopped",
            words::count(held, "job")
        );
        return Err(Refusal::conflict(ErrorCode::BeingCanceled, message)
            .hint("wait until they have ended")
            .into());
    }
    Ok(())
}

fn nothing_failed(tx: &mut Tx<'_>, id: WorkflowId) -> Result<Refusal, Failed> {
    let workflow = tx.workflow(id)?;
    let counts = workflow.counts();
    let count = |status: JobStatus| counts[status as usize];
    let (message, hint) = if count(JobStatus::Completed) + count(JobStatus::Disabled)
        == workflow.len() as u32
    {
        (format!("every job of workflow {id} succeeded"), None)
    } else if count(JobStatus::Canceled) > 0 {
        let hint =
            format!("`torc workflows reset-status {id} --failed-only` runs canceled jobs again");
        let canceled = count(JobStatus::Canceled);
        let were = if canceled == 1 { "was" } else { "were" };
        (
            format!(
                "no job of workflow {id} failed; {} {were} canceled",
                words::count(canceled, "job")
            ),
            Some(hint),
        )
    } else {
        let hint = format!("`torc run {id}` resumes it");
        (format!("no job of workflow {id} has failed so far"), Some(hint))
    };
    Ok(Refusal::conflict(ErrorCode::NothingToRecover, message).maybe_hint(hint))
}

fn rounds(tx: &mut Tx<'_>, id: WorkflowId) -> Result<i64, Failed> {
    let run = tx.workflow(id)?.run;
    Ok(journal::verdicts::count_rounds(tx.db, id, run)?)
}

/// What a recovery would do about one job; None if there is nothing to recover.
pub fn remedy(tx: &mut Tx<'_>, id: WorkflowId, job: JobId) -> Result<Option<RecoverJob>, Failed> {
    let request = RecoverRequest::default();
    let policy = policy(&request)?;
    let caps = caps(tx.db, id, &request)?;
    let execution = tx.workflow(id)?.settings.execution.clone();
    match cards::failures(tx.db, id, Some(job), &execution)?.pop() {
        Some(failure) => plan(tx, &failure, &caps, &policy),
        None => Ok(None),
    }
}

/// The largest machine that has worked for this workflow, unless the caller knows better. Slurm
/// allocations say nothing about the largest node of a cluster.
pub fn caps(db: &Connection, id: WorkflowId, request: &RecoverRequest) -> Result<Caps, Failed> {
    let unsigned =
        |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0);
    let mut caps = Caps {
        memory_bytes: unsigned(request.max_memory_bytes),
        runtime_seconds: unsigned(request.max_runtime_seconds),
    };
    if caps.memory_bytes.is_some() {
        return Ok(caps);
    }
    for (kind, capacity) in journal::runners::kinds(db, id)? {
        if kind == RunnerKind::Slurm {
            return Ok(Caps { memory_bytes: None, ..caps });
        }
        caps.memory_bytes = caps
            .memory_bytes
            .max(unsigned(Some(capacity.memory_bytes / capacity.num_nodes.max(1))));
    }
    Ok(caps)
}

fn plan(
    tx: &Tx<'_>,
    failure: &Failure,
    caps: &Caps,
    policy: &Policy,
) -> Result<Option<RecoverJob>, Failed> {
    Ok(failure.decide(tx.db, caps, policy, tx.now)?.map(|decided| decided.view(failure)))
}

/// It runs again although no remedy is known.
fn is_unknown(diagnosis: &Diagnosis) -> bool {
    !diagnosis.is_transient()
        && !matches!(
            diagnosis.kind,
            Kind::Lost
                | Kind::Preempted
                | Kind::NodeFail
                | Kind::Stopped
                | Kind::Checkpoint
                | Kind::Walltime
                | Kind::Timeout
        )
}

fn canceled(tx: &mut Tx<'_>, id: WorkflowId) -> Result<BTreeSet<JobId>, Failed> {
    let workflow = tx.workflow(id)?;
    Ok(workflow.jobs().filter(|j| j.status() == JobStatus::Canceled).map(|j| j.id()).collect())
}

/// What a recovery would open again: tried on a copy of the engine's state.
fn would_reopen(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    jobs: &[RecoverJob],
) -> Result<Vec<JobId>, Failed> {
    let before = canceled(tx, id)?;
    let workflow = tx.workflow(id)?;
    let again = jobs.iter().filter(|job| job.action.is_retry());
    let again: Vec<JobIx> = again.filter_map(|job| workflow.find(job.job_id)).collect();
    let mut copy = tx.state.engine.rehearsal(id);
    let run_again = RunAgain { jobs: &again, origin: Origin::Recovered };
    copy.handle(On(id, run_again), tx.clocks()).reply?;
    let reopened =
        |job: &&torc_engine::Job| before.contains(&job.id()) && job.status() != JobStatus::Canceled;
    let jobs = copy.workflow(id).into_iter().flat_map(|workflow| workflow.jobs());
    Ok(jobs.filter(reopened).map(|job| job.id()).collect())
}

fn apply(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    jobs: &[RecoverJob],
    failures: &[Failure],
    by: &str,
) -> Result<Vec<JobId>, Failed> {
    let before = canceled(tx, id)?;
    let chosen: Vec<&RecoverJob> = jobs.iter().filter(|job| job.action.is_retry()).collect();
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    tx.handle(On(id, Resume {}))?;
    for job in &chosen {
        let because = Because { attempt: job.attempt_id, why: &job.reason, by };
        adjust(tx, id, job.job_id, &job.changes, because)?;
        let index = tx
            .workflow(id)?
            .find(job.job_id)
            .ok_or_else(|| Refusal::not_found("job", job.job_id.0))?;
        tx.handle(On(id, RunAgain { jobs: &[index], origin: Origin::Recovered }))?;
        if let (Ok(at), Some(tried)) =
            (failures.binary_search_by_key(&job.job_id, |f| f.job), Tried::of(job.action))
        {
            let failure = &failures[at];
            let retry = QueuedRetry {
                by: By::Recover,
                tried,
                diagnosis: &job.diagnosis,
                fingerprint: &failure.ended.fingerprint_of(Some(&job.diagnosis)),
                ended: &failure.ended,
                waits: false,
            };
            outcomes::note(tx, id, &retry)?;
        }
    }
    let reopened: Vec<JobId> = before.difference(&canceled(tx, id)?).copied().collect();
    let data = json!({"by": by, "jobs": chosen.len(), "reopened": reopened.len(), "left": jobs.len() - chosen.len()});
    tx.tell(id, EventKind::WorkflowRecovered, None, data)?;
    Ok(reopened)
}

/// Gives a job other limits of its own and writes down why.
pub fn adjust(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    job: JobId,
    changes: &[Change],
    because: Because<'_>,
) -> Result<(), Failed> {
    let job = tx.workflow(id)?.find(job).ok_or_else(|| Refusal::not_found("job", job.0))?;
    tx.handle(On(id, AdjustJob { job, changes, because }))
}
