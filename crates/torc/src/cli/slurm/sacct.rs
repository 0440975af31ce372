//! `torc slurm sacct`: what Slurm's accounting says about a workflow's allocations.

use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use std::collections::BTreeSet;
use torc_batch::slurm::Slurm;
use torc_client::{Client, Query};
use torc_model::api::WorkflowView;
use torc_model::slurm::sacct::{self, Answer, Record};

/// Show what Slurm's accounting says about a workflow's allocations
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = references::LATEST)]
    workflow: String,

    /// Show the steps of each job as well
    #[arg(long)]
    steps: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let records = records(client, &workflow, self.steps).await?;
            let total = i64::try_from(records.len()).unwrap_or(i64::MAX);
            context.output.list("records", &records, total, || {
                let mut table = Table::new([
                    "job", "name", "state", "exit", "elapsed", "cpu time", "max rss", "nodes",
                ]);
                for record in &records {
                    let rss =
                        record.max_rss_bytes.and_then(|b| i64::try_from(b).ok()).map(human::bytes);
                    table.row([
                        Field::text(&record.job_id),
                        Field::text(&record.name),
                        Field::text(&record.state),
                        Field::text(&record.exit_code),
                        Field::right(human::seconds(record.elapsed_seconds as f64)),
                        Field::right(&record.cpu_time),
                        Field::optional(rss),
                        Field::text(&record.nodes),
                    ]);
                }
                table
            })?;
            Ok(Exit::Success)
        })
    }
}

/// What the accounting says about a workflow's allocations, with their steps if asked for.
pub async fn records(
    client: &Client,
    workflow: &WorkflowView,
    with_steps: bool,
) -> Result<Vec<Record>> {
    let query = Query::new().add("workflow_id", workflow.id);
    let allocations = client.list_allocations(&query).await?;
    let ids: Vec<String> = allocations.iter().filter_map(|a| a.slurm_job_id.clone()).collect();
    let names: BTreeSet<&str> = allocations.iter().map(|a| a.name.as_str()).collect();
    let mut records: Vec<Record> = match Slurm::new().accounting(&ids).await {
        Answer::Records(records) => sacct::ours(records, &names),
        Answer::Unavailable(why) => {
            return Err(Error::usage_hint(
                why,
                "`torc slurm allocations` shows what Torc itself has seen",
            ));
        }
    };
    records.retain(|r| with_steps || !r.is_step());
    Ok(records)
}
