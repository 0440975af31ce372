//! `torc export wfformat`: a run in the format of WfCommons (WfFormat 1.5), for simulators and generators.

use super::Context;
use super::record::Record;
use super::references::{self, LATEST};
use crate::error::{Error, Result};
use crate::output::escape;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use torc_client::Client;
use torc_model::api::{AttemptView, RelationKind};

/// Write a run in the format of WfCommons (WfFormat 1.5)
#[derive(clap::Args, Debug)]
pub struct WfFormat {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl WfFormat {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let record = Record::fetch(client, workflow).await?;
        let Some(path) = self.output else { return context.output.json(&document(&record)) };
        let mut text = serde_json::to_string_pretty(&document(&record))
            .unwrap_or_else(|error| unreachable!("our own types: {error}"));
        text.push('\n');
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        context.output.value(
            &json!({"workflow_id": record.workflow.id, "file": path, "tasks": record.jobs.len()}),
            |_| format!("{}\n", escape::line(&path.display().to_string())),
        )
    }
}

fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}

/// The newest attempt of each job that began.
fn newest(record: &Record) -> HashMap<i64, &AttemptView> {
    let mut newest: HashMap<i64, &AttemptView> = HashMap::new();
    for attempt in record.attempts.iter().filter(|attempt| attempt.started_ms.is_some()) {
        let key = |one: &AttemptView| (one.run_id, one.attempt_id);
        let known = newest.entry(attempt.job_id.0).or_insert(attempt);
        if key(attempt) > key(known) {
            *known = attempt;
        }
    }
    newest
}

fn document(record: &Record) -> Value {
    let mut ties: HashMap<(i64, RelationKind), Vec<&str>> = HashMap::new();
    let mut children: HashMap<&str, Vec<&str>> = HashMap::new();
    // Files are known by their paths there.
    let paths: HashMap<i64, &str> =
        record.files.iter().map(|file| (file.id, file.path.as_str())).collect();
    for relation in &record.relations {
        let is_file = matches!(relation.kind, RelationKind::InputFile | RelationKind::OutputFile);
        let path = paths.get(&relation.item_id).copied().filter(|_| is_file);
        let item = path.unwrap_or(&relation.item_name);
        ties.entry((relation.job_id.0, relation.kind)).or_default().push(item);
        if relation.kind == RelationKind::DependsOn {
            children.entry(&relation.item_name).or_default().push(&relation.job_name);
        }
    }
    let of = |job: i64, kind: RelationKind| ties.get(&(job, kind)).cloned().unwrap_or_default();
    let tasks: Vec<Value> = record
        .jobs
        .iter()
        .map(|job| {
            json!({
                "name": job.family, "id": job.name,
                "parents": of(job.id.0, RelationKind::DependsOn),
                "children": children.get(job.name.as_str()).cloned().unwrap_or_default(),
                "inputFiles": of(job.id.0, RelationKind::InputFile),
                "outputFiles": of(job.id.0, RelationKind::OutputFile),
            })
        })
        .collect();
    let files: Vec<Value> = record
        .files
        .iter()
        .map(|file| {
            let place = super::files::place(&record.workflow, &file.path);
            let size =
                std::fs::metadata(place).ok().and_then(|meta| i64::try_from(meta.len()).ok());
            json!({"id": file.path, "sizeInBytes": size.or(file.size).unwrap_or(0)})
        })
        .collect();
    json!({
        "name": record.workflow.name,
        "description": record.workflow.notes.description.clone().unwrap_or_default(),
        "createdAt": time(record.workflow.created_ms),
        "schemaVersion": "1.5",
        "author": {"name": record.workflow.user, "email": "support@wfcommons.org"},
        "runtimeSystem": {
            "name": "Torc", "version": env!("CARGO_PKG_VERSION"), "url": "https://github.com/NREL/torc",
        },
        "workflow": {
            "specification": {"tasks": tasks, "files": files},
            "execution": execution(record),
        },
    })
}

fn execution(record: &Record) -> Value {
    let newest = newest(record);
    let began = newest.values().filter_map(|attempt| attempt.started_ms).min();
    let ended = newest.values().filter_map(|attempt| attempt.ended_ms).max();
    let mut machines: BTreeMap<&str, i64> = BTreeMap::new();
    for runner in &record.runners {
        machines.insert(&runner.hostname, runner.capacity.num_cpus);
    }
    let tasks: Vec<Value> = record
        .jobs
        .iter()
        .filter_map(|job| {
            let attempt = newest.get(&job.id.0)?;
            let seconds = attempt.exec_seconds.unwrap_or_default();
            let mut task = json!({
                "id": job.name, "runtimeInSeconds": seconds,
                "executedAt": time(attempt.started_ms.unwrap_or_default()),
                "command": {"program": "/bin/sh", "arguments": ["-c", job.command]},
                "coreCount": job.num_cpus, "machines": attempt.hostname.iter().collect::<Vec<_>>(),
            });
            if let (Some(cpu), true) = (attempt.cpu_seconds, seconds > 0.0) {
                task["avgCPU"] = json!((cpu / seconds * 10_000.0).round() / 100.0);
            }
            if let Some(bytes) = attempt.peak_memory_bytes {
                task["memoryInBytes"] = json!(bytes);
            }
            Some(task)
        })
        .collect();
    let machines: Vec<Value> = machines
        .into_iter()
        .map(|(host, cpus)| json!({"nodeName": host, "cpu": {"coreCount": cpus}}))
        .collect();
    let makespan = began.zip(ended).map_or(0.0, |(began, ended)| (ended - began) as f64 / 1000.0);
    json!({
        "makespanInSeconds": makespan, "executedAt": time(began.unwrap_or(record.workflow.created_ms)),
        "tasks": tasks, "machines": machines,
    })
}
