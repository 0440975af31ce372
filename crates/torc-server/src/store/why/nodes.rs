//! Why no runner is there: what became of the nodes that were asked for, and what the job would
//! need.

use super::super::journal::definitions::{self, Named};
use super::super::journal::{allocations, runners};
use super::super::unneeded;
use super::super::writer::{Failed, Tx};
use std::collections::BTreeSet;
use torc_engine::{Class, Explanation, JobIx};
use torc_model::ids::WorkflowId;
use torc_model::slurm::state::never_starts;
use torc_model::slurm::wire::AllocationView;
use torc_model::status::{AllocationEnd, AllocationStatus};

/// At most so many lines about things that are all alike.
const MOST: usize = 5;

/// Runners that were there which are looked at.
const LOOKED_AT: i64 = 100;

/// Says more than that no runner is there.
pub(super) fn explain(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    told: &mut Explanation,
) -> Result<(), Failed> {
    let schedulers = definitions::names(tx.db, id, Named::Schedulers)?;
    match schedulers.is_empty() {
        true => earlier_runners(tx, id, index, told),
        false => slurm(tx, id, index, &schedulers, told),
    }
}

/// Runners that have left may have been too small: then waiting for another like them is no use.
fn earlier_runners(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    told: &mut Explanation,
) -> Result<(), Failed> {
    let mut hosts = BTreeSet::new();
    for (host, capacity) in runners::capacities(tx.db, id, None, LOOKED_AT)? {
        let Some(lacks) = tx.workflow(id)?.lacking(index, &capacity) else {
            told.hints.push(format!("`torc run {id}` works on it"));
            return Ok(());
        };
        hosts.insert(format!(
            "on {host}, where a runner was: it needs {}",
            lacks.replace("free:", "there:")
        ));
    }
    if hosts.is_empty() {
        told.hints.push(format!("`torc run {id}` works on it"));
        return Ok(());
    }
    told.summary += ", and it fits on none that was";
    told.details.extend(hosts.into_iter().take(MOST));
    told.hints
        .push("run it on a machine that has more, or lower its `resource_requirements`".into());
    Ok(())
}

fn slurm(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    schedulers: &[(i64, String)],
    told: &mut Explanation,
) -> Result<(), Failed> {
    let class: Class = {
        let workflow = tx.workflow(id)?;
        workflow.next_class_of(index).clone()
    };
    let mut fitting = BTreeSet::new();
    let mut misfits = Vec::new();
    for (scheduler, name) in schedulers {
        match unneeded::kind(tx, id, *scheduler)?.why_not(&class) {
            Some(why) => misfits.push(format!("scheduler `{name}`: {why}")),
            None => {
                fitting.insert(*scheduler);
            }
        }
    }
    let again = format!(
        "`torc slurm regenerate {id} --submit` asks for nodes that fit the jobs which still have to run"
    );
    if fitting.is_empty() {
        told.summary += ", and it fits into no allocation that the workflow can ask for";
        told.details.extend(misfits.into_iter().take(MOST));
        told.hints.extend([again, "or lower its `resource_requirements`".into()]);
        return Ok(());
    }
    let rows = allocations::newest(tx.db, id, 1000)?;
    let of_use: Vec<&AllocationView> =
        rows.iter().filter(|row| fitting.contains(&row.scheduler_id)).collect();
    let open: Vec<&&AllocationView> =
        of_use.iter().filter(|row| row.status != AllocationStatus::Complete).collect();
    if !open.is_empty() {
        told.summary += "; it waits for nodes";
        told.details.extend(open.iter().take(MOST).map(|row| standing(row)));
        if open.iter().any(|row| row.status == AllocationStatus::Planned) {
            told.hints.push(format!(
                "`torc watch {id}` on a machine that has Slurm sends what was not sent"
            ));
        }
        if open
            .iter()
            .any(|row| row.reason.as_deref().is_some_and(|why| never_starts(why).is_some()))
        {
            told.hints.push(format!("`scancel` what will not start; {again}"));
        }
        return Ok(());
    }
    match of_use.first() {
        Some(last) if last.ended_as == Some(AllocationEnd::Refused) => {
            let said = last.reason.as_deref().unwrap_or("it did not say why");
            told.summary = format!("Slurm refused the nodes that it needs: {said}");
            told.details.push(format!(
                "allocation {} of scheduler `{}` was refused",
                last.id, last.scheduler
            ));
            told.hints.push(format!(
                "correct scheduler `{}` in the spec and submit it again",
                last.scheduler
            ));
            told.hints.push(format!("or {again}"));
        }
        Some(last) => {
            told.summary += "; no nodes are left";
            let why = last.reason.as_deref().unwrap_or("nothing tells why");
            told.details.push(format!("{}: {why}", label("the last one was", last)));
            if last.was_too_short {
                told.details.push("it was over before any job in it had ended".into());
                told.hints.push("give the job a `runtime` that says how long it takes".into());
            }
            told.hints.push(again);
        }
        None => {
            told.summary += "; Slurm has not been asked for nodes";
            let failed = allocations::failed_requests(tx.db, id)?;
            let lines = failed
                .into_iter()
                .map(|error| format!("an action that was to ask for them failed: {error}"));
            told.details.extend(lines.take(MOST));
            told.hints.push(again);
        }
    }
    Ok(())
}

fn label(what: &str, row: &AllocationView) -> String {
    match &row.slurm_job_id {
        Some(job) => format!("{what} allocation {} (Slurm job {job})", row.id),
        None => format!("{what} allocation {}", row.id),
    }
}

/// Where an allocation that is not over stands.
fn standing(row: &AllocationView) -> String {
    let name = label("", row);
    let name = name.trim_start();
    match (row.status, row.reason.as_deref()) {
        (AllocationStatus::Planned, _) => format!("{name} was not sent to Slurm yet"),
        (AllocationStatus::Submitting, Some(why)) => {
            format!("{name} is being sent to Slurm: {why}")
        }
        (AllocationStatus::Submitting, None) => format!("{name} is being sent to Slurm"),
        (AllocationStatus::Pending, Some(why)) => match never_starts(why) {
            Some(hopeless) => {
                format!("{name} waits in Slurm ({why}) and will not start: {hopeless}")
            }
            None => format!("{name} waits in Slurm: {why}"),
        },
        (AllocationStatus::Pending, None) => format!("{name} waits in Slurm"),
        (AllocationStatus::Active | AllocationStatus::Complete, _) => {
            format!("{name} has started, and no runner in it speaks")
        }
    }
}
