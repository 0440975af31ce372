//! Finds the workflow or job that a person names: by id, by name, or as `latest`.

use crate::error::{Error, Result};
use crate::output::escape;
use torc_client::{Client, Query};
use torc_model::api::{JobView, WorkflowView};
use torc_model::ids::{JobId, WorkflowId};

/// The word for the newest workflow.
pub const LATEST: &str = "latest";

/// How many names a "not found" message offers.
const MAX_OFFERED: usize = 5;

/// A job as the user names it.
#[derive(clap::Args, Debug)]
pub struct JobArg {
    /// Job: its id, its name, or WORKFLOW/NAME
    #[arg(value_name = "JOB")]
    job: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

/// The workflow in which names are looked up.
#[derive(clap::Args, Debug)]
pub struct WorkflowOption {
    /// Workflow in which the name is looked up
    #[arg(short, long, value_name = "WORKFLOW", env = "TORC_WORKFLOW_ID", default_value = LATEST)]
    #[arg(hide_env_values = true)]
    workflow: String,
}

impl JobArg {
    /// The job.
    pub async fn find(&self, client: &Client) -> Result<JobView> {
        job(client, &self.job, &self.workflow.workflow).await
    }
}

impl WorkflowOption {
    /// The workflow as the user names it.
    pub fn text(&self) -> &str {
        &self.workflow
    }

    /// The workflow.
    pub async fn find(&self, client: &Client) -> Result<WorkflowView> {
        workflow(client, &self.workflow).await
    }
}

/// The workflow with this id or name; of several with one name, the newest.
pub async fn workflow(client: &Client, text: &str) -> Result<WorkflowView> {
    if let Ok(id) = text.parse::<WorkflowId>() {
        return Ok(client.get_workflow(id).await?);
    }
    let newest = Query::new().add("sort_by", "id").add("reverse_sort", true).add("limit", 1);
    let query = if text == LATEST { newest } else { newest.add("name", text) };
    match client.list_workflows(&query).await?.items.into_iter().next() {
        Some(workflow) => Ok(workflow),
        None if text == LATEST => Err(Error::usage_hint("there is no workflow yet", "start one with `torc run SPEC`")),
        None => Err(no_workflow(client, text).await?),
    }
}

async fn no_workflow(client: &Client, text: &str) -> Result<Error> {
    let query = Query::new().add("sort_by", "id").add("reverse_sort", true).add("limit", MAX_OFFERED);
    let page = client.list_workflows(&query).await?;
    let known: Vec<String> = page.items.iter().map(|w| format!("{} ({})", escape::line(&w.name), w.id)).collect();
    let more = if page.has_more { ", ..." } else { "" };
    let message = format!("workflow `{}` not found", escape::line(text));
    Ok(if known.is_empty() {
        Error::usage(message)
    } else {
        Error::usage(format!("{message} (known workflows: {}{more})", known.join(", ")))
    })
}

/// The job with this id, or with this name in a workflow.
pub async fn job(client: &Client, text: &str, default_workflow: &str) -> Result<JobView> {
    if let Ok(id) = text.parse::<JobId>() {
        return Ok(client.get_job(id).await?);
    }
    // A slash separates workflow and job, but job names may contain slashes too: the whole text wins.
    let here = workflow(client, default_workflow).await;
    if let Ok(here) = &here
        && let Some(job) = find_by_name(client, here.id, text).await?
    {
        return Ok(job);
    }
    if let Some((prefix, name)) = text.split_once('/') {
        let workflow = workflow(client, prefix).await?;
        return match find_by_name(client, workflow.id, name).await? {
            Some(job) => Ok(job),
            None => Err(no_job(&workflow, name)),
        };
    }
    Err(no_job(&here?, text))
}

async fn find_by_name(client: &Client, workflow: WorkflowId, name: &str) -> Result<Option<JobView>> {
    let query = Query::new().add("workflow_id", workflow).add("name", name).add("limit", 1);
    Ok(client.list_jobs(&query).await?.items.into_iter().next())
}

fn no_job(workflow: &WorkflowView, name: &str) -> Error {
    Error::usage_hint(
        format!(
            "job `{}` not found in workflow {} (`{}`)",
            escape::line(name),
            workflow.id,
            escape::line(&workflow.name)
        ),
        format!("`torc jobs list {}` lists its jobs; `WORKFLOW/JOB` names one of another workflow", workflow.id),
    )
}
