//! What attempts used against what their jobs asked for, and what would be a better request.

use crate::units::{Memory, Runtime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request is this much above the highest use: another input, another machine. None is lowered further,
/// whatever factor is asked for.
const HEADROOM: f64 = 1.25;

/// No request is made smaller than this: a shell and the libraries of a small program take some of
/// it before they do anything.
const LEAST_MEMORY: u64 = 32 << 20;

/// Requests are lowered only after so many attempts: one may have been the lucky one.
const LEAST_ATTEMPTS: usize = 2;

/// After an end for memory the request grows by this, as recovery does.
const AFTER_OOM: f64 = 2.0;

/// A request that leaves more than this share unused is too high.
const TOO_HIGH: f64 = 0.5;

/// Requests below this are not worth lowering.
const SMALL_MEMORY: u64 = 64 << 20;

/// Runtimes below this are not worth lowering.
const SHORT_RUNTIME: u64 = 60;

/// One attempt's use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Use {
    /// Highest memory use.
    pub peak_memory_bytes: Option<u64>,
    /// Highest CPU use, 100 per core.
    pub peak_cpu_percent: Option<f64>,
    /// Wall time.
    pub exec_seconds: Option<f64>,
    /// It did not reach its natural end, so that what it used is a lower bound.
    pub was_cut_short: bool,
    /// It was ended for its memory: it needs more than the limit, and it is unknown how much.
    pub ran_out_of_memory: bool,
}

/// What jobs asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Memory that was asked for, in bytes.
    pub memory_bytes: Option<u64>,
    /// Runtime that was asked for.
    pub runtime_seconds: Option<u64>,
    /// CPUs that were asked for.
    pub num_cpus: u32,
}

/// What was used and what should be asked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Attempts that were looked at.
    pub attempts: i64,
    /// Highest memory use of all.
    pub peak_memory_bytes: Option<i64>,
    /// An attempt was ended for its memory, so that the need is at least `peak_memory_bytes`.
    #[serde(default)]
    pub is_peak_a_lower_bound: bool,
    /// Highest CPU use of all, 100 per core.
    pub peak_cpu_percent: Option<f64>,
    /// Longest time of all.
    pub longest_seconds: Option<f64>,
    /// Memory that would fit; absent when the request is fine.
    pub suggested_memory: Option<String>,
    /// Runtime that would fit; absent when the request is fine.
    pub suggested_runtime: Option<String>,
    /// CPUs that would fit; absent when the request is fine.
    pub suggested_cpus: Option<i64>,
    /// Why, one sentence each.
    pub notes: Vec<String>,
}

/// How much more than what was used is suggested: factors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Headroom {
    /// Of the highest memory use.
    pub memory: f64,
    /// Of the longest time.
    pub runtime: f64,
    /// Of the highest CPU use.
    pub cpus: f64,
}

impl Default for Headroom {
    fn default() -> Self {
        Self { memory: HEADROOM, runtime: HEADROOM, cpus: 1.0 }
    }
}

/// Compares use with what was asked for.
pub fn summarize(uses: &[Use], asked: &Asked) -> Summary {
    summarize_with(uses, asked, &Headroom::default())
}

/// The same with other factors.
pub fn summarize_with(uses: &[Use], asked: &Asked, headroom: &Headroom) -> Summary {
    let memory = uses.iter().filter_map(|u| u.peak_memory_bytes).max();
    let cpu = uses.iter().filter_map(|u| u.peak_cpu_percent).fold(None, larger);
    let longest = uses.iter().filter_map(|u| u.exec_seconds).fold(None, larger);
    let cut = uses.iter().any(|u| u.was_cut_short);
    let ran_out = uses.iter().any(|u| u.ran_out_of_memory);
    // Attempts that were not measured say nothing.
    let may_lower = |measured: usize| !cut && !ran_out && measured >= LEAST_ATTEMPTS;
    let mut summary = Summary {
        attempts: uses.len() as i64,
        peak_memory_bytes: memory.and_then(|m| i64::try_from(m).ok()),
        is_peak_a_lower_bound: ran_out,
        peak_cpu_percent: cpu,
        longest_seconds: longest,
        ..Summary::default()
    };
    if let (Some(peak), Some(had)) = (memory, asked.memory_bytes) {
        let fits = Memory(Memory(peak).scaled(headroom.memory).0.max(LEAST_MEMORY));
        if ran_out {
            // The kernel ends a process at the limit, so that the peak says only what was there.
            let more = Memory(peak.max(had)).scaled(AFTER_OOM);
            summary.suggested_memory = Some(Memory(more.0.max(LEAST_MEMORY)).to_string());
            summary
                .notes
                .push(format!("ran out of memory: needs at least {}", Memory(peak.max(had))));
        } else if peak > had {
            summary.suggested_memory = Some(fits.to_string());
            summary.notes.push(format!("used more memory than the {} it asked for", Memory(had)));
        } else if may_lower(uses.iter().filter(|u| u.peak_memory_bytes.is_some()).count())
            && had > SMALL_MEMORY
            && (fits.0 as f64) < had as f64 * TOO_HIGH
        {
            let least = Memory(peak).scaled(headroom.memory.max(HEADROOM)).0.max(LEAST_MEMORY);
            summary.suggested_memory = Some(Memory(least).to_string());
            summary.notes.push(format!(
                "needs at most {:.0}% of its memory",
                peak as f64 / had as f64 * 100.0
            ));
        }
    }
    if let (Some(longest), Some(had)) = (longest, asked.runtime_seconds) {
        let fits = Runtime((longest * headroom.runtime).ceil() as u64);
        if longest > had as f64 {
            summary.suggested_runtime = Some(fits.to_string());
            summary
                .notes
                .push(format!("ran longer than the {} it asked for", Runtime(had).friendly()));
        } else if may_lower(uses.iter().filter(|u| u.exec_seconds.is_some()).count())
            && had > SHORT_RUNTIME
            && (fits.0 as f64) < had as f64 * TOO_HIGH
        {
            summary.suggested_runtime = Some(Runtime(fits.0.max(SHORT_RUNTIME)).to_string());
            summary
                .notes
                .push(format!("needs at most {:.0}% of its runtime", longest / had as f64 * 100.0));
        }
    }
    if let Some(cpu) = cpu {
        let needed = (cpu / 100.0 * headroom.cpus).ceil().max(1.0) as u32;
        // A little above is the noise of measuring.
        if cpu > f64::from(asked.num_cpus) * 100.0 * 1.1 {
            summary.suggested_cpus = Some(i64::from(needed));
            summary.notes.push(format!(
                "used {:.1} CPUs and asked for {}",
                cpu / 100.0,
                asked.num_cpus
            ));
        }
    }
    summary
}

fn larger(best: Option<f64>, next: f64) -> Option<f64> {
    Some(best.map_or(next, |best: f64| best.max(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(memory: u64, seconds: f64) -> Use {
        Use { peak_memory_bytes: Some(memory), exec_seconds: Some(seconds), ..Use::default() }
    }

    #[test]
    fn too_much_and_too_little_are_told_and_a_good_fit_is_not() {
        let asked = Asked { memory_bytes: Some(1 << 30), runtime_seconds: Some(3600), num_cpus: 1 };
        let good = summarize(&[used(800 << 20, 3000.0)], &asked);
        assert_eq!(
            (good.suggested_memory, good.suggested_runtime, good.notes.len()),
            (None, None, 0)
        );
        let small = summarize(&[used(100 << 20, 300.0), used(90 << 20, 200.0)], &asked);
        assert_eq!(small.suggested_memory.as_deref(), Some("125m"));
        assert_eq!(small.suggested_runtime.as_deref(), Some("PT6M15S"));
        let large = summarize(&[used(2 << 30, 7200.0)], &asked);
        assert_eq!(large.suggested_memory.as_deref(), Some("2560m"));
        assert_eq!(large.suggested_runtime.as_deref(), Some("PT2H30M"));
    }

    #[test]
    fn what_was_cut_short_never_lowers_a_request() {
        let asked = Asked { memory_bytes: Some(1 << 30), runtime_seconds: Some(3600), num_cpus: 1 };
        let cut = summarize(&[Use { was_cut_short: true, ..used(10 << 20, 1.0) }], &asked);
        assert_eq!((cut.suggested_memory, cut.suggested_runtime), (None, None));
    }

    #[test]
    fn one_attempt_lowers_nothing_and_no_request_becomes_tiny() {
        let asked = Asked { memory_bytes: Some(1 << 30), runtime_seconds: Some(3600), num_cpus: 1 };
        let one = summarize(&[used(1 << 20, 300.0)], &asked);
        assert_eq!((one.suggested_memory, one.suggested_runtime), (None, None));
        let two = summarize(&[used(1 << 20, 300.0), used(1 << 20, 300.0)], &asked);
        assert_eq!(two.suggested_memory.as_deref(), Some("32m"));
        let blind = Use { peak_memory_bytes: None, ..used(0, 300.0) };
        let measured_once = summarize(&[used(100 << 20, 300.0), blind], &asked);
        assert_eq!(measured_once.suggested_memory, None, "one sample");
        assert!(measured_once.suggested_runtime.is_some(), "of time there are two");
    }

    #[test]
    fn no_factor_lowers_memory_below_what_is_safe() {
        let asked = Asked { memory_bytes: Some(1 << 30), ..Asked::default() };
        let uses = [used(100 << 20, 1.0), used(100 << 20, 1.0)];
        let bare = Headroom { memory: 1.0, ..Headroom::default() };
        let summary = summarize_with(&uses, &asked, &bare);
        assert_eq!(summary.suggested_memory.as_deref(), Some("125m"));
        let generous = Headroom { memory: 2.0, ..Headroom::default() };
        let summary = summarize_with(&uses, &asked, &generous);
        assert_eq!(summary.suggested_memory.as_deref(), Some("200m"));
    }

    #[test]
    fn after_an_end_for_memory_the_peak_is_a_lower_bound() {
        let asked = Asked { memory_bytes: Some(1 << 30), ..Asked::default() };
        let oom = Use { ran_out_of_memory: true, was_cut_short: true, ..used(1000 << 20, 1.0) };
        let summary = summarize(&[oom, used(200 << 20, 2.0)], &asked);
        assert!(summary.is_peak_a_lower_bound);
        assert_eq!(summary.suggested_memory.as_deref(), Some("2g"));
        assert!(summary.notes[0].contains("at least"), "{:?}", summary.notes);
    }

    #[test]
    fn more_cpus_than_asked_for_are_noticed() {
        let uses = [Use { peak_cpu_percent: Some(390.0), ..Use::default() }];
        let summary = summarize(&uses, &Asked { num_cpus: 2, ..Asked::default() });
        assert_eq!(summary.suggested_cpus, Some(4));
        assert_eq!(
            summarize(&uses, &Asked { num_cpus: 4, ..Asked::default() }).suggested_cpus,
            None
        );
    }
}
