//! From spec to plan: expand parameters, resolve names, compute dependencies, check everything.

pub(crate) mod catalog;
pub(crate) mod command;
mod expand;
pub(crate) mod graph;
mod index;
mod jobs;
mod json;
mod maps;
mod matching;
mod params;
mod piece;
mod resolve;
mod rest;
mod short;

use crate::diagnostic::{Advice, Diagnostic, Diagnostics, Severity};
use crate::document::{Document, JobSpec};
use crate::node::{At, NodePath};
use crate::spec::Spec;
use params::ParameterRows;
pub use piece::Present;
use std::collections::{HashMap, HashSet};
use torc_model::plan::Plan;

/// A plan and what analysis needs to know about how it came about.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSpec {
    pub plan: Plan,
    pub warnings: Diagnostics,
    /// For each job of the plan, the index of its definition in the spec.
    pub origins: Vec<usize>,
    /// Jobs of the plan that the workflow has already.
    pub present: Vec<String>,
}

/// How many jobs the definitions stand for, at most; those whose parameters are wrong count as one.
pub(crate) fn max_jobs(document: &Document) -> usize {
    let rows = |job: &JobSpec| {
        ParameterRows::new(job.parameters(), &document.parameters, document.parameter_mode)
    };
    document
        .jobs()
        .map(|job| rows(&job).map_or(1, |rows| rows.len()))
        .fold(0, usize::saturating_add)
}

/// Makes a plan out of a spec, whose canonical form is `text`.
pub(crate) fn plan(spec: &Spec, text: String) -> Result<PlannedSpec, Diagnostics> {
    plan_for(spec, text, None)
}

/// The same for a piece that is added to a workflow.
pub(crate) fn plan_for(
    spec: &Spec,
    text: String,
    present: Option<&dyn Present>,
) -> Result<PlannedSpec, Diagnostics> {
    let mut planner = Planner {
        spec,
        present,
        stubs: piece::Stubs::default(),
        found: Diagnostics::default(),
        said: HashSet::new(),
        advice: Advice::default(),
        lost: HashMap::new(),
        short: short::Short::default(),
    };
    let mut plan = planner.frame();
    plan.spec = text;
    let mut catalog = planner.catalog();
    let mut jobs = planner.expand_jobs(&catalog);
    plan.families = std::mem::take(&mut jobs.families);
    planner.add_present_jobs(&mut jobs);
    let (jobs, origins) = planner.resolve_jobs(jobs, &mut catalog);
    std::mem::take(&mut planner.short).put_into(&mut plan);
    let (jobs, origins) = planner.expand_maps(jobs, origins);
    plan.actions = planner.actions(&jobs);
    planner.check_cycles(&jobs, &catalog, &origins);
    planner.stop_on_errors()?;
    plan.jobs = jobs;
    plan.files = catalog.files;
    plan.user_data = catalog.user_data;
    planner.found.sort();
    let present = planner.stubs.names().map(str::to_owned).collect();
    Ok(PlannedSpec { plan, warnings: planner.found, origins, present })
}

struct Planner<'a> {
    spec: &'a Spec,
    /// The workflow that the plan is added to.
    present: Option<&'a dyn Present>,
    /// Jobs of it that new ones depend on.
    stubs: piece::Stubs,
    found: Diagnostics,
    /// What was reported already: one definition can stand for thousands of instances.
    said: HashSet<(String, String)>,
    advice: Advice,
    /// Names, perhaps with parameters, of definitions of each kind that are wrong: a definition
    /// that refers to one of them may be right.
    lost: HashMap<&'static str, Vec<String>>,
    /// What jobs say themselves instead of naming an entry of the workflow.
    short: short::Short,
}

impl Planner<'_> {
    fn stop_on_errors(&mut self) -> Result<(), Diagnostics> {
        if self.found.has_errors() {
            self.found.sort();
            return Err(std::mem::take(&mut self.found));
        }
        Ok(())
    }

    /// Does something for a definition, and remembers its name if that fails.
    fn attempt(&mut self, kind: &'static str, name: &str, work: impl FnOnce(&mut Self)) {
        let errors = self.found.count(Severity::Error);
        work(self);
        if self.found.count(Severity::Error) > errors {
            self.lost.entry(kind).or_default().push(name.to_owned());
        }
    }

    /// A name of this kind may belong to a definition that is wrong: that has been said, and is
    /// enough.
    fn may_be_lost(&self, kind: &str, name: &str) -> bool {
        let is_it = |lost: &String| match (lost.find('{'), lost.rfind('}')) {
            (Some(first), Some(last)) if first < last => {
                name.starts_with(&lost[..first]) && name.ends_with(&lost[last + 1..])
            }
            _ => lost == name,
        };
        self.lost.get(kind).is_some_and(|lost| lost.iter().any(is_it))
    }

    /// Reports at a node, or at a part of its text; once per place and kind of message.
    fn report(&mut self, at: &At<'_>, part: &str, diagnostic: Diagnostic) {
        self.report_at(&at.path(), part, diagnostic);
    }

    /// The same for a place that is known as a whole.
    fn report_at(&mut self, path: &NodePath, part: &str, diagnostic: Diagnostic) {
        let kind = format!(
            "{:?}{}",
            diagnostic.severity,
            diagnostic.message.split('`').next().unwrap_or("")
        );
        if self.said.insert((format!("{path} {part}"), kind)) {
            self.found.push(diagnostic.at(self.spec.place_of(path, part)));
        }
    }
}
