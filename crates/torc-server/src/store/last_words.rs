//! Why an allocation was taken away, when it becomes known only after its runner has gone.
//!
//! A runner that leaves in good order knows that it was told to stop, and mostly why, by a line in
//! the allocation's output. Where it could not tell, Slurm is asked for as long as it may remember,
//! and the attempts that were stopped get their cause in the transaction that takes in its answer.
//! So do those of a runner that was found dead before Slurm said why.

use super::journal::attempts;
use super::writer::{Failed, Tx};
use serde_json::json as value;
use torc_engine::On;
use torc_engine::commands::ExplainAttempt;
use torc_model::api::{Evidence, Goodbye};
use torc_model::ids::JobId;
use torc_model::slurm::AllocationEnding;
use torc_model::slurm::wire::{AllocationView, ObservedView};
use torc_model::status::{Cause, EvidenceSource};
use torc_model::words;

/// Runners that an allocation takes along go within this time: Slurm kills what does not end by
/// itself.
const TOGETHER_MS: i64 = 120_000;

/// The last runner said goodbye and knew why: so did the others leave, who may not have known.
pub(super) fn after_goodbye(
    tx: &mut Tx<'_>,
    row: &AllocationView,
    goodbye: &Goodbye,
) -> Result<(), Failed> {
    if let Some(cause) = goodbye.cause.filter(|cause| cause.is_taken_away()) {
        explain(tx, row, cause, &goodbye.reason)?;
    }
    Ok(())
}

/// What Slurm says about the end of a life of an allocation holds for the attempts that were
/// stopped in it.
pub(super) fn explain_by(
    tx: &mut Tx<'_>,
    row: &AllocationView,
    ending: &AllocationEnding,
    view: &mut ObservedView,
) -> Result<(), Failed> {
    if ending.cause.is_taken_away() {
        let job = row.slurm_job_id.as_deref().unwrap_or("?");
        let count = explain(tx, row, ending.cause, &format!("Slurm job {job}: {}", ending.text))?;
        view.attempts_explained += count;
        if count > 0 {
            view.details.push(format!(
                "allocation {} (Slurm job {job}): {}; that is now the cause of {}",
                row.id,
                ending.text,
                words::count(count, "attempt")
            ));
        }
    }
    Ok(())
}

/// Gives the attempts that ended with this life of an allocation their cause. Answers how many
/// there were. A runner that was gone long before the others died of something else.
fn explain(tx: &mut Tx<'_>, row: &AllocationView, cause: Cause, why: &str) -> Result<i64, Failed> {
    let Some(since) = row.started_ms else { return Ok(0) };
    let stopped = attempts::stopped_with(tx.db, row, since, (tx.now, TOGETHER_MS))?;
    let found = Evidence { source: EvidenceSource::Scheduler, text: why.into() };
    for one in &stopped {
        let mut evidence = one.evidence.clone();
        evidence.push(found.clone());
        let told = value!({"attempt_id": one.number, "run_id": one.run, "cause": cause, "was": one.cause, "evidence": why});
        let (attempt, job) = (one.attempt, one.job);
        let explained = ExplainAttempt { attempt, job, cause, evidence, told };
        tx.handle(On(row.workflow_id, explained))?;
    }
    Ok(stopped.len() as i64)
}

/// Jobs ran in it until its time was over, and none came to an end of its own: another one like it
/// would end like it.
pub(super) fn was_too_short(
    tx: &Tx<'_>,
    row: &AllocationView,
    cause: Option<Cause>,
) -> Result<bool, Failed> {
    let Some(since) = row.started_ms.filter(|_| cause == Some(Cause::Walltime)) else {
        return Ok(false);
    };
    Ok(attempts::all_ended_at_walltime(tx.db, row, since)?)
}

/// The job had almost the whole time of its last allocation and did not end: it gets no more of
/// them by itself.
pub(super) fn outlasted_its_allocation(tx: &Tx<'_>, job: JobId) -> Result<bool, Failed> {
    Ok(attempts::lasted_as_long_as_its_runner(tx.db, job, tx.now)?)
}
