//! `torc runners`: which machines work, since when, and what they have.

use super::Context;
use super::paging::PagingArgs;
use super::references::{self, LATEST};
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use torc_client::{Client, Query};
use torc_model::api::{
    Page, PoolRunnerView, QuarantineRequest, QuarantineView, RunnerView, SetShare, ShareView,
};
use torc_model::status::{RunnerOrder, RunnerState};
use torc_model::words::count;

/// List the runners, and let them pause or leave
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc runners list                those that are there now, of every workflow
  torc runners list sweep --all    also those that have left
  torc runners quarantine n17      no more work for the machine n17 for ten minutes
  torc runners quarantine n17 --release
  torc runners drain 3 4           they take no more jobs; what they run goes on
  torc runners resume 3            it takes jobs again
  torc runners remove 4            it leaves when it holds no job
  torc runners pool                those that serve every workflow (`torc runner --any`)
  torc runners drain --pool 2      the same for one of them
  torc runners share alice 2       of those, alice gets twice as much as others")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List runners
    List(List),
    /// Show runners: who they are, what they have, what they hold
    Get(These),
    /// Let runners take no more jobs; what they run goes on
    Drain(These),
    /// Let runners take jobs again
    Resume(These),
    /// Let runners leave as soon as they hold no job
    Remove(These),
    /// Give no work to a machine, or give it work again
    Quarantine(QuarantineArgs),
    /// List pool runners
    Pool(PoolList),
    /// Set how much of the pool runners a user gets beside others, or list what was set
    Share(ShareArgs),
}

#[derive(clap::Args, Debug)]
struct PoolList {
    /// Also those that have left
    #[arg(short, long)]
    all: bool,

    #[command(flatten)]
    paging: PagingArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Users get equal shares of the CPU time of pool runners while they have work. One with weight 2 gets twice as much
as one with 1, which is the weight of all that were given none.")]
struct ShareArgs {
    /// Owner of workflows
    #[arg(requires = "weight")]
    user: Option<String>,

    /// More than 0, at most 1000
    weight: Option<f64>,
}

#[derive(clap::Args, Debug)]
struct QuarantineArgs {
    /// The machine, as `torc runners list` names it
    host: String,

    /// Of this workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Give it work again
    #[arg(long, conflicts_with_all = ["seconds", "reason"])]
    release: bool,

    /// For so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    seconds: i64,

    /// Why, for the list of runners
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(clap::Args, Debug)]
struct These {
    /// Runners: their ids, as `torc runners list` shows them
    #[arg(required = true, value_name = "RUNNER")]
    runners: Vec<i64>,

    /// The ids are those of pool runners
    #[arg(long)]
    pool: bool,
}

impl These {
    async fn show(self, context: &Context, client: &Client) -> Result<()> {
        let mut found: Vec<RunnerView> = Vec::with_capacity(self.runners.len());
        for id in self.runners {
            found.push(client.get(&format!("/compute_nodes/{id}")).await?);
        }
        match found.as_slice() {
            [one] => context.output.value(one, |one| table(std::slice::from_ref(one)).render()),
            many => context.output.list("runners", many, many.len() as i64, || table(many)),
        }
    }

    async fn order(self, context: &Context, client: &Client, word: &str) -> Result<()> {
        if self.pool {
            let mut done: Vec<PoolRunnerView> = Vec::with_capacity(self.runners.len());
            for id in self.runners {
                let path = format!("/pool_runners/{id}/{word}");
                done.push(client.post(&path, &serde_json::json!({})).await?);
            }
            let count = done.len() as i64;
            return context.output.list("pool_runners", &done, count, || pool_table(&done));
        }
        let mut done = Vec::with_capacity(self.runners.len());
        for id in self.runners {
            let path = format!("/compute_nodes/{id}/{word}");
            let view: RunnerView = client.post(&path, &serde_json::json!({})).await?;
            done.push(view);
        }
        context.output.list("runners", &done, done.len() as i64, || table(&done))
    }
}

#[derive(clap::Args, Debug)]
struct List {
    /// Only of this workflow: its id, its name, or `latest`
    workflow: Option<String>,

    /// Also those that have left
    #[arg(short, long)]
    all: bool,

    #[command(flatten)]
    paging: PagingArgs,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute(context, client).await?,
                Command::Get(some) => some.show(context, client).await?,
                Command::Drain(some) => some.order(context, client, "drain").await?,
                Command::Resume(some) => some.order(context, client, "resume").await?,
                Command::Remove(some) => some.order(context, client, "remove").await?,
                Command::Quarantine(args) => args.execute(context, client).await?,
                Command::Pool(args) => args.execute(context, client).await?,
                Command::Share(args) => args.execute(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

impl QuarantineArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let request = QuarantineRequest {
            hostname: self.host.clone(),
            release: self.release,
            seconds: (!self.release).then_some(self.seconds),
            reason: self.reason,
        };
        let path = format!("/workflows/{}/quarantine", workflow.id);
        let done: QuarantineView = client.post(&path, &request).await?;
        if context.output.is_json() {
            return context.output.json(&done);
        }
        let runners = count(done.runners, "runner");
        match done.until_ms {
            Some(until) => context.output.talk(format_args!(
                "{runners} on {} of workflow {} get no work until {}",
                self.host,
                workflow.id,
                human::local_time(until)
            )),
            None => context.output.talk(format_args!("{runners} on {} get work again", self.host)),
        }
        Ok(())
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let mut query = Query::new();
        if let Some(name) = &self.workflow {
            query = query.add("workflow_id", references::workflow(client, name).await?.id);
        }
        if !self.all {
            query = query.add("is_active", true);
        }
        let page: Page<RunnerView> = self.paging.fetch(client, "/compute_nodes", query).await?;
        context.output.list("runners", &page.items, page.total_count, || table(&page.items))
    }
}

impl PoolList {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let query = if self.all { Query::new() } else { Query::new().add("is_active", true) };
        let page: Page<PoolRunnerView> = self.paging.fetch(client, "/pool_runners", query).await?;
        let items = &page.items;
        context.output.list("pool_runners", items, page.total_count, || pool_table(items))
    }
}

impl ShareArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let Some((user, weight)) = self.user.zip(self.weight) else {
            let page: Page<ShareView> = client.get("/server/shares").await?;
            return context.output.list("shares", &page.items, page.total_count, || {
                let mut table = Table::new(["user", "weight"]);
                for share in &page.items {
                    table.row([Field::text(&share.user), Field::right(share.weight.to_string())]);
                }
                table
            });
        };
        let path = format!("/server/shares/{}", torc_client::segment(&user));
        let set: ShareView = client.put(&path, &SetShare { weight }).await?;
        if context.output.is_json() {
            return context.output.json(&set);
        }
        context.output.talk(format_args!("{} has the weight {}", set.user, set.weight));
        Ok(())
    }
}

fn pool_table(runners: &[PoolRunnerView]) -> Table {
    let mut table = Table::new([
        "id",
        "user",
        "host",
        "pid",
        "label",
        "state",
        "since",
        "workflows",
        "jobs",
        "cpus",
        "memory",
        "note",
    ]);
    for runner in runners {
        let note = match (runner.state, runner.ordered) {
            (RunnerState::Ended, _) => runner.end_reason.clone(),
            (_, Some(RunnerOrder::Drain)) => Some("drained".to_owned()),
            (_, Some(RunnerOrder::Remove)) => Some("leaves".to_owned()),
            (_, None) => None,
        };
        table.row([
            Field::number(runner.id.0),
            Field::text(runner.user.as_deref().unwrap_or("owner")),
            Field::text(&runner.hostname),
            Field::number(runner.pid),
            Field::text(runner.label.as_deref().unwrap_or("")),
            Field::text(runner.state.as_str()),
            Field::text(human::local_time(runner.started_ms)),
            Field::number(runner.workflows),
            Field::number(runner.held),
            Field::number(runner.capacity.num_cpus),
            Field::right(human::bytes(runner.capacity.memory_bytes)),
            Field::text(note.unwrap_or_default()),
        ]);
    }
    table
}

fn table(runners: &[RunnerView]) -> Table {
    let mut table = Table::new([
        "id", "workflow", "host", "pid", "kind", "state", "since", "jobs", "cpus", "memory",
        "gpus", "note",
    ]);
    for runner in runners {
        let note = match runner.state {
            RunnerState::Ended => runner.end_reason.clone(),
            _ => match runner.ordered {
                Some(RunnerOrder::Drain) => Some("drained".to_owned()),
                Some(RunnerOrder::Remove) => Some("leaves".to_owned()),
                None => runner.quarantine.clone(),
            },
        };
        table.row([
            Field::number(runner.id.0),
            Field::number(runner.workflow_id.0),
            Field::text(&runner.hostname),
            Field::number(runner.pid),
            Field::text(runner.kind.as_str()),
            Field::text(runner.state.as_str()),
            Field::text(human::local_time(runner.started_ms)),
            Field::number(runner.held),
            Field::number(runner.capacity.num_cpus * runner.capacity.equal_nodes()),
            Field::right(human::bytes(
                runner.capacity.memory_bytes * runner.capacity.equal_nodes(),
            )),
            Field::number(runner.capacity.num_gpus * runner.capacity.equal_nodes()),
            Field::text(note.unwrap_or_default()),
        ]);
    }
    table
}
