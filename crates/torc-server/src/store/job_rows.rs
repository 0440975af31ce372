//! Jobs of a plan as rows and as jobs of the engine: for a new workflow, and for one that grows.

use super::facts;
use super::journal::{JobStatements, grow_count, json};
use super::lookups;
use super::map;
use super::named::{Named, Said};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::{Connection, params};
use std::collections::HashMap;
use torc_engine::commands::{AddJobs, TakeJobIds};
use torc_engine::{Class, JobIx, NewJob, On, Revision};
use torc_model::api::ErrorCode;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, Plan, Requirements};
use torc_model::status::{JobStatus, StatusReason};

/// What a row says beside the plan.
pub struct NewRow<'a> {
    /// Its id.
    pub id: JobId,
    /// Its place in the queue.
    pub position: i64,
    /// Where it stands.
    pub status: JobStatus,
    /// Why it stands there.
    pub reason: Option<StatusReason>,
    /// What it depends on.
    pub parents: &'a [JobId],
    /// The job that added it.
    pub added_by: Option<JobId>,
    /// How long it took before, in ms.
    pub own_ms: Option<u32>,
}

/// Writes rows of new jobs.
pub struct JobInserter<'a> {
    workflow: WorkflowId,
    plan: &'a Plan,
    named: &'a Named,
    produced: Vec<bool>,
    statements: JobStatements<'a>,
}

impl<'a> JobInserter<'a> {
    /// For jobs of this plan.
    pub fn new(
        db: &'a Connection,
        workflow: WorkflowId,
        plan: &'a Plan,
        named: &'a Named,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            workflow,
            plan,
            named,
            produced: produced_user_data(plan),
            statements: JobStatements::new(db)?,
        })
    }

    /// Writes one.
    pub fn insert(&mut self, job: &Job, row: &NewRow<'_>) -> rusqlite::Result<()> {
        let named = self.named;
        let extra = if job.extra.is_default() { None } else { json(Some(&*job.extra))? };
        let hash = self.input_hash(job);
        self.statements.insert.execute(params![
            row.id.0,
            self.workflow.0,
            job.name,
            job.command,
            job.invocation_script,
            job.steps.as_ref().map(ToString::to_string),
            row.status.code(),
            row.reason.map(StatusReason::as_str),
            job.priority,
            row.position,
            job.resource_requirements.map(|r| named.requirements[r]),
            job.failure_handler.map(|h| named.handlers[h]),
            job.scheduler.map(|s| named.schedulers[s]),
            job.cancel_on_blocking_job_failure,
            extra,
            hash,
            named.families.get(job.family as usize).copied().unwrap_or(job.family),
            row.added_by.map(|job| job.0),
            row.own_ms,
        ])?;
        self.tie(job, row.id, row.parents)
    }

    /// In the order of the rows, as the database gives them back.
    fn input_hash(&self, job: &Job) -> Option<String> {
        let is_read = |u: &usize| !self.produced[*u];
        let mut read: Vec<usize> = job.input_user_data.iter().copied().filter(is_read).collect();
        read.sort_by_key(|u| self.named.user_data[*u]);
        let text = |u: usize| self.plan.user_data[u].data.as_ref().map(ToString::to_string);
        data_hash(read.into_iter().map(text))
    }

    /// Writes what a job depends on, reads and writes.
    pub fn tie(&mut self, job: &Job, id: JobId, parents: &[JobId]) -> rusqlite::Result<()> {
        for parent in parents {
            self.statements.depend.execute([self.workflow.0, id.0, parent.0])?;
        }
        let named = self.named;
        let lists: [(&str, &[usize], &[i64]); 4] = [
            ("input_file", &job.input_files, &named.files),
            ("output_file", &job.output_files, &named.files),
            ("input_user_data", &job.input_user_data, &named.user_data),
            ("output_user_data", &job.output_user_data, &named.user_data),
        ];
        for (kind, indexes, rows) in lists {
            for index in indexes {
                self.statements.item.execute(params![id.0, kind, rows[*index]])?;
            }
        }
        Ok(())
    }
}

/// What a job of a plan needs.
pub fn class(plan: &Plan, job: &Job, scheduler: Option<i64>) -> Class {
    let standard = Requirements::default();
    let needs = job.resource_requirements.map_or(&standard, |r| &plan.resource_requirements[r]);
    Class {
        cpus: needs.num_cpus,
        gpus: needs.num_gpus,
        nodes: needs.num_nodes,
        memory: needs.memory.map(|m| m.0),
        runtime: needs.runtime.map(|t| t.0),
        timeout: job.extra.timeout.map(|t| t.0),
        enforces_runtime: plan.settings.execution.enforces_runtime(&job.extra),
        scheduler,
        label: job.extra.label.clone(),
        uses: job.extra.uses.clone(),
    }
}

/// A job of a plan as the engine takes it.
pub fn engine_job(
    plan: &Plan,
    job: &Job,
    named: &Named,
    id: JobId,
    position: i64,
    parents: Vec<JobIx>,
) -> NewJob {
    let handler = job.failure_handler.or(plan.settings.default_failure_handler);
    NewJob {
        id,
        priority: job.priority,
        position,
        family: named.families.get(job.family as usize).copied().unwrap_or(job.family),
        own_ms: None,
        class: class(plan, job, job.scheduler.map(|s| named.schedulers[s])),
        handler: handler.map(|h| named.handler_indexes[h]),
        cancel_on_failure: job.cancel_on_blocking_job_failure,
        max_lost: job.extra.max_lost(),
        parents,
    }
}

/// Jobs to add to a workflow that exists.
pub struct Addition<'a> {
    /// The plan that has them. What else it names (files, requirements, handlers ...) is told by its
    /// name and taken over.
    pub plan: &'a mut Plan,
    /// The jobs of the plan that the workflow has already, by name; all others are added.
    pub present: &'a HashMap<String, JobId>,
    /// Dependencies beyond those of the plan: a job of the plan by its index, and a present job.
    pub also_after: &'a [(usize, JobId)],
    /// The job that adds them.
    pub added_by: Option<JobId>,
}

/// Adds jobs to a live workflow, in the caller's transaction: rows first, then the engine opens those
/// whose parents are done. Answers with the new jobs in the plan's order.
///
/// The caller has checked that there is no cycle; a name that the workflow has already is refused.
pub fn add(tx: &mut Tx<'_>, id: WorkflowId, addition: Addition<'_>) -> Result<Vec<JobId>, Failed> {
    let Addition { plan, present, also_after, added_by } = addition;
    refuse_known_names(tx, id, plan, present)?;
    let outcome = add_checked(tx, id, plan, present, also_after, added_by);
    if outcome.is_err() {
        super::people::reload(tx, id);
    }
    outcome
}

fn refuse_known_names(
    tx: &Tx<'_>,
    id: WorkflowId,
    plan: &Plan,
    present: &HashMap<String, JobId>,
) -> Result<(), Failed> {
    for job in plan.jobs.iter().filter(|job| !present.contains_key(&job.name)) {
        if lookups::find_job(tx.db, id, &job.name)?.is_some() {
            let message = format!("workflow {id} has a job `{}` already", job.name);
            return Err(Refusal::conflict(ErrorCode::NameTaken, message)
                .hint("names of jobs are unique in a workflow")
                .into());
        }
    }
    Ok(())
}

fn add_checked(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    plan: &mut Plan,
    present: &HashMap<String, JobId>,
    also_after: &[(usize, JobId)],
    added_by: Option<JobId>,
) -> Result<Vec<JobId>, Failed> {
    let mut files = facts::of_plan(plan);
    facts::find_rows(tx.db, id, plan, &mut files)?;
    let named = super::named::take(tx, id, plan, &files, &Said::default())?;
    let rows = Numbering::new(tx, plan.jobs.iter().map(|job| present.get(&job.name).copied()))?;
    map::set_limits(&mut plan.jobs, |index| rows.ids[index]);
    let workflow = tx.workflow(id)?;
    let first = workflow.len();
    let index_of = |row: JobId| workflow.find(row);
    let mut revision = Revision::default();
    let mut new_parents: Vec<Vec<JobId>> = Vec::with_capacity(rows.new.len());
    for index in &rows.new {
        let job = &plan.jobs[*index];
        let more = also_after.iter().filter(|(at, _)| at == index).map(|(_, parent)| *parent);
        let mut parents: Vec<JobId> =
            job.depends_on.iter().map(|parent| rows.ids[*parent]).chain(more).collect();
        parents.sort_unstable();
        parents.dedup();
        let indexes = parents
            .iter()
            .map(|parent| {
                rows.place_of_new(*parent)
                    .map(|place| JobIx::new(first + place))
                    .or_else(|| index_of(*parent))
            })
            .collect::<Option<Vec<JobIx>>>()
            .ok_or_else(|| Refusal::invalid("jobs", "a job depends on one that does not exist"))?;
        let (id, position) = (rows.ids[*index], rows.ids[*index].0);
        revision.added.push(engine_job(plan, job, &named, id, position, indexes));
        new_parents.push(parents);
    }
    let place = |index: usize| {
        rows.place_of_new(rows.ids[index])
            .map(|place| JobIx::new(first + place))
            .or_else(|| index_of(rows.ids[index]))
    };
    map::tie_new(plan, &rows.new, place, &mut revision);
    let mut inserter = JobInserter::new(tx.db, id, plan, &named)?;
    for (index, parents) in rows.new.iter().zip(&new_parents) {
        let row = NewRow {
            id: rows.ids[*index],
            position: rows.ids[*index].0,
            status: JobStatus::Uninitialized,
            reason: None,
            parents,
            added_by,
            own_ms: None,
        };
        inserter.insert(&plan.jobs[*index], &row)?;
    }
    drop(inserter);
    grow_count(tx.db, id, rows.new.len() as i64)?;
    tx.handle(On(id, AddJobs { revision }))?;
    Ok(rows.new.iter().map(|index| rows.ids[*index]).collect())
}

/// The rows of a plan's jobs: those that are there, and new ones in the plan's order.
pub struct Numbering {
    /// By the plan's index.
    pub ids: Vec<JobId>,
    /// Indexes of the new ones.
    pub new: Vec<usize>,
    first: JobId,
}

impl Numbering {
    /// Gives the jobs that have no row the next numbers.
    pub fn new(tx: &mut Tx<'_>, rows: impl Iterator<Item = Option<JobId>>) -> Result<Self, Failed> {
        let first = tx.state.engine.next_job();
        let (mut ids, mut new) = (Vec::new(), Vec::new());
        for (index, row) in rows.enumerate() {
            ids.push(row.unwrap_or_else(|| {
                new.push(index);
                JobId(first + new.len() as i64 - 1)
            }));
        }
        let first = tx.handle(TakeJobIds { count: new.len() })?;
        Ok(Self { ids, new, first })
    }

    /// A row's place among the new ones.
    pub fn place_of_new(&self, id: JobId) -> Option<usize> {
        usize::try_from(id.0 - self.first.0).ok().filter(|place| *place < self.new.len())
    }
}

/// What some job writes changes with every run; it cannot be a reason to run again.
pub fn produced_user_data(plan: &Plan) -> Vec<bool> {
    let mut produced = vec![false; plan.user_data.len()];
    for index in plan.jobs.iter().flat_map(|j| &j.output_user_data) {
        produced[*index] = true;
    }
    produced
}

/// The user data that a job reads, in short: when it differs, the job runs again. None if it reads
/// none.
pub fn data_hash(inputs: impl Iterator<Item = Option<String>>) -> Option<String> {
    use sha2::{Digest, Sha256};
    let mut inputs = inputs.peekable();
    inputs.peek()?;
    let mut hash = Sha256::new();
    for text in inputs {
        // The length keeps neighbouring values apart.
        hash.update(text.as_ref().map_or(u64::MAX, |t| t.len() as u64).to_le_bytes());
        hash.update(text.as_deref().unwrap_or(""));
    }
    Some(crate::secret::hex(&hash.finalize()[..16]))
}
