//! Runners whose jobs fail at once while others succeed: they get no more work, and what they burnt is given back.

use super::runners::LEASE_SECONDS;
use super::writer::{Failed, Runner, Tx};
use rusqlite::params;
use serde_json::json;
use torc_model::core::Change;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::recovery::NodeVerdict;
use torc_model::status::Cause;

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
        NodeVerdict::Bad { burnt, why } => quarantine(tx, id, runner, &host, &burnt, &why),
    }
}

/// Runners of this workflow on other machines that are there and get work.
fn others<'a>(tx: &'a Tx<'_>, id: WorkflowId, host: &'a str) -> impl Iterator<Item = (&'a RunnerId, &'a Runner)> {
    let in_contact = tx.now - LEASE_SECONDS * 1000;
    tx.state.runners.iter().filter(move |(_, other)| {
        other.workflow == id && other.host != host && other.quarantine.is_none() && other.last_seen >= in_contact
    })
}

fn quarantine(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    host: &str,
    burnt: &[(JobId, AttemptId)],
    why: &str,
) -> Result<(), Failed> {
    if let Some(known) = tx.state.runners.get_mut(&runner) {
        known.quarantine = Some(why.to_owned());
    }
    tx.db.prepare_cached("UPDATE compute_node SET quarantine = ?2 WHERE id = ?1")?.execute(params![runner.0, why])?;
    let mut again = 0;
    for (job, attempt) in burnt {
        let Some(index) = tx.workflow(id)?.find(*job) else { continue };
        again += usize::from(tx.apply(id, |w, _, now| Ok(w.refund(index, *attempt, now)))?);
    }
    let data =
        json!({"runner_id": runner, "hostname": host, "why": why, "refunded": burnt.len(), "queued_again": again});
    tx.write(id, vec![Change::Event { kind: "runner_quarantined", job: None, data }])?;
    Ok(())
}

/// Why a runner gets no work, if it is kept from it.
pub fn quarantined(tx: &Tx<'_>, runner: RunnerId) -> Option<String> {
    let why = tx.state.runners.get(&runner)?.quarantine.as_ref()?;
    Some(format!("this runner gets no more work: {why}"))
}

/// The runners on the same machine, when there are others on other machines that a retry may prefer.
pub fn neighbours(tx: &Tx<'_>, id: WorkflowId, runner: &Runner) -> Vec<RunnerId> {
    if others(tx, id, &runner.host).next().is_none() {
        return Vec::new();
    }
    let here = |(_, other): &(&RunnerId, &Runner)| other.workflow == id && other.host == runner.host;
    tx.state.runners.iter().filter(here).map(|(id, _)| *id).collect()
}
