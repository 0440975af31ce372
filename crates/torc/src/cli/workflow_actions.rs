//! `torc workflows list-actions`, `update-action` and `delete-action`: what a workflow does at its
//! triggers.

use super::Context;
use super::edit::{self, Edit, EditArgs};
use super::references::{self, LATEST};
use crate::error::{Error, Result};
use crate::output::{Field, Table, human};
use serde_json::{Map, Value};
use torc_client::{Client, Query};
use torc_model::api::{ActionView, WorkflowView};

/// What `list-actions` takes.
#[derive(clap::Args, Debug)]
pub struct ListActionsArgs {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,
}

#[derive(clap::Args, Debug)]
struct OneActionArgs {
    /// Workflow: its id, its name, or `latest`
    workflow: String,

    /// Action: its id, as `list-actions` shows it
    action: i64,
}

/// What `update-action` takes.
#[derive(clap::Args, Debug)]
pub struct UpdateActionArgs {
    #[command(flatten)]
    one: OneActionArgs,

    /// Another Slurm scheduler, by name
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,

    /// How many allocations to ask for
    #[arg(long, value_name = "N")]
    num_allocations: Option<u32>,

    /// One runner on each node instead of one per allocation
    #[arg(long, value_name = "BOOL")]
    start_one_worker_per_node: Option<bool>,

    /// At most this many jobs at once in each runner
    #[arg(long, value_name = "N")]
    max_parallel_jobs: Option<u32>,

    /// A command to run, instead of those it has; may be repeated
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    command: Vec<String>,

    /// Further keys of the action, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    json: Option<Map<String, Value>>,

    #[command(flatten)]
    how: EditArgs,
}

/// What `delete-action` takes.
#[derive(clap::Args, Debug)]
pub struct DeleteActionArgs {
    #[command(flatten)]
    one: OneActionArgs,

    /// Accepted for Torc 1.0.0: nothing is asked
    #[arg(long, hide = true, alias = "no-prompts")]
    yes: bool,

    #[command(flatten)]
    how: EditArgs,
}

fn object(text: &str) -> std::result::Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

impl ListActionsArgs {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let actions = actions(client, &workflow).await?;
        context.output.list("actions", &actions, actions.len() as i64, || {
            let mut table =
                Table::new(["id", "trigger", "what", "jobs", "state", "executed", "error"]);
            for action in &actions {
                table.row([
                    Field::number(action.id.0),
                    Field::text(action.trigger_type.as_str()),
                    Field::text(describe(&action.what)),
                    Field::number(action.job_ids.len() as i64),
                    Field::text(action.state.as_str()),
                    Field::optional(action.executed_ms.map(human::local_time)),
                    Field::optional(action.error.as_ref()),
                ]);
            }
            table
        })
    }
}

async fn actions(client: &Client, workflow: &WorkflowView) -> Result<Vec<ActionView>> {
    Ok(client.list_all(&format!("/workflows/{}/actions", workflow.id), &Query::new()).await?)
}

/// An action in a few words.
fn describe(what: &Value) -> String {
    let commands = what["commands"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let commands: Vec<&str> = commands.collect();
    match what["scheduler"].as_str() {
        Some(scheduler) => {
            let count = what["num_allocations"].as_i64().unwrap_or(1);
            format!("{} by `{scheduler}`", human::count(count, "allocation"))
        }
        None => commands.join("; "),
    }
}

impl OneActionArgs {
    /// The change begun, and the place of the action in the spec's list.
    async fn begin<'a>(
        &self,
        context: &'a Context,
        client: &'a Client,
    ) -> Result<(Edit<'a>, usize)> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let actions = actions(client, &workflow).await?;
        let id = workflow.id;
        let action = actions.iter().find(|action| action.id.0 == self.action);
        let action = action.ok_or_else(|| {
            Error::usage_hint(
                format!("workflow {id} has no action {}", self.action),
                format!("`torc workflows list-actions {id}` lists them"),
            )
        })?;
        if action.is_recovery {
            return Err(Error::usage(format!(
                "action {} was made by a recovery and is not part of the spec",
                self.action
            )));
        }
        // Of several that say the same, the n-th row is the n-th entry.
        let is_twin = |other: &&ActionView| {
            !other.is_recovery
                && other.id < action.id
                && (other.trigger_type, &other.what) == (action.trigger_type, &action.what)
        };
        let before = actions.iter().filter(is_twin).count();
        let mut edit = Edit::begin(context, client, workflow).await?;
        let entries = edit.entries("actions")?;
        let fitting = entries.iter().enumerate().filter(|(_, entry)| says(entry, action));
        let place = fitting.map(|(at, _)| at).nth(before).ok_or_else(|| {
            Error::usage_hint(
                format!("the spec does not say action {} in so many words", self.action),
                format!("`torc workflows export {id} -o FILE`, change it there, and call `torc run FILE`"),
            )
        })?;
        Ok((edit, place))
    }
}

/// An entry of the spec says what this action does.
fn says(entry: &Value, action: &ActionView) -> bool {
    let what = &action.what;
    let number = |value: &Value, usual: i64| value.as_i64().unwrap_or(usual);
    entry["trigger_type"] == action.trigger_type.as_str()
        && entry["action_type"] == what["action_type"]
        && match what["scheduler"].as_str() {
            Some(scheduler) => {
                entry["scheduler"] == scheduler
                    && number(&entry["num_allocations"], 1) == number(&what["num_allocations"], 1)
            }
            None => match &entry["commands"] {
                Value::String(one) => what["commands"] == serde_json::json!([one]),
                list => *list == what["commands"],
            },
        }
}

impl UpdateActionArgs {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let (mut edit, place) = self.one.begin(context, client).await?;
        let entry = edit.entries("actions")?[place].as_object_mut();
        let entry = entry.ok_or_else(|| Error::usage("the action is no object in the spec"))?;
        let mut is_changed = false;
        for (key, value) in self.json.into_iter().flatten() {
            is_changed |= edit::set(entry, &key, Some(value));
        }
        is_changed |= edit::set(entry, "scheduler", self.scheduler);
        is_changed |= edit::set(entry, "num_allocations", self.num_allocations);
        is_changed |= edit::set(entry, "start_one_worker_per_node", self.start_one_worker_per_node);
        is_changed |= edit::set(entry, "max_parallel_jobs", self.max_parallel_jobs);
        is_changed |=
            edit::set(entry, "commands", (!self.command.is_empty()).then_some(self.command));
        edit::something(is_changed, "`--num-allocations`, `--scheduler`, `--command` or `--json`")?;
        edit.apply(&format!("action {}", self.one.action), self.how).await
    }
}

impl DeleteActionArgs {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let (mut edit, place) = self.one.begin(context, client).await?;
        edit.entries("actions")?.remove(place);
        edit.apply(&format!("action {}: it is taken out", self.one.action), self.how).await
    }
}
