//! Looks at processes from time to time: what they use, and what they have left behind.

use super::{Done, ProcessEvent, SCAN_SHARE, State, StopReason, Supervisor};
use crate::cleanup::{self, SweepMemory, SweepOrder};
use crate::monitor::{self, Sample, Watched};
use crate::process::ProcessOrder;
use crate::tasks::FollowUp;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Escapees of short processes are found this long after their end...
const SWEEP_AFTER: Duration = Duration::from_millis(500);
/// ...or this long, on machines where looking through the process table is expensive.
const SWEEP_AT_LATEST: Duration = Duration::from_millis(1500);
/// Where only sampling enforces memory limits, it must be quick.
const LIMIT_INTERVAL: Duration = Duration::from_millis(250);

/// When the processes are looked at next for what they use.
pub(super) struct Sampling {
    next: Option<Instant>,
    is_under_way: bool,
    /// As it was at the last look; `None` where the kernel does not count them.
    machine_oom_kills: Option<u64>,
}

impl Sampling {
    pub fn new() -> Self {
        let machine_oom_kills = monitor::machine_oom_kills();
        Self { next: None, is_under_way: false, machine_oom_kills }
    }

    pub fn next_alarm(&self) -> Option<Instant> {
        self.next.filter(|_| !self.is_under_way)
    }

    fn plan(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |planned| planned.min(at)));
    }

    /// What the kernel has killed so far is accounted for.
    pub fn forget_oom_kills(&mut self) {
        self.machine_oom_kills = monitor::machine_oom_kills();
    }

    pub fn machine_oom_since_last_look(&mut self) -> bool {
        let before = self.machine_oom_kills;
        self.machine_oom_kills = monitor::machine_oom_kills();
        matches!((before, self.machine_oom_kills), (Some(before), Some(after)) if after > before)
    }
}

/// When leftovers of ended processes are looked for next, and what that look must know.
#[derive(Default)]
pub(super) struct Sweeping {
    next: Option<Instant>,
    pub is_under_way: bool,
    /// How long the last one took.
    cost: Duration,
    /// Processes that ended since the last one began.
    pub ended: HashSet<u64>,
    strangers: SweepMemory,
    /// The highest number of a process so far.
    pub newest: u64,
    /// The pid of the runner's guard: a child of ours that belongs to no attempt.
    pub guard: Arc<AtomicI32>,
}

impl Sweeping {
    pub fn next_alarm(&self) -> Option<Instant> {
        self.next.filter(|_| !self.is_under_way)
    }

    pub fn plan(&mut self, now: Instant) {
        let pause = (self.cost * SCAN_SHARE).clamp(SWEEP_AFTER, SWEEP_AT_LATEST);
        self.next.get_or_insert(now + pause);
    }

    pub fn on_swept(&mut self, strangers: SweepMemory, cost: Duration, now: Instant) {
        (self.is_under_way, self.cost) = (false, cost);
        self.strangers = strangers;
        if self.strangers.need_another_look {
            self.plan(now);
        }
    }
}

impl Supervisor {
    pub(super) fn plan_sample(&mut self, order: &ProcessOrder, now: Instant) {
        let quick =
            order.memory_limit.filter(|_| self.setup.cgroups.is_none()).map(|_| LIMIT_INTERVAL);
        let interval = [self.rules.sample_interval, quick].into_iter().flatten().min();
        if let Some(at) = interval.map(|interval| now + interval) {
            self.sampling.plan(at);
        }
    }

    pub(super) fn take_sample(&mut self, now: Instant) {
        self.sampling.next = None;
        let watched: Vec<Watched> = self
            .live
            .iter()
            .filter_map(|(id, live)| match &live.state {
                State::Running(launched) => Some(Watched {
                    id: *id,
                    pid: launched.pid,
                    memory_limit: live.order.memory_limit,
                }),
                State::Starting | State::Lingering(..) | State::CleaningUp(..) => None,
            })
            .collect();
        if self.live.is_empty() {
            return;
        }
        for order in self.live.values().map(|live| live.order.clone()).collect::<Vec<_>>() {
            self.plan_sample(&order, now);
        }
        self.sampling.is_under_way = true;
        let (scanner, answers) = (self.scanner.clone(), self.answers.clone());
        let setup = self.setup.clone();
        self.tasks.push(move || {
            let samples = match scanner.table_since(now) {
                Ok(table) => monitor::sample(&table, &setup.owner, &watched),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the process table");
                    Vec::new()
                }
            };
            answers.send_quietly(Done::Sampled(samples, monitor::machine_oom_kills()));
            FollowUp::Now
        });
    }

    pub(super) fn on_sampled(
        &mut self,
        samples: Vec<Sample>,
        oom_kills: Option<u64>,
        now: Instant,
        out: &mut Vec<ProcessEvent>,
    ) {
        self.sampling.is_under_way = false;
        self.sampling.machine_oom_kills = oom_kills.max(self.sampling.machine_oom_kills);
        for sample in samples {
            let Some(live) = self.live.get_mut(&sample.id) else { continue };
            let cpu_percent = live.usage.add(&sample);
            out.push(ProcessEvent::Sampled { sample, cpu_percent });
            if let Some(limit_bytes) =
                live.order.memory_limit.filter(|limit| sample.memory_bytes > *limit)
            {
                let reason = StopReason::Memory { used_bytes: sample.memory_bytes, limit_bytes };
                self.stop(&[sample.id], &reason, now);
            }
        }
    }

    pub(super) fn take_sweep(&mut self) {
        self.sweeping.next = None;
        self.sweeping.is_under_way = true;
        let order = self.sweep_order();
        let (scanner, answers) = (self.scanner.clone(), self.answers.clone());
        self.tasks.push(move || {
            let start = Instant::now();
            let strangers = cleanup::sweep(&scanner, order);
            answers.send_quietly(Done::Swept(strangers, start.elapsed()));
            FollowUp::Now
        });
    }

    pub(super) fn sweep_order(&mut self) -> SweepOrder {
        let leaders = self.live.values().filter_map(|live| match &live.state {
            State::Running(launched)
            | State::Lingering(launched, _)
            | State::CleaningUp(launched, _) => Some(launched.pid),
            State::Starting => None,
        });
        SweepOrder {
            leaders: leaders.chain([self.sweeping.guard.load(Ordering::SeqCst)]).collect(),
            owner: self.setup.owner.clone(),
            ended: std::mem::take(&mut self.sweeping.ended),
            newest: self.sweeping.newest,
            oldest_living: self.live.keys().min().copied().unwrap_or(self.sweeping.newest + 1),
            strangers: std::mem::take(&mut self.sweeping.strangers),
        }
    }

    /// The last look before the runner leaves: nothing of any process stays behind.
    pub fn sweep_now(&mut self) {
        let is_quiet = self.live.is_empty() && !self.sweeping.is_under_way;
        if !is_quiet
            || !cleanup::is_clean(&HashSet::from([self.sweeping.guard.load(Ordering::SeqCst)]))
        {
            // Twice, because an orphan without a tag must have been seen before it is taken for
            // one.
            for _ in 0..2 {
                let order = self.sweep_order();
                self.sweeping.strangers = cleanup::sweep(&self.scanner, order);
            }
        }
        // Not left to its last owner: the process may be gone by then.
        if let Some(cgroups) = &self.setup.cgroups {
            cgroups.remove();
        }
    }
}
