//! Short forms: what a job says itself instead of naming an entry of the workflow. Each distinct
//! wish becomes one such entry of the plan, after those of the spec.

use super::Planner;
use super::jobs::DraftRest;
use super::piece::Present;
use crate::diagnostic::{Diagnostic, excerpt};
use crate::document::{Document, JobSpec};
use crate::node::At;
use std::collections::HashMap;
use torc_model::plan::{FailureHandler, Job, Plan, Requirements, Rule, SlurmScheduler};
use torc_model::units::{Memory, Runtime};

/// What a job needs, in its own words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ShortNeeds {
    cpus: Option<u32>,
    gpus: Option<u32>,
    memory: Option<Memory>,
    time: Option<Runtime>,
}

impl ShortNeeds {
    /// Of a job that says so.
    pub fn of(job: &JobSpec) -> Option<Self> {
        let needs = Self { cpus: job.cpus, gpus: job.gpus, memory: job.memory, time: job.time };
        (needs != Self::default()).then_some(needs)
    }

    /// What the entry is called: its own words.
    fn name(&self) -> String {
        let parts = [
            self.cpus.map(|cpus| format!("cpus: {cpus}")),
            self.gpus.map(|gpus| format!("gpus: {gpus}")),
            self.memory.map(|memory| format!("memory: {memory}")),
            self.time.map(|time| format!("time: {}", time.friendly())),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Entries of the plan that stand for short forms.
#[derive(Debug, Default)]
pub struct Short {
    requirements: Vec<Requirements>,
    by_needs: HashMap<ShortNeeds, usize>,
    handlers: Vec<FailureHandler>,
    /// By the handler whose rules come first, and the retries.
    by_retries: HashMap<(Option<usize>, u32), usize>,
    schedulers: Vec<SlurmScheduler>,
}

impl Short {
    /// The entry with these needs; gives its index in the plan.
    pub fn requirements(&mut self, needs: ShortNeeds, document: &Document) -> usize {
        let known = &document.resource_requirements;
        if let Some(index) = self.by_needs.get(&needs) {
            return *index;
        }
        let standard = Requirements::default();
        let index = known.len() + self.requirements.len();
        self.requirements.push(Requirements {
            name: free(needs.name(), |name| known.iter().any(|entry| entry.name == name)),
            num_cpus: needs.cpus.unwrap_or(standard.num_cpus),
            num_gpus: needs.gpus.unwrap_or(standard.num_gpus),
            memory: needs.memory,
            runtime: needs.time,
            ..standard
        });
        self.by_needs.insert(needs, index);
        index
    }

    /// Puts the entries into the plan.
    pub fn put_into(self, plan: &mut Plan) {
        plan.resource_requirements.extend(self.requirements);
        plan.failure_handlers.extend(self.handlers);
        plan.slurm_schedulers.extend(self.schedulers);
    }
}

/// A name that the spec does not use itself.
fn free(mut name: String, is_taken: impl Fn(&str) -> bool) -> String {
    while is_taken(&name) {
        name.push('\'');
    }
    name
}

/// It matches every failure that no other rule matches.
fn is_catch_all(rule: &Rule) -> bool {
    rule.match_all_exit_codes
        && rule.exit_codes.is_empty()
        && rule.signals.is_empty()
        && rule.causes.is_empty()
        && rule.stderr_matches.is_empty()
}

impl Planner<'_> {
    /// Name and rules of a handler of the plan.
    fn handler(&self, index: usize) -> (&str, &[Rule]) {
        let known = &self.spec.document.failure_handlers;
        match known.get(index) {
            Some(handler) => (&handler.name, &handler.rules),
            None => {
                let handler = &self.short.handlers[index - known.len()];
                (&handler.name, &handler.rules)
            }
        }
    }

    /// The handler of jobs that name none.
    fn default_handler(&mut self) -> Option<usize> {
        if let Some(present) = self.present {
            return self.present_handler(&present.default_handler()?, present);
        }
        let document = &self.spec.document;
        let name = document.default_failure_handler.as_ref()?;
        document.failure_handlers.iter().position(|handler| handler.name == *name)
    }

    /// A handler of the workflow that the piece is added to.
    fn present_handler(&mut self, name: &str, present: &dyn Present) -> Option<usize> {
        let known = self.spec.document.failure_handlers.len();
        let handlers = &mut self.short.handlers;
        let at = handlers.iter().position(|handler| handler.name == name).or_else(|| {
            handlers.push(present.handler(name)?);
            Some(handlers.len() - 1)
        })?;
        Some(known + at)
    }

    /// Takes over what a job of a piece names and the workflow has; the rest stays named.
    pub(super) fn take_present(
        &mut self,
        job: &mut Job,
        rest: &mut DraftRest,
        present: &dyn Present,
    ) {
        let document = &self.spec.document;
        if let Some(name) = &rest.resource_requirements
            && document.resource_requirements.iter().all(|entry| entry.name != *name)
        {
            let list = &mut self.short.requirements;
            let at = list.iter().position(|entry| entry.name == *name).or_else(|| {
                list.push(present.requirements(name)?);
                Some(list.len() - 1)
            });
            if let Some(at) = at {
                job.resource_requirements = Some(document.resource_requirements.len() + at);
                rest.resource_requirements = None;
            }
        }
        if let Some(name) = &rest.failure_handler
            && document.failure_handlers.iter().all(|handler| handler.name != *name)
            && let Some(index) = self.present_handler(name, present)
        {
            job.failure_handler = Some(index);
            rest.failure_handler = None;
        }
        if let Some(name) = &rest.scheduler {
            let list = &mut self.short.schedulers;
            let at = list.iter().position(|entry| entry.name == *name).or_else(|| {
                list.push(present.scheduler(name)?);
                Some(list.len() - 1)
            });
            if let Some(at) = at {
                job.scheduler = Some(document.slurm_schedulers.len() + at);
                rest.scheduler = None;
            }
        }
    }

    /// Gives a job so many retries after failures that no rule of its handler matches.
    pub fn add_retries(&mut self, job: &mut Job, retries: u32, origin: usize) {
        let own = job.failure_handler;
        let first = own.or_else(|| self.default_handler());
        if let Some((name, rules)) = own.map(|own| self.handler(own))
            && rules.iter().any(is_catch_all)
        {
            let message = format!(
                "`retries` would have no effect: failure handler `{}` has a rule for all failures",
                excerpt(name)
            );
            let help = "remove one of the two; the rule's `max_attempts` is the number of attempts";
            self.report(
                &At::top("jobs").index(origin).key("retries"),
                "",
                Diagnostic::error(message).help(help),
            );
            return;
        }
        if let Some(index) = self.short.by_retries.get(&(first, retries)) {
            job.failure_handler = Some(*index);
            return;
        }
        let (name, rules) = match first.map(|first| self.handler(first)) {
            Some((base, rules)) => (format!("{base}, retries: {retries}"), rules),
            None => (format!("retries: {retries}"), &[][..]),
        };
        // The job's own word wins over what the workflow says for all jobs.
        let mut rules: Vec<Rule> =
            rules.iter().filter(|rule| !is_catch_all(rule)).cloned().collect();
        let known = &self.spec.document.failure_handlers;
        rules.push(Rule {
            match_all_exit_codes: true,
            max_retries: retries.saturating_add(1),
            ..Rule::default()
        });
        let index = known.len() + self.short.handlers.len();
        let name = free(name, |name| known.iter().any(|handler| handler.name == name));
        self.short.handlers.push(FailureHandler { name, rules });
        self.short.by_retries.insert((first, retries), index);
        job.failure_handler = Some(index);
    }
}
