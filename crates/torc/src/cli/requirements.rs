//! `torc resource-requirements`: what jobs ask for, by name.

use super::Context;
use super::edit::{self, EditArgs};
use super::parts::{Delete, List, New, One, Part};
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use serde_json::{Map, Value};
use torc_client::Client;
use torc_model::api::RequirementsView;
use torc_model::ids::WorkflowId;
use torc_model::units::{Memory, Runtime};

/// List what jobs ask for, and change it for all jobs that share it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc resource-requirements list
  torc resource-requirements update large --memory 64g --num-cpus 16
  torc resource-requirements update large --runtime 2h --dry-run

A change counts for the next attempts of all jobs that use it; `torc jobs update` changes single jobs.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List resource requirements
    List(List),
    /// Show one of them
    Get(One),
    /// Add one to the spec
    Create(CreateRequirementsArgs),
    /// Change one, for all jobs that use it
    Update(UpdateRequirementsArgs),
    /// Take one out of the spec; refused while jobs name it
    Delete(Delete),
}

#[derive(clap::Args, Debug)]
struct NeedsArgs {
    /// CPUs of a job
    #[arg(long, visible_alias = "cpus", value_name = "N")]
    num_cpus: Option<u32>,

    /// GPUs of a job
    #[arg(long, visible_alias = "gpus", value_name = "N")]
    num_gpus: Option<u32>,

    /// Nodes of a job
    #[arg(long, visible_alias = "nodes", value_name = "N")]
    num_nodes: Option<u32>,

    /// Memory, such as `8g`
    #[arg(short, long, value_parser = Memory::parse)]
    memory: Option<Memory>,

    /// Planned time, such as `2h30m`
    #[arg(short, long, value_parser = Runtime::parse)]
    runtime: Option<Runtime>,
}

impl NeedsArgs {
    fn write(&self, entry: &mut Map<String, Value>) -> bool {
        let mut is_changed = edit::set(entry, "num_cpus", self.num_cpus);
        is_changed |= edit::set(entry, "num_gpus", self.num_gpus);
        is_changed |= edit::set(entry, "num_nodes", self.num_nodes);
        is_changed |= edit::set(entry, "memory", self.memory.map(|memory| memory.to_string()));
        is_changed | edit::set(entry, "runtime", self.runtime.map(|runtime| runtime.to_string()))
    }
}

#[derive(clap::Args, Debug)]
struct CreateRequirementsArgs {
    #[command(flatten)]
    new: New,

    #[command(flatten)]
    needs: NeedsArgs,

    #[command(flatten)]
    how: EditArgs,
}

#[derive(clap::Args, Debug)]
struct UpdateRequirementsArgs {
    #[command(flatten)]
    one: One,

    /// Another name; jobs that name it are changed with it
    #[arg(short, long)]
    name: Option<String>,

    #[command(flatten)]
    needs: NeedsArgs,

    #[command(flatten)]
    how: EditArgs,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute::<RequirementsView>(context, client).await?,
                Command::Get(args) => args.execute::<RequirementsView>(context, client).await?,
                Command::Create(CreateRequirementsArgs { new, needs, how }) => {
                    let write = |entry: &mut _| _ = needs.write(entry);
                    new.execute::<RequirementsView>(context, client, how, write).await?;
                }
                Command::Update(args) => args.execute(context, client).await?,
                Command::Delete(args) => args.execute::<RequirementsView>(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

impl Part for RequirementsView {
    const LIST: &'static str = "resource_requirements";
    const WHAT: &'static str = "resource requirements";

    fn name(&self) -> &str {
        &self.name
    }

    fn workflow_id(&self) -> WorkflowId {
        self.workflow_id
    }

    fn table(list: &[Self]) -> Table {
        let mut table = Table::new(["id", "name", "cpus", "gpus", "nodes", "memory", "runtime"]);
        for one in list {
            table.row([
                Field::number(one.id),
                Field::text(&one.name),
                Field::number(one.num_cpus),
                Field::number(one.num_gpus),
                Field::number(one.num_nodes),
                Field::optional(one.memory.as_deref().map(human::size)),
                Field::optional(one.runtime.as_deref().map(human::duration)),
            ]);
        }
        table
    }
}

impl UpdateRequirementsArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let (found, mut edit) = self.one.edit::<RequirementsView>(context, client).await?;
        let entry = edit.entry(RequirementsView::LIST, &found.name)?;
        let is_changed = self.needs.write(entry) | edit::set(entry, "name", self.name.as_deref());
        edit::something(
            is_changed,
            "`--num-cpus`, `--num-gpus`, `--num-nodes`, `--memory`, `--runtime` or `--name`",
        )?;
        if let Some(name) = &self.name {
            edit.rename(&[RequirementsView::LIST], &found.name, name)?;
        }
        edit.apply(&format!("resource requirements `{}`", found.name), self.how).await
    }
}
