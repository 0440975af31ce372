//! Runners whose jobs fail at once while others succeed: they get no more work, and what they burnt
//! is given back.

use super::Store;
use super::names;
use super::refusal::Refusal;
use super::runners::LEASE_SECONDS;
use super::writer::{Failed, Quarantine, Runner, Tx};
use rusqlite::{OptionalExtension, params};
use serde_json::json;
use torc_engine::Change;
use torc_model::api::{QuarantineRequest, QuarantineView};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::recovery::NodeVerdict;
use torc_model::status::{Cause, Outcome};

/// A machine may have been repaired meanwhile: after this time it is tried again, from a clean
/// sheet.
const QUARANTINE_MS: i64 = 600_000;
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
    known.health.ended(job, attempt, cause, seconds);
    if cause.is_none() || known.quarantine.is_some() {
        return Ok(());
    }
    let (host, health) = (known.host.clone(), known.health.clone());
    let elsewhere = others(tx, id, &host).map(|(_, other)| other.health.successes()).sum();
    match health.judge(elsewhere) {
        NodeVerdict::Fine => Ok(()),
        NodeVerdict::Bad { burnt, why } => {
            let until = tx.now + QUARANTINE_MS;
            quarantine(tx, id, runner, &burnt, &why, until)
        }
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
        other.host != host && other.quarantine.is_none() && is_there
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
            false => quarantine(tx, id, *runner, &[], why, until)?,
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
    why: &str,
    until: i64,
) -> Result<(), Failed> {
    let Some(known) = tx.state.runners.get_mut(&runner) else { return Ok(()) };
    known.quarantine = Some(Quarantine { why: why.to_owned(), until });
    let host = known.host.clone();
    tx.db
        .prepare_cached(
            "UPDATE compute_node SET quarantine = ?2, quarantine_until_ms = ?3 WHERE id = ?1",
        )?
        .execute(params![runner.0, why, until])?;
    let mut again = 0;
    for (job, attempt) in burnt {
        let Some(index) = tx.workflow(id)?.find(*job) else { continue };
        let rule = refund_rule(tx, *attempt)?;
        again += usize::from(tx.apply(id, |w, _, now| Ok(w.refund(index, *attempt, rule, now)))?);
    }
    let data = json!({
        "runner_id": runner, "hostname": host, "why": why, "until_ms": until, "refunded": burnt.len(),
        "queued_again": again,
    });
    tx.write(id, vec![Change::Event { kind: EventKind::RunnerQuarantined, job: None, data }])?;
    Ok(())
}

/// Writes down that an attempt was not its job's fault. Answers with the rule that retried it, if
/// one did.
fn refund_rule(tx: &Tx<'_>, attempt: AttemptId) -> Result<Option<usize>, Failed> {
    tx.db
        .prepare_cached("INSERT OR IGNORE INTO refunded_attempt (attempt_id) VALUES (?1)")?
        .execute([attempt.0])?;
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
    let now = tx.now;
    let Some(known) = tx.state.runners.get_mut(&runner) else { return Ok(None) };
    let Some(quarantine) = &known.quarantine else { return Ok(None) };
    if quarantine.until > now {
        let left = (quarantine.until - now) / 1000 + 1;
        return Ok(Some(format!(
            "this runner gets no work for another {left} s: {}",
            quarantine.why
        )));
    }
    release(tx, runner)?;
    Ok(None)
}

/// Lets a runner get work again, from a clean sheet.
fn release(tx: &mut Tx<'_>, runner: RunnerId) -> Result<(), Failed> {
    let Some(known) = tx.state.runners.get_mut(&runner) else { return Ok(()) };
    if known.quarantine.is_none() {
        return Ok(());
    }
    (known.quarantine, known.health) = (None, Default::default());
    let (id, host) = (known.workflow, known.host.clone());
    let sql = "UPDATE compute_node SET quarantine = NULL, quarantine_until_ms = NULL WHERE id = ?1";
    tx.db.prepare_cached(sql)?.execute([runner.0])?;
    let data = json!({"runner_id": runner, "hostname": host});
    tx.write(id, vec![Change::Event { kind: EventKind::RunnerTriedAgain, job: None, data }])?;
    Ok(())
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
