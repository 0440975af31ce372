//! `torc results`: how attempts ended and what they used.

use super::Context;
use super::paging::PagingArgs;
use super::references::{self, LATEST};
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use std::collections::HashSet;
use torc_client::{Client, Query};
use torc_model::api::{AttemptView, JobView, Page};
use torc_model::status::AttemptState;

/// Show how attempts ended: code, cause, time, CPU and memory
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  torc results list --failed             attempts of the latest workflow that did not succeed")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the ended attempts of a workflow
    List(List),
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc results list                      the latest run of the latest workflow
  torc results list sweep --failed
  torc results list --job train_3 --all-runs                 every attempt of one job
  torc results list --return-code 137
  torc results list --sort-by time --reverse --limit 10      the longest first
  torc -f csv results list > results.csv
  torc -f json results list 3 --all-runs")]
struct List {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Every run, not only the current one
    #[arg(long, conflicts_with = "run")]
    all_runs: bool,

    /// Only this run
    #[arg(long, alias = "run-id", value_name = "N")]
    run: Option<i64>,

    /// Only attempts of this job: its id or its name
    #[arg(long, alias = "job-id", value_name = "JOB")]
    job: Option<String>,

    /// Only attempts that ended with this code
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    return_code: Option<i64>,

    /// Only attempts on this runner
    #[arg(long, alias = "compute-node", value_name = "ID")]
    runner: Option<i64>,

    /// Only attempts that did not succeed
    #[arg(long)]
    failed: bool,

    /// Only attempts of jobs that this filter finds, such as `family:train time>1h`
    #[arg(long = "where", value_name = "FILTER", value_parser = super::act::parse_filter)]
    filter: Option<String>,

    #[command(flatten)]
    paging: PagingArgs,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let job = match &self.job {
            Some(job) => Some(references::job(client, job, &self.workflow).await?.id),
            None => None,
        };
        let mut query = Query::new()
            .add("workflow_id", workflow.id)
            .maybe("job_id", job)
            .maybe("return_code", self.return_code)
            .maybe("compute_node_id", self.runner);
        query = match self.all_runs {
            true => query.add("all_runs", true),
            false => query.add("run_id", self.run.unwrap_or(workflow.run_id)),
        };
        let mut page: Page<AttemptView> = self.paging.fetch(client, "/results", query).await?;
        if self.failed {
            page.items.retain(|result| result.state != AttemptState::Completed);
            page.total_count = page.items.len() as i64;
        }
        if let Some(filter) = &self.filter {
            let query = Query::new().add("workflow_id", workflow.id).add("where", filter);
            let jobs: Vec<JobView> = client.list_all("/jobs", &query).await?;
            let jobs: HashSet<_> = jobs.into_iter().map(|job| job.id).collect();
            page.items.retain(|result| jobs.contains(&result.job_id));
            page.total_count = page.items.len() as i64;
        }
        context.output.list("results", &page.items, page.total_count, || results_table(&page.items))
    }
}

fn results_table(results: &[AttemptView]) -> Table {
    let mut table = Table::new([
        "job", "name", "run", "attempt", "state", "code", "cause", "time", "cpu", "memory",
    ]);
    for result in results {
        table.row([
            Field::number(result.job_id.0),
            Field::text(&result.job_name),
            Field::number(result.run_id),
            Field::number(result.attempt_id),
            Field::attempt_state(result.state),
            Field::optional_number(result.return_code),
            Field::optional(result.cause.map(|c| c.as_str())),
            Field::optional(result.exec_seconds.map(human::seconds)),
            Field::optional(result.cpu_seconds.map(human::seconds)),
            Field::optional(result.peak_memory_bytes.map(human::bytes)),
        ]);
    }
    table
}
