//! `torc limits`: how many jobs may use something at once.

use super::Context;
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::json;
use torc_model::api::{LimitView, Page, SetLimit};

/// Show and set named limits, such as licences, that jobs take with `uses`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc limits set licence 2              at most two jobs with `uses: [licence]` run at once
  torc limits list
  torc limits delete licence")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the limits and how much of them is in use
    List,
    /// Set a limit: at most MAX jobs that use NAME run at once, over all workflows and runners
    Set {
        /// The name that jobs use
        name: String,
        /// At most this many at once
        #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(0..))]
        max: i64,
    },
    /// Remove a limit
    Delete {
        /// The name that jobs use
        name: String,
    },
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Create, async |client| {
            match self.command {
                Command::List => {
                    let page: Page<LimitView> = client.get("/limits").await?;
                    context.output.list("limits", &page.items, page.total_count, || {
                        let mut table = Table::new(["name", "max", "used"]);
                        for limit in &page.items {
                            table.row([
                                Field::text(&limit.name),
                                Field::number(limit.max),
                                Field::number(limit.used),
                            ]);
                        }
                        table
                    })?;
                }
                Command::Set { name, max } => {
                    let limit: LimitView = client.put(&path(&name)?, &SetLimit { max }).await?;
                    context.output.value(&limit, |l| {
                        format!("set limit `{}` to {} ({} in use)\n", l.name, l.max, l.used)
                    })?;
                }
                Command::Delete { name } => {
                    client.delete::<serde_json::Value>(&path(&name)?).await?;
                    context.output.value(&json!({ "deleted": name }), |_| {
                        format!("deleted limit `{name}`\n")
                    })?;
                }
            }
            Ok(Exit::Success)
        })
    }
}

/// Where the server keeps this limit.
fn path(name: &str) -> Result<String> {
    match name {
        "" => Err(Error::usage("the name of a limit must not be empty")),
        name => Ok(format!("/limits/{}", torc_client::segment(name))),
    }
}
