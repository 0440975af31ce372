//! Memory never knows more than the database: what the engine holds before a commit of a test is
//! compared with what a restart would make of the rows.

use super::super::load;
use super::super::writer::State;
use rusqlite::Connection;
use torc_engine::KnownRunner;
use torc_model::ids::{JobId, RunnerId};

/// Larger workflows would make the tests slow.
const MAX_JOBS: usize = 500;

/// Where memory and rows differ, if they do.
pub fn difference(db: &Connection, state: &State) -> Option<String> {
    let fresh = load::boot(db).expect("rows that can be read");
    for (id, kept) in state.engine.workflows() {
        if kept.len() > MAX_JOBS {
            continue;
        }
        let Some(stored) = load::workflow(db, *id).expect("rows that can be read") else {
            return Some(format!("workflow {id} has no row"));
        };
        if let Some(difference) = kept.difference_besides_ranks(&stored) {
            return Some(format!("workflow {id}: {difference}"));
        }
    }
    let known = |(id, runner): (&RunnerId, &KnownRunner)| {
        let kept = runner.conduct.quarantine().cloned();
        (*id, runner.workflow, runner.host.clone(), runner.ordered, kept, runner.pool)
    };
    let runners = |state: &State| state.engine.runners().iter().map(known).collect::<Vec<_>>();
    if runners(state) != runners(&fresh) {
        return Some(format!("runners: {:?}, {:?}", runners(state), runners(&fresh)));
    }
    for (name, stored) in fresh.engine.limits() {
        let kept = state.engine.limits().get(name).map(|limit| (limit.max, limit.used));
        if kept != Some((stored.max, stored.used)) {
            return Some(format!("limit {name}: {kept:?}, {stored:?}"));
        }
    }
    let due = |state: &State| state.engine.reservations().due(0, true);
    let (kept, stored) = (due(state), due(&fresh));
    if kept != stored {
        return Some(format!("reservations: {kept:?}, {stored:?}"));
    }
    // One whose outcome will never be known is forgotten until the next start.
    let is_judged = |(job, row): (&JobId, &i64)| fresh.judged.get(job) == Some(row);
    let is_remedied = |(job, row): (&JobId, &i64)| fresh.remedied.get(job) == Some(row);
    if !state.judged.iter().all(is_judged) || !state.remedied.iter().all(is_remedied) {
        return Some("retries whose outcome is awaited".into());
    }
    let next =
        |state: &State| (state.engine.next_attempt(), state.engine.next_job(), state.next_event);
    let (kept, stored) = (next(state), next(&fresh));
    let is_ahead = kept.0 >= stored.0 && kept.1 >= stored.1 && kept.2 >= stored.2;
    (!is_ahead).then(|| format!("an id would be given twice: {kept:?}, {stored:?}"))
}
