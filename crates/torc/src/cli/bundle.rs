//! `torc logs bundle`: a workflow with all of its logs in one `tar.gz`, to send or to keep.

use super::Context;
use super::record::Record;
use super::references::{self, LATEST};
use crate::archive::TarGz;
use crate::error::{Error, Result};
use crate::output::{escape, human};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use torc_client::{Client, Query};
use torc_model::api::{AttemptView, LogView};

/// Bytes of a log that a request to the server asks for.
const PIECE: usize = 1 << 20;
/// What is taken of a log that this machine cannot see.
const MAX_REMOTE: usize = 64 << 20;

/// Write a workflow with all of its logs into one `tar.gz`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It holds the spec, jobs, attempts of all runs, events, user data and verdicts as JSON, and the logs of jobs
and allocations. `torc logs analyze FILE` reads it, with or without a server.")]
pub struct Bundle {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// File to write [default: torc_wfID.tar.gz]
    #[arg(short, long, value_name = "FILE", alias = "bundle-dir")]
    output: Option<PathBuf>,
}

impl Bundle {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let id = workflow.id;
        let name = format!("torc_wf{id}.tar.gz");
        let path = match self.output {
            Some(dir) if dir.is_dir() => dir.join(&name),
            Some(file) => file,
            None => name.into(),
        };
        let record = Record::fetch(client, workflow).await?;
        let file = File::create(&path).map_err(Error::io("write", &path))?;
        let mut packed = PackedFile {
            tar: TarGz::new(BufWriter::new(file)).map_err(Error::io("write", &path))?,
            path: &path,
            root: format!("torc_wf{id}"),
            logs: 0,
        };
        packed.tables(&record)?;
        for (log, (attempt, stream)) in logs_of(&record.attempts) {
            packed.log(client, &log, attempt, stream).await?;
        }
        let dir = super::files::place(&record.workflow, "output");
        packed.allocations(&dir, &record)?;
        let logs = packed.logs;
        packed.tar.finish().map_err(Error::io("write", &path))?;
        let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        let answer = json!({"workflow_id": id, "file": path, "logs": logs, "bytes": size});
        context
            .output
            .value(&answer, |_| format!("{}\n", escape::line(&path.display().to_string())))?;
        let size = human::bytes(i64::try_from(size).unwrap_or(i64::MAX));
        context.output.talk(format_args!(
            "{} of {}, {size}",
            human::count(logs, "log"),
            super::describe::workflow(&record.workflow)
        ));
        Ok(())
    }
}

/// Every log file once, with an attempt that wrote it.
fn logs_of(attempts: &[AttemptView]) -> BTreeMap<String, (&AttemptView, &'static str)> {
    let mut logs = BTreeMap::new();
    for attempt in attempts {
        for (path, stream) in [(&attempt.stdout_path, "stdout"), (&attempt.stderr_path, "stderr")] {
            if let Some(path) = path {
                logs.entry(path.clone()).or_insert((attempt, stream));
            }
        }
    }
    logs
}

struct PackedFile<'a> {
    tar: TarGz<BufWriter<File>>,
    path: &'a Path,
    root: String,
    logs: i64,
}

impl PackedFile<'_> {
    fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let name = format!("{}/{name}", self.root);
        self.tar.add(&name, content).map_err(Error::io("write", self.path))
    }

    fn tables(&mut self, record: &Record) -> Result<()> {
        let all = crate::output::plain(record);
        for (name, value) in all.as_object().into_iter().flatten() {
            let mut text = serde_json::to_vec_pretty(value)
                .unwrap_or_else(|error| unreachable!("our own types: {error}"));
            text.push(b'\n');
            self.add(&format!("{name}.json"), &text)?;
        }
        Ok(())
    }

    /// A log that is here is copied; another one comes from the server, up to a bound.
    async fn log(
        &mut self,
        client: &Client,
        log: &str,
        attempt: &AttemptView,
        stream: &str,
    ) -> Result<()> {
        let file_name = Path::new(log).file_name().unwrap_or_default().to_string_lossy();
        let name = format!("job_stdio/{file_name}");
        if let Ok(mut file) = torc_fs::open(Path::new(log), torc_fs::Trust::Log)
            && let Ok(meta) = file.metadata()
        {
            self.logs += 1;
            let whole = format!("{}/{name}", self.root);
            let added = self.tar.add_from(&whole, meta.len(), &mut file);
            return added.map_err(Error::io("write", self.path));
        }
        let query = Query::new()
            .add("stream", stream)
            .add("run_id", attempt.run_id)
            .add("attempt_id", attempt.attempt_id);
        let (mut text, mut offset) = (String::new(), 0);
        while text.len() < MAX_REMOTE {
            let query = query.clone().add("offset", offset).add("limit", PIECE);
            let piece: LogView = match client.job_log(attempt.job_id, &query).await {
                Ok(piece) => piece,
                // It was never written, or is deleted.
                Err(error) if error.status() == Some(404) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if piece.text.is_empty() {
                break;
            }
            text += &piece.text;
            offset = piece.next_offset;
        }
        self.logs += 1;
        self.add(&name, text.as_bytes())
    }

    /// Outputs of allocations lie beside those of jobs.
    fn allocations(&mut self, dir: &Path, record: &Record) -> Result<()> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
        let wf = format!("wf{}", record.workflow.id);
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours =
                name.starts_with("slurm_output_") && name.split(['_', '-']).any(|part| part == wf);
            let Ok(mut file) = torc_fs::open(&entry.path(), torc_fs::Trust::Log) else { continue };
            if let (true, Ok(meta)) = (is_ours, file.metadata()) {
                self.logs += 1;
                let whole = format!("{}/{name}", self.root);
                let added = self.tar.add_from(&whole, meta.len(), &mut file);
                added.map_err(Error::io("write", self.path))?;
            }
        }
        Ok(())
    }
}
