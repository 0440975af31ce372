//! What a claim hands out, rule by rule of `docs/scheduling.md`.

use super::*;
use torc_model::api::Capacity;
use torc_model::attempt::Ending;
use torc_model::forecast::LimitedBy;
use torc_model::ids::{JobId, RunnerId, WorkflowId};
use torc_model::plan::{Backoff, Rule, Settings};
use torc_model::status::{Cause, EndedBy, JobStatus};

/// A job to add: what it needs, how long it is known to take, what it waits for.
#[derive(Clone, Default)]
struct Wanted {
    cpus: u32,
    gpus: u32,
    own_ms: Option<u32>,
    parents: Vec<usize>,
    handler: Option<HandlerIx>,
}

fn cpus(cpus: u32, own_ms: u32) -> Wanted {
    Wanted { cpus, own_ms: Some(own_ms), ..Wanted::default() }
}

fn workflow(jobs: &[Wanted], handlers: Vec<CompiledHandler>) -> Workflow {
    let mut workflow = Workflow::new(WorkflowId(1), Settings::default(), handlers);
    for (index, job) in jobs.iter().enumerate() {
        let class = Class { cpus: job.cpus, gpus: job.gpus, nodes: 1, ..Class::default() };
        workflow.add_job(NewJob {
            id: JobId(index as i64 + 1),
            priority: 0,
            position: index as i64,
            family: 0,
            own_ms: job.own_ms,
            class,
            handler: job.handler,
            cancel_on_failure: true,
            max_lost: 0,
            parents: job.parents.iter().copied().map(JobIx::new).collect(),
        });
    }
    workflow.settle();
    workflow.initialize(0);
    workflow
}

fn node(cpus: i64, gpus: i64) -> Capacity {
    Capacity { num_cpus: cpus, num_gpus: gpus, num_nodes: 1, ..Capacity::default() }
}

/// The jobs that a runner gets.
fn claim(
    workflow: &mut Workflow,
    runner: i64,
    capacity: &Capacity,
    time_left: Option<i64>,
    limit: usize,
    now: i64,
) -> Vec<usize> {
    let claim = Claim {
        runner: RunnerId(runner),
        key: "k",
        limit,
        prefetch: 0,
        capacity,
        time_left,
        scheduler: None,
        strict_scheduler: false,
        label: None,
        now,
        nonce: now as u64,
    };
    let claimed = workflow.claim(&claim, &mut Limits::new());
    claimed.iter().for_each(|claimed| {
        workflow.started(claimed.index, 1, now);
    });
    claimed.into_iter().map(|claimed| claimed.index.at()).collect()
}

fn end(workflow: &mut Workflow, index: usize, code: i64, now: i64) {
    let cause = (code != 0).then_some(Cause::Exit);
    let ending = Ending { return_code: Some(code), cause, ..Ending::default() };
    let end = End { ending, ..End::new(EndedBy::Runner, now) };
    workflow.ended(JobIx::new(index), end, &mut Limits::new());
}

#[test]
fn a_runner_with_little_time_left_gets_what_ends_in_time() {
    let jobs = [cpus(1, 600_000), cpus(1, 10_000), cpus(1, 500_000)];
    let mut flow = workflow(&jobs, Vec::new());
    assert_eq!(claim(&mut flow, 1, &node(1, 0), Some(60), 1, 0), [1], "the short one");
    assert_eq!(claim(&mut flow, 2, &node(1, 0), None, 1, 0), [0], "the longest chain");
    // Nothing ends in time: an estimate is no promise, so the time is not left unused.
    assert_eq!(claim(&mut flow, 3, &node(1, 0), Some(60), 1, 0), [2]);
}

#[test]
fn a_gpu_node_takes_gpu_jobs_before_cpu_jobs_with_longer_chains() {
    let gpu = Wanted { gpus: 1, ..cpus(1, 1_000) };
    let jobs = [cpus(1, 900_000), cpus(1, 900_000), cpus(1, 900_000), gpu];
    let mut flow = workflow(&jobs, Vec::new());
    assert_eq!(claim(&mut flow, 1, &node(1, 0), None, 1, 0), [0], "a plain node is there");
    assert_eq!(claim(&mut flow, 2, &node(2, 1), None, 1, 0), [3]);
    // Alone, the node with the GPU serves all in their order.
    let mut flow = workflow(&jobs, Vec::new());
    assert_eq!(claim(&mut flow, 2, &node(2, 1), None, 1, 0), [0]);
}

#[test]
fn a_gpu_node_is_not_filled_with_cpu_jobs_while_a_gpu_job_waits_for_it() {
    // The second GPU job becomes ready while the first one has the GPU, and needs all four CPUs.
    let first = Wanted { gpus: 1, ..cpus(1, 10_000) };
    let second = Wanted { gpus: 1, parents: vec![2], ..cpus(4, 9_000) };
    let (long, short) = (cpus(1, 100_000), cpus(1, 5_000));
    let jobs = [first, second, cpus(1, 1_000), long.clone(), long.clone(), long, short];
    let mut flow = workflow(&jobs, Vec::new());
    assert_eq!(claim(&mut flow, 1, &node(1, 0), Some(2), 1, 0), [2], "on a plain node");
    assert_eq!(claim(&mut flow, 2, &node(4, 1), None, 1, 0), [0]);
    end(&mut flow, 2, 0, 1_000);
    let given = claim(&mut flow, 2, &node(4, 1), None, 4, 1_000);
    assert_eq!(given, [6], "only what ends before the GPU job can start");
    assert_eq!(claim(&mut flow, 1, &node(1, 0), None, 1, 1_000), [3], "the plain node is free");
    end(&mut flow, 6, 0, 6_000);
    end(&mut flow, 0, 0, 10_000);
    assert_eq!(claim(&mut flow, 2, &node(4, 1), None, 4, 10_000), [1]);
}

#[test]
fn a_job_on_the_longest_chain_goes_first_again_after_it_has_failed() {
    let rule = Rule { match_all_exit_codes: true, max_retries: 3, ..Rule::default() };
    let handler = CompiledHandler::new("again", &[rule]).expect("a valid rule");
    let first = Wanted { handler: Some(HandlerIx::new(0)), ..cpus(1, 1_000) };
    let second = Wanted { parents: vec![0], ..cpus(1, 60_000) };
    let jobs = [first, second, cpus(1, 5_000), cpus(1, 5_000)];
    let mut flow = workflow(&jobs, vec![handler]);
    assert_eq!(claim(&mut flow, 1, &node(1, 0), None, 1, 0), [0]);
    end(&mut flow, 0, 1, 1_000);
    assert_eq!(
        flow.jobs[JobIx::new(0)].status(),
        JobStatus::Ready,
        "a rule gives it another attempt"
    );
    assert_eq!(claim(&mut flow, 1, &node(1, 0), None, 1, 1_000), [0], "before the others");
    assert_eq!(flow.jobs[JobIx::new(0)].tries.number, 2);
}

#[test]
fn an_attempt_that_waits_for_its_time_holds_no_cpu_and_no_runner() {
    let backoff = Backoff { delay_seconds: 5.0, factor: 1.0, max_seconds: None, jitter: 0.0 };
    let rule = Rule {
        match_all_exit_codes: true,
        max_retries: 3,
        backoff: Some(backoff),
        ..Rule::default()
    };
    let handler = CompiledHandler::new("later", &[rule]).expect("a valid rule");
    let wide = Wanted { handler: Some(HandlerIx::new(0)), ..cpus(4, 60_000) };
    let jobs = [wide, cpus(4, 3_000), cpus(1, 3_000), cpus(1, 3_000)];
    let mut flow = workflow(&jobs, vec![handler]);
    assert_eq!(claim(&mut flow, 1, &node(4, 0), None, 4, 0), [0]);
    end(&mut flow, 0, 1, 1_000);
    assert_eq!(claim(&mut flow, 1, &node(4, 0), None, 4, 1_000), [1], "all four CPUs are free");
    end(&mut flow, 1, 0, 4_000);
    assert_eq!(claim(&mut flow, 1, &node(4, 0), None, 4, 4_000), [2, 3], "nothing is reserved");
    // Its time has come: now it waits for the two, and the runner is kept for it.
    assert_eq!(claim(&mut flow, 1, &node(4, 0), None, 4, 6_000), [0usize; 0]);
    end(&mut flow, 2, 0, 7_000);
    end(&mut flow, 3, 0, 7_000);
    assert_eq!(claim(&mut flow, 1, &node(4, 0), None, 4, 7_000), [0]);
}

#[test]
fn a_claim_looks_at_as_many_jobs_of_a_hundred_thousand_as_of_a_thousand() {
    let looked = |count: u32| {
        let jobs: Vec<Wanted> = (0..count).map(|i| cpus(1 + i % 3, 1_000 + i % 7)).collect();
        let mut flow = workflow(&jobs, Vec::new());
        queue::LOOKED.with(|looked| looked.set(0));
        for round in 0..50 {
            let given = claim(&mut flow, round % 5, &node(8, 0), Some(100_000), 8, round);
            for index in given {
                end(&mut flow, index, 0, round);
            }
        }
        queue::LOOKED.with(std::cell::Cell::get)
    };
    let few = looked(1_000);
    assert!(few > 0, "nothing was counted");
    assert_eq!(looked(100_000), few);
}

/// Layers of jobs of known times, each after two of the layer before.
fn layers(count: u32) -> (Workflow, Vec<u32>) {
    let times: Vec<u32> = (0..count).map(|i| 1_000 + i * 7_919 % 60_000).collect();
    let jobs: Vec<Wanted> = (0..count)
        .map(|i| Wanted {
            parents: i.checked_sub(100).map_or_else(Vec::new, |before| {
                let layer = before / 100 * 100;
                vec![(layer + i % 100) as usize, (layer + (i * 7 + 3) % 100) as usize]
            }),
            ..cpus([1, 1, 2, 4][i as usize % 4], times[i as usize])
        })
        .collect();
    (workflow(&jobs, Vec::new()), times)
}

#[test]
fn what_is_left_of_a_workflow_predicts_its_end_as_its_simulation_does() {
    let (flow, times) = layers(3_000);
    let machines = [SimulatedMachine::new(RunnerId(1), node(16, 0), 0)];
    let took = |index: JobIx| i64::from(times[index.at()]);
    let end = flow.clone().simulate(&machines, &mut Limits::new(), 0, took).end as f64;
    let quick = flow.rest(0).forecast(&machines, 0);
    assert!((quick.ms as f64 / end - 1.0).abs() < 0.05, "{quick:?}, simulated {end}");
    assert!(quick.bound.ms <= end * 1.000_001, "{quick:?}, simulated {end}");
    assert!(quick.low_ms <= end as i64 && end as i64 <= quick.high_ms, "{quick:?}");
    assert_eq!((quick.jobs, quick.unknown, quick.bound.by), (3_000, 0, LimitedBy::Cpus));
}

#[test]
fn nodes_that_come_late_count_from_then_on_and_the_queue_limits() {
    let (flow, _) = layers(400);
    let here = SimulatedMachine::new(RunnerId(1), node(4, 0), 0);
    let more = |from| SimulatedMachine::new(RunnerId(2), node(60, 0), from);
    let limits = Limits::new();
    for is_simulated in [true, false] {
        let forecast = |machines: &[SimulatedMachine]| match is_simulated {
            true => flow.forecast(machines, &limits, 0),
            false => flow.rest(0).forecast(machines, 0),
        };
        let alone = forecast(std::slice::from_ref(&here));
        let soon = forecast(&[here.clone(), more(0)]);
        let late = forecast(&[here.clone(), more(alone.ms / 2)]);
        let never = forecast(&[here.clone(), more(alone.ms * 2)]);
        assert!(soon.ms < late.ms && late.ms < alone.ms, "{soon:?} {late:?} {alone:?}");
        assert_eq!(late.bound.by, LimitedBy::Queue);
        assert_ne!(soon.bound.by, LimitedBy::Queue);
        assert!(late.bound.ms <= late.ms as f64 && never.bound.ms <= alone.ms as f64);
        let only = forecast(&[more(600_000)]);
        assert!(only.bound.ms >= 600_000.0 && only.ms >= 600_000, "{only:?}");
    }
}
