//! `torc jobs add`: a running job adds jobs to its workflow.

use super::Context;
use super::references::{self, WorkflowOption};
use crate::error::{Error, Result};
use crate::output::human;
use serde_json::Value;
use std::path::PathBuf;
use torc_client::Client;
use torc_model::api::{ErrorCode, SpawnJobs, SpawnedJobs};
use torc_model::ids::JobId;
use torc_spec::{Parsed, Source};

/// Add jobs to the workflow of a running job, from inside that job
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The file is a piece of a spec: `jobs`, and what belongs to them (`files`, `user_data`,
`resource_requirements`, `failure_handlers`, `parameters`, `variables`). Its jobs may depend on each
other and on what the workflow has. All of them are added, or none.

A job that is tried again adds nothing twice: the same piece is recognized by its key, which is the
job and the run unless given.

Examples:
  torc jobs add next.yaml              they start when this job has succeeded
  torc jobs add next.yaml --wait       what depends on this job waits for them too
  torc jobs add more.yaml --key more   a second piece of the same job")]
pub struct Args {
    /// Piece of a spec (`-`: standard input)
    file: PathBuf,

    /// Name of this piece; a job that adds more than once gives each piece one
    #[arg(long)]
    key: Option<String>,

    /// What depends on this job waits for the new jobs too
    #[arg(long)]
    wait: bool,

    /// The new jobs do not wait until this job has succeeded
    #[arg(long)]
    now: bool,

    /// What iterations are counted for; that of this job unless given
    #[arg(long)]
    lineage: Option<String>,

    /// JSON to keep as user data of the lineage
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    state: Option<String>,

    /// Running job that adds them, by id or name; the one this command runs in unless given
    #[arg(long)]
    job: Option<String>,

    #[command(flatten)]
    workflow: WorkflowOption,
}

impl Args {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let parsed = Source::read(&self.file).and_then(Source::parse_piece);
        let Parsed { spec, warnings } = parsed.map_err(|errors| super::spec::wrong(&errors))?;
        if !warnings.is_empty() {
            context.output.talk(warnings.render(console::colors_enabled_stderr()).trim_end());
        }
        let Value::Object(mut piece) = spec.to_value() else {
            return Err(Error::usage("the piece is not a map"));
        };
        piece.remove("name");
        let state = self.state.as_deref().map(serde_json::from_str).transpose();
        let state =
            state.map_err(|error| Error::usage(format!("`--state` is not JSON: {error}")))?;
        let job = match &self.job {
            Some(job) => references::job(client, job, self.workflow.text()).await?.id,
            None => this_job()?,
        };
        let body = SpawnJobs {
            key: self.key,
            lineage: self.lineage,
            state,
            wait: self.wait,
            now: self.now,
            piece,
        };
        let added = client.spawn_jobs(job, &body).await.map_err(explain)?;
        context.output.value(&added, sentence)
    }
}

/// What the server says of a piece is rendered already.
fn explain(error: torc_client::Error) -> Error {
    match &error {
        torc_client::Error::Refused { info, .. }
            if error.code() == Some(ErrorCode::InvalidSpec) =>
        {
            Error::Spec { rendered: info.message.clone() }
        }
        _ => error.into(),
    }
}

/// The job whose attempt this process belongs to.
fn this_job() -> Result<JobId> {
    let inside = std::env::var("TORC_JOB_ID").ok().and_then(|id| id.parse().ok());
    inside.map(JobId).ok_or_else(|| {
        Error::usage_hint(
            "`torc jobs add` does not run inside a job",
            "name the running job that adds them with `--job`",
        )
    })
}

fn sentence(added: &SpawnedJobs) -> String {
    let jobs = human::count(added.spawned_job_ids.len() as i64, "job");
    match added.is_repeat {
        true => format!("{jobs} had been added before; nothing was added\n"),
        false => format!("added {jobs}\n"),
    }
}
