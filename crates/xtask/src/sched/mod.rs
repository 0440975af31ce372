//! `cargo xtask sched`: how good the order of jobs is. The real engine is driven by an event queue;
//! no process runs and no clock is waited for. See `docs/scheduling.md`.

mod bounds;
mod instances;
mod lists;
mod luck;
mod real;
mod report;

use crate::Result;
use instances::Instance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use torc_engine::{FamilyTime, JobIx, Limits, NewJob, Simulated, SimulatedMachine, Workflow};
use torc_model::api::Capacity;
use torc_model::chance::Rng;
use torc_model::ids::{JobId, RunnerId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::status::DispatchOrder;

/// Traces with fewer jobs say nothing about an order.
const LEAST_JOBS: usize = 20;

/// Every so many traces is scheduled with several resources: these take longest.
const EVERY: usize = 4;

/// Measure how good the order of jobs is, with the real engine and simulated time
#[derive(clap::Args)]
pub struct Args {
    /// Directory with traces in WfFormat 1.5 and graphs of estee in `DIR/estee`
    /// (`scripts/sched-instances DIR` fetches them); without it only the workflows made here are
    /// scheduled
    #[arg(long, value_name = "DIR")]
    instances: Option<PathBuf>,

    /// Also run 200 jobs of a trace with this program and compare with its own prediction
    #[arg(long, value_name = "TORC")]
    real: Option<PathBuf>,

    /// Write the results to docs/scheduling.md, docs/scheduling.json and docs/scheduling.svg
    #[arg(long)]
    publish: bool,
}

/// What is known of the jobs' times before they run.
#[derive(Clone, Copy, PartialEq, Debug)]
enum KnownTimes {
    None,
    /// The median of each family.
    Family,
    /// Each job's time, off by up to this share.
    Own(f64),
    /// Each job's time, for one in twenty off by ten times.
    Wrong,
}

/// How one scheduler did on one table: the ratio of its makespan to the reference, by instance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Row {
    name: String,
    ratios: Vec<f64>,
}

/// Some instances on some machines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SchedTable {
    /// What the ratios are to.
    title: String,
    rows: Vec<Row>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SchedResults {
    instances: usize,
    tables: Vec<SchedTable>,
    /// Single figures, by what they are.
    figures: BTreeMap<String, f64>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self) -> Result<()> {
        let root = crate::root()?;
        let traces = match &self.instances {
            Some(directory) => instances::read(directory, LEAST_JOBS)?,
            None => Vec::new(),
        };
        let graphs = match self.instances.as_ref().map(|directory| directory.join("estee")) {
            Some(directory) if directory.is_dir() => instances::read(&directory, LEAST_JOBS)?,
            _ => Vec::new(),
        };
        let instances = traces.len() + graphs.len();
        let mut results = SchedResults { instances, ..SchedResults::default() };
        let begun = Instant::now();
        for cpus in [8, 32] {
            let mut both = Vec::new();
            for (what, set) in [("", &traces), (", estee's graphs", &graphs)] {
                if !set.is_empty() {
                    let table = single(set, cpus, what);
                    both.extend(table.gains());
                    luck::measure(cpus, set, &table, &mut results.figures);
                    results.tables.push(table);
                }
            }
            first_runs(cpus, &both, &mut results.figures);
        }
        eprintln!("one CPU per job: {:.1} s", begun.elapsed().as_secs_f64());
        let some: Vec<Instance> = traces
            .iter()
            .step_by(EVERY)
            .flat_map(|trace| [trace.with_needs(1), trace.with_needs(2)])
            .collect();
        for (nodes, cpus) in [(1, 2), (1, 16), (2, 16), (4, 16), (8, 16), (16, 64)] {
            if !some.is_empty() {
                results.tables.push(several(&some, nodes, cpus, &mut results.figures));
                eprintln!("{nodes} x {cpus}: {:.1} s", begun.elapsed().as_secs_f64());
            }
        }
        if !traces.is_empty() {
            let some: Vec<Instance> =
                traces.iter().step_by(EVERY).map(|trace| trace.with_gpus(3)).collect();
            results.tables.push(with_gpus(&some));
            let some: Vec<Instance> = traces.iter().step_by(EVERY).cloned().collect();
            results.tables.push(with_allocations(&some));
        }
        results.tables.push(made());
        large(&mut results.figures);
        if let Some(torc) = &self.real {
            let trace = traces.iter().find(|trace| (200..300).contains(&trace.tasks.len()));
            let trace = trace.cloned().unwrap_or_else(|| instances::made().remove(0));
            real::run(torc, &trace, &mut results.figures)?;
        }
        println!("{}", report::text(&results));
        let kept = root.join("docs/scheduling.json");
        if let Ok(text) = std::fs::read_to_string(&kept) {
            report::compare(&serde_json::from_str(&text)?, &results);
        }
        if self.publish {
            std::fs::write(&kept, serde_json::to_string(&results)? + "\n")?;
            std::fs::write(root.join("docs/scheduling.svg"), report::svg(&results))?;
            let page = root.join("docs/scheduling.md");
            let text = std::fs::read_to_string(&page)?;
            std::fs::write(&page, report::insert(&text, &report::text(&results))?)?;
        }
        Ok(())
    }
}

fn node(cpus: i64) -> Capacity {
    Capacity { num_cpus: cpus, memory_bytes: cpus * (4 << 30), num_nodes: 1, ..Capacity::default() }
}

fn machines(nodes: &[Capacity]) -> Vec<SimulatedMachine> {
    let numbered = nodes.iter().enumerate();
    numbered
        .map(|(i, node)| SimulatedMachine::new(RunnerId(i as i64 + 1), node.clone(), 0))
        .collect()
}

/// The engine with a workflow, as the server makes it.
fn workflow(instance: &Instance, knowledge: KnownTimes, order: DispatchOrder) -> Workflow {
    let settings = Settings { order, ..Settings::default() };
    let mut workflow = Workflow::new(WorkflowId(1), settings, Vec::new());
    let mut rng = Rng::new(99);
    let mut unit = || (rng.word() >> 11) as f64 / (1u64 << 53) as f64;
    for (index, task) in instance.tasks.iter().enumerate() {
        let exact = f64::from(task.ms);
        let own_ms = match knowledge {
            KnownTimes::None | KnownTimes::Family => None,
            KnownTimes::Own(noise) => Some(exact * (1.0 + noise * (2.0 * unit() - 1.0))),
            KnownTimes::Wrong => Some(match unit() {
                few if few < 0.025 => exact * 10.0,
                few if few < 0.05 => exact / 10.0,
                _ => exact,
            }),
        };
        workflow.add_job(NewJob {
            id: JobId(index as i64 + 1),
            priority: 0,
            position: index as i64,
            family: task.family,
            own_ms: own_ms.map(|ms| (ms.round() as u32).max(1)),
            class: task.class.clone(),
            handler: None,
            cancel_on_failure: true,
            max_lost: 0,
            parents: task.parents.iter().map(|at| JobIx::new(*at as usize)).collect(),
        });
    }
    if knowledge == KnownTimes::Family {
        let mut times = vec![Vec::new(); instance.families()];
        instance.tasks.iter().for_each(|task| times[task.family as usize].push(task.ms));
        let median = |times: &mut Vec<u32>| {
            times.sort_unstable();
            FamilyTime { ms: times[times.len() / 2], run: -1 }
        };
        workflow.restore_times(None, times.iter_mut().map(median).collect());
    }
    workflow.settle();
    workflow.initialize_unstored(0);
    workflow
}

fn engine(
    instance: &Instance,
    machines: &[SimulatedMachine],
    knowledge: KnownTimes,
    order: DispatchOrder,
) -> Simulated {
    let mut workflow = workflow(instance, knowledge, order);
    let took = |index: JobIx| i64::from(instance.tasks[index.at()].ms);
    workflow.simulate(machines, &mut Limits::new(), 0, took)
}

fn torc(instance: &Instance, machines: &[SimulatedMachine], knowledge: KnownTimes) -> f64 {
    engine(instance, machines, knowledge, DispatchOrder::CriticalPath).end as f64
}

const KNOWLEDGE: [(&str, KnownTimes); 6] = [
    ("Torc, first run", KnownTimes::None),
    ("Torc, families known", KnownTimes::Family),
    ("Torc, each job known", KnownTimes::Own(0.0)),
    ("Torc, each job known to 10%", KnownTimes::Own(0.1)),
    ("Torc, each job known to 30%", KnownTimes::Own(0.3)),
    ("Torc, one in twenty wrong by 10 x", KnownTimes::Wrong),
];

/// Runs every scheduler on an instance; answers with names and makespans.
fn everyone(instance: &Instance, nodes: &[Capacity]) -> Vec<(&'static str, f64)> {
    let exact = lists::levels(instance, &|index| f64::from(instance.tasks[index].ms));
    let by = |levels: &[f64]| levels.iter().map(|level| -level).collect::<Vec<f64>>();
    let submitted: Vec<f64> = (0..instance.tasks.len()).map(|index| index as f64).collect();
    let mut rng = Rng::new(5);
    let random: Vec<f64> = submitted.iter().map(|_| rng.below(1 << 40) as f64).collect();
    let hops = lists::levels(instance, &|_| 1.0);
    let machines = machines(nodes);
    let mut all = vec![
        ("submission order, first fit (before)", lists::first_fit(instance, nodes, &submitted)),
        ("random order, first fit", lists::first_fit(instance, nodes, &random)),
        ("level in hops, first fit", lists::first_fit(instance, nodes, &by(&hops))),
    ];
    all.extend(KNOWLEDGE.map(|(name, knowledge)| (name, torc(instance, &machines, knowledge))));
    all.push(("level with exact times, first fit", lists::first_fit(instance, nodes, &by(&exact))));
    all.push(("level with exact times, best fit", lists::best_fit(instance, nodes, &by(&exact))));
    all.push(("HEFT-like with exact times", lists::heft(instance, nodes, &exact)));
    all.push(("best of 40 perturbed orders", lists::best_perturbed(instance, nodes, &exact, 40)));
    all
}

fn table(title: String, all: Vec<(Vec<(&'static str, f64)>, f64)>) -> SchedTable {
    let names: Vec<&str> =
        all.first().map_or_else(Vec::new, |(rows, _)| rows.iter().map(|(name, _)| *name).collect());
    let row = |(at, name): (usize, &&str)| Row {
        name: (*name).to_owned(),
        ratios: all.iter().map(|(rows, reference)| rows[at].1 / reference).collect(),
    };
    SchedTable { title, rows: names.iter().enumerate().map(row).collect() }
}

fn single(traces: &[Instance], cpus: i64, what: &str) -> SchedTable {
    let nodes = [node(cpus)];
    let all: Vec<_> = traces
        .iter()
        .map(|trace| (everyone(trace, &nodes), bounds::bound(trace, &nodes)))
        .collect();
    table(format!("{cpus} CPUs, one per job{what}: makespan / bound"), all)
}

/// How the first run of each instance compares with the rule before: its ratio to the bound by that
/// rule, and by this scheduler; also of two halves, to tell whether a gain is that of a few
/// instances.
fn first_runs(cpus: i64, pairs: &[(f64, f64)], figures: &mut BTreeMap<String, f64>) {
    let mean = |pairs: &mut dyn Iterator<Item = &(f64, f64)>| {
        let (before, first) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        first / before
    };
    if pairs.is_empty() {
        return;
    }
    let mut tell = |what: &str, value| figures.insert(format!("{cpus} CPUs: {what}"), value);
    tell("first run / before, mean", mean(&mut pairs.iter()));
    tell("first run / before, mean of every second instance", mean(&mut pairs.iter().step_by(2)));
    tell("first run / before, mean of the others", mean(&mut pairs.iter().skip(1).step_by(2)));
    let worse = pairs.iter().map(|(before, first)| first / before);
    tell("first run / before, worst instance", worse.clone().fold(0.0, f64::max));
    tell("first run more than 2% worse, instances", worse.filter(|r| *r > 1.02).count() as f64);
}

fn several(
    some: &[Instance],
    count: usize,
    cpus: i64,
    figures: &mut BTreeMap<String, f64>,
) -> SchedTable {
    let nodes = vec![node(cpus); count];
    // Wide is what takes half of a plain node, or all of a small one.
    let wide = 8.min(cpus);
    let mut idle = 0.0;
    let mut wait = 0.0f64;
    let all: Vec<_> = some
        .iter()
        .map(|instance| {
            let instance = &instance.cut_to(&nodes[0]);
            let rows = everyone(instance, &nodes);
            let best = rows.iter().map(|(_, end)| *end).fold(f64::INFINITY, f64::min);
            let done = engine(
                instance,
                &machines(&nodes),
                KnownTimes::Own(0.1),
                DispatchOrder::CriticalPath,
            );
            let all_ms = done.end as f64 * (cpus * count as i64) as f64;
            idle += (all_ms - done.cpu_ms) / 3.6e6;
            wait = wait.max(widest_wait(instance, &done, wide) / 1000.0);
            (rows, best)
        })
        .collect();
    figures.insert(format!("{count} x {cpus}: CPU hours idle, all instances"), idle);
    figures
        .insert(format!("{count} x {cpus}: longest wait of a job of {wide} CPUs or more, s"), wait);
    table(format!("{count} x {cpus} CPUs, CPUs and memory by family: makespan / best known"), all)
}

/// How long the wide job that waited longest was ready before it started.
fn widest_wait(instance: &Instance, done: &Simulated, wide: i64) -> f64 {
    let mut start = vec![0i64; instance.tasks.len()];
    done.starts.iter().for_each(|(index, at)| start[index.at()] = *at);
    let end = |index: u32| start[index as usize] + i64::from(instance.tasks[index as usize].ms);
    let ready = |index: usize| {
        instance.tasks[index].parents.iter().map(|parent| end(*parent)).max().unwrap_or(0)
    };
    let wide =
        (0..start.len()).filter(|index| i64::from(instance.tasks[*index].class.cpus) >= wide);
    wide.map(|index| (start[index] - ready(index)) as f64).fold(0.0, f64::max)
}

/// Two nodes with four GPUs each among four plain ones.
fn with_gpus(some: &[Instance]) -> SchedTable {
    let mut nodes = vec![Capacity { num_gpus: 4, ..node(16) }; 2];
    nodes.extend(vec![node(16); 4]);
    let all = some
        .iter()
        .map(|instance| {
            let rows = everyone(instance, &nodes);
            let best = rows.iter().map(|(_, end)| *end).fold(f64::INFINITY, f64::min);
            (rows, best)
        })
        .collect();
    table("2 x 16 CPUs with 4 GPUs and 4 x 16 without: makespan / best known".into(), all)
}

/// Nodes that come late and leave: the time is up before all work is done.
fn with_allocations(some: &[Instance]) -> SchedTable {
    let all = some
        .iter()
        .map(|instance| {
            let bound = bounds::bound(instance, &vec![node(16); 4]) as i64;
            let longest = instance.tasks.iter().map(|task| i64::from(task.ms)).max().unwrap_or(1);
            let step = (bound / 2).max(longest * 2).max(10_000);
            // Two at a time, each for two steps; enough of them for everything.
            let machines: Vec<SimulatedMachine> = (0..40i64)
                .map(|number| SimulatedMachine {
                    from: number / 2 * step,
                    until: Some((number / 2 + 2) * step),
                    ..SimulatedMachine::new(RunnerId(number + 1), node(16), 0)
                })
                .collect();
            let run = |knowledge, order| engine(instance, &machines, knowledge, order).end as f64;
            let before = run(KnownTimes::None, DispatchOrder::Submission);
            let rows = vec![
                ("submission order", before),
                ("Torc, first run", run(KnownTimes::None, DispatchOrder::CriticalPath)),
                (
                    "Torc, each job known to 10%",
                    run(KnownTimes::Own(0.1), DispatchOrder::CriticalPath),
                ),
            ];
            (rows, before)
        })
        .collect();
    table("nodes of 16 CPUs that come and leave: makespan / submission order".into(), all)
}

fn made() -> SchedTable {
    let nodes = [node(16)];
    let all = instances::made()
        .iter()
        .map(|instance| (everyone(instance, &nodes), bounds::bound(instance, &nodes)))
        .collect();
    table("16 CPUs, workflows made here: makespan / bound".into(), all)
}

fn large(figures: &mut BTreeMap<String, f64>) {
    for jobs in [10_000, 100_000] {
        let instance = instances::large(jobs);
        let nodes = vec![node(64); 16];
        let begun = cpu_seconds();
        let done =
            engine(&instance, &machines(&nodes), KnownTimes::Own(0.1), DispatchOrder::CriticalPath);
        let seconds = cpu_seconds() - begun;
        assert_eq!(done.left, 0, "every job has ended");
        figures.insert(format!("{jobs} jobs on 16 x 64 CPUs: seconds of CPU to simulate"), seconds);
        figures.insert(
            format!("{jobs} jobs on 16 x 64 CPUs: jobs given out per second"),
            done.claimed as f64 / seconds,
        );
    }
    // What a forecast of a large workflow costs: the first is done on the server's writer thread.
    let instance = instances::large(1_000_000);
    let workflow = workflow(&instance, KnownTimes::Own(0.1), DispatchOrder::CriticalPath);
    let machines = machines(&vec![node(64); 16]);
    let mut tell = |what: &str, begun: f64| {
        let ms = (cpu_seconds() - begun) * 1000.0;
        figures.insert(format!("forecast of 1000000 jobs: ms of CPU to {what}"), ms);
    };
    let begun = cpu_seconds();
    let copy = workflow.clone();
    tell("copy the engine (not done)", begun);
    drop(copy);
    let begun = cpu_seconds();
    let rest = workflow.rest(0);
    tell("take what is left, on the writer's thread", begun);
    let begun = cpu_seconds();
    let forecast = rest.forecast(&machines, 0);
    tell("make it of that, elsewhere", begun);
    assert_eq!(forecast.jobs, 1_000_000);
}

/// What this thread has used: the clock on the wall would measure its neighbours.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl SchedTable {
    /// The rule before and a first run, by instance.
    fn gains(&self) -> Vec<(f64, f64)> {
        let before = self.row("submission order, first fit (before)").ratios;
        before.into_iter().zip(self.row("Torc, first run").ratios).collect()
    }

    fn row(&self, name: &str) -> Row {
        self.rows.iter().find(|row| row.name == name).cloned().unwrap_or_default()
    }
}

impl Row {
    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / self.ratios.len().max(1) as f64
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.ratios.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn quantile(&self, share: f64) -> f64 {
        let sorted = self.sorted();
        let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The share of instances within 5% of the reference.
    fn close(&self) -> f64 {
        let close = self.ratios.iter().filter(|ratio| **ratio <= 1.05).count();
        close as f64 / self.ratios.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scheduler_beats_the_bound_and_every_job_runs() {
        for instance in instances::made() {
            let nodes = [node(16)];
            let bound = bounds::bound(&instance, &nodes);
            for (name, end) in everyone(&instance, &nodes) {
                assert!(end >= bound * 0.999, "{name} on {}: {end} < {bound}", instance.name);
            }
            let done =
                engine(&instance, &machines(&nodes), KnownTimes::None, DispatchOrder::CriticalPath);
            assert_eq!((done.left, done.claimed), (0, instance.tasks.len() as u64));
        }
    }

    #[test]
    fn knowing_each_job_is_no_worse_than_submission_order_on_chains_beside_short_jobs() {
        let chains = &instances::made()[0];
        let rows: BTreeMap<_, _> = everyone(chains, &[node(16)]).into_iter().collect();
        let before = rows["submission order, first fit (before)"];
        assert!(rows["Torc, each job known to 10%"] < before * 0.95, "{rows:?}");
    }
}
