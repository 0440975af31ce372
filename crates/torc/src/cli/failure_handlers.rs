//! `torc failure-handlers`: the named lists of rules of a workflow.

use super::Context;
use super::parts::{List, One, Part};
use super::references::WorkflowOption;
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::Value;
use torc_model::api::{CreateFailureHandler, FailureHandlerView, UpdateFailureHandler};
use torc_model::ids::WorkflowId;

/// Show and change the failure handlers of a workflow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc failure-handlers list
  torc failure-handlers create again --rules '[{\"exit_codes\": [10], \"max_retries\": 3}]'")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the failure handlers of a workflow
    List(List),
    /// Show one failure handler with its rules
    Get(One),
    /// Add a failure handler to a workflow
    Create(CreateHandlerArgs),
    /// Change a failure handler; failures from now on see the new rules
    Update(UpdateHandlerArgs),
    /// Delete a failure handler; its jobs have none then
    Delete(One),
}

#[derive(clap::Args, Debug)]
struct CreateHandlerArgs {
    /// Its name, unique in the workflow
    name: String,

    /// JSON list of rules, such as `[{"exit_codes": [10], "max_retries": 3}]`
    #[arg(long)]
    rules: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct UpdateHandlerArgs {
    #[command(flatten)]
    which: One,

    /// Another name
    #[arg(long)]
    name: Option<String>,

    /// Other rules, as a JSON list
    #[arg(long)]
    rules: Option<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute::<FailureHandlerView>(context, client).await?,
                Command::Get(args) => context.output.value(&args.find(client).await?, render)?,
                Command::Create(args) => {
                    let workflow_id = args.workflow.find(client).await?.id;
                    let new =
                        CreateFailureHandler { workflow_id, name: args.name, rules: args.rules };
                    context.output.value(&client.create_failure_handler(&new).await?, render)?;
                }
                Command::Update(args) => {
                    let id = args.which.find::<FailureHandlerView>(client).await?.id;
                    let update = UpdateFailureHandler { name: args.name, rules: args.rules };
                    context
                        .output
                        .value(&client.update_failure_handler(id, &update).await?, render)?;
                }
                Command::Delete(args) => {
                    let handler: FailureHandlerView = args.find(client).await?;
                    client.delete_failure_handler(handler.id).await?;
                    context.output.value(&handler, |h| {
                        format!("deleted failure handler {} `{}`\n", h.id, h.name)
                    })?;
                }
            }
            Ok(Exit::Success)
        })
    }
}

impl Part for FailureHandlerView {
    const LIST: &'static str = "failure_handlers";
    const WHAT: &'static str = "failure handler";

    fn name(&self) -> &str {
        &self.name
    }

    fn workflow_id(&self) -> WorkflowId {
        self.workflow_id
    }

    fn table(list: &[Self]) -> Table {
        let mut table = Table::new(["id", "name", "rules"]);
        for handler in list {
            table.row([
                Field::number(handler.id),
                Field::text(&handler.name),
                Field::number(rules(handler).len() as i64),
            ]);
        }
        table
    }
}

fn rules(handler: &FailureHandlerView) -> Vec<Value> {
    serde_json::from_str(&handler.rules).unwrap_or_default()
}

fn render(handler: &FailureHandlerView) -> String {
    let mut card = Card::new(format!(
        "{} (failure handler {} of workflow {})",
        handler.name, handler.id, handler.workflow_id
    ));
    for (number, rule) in rules(handler).iter().enumerate() {
        card.line(&format!("rule {number}"), rule.to_string());
    }
    card.render()
}
