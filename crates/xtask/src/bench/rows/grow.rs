//! A workflow of 100,000 jobs that is run again: the answer that nothing is to be done, beside `make
//! -q` on the same graph, and ten jobs more.

use crate::Result;
use crate::bench::report::Figure;
use crate::bench::world::Server;
use crate::bench::{Bench, median};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use torc_client::Application;
use torc_model::api::{ApplyOptions, ApplyView};
use torc_model::ids::WorkflowId;

/// Pairs of jobs: one reads a common file and writes one of its own, the other reads that and writes
/// another.
fn spec(pairs: usize) -> Value {
    let all = json!({"i": format!("1:{pairs}")});
    json!({
        "name": "grow",
        "files": [
            {"name": "in", "path": "in.txt"},
            {"name": "a_{i}", "path": "a_{i}.txt", "parameters": all},
            {"name": "b_{i}", "path": "b_{i}.txt", "parameters": all},
        ],
        "jobs": [
            {"name": "a_{i}", "command": ": > a_{i}.txt", "input_files": ["in"], "output_files": ["a_{i}"], "parameters": all},
            {"name": "b_{i}", "command": ": > b_{i}.txt", "input_files": ["a_{i}"], "output_files": ["b_{i}"], "parameters": all},
        ],
    })
}

/// The same for `make`.
fn makefile(pairs: usize) -> String {
    let mut text = "all:".to_owned();
    for i in 1..=pairs {
        // Writing to a string does not fail.
        let _ = write!(text, " b_{i}.txt");
    }
    text += "\n";
    for i in 1..=pairs {
        let _ = write!(text, "a_{i}.txt: in.txt\n\t: > $@\nb_{i}.txt: a_{i}.txt\n\t: > $@\n");
    }
    text
}

/// Seconds that a command takes, the one in the middle of a few; it must succeed.
fn seconds(rounds: usize, mut command: impl FnMut() -> Command) -> Result<f64> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        let mut command = command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let status = command.status()?;
        all.push(begun.elapsed().as_secs_f64());
        if !status.success() {
            return Err(format!("{command:?}: {status}").into());
        }
    }
    Ok(median(all))
}

/// Measures it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let pairs = bench.scale(100_000) / 2;
    let arena = &bench.arena;
    let dir = arena.fresh()?;
    std::fs::write(dir.join("in.txt"), "in\n")?;
    let write = |pairs: usize| -> Result<()> {
        Ok(std::fs::write(dir.join("spec.json"), serde_json::to_vec(&spec(pairs))?)?)
    };
    write(pairs)?;
    let run = || arena.command(&dir, &["-q", "run", "spec.json"]);
    let first = seconds(1, run)?;
    let again = seconds(bench.rounds, run)?;
    let mut figures = vec![
        Figure::new("the first run of all jobs", first, "s"),
        Figure::new("`torc run`: all jobs are up to date", again, "s").at_most(0.5),
    ];
    figures.extend(make(bench, &dir, pairs)?);
    let applied = apply(bench, &dir, pairs)?;
    figures.push(
        Figure::new("the server applies a spec with ten jobs more", applied, "s").at_most(1.0),
    );
    write(pairs + 5)?;
    let more = seconds(1, run)?;
    figures.push(Figure::new("`torc run` of that spec, with the ten jobs", more, "s"));
    Ok(figures)
}

/// `make -q` on the same files, where there is a `make`.
fn make(bench: &Bench, dir: &Path, pairs: usize) -> Result<Option<Figure>> {
    if Command::new("make").arg("--version").output().is_err() {
        return Ok(None);
    }
    std::fs::write(dir.join("Makefile"), makefile(pairs))?;
    let call = || {
        let mut command = Command::new("make");
        command.args(["-q", "all"]).current_dir(dir);
        command
    };
    Ok(Some(Figure::new("`make -q` on the same graph", seconds(bench.rounds, call)?, "s")))
}

/// The request alone, on a server that has just looked at the workflow; the spec is put back after
/// each.
fn apply(bench: &Bench, dir: &Path, pairs: usize) -> Result<f64> {
    let server = Server::start(&bench.arena, dir.to_owned())?;
    let runtime = &bench.arena.runtime;
    let (old, new) = (spec(pairs), spec(pairs + 5));
    let how = ApplyOptions::default();
    let call = |spec: &Value| -> Result<(f64, ApplyView)> {
        let body = Application { spec, how: &how };
        let begun = Instant::now();
        let view = runtime.block_on(server.client.apply_spec(WorkflowId(1), &body))?;
        Ok((begun.elapsed().as_secs_f64(), view))
    };
    let mut all = Vec::new();
    for _ in 0..bench.rounds {
        let (took, view) = call(&new)?;
        if view.counts.to_run() != 10 || view.counts.up_to_date != 2 * pairs as i64 {
            return Err(format!("another plan than expected: {}", view.counts).into());
        }
        all.push(took);
        call(&old)?;
    }
    Ok(median(all))
}
