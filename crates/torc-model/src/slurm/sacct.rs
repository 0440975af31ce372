//! What `sacct` is asked and what it answers. It is late, partial and silent about unknown jobs; `squeue` goes first.

use super::squeue::last_line;
use super::state::{self, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Name.
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
    /// Nodes.
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

    /// Slurm has finished writing it: before, codes, times and names may be missing or wrong.
    pub fn is_settled(&self) -> bool {
        !matches!(self.end.as_str(), "Unknown" | "None" | "") && !self.partition.is_empty() && self.name != "allocation"
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
        Some(code) => return Answer::Unavailable(format!("sacct ended with {code}: {}", last_line(stderr))),
        None => return Answer::Unavailable("sacct did not answer in time".into()),
    }
    let mut lines = stdout.lines();
    let Some(header) = lines.next() else { return Answer::Records(Vec::new()) };
    let columns: BTreeMap<&str, usize> = header.split('|').enumerate().map(|(i, name)| (name, i)).collect();
    if !columns.contains_key("JobID") || !columns.contains_key("State") {
        return Answer::Unavailable(format!("sacct printed a header that we can not read: `{header}`"));
    }
    Answer::Records(lines.filter(|l| !l.trim().is_empty()).map(|line| record(line, &columns)).collect())
}

fn record(line: &str, columns: &BTreeMap<&str, usize>) -> Record {
    let fields: Vec<&str> = line.split('|').collect();
    let get = |name: &str| columns.get(name).and_then(|i| fields.get(*i)).map_or("", |f| f.trim()).to_owned();
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

/// The newest record of the job itself; ids are reused after a controller's crash, so the name must fit as well.
pub fn newest<'a>(records: &'a [Record], id: &str, name: &str) -> Option<&'a Record> {
    records.iter().rev().find(|r| r.job_id == id && (r.name == name || !r.is_settled()))
}
