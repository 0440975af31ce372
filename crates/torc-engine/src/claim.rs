//! Claims: which ready jobs a runner gets.

use super::change::Change;
use super::index::JobIx;
use super::jobs::{Held, Live};
use super::machine::{AttemptEvent, JobEvent, Machine};
use super::queue::Key;
use super::workflow::Workflow;
use std::collections::BTreeMap;
use torc_model::api::Capacity;
use torc_model::chance;
use torc_model::class::{Class, Room};
use torc_model::ids::{AttemptId, JobId, RunnerId};
use torc_model::labels;
use torc_model::status::AttemptState;

/// How much of a named limit is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitUse {
    /// At most this many at once.
    pub max: i64,
    /// Taken now, over all workflows and runners.
    pub used: i64,
    /// A user reserved it.
    pub paused: bool,
}

/// Named limits by name. A name that is not set has no limit.
pub type Limits = BTreeMap<String, LimitUse>;

/// What a runner asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim<'a> {
    /// Who.
    pub runner: RunnerId,
    /// Its word for this claim.
    pub key: &'a str,
    /// At most this many.
    pub limit: usize,
    /// So many more may be kept for later.
    pub prefetch: usize,
    /// All that the runner has.
    pub capacity: &'a Capacity,
    /// Seconds until it must stop.
    pub time_left: Option<i64>,
    /// The Slurm scheduler it was started for; `None` for runners that serve any.
    pub scheduler: Option<i64>,
    /// Takes nothing of other schedulers even when there is nothing else.
    pub strict_scheduler: bool,
    /// Its label.
    pub label: Option<&'a str>,
    /// Now.
    pub now: i64,
    /// Unpredictable number; tokens are made from it.
    pub nonce: u64,
}

/// What it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// The job's index.
    pub index: JobIx,
    /// The job.
    pub job: JobId,
    /// The attempt's row.
    pub attempt: AttemptId,
    /// Its number.
    pub number: u32,
    /// Fencing token.
    pub token: String,
}

impl Workflow {
    /// Gives ready jobs to a runner, in the order of dispatch, as far as they fit.
    pub fn claim(&mut self, claim: &Claim<'_>, limits: &mut Limits) -> Vec<Claimed> {
        self.claim_beside(claim, &[], limits)
    }

    /// Like [`Workflow::claim`], but passes over retries that would rather not go to the machine of
    /// these runners.
    pub fn claim_beside(
        &mut self,
        claim: &Claim<'_>,
        neighbours: &[RunnerId],
        limits: &mut Limits,
    ) -> Vec<Claimed> {
        self.wake_delayed(claim.now);
        let mut room = self.room_of(claim.runner, claim.capacity);
        let held = self.held_by(claim.runner).filter_map(|index| self.jobs[index].held());
        let waiting = held.filter(|held| held.state == AttemptState::Claimed).count();
        self.ready.backfill.see(claim);
        self.release_kept(claim.now);
        let mut given = Vec::new();
        let schedulers = if claim.strict_scheduler { &[true][..] } else { &[true, false][..] };
        for strict in schedulers {
            while given.len() < claim.limit {
                let Some(index) = self.choose(claim, neighbours, limits, *strict, &room) else {
                    break;
                };
                room.take(&self.classes[self.jobs[index].class]);
                given.push(self.give(index, claim, given.len(), limits));
            }
        }
        let whole = Room::of(claim.capacity);
        // What is kept waiting on a runner starts before what the runner is kept for.
        let is_kept = self.keeps(claim.runner).is_some();
        let mut ahead = if is_kept { 0 } else { claim.prefetch.saturating_sub(waiting) };
        while ahead > 0 && given.len() < claim.limit {
            // What takes a named limit is not kept waiting on a runner: others may need the unit.
            let strict = claim.scheduler.is_some();
            let fits = |c: &Class| c.uses.is_empty() && whole.fits(c);
            let next = self.pick(claim, neighbours, limits, strict, fits, |_| false);
            let next = next.map(|key| key.3);
            let Some(index) = next else { break };
            given.push(self.give(index, claim, given.len(), limits));
            ahead -= 1;
        }
        given
    }

    /// What the jobs that a runner holds leave free of what it has.
    pub fn room_of(&self, runner: RunnerId, capacity: &Capacity) -> Room {
        let mut room = Room::of(capacity);
        for index in self.held_by(runner) {
            room.take(&self.classes[self.jobs[index].class]);
        }
        room
    }

    /// The job that starts next in this room.
    fn choose(
        &mut self,
        claim: &Claim<'_>,
        neighbours: &[RunnerId],
        limits: &Limits,
        strict: bool,
        room: &Room,
    ) -> Option<JobIx> {
        let mut first = None;
        if self.prefers_gpus(claim) {
            let fits = |c: &Class| c.gpus > 0 && room.fits(c);
            let gpu = self.pick(claim, neighbours, limits, strict, fits, |_| false);
            let any = self.pick(claim, neighbours, limits, strict, |c| room.fits(c), |_| false)?;
            first = gpu.filter(|gpu| gpu.0 == any.0);
        }
        // A runner with little time left gets what ends in time, if there is any.
        if first.is_none()
            && let Some(left) = claim.time_left
        {
            let left = left.saturating_mul(1000);
            let too_long =
                |index: JobIx| i64::from(self.estimate(index).map_or(0, |e| e.ms)) > left;
            first = self.pick(claim, neighbours, limits, strict, |c| room.fits(c), too_long);
        }
        let first = match first {
            Some(first) => first,
            None => self.pick(claim, neighbours, limits, strict, |c| room.fits(c), |_| false)?,
        };
        let Some(gap) = self.gap(claim, limits, strict, room, first) else {
            return Some(first.3);
        };
        let no_gap = |index: JobIx| !self.fills(&gap, index, claim.now);
        self.pick(claim, neighbours, limits, strict, |c| room.fits(c), no_gap).map(|key| key.3)
    }

    /// The first job in the order of dispatch that this runner may take, of a class that fits,
    /// without those that are passed over.
    fn pick(
        &self,
        claim: &Claim<'_>,
        neighbours: &[RunnerId],
        limits: &Limits,
        strict: bool,
        fits: impl Fn(&Class) -> bool,
        passes_over: impl Fn(JobIx) -> bool,
    ) -> Option<Key> {
        self.ready.queue.first(
            |class| {
                let class = &self.classes[class];
                fits(class) && why_not(class, claim, limits, strict).is_none()
            },
            |index| {
                passes_over(index)
                    || !neighbours.is_empty()
                        && self.ready.avoidance.avoids(index, neighbours, claim.now)
            },
        )
    }

    fn give(
        &mut self,
        index: JobIx,
        claim: &Claim<'_>,
        nth: usize,
        limits: &mut Limits,
    ) -> Claimed {
        let token = token(claim.nonce, nth as u64);
        self.ready.avoidance.forget(index);
        self.ready.backfill.start(index, claim.runner);
        self.shift(index, JobEvent::Claimed, None);
        let class = self.jobs[index].class;
        self.take_share(class, limits);
        let (memory, time_limit) = (self.classes[class].memory, self.classes[class].time_limit());
        let job = &mut self.jobs[index];
        let attempt = job.live().expect("a ready job has a queued attempt");
        debug_assert!(AttemptState::Queued.after(AttemptEvent::Claimed).is_ok());
        job.live = Live::Held(Box::new(Held {
            attempt,
            runner: claim.runner,
            token: token.clone(),
            key: claim.key.to_owned(),
            state: AttemptState::Claimed,
            cancel_requested: false,
            claimed_at: claim.now,
            started_at: None,
        }));
        let claimed =
            Claimed { index, job: job.id, attempt, number: job.tries.number, token: token.clone() };
        self.attempts.give(claim.runner, index);
        self.record(Change::AttemptClaimed {
            id: attempt,
            runner: claim.runner,
            token,
            key: claim.key.to_owned(),
            at: claim.now,
            memory,
            time_limit,
        });
        claimed
    }
}

/// Why a runner may not take a job of this class, apart from its size.
pub(super) fn why_not(
    class: &Class,
    claim: &Claim<'_>,
    limits: &Limits,
    strict: bool,
) -> Option<String> {
    if !labels::fit(class.label.as_deref(), claim.label) {
        return Some(match &class.label {
            Some(label) if label.contains(',') => {
                format!("it needs a runner with the labels `{label}`")
            }
            Some(label) => format!("it needs a runner with label `{label}`"),
            None => format!(
                "runners with label `{}` take labelled jobs only",
                claim.label.unwrap_or_default()
            ),
        });
    }
    if let (Some(left), Some(runtime)) = (claim.time_left, class.runtime)
        && (runtime as i64) > left
    {
        return Some(format!("it may need {runtime} s and the runner has {left} s left"));
    }
    if strict
        && claim.scheduler.is_some()
        && class.scheduler.is_some()
        && class.scheduler != claim.scheduler
    {
        return Some("it waits for nodes of its own Slurm scheduler".into());
    }
    class.uses.iter().find_map(|name| {
        let limit = limits.get(name)?;
        if limit.paused {
            return Some(format!("limit `{name}` is reserved"));
        }
        (limit.used >= limit.max)
            .then(|| format!("limit `{name}` is used up ({} of {})", limit.used, limit.max))
    })
}

/// A token that no other claim has: the nonce is random, the rest spreads it.
fn token(nonce: u64, nth: u64) -> String {
    let (first, second) = (nonce.wrapping_add(nth << 32), chance::nth(nonce, nth));
    format!("{:016x}{:016x}", chance::mix(first), chance::mix(second))
}
