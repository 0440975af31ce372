//! `torc runner`: takes part in a workflow, from any directory and any machine that reaches the
//! server.

use super::drive::{self, Drive};
use super::references;
use super::runner_options::RunnerOptions;
use super::session::{Access, Session};
use super::{Context, block_on_one_worker};
use crate::embedded::Purpose;
use crate::error::Result;
use crate::exit::Exit;

/// Take part in a workflow from any directory or machine
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc runner sweep                                            beside a `torc run` or `torc server run` here
  torc --url http://host:8080 --token-file t runner 3 -j 8     from another machine

Several runners may work on one workflow; no job runs twice. It leaves when there is nothing more to do.
Exits with 0 when all jobs of the workflow succeeded and with 1 when some did not.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    workflow: String,

    #[command(flatten)]
    options: RunnerOptions,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        // Before there are threads, because they take after this one.
        torc_runner::prefer_short_turns();
        block_on_one_worker(async {
            let purpose = Purpose::Run { port: 0 };
            let mut session =
                Session::open_for(&context.locator, Access::Existing, purpose).await?;
            let result = async {
                let find = async || references::workflow(&session.client, &self.workflow).await;
                let workflow = drive::patiently(find).await?;
                drive::run(
                    &mut session,
                    Drive { context, workflow, options: &self.options, force: false, show: None },
                )
                .await
            };
            let result = result.await;
            session.close().await;
            result
        })
    }
}
