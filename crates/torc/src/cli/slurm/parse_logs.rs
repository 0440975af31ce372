//! `torc slurm parse-logs`: what the output of a workflow's allocations says went wrong.

use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use serde::Serialize;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use torc_client::{Client, Query};
use torc_model::api::WorkflowView;
use torc_model::slurm::logs::{Issue, LogSeverity, scan};

/// Output may be endless; what went wrong last stands at its end, what went wrong first at its
/// beginning.
const MAX_BYTES: u64 = 16 << 20;

/// Find known problems in the output of a workflow's allocations
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = references::LATEST)]
    workflow: String,

    /// Directory of the logs [default: `output` beside the workflow]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Leave out warnings
    #[arg(long)]
    errors_only: bool,
}

#[derive(Serialize, Debug)]
struct Found {
    file: String,
    slurm_job_id: Option<String>,
    #[serde(flatten)]
    issue: Issue,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let found = find_issues(client, &workflow, self.output_dir.as_deref()).await?;
            let mut found: Vec<Found> = found
                .into_iter()
                .flat_map(|(file, issues)| {
                    let name = file.clone();
                    issues.into_iter().map(move |issue| Found {
                        slurm_job_id: slurm_job_of(&name),
                        file: name.clone(),
                        issue,
                    })
                })
                .collect();
            found.retain(|f| !self.errors_only || f.issue.severity > LogSeverity::Warning);
            let total = i64::try_from(found.len()).unwrap_or(i64::MAX);
            context.output.list("issues", &found, total, || {
                let mut table = Table::new(["slurm job", "node", "line", "meaning", "text"]);
                for row in &found {
                    table.row([
                        Field::optional(row.slurm_job_id.as_deref()),
                        Field::optional(row.issue.node.as_deref()),
                        Field::number(i64::try_from(row.issue.line_number).unwrap_or(i64::MAX)),
                        Field::text(&row.issue.description),
                        Field::text(&row.issue.line),
                    ]);
                }
                table
            })?;
            Ok(Exit::Success)
        })
    }
}

fn slurm_job_of(file: &str) -> Option<String> {
    file.rsplit_once("_sl").and_then(|(_, tail)| tail.rsplit_once('.')).map(|(id, _)| id.to_owned())
}

/// What each output of a workflow's allocations says went wrong; without a directory, in `output`
/// beside the workflow.
pub async fn find_issues(
    client: &Client,
    workflow: &WorkflowView,
    dir: Option<&Path>,
) -> Result<Vec<(String, Vec<Issue>)>> {
    let query = Query::new().add("workflow_id", workflow.id);
    let names: Vec<String> =
        client.list_allocations(&query).await?.into_iter().map(|a| a.name).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let beside = || {
        workflow.origin.directory.as_ref().map_or_else(PathBuf::new, PathBuf::from).join("output")
    };
    let dir = dir.map_or_else(beside, Path::to_owned);
    let mut found = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .map_err(Error::io("read", &dir))?
        .flatten()
        .map(|e| e.path())
        .collect();
    files.sort();
    for file in files {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(rest) = name.strip_prefix("slurm_output_") else { continue };
        let Some((allocation, _)) = rest.rsplit_once("_sl") else { continue };
        if !names.iter().any(|n| n == allocation) {
            continue;
        }
        let mut bytes = Vec::new();
        torc_fs::open(&file, torc_fs::Trust::Log)
            .and_then(|f| f.take(MAX_BYTES).read_to_end(&mut bytes))
            .map_err(Error::io("read", &file))?;
        found.push((name, scan(&String::from_utf8_lossy(&bytes))));
    }
    Ok(found)
}
