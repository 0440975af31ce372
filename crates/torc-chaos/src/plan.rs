//! The plan: everything that is chance, decided by the seed alone.

use crate::clocks::Shift;
use crate::net::Trouble;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A stream of numbers that its seed determines (splitmix64).
#[derive(Clone, Debug)]
pub struct PlanRng(u64);

impl PlanRng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x2545_f491_4f6c_dd1d);
        rng.word();
        rng
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    /// A time between the two, in ms.
    pub fn pause(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        Duration::from_millis(low_ms + self.below(high_ms - low_ms + 1))
    }
}

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Victim {
    /// The server.
    Server,
    /// One of the runners.
    Runner(usize),
    /// A runner together with its guard, which would have ended its jobs.
    RunnerAndGuard(usize),
    /// Only the guard of a runner.
    Guard(usize),
    /// The leader of a job.
    Job,
    /// The client of Python, where there is one.
    Client,
    /// Everything but the jobs at the same time.
    All,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A process dies.
    Kill(Victim),
    /// The wire of a runner.
    Wire {
        /// The runner on whose wire it happens.
        runner: usize,
        /// What it does.
        trouble: Trouble,
        /// For how long.
        lasts: Duration,
    },
    /// Clocks are set, or the machine slept or was started again.
    Clock(Shift),
}

/// One fault at a time of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// After the one before.
    pub after: Duration,
    /// What goes wrong.
    pub what: What,
    /// Picks among several.
    pub pick: u64,
}

/// What kind of faults a world has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Faults {
    /// Kills of everything, at random times and at failpoints.
    Mixed,
    /// Only the server is killed.
    Server,
    /// Only runners and guards.
    Runners,
    /// Only jobs.
    Jobs,
    /// Only the network fails.
    Network,
    /// Clocks jump, the machine sleeps and is started again.
    Clocks,
}

impl Faults {
    /// In a campaign every eighth world or more has each kind.
    pub fn of_seed(seed: u64) -> Self {
        let turns = [
            Self::Mixed,
            Self::Server,
            Self::Mixed,
            Self::Runners,
            Self::Mixed,
            Self::Jobs,
            Self::Network,
            Self::Clocks,
        ];
        turns[(seed % 8) as usize]
    }

    /// For the figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Server => "server",
            Self::Runners => "runners",
            Self::Jobs => "jobs",
            Self::Network => "network",
            Self::Clocks => "clocks",
        }
    }

    /// Every second world of each kind has a pool runner, and calls of Python.
    pub fn has_pool(seed: u64) -> bool {
        (seed / 8) % 2 == 1
    }

    /// Processes may die at failpoints.
    pub fn has_failpoints(self) -> bool {
        matches!(self, Self::Mixed | Self::Server | Self::Runners)
    }
}

/// What will happen in a world.
pub struct Plan {
    kills: PlanRng,
    faults: Faults,
    /// Faults of the network that last longer than every lease are among them.
    has_long: bool,
    /// Few kills from outside, so that processes live long enough to come to their failpoints.
    is_calm: bool,
    server_points: Points,
    runner_points: Points,
    restarts: PlanRng,
    /// For the workflows.
    pub workload: PlanRng,
}

/// Failpoints in an order of their own, each as often as the others.
struct Points {
    rng: PlanRng,
    names: Vec<&'static str>,
    next: usize,
}

impl Points {
    fn new(mut rng: PlanRng, belongs: impl Fn(&str) -> bool) -> Self {
        let mut names: Vec<&str> =
            torc_failpoint::ALL.iter().copied().filter(|name| belongs(name)).collect();
        for i in (1..names.len()).rev() {
            names.swap(i, rng.below(i as u64 + 1) as usize);
        }
        Self { rng, names, next: 0 }
    }

    /// Two of three processes get one.
    fn draw(&mut self) -> Option<String> {
        if self.rng.below(3) == 0 {
            return None;
        }
        let name = self.names[self.next % self.names.len()];
        self.next += 1;
        // Early ones find what happens while a process comes up, late ones what happens while it
        // works.
        let nth = [1, 1, 2, 3, 4, 6, 9, 14, 22, 40][self.rng.below(10) as usize];
        Some(format!("{name}:{nth}"))
    }
}

/// The runners of a world.
pub const RUNNERS: usize = 2;

impl Plan {
    /// The plan of this seed.
    pub fn new(seed: u64, faults: Faults, has_long: bool) -> Self {
        let stream = |n: u64| PlanRng::new(seed.wrapping_mul(16).wrapping_add(n));
        let is_runners =
            |name: &str| ["runner.", "spool.", "steps."].iter().any(|part| name.starts_with(part));
        Self {
            kills: stream(1),
            faults,
            has_long,
            is_calm: seed.is_multiple_of(2),
            server_points: Points::new(stream(2), move |name| !is_runners(name)),
            runner_points: Points::new(stream(3), is_runners),
            restarts: stream(4),
            workload: stream(5),
        }
    }

    /// The next fault.
    pub fn fault(&mut self) -> Fault {
        let after =
            if self.is_calm { self.kills.pause(300, 3000) } else { self.kills.pause(20, 420) };
        let runner = self.kills.below(RUNNERS as u64) as usize;
        let what = match (self.faults, self.kills.below(100)) {
            (Faults::Network, _) => self.wire(runner),
            (Faults::Clocks, chance) => self.clock(runner, chance),
            (Faults::Server, _) | (Faults::Mixed, 0..30) => What::Kill(Victim::Server),
            (Faults::Runners, 0..60) | (Faults::Mixed, 30..55) => {
                What::Kill(Victim::Runner(runner))
            }
            (Faults::Runners, 60..85) | (Faults::Mixed, 55..65) => {
                What::Kill(Victim::RunnerAndGuard(runner))
            }
            (Faults::Runners, _) | (Faults::Mixed, 65..70) => What::Kill(Victim::Guard(runner)),
            (Faults::Mixed, 70..73) => What::Kill(Victim::Client),
            (Faults::Jobs, _) | (Faults::Mixed, 73..93) => What::Kill(Victim::Job),
            (Faults::Mixed, _) => What::Kill(Victim::All),
        };
        Fault { after, what, pick: self.kills.below(u64::from(u32::MAX)) }
    }

    /// Most troubles are shorter than a lease; some last longer than the lease and the disown
    /// deadline.
    fn wire(&mut self, runner: usize) -> What {
        let trouble = Trouble::ALL[self.kills.below(Trouble::ALL.len() as u64) as usize];
        let lasts = match self.kills.below(20) {
            0 if self.has_long => self.kills.pause(70_000, 140_000),
            0..4 => self.kills.pause(2_000, 8_000),
            _ => self.kills.pause(100, 1_500),
        };
        What::Wire { runner, trouble, lasts }
    }

    /// Hours in both directions. Whole ones, so that no sum of them comes near zero: what waits for a
    /// time on the wall may wait for it that long.
    fn clock(&mut self, runner: usize, chance: u64) -> What {
        let seconds = (1 + self.kills.below(26).cast_signed()) * 3600;
        let seconds = if self.kills.below(2) == 0 { seconds } else { -seconds };
        What::Clock(match chance {
            0..35 => Shift::Server(seconds),
            35..70 => Shift::Runner(runner, seconds),
            70..90 => Shift::Sleep(seconds.abs()),
            _ => Shift::Boot,
        })
    }

    /// The failpoint of the next server, if it gets one.
    pub fn server_point(&mut self) -> Option<String> {
        self.server_points.draw()
    }

    /// The failpoint of the next runner, if it gets one.
    pub fn runner_point(&mut self) -> Option<String> {
        self.runner_points.draw()
    }

    /// How long the next server stays away.
    pub fn server_outage(&mut self) -> Duration {
        if self.restarts.below(5) == 0 {
            self.restarts.pause(300, 1500)
        } else {
            self.restarts.pause(0, 120)
        }
    }

    /// How long the next runner stays away. Sometimes so long that another one takes over its jobs.
    pub fn runner_outage(&mut self) -> Duration {
        if self.restarts.below(4) == 0 {
            self.restarts.pause(2000, 3500)
        } else {
            self.restarts.pause(0, 200)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan() {
        let draw = |seed| {
            let mut plan = Plan::new(seed, Faults::of_seed(seed), true);
            let kills: Vec<Fault> = (0..50).map(|_| plan.fault()).collect();
            let points: Vec<_> =
                (0..50).map(|_| (plan.server_point(), plan.runner_point())).collect();
            (kills, points)
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_failpoint_has_its_turn() {
        let mut plan = Plan::new(1, Faults::Mixed, false);
        let mut seen: Vec<String> =
            (0..200).flat_map(|_| [plan.server_point(), plan.runner_point()]).flatten().collect();
        seen.sort();
        for name in torc_failpoint::ALL {
            assert!(seen.iter().any(|place| place.starts_with(&format!("{name}:"))), "{name}");
        }
    }
}
