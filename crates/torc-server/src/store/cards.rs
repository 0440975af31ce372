//! The one decision about a failed job: for `recover`, for the server's own retries, for the page,
//! for verdicts that are asked for, and for `why`. For the writer and the readers.

use super::load::parse;
use super::waiting::{self, EndedAttempt as Ended};
use rusqlite::{Connection, params};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Execution, JobExtra};
use torc_model::recovery::{
    Action, Caps, Case, Counts, Current, Diagnosis, FailureCard, Fingerprint, Learned, Level,
    Nature, PastFailure, Policy, Record, RecoverJob, Tried,
};
use torc_model::status::{JobStatus, StatusReason};

/// Earlier attempts of a job that are looked at.
const LOOK_BACK: i64 = 4;

/// Attempts of a workflow that ended last, among which jobs like the failed one are looked for.
const SIBLINGS: i64 = 500;

/// A job whose attempt ended badly.
pub struct Failure {
    pub job: JobId,
    pub name: String,
    pub status: JobStatus,
    /// A person or an agent has said that it is permanent.
    pub is_permanent: bool,
    pub num_cpus: i64,
    pub num_gpus: i64,
    pub current: Current,
    pub ended: Ended,
    workflow: WorkflowId,
    family: i64,
}

/// What is decided about it.
pub struct Decided {
    pub diagnosis: Diagnosis,
    pub fingerprint: Fingerprint,
    pub record: Record,
    pub card: FailureCard,
}

/// The jobs of a workflow that ended badly or wait for a verdict, or one of them.
pub fn failures(
    db: &Connection,
    id: WorkflowId,
    only: Option<JobId>,
    execution: &Execution,
) -> rusqlite::Result<Vec<Failure>> {
    // One job is found by its key, without a look at all the others.
    let which = if only.is_some() {
        "j.id = ?3 AND j.workflow_id = ?1"
    } else {
        "j.workflow_id = ?1 AND ?3 IS NULL"
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT a.id FROM job j
         JOIN attempt a ON a.id = (SELECT b.id FROM attempt b WHERE b.job_id = j.id AND b.ended_ms IS NOT NULL
            ORDER BY b.run_id DESC, b.attempt_id DESC LIMIT 1)
         WHERE {which} AND j.status >= 6 AND j.status <> 9 AND j.status IN (6, 8, 10) AND j.status_reason IS NOT ?2
         ORDER BY j.id",
    ))?;
    // A map that failed because of its items follows them.
    let rows = statement.query_map(
        params![id.0, StatusReason::TooManyItemsFailed.as_str(), only.map(|job| job.0)],
        |row| row.get::<_, i64>(0),
    )?;
    let mut failures = Vec::new();
    for attempt in rows {
        failures.extend(failure(db, attempt?, execution)?);
    }
    Ok(failures)
}

/// The job of an attempt, with that attempt.
pub fn failure(
    db: &Connection,
    attempt: i64,
    execution: &Execution,
) -> rusqlite::Result<Option<Failure>> {
    let Some(ended) = waiting::failed(db, attempt)? else { return Ok(None) };
    let mut statement = db.prepare_cached(
        "SELECT j.name, j.status, j.status_reason, j.extra, coalesce(j.memory_bytes, r.memory_bytes),
                coalesce(j.runtime_seconds, r.runtime_seconds), coalesce(j.num_cpus, r.num_cpus, 1), coalesce(j.num_gpus, r.num_gpus, 0),
                j.workflow_id, j.family
         FROM job j LEFT JOIN resource_requirements r ON r.id = j.resource_requirements_id WHERE j.id = ?1",
    )?;
    statement
        .query_row([ended.job.0], |row| {
            let extra: Option<String> = row.get(3)?;
            let extra: JobExtra = extra.as_deref().map(parse).transpose()?.unwrap_or_default();
            let reason: Option<String> = row.get(2)?;
            let unsigned = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok());
            Ok(Failure {
                job: ended.job,
                name: row.get(0)?,
                status: JobStatus::from_code(row.get(1)?).unwrap_or(JobStatus::Failed),
                is_permanent: reason.as_deref().and_then(StatusReason::parse)
                    == Some(StatusReason::ClassifiedPermanent),
                num_cpus: row.get(6)?,
                num_gpus: row.get(7)?,
                current: Current {
                    memory_bytes: unsigned(row.get(4)?),
                    runtime_seconds: unsigned(row.get(5)?),
                    timeout_seconds: extra.timeout.map(|t| t.0),
                    enforces_runtime: execution.enforces_runtime(&extra),
                    exec_seconds: ended.usage.exec_seconds,
                    peak_memory_bytes: unsigned(ended.usage.peak_memory_bytes),
                    known_bytes: None,
                    known_seconds: None,
                },
                workflow: WorkflowId(row.get(8)?),
                family: row.get(9)?,
                ended,
            })
        })
        .map(Some)
}

impl Failure {
    /// With the end that was just reported and is not written yet.
    pub fn with_end(mut self, end: &torc_engine::End) -> Self {
        self.ended = self.ended.with_end(end);
        self.current.exec_seconds = self.ended.usage.exec_seconds;
        self.current.peak_memory_bytes =
            self.ended.usage.peak_memory_bytes.and_then(|v| u64::try_from(v).ok());
        self
    }

    /// Decides what to do about it. `None` if nothing shows that it failed.
    pub fn decide(
        &self,
        db: &Connection,
        caps: &Caps,
        policy: &Policy,
        now: i64,
    ) -> rusqlite::Result<Option<Decided>> {
        let Some(diagnosis) = self.ended.diagnosis() else { return Ok(None) };
        let fingerprint = self.ended.fingerprint_of(Some(&diagnosis));
        let record = waiting::record(db, &fingerprint, now)?;
        if self.is_permanent {
            let card = FailureCard {
                action: Action::Skip,
                changes: Vec::new(),
                why: "it was classified as permanent".into(),
                chance: 0.0,
                cost_seconds: None,
            };
            return Ok(Some(Decided { diagnosis, fingerprint, record, card }));
        }
        let earlier = self.earlier(db)?;
        let learned = match policy.no_memory {
            true => Learned::default(),
            false => self.learned(db, &fingerprint, &diagnosis, now)?,
        };
        let mut current = self.current;
        if matches!(diagnosis.nature, Nature::Memory | Nature::Time) {
            (current.known_bytes, current.known_seconds) = self.siblings(db)?;
        }
        let case = Case {
            diagnosis: &diagnosis,
            last: &past(&self.ended, &diagnosis, &fingerprint),
            earlier: &earlier,
            current: &current,
            caps,
            policy,
            learned: &learned,
        };
        let card = case.decide();
        Ok(Some(Decided { diagnosis, fingerprint, record, card }))
    }

    /// Failed attempts of the same run before this one, newest first.
    fn earlier(&self, db: &Connection) -> rusqlite::Result<Vec<PastFailure>> {
        if self.ended.number <= 1 {
            return Ok(Vec::new());
        }
        let mut statement = db.prepare_cached(
            "SELECT id FROM attempt WHERE job_id = ?1 AND run_id = ?2 AND attempt_id < ?3 AND cause IS NOT NULL
             ORDER BY attempt_id DESC LIMIT ?4",
        )?;
        let key = [self.job.0, self.ended.run, self.ended.number, LOOK_BACK];
        let rows: Vec<i64> =
            statement.query_map(key, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let mut earlier = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(ended) = waiting::failed(db, row)? else { continue };
            let Some(diagnosis) = ended.diagnosis() else { continue };
            earlier.push(past(&ended, &diagnosis, &ended.fingerprint_of(Some(&diagnosis))));
        }
        Ok(earlier)
    }

    /// What successful jobs of the same family used: a high quantile of memory and time.
    fn siblings(&self, db: &Connection) -> rusqlite::Result<(Option<u64>, Option<f64>)> {
        let mut statement = db.prepare_cached(
            "SELECT e.peak_memory_bytes, e.exec_seconds FROM (
                SELECT job_id, state, peak_memory_bytes, exec_seconds FROM attempt
                WHERE workflow_id = ?1 AND ended_ms IS NOT NULL ORDER BY ended_ms DESC LIMIT ?3) e
             JOIN job j ON j.id = e.job_id WHERE j.family = ?2 AND e.state = 'completed'",
        )?;
        let mut rows = statement.query([self.workflow.0, self.family, SIBLINGS])?;
        let (mut peaks, mut times) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            peaks.extend(row.get::<_, Option<i64>>(0)?.and_then(|v| u64::try_from(v).ok()));
            times.extend(row.get::<_, Option<f64>>(1)?);
        }
        peaks.sort_unstable();
        times.sort_by(f64::total_cmp);
        let high = |count: usize| (count * 95).div_ceil(100).saturating_sub(1);
        Ok((peaks.get(high(peaks.len())).copied(), times.get(high(times.len())).copied()))
    }

    /// What the outcomes of earlier retries teach.
    fn learned(
        &self,
        db: &Connection,
        print: &Fingerprint,
        diagnosis: &Diagnosis,
        now: i64,
    ) -> rusqlite::Result<Learned> {
        // A bare kind such as `program_error` joins what has nothing in common.
        let is_telling =
            diagnosis.rule.is_some() || matches!(diagnosis.nature, Nature::Memory | Nature::Time);
        let mut statement = db.prepare_cached(
            "SELECT p.fingerprint = ?1, p.family = ?2, p.cause = ?3,
                    m.workflow = (SELECT w.name FROM workflow w WHERE w.id = ?4), m.action, m.day,
                    sum(m.tries), sum(m.succeeded), max(m.needed_bytes), max(m.needed_seconds)
             FROM failure_print p JOIN failure_memory m ON m.fingerprint = p.fingerprint
             WHERE (p.family = ?2 OR p.cause = ?3 AND ?6) AND m.day >= ?5 GROUP BY 1, 2, 3, 4, 5, 6",
        )?;
        let mut rows = statement.query(params![
            print.id,
            print.family,
            diagnosis.common_cause(),
            self.workflow.0,
            Record::first_day(now),
            is_telling
        ])?;
        let mut learned = Learned::default();
        while let Some(row) = rows.next()? {
            let (same, family, cause, workflow): (bool, bool, bool, bool) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let Some(tried) = Tried::parse(&row.get::<_, String>(4)?) else { continue };
            let age = Record::day(now) - row.get::<_, i64>(5)?;
            let counts = Counts { tries: row.get(6)?, succeeded: row.get(7)?, ..Counts::default() };
            let cause = cause && is_telling;
            for (level, counts_here) in [
                (Level::Site, cause),
                (Level::Workflow, cause && workflow),
                (Level::Family, family),
                (Level::Same, same),
            ] {
                if counts_here {
                    learned.add(level, tried, &counts, age);
                }
            }
            if same && tried == Tried::MoreMemory {
                let bytes: Option<i64> = row.get(8)?;
                let bytes = bytes.and_then(|v| u64::try_from(v).ok());
                learned.needed_bytes = learned.needed_bytes.max(bytes);
            }
            if same && tried == Tried::MoreTime {
                let seconds: Option<f64> = row.get(9)?;
                learned.needed_seconds = match (learned.needed_seconds, seconds) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        Ok(learned)
    }
}

fn past(ended: &Ended, diagnosis: &Diagnosis, fingerprint: &Fingerprint) -> PastFailure {
    PastFailure {
        fingerprint: fingerprint.id.clone(),
        kind: diagnosis.kind,
        memory_bytes: ended.memory_bytes,
        exec_seconds: ended.usage.exec_seconds,
        host: ended.host.clone(),
    }
}

impl Decided {
    /// As `torc recover` and everything like it shows it.
    pub fn view(self, failure: &Failure) -> RecoverJob {
        RecoverJob {
            job_id: failure.job,
            name: failure.name.clone(),
            status: failure.status,
            attempt_id: failure.ended.number,
            diagnosis: self.diagnosis,
            action: self.card.action,
            changes: self.card.changes,
            reason: self.card.why,
            chance: (self.card.chance * 1000.0).round() / 1000.0,
            cost_seconds: self.card.cost_seconds,
            fingerprint: self.fingerprint.id,
            record: self.record,
        }
    }
}
