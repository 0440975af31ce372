//! `torc slurm parse-logs`: what the output of a workflow's allocations says went wrong.

use crate::cli::session::Access;
use crate::cli::{Context, references};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use serde::Serialize;
use std::io::Read as _;
use std::path::PathBuf;
use torc_client::Query;
use torc_model::slurm::logs::{Issue, Severity, scan};

/// Output may be endless; what went wrong last stands at its end, what went wrong first at its beginning.
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
            let beside = || workflow.directory.as_ref().map_or_else(PathBuf::new, PathBuf::from).join("output");
            let dir = self.output_dir.clone().unwrap_or_else(beside);
            let query = Query::new().add("workflow_id", workflow.id);
            let names: Vec<String> = client.list_allocations(&query).await?.into_iter().map(|a| a.name).collect();
            let mut found = Vec::new();
            let mut files: Vec<PathBuf> =
                std::fs::read_dir(&dir).map_err(Error::io("read", &dir))?.flatten().map(|e| e.path()).collect();
            files.sort();
            for file in files {
                let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                let Some(rest) = name.strip_prefix("slurm_output_") else { continue };
                let Some((allocation, tail)) = rest.rsplit_once("_sl") else { continue };
                if !names.iter().any(|n| n == allocation) {
                    continue;
                }
                let mut bytes = Vec::new();
                std::fs::File::open(&file)
                    .and_then(|f| f.take(MAX_BYTES).read_to_end(&mut bytes))
                    .map_err(Error::io("read", &file))?;
                let slurm_job_id = tail.rsplit_once('.').map(|(id, _)| id.to_owned());
                let issues = scan(&String::from_utf8_lossy(&bytes));
                found.extend(issues.into_iter().map(|issue| Found {
                    file: name.clone(),
                    slurm_job_id: slurm_job_id.clone(),
                    issue,
                }));
            }
            found.retain(|f| !self.errors_only || f.issue.severity > Severity::Warning);
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
