//! The mark of a runner: two numbers among the resource limits of every process that it starts.
//!
//! Limits are inherited by every descendant and survive `exec`. A hard limit that was lowered can
//! only be raised again with `CAP_SYS_RESOURCE`. `/proc/PID/limits` is readable by every user, for
//! non-dumpable processes too. Two limits mean nothing to a program at these heights:
//!
//! - `RLIMIT_LOCKS`, which Linux has not enforced since 2.4, holds the runner;
//! - `RLIMIT_RTTIME`, microseconds of uninterrupted real-time scheduling, holds the number of the
//!   process in the runner, which names its attempt ([`process_number`]); the lowest value used is
//!   more than 140 years.
//!
//! ```text
//! bit 63..62   61 ....... 52   51 ................. 18   17 ............. 0
//!      0 0     1023 - depth    hash of the runner's key
//!      0 0     1023 - depth    row of the attempt        count of processes
//! ```
//!
//! A runner inside of a job of another runner is one deeper, so that its values are lower and it
//! may set them.

use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::Read as _;

/// Bits below the depth.
const BITS: u32 = 52;
const LOW: u64 = (1 << BITS) - 1;
/// Depth 0; each runner inside of a job takes one off.
const TOP: u64 = 1023;

/// The mark of one runner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    runner: u64,
    /// What the values of the processes begin with; None where a limit of our own leaves no room.
    prefix: u64,
    numbers: Option<u64>,
}

/// What the limits of a process say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// See [`runner_number`].
    pub runner: u64,
    /// The number of the process in its runner.
    pub process: Option<u64>,
}

impl Mark {
    /// The mark that processes of this runner get. None where the limits of this process itself are
    /// set to something else already: then its processes can only be known by other means.
    pub fn of_runner(key: &str) -> Option<Self> {
        let prefix = below(getrlimit(Resource::Locks).maximum)?;
        let numbers = below(getrlimit(Resource::Rttime).maximum);
        Some(Self { runner: runner_number(key), prefix, numbers })
    }

    /// Values for `RLIMIT_LOCKS` and, if it can be set, `RLIMIT_RTTIME` of a process.
    pub fn limits(&self, process: u64) -> (u64, Option<u64>) {
        let value = |prefix: u64, low: u64| prefix << BITS | low & LOW;
        (value(self.prefix, self.runner), self.numbers.map(|prefix| value(prefix, process)))
    }
}

/// The beginning of values that a process with this limit may give to others.
fn below(own: Option<u64>) -> Option<u64> {
    let Some(own) = own else { return Some(TOP) };
    // A limit that was set by other means is left as it is.
    let depth = own >> BITS;
    (2..=TOP).contains(&depth).then(|| depth - 1)
}

/// What stands for a runner in the mark: 52 bits of a hash (FNV-1a) of its key.
pub fn runner_number(key: &str) -> u64 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> BITS) & LOW
}

/// Low bits of a process number, which count the processes of a runner.
const COUNT_BITS: u32 = 18;

/// The number of a process in its runner: the attempt that it belongs to, None for an action, and
/// how many processes the runner had started before. Two living processes of a runner share one
/// only if it started 2^18 processes of one attempt, or as many actions, between them.
pub fn process_number(attempt: Option<u64>, count: u64) -> u64 {
    let attempt = attempt.unwrap_or(0) << COUNT_BITS & LOW;
    attempt | count & ((1 << COUNT_BITS) - 1)
}

/// The attempt in a process number, as [`process_number`] put it there: its low 34 bits.
pub fn attempt_of(process_number: u64) -> Option<u64> {
    Some((process_number & LOW) >> COUNT_BITS).filter(|attempt| *attempt != 0)
}

/// The mark of a process; None when it has none or is gone.
pub fn read(pid: i32) -> Option<Found> {
    // About 1,400 bytes, given out whole by one read.
    let mut buffer = [0; 4096];
    let length = File::open(format!("/proc/{pid}/limits")).ok()?.read(&mut buffer).ok()?;
    parse(std::str::from_utf8(&buffer[..length]).ok()?)
}

fn parse(text: &str) -> Option<Found> {
    // `Max file locks    SOFT    HARD    locks`; an unlimited one is no number.
    let hard = |name: &str| -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let is_ours = |value: &u64| (1..=TOP).contains(&(value >> BITS));
    let runner = hard("Max file locks").filter(is_ours)?;
    let process = hard("Max realtime timeout").filter(is_ours);
    Some(Found { runner: runner & LOW, process: process.map(|value| value & LOW) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max file locks            4607182418800017431  4607182418800017431  locks     \n\
Max realtime timeout      4607182418800017450  4607182418800017450  us        \n";

    #[test]
    fn a_mark_is_read_as_it_was_made() {
        let mark = Mark { runner: 23, prefix: TOP, numbers: Some(TOP) };
        assert_eq!(mark.limits(42), (4_607_182_418_800_017_431, Some(4_607_182_418_800_017_450)));
        assert_eq!(parse(LIMITS), Some(Found { runner: 23, process: Some(42) }));
        let unlimited = LIMITS.replace("4607182418800017450", "unlimited");
        assert_eq!(parse(&unlimited), Some(Found { runner: 23, process: None }));
        assert_eq!(parse(&LIMITS.replace("4607182418800017431", "unlimited")), None);
        assert_eq!(parse(&LIMITS.replace("4607182418800017431", "1000")), None);
    }

    #[test]
    fn a_process_number_names_its_attempt() {
        for (attempt, count) in [(1, 1), (7, (1 << COUNT_BITS) + 3), ((1 << 34) - 1, 0)] {
            let number = process_number(Some(attempt), count);
            assert_eq!(attempt_of(number), Some(attempt));
            assert!(number <= LOW, "it fits into the limit");
        }
        assert_eq!(attempt_of(process_number(None, 5)), None, "an action belongs to no attempt");
        assert_ne!(process_number(Some(1), 1), process_number(Some(1), 2));
    }

    #[test]
    fn a_runner_inside_of_a_job_may_set_its_own() {
        assert_eq!(below(None), Some(TOP));
        let (outer, _) = Mark { runner: LOW, prefix: TOP, numbers: None }.limits(1);
        let inner = Mark { runner: LOW, prefix: below(Some(outer)).unwrap(), numbers: None };
        assert!(inner.limits(1).0 < outer);
        assert_eq!(below(Some(1000)), None, "a limit that is none of ours");
    }

    #[test]
    fn keys_have_different_numbers() {
        let numbers: std::collections::HashSet<u64> =
            (0..10_000).map(|n| runner_number(&format!("{n:024x}"))).collect();
        assert_eq!(numbers.len(), 10_000);
        assert!(numbers.iter().all(|number| *number <= LOW));
    }
}
