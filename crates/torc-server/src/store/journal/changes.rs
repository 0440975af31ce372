//! Changes of the engine as rows. The only place that writes a status.

use super::allocations;
use super::jobs::JobStatements;
use super::limits::{reservation, write_limit};
use super::workflows::delete_workflow;
use crate::store::lookups;
use rusqlite::{Connection, params};
use serde::Serialize;
use torc_engine::{
    Adjustment, Change, End, FamilyTime, NewAttempt, NewItem, NotedAdjustment, RunnerChange,
};
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::status::{
    ActionState, Afterwards, EndDetail, JobStatus, RunnerOrder, StatusReason,
};
use torc_model::units::Runtime;

/// Who waits at the server and should look again, and what else the writer should know.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WakesAfter {
    /// There may be work, unless the runner that made it ready took it in the same transaction.
    pub work: bool,
    /// Something else to hear of: an order, an action, the end.
    pub news: bool,
    /// Something that is shown with the progress besides the jobs' statuses: the workflow's row,
    /// mended steps.
    pub special: bool,
    /// The latest end of an attempt.
    pub last_end: Option<i64>,
}

/// Writes the changes in order. Tells whether waiting claims should look again.
pub fn write(
    db: &Connection,
    workflow: WorkflowId,
    changes: Vec<Change>,
    now: i64,
    next_event: &mut i64,
    events: &mut Vec<EventView>,
) -> rusqlite::Result<WakesAfter> {
    let mut wakes = WakesAfter::default();
    for change in changes {
        match change {
            Change::Limit(_) | Change::Reservation(_) | Change::JobIdsTaken(_) => {
                shared(db, change, now)?;
            }
            Change::Allocation(id, life) => allocations::write(db, id, &life)?,
            Change::WorkflowDeleted => delete_workflow(db, workflow)?,
            Change::Job { id, status, reason, tries, own_ms } => {
                db.prepare_cached(
                    "UPDATE job SET status = ?2, status_reason = ?3, attempt_id = ?4, lost_retries = ?5, refunds = ?6,
                        attempt_run = ?7, estimate_ms = ?8, attempts_before = ?9 WHERE id = ?1",
                )?
                .execute(params![
                    id.0,
                    status.code(),
                    reason.map(StatusReason::as_str),
                    tries.number,
                    tries.lost,
                    tries.refunds,
                    tries.run,
                    own_ms,
                    tries.before
                ])?;
                wakes.work |= status == JobStatus::Ready;
            }
            Change::Times { typical_ms, families } => {
                db.prepare_cached("UPDATE workflow SET typical_ms = ?2 WHERE id = ?1")?
                    .execute(params![workflow.0, typical_ms])?;
                family_times(db, workflow, families.into_iter())?;
            }
            Change::MapExpanded(id, is_expanded) => {
                db.prepare_cached("UPDATE job SET is_expanded = ?2 WHERE id = ?1")?
                    .execute(params![id.0, is_expanded])?;
            }
            Change::ItemGone(id, is_gone) => {
                db.prepare_cached("UPDATE job SET is_gone = ?2 WHERE id = ?1")?
                    .execute(params![id.0, is_gone])?;
            }
            Change::ItemsAdded { map, first, items } => {
                add_items(db, workflow, map, first, &items)?;
            }
            Change::ItemChanged(id, extra) => {
                lookups::set_extra(db, id, extra.as_deref())?;
            }
            Change::JobAdjusted(id, by) => adjust(db, id, by)?,
            Change::AdjustmentNoted(noted) => adjustment(db, workflow, &noted, now)?,
            Change::JobScheduler(id, scheduler) => {
                db.prepare_cached("UPDATE job SET scheduler_id = ?2 WHERE id = ?1")?
                    .execute([id.0, scheduler])?;
            }
            Change::JobWaitsFor(id, jobs) => {
                let mut statements = JobStatements::new(db)?;
                for job in jobs {
                    statements.depend.execute([workflow.0, id.0, job.0])?;
                }
            }
            Change::JobHeld(id, held) => {
                db.prepare_cached("UPDATE job SET held = ?2 WHERE id = ?1")?
                    .execute(params![id.0, held])?;
                wakes.work |= !held;
            }
            Change::JobAfterwards(id, then) => {
                db.prepare_cached("UPDATE job SET afterwards = ?2 WHERE id = ?1")?
                    .execute(params![id.0, then.map(Afterwards::as_str)])?;
            }
            Change::AttemptQueued(new) => queue(db, workflow, &new)?,
            Change::AttemptClaimed { id, runner, token, key, at, memory, time_limit } => {
                db.prepare_cached(
                    "UPDATE attempt SET state = 'claimed', compute_node_id = ?2, token = ?3, claim_key = ?4,
                     claimed_ms = ?5, memory_bytes = ?6, time_limit_seconds = ?7 WHERE id = ?1",
                )?
                .execute(params![
                    id.0,
                    runner.0,
                    token,
                    key,
                    at,
                    signed(memory),
                    signed(time_limit)
                ])?;
            }
            Change::AttemptStarted { id, pid, at } => {
                db.prepare_cached(
                    "UPDATE attempt SET state = 'running', started_ms = ?2, pid = ?3 WHERE id = ?1",
                )?
                .execute(params![id.0, at, pid])?;
            }
            Change::AttemptCancelRequested(id) => {
                db.prepare_cached("UPDATE attempt SET cancel_requested = 1 WHERE id = ?1")?
                    .execute([id.0])?;
                wakes.news = true;
            }
            Change::AttemptDelayed { id, not_before } => {
                db.prepare_cached("UPDATE attempt SET not_before_ms = ?2 WHERE id = ?1")?
                    .execute(params![id.0, not_before])?;
                wakes.work = true;
            }
            Change::AttemptEnded(id, end) => {
                self::end(db, id, &end)?;
                wakes.last_end = wakes.last_end.max(Some(end.at));
                wakes.special |= end.steps.is_some();
            }
            Change::AttemptRefunded(id) => {
                db.prepare_cached(
                    "INSERT OR IGNORE INTO refunded_attempt (attempt_id) VALUES (?1)",
                )?
                .execute([id.0])?;
            }
            Change::AttemptExplained { id, cause, evidence } => {
                db.prepare_cached("UPDATE attempt SET cause = ?2, evidence = ?3 WHERE id = ?1")?
                    .execute(params![id.0, cause.as_str(), json(Some(&evidence))?])?;
            }
            Change::AttemptSteps(id, count) => {
                db.prepare_cached("UPDATE attempt SET step_events = ?2 WHERE id = ?1")?
                    .execute(params![id.0, signed(Some(count))])?;
            }
            Change::Captured(job, values) => {
                let mut update = db.prepare_cached(
                    "UPDATE user_data SET data = ?3 WHERE name = ?2 AND id IN
                     (SELECT item_id FROM job_item WHERE job_id = ?1 AND kind = 'output_user_data')",
                )?;
                for (name, value) in values {
                    update.execute(params![job.0, name, value.to_string()])?;
                }
            }
            Change::Runner(id, change) => runner(db, id, change, now)?,
            Change::Event { kind, job, data } => {
                debug_assert_eq!(kind.unknown_field(&data), None, "a field of {kind} events");
                let text = data.to_string();
                let id = *next_event;
                *next_event += 1;
                event(db, workflow, id, now, (kind, job, &text))?;
                events.push(EventView {
                    id,
                    workflow_id: workflow,
                    timestamp_ms: now,
                    kind,
                    job_id: job,
                    job_name: None,
                    data,
                });
            }
            Change::Action { id, state, by, error } => {
                let executed =
                    matches!(state, ActionState::Executed | ActionState::Failed).then_some(now);
                db.prepare_cached(
                    "UPDATE workflow_action SET state = ?2, executed_by = ?3, executed_ms = ?4, error = ?5 WHERE id = ?1",
                )?
                .execute(params![id.0, state.as_str(), by.map(|r| r.0), executed, error])?;
                wakes.news |= state == ActionState::Triggered;
            }
            Change::RecoveryActionsGone => {
                db.prepare_cached(
                    "DELETE FROM workflow_action WHERE workflow_id = ?1 AND is_recovery = 1",
                )?
                .execute([workflow.0])?;
            }
            Change::Settings(settings) => {
                db.prepare_cached("UPDATE workflow SET settings = ?2 WHERE id = ?1")?
                    .execute(params![workflow.0, json(Some(&*settings))?])?;
                wakes.special = true;
            }
            Change::Workflow { run, canceled, complete, started } => {
                db.prepare_cached(
                    "UPDATE workflow SET run_id = ?2, is_canceled = ?3, is_complete = ?4,
                     run_started_ms = iif(?5, ?6, run_started_ms) WHERE id = ?1",
                )?
                .execute(params![workflow.0, run, canceled, complete, started, now])?;
                wakes.news |= complete || canceled;
                wakes.special = true;
            }
        }
    }
    Ok(wakes)
}

/// Writes changes that are of no workflow.
pub fn write_shared(db: &Connection, changes: Vec<Change>, now: i64) -> rusqlite::Result<()> {
    changes.into_iter().try_for_each(|change| shared(db, change, now))
}

fn shared(db: &Connection, change: Change, now: i64) -> rusqlite::Result<()> {
    match change {
        Change::Limit(change) => write_limit(db, change, now),
        Change::Reservation(change) => reservation(db, change),
        Change::JobIdsTaken(next) => remember(db, "next_job_id", next),
        of_workflow => Err(rusqlite::Error::ToSqlConversionFailure(
            format!("a change of no workflow: {of_workflow:?}").into(),
        )),
    }
}

/// Notes why a job has another limit.
pub fn adjustment(
    db: &Connection,
    workflow: WorkflowId,
    noted: &NotedAdjustment,
    at: i64,
) -> rusqlite::Result<()> {
    let NotedAdjustment { job, run, attempt, change, why, by } = noted;
    db.prepare_cached(
        "INSERT INTO adjustment (workflow_id, job_id, run_id, attempt_id, field, from_value, to_value, why,
         made_by, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        workflow.0,
        job.0,
        run,
        attempt,
        change.field.as_str(),
        change.from,
        change.to,
        why,
        by,
        at
    ])?;
    Ok(())
}

/// What happened to a runner, in its row.
fn runner(db: &Connection, id: RunnerId, change: RunnerChange, now: i64) -> rusqlite::Result<()> {
    match change {
        RunnerChange::Seen => db
            .prepare_cached("UPDATE compute_node SET last_seen_ms = ?2 WHERE id = ?1")?
            .execute([id.0, now])?,
        RunnerChange::Ended(reason) => db
            .prepare_cached(
                "UPDATE compute_node SET ended_ms = ?2, end_reason = ?3 WHERE id = ?1 AND ended_ms IS NULL",
            )?
            .execute(params![id.0, now, reason])?,
        RunnerChange::Ordered(ordered) => db
            .prepare_cached("UPDATE compute_node SET ordered = ?2 WHERE id = ?1")?
            .execute(params![id.0, ordered.map(RunnerOrder::as_str)])?,
        RunnerChange::Quarantine(quarantine) => {
            let (why, until) = quarantine.map(|kept| (kept.why, kept.until)).unzip();
            db.prepare_cached(
                "UPDATE compute_node SET quarantine = ?2, quarantine_until_ms = ?3 WHERE id = ?1",
            )?
            .execute(params![id.0, why, until])?
        }
    };
    Ok(())
}

/// Writes a new attempt.
pub fn queue(db: &Connection, workflow: WorkflowId, new: &NewAttempt) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, retry_of, created_ms,
         not_before_ms, recovery) VALUES (?1, ?2, ?3, ?4, ?5, 'queued', ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        new.id.0,
        workflow.0,
        new.job.0,
        new.run,
        new.number,
        new.origin.as_str(),
        new.retry_of.map(|a| a.0),
        new.at,
        new.not_before,
        json(new.recovery.as_ref())?,
    ])?;
    Ok(())
}

/// Inserts the rows of new items, each a copy of the map's row.
fn add_items(
    db: &Connection,
    workflow: WorkflowId,
    map: JobId,
    first: JobId,
    items: &[NewItem],
) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO job (id, workflow_id, name, command, invocation_script, steps, status, priority, position,
             resource_requirements_id, failure_handler_id, scheduler_id, cancel_on_blocking_job_failure, memory_bytes,
             runtime_seconds, num_cpus, num_gpus, extra, input_hash, family)
         SELECT ?1, workflow_id, ?3, '', NULL, NULL, ?5, priority, position, resource_requirements_id,
             failure_handler_id, scheduler_id, cancel_on_blocking_job_failure, memory_bytes, runtime_seconds, num_cpus,
             num_gpus, ?4, input_hash, family FROM job WHERE id = ?2",
    )?;
    let mut depend = db.prepare_cached(
        "INSERT INTO job_depends_on (workflow_id, job_id, depends_on_job_id) VALUES (?1, ?2, ?3)",
    )?;
    let mut copy = db.prepare_cached(
        "INSERT INTO job_item (job_id, kind, item_id) SELECT ?1, kind, item_id FROM job_item WHERE job_id = ?2",
    )?;
    let mut row = first.0;
    for item in items {
        let status = JobStatus::Uninitialized.code();
        insert.execute(params![row, map.0, item.name, item.extra, status])?;
        depend.execute([workflow.0, map.0, row])?;
        copy.execute([row, map.0])?;
        row += 1;
    }
    grow_count(db, workflow, items.len() as i64)?;
    remember(db, "next_job_id", row)
}

/// The workflow has so many jobs more, or less.
pub fn grow_count(db: &Connection, id: WorkflowId, count: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE workflow SET job_count = job_count + ?2 WHERE id = ?1")?
        .execute([id.0, count])?;
    Ok(())
}

/// A job's own limits, where it has others than its requirements say.
fn adjust(db: &Connection, job: JobId, by: Adjustment) -> rusqlite::Result<()> {
    let Adjustment { memory, runtime, timeout, cpus, gpus, priority } = by;
    if memory.is_some() || runtime.is_some() || priority.is_some() {
        db.prepare_cached(
            "UPDATE job SET memory_bytes = coalesce(?2, memory_bytes),
             runtime_seconds = coalesce(?3, runtime_seconds), priority = coalesce(?4, priority) WHERE id = ?1",
        )?
        .execute(params![job.0, signed(memory), signed(runtime), priority])?;
    }
    if cpus.is_some() || gpus.is_some() {
        db.prepare_cached(
            "UPDATE job SET num_cpus = coalesce(?2, num_cpus), num_gpus = coalesce(?3, num_gpus) WHERE id = ?1",
        )?
        .execute(params![job.0, cpus, gpus])?;
    }
    if let Some(seconds) = timeout {
        lookups::edit_extra(db, job, |extra| extra.timeout = Some(Runtime(seconds)))?;
    }
    Ok(())
}

/// Writes what families of jobs took.
pub fn family_times(
    db: &Connection,
    id: WorkflowId,
    families: impl Iterator<Item = (u32, FamilyTime)>,
) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached(
        "UPDATE family SET estimate_ms = ?3, estimate_run = ?4 WHERE workflow_id = ?1 AND number = ?2",
    )?;
    for (number, time) in families {
        update.execute(params![id.0, number, time.ms, time.run])?;
    }
    Ok(())
}

/// Writes an event.
pub fn event(
    db: &Connection,
    workflow: WorkflowId,
    id: i64,
    at: i64,
    event: (EventKind, Option<JobId>, &str),
) -> rusqlite::Result<()> {
    let (kind, job, data) = event;
    db.prepare_cached(
        "INSERT INTO event (workflow_id, id, timestamp_ms, kind, job_id, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![workflow.0, id, at, kind.as_str(), job.map(|j| j.0), data])?;
    Ok(())
}

fn end(db: &Connection, id: AttemptId, end: &End) -> rusqlite::Result<()> {
    let End { ending, usage, output, decision, .. } = end;
    let evidence = if ending.evidence.is_empty() { None } else { json(Some(&ending.evidence))? };
    db.prepare_cached(
        "UPDATE attempt SET state = ?2, ended_ms = ?3, started_ms = coalesce(started_ms, ?4), return_code = ?5,
         signal = ?6, cause = ?7, error = ?8, evidence = ?9, exec_seconds = ?10, cpu_seconds = ?11,
         peak_memory_bytes = ?12, avg_memory_bytes = ?13, peak_cpu_percent = ?14, avg_cpu_percent = ?15,
         stdout_path = ?16, stderr_path = ?17, stderr_tail = ?18, script = ?19, steps = ?20, outcome = ?21,
         decision = ?22, rule = ?23, stderr_tail_start = ?24, pid = coalesce(pid, ?25),
         ended_by = ?26, detail = ?27, observed = ?28 WHERE id = ?1",
    )?
    .execute(params![
        id.0,
        end.state.map(torc_model::status::AttemptState::as_str),
        end.at,
        end.started_at,
        ending.return_code,
        ending.signal,
        ending.cause.map(torc_model::status::Cause::as_str),
        ending.error,
        evidence,
        usage.exec_seconds,
        usage.cpu_seconds,
        usage.peak_memory_bytes,
        usage.avg_memory_bytes,
        usage.peak_cpu_percent,
        usage.avg_cpu_percent,
        output.stdout_path,
        output.stderr_path,
        output.stderr_tail,
        json(end.script.as_ref())?,
        end.steps.as_ref().map(ToString::to_string),
        decision.outcome.map(torc_model::status::Outcome::as_str),
        decision.text,
        decision.rule.map(|r| r as i64),
        output.stderr_tail_start,
        end.pid,
        end.by.as_str(),
        ending.detail.map(EndDetail::as_str),
        json(end.observed.as_ref())?,
    ])?;
    Ok(())
}

/// Keeps the next number of something whose highest rows may be deleted, so that no number is used
/// twice.
pub fn remember(db: &Connection, key: &str, next: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
    )?
    .execute(params![key, next.to_string()])?;
    Ok(())
}

/// SQLite's integers are signed; sizes and times that do not fit are refused when they are read,
/// long before.
pub fn signed(value: Option<u64>) -> Option<i64> {
    value.map(|v| i64::try_from(v).unwrap_or(i64::MAX))
}

/// A value as JSON text.
pub fn json<T: Serialize>(value: Option<&T>) -> rusqlite::Result<Option<String>> {
    value
        .map(|v| {
            serde_json::to_string(v)
                .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))
        })
        .transpose()
}
