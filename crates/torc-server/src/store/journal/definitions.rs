//! What the rows say of a workflow's definition: its spec, its jobs, and what jobs refer to by name.

use super::load::parse;
use crate::store::difference::Head;
use crate::store::rows::Rows as _;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Requirements, Rule};
use torc_model::status::{Afterwards, JobStatus, StatusReason};
use torc_model::units::{Memory, Runtime};

/// Where a workflow stands, with its spec.
pub fn head(db: &Connection, id: WorkflowId) -> rusqlite::Result<Option<Head>> {
    db.prepare_cached("SELECT spec, settings, revision, run_id FROM workflow WHERE id = ?1")?.find(
        [id.0],
        |row| {
            let settings: String = row.get(1)?;
            Ok(Head {
                spec: row.get(0)?,
                settings: parse(&settings)?,
                revision: row.get(2)?,
                run: row.get(3)?,
            })
        },
    )
}

fn status(code: i64) -> JobStatus {
    JobStatus::from_code(code).unwrap_or(JobStatus::Uninitialized)
}

/// A text that stays in the row, or None for NULL.
fn text<'a>(row: &'a Row<'_>, at: usize) -> rusqlite::Result<Option<&'a str>> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        value => Ok(Some(value.as_str()?)),
    }
}

fn was_removed(row: &Row<'_>, reason: usize, afterwards: usize) -> rusqlite::Result<bool> {
    Ok(text(row, reason)? == Some(StatusReason::Removed.as_str())
        || text(row, afterwards)? == Some(Afterwards::Remove.as_str()))
}

/// Hands out the status of each job that the workflow still has, in the order of their rows.
pub fn each_status(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(JobId, JobStatus),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "SELECT id, status, status_reason, afterwards FROM job WHERE workflow_id = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        if !was_removed(row, 2, 3)? {
            each(JobId(row.get(0)?), status(row.get(1)?));
        }
    }
    Ok(())
}

/// A job beside a plan that may have it.
pub struct KnownJob<'a> {
    pub id: JobId,
    pub name: &'a str,
    /// Where it stands.
    pub status: JobStatus,
    /// An earlier spec took it out.
    pub was_removed: bool,
    /// The job that added it while the workflow ran.
    pub added_by: Option<JobId>,
    /// The rest of its row, if it is a map, an item or a reduce.
    pub map_extra: Option<&'a str>,
}

/// Hands out every job, also those that were removed, in the order of their rows.
pub fn each_job<E: From<rusqlite::Error>>(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(KnownJob<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut statement = db.prepare_cached(
        "SELECT id, name, status, status_reason, afterwards, added_by,
                iif(extra ->> 'map' IS NULL, NULL, extra) FROM job WHERE workflow_id = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        each(KnownJob {
            id: JobId(row.get(0)?),
            name: text(row, 1)?.unwrap_or_default(),
            status: status(row.get(2)?),
            was_removed: was_removed(row, 3, 4)?,
            added_by: row.get::<_, Option<i64>>(5)?.map(JobId),
            map_extra: text(row, 6)?,
        })?;
    }
    Ok(())
}

/// What a job does and needs, as its row has it.
pub struct Definition<'a> {
    pub id: JobId,
    pub command: Option<&'a str>,
    /// What stands before the command.
    pub invocation_script: Option<&'a str>,
    /// Its steps, as JSON.
    pub steps: Option<&'a str>,
    /// The rest, as JSON.
    pub extra: Option<&'a str>,
    /// Row of its requirements.
    pub requirements: Option<i64>,
    /// Row of its failure handler.
    pub handler: Option<i64>,
    /// Row of its scheduler.
    pub scheduler: Option<i64>,
    /// It is canceled when a dependency fails.
    pub cancel_on_failure: bool,
    pub priority: i64,
    /// Number of its family.
    pub family: u32,
}

/// Hands out what each job does and needs, in the order of their rows.
pub fn each_definition<E: From<rusqlite::Error>>(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(&Definition<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut statement = db.prepare_cached(
        "SELECT id, command, invocation_script, steps, extra, resource_requirements_id, failure_handler_id,
                scheduler_id, cancel_on_blocking_job_failure, priority, family
         FROM job WHERE workflow_id = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        each(&Definition {
            id: JobId(row.get(0)?),
            command: text(row, 1)?,
            invocation_script: text(row, 2)?,
            steps: text(row, 3)?,
            extra: text(row, 4)?,
            requirements: row.get(5)?,
            handler: row.get(6)?,
            scheduler: row.get(7)?,
            cancel_on_failure: row.get(8)?,
            priority: row.get(9)?,
            family: row.get(10)?,
        })?;
    }
    Ok(())
}

/// The rows of a workflow's jobs, in order.
pub fn job_ids(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<i64>> {
    db.prepare_cached("SELECT id FROM job WHERE workflow_id = ?1 ORDER BY id")?
        .all([id.0], |row| row.get(0))
}

/// Hands out each job with a job that it depends on.
pub fn each_parent(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(JobId, JobId),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "SELECT job_id, depends_on_job_id FROM job_depends_on WHERE workflow_id = ?1",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        each(JobId(row.get(0)?), JobId(row.get(1)?));
    }
    Ok(())
}

/// The resource requirements of a workflow, by row.
pub fn requirements(
    db: &Connection,
    id: WorkflowId,
) -> rusqlite::Result<HashMap<i64, Requirements>> {
    db.prepare_cached(
        "SELECT id, name, num_cpus, num_gpus, num_nodes, memory_bytes, runtime_seconds
         FROM resource_requirements WHERE workflow_id = ?1",
    )?
    .all([id.0], |row| {
        let size = |at| -> rusqlite::Result<Option<u64>> {
            Ok(row.get::<_, Option<i64>>(at)?.map(|v| v as u64))
        };
        let requirements = Requirements {
            name: row.get(1)?,
            num_cpus: row.get(2)?,
            num_gpus: row.get(3)?,
            num_nodes: row.get(4)?,
            memory: size(5)?.map(Memory),
            runtime: size(6)?.map(Runtime),
        };
        Ok((row.get(0)?, requirements))
    })
}

/// What jobs refer to by a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// Failure handlers.
    Handlers,
    /// Slurm schedulers.
    Schedulers,
    /// User data.
    UserData,
    /// Families; their numbers stand in the place of rows.
    Families,
}

/// The names that a workflow has of these, by row and in the order of the rows.
pub fn names(
    db: &Connection,
    id: WorkflowId,
    named: Named,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let (key, table) = match named {
        Named::Handlers => ("id", "failure_handler"),
        Named::Schedulers => ("id", "slurm_scheduler"),
        Named::UserData => ("id", "user_data"),
        Named::Families => ("number", "family"),
    };
    let sql = format!("SELECT {key}, name FROM {table} WHERE workflow_id = ?1 ORDER BY {key}");
    db.prepare_cached(&sql)?.all([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// A failure handler of a workflow by its name: its row and its rules.
pub fn find_handler(
    db: &Connection,
    id: WorkflowId,
    name: &str,
) -> rusqlite::Result<Option<(i64, Vec<Rule>)>> {
    db.prepare_cached("SELECT id, rules FROM failure_handler WHERE workflow_id = ?1 AND name = ?2")?
        .find(params![id.0, name], |row| Ok((row.get(0)?, parse(&row.get::<_, String>(1)?)?)))
}

/// The workflow and the name of a failure handler.
pub fn handler(db: &Connection, row: i64) -> rusqlite::Result<Option<(WorkflowId, String)>> {
    db.prepare_cached("SELECT workflow_id, name FROM failure_handler WHERE id = ?1")?
        .find([row], |row| Ok((WorkflowId(row.get(0)?), row.get(1)?)))
}

/// The name of a scheduler.
pub fn scheduler_name(db: &Connection, row: i64) -> rusqlite::Result<String> {
    db.prepare_cached("SELECT name FROM slurm_scheduler WHERE id = ?1")?
        .query_row([row], |row| row.get(0))
}

/// The timeout that a recovery last gave a job, in seconds.
pub fn raised_timeout(db: &Connection, job: JobId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached(
        "SELECT to_value FROM adjustment WHERE job_id = ?1 AND field = 'timeout' ORDER BY id DESC LIMIT 1",
    )?
    .find([job.0], |row| row.get(0))
}

/// Memory, runtime, CPUs and GPUs of a job's own, each with what its requirements said.
pub type OwnValues = [(Option<i64>, Option<i64>); 4];

/// What jobs were given beyond their requirements, before those are changed.
pub fn own_values(db: &Connection, id: WorkflowId) -> rusqlite::Result<HashMap<JobId, OwnValues>> {
    db.prepare_cached(
        "SELECT j.id, j.memory_bytes, r.memory_bytes, j.runtime_seconds, r.runtime_seconds,
                j.num_cpus, coalesce(r.num_cpus, 1), j.num_gpus, coalesce(r.num_gpus, 0)
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id
         WHERE j.workflow_id = ?1 AND coalesce(j.memory_bytes, j.runtime_seconds, j.num_cpus, j.num_gpus)
               IS NOT NULL",
    )?
    .all([id.0], |row| {
        let pair = |at: usize| -> rusqlite::Result<(Option<i64>, Option<i64>)> {
            Ok((row.get(at)?, row.get(at + 1)?))
        };
        Ok((JobId(row.get(0)?), [pair(1)?, pair(3)?, pair(5)?, pair(7)?]))
    })
}
