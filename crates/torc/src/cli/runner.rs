//! `torc runner`: takes part in a workflow, from any directory and any machine that reaches the
//! server.

use super::drive::{self, Drive, Stay};
use super::pool::{self, PoolProcess};
use super::references;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, block_on_one_worker};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::human;
use std::path::PathBuf;
use torc_model::api::ReportVerdict;
use torc_model::ids::PoolRunnerId;
use torc_model::units::Runtime;

/// Take part in a workflow from any directory or machine
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  torc runner sweep                                            beside a `torc run` or `torc server run` here
  torc --url http://host:8080 --token-file t runner 3 -j 8     from another machine
  torc runner --any --label gpu                                stay, and serve every workflow
  torc runner deliver output                                   results that ended runners could not deliver

Several runners may work on one workflow; no job runs twice. It leaves when there is nothing more to do.
Exits with 0 when all jobs of the workflow succeeded and with 1 when some did not.

With `--any` it stays, and serves all workflows that its token may see: the owners of workflows get equal shares
of its CPUs, or as `torc runners share` says."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Workflow: its id, its name, or `latest`
    #[arg(required_unless_present = "any", conflicts_with = "any")]
    workflow: Option<String>,

    /// Stay, and serve every workflow that the token may see
    #[arg(long)]
    any: bool,

    /// Leave after this long without work, such as `10m`
    #[arg(long, value_name = "TIME", value_parser = Runtime::parse)]
    max_idle: Option<Runtime>,

    /// The pool runner that starts this one
    #[arg(long, hide = true, conflicts_with = "any")]
    pool_runner: Option<PoolRunnerId>,

    #[command(flatten)]
    options: RunnerOptions,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Deliver results that runners kept on disk while the server was away
    Deliver(Deliver),
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
A runner keeps results that it cannot deliver below its output directory. The next runner there delivers them by
itself; this does it without one, for every workflow. Results that the server has already heard count once.
Exits with 1 when the server did not take some of them.")]
struct Deliver {
    /// Output directory of the runners
    #[arg(value_name = "DIR")]
    output: PathBuf,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        if let Some(Command::Deliver(deliver)) = self.command {
            return deliver.execute(context);
        }
        if self.any {
            let pool = PoolProcess { context, options: &self.options, max_idle: self.max_idle };
            return block_on_one_worker(pool::run(pool));
        }
        let workflow = self.workflow.unwrap_or_default();
        block_on_one_worker(async {
            let purpose = Purpose::Run { port: 0 };
            let mut session =
                Session::open_for(&context.locator, Access::Existing, purpose).await?;
            let result = async {
                let find = async || references::workflow(&session.client, &workflow).await;
                let workflow = drive::patiently(find).await?;
                drive::run(
                    &mut session,
                    Drive {
                        context,
                        workflow,
                        options: &self.options,
                        force: false,
                        show: None,
                        stay: Stay { max_idle: self.max_idle, pool_runner: self.pool_runner },
                    },
                )
                .await
            };
            let result = result.await;
            session.close().await;
            result
        })
    }
}

impl Deliver {
    fn execute(self, context: &Context) -> Result<Exit> {
        let dir = self.output.canonicalize().map_err(Error::io("use", &self.output))?;
        context.with_server(Access::Existing, async |client| {
            let delivered =
                torc_runner::deliver_all(client, &dir).await.map_err(Error::io("read", &dir))?;
            let count = |wanted: ReportVerdict| {
                delivered.results.iter().filter(|(_, result)| result.result == wanted).count()
            };
            let accepted = count(ReportVerdict::Accepted);
            let known = count(ReportVerdict::Repeated);
            let late = delivered.results.len() - accepted - known;
            if context.output.is_json() {
                context.output.json(&serde_json::json!({
                    "accepted": accepted, "already_known": known, "too_late": late,
                    "failed_files": delivered.failures.len(), "kept_files": delivered.kept.len(),
                }))?;
            } else {
                context.output.talk(format_args!(
                    "{} delivered, {} known already, {} too late",
                    human::count(accepted, "result"),
                    human::grouped(known as i64),
                    human::grouped(late as i64),
                ));
            }
            for (path, why) in &delivered.failures {
                context.output.warn(format_args!("`{}`: {why}", path.display()));
            }
            if !delivered.kept.is_empty() {
                context.output.talk(format_args!(
                    "kept {}, whose runner may still live on another host",
                    human::count(delivered.kept.len(), "file")
                ));
            }
            Ok(if delivered.failures.is_empty() { Exit::Success } else { Exit::JobsFailed })
        })
    }
}
