//! What the page shows: families, pulse, failures, resources, graph, and what it can do.
//!
//! Everything is bounded: a view of a hundred thousand jobs is as small as one of a hundred.

use crate::ids::{JobId, WorkflowId};
use crate::recovery::{Action, Change, Kind, Proof, Record};
use crate::status::words;
use crate::status::{Adjustable, Cause, JobStatus, Stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// A workflow by families.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FamiliesView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Its name.
    pub name: String,
    /// The current run.
    pub run_id: i64,
    /// As of this time, ms since 1970.
    pub at_ms: i64,
    /// The run began at.
    pub started_ms: Option<i64>,
    /// The last attempt ended at.
    pub last_end_ms: Option<i64>,
    /// Every job is final.
    pub is_complete: bool,
    /// A user canceled it.
    pub is_canceled: bool,
    /// Jobs per status that occurs.
    pub counts: BTreeMap<String, i64>,
    /// Number of jobs.
    pub total: i64,
    /// In the order of the spec.
    pub families: Vec<FamilyView>,
    /// What the runners have.
    #[serde(flatten)]
    pub cpus: CpuSums,
    /// Runners that have been silent for too long.
    pub lost_contact_runners: i64,
    /// What waits in the batch system's queue, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    /// How attempts ended over the run.
    pub pace: PaceView,
}

/// Allocations of a workflow that wait in the batch system's queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// How many.
    pub allocations: i64,
    /// The first of them waits since, ms since 1970.
    pub since_ms: i64,
    /// Why it waits, in the batch system's word and in plain ones.
    pub why: Option<String>,
    /// When the batch system plans to start the first of them, as far as it has said.
    pub expected_start_ms: Option<i64>,
}

/// One family.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FamilyView {
    /// Number in the workflow, from 0.
    pub number: i64,
    /// Name: that of the entry of the spec, without parameters.
    pub name: String,
    /// Number of jobs.
    pub total: i64,
    /// Jobs per status that occurs.
    pub counts: BTreeMap<String, i64>,
}

/// How many attempts ended, over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PaceView {
    /// The first slot begins at, ms since 1970.
    pub begin_ms: i64,
    /// Length of a slot.
    pub slot_ms: i64,
    /// Attempts that ended in each slot.
    pub ended: Vec<i64>,
    /// Of those, attempts that ended badly.
    pub failed: Vec<i64>,
    /// Attempts that ran at the end of each slot.
    #[serde(default)]
    pub running: Vec<i64>,
}

/// What the runners of a workflow have, and how much of it works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CpuSums {
    /// CPUs of the jobs that run.
    #[serde(rename = "busy_cpus")]
    pub busy: i64,
    /// CPUs of the runners that are there.
    #[serde(rename = "cpus")]
    pub all: i64,
    /// Runners that are there.
    pub runners: i64,
}

/// One frame of the pulse: what has changed, small whatever the rate of jobs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PulseView {
    /// As of this time, ms since 1970.
    pub at_ms: i64,
    /// The current run.
    pub run_id: i64,
    /// Every job is final.
    pub is_complete: bool,
    /// A user canceled it.
    pub is_canceled: bool,
    /// Jobs per status, by the status' integer.
    pub counts: Vec<i64>,
    /// Number of each family with its jobs per status, by the status' integer; trailing zeros are
    /// left out. Families that do not fit into a frame are left out: ask for `/families`.
    pub families: Vec<(i64, Vec<i64>)>,
    /// What the runners have.
    #[serde(flatten)]
    pub cpus: CpuSums,
    /// Attempts that ended in the last minute.
    pub ended_last_minute: i64,
    /// Groups of failures that were not there at the frame before; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<PulseFailure>,
    /// Jobs that were asked for and whose state the stream has not told yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<PulseJob>,
}

/// A group of failures that is new.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PulseFailure {
    /// What happened.
    pub kind: Kind,
    /// The family.
    pub family: String,
    /// Jobs of the group.
    pub jobs: i64,
}

/// Id of a job, its status' integer, and the number of its attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PulseJob(pub i64, pub i64, pub i64);

/// Failures that have their family, cause and exit code in common.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    /// The family.
    pub family: String,
    /// Why the attempts ended.
    pub cause: Option<Cause>,
    /// Their return code.
    pub return_code: Option<i64>,
    /// The signal that ended them.
    pub signal: Option<i64>,
    /// What happened to the newest of them.
    #[serde(flatten)]
    pub diagnosis: FailureDiagnosis,
    /// How many jobs failed, wait and were canceled.
    #[serde(flatten)]
    pub counts: FailureCounts,
    /// One of the jobs.
    #[serde(flatten)]
    pub sample: FailureSample,
    /// Hosts, with how many of the jobs failed there; the five with the most.
    pub nodes: Vec<(String, i64)>,
    /// First and last end, ms since 1970.
    pub first_ms: Option<i64>,
    /// Last end.
    pub last_ms: Option<i64>,
    /// What recovery would do about the sample.
    #[serde(flatten)]
    pub remedy: FailureRemedy,
    /// What was raised for these jobs on the way.
    #[serde(default)]
    pub raised: Vec<Raised>,
    /// The filter that finds exactly these jobs.
    #[serde(rename = "where")]
    pub filter: String,
}

/// What happened, by the diagnosis of the newest failure of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureDiagnosis {
    /// What happened.
    pub kind: Kind,
    /// How sure that is, 0..1.
    pub confidence: f64,
    /// One sentence.
    pub summary: String,
    /// What decided, strongest first; of the job `sample`.
    pub proof: Vec<Proof>,
}

/// How many jobs a group of failures has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FailureCounts {
    /// Jobs of the group.
    pub jobs: i64,
    /// Of those, jobs that wait for a verdict.
    pub waiting: i64,
    /// Jobs that were canceled because of them.
    pub blocked: i64,
    /// Attempts of these jobs after their first ones: how often they were tried again.
    #[serde(default)]
    pub retries: i64,
}

/// A job of a group of failures, and the attempt that stands for the group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureSample {
    /// A job of the group.
    #[serde(rename = "sample")]
    pub job: JobId,
    /// Its name.
    #[serde(rename = "sample_name")]
    pub name: String,
    /// Its attempt.
    #[serde(rename = "sample_attempt")]
    pub attempt: i64,
    /// Its run.
    #[serde(rename = "sample_run")]
    pub run: i64,
    /// The end of its standard error.
    pub tail: String,
}

/// What recovery would do about the sample of a group of failures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureRemedy {
    /// What it would do.
    pub action: Action,
    /// What would change for its next attempts.
    pub changes: Vec<Change>,
    /// Why that.
    pub why: String,
    /// The chance that its next attempt succeeds; 0 where none is made.
    #[serde(default)]
    pub chance: f64,
    /// How earlier retries of such a failure ended.
    #[serde(default)]
    pub record: Record,
}

/// What recovery or a person raised for jobs that failed all the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Raised {
    /// What was raised.
    pub field: Adjustable,
    /// The least that one of them had before: bytes, seconds, or a number.
    pub from: Option<i64>,
    /// The most that one of them got.
    pub to: i64,
    /// For so many of the jobs.
    pub jobs: i64,
}

/// How long attempts of a family took that succeeded.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FamilySeconds {
    /// Median of their time.
    #[serde(rename = "seconds_median")]
    pub median: Option<f64>,
    /// Longest time.
    #[serde(rename = "seconds_max")]
    pub max: Option<f64>,
    /// All their time together.
    #[serde(rename = "seconds_sum")]
    pub sum: f64,
    /// Longest time that was asked for.
    #[serde(rename = "seconds_asked")]
    pub asked: Option<i64>,
}

/// What jobs of a family asked for and used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FamilyResources {
    /// The family's number.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// Attempts that succeeded in this run.
    pub attempts: i64,
    /// How long they took.
    #[serde(flatten)]
    pub seconds: FamilySeconds,
    /// CPUs that were asked for.
    pub cpus_asked: i64,
    /// CPUs that were used on average.
    pub cpus_used: Option<f64>,
    /// Most memory that was asked for.
    pub memory_asked: Option<i64>,
    /// Median of the highest memory use.
    pub memory_median: Option<i64>,
    /// Highest memory use.
    pub memory_max: Option<i64>,
    /// CPU hours that were asked for and not used.
    pub wasted_cpu_hours: f64,
    /// GiB hours that were asked for and not used.
    pub wasted_gib_hours: f64,
    /// Memory that would have been enough for all of them, with a fifth to spare.
    pub memory_proposed: Option<i64>,
    /// At most 120 attempts: seconds and highest memory use.
    pub dots: Vec<(f64, i64)>,
}

/// A graph to draw.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GraphView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// What a node stands for.
    pub group: GraphGroup,
    /// The nodes, with their places.
    pub nodes: Vec<GraphNode>,
    /// The edges, from what comes first to what waits for it.
    pub edges: Vec<GraphEdge>,
    /// Nodes that were left out.
    pub left_out: i64,
    /// The jobs of an opened family that has too many for nodes: id, and the status' integer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<(i64, i64)>,
}

words! {
    /// What a node of a graph stands for.
    GraphGroup {
        /// The jobs of one entry of the spec.
        Family = "family",
        /// Jobs whose names begin alike, up to the first digit or one of `_ - . / :`.
        Prefix = "prefix",
        /// Jobs for which a regular expression captures the same text.
        Pattern = "pattern",
        /// One job.
        Job = "job",
    }
}

/// A node of a graph.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GraphNode {
    /// Number of the family or group, or id of the job.
    pub id: i64,
    /// Name of the job.
    pub name: String,
    /// The filter that finds its jobs, unless it is one job.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Jobs it stands for.
    pub total: i64,
    /// Jobs per status that occurs.
    pub counts: BTreeMap<String, i64>,
    /// Longest way from a node that waits for nothing.
    pub rank: i64,
    /// Place across the rank; ranks are centred around 0.
    pub across: f64,
}

/// An edge of a graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GraphEdge {
    /// Id of the node that comes first.
    pub from: i64,
    /// Id of the node that waits for it.
    pub to: i64,
    /// Dependencies between their jobs.
    pub count: i64,
    /// `1:1`, `all` or `n:m`.
    pub kind: String,
}

/// The jobs that decide when a run can end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CriticalPathView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// From the first to the last; the first 200 of them.
    pub jobs: Vec<CriticalJob>,
    /// How many there are.
    pub length: i64,
    /// Their time together: the run cannot take less with any number of CPUs.
    pub seconds: f64,
    /// CPU time that was asked for by all attempts that succeeded, in CPU seconds.
    pub work_cpu_seconds: f64,
    /// Time of attempts that failed or were lost.
    pub lost_seconds: f64,
    /// Time that attempts waited between being ready and being started, on average.
    pub waited_seconds: f64,
    /// How long the run has taken so far.
    pub elapsed_seconds: f64,
    /// CPU time that was asked for by attempts that failed or were lost, in CPU seconds.
    #[serde(default)]
    pub lost_cpu_seconds: f64,
    /// CPU time that the runners had while they were there, in CPU seconds.
    #[serde(default)]
    pub there_cpu_seconds: f64,
    /// The part of it that was free after the last attempt had started, in CPU seconds.
    #[serde(default)]
    pub idle_end_cpu_seconds: f64,
    /// How long the run waited for its first runner.
    #[serde(default)]
    pub no_runner_seconds: f64,
}

/// A job on the critical path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CriticalJob {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: JobStatus,
    /// Number of its family.
    pub family: i64,
    /// How long it took, or has taken so far.
    pub seconds: f64,
    /// How long after the end of the job before it on the path it started: what it waited for was
    /// no other job of the path.
    #[serde(default)]
    pub gap_seconds: f64,
}

words! {
    /// What stands in a row of a timeline.
    TimelineRows {
        /// The attempts of a runner.
        Runner = "runner",
        /// Those of a family.
        Family = "family",
    }
}

words! {
    /// What can be done with many jobs at once.
    ActWord {
        /// Try them again as they are.
        Retry = "retry",
        /// Try them again with what their diagnosis asks for: more memory, more time, or the same.
        Recover = "recover",
        /// Cancel them and what depends on them.
        Cancel = "cancel",
        /// Keep them from starting.
        Hold = "hold",
        /// Let them start.
        Release = "release",
        /// Let failures that wait for a verdict fail for good.
        Fail = "fail",
        /// Change their priority to `value`.
        Priority = "priority",
        /// Give their next attempts the memory `value`.
        Memory = "memory",
        /// Give their next attempts the time `value`.
        Runtime = "runtime",
    }
}

/// Does something with all jobs that a filter finds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActRequest {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Which jobs, in the filter language.
    #[serde(rename = "where", default)]
    pub filter: String,
    /// What to do.
    pub action: ActWord,
    /// For `priority`, `memory` and `runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// Who asks, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What was done, or would be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActView {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Jobs that the filter finds.
    pub matched: i64,
    /// Jobs that it was done with.
    pub done: i64,
    /// Jobs that it cannot be done with, by reason.
    pub skipped: Vec<(String, i64)>,
    /// Other jobs that change with them: opened again, or canceled.
    pub others: i64,
    /// What changes, in sentences.
    pub notes: Vec<String>,
    /// The first jobs, by name.
    pub names: Vec<String>,
    /// The command that does the same.
    pub command: String,
}

/// What a search in a log found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogSearchView {
    /// Lines in which it was found, in all.
    pub total: i64,
    /// The first of them.
    pub hits: Vec<LogHit>,
    /// Lines of the file.
    pub lines: i64,
    /// Size of the file, in bytes.
    pub size: i64,
    /// Bytes that were looked at; less than the size when the search took too long.
    pub searched: i64,
}

/// A line in which something was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogHit {
    /// Number of the line, from 1.
    pub line: i64,
    /// Where the line begins, in bytes.
    pub offset: i64,
    /// The line, or the part of it around the place.
    pub text: String,
}

words! {
    /// Where a line of two outputs stands.
    DiffWord {
        /// In both, but for numbers, times and paths.
        Same = "same",
        /// Only in the earlier attempt.
        Gone = "gone",
        /// Only in the later one.
        New = "new",
        /// Equal lines that are left out.
        Equal = "equal",
    }
}

/// The outputs of two attempts compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogDiffView {
    /// The job.
    pub job_id: JobId,
    /// Which output.
    pub stream: Stream,
    /// The attempt that lines are gone from.
    pub earlier: LogSide,
    /// The attempt that has new lines.
    pub later: LogSide,
    /// Whether they differ in more than numbers, times and paths.
    pub differ: bool,
    /// Lines of the comparison, in all.
    pub total_count: i64,
    /// The first of these lines in it, from 0.
    pub offset: i64,
    /// Lines from there on.
    pub lines: Vec<LogDiffLine>,
}

/// One of two outputs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogSide {
    /// Of this run.
    pub run_id: i64,
    /// Of this attempt.
    pub attempt_id: i64,
    /// Size of the file, in bytes.
    pub size: i64,
    /// Bytes at its end that were looked at.
    pub read: i64,
}

/// A line of a comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogDiffLine {
    /// Where it stands.
    pub kind: DiffWord,
    /// The line; empty for lines that are left out.
    pub text: String,
    /// How many lines are left out here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<i64>,
}

/// What an attempt used over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SamplesView {
    /// The job.
    pub job_id: JobId,
    /// The run of the attempt.
    pub run_id: i64,
    /// Its number in the run.
    pub attempt_id: i64,
    /// What it may use.
    pub memory_limit_bytes: Option<i64>,
    /// In the order of time; none where its runner kept no samples.
    pub points: Vec<SamplePoint>,
}

/// Ms since the start of the attempt, bytes of memory, and CPU use since the sample before, 100 per
/// CPU.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SamplePoint(pub i64, pub i64, pub Option<f64>);

words! {
    /// What a page session may do.
    PageScope {
        /// Look only.
        Read = "read",
        /// Look, and act on jobs and workflows.
        Act = "act",
    }
}

/// Asks for a code that opens the page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateUiCode {
    /// What the page may do.
    pub scope: PageScope,
    /// Who it is for, for the list of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A code that is good once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UiCode {
    /// The code.
    pub code: String,
    /// Good until, ms since 1970.
    pub expires_ms: i64,
    /// The Unix socket on which the page is served as well, if there is one.
    pub socket: Option<String>,
}

/// Exchanges a code for a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateUiSession {
    /// The code.
    pub code: String,
    /// Keep it for a week instead of half a day.
    #[serde(default)]
    pub remember: bool,
}

/// A new session of the page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UiSessionCreated {
    /// Goes into the header `X-Torc-Token`.
    pub token: String,
    /// The session.
    pub session: UiSessionView,
}

/// A session of the page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UiSessionView {
    /// Id of the session.
    pub id: i64,
    /// What it may do.
    pub scope: PageScope,
    /// Who it is for.
    pub label: Option<String>,
    /// Since when, ms since 1970.
    pub created_ms: i64,
    /// Good until.
    pub expires_ms: i64,
}

/// The newest attempt of a job, in short.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LastAttempt {
    /// The run.
    pub run_id: i64,
    /// 1, 2, 3... in the run.
    pub attempt_id: i64,
    /// Started at, ms since 1970.
    pub started_ms: Option<i64>,
    /// Ended at.
    pub ended_ms: Option<i64>,
    /// Wall time.
    pub exec_seconds: Option<f64>,
    /// CPU time.
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    /// Highest memory use.
    pub peak_memory_bytes: Option<i64>,
    /// Memory it was given.
    pub memory_bytes: Option<i64>,
    /// Its host.
    pub hostname: Option<String>,
    /// Its process group there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Why it failed.
    pub cause: Option<Cause>,
}
