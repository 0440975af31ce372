//! The names of the files below an output directory: what runners write there and the server reads.
//! Both sides take the names from here, so that neither has a copy of the other's.

use crate::ids::{ActionId, JobId, WorkflowId};

/// Logs of attempts.
pub const LOGS: &str = "job_stdio";

/// Logs of actions.
pub const ACTIONS: &str = "actions";

/// What runners measured over time.
pub const SAMPLES: &str = "resource_utilization";

/// Results that runners keep while the server does not answer: a file per runner.
pub const SPOOL: &str = ".torc_spool";

/// Where runners say who they are, and keep the tokens of their jobs.
pub const RUNNERS: &str = ".torc_runners";

/// More than any runner keeps in its spool; what is beyond it is tried again like everything else
/// that was lost.
pub const MAX_SPOOL_BYTES: u64 = 256 << 20;

/// The ending of a directory with tokens, beside the record of their runner.
pub const TOKENS: &str = "tokens";

const JOB: &str = "job_wf";
const ACTION: &str = "action_wf";

/// How the names of an attempt's files begin, in [`LOGS`]. `attempt` is its number in the run.
pub fn attempt_stem(workflow: WorkflowId, job: JobId, run: i64, attempt: i64) -> String {
    format!("{JOB}{workflow}_j{job}_r{run}_a{attempt}")
}

/// That beginning of a name: four parts and no more, as of `job_wf1_j2_r1_a1_steps.jsonl`.
pub fn stem_of(name: &str) -> &str {
    let end = name.match_indices(['_', '.']).map(|(at, _)| at).nth(4).unwrap_or(name.len());
    &name[..end]
}

/// How the names of an action's files begin, in [`ACTIONS`].
pub fn action_stem(workflow: WorkflowId, action: ActionId) -> String {
    format!("{ACTION}{workflow}_{action}")
}

/// The workflow of a file of an attempt or of an action, by its name.
pub fn workflow_of(name: &str) -> Option<WorkflowId> {
    let rest = name.strip_prefix(JOB).or_else(|| name.strip_prefix(ACTION))?;
    rest.split_once('_')?.0.parse().ok()
}

/// The file in [`SPOOL`] of the runner with this key.
pub fn spool_file(key: &str) -> String {
    format!("{key}.jsonl")
}

/// The file in [`RUNNERS`] that says which process the runner with this key is.
pub fn runner_record(key: &str) -> String {
    format!("{key}.json")
}

/// The directory in [`RUNNERS`] with the tokens of that runner's jobs.
pub fn runner_tokens(key: &str) -> String {
    format!("{key}.{TOKENS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let stem = attempt_stem(WorkflowId(3), JobId(7), 2, 11);
        assert_eq!(stem, "job_wf3_j7_r2_a11");
        for ending in ["", ".o", "_steps.jsonl", "_recovery.e", "_s0_t1.e"] {
            let name = format!("{stem}{ending}");
            assert_eq!((stem_of(&name), workflow_of(&name)), (&*stem, Some(WorkflowId(3))));
        }
        let action = action_stem(WorkflowId(3), ActionId(2));
        assert_eq!(workflow_of(&format!("{action}.e")), Some(WorkflowId(3)));
        for other in ["notes.txt", "job_wfx_j1.o", "job_wf1"] {
            assert_eq!(workflow_of(other), None, "{other}");
        }
    }
}
