//! `torc items`: the items of a map, and the failed ones that wait for a user.

use super::Context;
use super::references::WorkflowOption;
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use std::path::PathBuf;
use torc_client::{Client, Query};
use torc_model::api::{ItemView, ItemsRequest};

/// List the items of a map, and retry or drop the dead ones
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc items list types --failed          what is dead, and why
  torc items show types src/a.py
  torc items retry types                  run all dead items again; the map and its reduce follow
  torc items retry types --where 'item.size < 9'
  torc items drop types src/generated.py  count it no more")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the items of a map
    List(List),
    /// Show one item
    Show(Show),
    /// Run items again that ended badly
    Retry(RetryArgs),
    /// Count items that ended badly no more
    Drop(Choice),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Map: the name of its job
    map: String,

    /// Only items that ended badly
    #[arg(long)]
    failed: bool,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct Show {
    /// Map: the name of its job
    map: String,

    /// Key of the item
    key: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct Choice {
    /// Map: the name of its job
    map: String,

    /// Keys of the items (default: all that ended badly)
    #[arg(value_name = "KEY")]
    keys: Vec<String>,

    /// Only items for which this holds, such as `item.size < 9`
    #[arg(long = "where", value_name = "EXPRESSION")]
    filter: Option<String>,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct RetryArgs {
    #[command(flatten)]
    choice: Choice,

    /// JSON file with a new value for the one item that is named
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => {
                    let items = list(client, &args.workflow, &args.map, args.failed).await?;
                    context.output.list("items", &items, items.len() as i64, || table(&items))?;
                }
                Command::Show(args) => {
                    let items = list(client, &args.workflow, &args.map, false).await?;
                    let Some(item) = items.iter().find(|item| item.key == args.key) else {
                        let message = format!("`{}` has no item `{}`", args.map, args.key);
                        return Err(Error::usage_hint(
                            message,
                            format!("`torc items list {}` shows all", args.map),
                        ));
                    };
                    context.output.value(item, card)?;
                }
                Command::Retry(args) => {
                    let item = args.edit.as_deref().map(read_item).transpose()?;
                    let workflow = args.choice.workflow.find(client).await?;
                    let request = ItemsRequest { item, ..args.choice.request() };
                    let page = client.retry_items(workflow.id, &request).await?;
                    report(context, &page.items, ("will run again", "will run again"))?;
                }
                Command::Drop(args) => {
                    let workflow = args.workflow.find(client).await?;
                    let page = client.drop_items(workflow.id, &args.request()).await?;
                    report(context, &page.items, ("no longer counts", "no longer count"))?;
                }
            }
            Ok(Exit::Success)
        })
    }
}

impl Choice {
    fn request(&self) -> ItemsRequest {
        ItemsRequest {
            job: self.map.clone(),
            keys: self.keys.clone(),
            filter: self.filter.clone(),
            item: None,
        }
    }
}

fn read_item(path: &std::path::Path) -> Result<serde_json::Value> {
    let text =
        std::fs::read_to_string(path).map_err(Error::io("read", path.display().to_string()))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::usage(format!("`{}` is not JSON: {error}", path.display())))
}

async fn list(
    client: &Client,
    workflow: &WorkflowOption,
    map: &str,
    failed: bool,
) -> Result<Vec<ItemView>> {
    let workflow = workflow.find(client).await?;
    let query = Query::new().add("job", map).add("failed", failed);
    Ok(client.list_items(workflow.id, &query).await?.items)
}

/// Says what happens to the items; `what` is the verb for one and for several.
fn report(context: &Context, items: &[ItemView], what: (&str, &str)) -> Result<()> {
    if context.output.is_json() {
        return context.output.json(&items);
    }
    let verb = if items.len() == 1 { what.0 } else { what.1 };
    context.output.talk(format_args!("{} {verb}", human::count(items.len(), "item")));
    Ok(())
}

fn table(items: &[ItemView]) -> Table {
    let mut table = Table::new(["key", "job", "status", "outcome", "attempt", "code", "error"]);
    for item in items {
        let error = item.error.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
        table.row([
            Field::text(&item.key),
            Field::number(item.job_id.0),
            Field::text(item.status.as_str()),
            Field::text(item.outcome.as_str()),
            Field::number(item.attempt_id),
            Field::optional_number(item.return_code),
            Field::text(error.chars().take(60).collect::<String>()),
        ]);
    }
    table
}

fn card(item: &ItemView) -> String {
    let mut card = Card::new(&item.name);
    card.line("key", &item.key)
        .line("item", item.item.to_string())
        .line("status", item.status.as_str())
        .line("outcome", item.outcome.as_str())
        .line("attempt", item.attempt_id.to_string())
        .optional("code", item.return_code.map(|code| code.to_string()))
        .optional("error", item.error.as_ref())
        .optional("output", item.stdout_path.as_ref())
        .optional("errors", item.stderr_path.as_ref())
        .optional("captures", item.captures.as_ref().map(ToString::to_string));
    card.render()
}
