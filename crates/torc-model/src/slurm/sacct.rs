//! What `sacct` is asked and what it answers. It is late, partial and silent about unknown jobs;
//! `squeue` goes first.

use super::squeue::last_line;
use super::state::{self, AllocationEnding, AllocationPhase, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The columns asked for; reading goes by the header, so their order does not matter.
pub const FIELDS: &str = "JobID,JobIDRaw,JobName,Partition,State,ExitCode,DerivedExitCode,Submit,Start,End,ElapsedRaw,\
                          TotalCPU,NodeList,ReqMem,MaxRSS";

/// The arguments for these jobs. `-D` shows every life of a requeued job.
pub fn arguments(ids: &[String]) -> Vec<String> {
    vec!["-P".into(), "-D".into(), "-j".into(), ids.join(","), "-o".into(), FIELDS.into()]
}

/// One record: a job or a step of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// `123`, `123_4`, or with a step `123.batch`.
    pub job_id: String,
    /// Name of the batch job.
    pub name: String,
    /// Partition; empty in a record that is not finished being written.
    pub partition: String,
    /// Slurm's word.
    pub state: String,
    /// `code:signal`.
    pub exit_code: String,
    /// Highest code of the steps.
    pub derived_exit_code: String,
    /// As Slurm prints it.
    pub submit: String,
    /// As Slurm prints it.
    pub start: String,
    /// As Slurm prints it; `Unknown` while it runs.
    pub end: String,
    /// Wall time.
    pub elapsed_seconds: u64,
    /// As Slurm prints it.
    pub cpu_time: String,
    /// Names of its nodes, as a Slurm node list.
    pub nodes: String,
    /// Memory asked for.
    pub requested_memory: String,
    /// Highest memory of one task, in bytes.
    pub max_rss_bytes: Option<u64>,
}

impl Record {
    /// A step, not the job itself.
    pub fn is_step(&self) -> bool {
        self.job_id.contains('.')
    }

    /// Slurm has not written its name yet.
    pub fn is_nameless(&self) -> bool {
        matches!(self.name.as_str(), "" | "allocation")
    }

    /// Slurm has finished writing it: before, codes, times and names may be missing or wrong.
    pub fn is_settled(&self) -> bool {
        !matches!(self.end.as_str(), "Unknown" | "None" | "")
            && !self.partition.is_empty()
            && !self.is_nameless()
    }

    /// What its state means; an ended state counts only when the record is settled.
    pub fn verdict(&self) -> Verdict {
        match state::verdict(&self.state, None) {
            Verdict::Ended(_) if !self.is_settled() => {
                Verdict::Unknown { why: "the accounting record is not complete yet".into() }
            }
            verdict => verdict,
        }
    }
}

/// What a query told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Records, oldest first; jobs may be missing although they exist.
    Records(Vec<Record>),
    /// No accounting here, or it could not be asked.
    Unavailable(String),
}

/// Reads the outcome of the query.
pub fn read(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Answer {
    match exit_code {
        Some(0) => {}
        Some(_) if stderr.contains("accounting storage is disabled") => {
            return Answer::Unavailable("this cluster keeps no accounting".into());
        }
        Some(code) => {
            return Answer::Unavailable(format!("sacct ended with {code}: {}", last_line(stderr)));
        }
        None => return Answer::Unavailable("sacct did not answer in time".into()),
    }
    let mut lines = stdout.lines();
    let Some(header) = lines.next() else { return Answer::Records(Vec::new()) };
    let columns: BTreeMap<&str, usize> =
        header.split('|').enumerate().map(|(i, name)| (name, i)).collect();
    if !columns.contains_key("JobID") || !columns.contains_key("State") {
        return Answer::Unavailable(format!(
            "sacct printed a header that we cannot read: `{header}`"
        ));
    }
    Answer::Records(
        lines.filter(|l| !l.trim().is_empty()).map(|line| record(line, &columns)).collect(),
    )
}

fn record(line: &str, columns: &BTreeMap<&str, usize>) -> Record {
    let fields: Vec<&str> = line.split('|').collect();
    let get = |name: &str| {
        columns.get(name).and_then(|i| fields.get(*i)).map_or("", |f| f.trim()).to_owned()
    };
    Record {
        job_id: get("JobID"),
        name: get("JobName"),
        partition: get("Partition"),
        state: get("State"),
        exit_code: get("ExitCode"),
        derived_exit_code: get("DerivedExitCode"),
        submit: get("Submit"),
        start: get("Start"),
        end: get("End"),
        elapsed_seconds: get("ElapsedRaw").parse().unwrap_or(0),
        cpu_time: get("TotalCPU"),
        nodes: get("NodeList"),
        requested_memory: get("ReqMem"),
        max_rss_bytes: crate::units::Memory::parse(&get("MaxRSS")).ok().map(|m| m.0),
    }
}

/// The newest record of the job itself; ids are reused after a controller's crash, so the name must
/// fit as well. A record without a name yet may be another user's, so it counts only when there is
/// none with the name.
pub fn newest<'a>(records: &'a [Record], id: &str, name: &str) -> Option<&'a Record> {
    let find =
        |fits: &dyn Fn(&Record) -> bool| records.iter().rev().find(|r| r.job_id == id && fits(r));
    find(&|r| super::is_name_of(&r.name, name)).or_else(|| find(&Record::is_nameless))
}

/// How a job that waits again ended before, if accounting knows of that life and not only of an
/// earlier one.
pub fn last_life(records: &[Record], id: &str, name: &str) -> Option<AllocationEnding> {
    let lives = records.iter().rev().filter(|r| r.job_id == id && super::is_name_of(&r.name, name));
    let mut lives = lives.map(Record::verdict);
    let ending = |verdict| match verdict {
        Verdict::Ended(ending) => Some(ending),
        Verdict::Alive { .. } | Verdict::Unknown { .. } => None,
    };
    match lives.next()? {
        Verdict::Alive { phase: AllocationPhase::Waiting, .. } => lives.next().and_then(ending),
        newest => ending(newest),
    }
}

/// The records of jobs with these names, and of their steps, which follow them. Slurm may know
/// other jobs by the same ids, from before it lost its state.
pub fn ours(records: Vec<Record>, names: &BTreeSet<&str>) -> Vec<Record> {
    let is_ours = |name: &str| names.iter().any(|ours| super::is_name_of(name, ours));
    let is_named = |r: &Record| !r.is_step() && is_ours(&r.name);
    let named: BTreeSet<String> =
        records.iter().filter(|r| is_named(r)).map(|r| r.job_id.clone()).collect();
    let mut is_ours = false;
    records
        .into_iter()
        .filter(|r| {
            if !r.is_step() {
                is_ours = is_named(r) || (r.is_nameless() && !named.contains(&r.job_id));
            }
            is_ours
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 22.05 printed after its controller was killed and had given the id 38 away a second
    /// time.
    const REUSED: &str = "JobID|JobName|Partition|State|ExitCode|Submit|Start|End
37|down|main|REQUEUED|0:0|2026-11-15T18:01:08|2026-11-15T18:02:06|2026-11-15T18:02:06
37.batch|batch||CANCELLED||2026-11-15T18:01:08|2026-11-15T18:01:08|2026-11-15T18:02:06
38|allocation||PENDING|0:0|2026-11-15T18:01:08|2026-11-15T18:01:08|Unknown
38.batch|batch||RUNNING|0:0|2026-11-15T18:01:08|2026-11-15T18:01:08|Unknown
37|down|main|PENDING|0:0|2026-11-15T18:02:06|Unknown|Unknown
38|hungsubmit|main|COMPLETED|0:0|2026-11-15T18:02:48|2026-11-15T18:02:48|2026-11-15T18:02:48
38.batch|batch||COMPLETED|0:0|2026-11-15T18:02:48|2026-11-15T18:02:48|2026-11-15T18:02:48
";

    fn records(text: &str) -> Vec<Record> {
        match read(Some(0), text, "") {
            Answer::Records(records) => records,
            Answer::Unavailable(why) => panic!("{why}"),
        }
    }

    #[test]
    fn the_end_of_another_job_with_the_same_id_is_not_the_end_of_ours() {
        let records = records(REUSED);
        let lost = newest(&records, "38", "torc-wf1-s1-0").expect("without a name yet");
        assert!(matches!(lost.verdict(), Verdict::Alive { .. }), "{lost:?}");
        let theirs = newest(&records, "38", "hungsubmit").expect("by its name");
        assert!(matches!(theirs.verdict(), Verdict::Ended(_)), "{theirs:?}");
        let again = newest(&records, "37", "down").expect("its second life");
        assert_eq!(again.state, "PENDING");
        assert_eq!(newest(&records, "37", "torc-wf1-s1-0"), None);
    }

    #[test]
    fn a_running_job_of_another_user_says_nothing_about_ours() {
        let theirs = "JobID|JobName|Partition|State|End\n5|other|main|RUNNING|Unknown\n";
        assert_eq!(newest(&records(theirs), "5", "torc-wf1-s1-0"), None);
    }

    #[test]
    fn only_our_records_are_shown_with_their_steps() {
        let shown = |name: &str| -> Vec<(String, String)> {
            let rows = ours(records(REUSED), &BTreeSet::from([name]));
            rows.into_iter().map(|r| (r.job_id, r.state)).collect()
        };
        let row = |id: &str, state: &str| (id.to_owned(), state.to_owned());
        assert_eq!(shown("hungsubmit"), [row("38", "COMPLETED"), row("38.batch", "COMPLETED")]);
        // Ours may be the one that has no name yet.
        assert_eq!(shown("torc-wf1-s1-0"), [row("38", "PENDING"), row("38.batch", "RUNNING")]);
    }
}
