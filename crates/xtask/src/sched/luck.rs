//! Whether a first run that is worse than submission order could have been told from the start.
//! Before a first run only the graph is known, not the times. So the graphs of the instances that
//! are worse get other times, at random: an order that is bad for the graph stays bad, one that was
//! unlucky with the times of the trace does not.

use super::instances::Instance;
use super::{DispatchOrder, KnownTimes, Row, SchedTable, engine, lists, machines, node};
use std::collections::BTreeMap;
use torc_model::chance::Rng;

/// How often the times are drawn.
const DRAWS: u64 = 100;

/// Times of families, and of the jobs of one, as deviations of the logarithm: most families are
/// within a factor of three of the middle, most jobs within a third of their family.
const FAMILY_SPREAD: f64 = 1.0;
const JOB_SPREAD: f64 = 0.3;

/// More than this is worse, as the target says.
const WORSE: f64 = 1.02;

/// Adds what becomes of the instances of a table whose first run is worse than submission order.
pub fn measure(
    cpus: i64,
    set: &[Instance],
    table: &SchedTable,
    figures: &mut BTreeMap<String, f64>,
) {
    let exact = table.row("level with exact times, first fit");
    let before = table.row("submission order, first fit (before)");
    *figures
        .entry(format!("{cpus} CPUs: level with exact times more than 2% worse, instances"))
        .or_default() += worse(&before, &exact).len() as f64;
    for at in worse(&before, &table.row("Torc, first run")) {
        let instance = &set[at];
        let (mean, share) = redrawn(instance, cpus);
        let mut tell = |what: &str, value| {
            figures.insert(format!("{cpus} CPUs: `{}`, {what}", instance.name), value);
        };
        tell("worse in a first run; with other times, mean", mean);
        tell("worse in a first run; with other times, share more than 2% worse", share);
    }
}

fn worse(before: &Row, after: &Row) -> Vec<usize> {
    let pairs = before.ratios.iter().zip(&after.ratios).enumerate();
    pairs.filter(|(_, (before, after))| *after / *before > WORSE).map(|(at, _)| at).collect()
}

/// First run against submission order on the graph with times at random: the geometric mean of the
/// ratios, and in which share of the draws it is more than 2% worse.
fn redrawn(instance: &Instance, cpus: i64) -> (f64, f64) {
    let nodes = [node(cpus)];
    let machines = machines(&nodes);
    let submitted: Vec<f64> = (0..instance.tasks.len()).map(|index| index as f64).collect();
    let ratios: Vec<f64> = (0..DRAWS)
        .map(|seed| {
            let drawn = with_times(instance, seed);
            let first = engine(&drawn, &machines, KnownTimes::None, DispatchOrder::CriticalPath);
            first.end as f64 / lists::first_fit(&drawn, &nodes, &submitted)
        })
        .collect();
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / DRAWS as f64;
    let worse = ratios.iter().filter(|ratio| **ratio > WORSE).count();
    (mean.exp(), worse as f64 / DRAWS as f64)
}

/// The same graph with log-normal times, alike within a family.
fn with_times(instance: &Instance, seed: u64) -> Instance {
    let mut rng = Rng::new(seed + 1);
    let mut unit = || ((rng.word() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    // Box and Muller.
    let mut normal = || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
    let families: Vec<f64> =
        (0..instance.families()).map(|_| (FAMILY_SPREAD * normal()).exp()).collect();
    let mut other = instance.clone();
    for task in &mut other.tasks {
        let ms = 10_000.0 * families[task.family as usize] * (JOB_SPREAD * normal()).exp();
        task.ms = (ms as u32).max(1);
    }
    other
}
