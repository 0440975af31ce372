//! Runners whose jobs fail at once while others succeed: they get no more work, and what they burnt
//! is given back.

use super::Store;
use super::names;
use super::refusal::Refusal;
use super::runners::LEASE_SECONDS;
use super::writer::{Failed, Runner, Tx};
use rusqlite::{OptionalExtension, params};
use serde_json::json;
use torc_engine::{Burnt, Change, Gate, QUARANTINE_MS, Quarantine, RunnerChange};
use torc_model::api::{QuarantineRequest, QuarantineView};
use torc_model::event::EventKind;
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
    let Some(known) = tx.state.runners.get_mut(&runner) else { return Ok(()) };
    if !known.conduct.ended(job, attempt, cause, seconds) {
        return Ok(());
    }
    let (host, conduct) = (known.host.clone(), known.conduct.clone());
    let elsewhere = others(tx, id, &host).map(|(_, other)| other.conduct.successes()).sum();
    match conduct.judge(elsewhere, tx.now) {
        None => Ok(()),
        Some(Burnt { attempts, quarantine: kept }) => quarantine(tx, id, runner, &attempts, kept),
    }
}

/// Runners of this workflow on other machines that are there and get work.
fn others<'a>(
    tx: &'a Tx<'_>,
    id: WorkflowId,
    host: &'a str,
) -> impl Iterator<Item = (RunnerId, &'a Runner)> {
    let in_contact = tx.uptime - LEASE_SECONDS * 1000;
    tx.state.runners.of(id).filter(move |(_, other)| {
        let is_there = other.heard.is_some_and(|heard| heard >= in_contact);
        other.host != host && other.conduct.quarantine().is_none() && is_there
    })
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
            true => release(tx, *runner)?,
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
    let Some(known) = tx.state.runners.get_mut(&runner) else { return Ok(()) };
    known.conduct.keep_away(kept.clone());
    let host = known.host.clone();
    let mut again = 0;
    for (job, attempt) in burnt {
        let Some(index) = tx.workflow(id)?.find(*job) else { continue };
        let rule = rule_of(tx, *attempt)?;
        again += usize::from(tx.apply(id, |w, _, now| Ok(w.refund(index, *attempt, rule, now)))?);
    }
    let data = json!({
        "runner_id": runner, "hostname": host, "why": kept.why, "until_ms": kept.until, "refunded": burnt.len(),
        "queued_again": again,
    });
    let kept = Change::Runner(runner, RunnerChange::Quarantine(Some(kept)));
    tx.write(id, vec![kept, Change::Event { kind: EventKind::RunnerQuarantined, job: None, data }])
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
pub fn quarantined(tx: &mut Tx<'_>, runner: RunnerId) -> Result<Option<String>, Failed> {
    let Some(known) = tx.state.runners.get(&runner) else { return Ok(None) };
    match known.conduct.gate(tx.now) {
        Gate::Open => Ok(None),
        Gate::Closed { seconds, why } => {
            Ok(Some(format!("this runner gets no work for another {seconds} s: {why}")))
        }
        Gate::Over => {
            release(tx, runner)?;
            Ok(None)
        }
    }
}

/// Lets a runner get work again, with an empty record.
fn release(tx: &mut Tx<'_>, runner: RunnerId) -> Result<(), Failed> {
    let Some(known) = tx.state.runners.get_mut(&runner) else { return Ok(()) };
    if !known.conduct.release() {
        return Ok(());
    }
    let (id, host) = (known.workflow, known.host.clone());
    let data = json!({"runner_id": runner, "hostname": host});
    let free = Change::Runner(runner, RunnerChange::Quarantine(None));
    tx.write(id, vec![free, Change::Event { kind: EventKind::RunnerTriedAgain, job: None, data }])
}

/// The runners on the same machine, when there are others on other machines that a retry may
/// prefer.
pub fn neighbours(tx: &Tx<'_>, id: WorkflowId, runner: &Runner) -> Vec<RunnerId> {
    if others(tx, id, &runner.host).next().is_none() {
        return Vec::new();
    }
    let here = tx.state.runners.of(id).filter(|(_, other)| other.host == runner.host);
    here.map(|(id, _)| id).collect()
}
