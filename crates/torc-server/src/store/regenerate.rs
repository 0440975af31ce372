//! New schedulers and allocations for jobs that still have to run: all of it, or nothing.

use super::allocations::{schedule, scheduler_for, usable_of};
use super::journal::definitions::{self, Named};
use super::journal::{self, ActionRow};
use super::refusal::Refusal;
use super::unneeded;
use super::writer::{Failed, Tx};
use std::collections::BTreeSet;
use torc_engine::commands::{AddLateAction, AssignSchedulers, RetireSchedules};
use torc_engine::{Class, JobIx, NewAction, On};
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::ActionKind;
use torc_model::slurm::wire::{
    RegenerateGroup, RegenerateRequest, RegeneratedScheduler, RegeneratedView, ScheduleNodes,
};
use torc_model::status::{ActionState, Trigger};

/// Gives the jobs new schedulers. Actions that have not asked for nodes yet never will; groups
/// whose jobs wait get recovery actions instead. What is already on its way counts, so that a
/// second call asks for nothing more.
pub fn regenerate(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &RegenerateRequest,
    nonce: u64,
) -> Result<RegeneratedView, Failed> {
    let mut view = RegeneratedView::default();
    if tx.workflow(id)?.canceled {
        return Err(Refusal::conflict(ErrorCode::Canceled, format!("workflow {id} is canceled"))
            .hint("reset or reinitialize it first")
            .into());
    }
    view.actions_claimed = tx.handle(On(id, RetireSchedules {}))? as i64;
    // Each group counts what was made for it before anything else: an allocation serves one of
    // them.
    let mut kept = BTreeSet::new();
    let mut prepared = Vec::new();
    for group in &request.groups {
        prepared.push(one_group(tx, id, group, request.submit, &mut kept, &mut view)?);
    }
    for (nth, ready) in prepared.into_iter().enumerate() {
        let done = ask(tx, id, ready, nonce.wrapping_add(nth as u64), &mut kept, &mut view)?;
        view.schedulers_created.push(done);
    }
    let data = serde_json::json!({
        "schedulers": view.schedulers_created.len(), "allocations": view.allocations_created,
        "actions": view.actions_created,
    });
    tx.tell(id, EventKind::WorkflowRegenerated, None, data)?;
    Ok(view)
}

/// A group whose jobs have their scheduler.
struct PreparedGroup<'a> {
    group: &'a RegenerateGroup,
    done: RegeneratedScheduler,
    jobs: Vec<JobId>,
    /// So many allocations are still wanted.
    wanted: i64,
}

fn one_group<'a>(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    group: &'a RegenerateGroup,
    submit: bool,
    kept: &mut BTreeSet<i64>,
    view: &mut RegeneratedView,
) -> Result<PreparedGroup<'a>, Failed> {
    if group.levels.len() != group.allocations.len() || group.levels.iter().any(Vec::is_empty) {
        return Err(Refusal::invalid(
            "groups",
            "each level needs jobs and a number of allocations",
        )
        .into());
    }
    let jobs: Vec<JobId> = group.levels.iter().flatten().copied().collect();
    let mut current = Vec::new();
    for job in &jobs {
        let workflow = tx.workflow(id)?;
        let index = workflow.find(*job).ok_or_else(|| Refusal::not_found("job", job.0))?;
        let scheduler = workflow.next_class_of(index).scheduler;
        if let Some(scheduler) = scheduler.filter(|s| !current.contains(s)) {
            current.push(scheduler);
        }
    }
    let (scheduler_id, name, reused) = scheduler_for(tx, id, &group.scheduler, &current)?;
    tx.handle(On(id, AssignSchedulers { jobs: &jobs, scheduler: scheduler_id }))?;
    let done = RegeneratedScheduler {
        id: scheduler_id,
        name: name.clone(),
        reused,
        num_allocations: 0,
        job_count: jobs.len() as i64,
        has_dependencies: group.has_dependencies,
    };
    let mut wanted = 0;
    if group.has_dependencies {
        for (level, allocations) in group.levels.iter().zip(&group.allocations) {
            add_recovery_action(tx, id, group, &name, level, *allocations)?;
            view.actions_created += 1;
        }
    } else if submit {
        let asked: i64 = group.allocations.iter().sum();
        let mut schedulers = current;
        if !reused {
            schedulers.push(scheduler_id);
        }
        let found = keep(tx, id, &jobs, &schedulers, asked, kept)?;
        view.allocations_kept += found;
        wanted = asked - found;
    }
    Ok(PreparedGroup { group, done, jobs, wanted })
}

/// Asks for what nothing else serves: allocations of other schedulers count as well, because an
/// earlier call may have kept them for these jobs.
fn ask(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    ready: PreparedGroup<'_>,
    nonce: u64,
    kept: &mut BTreeSet<i64>,
    view: &mut RegeneratedView,
) -> Result<RegeneratedScheduler, Failed> {
    let PreparedGroup { group, mut done, jobs, mut wanted } = ready;
    if wanted > 0 {
        let all = definitions::names(tx.db, id, Named::Schedulers)?;
        let all: Vec<i64> = all.into_iter().map(|(row, _)| row).collect();
        let found = keep(tx, id, &jobs, &all, wanted, kept)?;
        view.allocations_kept += found;
        wanted -= found;
    }
    if wanted > 0 {
        let request = ScheduleNodes {
            workflow_id: id.0,
            scheduler: done.name.clone(),
            count: wanted,
            key: format!("regenerate {nonce:016x}"),
            start_one_worker_per_node: group.start_one_worker_per_node,
            max_parallel_jobs: None,
        };
        done.num_allocations = schedule(tx, &request, None, nonce)?.items.len() as i64;
        view.allocations_created += done.num_allocations;
        // The next group must not take it for something that was there.
        kept.extend(usable_of(tx, id, &done.name, 0)?);
    }
    Ok(done)
}

/// Finds up to `wanted` allocations of these schedulers that serve the jobs already and are not
/// kept for others. Answers how many there are.
fn keep(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    jobs: &[JobId],
    schedulers: &[i64],
    wanted: i64,
    kept: &mut BTreeSet<i64>,
) -> Result<i64, Failed> {
    let classes: Vec<Class> = {
        let workflow = tx.workflow(id)?;
        let of = |index: JobIx| workflow.next_class_of(index).clone();
        jobs.iter().filter_map(|job| workflow.find(*job)).map(of).collect()
    };
    let longest = classes.iter().filter_map(|class| class.runtime).max();
    let runtime = longest.and_then(|r| i64::try_from(r).ok()).unwrap_or(60);
    let mut found = 0;
    for scheduler in schedulers {
        // Jobs that were given more than such a node has will never run there.
        let kind = unneeded::kind(tx, id, *scheduler)?;
        if !classes.iter().all(|class| kind.could_run(class)) {
            continue;
        }
        let name = definitions::scheduler_name(tx.db, *scheduler)?;
        for allocation in usable_of(tx, id, &name, runtime)? {
            if found < wanted && kept.insert(allocation) {
                found += 1;
            }
        }
    }
    Ok(found)
}

fn add_recovery_action(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    group: &RegenerateGroup,
    scheduler: &str,
    jobs: &[JobId],
    allocations: i64,
) -> Result<(), Failed> {
    let num_allocations = u32::try_from(allocations).map_err(|_| {
        Refusal::invalid("groups", format!("{allocations} is not a number of allocations"))
    })?;
    let what = ActionKind::ScheduleNodes {
        scheduler: scheduler.to_owned(),
        scheduler_type: "slurm".into(),
        num_allocations,
        start_one_worker_per_node: group.start_one_worker_per_node,
        max_parallel_jobs: None,
    };
    let row = ActionRow {
        trigger: Trigger::OnJobsReady,
        what: &what,
        jobs,
        persistent: false,
        is_recovery: true,
    };
    let row = journal::insert_action(tx.db, id, &row)?;
    let workflow = tx.workflow(id)?;
    let action = NewAction {
        id: row,
        trigger: Trigger::OnJobsReady,
        jobs: jobs.iter().filter_map(|j| workflow.find(*j)).collect(),
        persistent: false,
        is_recovery: true,
        schedules_nodes: true,
        state: ActionState::Waiting,
        by: None,
    };
    tx.handle(On(id, AddLateAction { action }))
}
