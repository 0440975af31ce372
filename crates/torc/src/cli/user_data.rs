//! `torc user-data`: the JSON values that jobs hand to each other. Works from inside a job.

use super::Context;
use super::paging::PagingArgs;
use super::references::{self, LATEST, WorkflowOption};
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use torc_client::{Client, Query};
use torc_model::api::{Page, UpdateUserData, UserDataView};

/// Read and write the values that jobs hand to each other
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples, from a shell or from inside a job:
  torc user-data get config                    print the value as JSON
  torc user-data update result '{\"loss\": 0.1}'
  torc user-data update result @result.json    take the value from a file (`-`: standard input)
  torc user-data update note --string 'free text'")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the values of a workflow
    List(List),
    /// Print one value as JSON
    Get(OneUserDataArgs),
    /// Set one value
    Update(UpdateUserDataArgs),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Workflow: its id, its name, or `latest`
    #[arg(env = "TORC_WORKFLOW_ID", hide_env_values = true, default_value = LATEST)]
    workflow: String,

    #[command(flatten)]
    paging: PagingArgs,
}

#[derive(clap::Args, Debug)]
struct OneUserDataArgs {
    /// Name of the value
    name: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct UpdateUserDataArgs {
    #[command(flatten)]
    one: OneUserDataArgs,

    /// JSON, @FILE, or `-` for standard input
    #[arg(value_name = "JSON", required_unless_present = "string", allow_hyphen_values = true)]
    data: Option<String>,

    /// Plain text instead of JSON
    #[arg(long, value_name = "TEXT", conflicts_with = "data", allow_hyphen_values = true)]
    string: Option<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        // Before anything is opened, so that a wrong value changes nothing.
        let new_value = match &self.command {
            Command::Update(args) => Some(args.value()?),
            Command::List(_) | Command::Get(_) => None,
        };
        context.with_server(Access::Existing, async |client| {
            match (self.command, new_value) {
                (Command::List(args), _) => args.execute(context, client).await?,
                (Command::Get(args), _) => {
                    let item = args.find(client).await?;
                    if context.output.is_json() {
                        context.output.json(&item)?;
                    } else {
                        context.output.json(&item.data)?;
                    }
                }
                (Command::Update(args), value) => {
                    let item = args.one.find(client).await?;
                    let body = UpdateUserData { data: value.unwrap_or_default() };
                    let item = client.update_user_data(item.id, &body).await?;
                    if context.output.is_json() {
                        context.output.json(&item)?;
                    }
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
        let page: Page<UserDataView> = self.paging.fetch(client, "/user_data", query).await?;
        context.output.list("user_data", &page.items, page.total_count, || {
            let mut table = Table::new(["id", "name", "ephemeral", "data"]);
            for item in &page.items {
                table.row([
                    Field::number(item.id),
                    Field::text(&item.name),
                    Field::text(if item.is_ephemeral { "yes" } else { "no" }),
                    Field::optional(item.data.as_ref().map(ToString::to_string)),
                ]);
            }
            table
        })
    }
}

impl OneUserDataArgs {
    async fn find(&self, client: &Client) -> Result<UserDataView> {
        let workflow = self.workflow.find(client).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let items: Vec<UserDataView> = client.list_all("/user_data", &query).await?;
        let mut names: Vec<String> = items.iter().map(|item| item.name.clone()).collect();
        match items.into_iter().find(|item| item.name == self.name) {
            Some(item) => Ok(item),
            None if names.is_empty() => {
                Err(Error::usage(format!("workflow {} has no user data", workflow.id)))
            }
            None => {
                names.truncate(10);
                Err(Error::usage(format!(
                    "user data `{}` not found in workflow {} (known names: {})",
                    self.name,
                    workflow.id,
                    names.join(", ")
                )))
            }
        }
    }
}

impl UpdateUserDataArgs {
    fn value(&self) -> Result<Value> {
        if let Some(text) = &self.string {
            return Ok(Value::String(text.clone()));
        }
        let given = self.data.as_deref().unwrap_or_default();
        let text = match given.strip_prefix('@') {
            Some(path) => {
                std::fs::read_to_string(path).map_err(Error::io("read", Path::new(path)))?
            }
            None if given == "-" => {
                let mut text = String::new();
                std::io::stdin()
                    .read_to_string(&mut text)
                    .map_err(Error::io("read", "standard input"))?;
                text
            }
            None => given.to_string(),
        };
        serde_json::from_str(&text).map_err(|error| {
            Error::usage_hint(
                format!("the value for `{}` is not JSON: {error}", self.one.name),
                "quote the JSON for the shell, or give plain text with `--string`",
            )
        })
    }
}
