//! From the canonical form of a job's steps to the tree that is stored.

use crate::document::JobSpec;
use crate::plan::catalog::Catalog;
use crate::plan::command::{ReferenceKind, next_reference};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use torc_model::steps::{ItemSource, MapSettings, StepAgent, Tree};

/// The steps of a job as written, parameters not yet filled in.
pub(crate) type Sketch = Value;

/// What a job has to do with a map.
pub(crate) use torc_model::steps::MapRole;

/// The parts of a job that make its tree; none when a plain command does.
pub(crate) fn sketch(job: &JobSpec) -> Option<Sketch> {
    let extras = [
        ("on_failure", &job.on_failure),
        ("on_success", &job.on_success),
        ("resume", &job.resume),
        ("dir", &job.dir),
    ];
    let needs_tree = job.steps.is_some()
        || job.map.is_some()
        || job.reduce.is_some()
        || extras.iter().any(|(_, value)| value.is_some());
    if !needs_tree {
        return None;
    }
    let mut parts = Map::new();
    let steps = match (&job.steps, &job.command) {
        (Some(steps), _) => steps.clone(),
        (None, command) => json!([{"shell": command.clone().unwrap_or_default()}]),
    };
    parts.insert("steps".into(), steps);
    for (key, value) in extras {
        if let Some(value) = value {
            parts.insert(key.into(), value.clone());
        }
    }
    Some(Value::Object(parts))
}

/// What is wrong with a reference to a file or to user data.
#[derive(Debug)]
pub(crate) struct BadReference {
    /// As written.
    pub written: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

/// A tree and the files and user data that it names.
#[derive(Debug)]
pub(crate) struct Built {
    /// The tree.
    pub tree: Tree,
    /// What it reads and writes.
    pub references: Vec<(ReferenceKind, u32)>,
}

/// Makes the tree of one job out of its filled-in parts.
pub(crate) fn tree(
    sketch: Value,
    agent: Option<&Value>,
    catalog: &Catalog,
) -> Result<Built, BadReference> {
    let mut named =
        NamedData { catalog, values: Map::new(), safe: HashMap::new(), references: Vec::new() };
    let mut value = sketch;
    named.rename(&mut value)?;
    let Value::Object(mut parts) = value else { return Err(broken("its steps are not a map")) };
    for (key, value) in &mut parts {
        match key.as_str() {
            "steps" | "on_success" => stored_list(value),
            "on_failure" => stored_handler(value),
            _ => {}
        }
    }
    let mut tree = Tree::from_value(Value::Object(parts)).map_err(|error| broken(&error))?;
    tree.values = named.values;
    let calls_agent = tree.parts().any(|(_, steps)| steps.iter().any(|step| step.calls_agent()));
    if calls_agent {
        let agent = agent.cloned().unwrap_or_else(|| json!({}));
        tree.agent = Some(
            serde_json::from_value::<StepAgent>(agent)
                .map_err(|error| broken(&error.to_string()))?,
        );
    }
    Ok(Built { tree, references: named.references })
}

fn broken(why: &str) -> BadReference {
    BadReference {
        written: String::new(),
        message: format!("the steps passed all checks but cannot be used: {why}"),
        help: None,
    }
}

/// `validate` beside an action is called `check` in the stored form; a step's own
/// `handler_failure_fatal` is its handler's.
fn stored_step(step: &mut Value) {
    let Value::Object(map) = step else { return };
    let fatal = map.shift_remove("handler_failure_fatal");
    let acts = ["shell", "claude", "steps"].iter().any(|key| map.contains_key(*key));
    if acts && let Some(checks) = map.shift_remove("validate") {
        map.insert("check".into(), checks);
    }
    for (key, value) in map.iter_mut() {
        match key.as_str() {
            "steps" | "validate" | "check" | "on_success" => stored_list(value),
            "on_failure" => stored_handler(value),
            _ => {}
        }
    }
    if let (Some(fatal), Some(Value::Object(handler))) = (fatal, map.get_mut("on_failure")) {
        handler.insert("handler_failure_fatal".into(), fatal);
    }
}

fn stored_list(steps: &mut Value) {
    if let Value::Array(steps) = steps {
        steps.iter_mut().for_each(stored_step);
    }
}

fn stored_handler(handler: &mut Value) {
    if let Some(commands) = handler.get_mut("commands") {
        stored_list(commands);
    }
}

/// Files and user data get names that can be part of an environment variable.
struct NamedData<'a> {
    catalog: &'a Catalog,
    values: Map<String, Value>,
    safe: HashMap<(&'static str, &'static str, String), String>,
    references: Vec<(ReferenceKind, u32)>,
}

impl NamedData<'_> {
    fn rename(&mut self, value: &mut Value) -> Result<(), BadReference> {
        match value {
            Value::String(text) => {
                if let Some(renamed) = self.rename_text(text)? {
                    *text = renamed;
                }
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.rename(item)),
            Value::Object(map) => map.values_mut().try_for_each(|value| self.rename(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn rename_text(&mut self, text: &str) -> Result<Option<String>, BadReference> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((at, prefix, kind, length)) = next_reference(rest) {
            let written = &rest[at..at + length];
            let name = &written[prefix..length - 1];
            out.push_str(&rest[..at]);
            out.push_str(&self.name(kind, name, written)?);
            rest = &rest[at + length..];
        }
        if out.is_empty() && rest.len() == text.len() {
            return Ok(None);
        }
        out.push_str(rest);
        Ok(Some(out))
    }

    fn name(
        &mut self,
        kind: ReferenceKind,
        name: &str,
        written: &str,
    ) -> Result<String, BadReference> {
        let (what, direction) = match kind {
            ReferenceKind::InputFile => ("files", "input"),
            ReferenceKind::OutputFile => ("files", "output"),
            ReferenceKind::InputUserData => ("user_data", "input"),
            ReferenceKind::OutputUserData => ("user_data", "output"),
        };
        let (index, value, help) = if what == "files" {
            let index = self.catalog.file(name);
            let value =
                index.map(|index| Value::from(self.catalog.files[index as usize].path.as_str()));
            (index, value, self.catalog.nearest_file(name))
        } else {
            let index = self.catalog.user_data(name);
            let value = index.and_then(|index| self.catalog.user_data[index as usize].data.clone());
            (index, value, self.catalog.nearest_user_data(name))
        };
        let Some(index) = index else {
            let kind = if what == "files" { "file" } else { "user data" };
            let message = format!("there is no {kind} called `{name}`");
            return Err(BadReference { written: written.into(), message, help });
        };
        self.references.push((kind, index));
        let key = (what, direction, name.to_owned());
        let safe = match self.safe.get(&key) {
            Some(safe) => safe.clone(),
            None => {
                let plain: String =
                    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                let taken = |word: &str| self.safe.values().any(|known| known == word);
                let safe = if what == "files" && taken(&plain) {
                    format!("{plain}_{index}")
                } else {
                    plain
                };
                // A name may begin with a digit; the part of a path may not.
                let safe = if safe.starts_with(|c: char| c.is_ascii_digit()) {
                    format!("_{safe}")
                } else {
                    safe
                };
                self.safe.insert(key, safe.clone());
                safe
            }
        };
        let outer = self.values.entry(what).or_insert_with(|| json!({}));
        if let Value::Object(outer) = outer {
            let inner = outer.entry(direction).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                inner.insert(safe.clone(), value.unwrap_or(Value::Null));
            }
        }
        Ok(format!("${{{what}.{direction}.{safe}}}"))
    }
}

/// What a job has to do with a map, from its canonical keys.
pub(crate) fn role(map: Option<&Value>, reduce: Option<&str>) -> Result<Option<MapRole>, String> {
    if let Some(name) = reduce {
        return Ok(Some(MapRole::Reduce(name.into())));
    }
    let Some(Value::Object(map)) = map else { return Ok(None) };
    let mut map = map.clone();
    let text = |source: &Map<String, Value>, key: &str| {
        source.get(key).and_then(Value::as_str).map(str::to_owned)
    };
    let items = match map.shift_remove("items") {
        Some(Value::Array(items)) => ItemSource::List(items),
        Some(Value::Object(source)) => {
            let select = text(&source, "select");
            if let Some(path) = text(&source, "file") {
                ItemSource::File { path, select }
            } else if let Some(command) = text(&source, "command") {
                ItemSource::Command { command, select }
            } else {
                let name = text(&source, "user_data").unwrap_or_default();
                ItemSource::UserData { name, select, value: None }
            }
        }
        _ => return Err("the map has no items".into()),
    };
    let settings: MapSettings =
        serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())?;
    Ok(Some(MapRole::Map(Box::new(MapSettings { items, ..settings }))))
}
