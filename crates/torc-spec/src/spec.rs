//! A spec that has been read: canonical, complete in itself, not yet expanded.

use crate::diagnostic::{Diagnostic, Diagnostics, Place, Severity, SourceMap};
use crate::document::Document;
use crate::front::{self, Builder, json, yaml};
use crate::keys;
use crate::node::{At, Entry, Kind, Node, NodePath};
use crate::plan::Present;
use crate::read::Reader;
use crate::source::{Source, SpecFormat};
use crate::{inline, packed, template};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::HashSet;
use torc_model::plan::Plan;
use torc_model::recovery::RuleSpec;

/// A spec that has been read: canonical, complete in itself, not yet expanded. Two specs are equal
/// if their canonical forms are, whatever format and spelling they were written in.
#[derive(Clone)]
pub struct Spec {
    tree: Node,
    map: SourceMap,
    pub(crate) document: Document,
}

/// What [`parse`] gives.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The spec.
    pub spec: Spec,
    /// What is doubtful about it.
    pub warnings: Diagnostics,
}

/// A spec as it was sent, not yet looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Raw(Node);

impl Default for Raw {
    fn default() -> Self {
        Self(Node::new(Kind::Null, crate::node::Span::NONE))
    }
}

impl From<Value> for Raw {
    fn from(value: Value) -> Self {
        Self(Node::from_file(value))
    }
}

/// The canonical form.
impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.tree.serialize(serializer)
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.to_value() == other.to_value()
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spec({})", self.to_value())
    }
}

/// Reads a spec. Errors come with their place, as many as can be found in one pass.
pub fn parse(source: &Source) -> Result<Parsed, Diagnostics> {
    source.clone().parse()
}

/// What a piece of a spec may have: what does not concern jobs that are there already.
const PIECE: [&str; 8] = [
    "jobs",
    "files",
    "user_data",
    "resource_requirements",
    "failure_handlers",
    "parameters",
    "parameter_mode",
    "variables",
];

type Read = fn(Node, SourceMap, bool, Option<&std::path::Path>) -> Result<Parsed, Diagnostics>;

impl Source {
    /// The same without a copy of the text.
    pub fn parse(self) -> Result<Parsed, Diagnostics> {
        self.parse_as(Spec::read)
    }

    /// Reads a piece of a spec: jobs, and what belongs to them, for a workflow that exists.
    pub fn parse_piece(self) -> Result<Parsed, Diagnostics> {
        self.parse_as(Spec::read_piece)
    }

    fn parse_as(self, read: Read) -> Result<Parsed, Diagnostics> {
        let (format, base_dir) = (self.format, self.base_dir.clone());
        let map = text_of(self)?;
        let mut builder = Builder::new(&map);
        let tree = match format {
            SpecFormat::Yaml => yaml::parse(&map, &mut builder),
            SpecFormat::Json => json::parse(&map, json::Dialect::Json, &mut builder),
            SpecFormat::Json5 => json::parse(&map, json::Dialect::Json5, &mut builder),
            SpecFormat::Kdl => front::kdl_tree::parse(&map, &mut builder),
        };
        let mut errors = builder.errors;
        let Ok(tree) = tree else { return Err(errors) };
        let read = read(tree, map, format == SpecFormat::Kdl, base_dir.as_deref());
        if !errors.has_errors() {
            return read;
        }
        // What else is wrong with the rest, but nothing twice about one place.
        let more = read.err().unwrap_or_default().into_iter();
        let is_new = |errors: &Diagnostics, d: &Diagnostic| {
            errors.iter().all(|known| known.place_key() != d.place_key())
        };
        let more: Vec<Diagnostic> =
            more.filter(|d| d.severity == Severity::Error && is_new(&errors, d)).collect();
        more.into_iter().for_each(|diagnostic| errors.push(diagnostic));
        errors.sort();
        Err(errors)
    }
}

/// A file of rules, as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RulesFile {
    source: String,
    rules: Vec<RuleSpec>,
}

impl Source {
    /// Reads a file of recovery rules, or those of a spec.
    pub fn parse_rules(self) -> Result<Vec<RuleSpec>, Diagnostics> {
        let format = self.format;
        let map = text_of(self.clone())?;
        let mut builder = Builder::new(&map);
        let tree = match format {
            SpecFormat::Yaml => yaml::parse(&map, &mut builder),
            SpecFormat::Json => json::parse(&map, json::Dialect::Json, &mut builder),
            SpecFormat::Json5 => json::parse(&map, json::Dialect::Json5, &mut builder),
            SpecFormat::Kdl => front::kdl_tree::parse(&map, &mut builder),
        };
        let Ok(tree) = tree else { return Err(builder.errors) };
        if tree.get("jobs").is_some() {
            return Ok(self.parse()?.spec.document.recovery_rules);
        }
        let mut reader = Reader::new(&map, format == SpecFormat::Kdl);
        let tree = reader.object(tree, &keys::RULES_FILE);
        let (Some(tree), false) = (tree, reader.found.has_errors()) else {
            return Err(reader.found);
        };
        let file = RulesFile::deserialize(&tree)
            .map_err(|error| Diagnostics::from(Diagnostic::error(error.to_string())))?;
        let sourced = |rule: RuleSpec| match rule.source.is_empty() {
            true => RuleSpec { source: file.source.clone(), ..rule },
            false => rule,
        };
        Ok(file.rules.into_iter().map(sourced).collect())
    }
}

/// The text, if it is one.
fn text_of(source: Source) -> Result<SourceMap, Diagnostics> {
    if source.bytes.len() > Source::MAX_BYTES {
        let message = format!("`{}` is larger than {} MiB", source.name, Source::MAX_BYTES >> 20);
        let help = "write jobs that differ only in a value as one job with `parameters`";
        return Err(Diagnostic::error(message).help(help).into());
    }
    let length = source.bytes.len();
    let text = String::from_utf8(source.bytes).unwrap_or_else(|error| {
        let valid = error.utf8_error().valid_up_to();
        let mut bytes = error.into_bytes();
        bytes.truncate(valid);
        String::from_utf8(bytes).unwrap_or_default()
    });
    let map = SourceMap::new(&source.name, text);
    let text = map.text();
    let fail = |at: usize, message: &str, help: &str| {
        let place = map.place(crate::node::Span::new(at, at), String::new());
        Err(Diagnostic::error(message).at(place).help(help).into())
    };
    if text.len() < length {
        return fail(
            text.len(),
            "the file is not UTF-8 text from here on",
            "save it in the UTF-8 encoding",
        );
    }
    if let Some(at) = text.find('\0') {
        return fail(at, "the file contains a NUL byte", "a workflow file is plain text");
    }
    Ok(map)
}

/// Gives names to Slurm schedulers and user data that have none: they cannot be spoken of by name,
/// and files of Torc may leave it out.
fn unnamed(mut tree: Node) -> Node {
    let Kind::Map(entries) = &mut tree.kind else { return tree };
    for (key, word) in [("slurm_schedulers", "scheduler"), ("user_data", "user_data")] {
        let list = entries.iter_mut().find(|entry| entry.key == key);
        let Some(Kind::List(items)) = list.map(|entry| &mut entry.value.kind) else { continue };
        let is_taken: HashSet<String> =
            items.iter().filter_map(|item| Some(item.get("name")?.as_text()?.to_owned())).collect();
        let mut free = (1..).map(|n| format!("{word}_{n}")).filter(|name| !is_taken.contains(name));
        for item in items.iter_mut().filter(|item| item.get("name").is_none()) {
            let span = item.span;
            let (Kind::Map(fields), Some(name)) = (&mut item.kind, free.next()) else { continue };
            let value = Node::text(name, span);
            fields.insert(0, Entry { key: "name".into(), key_span: span, value });
        }
    }
    tree
}

impl Spec {
    fn read(
        tree: Node,
        map: SourceMap,
        kdl: bool,
        base_dir: Option<&std::path::Path>,
    ) -> Result<Parsed, Diagnostics> {
        let tree = unnamed(crate::steps::desugar(tree));
        let entries: usize = names(&tree, |_| true);
        let variables = match tree.get("variables").map(|node| &node.kind) {
            Some(Kind::Map(entries)) => entries.iter().map(|entry| entry.key.to_string()).collect(),
            _ => HashSet::new(),
        };
        let deferred = !variables.is_empty();
        let mut reader = Reader::new(&map, kdl).defer(variables);
        let tree = reader.object(tree, &keys::WORKFLOW);
        let mut found = reader.found;
        let Some(mut tree) = tree else { return Err(found) };
        let is_damaged = found.has_errors();

        inline::parameters_files(&mut tree, &map, base_dir, &mut found);
        if found.has_errors() {
            let has_name = |entry: &Node| entry.get("name").and_then(Node::as_text).is_some();
            if is_damaged && !deferred && names(&tree, has_name) == entries {
                look_further(tree, map, &mut found);
            }
            found.sort();
            return Err(found);
        }
        let resolved = if deferred { Some(with_constants(&tree, &map, &mut found)?) } else { None };
        let document = Document::read(resolved.as_ref().unwrap_or(&tree)).map_err(|error| {
            Diagnostics::from(Diagnostic::error(format!(
                "the spec passed all checks but cannot be used: {error}"
            )))
        })?;
        Ok(Parsed { spec: Self { tree, map, document }, warnings: found })
    }

    /// Reads a piece of a spec from JSON, as another Torc sent it.
    pub fn piece_from_value(value: Value) -> Result<Parsed, Diagnostics> {
        let map = SourceMap::new("<request>", String::new());
        let mut builder = Builder::new(&map);
        let tree = Node::from_file(value);
        if check_tree(&tree, 0, &mut builder).is_err() || builder.errors.has_errors() {
            return Err(builder.errors);
        }
        Self::read_piece(tree, map, false, None)
    }

    fn read_piece(
        tree: Node,
        map: SourceMap,
        kdl: bool,
        base_dir: Option<&std::path::Path>,
    ) -> Result<Parsed, Diagnostics> {
        let mut tree = crate::steps::desugar(tree);
        let mut wrong = Diagnostics::default();
        if let Kind::Map(entries) = &mut tree.kind {
            for entry in entries.iter() {
                let is_known = keys::WORKFLOW
                    .field(&entry.key, kdl)
                    .is_some_and(|field| field.key != "name" && !PIECE.contains(&field.key));
                if is_known {
                    let place = map.place(entry.key_span, entry.key.to_string());
                    let message = format!("`{}` belongs to the whole workflow", entry.key);
                    let help =
                        format!("a piece has {}", PIECE.map(|key| format!("`{key}`")).join(", "));
                    wrong.push(Diagnostic::error(message).at(place).help(help));
                }
            }
            if !entries.iter().any(|entry| entry.key == "name") {
                let name = Node::text("piece", tree.span);
                entries.push(Entry { key: "name".into(), key_span: tree.span, value: name });
            }
        }
        if wrong.has_errors() {
            return Err(wrong);
        }
        Self::read(tree, map, kdl, base_dir)
    }

    /// Plans a piece for the workflow that it is added to. Also gives the names of the jobs of the
    /// plan that are there already: they stand for themselves, so that new ones can depend on them.
    pub fn plan_piece(&self, present: &dyn Present) -> Result<(Plan, Vec<String>), Diagnostics> {
        let planned = crate::plan::plan_for(self, self.to_json(), Some(present))?;
        Ok((planned.plan, planned.present))
    }

    /// Expands, resolves and checks; gives the plan and what is doubtful about it.
    pub fn plan(&self) -> Result<(Plan, Diagnostics), Diagnostics> {
        let planned = crate::plan::plan(self, self.to_json())?;
        Ok((planned.plan, planned.warnings))
    }

    /// The same for a spec that another Torc sent, whose tree tells no places: it goes before the
    /// plan takes its room.
    pub fn into_plan(mut self) -> Result<(Plan, Diagnostics), Diagnostics> {
        let text = self.to_json();
        self.tree = Node::new(Kind::Null, crate::node::Span::NONE);
        let planned = crate::plan::plan(&self, text)?;
        Ok((planned.plan, planned.warnings))
    }

    /// Whether the spec stands for more jobs than this; if there is a doubt, yes.
    pub fn has_more_jobs_than(&self, most: usize) -> bool {
        self.document.job_count() > most || crate::plan::max_jobs(&self.document) > most
    }

    /// The workflow's name.
    pub fn name(&self) -> &str {
        &self.document.name
    }

    /// How many jobs may use something at once, by name.
    pub fn limits(&self) -> &std::collections::BTreeMap<String, i64> {
        &self.document.limits
    }

    /// Who the workflow belongs to, if it says so.
    pub fn user(&self) -> Option<&str> {
        self.document.user.as_deref()
    }

    /// The canonical form as JSON: unexpanded, with the rows of parameter files written out.
    pub fn to_value(&self) -> Value {
        self.tree.to_value()
    }

    /// The same as text on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.tree).unwrap_or_default()
    }

    /// Reads a spec from JSON, as another Torc sent it. Places in messages are paths such as
    /// `jobs[0].name`.
    pub fn from_value(value: Value) -> Result<Parsed, Diagnostics> {
        Self::from_raw(value.into())
    }

    /// The same for JSON that was read without a detour.
    pub fn from_raw(raw: Raw) -> Result<Parsed, Diagnostics> {
        let map = SourceMap::new("<request>", String::new());
        let mut builder = Builder::new(&map);
        if check_tree(&raw.0, 0, &mut builder).is_err() || builder.errors.has_errors() {
            return Err(builder.errors);
        }
        Self::read(raw.0, map, false, None)
    }

    pub(crate) fn tree(&self) -> &Node {
        &self.tree
    }

    /// The place of a node, or of a part of its text.
    pub(crate) fn place(&self, at: &At<'_>, part: &str) -> crate::diagnostic::Place {
        self.place_of(&at.path(), part)
    }

    /// The place of a key itself; `place_of` gives that of its value.
    pub(crate) fn place_at(
        &self,
        span: crate::node::Span,
        path: String,
    ) -> crate::diagnostic::Place {
        self.map.place(span, path)
    }

    pub(crate) fn place_of(&self, path: &NodePath, part: &str) -> crate::diagnostic::Place {
        let span = path.resolve(&self.tree).span;
        self.map.place(self.map.narrow(span, part), path.to_string())
    }
}

/// The lists whose entries others refer to by name.
const NAMED: [&str; 6] =
    ["jobs", "files", "user_data", "resource_requirements", "failure_handlers", "slurm_schedulers"];

/// How many entries of these lists are such.
fn names(tree: &Node, is_such: impl Fn(&Node) -> bool) -> usize {
    let count = |list: &Node| match &list.kind {
        Kind::List(items) => items.iter().filter(|item| is_such(item)).count(),
        Kind::Long(items) => items.iter().filter(|item| is_such(item)).count(),
        _ => 0,
    };
    NAMED.iter().filter_map(|key| tree.get(key)).map(count).sum()
}

/// Plans a tree of which a part was wrong and is not in it any more, for mistakes in the rest. Says
/// nothing that may follow from what is known already: entries with a mistake are not judged again,
/// and nothing is if a mistake is about more than one entry.
fn look_further(tree: Node, map: SourceMap, found: &mut Diagnostics) {
    /// No user waits longer than that for more of the same.
    const MAX_JOBS: usize = 100_000;
    let wrong: HashSet<String> = found
        .iter()
        .filter(|d| d.severity == Severity::Error)
        .map(|d| d.place.as_ref().map(entry_of).unwrap_or_default().to_owned())
        .collect();
    if wrong.iter().any(|entry| !NAMED.iter().any(|key| entry.starts_with(&format!("{key}[")))) {
        return;
    }
    let Ok(document) = Document::read(&tree) else { return };
    let spec = Spec { tree, map, document };
    if spec.has_more_jobs_than(MAX_JOBS) {
        return;
    }
    let more = spec.plan().err().unwrap_or_default();
    let is_independent =
        |d: &Diagnostic| d.place.as_ref().is_some_and(|place| !wrong.contains(entry_of(place)));
    for diagnostic in
        more.into_iter().filter(|d| d.severity == Severity::Error && is_independent(d))
    {
        found.push(diagnostic);
    }
}

/// `jobs[3]` of `jobs[3].depends_on[0]`.
fn entry_of(place: &Place) -> &str {
    place.path.find(']').map_or(&place.path, |end| &place.path[..=end])
}

/// The limits that the front ends put on text hold for what was sent too.
fn check_tree(node: &Node, depth: usize, builder: &mut Builder<'_>) -> Result<(), front::Stop> {
    builder.count(1, node.span)?;
    builder.check_depth(depth, node.span)?;
    match &node.kind {
        Kind::List(items) => items.iter().try_for_each(|item| check_tree(item, depth + 1, builder)),
        Kind::Long(items) => {
            items.iter().try_for_each(|item| check_tree(&item, depth + 1, builder))
        }
        Kind::Map(entries) => entries.iter().try_for_each(|entry| {
            builder.check_text(&entry.key, node.span);
            check_tree(&entry.value, depth + 1, builder)
        }),
        Kind::Text(text) => {
            builder.check_text(text, node.span);
            Ok(())
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(..) => Ok(()),
    }
}

/// The tree with every `{variable}` replaced, read once more now that its texts mean something.
fn with_constants(
    tree: &Node,
    map: &SourceMap,
    found: &mut Diagnostics,
) -> Result<Node, Diagnostics> {
    let Some(Kind::Map(variables)) = tree.get("variables").map(|node| &node.kind) else {
        return Ok(tree.clone());
    };
    let constants: Vec<(&str, &str)> = variables
        .iter()
        .map(|entry| (&*entry.key, entry.value.as_text().unwrap_or_default()))
        .collect();
    let mut resolved = tree.clone();
    if let Kind::Map(entries) = &mut resolved.kind {
        entries.retain(|entry| entry.key != "variables");
    }
    put_in(&mut resolved, &constants, map, found);
    let mut reader = Reader::new(map, false);
    let resolved = reader.object(resolved, &keys::WORKFLOW);
    // Warnings of the first reading would come twice.
    for diagnostic in reader.found.into_iter().filter(|d| d.severity == Severity::Error) {
        found.push(diagnostic);
    }
    match resolved {
        Some(resolved) if !found.has_errors() => Ok(resolved),
        _ => Err(std::mem::take(found)),
    }
}

fn put_in(node: &mut Node, constants: &[(&str, &str)], map: &SourceMap, found: &mut Diagnostics) {
    match &mut node.kind {
        Kind::Text(text) => match template::substitute(text, constants) {
            Ok(new) => *text = new,
            Err(error) => {
                let place = map.place(map.narrow(node.span, &error.token), String::new());
                found.push(
                    Diagnostic::error(format!(
                        "cannot fill in `{}`: {}",
                        error.token, error.message
                    ))
                    .at(place),
                );
            }
        },
        Kind::List(items) => items.iter_mut().for_each(|item| put_in(item, constants, map, found)),
        Kind::Long(items) => packed::change(items, |_, item| put_in(item, constants, map, found)),
        Kind::Map(entries) => {
            entries.iter_mut().for_each(|entry| put_in(&mut entry.value, constants, map, found))
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(..) => {}
    }
}
