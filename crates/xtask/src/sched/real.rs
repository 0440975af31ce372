//! One row with the real program: its own prediction against what then happens.

use super::instances::Instance;
use crate::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Jobs of the trace that run.
const JOBS: usize = 200;

/// What the runner is told to have. The jobs sleep, so that more CPUs than there are do no harm.
const CPUS: &str = "8";

/// What the run should take about, in seconds.
const SECONDS: f64 = 20.0;

/// Runs a part of a trace twice: the first time teaches, the second is predicted.
pub fn run(torc: &Path, trace: &Instance, figures: &mut BTreeMap<String, f64>) -> Result<()> {
    let order = topological(trace);
    let kept: Vec<usize> = order.into_iter().take(JOBS).collect();
    let work: f64 = kept.iter().map(|index| f64::from(trace.tasks[*index].ms)).sum();
    let scale = SECONDS * 8.0 / work;
    let job = |index: &usize| {
        let task = &trace.tasks[*index];
        let parents: Vec<String> = task
            .parents
            .iter()
            .filter(|parent| kept.contains(&(**parent as usize)))
            .map(|parent| format!("j{parent}"))
            .collect();
        // A sleep shorter than a process start would measure those.
        let seconds = (f64::from(task.ms) * scale).max(0.05);
        json!({"name": format!("j{index}"), "command": format!("sleep {seconds:.3}"), "depends_on": parents})
    };
    let jobs: Vec<Value> = kept.iter().map(job).collect();
    let directory = std::env::temp_dir().join(format!("sched-real-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let spec = directory.join("trace.json");
    std::fs::write(&spec, json!({"name": "trace", "jobs": jobs}).to_string())?;
    let call = |words: &[&str]| -> Result<Vec<u8>> {
        let output = Command::new(torc)
            .args(words)
            .current_dir(&directory)
            .env("HOME", &directory)
            .env("TORC_CONFIG_DIR", &directory)
            .output()?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(format!("torc {}: {said}", words.join(" ")).into())
            }
        }
    };
    let run = ["run", "trace.json", "--new", "--num-cpus", CPUS, "--memory", "64g"];
    call(&run)?;
    let said = call(&["-f", "json", "predict", "latest", "--cores", CPUS])?;
    let forecast: Value = serde_json::from_slice(&said)?;
    let predicted = forecast["seconds"].as_f64().ok_or("the forecast has no `seconds`")?;
    let begun = Instant::now();
    call(&run)?;
    let whole = begun.elapsed().as_secs_f64();
    let status: Value = serde_json::from_slice(&call(&["-f", "json", "status", "latest"])?)?;
    let time = |key: &str| status[key].as_i64().ok_or(format!("the status has no `{key}`"));
    // The forecast is about the workflow: starting and ending the server and the runner is apart.
    let took = (time("last_end_ms")? - time("started_ms")?) as f64 / 1000.0;
    let mut tell = |what: &str, value| figures.insert(format!("real program: {what}"), value);
    tell(&format!("{JOBS} jobs of `{}`: predicted, s", trace.name), predicted);
    tell("from the workflow's start to its last end, s", took);
    tell("predicted / took", predicted / took);
    tell("from the start of the command to its end, s", whole);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Jobs after all that they wait for.
fn topological(trace: &Instance) -> Vec<usize> {
    let children = trace.children();
    let mut open: Vec<usize> = trace.tasks.iter().map(|task| task.parents.len()).collect();
    let mut order: Vec<usize> = (0..open.len()).filter(|index| open[*index] == 0).collect();
    let mut at = 0;
    while let Some(index) = order.get(at).copied() {
        at += 1;
        for child in &children[index] {
            let child = *child as usize;
            open[child] -= 1;
            if open[child] == 0 {
                order.push(child);
            }
        }
    }
    order
}
