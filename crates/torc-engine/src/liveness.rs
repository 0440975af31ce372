//! Is a runner alive? Three answers, because "unknown" is not "dead".
//!
//! Silence proves nothing: after the lease a runner is shown as out of contact and nothing happens
//! to its jobs. Evidence of death acts at once. A runner whose process can be looked at, or that
//! lives in an allocation of a batch system, is never given up by time: there the evidence comes.
//! Any other runner is given up only after the disown deadline, before which it has ended its own
//! jobs.

use super::report::Lost;
use torc_model::api::Evidence;
use torc_model::status::{Cause, EvidenceSource};
use torc_model::words;

/// A runner is shown as out of contact after this long without a word.
pub const LEASE_MS: i64 = 60_000;

/// Why a runner that is silent or gone still holds its attempts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holdup {
    /// Its process was stopped by a signal.
    Stopped,
    /// It is gone, and these processes of its attempts do not end.
    Processes(Vec<i32>),
    /// It is gone, and the process table cannot be read.
    Unproved,
    /// It is gone; the batch system has not said why.
    Scheduler,
    /// It cannot be seen from here and is given up at this time, by the clock that cannot be set.
    Deadline(i64),
    /// It cannot be seen from here and was promised not to be given up by time.
    NoDeadline,
}

impl Holdup {
    /// One clause for people; `pid` is the runner's.
    pub fn text(&self, pid: i64) -> String {
        match self {
            Self::Stopped => format!("its process {pid} was stopped by a signal"),
            Self::Processes(pids) => {
                let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
                format!("it is gone, but processes that it started do not end: {}", list.join(", "))
            }
            Self::Unproved => {
                "it is gone, but whether its processes are cannot be told: the process table cannot be read".into()
            }
            Self::Scheduler => "it is gone; the batch system has not said why".into(),
            Self::Deadline(_) => "it cannot be seen from here".into(),
            Self::NoDeadline => {
                "it cannot be seen from here, and only evidence of its end counts".into()
            }
        }
    }
}

/// What is known about a runner's process, from its own host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    /// It is there: same pid, same start time. It may stand still.
    Alive,
    /// It is not: no such pid, or the pid belongs to a process that started at another time.
    Gone,
    /// It is gone, but some of the processes that it started are not, or it cannot be told.
    Lingering,
    /// Its host was started again since.
    Rebooted,
    /// It is on another host, or cannot be seen from here.
    Unknown,
}

/// What is known about a runner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerLife<'a> {
    /// Its host.
    pub host: &'a str,
    /// Its process id.
    pub pid: i64,
    /// Last word from it, ms since 1970.
    pub last_seen: i64,
    /// This server began to listen at this time, or woke after standing still: before, no runner
    /// could have been heard.
    pub server_boot: i64,
    /// Its lease, in ms.
    pub lease: i64,
    /// Its disown deadline, in ms; None: it was promised that silence never ends it.
    pub disown: Option<i64>,
    /// Its process.
    pub process: Process,
    /// It lives in an allocation: its batch system tells when that is over, and silence ends nothing.
    pub in_allocation: bool,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Life {
    /// It was heard within its lease.
    Alive,
    /// It is out of contact; nothing is done to it.
    Silent {
        /// For so many ms.
        silent_for: i64,
    },
    /// It is gone.
    Dead(Lost),
}

impl RunnerLife<'_> {
    /// Judges.
    pub fn judge(&self, now: i64) -> Life {
        let silent_for = now - self.last_seen.max(self.server_boot);
        let dead = |cause, source, text: String| {
            Life::Dead(Lost { cause, evidence: Evidence { source, text: words::message(text) } })
        };
        match self.process {
            Process::Gone => {
                return dead(
                    Cause::Lost,
                    EvidenceSource::Node,
                    format!("its runner (pid {} on {}) is gone", self.pid, self.host),
                );
            }
            Process::Rebooted => {
                return dead(
                    Cause::Lost,
                    EvidenceSource::Node,
                    format!("{}, where it ran, was started again", self.host),
                );
            }
            Process::Alive | Process::Lingering | Process::Unknown => {}
        }
        // A runner that can be seen is slow, stopped or cut off: what it runs is there to see, and
        // must be gone before any of it starts elsewhere. Of an allocation the batch system tells.
        let is_blind = self.process == Process::Unknown && !self.in_allocation;
        if is_blind && self.disown.is_some_and(|disown| silent_for > disown) {
            let text = format!(
                "nothing was heard from its runner on {} for {} s",
                self.host,
                silent_for / 1000
            );
            return dead(Cause::Lost, EvidenceSource::Journal, text);
        }
        if silent_for > self.lease { Life::Silent { silent_for } } else { Life::Alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life() -> RunnerLife<'static> {
        RunnerLife {
            host: "n1",
            pid: 7,
            last_seen: 100_000,
            server_boot: 0,
            lease: 60_000,
            disown: Some(2_400_000),
            process: Process::Unknown,
            in_allocation: false,
        }
    }

    #[test]
    fn silence_alone_ends_no_runner_before_the_deadline() {
        assert_eq!(life().judge(150_000), Life::Alive);
        assert_eq!(life().judge(200_000), Life::Silent { silent_for: 100_000 });
        assert!(matches!(life().judge(2_500_001), Life::Dead(_)));
    }

    #[test]
    fn silence_never_ends_a_runner_that_can_be_looked_at_or_was_promised_so() {
        let year = 365 * 86_400_000;
        let silent = Life::Silent { silent_for: year - 100_000 };
        for process in [Process::Alive, Process::Lingering] {
            assert_eq!(RunnerLife { process, ..life() }.judge(year), silent, "{process:?}");
        }
        assert_eq!(RunnerLife { in_allocation: true, ..life() }.judge(year), silent);
        assert_eq!(RunnerLife { disown: None, ..life() }.judge(year), silent);
    }

    #[test]
    fn the_clock_starts_again_with_the_server() {
        let life = RunnerLife { server_boot: 10_000_000, ..life() };
        assert_eq!(life.judge(10_050_000), Life::Alive);
        assert!(matches!(life.judge(12_500_000), Life::Dead(_)));
    }

    #[test]
    fn evidence_acts_at_once() {
        for process in [Process::Gone, Process::Rebooted] {
            let life = RunnerLife { process, ..life() };
            assert!(
                matches!(life.judge(100_001), Life::Dead(Lost { cause: Cause::Lost, .. })),
                "{process:?}"
            );
        }
    }

    #[test]
    fn a_batch_system_that_says_nothing_proves_nothing() {
        let life = RunnerLife { in_allocation: true, ..life() };
        assert_eq!(life.judge(150_000), Life::Alive);
    }

    #[test]
    fn a_deadline_is_over_when_it_has_passed_and_the_evidence_says_what_was_seen() {
        assert_eq!(life().judge(160_000), Life::Alive, "its lease is just over");
        assert_eq!(life().judge(160_001), Life::Silent { silent_for: 60_001 });
        assert_eq!(life().judge(2_500_000), Life::Silent { silent_for: 2_400_000 });
        let dead = |life: RunnerLife<'_>, now| match life.judge(now) {
            Life::Dead(lost) => (lost.evidence.source, lost.evidence.text),
            other => panic!("{other:?}"),
        };
        let message = |text: &str| words::message(text);
        let text = "nothing was heard from its runner on n1 for 2400 s";
        assert_eq!(dead(life(), 2_500_999), (EvidenceSource::Journal, message(text)));
        let gone = RunnerLife { process: Process::Gone, ..life() };
        let text = "its runner (pid 7 on n1) is gone";
        assert_eq!(dead(gone, 100_000), (EvidenceSource::Node, message(text)));
        let rebooted = RunnerLife { process: Process::Rebooted, ..life() };
        let text = "n1, where it ran, was started again";
        assert_eq!(dead(rebooted, 100_000), (EvidenceSource::Node, message(text)));
    }
}
