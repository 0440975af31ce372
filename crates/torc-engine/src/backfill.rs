//! Runners that are kept for jobs that fit nowhere now, and what may start there meanwhile.
//!
//! Without this, a wide job waits for as long as narrow ones are ready: whenever a CPU becomes free
//! a narrow job takes it, however much earlier the wide one stands in the order. So the runner on
//! which the wide job can start soonest is kept for it (EASY backfilling): another job starts there
//! only if it fits beside it, or ends before it by its estimate. That promise is made once, when the
//! runner is kept. When it turns out to have been too early, no job starts there on the strength of
//! its estimate any more, so that wrong estimates delay the wide job by one job at most.

use super::claim::{Claim, Limits, why_not};
use super::index::{ClassIx, JobIx};
use super::queue::Key;
use super::workflow::Workflow;
use std::collections::BTreeMap;
use torc_model::api::Capacity;
use torc_model::class::Room;
use torc_model::ids::RunnerId;
use torc_model::status::JobStatus;

/// A runner that has not asked for this long is not counted on.
const SILENT_MS: i64 = 120_000;

/// A job that runs longer than expected goes on for this share of what it has run.
const OVERDUE_SHARE: i64 = 4;

/// A runner, as it last asked.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    capacity: Capacity,
    /// When it must stop.
    stop_at: Option<i64>,
    scheduler: Option<i64>,
    strict_scheduler: bool,
    label: Option<String>,
    /// When it last asked.
    at: i64,
}

/// A runner that is kept for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept {
    index: JobIx,
    runner: RunnerId,
    /// When the job was expected to start, the first time that was asked; None: unknown.
    start_at: Option<i64>,
    /// Since when.
    since: i64,
}

/// Which runners there are, and for which jobs they are kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Backfill {
    seen: BTreeMap<RunnerId, Seen>,
    kept: Vec<Kept>,
    /// A runner is no longer kept, so that others of its claims may be granted.
    is_released: bool,
}

/// What may start on a runner that is kept for a job.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Gap {
    /// For which job.
    pub index: JobIx,
    /// What will be left beside it.
    spare: Room,
    /// A job that ends by then delays nothing; None: unknown.
    until: Option<i64>,
}

/// When a job could start on a runner.
struct Start {
    /// None: jobs are in the way about whose time nothing is known.
    at: Option<i64>,
    /// The same with a guess where nothing is known, to compare runners.
    guess: i64,
    /// What is left beside it then.
    spare: Room,
    /// It fits then.
    fits: bool,
}

impl Seen {
    /// The claim that the runner would make now.
    fn ask<'a>(&'a self, runner: RunnerId, like: &Claim<'a>) -> Claim<'a> {
        Claim {
            runner,
            capacity: &self.capacity,
            time_left: self.stop_at.map(|at| (at - like.now) / 1000),
            scheduler: self.scheduler,
            strict_scheduler: self.strict_scheduler,
            label: self.label.as_deref(),
            ..like.clone()
        }
    }
}

impl Backfill {
    pub fn see(&mut self, claim: &Claim<'_>) {
        let stop_at = claim.time_left.map(|seconds| claim.now + seconds * 1000);
        if let Some(seen) = self.seen.get_mut(&claim.runner) {
            seen.at = claim.now;
            seen.stop_at = stop_at;
            seen.strict_scheduler = claim.strict_scheduler;
            if seen.capacity != *claim.capacity {
                seen.capacity = claim.capacity.clone();
            }
            return;
        }
        let seen = Seen {
            capacity: claim.capacity.clone(),
            stop_at,
            scheduler: claim.scheduler,
            strict_scheduler: claim.strict_scheduler,
            label: claim.label.map(str::to_owned),
            at: claim.now,
        };
        self.seen.insert(claim.runner, seen);
    }

    /// The runner is gone.
    pub fn forget(&mut self, runner: RunnerId) {
        self.seen.remove(&runner);
        self.kept.retain(|kept| kept.runner != runner);
    }

    /// A job no longer waits.
    pub fn release(&mut self, index: JobIx) {
        let count = self.kept.len();
        self.kept.retain(|kept| kept.index != index);
        self.is_released |= self.kept.len() < count;
    }

    /// The job starts on this runner: no other one was kept for it, or it is told.
    pub fn start(&mut self, index: JobIx, runner: RunnerId) {
        self.kept.retain(|kept| (kept.index, kept.runner) != (index, runner));
    }

    fn kept_for(&self, index: JobIx) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.index == index)
    }

    fn kept_on(&self, runner: RunnerId) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.runner == runner)
    }

    /// Another runner without GPUs asks for jobs too.
    pub fn has_plain_runner(&self, but: RunnerId) -> bool {
        self.seen.iter().any(|(id, seen)| *id != but && seen.capacity.num_gpus == 0)
    }
}

impl Workflow {
    /// Lets runners go that are kept for jobs that no longer wait, or that no longer ask.
    pub(super) fn release_kept(&mut self, now: i64) {
        if self.ready.backfill.kept.is_empty() {
            return;
        }
        let (jobs, seen) = (&self.jobs, &self.ready.backfill.seen);
        self.ready.backfill.kept.retain(|kept| {
            let job = &jobs[kept.index];
            let waits =
                job.status() == JobStatus::Ready && !job.held_back && job.not_before.is_none();
            // A clock that was set back must not make a runner look silent.
            waits && seen.get(&kept.runner).is_some_and(|seen| now - seen.at < SILENT_MS)
        });
    }

    /// The gap that is left on the runner that asks, if it is kept for a job that goes before
    /// `candidate` and does not fit into `room`. Keeps runners for such jobs.
    pub(super) fn gap(
        &mut self,
        claim: &Claim<'_>,
        limits: &Limits,
        strict: bool,
        room: &Room,
        candidate: Key,
    ) -> Option<Gap> {
        // A job of the candidate's own class fits where the candidate fits.
        if self.ready.queue.is_uniform() {
            return None;
        }
        let whole = Room::of(claim.capacity);
        let prefers_gpus = self.prefers_gpus(claim);
        let room_for = |flow: &Self, key: &Key, number: ClassIx| {
            let class = &flow.classes[number];
            let is_gpu_first = prefers_gpus
                && class.gpus > 0
                && key.0 == candidate.0
                && flow.classes[flow.jobs[candidate.3].class].gpus == 0;
            (*key < candidate || is_gpu_first)
                && !room.fits(class)
                && whole.fits(class)
                && why_not(class, claim, limits, strict).is_none()
        };
        loop {
            let kept = &self.ready.backfill;
            let elsewhere =
                |index: JobIx| kept.kept_for(index).is_some_and(|kept| kept.runner != claim.runner);
            let first = self
                .ready
                .queue
                .heads(elsewhere)
                .filter(|(number, key)| room_for(self, key, *number))
                .map(|(_, key)| key)
                .min()?;
            if kept.kept_for(first.3).is_some() {
                return self.gap_beside(first.3, claim, &whole);
            }
            // Jobs of the candidate's own priority have one runner between them, for the first of
            // them; what has a higher priority has a runner each.
            let has_one = first.0 == candidate.0 && self.has_kept_of(first);
            if has_one || !self.keep_for(first, claim, limits) {
                break;
            }
        }
        // The first cannot have a runner: this one may be kept for a later job.
        let index = self.keeps(claim.runner)?;
        room_for(self, &self.key(index), self.jobs[index].class)
            .then(|| self.gap_beside(index, claim, &whole))?
    }

    /// What may start on the runner that asks beside the job that it is kept for.
    fn gap_beside(&self, index: JobIx, claim: &Claim<'_>, whole: &Room) -> Option<Gap> {
        let kept = self.ready.backfill.kept_for(index)?;
        let start = self.start_on(claim.runner, whole, index, claim.now, kept.since);
        let until = start.at.zip(kept.start_at).map(|(now, promised)| now.min(promised));
        Some(Gap { index, spare: start.spare, until })
    }

    /// On a node with GPUs, jobs that need them go before those of the same priority that do not, as
    /// long as there is another place for those.
    pub(super) fn prefers_gpus(&self, claim: &Claim<'_>) -> bool {
        claim.capacity.num_gpus > 0 && self.ready.backfill.has_plain_runner(claim.runner)
    }

    /// A runner is kept for a job of this one's priority.
    fn has_kept_of(&self, key: Key) -> bool {
        self.ready.backfill.kept.iter().any(|kept| self.jobs[kept.index].priority == key.0.0)
    }

    /// Keeps the runner on which a job can start soonest, unless each is kept for one that goes
    /// before it.
    fn keep_for(&mut self, key: Key, claim: &Claim<'_>, limits: &Limits) -> bool {
        let index = key.3;
        let class = &self.classes[self.jobs[index].class];
        let mut best: Option<(i64, RunnerId, Option<i64>)> = None;
        for (runner, seen) in &self.ready.backfill.seen {
            let whole = Room::of(&seen.capacity);
            let ask = seen.ask(*runner, claim);
            if claim.now - seen.at >= SILENT_MS
                || self
                    .ready
                    .backfill
                    .kept_on(*runner)
                    .is_some_and(|kept| self.key(kept.index) < key)
                || !whole.fits(class)
                || why_not(class, &ask, limits, seen.strict_scheduler).is_some()
            {
                continue;
            }
            let start = self.start_on(*runner, &whole, index, claim.now, i64::MAX);
            if !start.fits {
                continue;
            }
            if best.as_ref().is_none_or(|(guess, ..)| start.guess < *guess) {
                best = Some((start.guess, *runner, start.at));
            }
        }
        let Some((_, runner, start_at)) = best else { return false };
        self.ready.backfill.kept.retain(|kept| kept.runner != runner);
        self.ready.backfill.kept.push(Kept { index, runner, start_at, since: claim.now });
        true
    }

    /// When a job can start on a runner that has so much in all, if it waits for jobs that were
    /// claimed before `since` only. Those that were given out later fill the gap: they count as if
    /// they never ended, so that none of them makes room for another one.
    fn start_on(
        &self,
        runner: RunnerId,
        whole: &Room,
        index: JobIx,
        now: i64,
        since: i64,
    ) -> Start {
        let class = &self.classes[self.jobs[index].class];
        let mut room = whole.clone();
        let mut ends: Vec<(i64, bool, ClassIx)> = Vec::new();
        for held in self.held_by(runner) {
            let job = &self.jobs[held];
            room.take(&self.classes[job.class]);
            if job.held().is_some_and(|held| held.claimed_at < since) {
                let (end, is_known) = self.expected_end(held, now);
                ends.push((end, is_known, job.class));
            }
        }
        ends.sort_unstable();
        let (mut at, mut guess) = (Some(now), now);
        for (end, is_known, freed) in ends {
            if room.fits(class) {
                break;
            }
            room.give(&self.classes[freed]);
            at = at.filter(|_| is_known).map(|_| end);
            guess = end;
        }
        let fits = room.fits(class);
        room.take(class);
        Start { at: at.filter(|_| fits), guess, spare: room, fits }
    }

    /// When a held attempt is expected to end, and whether that is more than a guess.
    fn expected_end(&self, index: JobIx, now: i64) -> (i64, bool) {
        let job = &self.jobs[index];
        let Some(held) = job.held() else { return (now, true) };
        let ran = (now - held.started_at.unwrap_or(held.claimed_at)).max(0);
        let expected = i64::from(self.expected_ms(index));
        let left = (expected - ran).max(ran / OVERDUE_SHARE);
        (now + left, self.estimate(index).is_some() && ran <= expected)
    }

    /// Whether a job may start on a runner that is kept for another one.
    pub(super) fn fills(&self, gap: &Gap, index: JobIx, now: i64) -> bool {
        if index == gap.index {
            return true;
        }
        let class = &self.classes[self.jobs[index].class];
        let ends_before = || {
            let estimate = self.estimate(index)?;
            gap.until.map(|until| now + i64::from(estimate.ms) <= until)
        };
        gap.spare.fits(class) || ends_before() == Some(true)
    }

    /// A runner is no longer kept for a job since the last call: its waiting claim should look again.
    pub fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.ready.backfill.is_released)
    }

    /// The runner that is kept for a job, and when the job was expected to start.
    pub(super) fn kept_for(&self, index: JobIx) -> Option<(RunnerId, Option<i64>)> {
        self.ready.backfill.kept_for(index).map(|kept| (kept.runner, kept.start_at))
    }

    /// The job that a runner is kept for.
    pub(super) fn keeps(&self, runner: RunnerId) -> Option<JobIx> {
        self.ready.backfill.kept_on(runner).map(|kept| kept.index)
    }
}

#[cfg(test)]
mod tests {
    use super::{Backfill, Claim, Kept};
    use crate::{Class, JobIx, NewJob, SimulatedMachine, Workflow};
    use proptest::prelude::*;
    use torc_model::api::Capacity;
    use torc_model::ids::{JobId, RunnerId, WorkflowId};
    use torc_model::plan::Settings;

    /// Narrow jobs of priority 0, and behind the first of them a wide one of priority 100.
    #[derive(Clone, Debug)]
    struct Case {
        /// CPUs of each runner.
        runners: Vec<i64>,
        wide: u32,
        /// CPUs and ms of each narrow job.
        narrow: Vec<(u32, i64)>,
        /// What is assumed of each narrow job, times what it takes; 0: nothing is known.
        known: Vec<f64>,
    }

    fn case() -> impl Strategy<Value = Case> {
        let runners = prop::collection::vec(4..9i64, 1..4);
        let narrow = prop::collection::vec((1..4u32, 100..5000i64), 30..80);
        let known = prop::sample::select(vec![0.0, 0.1, 0.9, 1.0, 1.1, 10.0]);
        (runners, 2..9u32, narrow, prop::collection::vec(known, 80)).prop_map(
            |(runners, wide, narrow, known)| {
                let most = runners.iter().copied().max().unwrap_or(1) as u32;
                Case { wide: wide.min(most), runners, narrow, known }
            },
        )
    }

    fn workflow(case: &Case, is_known: bool) -> Workflow {
        let mut workflow = Workflow::new(WorkflowId(1), Settings::default(), Vec::new());
        let mut add = |cpus: u32, priority: i64, own_ms: Option<u32>, parents: Vec<JobIx>| {
            let position = workflow.jobs.len() as i64;
            workflow.add_job(NewJob {
                id: JobId(position + 1),
                priority,
                position,
                family: 0,
                own_ms,
                class: Class { cpus, nodes: 1, ..Class::default() },
                handler: None,
                cancel_on_failure: true,
                max_lost: 0,
                parents,
            })
        };
        let own = |at: usize| {
            let ms = case.narrow[at].1 as f64 * case.known[at];
            (is_known && ms > 0.0).then_some(ms as u32)
        };
        add(1, 50, None, Vec::new());
        add(case.wide, 100, None, vec![JobIx::new(0)]);
        for (at, (cpus, _)) in case.narrow.iter().enumerate() {
            add((*cpus).min(4), 0, own(at), Vec::new());
        }
        workflow.settle();
        workflow.initialize(0);
        workflow
    }

    /// How long the wide job waited, and how long the jobs went on that ran when it became ready.
    fn wait(case: &Case, is_known: bool) -> (i64, i64) {
        const FIRST_MS: i64 = 700;
        let mut workflow = workflow(case, is_known);
        let machines: Vec<SimulatedMachine> = case
            .runners
            .iter()
            .enumerate()
            .map(|(number, cpus)| {
                let capacity = Capacity { num_cpus: *cpus, num_nodes: 1, ..Capacity::default() };
                SimulatedMachine::new(RunnerId(number as i64 + 1), capacity, 0)
            })
            .collect();
        let took = |index: JobIx| match index.at() {
            0 => FIRST_MS,
            1 => 1000,
            narrow => case.narrow[narrow - 2].1,
        };
        let done = workflow.simulate(&machines, &mut crate::Limits::new(), 0, took);
        assert_eq!(done.left, 0, "every job has run");
        let start = |index: JobIx| {
            done.starts
                .iter()
                .find(|(other, _)| *other == index)
                .map(|(_, at)| *at)
                .expect("it ran")
        };
        let ready = start(JobIx::new(0)) + FIRST_MS;
        let running = done.starts.iter().filter(|(_, at)| *at < ready);
        let left = running.map(|(index, at)| at + took(*index) - ready).max().unwrap_or(0);
        (start(JobIx::new(1)) - ready, left)
    }

    proptest! {
        #[test]
        fn without_estimates_a_wide_job_waits_for_what_runs_when_it_becomes_ready(case in case()) {
            // Families learn their times on the way; each of these jobs is of one family.
            let longest = case.narrow.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
            let (wait, left) = wait(&case, false);
            prop_assert!(wait <= left.max(0) + longest, "waited {wait} ms, {left} ms were left");
        }

        #[test]
        fn wrong_estimates_delay_a_wide_job_by_one_round_at_most(case in case()) {
            let longest = case.narrow.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
            let (wait, left) = wait(&case, true);
            prop_assert!(wait <= left.max(0) + longest, "waited {wait} ms, {left} ms were left");
        }
    }

    #[test]
    fn on_two_cpus_the_wide_job_starts_when_its_neighbour_has_ended() {
        let narrow = vec![(1, 1000); 20];
        let case = Case { runners: vec![2], wide: 2, narrow, known: vec![0.0; 20] };
        assert_eq!(wait(&case, false), (300, 300));
        // Known to be as long as the gap, a narrow job may go before.
        let case = Case { known: vec![1.0; 20], ..case };
        assert_eq!(wait(&case, true), (300, 300));
    }

    #[test]
    fn a_runner_counts_as_it_last_asked() {
        let node = |cpus, gpus| Capacity {
            num_cpus: cpus,
            num_gpus: gpus,
            num_nodes: 1,
            ..Capacity::default()
        };
        let (plain, larger, gpus) = (node(4, 0), node(8, 0), node(4, 2));
        let first = Claim {
            runner: RunnerId(1),
            key: "k",
            limit: 1,
            prefetch: 0,
            capacity: &plain,
            time_left: Some(60),
            scheduler: Some(4),
            strict_scheduler: false,
            label: Some("a"),
            now: 1_000,
            nonce: 1,
        };
        let mut backfill = Backfill::default();
        backfill.see(&first);
        let later = Claim { runner: RunnerId(3), now: 31_000, ..first.clone() };
        let expected = Claim { time_left: Some(30), now: 31_000, ..first.clone() };
        assert_eq!(backfill.seen[&RunnerId(1)].ask(RunnerId(1), &later), expected);
        let second = Claim {
            capacity: &larger,
            time_left: None,
            strict_scheduler: true,
            now: 5_000,
            ..first.clone()
        };
        backfill.see(&second);
        assert_eq!(backfill.seen[&RunnerId(1)].ask(RunnerId(1), &second), second);
        assert_eq!(backfill.seen[&RunnerId(1)].at, 5_000);
        assert!(backfill.has_plain_runner(RunnerId(2)) && !backfill.has_plain_runner(RunnerId(1)));
        backfill.see(&Claim { runner: RunnerId(2), capacity: &gpus, ..first });
        assert!(!backfill.has_plain_runner(RunnerId(1)), "the other one has GPUs");

        let kept = |job, runner| Kept {
            index: JobIx::new(job),
            runner: RunnerId(runner),
            start_at: None,
            since: 0,
        };
        backfill.kept = vec![kept(1, 1), kept(2, 2), kept(3, 3)];
        backfill.start(JobIx::new(1), RunnerId(2));
        backfill.release(JobIx::new(9));
        assert_eq!((backfill.kept.len(), backfill.is_released), (3, false));
        backfill.start(JobIx::new(1), RunnerId(1));
        assert_eq!(
            (&backfill.kept[..], backfill.is_released),
            (&[kept(2, 2), kept(3, 3)][..], false)
        );
        backfill.release(JobIx::new(3));
        assert_eq!((&backfill.kept[..], backfill.is_released), (&[kept(2, 2)][..], true));
        assert_eq!(backfill.kept_for(JobIx::new(2)), backfill.kept_on(RunnerId(2)));
        assert_eq!((backfill.kept_for(JobIx::new(3)), backfill.kept_on(RunnerId(3))), (None, None));
        backfill.forget(RunnerId(2));
        assert!(backfill.kept.is_empty() && !backfill.seen.contains_key(&RunnerId(2)));
    }
}
