//! Slurm, without Slurm: the text that goes to it, the text that comes back, and what both mean.
//!
//! Everything here is a function from text and values to values. Running `sbatch`, `squeue`,
//! `sacct`, `scontrol` and `scancel` is the caller's part, so every decision can be tested with
//! recorded output. Only the line formats (`-o`, `-P`, `scontrol -o`) are read: they are the one
//! form that all versions from 20.11 on share, while `--json` differs per version and, worse, shows
//! an empty list with exit 0 when the controller is down.

pub mod cluster;
pub mod doctor;
pub mod generate;
pub mod groups;
pub mod logs;
pub mod need;
pub mod observe;
pub mod profile;
pub mod sacct;
pub mod script;
pub mod squeue;
pub mod state;
pub mod wire;

pub use observe::{Known, Look, observe};
pub use state::{Ending, Phase, Verdict};

/// A running total of allocations and what they cost at most.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Allocations.
    pub allocations: u64,
    /// Nodes times hours, if every allocation runs to its walltime.
    pub node_hours: f64,
}

/// Walltimes as `sbatch --time` takes them: `HH:MM:SS`, or `D-HH:MM:SS` from a day on.
pub fn clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest % 3600 / 60, rest % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

/// Reads a time as Slurm prints or takes it: `UNLIMITED` is `None`, a bare number is minutes.
pub fn parse_clock(text: &str) -> Option<Option<u64>> {
    let text = text.trim();
    if matches!(text, "UNLIMITED" | "INFINITE" | "infinite" | "NONE") {
        return Some(None);
    }
    if let Ok(minutes) = text.parse::<u64>() {
        return Some(Some(minutes.checked_mul(60)?));
    }
    if let Some((days, hours)) = text.split_once('-').filter(|(_, rest)| !rest.contains(':')) {
        let (days, hours): (u64, u64) = (days.parse().ok()?, hours.parse().ok()?);
        return Some(Some(days.checked_mul(86_400)?.checked_add(hours.checked_mul(3600)?)?));
    }
    let clock = text.contains(':').then(|| crate::units::Runtime::parse(text).ok()).flatten()?;
    Some(Some(clock.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_slurm_means_them() {
        let cases = [
            ("10:00", Some(600)),
            ("1-00:00:00", Some(86_400)),
            ("2-12", Some(216_000)),
            ("02:30:00", Some(9000)),
            ("90", Some(5400)),
            ("UNLIMITED", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_clock(text), Some(seconds), "{text}");
        }
        for bad in ["", "abc", "INVALID", "NOT_SET", "Partition_Limit", "N/A", "1-x"] {
            assert_eq!(parse_clock(bad), None, "{bad}");
        }
        assert_eq!(clock(9000), "02:30:00");
        assert_eq!(clock(86_400 + 61), "1-00:01:01");
    }
}
