//! Expansion: one definition with parameters becomes many instances.
//!
//! The parameters in a definition's name tell its instances apart. Values of the other parameters gather in one
//! instance: its lists take all of them (fan-in), and its command may not depend on them.

use super::Planner;
use super::catalog::Catalog;
use super::command::{Command, Doubt, ReferenceKind};
use super::params::{MAX_INSTANCES, Rows, RowsError};
use crate::diagnostic::{Diagnostic, excerpt, suggest};
use crate::document::{JobSpec, ParametersSpec};
use crate::node::{Path, at};
use crate::read::check_name;
use crate::template::{Quoting, Template, TemplateError};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use torc_model::plan::{File, UserData};

/// Expanded texts may take this much memory in all.
const MAX_TEXT: usize = 512 << 20;

/// A job with its texts filled in and its references still by name.
#[derive(Debug)]
pub struct Instance {
    /// Index of the definition.
    pub origin: usize,
    pub name: String,
    pub command: String,
    pub invocation_script: Option<String>,
    pub steps: Option<Value>,
    pub map: Option<Value>,
    pub reduce: Option<String>,
    pub resource_requirements: Option<String>,
    pub failure_handler: Option<String>,
    pub scheduler: Option<String>,
    pub label: Option<String>,
    pub env: BTreeMap<String, String>,
    pub uses: Vec<String>,
    /// For each of [`LISTS`], the index in the definition's list and the name or expression.
    pub lists: Vec<Vec<(u32, String)>>,
    /// What the command names.
    pub references: Vec<(ReferenceKind, u32)>,
    pub parameters: BTreeMap<String, Value>,
}

/// A list of names or expressions in a job.
pub struct ListKey {
    pub key: &'static str,
    pub regex: bool,
    get: fn(&JobSpec) -> &Vec<String>,
}

/// The lists whose elements are expanded one by one.
pub const LISTS: [ListKey; 10] = [
    ListKey { key: "depends_on", regex: false, get: |job| &job.depends_on },
    ListKey { key: "depends_on_regexes", regex: true, get: |job| &job.depends_on_regexes },
    ListKey { key: "input_files", regex: false, get: |job| &job.input_files },
    ListKey { key: "input_file_regexes", regex: true, get: |job| &job.input_file_regexes },
    ListKey { key: "output_files", regex: false, get: |job| &job.output_files },
    ListKey { key: "output_file_regexes", regex: true, get: |job| &job.output_file_regexes },
    ListKey { key: "input_user_data", regex: false, get: |job| &job.input_user_data },
    ListKey { key: "input_user_data_regexes", regex: true, get: |job| &job.input_user_data_regexes },
    ListKey { key: "output_user_data", regex: false, get: |job| &job.output_user_data },
    ListKey { key: "output_user_data_regexes", regex: true, get: |job| &job.output_user_data_regexes },
];

/// The templates of one job definition.
struct JobTemplate {
    name: Template,
    command: Option<Command>,
    invocation_script: Option<Command>,
    singles: Vec<(&'static str, Option<Template>)>,
    env: Vec<(String, Template)>,
    uses: Vec<Template>,
    lists: Vec<Vec<Template>>,
    steps: Option<JsonTemplate>,
    map: Option<JsonTemplate>,
}

/// Rows of one instance, in order of first appearance.
struct Group {
    name: String,
    rows: Vec<usize>,
}

impl Planner<'_> {
    /// Expands files and user data.
    pub fn catalog(&mut self) -> Catalog {
        let mut catalog = Catalog::default();
        let mut origins = Vec::new();
        let document = &self.spec.document;
        for (index, file) in document.files.iter().enumerate() {
            let at = at!["files", index];
            let Some(rows) = self.rows(&file.parameters(), &at) else { continue };
            let names = rows.names();
            let name = self.template(&file.name, &names, Quoting::Plain, &at.join("name"));
            let target = self.template(&file.path, &names, Quoting::Plain, &at.join("path"));
            let (Some(name), Some(target)) = (name, target) else { continue };
            self.warn_unused(&names, &at, name.uses().chain(target.uses()));
            for group in self.groups(&rows, &name, &at, catalog.files.len()) {
                let values = first_rows(&rows, &group);
                if self.varies(&values, target.uses(), &names, &at.join("path"), "file", &group.name) {
                    break;
                }
                let Some(path) = self.fill(&target, &values[0], &at.join("path")) else { break };
                if let Err(first) = catalog.add_file(File { name: group.name.clone(), path }) {
                    self.duplicate("file", &group.name, &at, &at!["files", origins[first as usize]]);
                    break;
                }
                origins.push(index);
            }
        }
        origins.clear();
        for (index, data) in document.user_data.iter().enumerate() {
            let at = at!["user_data", index];
            let Some(rows) = self.rows(&data.parameters(), &at) else { continue };
            let names = rows.names();
            let name = self.template(&data.name, &names, Quoting::Plain, &at.join("name"));
            let value = self.json_template(data.data.as_ref(), &names, &at.join("data"), true);
            let (Some(name), Some(value)) = (name, value) else { continue };
            let uses: Vec<usize> = value.iter().flat_map(JsonTemplate::uses).collect();
            self.warn_unused(&names, &at, name.uses().chain(uses.iter().copied()));
            for group in self.groups(&rows, &name, &at, catalog.user_data.len()) {
                let values = first_rows(&rows, &group);
                if self.varies(&values, uses.iter().copied(), &names, &at.join("data"), "user data", &group.name) {
                    break;
                }
                let filled = match value.as_ref().map(|value| value.fill(&values[0])).transpose() {
                    Ok(filled) => filled,
                    Err(message) => {
                        self.report(&at.join("data"), "", Diagnostic::error(message));
                        break;
                    }
                };
                let entry = UserData { name: group.name.clone(), data: filled, is_ephemeral: data.is_ephemeral };
                if let Err(first) = catalog.add_user_data(entry) {
                    self.duplicate("user data", &group.name, &at, &at!["user_data", origins[first as usize]]);
                    break;
                }
                origins.push(index);
            }
        }
        catalog
    }

    /// Expands the jobs.
    pub fn expand_jobs(&mut self, catalog: &Catalog) -> Vec<Instance> {
        let mut instances: Vec<Instance> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut text = 0usize;
        let spec = self.spec;
        for (origin, job) in spec.document.jobs.iter().enumerate() {
            let at = at!["jobs", origin];
            let Some(rows) = self.rows(&job.parameters(), &at) else { continue };
            let names = rows.names();
            let Some(template) = self.job_template(job, &names, &at) else { continue };
            self.warn_unused(&names, &at, template.mentions());
            for group in self.groups(&rows, &template.name, &at, instances.len()) {
                if let Some(first) = known.get(&group.name) {
                    self.duplicate("job", &group.name, &at, &at!["jobs", instances[*first].origin]);
                    break;
                }
                let values = first_rows(&rows, &group);
                let Some(instance) = self.instance(job, &template, origin, &group.name, &values, &names, catalog)
                else {
                    break;
                };
                text += instance.name.len() + instance.command.len();
                if text > MAX_TEXT {
                    let message = format!("the expanded commands take more than {} MiB", MAX_TEXT >> 20);
                    self.report(&at, "", Diagnostic::error(message).help("move long commands into a script"));
                    return instances;
                }
                known.insert(group.name, instances.len());
                instances.push(instance);
            }
        }
        instances
    }

    fn rows(&mut self, own: &ParametersSpec, at: &Path) -> Option<Rows> {
        let document = &self.spec.document;
        match Rows::new(own, &document.parameters, document.parameter_mode) {
            Ok(rows) => {
                if rows.len() == 0 {
                    let key = if own.parameters.is_empty() { "use_parameters" } else { "parameters" };
                    let message = "a parameter has no values, so this expands to nothing";
                    self.report(&at.join(key), "", Diagnostic::warning(message));
                }
                Some(rows)
            }
            Err(error) => {
                self.rows_error(error, own, at);
                None
            }
        }
    }

    fn rows_error(&mut self, error: RowsError, own: &ParametersSpec, at: &Path) {
        let source = at.join(if own.parameters.is_empty() { "use_parameters" } else { "parameters" });
        match error {
            RowsError::Unknown { index, name } => {
                let known = self.spec.document.parameters.keys().map(String::as_str);
                let help = suggest(&name, known).or_else(|| Some("the workflow defines no `parameters`".into()));
                let message = format!("the workflow has no parameter `{}`", excerpt(&name));
                self.report(&source.join(index), "", Diagnostic::error(message).maybe_help(help));
            }
            RowsError::Lengths { first, other } => {
                let message = format!(
                    "parameters go side by side, but `{}` has {} values and `{}` has {}",
                    first.0, first.1, other.0, other.1
                );
                let help = "give them the same number of values, or use `parameter_mode: product`";
                self.report(&source.join(other.0.as_str()), "", Diagnostic::error(message).help(help));
            }
            RowsError::Value { name, error } => {
                let place = if own.parameters.is_empty() {
                    at!["parameters", name.as_str()]
                } else {
                    source.join(name.as_str())
                };
                self.report(&place, "", Diagnostic::error(error.message).maybe_help(error.help));
            }
            RowsError::Many => {
                self.report(
                    &source,
                    "",
                    Diagnostic::error(format!("these parameters have more than {MAX_INSTANCES} combinations")),
                );
            }
        }
    }

    fn template(&mut self, text: &str, names: &[&str], quoting: Quoting, at: &Path) -> Option<Template> {
        match Template::parse(text, names, quoting) {
            Ok(template) => Some(template),
            Err(error) => {
                self.template_error(&error, names, at);
                None
            }
        }
    }

    fn template_error(&mut self, error: &TemplateError, names: &[&str], at: &Path) {
        let diagnostic = match &error.unknown {
            Some(name) => {
                let near = crate::diagnostic::nearest(name, names.iter().copied());
                let near = near.map(|near| format!("did you mean `{{{near}}}`? ")).unwrap_or_default();
                let message = format!("`{}` is neither a parameter of this entry nor a variable", error.token);
                Diagnostic::error(message).help(format!("{near}write `{{{}}}` for the braces themselves", error.token))
            }
            None => Diagnostic::error(error.message.clone()),
        };
        self.report(at, &error.token, diagnostic);
    }

    fn fill(&mut self, template: &Template, row: &[&Value], at: &Path) -> Option<String> {
        match template.fill(row) {
            Ok(text) => Some(text),
            Err(message) => {
                self.report(at, "", Diagnostic::error(message));
                None
            }
        }
    }

    /// Gathers the rows by the name they give.
    fn groups(&mut self, rows: &Rows, name: &Template, at: &Path, already: usize) -> Vec<Group> {
        let place = at.join("name");
        if already + rows.len() > MAX_INSTANCES {
            self.report(&place, "", Diagnostic::error(format!("the workflow has more than {MAX_INSTANCES} of these")));
            return Vec::new();
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        let (mut row, mut first) = (Vec::new(), Vec::new());
        for number in 0..rows.len() {
            rows.row(number, &mut row);
            let Some(text) = self.fill(name, &row, &place) else { return Vec::new() };
            if let Err(message) = check_name(&text) {
                self.report(&place, "", Diagnostic::error(message));
                return Vec::new();
            }
            if let Some(group) = index.get(&text) {
                rows.row(groups[*group].rows[0], &mut first);
                if let Some(differing) = name.uses().find(|i| first[*i] != row[*i]) {
                    let parameter = rows.names()[differing];
                    let message = format!("two values of `{parameter}` give the same name `{}`", excerpt(&text));
                    let help = "use a format that keeps them apart, such as more decimals";
                    self.report(&place, "", Diagnostic::error(message).help(help));
                    return Vec::new();
                }
                groups[*group].rows.push(number);
                continue;
            }
            index.insert(text.clone(), groups.len());
            groups.push(Group { name: text, rows: vec![number] });
        }
        groups
    }

    /// Reports a text that would differ within one instance.
    fn varies(
        &mut self,
        rows: &[Vec<&Value>],
        mut uses: impl Iterator<Item = usize>,
        names: &[&str],
        at: &Path,
        what: &str,
        name: &str,
    ) -> bool {
        if rows.len() == 1 {
            return false;
        }
        let Some(parameter) = uses.find(|i| rows.iter().any(|row| row[*i] != rows[0][*i])) else { return false };
        let parameter = names[parameter];
        let message = format!(
            "{what} `{}` stands for all values of `{parameter}`, so this cannot depend on `{{{parameter}}}`",
            excerpt(name)
        );
        let help = format!(
            "put `{{{parameter}}}` into the name for one {what} per value; only lists of references take all values"
        );
        self.report(at, &format!("{{{parameter}"), Diagnostic::error(message).help(help));
        true
    }

    fn warn_unused(&mut self, names: &[&str], at: &Path, uses: impl Iterator<Item = usize>) {
        if names.is_empty() {
            return;
        }
        let mut used = vec![false; names.len()];
        uses.for_each(|index| used[index] = true);
        for (name, _) in names.iter().zip(used).filter(|(_, used)| !used) {
            let own = at.join("parameters");
            let place = if own.join(*name).resolve(self.spec.tree()).span == at.resolve(self.spec.tree()).span {
                at.join("use_parameters")
            } else {
                own.join(*name)
            };
            self.report(&place, "", Diagnostic::warning(format!("parameter `{name}` is not used here")));
        }
    }

    fn duplicate(&mut self, what: &str, name: &str, at: &Path, first: &Path) {
        let diagnostic = if at == first {
            Diagnostic::error(format!("{what} `{}` is expanded twice", excerpt(name)))
        } else {
            let place = self.spec.place(&first.join("name"), "");
            Diagnostic::error(format!("{what} `{}` is defined twice", excerpt(name))).remark_at("first here", place)
        };
        self.report(&at.join("name"), "", diagnostic);
    }

    fn job_template(&mut self, job: &JobSpec, names: &[&str], at: &Path) -> Option<JobTemplate> {
        let before = self.found.len();
        let name = self.template(&job.name, names, Quoting::Plain, &at.join("name"));
        let mut command = |text: &Option<String>, key: &str| {
            let text = text.as_ref()?;
            match Command::parse(text, names) {
                Ok(command) => Some(command),
                Err(error) => {
                    self.template_error(&error, names, &at.join(key));
                    None
                }
            }
        };
        let sketch = crate::steps::sketch(job);
        let invocation_script = command(&job.invocation_script, "invocation_script");
        let command = if sketch.is_some() { None } else { command(&job.command, "command") };
        if sketch.is_some() && job.invocation_script.is_some() {
            let message = "`invocation_script` has no effect on steps";
            let diagnostic = Diagnostic::warning(message).help("write it into the steps that need it");
            self.report(&at.join("invocation_script"), "", diagnostic);
        }
        let singles = [
            ("resource_requirements", &job.resource_requirements),
            ("failure_handler", &job.failure_handler),
            ("scheduler", &job.scheduler),
            ("label", &job.label),
            ("reduce", &job.reduce),
        ];
        let singles = singles
            .into_iter()
            .map(|(key, text)| {
                (key, text.as_ref().and_then(|text| self.template(text, names, Quoting::Plain, &at.join(key))))
            })
            .collect();
        let mut env = Vec::new();
        for (key, value) in &job.env {
            let template = self.template(value, names, Quoting::Plain, &at.join("env").join(key.as_str()));
            env.extend(template.map(|template| (key.clone(), template)));
        }
        let mut uses = Vec::new();
        for (index, text) in job.uses.iter().enumerate() {
            uses.extend(self.template(text, names, Quoting::Plain, &at.join("uses").join(index)));
        }
        let mut lists = Vec::with_capacity(LISTS.len());
        for list in &LISTS {
            let quoting = if list.regex { Quoting::Regex } else { Quoting::Plain };
            let templates = (list.get)(job)
                .iter()
                .enumerate()
                .filter_map(|(index, text)| self.template(text, names, quoting, &at.join(list.key).join(index)))
                .collect();
            lists.push(templates);
        }
        let steps = self.json_template(sketch.as_ref(), names, &at.join("steps"), false);
        let map = self.json_template(job.map.as_ref(), names, &at.join("map"), false);
        let fine =
            self.found.len() == before || !self.found.0[before..].iter().any(|d| d.severity == crate::Severity::Error);
        let (Some(name), Some(steps), Some(map)) = (name, steps, map) else { return None };
        fine.then_some(JobTemplate { name, command, invocation_script, singles, env, uses, lists, steps, map })
    }

    #[expect(clippy::too_many_arguments, reason = "all of one instance, used once")]
    fn instance(
        &mut self,
        job: &JobSpec,
        template: &JobTemplate,
        origin: usize,
        name: &str,
        rows: &[Vec<&Value>],
        names: &[&str],
        catalog: &Catalog,
    ) -> Option<Instance> {
        let at = at!["jobs", origin];
        let row = &rows[0];
        if rows.len() > 1 {
            let checks: [(&str, Vec<usize>); 4] = [
                ("command", template.command.iter().flat_map(Command::uses).collect()),
                ("invocation_script", template.invocation_script.iter().flat_map(Command::uses).collect()),
                ("steps", template.steps.iter().flat_map(JsonTemplate::uses).collect()),
                ("map", template.map.iter().flat_map(JsonTemplate::uses).collect()),
            ];
            for (key, uses) in checks {
                if self.varies(rows, uses.into_iter(), names, &at.join(key), "job", name) {
                    return None;
                }
            }
            for (key, single) in &template.singles {
                if self.varies(rows, single.iter().flat_map(Template::uses), names, &at.join(*key), "job", name) {
                    return None;
                }
            }
            for (key, value) in &template.env {
                if self.varies(rows, value.uses(), names, &at.join("env").join(key.as_str()), "job", name) {
                    return None;
                }
            }
        }
        let mut references = Vec::new();
        let mut shell = |planner: &mut Self, command: &Option<Command>, key: &str| -> Option<Option<String>> {
            let Some(command) = command else { return Some(None) };
            let place = at.join(key);
            match command.fill(rows, catalog) {
                Ok(filled) => {
                    filled.doubts.into_iter().for_each(|doubt| planner.doubt(doubt, &place));
                    references.extend(filled.references);
                    Some(Some(filled.text))
                }
                Err(doubt) => {
                    planner.doubt(doubt, &place);
                    None
                }
            }
        };
        let command = shell(self, &template.command, "command")?;
        let invocation_script = shell(self, &template.invocation_script, "invocation_script")?;
        let mut singles = Vec::with_capacity(template.singles.len());
        for (key, single) in &template.singles {
            singles.push(match single {
                Some(single) => Some(self.fill(single, row, &at.join(*key))?),
                None => None,
            });
        }
        let mut single = singles.into_iter();
        let mut env = BTreeMap::new();
        for (key, value) in &template.env {
            env.insert(key.clone(), self.fill(value, row, &at.join("env").join(key.as_str()))?);
        }
        let mut uses: Vec<String> = Vec::new();
        for template in &template.uses {
            uses.push(self.fill(template, row, &at.join("uses"))?);
        }
        let mut lists = Vec::with_capacity(LISTS.len());
        for (list, templates) in LISTS.iter().zip(&template.lists) {
            let mut elements: Vec<(u32, String)> = Vec::with_capacity(templates.len());
            for (index, template) in templates.iter().enumerate() {
                for row in rows {
                    elements.push((index as u32, self.fill(template, row, &at.join(list.key).join(index))?));
                    if template.is_constant() {
                        break;
                    }
                }
            }
            lists.push(elements);
        }
        let json = |planner: &mut Self, template: &Option<JsonTemplate>, key: &str| match template
            .as_ref()
            .map(|t| t.fill(row))
        {
            None => Some(None),
            Some(Ok(value)) => Some(Some(value)),
            Some(Err(message)) => {
                planner.report(&at.join(key), "", Diagnostic::error(message));
                None
            }
        };
        let steps = json(self, &template.steps, "steps")?;
        let map = json(self, &template.map, "map")?;
        let steps = match steps {
            Some(sketch) => Some(self.build_tree(sketch, job, &at, catalog, &mut references)?),
            None => None,
        };
        let constant = |i: &usize| rows.len() == 1 || rows.iter().all(|row| row[*i] == rows[0][*i]);
        let parameters = (0..names.len()).filter(constant).map(|i| (names[i].to_owned(), row[i].clone())).collect();
        Some(Instance {
            origin,
            name: name.to_owned(),
            command: command.unwrap_or_default(),
            invocation_script,
            steps,
            map,
            resource_requirements: single.next().flatten(),
            failure_handler: single.next().flatten(),
            scheduler: single.next().flatten(),
            label: single.next().flatten(),
            reduce: single.next().flatten(),
            env,
            uses,
            lists,
            references,
            parameters,
        })
    }

    /// The tree of one instance, checked.
    fn build_tree(
        &mut self,
        sketch: Value,
        job: &JobSpec,
        at: &Path,
        catalog: &Catalog,
        references: &mut Vec<(ReferenceKind, u32)>,
    ) -> Option<Value> {
        let agent = self.spec.document.agent.as_ref();
        match crate::steps::tree(sketch, agent, catalog) {
            Ok(built) => {
                for remark in crate::steps::check(&built.tree, at, job.map.is_some(), job.reduce.is_some()) {
                    self.report(&remark.at, &remark.part, remark.diagnostic);
                }
                references.extend(built.references);
                Some(built.tree.to_value())
            }
            Err(error) => {
                let diagnostic = Diagnostic::error(error.message).maybe_help(error.help);
                self.report(&at.join("steps"), &error.written, diagnostic);
                None
            }
        }
    }

    fn doubt(&mut self, doubt: Doubt, at: &Path) {
        let diagnostic =
            if doubt.fatal { Diagnostic::error(doubt.message) } else { Diagnostic::warning(doubt.message) };
        self.report(at, &doubt.written, diagnostic.maybe_help(doubt.help));
    }

    /// The outer `None` means that it was wrong.
    fn json_template(
        &mut self,
        value: Option<&Value>,
        names: &[&str],
        at: &Path,
        lenient: bool,
    ) -> Option<Option<JsonTemplate>> {
        let Some(value) = value else { return Some(None) };
        match JsonTemplate::parse(value, names, lenient) {
            Ok(template) => Some(Some(template)),
            Err(error) => {
                self.template_error(&error, names, at);
                None
            }
        }
    }
}

fn first_rows<'a>(rows: &'a Rows, group: &Group) -> Vec<Vec<&'a Value>> {
    group
        .rows
        .iter()
        .map(|number| {
            let mut row = Vec::new();
            rows.row(*number, &mut row);
            row
        })
        .collect()
}

impl JobTemplate {
    /// Every parameter that occurs anywhere.
    fn mentions(&self) -> impl Iterator<Item = usize> + '_ {
        let commands = self.command.iter().chain(&self.invocation_script).flat_map(Command::mentions);
        let singles = self.singles.iter().flat_map(|(_, single)| single.iter().flat_map(Template::uses));
        let env = self.env.iter().flat_map(|(_, value)| value.uses());
        let lists = self.lists.iter().flatten().chain(&self.uses).flat_map(Template::uses);
        let json = self.steps.iter().chain(&self.map).flat_map(JsonTemplate::uses);
        self.name.uses().chain(commands).chain(singles).chain(env).chain(lists).chain(json)
    }
}

/// JSON whose texts are templates.
enum JsonTemplate {
    Constant(Value),
    Text(Template),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl JsonTemplate {
    /// In lenient data, braces around unknown words are the user's own.
    fn parse(value: &Value, names: &[&str], lenient: bool) -> Result<Self, TemplateError> {
        Ok(match value {
            Value::String(text) => match Template::parse(text, names, Quoting::Plain) {
                Ok(template) => Self::Text(template),
                Err(error) if lenient && error.unknown.is_some() => Self::Constant(value.clone()),
                Err(error) => return Err(error),
            },
            Value::Array(items) => {
                Self::List(items.iter().map(|item| Self::parse(item, names, lenient)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => Self::Map(
                map.iter()
                    .map(|(key, value)| Ok((key.clone(), Self::parse(value, names, lenient)?)))
                    .collect::<Result<_, _>>()?,
            ),
            other => Self::Constant(other.clone()),
        })
    }

    fn uses(&self) -> Vec<usize> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Text(template) => template.uses().collect(),
            Self::List(items) => items.iter().flat_map(Self::uses).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, value)| value.uses()).collect(),
        }
    }

    fn fill(&self, row: &[&Value]) -> Result<Value, String> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Text(template) => Value::String(template.fill(row)?),
            Self::List(items) => Value::Array(items.iter().map(|item| item.fill(row)).collect::<Result<_, _>>()?),
            Self::Map(entries) => {
                Value::Object(entries.iter().map(|(key, value)| Ok((key.clone(), value.fill(row)?))).collect::<Result<
                    _,
                    String,
                >>(
                )?)
            }
        })
    }
}
