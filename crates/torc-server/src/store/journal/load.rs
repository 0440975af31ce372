//! From rows back to the engine's state: at boot, on first use, and after a failed transaction.

use super::{definitions, meta};
use crate::store::read::page;
use crate::store::rows::Rows as _;
use crate::store::writer::State;
use rusqlite::{Connection, Row};
use std::collections::HashMap;
use torc_engine::{
    Class, CompiledHandler, EndedRow, Engine, FamilyTime, HandlerIx, Held, JobIx, JobRow,
    KnownRunner, Limits, LiveRow, Loaded, NewAction, NewJob, Quarantine, Reservation, Reservations,
    Rows, Runners, Scope, Tries, Workflow,
};
use torc_model::ids::{ActionId, AttemptId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::plan::{ActionKind, Execution, JobExtra, Rule, Settings};
use torc_model::status::{
    ActionState, Afterwards, AttemptState, JobStatus, Outcome, StatusReason, Trigger,
};

/// The id of the database; a new database gets one.
pub fn database_id(db: &Connection) -> rusqlite::Result<String> {
    if let Some(known) = meta::get(db, "database_id")? {
        return Ok(known);
    }
    let new = meta::random_text(db, 16)?;
    meta::set(db, "database_id", &new)?;
    Ok(new)
}

/// Names a runner's processes and files: unique among all servers.
pub fn runner_tag(database_id: &str, runner: RunnerId) -> String {
    let short = database_id.get(..12).unwrap_or(database_id);
    format!("{short}-{runner}")
}

/// What the writer must know before the first request: counters and live runners. Workflows come on
/// first use.
pub fn boot(db: &Connection) -> rusqlite::Result<State> {
    let next = |table: &str| -> rusqlite::Result<i64> {
        db.query_row(&format!("SELECT coalesce(max(id), 0) + 1 FROM {table}"), [], |row| row.get(0))
    };
    // What was the highest may be deleted by now.
    let stored = |key: &str| -> rusqlite::Result<i64> { Ok(meta::number(db, key)?.unwrap_or(1)) };
    // One search per workflow: events have no order among all of them.
    let next_event: i64 = db.query_row(
        "SELECT coalesce(max((SELECT max(e.id) FROM event e WHERE e.workflow_id = w.id)), 0) + 1 FROM workflow w",
        [],
        |row| row.get(0),
    )?;
    let mut runners = Runners::default();
    let mut statement = db.prepare(
        "SELECT id, workflow_id, hostname, capacity, stop_by_ms, scheduler_config_id, label, quarantine,
                quarantine_until_ms, pid, ordered, pool_runner_id
         FROM compute_node WHERE ended_ms IS NULL",
    )?;
    let rows = statement.query_map([], |row| {
        let capacity: String = row.get(3)?;
        let (id, host) = (WorkflowId(row.get(1)?), row.get(2)?);
        let quarantine = row.get::<_, Option<String>>(7)?.zip(row.get(8)?);
        let ordered: Option<String> = row.get(10)?;
        let runner = KnownRunner {
            stop_by: row.get(4)?,
            scheduler: row.get(5)?,
            label: row.get(6)?,
            pool: row.get::<_, Option<i64>>(11)?.map(PoolRunnerId),
            ..KnownRunner::new(id, host, row.get(9)?, parse(&capacity)?)
        }
        .restored(
            quarantine.map(|(why, until)| Quarantine { why, until }),
            ordered.as_deref().and_then(torc_model::status::RunnerOrder::parse),
        );
        Ok((RunnerId(row.get(0)?), runner))
    })?;
    for row in rows {
        let (id, runner) = row?;
        runners.insert(id, runner);
    }
    drop(statement);
    let mut engine = Engine::restored(Loaded {
        runners,
        limits: limits(db)?,
        reservations: reservations(db, next("reservation")?)?,
        next_attempt: next("attempt")?.max(stored("next_attempt_id")?),
        next_job: next("job")?.max(stored("next_job_id")?),
    });
    // Limits are counted over all workflows, so those that hold something must be known from the
    // start.
    let ids: Vec<i64> = db
        .prepare_cached("SELECT DISTINCT workflow_id FROM attempt WHERE ended_ms IS NULL")?
        .all([], |row| row.get(0))?;
    for id in ids {
        if let Some(workflow) = self::workflow(db, WorkflowId(id))? {
            engine.load(workflow);
        }
    }
    let (judged, remedied) = crate::store::outcomes::open(db)?;
    Ok(State {
        database_id: database_id(db)?,
        engine,
        next_event: next_event.max(stored("next_event_id")?),
        webhooks: crate::store::webhooks::load(db)?,
        judged,
        remedied,
        ..State::default()
    })
}

/// The active reservations. At boot recovery ends them all; after a failed commit they get what is left
/// of their time.
fn reservations(db: &Connection, next: i64) -> rusqlite::Result<Reservations> {
    let (now, uptime) = (crate::clock::now_ms(), crate::clock::boottime_ms());
    let mut statement = db.prepare_cached(
        "SELECT scope, id, reserved_by, expires_ms, token_hash FROM reservation WHERE status = 'ACTIVE'",
    )?;
    let active: Vec<_> = statement.all([], |row| {
        let expires: i64 = row.get(3)?;
        let left = (expires - now).clamp(0, crate::store::reservations::MAX_TTL_SECONDS * 1000);
        let reservation = Reservation {
            id: row.get(1)?,
            reserved_by: row.get(2)?,
            token_hash: row.get(4)?,
            until: uptime + left,
            expires,
        };
        Ok((page::word(row, "scope", Scope::parse)?, reservation))
    })?;
    Ok(Reservations::new(active, next))
}

/// The named limits, nothing used yet.
pub fn limits(db: &Connection) -> rusqlite::Result<Limits> {
    db.prepare_cached("SELECT name, max FROM named_limit")?.all([], |row| {
        Ok((row.get(0)?, torc_engine::LimitUse { max: row.get(1)?, ..Default::default() }))
    })
}

/// One workflow, as the engine sees it.
pub fn workflow(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<Workflow>> {
    let head = db
        .prepare_cached(
            "SELECT run_id, is_canceled, settings, typical_ms, is_complete FROM workflow WHERE id = ?1",
        )?
        .find([id.0], |row| {
            let head = (row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, String>(2)?);
            Ok((head, row.get::<_, Option<u32>>(3)?, row.get::<_, bool>(4)?))
        })?;
    let Some(((run, canceled, settings), typical_ms, is_complete)) = head else { return Ok(None) };
    let settings: Settings = parse(&settings)?;
    let (handlers, handler_index) = handlers(db, id)?;
    let default_handler = settings.default_failure_handler.map(HandlerIx::new);
    let jobs = jobs(db, id, &handler_index, default_handler, &settings.execution)?;
    let (live, ended) = (live(db, id)?, ended(db, id, run)?);
    let actions = actions(db, id, &jobs)?;
    let families = families(db, id)?;
    let ends = if is_complete { Vec::new() } else { ends(db, id, run)? };
    let rows = Rows {
        id,
        run,
        canceled,
        settings,
        handlers,
        jobs,
        live,
        ended,
        actions,
        typical_ms,
        families,
        ends,
    };
    let mut workflow = rows.restore();
    crate::store::map::restore(db, id, &mut workflow)?;
    Ok(Some(workflow))
}

fn families(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<FamilyTime>> {
    let mut statement = db.prepare_cached(
        "SELECT number, coalesce(estimate_ms, 0), coalesce(estimate_run, 0) FROM family WHERE workflow_id = ?1",
    )?;
    let mut families = Vec::new();
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let number: usize = row.get::<_, u32>(0)? as usize;
        if families.len() <= number {
            families.resize(number + 1, FamilyTime::default());
        }
        families[number] = FamilyTime { ms: row.get(1)?, run: row.get(2)? };
    }
    Ok(families)
}

/// How long the jobs took that succeeded in this run, with their families.
fn ends(db: &Connection, id: WorkflowId, run: i64) -> rusqlite::Result<Vec<(u32, u32)>> {
    let mut statement = db.prepare_cached(
        "SELECT j.family, a.exec_seconds FROM attempt a JOIN job j ON j.id = a.job_id
         WHERE a.workflow_id = ?1 AND a.ended_ms IS NOT NULL AND a.run_id = ?2 AND a.state = 'completed'
         AND a.exec_seconds IS NOT NULL",
    )?;
    let ms = |seconds: f64| (seconds * 1000.0).round() as u32;
    let rows = statement.query_map([id.0, run], |row| Ok((row.get(0)?, ms(row.get(1)?))))?;
    rows.collect()
}

pub type HandlerRows = (Vec<CompiledHandler>, HashMap<i64, HandlerIx>);

pub fn handlers(db: &Connection, id: WorkflowId) -> rusqlite::Result<HandlerRows> {
    let mut statement = db.prepare_cached(
        "SELECT id, name, rules FROM failure_handler WHERE workflow_id = ?1 ORDER BY id",
    )?;
    let rows = statement.query_map([id.0], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    let mut handlers = Vec::new();
    let mut index = HashMap::new();
    for row in rows {
        let (id, name, rules) = row?;
        let rules: Vec<Rule> = parse(&rules)?;
        let handler = CompiledHandler::new(&name, &rules).map_err(|e| corrupt(e.to_string()))?;
        index.insert(id, HandlerIx::new(handlers.len()));
        handlers.push(handler);
    }
    Ok((handlers, index))
}

fn jobs(
    db: &Connection,
    id: WorkflowId,
    handlers: &HashMap<i64, HandlerIx>,
    default_handler: Option<HandlerIx>,
    execution: &Execution,
) -> rusqlite::Result<Vec<JobRow>> {
    let ids = definitions::job_ids(db, id)?;
    let index_of = |job: i64| ids.binary_search(&job).ok().map(JobIx::new);
    let mut parents: Vec<Vec<JobIx>> = vec![Vec::new(); ids.len()];
    definitions::each_parent(db, id, |job, parent| {
        if let (Some(job), Some(parent)) = (index_of(job.0), index_of(parent.0)) {
            parents[job.at()].push(parent);
        }
    })?;
    let mut stored = Vec::with_capacity(ids.len());
    let mut statement = db.prepare_cached(
        "SELECT j.id, j.status, j.attempt_id, j.priority, j.position, j.failure_handler_id, j.scheduler_id,
                j.cancel_on_blocking_job_failure, j.held, j.lost_retries, j.refunds, j.extra, j.status_reason,
                coalesce(j.num_cpus, r.num_cpus, 1), coalesce(j.num_gpus, r.num_gpus, 0), coalesce(r.num_nodes, 1),
                coalesce(j.memory_bytes, r.memory_bytes), coalesce(j.runtime_seconds, r.runtime_seconds),
                j.afterwards, j.attempt_run, j.family, j.estimate_ms, j.attempts_before
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id
         WHERE j.workflow_id = ?1 ORDER BY j.id",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let extra: JobExtra = match row.get_ref(11)? {
            rusqlite::types::ValueRef::Null => JobExtra::default(),
            text => parse(text.as_str().map_err(|e| corrupt(e.to_string()))?)?,
        };
        let handler: Option<i64> = row.get(5)?;
        let status: i64 = row.get(1)?;
        let status =
            JobStatus::from_code(status).ok_or_else(|| corrupt(format!("job status {status}")))?;
        let reason: Option<String> = row.get(12)?;
        let job = NewJob {
            id: JobId(row.get(0)?),
            priority: row.get(3)?,
            position: row.get(4)?,
            family: row.get(20)?,
            own_ms: row.get(21)?,
            class: class(row, &extra, execution)?,
            handler: handler.and_then(|h| handlers.get(&h).copied()).or(default_handler),
            cancel_on_failure: row.get(7)?,
            max_lost: extra.max_lost(),
            parents: std::mem::take(&mut parents[stored.len()]),
        };
        stored.push(JobRow {
            job,
            status,
            tries: Tries {
                number: row.get(2)?,
                run: row.get(19)?,
                lost: row.get(9)?,
                refunds: row.get(10)?,
                before: row.get(22)?,
            },
            held_back: row.get(8)?,
            reason: reason.as_deref().and_then(StatusReason::parse),
            afterwards: match row.get_ref(18)? {
                rusqlite::types::ValueRef::Null => None,
                word => Afterwards::parse(word.as_str().map_err(|e| corrupt(e.to_string()))?),
            },
        });
    }
    Ok(stored)
}

fn class(row: &Row<'_>, extra: &JobExtra, execution: &Execution) -> rusqlite::Result<Class> {
    Ok(Class {
        cpus: row.get(13)?,
        gpus: row.get(14)?,
        nodes: row.get(15)?,
        memory: row.get::<_, Option<i64>>(16)?.map(|v| v as u64),
        runtime: row.get::<_, Option<i64>>(17)?.map(|v| v as u64),
        timeout: extra.timeout.map(|t| t.0),
        enforces_runtime: execution.enforces_runtime(extra),
        scheduler: row.get(6)?,
        label: extra.label.clone(),
        uses: extra.uses.clone(),
    })
}

fn live(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<LiveRow>> {
    let mut statement = db.prepare_cached(
        "SELECT id, job_id, attempt_id, state, not_before_ms, compute_node_id, token, claim_key,
                cancel_requested, claimed_ms, recovery, started_ms
         FROM attempt WHERE workflow_id = ?1 AND ended_ms IS NULL",
    )?;
    let mut rows = statement.query([id.0])?;
    let mut live = Vec::new();
    while let Some(row) = rows.next()? {
        let state: String = row.get(3)?;
        let state =
            AttemptState::parse(&state).ok_or_else(|| corrupt(format!("attempt state {state}")))?;
        let held = match state {
            AttemptState::Queued => None,
            _ => Some(Held {
                attempt: AttemptId(row.get(0)?),
                runner: RunnerId(row.get(5)?),
                token: row.get(6)?,
                key: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
                state,
                cancel_requested: row.get(8)?,
                claimed_at: row.get::<_, Option<i64>>(9)?.unwrap_or(0),
                started_at: row.get(11)?,
            }),
        };
        live.push(LiveRow {
            id: AttemptId(row.get(0)?),
            job: JobId(row.get(1)?),
            number: row.get(2)?,
            not_before: row.get(4)?,
            held,
            recovery: row.get::<_, Option<String>>(10)?.as_deref().map(parse).transpose()?,
        });
    }
    Ok(live)
}

/// Only ended attempts of this run matter for what follows: retries by rule, and which attempt was
/// the last.
fn ended(db: &Connection, id: WorkflowId, run: i64) -> rusqlite::Result<Vec<EndedRow>> {
    db.prepare_cached(
        "SELECT a.id, a.job_id, a.outcome,
            iif(EXISTS (SELECT 1 FROM refunded_attempt r WHERE r.attempt_id = a.id), NULL, a.rule),
            a.recovery, a.script IS NOT NULL AND a.detail IS NOT 'recovery_script', a.attempt_id
         FROM attempt a JOIN job j ON j.id = a.job_id
         WHERE a.workflow_id = ?1 AND a.run_id = ?2 AND a.state IN ('completed', 'failed', 'canceled', 'terminated')
         AND (j.status <> 5) ORDER BY a.id",
    )?
    .all([id.0, run], |row| {
        let has_run: bool = row.get(5)?;
        let script = row.get::<_, Option<String>>(4)?.filter(|_| !has_run);
        Ok(EndedRow {
            id: AttemptId(row.get(0)?),
            job: JobId(row.get(1)?),
            number: row.get(6)?,
            outcome: row.get::<_, Option<String>>(2)?.as_deref().and_then(Outcome::parse),
            rule: row.get::<_, Option<i64>>(3)?.map(|rule| rule as usize),
            script: script.as_deref().map(parse).transpose()?.map(Box::new),
        })
    })
}

fn actions(db: &Connection, id: WorkflowId, jobs: &[JobRow]) -> rusqlite::Result<Vec<NewAction>> {
    let index_of =
        |job: JobId| jobs.binary_search_by_key(&job, |row| row.job.id).ok().map(JobIx::new);
    let mut actions = Vec::new();
    let mut statement = db.prepare_cached(
        "SELECT id, trigger_type, what, job_ids, persistent, is_recovery, state, executed_by
         FROM workflow_action WHERE workflow_id = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let (trigger, what, jobs): (String, String, String) =
            (row.get(1)?, row.get(2)?, row.get(3)?);
        let state: String = row.get(6)?;
        let what: ActionKind = parse(&what)?;
        let jobs: Vec<JobId> = parse(&jobs)?;
        actions.push(NewAction {
            id: ActionId(row.get(0)?),
            trigger: Trigger::parse(&trigger)
                .ok_or_else(|| corrupt(format!("trigger {trigger}")))?,
            jobs: jobs.into_iter().filter_map(index_of).collect(),
            persistent: row.get(4)?,
            is_recovery: row.get(5)?,
            schedules_nodes: matches!(what, ActionKind::ScheduleNodes { .. }),
            state: ActionState::parse(&state)
                .ok_or_else(|| corrupt(format!("action state {state}")))?,
            by: row.get::<_, Option<i64>>(7)?.map(RunnerId),
        });
    }
    Ok(actions)
}

/// JSON out of the database.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    torc_model::json::from_text(text).map_err(|e| corrupt(e.to_string()))
}

fn corrupt(message: String) -> rusqlite::Error {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidData, message);
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
}
