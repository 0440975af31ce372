//! How long it takes from a job's start to the start of the one that waits for it.

use super::super::machine::Busy;
use super::super::report::Figure;
use super::super::{Bench, limit, median, percentile, specs};
use crate::Result;
use std::path::{Path, PathBuf};

/// On an idle machine.
pub fn idle(bench: &Bench) -> Result<Vec<Figure>> {
    measure(bench, false, apart)
}

/// On a machine that has no processor to spare.
pub fn busy(bench: &Bench) -> Result<Vec<Figure>> {
    measure(bench, true, apart)
}

/// By one process, on an idle machine.
pub fn run_idle(bench: &Bench) -> Result<Vec<Figure>> {
    measure(bench, false, in_one)
}

/// By one process, on a machine that has no processor to spare.
pub fn run_busy(bench: &Bench) -> Result<Vec<Figure>> {
    measure(bench, true, in_one)
}

/// A chain that is ready to be run.
type Chain<'a> = Box<dyn FnOnce() -> Result<FinishedChain> + 'a>;

/// A chain that was run: where its jobs wrote, and the CPU time of server and runner per job.
struct FinishedChain {
    dir: PathBuf,
    cpu_ms: f64,
}

/// By a server and a runner.
fn apart(bench: &Bench, jobs: usize) -> Result<Chain<'_>> {
    let server = bench.arena.server()?;
    let created = server.create(specs::chain(jobs))?;
    Ok(Box::new(move || {
        let run = server.run(created.id, jobs)?;
        Ok(FinishedChain { dir: server.dir.clone(), cpu_ms: run.server_ms() + run.runner_ms() })
    }))
}

/// By `torc run`.
fn in_one(bench: &Bench, jobs: usize) -> Result<Chain<'_>> {
    let dir = bench.arena.workflow(&specs::chain(jobs))?;
    Ok(Box::new(move || {
        let finished = bench.arena.run(&dir)?;
        Ok(FinishedChain { dir, cpu_ms: finished.usage.cpu.as_secs_f64() * 1e3 / jobs as f64 })
    }))
}

fn measure<'a>(
    bench: &'a Bench,
    is_busy: bool,
    prepare: impl Fn(&'a Bench, usize) -> Result<Chain<'a>>,
) -> Result<Vec<Figure>> {
    let jobs = bench.scale(1_000);
    let (mut bare, mut bare_tail) = (Vec::new(), Vec::new());
    let (mut middle, mut tail, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let chain = prepare(bench, jobs)?;
        let load = is_busy.then(Busy::start);
        let dir = bench.arena.fresh()?;
        limit::run(&dir, specs::TELL_TIME, jobs, 1)?;
        let alone = hops(starts(&dir)?);
        bare.push(median(alone.clone()));
        bare_tail.push(percentile(alone, 0.99));
        let done = chain()?;
        drop(load);
        let hops = hops(starts(&done.dir.join("output/job_stdio"))?);
        if hops.len() + 1 != jobs {
            return Err(format!("{} of {jobs} jobs told when they started", hops.len() + 1).into());
        }
        middle.push(median(hops.clone()));
        tail.push(percentile(hops, 0.99));
        cpu.push(done.cpu_ms);
    }
    let middle = Figure::new("hop, median", median(middle), "ms");
    Ok(vec![
        Figure::new("hop of a bare loop, median", median(bare), "ms"),
        Figure::new("hop of a bare loop, 99 of 100 below", median(bare_tail), "ms"),
        if is_busy { middle } else { middle.at_most(3.0) },
        Figure::new("hop, 99 of 100 below", median(tail), "ms").at_most(10.0),
        Figure::new("CPU of server and runner per job", median(cpu), "ms"),
    ])
}

/// When each job started, in ms, from what it printed.
fn starts(dir: &Path) -> Result<Vec<f64>> {
    let mut starts = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "o") {
            // The fraction is set off by a point or a comma, as the locale has it.
            let text = std::fs::read_to_string(&path)?.trim().replace(',', ".");
            starts.push(
                text.parse::<f64>().map_err(|e| format!("`{}`: `{text}`: {e}", path.display()))?
                    * 1e3,
            );
        }
    }
    starts.sort_by(f64::total_cmp);
    Ok(starts)
}

fn hops(starts: Vec<f64>) -> Vec<f64> {
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}
