//! Expansion of jobs: the templates of a definition, and the instances they give.

use super::Planner;
use super::catalog::Catalog;
use super::command::{self, Command, LONGEST_ARGUMENT, ReferenceKind, ReferenceProblem};
use super::index::Index;
use super::json::JsonTemplate;
use super::short::ShortNeeds;
use crate::diagnostic::{Diagnostic, Severity};
use crate::document::{JobSpec, least_size};
use crate::node::At;
use crate::template::{Quoting, Template};
use serde_json::Value;
use std::collections::BTreeMap;
use torc_model::family::Families;
use torc_model::plan::{Job, JobExtra, JobRest};
use torc_model::sparse::Sparse;

/// Expanded texts may take this much memory in all.
const MAX_TEXT: usize = 512 << 20;

/// The jobs with their texts filled in, and what is to be done about each.
#[derive(Debug, Default)]
pub struct Expanded {
    /// Everything but what refers to something else.
    pub jobs: Vec<Job>,
    /// For each job, its references, still by name.
    pub drafts: Vec<Draft>,
    /// Names of the families, by number.
    pub families: Vec<String>,
    index: Index,
}

impl Expanded {
    /// The job of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name, |index| &self.jobs[index].name)
    }

    pub(super) fn add(&mut self, job: Job, draft: Draft) {
        self.index.add(&job.name, self.jobs.len(), |index| &self.jobs[index].name);
        self.jobs.push(job);
        self.drafts.push(draft);
    }
}

/// References of a job by name.
#[derive(Debug, Default)]
pub struct Draft {
    /// Index of the definition.
    pub origin: u32,
    /// Names and expressions of all lists.
    pub elements: Box<[Element]>,
    /// What few jobs name.
    pub rest: Sparse<DraftRest>,
}

impl std::ops::Deref for Draft {
    type Target = DraftRest;

    fn deref(&self) -> &DraftRest {
        &self.rest
    }
}

torc_model::plain!(DraftRest);

/// What few jobs name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DraftRest {
    pub map: Option<Value>,
    pub reduce: Option<String>,
    pub resource_requirements: Option<String>,
    pub failure_handler: Option<String>,
    pub scheduler: Option<String>,
    /// What it needs, where it says so itself.
    pub needs: Option<ShortNeeds>,
    /// Retries of its own.
    pub retries: u32,
    /// The least size of what it writes.
    pub min_size: u64,
    /// What the command names.
    pub references: Vec<(ReferenceKind, u32)>,
}

/// One element of one of the lists of a job.
#[derive(Debug)]
pub struct Element {
    /// Index into [`LISTS`].
    pub list: u8,
    /// Index in the definition's list.
    pub position: u32,
    /// The name or expression.
    pub text: String,
}

/// A list of names or expressions in a job.
pub struct ListKey {
    /// Its key.
    pub key: &'static str,
    /// It holds expressions.
    pub regex: bool,
    get: fn(&JobSpec) -> &Vec<String>,
}

/// The lists whose elements are expanded one by one; each list of names is followed by its list of
/// expressions.
pub const LISTS: [ListKey; 10] = [
    ListKey { key: "depends_on", regex: false, get: |job| &job.depends_on },
    ListKey { key: "depends_on_regexes", regex: true, get: |job| &job.depends_on_regexes },
    ListKey { key: "input_files", regex: false, get: |job| &job.input_files },
    ListKey { key: "input_file_regexes", regex: true, get: |job| &job.input_file_regexes },
    ListKey { key: "output_files", regex: false, get: |job| &job.output_files },
    ListKey { key: "output_file_regexes", regex: true, get: |job| &job.output_file_regexes },
    ListKey { key: "input_user_data", regex: false, get: |job| &job.input_user_data },
    ListKey {
        key: "input_user_data_regexes",
        regex: true,
        get: |job| &job.input_user_data_regexes,
    },
    ListKey { key: "output_user_data", regex: false, get: |job| &job.output_user_data },
    ListKey {
        key: "output_user_data_regexes",
        regex: true,
        get: |job| &job.output_user_data_regexes,
    },
];

/// Commands beyond this may name more files than a program takes arguments: half of Linux's usual
/// limit of 2 MiB, which the environment shares.
const LONG_COMMAND: usize = 1 << 20;

/// The texts of which a job has at most one each.
type TextField = (&'static str, fn(&JobSpec) -> &Option<String>);

const SINGLES: [TextField; 5] = [
    ("resource_requirements", |job| &job.resource_requirements),
    ("failure_handler", |job| &job.failure_handler),
    ("scheduler", |job| &job.scheduler),
    ("label", |job| &job.label),
    ("reduce", |job| &job.reduce),
];

/// The templates of one job definition.
struct JobTemplate {
    name: Template,
    command: Option<Command>,
    invocation_script: Option<Command>,
    singles: [Option<Template>; 5],
    env: Vec<(String, Template)>,
    uses: Vec<Template>,
    elements: Vec<(u8, u32, Template)>,
    steps: Option<JsonTemplate>,
    map: Option<JsonTemplate>,
}

/// What one instance is made from.
struct Making<'a> {
    job: &'a JobSpec,
    /// What holds for all instances of a definition is checked with the first.
    first: bool,
    template: &'a JobTemplate,
    at: At<'a>,
    name: &'a str,
    rows: Vec<Vec<&'a Value>>,
    names: &'a [&'a str],
    catalog: &'a Catalog,
}

impl Planner<'_> {
    /// Expands the jobs.
    pub fn expand_jobs(&mut self, catalog: &Catalog) -> Expanded {
        let mut expanded = Expanded::default();
        let mut text = 0usize;
        let mut families = Families::new(self.spec.document.job_count());
        for (origin, job) in self.spec.document.jobs().enumerate() {
            let family = families.assign(&job.name);
            let first = expanded.jobs.len();
            self.attempt("job", &job.name, |planner| {
                planner.expand_job(origin, &job, catalog, &mut expanded, &mut text);
            });
            expanded.jobs[first..].iter_mut().for_each(|job| job.family = family);
            if text > MAX_TEXT {
                // It is unknown which of the others there would be.
                self.lost.entry("job").or_default().push("{}".into());
                break;
            }
        }
        expanded.families = families.into_names();
        expanded
    }

    fn expand_job(
        &mut self,
        origin: usize,
        job: &JobSpec,
        catalog: &Catalog,
        expanded: &mut Expanded,
        text: &mut usize,
    ) {
        let list = At::top("jobs");
        let at = list.index(origin);
        let Some(rows) = self.rows(job.parameters(), &at) else { return };
        let names = rows.names();
        let Some(template) = self.job_template(job, &names, &at) else { return };
        self.warn_unused(&names, &at, template.mentions());
        for (number, group) in
            self.groups(&rows, &template.name, &at, expanded.jobs.len()).into_iter().enumerate()
        {
            if let Some(first) = expanded.find(&group.name) {
                self.duplicate(
                    "job",
                    &group.name,
                    &at,
                    &list.index(expanded.drafts[first].origin as usize),
                );
                break;
            }
            let values = group.rows(&rows);
            let making = Making {
                job,
                first: number == 0,
                template: &template,
                at,
                name: &group.name,
                rows: values,
                names: &names,
                catalog,
            };
            let Some((instance, draft)) = self.instance(&making) else { break };
            *text += instance.command.len();
            if *text > MAX_TEXT {
                let message =
                    format!("the expanded commands take more than {} MiB", MAX_TEXT >> 20);
                self.report(
                    &at.key("name"),
                    "",
                    Diagnostic::error(message).help("move long commands into a script"),
                );
                return;
            }
            let job = Job { name: group.name, ..instance };
            expanded.add(job, Draft { origin: origin as u32, ..draft });
        }
    }

    fn job_template(&mut self, job: &JobSpec, names: &[&str], at: &At<'_>) -> Option<JobTemplate> {
        let errors = self.found.count(Severity::Error);
        let name = self.template(&job.name, names, Quoting::Plain, &at.key("name"));
        let mut command = |text: &Option<String>, key: &str| {
            let text = text.as_ref()?;
            for slip in command::slips(text) {
                let diagnostic = match slip.fatal {
                    true => Diagnostic::error(slip.message),
                    false => Diagnostic::warning(slip.message),
                };
                self.report(&at.key(key), &slip.written, diagnostic.maybe_help(slip.help));
            }
            match Command::parse(text, names) {
                Ok(command) => Some(command),
                Err(error) => {
                    self.template_error(&error, names, &at.key(key));
                    None
                }
            }
        };
        let invocation_script = command(&job.invocation_script, "invocation_script");
        let sketch = crate::steps::sketch(job);
        let command = if sketch.is_some() { None } else { command(&job.command, "command") };
        if sketch.is_some() && job.invocation_script.is_some() {
            let diagnostic = Diagnostic::warning("`invocation_script` has no effect on steps");
            let help = "write it into the steps that need it";
            self.report(&at.key("invocation_script"), "", diagnostic.help(help));
        }
        let singles = SINGLES.map(|(key, get)| {
            let text = get(job).as_ref()?;
            self.template(text, names, Quoting::Plain, &at.key(key))
        });
        let mut env = Vec::new();
        for (key, value) in &job.env {
            let template = self.template(value, names, Quoting::Plain, &at.key("env").key(key));
            env.extend(template.map(|template| (key.clone(), template)));
        }
        let mut uses = Vec::new();
        for (index, text) in job.uses.iter().enumerate() {
            uses.extend(self.template(text, names, Quoting::Plain, &at.key("uses").index(index)));
        }
        let mut elements = Vec::new();
        for (number, list) in LISTS.iter().enumerate() {
            let quoting = if list.regex { Quoting::Regex } else { Quoting::Plain };
            for (position, text) in (list.get)(job).iter().enumerate() {
                let template =
                    self.template(text, names, quoting, &at.key(list.key).index(position));
                elements.extend(template.map(|template| (number as u8, position as u32, template)));
            }
        }
        let steps = self.json_template(sketch.as_ref(), names, &at.key("steps"), false);
        let map = self.json_template(job.map.as_ref(), names, &at.key("map"), false);
        let fine = self.found.count(Severity::Error) == errors;
        let (Some(name), Some(steps), Some(map), true) = (name, steps, map, fine) else {
            return None;
        };
        Some(JobTemplate {
            name,
            command,
            invocation_script,
            singles,
            env,
            uses,
            elements,
            steps,
            map,
        })
    }

    /// Everything of an instance but its name and origin.
    fn instance(&mut self, making: &Making<'_>) -> Option<(Job, Draft)> {
        let Making { job: definition, template, at, rows, names, .. } = making;
        let row = &rows[0];
        if rows.len() > 1 && self.any_varies(making) {
            return None;
        }
        let mut references = Vec::new();
        let mut lists = Vec::new();
        let mut shell =
            |template, key| self.shell(making, template, key, &mut references, &mut lists);
        let command = shell(&template.command, "command")?;
        let invocation_script = shell(&template.invocation_script, "invocation_script")?;
        let mut singles: [Option<String>; 5] = Default::default();
        for ((single, template), (key, _)) in singles.iter_mut().zip(&template.singles).zip(SINGLES)
        {
            if let Some(template) = template {
                *single = Some(self.fill(template, row, &at.key(key))?);
            }
        }
        let [resource_requirements, failure_handler, scheduler, label, reduce] = singles;
        let mut env = BTreeMap::new();
        for (key, value) in &template.env {
            env.insert(key.clone(), self.fill(value, row, &at.key("env").key(key))?);
        }
        let mut uses = Vec::with_capacity(template.uses.len());
        for (index, template) in template.uses.iter().enumerate() {
            uses.push(self.fill(template, row, &at.key("uses").index(index))?);
        }
        let mut elements = Vec::with_capacity(template.elements.len());
        for (list, position, template) in &template.elements {
            let rows = if template.is_constant() { &rows[..1] } else { rows };
            for row in rows {
                let text = self.fill(
                    template,
                    row,
                    &at.key(LISTS[*list as usize].key).index(*position as usize),
                )?;
                elements.push(Element { list: *list, position: *position, text });
            }
        }
        let steps = match self.fill_json(making, &template.steps, "steps")? {
            Some(sketch) => Some(self.tree(making, sketch, &mut references)?),
            None => None,
        };
        let constant = |i: &usize| rows.len() == 1 || rows.iter().all(|row| row[*i] == rows[0][*i]);
        let parameters = (0..names.len())
            .filter(constant)
            .map(|i| (names[i].to_owned(), row[i].clone()))
            .collect();
        let map = self.fill_json(making, &template.map, "map")?;
        let mut job = Job {
            command: command.unwrap_or_default(),
            cancel_on_blocking_job_failure: definition
                .cancel_on_blocking_job_failure
                .unwrap_or(true),
            priority: definition.priority,
            extra: JobExtra {
                env,
                timeout: definition.timeout,
                uses,
                label,
                settings: (*definition.settings).clone(),
                strictness: definition.strictness,
                lists,
                parameters,
                map: None,
            }
            .into(),
            ..Job::default()
        };
        if invocation_script.is_some() || steps.is_some() {
            job.rest = JobRest { invocation_script, steps, ..JobRest::default() }.into();
        }
        let rest = DraftRest {
            map,
            reduce,
            resource_requirements,
            failure_handler,
            scheduler,
            needs: ShortNeeds::of(definition),
            retries: definition.retries,
            min_size: least_size(definition.non_empty, definition.min_size),
            references,
        };
        Some((job, Draft { elements: elements.into(), rest: rest.into(), ..Draft::default() }))
    }

    /// Reports the first text of an instance that would not be the same for all its rows.
    fn any_varies(&mut self, making: &Making<'_>) -> bool {
        let Making { template, at, name, rows, names, .. } = making;
        let texts: [(&str, Vec<usize>); 4] = [
            ("command", template.command.iter().flat_map(Command::uses).collect()),
            (
                "invocation_script",
                template.invocation_script.iter().flat_map(Command::uses).collect(),
            ),
            ("steps", template.steps.iter().flat_map(JsonTemplate::uses).collect()),
            ("map", template.map.iter().flat_map(JsonTemplate::uses).collect()),
        ];
        let mut check = |uses: Vec<usize>, at: &At<'_>| {
            self.varies(rows, uses.into_iter(), names, at, "job", name)
        };
        texts.into_iter().any(|(key, uses)| check(uses, &at.key(key)))
            || template.singles.iter().zip(SINGLES).any(|(single, (key, _))| {
                check(single.iter().flat_map(Template::uses).collect(), &at.key(key))
            })
            || template
                .env
                .iter()
                .any(|(key, value)| check(value.uses().collect(), &at.key("env").key(key)))
            || template.uses.iter().any(|value| check(value.uses().collect(), &at.key("uses")))
    }

    fn shell(
        &mut self,
        making: &Making<'_>,
        command: &Option<Command>,
        key: &str,
        references: &mut Vec<(ReferenceKind, u32)>,
        lists: &mut Vec<Vec<String>>,
    ) -> Option<Option<String>> {
        let Some(command) = command else { return Some(None) };
        let place = making.at.key(key);
        match command.fill(&making.rows, making.catalog, std::mem::take(lists)) {
            Ok(filled) => {
                filled.doubts.into_iter().for_each(|doubt| self.doubt(doubt, &place));
                references.extend(filled.references);
                *lists = filled.lists;
                if making.first && filled.text.len() >= LONGEST_ARGUMENT {
                    let (name, size) = (making.name, filled.text.len() >> 10);
                    let help = "`${files.input.NAME.list}` is a file with the paths, one per line";
                    let message = format!(
                        "the command of job `{name}` has {size} KiB, and Linux takes no argument of {} KiB or more: \
                         the runner starts it from a file",
                        LONGEST_ARGUMENT >> 10
                    );
                    let diagnostic = match filled.text.len() > LONG_COMMAND {
                        false => Diagnostic::note(message),
                        true => Diagnostic::warning(format!(
                            "{message}; a program in it takes at most about 2 MiB of arguments in all"
                        ))
                        .help(help),
                    };
                    self.report(&place, "", diagnostic);
                }
                Some(Some(filled.text))
            }
            Err(doubt) => {
                self.doubt(doubt, &place);
                None
            }
        }
    }

    fn fill_json(
        &mut self,
        making: &Making<'_>,
        template: &Option<JsonTemplate>,
        key: &str,
    ) -> Option<Option<Value>> {
        match template.as_ref().map(|template| template.fill(&making.rows[0])).transpose() {
            Ok(value) => Some(value),
            Err(message) => {
                self.report(&making.at.key(key), "", Diagnostic::error(message));
                None
            }
        }
    }

    /// A declared file has a blank in its path, or a variable that may bring one.
    fn has_blank_path(&self) -> bool {
        self.spec.document.files.iter().any(|file| file.path.contains([' ', '\t', '$', '{']))
    }

    /// The tree of steps of an instance, checked.
    fn tree(
        &mut self,
        making: &Making<'_>,
        sketch: Value,
        references: &mut Vec<(ReferenceKind, u32)>,
    ) -> Option<Value> {
        let Making { job, at, .. } = making;
        match crate::steps::tree(sketch, self.spec.document.agent.as_ref(), making.catalog) {
            Ok(built) => {
                if making.first {
                    for remark in crate::steps::check(
                        &built.tree,
                        &at.path(),
                        job.map.is_some(),
                        job.reduce.is_some(),
                    ) {
                        // Quotes matter only where a path has a blank for the shell to split at.
                        let is_about_quotes = remark.diagnostic.severity == Severity::Note;
                        let is_path = remark.part.starts_with("${files.");
                        if is_about_quotes && is_path && !self.has_blank_path() {
                            continue;
                        }
                        self.report_at(&remark.at, &remark.part, remark.diagnostic);
                    }
                }
                references.extend(built.references);
                Some(built.tree.to_value())
            }
            Err(error) => {
                let diagnostic = Diagnostic::error(error.message).maybe_help(error.help);
                self.report(&at.key("steps"), &error.written, diagnostic);
                None
            }
        }
    }

    fn doubt(&mut self, doubt: ReferenceProblem, at: &At<'_>) {
        let diagnostic = if doubt.fatal {
            Diagnostic::error(doubt.message)
        } else {
            Diagnostic::warning(doubt.message)
        };
        self.report(at, &doubt.written, diagnostic.maybe_help(doubt.help));
    }
}

impl JobTemplate {
    /// Every parameter that occurs anywhere.
    fn mentions(&self) -> impl Iterator<Item = usize> + '_ {
        let commands =
            self.command.iter().chain(&self.invocation_script).flat_map(Command::mentions);
        let singles = self.singles.iter().flatten();
        let env = self.env.iter().map(|(_, value)| value);
        let elements = self.elements.iter().map(|(_, _, element)| element);
        let texts = singles.chain(env).chain(elements).chain(&self.uses).flat_map(Template::uses);
        let json = self.steps.iter().chain(&self.map).flat_map(JsonTemplate::uses);
        self.name.uses().chain(commands).chain(texts).chain(json)
    }
}
