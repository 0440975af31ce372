//! What the rows of a workflow say about a job, beside what the plan says.

use super::super::facts::{FileFact, ItemKind};
use super::super::journal::definitions::{self, Definition, Named};
use super::super::journal::json;
use super::super::load::parse;
use super::super::map;
use super::super::writer::{Failed, Tx};
use super::Head;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use torc_model::api::PlannedChange;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, JobExtra, Plan, Requirements};
use torc_model::steps::MapRole;
use torc_model::units::Runtime;

/// What the rows of a workflow say beside those of its jobs, by name and by row.
pub(super) struct Stored {
    requirements: HashMap<i64, Requirements>,
    handlers: HashMap<i64, String>,
    schedulers: HashMap<i64, String>,
    families: HashMap<i64, String>,
    /// The row of each file of the plan, 0 if it has none, and whether it is at another place now.
    pub(super) files: Vec<(i64, bool)>,
    pub(super) has_moved_files: bool,
    /// The row of each piece of user data of the plan.
    user_data: Vec<i64>,
    common_env: BTreeMap<String, String>,
    other_env: bool,
    other_shell: bool,
    /// Settings that the engine keeps with each job are others.
    other_settings: bool,
}

impl Stored {
    pub(super) fn read(
        db: &Connection,
        id: WorkflowId,
        head: &Head,
        plan: &Plan,
        files: &[FileFact],
    ) -> Result<Self, Failed> {
        let names = |named: Named| definitions::names(db, id, named);
        let in_order = names(Named::Handlers)?;
        let files: Vec<(i64, bool)> = files.iter().map(|f| (f.id, f.has_moved)).collect();
        let data: HashMap<String, i64> =
            names(Named::UserData)?.into_iter().map(|(row, name)| (name, row)).collect();
        let user_data =
            plan.user_data.iter().map(|d| data.get(&d.name).copied().unwrap_or(0)).collect();
        // The engine counts handlers in the order of their rows.
        let default_before = head.settings.default_failure_handler;
        let default_before = default_before.and_then(|at| in_order.get(at)).map(|(_, name)| name);
        let default_now = plan.settings.default_failure_handler;
        let default_now = default_now.map(|at| &plan.failure_handlers[at].name);
        let (before, now) = (&head.settings.execution, &plan.settings.execution);
        Ok(Self {
            other_settings: default_before != default_now
                || before.enforce_runtime != now.enforce_runtime,
            other_env: head.settings.env != plan.settings.env,
            other_shell: before.shell != now.shell,
            common_env: head.settings.env.clone(),
            has_moved_files: files.iter().any(|(_, moved)| *moved),
            schedulers: names(Named::Schedulers)?.into_iter().collect(),
            requirements: definitions::requirements(db, id)?,
            families: names(Named::Families)?.into_iter().collect(),
            handlers: in_order.into_iter().collect(),
            files,
            user_data,
        })
    }

    /// What the plan ties a job to, by rows and in order.
    pub(super) fn items(&self, job: &Job, into: &mut Vec<(ItemKind, i64)>) {
        let file = |at: &usize| self.files[*at].0;
        let data = |at: &usize| self.user_data[*at];
        into.clear();
        into.extend(job.input_files.iter().map(|at| (ItemKind::InputFile, file(at))));
        into.extend(job.output_files.iter().map(|at| (ItemKind::OutputFile, file(at))));
        into.extend(job.input_user_data.iter().map(|at| (ItemKind::InputData, data(at))));
        into.extend(job.output_user_data.iter().map(|at| (ItemKind::OutputData, data(at))));
        into.sort_unstable();
        into.dedup();
    }

    /// The plan's number of each file that has a row.
    pub(super) fn files_by_row(&self) -> HashMap<i64, u32> {
        let files = self.files.iter().enumerate();
        files.filter(|(_, (row, _))| *row != 0).map(|(at, (row, _))| (*row, at as u32)).collect()
    }

    /// What is new about a job, and whether its row must be written again.
    pub(super) fn compare(
        &self,
        tx: &Tx<'_>,
        row: &Definition<'_>,
        plan: &Plan,
        job: &Job,
    ) -> Result<(Option<PlannedChange>, bool), Failed> {
        let mut change = None;
        let mut note = |is_new: bool, what: PlannedChange| {
            if is_new {
                change.get_or_insert(what);
            }
            is_new
        };
        let mut differs = self.other_settings;
        let other_command = row.command != Some(&job.command)
            || row.invocation_script != job.invocation_script.as_deref();
        differs |= note(other_command, PlannedChange::Command);
        let steps = job.steps.as_ref().map(ToString::to_string);
        let before = row.steps;
        if steps.as_deref() != before {
            let before: Option<Value> = before.map(parse).transpose()?;
            note(before != job.steps, PlannedChange::Steps);
            differs = true;
        }
        let extra = if job.extra.is_default() { None } else { json(Some(&*job.extra))? };
        let before = row.extra;
        let is_same_extra = extra.as_deref() == before;
        if !is_same_extra || self.other_env || self.other_shell {
            let before: JobExtra = before.map(parse).transpose()?.unwrap_or_default();
            let (common, own) = (&plan.settings.env, &job.extra.env);
            let other_env = (self.other_env || before.env != *own)
                && together(&self.common_env, &before.env) != together(common, own);
            note(other_env, PlannedChange::Env);
            note(before.lists != job.extra.lists, PlannedChange::InputFiles);
            let other_shell = self.other_shell && job.extra.strictness.shell.is_none();
            note(other_shell || before.strictness != job.extra.strictness, PlannedChange::Success);
            note(map_role(&before) != map_role(&job.extra), PlannedChange::Map);
            if !is_same_extra {
                let timeout = timeout(tx.db, row.id, before.timeout, job.extra.timeout)?;
                differs |= JobExtra { timeout, ..(*job.extra).clone() } != before;
            }
        }
        let standard = Requirements::default();
        let before = row.requirements.and_then(|r| self.requirements.get(&r)).unwrap_or(&standard);
        let now = job.resource_requirements.map_or(&standard, |r| &plan.resource_requirements[r]);
        if before != now || row.requirements.is_some() != job.resource_requirements.is_some() {
            let matters = |r: &Requirements| (r.num_gpus, r.num_nodes);
            note(matters(before) != matters(now), PlannedChange::Requirements);
            differs = true;
        }
        let handler = row.handler.and_then(|row| self.handlers.get(&row));
        differs |= handler != job.failure_handler.map(|at| &plan.failure_handlers[at].name);
        // A scheduler that the server chose stays where the spec names none.
        let scheduler = row.scheduler.and_then(|row| self.schedulers.get(&row));
        let wanted = job.scheduler.map(|at| &plan.slurm_schedulers[at].name);
        differs |= wanted.is_some() && scheduler != wanted;
        differs |= row.cancel_on_failure != job.cancel_on_blocking_job_failure;
        differs |= row.priority != job.priority;
        differs |=
            self.families.get(&i64::from(row.family)) != plan.families.get(job.family as usize);
        Ok((change, differs))
    }
}

/// A job's own variables win, so that a change of the workflow's may not reach it.
fn together(
    common: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = common.clone();
    all.extend(own.clone());
    all
}

/// What a map, an item or a reduce is about. How many items run at once and how many may fail
/// changes none of them.
fn map_role(extra: &JobExtra) -> Option<Value> {
    match map::role_of(extra)? {
        MapRole::Map(settings) => serde_json::to_value(settings.items).ok(),
        MapRole::Item { .. } | MapRole::Reduce(_) => extra.map.clone(),
    }
}

/// The longer of what a recovery allowed and what the spec allows.
pub fn timeout(
    db: &Connection,
    job: JobId,
    before: Option<Runtime>,
    asked: Option<Runtime>,
) -> Result<Option<Runtime>, Failed> {
    let (Some(now), Some(asked)) = (before, asked) else { return Ok(asked) };
    if asked >= now {
        return Ok(Some(asked));
    }
    let raised = definitions::raised_timeout(db, job)?;
    Ok(Some(if raised == i64::try_from(now.0).ok() { now } else { asked }))
}
