//! `torc reports nodes`: what the samples say that runners took of their machines.

use super::Context;
use super::describe;
use super::references::{self, LATEST};
use crate::error::{Error, Result};
use crate::output::{Field, Table, human};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use torc_client::Client;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
The workflow must sample its machines: `resource_monitor: {compute_node: {enabled: true}}` in the spec. Samples are in
`resource_utilization/nodes_*.jsonl` below the runners' output directory, one JSON object per line.")]
pub struct NodesArgs {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Output directory of the runners [default: `output` beside the workflow]
    #[arg(long, value_name = "DIR")]
    samples: Option<PathBuf>,
}

/// One look at one machine, as runners write it.
#[derive(Deserialize)]
struct NodeSample {
    timestamp_ms: i64,
    workflow_id: i64,
    host: String,
    cpu_percent: Option<f64>,
    num_cpus: i64,
    memory: Option<DiskRoom>,
    disk: Option<DiskRoom>,
    #[serde(default)]
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
struct DiskRoom {
    total_bytes: i64,
    #[serde(default)]
    used_bytes: i64,
    #[serde(default)]
    free_bytes: i64,
}

#[derive(Deserialize)]
struct Gpu {
    index: i64,
    percent: Option<f64>,
    memory_used_bytes: Option<i64>,
}

/// All looks at one machine.
#[derive(Serialize, Default)]
struct Line {
    host: String,
    samples: i64,
    seconds: f64,
    num_cpus: i64,
    avg_cpu_percent: Option<f64>,
    peak_cpu_percent: Option<f64>,
    memory_bytes: Option<i64>,
    peak_memory_bytes: Option<i64>,
    num_gpus: i64,
    avg_gpu_percent: Option<f64>,
    peak_gpu_memory_bytes: Option<i64>,
    least_free_disk_bytes: Option<i64>,
}

impl NodesArgs {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let here = std::env::current_dir().map_err(Error::io("find", "."))?;
        let output = match self.samples {
            Some(dir) => here.join(dir),
            None => workflow.origin.directory.as_ref().map_or(here, PathBuf::from).join("output"),
        };
        let mut samples: BTreeMap<String, Vec<NodeSample>> = BTreeMap::new();
        // Workflows may share an output directory.
        let is_ours = |sample: &NodeSample| sample.workflow_id == workflow.id.0;
        for sample in read(&output.join("resource_utilization"))?.into_iter().filter(is_ours) {
            samples.entry(sample.host.clone()).or_default().push(sample);
        }
        if samples.is_empty() {
            return Err(Error::usage_hint(
                format!(
                    "there are no samples of the machines of {}",
                    describe::workflow(&workflow)
                ),
                "keep them with `resource_monitor: {compute_node: {enabled: true}}` in the spec, or name the runners' \
                 output directory with `--samples`",
            ));
        }
        let lines: Vec<Line> = samples.into_iter().map(|(host, of)| Line::of(host, &of)).collect();
        context.output.list("nodes", &lines, lines.len() as i64, || table(&lines))
    }
}

impl Line {
    fn of(host: String, samples: &[NodeSample]) -> Self {
        let mean = |values: Vec<f64>| {
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let cpu: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu_percent).collect();
        let gpus = || samples.iter().flat_map(|sample| &sample.gpus);
        let times = || samples.iter().map(|sample| sample.timestamp_ms);
        let seconds = match (times().min(), times().max()) {
            (Some(first), Some(last)) => (last - first) as f64 / 1000.0,
            _ => 0.0,
        };
        Self {
            host,
            samples: samples.len() as i64,
            seconds,
            num_cpus: samples.iter().map(|sample| sample.num_cpus).max().unwrap_or(0),
            peak_cpu_percent: cpu.iter().copied().reduce(f64::max),
            avg_cpu_percent: mean(cpu),
            memory_bytes: samples.iter().filter_map(|s| Some(s.memory.as_ref()?.total_bytes)).max(),
            peak_memory_bytes: samples
                .iter()
                .filter_map(|s| Some(s.memory.as_ref()?.used_bytes))
                .max(),
            num_gpus: gpus().map(|gpu| gpu.index + 1).max().unwrap_or(0),
            avg_gpu_percent: mean(gpus().filter_map(|gpu| gpu.percent).collect()),
            peak_gpu_memory_bytes: gpus().filter_map(|gpu| gpu.memory_used_bytes).max(),
            least_free_disk_bytes: samples
                .iter()
                .filter_map(|s| Some(s.disk.as_ref()?.free_bytes))
                .min(),
        }
    }
}

fn read(dir: &Path) -> Result<Vec<NodeSample>> {
    let mut samples = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(samples) };
    let is_of_nodes = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("nodes_") && name.ends_with(".jsonl"))
    };
    for path in entries.flatten().map(|entry| entry.path()).filter(is_of_nodes) {
        let file = torc_fs::open(&path, torc_fs::Trust::Log).map_err(Error::io("read", &path))?;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(Error::io("read", &path))?;
            // The last line may be cut off where a runner was killed.
            samples.extend(serde_json::from_str::<NodeSample>(&line).ok());
        }
    }
    Ok(samples)
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new([
        "host",
        "samples",
        "time",
        "cpus",
        "cpu",
        "peak cpu",
        "memory",
        "peak",
        "gpus",
        "gpu",
        "gpu memory",
        "free disk",
    ]);
    let percent = |value: Option<f64>| Field::optional(value.map(|p| format!("{p:.0}%")));
    for line in lines {
        table.row([
            Field::text(&line.host),
            Field::number(line.samples),
            Field::right(human::seconds(line.seconds)),
            Field::number(line.num_cpus),
            percent(line.avg_cpu_percent),
            percent(line.peak_cpu_percent),
            Field::optional(line.memory_bytes.map(human::bytes)),
            Field::optional(line.peak_memory_bytes.map(human::bytes)),
            Field::number(line.num_gpus),
            percent(line.avg_gpu_percent),
            Field::optional(line.peak_gpu_memory_bytes.map(human::bytes)),
            Field::optional(line.least_free_disk_bytes.map(human::bytes)),
        ]);
    }
    table
}
