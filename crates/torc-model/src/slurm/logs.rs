//! What the output of an allocation says went wrong.

use crate::status::Cause;
use regex::{Regex, RegexSet};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// How bad a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSeverity {
    /// Worth a look.
    Warning,
    /// Something failed.
    Error,
    /// The allocation or its jobs did not survive it.
    Critical,
}

/// A line that means something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Issue {
    /// From 1.
    pub line_number: usize,
    /// The line, shortened.
    pub line: String,
    /// What it means.
    pub description: String,
    /// How bad it is.
    pub severity: LogSeverity,
    /// The node that said it, if the line names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

use LogSeverity::{Critical, Error, Warning};

/// The first pattern that matches a line names it, so the precise ones come first.
const PATTERNS: [(&str, LogSeverity, &str); 33] = [
    (r"(?i)due to time limit", Critical, "the allocation reached its walltime"),
    (r"(?i)due to preemption", Critical, "the allocation was preempted"),
    (r"(?i)due to job requeue", Warning, "the allocation was requeued"),
    (r"(?i)due to node failure|node_fail", Critical, "a node of the allocation failed"),
    (r"(?i)cancelled at .*", Critical, "the allocation was canceled"),
    (r"(?i)oom[-_ ]kill|out[- ]of[- ]memory|oom_kill event", Critical, "memory ran out"),
    (
        r"(?i)exceeded (job|step) memory limit|memory limit .*exceeded",
        Critical,
        "a memory limit was exceeded",
    ),
    (r"(?i)cgroup.*(memory|limit).*(exceed|fail)", Error, "a control group's limit was hit"),
    (r"std::bad_alloc|MemoryError|Cannot allocate memory", Error, "a program could not get memory"),
    (
        r"(?i)unable to contact slurm controller|socket timed out",
        Error,
        "Slurm's controller did not answer",
    ),
    (r"(?i)slurm_load_jobs error|authentication error", Error, "Slurm refused or failed a request"),
    (
        r"(?i)srun: error: .*(task|node).*(exited|killed|terminated)",
        Error,
        "a task of srun ended badly",
    ),
    (r"(?i)srun: error: unable to create step", Error, "srun could not start a step"),
    (r"(?i)srun: error", Error, "srun reported an error"),
    (r"(?i)slurmstepd.*: error", Error, "Slurm's step daemon reported an error"),
    (r"(?i)no space left on device", Critical, "a disk is full"),
    (r"(?i)disk quota exceeded", Critical, "a disk quota is used up"),
    (r"(?i)read-only file system", Critical, "a file system is read-only"),
    (r"(?i)stale (nfs )?file handle|input/output error", Error, "a file system failed"),
    (r"(?i)cuda(_| )?error.*out of memory|CUDA out of memory", Error, "a GPU's memory ran out"),
    (r"(?i)cuda error|NVRM: Xid|no cuda-capable device", Error, "a GPU failed or is missing"),
    (r"(?i)segmentation fault|SIGSEGV", Error, "a program accessed memory that is not its own"),
    (r"(?i)bus error|SIGBUS", Error, "a program hit a bus error"),
    (r"(?i)illegal instruction", Error, "a program was built for another processor"),
    (r"(?i)core dumped", Error, "a program left a core dump"),
    (r"(?i)killed by signal|terminated by signal|SIGKILL", Error, "a program was killed"),
    (
        r"(?i)connection (refused|reset|timed out)|network is unreachable|no route to host|\bConnection\w*Error\b",
        Error,
        "the network failed",
    ),
    (
        r"(?i)could not resolve host|name or service not known",
        Error,
        "a host name could not be resolved",
    ),
    (r"ModuleNotFoundError|ImportError", Error, "a Python module is missing"),
    (r"Traceback \(most recent call last\)", Error, "a Python program failed"),
    (r"(?i)command not found|no such file or directory", Error, "a program or file is missing"),
    (r"(?i)permission denied|operation not permitted", Error, "a permission is missing"),
    (r"^\s*[A-Za-z_][\w.]*(Error|Exception): ", Error, "a program reported an error of its own"),
];

const LONGEST_LINE: usize = 400;

/// Finds the lines that mean something. Output is untrusted: lines are cut, nothing is interpreted.
pub fn scan(text: &str) -> Vec<Issue> {
    static SET: OnceLock<Option<RegexSet>> = OnceLock::new();
    static NODE: OnceLock<Option<Regex>> = OnceLock::new();
    let Some(set) = SET.get_or_init(|| RegexSet::new(PATTERNS.map(|(p, _, _)| p)).ok()) else {
        return Vec::new();
    };
    let node = NODE.get_or_init(|| {
        Regex::new(r"(?:slurmstepd-|srun: error: )([A-Za-z0-9][A-Za-z0-9-]*[0-9])\b").ok()
    });
    text.lines()
        .enumerate()
        .filter_map(|(number, line)| {
            let end = line.char_indices().nth(LONGEST_LINE).map_or(line.len(), |(i, _)| i);
            let line = &line[..end];
            let (_, severity, description) = PATTERNS[set.matches(line).into_iter().min()?];
            let node = node.as_ref().and_then(|n| n.captures(line)).map(|c| c[1].to_owned());
            let (line, description) = (line.trim().to_owned(), description.to_owned());
            Some(Issue { line_number: number + 1, line, description, severity, node })
        })
        .collect()
}

/// Why Slurm ends an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastWord {
    /// One sentence.
    pub text: &'static str,
    /// What that is for the jobs in it; none: a user's or operator's decision, which Slurm does not
    /// explain.
    pub cause: Option<Cause>,
}

/// Why Slurm ends this allocation, by its own last word in the allocation's output.
pub fn why_ended(text: &str) -> Option<LastWord> {
    let says = |line: &str| {
        let reasons = [
            ("DUE TO PREEMPTION", "the allocation was preempted", Some(Cause::Preempted)),
            ("DUE TO TIME LIMIT", "the allocation reached its walltime", Some(Cause::Walltime)),
            ("DUE TO NODE FAILURE", "a node of the allocation failed", Some(Cause::NodeFail)),
            ("DUE TO JOB REQUEUE", "the allocation was requeued", None),
            ("CANCELLED AT", "the allocation was canceled", None),
        ];
        reasons
            .into_iter()
            .find(|(said, ..)| line.contains(said))
            .map(|(_, text, cause)| LastWord { text, cause })
    };
    // Other lines may quote anything.
    text.lines()
        .rev()
        .filter(|line| line.starts_with("slurmstepd") && line.contains("*** "))
        .find_map(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_last_word_tells_why_an_allocation_ends() {
        let text = "runner 1 works\nslurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T03:53:42 DUE TO PREEMPTION ***\n";
        let word = |text, cause| Some(LastWord { text, cause });
        assert_eq!(why_ended(text), word("the allocation was preempted", Some(Cause::Preempted)));
        let failed = "slurmstepd-n1: error: *** JOB 10 ON n1 CANCELLED AT 2026-11-16T03:53:55 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***";
        assert_eq!(
            why_ended(failed),
            word("a node of the allocation failed", Some(Cause::NodeFail))
        );
        let late = "slurmstepd-n1: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-16T03:53:50 DUE TO TIME LIMIT ***";
        assert_eq!(
            why_ended(late),
            word("the allocation reached its walltime", Some(Cause::Walltime))
        );
        let again = "slurmstepd-n2: error: *** JOB 8 ON n2 CANCELLED AT 2026-11-16T06:22:15 DUE TO JOB REQUEUE ***";
        assert_eq!(why_ended(again), word("the allocation was requeued", None));
        assert_eq!(
            why_ended("slurmstepd-n1: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-16T03:53:50 ***"),
            word("the allocation was canceled", None)
        );
        assert_eq!(why_ended("started job *** CANCELLED AT *** (attempt 1)\n"), None);
    }

    #[test]
    fn real_lines_are_understood() {
        let text = "all is well\n\
            slurmstepd-n1: error: *** JOB 38 ON n1 CANCELLED AT 2026-11-15T18:35:00 DUE TO PREEMPTION ***\n\
            slurmstepd-n1: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-15T18:35:00 DUE TO TIME LIMIT ***\n\
            slurmstepd-n2: error: Detected 1 oom_kill event in StepId=41.batch. Some of the step tasks have been OOM Killed.\n";
        let found: Vec<_> = scan(text)
            .into_iter()
            .map(|i| (i.line_number, i.description, i.node.unwrap_or_default()))
            .collect();
        assert_eq!(
            found,
            vec![
                (2, "the allocation was preempted".into(), "n1".into()),
                (3, "the allocation reached its walltime".into(), "n1".into()),
                (4, "memory ran out".into(), "n2".into())
            ]
        );
    }

    #[test]
    fn exceptions_are_understood_and_the_precise_word_wins() {
        let text = "ConnectionError: store 7 refused\nSyntaxError: invalid syntax\nmy.own.StorageException: full\n0 errors: fine";
        let found: Vec<_> = scan(text).into_iter().map(|i| i.description).collect();
        let own = "a program reported an error of its own";
        assert_eq!(found, ["the network failed", own, own]);
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(RegexSet::new(PATTERNS.map(|(p, _, _)| p)).is_ok());
    }
}
