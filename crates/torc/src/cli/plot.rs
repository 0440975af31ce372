//! `torc plot`: draws what jobs used over time from the samples that runners kept.

use super::references::{self, LATEST};
use super::session::Access;
use super::{Context, describe};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::chart::{self, Line, Panel};
use crate::output::{escape, human};
use clap::Subcommand;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use torc_client::{Client, Query};
use torc_model::api::{AttemptView, JobView, WorkflowView};

/// Folder of the samples inside the output directory.
const SAMPLES_DIR: &str = "resource_utilization";

/// Plot resource usage over time
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  torc plot resources                    writes resources_wf1.html for the latest workflow")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// CPU and memory of every job over time, as one page or picture
    Resources(Resources),
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc plot resources                          writes resources_wf1.html for the latest workflow
  torc plot resources sweep -o use.svg         only the picture
  torc plot resources sweep --job train_3

The workflow must keep samples: `resource_monitor: {granularity: time_series}` in the spec. One is taken every 5 seconds
(`sample_interval_seconds`); of attempts that end before the first one, the peak is drawn.")]
struct Resources {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// File to write; `.svg` for the picture alone
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only this job; may be repeated
    #[arg(long, value_name = "NAME")]
    job: Vec<String>,

    /// Output directory of the runners [default: `output` beside the workflow]
    #[arg(long, value_name = "DIR")]
    samples: Option<PathBuf>,
}

/// One look at one attempt, as runners write it.
#[derive(Deserialize)]
struct PlotSample {
    timestamp_ms: i64,
    job_id: i64,
    job_name: String,
    run_id: i64,
    attempt_id: i64,
    cpu_percent: Option<f64>,
    memory_bytes: Option<f64>,
    /// The last line of an attempt: its peak. The server knows it too.
    #[serde(default)]
    is_peak: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let Command::Resources(args) = self.command;
        context.with_server(Access::Existing, async |client| {
            args.execute(context, client).await?;
            Ok(Exit::Success)
        })
    }
}

impl Resources {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let jobs: Vec<JobView> =
            client.list_all("/jobs", &Query::new().add("workflow_id", workflow.id)).await?;
        let known: BTreeSet<i64> = jobs.iter().map(|job| job.id.0).collect();
        let wanted = |sample: &PlotSample| {
            known.contains(&sample.job_id)
                && (self.job.is_empty() || self.job.contains(&sample.job_name))
        };
        let dir = self.samples_dir(&workflow)?;
        let mut samples = read(&dir)?;
        samples.retain(wanted);
        if samples.is_empty() {
            return Err(Error::usage_hint(
                format!(
                    "there are no samples of {} in `{}`",
                    describe::workflow(&workflow),
                    dir.display()
                ),
                "keep them with `resource_monitor: {granularity: time_series}` in the spec, or name the runners' output \
                 directory with `--samples`",
            ));
        }
        samples.retain(|sample| !sample.is_peak);
        let path = self
            .output
            .clone()
            .unwrap_or_else(|| format!("resources_wf{}.html", workflow.id).into());
        let mut attempts: Vec<AttemptView> = client
            .list_all(
                "/results",
                &Query::new().add("workflow_id", workflow.id).add("all_runs", true),
            )
            .await?;
        attempts.retain(|a| self.job.is_empty() || self.job.contains(&a.job_name));
        let only_svg = path.extension().is_some_and(|end| end == "svg");
        let text = render(&workflow, &samples, &attempts, only_svg);
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        let answer =
            serde_json::json!({"workflow_id": workflow.id, "file": path, "samples": samples.len()});
        context
            .output
            .value(&answer, |_| format!("{}\n", escape::line(&path.display().to_string())))
    }

    fn samples_dir(&self, workflow: &WorkflowView) -> Result<PathBuf> {
        let here = std::env::current_dir().map_err(Error::io("find", "."))?;
        let output = match &self.samples {
            Some(dir) => here.join(dir),
            None => workflow.origin.directory.as_ref().map_or(here, PathBuf::from).join("output"),
        };
        let inside = output.join(SAMPLES_DIR);
        Ok(if inside.is_dir() { inside } else { output })
    }
}

fn read(dir: &Path) -> Result<Vec<PlotSample>> {
    let mut samples = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(samples) };
    for path in entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.extension().is_some_and(|e| e == "jsonl"))
    {
        let file = torc_fs::open(&path, torc_fs::Trust::Log).map_err(Error::io("read", &path))?;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(Error::io("read", &path))?;
            // The last line may be cut off where a runner was killed.
            samples.extend(serde_json::from_str::<PlotSample>(&line).ok());
        }
    }
    samples.sort_by_key(|sample| sample.timestamp_ms);
    Ok(samples)
}

fn render(
    workflow: &WorkflowView,
    samples: &[PlotSample],
    known: &[AttemptView],
    only_svg: bool,
) -> String {
    let starts = known.iter().filter_map(|a| a.started_ms);
    let ends = known.iter().filter_map(|a| a.ended_ms);
    let begin = starts.chain(samples.first().map(|s| s.timestamp_ms)).min().unwrap_or(0);
    let end = ends.chain(samples.last().map(|s| s.timestamp_ms)).max().unwrap_or(begin);
    let since = |ms: i64| (ms - begin) as f64 / 1000.0;
    let at = |sample: &PlotSample| since(sample.timestamp_ms);
    let seconds = since(end);
    let mut attempts: BTreeMap<(i64, i64, i64), Vec<&PlotSample>> = BTreeMap::new();
    for sample in samples {
        attempts.entry((sample.job_id, sample.run_id, sample.attempt_id)).or_default().push(sample);
    }
    let mut lines: Vec<(f64, Line, Line)> = Vec::new();
    for ((_, run, attempt), of) in &attempts {
        let mut name = of[0].job_name.clone();
        if (*run, *attempt) != (1, 1) {
            name += &format!(" (run {run}, attempt {attempt})");
        }
        let peak = of.iter().map(|s| s.memory_bytes.unwrap_or(0.0)).fold(0.0, f64::max);
        let memory = of.iter().map(|s| (at(s), s.memory_bytes.unwrap_or(0.0))).collect();
        let cpu = of.iter().map(|s| (at(s), s.cpu_percent.unwrap_or(0.0) / 100.0)).collect();
        lines.push((peak, Line { name: name.clone(), points: memory }, Line { name, points: cpu }));
    }
    // What ended between two samples: its peak and its average are known.
    let mut begun = attempts.len();
    for attempt in known.iter().filter(|a| a.started_ms.is_some()) {
        let key = (attempt.job_id.0, attempt.run_id, attempt.attempt_id);
        if attempts.contains_key(&key) {
            continue;
        }
        begun += 1;
        let (Some(start), Some(end)) = (attempt.started_ms, attempt.ended_ms) else { continue };
        let flat = |value: f64| vec![(since(start), value), (since(end), value)];
        let peak = attempt.peak_memory_bytes.unwrap_or(0) as f64;
        let cpus = match (attempt.cpu_seconds, attempt.exec_seconds) {
            (Some(cpu), Some(seconds)) if seconds > 0.0 => cpu / seconds,
            _ => 0.0,
        };
        let name = format!("{} (peak, not sampled)", attempt.job_name);
        let memory = Line { name: name.clone(), points: flat(peak) };
        lines.push((peak, memory, Line { name, points: flat(cpus) }));
    }
    // The hungriest get the colours.
    lines.sort_by(|a, b| b.0.total_cmp(&a.0));
    let peak_job = lines.first().map(|(peak, line, _)| (line.name.clone(), *peak));
    let (memory, cpu): (Vec<Line>, Vec<Line>) =
        lines.into_iter().map(|(_, memory, cpu)| (memory, cpu)).unzip();
    let total_memory = total(samples, &at, |s| s.memory_bytes.unwrap_or(0.0));
    let total_cpu = total(samples, &at, |s| s.cpu_percent.unwrap_or(0.0) / 100.0);
    let highest = |points: &[(f64, f64)]| points.iter().map(|(_, v)| *v).fold(0.0, f64::max);
    let bytes = |v: f64| human::bytes(v as i64);
    let panels = [
        Panel {
            title: "Memory",
            lines: &memory,
            total: &total_memory,
            unit: |v| human::bytes(v as i64),
            is_binary: true,
        },
        Panel {
            title: "CPUs in use",
            lines: &cpu,
            total: &total_cpu,
            unit: |v| format!("{v:.1}"),
            is_binary: false,
        },
    ];
    let svg = chart::svg(&panels, seconds);
    if only_svg {
        return svg;
    }
    let mut facts = vec![
        ("time".to_string(), human::seconds(seconds)),
        (
            "attempts sampled".into(),
            format!(
                "{} of {}",
                human::grouped(attempts.len() as i64),
                human::grouped(begun as i64)
            ),
        ),
        ("memory, all together".into(), bytes(highest(&total_memory))),
        ("CPUs, all together".into(), format!("{:.1}", highest(&total_cpu))),
    ];
    if begun > attempts.len() {
        let why = "ended between two samples; `sample_interval_seconds` (5 unless set) is the time between them";
        facts.push(("the others".into(), why.into()));
    }
    facts.extend(
        peak_job.map(|(name, peak)| ("most memory".into(), format!("{} in {name}", bytes(peak)))),
    );
    let title = format!("Resources of workflow {} ({})", workflow.id, workflow.name);
    chart::page(&title, &facts, &svg)
}

/// The sum over all attempts that were seen last; one that was not seen for a while has ended.
fn total(
    samples: &[PlotSample],
    at: &impl Fn(&PlotSample) -> f64,
    value: impl Fn(&PlotSample) -> f64,
) -> Vec<(f64, f64)> {
    let last_seen: HashMap<(i64, i64, i64), i64> =
        samples.iter().map(|s| ((s.job_id, s.run_id, s.attempt_id), s.timestamp_ms)).collect();
    let mut now: HashMap<(i64, i64, i64), f64> = HashMap::new();
    let mut ended = Vec::new();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for sample in samples {
        let key = (sample.job_id, sample.run_id, sample.attempt_id);
        ended.retain(|(old, when)| {
            let is_over = *when < sample.timestamp_ms;
            if is_over {
                now.remove(old);
            }
            !is_over
        });
        now.insert(key, value(sample));
        if last_seen.get(&key) == Some(&sample.timestamp_ms) {
            ended.push((key, sample.timestamp_ms));
        }
        let (time, sum) = (at(sample), now.values().sum());
        match points.last_mut().filter(|(t, _)| *t == time) {
            Some(point) => point.1 = sum,
            None => points.push((time, sum)),
        }
    }
    points
}
