//! When will a workflow be over? Answered by this engine itself, driven through the rest of the run
//! by an event queue instead of runners: the order, the reservations and the limits are those of the
//! real run.

use super::change::End;
use super::claim::{Claim, Limits};
use super::index::{ClassIx, JobIx};
use super::jobs::NewJob;
use super::workflow::Workflow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use torc_model::api::Capacity;
use torc_model::attempt::{Ending, Usage};
use torc_model::chance::Rng;
use torc_model::class::Class;
use torc_model::forecast::LimitedBy;
use torc_model::ids::{AttemptId, RunnerId};
use torc_model::status::{AttemptState, Cause, EndedBy, EstimateSource, JobStatus, Origin};

/// A runner of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulatedMachine {
    /// Held attempts of this runner go on.
    pub id: RunnerId,
    /// What it has.
    pub capacity: Capacity,
    /// When it is there.
    pub from: i64,
    /// When it must stop.
    pub until: Option<i64>,
    /// Its label.
    pub label: Option<String>,
    /// The Slurm scheduler it serves.
    pub scheduler: Option<i64>,
}

impl SimulatedMachine {
    /// One that is there from now on.
    pub fn new(id: RunnerId, capacity: Capacity, now: i64) -> Self {
        Self { id, capacity, from: now, until: None, label: None, scheduler: None }
    }
}

/// How a simulation went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Simulated {
    /// When the last attempt ended.
    pub end: i64,
    /// Attempts that were given out.
    pub claimed: u64,
    /// Claims that were made.
    pub claims: u64,
    /// Milliseconds that CPUs were held.
    pub cpu_ms: f64,
    /// Each job with the time of its last start.
    pub starts: Vec<(JobIx, i64)>,
    /// Jobs that had not ended when nothing could go on.
    pub left: usize,
}

/// The least time that the rest of a workflow takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// In ms.
    pub ms: f64,
    /// What it follows from.
    pub by: LimitedBy,
}

/// When a workflow is expected to be over.
#[derive(Clone, PartialEq, Debug)]
pub struct Forecast {
    /// Ms from now.
    pub ms: i64,
    /// It is over before this in one case of ten.
    pub low_ms: i64,
    /// It is over after this in one case of ten.
    pub high_ms: i64,
    /// It cannot be over before.
    pub bound: Bound,
    /// Jobs that have not ended.
    pub jobs: usize,
    /// Those about whose time nothing is known.
    pub unknown: usize,
    /// Jobs that would not have run: nothing there can take them, or they wait for a person.
    pub left: usize,
}

/// Simulations of one forecast, fewer for large workflows.
const DRAWS: usize = 24;

/// With fewer, the interval does not follow from them alone.
const FEW_DRAWS: usize = 10;

/// Jobs that all draws together simulate at most: about a second.
const DRAWN_JOBS: usize = 40_000;

/// Larger workflows are not simulated: so many jobs come close to the bound whatever their order is,
/// and a person waits for the answer.
pub const MAX_SIMULATED: usize = 20_000;

/// What is left of a large workflow, without its graph: taken in one pass over its jobs, so that the
/// thread that writes is held up for milliseconds only.
#[derive(Clone, PartialEq, Debug)]
pub struct Rest {
    open: Vec<OpenJob>,
    /// Needs by their number, from the workflow.
    classes: Vec<Class>,
    unknown: usize,
    /// How much the logarithm of all times together may vary, on average.
    common: f64,
}

/// A job that has not ended.
#[derive(Clone, Copy, PartialEq, Debug)]
struct OpenJob {
    /// What is left of its time, in ms.
    left: f32,
    /// The longest chain behind it, in ms.
    tail: f32,
    class: ClassIx,
}

/// 80% of normally distributed numbers are within so many standard deviations.
const EIGHT_OF_TEN: f64 = 1.28;

/// What the machines have together, from when on.
struct Have {
    /// From so many ms on, so many CPUs, GPUs and bytes more.
    steps: Vec<(f64, [f64; 3])>,
}

/// The kinds of what machines have, in the order of [`needs`].
const KINDS: [LimitedBy; 3] = [LimitedBy::Cpus, LimitedBy::Gpus, LimitedBy::Memory];

impl Have {
    fn of(machines: &[SimulatedMachine], now: i64) -> Self {
        let mut steps: BTreeMap<i64, [f64; 3]> = BTreeMap::new();
        for machine in machines {
            let have = &machine.capacity;
            let cpus = if have.ignore_resources { f64::INFINITY } else { have.num_cpus as f64 };
            let more = [cpus, have.num_gpus as f64, have.memory_bytes as f64];
            let sums = steps.entry((machine.from - now).max(0)).or_default();
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        Self { steps: steps.into_iter().map(|(from, more)| (from as f64, more)).collect() }
    }

    /// Nothing can start before this.
    fn first(&self) -> f64 {
        self.steps.first().map_or(0.0, |(from, _)| *from)
    }

    /// The least time in which so much work of a kind is done.
    fn time(&self, kind: usize, mut work: f64) -> f64 {
        let (mut at, mut rate) = (0.0, 0.0);
        for (from, more) in &self.steps {
            if rate > 0.0 && rate * (from - at) >= work {
                break;
            }
            work -= rate * (from - at);
            at = *from;
            rate += more[kind];
        }
        // What no machine has holds nothing back here: such jobs are stuck, and told so.
        if rate > 0.0 { at + work / rate } else { 0.0 }
    }

    fn bounds(&self, work: [f64; 3]) -> impl Iterator<Item = (f64, LimitedBy)> {
        (0..3)
            .filter(move |kind| work[*kind] > 0.0)
            .map(move |kind| (self.time(kind, work[kind]), KINDS[kind]))
    }
}

/// A queue of the batch system limits what would be over by this much earlier without it.
const QUEUE_SHARE: f64 = 0.1;

/// The same machines, all of them there now.
fn at_once(machines: &[SimulatedMachine], now: i64) -> Option<Vec<SimulatedMachine>> {
    let is_late = machines.iter().any(|machine| machine.from > now);
    is_late.then(|| {
        machines.iter().map(|m| SimulatedMachine { from: m.from.min(now), ..m.clone() }).collect()
    })
}

/// What a job of a class takes of each kind of resource.
fn needs(class: &Class) -> [f64; 3] {
    [f64::from(class.cpus), f64::from(class.gpus), class.memory.unwrap_or(0) as f64]
}

fn largest(bounds: impl IntoIterator<Item = (f64, LimitedBy)>) -> Bound {
    let first = (0.0, LimitedBy::CriticalPath);
    let best = bounds.into_iter().fold(first, |best, other| match other.0 > best.0 {
        true => other,
        false => best,
    });
    Bound { ms: best.0, by: best.1 }
}

impl Rest {
    /// When it is expected to be over on these machines, by how much work there is and how long its
    /// chains are.
    pub fn forecast(mut self, machines: &[SimulatedMachine], now: i64) -> Forecast {
        self.open.sort_unstable_by(|a, b| b.tail.total_cmp(&a.tail));
        let mut forecast = self.on(&Have::of(machines, now));
        if let Some(soon) = at_once(machines, now)
            && forecast.ms as f64 > self.on(&Have::of(&soon, now)).ms as f64 * (1.0 + QUEUE_SHARE)
        {
            forecast.bound.by = LimitedBy::Queue;
        }
        forecast
    }

    /// The jobs with the longest chains behind them come first.
    fn on(&self, have: &Have) -> Forecast {
        let (mut work, mut path, mut longest, mut before) = ([0f64; 3], 0f64, 0f64, 0f64);
        for job in &self.open {
            let (left, tail) = (f64::from(job.left), f64::from(job.tail));
            for (sum, need) in work.iter_mut().zip(needs(&self.classes[job.class.at()])) {
                *sum += left * need;
            }
            path = path.max(left + tail);
            longest = longest.max(left);
            // Work that has to go before other work cannot use all of the time.
            before = before.max(have.time(0, work[0]) + tail);
        }
        let area = have.bounds(work).map(|(ms, _)| ms).fold(0.0, f64::max);
        let path = (have.first() + path, LimitedBy::CriticalPath);
        let all = have.bounds(work).chain([path, (before, LimitedBy::Cpus)]);
        let bound = largest(all);
        // At the end some machines have no work while the last jobs run.
        let ms = bound.ms.max(area + longest / 2.0);
        // No order of work takes longer than the work and the longest chain one after the other.
        let worst = ms.max(area + path.0);
        let spread = (EIGHT_OF_TEN * self.common).exp();
        Forecast {
            ms: ms.round() as i64,
            low_ms: (bound.ms / spread).round() as i64,
            high_ms: (ms * spread).max(worst.min(ms * 1.1)).round() as i64,
            bound,
            jobs: self.open.len(),
            unknown: self.unknown,
            left: 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    // Ends before what they make room for.
    End(JobIx, AttemptId),
    Down(usize),
    Up(usize),
}

impl Workflow {
    /// A copy as it will run: what failed runs again, as `torc recover` would open it; else one that is
    /// over runs once more.
    pub fn copy_to_simulate(&self, recover: bool, now: i64) -> Self {
        let is_again = self.is_complete() && !recover;
        let mut copy = if is_again { self.fresh_copy() } else { self.clone() };
        if recover {
            copy.resume();
            let failed: Vec<(JobIx, JobStatus)> =
                copy.indexes().map(|index| (index, copy.job(index).status())).collect();
            for (index, status) in failed {
                if matches!(status, JobStatus::Failed | JobStatus::Terminated) {
                    copy.again(index, Origin::Recovered, now);
                } else if status == JobStatus::PendingFailed {
                    let done = copy.classify(index, true, now);
                    debug_assert!(done.is_ok(), "one that waits can be retried: {done:?}");
                }
            }
        }
        copy.initialize_unstored(now);
        copy.take_changes();
        copy
    }

    /// The same jobs without their history: none has begun.
    pub fn fresh_copy(&self) -> Self {
        let mut copy = Self::new(self.id, self.settings.clone(), Vec::new());
        copy.reserve(self.jobs.len());
        for (index, job) in self.jobs.indexes().zip(self.jobs.iter()) {
            let is_out = job.is_removed() || job.status() == JobStatus::Disabled;
            let parents = if is_out { Vec::new() } else { self.parents_of(index).to_vec() };
            copy.add_job(NewJob {
                id: job.id,
                priority: job.priority,
                position: job.position,
                family: self.family_of(index),
                own_ms: if is_out { Some(1) } else { self.order.own_ms(index) },
                class: self.next_class_of(index).clone(),
                handler: None,
                cancel_on_failure: job.cancel_on_failure,
                max_lost: job.max_lost,
                parents,
            });
        }
        copy.restore_times(Some(self.typical_ms()), self.family_times());
        copy.settle();
        copy
    }

    /// Runs the rest of the workflow on these machines. `took` tells how long an attempt of a job
    /// takes, in ms. Every attempt succeeds.
    pub fn simulate(
        &mut self,
        machines: &[SimulatedMachine],
        limits: &mut Limits,
        now: i64,
        mut took: impl FnMut(JobIx) -> i64,
    ) -> Simulated {
        let mut events: BinaryHeap<Reverse<(i64, Event)>> = BinaryHeap::new();
        let mut done = Simulated { end: now, ..Simulated::default() };
        let mut is_up: Vec<bool> = machines.iter().map(|machine| machine.from <= now).collect();
        for (number, machine) in machines.iter().enumerate() {
            if machine.from > now {
                events.push(Reverse((machine.from, Event::Up(number))));
            }
            if let Some(until) = machine.until {
                events.push(Reverse((until, Event::Down(number))));
            }
        }
        let held: Vec<JobIx> =
            self.jobs.indexes().filter(|index| self.jobs[*index].held().is_some()).collect();
        for index in held {
            let Some(held) = self.jobs[index].held() else { continue };
            let (attempt, began) = (held.attempt, held.started_at.unwrap_or(now).min(now));
            if held.state == AttemptState::Claimed {
                self.started(index, 1, now);
            }
            let end = (began + took(index)).max(now + 1);
            events.push(Reverse((end, Event::End(index, attempt))));
        }
        let mut time = now;
        self.wake_delayed(time);
        loop {
            let mut asking: Vec<usize> = Vec::new();
            if self.has_ready() {
                asking.extend((0..machines.len()).filter(|number| is_up[*number]));
                // The server answers the runner with the least room first.
                asking.sort_by_cached_key(|number| {
                    self.room_of(machines[*number].id, &machines[*number].capacity).size()
                });
            }
            for number in asking {
                let machine = &machines[number];
                let claim = Claim {
                    runner: machine.id,
                    key: "simulated",
                    limit: usize::MAX,
                    prefetch: 0,
                    capacity: &machine.capacity,
                    time_left: machine.until.map(|until| (until - time) / 1000),
                    scheduler: machine.scheduler,
                    strict_scheduler: false,
                    label: machine.label.as_deref(),
                    now: time,
                    nonce: 0,
                };
                done.claims += 1;
                for claimed in self.claim(&claim, limits) {
                    self.started(claimed.index, 1, time);
                    done.claimed += 1;
                    done.starts.push((claimed.index, time));
                    let end = time + took(claimed.index).max(1);
                    events.push(Reverse((end, Event::End(claimed.index, claimed.attempt))));
                }
            }
            self.take_changes();
            let next = match (events.peek(), self.next_due()) {
                (Some(Reverse((at, _))), Some(due)) => due.min(*at),
                (Some(Reverse((at, _))), None) => *at,
                // Nothing runs; an attempt that waits for its time may.
                (None, Some(due)) => due,
                (None, None) => break,
            };
            time = next;
            self.wake_delayed(time);
            while let Some(Reverse((at, event))) = events.peek().copied() {
                if at > time {
                    break;
                }
                events.pop();
                match event {
                    Event::Up(number) => is_up[number] = true,
                    Event::Down(number) => {
                        is_up[number] = false;
                        self.take_down(machines[number].id, limits, time);
                    }
                    Event::End(index, attempt) => {
                        self.end_simulated(index, attempt, limits, time, &mut done);
                    }
                }
            }
            if self.is_complete() {
                break;
            }
        }
        self.take_changes();
        done.left = self.jobs.iter().filter(|job| !job.status().is_final()).count();
        done
    }

    /// An attempt succeeds, unless a machine that went down took it away.
    fn end_simulated(
        &mut self,
        index: JobIx,
        attempt: AttemptId,
        limits: &mut Limits,
        at: i64,
        done: &mut Simulated,
    ) {
        let job = &self.jobs[index];
        let Some(held) = job.held().filter(|held| held.attempt == attempt) else { return };
        done.end = at;
        let ms = at - held.started_at.unwrap_or(at);
        done.cpu_ms += ms as f64 * f64::from(self.classes[job.class].cpus);
        let end = End {
            ending: Ending { return_code: Some(0), ..Ending::default() },
            usage: Usage { exec_seconds: Some(ms as f64 / 1000.0), ..Usage::default() },
            ..End::new(EndedBy::Runner, at)
        };
        self.ended(index, end, limits);
    }

    /// The time of a machine is over: what it runs goes back into the queue.
    fn take_down(&mut self, runner: RunnerId, limits: &mut Limits, now: i64) {
        let held: Vec<JobIx> = self.held_by(runner).collect();
        for index in held {
            let ending = Ending { cause: Some(Cause::Walltime), ..Ending::default() };
            let end = End { ending, ..End::new(EndedBy::Runner, now) };
            self.ended(index, end, limits);
        }
        self.ready.backfill.forget(runner);
    }

    /// The least time that the rest takes on these machines, if each job takes as long as `took`
    /// says (ms; 0 for what has ended).
    pub fn bound(&self, machines: &[SimulatedMachine], took: &[f64], now: i64) -> Bound {
        let jobs = self.jobs.len();
        let (heads, tails) = self.heads_and_tails(took);
        let have = Have::of(machines, now);
        let class = |index: usize| self.class_of(JobIx::new(index));
        let mut work = [0f64; 3];
        for index in (0..jobs).filter(|index| took[*index] > 0.0) {
            for (sum, need) in work.iter_mut().zip(needs(class(index))) {
                *sum += took[index] * need;
            }
        }
        let path = heads.iter().zip(took).map(|(head, took)| head + took).fold(0.0, f64::max);
        let mut bounds = vec![(have.first() + path, LimitedBy::CriticalPath)];
        bounds.extend(have.bounds(work));
        // Work that has to follow other work, or to go before it, cannot use all of the time.
        for chain in [&tails, &heads] {
            let mut order: Vec<usize> = (0..jobs).filter(|index| took[*index] > 0.0).collect();
            order.sort_by(|a, b| chain[*b].total_cmp(&chain[*a]));
            let (mut work, mut best) = (0.0, 0.0f64);
            for index in order {
                work += took[index] * f64::from(class(index).cpus);
                best = best.max(chain[index] + have.time(0, work));
            }
            bounds.push((best, LimitedBy::Cpus));
        }
        largest(bounds)
    }

    /// The longest chains before and after each job, without the job itself.
    pub fn heads_and_tails(&self, took: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let jobs = self.jobs.len();
        let (mut heads, mut tails) = (vec![0f64; jobs], vec![0f64; jobs]);
        let mut open: Vec<u32> =
            self.jobs.indexes().map(|i| self.parents_of(i).len() as u32).collect();
        let mut order: Vec<JobIx> = self.jobs.indexes().filter(|i| open[i.at()] == 0).collect();
        let mut at = 0;
        while let Some(index) = order.get(at).copied() {
            at += 1;
            let end = heads[index.at()] + took[index.at()];
            for child in self.children_of(index) {
                let at = child.at();
                heads[at] = heads[at].max(end);
                open[at] -= 1;
                if open[at] == 0 {
                    order.push(*child);
                }
            }
        }
        for index in order.into_iter().rev() {
            let whole = tails[index.at()] + took[index.at()];
            for parent in self.parents_of(index) {
                let parent = parent.at();
                tails[parent] = tails[parent].max(whole);
            }
        }
        (heads, tails)
    }

    /// What is left of each job's expected time, in ms; 0 for what has ended.
    fn left_ms(&self, now: i64) -> Vec<f64> {
        self.jobs
            .indexes()
            .map(|index| {
                let job = &self.jobs[index];
                if job.status().is_final() {
                    return 0.0;
                }
                let ran = job.held().and_then(|held| held.started_at);
                let ran = ran.map_or(0, |started| (now - started).max(0));
                (i64::from(self.expected_ms(index)) - ran).max(1) as f64
            })
            .collect()
    }

    /// What is left of it, to forecast a workflow that is too large for a simulation. Of a complete
    /// one: all of it.
    pub fn rest(&self, now: i64) -> Rest {
        let is_again = self.is_complete();
        let is_open = |index: &JobIx| {
            let job = &self.jobs[*index];
            match is_again {
                true => !job.is_removed() && job.status() != JobStatus::Disabled,
                false => !job.status().is_final(),
            }
        };
        let mut rest = Rest {
            open: Vec::new(),
            classes: self.classes.list().to_vec(),
            unknown: 0,
            common: 0.0,
        };
        rest.open.reserve_exact(self.jobs.len());
        let typical = self.typical_ms();
        for index in self.jobs.indexes().filter(is_open) {
            let known = self.estimate(index);
            let expected = known.map_or(typical, |estimate| estimate.ms);
            let job = &self.jobs[index];
            let started = job.held().and_then(|held| held.started_at);
            let ran = started.filter(|_| !is_again).map_or(0, |started| (now - started).max(0));
            rest.open.push(OpenJob {
                left: (i64::from(expected) - ran).max(1) as f32,
                tail: (self.level_ms(index) - f64::from(expected)).max(0.0) as f32,
                class: job.class,
            });
            rest.unknown += usize::from(known.is_none());
            rest.common += common_spread(known.map(|estimate| estimate.source));
        }
        rest.common /= rest.open.len().max(1) as f64;
        rest
    }

    /// When the rest is expected to be over on these machines.
    pub fn forecast(&self, machines: &[SimulatedMachine], limits: &Limits, now: i64) -> Forecast {
        let left = self.left_ms(now);
        let mut bound = self.bound(machines, &left, now);
        let jobs = left.iter().filter(|ms| **ms > 0.0).count();
        let unknown = self
            .jobs
            .indexes()
            .filter(|i| left[i.at()] > 0.0 && self.estimate(*i).is_none())
            .count();
        let once = |machines: &[SimulatedMachine], rng: &mut Option<Rng>| {
            let mut copy = self.clone();
            let commons = Commons::draw(rng);
            let took = |index: JobIx| {
                let spread = self.spread(index).exp_of(&commons, rng);
                (f64::from(self.expected_ms(index)) * spread).round() as i64
            };
            copy.simulate(machines, &mut limits.clone(), now, took)
        };
        let plain = once(machines, &mut None);
        if let Some(soon) = at_once(machines, now) {
            let without = (once(&soon, &mut None).end - now) as f64;
            if (plain.end - now) as f64 > without * (1.0 + QUEUE_SHARE) {
                bound.by = LimitedBy::Queue;
            }
        }
        let draws = (DRAWN_JOBS / jobs.max(1)).clamp(1, DRAWS);
        let drawn = |seed: u64| once(machines, &mut Some(Rng::new(seed + 1))).end - now;
        let mut ends: Vec<i64> = (0..draws as u64).map(drawn).collect();
        ends.push(plain.end - now);
        ends.sort_unstable();
        let at = |share: f64| ends[((ends.len() - 1) as f64 * share).round() as usize];
        // A few draws do not show how much all times may vary together.
        let spread = match draws < FEW_DRAWS {
            true => (EIGHT_OF_TEN * self.rest(now).common).exp(),
            false => 1.0,
        };
        let ms = (plain.end - now) as f64;
        Forecast {
            ms: plain.end - now,
            low_ms: at(0.1).min((ms / spread) as i64),
            high_ms: at(0.9).max((ms * spread) as i64),
            bound,
            jobs,
            unknown,
            left: plain.left,
        }
    }

    /// How far a job's time may be from what is expected.
    fn spread(&self, index: JobIx) -> Spread {
        let source = self.estimate(index).map(|estimate| estimate.source);
        let own = match source {
            Some(EstimateSource::Own) => 0.08,
            Some(EstimateSource::Family) => {
                let family = self.family_of(index);
                let (low, high) =
                    (self.family_quantile(family, 0.1), self.family_quantile(family, 0.9));
                let seen = low.zip(high).map(|(low, high)| {
                    (f64::from(high.max(1)) / f64::from(low.max(1))).ln() / 2.56
                });
                seen.unwrap_or(0.3)
            }
            Some(EstimateSource::FamilyEarlier) => 0.3,
            Some(EstimateSource::Runtime) => 0.4,
            None => 0.8,
        };
        Spread { own, common: common_spread(source) }
    }
}

/// How much the logarithms of the times of all jobs that are known in one way vary together.
fn common_spread(source: Option<EstimateSource>) -> f64 {
    match source {
        Some(EstimateSource::Own) => 0.03,
        Some(EstimateSource::Family | EstimateSource::FamilyEarlier) => 0.05,
        Some(EstimateSource::Runtime) => 0.4,
        None => 0.8,
    }
}

/// How much logarithms of times vary: by job, and of all jobs that are known in one way together.
struct Spread {
    own: f64,
    common: f64,
}

/// What varies for all jobs together.
struct Commons(f64);

impl Commons {
    fn draw(rng: &mut Option<Rng>) -> Self {
        Self(rng.as_mut().map_or(0.0, normal))
    }
}

impl Spread {
    fn exp_of(&self, commons: &Commons, rng: &mut Option<Rng>) -> f64 {
        match rng {
            Some(rng) => (self.own * normal(rng) + self.common * commons.0).exp(),
            None => 1.0,
        }
    }
}

/// A normally distributed number: the sum of twelve uniform ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| (rng.word() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_as_long_as_what_is_there_then_needs_for_it() {
        let machine = |cpus, gpus, from| {
            let capacity = Capacity {
                num_cpus: cpus,
                num_gpus: gpus,
                memory_bytes: 10,
                ..Capacity::default()
            };
            SimulatedMachine::new(RunnerId(1), capacity, from)
        };
        let have = Have::of(&[machine(2, 0, 0), machine(2, 1, 100), machine(4, 0, 1_000)], 500);
        // Two and two CPUs are there now, four more from 500 ms on; the one with the GPU is there.
        assert_eq!(have.steps, [(0.0, [4.0, 1.0, 20.0]), (500.0, [4.0, 0.0, 10.0])]);
        assert_eq!(
            [0.0, 400.0, 2_000.0, 2_800.0].map(|work| have.time(0, work)),
            [0.0, 100.0, 500.0, 600.0]
        );
        assert_eq!((have.time(1, 30.0), have.first()), (30.0, 0.0));
        let bounds: Vec<_> = have.bounds([2_800.0, 0.0, 100.0]).collect();
        assert_eq!(bounds, [(600.0, LimitedBy::Cpus), (5.0, LimitedBy::Memory)]);
        let late = Have::of(&[machine(2, 0, 700)], 500);
        assert_eq!((late.first(), late.time(0, 10.0), late.time(1, 10.0)), (200.0, 205.0, 0.0));
        assert_eq!((Have::of(&[], 0).first(), Have::of(&[], 0).time(0, 5.0)), (0.0, 0.0));
    }

    #[test]
    fn machines_that_are_all_there_need_no_second_look() {
        let machine = |from| SimulatedMachine::new(RunnerId(1), Capacity::default(), from);
        assert_eq!(at_once(&[machine(4), machine(5)], 5), None);
        assert_eq!(at_once(&[machine(4), machine(6)], 5), Some(vec![machine(4), machine(5)]));
    }

    #[test]
    fn drawn_times_are_normally_distributed_logarithms() {
        let mut rng = Rng::new(1);
        let drawn: Vec<f64> = (0..10_000).map(|_| normal(&mut rng)).collect();
        let mean = drawn.iter().sum::<f64>() / 10_000.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let spread = Spread { own: 2.0, common: 3.0 };
        assert!((spread.exp_of(&Commons(4.0), &mut None) - 1.0).abs() < 1e-12);
        let expected = (2.0 * normal(&mut Rng::new(5)) + 12.0).exp();
        let drawn = spread.exp_of(&Commons(4.0), &mut Some(Rng::new(5)));
        assert!((drawn / expected - 1.0).abs() < 1e-12, "{drawn} {expected}");
        assert!(Commons::draw(&mut None).0.abs() < 1e-12);
    }

    #[test]
    fn the_largest_bound_counts_and_of_equal_ones_the_first() {
        let bounds = [(3.0, LimitedBy::Cpus), (5.0, LimitedBy::Gpus), (5.0, LimitedBy::Memory)];
        assert_eq!(largest(bounds), Bound { ms: 5.0, by: LimitedBy::Gpus });
        assert_eq!(largest([]), Bound { ms: 0.0, by: LimitedBy::CriticalPath });
    }
}
