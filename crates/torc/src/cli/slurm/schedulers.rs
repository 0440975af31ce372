//! `torc slurm schedulers`: how a workflow asks for nodes.

use crate::cli::Context;
use crate::cli::edit::{self, EditArgs};
use crate::cli::parts::{Delete, List, New, One, Part};
use crate::cli::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::{Map, Value};
use torc_client::Client;
use torc_model::api::SlurmSchedulerView;
use torc_model::ids::WorkflowId;

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
    #[command(flatten)]
    new: New,

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

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute::<SlurmSchedulerView>(context, client).await?,
                Command::Get(args) => args.execute::<SlurmSchedulerView>(context, client).await?,
                Command::Create(Create { new, settings, how }) => {
                    let write = |entry: &mut _| _ = settings.write(entry);
                    new.execute::<SlurmSchedulerView>(context, client, how, write).await?;
                }
                Command::Update(args) => args.execute(context, client).await?,
                Command::Delete(args) => {
                    args.execute::<SlurmSchedulerView>(context, client).await?
                }
            }
            Ok(Exit::Success)
        })
    }
}

impl Part for SlurmSchedulerView {
    const LIST: &'static str = "slurm_schedulers";
    const WHAT: &'static str = "Slurm scheduler";

    fn name(&self) -> &str {
        &self.scheduler.name
    }

    fn workflow_id(&self) -> WorkflowId {
        self.workflow_id
    }

    fn table(list: &[Self]) -> Table {
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
}

impl Update {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let (found, mut edit) = self.one.edit::<SlurmSchedulerView>(context, client).await?;
        let is_changed = self.settings.write(edit.entry(SlurmSchedulerView::LIST, found.name())?);
        edit::something(is_changed, "`--walltime`, `--partition` or another setting")?;
        edit.apply(&format!("Slurm scheduler `{}`", found.name()), self.how).await
    }
}
