//! What a runner reports of its attempts, and what it is answered.

use crate::ids::{AttemptId, RunnerId};
use crate::recovery::Observed;
use crate::status::{Cause, EndDetail, EvidenceSource, JobStatus, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Names one attempt and proves the right to speak for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptRef {
    /// The attempt's row.
    pub id: AttemptId,
    /// Given with the claim.
    pub token: String,
}

/// An attempt has started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StartReport {
    /// The attempt, with its token.
    #[serde(flatten)]
    pub attempt: AttemptRef,
    /// Its process group.
    pub pid: i64,
    /// When, in ms since 1970.
    pub at_ms: i64,
}

/// An attempt has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionReport {
    /// The attempt, with its token.
    #[serde(flatten)]
    pub attempt: AttemptRef,
    /// Return code: the program's, 128+N for signal N, 152 timeout, 137 out of memory.
    pub return_code: i64,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i64>,
    /// Why it failed; absent for success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What exactly failed or stopped it, where the cause leaves that open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<EndDetail>,
    /// What a person should read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What decided the cause, strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// When it started, in ms since 1970.
    pub started_ms: i64,
    /// When it ended.
    pub ended_ms: i64,
    /// Wall time, by the monotonic clock.
    pub exec_seconds: f64,
    /// User and system time of the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Highest memory use of the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// Mean memory use of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_memory_bytes: Option<i64>,
    /// Highest CPU use, 100 per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_cpu_percent: Option<f64>,
    /// Mean CPU use, 100 per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg_cpu_percent: Option<f64>,
    /// Standard output's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_path: Option<String>,
    /// Standard error's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_path: Option<String>,
    /// The end of standard error of a failure, decoded lossily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,
    /// Where that end begins in the file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_tail_start: Option<i64>,
    /// What was seen of a failure beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// How the recovery script went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptResult>,
    /// What the steps did, in the canonical JSON form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Value>,
}

/// One piece of evidence for a cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    /// Where it comes from.
    pub source: EvidenceSource,
    /// One sentence.
    pub text: String,
}

impl Evidence {
    /// As people see it.
    #[must_use]
    pub fn shown(self) -> Self {
        Self { text: crate::words::message(self.text), ..self }
    }
}

/// How a recovery script went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScriptResult {
    /// Its return code.
    pub return_code: i64,
    /// Its wall time.
    pub exec_seconds: f64,
    /// It was killed for taking too long.
    pub timed_out: bool,
    /// Its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_path: Option<String>,
    /// Its standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_path: Option<String>,
}

/// What the server made of a report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportResult {
    /// The attempt's row.
    pub id: AttemptId,
    /// `accepted`, `repeated` (already known, nothing changed) or `late` (no longer counts,
    /// recorded).
    pub result: ReportVerdict,
    /// What the rules decided about a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The job's status now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<JobStatus>,
}

/// What became of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportVerdict {
    /// It counted.
    Accepted,
    /// It had counted already.
    Repeated,
    /// Its attempt is no longer the runner's, or has ended otherwise.
    Late,
}

/// A batch of starts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StartBatch {
    /// Who reports.
    pub runner_id: RunnerId,
    /// The reports.
    pub items: Vec<StartReport>,
}

/// A batch of ends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionBatch {
    /// Who reports.
    pub runner_id: RunnerId,
    /// The reports.
    pub items: Vec<CompletionReport>,
}

/// Answers to a batch, in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportResults {
    /// One per item.
    pub results: Vec<ReportResult>,
}
