//! `torc export`: a workflow for other programs.

use super::Context;
use super::references::{self, LATEST};
use super::ro_crate::RoCrate;
use super::session::Access;
use super::timeline::TextTimeline;
use super::wfformat::WfFormat;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::escape;
use clap::Subcommand;
use serde_json::json;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use torc_client::{Client, Query};
use torc_model::api::{FamiliesView, JobView};
use torc_model::status::AttemptState;

/// Write a workflow for other programs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc export trace -o run.json     every attempt; open it in ui.perfetto.dev or chrome://tracing
  torc export ro-crate -o run.zip   a Provenance Run Crate: spec, files with checksums, attempts
  torc export wfformat -o wf.json   tasks, files and times in the format of WfCommons")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Every attempt over time, as a Chrome trace
    Trace(TraceArgs),
    RoCrate(RoCrate),
    Wfformat(WfFormat),
}

#[derive(clap::Args, Debug)]
struct TraceArgs {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// File to write [default: trace_wfID.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::Trace(args) => args.execute(context, client).await?,
                Command::RoCrate(args) => args.execute(context, client).await?,
                Command::Wfformat(args) => args.execute(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

impl TraceArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let path = self.output.unwrap_or_else(|| format!("trace_wf{}.json", workflow.id).into());
        let timeline = TextTimeline::fetch(client, workflow.id).await?;
        let families: FamiliesView =
            client.get(&format!("/workflows/{}/families", workflow.id)).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let jobs: Vec<JobView> = client.list_all("/jobs", &query).await?;
        let names: HashMap<i64, &str> =
            jobs.iter().map(|job| (job.id.0, job.name.as_str())).collect();
        let file = std::fs::File::create(&path).map_err(Error::io("write", &path))?;
        let mut file = std::io::BufWriter::new(file);
        let mut write = |text: String| file.write_all(text.as_bytes());
        let mut lines = vec![json!({"name": "process_name", "ph": "M", "pid": 0,
            "args": {"name": format!("workflow {} ({})", workflow.id, workflow.name)}})];
        for (number, runner) in timeline.runners.iter().enumerate() {
            let host = runner["host"].as_str().unwrap_or("?");
            lines.push(json!({"name": "process_name", "ph": "M", "pid": number + 1,
                "args": {"name": format!("runner {} on {host}", runner["id"])}}));
        }
        for (bar, slot) in timeline.bars.iter().zip(timeline.slots()) {
            let end = bar.end_ms.unwrap_or(families.at_ms);
            let family = families.families.get(bar.family).map_or("jobs", |f| f.name.as_str());
            lines.push(json!({
                "name": names.get(&bar.job).copied().unwrap_or("?"), "cat": family, "ph": "X",
                "ts": bar.start_ms * 1000, "dur": (end - bar.start_ms).max(0) * 1000,
                "pid": bar.runner + 1, "tid": slot + 1,
                "args": {"job_id": bar.job, "state": AttemptState::as_str(bar.state),
                         "waited_ms": bar.wait_ms},
            }));
        }
        let count = lines.len();
        let whole = lines.into_iter().enumerate().try_for_each(|(at, line)| {
            let before =
                if at == 0 { "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" } else { ",\n" };
            write(format!("{before}{line}"))
        });
        whole
            .and_then(|()| write("\n]}\n".into()))
            .and_then(|()| file.flush())
            .map_err(Error::io("write", &path))?;
        let answer = json!({"workflow_id": workflow.id, "file": path, "events": count});
        context
            .output
            .value(&answer, |_| format!("{}\n", escape::line(&path.display().to_string())))
    }
}
