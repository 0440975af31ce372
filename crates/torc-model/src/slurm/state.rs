//! Slurm's words for the state of a job, and the three answers that matter to us.

use crate::status::Cause;
use serde::{Deserialize, Serialize};

/// What is known about an allocation. Not knowing is an answer of its own: no job fails
/// because of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// Slurm has it, and it will run, runs, or is being cleaned up.
    Alive {
        /// How far it is.
        phase: AllocationPhase,
        /// Slurm's reason why it waits.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// It is over and will not come back.
    Ended(AllocationEnding),
    /// Ask again later.
    Unknown {
        /// Why it is not known.
        why: String,
    },
}

/// How far a living allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationPhase {
    /// In the queue (again, if it was requeued): no process of it runs.
    Waiting,
    /// Has its nodes.
    Running,
    /// Its processes are being ended.
    Leaving,
}

/// How an allocation ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllocationEnding {
    /// Slurm's word, such as `PREEMPTED`; `VANISHED` when Slurm has no record at all.
    pub state: String,
    /// What it means for attempts that were alive in it.
    pub cause: Cause,
    /// One sentence.
    pub text: String,
    /// Slurm has no record of it at all.
    #[serde(default)]
    pub is_vanished: bool,
}

impl AllocationEnding {
    /// Slurm forgot it: purged, or lost with the controller's state.
    pub fn vanished() -> Self {
        let text = "Slurm no longer knows this allocation".into();
        Self { state: "VANISHED".into(), cause: Cause::Lost, text, is_vanished: true }
    }
}

/// Reads a state word; `CANCELLED by 1000` and the `+` of truncated columns are understood.
pub fn verdict(word: &str, reason: Option<&str>) -> Verdict {
    let state = word.split_whitespace().next().unwrap_or("").trim_end_matches('+');
    let reason =
        reason.map(str::trim).filter(|r| !r.is_empty() && !matches!(*r, "None" | "(null)"));
    let alive = |phase| Verdict::Alive { phase, reason: reason.map(str::to_owned) };
    let ended = |cause, text: &str| {
        Verdict::Ended(AllocationEnding {
            state: state.to_owned(),
            cause,
            text: format!("Slurm says {state}: {text}"),
            is_vanished: false,
        })
    };
    match state {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" => alive(AllocationPhase::Waiting),
        "RUNNING" | "CONFIGURING" | "RESIZING" | "SIGNALING" | "STOPPED" | "SUSPENDED" => {
            alive(AllocationPhase::Running)
        }
        "COMPLETING" | "STAGE_OUT" => alive(AllocationPhase::Leaving),
        "COMPLETED" => ended(Cause::Lost, "the allocation's script has ended"),
        "FAILED" => ended(Cause::Lost, "the allocation's script failed"),
        "CANCELLED" => ended(Cause::Lost, "a user canceled the allocation"),
        "REVOKED" => ended(Cause::Lost, "another cluster started it"),
        "TIMEOUT" => ended(Cause::Walltime, "the allocation reached its walltime"),
        "DEADLINE" => ended(Cause::Lost, "the allocation missed its deadline"),
        "NODE_FAIL" => ended(Cause::NodeFail, "a node of the allocation failed"),
        "BOOT_FAIL" => ended(Cause::NodeFail, "a node of the allocation did not boot"),
        "PREEMPTED" => ended(Cause::Preempted, "the nodes were given to a job of higher priority"),
        "OUT_OF_MEMORY" => ended(Cause::Oom, "the allocation used more memory than it asked for"),
        "" => Verdict::Unknown { why: "Slurm named no state".into() },
        other => {
            Verdict::Unknown { why: format!("Slurm named the state `{other}`, which is new to us") }
        }
    }
}

/// Why a waiting allocation will never start by itself, if its reason says so.
pub fn never_starts(reason: &str) -> Option<&'static str> {
    let starts = |prefix: &str| reason.starts_with(prefix);
    if starts("PartitionTimeLimit") {
        Some("it asks for more time than its partition allows")
    } else if starts("PartitionNodeLimit") || starts("PartitionConfig") {
        Some("its partition has no nodes of that kind or number")
    } else if starts("DependencyNeverSatisfied") {
        Some("what it depends on failed")
    } else if starts("JobHeld") {
        Some("it is held; `scontrol release` lets it go")
    } else if reason.contains("requeued held") || starts("JobHoldMaxRequeue") {
        Some("Slurm holds it after failed starts; cancel it")
    } else if starts("BadConstraints") {
        Some("no node has the features it asks for")
    } else if starts("AccountNotAllowed") || starts("InvalidAccount") {
        Some("its account may not use this partition")
    } else if starts("QOSNotAllowed") || starts("InvalidQOS") {
        Some("its quality of service is not allowed here")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_new_words_are_safe() {
        assert!(
            matches!(verdict("CANCELLED by 0", None), Verdict::Ended(e) if e.cause == Cause::Lost)
        );
        assert!(
            matches!(verdict("OUT_OF_ME+", None), Verdict::Unknown { .. }),
            "a cut word is not a verdict"
        );
        assert!(matches!(verdict("QUANTUM", None), Verdict::Unknown { .. }));
        assert!(matches!(verdict("", None), Verdict::Unknown { .. }));
        let suspended = verdict("SUSPENDED", Some("None"));
        assert_eq!(suspended, Verdict::Alive { phase: AllocationPhase::Running, reason: None });
    }

    #[test]
    fn hopeless_reasons_are_named() {
        for reason in [
            "PartitionConfig",
            "PartitionTimeLimit",
            "DependencyNeverSatisfied",
            "JobHeldUser",
            "launch failed requeued held",
        ] {
            assert!(never_starts(reason).is_some(), "{reason}");
        }
        for reason in [
            "Resources",
            "Priority",
            "BeginTime",
            "JobArrayTaskLimit",
            "ReqNodeNotAvail, UnavailableNodes:n1",
        ] {
            assert_eq!(never_starts(reason), None, "{reason}");
        }
    }
}
