//! Rows of verdicts and remedies: what was decided about failures, and how that went.

use super::super::read::page;
use super::json;
use super::load::parse;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::collections::HashMap;
use torc_engine::{AutoRetry, AwaitedRetry};
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::recovery::{Change, ClassificationState, RetryOutcome, Tried, Verdict};

/// A verdict on a failure.
pub struct VerdictRow<'a> {
    /// The job.
    pub job: JobId,
    /// The run, and the number of the attempt that failed.
    pub tried: (i64, i64),
    /// What to do.
    pub action: Verdict,
    /// Where it stands.
    pub state: ClassificationState,
    /// Who gave it, and which agent that was, if it was one.
    pub by: (&'a str, Option<&'a str>),
    /// One line.
    pub reason: Option<String>,
    /// How sure its giver is.
    pub confidence: Option<f64>,
    /// What it rests on.
    pub evidence: &'a [String],
    /// Other limits.
    pub changes: &'a [Change],
    /// What makes the failure like others, and its family.
    pub print: (&'a str, &'a str),
    /// A remark of the server.
    pub note: Option<&'a str>,
    /// When it was given.
    pub created: i64,
    /// When and by whom it was decided on.
    pub decided: (Option<i64>, Option<&'a str>),
    /// The attempt that failed.
    pub follows: i64,
    /// How the retry went, and when that was known.
    pub outcome: (Option<RetryOutcome>, Option<i64>),
}

/// Writes one.
pub fn insert_verdict(
    db: &Connection,
    workflow: WorkflowId,
    verdict: &VerdictRow<'_>,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO classification (workflow_id, job_id, run_id, attempt_id, action, state, made_by, agent, reason,
         confidence, evidence, changes, fingerprint, family, note, created_ms, decided_ms, decided_by, follows,
         outcome, outcome_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
    )?
    .insert(params![
        workflow.0,
        verdict.job.0,
        verdict.tried.0,
        verdict.tried.1,
        verdict.action.as_str(),
        verdict.state.as_str(),
        verdict.by.0,
        verdict.by.1,
        verdict.reason,
        verdict.confidence,
        json(Some(&verdict.evidence))?,
        json(Some(&verdict.changes))?,
        verdict.print.0,
        verdict.print.1,
        verdict.note,
        verdict.created,
        verdict.decided.0,
        verdict.decided.1,
        verdict.follows,
        verdict.outcome.0.map(RetryOutcome::as_str),
        verdict.outcome.1,
    ])
}

/// Verdicts on a job that wait for a person are overtaken by another one.
pub fn supersede_verdicts(db: &Connection, job: JobId, by: &str, now: i64) -> rusqlite::Result<()> {
    let (held, over) = (ClassificationState::Held, ClassificationState::Superseded);
    db.prepare_cached(
        "UPDATE classification SET state = ?4, decided_ms = ?2, decided_by = ?3 WHERE job_id = ?1 AND state = ?5",
    )?
    .execute(params![job.0, now, by, over.as_str(), held.as_str()])?;
    Ok(())
}

/// A person has decided on a verdict.
pub fn decide_verdict(
    db: &Connection,
    row: i64,
    state: ClassificationState,
    by: &str,
    now: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE classification SET state = ?2, decided_by = ?3, decided_ms = ?4 WHERE id = ?1",
    )?
    .execute(params![row, state.as_str(), by, now])?;
    Ok(())
}

/// A retry that a recovery or a person asked for.
pub struct RemedyRow<'a> {
    /// The job.
    pub job: JobId,
    /// The run, and the number of the attempt that failed.
    pub tried: (i64, i64),
    /// The attempt that failed.
    pub follows: i64,
    /// What is tried.
    pub action: &'a str,
    /// Who asked for it.
    pub by: &'a str,
    /// Why the attempt failed.
    pub cause: &'a str,
    /// What makes the failure like others.
    pub fingerprint: &'a str,
    /// It waits for another retry of the same cause.
    pub waits: bool,
}

/// Writes one.
pub fn insert_remedy(
    db: &Connection,
    workflow: WorkflowId,
    remedy: &RemedyRow<'_>,
    now: i64,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO remedy (workflow_id, job_id, run_id, attempt_id, follows, action, made_by, cause, fingerprint,
         waits, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .insert(params![
        workflow.0,
        remedy.job.0,
        remedy.tried.0,
        remedy.tried.1,
        remedy.follows,
        remedy.action,
        remedy.by,
        remedy.cause,
        remedy.fingerprint,
        remedy.waits,
        now,
    ])
}

/// A retry waits no longer for another one.
pub fn remedy_goes_on(db: &Connection, row: i64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE remedy SET waits = 0 WHERE id = ?1")?.execute([row])?;
    Ok(())
}

/// Where a retry was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AskedIn {
    /// In a verdict.
    Classification,
    /// In a remedy.
    Remedy,
}

impl AskedIn {
    /// Its table.
    pub const fn table(self) -> &'static str {
        match self {
            Self::Classification => "classification",
            Self::Remedy => "remedy",
        }
    }
}

/// A retry was interrupted: the one after this attempt will tell.
pub fn retry_follows(
    db: &Connection,
    asked: AskedIn,
    row: i64,
    attempt: i64,
) -> rusqlite::Result<()> {
    let sql = format!("UPDATE {} SET follows = ?2 WHERE id = ?1", asked.table());
    db.prepare_cached(&sql)?.execute([row, attempt])?;
    Ok(())
}

/// A retry has told how it went.
pub fn retry_outcome(
    db: &Connection,
    asked: AskedIn,
    row: i64,
    outcome: RetryOutcome,
    now: i64,
) -> rusqlite::Result<()> {
    let sql = format!("UPDATE {} SET outcome = ?2, outcome_ms = ?3 WHERE id = ?1", asked.table());
    db.prepare_cached(&sql)?.execute(params![row, outcome.as_str(), now])?;
    Ok(())
}

/// A round of recovery was made.
pub fn insert_round(
    db: &Connection,
    workflow: WorkflowId,
    run: i64,
    by: &str,
    jobs: usize,
    now: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO recovery_round (workflow_id, run_id, made_by, jobs, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![workflow.0, run, by, jobs as i64, now])?;
    Ok(())
}

/// How many verdicts of a workflow people have accepted or rejected.
pub fn count_decided(db: &Connection, workflow: WorkflowId) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "SELECT count(*) FROM classification WHERE workflow_id = ?1 AND decided_ms IS NOT NULL",
    )?
    .query_row([workflow.0], |row| row.get(0))
}

/// A retry whose outcome is awaited, and what it tries.
pub fn awaited(
    db: &Connection,
    asked: AskedIn,
    row: i64,
) -> rusqlite::Result<Option<(AwaitedRetry, Tried)>> {
    let tried = match asked {
        AskedIn::Classification => "changes",
        AskedIn::Remedy => "action",
    };
    let sql = format!(
        "SELECT follows, fingerprint, run_id, {tried} FROM {} WHERE id = ?1",
        asked.table()
    );
    let read = |row: &Row<'_>| {
        let awaited = AwaitedRetry {
            follows: AttemptId(row.get(0)?),
            fingerprint: row.get(1)?,
            run: row.get(2)?,
        };
        let text: String = row.get(3)?;
        let tried = match asked {
            AskedIn::Classification => Tried::by(&parse::<Vec<Change>>(&text)?),
            AskedIn::Remedy => Tried::parse(&text).unwrap_or(Tried::Again),
        };
        Ok((awaited, tried))
    };
    db.prepare_cached(&sql)?.query_row([row], read).optional()
}

/// Retries that have not ended yet, by job.
pub fn open_retries(db: &Connection, asked: AskedIn) -> rusqlite::Result<HashMap<JobId, i64>> {
    let is_retry = match asked {
        AskedIn::Classification => "action = 'retry' AND state = 'applied'",
        AskedIn::Remedy => "true",
    };
    let sql = format!(
        "SELECT job_id, id FROM {} WHERE {is_retry} AND outcome IS NULL ORDER BY id",
        asked.table()
    );
    let mut statement = db.prepare(&sql)?;
    let rows = statement.query_map([], |row| Ok((JobId(row.get(0)?), row.get(1)?)))?;
    rows.collect()
}

/// Retries per job of a run that an agent or the record asked for.
pub fn agent_retries(
    db: &Connection,
    workflow: WorkflowId,
    run: i64,
) -> rusqlite::Result<HashMap<JobId, i64>> {
    let mut statement = db.prepare_cached(
        "SELECT job_id, count(*) FROM classification WHERE workflow_id = ?1 AND run_id = ?2 AND action = 'retry'
         AND state = 'applied' AND agent IS NOT NULL GROUP BY job_id",
    )?;
    let rows =
        statement.query_map([workflow.0, run], |row| Ok((JobId(row.get(0)?), row.get(1)?)))?;
    rows.collect()
}

/// A verdict that was given.
pub struct GivenVerdict {
    pub workflow: WorkflowId,
    pub job: JobId,
    /// The attempt that failed.
    pub follows: i64,
    pub state: ClassificationState,
    pub action: Verdict,
    pub changes: Vec<Change>,
    /// How sure its giver is.
    pub confidence: Option<f64>,
    /// Who gave it.
    pub by: String,
}

/// A verdict, by its row.
pub fn verdict(db: &Connection, row: i64) -> rusqlite::Result<Option<GivenVerdict>> {
    db.prepare_cached(
        "SELECT workflow_id, job_id, follows, state, action, changes, confidence, made_by FROM classification
         WHERE id = ?1",
    )?
    .query_row([row], |row| {
        Ok(GivenVerdict {
            workflow: WorkflowId(row.get(0)?),
            job: JobId(row.get(1)?),
            follows: row.get(2)?,
            state: page::word(row, "state", ClassificationState::parse)?,
            action: page::word(row, "action", Verdict::parse)?,
            changes: parse(&row.get::<_, String>(5)?)?,
            confidence: row.get(6)?,
            by: row.get(7)?,
        })
    })
    .optional()
}

/// Rounds of recovery in a run.
pub fn count_rounds(db: &Connection, workflow: WorkflowId, run: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM recovery_round WHERE workflow_id = ?1 AND run_id = ?2";
    db.prepare_cached(sql)?.query_row([workflow.0, run], |row| row.get(0))
}

/// Hands out the retries of a run that `by` decided on, the oldest first.
pub fn each_retry(
    db: &Connection,
    (workflow, run): (WorkflowId, i64),
    by: &str,
    mut each: impl FnMut(AutoRetry<'_>),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "SELECT id, job_id, cause, action, waits, created_ms, outcome, outcome_ms FROM remedy
         WHERE workflow_id = ?1 AND run_id = ?2 AND made_by = ?3 ORDER BY id",
    )?;
    let mut rows = statement.query(params![workflow.0, run, by])?;
    while let Some(row) = rows.next()? {
        let outcome = row.get_ref(6)?.as_str_or_null()?.and_then(RetryOutcome::parse);
        each(AutoRetry {
            row: row.get(0)?,
            job: JobId(row.get(1)?),
            cause: row.get_ref(2)?.as_str()?,
            tried: page::word(row, "action", Tried::parse)?,
            waits: row.get(4)?,
            at: row.get(5)?,
            outcome: outcome.zip(row.get(7)?),
        });
    }
    Ok(())
}

/// A retry that a remedy asked for.
pub struct RemedyRetry {
    pub workflow: WorkflowId,
    pub run: i64,
    /// Why the job had failed.
    pub cause: String,
    pub outcome: Option<RetryOutcome>,
    /// Who decided on it.
    pub by: String,
    pub tried: Tried,
}

/// A retry that a remedy asked for, by its row.
pub fn remedy_retry(db: &Connection, row: i64) -> rusqlite::Result<Option<RemedyRetry>> {
    db.prepare_cached(
        "SELECT workflow_id, run_id, cause, outcome, made_by, action FROM remedy WHERE id = ?1",
    )?
    .query_row([row], |row| {
        Ok(RemedyRetry {
            workflow: WorkflowId(row.get(0)?),
            run: row.get(1)?,
            cause: row.get(2)?,
            outcome: row.get_ref(3)?.as_str_or_null()?.and_then(RetryOutcome::parse),
            by: row.get(4)?,
            tried: page::word(row, "action", Tried::parse)?,
        })
    })
    .optional()
}
