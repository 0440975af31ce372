//! Allocations that nothing needs any more: what was not sent never is, and what waits in Slurm is
//! marked.
//!
//! The mark is written before Slurm is asked and outlives every crash; a client that reaches
//! Slurm takes marked allocations back until they are gone. A marked one does not count for jobs
//! that come to need nodes later; should it start all the same, it is as good as any other.

use super::journal::allocations::{self, SchedulerRow, find, life_of};
use super::journal::runners;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use std::collections::BTreeMap;
use torc_engine::commands::GiveUpAllocation;
use torc_model::api::ErrorCode;
use torc_model::ids::WorkflowId;
use torc_model::slurm::need::Kind;
use torc_model::slurm::wire::AllocationView;
use torc_model::status::AllocationStatus;

/// Gives up what no remaining job could run in, of one workflow or of all.
pub fn release(tx: &mut Tx<'_>, workflow: Option<i64>) -> Result<(), Failed> {
    let waiting = allocations::waiting(tx.db, workflow)?;
    let mut by_workflow: BTreeMap<WorkflowId, Vec<AllocationView>> = BTreeMap::new();
    for row in waiting.into_iter().filter(|row| row.runners == 0) {
        by_workflow.entry(row.workflow_id).or_default().push(row);
    }
    for (id, rows) in by_workflow {
        let remaining = tx.workflow(id)?.open_classes();
        let mut needed: BTreeMap<i64, bool> = BTreeMap::new();
        for row in rows {
            let key = row.scheduler_id;
            let is_needed = match needed.get(&key) {
                Some(known) => *known,
                None => {
                    let kind = kind(tx, id, row.scheduler_id)?;
                    let answer = remaining.iter().any(|class| kind.could_run(class));
                    needed.insert(key, answer);
                    answer
                }
            };
            if !is_needed {
                give_up(tx, &row)?;
            }
        }
    }
    Ok(())
}

/// Gives up one that a user does not want any more, while it waits.
pub fn cancel(tx: &mut Tx<'_>, id: i64) -> Result<AllocationView, Failed> {
    let found = |tx: &Tx<'_>| -> Result<AllocationView, Failed> {
        Ok(find(tx, id)?.ok_or_else(|| Refusal::not_found("allocation", id))?)
    };
    let row = found(tx)?;
    match row.status {
        // Again is as good as once.
        _ if row.unneeded_since_ms.is_some() => return Ok(row),
        AllocationStatus::Planned | AllocationStatus::Pending => give_up(tx, &row)?,
        AllocationStatus::Submitting | AllocationStatus::Active | AllocationStatus::Complete => {
            let message =
                format!("allocation {id} is {}; only one that waits can be canceled", row.status);
            let hint = match (&row.slurm_job_id, row.status) {
                (Some(job), AllocationStatus::Active) => {
                    Some(format!("its jobs are lost with it: `scancel {job}`"))
                }
                (_, AllocationStatus::Submitting) => Some("it is being sent; try again".to_owned()),
                _ => None,
            };
            return Err(Refusal::conflict(ErrorCode::WrongStatus, message).maybe_hint(hint).into());
        }
    }
    found(tx)
}

/// What is known of allocations of this scheduler.
pub fn kind(tx: &Tx<'_>, id: WorkflowId, scheduler_id: i64) -> Result<Kind, Failed> {
    let SchedulerRow { definition, settings, .. } = allocations::scheduler(tx.db, scheduler_id)?;
    let names_gpus = |name: &String| name.contains("gpu") || name.contains("gres");
    let seen = runners::capacities(tx.db, id, Some(scheduler_id), 1)?.pop();
    Ok(Kind {
        scheduler_id,
        scheduler: definition,
        gpus_by_default: settings.slurm_defaults.keys().any(names_gpus),
        seen: seen.map(|(_, capacity)| capacity),
    })
}

fn give_up(tx: &mut Tx<'_>, row: &AllocationView) -> Result<(), Failed> {
    let Some(life) = life_of(tx, row.id)? else { return Ok(()) };
    let (workflow, id, scheduler) = (row.workflow_id, row.id, &row.scheduler[..]);
    tx.handle(GiveUpAllocation { workflow, id, life, scheduler })
}
