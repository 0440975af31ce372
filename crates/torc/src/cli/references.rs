//! Finds the workflow or job that a person names: by id, by name, or as `latest`.

use crate::error::{Error, Result};
use crate::output::escape;
use torc_client::{Client, Query};
use torc_model::api::{JobView, WorkflowView};
use torc_model::ids::{JobId, WorkflowId};
use torc_spec::nearest;

/// The word for the newest workflow.
pub const LATEST: &str = "latest";

/// How many names a "not found" message offers.
const MAX_OFFERED: usize = 5;
/// Among how many of them the one that was meant is looked for.
const MAX_COMPARED: usize = 1000;

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
        return match client.get_workflow(id).await {
            Err(error) if error.status() == Some(404) => Err(no_workflow(client, text).await?),
            found => Ok(found?),
        };
    }
    let newest = Query::new().add("sort_by", "id").add("reverse_sort", true).add("limit", 1);
    let query = if text == LATEST { newest } else { newest.add("name", text) };
    match client.list_workflows(&query).await?.items.into_iter().next() {
        Some(workflow) => Ok(workflow),
        None if text == LATEST => {
            Err(Error::usage_hint("there is no workflow yet", "start one with `torc run SPEC`"))
        }
        None => Err(no_workflow(client, text).await?),
    }
}

async fn no_workflow(client: &Client, text: &str) -> Result<Error> {
    let query =
        Query::new().add("sort_by", "id").add("reverse_sort", true).add("limit", MAX_COMPARED);
    let page = client.list_workflows(&query).await?;
    let offered = page.items.iter().take(MAX_OFFERED);
    let known: Vec<String> =
        offered.map(|w| format!("{} ({})", escape::line(&w.name), w.id)).collect();
    let more = if page.items.len() > MAX_OFFERED { ", ..." } else { "" };
    let message = format!("workflow `{}` not found", escape::line(text));
    if known.is_empty() {
        return Ok(Error::usage(message));
    }
    let message = format!("{message} (known workflows: {}{more})", known.join(", "));
    Ok(match nearest(text, page.items.iter().map(|workflow| workflow.name.as_str())) {
        Some(near) => Error::usage_hint(message, format!("did you mean `{}`?", escape::line(near))),
        None => Error::usage(message),
    })
}

/// The job with this id, or with this name in a workflow. A number that could mean two of them
/// means neither.
pub async fn job(client: &Client, text: &str, default_workflow: &str) -> Result<JobView> {
    let here = workflow(client, default_workflow).await;
    if let Ok(id) = text.parse::<JobId>() {
        let by_name = match &here {
            Ok(here) => find_by_name(client, here.id, text).await?,
            Err(_) => None,
        };
        return match (client.get_job(id).await, by_name) {
            (Ok(by_id), Some(by_name)) if by_id.id != by_name.id => Err(two_jobs(&by_id, &by_name)),
            (Ok(job), _) => Ok(job),
            (Err(error), Some(job)) if error.status() == Some(404) => Ok(job),
            (Err(error), None) if error.status() == Some(404) => Err(Error::usage_hint(
                format!("job {id} not found"),
                "`torc jobs list WORKFLOW` lists the jobs of a workflow, `torc workflows list` the workflows",
            )),
            (Err(error), _) => Err(error.into()),
        };
    }
    // A slash separates workflow and job, but job names may contain slashes too: the whole text
    // wins.
    if let Ok(here) = &here
        && let Some(job) = find_by_name(client, here.id, text).await?
    {
        return Ok(job);
    }
    if let Some((prefix, name)) = text.split_once('/') {
        let workflow = workflow(client, prefix).await?;
        return match find_by_name(client, workflow.id, name).await? {
            Some(job) => Ok(job),
            None => Err(no_job(client, &workflow, name).await?),
        };
    }
    Err(no_job(client, &here?, text).await?)
}

/// A number is one job's id and another one's name.
fn two_jobs(by_id: &JobView, by_name: &JobView) -> Error {
    let (id, name) = (by_id.id, escape::line(&by_id.name));
    Error::usage_hint(
        format!(
            "`{id}` is the id of job `{name}` of workflow {} and the name of job {}",
            by_id.workflow_id, by_name.id
        ),
        format!(
            "say `{}/{name}` for the one with this id, or `{}/{id}` for the one with this name",
            by_id.workflow_id, by_name.workflow_id
        ),
    )
}

async fn find_by_name(
    client: &Client,
    workflow: WorkflowId,
    name: &str,
) -> Result<Option<JobView>> {
    let query = Query::new().add("workflow_id", workflow).add("name", name).add("limit", 1);
    Ok(client.list_jobs(&query).await?.items.into_iter().next())
}

async fn no_job(client: &Client, workflow: &WorkflowView, name: &str) -> Result<Error> {
    let query = Query::new().add("workflow_id", workflow.id).add("limit", MAX_COMPARED);
    let page = client.list_jobs(&query).await?;
    let meant = nearest(name, page.items.iter().map(|job| job.name.as_str()));
    let meant =
        meant.map(|near| format!("did you mean `{}`? ", escape::line(near))).unwrap_or_default();
    let id = workflow.id;
    Ok(Error::usage_hint(
        format!(
            "job `{}` not found in workflow {id} (`{}`)",
            escape::line(name),
            escape::line(&workflow.name)
        ),
        format!(
            "{meant}`torc jobs list {id}` lists its jobs; `WORKFLOW/JOB` names one of another workflow"
        ),
    ))
}
