//! What people ask: initialize, reset, cancel, retry, classify, change, delete.

use super::facts::{self, FileFact};
use super::journal::{self, definitions};
use super::lookups;
use super::names;
use super::refusal::Refusal;
use super::remedies;
use super::writer::{Failed, Tx};
use std::collections::HashSet;
use torc_engine::{Because, CompiledHandler, JobIx, On, Reason, Seeds, commands};
use torc_model::api::{
    CreateFailureHandler, ErrorCode, ResetJob, ResetRequest, ResetView, RetryOne,
    UpdateFailureHandler, UpdateJob, UpdateWorkflow,
};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::Rule;
use torc_model::recovery::{Change as Limit, Verdict};
use torc_model::status::{Adjustable, JobStatus};
use torc_model::units::{Memory, Runtime};
use torc_model::words::count;

/// The workflow of a job.
pub fn workflow_of(tx: &Tx<'_>, job: JobId) -> Result<WorkflowId, Failed> {
    let id = lookups::workflow_of_job(tx.db, job)?;
    id.ok_or_else(|| Refusal::not_found("job", job.0).into())
}

/// A job's workflow and index.
fn locate(tx: &mut Tx<'_>, job: JobId) -> Result<(WorkflowId, JobIx), Failed> {
    let id = workflow_of(tx, job)?;
    let index = tx.workflow(id)?.find(job).ok_or_else(|| Refusal::not_found("job", job.0))?;
    Ok((id, index))
}

/// Refuses to change what was put away.
pub fn refuse_archived(tx: &Tx<'_>, id: WorkflowId) -> Result<(), Failed> {
    match lookups::is_archived(tx.db, id)? {
        None => Err(Refusal::not_found("workflow", id.0).into()),
        Some(true) => {
            Err(Refusal::conflict(ErrorCode::Archived, format!("workflow {id} is archived"))
                .hint("bring it back with `is_archived: false`")
                .into())
        }
        Some(false) => Ok(()),
    }
}

/// The answer that lists which jobs run again.
fn view(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    chosen: &[(JobIx, Reason)],
    from: &[JobStatus],
    dry_run: bool,
) -> Result<ResetView, Failed> {
    let (run_id, ids): (i64, Vec<JobId>) = {
        let workflow = tx.workflow(id)?;
        (workflow.run, chosen.iter().map(|(i, _)| workflow.job(*i).id()).collect())
    };
    let upstream: Vec<Option<JobId>> = {
        let workflow = tx.workflow(id)?;
        chosen
            .iter()
            .map(|(_, reason)| match reason {
                Reason::Upstream(parent) => Some(workflow.job(*parent).id()),
                Reason::Asked | Reason::Ended(_) | Reason::Changed(_) => None,
            })
            .collect()
    };
    let name = |job: JobId| lookups::name_of(tx.db, job);
    let mut jobs = Vec::with_capacity(chosen.len());
    for (at, (_, reason)) in chosen.iter().enumerate() {
        let reason = match upstream[at] {
            Some(parent) => format!("job `{}`, which it depends on, runs again", name(parent)?),
            None => reason.to_string(),
        };
        jobs.push(ResetJob { job_id: ids[at], name: name(ids[at])?, from: from[at], reason });
    }
    Ok(ResetView { workflow_id: id, dry_run, run_id, jobs, warnings: Vec::new() })
}

fn statuses(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    chosen: &[(JobIx, Reason)],
) -> Result<Vec<JobStatus>, Failed> {
    let workflow = tx.workflow(id)?;
    Ok(chosen.iter().map(|(i, _)| workflow.job(*i).status()).collect())
}

/// Makes every uninitialized job blocked or ready.
pub fn initialize(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    facts: &[FileFact],
) -> Result<ResetView, Failed> {
    refuse_archived(tx, id)?;
    let workflow = tx.workflow(id)?;
    let fresh: Vec<(JobIx, Reason)> = workflow
        .indexes()
        .filter(|i| workflow.job(*i).status() == JobStatus::Uninitialized)
        .map(|i| (i, Reason::Changed("not yet initialized".into())))
        .collect();
    if fresh.is_empty() && workflow.run > 0 {
        return Err(Refusal::conflict(
            ErrorCode::AlreadyInitialized,
            format!("workflow {id} is already initialized"),
        )
        .hint("use `reinitialize` to run what has changed, or `reset-status` to run jobs again")
        .into());
    }
    let from = statuses(tx, id, &fresh)?;
    facts::record(tx.db, facts)?;
    tx.handle(On(id, commands::Initialize {}))?;
    view(tx, id, &fresh, &from, false)
}

/// The run that a caller has seen must still be the one. Of two callers who ask for the next run at
/// the same time, the second would find nothing left to do and take that for its own success.
pub fn refuse_other_run(tx: &mut Tx<'_>, id: WorkflowId, seen: Option<i64>) -> Result<(), Failed> {
    let run = tx.workflow(id)?.run;
    match seen {
        Some(seen) if seen != run => Err(Refusal::conflict(
            ErrorCode::RunChanged,
            format!("another call has begun run {run} of workflow {id}; this one was made for run {seen}"),
        )
        .hint(format!("`torc status {id}` shows what runs; call again if that is not enough"))
        .into()),
        Some(_) | None => Ok(()),
    }
}

/// Sends jobs back to uninitialized.
pub fn reset_status(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ResetRequest,
) -> Result<ResetView, Failed> {
    refuse_archived(tx, id)?;
    refuse_other_run(tx, id, request.run_id)?;
    let seeds = if request.failed_only {
        Seeds::FailedOnly
    } else if request.jobs.is_empty() {
        Seeds::All
    } else {
        Seeds::Named(
            request.jobs.iter().map(|name| find_by_name(tx, id, name)).collect::<Result<_, _>>()?,
        )
    };
    let chosen = tx.workflow(id)?.plan_reset(&seeds)?;
    let from = statuses(tx, id, &chosen)?;
    if !request.dry_run && !chosen.is_empty() {
        tx.handle(On(id, commands::Reset { chosen: &chosen }))?;
    }
    view(tx, id, &chosen, &from, request.dry_run)
}

/// A job by name, or by id when it is written as a number and no job has that name.
fn find_by_name(tx: &mut Tx<'_>, id: WorkflowId, name: &str) -> Result<JobIx, Failed> {
    let by_name = lookups::find_job(tx.db, id, name)?;
    let job = by_name.or_else(|| name.parse().ok().map(JobId));
    let found = match job {
        Some(job) => tx.workflow(id)?.find(job),
        None => None,
    };
    found.ok_or_else(|| Refusal::unknown(format!("workflow {id} has no job `{name}`")).into())
}

/// Where a workflow was submitted from.
pub fn directory(tx: &Tx<'_>, id: WorkflowId) -> Result<Option<String>, Failed> {
    lookups::directory(tx.db, id)?.ok_or_else(|| Refusal::not_found("workflow", id.0).into())
}

/// Stops everything that is not final.
pub fn cancel(tx: &mut Tx<'_>, id: WorkflowId) -> Result<(), Failed> {
    tx.handle(On(id, commands::CancelWorkflow {}))
}

/// Stops some jobs of one workflow, all or none.
pub fn cancel_jobs(tx: &mut Tx<'_>, jobs: &[JobId]) -> Result<(), Failed> {
    let mut places = Vec::new();
    for job in jobs {
        let (id, index) = locate(tx, *job)?;
        let status = tx.workflow(id)?.job(index).status();
        if status.is_final() {
            return Err(Refusal::conflict(
                ErrorCode::WrongStatus,
                format!("job {job} is already {status}"),
            )
            .into());
        }
        places.push((id, index));
    }
    let Some((id, _)) = places.first().copied() else { return Ok(()) };
    if places.iter().any(|(other, _)| *other != id) {
        return Err(Refusal::invalid("job_ids", "the jobs are not all of one workflow").into());
    }
    let jobs: Vec<JobIx> = places.into_iter().map(|(_, index)| index).collect();
    tx.handle(On(id, commands::CancelJobs { jobs: &jobs }))
}

/// Refuses to delete what is at work.
pub fn refuse_delete(tx: &mut Tx<'_>, id: WorkflowId, force: bool) -> Result<(), Failed> {
    let held = tx.workflow(id)?.held_count();
    if held > 0 && !force {
        let are = if held == 1 { "is" } else { "are" };
        let message = format!("{} of workflow {id} {are} running", count(held, "job"));
        return Err(Refusal::conflict(ErrorCode::JobRunning, message)
            .hint("cancel the workflow first")
            .into());
    }
    // With their rows gone the server could not tell that these are ours.
    let open = journal::allocations::count_in_slurm(tx.db, id)?;
    if open > 0 && !force {
        return Err(Refusal::conflict(
            ErrorCode::AllocationsOpen,
            format!("workflow {id} still has {} in Slurm", count(open, "allocation")),
        )
        .hint("cancel the workflow first, which takes back what it asked for; `torc slurm allocations` shows it")
        .into());
    }
    Ok(())
}

/// Deletes a workflow with everything that belongs to it.
pub fn delete(tx: &mut Tx<'_>, id: WorkflowId, force: bool) -> Result<(), Failed> {
    refuse_delete(tx, id, force)?;
    // A client that follows events by their numbers must never meet an old number again.
    journal::remember(tx.db, "next_event_id", tx.state.next_event)?;
    journal::remember(tx.db, "next_attempt_id", tx.state.engine.next_attempt())?;
    for (runner, pool) in tx.handle(commands::DeleteWorkflow(id))? {
        tx.state.pools.runner_ended(runner, id, pool, tx.uptime);
    }
    Ok(())
}

/// Changes what a workflow says about itself.
pub fn update_workflow(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    update: &UpdateWorkflow,
) -> Result<(), Failed> {
    if let Some(name) = &update.name {
        names::check_name("name", name)?;
    }
    for (field, text) in [("user", &update.user), ("project", &update.project)] {
        names::check_line(field, text.as_deref().unwrap_or_default())?;
    }
    if !journal::update_workflow(tx.db, id, update)? {
        return Err(Refusal::not_found("workflow", id.0).into());
    }
    if let Some(enabled) = update.auto_recover {
        tx.handle(On(id, commands::SetAutoRecover { enabled }))?;
    }
    Ok(())
}

/// One more attempt, with the four checks.
pub fn retry(tx: &mut Tx<'_>, row: JobId, run: i64, max: i64) -> Result<(), Failed> {
    let (id, job) = locate(tx, row)?;
    tx.workflow(id)?.may_retry(job, run, max)?;
    super::outcomes::note_person(tx, id, row)?;
    tx.handle(On(id, commands::RetryJob { job, run, max }))
}

/// One more attempt of each of these jobs, or of none: what cannot be retried is told of all of
/// them.
pub fn retry_jobs(tx: &mut Tx<'_>, jobs: &[RetryOne]) -> Result<(), Failed> {
    let mut wanted: Vec<(WorkflowId, JobIx, RetryOne)> = Vec::with_capacity(jobs.len());
    let mut seen = HashSet::with_capacity(jobs.len());
    let mut refused = Vec::new();
    for one in jobs.iter().filter(|one| seen.insert(one.job_id)) {
        let (id, index) = locate(tx, one.job_id)?;
        match tx.workflow(id)?.may_retry(index, one.run_id, one.max_retries) {
            Ok(()) => wanted.push((id, index, *one)),
            Err(why) => refused.push((one.job_id, why)),
        }
    }
    if let Some((_, first)) = refused.first() {
        let mut reasons = Vec::with_capacity(refused.len());
        for (job, why) in &refused {
            let name = lookups::name_of(tx.db, *job)?;
            reasons.push(format!("`{name}`: {}", why.message));
        }
        let message = format!("nothing was retried; {}", reasons.join("; "));
        return Err(Refusal::conflict(first.code, message).maybe_hint(first.hint.clone()).into());
    }
    for (id, index, one) in wanted {
        super::outcomes::note_person(tx, id, one.job_id)?;
        let (run, max) = (one.run_id, one.max_retries);
        // One that depends on another of them may have been opened again with it.
        if tx.workflow(id)?.may_retry(index, run, max).is_ok() {
            tx.handle(On(id, commands::RetryJob { job: index, run, max }))?;
        }
    }
    Ok(())
}

/// Changes a job.
pub fn update_job(tx: &mut Tx<'_>, job: JobId, update: &UpdateJob) -> Result<(), Failed> {
    let (id, index) = locate(tx, job)?;
    let zeros = [
        ("memory", update.memory == Some(Memory(0))),
        ("runtime", update.runtime == Some(Runtime(0))),
        ("num_cpus", update.num_cpus == Some(0)),
    ];
    if let Some((field, _)) = zeros.iter().find(|(_, is_zero)| *is_zero) {
        return Err(Refusal::invalid(field, format!("`{field}` must be more than zero")).into());
    }
    if let Some(priority) = update.priority {
        names::check_priority(priority)?;
    }
    names::check_line("by", update.by.as_deref().unwrap_or_default())?;
    if let Some(status) = update.status {
        set_status(tx, id, index, status, update.reason.as_deref())?;
    }
    if let Some(held) = update.held {
        tx.handle(On(id, commands::HoldJob { job: index, held }))?;
    }
    if let Some(priority) = update.priority {
        let (why, by) = (update.reason.as_deref(), update.by.as_deref());
        tx.handle(On(id, commands::PrioritizeJob { job: index, priority, why, by }))?;
    }
    adjust_by_hand(tx, id, index, update)
}

/// Other limits for the job's next attempts, recorded like those of a recovery.
fn adjust_by_hand(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    update: &UpdateJob,
) -> Result<(), Failed> {
    let workflow = tx.workflow(id)?;
    let (job, attempt) = (workflow.job(index).id(), i64::from(workflow.job(index).attempt()));
    let now = workflow.next_class_of(index);
    let memory = update.memory.map(|m| Limit::new(Adjustable::Memory, now.memory, m.0));
    let runtime = update.runtime.map(|r| Limit::new(Adjustable::Runtime, now.runtime, r.0));
    let number = |field, had: u32, wanted: Option<u32>| {
        wanted.map(|wanted| Limit::new(field, Some(u64::from(had)), u64::from(wanted)))
    };
    let cpus = number(Adjustable::Cpus, now.cpus, update.num_cpus);
    let gpus = number(Adjustable::Gpus, now.gpus, update.num_gpus);
    let changes: Vec<Limit> = [memory, runtime, cpus, gpus]
        .into_iter()
        .flatten()
        .filter(|change| change.from != Some(change.to))
        .collect();
    let because = Because {
        attempt: attempt.max(1),
        why: update.reason.as_deref().unwrap_or("changed by hand"),
        by: update.by.as_deref().unwrap_or("a user"),
    };
    remedies::adjust(tx, id, job, &changes, because)
}

fn set_status(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    status: JobStatus,
    reason: Option<&str>,
) -> Result<(), Failed> {
    match status {
        JobStatus::Ready | JobStatus::Failed => {
            let retry = status == JobStatus::Ready;
            let job = tx.workflow(id)?.job(index).id();
            match super::classify::by_hand(
                tx,
                id,
                job,
                if retry { Verdict::Retry } else { Verdict::Fail },
                reason,
            )? {
                true => Ok(()),
                // It does not wait for a verdict; the engine says so in its own words.
                false => tx.handle(On(id, commands::ClassifyJob { job: index, retry })),
            }
        }
        JobStatus::Disabled => tx.handle(On(id, commands::DisableJob { job: index })),
        JobStatus::Canceled => tx.handle(On(id, commands::CancelJob { job: index })),
        JobStatus::Uninitialized if tx.workflow(id)?.job(index).status() == JobStatus::Disabled => {
            tx.handle(On(id, commands::EnableJob { job: index }))
        }
        JobStatus::Uninitialized => {
            let chosen = tx.workflow(id)?.plan_reset(&Seeds::Named(vec![index]))?;
            tx.handle(On(id, commands::Reset { chosen: &chosen }))
        }
        JobStatus::Blocked
        | JobStatus::Pending
        | JobStatus::Running
        | JobStatus::Completed
        | JobStatus::Terminated
        | JobStatus::PendingFailed => {
            let message = format!("a job's status cannot be set to `{status}`");
            Err(Refusal::invalid("status", message)
                .hint("`ready` or `failed` out of pending_failed, `disabled`, `canceled` or `uninitialized`")
                .into())
        }
    }
}

/// Sets a piece of user data.
pub fn update_user_data(tx: &mut Tx<'_>, row: i64, data: &serde_json::Value) -> Result<(), Failed> {
    let text = (!data.is_null()).then(|| data.to_string());
    match journal::set_user_data(tx.db, row, text.as_deref())? {
        true => Ok(()),
        false => Err(Refusal::not_found("user data", row).into()),
    }
}

fn check_rules(name: &str, text: &str) -> Result<(), Failed> {
    let rules: Vec<Rule> = torc_model::json::from_text(text)
        .map_err(|e| Refusal::invalid("rules", format!("not a list of rules: {e}")))?;
    CompiledHandler::new(name, &rules).map_err(|e| Refusal::invalid("rules", e.to_string()))?;
    Ok(())
}

/// Drops the engine's copy of a workflow whose rows were changed behind its back.
pub fn reload(tx: &mut Tx<'_>, id: WorkflowId) {
    tx.state.engine.unload(id);
}

/// A new failure handler.
pub fn create_handler(tx: &mut Tx<'_>, new: &CreateFailureHandler) -> Result<i64, Failed> {
    tx.workflow(new.workflow_id)?;
    names::check_name("name", &new.name)?;
    check_rules(&new.name, &new.rules)?;
    refuse_taken(tx, new.workflow_id, &new.name, None)?;
    let row = journal::put_handler(tx.db, new.workflow_id, &new.name, &new.rules)?;
    reload(tx, new.workflow_id);
    Ok(row)
}

fn refuse_taken(
    tx: &Tx<'_>,
    id: WorkflowId,
    name: &str,
    except: Option<i64>,
) -> Result<(), Failed> {
    let taken = definitions::find_handler(tx.db, id, name)?;
    match taken.filter(|(row, _)| Some(*row) != except) {
        Some((other, _)) => Err(Refusal::conflict(
            ErrorCode::NameTaken,
            format!("failure handler {other} is already called `{name}`"),
        )
        .into()),
        None => Ok(()),
    }
}

/// Changes a failure handler; failures from now on see the new rules.
pub fn update_handler(
    tx: &mut Tx<'_>,
    row: i64,
    update: &UpdateFailureHandler,
) -> Result<(), Failed> {
    let (id, name) = handler_row(tx, row)?;
    if let Some(rules) = &update.rules {
        check_rules(update.name.as_deref().unwrap_or(&name), rules)?;
    }
    if let Some(name) = &update.name {
        names::check_name("name", name)?;
        refuse_taken(tx, id, name, Some(row))?;
    }
    journal::update_handler(tx.db, row, update.name.as_deref(), update.rules.as_deref())?;
    reload(tx, id);
    Ok(())
}

/// Deletes a failure handler; its jobs have none then.
pub fn delete_handler(tx: &mut Tx<'_>, row: i64) -> Result<(), Failed> {
    let (id, _) = handler_row(tx, row)?;
    let default = tx.workflow(id)?.settings.default_failure_handler.is_some();
    if default {
        return Err(Refusal::conflict(
            ErrorCode::DefaultHandler,
            "the workflow has a default failure handler; its list cannot shrink",
        )
        .into());
    }
    journal::delete_handler(tx.db, row)?;
    reload(tx, id);
    Ok(())
}

fn handler_row(tx: &Tx<'_>, row: i64) -> Result<(WorkflowId, String), Failed> {
    let found = definitions::handler(tx.db, row)?;
    found.ok_or_else(|| Refusal::not_found("failure handler", row).into())
}
