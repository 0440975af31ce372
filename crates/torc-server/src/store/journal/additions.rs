//! What jobs have added to their workflow while it ran.

use super::json;
use super::load::parse;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use torc_model::api::SpawnedJobs;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::Job;

/// Jobs that a job has added.
pub struct AdditionRow<'a> {
    /// The job that adds them, in this run.
    pub adder: (JobId, i64),
    /// A repeat of the request has the same.
    pub key: &'a str,
    pub workflow: WorkflowId,
    /// The chain of additions that it belongs to, and its place there.
    pub place: (&'a str, i64),
    /// What was asked for, in short.
    pub hash: &'a str,
    pub jobs: &'a [JobId],
    /// So many of them are new.
    pub new: usize,
}

/// Writes that a job has added jobs.
pub fn insert(db: &Connection, row: &AdditionRow<'_>, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO addition (job_id, run_id, key, workflow_id, lineage, iteration, hash, job_ids, new_jobs, made_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        row.adder.0.0,
        row.adder.1,
        row.key,
        row.workflow.0,
        row.place.0,
        row.place.1,
        row.hash,
        json(Some(&row.jobs))?,
        row.new as i64,
        now,
    ])?;
    Ok(())
}

/// What a job added in a run under a key: what was asked for, in short, and what was answered.
pub fn find(
    db: &Connection,
    (job, run): (JobId, i64),
    key: &str,
) -> rusqlite::Result<Option<(String, SpawnedJobs)>> {
    db.prepare_cached(
        "SELECT hash, job_ids, iteration, lineage FROM addition
         WHERE job_id = ?1 AND run_id = ?2 AND key = ?3",
    )?
    .find(params![job.0, run, key], |row| {
        let spawned = SpawnedJobs {
            spawned_job_ids: parse(&row.get::<_, String>(1)?)?,
            iteration: row.get(2)?,
            lineage: row.get(3)?,
            is_repeat: true,
        };
        Ok((row.get(0)?, spawned))
    })
}

/// The job of a workflow that has the name of this one, the job that added it, and whether both do the same.
pub fn same_name(
    db: &Connection,
    id: WorkflowId,
    job: &Job,
) -> rusqlite::Result<Option<(JobId, Option<JobId>, bool)>> {
    db.prepare_cached(
        "SELECT id, added_by, command = ?3 AND invocation_script IS ?4 AND steps IS ?5 FROM job
         WHERE workflow_id = ?1 AND name = ?2",
    )?
    .find(
        params![
            id.0,
            job.name,
            job.command,
            job.invocation_script,
            job.steps.as_ref().map(ToString::to_string),
        ],
        |row| Ok((JobId(row.get(0)?), row.get::<_, Option<i64>>(1)?.map(JobId), row.get(2)?)),
    )
}

/// The number of the last addition in a lineage of a run; 0: there is none.
pub fn count_in_lineage(
    db: &Connection,
    id: WorkflowId,
    run: i64,
    lineage: &str,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT coalesce(max(iteration), 0) FROM addition
         WHERE workflow_id = ?1 AND lineage = ?2 AND run_id = ?3",
    )?
    .query_row(params![id.0, lineage, run], |row| row.get(0))
}

/// So many jobs were added in a run.
pub fn count_jobs(db: &Connection, id: WorkflowId, run: i64) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT coalesce(sum(new_jobs), 0) FROM addition WHERE workflow_id = ?1 AND run_id = ?2",
    )?
    .query_row([id.0, run], |row| row.get(0))
}
