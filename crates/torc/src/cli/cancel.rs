//! `torc cancel`: stops a workflow.

use super::Context;
use super::references;
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{escape, human};

/// Cancel a workflow: nothing new starts, what runs is stopped
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc cancel latest
  torc cancel sweep            the newest workflow with this name

Single jobs: `torc jobs cancel`. A canceled workflow can run again after
`torc workflows reset-status`.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    workflow: String,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let status = client.cancel_workflow(workflow.id).await?;
            context.output.value(&status, |status| {
                let name = escape::line(&status.name);
                if status.is_complete && !status.is_canceled {
                    return format!(
                        "{name} (workflow {}) is complete: there is nothing to cancel\n",
                        status.workflow_id
                    );
                }
                let held: i64 =
                    ["pending", "running"].iter().filter_map(|s| status.counts.get(*s)).sum();
                let stopping = if held > 0 {
                    format!("; {} being stopped", human::count(held, "job"))
                } else {
                    String::new()
                };
                format!("canceled {name} (workflow {}){stopping}\n", status.workflow_id)
            })?;
            Ok(Exit::Success)
        })
    }
}
