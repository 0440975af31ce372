//! When a workflow will be over.

use super::*;
use torc_model::api::Capacity;

fn machine(id: i64, cpus: i64, from: i64) -> SimulatedMachine {
    SimulatedMachine::new(RunnerId(id), node(cpus), from)
}

/// Two layers and a chain, with what is known of each.
fn jobs() -> Vec<NewJob> {
    let known = |parents: &[usize], ms: u32| but(job(parents), |job| job.own_ms = Some(ms));
    vec![
        known(&[], 10_000),
        known(&[], 20_000),
        known(&[0], 5_000),
        but(known(&[0, 1], 40_000), |job| job.class.cpus = 2),
        but(job(&[3]), |job| job.class.runtime = Some(30)),
        but(known(&[], 8_000), |job| (job.class.gpus, job.class.memory) = (1, Some(1 << 30))),
        job(&[2]),
    ]
}

fn gpu(cpus: i64, gpus: i64, from: i64) -> SimulatedMachine {
    let capacity = Capacity { num_gpus: gpus, memory_bytes: 1 << 30, ..node(cpus) };
    SimulatedMachine::new(RunnerId(9), capacity, from)
}

#[test]
fn forecasts_of_a_small_workflow_are_exact() {
    let mut c = Chronicle::plain(jobs());
    c.flow.initialize(0);
    let limits = Limits::new();
    let machines = [
        ("one", vec![machine(1, 2, 0)]),
        ("with a GPU", vec![machine(1, 2, 0), gpu(1, 1, 0)]),
        ("with one that comes late", vec![machine(1, 2, 0), gpu(4, 1, 30_000)]),
        ("only late", vec![gpu(4, 1, 60_000)]),
        (
            "until",
            vec![SimulatedMachine { until: Some(25_000), ..gpu(4, 1, 0) }, machine(2, 4, 50_000)],
        ),
        ("none", Vec::new()),
        (
            "any number",
            vec![SimulatedMachine::new(
                RunnerId(1),
                Capacity { ignore_resources: true, ..Capacity::default() },
                0,
            )],
        ),
    ];
    let took: Vec<f64> = (0..7).map(|at| f64::from(c.flow.expected_ms(ix(at)))).collect();
    say!(c, format!("{took:?} {:?}", c.flow.heads_and_tails(&took)));
    for (name, machines) in &machines {
        say!(c, format!("-- {name}"));
        let limits = limits.clone();
        let done = c
            .flow
            .clone()
            .simulate(machines, &mut limits.clone(), 0, |index| took[index.at()] as i64);
        say!(c, format!("{done:?}"));
        say!(c, format!("{:?}", c.flow.bound(machines, &took, 0)));
        say!(c, format!("{:?}", c.flow.forecast(machines, &limits, 0)));
        say!(c, format!("{:?}", c.flow.rest(0).forecast(machines, 0)));
    }
    c.is(include_str!("forecasts.txt"));
}

#[test]
fn what_runs_and_what_has_ended_counts_for_what_it_is() {
    let mut c = Chronicle::plain(jobs());
    c.flow.initialize(0);
    c.now = 0;
    c.claim(1, 2);
    c.text.clear();
    let machines = [machine(1, 2, 0), gpu(1, 1, 0)];
    let limits = Limits::new();
    for now in [1_000, 8_000, 15_000] {
        say!(c, format!("{:?}", c.flow.forecast(&machines, &limits, now)));
        say!(c, format!("{:?}", c.flow.rest(now).forecast(&machines, now)));
    }
    c.now = 9_990;
    c.succeed(0, 10.0);
    say!(c, format!("{:?}", c.flow.forecast(&machines, &limits, 12_000)));
    say!(c, format!("{:?}", c.flow.rest(12_000).forecast(&machines, 12_000)));
    // A copy that has not begun, and one that is complete.
    let mut copy = c.flow.fresh_copy();
    copy.initialize(0);
    say!(c, format!("{:?}", copy.forecast(&machines, &limits, 0)));
    c.flow.disable(ix(5), c.now).expect("it waits");
    while !c.flow.is_complete() {
        for at in c.take(1, 2) {
            c.flow.started(ix(at), 1, c.now);
        }
        for at in 0..7 {
            if c.flow.job(ix(at)).held().is_some() {
                c.now += 1_000;
                c.flow.ended(ix(at), end(None, 0, c.now), &mut c.limits);
            }
        }
    }
    say!(c, format!("{:?}", c.flow.rest(c.now).forecast(&machines, c.now)));
    say!(c, format!("{:?}", c.flow.forecast(&machines, &limits, c.now)));
    let mut copy = c.flow.fresh_copy();
    copy.initialize(0);
    say!(c, format!("{:?} {:?}", copy.parents_of(ix(3)), copy.forecast(&machines, &limits, 0)));
    c.is(include_str!("forecasts_running.txt"));
}

/// Families whose times vary make the interval wide.
#[test]
fn the_interval_follows_from_what_is_known() {
    let mut c = Chronicle::plain((0..12).map(|_| job(&[])).collect());
    c.flow.initialize(0);
    let machines = [machine(1, 1, 0)];
    say!(c, format!("{:?}", c.flow.forecast(&machines, &Limits::new(), 0)));
    c.now = 0;
    c.take(1, 6);
    for (at, seconds) in [1.0, 1.0, 2.0, 2.0, 8.0, 8.0].into_iter().enumerate() {
        c.now += 500;
        c.flow.started(ix(at), 1, 0);
        c.succeed(at, seconds);
    }
    c.text = c
        .text
        .lines()
        .filter(|line| line.starts_with("Forecast"))
        .map(|l| format!("{l}\n"))
        .collect();
    say!(c, format!("{:?}", c.flow.forecast(&machines, &Limits::new(), c.now)));
    say!(c, format!("{:?}", c.flow.rest(c.now).forecast(&machines, c.now)));
    c.is(include_str!("forecasts_spread.txt"));
}
