//! `torc slurm allocations`: what was asked for and what became of it.

use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape};
use serde_json::json;
use torc_batch::{Allocator, System};
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

    /// Give up this one, which waits; what reaches Slurm takes it back
    #[arg(long, value_name = "ID")]
    cancel: Option<i64>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let query = Query::new().add("workflow_id", workflow.id);
            let mut items = client.list_allocations(&query).await?;
            if let Some(id) = self.cancel {
                if !items.iter().any(|a| a.id == id) {
                    let message = format!("workflow {} has no allocation {id}", workflow.id);
                    return Err(Error::usage(message));
                }
                let canceled = client.cancel_allocation(id).await?;
                if let Some(system) = System::here().map_err(Error::usage)? {
                    let allocator = Allocator::new(client.clone(), system, None)
                        .map_err(Error::io("find", "the program"))?;
                    allocator.take_back(Some(workflow.id)).await?;
                }
                let known = canceled.slurm_job_id.unwrap_or_else(|| "never sent".into());
                context.output.value(&json!({"id": id, "slurm_job_id": known}), |_| {
                    format!("allocation {id} ({}) is given up\n", escape::line(&known))
                })?;
                return Ok(Exit::Success);
            }
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
