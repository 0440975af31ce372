//! The order of dispatch: how long each job is expected to take, and how much follows it.
//!
//! The level of a job is its own estimate plus the longest chain of estimates that waits for it
//! (the b-level of list scheduling). Its rank is the level times the job's width and, where the level
//! is a guess, the number of jobs that wait for it, in steps of a few per cent. Levels are computed when a workflow is made or loaded, a job at a time when jobs are
//! added or changed, and anew when what was learned from finished jobs differs much from what was
//! assumed: never by a claim.
//!
//! What ranks are made from is stored (a job's own time, a family's time, what is assumed of the
//! rest), so that a restart makes the same ranks.

use super::change::Change;
use super::index::JobIx;
use super::workflow::Workflow;
use torc_model::class::{BYTES_PER_CPU, CPUS_PER_GPU, Class};
use torc_model::status::{DispatchOrder, EstimateSource, JobStatus};

/// A family's time is known from this many ends on.
const ENOUGH_ENDS: u32 = 3;

/// A family's time is taken anew when it differs by this much from the one in use.
const MUCH: f64 = 0.25;

/// Ranks are made anew at most once in this many microseconds per job: about one per cent of the
/// server's time, whatever the number of jobs.
const RERANK_MICROS_PER_JOB: i64 = 100;

/// The least and the longest time between two new makings, in ms.
const RERANK_MS: std::ops::RangeInclusive<i64> = 100..=10_000;

/// Two levels that differ by less than this share are equal: the earlier position wins.
const RANK_STEP: f64 = 1.05;

/// The rank of a level of one millisecond.
const FIRST_RANK: f64 = 1.0;

/// How much the width of a job counts beside its level.
const WIDTH_EXPONENT: f64 = 0.3;

/// How much the number of jobs that wait for a job counts beside its level, as long as its own time
/// is not known: levels are guesses then, and a job that sets many others free fills the machines
/// whatever they take.
const FAN_OUT_EXPONENT: f64 = 0.2;

/// `runtime` is what a job may take; jobs take a third of it.
const RUNTIME_SHARE: u64 = 3;

/// What is assumed of a job about which nothing is known, when nothing is known of the others.
pub const UNKNOWN_MS: u32 = 1000;

/// How long a job is expected to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// In ms.
    pub ms: u32,
    /// How it is known.
    pub source: EstimateSource,
}

/// What is known of a family's time, as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyTime {
    /// In ms; 0: unknown.
    pub ms: u32,
    /// The run in which it was measured; a run before the first one is that of an earlier workflow.
    pub run: i64,
}

/// The ends of a family's jobs in a run, as counts by steps of a few per cent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ends {
    run: i64,
    counts: Vec<(u16, u32)>,
    total: u32,
    /// Compared with the time in use when there are so many.
    next_look: u32,
}

impl Ends {
    fn add(&mut self, ms: u32) {
        let step = step(f64::from(ms));
        match self.counts.binary_search_by_key(&step, |(step, _)| *step) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (step, 1)),
        }
        self.total += 1;
    }

    /// The time that a share of them took at most, in ms.
    fn quantile(&self, share: f64) -> u32 {
        let wanted = (f64::from(self.total) * share).ceil().max(1.0) as u32;
        let mut sum = 0;
        let found = self.counts.iter().find(|(_, count)| {
            sum += count;
            sum >= wanted
        });
        found.map_or(0, |(step, _)| unstep(*step))
    }
}

/// Estimates and ranks of a workflow's jobs.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Order {
    /// The family of each job.
    family: Vec<u32>,
    /// The time of each job's own earlier attempts, in ms; 0: none. Shorter than the list of jobs
    /// when the rest has none.
    own: Vec<u32>,
    /// In ms.
    level: Vec<f32>,
    rank: Vec<u16>,
    families: Vec<FamilyTime>,
    ends: Vec<Ends>,
    /// What is assumed of jobs about which nothing is known, in ms.
    typical_ms: Option<u32>,
    /// When ranks were last made anew because of what was learned.
    ranked_at: Option<i64>,
    /// Families whose time differs much from the one in use.
    is_stale: bool,
    /// Jobs that had ended were opened again: what they took counts for the jobs before them.
    pub is_reopened: bool,
}

impl Order {
    pub fn add(&mut self, family: u32, own_ms: Option<u32>) {
        let index = self.family.len();
        self.family.push(family);
        self.level.push(0.0);
        self.rank.push(0);
        if let Some(ms) = own_ms {
            self.set_own(index, ms);
        }
    }

    pub fn set_family(&mut self, index: JobIx, family: u32) {
        self.family[index.at()] = family;
    }

    fn set_own(&mut self, index: usize, ms: u32) {
        if self.own.len() <= index {
            self.own.resize(index + 1, 0);
        }
        self.own[index] = ms.max(1);
    }

    pub fn rank(&self, index: JobIx) -> u16 {
        self.rank[index.at()]
    }

    pub fn own_ms(&self, index: JobIx) -> Option<u32> {
        self.own.get(index.at()).copied().filter(|ms| *ms > 0)
    }

    fn time_of(&self, family: u32) -> FamilyTime {
        self.families.get(family as usize).copied().unwrap_or_default()
    }
}

/// The number of a time's step.
fn step(ms: f64) -> u16 {
    (FIRST_RANK + ms.max(1.0).ln() / RANK_STEP.ln()).round() as u16
}

fn unstep(step: u16) -> u32 {
    RANK_STEP.powf(f64::from(step) - FIRST_RANK).round() as u32
}

/// How much of a machine a job takes, in CPUs: the largest of its shares counts.
fn width(class: &Class) -> f64 {
    let memory = class.memory.unwrap_or(0) as f64 / BYTES_PER_CPU;
    let gpus = f64::from(class.gpus) * CPUS_PER_GPU;
    let one = f64::from(class.cpus).max(memory).max(gpus).max(1.0);
    one * f64::from(class.nodes.max(1))
}

impl Workflow {
    /// How long a job is expected to take; None when nothing is known.
    pub fn estimate(&self, index: JobIx) -> Option<Estimate> {
        let order = &self.order;
        let known = |ms, source| Some(Estimate { ms, source });
        if let Some(own) = order.own_ms(index) {
            return known(own, EstimateSource::Own);
        }
        let family = order.time_of(order.family[index.at()]);
        if family.ms > 0 {
            let is_now = family.run == self.run;
            let source =
                if is_now { EstimateSource::Family } else { EstimateSource::FamilyEarlier };
            return known(family.ms, source);
        }
        let runtime = self.next_class_of(index).runtime?;
        let ms = (runtime * 1000 / RUNTIME_SHARE).clamp(1, u64::from(u32::MAX)) as u32;
        known(ms, EstimateSource::Runtime)
    }

    /// The same, with what is assumed when nothing is known.
    pub fn expected_ms(&self, index: JobIx) -> u32 {
        self.estimate(index).map_or(self.typical_ms(), |estimate| estimate.ms)
    }

    /// What is assumed of a job about which nothing is known.
    pub fn typical_ms(&self) -> u32 {
        self.order.typical_ms.unwrap_or(UNKNOWN_MS)
    }

    /// What is known of families' times.
    pub(super) fn family_times(&self) -> Vec<FamilyTime> {
        self.order.families.clone()
    }

    /// The family of a job.
    pub fn family_of(&self, index: JobIx) -> u32 {
        self.order.family[index.at()]
    }

    /// The time that a share of the family's jobs took at most in this run, in ms.
    pub fn family_quantile(&self, family: u32, share: f64) -> Option<u32> {
        let ends = self.order.ends.get(family as usize)?;
        (ends.run == self.run && ends.total >= ENOUGH_ENDS).then(|| ends.quantile(share))
    }

    /// The rank of a job: jobs with higher ranks go first among those of one priority.
    pub fn rank(&self, index: JobIx) -> u16 {
        self.order.rank(index)
    }

    /// The longest chain of estimates that begins with a job, in ms.
    pub fn level_ms(&self, index: JobIx) -> f64 {
        f64::from(self.order.level[index.at()])
    }

    /// Puts back what was stored of families' times; [`Workflow::settle`] makes the ranks of it.
    pub fn restore_times(&mut self, typical_ms: Option<u32>, families: Vec<FamilyTime>) {
        self.order.typical_ms = typical_ms;
        self.order.families = families;
    }

    /// Counts an end of the current run again, while restoring.
    pub fn restore_end(&mut self, family: u32, ms: u32) {
        let run = self.run;
        self.ends_of(family, run).add(ms);
    }

    /// Makes all levels and ranks anew. In bulk, because jobs are made or loaded.
    pub(super) fn rank_all(&mut self) {
        if self.order.typical_ms.is_none() {
            self.order.typical_ms = Some(self.find_typical());
        }
        let levels = self.levels();
        let ranks: Vec<u16> =
            self.jobs.indexes().map(|index| self.rank_at(index, levels[index.at()])).collect();
        let is_moved = |index: &JobIx| {
            let at = index.at();
            self.jobs[*index].status() == JobStatus::Ready && self.order.rank[at] != ranks[at]
        };
        let moved: Vec<JobIx> = self.jobs.indexes().filter(is_moved).collect();
        for index in &moved {
            self.unqueue(*index);
        }
        self.order.level = levels;
        self.order.rank = ranks;
        for index in moved {
            self.enqueue(index);
        }
    }

    /// Makes ranks anew after jobs that had ended were opened again. The end of a job does not change
    /// the ranks of jobs before it, because those have ended: only where one of them is opened again
    /// while later ones still run, a restart may rank it by a newer estimate.
    pub(super) fn rank_reopened(&mut self) {
        if std::mem::take(&mut self.order.is_reopened) {
            self.rank_all();
        }
    }

    /// The mean of what is known. It is meant to be large where a few jobs are much longer than the
    /// rest: a chain into the unknown goes before one that is known to be short.
    fn find_typical(&self) -> u32 {
        let (mut sum, mut count) = (0.0, 0u32);
        for index in self.jobs.indexes() {
            if let Some(estimate) = self.estimate(index) {
                sum += f64::from(estimate.ms);
                count += 1;
            }
        }
        if count == 0 { UNKNOWN_MS } else { (sum / f64::from(count)).round().max(1.0) as u32 }
    }

    /// One pass from the last jobs to the first.
    fn levels(&self) -> Vec<f32> {
        let jobs = self.jobs.len();
        let mut open: Vec<u32> =
            self.jobs.indexes().map(|index| self.children_of(index).len() as u32).collect();
        let mut levels = vec![0f32; jobs];
        let mut done: Vec<JobIx> =
            self.jobs.indexes().filter(|index| open[index.at()] == 0).collect();
        while let Some(index) = done.pop() {
            // Until here it is the longest level of its children.
            levels[index.at()] += self.own_level(index);
            for parent in self.parents_of(index) {
                let at = parent.at();
                levels[at] = levels[at].max(levels[index.at()]);
                open[at] -= 1;
                if open[at] == 0 {
                    done.push(*parent);
                }
            }
        }
        levels
    }

    /// Its level by those of the jobs that wait for it.
    fn level_of(&self, index: JobIx) -> f32 {
        let below = self.children_of(index).iter();
        let below = below.map(|child| self.order.level[child.at()]).fold(0.0, f32::max);
        below + self.own_level(index)
    }

    fn own_level(&self, index: JobIx) -> f32 {
        if self.jobs[index].is_removed() { 0.0 } else { self.expected_ms(index) as f32 }
    }

    fn rank_at(&self, index: JobIx, level: f32) -> u16 {
        match self.settings.order {
            DispatchOrder::Submission => 0,
            DispatchOrder::CriticalPath => {
                let width = width(self.next_class_of(index)).powf(WIDTH_EXPONENT);
                let fan_out = match self.order.own_ms(index) {
                    Some(_) => 1.0,
                    None => (1.0 + self.children_of(index).len() as f64).powf(FAN_OUT_EXPONENT),
                };
                step(f64::from(level) * width * fan_out)
            }
        }
    }

    /// A job is new or has changed: its level, and those of jobs before it as far as they change.
    pub(super) fn relevel(&mut self, first: impl IntoIterator<Item = JobIx>) {
        let mut open: Vec<JobIx> = first.into_iter().collect();
        while let Some(index) = open.pop() {
            let at = index.at();
            let level = self.level_of(index);
            let rank = self.rank_at(index, level);
            let was = (self.order.level[at], self.order.rank[at]);
            if was == (level, rank) {
                continue;
            }
            self.unqueue(index);
            self.order.level[at] = level;
            self.order.rank[at] = rank;
            self.enqueue(index);
            if was.0 != level {
                open.extend(self.parents_of(index));
            }
        }
    }

    fn ends_of(&mut self, family: u32, run: i64) -> &mut Ends {
        let all = &mut self.order.ends;
        if all.len() <= family as usize {
            all.resize(family as usize + 1, Ends::default());
        }
        let ends = &mut all[family as usize];
        if ends.run != run {
            *ends = Ends { run, next_look: ENOUGH_ENDS, ..Ends::default() };
        }
        ends
    }

    /// A job has succeeded after so long. What was known of its own time counts as much as that.
    pub(super) fn learn(&mut self, index: JobIx, ms: u32, now: i64) {
        let before = self.order.own.get(index.at()).copied().unwrap_or(0);
        let own = match before {
            0 => ms.max(1),
            before => (f64::from(before) * f64::from(ms.max(1))).sqrt().round() as u32,
        };
        self.order.set_own(index.at(), own);
        let (family, run) = (self.order.family[index.at()], self.run);
        let ends = self.ends_of(family, run);
        ends.add(ms);
        if ends.total >= ends.next_look {
            ends.next_look = ends.total + ends.total.div_ceil(2);
            let median = f64::from(ends.quantile(0.5));
            let used = self.order.time_of(family);
            let change = (median / f64::from(used.ms.max(1)) - 1.0).abs();
            self.order.is_stale |= used.run != run || change > MUCH;
        }
        if self.order.is_stale {
            self.learn_families(now);
        }
    }

    /// Takes the families' times of this run over and ranks anew, unless that was done lately or no
    /// job waits.
    fn learn_families(&mut self, now: i64) {
        let waits = [JobStatus::Blocked, JobStatus::Ready];
        if waits.iter().all(|status| self.jobs.count(*status) == 0) {
            return;
        }
        let pause = (self.jobs.len() as i64 * RERANK_MICROS_PER_JOB / 1000)
            .clamp(*RERANK_MS.start(), *RERANK_MS.end());
        // A clock that was set back must not stop it for ever.
        if self.order.ranked_at.is_some_and(|at| (0..pause).contains(&(now - at))) {
            return;
        }
        self.order.ranked_at = Some(now);
        self.order.is_stale = false;
        let run = self.run;
        let mut changed = Vec::new();
        for (family, ends) in self.order.ends.iter().enumerate() {
            if ends.run != run || ends.total < ENOUGH_ENDS {
                continue;
            }
            let (used, ms) = (self.order.time_of(family as u32), ends.quantile(0.5).max(1));
            let change = (f64::from(ms) / f64::from(used.ms.max(1)) - 1.0).abs();
            if used.run != run || change > MUCH {
                changed.push((family as u32, FamilyTime { ms, run }));
            }
        }
        if changed.is_empty() {
            return;
        }
        for (family, time) in &changed {
            let at = *family as usize;
            if self.order.families.len() <= at {
                self.order.families.resize(at + 1, FamilyTime::default());
            }
            self.order.families[at] = *time;
        }
        let typical_ms = self.find_typical();
        self.order.typical_ms = Some(typical_ms);
        self.record(Change::Times { typical_ms, families: changed });
        self.rank_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_a_few_per_cent_wide_and_come_back() {
        for ms in [1u32, 7, 100, 12_345, 86_400_000] {
            let back = f64::from(unstep(step(f64::from(ms))));
            assert!((back / f64::from(ms) - 1.0).abs() <= 0.03 || ms < 20, "{ms}: {back}");
        }
        assert!(step(1e10) < u16::MAX / 2);
    }

    #[test]
    fn the_median_of_a_family_does_not_follow_one_long_job() {
        let mut ends = Ends::default();
        for ms in [100, 104, 98, 101, 60_000] {
            ends.add(ms);
        }
        assert!((95..=107).contains(&ends.quantile(0.5)), "{}", ends.quantile(0.5));
        assert!(ends.quantile(1.0) > 50_000);
    }
}
