//! Rows of what is known of failures: what makes one like others, and how retries of it went.

use crate::store::waiting::EndedAttempt;
use rusqlite::{Connection, params};
use torc_model::ids::WorkflowId;
use torc_model::recovery::{Counts, Fingerprint, Kind, KnownFailure, KnownOutcome, Record, Tried};

/// All that is known, or what is known of one failure: the latest first.
pub fn list(db: &Connection, only: Option<&str>) -> rusqlite::Result<Vec<KnownFailure>> {
    let mut statement = db.prepare_cached(
        "SELECT p.fingerprint, p.family, p.cause, p.kind, p.program, p.exception, p.template, p.seen_ms,
                m.action, m.day, m.workflow, m.tries, m.succeeded, m.failed_same, m.failed_other, m.needed_bytes,
                m.needed_seconds
         FROM failure_print p JOIN failure_memory m ON m.fingerprint = p.fingerprint
         WHERE ?1 IS NULL OR p.fingerprint = ?1 ORDER BY p.seen_ms DESC, p.fingerprint, m.action, m.day",
    )?;
    let mut rows = statement.query([only])?;
    let mut all: Vec<KnownFailure> = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        if all.last().is_none_or(|known| known.fingerprint.id != id) {
            all.push(KnownFailure {
                fingerprint: Fingerprint {
                    id,
                    family: row.get(1)?,
                    kind: Kind::parse(&row.get::<_, String>(3)?).unwrap_or(Kind::Unknown),
                    program: row.get(4)?,
                    exception: row.get(5)?,
                    template: row.get(6)?,
                },
                cause: row.get(2)?,
                seen_ms: row.get(7)?,
                outcomes: Vec::new(),
            });
        }
        let Some(action) = Tried::parse(&row.get::<_, String>(8)?) else { continue };
        let outcome = KnownOutcome {
            action,
            day: row.get(9)?,
            workflow: row.get(10)?,
            counts: Counts {
                tries: row.get(11)?,
                succeeded: row.get(12)?,
                failed_same: row.get(13)?,
                failed_other: row.get(14)?,
            },
            needed_bytes: row.get(15)?,
            needed_seconds: row.get(16)?,
        };
        if let Some(known) = all.last_mut() {
            known.outcomes.push(outcome);
        }
    }
    Ok(all)
}

/// Writes down what makes a failure like others.
pub fn remember_failure(
    db: &Connection,
    ended: &EndedAttempt,
    print: &Fingerprint,
    cause: &str,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO failure (attempt, job_id, run_id, fingerprint, family, kind, program, exception,
         template, cause) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        ended.attempt,
        ended.job.0,
        ended.run,
        print.id,
        print.family,
        print.kind.as_str(),
        print.program,
        print.exception,
        print.template,
        cause,
    ])?;
    Ok(())
}

/// Adds how a retry ended to what is known of its failure.
pub fn remember_outcome(
    db: &Connection,
    fingerprint: &str,
    tried: &str,
    counts: &Counts,
    ended: &EndedAttempt,
    now: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO failure_print (fingerprint, family, cause, kind, program, exception, template, seen_ms)
         SELECT fingerprint, family, cause, kind, program, exception, template, ?4 FROM failure
         WHERE job_id = ?2 AND run_id = ?3 AND fingerprint = ?1 ORDER BY attempt DESC LIMIT 1
         ON CONFLICT (fingerprint) DO UPDATE SET seen_ms = ?4, cause = excluded.cause",
    )?
    .execute(params![fingerprint, ended.job.0, ended.run, now])?;
    let needed = counts.succeeded > 0;
    db.prepare_cached(
        "INSERT INTO failure_memory (fingerprint, action, day, workflow, tries, succeeded, failed_same, failed_other,
            needed_bytes, needed_seconds)
         SELECT ?1, ?2, ?3, w.name, ?4, ?5, ?6, ?7, ?8, ?9 FROM job j JOIN workflow w ON w.id = j.workflow_id
         WHERE j.id = ?10 AND EXISTS (SELECT 1 FROM failure_print p WHERE p.fingerprint = ?1)
         ON CONFLICT (fingerprint, action, day, workflow) DO UPDATE SET tries = tries + ?4, succeeded = succeeded + ?5,
            failed_same = failed_same + ?6, failed_other = failed_other + ?7,
            needed_bytes = max(coalesce(needed_bytes, ?8), coalesce(?8, needed_bytes)),
            needed_seconds = max(coalesce(needed_seconds, ?9), coalesce(?9, needed_seconds))",
    )?
    .execute(params![
        fingerprint,
        tried,
        Record::day(now),
        counts.tries,
        counts.succeeded,
        counts.failed_same,
        counts.failed_other,
        ended.usage.peak_memory_bytes.filter(|_| needed),
        ended.usage.exec_seconds.filter(|_| needed),
        ended.job.0,
    ])?;
    Ok(())
}

/// Writes a failure that others know; false: it is known here.
pub fn insert_print(
    db: &Connection,
    print: &Fingerprint,
    cause: &str,
    seen_ms: i64,
) -> rusqlite::Result<bool> {
    let new = db
        .prepare_cached(
            "INSERT INTO failure_print (fingerprint, family, cause, kind, program, exception, template, seen_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (fingerprint) DO NOTHING",
        )?
        .execute(params![
            print.id,
            print.family,
            cause,
            print.kind.as_str(),
            print.program,
            print.exception,
            print.template,
            seen_ms,
        ])?;
    Ok(new > 0)
}

/// Writes how retries of a failure went in a workflow elsewhere. The larger numbers of a day stay.
pub fn put_outcome(
    db: &Connection,
    print: &str,
    outcome: &KnownOutcome,
    workflow: &str,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO failure_memory (fingerprint, action, day, workflow, tries, succeeded, failed_same,
            failed_other, needed_bytes, needed_seconds) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (fingerprint, action, day, workflow) DO UPDATE SET
            tries = excluded.tries, succeeded = excluded.succeeded, failed_same = excluded.failed_same,
            failed_other = excluded.failed_other,
            needed_bytes = coalesce(excluded.needed_bytes, needed_bytes),
            needed_seconds = coalesce(excluded.needed_seconds, needed_seconds)
         WHERE excluded.tries > tries",
    )?
    .execute(params![
        print,
        outcome.action.as_str(),
        outcome.day,
        workflow,
        outcome.counts.tries,
        outcome.counts.succeeded,
        outcome.counts.failed_same,
        outcome.counts.failed_other,
        outcome.needed_bytes,
        outcome.needed_seconds,
    ])?;
    Ok(())
}

/// Deletes one failure, or all, with what became of their retries; tells how many.
pub fn delete_prints(db: &Connection, only: Option<&str>) -> rusqlite::Result<usize> {
    db.prepare_cached("DELETE FROM failure_print WHERE ?1 IS NULL OR fingerprint = ?1")?
        .execute([only])
}

/// What became of earlier retries of this failure and of near ones.
pub fn record(db: &Connection, fingerprint: &Fingerprint, now: i64) -> rusqlite::Result<Record> {
    let mut statement = db.prepare_cached(
        "SELECT iif(m.fingerprint <> ?1, 'near', iif(m.day < ?3, 'older', m.action)),
                sum(m.tries), sum(m.succeeded), sum(m.failed_same), sum(m.failed_other)
         FROM failure_print p JOIN failure_memory m ON m.fingerprint = p.fingerprint
         WHERE p.family = ?2 GROUP BY 1",
    )?;
    let mut record = Record::default();
    let mut rows =
        statement.query(params![fingerprint.id, fingerprint.family, Record::first_day(now)])?;
    while let Some(row) = rows.next()? {
        let counts = Counts {
            tries: row.get(1)?,
            succeeded: row.get(2)?,
            failed_same: row.get(3)?,
            failed_other: row.get(4)?,
        };
        let which: String = row.get(0)?;
        match Tried::parse(&which) {
            Some(Tried::Again) => record.again = counts,
            Some(Tried::MoreMemory) => record.more_memory = counts,
            Some(Tried::MoreTime) => record.more_time = counts,
            None if which == "older" => record.older = counts,
            None => record.near = counts,
        }
    }
    Ok(record)
}

/// How retries of a failure went that is the same, of the same family, or of the same cause.
pub struct AlikeOutcome {
    /// The very same failure.
    pub is_same: bool,
    /// Of the same family.
    pub is_family: bool,
    /// Of the same cause, where the cause tells enough.
    pub is_cause: bool,
    /// In workflows of the same name.
    pub is_workflow: bool,
    /// What was tried.
    pub tried: Tried,
    /// On which day.
    pub day: i64,
    /// How often, and how often it succeeded.
    pub counts: Counts,
    /// What successful retries needed.
    pub needed_bytes: Option<u64>,
    /// How long successful retries took.
    pub needed_seconds: Option<f64>,
}

/// What is known of retries of failures like this one since a day. None for `cause`: the cause is too wide to
/// compare failures by it.
pub fn alike(
    db: &Connection,
    print: &Fingerprint,
    cause: Option<&str>,
    workflow: WorkflowId,
    first_day: i64,
) -> rusqlite::Result<Vec<AlikeOutcome>> {
    let mut statement = db.prepare_cached(
        "SELECT p.fingerprint = ?1, p.family = ?2, p.cause IS ?3,
                m.workflow = (SELECT w.name FROM workflow w WHERE w.id = ?4), m.action, m.day,
                sum(m.tries), sum(m.succeeded), max(m.needed_bytes), max(m.needed_seconds)
         FROM failure_print p JOIN failure_memory m ON m.fingerprint = p.fingerprint
         WHERE (p.family = ?2 OR p.cause = ?3) AND m.day >= ?5 GROUP BY 1, 2, 3, 4, 5, 6",
    )?;
    let mut rows =
        statement.query(params![print.id, print.family, cause, workflow.0, first_day])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(tried) = Tried::parse(&row.get::<_, String>(4)?) else { continue };
        let bytes: Option<i64> = row.get(8)?;
        all.push(AlikeOutcome {
            is_same: row.get(0)?,
            is_family: row.get(1)?,
            is_cause: row.get(2)?,
            is_workflow: row.get(3)?,
            tried,
            day: row.get(5)?,
            counts: Counts { tries: row.get(6)?, succeeded: row.get(7)?, ..Counts::default() },
            needed_bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            needed_seconds: row.get(9)?,
        });
    }
    Ok(all)
}
