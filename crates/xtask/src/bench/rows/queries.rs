//! What people ask, and the program itself.

use super::super::report::Figure;
use super::super::{Bench, machine, median, percentile, simulated, specs};
use crate::Result;
use std::process::{Command, Stdio};
use std::time::Instant;

const REPEATS: usize = 31;

/// Answers about a large workflow, by the command line and by the API.
pub fn latency(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(100_000);
    let server = bench.arena.server()?;
    let created = server.create(specs::flat(jobs, "true"))?;
    let id = created.id.to_string();
    let runtime = &bench.arena.runtime;
    runtime.block_on(simulated::finish(&server.client, created.id, jobs / 2))?;
    let first = format!("/jobs?workflow_id={id}&limit=1&name=j{}", jobs / 2 + 1);
    let page: serde_json::Value = runtime.block_on(server.client.get(&first))?;
    let job = page["items"][0]["id"].as_i64().ok_or("the job is not there")?.to_string();
    let mut figures = Vec::new();
    let commands: [(&str, &[&str]); 3] = [
        ("torc status", &["status", &id]),
        ("torc jobs list --limit 50", &["jobs", "list", &id, "--limit", "50"]),
        ("torc why", &["why", &job]),
    ];
    for (name, args) in commands {
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            let mut command = server.command(args);
            let begun = Instant::now();
            let output = command.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            if !output.status.success() {
                return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into());
            }
        }
        figures.push(Figure::new(name, median(times), "ms").at_most(30.0));
    }
    let paths = [
        ("status", format!("/workflows/{id}/status")),
        ("is_complete", format!("/workflows/{id}/is_complete")),
        ("first 50 jobs", format!("/jobs?workflow_id={id}&limit=50")),
        ("first 50 completed jobs", format!("/jobs?workflow_id={id}&limit=50&status=completed")),
        (
            "last 50 by name",
            format!("/jobs?workflow_id={id}&limit=50&sort_by=name&reverse_sort=true"),
        ),
        ("one by name", format!("/jobs?workflow_id={id}&name=j{}", jobs / 2)),
        (
            "last 50 results",
            format!("/results?workflow_id={id}&limit=50&all_runs=true&reverse_sort=true"),
        ),
        ("last 50 events", format!("/workflows/{id}/events?limit=50&reverse_sort=true")),
        ("why", format!("/jobs/{job}/why")),
    ];
    for (name, path) in paths {
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            let begun = Instant::now();
            let _: serde_json::Value = runtime.block_on(server.client.get(&path))?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        figures.push(Figure::new(&format!("API: {name}"), median(times), "ms").at_most(30.0));
    }
    Ok(figures)
}

/// Start-up and size.
pub fn program(bench: &Bench) -> Result<Vec<Figure>> {
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let begun = Instant::now();
        let status = Command::new(&bench.arena.torc)
            .arg("--version")
            .env_clear()
            .envs(machine::environment())
            .stdout(Stdio::null())
            .status()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if !status.success() {
            return Err(format!("torc --version: {status}").into());
        }
    }
    let size = std::fs::metadata(&bench.arena.torc)?.len();
    Ok(vec![
        Figure::new("torc --version, median", median(times.clone()), "ms").at_most(10.0),
        Figure::new("torc --version, 90 of 100 below", percentile(times, 0.9), "ms"),
        Figure::new("size of the program", size as f64 / 1e6, "MB").at_most(30.0),
    ])
}
