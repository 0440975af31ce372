//! How many allocations of which shape the jobs that still have to run need. Asks for nothing.

use super::is_for_slurm;
use super::plan::{PlanView, unplannable};
use super::regenerate::account_of;
use crate::error::{Error, Result};
use torc_batch::slurm::{pending_jobs, plan_regeneration};
use torc_client::{Client, Query};
use torc_model::api::WorkflowView;
use torc_model::slurm::groups::Options;

/// The proposal that `torc slurm regenerate --dry-run` would show; `None` for a workflow without
/// Slurm or without work.
pub async fn propose(client: &Client, workflow: &WorkflowView) -> Result<Option<PlanView>> {
    if !is_for_slurm(client, workflow).await? {
        return Ok(None);
    }
    let jobs = pending_jobs(client, workflow.id, &[]).await?;
    if jobs.is_empty() {
        return Ok(None);
    }
    let account = account_of(client, workflow).await?;
    let profile = super::system()?.profile().await.map_err(|message| {
        Error::usage_hint(message, "name a profile of this cluster, see `torc hpc`")
    })?;
    let options = Options { account, name_suffix: "_regen".into(), ..Options::default() };
    let known =
        client.list_slurm_schedulers(&Query::new().add("workflow_id", workflow.id)).await?.items;
    let regeneration = plan_regeneration(jobs, &profile, &options, &known)
        .map_err(|errors| unplannable(&errors))?;
    let names: Vec<String> = regeneration.jobs.iter().map(|job| job.name.clone()).collect();
    Ok(Some(PlanView::new(&regeneration.planned, &names)))
}
