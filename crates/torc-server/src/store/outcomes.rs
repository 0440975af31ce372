//! How retries that a recovery asked for went, and what is remembered of that.

use super::journal::{self, AskedIn, RemedyRow, knowledge, verdicts};
use super::waiting::{self, EndedAttempt};
use super::writer::{Failed, State, Tx};
use rusqlite::Connection;
use std::collections::HashMap;
use torc_engine::Lesson;
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{Counts, Diagnosis, Fingerprint, Tried};
use torc_model::status::Cause;

/// Who let a job run again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The server itself.
    Auto,
    /// `torc recover` or `torc watch --recover`.
    Recover,
    /// A person who asked for this very job.
    Person,
}

impl By {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Recover => "recover",
            Self::Person => "person",
        }
    }
}

/// A retry that is about to be queued.
pub struct QueuedRetry<'a> {
    pub by: By,
    pub tried: Tried,
    pub diagnosis: &'a Diagnosis,
    pub fingerprint: &'a Fingerprint,
    pub ended: &'a EndedAttempt,
    /// It waits for another retry of the same cause.
    pub waits: bool,
}

/// Writes down that a job runs again, so that its outcome teaches something.
pub fn note(tx: &mut Tx<'_>, id: WorkflowId, retry: &QueuedRetry<'_>) -> Result<(), Failed> {
    knowledge::remember_failure(
        tx.db,
        retry.ended,
        retry.fingerprint,
        retry.diagnosis.common_cause(),
    )?;
    let remedy = RemedyRow {
        job: retry.ended.job,
        tried: (retry.ended.run, retry.ended.number),
        follows: retry.ended.attempt,
        action: retry.tried.as_str(),
        by: retry.by.as_str(),
        cause: retry.diagnosis.common_cause(),
        fingerprint: &retry.fingerprint.id,
        waits: retry.waits,
    };
    let row = journal::insert_remedy(tx.db, id, &remedy, tx.now)?;
    tx.state.remedied.insert(retry.ended.job, row);
    Ok(())
}

/// The same for a job that a person lets run again, of whatever it had failed.
pub fn note_person(tx: &mut Tx<'_>, id: WorkflowId, job: JobId) -> Result<(), Failed> {
    let Some(ended) = waiting::last_ended(tx.db, job)? else { return Ok(()) };
    if ended.ending.cause.is_none_or(|cause| cause == Cause::Canceled || cause.is_stop()) {
        return Ok(());
    }
    let Some(diagnosis) = ended.diagnosis() else { return Ok(()) };
    let fingerprint = ended.fingerprint_of(Some(&diagnosis));
    let retry = QueuedRetry {
        by: By::Person,
        tried: Tried::Again,
        diagnosis: &diagnosis,
        fingerprint: &fingerprint,
        ended: &ended,
        waits: false,
    };
    note(tx, id, &retry)
}

/// Looks at what just happened: a failure that waits for a verdict gets its fingerprint, and a
/// retry that was asked for tells how it went. Costs nothing for all the others. Answers with the
/// retries that tell now.
pub fn observe(
    db: &Connection,
    state: &mut State,
    event: &EventView,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    let Some(job) = event.job_id else { return Ok(None) };
    let is_pending = event.kind == EventKind::JobPendingFailed;
    let is_end = is_pending
        || matches!(
            event.kind,
            EventKind::JobCompleted
                | EventKind::JobFailed
                | EventKind::JobTerminated
                | EventKind::JobRetried
                | EventKind::JobCanceled
                // A map has found its items: so ends its own attempt when it succeeds.
                | EventKind::ItemsExpanded
        );
    let known = |of: &HashMap<JobId, i64>| {
        if is_end && !of.is_empty() { of.get(&job).copied() } else { None }
    };
    let (judged, remedied) = (known(&state.judged), known(&state.remedied));
    if !is_pending && judged.is_none() && remedied.is_none() {
        return Ok(None);
    }
    let Some(ended) = waiting::last_ended(db, job)? else { return Ok(None) };
    if is_pending {
        let diagnosis = ended.diagnosis();
        let print = ended.fingerprint_of(diagnosis.as_ref());
        let cause = diagnosis.as_ref().map_or("unknown", Diagnosis::common_cause);
        knowledge::remember_failure(db, &ended, &print, cause)?;
    }
    if let Some(row) = judged
        && learn(db, AskedIn::Classification, row, &ended, now)?
    {
        state.judged.remove(&job);
    }
    if let Some(row) = remedied
        && learn(db, AskedIn::Remedy, row, &ended, now)?
    {
        state.remedied.remove(&job);
        return Ok(Some(row));
    }
    Ok(None)
}

/// Writes down how a retry ended. Tells whether that is known now.
fn learn(
    db: &Connection,
    asked: AskedIn,
    row: i64,
    ended: &EndedAttempt,
    now: i64,
) -> rusqlite::Result<bool> {
    let Some((awaited, tried)) = verdicts::awaited(db, asked, row)? else { return Ok(true) };
    match awaited.on_end(&ended.retry_end(), || ended.fingerprint().id) {
        Lesson::NotYet => Ok(false),
        Lesson::Never => Ok(true),
        Lesson::Interrupted => {
            journal::retry_follows(db, asked, row, ended.attempt)?;
            Ok(false)
        }
        Lesson::Outcome(outcome) => {
            journal::retry_outcome(db, asked, row, outcome, now)?;
            let mut counts = Counts::default();
            counts.add(outcome);
            if counts.tries > 0 {
                knowledge::remember_outcome(
                    db,
                    &awaited.fingerprint,
                    tried.as_str(),
                    &counts,
                    ended,
                    now,
                )?;
            }
            Ok(true)
        }
    }
}

/// Retries that have not ended yet, at boot: those that verdicts asked for, and those of recoveries.
pub fn open(db: &Connection) -> rusqlite::Result<(HashMap<JobId, i64>, HashMap<JobId, i64>)> {
    let judged = verdicts::open_retries(db, AskedIn::Classification)?;
    Ok((judged, verdicts::open_retries(db, AskedIn::Remedy)?))
}
