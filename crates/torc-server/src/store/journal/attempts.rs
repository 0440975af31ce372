//! What the rows say of attempts.

use super::load::parse;
use crate::store::read::page;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use torc_engine::{BurntAttempt, End, KnownEnd, LastEnd};
use torc_model::api::Evidence;
use torc_model::attempt::{Ending, Output};
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::slurm::wire::AllocationView;
use torc_model::status::{AttemptState, Cause, EndDetail, EndedBy, JobStatus, Outcome};

/// When attempts of a workflow ended, the last one of each job last: that of a job that has succeeded
/// is its success. A job that ended otherwise runs again, and what reads its files with it.
pub fn last_ends(
    db: &Connection,
    id: WorkflowId,
    mut each: impl FnMut(JobId, i64),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "SELECT job_id, ended_ms FROM attempt INDEXED BY attempt_ended
         WHERE workflow_id = ?1 AND ended_ms IS NOT NULL ORDER BY ended_ms",
    )?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        each(JobId(row.get(0)?), row.get(1)?);
    }
    Ok(())
}

/// An attempt that was stopped, or lost with its runner.
pub struct StoppedAttempt {
    pub attempt: AttemptId,
    pub job: JobId,
    pub run: i64,
    /// Its number in the run.
    pub number: i64,
    /// What is known of its end.
    pub evidence: Vec<Evidence>,
    /// Its cause as far as it is known.
    pub cause: String,
}

/// Attempts that were told to stop or were lost in the life of an allocation that began at `since`, on runners
/// that left together with its last one: `together` is the time now, and how far apart they may have left.
pub fn stopped_with(
    db: &Connection,
    allocation: &AllocationView,
    since: i64,
    together: (i64, i64),
) -> rusqlite::Result<Vec<StoppedAttempt>> {
    let mut statement = db.prepare_cached(
        "SELECT a.id, a.job_id, a.run_id, a.attempt_id, a.evidence, a.cause
         FROM attempt a JOIN compute_node c ON c.id = a.compute_node_id
         WHERE a.workflow_id = ?1 AND a.ended_ms >= ?2 AND (a.cause = 'stopped' AND a.detail IS 'told_to_stop' OR a.cause = 'lost')
            AND c.started_ms >= ?2 AND c.allocation_id = ?3
            AND c.ended_ms >= (SELECT max(coalesce(o.ended_ms, ?4)) - ?5 FROM compute_node o WHERE o.workflow_id = ?1
                AND o.allocation_id = ?3)
         ORDER BY a.id",
    )?;
    let key = [allocation.workflow_id.0, since, allocation.id, together.0, together.1];
    let rows = statement.query_map(key, |row| {
        let evidence: Option<String> = row.get(4)?;
        Ok(StoppedAttempt {
            attempt: AttemptId(row.get(0)?),
            job: JobId(row.get(1)?),
            run: row.get(2)?,
            number: row.get(3)?,
            evidence: evidence.as_deref().map(parse).transpose()?.unwrap_or_default(),
            cause: row.get(5)?,
        })
    })?;
    rows.collect()
}

/// Attempts have ended in the life of an allocation that began at `since`, and each because its walltime was over.
pub fn all_ended_at_walltime(
    db: &Connection,
    allocation: &AllocationView,
    since: i64,
) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT count(*) FILTER (WHERE a.cause = 'walltime') > 0 AND count(*) FILTER (WHERE a.cause IS NOT 'walltime') = 0
         FROM attempt a JOIN compute_node c ON c.id = a.compute_node_id
         WHERE a.workflow_id = ?1 AND a.ended_ms >= ?2 AND c.allocation_id = ?3",
    )?
    .query_row([allocation.workflow_id.0, since, allocation.id], |row| row.get(0))
}

/// The last attempt of a job ended with the walltime of its runner and had almost all of it.
pub fn lasted_as_long_as_its_runner(
    db: &Connection,
    job: JobId,
    now: i64,
) -> rusqlite::Result<bool> {
    let found: Option<Option<bool>> = db
        .prepare_cached(
            "SELECT a.cause IS 'walltime' AND a.exec_seconds * 1000 >= 0.9 * (coalesce(c.ended_ms, ?2) - c.started_ms)
             FROM attempt a JOIN compute_node c ON c.id = a.compute_node_id
             WHERE a.job_id = ?1 AND a.ended_ms IS NOT NULL ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1",
        )?
        .find([job.0, now], |row| row.get(0))?;
    Ok(found.flatten().unwrap_or(false))
}

/// An attempt that is no longer its runner's, with its outcome and the status of its job.
pub type Reported = (KnownEnd, Option<Outcome>, Option<JobStatus>);

/// An attempt about which a report came.
pub fn known_end(db: &Connection, attempt: AttemptId) -> rusqlite::Result<Option<Reported>> {
    db.prepare_cached(
        "SELECT a.token, a.compute_node_id, a.state, a.ended_by, a.outcome, j.status FROM attempt a JOIN job j ON j.id = a.job_id
         WHERE a.id = ?1",
    )?
    .find([attempt.0], |row| {
        let known = KnownEnd {
            token: row.get(0)?,
            runner: page::maybe_id(row, 1, RunnerId)?,
            state: page::word(row, 2, AttemptState::parse)?,
            ended_by: page::known_word(row, 3, EndedBy::parse)?,
        };
        let outcome = page::known_word(row, 4, Outcome::parse)?;
        Ok((known, outcome, JobStatus::from_code(row.get(5)?)))
    })
}

/// How many events of an attempt's steps are written; none of one that does not exist.
pub fn step_events(db: &Connection, attempt: AttemptId) -> rusqlite::Result<u64> {
    let count: Option<i64> = db
        .prepare_cached("SELECT step_events FROM attempt WHERE id = ?1")?
        .find([attempt.0], |row| row.get(0))?;
    Ok(count.map_or(0, i64::unsigned_abs))
}

/// An attempt that a bad machine burnt, and the rule that retried it, if one did.
pub fn burnt(db: &Connection, id: AttemptId) -> rusqlite::Result<Option<BurntAttempt>> {
    let sql = "SELECT run_id, attempt_id, iif(outcome = ?2, rule, NULL) FROM attempt WHERE id = ?1";
    let key = params![id.0, Outcome::Retried.as_str()];
    let burnt = |row: &Row<'_>| {
        let rule = row.get::<_, Option<i64>>(2)?.and_then(|rule| usize::try_from(rule).ok());
        Ok(BurntAttempt { id, run: row.get(0)?, number: row.get(1)?, rule })
    };
    db.prepare_cached(sql)?.query_row(key, burnt).optional()
}

/// The row of an attempt by its number in a run of a job; 0 where there is none.
pub fn row_of(db: &Connection, job: JobId, run: i64, number: i64) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT coalesce(max(id), 0) FROM attempt WHERE job_id = ?1 AND run_id = ?2 AND attempt_id = ?3",
    )?
    .query_row([job.0, run, number], |row| row.get(0))
}

/// Workflows whose rows do not fit together, by the few ways in which they can fail to.
pub fn broken(db: &Connection, scope: Option<WorkflowId>) -> rusqlite::Result<Vec<WorkflowId>> {
    // Filtered by workflow where one is asked for, so that its index is used.
    let within = if scope.is_some() { "j.workflow_id = ?1" } else { "?1 IS NULL" };
    db.prepare_cached(&format!(
        "SELECT j.workflow_id
         FROM job j LEFT JOIN attempt live ON live.ended_ms IS NULL AND live.workflow_id = j.workflow_id AND live.job_id = j.id
         WHERE {within} AND (j.status = 2 AND live.state IS NOT 'queued'
            OR j.status IN (3, 4) AND (live.state IS NULL OR live.state = 'queued')
            OR j.status NOT IN (2, 3, 4) AND live.state IS NOT NULL)
         UNION
         SELECT j.workflow_id
         FROM job j JOIN attempt live ON live.ended_ms IS NULL AND live.workflow_id = j.workflow_id AND live.job_id = j.id
            JOIN compute_node c ON c.id = live.compute_node_id
         WHERE j.status IN (3, 4) AND c.ended_ms IS NOT NULL AND {within}
         UNION
         SELECT j.workflow_id FROM job j JOIN attempt last ON last.job_id = j.id
         WHERE j.status >= 6 AND j.status <> 9 AND j.status = 6 AND last.state = 'failed' AND last.outcome IS NULL
            AND {within}
            AND NOT EXISTS (SELECT 1 FROM attempt later WHERE later.job_id = j.id AND later.id > last.id)
         ORDER BY 1"
    ))?
    .all([scope.map(|id| id.0)], |row| row.get(0).map(WorkflowId))
}

/// The ended attempts of unfinished jobs in the current run, the newest of each job last.
pub fn newest_ends(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<(JobId, LastEnd)>> {
    db.prepare_cached(
        "SELECT a.job_id, a.id, a.state, a.outcome IS NOT NULL, a.return_code, a.signal, a.cause, a.stderr_tail, a.detail
         FROM attempt a JOIN job j ON j.id = a.job_id JOIN workflow w ON w.id = a.workflow_id
         WHERE a.workflow_id = ?1 AND a.run_id = w.run_id AND j.status IN (2, 3, 4, 6)
         AND a.state IN ('completed', 'failed', 'canceled', 'terminated') ORDER BY a.id",
    )?
    .all([id.0], |row| {
        let ending = Ending {
            return_code: row.get(4)?,
            signal: row.get(5)?,
            cause: page::known_word(row, 6, Cause::parse)?,
            detail: page::known_word(row, 8, EndDetail::parse)?,
            ..Ending::default()
        };
        let output = Output { stderr_tail: row.get(7)?, ..Output::default() };
        let end = LastEnd {
            id: AttemptId(row.get(1)?),
            state: page::word(row, 2, AttemptState::parse)?,
            end: End { ending, output, ..End::new(EndedBy::Runner, 0) },
            decided: row.get(3)?,
        };
        Ok((JobId(row.get(0)?), end))
    })
}
