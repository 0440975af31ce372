//! `torc failure-handlers`: the named lists of rules of a workflow.

use super::Context;
use super::paging::Paging;
use super::references::{self, LATEST, WorkflowOption};
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::Value;
use torc_client::{Client, Query};
use torc_model::api::{CreateFailureHandler, FailureHandlerView, Page, UpdateFailureHandler};

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
    Create(Create),
    /// Change a failure handler; failures from now on see the new rules
    Update(Update),
    /// Delete a failure handler; its jobs have none then
    Delete(One),
}

#[derive(clap::Args, Debug)]
struct Create {
    /// Its name, unique in the workflow
    name: String,

    /// JSON list of rules, such as `[{"exit_codes": [10], "max_retries": 3}]`
    #[arg(long)]
    rules: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct Update {
    #[command(flatten)]
    which: One,

    /// Another name
    #[arg(long)]
    name: Option<String>,

    /// Other rules, as a JSON list
    #[arg(long)]
    rules: Option<String>,
}

#[derive(clap::Args, Debug)]
struct List {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    #[command(flatten)]
    paging: Paging,
}

#[derive(clap::Args, Debug)]
struct One {
    /// Failure handler: its id or its name
    handler: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute(context, client).await?,
                Command::Get(args) => context.output.value(&args.find(client).await?, render)?,
                Command::Create(args) => {
                    let workflow_id = args.workflow.find(client).await?.id;
                    let new =
                        CreateFailureHandler { workflow_id, name: args.name, rules: args.rules };
                    context.output.value(&client.create_failure_handler(&new).await?, render)?;
                }
                Command::Update(args) => {
                    let id = args.which.find(client).await?.id;
                    let update = UpdateFailureHandler { name: args.name, rules: args.rules };
                    context
                        .output
                        .value(&client.update_failure_handler(id, &update).await?, render)?;
                }
                Command::Delete(args) => {
                    let handler = args.find(client).await?;
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

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let page: Page<FailureHandlerView> =
            self.paging.fetch(client, "/failure_handlers", query).await?;
        context.output.list("failure_handlers", &page.items, page.total_count, || {
            let mut table = Table::new(["id", "name", "rules"]);
            for handler in &page.items {
                table.row([
                    Field::number(handler.id),
                    Field::text(&handler.name),
                    Field::number(rules(handler).len() as i64),
                ]);
            }
            table
        })
    }
}

impl One {
    async fn find(&self, client: &Client) -> Result<FailureHandlerView> {
        if let Ok(id) = self.handler.parse() {
            return Ok(client.get_failure_handler(id).await?);
        }
        let workflow = self.workflow.find(client).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let handlers: Vec<FailureHandlerView> =
            client.list_all("/failure_handlers", &query).await?;
        let known: Vec<String> = handlers.iter().map(|h| h.name.clone()).collect();
        handlers.into_iter().find(|h| h.name == self.handler).ok_or_else(|| {
            let known = if known.is_empty() {
                "it has none".into()
            } else {
                format!("known: {}", known.join(", "))
            };
            Error::usage(format!(
                "failure handler `{}` not found in workflow {} ({known})",
                self.handler, workflow.id
            ))
        })
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
