//! Rows of allocations. What happens to an allocation is decided by the engine
//! ([`StepAllocation`]); this reads its row and writes it. No other module writes where an allocation
//! stands.

use super::load::parse;
use crate::store::writer::{Failed, Tx};
use rusqlite::{Connection, OptionalExtension, Row, params};
use torc_engine::commands::StepAllocation;
use torc_engine::{AllocationEvent, AllocationLife, AllocationWord, Submission};
use torc_model::ids::{ActionId, JobId, RunnerId, WorkflowId};
use torc_model::plan::{Settings, SlurmScheduler};
use torc_model::slurm::wire::{AllocationView, ScheduleNodes};
use torc_model::status::{AllocationEnd, AllocationStatus, Cause};

/// An allocation as clients see it.
pub const COLUMNS: &str = "SELECT n.id, n.workflow_id, n.run_id, n.scheduler_id, s.name, n.name, n.array_task, n.status,
    n.slurm_job_id, n.state, n.reason, n.cause, n.action_id, n.start_one_worker_per_node, n.max_parallel_jobs, n.created_ms,
    n.submitted_ms, n.started_ms, n.ended_ms, n.missing_since_ms, n.unneeded_since_ms, n.was_too_short,
    (SELECT count(*) FROM compute_node c WHERE c.workflow_id = n.workflow_id AND c.ended_ms IS NULL
     AND c.allocation_id = n.id), n.ended_as, n.expected_start_ms, n.moves
    FROM scheduled_compute_node n JOIN slurm_scheduler s ON s.id = n.scheduler_id";

pub fn view(row: &Row<'_>) -> rusqlite::Result<AllocationView> {
    Ok(AllocationView {
        id: row.get(0)?,
        workflow_id: WorkflowId(row.get(1)?),
        run_id: row.get(2)?,
        scheduler_id: row.get(3)?,
        scheduler: row.get(4)?,
        name: row.get(5)?,
        array_task: row.get(6)?,
        status: status(row, 7)?,
        slurm_job_id: row.get(8)?,
        state: row.get(9)?,
        reason: row.get(10)?,
        why: row.get::<_, Option<String>>(10)?.as_deref().map(torc_model::slurm::reason::text),
        cause: cause(row, 11)?,
        action_id: row.get::<_, Option<i64>>(12)?.map(ActionId),
        start_one_worker_per_node: row.get(13)?,
        max_parallel_jobs: row.get(14)?,
        created_ms: row.get(15)?,
        submitted_ms: row.get(16)?,
        started_ms: row.get(17)?,
        ended_ms: row.get(18)?,
        missing_since_ms: row.get(19)?,
        unneeded_since_ms: row.get(20)?,
        was_too_short: row.get(21)?,
        runners: row.get(22)?,
        expected_start_ms: row.get(24)?,
        ended_as: ended_as(row, 23)?,
        moves: row.get(25)?,
    })
}

fn status(row: &Row<'_>, at: usize) -> rusqlite::Result<AllocationStatus> {
    // The table's CHECK allows nothing else.
    Ok(AllocationStatus::parse(&row.get::<_, String>(at)?).unwrap_or(AllocationStatus::Complete))
}

fn cause(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Cause>> {
    Ok(row.get::<_, Option<String>>(at)?.as_deref().and_then(Cause::parse))
}

fn ended_as(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<AllocationEnd>> {
    Ok(row.get::<_, Option<String>>(at)?.as_deref().and_then(AllocationEnd::parse))
}

pub fn find(tx: &Tx<'_>, id: i64) -> Result<Option<AllocationView>, Failed> {
    Ok(tx
        .db
        .prepare_cached(&format!("{COLUMNS} WHERE n.id = ?1"))?
        .query_row([id], view)
        .optional()?)
}

/// Allocations to ask for.
pub struct PlannedAllocations<'a> {
    /// The workflow and its run.
    pub of: (WorkflowId, i64),
    /// The scheduler, and the name that the batch system will know them by.
    pub scheduler: (i64, &'a str),
    /// The action that asks for them.
    pub action: Option<ActionId>,
    /// The request.
    pub request: &'a ScheduleNodes,
}

/// Writes allocations that wait to be sent, as many as the request says.
pub fn plan(db: &Connection, new: &PlannedAllocations<'_>, now: i64) -> rusqlite::Result<()> {
    let PlannedAllocations { of: (id, run), scheduler: (scheduler, name), action, request } = *new;
    let mut statement = db.prepare_cached(
        "INSERT INTO scheduled_compute_node (workflow_id, run_id, scheduler_id, request_key, name, array_task, action_id,
         start_one_worker_per_node, max_parallel_jobs, status, created_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    for task in 0..request.count {
        statement.insert(params![
            id.0,
            run,
            scheduler,
            request.key,
            name,
            (request.count > 1).then_some(task),
            action.map(|a| a.0),
            request.start_one_worker_per_node,
            request.max_parallel_jobs,
            AllocationStatus::Planned.as_str(),
            now,
        ])?;
    }
    Ok(())
}

/// What the engine keeps of an allocation.
const LIFE: &str = "SELECT id, status, array_task, submitter, submit_until_ms, slurm_job_id, state, reason, cause,
    submitted_ms, expected_start_ms, started_ms, ended_ms, ended_as, missing_since_ms, unneeded_since_ms, was_too_short,
    restarts, moves
    FROM scheduled_compute_node";

fn life(row: &Row<'_>) -> rusqlite::Result<(i64, AllocationLife)> {
    let (submitter, until): (Option<String>, Option<i64>) = (row.get(3)?, row.get(4)?);
    let life = AllocationLife {
        status: status(row, 1)?,
        array_task: row.get(2)?,
        submission: submitter.zip(until).map(|(by, until)| Submission { by, until }),
        job: row.get(5)?,
        word: AllocationWord { state: row.get(6)?, reason: row.get(7)?, cause: cause(row, 8)? },
        submitted_at: row.get(9)?,
        expected_start: row.get(10)?,
        started_at: row.get(11)?,
        end: row.get::<_, Option<i64>>(12)?.zip(ended_as(row, 13)?),
        missing_since: row.get(14)?,
        unneeded_since: row.get(15)?,
        was_too_short: row.get(16)?,
        restarts: row.get(17)?,
        moves: row.get(18)?,
    };
    Ok((row.get(0)?, life))
}

pub fn write(db: &Connection, id: i64, life: &AllocationLife) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached(
        "UPDATE scheduled_compute_node SET status = ?2, submitter = ?3, submit_until_ms = ?4, slurm_job_id = ?5,
         state = ?6, reason = ?7, cause = ?8, submitted_ms = ?9, expected_start_ms = ?10, started_ms = ?11, ended_ms = ?12,
         ended_as = ?13, missing_since_ms = ?14, unneeded_since_ms = ?15, was_too_short = ?16, restarts = ?17,
         moves = ?18 WHERE id = ?1",
    )?;
    update.execute(params![
        id,
        life.status.as_str(),
        life.submission.as_ref().map(|submission| &submission.by),
        life.submission.as_ref().map(|submission| submission.until),
        life.job,
        life.word.state,
        life.word.reason,
        life.word.cause.map(Cause::as_str),
        life.submitted_at,
        life.expected_start,
        life.started_at,
        life.end.map(|(at, _)| at),
        life.end.map(|(_, ended_as)| ended_as.as_str()),
        life.missing_since,
        life.unneeded_since,
        life.was_too_short,
        life.restarts,
        life.moves,
    ])?;
    Ok(())
}

/// What the engine keeps of an allocation.
pub fn life_of(tx: &Tx<'_>, id: i64) -> Result<Option<AllocationLife>, Failed> {
    let sql = format!("{LIFE} WHERE id = ?1");
    let found = tx.db.prepare_cached(&sql)?.query_row([id], life).optional()?;
    Ok(found.map(|(_, life)| life))
}

/// Lets an event happen to all allocations of a workflow that the batch system knows by one name, as
/// far as it can happen to them.
pub fn step_named(
    tx: &mut Tx<'_>,
    workflow: WorkflowId,
    name: &str,
    event: &AllocationEvent,
) -> Result<(), Failed> {
    let sql = format!("{LIFE} WHERE name = ?1 AND workflow_id = ?2 ORDER BY id");
    let mut statement = tx.db.prepare_cached(&sql)?;
    let found = statement.query_map(params![name, workflow.0], life)?;
    let found = found.collect::<Result<Vec<_>, _>>()?;
    drop(statement);
    for (id, life) in found {
        let event = event.clone();
        tx.handle(StepAllocation { workflow, id, life, event })?;
    }
    Ok(())
}

/// A runner in an allocation.
pub struct RunnerIn {
    pub id: RunnerId,
    /// On which node of the allocation it is.
    pub node: Option<i64>,
    pub output_dir: String,
}

/// Runners in an allocation that have not ended.
pub fn runners_of(db: &Connection, allocation: &AllocationView) -> rusqlite::Result<Vec<RunnerIn>> {
    let mut statement = db.prepare_cached(
        "SELECT id, node, output_dir FROM compute_node
         WHERE workflow_id = ?1 AND ended_ms IS NULL AND allocation_id = ?2",
    )?;
    let rows = statement.query_map([allocation.workflow_id.0, allocation.id], |row| {
        Ok(RunnerIn { id: RunnerId(row.get(0)?), node: row.get(1)?, output_dir: row.get(2)? })
    })?;
    rows.collect()
}

/// The allocation that a runner lives in.
pub fn of_runner(db: &Connection, runner: RunnerId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT allocation_id FROM compute_node WHERE id = ?1")?
        .query_row([runner.0], |row| row.get(0))
        .optional()
        .map(Option::flatten)
}

/// Some job ran in an allocation.
pub fn did_work(db: &Connection, allocation: &AllocationView) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM compute_node c JOIN attempt a ON a.compute_node_id = c.id
               WHERE c.workflow_id = ?1 AND c.allocation_id = ?2";
    db.prepare_cached(sql)?.exists([allocation.workflow_id.0, allocation.id])
}

/// All of these.
fn list(
    db: &Connection,
    condition: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Vec<AllocationView>> {
    let mut statement = db.prepare_cached(&format!("{COLUMNS} WHERE {condition}"))?;
    statement.query_map(values, view)?.collect()
}

/// Allocations that wait and are not marked as unneeded, of one workflow or of all.
pub fn waiting(db: &Connection, workflow: Option<i64>) -> rusqlite::Result<Vec<AllocationView>> {
    let condition = "n.status IN ('planned', 'pending') AND n.unneeded_since_ms IS NULL
         AND (?1 IS NULL OR n.workflow_id = ?1) ORDER BY n.id";
    list(db, condition, [workflow])
}

/// The newest allocations of a workflow that are not marked as unneeded.
pub fn newest(
    db: &Connection,
    workflow: WorkflowId,
    most: i64,
) -> rusqlite::Result<Vec<AllocationView>> {
    let condition =
        "n.workflow_id = ?1 AND n.unneeded_since_ms IS NULL ORDER BY n.id DESC LIMIT ?2";
    list(db, condition, [workflow.0, most])
}

/// A workflow has allocations that have not begun.
pub fn has_waiting(db: &Connection, workflow: WorkflowId) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM scheduled_compute_node WHERE workflow_id = ?1
         AND status IN ('planned', 'submitting', 'pending')",
    )?
    .exists([workflow.0])
}

/// An allocation that waits and of which Slurm has said when it plans to start it.
pub struct ExpectedAllocation {
    /// Its row.
    pub id: i64,
    /// Row of its scheduler.
    pub scheduler: i64,
    /// When it should start.
    pub start_ms: i64,
    /// Each node has a runner of its own.
    pub one_worker_per_node: bool,
    /// What was asked for.
    pub definition: SlurmScheduler,
}

/// Allocations of a workflow whose start Slurm has planned.
pub fn expected(
    db: &Connection,
    workflow: WorkflowId,
) -> rusqlite::Result<Vec<ExpectedAllocation>> {
    let mut statement = db.prepare_cached(
        "SELECT n.id, n.scheduler_id, n.expected_start_ms, n.start_one_worker_per_node, s.definition
         FROM scheduled_compute_node n JOIN slurm_scheduler s ON s.id = n.scheduler_id
         WHERE n.workflow_id = ?1 AND n.status = 'pending' AND n.expected_start_ms IS NOT NULL ORDER BY n.id",
    )?;
    let rows = statement.query_map([workflow.0], |row| {
        Ok(ExpectedAllocation {
            id: row.get(0)?,
            scheduler: row.get(1)?,
            start_ms: row.get(2)?,
            one_worker_per_node: row.get(3)?,
            definition: parse(&row.get::<_, String>(4)?)?,
        })
    })?;
    rows.collect()
}

/// Allocations that one request asked for.
pub fn with_key(
    db: &Connection,
    workflow: WorkflowId,
    key: &str,
) -> rusqlite::Result<Vec<AllocationView>> {
    let condition = "n.workflow_id = ?1 AND n.request_key = ?2 ORDER BY n.id";
    list(db, condition, params![workflow.0, key])
}

/// Allocations that the batch system knows by one name.
pub fn named(
    db: &Connection,
    workflow: WorkflowId,
    name: &str,
) -> rusqlite::Result<Vec<AllocationView>> {
    let condition = "n.name = ?1 AND n.workflow_id = ?2 ORDER BY n.id";
    list(db, condition, params![name, workflow.0])
}

/// How many allocations of a workflow have not ended.
pub fn count_open(db: &Connection, workflow: WorkflowId) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT count(*) FROM scheduled_compute_node WHERE workflow_id = ?1 AND ended_ms IS NULL",
    )?
    .query_row([workflow.0], |row| row.get(0))
}

/// How many allocations an action has asked for.
pub fn count_of_action(db: &Connection, action: ActionId) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT count(*) FROM scheduled_compute_node WHERE action_id = ?1")?
        .query_row([action.0], |row| row.get(0))
}

/// Allocations of a scheduler that are on their way, or run and have these seconds left at `now`.
pub fn usable(
    db: &Connection,
    workflow: WorkflowId,
    scheduler: &str,
    (seconds, now): (i64, i64),
) -> rusqlite::Result<Vec<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT n.id FROM scheduled_compute_node n JOIN slurm_scheduler s ON s.id = n.scheduler_id
             WHERE n.workflow_id = ?1 AND s.name = ?2
                AND (n.status IN ('planned', 'submitting', 'pending') AND n.unneeded_since_ms IS NULL
                OR n.status = 'active' AND EXISTS (SELECT 1 FROM compute_node c WHERE c.workflow_id = n.workflow_id
                    AND c.ended_ms IS NULL AND c.allocation_id = n.id
                    AND (c.stop_by_ms IS NULL OR c.stop_by_ms - ?4 >= ?3 * 1000)))
             ORDER BY n.id",
    )?;
    let key = params![workflow.0, scheduler, seconds, now];
    statement.query_map(key, |row| row.get(0))?.collect()
}

/// Allocations of one name that wait to be sent.
pub struct Unsent {
    pub workflow: WorkflowId,
    pub name: String,
    pub count: i64,
    /// A submitter took them up and did not tell how it went.
    pub was_taken: bool,
    pub scheduler: i64,
    pub one_worker_per_node: bool,
    pub max_parallel_jobs: Option<i64>,
}

/// Allocations that a submitter may take up at `now`, of one workflow or of all.
pub fn unsent(
    db: &Connection,
    workflow: Option<i64>,
    now: i64,
    most: usize,
) -> rusqlite::Result<Vec<Unsent>> {
    let mut statement = db.prepare_cached(
        "SELECT name, min(workflow_id), count(*), max(status = 'submitting'), min(scheduler_id),
            max(start_one_worker_per_node), max(max_parallel_jobs)
         FROM scheduled_compute_node
         WHERE (status = 'planned' OR status = 'submitting' AND submit_until_ms <= ?1) AND (?2 IS NULL OR workflow_id = ?2)
         GROUP BY name ORDER BY min(id) LIMIT ?3",
    )?;
    let rows = statement.query_map(params![now, workflow, most as i64], |row| {
        Ok(Unsent {
            name: row.get(0)?,
            workflow: WorkflowId(row.get(1)?),
            count: row.get(2)?,
            was_taken: row.get(3)?,
            scheduler: row.get(4)?,
            one_worker_per_node: row.get(5)?,
            max_parallel_jobs: row.get(6)?,
        })
    })?;
    rows.collect()
}

/// A scheduler, with what its allocations need of its workflow.
pub struct SchedulerRow {
    pub id: i64,
    pub name: String,
    pub definition: SlurmScheduler,
    pub settings: Settings,
    /// The directory of its workflow.
    pub directory: Option<String>,
    /// When its workflow was created.
    pub workflow_created: i64,
}

const SCHEDULER: &str =
    "SELECT s.id, s.name, s.definition, w.settings, w.directory, w.created_ms FROM slurm_scheduler s
    JOIN workflow w ON w.id = s.workflow_id WHERE";

fn scheduler_row(row: &Row<'_>) -> rusqlite::Result<SchedulerRow> {
    Ok(SchedulerRow {
        id: row.get(0)?,
        name: row.get(1)?,
        definition: parse(&row.get::<_, String>(2)?)?,
        settings: parse(&row.get::<_, String>(3)?)?,
        directory: row.get(4)?,
        workflow_created: row.get(5)?,
    })
}

/// A scheduler, by its row.
pub fn scheduler(db: &Connection, id: i64) -> rusqlite::Result<SchedulerRow> {
    let sql = format!("{SCHEDULER} s.id = ?1");
    db.prepare_cached(&sql)?.query_row([id], scheduler_row)
}

/// A scheduler of a workflow, by its name.
pub fn scheduler_named(
    db: &Connection,
    workflow: WorkflowId,
    name: &str,
) -> rusqlite::Result<Option<SchedulerRow>> {
    let sql = format!("{SCHEDULER} s.workflow_id = ?1 AND s.name = ?2");
    let key = params![workflow.0, name];
    db.prepare_cached(&sql)?.query_row(key, scheduler_row).optional()
}

/// The name of the scheduler whose nodes a job is for.
pub fn scheduler_of_job(db: &Connection, job: JobId) -> rusqlite::Result<Option<String>> {
    db.prepare_cached(
        "SELECT s.name FROM job j JOIN slurm_scheduler s ON s.id = j.scheduler_id WHERE j.id = ?1",
    )?
    .query_row([job.0], |row| row.get(0))
    .optional()
}

/// Errors of actions of a workflow that were to ask for nodes.
pub fn failed_requests(db: &Connection, workflow: WorkflowId) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare_cached(
        "SELECT error FROM workflow_action WHERE workflow_id = ?1 AND state = 'failed' AND error IS NOT NULL
         AND what ->> 'action_type' = 'schedule_nodes' ORDER BY id",
    )?;
    statement.query_map([workflow.0], |row| row.get(0))?.collect()
}

/// So many allocations of a workflow are in Slurm, or on their way there.
pub fn count_in_slurm(db: &Connection, workflow: WorkflowId) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT count(*) FROM scheduled_compute_node WHERE workflow_id = ?1 AND status IN ('submitting', 'pending', 'active')",
    )?
    .query_row([workflow.0], |row| row.get(0))
}
