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
pub mod reason;
pub mod sacct;
pub mod script;
pub mod squeue;
pub mod state;
pub mod test_only;
pub mod wire;

pub use observe::{Known, Look, observe};
pub use state::{AllocationEnding, AllocationPhase, Verdict};

/// A running total of allocations and what they cost at most.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Number of allocations.
    pub allocations: u64,
    /// Nodes times hours, if every allocation runs to its walltime.
    pub node_hours: f64,
}

/// The name of an allocation that is one link of a chain: what all links share, then what is its own.
pub fn chained_name(start: &str, created_ms: i64, chain: &str, nonce: u32) -> String {
    // Other servers of the same user count workflows and schedulers as well: what they share by
    // chance must not make their allocations wait for ours.
    let mut tag: u32 = 0x811c_9dc5;
    for byte in created_ms.to_le_bytes().iter().chain(chain.as_bytes()) {
        tag = (tag ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    format!("{start}-{tag:08x}-{nonce:08x}")
}

/// What the links of a chain are called in Slurm, from the name of one of them: `--dependency=singleton`
/// lets one job of a name run at a time. `None` for an allocation outside of chains.
pub fn chain_of(name: &str) -> Option<&str> {
    let (chain, _) = name.rsplit_once('-')?;
    (chain.matches('-').count() == 3).then_some(chain)
}

/// A record with this name is one of the allocation, provided that the ids agree as well.
pub(crate) fn is_name_of(name: &str, allocation: &str) -> bool {
    name == allocation || chain_of(allocation) == Some(name)
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
    fn links_of_one_chain_share_a_name_and_keep_their_own() {
        let link = |created, chain: &str, nonce| chained_name("torc-wf5-s3", created, chain, nonce);
        let (first, second) = (link(7, "s", 1), link(7, "s", 2));
        assert_ne!(first, second);
        assert_eq!(chain_of(&first), chain_of(&second));
        assert!(chain_of(&first).is_some_and(|chain| chain.starts_with("torc-wf5-s3-")));
        assert_ne!(chain_of(&first), chain_of(&link(8, "s", 1)), "another server's");
        assert_ne!(chain_of(&first), chain_of(&link(7, "t", 1)), "another scheduler's");
        assert_eq!(chain_of("torc-wf5-s3-0000002a"), None);
        assert!(is_name_of("a", "a") && !is_name_of("a", "b"));
    }

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
