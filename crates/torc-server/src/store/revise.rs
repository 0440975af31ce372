//! Applies a spec to a workflow that exists: new jobs, changed jobs and removed jobs in one
//! transaction, while it runs too. What each job needs is found by [`Difference`]; this writes it.
//!
//! Two things are not the spec's alone: what a recovery gave a job stays unless the spec asks for at
//! least as much, and what people set since holds where the spec says the same as before.

use super::difference::{Difference, Head, OneJob, Wanted, stored_hashes, timeout};
use super::facts::{self, FileFact, Uses};
use super::job_rows::{JobInserter, NewRow, Numbering, class, engine_job};
use super::journal::definitions::{self, OwnValues};
use super::journal::{self, ActionRow, DefinedAction, RevisedWorkflow, Rewritten, json};
use super::lookups;
use super::map;
use super::named::{self, Named, Said};
use super::people::{refuse_archived, refuse_other_run, reload};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use std::collections::{HashMap, HashSet};
use torc_engine::commands::ApplyRevision;
use torc_engine::{ChangedJob, JobIx, NewAction, On, Revision};
use torc_model::api::{ApplyOptions, ApplyView, ErrorCode, PlanCounts, PlannedChange};
use torc_model::ids::{ActionId, JobId, WorkflowId};
use torc_model::plan::{ActionKind, Plan, Settings};
use torc_model::status::{ActionState, JobStatus};
use torc_model::steps::MapRole;

/// A spec to apply, prepared outside of the transaction.
pub enum Prepared {
    /// The one that the workflow has: its files, and who uses them.
    Same(Vec<FileFact>, Uses),
    /// Another one, with its files.
    Other(Box<Plan>, Vec<FileFact>),
}

/// What was compared. Freeing that of 100,000 jobs takes a tenth of a second, in which the writer's
/// thread would write nothing: the caller does it elsewhere.
pub struct Compared {
    _plan: Option<Plan>,
    _difference: Difference,
}

/// Applies it, or tells what applying it would do.
pub fn apply(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    prepared: Prepared,
    how: &ApplyOptions,
) -> Result<(ApplyView, Compared), Failed> {
    refuse_archived(tx, id)?;
    let head = Head::read(tx.db, id)?;
    refuse_other_revision(id, &head, how.revision)?;
    if how.run_id.is_some() {
        refuse_other_run(tx, id, how.run_id)?;
    }
    let (mut plan, files, uses) = match prepared {
        Prepared::Same(files, uses) => (None, files, uses),
        Prepared::Other(plan, files) => (Some(*plan), files, Uses::default()),
    };
    let wanted = match &mut plan {
        Some(plan) => Wanted::Other(plan),
        None => Wanted::Same(&uses),
    };
    let difference = Difference::find(tx, id, &head, wanted, files, how)?;
    let jobs = difference.view(tx, plan.as_ref())?;
    let is_change = plan.is_some() || !jobs.is_empty();
    let mut view = ApplyView {
        workflow_id: id,
        dry_run: how.dry_run,
        revision: head.revision,
        run_id: head.run,
        is_change,
        is_complete: difference.is_complete,
        counts: difference.counts.clone(),
        jobs,
        warnings: Vec::new(),
    };
    if !how.dry_run && is_change {
        let outcome = carry_out(tx, id, &head, plan.as_ref(), &difference, how);
        if outcome.is_err() {
            reload(tx, id);
        }
        view.revision = outcome?;
        view.run_id = tx.workflow(id)?.run;
    }
    Ok((view, Compared { _plan: plan, _difference: difference }))
}

/// Of two callers who change a workflow at the same time, the second has not seen what the first did.
fn refuse_other_revision(id: WorkflowId, head: &Head, seen: Option<i64>) -> Result<(), Failed> {
    match seen {
        Some(seen) if seen != head.revision => {
            let message = format!(
                "workflow {id} is at revision {}; this call was made for revision {seen}",
                head.revision
            );
            Err(Refusal::conflict(ErrorCode::RevisionChanged, message)
                .hint(format!("`torc workflows history {id}` shows what was applied meanwhile"))
                .into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Writes everything; answers with the new revision. The engine's copy is stale if it fails.
fn carry_out(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    head: &Head,
    plan: Option<&Plan>,
    difference: &Difference,
    how: &ApplyOptions,
) -> Result<i64, Failed> {
    let mut revision = Revision { running: how.running, ..Revision::default() };
    let (mut late, mut settings) = (ActionChanges::default(), None);
    match plan {
        Some(plan) => {
            let said = Said::new(&head.spec);
            let own = definitions::own_values(tx.db, id)?;
            let named = named::take(tx, id, plan, &difference.files, &said)?;
            let rows =
                Numbering::new(tx, difference.jobs.iter().take(plan.jobs.len()).map(|job| job.id))?;
            let taken = Taken { plan, named: &named, rows: &rows, own: &own };
            taken.write_jobs(tx, id, difference, &mut revision)?;
            late = taken.write_actions(tx, id)?;
            settings = Some(taken.write_workflow(tx, id, &said, how)?);
            record_files(tx, difference, Some(&named))?;
        }
        None => {
            choose(tx, id, difference, &mut revision)?;
            record_files(tx, difference, None)?;
        }
    }
    let ActionChanges { gone, new } = late;
    if tx.handle(On(id, ApplyRevision { revision, settings, gone, new }))? {
        journal::clear_ephemeral(tx.db, id)?;
    }
    record_data(tx, id)?;
    for (name, max) in plan.iter().flat_map(|plan| &plan.limits) {
        // What an operator set on the server holds for all its workflows.
        if !tx.state.engine.limits().contains_key(name) {
            super::reservations::set_limit(tx, name, *max)?;
        }
    }
    write_revision(tx, id, head.revision + 1, how.user.as_deref(), &difference.counts)
}

/// Writes down what was applied; answers with its number.
pub fn write_revision(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    number: i64,
    by: Option<&str>,
    counts: &PlanCounts,
) -> Result<i64, Failed> {
    let run = tx.workflow(id)?.run;
    let by = by.unwrap_or("unknown");
    journal::insert_revision(tx.db, id, number, (by, run, counts), tx.now)?;
    Ok(number)
}

/// What is compared the next time: files as the jobs that run now will find them.
fn record_files(
    tx: &Tx<'_>,
    difference: &Difference,
    named: Option<&Named>,
) -> rusqlite::Result<()> {
    let Some(named) = named else { return facts::record(tx.db, &difference.files) };
    let new = difference.files.iter().zip(&named.files).filter(|(file, _)| file.is_news());
    let new: Vec<FileFact> = new.map(|(file, row)| FileFact { id: *row, ..file.clone() }).collect();
    facts::record(tx.db, &new)
}

/// The same for user data.
fn record_data(tx: &Tx<'_>, id: WorkflowId) -> Result<(), Failed> {
    for (job, now, then) in stored_hashes(tx.db, id)? {
        if then.as_deref() != Some(&now) {
            journal::set_input_hash(tx.db, job, &now)?;
        }
    }
    Ok(())
}

fn runs_again(job: &OneJob) -> bool {
    job.id.is_some() && job.runs() && !job.waits()
}

/// The jobs that run again, where the spec is the same.
fn choose(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    difference: &Difference,
    revision: &mut Revision,
) -> Result<(), Failed> {
    let workflow = tx.workflow(id)?;
    let again = difference.jobs.iter().filter(|job| runs_again(job)).filter_map(|job| job.id);
    revision.again = again.filter_map(|job| workflow.find(job)).collect();
    let accepted = difference.jobs.iter().filter(|job| is_accepted(job)).filter_map(|job| job.id);
    revision.accepted = accepted.filter_map(|job| workflow.find(job)).collect();
    Ok(())
}

/// It becomes one that has succeeded, without running.
fn is_accepted(job: &OneJob) -> bool {
    let is_accepted = matches!(job.change, Some((PlannedChange::Accepted, _)));
    is_accepted && job.status != JobStatus::Completed
}

/// Actions that the spec no longer has, and new ones.
#[derive(Default)]
struct ActionChanges {
    gone: HashSet<ActionId>,
    new: Vec<NewAction>,
}

/// A plan that is being taken over.
struct Taken<'a> {
    plan: &'a Plan,
    named: &'a Named,
    rows: &'a Numbering,
    own: &'a HashMap<JobId, OwnValues>,
}

impl Taken<'_> {
    /// The row of a job of the comparison.
    fn row(&self, difference: &Difference, number: u32) -> JobId {
        let job = &difference.jobs[number as usize];
        job.id.unwrap_or_else(|| self.rows.ids[number as usize])
    }

    fn write_jobs(
        &self,
        tx: &mut Tx<'_>,
        id: WorkflowId,
        difference: &Difference,
        revision: &mut Revision,
    ) -> Result<(), Failed> {
        let Self { plan, named, rows, .. } = *self;
        let is_map =
            |at: &usize| matches!(map::role_of(&plan.jobs[*at].extra), Some(MapRole::Map(_)));
        let maps: HashMap<&str, usize> = (0..plan.jobs.len())
            .filter(|at| plan.jobs[*at].extra.map.is_some() && is_map(at))
            .map(|at| (plan.jobs[at].name.as_str(), at))
            .collect();
        let first = tx.workflow(id)?.len();
        let mut inserter = JobInserter::new(tx.db, id, plan, named)?;
        let place = |tx: &mut Tx<'_>, row: JobId| -> Result<JobIx, Failed> {
            let index = match rows.place_of_new(row) {
                Some(place) => Some(JobIx::new(first + place)),
                None => tx.workflow(id)?.find(row),
            };
            index.ok_or_else(|| Refusal::internal(format!("job {row} has no place")).into())
        };
        for (number, job) in difference.jobs.iter().enumerate() {
            let number = number as u32;
            if matches!(job.change, Some((PlannedChange::Removed, _))) {
                let row = self.row(difference, number);
                journal::untie(tx.db, id, row)?;
                revision.removed.push(place(tx, row)?);
                continue;
            }
            if !job.is_rewritten && !job.is_retied {
                let place = |tx: &mut Tx<'_>| place(tx, self.row(difference, number));
                if runs_again(job) {
                    revision.again.push(place(tx)?);
                }
                if is_accepted(job) {
                    revision.accepted.push(place(tx)?);
                }
                continue;
            }
            let row = self.row(difference, number);
            let parents: Vec<JobId> =
                job.parents.iter().map(|parent| self.row(difference, *parent)).collect();
            let mut indexes = Vec::with_capacity(parents.len());
            for parent in &parents {
                indexes.push(place(tx, *parent)?);
            }
            let index = place(tx, row)?;
            let Some(at) = job.plan else { continue };
            let planned = &plan.jobs[at];
            let role = map::role_of(&planned.extra);
            if job.id.is_none() {
                let new = NewRow {
                    id: row,
                    position: at as i64,
                    status: JobStatus::Uninitialized,
                    reason: None,
                    parents: &parents,
                    added_by: None,
                    own_ms: None,
                };
                inserter.insert(planned, &new)?;
                revision.added.push(engine_job(plan, planned, named, row, at as i64, indexes));
            } else {
                if job.is_retied {
                    journal::untie(tx.db, id, row)?;
                    inserter.tie(planned, row, &parents)?;
                }
                let parents = job.is_retied.then_some(indexes);
                let workflow = tx.workflow(id)?;
                let was_map = workflow.map(index).is_some();
                let scheduler = workflow.next_class_of(index).scheduler;
                let changed = self.rewrite(tx, at, (row, index), scheduler, parents)?;
                revision.changed.push(changed);
                if runs_again(job) || job.is_new() {
                    revision.again.push(index);
                }
                if was_map && !matches!(role, Some(MapRole::Map(_))) {
                    revision.maps.push((index, None));
                }
            }
            if is_accepted(job) {
                revision.accepted.push(index);
            }
            match role {
                Some(MapRole::Map(settings)) => {
                    revision.maps.push((index, Some(map::map_job(&settings, false))));
                }
                Some(MapRole::Item { of, .. }) => {
                    if let Some(map) = maps.get(of.as_str()) {
                        revision.items.push((index, place(tx, rows.ids[*map])?));
                    }
                }
                Some(MapRole::Reduce(_)) | None => {}
            }
        }
        let is_new = |job: &&OneJob| job.is_new();
        let new = difference.jobs.iter().filter(is_new).count() as i64;
        journal::grow_count(tx.db, id, new - revision.removed.len() as i64)?;
        Ok(())
    }

    /// Writes the row of a job that is there; answers with what the engine keeps of it. `known` is the
    /// scheduler that it has.
    fn rewrite(
        &self,
        tx: &Tx<'_>,
        at: usize,
        (row, index): (JobId, JobIx),
        known: Option<i64>,
        parents: Option<Vec<JobIx>>,
    ) -> Result<ChangedJob, Failed> {
        let Self { plan, named, .. } = *self;
        let job = &plan.jobs[at];
        let [memory, runtime, cpus, gpus] = self.own.get(&row).copied().unwrap_or_default();
        let before = lookups::job_extra(tx.db, row)?;
        let mut extra = (*job.extra).clone();
        extra.timeout = timeout(tx.db, row, before.timeout, extra.timeout)?;
        let scheduler = job.scheduler.map(|s| named.schedulers[s]).or(known);
        let mut class = class(plan, job, scheduler);
        class.timeout = extra.timeout.map(|t| t.0);
        let signed = |value: Option<u64>| value.map(|value| value as i64);
        let memory = own_value(memory, signed(class.memory));
        let runtime = own_value(runtime, signed(class.runtime));
        class.memory = memory.map(|value| value as u64).or(class.memory);
        class.runtime = runtime.map(|value| value as u64).or(class.runtime);
        let cpus = own_number(cpus, class.cpus);
        let gpus = own_number(gpus, class.gpus);
        class.cpus = cpus.unwrap_or(class.cpus);
        class.gpus = gpus.unwrap_or(class.gpus);
        let new = Rewritten {
            extra: &extra,
            requirements: job.resource_requirements.map(|r| named.requirements[r]),
            handler: job.failure_handler.map(|h| named.handlers[h]),
            scheduler,
            family: named.families.get(job.family as usize).copied().unwrap_or(job.family),
            own: [memory, runtime],
            own_numbers: [cpus, gpus],
        };
        journal::rewrite_job(tx.db, row, job, &new)?;
        let handler = job.failure_handler.or(plan.settings.default_failure_handler);
        Ok(ChangedJob {
            index,
            priority: job.priority,
            family: named.families.get(job.family as usize).copied().unwrap_or(job.family),
            class,
            handler: handler.map(|h| named.handler_indexes[h]),
            cancel_on_failure: job.cancel_on_blocking_job_failure,
            max_lost: extra.max_lost(),
            parents,
        })
    }

    /// Actions that the new spec has as well stay as they are.
    fn write_actions(&self, tx: &mut Tx<'_>, id: WorkflowId) -> Result<ActionChanges, Failed> {
        let mut had = journal::defined_actions(tx.db, id)?;
        let mut actions = ActionChanges::default();
        let first = tx.workflow(id)?.len();
        for action in &self.plan.actions {
            let mut jobs: Vec<JobId> = action.jobs.iter().map(|at| self.rows.ids[*at]).collect();
            jobs.sort();
            let what = json(Some(&action.what))?.unwrap_or_default();
            let persistent = action.persistent;
            let is_same = |known: &DefinedAction| {
                known.trigger == action.trigger.as_str()
                    && known.what == what
                    && known.jobs == jobs
                    && known.persistent == persistent
            };
            if let Some(at) = had.iter().position(is_same) {
                drop(had.remove(at));
                continue;
            }
            let row = ActionRow {
                trigger: action.trigger,
                what: &action.what,
                jobs: &jobs,
                persistent,
                is_recovery: false,
            };
            let row = journal::insert_action(tx.db, id, &row)?;
            let workflow = tx.workflow(id)?;
            let index = |job: &JobId| match self.rows.place_of_new(*job) {
                Some(place) => Some(JobIx::new(first + place)),
                None => workflow.find(*job),
            };
            actions.new.push(NewAction {
                id: row,
                trigger: action.trigger,
                jobs: jobs.iter().filter_map(index).collect(),
                persistent,
                is_recovery: false,
                schedules_nodes: matches!(action.what, ActionKind::ScheduleNodes { .. }),
                state: ActionState::Waiting,
                by: None,
            });
        }
        for DefinedAction { id: action, state, .. } in had {
            if state == ActionState::Claimed {
                let message =
                    format!("the spec changes action {action}, which a runner carries out");
                return Err(Refusal::conflict(ErrorCode::ActionRunning, message)
                    .hint("wait until it is done")
                    .into());
            }
            journal::delete_action(tx.db, action)?;
            actions.gone.insert(action);
        }
        Ok(actions)
    }

    /// Writes its row; answers with the settings.
    fn write_workflow(
        &self,
        tx: &Tx<'_>,
        id: WorkflowId,
        said: &Said,
        how: &ApplyOptions,
    ) -> Result<Settings, Failed> {
        let plan = self.plan;
        let default = plan.settings.default_failure_handler;
        let settings = Settings {
            default_failure_handler: default.map(|h| self.named.handler_indexes[h].at()),
            ..plan.settings.clone()
        };
        let new = RevisedWorkflow {
            settings: &settings,
            name: (said.name.as_ref() != Some(&plan.name)).then_some(plan.name.as_str()),
            description: (said.description != plan.notes.description)
                .then_some(plan.notes.description.as_deref()),
            project: (said.project != plan.notes.project).then_some(plan.notes.project.as_deref()),
            metadata: (said.metadata != plan.notes.metadata)
                .then(|| plan.notes.metadata.as_ref().map(ToString::to_string)),
            spec_path: how.spec_path.as_deref(),
        };
        journal::revise_workflow(tx.db, id, &plan.spec, &new)?;
        Ok(settings)
    }
}

/// What a job keeps of its own beyond its requirements: nothing that the new spec asks for as well.
fn own_value((own, before): (Option<i64>, Option<i64>), asked: Option<i64>) -> Option<i64> {
    own.filter(|own| asked == before || asked.is_some_and(|asked| asked < *own))
}

/// What a person set by hand holds until the spec says something new.
fn own_number((own, before): (Option<i64>, Option<i64>), asked: u32) -> Option<u32> {
    own.filter(|_| before == Some(i64::from(asked))).and_then(|own| u32::try_from(own).ok())
}
