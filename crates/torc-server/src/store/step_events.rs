//! What steps do becomes events: while their attempt runs, and the rest at its end.

use super::journal::attempts;
use super::writer::{Failed, Tx};
use serde_json::Value;
use torc_engine::{Change, JobIx, unwritten};
use torc_model::api::StepEvents;
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::steps::StepEvent;

/// How many events of an attempt's steps are known.
pub fn known(tx: &Tx<'_>, attempt: AttemptId) -> Result<u64, Failed> {
    Ok(attempts::step_events(tx.db, attempt)?)
}

/// Writes events down.
pub fn tell(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    job: JobId,
    events: &[StepEvent],
) -> Result<(), Failed> {
    let mut changes = Vec::new();
    for event in events.iter().filter(|event| event.kind.is_of_steps()) {
        let mut data = event.data.clone();
        data.insert("step".into(), event.path.as_str().into());
        data.insert("at_ms".into(), event.at_ms.into());
        changes.push(Change::Event { kind: event.kind, job: Some(job), data: Value::Object(data) });
    }
    tx.write(id, changes)
}

/// What an attempt's steps do while it runs becomes events, each once however often it is told.
pub fn while_running(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    told: &StepEvents,
) -> Result<(), Failed> {
    let known = known(tx, told.attempt.id)?;
    let news = unwritten(known, told.from, &told.events);
    if news.is_empty() {
        return Ok(());
    }
    let job = tx.workflow(id)?.job(index).id();
    tell(tx, id, job, news)?;
    let count = known.saturating_add(news.len() as u64);
    tx.write(id, vec![Change::AttemptSteps(told.attempt.id, count)])
}
