//! Rows of runners and pool runners. What becomes of runners are `Change`s.

use super::super::read::page;
use super::json;
use super::load::parse;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use torc_model::api::{Capacity, RegisterPoolRunner, RunnerScheduler};
use torc_model::ids::{PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::{RunnerKind, RunnerOrder};

/// A new runner, or one that has been.
#[derive(Clone, Default)]
pub struct RunnerRow<'a> {
    /// What it registers with, as it is stored.
    pub key: &'a str,
    pub host: &'a str,
    /// The boot of the host, and perhaps its pid namespace.
    pub boot_id: &'a str,
    /// Its process, and when that started by the clock of its host.
    pub process: (i64, i64),
    /// What kind of runner; None: it stands for an unknown one.
    pub kind: Option<RunnerKind>,
    pub label: Option<&'a str>,
    /// What it has.
    pub capacity: Capacity,
    /// Where its files are.
    pub output_dir: &'a str,
    /// When it came.
    pub started: i64,
    /// When it was last heard.
    pub last_seen: i64,
    /// It must stop at this time.
    pub stop_by: Option<i64>,
    /// Where it lives in a batch system.
    pub scheduler: Option<&'a RunnerScheduler>,
    /// Seconds of silence after which it is given up.
    pub disown: Option<i64>,
    /// The pool runner that started it.
    pub pool: Option<PoolRunnerId>,
    /// When it ended, and why.
    pub end: Option<(i64, &'a str)>,
}

/// Writes one.
pub fn insert_runner(
    db: &Connection,
    workflow: WorkflowId,
    runner: &RunnerRow<'_>,
) -> rusqlite::Result<RunnerId> {
    let none = RunnerScheduler::default();
    let scheduler = runner.scheduler.unwrap_or(&none);
    let (ended, why) = runner.end.unzip();
    db.prepare_cached(
        "INSERT INTO compute_node (workflow_id, register_key, hostname, boot_id, pid, pid_start, kind, label,
         capacity, output_dir, started_ms, last_seen_ms, stop_by_ms, allocation_id, scheduler_config_id, slurm_job_id,
         node, node_name, disown_seconds, pool_runner_id, ended_ms, end_reason, restarts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
    )?
    .insert(params![
        workflow.0,
        runner.key,
        runner.host,
        runner.boot_id,
        runner.process.0,
        runner.process.1,
        runner.kind.unwrap_or(RunnerKind::Recovery).as_str(),
        runner.label,
        json(Some(&runner.capacity))?,
        runner.output_dir,
        runner.started,
        runner.last_seen,
        runner.stop_by,
        scheduler.allocation_id,
        scheduler.scheduler_config_id,
        scheduler.slurm_job_id,
        scheduler.node,
        scheduler.node_name,
        runner.disown,
        runner.pool.map(|pool| pool.0),
        ended,
        why,
        scheduler.restarts,
    ])
    .map(RunnerId)
}

/// Writes a pool runner that introduces itself, perhaps again; None: another user's has its key.
pub fn insert_pool_runner(
    db: &Connection,
    key: &str,
    user: Option<&str>,
    request: &RegisterPoolRunner,
    now: i64,
) -> rusqlite::Result<Option<PoolRunnerId>> {
    db.prepare_cached(
        "INSERT INTO pool_runner (register_key, user, hostname, pid, capacity, label, started_ms, last_seen_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
         ON CONFLICT (register_key) DO UPDATE SET last_seen_ms = ?7, ended_ms = NULL, end_reason = NULL
         WHERE user IS ?2
         RETURNING id",
    )?
    .find(
        params![
            key,
            user,
            request.hostname,
            request.pid,
            json(Some(&request.capacity))?,
            request.label,
            now,
        ],
        |row| row.get(0).map(PoolRunnerId),
    )
}

/// A pool runner was heard.
pub fn pool_runner_seen(db: &Connection, id: PoolRunnerId, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE pool_runner SET last_seen_ms = ?2 WHERE id = ?1")?
        .execute([id.0, now])?;
    Ok(())
}

/// A pool runner has ended.
pub fn end_pool_runner(
    db: &Connection,
    id: PoolRunnerId,
    reason: &str,
    now: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE pool_runner SET ended_ms = ?2, end_reason = ?3 WHERE id = ?1 AND ended_ms IS NULL",
    )?
    .execute(params![id.0, now, reason])?;
    Ok(())
}

/// What a person asks of a pool runner; false: it is not there.
pub fn order_pool_runner(
    db: &Connection,
    id: PoolRunnerId,
    ordered: Option<RunnerOrder>,
) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached("UPDATE pool_runner SET ordered = ?2 WHERE id = ?1 AND ended_ms IS NULL")?
        .execute(params![id.0, ordered.map(RunnerOrder::as_str)])?;
    Ok(changed > 0)
}

/// The weight of a user's share of pool runners.
pub fn put_share(db: &Connection, user: &str, weight: f64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO user_share (user, weight) VALUES (?1, ?2) ON CONFLICT (user) DO UPDATE SET weight = ?2",
    )?
    .execute(params![user, weight])?;
    Ok(())
}

/// The runners that a workflow has had, with the directories of their output.
pub fn directories(
    db: &Connection,
    workflow: WorkflowId,
) -> rusqlite::Result<Vec<(RunnerId, String)>> {
    db.prepare_cached("SELECT id, output_dir FROM compute_node WHERE workflow_id = ?1")?
        .all([workflow.0], |row| Ok((RunnerId(row.get(0)?), row.get(1)?)))
}

/// The runner that registered with a key, as it is stored, and its workflow.
pub fn registered(db: &Connection, key: &str) -> rusqlite::Result<Option<(RunnerId, WorkflowId)>> {
    db.prepare_cached("SELECT id, workflow_id FROM compute_node WHERE register_key = ?1")?
        .find([key], |row| Ok((RunnerId(row.get(0)?), WorkflowId(row.get(1)?))))
}

/// There is such a runner, or there was one.
pub fn is_known(db: &Connection, id: RunnerId) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM compute_node WHERE id = ?1")?.exists([id.0])
}

/// A runner whose end is not written.
#[derive(Clone, Debug)]
pub struct UnendedRunner {
    pub id: RunnerId,
    pub workflow: WorkflowId,
    pub host: String,
    pub boot_id: String,
    pub pid: i64,
    pub pid_start: i64,
    /// After so many ms of silence it is given up; None: it was promised that silence never ends it.
    pub disown: Option<i64>,
    /// It lives in an allocation of a batch system, which knows better why it ended.
    pub in_allocation: bool,
    /// Where its logs are, and what it kept for a server that did not answer.
    pub output_dir: String,
}

/// Runners whose end is not written, of one workflow or of all.
pub fn unended(db: &Connection, scope: Option<WorkflowId>) -> rusqlite::Result<Vec<UnendedRunner>> {
    db.prepare_cached(
        "SELECT id, workflow_id, hostname, boot_id, pid, pid_start, disown_seconds, allocation_id IS NOT NULL, output_dir
         FROM compute_node WHERE ended_ms IS NULL AND (?1 IS NULL OR workflow_id = ?1) ORDER BY id",
    )?
    .all([scope.map(|id| id.0)], |row| {
        Ok(UnendedRunner {
            id: RunnerId(row.get(0)?),
            workflow: WorkflowId(row.get(1)?),
            host: row.get(2)?,
            boot_id: row.get(3)?,
            pid: row.get(4)?,
            pid_start: row.get(5)?,
            disown: row.get::<_, Option<i64>>(6)?.map(|seconds| seconds.saturating_mul(1000)),
            in_allocation: row.get(7)?,
            output_dir: row.get(8)?,
        })
    })
}

/// Hosts and capacities of the runners that a workflow has had, the newest first: all, or those in allocations of a
/// scheduler.
pub fn capacities(
    db: &Connection,
    workflow: WorkflowId,
    scheduler: Option<i64>,
    most: i64,
) -> rusqlite::Result<Vec<(String, Capacity)>> {
    db.prepare_cached(
        "SELECT hostname, capacity FROM compute_node WHERE workflow_id = ?1 AND kind <> 'recovery'
         AND (?2 IS NULL OR scheduler_config_id = ?2) ORDER BY id DESC LIMIT ?3",
    )?
    .all(params![workflow.0, scheduler, most], |row| {
        Ok((row.get(0)?, parse(&row.get::<_, String>(1)?)?))
    })
}

/// Kinds and capacities of the runners that a workflow has had.
pub fn kinds(
    db: &Connection,
    workflow: WorkflowId,
) -> rusqlite::Result<Vec<(RunnerKind, Capacity)>> {
    let mut statement =
        db.prepare_cached("SELECT kind, capacity FROM compute_node WHERE workflow_id = ?1")?;
    let rows = statement.query_map([workflow.0], |row| {
        let kind = page::word(row, "kind", RunnerKind::parse)?;
        Ok((kind, parse(&row.get::<_, String>(1)?)?))
    })?;
    rows.collect()
}

/// A pool runner, as its row has it.
pub struct PoolRunnerRow {
    /// Whose token it has; None: that of the server's owner.
    pub user: Option<String>,
    pub host: String,
    /// What it has.
    pub capacity: Capacity,
    pub label: Option<String>,
    /// What a person asked of it.
    pub ordered: Option<RunnerOrder>,
    /// It has left.
    pub has_ended: bool,
}

/// One pool runner, also one that has left.
pub fn pool_runner(db: &Connection, id: PoolRunnerId) -> rusqlite::Result<Option<PoolRunnerRow>> {
    db.prepare_cached(
        "SELECT user, hostname, capacity, label, ordered, ended_ms IS NOT NULL FROM pool_runner WHERE id = ?1",
    )?
    .find([id.0], |row| {
        Ok(PoolRunnerRow {
            user: row.get(0)?,
            host: row.get(1)?,
            capacity: parse(&row.get::<_, String>(2)?)?,
            label: row.get(3)?,
            ordered: row.get::<_, Option<String>>(4)?.as_deref().and_then(RunnerOrder::parse),
            has_ended: row.get(5)?,
        })
    })
}

/// Pool runners that have not left.
pub fn live_pool_runners(db: &Connection) -> rusqlite::Result<Vec<PoolRunnerId>> {
    db.prepare_cached("SELECT id FROM pool_runner WHERE ended_ms IS NULL")?
        .all([], |row| row.get(0).map(PoolRunnerId))
}

/// The weights of users' shares of pool runners that were set.
pub fn shares(db: &Connection) -> rusqlite::Result<HashMap<String, f64>> {
    db.prepare_cached("SELECT user, weight FROM user_share")?
        .all([], |row| Ok((row.get(0)?, row.get(1)?)))
}
