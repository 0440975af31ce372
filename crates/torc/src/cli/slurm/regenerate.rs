//! `torc slurm regenerate`: new schedulers and allocations for what still has to run.

use super::plan::{PlanOptions, PlanView, render, unplannable};
use super::schedule_nodes::send_waiting;
use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::human;
use serde_json::json;
use std::path::PathBuf;
use torc_batch::slurm::{pending_jobs, plan_regeneration};
use torc_batch::{Allocator, SentAllocation};
use torc_client::{Client, Query};
use torc_model::api::WorkflowView;
use torc_model::ids::JobId;
use torc_model::slurm::wire::RegeneratedView;

/// Make new schedulers and allocations for the jobs that still have to run
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc slurm regenerate 5 --account abc --dry-run    what it would ask for, and why; changes nothing
  torc slurm regenerate 5 --account abc --submit     ask for it

Actions of the spec that have not asked for nodes yet never will; jobs that wait for others get recovery actions
instead. Allocations that are already on their way count, so calling it twice does not ask for more.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    workflow: String,

    #[command(flatten)]
    plan: PlanOptions,

    /// Ask for the nodes at once
    #[arg(long)]
    submit: bool,

    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,

    /// Directory for logs [default: `output` beside the workflow]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Further jobs to plan for, such as ones about to be reset
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    include_job_ids: Vec<JobId>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let jobs = pending_jobs(client, workflow.id, &self.include_job_ids).await?;
            if jobs.is_empty() {
                let done = json!({"workflow_id": workflow.id, "pending_jobs": 0, "submitted": false});
                context.output.value(&done, |_| "nothing to do: no job still has to run\n".into())?;
                return Ok(Exit::Success);
            }
            let account = match &self.plan.account {
                Some(account) => account.clone(),
                None => account_of(client, &workflow).await?,
            };
            let profile = self.plan.profile().await?;
            let options = self.plan.options(account, "_regen");
            let known = client.list_slurm_schedulers(&Query::new().add("workflow_id", workflow.id)).await?.items;
            let regeneration = plan_regeneration(jobs, &profile, &options, &known).map_err(|e| unplannable(&e))?;
            let names: Vec<String> = regeneration.jobs.iter().map(|j| j.name.clone()).collect();
            let view = PlanView::new(&regeneration.planned, &names);
            if self.dry_run {
                let shown = json!({
                    "dry_run": true, "workflow_id": workflow.id, "pending_jobs": names.len(),
                    "profile_name": profile.name, "planned_schedulers": view.planned_schedulers,
                    "total_allocations": view.total_allocations, "node_hours": view.node_hours,
                    "would_submit": self.submit,
                });
                context.output.value(&shown, |_| render(&view))?;
                return Ok(Exit::Success);
            }
            if self.submit {
                super::system()?;
            }
            let done = client.regenerate(workflow.id, &regeneration.request(self.submit)).await?;
            let sent = if self.submit { send(client, &workflow, self.output_dir.clone()).await? } else { Vec::new() };
            let shown = json!({
                "workflow_id": workflow.id, "pending_jobs": names.len(), "actions_claimed": done.actions_claimed,
                "actions_created": done.actions_created, "schedulers_created": done.schedulers_created,
                "allocations_created": done.allocations_created, "allocations_kept": done.allocations_kept,
                "submitted": self.submit, "sent": sent,
            });
            context.output.value(&shown, |_| summary(&done, &sent))?;
            Ok(Exit::Success)
        })
    }
}

async fn send(
    client: &Client,
    workflow: &WorkflowView,
    output_dir: Option<PathBuf>,
) -> Result<Vec<SentAllocation>> {
    let allocator = Allocator::new(client.clone(), super::system()?, output_dir)
        .map_err(Error::io("find", "the program"))?;
    send_waiting(&allocator, workflow.id).await
}

fn summary(done: &RegeneratedView, sent: &[SentAllocation]) -> String {
    let mut text = format!(
        "{} retired, {} made, {} asked for, {} kept\n",
        human::count(done.actions_claimed, "action"),
        human::count(done.actions_created, "recovery action"),
        human::count(done.allocations_created, "allocation"),
        done.allocations_kept
    );
    text += &super::schedule_nodes::describe(sent);
    text
}

/// The account that the workflow's schedulers use, if they agree.
pub async fn account_of(client: &Client, workflow: &WorkflowView) -> Result<String> {
    let query = Query::new().add("workflow_id", workflow.id);
    let schedulers = client.list_slurm_schedulers(&query).await?.items;
    let mut accounts: Vec<String> =
        schedulers.into_iter().map(|s| s.scheduler.account).filter(|a| !a.is_empty()).collect();
    accounts.sort();
    accounts.dedup();
    match accounts.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::usage_hint(
            "no account was named",
            "name the one that pays with `--account`",
        )),
        several => Err(Error::usage_hint(
            format!("the workflow's schedulers use several accounts: {}", several.join(", ")),
            "name one with `--account`",
        )),
    }
}
