//! Expansion: one definition with parameters becomes many instances.
//!
//! The parameters in a definition's name tell its instances apart. Values of the other parameters
//! gather in one instance: its lists take all of them (fan-in), and its command may not depend on
//! them.

use super::Planner;
use super::catalog::Catalog;
use super::index::Index;
use super::json::JsonTemplate;
use super::params::{MAX_INSTANCES, ParameterRows, RowsError};
use crate::diagnostic::{Diagnostic, excerpt, suggest};
use crate::document::{FileSpec, ParametersSpec, UserDataSpec, least_size};
use crate::node::At;
use crate::read::check_name;
use crate::template::{Quoting, Template, TemplateError};
use serde_json::Value;
use torc_model::plan::{File, UserData};
use torc_model::words::count;

/// One instance of a definition.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    first: usize,
    more: Vec<usize>,
}

impl Group {
    /// The rows of values that belong to it.
    pub fn rows<'a>(&self, rows: &'a ParameterRows) -> Vec<Vec<&'a Value>> {
        let numbers = std::iter::once(self.first).chain(self.more.iter().copied());
        numbers.map(|number| rows.row(number)).collect()
    }
}

impl Planner<'_> {
    /// Expands files and user data.
    pub fn catalog(&mut self) -> Catalog {
        let mut catalog = Catalog::default();
        self.expand_files(&mut catalog);
        self.expand_user_data(&mut catalog);
        self.add_present_items(&mut catalog);
        self.add_paths(&mut catalog);
        catalog
    }

    /// Files that jobs name by their paths. What is wrong with a list is said when the jobs are
    /// expanded.
    fn add_paths(&mut self, catalog: &mut Catalog) {
        let document = &self.spec.document;
        for job in document.jobs() {
            if job.input_files.is_empty() && job.output_files.is_empty() {
                continue;
            }
            let rows =
                ParameterRows::new(job.parameters(), &document.parameters, document.parameter_mode);
            let Ok(rows) = rows else { continue };
            let names = rows.names();
            for text in job.input_files.iter().chain(&job.output_files) {
                let Ok(template) = Template::parse(text, &names, Quoting::Plain) else { continue };
                let count = if template.is_constant() { rows.len().min(1) } else { rows.len() };
                for number in 0..count {
                    if let Ok(path) = template.fill(&rows.row(number)) {
                        catalog.add_path(&path);
                    }
                }
            }
        }
    }

    fn expand_files(&mut self, catalog: &mut Catalog) {
        let mut origins = Vec::new();
        for (index, file) in self.spec.document.files.iter().enumerate() {
            self.attempt("file", &file.name, |planner| {
                planner.expand_file(index, file, catalog, &mut origins)
            });
        }
    }

    fn expand_file(
        &mut self,
        index: usize,
        file: &FileSpec,
        catalog: &mut Catalog,
        origins: &mut Vec<usize>,
    ) {
        let list = At::top("files");
        let at = list.index(index);
        let Some(rows) = self.rows(file.parameters(), &at) else { return };
        let names = rows.names();
        let name = self.template(&file.name, &names, Quoting::Plain, &at.key("name"));
        let target = self.template(&file.path, &names, Quoting::Plain, &at.key("path"));
        let (Some(name), Some(target)) = (name, target) else { return };
        self.warn_unused(&names, &at, name.uses().chain(target.uses()));
        for group in self.groups(&rows, &name, &at, catalog.files.len()) {
            let values = group.rows(&rows);
            if self.varies(&values, target.uses(), &names, &at.key("path"), "file", &group.name) {
                break;
            }
            let Some(path) = self.fill(&target, &values[0], &at.key("path")) else { break };
            let min_size = least_size(file.non_empty, file.min_size);
            if let Err(first) = catalog.add_file(File { name: group.name.clone(), path, min_size })
            {
                self.duplicate("file", &group.name, &at, &list.index(origins[first as usize]));
                break;
            }
            origins.push(index);
        }
    }

    fn expand_user_data(&mut self, catalog: &mut Catalog) {
        let mut origins = Vec::new();
        for (index, data) in self.spec.document.user_data.iter().enumerate() {
            self.attempt("user data", &data.name, |planner| {
                planner.expand_data(index, data, catalog, &mut origins)
            });
        }
    }

    fn expand_data(
        &mut self,
        index: usize,
        data: &UserDataSpec,
        catalog: &mut Catalog,
        origins: &mut Vec<usize>,
    ) {
        let list = At::top("user_data");
        let at = list.index(index);
        let Some(rows) = self.rows(data.parameters(), &at) else { return };
        let names = rows.names();
        let name = self.template(&data.name, &names, Quoting::Plain, &at.key("name"));
        let value = self.json_template(data.data.as_ref(), &names, &at.key("data"), true);
        let (Some(name), Some(value)) = (name, value) else { return };
        let uses: Vec<usize> = value.iter().flat_map(JsonTemplate::uses).collect();
        self.warn_unused(&names, &at, name.uses().chain(uses.iter().copied()));
        for group in self.groups(&rows, &name, &at, catalog.user_data.len()) {
            let values = group.rows(&rows);
            if self.varies(
                &values,
                uses.iter().copied(),
                &names,
                &at.key("data"),
                "user data",
                &group.name,
            ) {
                break;
            }
            let filled = match value.as_ref().map(|value| value.fill(&values[0])).transpose() {
                Ok(filled) => filled,
                Err(message) => {
                    self.report(&at.key("data"), "", Diagnostic::error(message));
                    break;
                }
            };
            let entry = UserData {
                name: group.name.clone(),
                data: filled,
                is_ephemeral: data.is_ephemeral,
            };
            if let Err(first) = catalog.add_user_data(entry) {
                self.duplicate("user data", &group.name, &at, &list.index(origins[first as usize]));
                break;
            }
            origins.push(index);
        }
    }

    /// The rows of values of a definition; nothing if they are wrong.
    pub fn rows(&mut self, own: ParametersSpec<'_>, at: &At<'_>) -> Option<ParameterRows> {
        let document = &self.spec.document;
        match ParameterRows::new(own, &document.parameters, document.parameter_mode) {
            Ok(rows) => {
                if rows.len() == 0 {
                    let message = "a parameter has no values, so this expands to nothing";
                    self.report(&at.key(own.source()), "", Diagnostic::warning(message));
                }
                Some(rows)
            }
            Err(error) => {
                self.rows_error(error, own, at);
                None
            }
        }
    }

    fn rows_error(&mut self, error: RowsError, own: ParametersSpec<'_>, at: &At<'_>) {
        let source = at.key(own.source());
        match error {
            RowsError::Unknown { index, name } => {
                let known = self.spec.document.parameters.keys().map(String::as_str);
                let help = suggest(&name, known)
                    .or_else(|| Some("the workflow defines no `parameters`".into()));
                let message = format!("the workflow has no parameter `{}`", excerpt(&name));
                self.report(&source.index(index), "", Diagnostic::error(message).maybe_help(help));
            }
            RowsError::Lengths { first, other } => {
                let message = format!(
                    "parameters go side by side, but `{}` has {} and `{}` has {}",
                    first.0,
                    count(first.1, "value"),
                    other.0,
                    other.1
                );
                let help = "give them the same number of values, or use `parameter_mode: product`";
                self.report(&source.key(&other.0), "", Diagnostic::error(message).help(help));
            }
            RowsError::Value { name, error } => {
                let shared = At::top("parameters");
                let place =
                    if own.parameters.is_empty() { shared.key(&name) } else { source.key(&name) };
                self.report(&place, "", Diagnostic::error(error.message).maybe_help(error.help));
            }
            RowsError::Many => {
                let message =
                    format!("these parameters have more than {MAX_INSTANCES} combinations");
                self.report(&source, "", Diagnostic::error(message));
            }
        }
    }

    /// Cuts a text at its placeholders; nothing if one of them is wrong.
    pub fn template(
        &mut self,
        text: &str,
        names: &[&str],
        quoting: Quoting,
        at: &At<'_>,
    ) -> Option<Template> {
        match Template::parse(text, names, quoting) {
            Ok(template) => Some(template),
            Err(error) => {
                self.template_error(&error, names, at);
                None
            }
        }
    }

    /// The same for every text in a JSON value. The outer `None` means that it was wrong.
    pub fn json_template(
        &mut self,
        value: Option<&Value>,
        names: &[&str],
        at: &At<'_>,
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

    /// Reports a placeholder that is wrong.
    pub fn template_error(&mut self, error: &TemplateError, names: &[&str], at: &At<'_>) {
        let diagnostic = match &error.unknown {
            Some(name) => {
                let near = self.advice.nearest(name, names);
                let near =
                    near.map(|near| format!("did you mean `{{{near}}}`? ")).unwrap_or_default();
                let take = if self.spec.document.parameters.contains_key(name) {
                    format!("take it from the workflow with `use_parameters: [{name}]`; ")
                } else {
                    String::new()
                };
                let message = format!(
                    "`{}` is neither a parameter of this entry nor a variable",
                    error.token
                );
                let help =
                    format!("{near}{take}write `{{{}}}` for the braces themselves", error.token);
                Diagnostic::error(message).help(help)
            }
            None => Diagnostic::error(error.message.clone()),
        };
        self.report(at, &error.token, diagnostic);
    }

    /// Fills in a template; nothing if a value does not fit its format.
    pub fn fill(&mut self, template: &Template, row: &[&Value], at: &At<'_>) -> Option<String> {
        match template.fill(row) {
            Ok(text) => Some(text),
            Err(message) => {
                self.report(at, "", Diagnostic::error(message));
                None
            }
        }
    }

    /// Gathers the rows by the name they give.
    pub fn groups(
        &mut self,
        rows: &ParameterRows,
        name: &Template,
        at: &At<'_>,
        already: usize,
    ) -> Vec<Group> {
        let place = at.key("name");
        if already + rows.len() > MAX_INSTANCES {
            self.report(
                &place,
                "",
                Diagnostic::error(format!("the workflow has more than {MAX_INSTANCES} of these")),
            );
            return Vec::new();
        }
        let mut groups: Vec<Group> = Vec::with_capacity(rows.len());
        let mut index = Index::default();
        index.reserve(if rows.len() > 1 { rows.len() } else { 0 });
        for number in 0..rows.len() {
            let row = rows.row(number);
            let Some(text) = self.fill(name, &row, &place) else { return Vec::new() };
            if let Err(message) = check_name(&text) {
                self.report(&place, "", Diagnostic::error(message));
                return Vec::new();
            }
            if let Some(group) = index.get(&text, |group| &groups[group].name) {
                let group = &mut groups[group];
                let first = rows.row(group.first);
                if let Some(differing) = name.uses().find(|i| first[*i] != row[*i]) {
                    let parameter = rows.names()[differing];
                    let message = format!(
                        "two values of `{parameter}` give the same name `{}`",
                        excerpt(&text)
                    );
                    let help = "use a format that keeps them apart, such as more decimals";
                    self.report(&place, "", Diagnostic::error(message).help(help));
                    return Vec::new();
                }
                group.more.push(number);
                continue;
            }
            if rows.len() > 1 {
                index.add(&text, groups.len(), |group| &groups[group].name);
            }
            groups.push(Group { name: text, first: number, more: Vec::new() });
        }
        groups
    }

    /// Reports a text that would differ within one instance.
    pub fn varies(
        &mut self,
        rows: &[Vec<&Value>],
        mut uses: impl Iterator<Item = usize>,
        names: &[&str],
        at: &At<'_>,
        what: &str,
        name: &str,
    ) -> bool {
        if rows.len() == 1 {
            return false;
        }
        let Some(parameter) = uses.find(|i| rows.iter().any(|row| row[*i] != rows[0][*i])) else {
            return false;
        };
        let parameter = names[parameter];
        let name = excerpt(name);
        let message = format!(
            "{what} `{name}` stands for all values of `{parameter}`, so this cannot depend on `{{{parameter}}}`"
        );
        let help = format!(
            "put `{{{parameter}}}` into the name for one {what} per value; only lists of references take all values"
        );
        self.report(at, &format!("{{{parameter}"), Diagnostic::error(message).help(help));
        true
    }

    /// Warns of parameters that occur nowhere in their definition.
    pub fn warn_unused(&mut self, names: &[&str], at: &At<'_>, uses: impl Iterator<Item = usize>) {
        if names.is_empty() {
            return;
        }
        let mut used = vec![false; names.len()];
        uses.for_each(|index| used[index] = true);
        for (name, _) in names.iter().zip(used).filter(|(_, used)| !used) {
            let own = at.key("parameters");
            let is_own = at.path().resolve(self.spec.tree()).get("parameters").is_some();
            let place = if is_own { own.key(name) } else { at.key("use_parameters") };
            self.report(
                &place,
                "",
                Diagnostic::warning(format!("parameter `{name}` is not used here")),
            );
        }
    }

    /// Reports a name that two definitions give.
    pub fn duplicate(&mut self, what: &str, name: &str, at: &At<'_>, first: &At<'_>) {
        let place = self.spec.place(&first.key("name"), "");
        let message = format!("{what} `{}` is defined twice", excerpt(name));
        self.report(&at.key("name"), "", Diagnostic::error(message).remark_at("first here", place));
    }
}
