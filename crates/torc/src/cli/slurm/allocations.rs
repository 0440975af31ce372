//! `torc slurm allocations`: what was asked for and what became of it.

use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table};
use torc_client::Query;

/// List the allocations of a workflow
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = references::LATEST)]
    workflow: String,

    /// Only those that are not over
    #[arg(long)]
    open: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let query = Query::new().add("workflow_id", workflow.id);
            let mut items = client.list_allocations(&query).await?;
            items.retain(|a| !self.open || a.ended_ms.is_none());
            let total = i64::try_from(items.len()).unwrap_or(i64::MAX);
            context.output.list("scheduled_compute_nodes", &items, total, || {
                let mut table = Table::new([
                    "id",
                    "scheduler",
                    "slurm job",
                    "status",
                    "state",
                    "runners",
                    "reason",
                ]);
                for row in &items {
                    table.row([
                        Field::number(row.id),
                        Field::text(&row.scheduler),
                        Field::optional(row.slurm_job_id.as_deref()),
                        Field::text(row.status.as_str()),
                        Field::optional(row.state.as_deref()),
                        Field::number(row.runners),
                        Field::optional(row.reason.as_deref()),
                    ]);
                }
                table
            })?;
            Ok(Exit::Success)
        })
    }
}
