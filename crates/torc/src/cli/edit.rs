//! Changes to a workflow that are changes to its spec: the entry is found, written anew, and the whole
//! spec is applied in one transaction, like an edited file would be.

use super::Context;
use super::references::WorkflowOption;
use crate::error::{Error, Result};
use crate::output::escape;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use torc_client::{Application, Client, Query};
use torc_model::api::{ApplyOptions, JobView, Page, WorkflowView};
use torc_model::family::Families;
use torc_spec::nearest;

/// Names that a "not found" message offers.
const MAX_OFFERED: usize = 10;

/// How a change is made.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct EditArgs {
    /// Only show what would change and run again
    #[arg(long)]
    pub dry_run: bool,
}

/// A workflow whose spec is being changed.
pub struct Edit<'a> {
    context: &'a Context,
    client: &'a Client,
    workflow: WorkflowView,
    spec: Value,
}

impl<'a> Edit<'a> {
    /// Reads the spec that the workflow has now.
    pub async fn begin(
        context: &'a Context,
        client: &'a Client,
        workflow: WorkflowView,
    ) -> Result<Self> {
        let spec = client.get(&format!("/workflows/{}/spec", workflow.id)).await?;
        Ok(Self { context, client, workflow, spec })
    }

    /// The list of this key; an empty one if the spec has none.
    pub fn entries(&mut self, key: &str) -> Result<&mut Vec<Value>> {
        let spec =
            self.spec.as_object_mut().ok_or_else(|| Error::usage("the spec is no object"))?;
        let list = spec.entry(key).or_insert_with(|| Value::Array(Vec::new()));
        if list.is_null() {
            *list = Value::Array(Vec::new());
        }
        list.as_array_mut().ok_or_else(|| Error::usage(format!("`{key}` of the spec is no list")))
    }

    /// The entry with this name.
    pub fn entry(&mut self, key: &str, name: &str) -> Result<&mut Map<String, Value>> {
        let id = self.workflow.id;
        let list = self.entries(key)?;
        let found = list.iter_mut().find(|entry| entry["name"] == name);
        found.and_then(Value::as_object_mut).ok_or_else(|| {
            Error::usage_hint(
                format!("`{key}` of the spec has no entry called `{}`", escape::line(name)),
                format!(
                    "an entry with parameters makes many: `torc workflows export {id} -o FILE`, change it, `torc run FILE`"
                ),
            )
        })
    }

    /// The entries of the spec that make these jobs, each once, with the family of all that it makes where
    /// that is more than one job.
    pub fn entries_of<'j>(
        &mut self,
        jobs: &'j [JobView],
    ) -> Result<Vec<(String, Option<&'j str>)>> {
        let entries = self.entries("jobs")?;
        let names: Vec<String> = entries
            .iter()
            .map(|entry| entry["name"].as_str().unwrap_or_default().to_owned())
            .collect();
        let mut families = Families::new(names.len());
        let numbers: Vec<u32> = names.iter().map(|name| families.assign(name)).collect();
        let families = families.into_names();
        let mut found: Vec<(String, Option<&str>)> = Vec::new();
        for job in jobs {
            let by_family = || {
                let number = families.iter().position(|family| *family == job.family)?;
                let mut of = numbers.iter().zip(&names).filter(|(n, _)| **n as usize == number);
                let (_, name) = of.next()?;
                // A very long spec has families of several entries: which one is meant is not known.
                of.next().is_none().then(|| (name.clone(), Some(job.family.as_str())))
            };
            let own = names.contains(&job.name).then(|| (job.name.clone(), None));
            let entry = own.or_else(by_family).ok_or_else(|| {
                Error::usage_hint(
                    format!("no single entry of the spec makes {}", super::describe::job(job)),
                    "change the spec and call `torc run SPEC`",
                )
            })?;
            if !found.contains(&entry) {
                found.push(entry);
            }
        }
        Ok(found)
    }

    /// Takes the entry with this name out.
    pub fn remove(&mut self, key: &str, name: &str) -> Result<()> {
        self.entry(key, name)?;
        self.entries(key)?.retain(|entry| entry["name"] != name);
        Ok(())
    }

    /// Writes another name wherever the spec names this one.
    pub fn rename(&mut self, keys: &[&str], from: &str, to: &str) -> Result<()> {
        let prefixes: Vec<String> = ["input", "output"]
            .into_iter()
            .flat_map(|way| ["files", "user_data"].map(|what| format!("${{{what}.{way}.")))
            .collect();
        for job in self.entries("jobs")? {
            let Some(job) = job.as_object_mut() else { continue };
            for (key, value) in job.iter_mut() {
                match value {
                    Value::String(text) if keys.contains(&key.as_str()) && text == from => {
                        *text = to.to_owned();
                    }
                    Value::Array(list) if keys.contains(&key.as_str()) => {
                        list.iter_mut()
                            .filter(|name| *name == from)
                            .for_each(|name| *name = to.into());
                    }
                    Value::String(text) if key == "command" || key == "invocation_script" => {
                        for prefix in &prefixes {
                            *text = text
                                .replace(&format!("{prefix}{from}}}"), &format!("{prefix}{to}}}"));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Applies the changed spec, and says what follows from it.
    pub async fn apply(self, what: &str, args: EditArgs) -> Result<()> {
        let Self { context, client, workflow, spec } = self;
        let how = ApplyOptions {
            dry_run: args.dry_run,
            // Another change since the spec was read must not be undone by this one.
            revision: Some(workflow.revision),
            user: Some(super::person::name()),
            ..ApplyOptions::default()
        };
        let view = client.apply_spec(workflow.id, &Application { spec: &spec, how: &how }).await?;
        for warning in &view.warnings {
            context.output.warn(escape::line(warning));
        }
        if context.output.is_json() {
            return context.output.json(&view);
        }
        let verb = if args.dry_run { "would change" } else { "changed" };
        context.output.data(&format!("{verb} {}\n", escape::line(what)))?;
        super::apply::show(context.output, &workflow, &view);
        Ok(())
    }
}

/// A row that has a name: by its id, or by its name in a workflow.
pub async fn find<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    what: &str,
    text: &str,
    workflow: &WorkflowOption,
) -> Result<T> {
    if let Ok(id) = text.parse::<i64>() {
        return match client.get(&format!("{path}/{id}")).await {
            Err(error) if error.status() == Some(404) => {
                Err(Error::usage(format!("{what} {id} not found")))
            }
            found => Ok(found?),
        };
    }
    let workflow = workflow.find(client).await?;
    let query = Query::new().add("workflow_id", workflow.id);
    let page: Page<T> = client.get(&format!("{path}{}", query.clone().add("name", text))).await?;
    if let Some(found) = page.items.into_iter().next() {
        return Ok(found);
    }
    let all: Page<Value> = client.get(&format!("{path}{query}")).await?;
    let names: Vec<&str> = all.items.iter().filter_map(|item| item["name"].as_str()).collect();
    let message = format!("{what} `{}` not found in workflow {}", escape::line(text), workflow.id);
    let known: Vec<_> = names.iter().take(MAX_OFFERED).map(|name| escape::line(name)).collect();
    let message = match known.is_empty() {
        true => format!("{message}, which has none"),
        false => format!("{message} (known names: {})", known.join(", ")),
    };
    Err(match nearest(text, names.iter().copied()) {
        Some(near) => Error::usage_hint(message, format!("did you mean `{}`?", escape::line(near))),
        None => Error::usage(message),
    })
}

/// Sets a key of an entry, if there is a value for it.
pub fn set(entry: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) -> bool {
    match value {
        Some(value) => {
            entry.insert(key.to_owned(), value.into());
            true
        }
        None => false,
    }
}

/// At least one option must be given.
pub fn something(is_something: bool, options: &str) -> Result<()> {
    match is_something {
        true => Ok(()),
        false => Err(Error::usage_hint("nothing to change", format!("give {options}"))),
    }
}
