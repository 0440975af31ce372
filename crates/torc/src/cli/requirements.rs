//! `torc resource-requirements`: what jobs ask for, by name.

use super::Context;
use super::edit::{self, Edit, EditArgs};
use super::paging::Paging;
use super::references::{self, LATEST, WorkflowOption};
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use serde_json::{Map, Value, json};
use torc_client::{Client, Query};
use torc_model::api::{Page, RequirementsView};
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
    Create(Create),
    /// Change one, for all jobs that use it
    Update(Update),
    /// Take one out of the spec; refused while jobs name it
    Delete(Delete),
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
    /// Resource requirements: their id or their name
    #[arg(value_name = "REQUIREMENTS")]
    requirements: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct Needs {
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

impl Needs {
    fn write(&self, entry: &mut Map<String, Value>) -> bool {
        let mut is_changed = edit::set(entry, "num_cpus", self.num_cpus);
        is_changed |= edit::set(entry, "num_gpus", self.num_gpus);
        is_changed |= edit::set(entry, "num_nodes", self.num_nodes);
        is_changed |= edit::set(entry, "memory", self.memory.map(|memory| memory.to_string()));
        is_changed | edit::set(entry, "runtime", self.runtime.map(|runtime| runtime.to_string()))
    }
}

#[derive(clap::Args, Debug)]
struct Create {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Name, unique in the workflow
    #[arg(short, long)]
    name: String,

    #[command(flatten)]
    needs: Needs,

    #[command(flatten)]
    how: EditArgs,
}

#[derive(clap::Args, Debug)]
struct Update {
    #[command(flatten)]
    one: One,

    /// Another name; jobs that name it are changed with it
    #[arg(short, long)]
    name: Option<String>,

    #[command(flatten)]
    needs: Needs,

    #[command(flatten)]
    how: EditArgs,
}

#[derive(clap::Args, Debug)]
struct Delete {
    #[command(flatten)]
    one: One,

    #[command(flatten)]
    how: EditArgs,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute(context, client).await?,
                Command::Get(args) => {
                    let found = args.find(client).await?;
                    context
                        .output
                        .value(&found, |found| table(std::slice::from_ref(found)).render())?;
                }
                Command::Create(args) => args.execute(context, client).await?,
                Command::Update(args) => args.execute(context, client).await?,
                Command::Delete(args) => args.execute(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

impl One {
    async fn find(&self, client: &Client) -> Result<RequirementsView> {
        let what = "resource requirements";
        edit::find(client, "/resource_requirements", what, &self.requirements, &self.workflow).await
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let page: Page<RequirementsView> =
            self.paging.fetch(client, "/resource_requirements", query).await?;
        context
            .output
            .list("resource_requirements", &page.items, page.total_count, || table(&page.items))
    }
}

fn table(list: &[RequirementsView]) -> Table {
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

/// Where the requirements of a spec are.
const KEY: &str = "resource_requirements";

impl Create {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        let mut entry = Map::from_iter([("name".to_owned(), json!(self.name))]);
        self.needs.write(&mut entry);
        edit.entries(KEY)?.push(Value::Object(entry));
        edit.apply(&format!("resource requirements `{}`", self.name), self.how).await
    }
}

impl Update {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let found = self.one.find(client).await?;
        let workflow = client.get_workflow(found.workflow_id).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        let entry = edit.entry(KEY, &found.name)?;
        let is_changed = self.needs.write(entry) | edit::set(entry, "name", self.name.as_deref());
        edit::something(
            is_changed,
            "`--num-cpus`, `--num-gpus`, `--num-nodes`, `--memory`, `--runtime` or `--name`",
        )?;
        if let Some(name) = &self.name {
            edit.rename(&[KEY], &found.name, name)?;
        }
        edit.apply(&format!("resource requirements `{}`", found.name), self.how).await
    }
}

impl Delete {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let found = self.one.find(client).await?;
        let workflow = client.get_workflow(found.workflow_id).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        edit.remove(KEY, &found.name)?;
        let what = format!("resource requirements `{}`: they are taken out", found.name);
        edit.apply(&what, self.how).await
    }
}
