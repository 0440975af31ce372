//! The one decision about a failed job: for `recover`, for the server's own retries, for the page,
//! for verdicts that are asked for, and for `why`. For the writer and the readers.

use super::journal::{failures, knowledge};
use super::waiting::{self, EndedAttempt as Ended};
use rusqlite::Connection;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::Execution;
use torc_model::recovery::{
    Action, Caps, Case, Current, Diagnosis, FailureCard, Fingerprint, Learned, Level, Nature,
    PastFailure, Policy, Record, RecoverJob, Tried,
};
use torc_model::status::JobStatus;

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
    pub workflow: WorkflowId,
    /// Number of its family.
    pub family: i64,
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
    let mut all = Vec::new();
    for attempt in failures::newest_failed(db, id, only)? {
        all.extend(failure(db, attempt, execution)?);
    }
    Ok(all)
}

/// The job of an attempt, with that attempt.
pub fn failure(
    db: &Connection,
    attempt: i64,
    execution: &Execution,
) -> rusqlite::Result<Option<Failure>> {
    let Some(ended) = waiting::failed(db, attempt)? else { return Ok(None) };
    failures::of_attempt(db, ended, execution).map(Some)
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
        let ended = &self.ended;
        let rows = failures::failed_before(db, self.job, ended.run, ended.number, LOOK_BACK)?;
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
        let used = failures::used_by_family(db, self.workflow, self.family, SIBLINGS)?;
        let mut peaks: Vec<u64> = used.iter().filter_map(|used| used.0).collect();
        let mut times: Vec<f64> = used.iter().filter_map(|used| used.1).collect();
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
        let cause = is_telling.then(|| diagnosis.common_cause());
        let outcomes = knowledge::alike(db, print, cause, self.workflow, Record::first_day(now))?;
        let mut learned = Learned::default();
        for seen in outcomes {
            let age = Record::day(now) - seen.day;
            let (same, family, cause) = (seen.is_same, seen.is_family, seen.is_cause);
            let (tried, counts) = (seen.tried, seen.counts);
            for (level, counts_here) in [
                (Level::Site, cause),
                (Level::Workflow, cause && seen.is_workflow),
                (Level::Family, family),
                (Level::Same, same),
            ] {
                if counts_here {
                    learned.add(level, tried, &counts, age);
                }
            }
            if same && tried == Tried::MoreMemory {
                learned.needed_bytes = learned.needed_bytes.max(seen.needed_bytes);
            }
            if same && tried == Tried::MoreTime {
                learned.needed_seconds = match (learned.needed_seconds, seen.needed_seconds) {
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
