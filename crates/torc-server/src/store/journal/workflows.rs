//! Rows of workflows: as they are made, as people change them, and their end. The run and where it
//! stands are `Change`s.

use super::json;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use torc_model::api::{
    Past, PlanCounts, PrunedWorkflow, RemovedFiles, UpdateWorkflow, WorkflowCreated,
};
use torc_model::ids::WorkflowId;
use torc_model::plan::{Plan, Settings};

/// What a new workflow's row says beside its plan.
pub struct NewWorkflowRow<'a> {
    /// Whose it is.
    pub user: &'a str,
    /// Where it was submitted from.
    pub directory: Option<&'a str>,
    /// The file of its spec.
    pub spec_path: Option<&'a str>,
    /// A repeat of the request has the same.
    pub key: Option<&'a str>,
    /// When.
    pub at: i64,
}

/// Writes one, without its spec.
pub fn insert_workflow(
    db: &Connection,
    plan: &Plan,
    row: &NewWorkflowRow<'_>,
) -> rusqlite::Result<WorkflowId> {
    db.prepare_cached(
        "INSERT INTO workflow (name, user, description, project, metadata, directory, settings, spec, created_ms,
         create_key, job_count, spec_path) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, '', ?8, ?9, ?10, ?11)",
    )?
    .insert(params![
        plan.name,
        row.user,
        plan.notes.description,
        plan.notes.project,
        plan.notes.metadata.as_ref().map(ToString::to_string),
        row.directory,
        json(Some(&plan.settings))?,
        row.at,
        row.key,
        plan.jobs.len() as i64,
        row.spec_path,
    ])
    .map(WorkflowId)
}

/// Writes the spec, and what is assumed of jobs about whose time nothing is known.
pub fn set_spec(
    db: &Connection,
    id: WorkflowId,
    spec: &str,
    typical_ms: u32,
) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE workflow SET spec = ?2, typical_ms = ?3 WHERE id = ?1")?
        .execute(params![id.0, spec, typical_ms])?;
    Ok(())
}

/// Writes the newest revision: its number, by whom it was made, in which run, and what it changed.
pub fn insert_revision(
    db: &Connection,
    id: WorkflowId,
    number: i64,
    (by, run, counts): (&str, i64, &PlanCounts),
    now: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE workflow SET revision = ?2 WHERE id = ?1")?
        .execute([id.0, number])?;
    db.prepare_cached(
        "INSERT INTO revision (workflow_id, number, made_ms, made_by, run_id, counts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![id.0, number, now, by, run, json(Some(counts))?])?;
    Ok(())
}

/// What a new spec says of a workflow; absent: what people set meanwhile holds.
pub struct RevisedWorkflow<'a> {
    /// Its settings.
    pub settings: &'a Settings,
    /// Its name.
    pub name: Option<&'a str>,
    /// Free text.
    pub description: Option<Option<&'a str>>,
    /// Free text to group by.
    pub project: Option<Option<&'a str>>,
    /// The user's JSON.
    pub metadata: Option<Option<String>>,
    /// The file of the spec.
    pub spec_path: Option<&'a str>,
}

/// Takes over a new spec.
pub fn revise_workflow(
    db: &Connection,
    id: WorkflowId,
    spec: &str,
    new: &RevisedWorkflow<'_>,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE workflow SET spec = ?2, settings = ?3, name = coalesce(?4, name),
         description = iif(?5, ?6, description), project = iif(?7, ?8, project),
         metadata = iif(?9, ?10, metadata), spec_path = coalesce(?11, spec_path) WHERE id = ?1",
    )?
    .execute(params![
        id.0,
        spec,
        json(Some(new.settings))?,
        new.name,
        new.description.is_some(),
        new.description.flatten(),
        new.project.is_some(),
        new.project.flatten(),
        new.metadata.is_some(),
        new.metadata.as_ref().and_then(Option::as_ref),
        new.spec_path,
    ])?;
    Ok(())
}

/// Writes what a person says of a workflow; false: there is none.
pub fn update_workflow(
    db: &Connection,
    id: WorkflowId,
    update: &UpdateWorkflow,
) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached(
            "UPDATE workflow SET name = coalesce(?2, name), user = coalesce(?3, user),
             description = coalesce(?4, description), project = coalesce(?5, project),
             metadata = coalesce(?6, metadata), is_archived = coalesce(?7, is_archived) WHERE id = ?1",
        )?
        .execute(params![
            id.0,
            update.name,
            update.user,
            update.description,
            update.project,
            update.metadata.as_ref().map(ToString::to_string),
            update.is_archived,
        ])?;
    Ok(changed > 0)
}

/// Writes where a workflow stood elsewhere.
pub fn import_workflow(
    db: &Connection,
    id: WorkflowId,
    past: &Past,
    run: i64,
    is_complete: bool,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE workflow SET run_id = ?2, run_started_ms = ?3, is_canceled = ?4, is_complete = ?5 WHERE id = ?1",
    )?
    .execute(params![id.0, run, past.run_started_ms, past.is_canceled, is_complete])?;
    Ok(())
}

/// User data that lasts for one run only is gone with it.
pub fn clear_ephemeral(db: &Connection, id: WorkflowId) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE user_data SET data = NULL WHERE workflow_id = ?1 AND is_ephemeral = 1",
    )?
    .execute([id.0])?;
    Ok(())
}

/// Deletes a workflow with everything that belongs to it; what has no table of its own below goes by
/// cascade.
pub fn delete_workflow(db: &Connection, id: WorkflowId) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM attempt WHERE workflow_id = ?1",
        "DELETE FROM job WHERE workflow_id = ?1",
        "DELETE FROM workflow WHERE id = ?1",
    ] {
        db.prepare_cached(sql)?.execute([id.0])?;
    }
    Ok(())
}

/// Ended workflows whose last attempt ended by this time, the oldest first, perhaps only those in which
/// nothing failed.
pub fn ended_before(
    db: &Connection,
    before: i64,
    keep_failed: bool,
) -> rusqlite::Result<Vec<PrunedWorkflow>> {
    db.prepare_cached(
        "SELECT id, name, user, job_count, ended_ms FROM (
             SELECT w.id, w.name, w.user, w.job_count, w.created_ms, coalesce(
                 (SELECT max(a.ended_ms) FROM attempt a WHERE a.workflow_id = w.id AND a.ended_ms IS NOT NULL),
                 w.run_started_ms, w.created_ms) AS ended_ms
             FROM workflow w WHERE w.is_complete = 1
             AND (?2 = 0 OR NOT EXISTS (SELECT 1 FROM job j WHERE j.workflow_id = w.id AND j.status >= 6
                 AND j.status <> 9 AND j.status_reason IS NOT 'removed'))
         ) WHERE ended_ms <= ?1 ORDER BY ended_ms, id",
    )?
    .all(params![before, keep_failed], |row| {
        Ok(PrunedWorkflow {
            id: WorkflowId(row.get(0)?),
            name: row.get(1)?,
            user: row.get(2)?,
            job_count: row.get(3)?,
            ended_ms: row.get(4)?,
            removed: RemovedFiles::default(),
        })
    })
}

/// The workflow that a request with this key has made.
pub fn made_with(db: &Connection, key: Option<&str>) -> rusqlite::Result<Option<WorkflowCreated>> {
    let Some(key) = key else { return Ok(None) };
    db.prepare_cached("SELECT id, name, job_count, run_id FROM workflow WHERE create_key = ?1")?
        .find([key], |row| {
            Ok(WorkflowCreated {
                id: WorkflowId(row.get(0)?),
                name: row.get(1)?,
                job_count: row.get(2)?,
                run_id: row.get(3)?,
                warnings: Vec::new(),
            })
        })
}

/// Among so many workflows before this one of the same user, name and directory: the newest in which a job has
/// succeeded.
pub fn earlier_with_times(
    db: &Connection,
    id: WorkflowId,
    name: &str,
    directory: Option<&str>,
    most: u32,
) -> rusqlite::Result<Option<WorkflowId>> {
    db.prepare_cached(
        "SELECT w.id FROM (SELECT id FROM workflow WHERE name = ?1 AND directory IS ?2 AND id < ?3
         AND user = (SELECT own.user FROM workflow own WHERE own.id = ?3)
         ORDER BY id DESC LIMIT ?4) w
         WHERE EXISTS (SELECT 1 FROM job j WHERE j.workflow_id = w.id AND j.estimate_ms IS NOT NULL)
         ORDER BY w.id DESC LIMIT 1",
    )?
    .find(params![name, directory, id.0, most], |row| row.get(0).map(WorkflowId))
}

/// What the jobs of a workflow took that have succeeded: name, milliseconds and family.
pub fn times(
    db: &Connection,
    id: WorkflowId,
) -> rusqlite::Result<Vec<(String, u32, Option<String>)>> {
    db.prepare_cached(
        "SELECT j.name, j.estimate_ms, f.name FROM job j
         LEFT JOIN family f ON f.workflow_id = j.workflow_id AND f.number = j.family
         WHERE j.workflow_id = ?1 AND j.estimate_ms IS NOT NULL",
    )?
    .all([id.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}
