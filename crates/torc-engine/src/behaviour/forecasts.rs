//! Bounds, simulations and forecasts whose numbers follow from the rules by hand.

use super::*;
use torc_model::api::Capacity;
use torc_model::forecast::LimitedBy;

/// A job of known time that waits for these.
fn known(ms: u32, cpus: u32, parents: &[usize]) -> NewJob {
    but(job(parents), |job| (job.own_ms, job.class.cpus) = (Some(ms), cpus))
}

fn flow(jobs: Vec<NewJob>) -> Workflow {
    let mut flow = Chronicle::plain(jobs).flow;
    flow.initialize(0);
    flow
}

fn machine(id: i64, cpus: i64, from: i64) -> SimulatedMachine {
    SimulatedMachine::new(RunnerId(id), node(cpus), from)
}

fn times(flow: &Workflow) -> Vec<f64> {
    flow.indexes().map(|index| f64::from(flow.expected_ms(index))).collect()
}

fn bound(flow: &Workflow, machines: &[SimulatedMachine]) -> (f64, LimitedBy) {
    let bound = flow.bound(machines, &times(flow), 0);
    (bound.ms.round(), bound.by)
}

fn simulate(flow: &Workflow, machines: &[SimulatedMachine], now: i64) -> Simulated {
    let mut copy = flow.clone();
    let done = copy
        .simulate(machines, &mut Limits::new(), now, |index| i64::from(flow.expected_ms(index)));
    assert_eq!(copy.take_changes(), [], "what is simulated is not written");
    done
}

#[test]
fn a_chain_takes_the_sum_of_its_times_from_when_the_first_machine_is_there() {
    let chain = flow(vec![known(1_000, 1, &[]), known(2_000, 1, &[0]), known(3_000, 1, &[1])]);
    assert_eq!(bound(&chain, &[machine(1, 100, 500)]), (6_500.0, LimitedBy::CriticalPath));
}

#[test]
fn cpus_gpus_and_memory_each_bound_the_time_by_their_work() {
    let wide = |change: fn(&mut NewJob)| flow(vec![but(known(1_000, 1, &[]), change); 8]);
    let capacity = Capacity { num_gpus: 2, memory_bytes: 800, ..node(64) };
    let machines = [SimulatedMachine::new(RunnerId(1), capacity, 0)];
    let cpus = wide(|job| job.class.cpus = 16);
    assert_eq!(bound(&cpus, &machines), (2_000.0, LimitedBy::Cpus));
    let gpus = wide(|job| job.class.gpus = 1);
    assert_eq!(bound(&gpus, &machines), (4_000.0, LimitedBy::Gpus));
    let memory = wide(|job| job.class.memory = Some(300));
    assert_eq!(bound(&memory, &machines), (3_000.0, LimitedBy::Memory));
    // Jobs that say nothing of memory need none.
    let tiny = Capacity { memory_bytes: 1, ..node(8) };
    let tiny = [SimulatedMachine::new(RunnerId(1), tiny, 0)];
    assert_eq!(bound(&wide(|_| {}), &tiny), (1_000.0, LimitedBy::CriticalPath));
    // What has ended takes nothing.
    let half: Vec<f64> = (0..8).map(|at| if at % 2 == 0 { 1_000.0 } else { 0.0 }).collect();
    assert_eq!(gpus.bound(&machines, &half, 0), Bound { ms: 2_000.0, by: LimitedBy::Gpus });
}

#[test]
fn work_before_or_after_a_long_job_cannot_use_the_time_of_that_job() {
    // Four jobs of 1 s on two CPUs each; the long one takes 5 s, and 4 CPUs are there.
    let mut fan_in = vec![known(5_000, 1, &[1, 2, 3, 4])];
    fan_in.resize(5, known(1_000, 2, &[]));
    let mut fan_out = vec![known(5_000, 1, &[])];
    fan_out.resize(5, known(1_000, 2, &[0]));
    for jobs in [fan_in.clone(), fan_out] {
        assert_eq!(bound(&flow(jobs), &[machine(1, 4, 0)]), (7_000.0, LimitedBy::Cpus));
    }
    // The quick forecast of large workflows says so too, whatever the order of the list is.
    let quick = flow(fan_in).rest(0).forecast(&[machine(1, 4, 0)], 0);
    assert_eq!((quick.ms, quick.bound.by), (7_000, LimitedBy::Cpus));
}

#[test]
fn machines_that_come_later_add_to_what_is_there() {
    let flow = flow(vec![known(100, 1, &[]); 6]);
    let machines = [machine(1, 1, 0), machine(2, 1, 100), machine(3, 1, 300)];
    // 100 ms of work are done by 100 ms, 500 ms by 300 ms, and the rest on three CPUs.
    assert_eq!(bound(&flow, &machines), (333.0, LimitedBy::Cpus));
}

#[test]
fn a_machine_that_ignores_resources_is_not_bounded_by_cpus() {
    let flow = flow(vec![known(1_000, 1, &[]); 8]);
    let capacity = Capacity { ignore_resources: true, ..node(1) };
    let machines = [SimulatedMachine::new(RunnerId(1), capacity, 0)];
    assert_eq!(bound(&flow, &machines), (1_000.0, LimitedBy::CriticalPath));
}

#[test]
fn nothing_left_takes_no_time() {
    let empty = flow(Vec::new());
    let quick = empty.rest(0).forecast(&[machine(1, 1, 0)], 0);
    assert_eq!((quick.ms, quick.high_ms, quick.bound.ms.round() as i64, quick.jobs), (0, 0, 0, 0));
    let exact = empty.forecast(&[machine(1, 1, 0)], &Limits::new(), 0);
    assert_eq!((exact.ms, exact.jobs, exact.left), (0, 0, 0));
}

#[test]
fn the_queue_limits_what_would_be_over_a_tenth_earlier_without_it() {
    let (now, flow) = (1_000_000, flow(vec![known(10_000, 1, &[])]));
    for (late, by) in [(500, LimitedBy::CriticalPath), (2_000, LimitedBy::Queue)] {
        let machines = [machine(1, 2, now + late)];
        let exact = flow.forecast(&machines, &Limits::new(), now);
        let quick = flow.rest(now).forecast(&machines, now);
        assert_eq!((exact.ms, exact.bound.by), (10_000 + late, by));
        assert_eq!((quick.bound.ms.round() as i64, quick.bound.by), (10_000 + late, by));
    }
}

#[test]
fn a_forecast_does_not_depend_on_what_the_clock_shows() {
    let flow = flow(vec![known(3_000, 1, &[]), known(500, 2, &[0]), known(7_000, 1, &[])]);
    let at =
        |now| flow.forecast(&[machine(1, 2, now), machine(2, 1, now + 400)], &Limits::new(), now);
    let (early, late) = (at(0), at(5_000_000));
    assert_eq!(early, late);
    assert!(early.low_ms < early.ms && early.ms < early.high_ms, "{early:?}");
}

#[test]
fn what_an_attempt_has_run_is_taken_off_its_time() {
    let mut c = Chronicle::plain(vec![known(10_000, 1, &[])]);
    c.flow.initialize(0);
    c.now = 100_000;
    c.claim(1, 1);
    let machines = [machine(1, 1, 0)];
    // A clock that was set back takes nothing off; what runs longer than expected is nearly done.
    for (now, left) in [(104_000, 6_000), (99_000, 10_000), (200_000, 1)] {
        let exact = c.flow.forecast(&machines, &Limits::new(), now);
        let quick = c.flow.rest(now).forecast(&machines, now);
        assert_eq!([exact.bound.ms, quick.bound.ms].map(|ms| ms.round() as i64), [left; 2]);
    }
}

#[test]
fn the_interval_of_the_quick_forecast_follows_from_how_the_times_are_known() {
    // Times of a job's own earlier attempts vary together by 3%; 80% are within 1.28 deviations.
    let quick = flow(vec![known(10_000, 1, &[])]).rest(0).forecast(&[machine(1, 1, 0)], 0);
    let spread = (1.28f64 * 0.03).exp();
    assert_eq!(quick.low_ms, (10_000.0 / spread).round() as i64);
}

#[test]
fn attempts_that_are_claimed_or_run_already_go_on_in_a_simulation() {
    let mut c = Chronicle::plain(vec![known(10_000, 1, &[]), known(10_000, 3, &[])]);
    c.flow.initialize(0);
    c.now = 0;
    assert_eq!(c.take(1, 4).len(), 2);
    c.flow.started(ix(0), 1, 0);
    c.flow.take_changes();
    let done = simulate(&c.flow, &[machine(1, 4, 0)], 4_000);
    // The first one ends at 10 s; the second one was only claimed, and starts now.
    assert_eq!((done.end, done.left), (14_000, 0));
    assert!((done.cpu_ms - 40_000.0).abs() < 1e-6, "{done:?}");
}

#[test]
fn an_attempt_takes_at_least_a_millisecond() {
    let flow = flow(vec![job(&[]), job(&[0])]);
    let done = flow.clone().simulate(&[machine(1, 1, 0)], &mut Limits::new(), 0, |_| 0);
    assert_eq!((done.end, done.claimed), (2, 2));
}

#[test]
fn a_machine_near_its_end_begins_with_what_ends_in_time() {
    let flow = flow(vec![known(60_000, 1, &[]), known(5_000, 1, &[])]);
    let machines =
        [SimulatedMachine { until: Some(10_000), ..machine(1, 1, 0) }, machine(2, 1, 20_000)];
    let done = simulate(&flow, &machines, 0);
    // The short one, then the long one until the machine ends, and again on the other one.
    assert_eq!((done.end, done.claimed, done.left), (80_000, 3, 0));
}

#[test]
fn a_machine_for_another_scheduler_takes_a_job_that_none_of_its_own_takes() {
    let flow = flow(vec![but(known(1_000, 1, &[]), |job| job.class.scheduler = Some(5))]);
    let done = simulate(&flow, &[SimulatedMachine { scheduler: Some(6), ..machine(1, 1, 0) }], 0);
    assert_eq!((done.end, done.left), (1_000, 0));
}

#[test]
fn an_attempt_that_a_machine_took_away_does_not_end() {
    let flow = flow(vec![known(60_000, 1, &[]), known(5_000, 1, &[])]);
    let machines = [SimulatedMachine { until: Some(10_000), ..machine(1, 2, 0) }];
    let done = simulate(&flow, &machines, 0);
    assert_eq!((done.end, done.claimed, done.left), (5_000, 2, 1));
}

#[test]
fn the_end_of_a_machine_is_not_the_fault_of_its_jobs() {
    let flow = flow(vec![but(known(60_000, 1, &[]), |job| job.max_lost = 0)]);
    let machines =
        [SimulatedMachine { until: Some(10_000), ..machine(1, 1, 0) }, machine(2, 1, 20_000)];
    assert_eq!(simulate(&flow, &machines, 0).end, 80_000);
}

/// A workflow whose first job failed at 1 s and is tried again not before 6 s.
fn with_backoff(jobs: Vec<NewJob>) -> Workflow {
    let delay = torc_model::plan::Backoff {
        delay_seconds: 5.0,
        factor: 1.0,
        max_seconds: None,
        jitter: 0.0,
    };
    let rule = torc_model::plan::Rule {
        match_all_exit_codes: true,
        max_retries: 3,
        backoff: Some(delay),
        ..Default::default()
    };
    let mut c = Chronicle::new(Default::default(), vec![handler(&[rule])], jobs);
    c.flow.initialize(0);
    c.now = 0;
    assert_eq!(c.take(1, 1), [0]);
    let failed = end(Some(torc_model::status::Cause::Exit), 1, 1_000);
    c.flow.ended(ix(0), failed, &mut c.limits);
    c.flow.take_changes();
    c.flow
}

#[test]
fn a_simulation_waits_for_attempts_that_wait_for_their_time() {
    let again = but(known(1_000, 1, &[]), |job| job.handler = Some(HandlerIx::new(0)));
    let alone = with_backoff(vec![again.clone()]);
    let done = simulate(&alone, &[machine(1, 1, 0)], 1_000);
    assert_eq!((done.end, done.left), (7_000, 0));
    // Beside a longer job it begins when its time has come, not when the other one ends.
    let beside = with_backoff(vec![but(again, |job| job.priority = 1), known(20_000, 1, &[])]);
    let done = simulate(&beside, &[machine(1, 2, 0)], 1_000);
    assert_eq!(done.starts.iter().find(|(index, _)| *index == ix(0)), Some(&(ix(0), 6_000)));
    assert_eq!(done.end, 21_000);
}

#[test]
fn an_attempt_whose_time_had_come_before_the_simulation_begins_at_once() {
    let again = but(known(1_000, 1, &[]), |job| job.handler = Some(HandlerIx::new(0)));
    let alone = with_backoff(vec![again.clone()]);
    let done = simulate(&alone, &[machine(1, 1, 0)], 60_000);
    assert_eq!((done.end, done.left), (61_000, 0));
    let beside = with_backoff(vec![but(again, |job| job.priority = 1), known(20_000, 1, &[])]);
    let done = simulate(&beside, &[machine(1, 1, 0)], 60_000);
    assert_eq!(done.starts, [(ix(0), 60_000), (ix(1), 61_000)]);
}

#[test]
fn a_machine_whose_time_is_over_is_not_kept_for_a_job() {
    // Both machines run narrow jobs, more of them are ready, and a wide one waits for four CPUs.
    let mut jobs: Vec<NewJob> = Vec::new();
    jobs.resize(8, but(known(15_000, 1, &[]), |job| job.priority = 2));
    jobs.push(but(known(1_000, 4, &[]), |job| job.priority = 1));
    jobs.resize(60, known(14_000, 1, &[]));
    let machines = [SimulatedMachine { until: Some(16_000), ..machine(1, 4, 0) }, machine(2, 4, 0)];
    let done = simulate(&flow(jobs), &machines, 0);
    let wide = done.starts.iter().find(|(index, _)| *index == ix(8)).map(|(_, at)| *at);
    assert_eq!((wide, done.left), (Some(15_000), 0));
}

#[test]
fn a_copy_that_recovers_opens_what_failed_or_waits_for_a_verdict() {
    let settings = torc_model::plan::Settings { use_pending_failed: true, ..Default::default() };
    let mut c = Chronicle::new(settings, Vec::new(), vec![job(&[]), job(&[]), job(&[])]);
    c.flow.initialize(0);
    assert_eq!(c.take(1, 3), [0, 1, 2]);
    c.end(0, Some(torc_model::status::Cause::Exit), 1);
    c.end(1, Some(torc_model::status::Cause::Exit), 1);
    c.end(2, None, 0);
    c.flow.classify(ix(1), false, c.now).expect("it waits for a verdict");
    use torc_model::status::JobStatus::*;
    assert_eq!(statuses(&c.flow), [PendingFailed, Failed, Completed]);
    assert_eq!(statuses(&c.flow.copy_to_simulate(true, c.now)), [Ready, Ready, Completed]);
    assert_eq!(statuses(&c.flow.copy_to_simulate(false, c.now)), statuses(&c.flow));
    // One that is over is simulated once more, unless what failed of it is to run again.
    c.flow.classify(ix(0), false, c.now).expect("it waits for a verdict");
    assert!(c.flow.is_complete());
    assert_eq!(statuses(&c.flow.copy_to_simulate(true, c.now)), [Ready, Ready, Completed]);
    assert_eq!(statuses(&c.flow.copy_to_simulate(false, c.now)), [Ready; 3]);
    // One that has not begun begins.
    let fresh = Chronicle::plain(vec![job(&[]), job(&[0])]).flow;
    assert_eq!(statuses(&fresh.copy_to_simulate(false, 0)), [Ready, Blocked]);
}

#[test]
fn a_job_that_is_disabled_takes_no_time_in_a_copy_that_has_not_begun() {
    let mut flow = flow(vec![known(5_000, 1, &[]), known(5_000, 1, &[0]), known(10, 1, &[1])]);
    flow.disable(ix(1), 0).expect("it has not begun");
    let mut copy = flow.fresh_copy();
    assert_eq!((copy.parents_of(ix(1)), copy.expected_ms(ix(1))), (&[][..], 1));
    assert_eq!(copy.parents_of(ix(2)), [ix(1)]);
    copy.initialize(0);
    assert_eq!(simulate(&copy, &[machine(1, 2, 0)], 0).end, 5_000);
}

#[test]
fn the_interval_of_a_forecast_of_few_draws_is_as_wide_as_times_may_vary_together() {
    // 4,001 jobs allow nine draws, and one less allows enough of them.
    let interval = |jobs: usize| {
        let flow = flow(vec![known(10_000, 1, &[]); jobs]);
        let forecast = flow.forecast(&[machine(1, 5_000, 0)], &Limits::new(), 0);
        (forecast.low_ms, forecast.high_ms)
    };
    let spread = (1.28f64 * 0.03).exp();
    let (low, high) = interval(4_001);
    assert!(low <= (10_000.0 / spread) as i64 && high >= (10_000.0 * spread) as i64);
    let least = (10_000.0 / spread) as i64;
    assert!(interval(4_000).0 > least, "the shortest of the draws is longer");
}
