//! Pieces of a spec: jobs, and what belongs to them, for a workflow that exists already. Their names
//! may also mean what the workflow has.

use super::Planner;
use super::catalog::Catalog;
use super::jobs::{Draft, Element, Expanded, LISTS};
use super::params::ParameterRows;
use crate::document::JobSpec;
use crate::template::{Quoting, Template};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::plan::{FailureHandler, File, Job, Requirements, SlurmScheduler, UserData};

/// What the workflow has that a piece is added to.
pub trait Present {
    /// It has a job of this name.
    fn has_job(&self, name: &str) -> bool;
    /// A file, by its name or path, and the names of the jobs that write it.
    fn file(&self, name: &str) -> Option<(File, Vec<String>)>;
    /// User data, and the names of the jobs that produce it.
    fn user_data(&self, name: &str) -> Option<(UserData, Vec<String>)>;
    /// Resource requirements.
    fn requirements(&self, name: &str) -> Option<Requirements>;
    /// A failure handler.
    fn handler(&self, name: &str) -> Option<FailureHandler>;
    /// The name of the failure handler of jobs that name none.
    fn default_handler(&self) -> Option<String>;
    /// A Slurm scheduler.
    fn scheduler(&self, name: &str) -> Option<SlurmScheduler>;
}

/// Jobs that are there already and that new ones depend on. They stand in the plan as jobs without
/// a command.
#[derive(Debug, Default)]
pub(super) struct Stubs {
    /// By name; each with the files and the user data of the piece that it writes.
    jobs: BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>,
}

impl Stubs {
    /// The names of the jobs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }
}

const DEPENDS_ON: u8 = 0;
const OUTPUT_FILES: u8 = 4;
const OUTPUT_USER_DATA: u8 = 8;

impl Planner<'_> {
    /// Takes files and user data of the workflow into the catalog where the piece names them.
    pub(super) fn add_present_items(&mut self, catalog: &mut Catalog) {
        let Some(present) = self.present else { return };
        let document = &self.spec.document;
        for job in document.jobs() {
            let rows =
                ParameterRows::new(job.parameters(), &document.parameters, document.parameter_mode);
            let Ok(rows) = rows else { continue };
            let names = rows.names();
            let mut texts: Vec<(bool, String)> = Vec::new();
            let lists = [&job.input_files, &job.output_files];
            texts.extend(lists.iter().flat_map(|list| list.iter().map(|t| (true, t.clone()))));
            let lists = [&job.input_user_data, &job.output_user_data];
            texts.extend(lists.iter().flat_map(|list| list.iter().map(|t| (false, t.clone()))));
            texts.extend(references(&job));
            for (is_file, text) in texts {
                let Ok(template) = Template::parse(&text, &names, Quoting::Plain) else { continue };
                let count = if template.is_constant() { rows.len().min(1) } else { rows.len() };
                for number in 0..count {
                    let Ok(name) = template.fill(&rows.row(number)) else { continue };
                    self.add_present_item(catalog, present, is_file, &name);
                }
            }
        }
    }

    fn add_present_item(
        &mut self,
        catalog: &mut Catalog,
        present: &dyn Present,
        is_file: bool,
        name: &str,
    ) {
        if is_file && catalog.file(name).is_none() {
            let Some((file, writers)) = present.file(name) else { return };
            for writer in writers {
                self.stubs.jobs.entry(writer).or_default().0.insert(file.name.clone());
            }
            let added = catalog.add_file(file);
            debug_assert!(added.is_ok(), "`{name}` is added twice");
        } else if !is_file && catalog.user_data(name).is_none() {
            let Some((data, writers)) = present.user_data(name) else { return };
            for writer in writers {
                self.stubs.jobs.entry(writer).or_default().1.insert(data.name.clone());
            }
            let added = catalog.add_user_data(data);
            debug_assert!(added.is_ok(), "`{name}` is added twice");
        }
    }

    /// Adds the jobs of the workflow that the piece names, or whose files it reads.
    pub(super) fn add_present_jobs(&mut self, expanded: &mut Expanded) {
        let Some(present) = self.present else { return };
        for draft in &expanded.drafts {
            for element in draft.elements.iter().filter(|e| e.list == DEPENDS_ON) {
                if expanded.find(&element.text).is_none() && present.has_job(&element.text) {
                    self.stubs.jobs.entry(element.text.clone()).or_default();
                }
            }
        }
        debug_assert_eq!(LISTS[usize::from(OUTPUT_FILES)].key, "output_files");
        debug_assert_eq!(LISTS[usize::from(OUTPUT_USER_DATA)].key, "output_user_data");
        // A new job of that name is a mistake that is told when it is stored.
        self.stubs.jobs.retain(|name, _| expanded.find(name).is_none());
        for (name, (files, data)) in &self.stubs.jobs {
            let element =
                |list: u8| move |text: &String| Element { list, position: 0, text: text.clone() };
            let elements: Vec<Element> = files
                .iter()
                .map(element(OUTPUT_FILES))
                .chain(data.iter().map(element(OUTPUT_USER_DATA)))
                .collect();
            let draft = Draft { elements: elements.into(), ..Draft::default() };
            expanded.add(Job { name: name.clone(), ..Job::default() }, draft);
        }
    }
}

/// The names in `${files...}` (true) and `${user_data...}` of all shell text of a job.
fn references(job: &JobSpec) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut scan = |text: &str| {
        let mut rest = text;
        while let Some((at, prefix, kind, length)) = super::command::next_reference(rest) {
            let name = &rest[at + prefix..at + length - 1];
            found.push((kind.is_file(), name.to_owned()));
            if let Some(stem) = name.strip_suffix(".list") {
                found.push((kind.is_file(), stem.to_owned()));
            }
            rest = &rest[at + length..];
        }
    };
    job.command.iter().chain(&job.invocation_script).for_each(|text| scan(text));
    for value in [&job.steps, &job.on_failure, &job.on_success].into_iter().flatten() {
        texts(value, &mut scan);
    }
    if let Some(name) = job.map.as_ref().and_then(|map| map.pointer("/items/user_data")?.as_str()) {
        found.push((false, name.to_owned()));
    }
    found
}

fn texts(value: &Value, scan: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => scan(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, scan)),
        Value::Object(entries) => entries.values().for_each(|value| texts(value, scan)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
