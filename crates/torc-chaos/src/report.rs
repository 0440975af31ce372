//! The figures of a campaign.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Run time of attempts that brought nothing.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct LostWork {
    /// Of attempts that a client was told had completed and that ran again.
    #[serde(rename = "acknowledged_work_lost")]
    pub acknowledged: Duration,
    /// Died with a runner or a job; it was never acknowledged.
    #[serde(rename = "unacknowledged_work_lost")]
    pub unacknowledged: Duration,
}

/// What was done to the program, and what the oracle says about it.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Worlds that were played.
    pub worlds: u64,
    /// Kills by who was killed, or by failpoint.
    pub killed: BTreeMap<String, u64>,
    /// Workflows whose creation was acknowledged.
    pub workflows: u64,
    /// Attempts that the witnesses saw start.
    pub starts: u64,
    /// Attempts that the program says were lost and tried again.
    pub lost_attempts: u64,
    /// Recovery scripts that the witnesses saw end.
    pub scripts: u64,
    /// Webhooks that arrived.
    pub deliveries: u64,
    /// Requests of the client that got no answer.
    pub unanswered: u64,
    /// Work that was done in vain.
    #[serde(flatten)]
    pub lost: LostWork,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// Answers that were given their place in the order of committed changes.
    pub answers: u64,
    /// Troubles of the network that lasted longer than every lease.
    #[serde(default)]
    pub long_troubles: u64,
    /// Calls of Python that came to their end.
    #[serde(default)]
    pub calls: u64,
    /// How long it all took.
    pub took: Duration,
    /// The figures of each kind of fault.
    pub kinds: BTreeMap<String, Kind>,
}

/// The figures of the worlds with one kind of fault.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// Worlds that were played.
    pub worlds: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// What must not have happened.
    pub violations: u64,
    /// Run time of attempts that a client was told had completed and that ran again.
    pub acknowledged_work_lost: Duration,
    /// Attempts that the witnesses saw start.
    pub starts: u64,
    /// Attempts that the program says were lost and tried again.
    pub lost_attempts: u64,
}

impl Report {
    /// Puts the figures of a world under its kind of fault.
    pub fn file_under(&mut self, kind: &str) {
        let figures = Kind {
            worlds: self.worlds,
            faults: self.kills(),
            violations: self.violations.len() as u64,
            acknowledged_work_lost: self.lost.acknowledged,
            starts: self.starts,
            lost_attempts: self.lost_attempts,
        };
        self.kinds = BTreeMap::from([(kind.to_owned(), figures)]);
    }

    /// All kills.
    pub fn kills(&self) -> u64 {
        self.killed.values().sum()
    }

    /// Kills at failpoints.
    pub fn failpoint_kills(&self) -> u64 {
        self.killed.iter().filter(|(name, _)| name.contains('.')).map(|(_, count)| count).sum()
    }

    /// Adds another world.
    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        for (name, count) in other.killed {
            *self.killed.entry(name).or_default() += count;
        }
        self.workflows += other.workflows;
        self.starts += other.starts;
        self.lost_attempts += other.lost_attempts;
        self.scripts += other.scripts;
        self.deliveries += other.deliveries;
        self.unanswered += other.unanswered;
        self.lost.acknowledged += other.lost.acknowledged;
        self.lost.unacknowledged += other.lost.unacknowledged;
        self.violations.extend(other.violations);
        self.answers += other.answers;
        self.calls += other.calls;
        self.long_troubles += other.long_troubles;
        self.took += other.took;
        for (name, kind) in other.kinds {
            let sum = self.kinds.entry(name).or_default();
            sum.worlds += kind.worlds;
            sum.faults += kind.faults;
            sum.violations += kind.violations;
            sum.acknowledged_work_lost += kind.acknowledged_work_lost;
            sum.starts += kind.starts;
            sum.lost_attempts += kind.lost_attempts;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills ({} at failpoints), {} violations, {:.1} s of acknowledged work lost; {} workflows, {} starts, \
             {} attempts lost and tried again, {} scripts, {} webhooks, {} requests without an answer, {} answers in order, \
             {} calls of Python, {} troubles longer than every lease, {:.1} s of other work lost, {:.0} s",
            self.kills(),
            self.failpoint_kills(),
            self.violations.len(),
            self.lost.acknowledged.as_secs_f64(),
            self.workflows,
            self.starts,
            self.lost_attempts,
            self.scripts,
            self.deliveries,
            self.unanswered,
            self.answers,
            self.calls,
            self.long_troubles,
            self.lost.unacknowledged.as_secs_f64(),
            self.took.as_secs_f64(),
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults, {} violations, {:.1} s of acknowledged work lost, {} starts, {} attempts lost, {} worlds",
            self.faults,
            self.violations,
            self.acknowledged_work_lost.as_secs_f64(),
            self.starts,
            self.lost_attempts,
            self.worlds,
        )
    }
}

/// What became of jobs of every kind whose runner was killed.
#[derive(Clone, Default, Debug)]
pub struct Fenced {
    /// How often a runner was killed.
    pub kills: u64,
    /// Jobs that ran at these moments, all kinds together.
    pub jobs: u64,
    /// Processes that were alive three seconds later.
    pub survivors: u64,
    /// Jobs of which two attempts were alive at once.
    pub overlaps: u64,
    /// Files that were put into place after the kill.
    pub published: u64,
    /// The time until nothing was alive, of the last kill.
    pub last_ms: u64,
    /// The longest such time.
    pub longest_ms: u64,
    /// One line each.
    pub violations: Vec<String>,
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills under {} jobs: {} survivors, {} overlaps, {} published; nothing alive after {} ms at most",
            self.kills, self.jobs, self.survivors, self.overlaps, self.published, self.longest_ms
        )
    }
}
