//! `torc slurm schedulers`: how a workflow asks for nodes.

use crate::cli::Context;
use crate::cli::edit::{self, Edit, EditArgs};
use crate::cli::paging::Paging;
use crate::cli::references::{self, LATEST, WorkflowOption};
use crate::cli::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::{Map, Value, json};
use torc_client::{Client, Query};
use torc_model::api::{Page, SlurmSchedulerView};

/// List how a workflow asks for nodes, and change it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc slurm schedulers list
  torc slurm schedulers update big --walltime 04:00:00 --partition short
A change counts for allocations that are asked for from now on.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List Slurm schedulers
    List(List),
    /// Show one of them
    Get(One),
    /// Add one to the spec
    Create(Create),
    /// Change one
    Update(Update),
    /// Take one out of the spec; refused while jobs or actions name it
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
    /// Scheduler: its id or its name
    #[arg(value_name = "SCHEDULER")]
    scheduler: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

#[derive(clap::Args, Debug)]
struct Settings {
    /// Who pays
    #[arg(short, long)]
    account: Option<String>,

    /// Partition
    #[arg(short, long)]
    partition: Option<String>,

    /// Nodes of an allocation
    #[arg(short = 'N', long, value_name = "N")]
    nodes: Option<u32>,

    /// Walltime, as `HH:MM:SS` or `D-HH:MM:SS`
    #[arg(short = 'W', long)]
    walltime: Option<String>,

    /// Memory of a node, as `sbatch` takes it
    #[arg(short, long)]
    mem: Option<String>,

    /// Generic resources
    #[arg(short, long)]
    gres: Option<String>,

    /// Quality of service
    #[arg(long)]
    qos: Option<String>,

    /// Local disk
    #[arg(short, long)]
    tmp: Option<String>,

    /// Further options of `sbatch`
    #[arg(short, long, allow_hyphen_values = true)]
    extra: Option<String>,
}

impl Settings {
    fn write(self, entry: &mut Map<String, Value>) -> bool {
        let texts = [
            ("account", self.account),
            ("partition", self.partition),
            ("walltime", self.walltime),
            ("mem", self.mem),
            ("gres", self.gres),
            ("qos", self.qos),
            ("tmp", self.tmp),
            ("extra", self.extra),
        ];
        let is_changed = edit::set(entry, "nodes", self.nodes);
        texts.into_iter().fold(is_changed, |is, (key, text)| edit::set(entry, key, text) | is)
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
    settings: Settings,

    #[command(flatten)]
    how: EditArgs,
}

#[derive(clap::Args, Debug)]
struct Update {
    #[command(flatten)]
    one: One,

    #[command(flatten)]
    settings: Settings,

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
    async fn find(&self, client: &Client) -> Result<SlurmSchedulerView> {
        let what = "Slurm scheduler";
        edit::find(client, "/slurm_schedulers", what, &self.scheduler, &self.workflow).await
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let page: Page<SlurmSchedulerView> =
            self.paging.fetch(client, "/slurm_schedulers", query).await?;
        let total = page.total_count;
        context.output.list("slurm_schedulers", &page.items, total, || table(&page.items))
    }
}

fn table(list: &[SlurmSchedulerView]) -> Table {
    let mut table = Table::new([
        "id",
        "name",
        "account",
        "partition",
        "nodes",
        "walltime",
        "memory",
        "gres",
        "qos",
        "extra",
    ]);
    for one in list {
        let s = &one.scheduler;
        table.row([
            Field::number(one.id),
            Field::text(&s.name),
            Field::text(&s.account),
            Field::optional(s.partition.as_ref()),
            Field::number(i64::from(s.nodes)),
            Field::right(&s.walltime),
            Field::optional(s.mem.as_ref()),
            Field::optional(s.gres.as_ref()),
            Field::optional(s.qos.as_ref()),
            Field::optional(s.extra.as_ref()),
        ]);
    }
    table
}

/// Where the schedulers of a spec are.
const KEY: &str = "slurm_schedulers";

impl Create {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        let mut entry = Map::from_iter([("name".to_owned(), json!(self.name))]);
        self.settings.write(&mut entry);
        edit.entries(KEY)?.push(Value::Object(entry));
        edit.apply(&format!("Slurm scheduler `{}`", self.name), self.how).await
    }
}

impl Update {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let found = self.one.find(client).await?;
        let workflow = client.get_workflow(found.workflow_id).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        let is_changed = self.settings.write(edit.entry(KEY, &found.scheduler.name)?);
        edit::something(is_changed, "`--walltime`, `--partition` or another setting")?;
        edit.apply(&format!("Slurm scheduler `{}`", found.scheduler.name), self.how).await
    }
}

impl Delete {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let found = self.one.find(client).await?;
        let workflow = client.get_workflow(found.workflow_id).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        edit.remove(KEY, &found.scheduler.name)?;
        let what = format!("Slurm scheduler `{}`: it is taken out", found.scheduler.name);
        edit.apply(&what, self.how).await
    }
}
