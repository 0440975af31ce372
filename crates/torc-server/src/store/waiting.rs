//! Jobs that wait for a verdict, with what makes their failures alike. For the writer and the
//! readers.

use super::load::parse;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use torc_engine::{End, RetryEnd};
use torc_model::attempt::{Ending, Output, Usage};
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::plan::JobExtra;
use torc_model::recovery::{
    Counts, Current, Diagnosis, Facts, Fingerprint, Kind, Observed, Record, Rules, Tried, diagnose,
    diagnose_with,
};
use torc_model::status::{AttemptState, Cause, EndDetail};

/// A job that waits for a verdict.
pub struct Waiting {
    pub job: JobId,
    pub name: String,
    /// The row of the attempt that failed.
    pub attempt: i64,
    pub run: i64,
    /// Its number in the run.
    pub number: i64,
    pub current: Current,
    pub fingerprint: Fingerprint,
    /// It was tried again after this very failure and failed the same way.
    pub is_repeated: bool,
}

/// All that wait in a workflow, or one of them, in the order of the workflow.
pub fn waiting(
    db: &Connection,
    id: WorkflowId,
    job: Option<JobId>,
) -> rusqlite::Result<Vec<Waiting>> {
    let mut statement = db.prepare_cached(
        "SELECT j.id, j.name, j.extra, coalesce(j.memory_bytes, r.memory_bytes),
                coalesce(j.runtime_seconds, r.runtime_seconds), a.id, a.run_id, a.attempt_id, a.peak_memory_bytes,
                f.fingerprint, f.family, f.kind, f.program, f.exception, f.template,
                (SELECT count(*) FROM failure g WHERE g.job_id = j.id AND g.run_id = a.run_id
                    AND g.fingerprint = f.fingerprint)
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id
         JOIN attempt a ON a.id = (SELECT b.id FROM attempt b WHERE b.job_id = j.id AND b.ended_ms IS NOT NULL
            ORDER BY b.run_id DESC, b.attempt_id DESC LIMIT 1)
         LEFT JOIN failure f ON f.attempt = a.id
         WHERE j.workflow_id = ?1 AND j.status = 10 AND j.status >= 6 AND j.status <> 9 AND (?2 IS NULL OR j.id = ?2) ORDER BY j.id",
    )?;
    let mut rows = statement.query(params![id.0, job.map(|j| j.0)])?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        let extra: Option<String> = row.get(2)?;
        let extra: JobExtra = extra.as_deref().map(parse).transpose()?.unwrap_or_default();
        let attempt: i64 = row.get(5)?;
        let fingerprint = match row.get::<_, Option<String>>(9)? {
            Some(id) => Fingerprint {
                id,
                family: row.get(10)?,
                kind: Kind::parse(&row.get::<_, String>(11)?).unwrap_or(Kind::Unknown),
                program: row.get(12)?,
                exception: row.get(13)?,
                template: row.get(14)?,
            },
            // It failed before failures were told apart.
            None => match failed(db, attempt)? {
                Some(failed) => failed.fingerprint(),
                None => continue,
            },
        };
        let unsigned = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok());
        waiting.push(Waiting {
            job: JobId(row.get(0)?),
            name: row.get(1)?,
            attempt,
            run: row.get(6)?,
            number: row.get(7)?,
            current: Current {
                memory_bytes: unsigned(row.get(3)?),
                runtime_seconds: unsigned(row.get(4)?),
                timeout_seconds: extra.timeout.map(|t| t.0),
                peak_memory_bytes: unsigned(row.get(8)?),
                ..Current::default()
            },
            fingerprint,
            is_repeated: row.get::<_, i64>(15)? > 1,
        });
    }
    Ok(waiting)
}

/// An ended attempt, as far as a diagnosis needs it.
pub struct EndedAttempt {
    pub attempt: i64,
    pub job: JobId,
    pub run: i64,
    /// Its number in the run.
    pub number: i64,
    /// Where it ran.
    pub host: Option<String>,
    pub retry_of: Option<i64>,
    pub state: String,
    pub command: String,
    pub ending: Ending,
    pub usage: Usage,
    pub output: Output,
    pub memory_bytes: Option<i64>,
    time_limit_seconds: Option<i64>,
    observed: Option<Observed>,
    /// Rules of its workflow.
    rules: Option<Rules>,
}

const ENDED: &str = "SELECT a.id, a.job_id, a.run_id, a.retry_of, a.state, j.command, a.cause, a.return_code, a.signal, \
    a.exec_seconds, a.stderr_tail, a.time_limit_seconds, a.peak_memory_bytes, a.memory_bytes, a.error, a.evidence, a.stderr_tail_start, a.detail, a.cpu_seconds, a.observed, a.attempt_id, \
    (SELECT c.hostname FROM compute_node c WHERE c.id = a.compute_node_id), \
    (SELECT json_extract(w.settings, '$.recovery_rules') FROM workflow w WHERE w.id = a.workflow_id) \
    FROM attempt a JOIN job j ON j.id = a.job_id";

/// An attempt by its row.
pub fn failed(db: &Connection, attempt: i64) -> rusqlite::Result<Option<EndedAttempt>> {
    db.prepare_cached(&format!("{ENDED} WHERE a.id = ?1"))?
        .query_row([attempt], row_to_failed)
        .optional()
}

/// The newest ended attempt of a job.
pub fn last_ended(db: &Connection, job: JobId) -> rusqlite::Result<Option<EndedAttempt>> {
    let newest = "WHERE a.job_id = ?1 AND a.ended_ms IS NOT NULL ORDER BY a.run_id DESC, a.attempt_id DESC LIMIT 1";
    db.prepare_cached(&format!("{ENDED} {newest}"))?.query_row([job.0], row_to_failed).optional()
}

fn row_to_failed(row: &Row<'_>) -> rusqlite::Result<EndedAttempt> {
    let (cause, evidence): (Option<String>, Option<String>) = (row.get(6)?, row.get(15)?);
    let observed: Option<String> = row.get(19)?;
    Ok(EndedAttempt {
        attempt: row.get(0)?,
        job: JobId(row.get(1)?),
        run: row.get(2)?,
        number: row.get(20)?,
        host: row.get(21)?,
        retry_of: row.get(3)?,
        state: row.get(4)?,
        command: row.get(5)?,
        ending: Ending {
            return_code: row.get(7)?,
            signal: row.get(8)?,
            cause: cause.as_deref().and_then(Cause::parse),
            detail: row.get::<_, Option<String>>(17)?.as_deref().and_then(EndDetail::parse),
            error: row.get(14)?,
            evidence: evidence.as_deref().map(parse).transpose()?.unwrap_or_default(),
        },
        usage: Usage {
            exec_seconds: row.get(9)?,
            cpu_seconds: row.get(18)?,
            peak_memory_bytes: row.get(12)?,
            ..Usage::default()
        },
        output: Output {
            stderr_tail: row.get(10)?,
            stderr_tail_start: row.get(16)?,
            ..Output::default()
        },
        time_limit_seconds: row.get(11)?,
        memory_bytes: row.get(13)?,
        observed: observed.as_deref().map(parse).transpose()?,
        rules: row
            .get::<_, Option<String>>(22)?
            .map(|text| parse(&text).map(Rules::of_workflow))
            .transpose()?,
    })
}

impl EndedAttempt {
    /// It, as far as it tells how a retry went.
    pub fn retry_end(&self) -> RetryEnd {
        RetryEnd {
            attempt: AttemptId(self.attempt),
            retry_of: self.retry_of.map(AttemptId),
            run: self.run,
            // The table's CHECK allows nothing else.
            state: AttemptState::parse(&self.state).unwrap_or(AttemptState::Failed),
            cause: self.ending.cause,
        }
    }

    /// The same attempt with the end that was just reported and is not written yet.
    pub fn with_end(self, end: &End) -> Self {
        Self {
            ending: end.ending.clone(),
            usage: end.usage,
            output: end.output.clone(),
            observed: end.observed.clone(),
            ..self
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            // A job that failed without a word of its own still failed.
            cause: self.ending.cause.or(Some(Cause::Exit)),
            time_limit_seconds: self.time_limit_seconds,
            memory_bytes: self.memory_bytes,
            command: &self.command,
            ..Facts::of(&self.ending, &self.usage, &self.output, self.observed.as_ref())
        }
    }

    /// What happened to it.
    pub fn diagnosis(&self) -> Option<Diagnosis> {
        match &self.rules {
            Some(rules) => diagnose_with(rules, &self.facts()),
            None => diagnose(&self.facts()),
        }
    }

    /// What makes it like others.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_of(self.diagnosis().as_ref())
    }

    /// The same for one whose diagnosis is known.
    pub fn fingerprint_of(&self, diagnosis: Option<&Diagnosis>) -> Fingerprint {
        Fingerprint::new(&self.command, &self.facts(), diagnosis)
    }
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
