//! Large workflows, and the server by itself.

use super::super::machine::{self, WatchedProcess};
use super::super::report::Figure;
use super::super::world::Server;
use super::super::{Bench, limit, median, simulated, specs};
use crate::Result;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Writes the spec into a file and creates it by the command line.
fn create_from_file(server: &Server<'_>, spec: &Value) -> Result<machine::Finished> {
    std::fs::write(server.dir.join("spec.json"), serde_json::to_vec(spec)?)?;
    let finished =
        WatchedProcess::start(&mut server.command(&["-q", "create", "--initialize", "spec.json"]))?
            .finish()?;
    if finished.status.success() {
        Ok(finished)
    } else {
        Err(format!("create: {}", finished.status).into())
    }
}

fn created(bench: &Bench, spec: &Value, seconds: f64) -> Result<Vec<Figure>> {
    let (mut walls, mut server_cpu, mut client_cpu, mut peaks, mut sizes) =
        (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..bench.rounds {
        let server = bench.arena.server()?;
        let before = server.usage();
        let finished = create_from_file(&server, spec)?;
        let used = server.usage();
        walls.push(finished.wall.as_secs_f64());
        server_cpu.push(used.since(before).cpu.as_secs_f64());
        client_cpu.push(finished.usage.cpu.as_secs_f64());
        peaks.push((used.peak_bytes + finished.usage.peak_bytes) as f64 / 1e6);
        sizes.push(server.database_bytes() as f64 / 1e6);
    }
    Ok(vec![
        Figure::new("time", median(walls), "s").at_most(seconds),
        Figure::new("CPU of the server", median(server_cpu), "s"),
        Figure::new("CPU of the command", median(client_cpu), "s"),
        Figure::new("peak memory of server and command", median(peaks), "MB"),
        Figure::new("database", median(sizes), "MB"),
    ])
}

/// 100,000 jobs with 200,000 dependencies.
pub fn create(bench: &Bench) -> Result<Vec<Figure>> {
    created(bench, &specs::two_parents(bench.scale(100_000)), 3.0)
}

/// A million jobs; once, because it takes long.
pub fn million(bench: &Bench) -> Result<Vec<Figure>> {
    let spec = specs::flat(bench.scale(1_000_000), "true");
    let server = bench.arena.server()?;
    let finished = create_from_file(&server, &spec)?;
    let memory = (server.usage().peak_bytes + finished.usage.peak_bytes) as f64 / 1e6;
    Ok(vec![
        Figure::new("time", finished.wall.as_secs_f64(), "s").at_most(30.0),
        Figure::new("peak memory of server and command", memory, "MB").at_most(1000.0),
        Figure::new("of it the server's", server.usage().peak_bytes as f64 / 1e6, "MB"),
        Figure::new("database", server.database_bytes() as f64 / 1e6, "MB"),
    ])
}

/// The server alone.
pub fn server(bench: &Bench) -> Result<Vec<Figure>> {
    const RUNNERS: usize = 50;
    const SLOTS: i64 = 8;
    let jobs = bench.scale(50_000);
    let (mut rates, mut cpu, mut written, mut tails) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let server = bench.arena.server()?;
        let created = server.create(specs::flat(jobs, "true"))?;
        let before = server.usage();
        let driven =
            simulated::drive(&bench.arena.runtime, &server.client, created.id, RUNNERS, SLOTS)?;
        let used = server.usage().since(before);
        if driven.ended != jobs {
            return Err(format!("{} of {jobs} jobs ended", driven.ended).into());
        }
        rates.push(jobs as f64 / driven.wall.as_secs_f64());
        cpu.push(used.cpu.as_secs_f64() * 1e3 / jobs as f64);
        written.push(used.written_bytes as f64 / jobs as f64);
        tails.push(super::super::percentile(driven.answers, 0.99));
    }
    Ok(vec![
        Figure::new("claim, start and end", median(rates), "cycles/s").at_least(10_000.0),
        Figure::new("CPU of the server per job", median(cpu), "ms"),
        Figure::new("written per job", median(written), "bytes"),
        Figure::new("answer, 99 of 100 below", median(tails), "ms"),
    ])
}

/// From the start of the server to the answer to a claim.
pub fn restart(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(100_000);
    let running = jobs / 100;
    let (mut walls, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let server = bench.arena.server()?;
        let created = server.create(specs::flat(jobs, "true"))?;
        bench.arena.runtime.block_on(simulated::hold(&server.client, created.id, running))?;
        let dir = server.kill()?;
        let begun = Instant::now();
        let server = Server::start(&bench.arena, dir)?;
        let held = bench.arena.runtime.block_on(simulated::hold(&server.client, created.id, 1))?;
        walls.push(begun.elapsed().as_secs_f64());
        let status = server.status(created.id)?;
        let running_now = status.counts.get("running").copied().unwrap_or(0);
        if held != 1 || running_now != running as i64 + 1 {
            return Err(
                format!("after the restart {running_now} jobs run, not {}", running + 1).into()
            );
        }
        memory.push(machine::resident(server.pid()) as f64 / 1e6);
    }
    Ok(vec![
        Figure::new("first claim answered after", median(walls), "s").at_most(1.0),
        Figure::new("memory of the server", median(memory), "MB").at_most(150.0),
    ])
}

/// Memory with little to do.
pub fn idle(bench: &Bench) -> Result<Vec<Figure>> {
    let server = bench.arena.server()?;
    let empty = machine::resident(server.pid());
    let created = server.create(specs::flat(1, "echo started; read -r line < hold"))?;
    let made = std::process::Command::new("mkfifo").arg(server.dir.join("hold")).status()?;
    if !made.success() {
        return Err(format!("mkfifo: {made}").into());
    }
    let runner = server.runner(created.id)?;
    let begun = Instant::now();
    while server.status(created.id)?.counts.get("running") != Some(&1) {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("the job does not start".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let waiting = machine::resident(runner.pid());
    std::fs::write(server.dir.join("hold"), "go\n")?;
    let status = runner.finish()?.status;
    if !status.success() {
        return Err(format!("the runner ended with {status}").into());
    }
    Ok(vec![
        Figure::new("runner with one quiet job", waiting as f64 / 1e6, "MB").at_most(30.0),
        Figure::new("server without workflows", empty as f64 / 1e6, "MB"),
        Figure::new(
            "bare loop: shells per second, one at a time",
            {
                let count = bench.scale(1_000);
                count as f64 / limit::run(&bench.arena.fresh()?, "true", count, 1)?.as_secs_f64()
            },
            "",
        ),
    ])
}
