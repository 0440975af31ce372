//! Runners whose jobs fail at once while others succeed: they get no more work, and what they burnt
//! is given back.

use super::Store;
use super::names;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::{OptionalExtension, params};
use torc_engine::{Burnt, Gate, QUARANTINE_MS, Quarantine, RunnerEvent};
use torc_model::api::{QuarantineRequest, QuarantineView};
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::status::{Cause, Outcome};

/// A month.
const MAX_SECONDS: i64 = 30 * 24 * 3600;

/// Takes in how an attempt ended and draws the conclusion about its machine.
pub fn ended(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    (job, attempt): (JobId, AttemptId),
    cause: Option<Cause>,
    seconds: f64,
) -> Result<(), Failed> {
    let clocks = tx.clocks();
    match tx.state.runners.judge(runner, (job, attempt), (cause, seconds), clocks) {
        None => Ok(()),
        Some(Burnt { attempts, quarantine: kept }) => quarantine(tx, id, runner, &attempts, kept),
    }
}

impl Store {
    /// Keeps work from every runner of a workflow on a machine, or lets it come again, because a
    /// user says so.
    pub async fn set_quarantine(
        &self,
        id: WorkflowId,
        request: QuarantineRequest,
    ) -> Result<QuarantineView, Refusal> {
        self.writer.call(move |tx| set(tx, id, &request)).await
    }
}

fn set(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &QuarantineRequest,
) -> Result<QuarantineView, Failed> {
    tx.workflow(id)?;
    let host = request.hostname.as_str();
    let seconds = request.seconds.unwrap_or(QUARANTINE_MS / 1000);
    if !(1..=MAX_SECONDS).contains(&seconds) {
        let message = format!("`seconds` is {seconds}; it goes from 1 to {MAX_SECONDS}");
        return Err(Refusal::invalid("seconds", message).into());
    }
    let why = request.reason.as_deref().unwrap_or("a user said so");
    names::check_line("reason", why)?;
    let here = tx.state.runners.of(id).filter(|(_, other)| other.host == host);
    let runners: Vec<RunnerId> = here.map(|(id, _)| id).collect();
    if runners.is_empty() {
        let message = format!("workflow {id} has no runner on `{host}`");
        return Err(Refusal::invalid("hostname", message).into());
    }
    let until = tx.now + seconds * 1000;
    for runner in &runners {
        match request.release {
            true => {
                let changes = tx.state.runners.step(*runner, RunnerEvent::Released);
                tx.write(id, changes)?;
            }
            false => {
                let kept = Quarantine { why: why.to_owned(), until };
                quarantine(tx, id, *runner, &[], kept)?;
            }
        }
    }
    let until_ms = (!request.release).then_some(until);
    Ok(QuarantineView { runners: runners.len() as i64, until_ms })
}

fn quarantine(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    burnt: &[(JobId, AttemptId)],
    kept: Quarantine,
) -> Result<(), Failed> {
    if !tx.state.runners.contains_key(&runner) {
        return Ok(());
    }
    let mut again = 0;
    for (job, attempt) in burnt {
        let Some(index) = tx.workflow(id)?.find(*job) else { continue };
        let rule = rule_of(tx, *attempt)?;
        again += usize::from(tx.apply(id, |w, _, now| Ok(w.refund(index, *attempt, rule, now)))?);
    }
    let event = RunnerEvent::Quarantined(kept, burnt.len(), again);
    let changes = tx.state.runners.step(runner, event);
    tx.write(id, changes)
}

/// The rule that retried an attempt, if one did.
fn rule_of(tx: &Tx<'_>, attempt: AttemptId) -> Result<Option<usize>, Failed> {
    let sql = "SELECT rule FROM attempt WHERE id = ?1 AND outcome = ?2";
    let rule: Option<Option<i64>> = tx
        .db
        .prepare_cached(sql)?
        .query_row(params![attempt.0, Outcome::Retried.as_str()], |row| row.get(0))
        .optional()?;
    Ok(rule.flatten().and_then(|rule| usize::try_from(rule).ok()))
}

/// Why a runner gets no work, if it is kept from it. When its time is over it is tried again.
pub fn quarantined(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
) -> Result<Option<String>, Failed> {
    let (gate, changes) = tx.state.runners.gate(runner, tx.now);
    if !changes.is_empty() {
        tx.write(id, changes)?;
    }
    Ok(match gate {
        Gate::Open | Gate::Over => None,
        Gate::Closed { seconds, why } => {
            Some(format!("this runner gets no work for another {seconds} s: {why}"))
        }
    })
}
