//! The rows of the benchmark, each a function that measures and answers with figures.

mod chain;
mod grow;
mod queries;
mod size;
mod throughput;

use super::report::Figure;
use super::{Bench, peers};
use crate::Result;

/// One row.
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// Does it.
    pub measure: fn(&Bench) -> Result<Vec<Figure>>,
}

/// All rows, in the order in which they are measured.
pub fn all() -> Vec<Entry> {
    let row = |name, about, measure| Entry { name, about, measure };
    vec![
        row(
            "flat-1k",
            "1,000 independent jobs `true`, one runner, as many at once as processors",
            throughput::flat_1k,
        ),
        row("flat-10k", "10,000 independent jobs `true`", throughput::flat_10k),
        row(
            "direct",
            "10,000 independent jobs `/bin/true`, for which no shell is started",
            throughput::direct,
        ),
        row("flat-100k", "100,000 independent jobs `true`", throughput::flat_100k),
        row(
            "chain",
            "1,000 jobs, each after the one before; a hop is from start to start",
            chain::idle,
        ),
        row(
            "chain-busy",
            "the same while one thread per processor computes without a pause",
            chain::busy,
        ),
        row(
            "run-flat",
            "10,000 independent jobs `true` by `torc run`: server and runner are one process",
            throughput::run_flat,
        ),
        row("run-chain", "the chain by `torc run`", chain::run_idle),
        row(
            "run-chain-busy",
            "the same while one thread per processor computes without a pause",
            chain::run_busy,
        ),
        row("fan", "one job, then 5,000, then one", throughput::fan),
        row(
            "layers",
            "100 layers of 100 jobs, each after all of the layer before",
            throughput::layers,
        ),
        row("history", "10,000 jobs, ten times in one database", throughput::history),
        row(
            "status-load",
            "40,000 jobs; in stretches of a second 1,000 requests for the status, at random moments or on an even beat",
            throughput::status_load,
        ),
        row(
            "pages",
            "100,000 jobs; in stretches of five seconds five open pages (overview, jobs, failures, timeline, graph)",
            throughput::open_pages,
        ),
        row(
            "create",
            "`torc create --initialize` of 100,000 jobs with 200,000 dependencies, from a file",
            size::create,
        ),
        row(
            "million",
            "`torc create --initialize` of 1,000,000 independent jobs, from a file",
            size::million,
        ),
        row(
            "server",
            "the server alone: 50 simulated runners with 8 jobs each that start no processes",
            size::server,
        ),
        row(
            "restart",
            "the server is killed with 100,000 jobs, 1,000 of them running, and started again",
            size::restart,
        ),
        row("idle", "memory of a server and a runner with little to do", size::idle),
        row(
            "queries",
            "a workflow of 100,000 jobs, half of them done: what people ask",
            queries::latency,
        ),
        row(
            "grow",
            "100,000 jobs with files that have run: the same command again, and a spec with ten jobs more",
            grow::measure,
        ),
        row("program", "the program itself: start-up and size", queries::program),
        row(
            "peers",
            "10,000 jobs `true` with other programs, where they are installed",
            peers::measure,
        ),
    ]
}
