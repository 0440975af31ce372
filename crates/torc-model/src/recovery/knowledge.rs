//! Wire types of what was learned from retries, so that a group can look at it and share it.

use super::fingerprint::Fingerprint;
use super::record::{Counts, Tried};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is known about one failure. Numbers, paths and addresses of its message are masked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KnownFailure {
    /// What makes it the same failure.
    pub fingerprint: Fingerprint,
    /// The rule that decides about it, else its kind.
    pub cause: String,
    /// When a retry of it last ended, ms since 1970.
    pub seen_ms: i64,
    /// How retries of it ended.
    pub outcomes: Vec<KnownOutcome>,
}

/// How retries of a failure ended in one way, on one day, in workflows of one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KnownOutcome {
    /// What was tried.
    pub action: Tried,
    /// Days since 1970 (UTC).
    pub day: i64,
    /// Name of the workflow.
    pub workflow: String,
    /// How they ended.
    #[serde(flatten)]
    pub counts: Counts,
    /// The most memory that one which succeeded used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_bytes: Option<i64>,
    /// The longest that one which succeeded took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_seconds: Option<f64>,
}

impl KnownFailure {
    /// How retries of one kind ended, over all days and workflows.
    pub fn total(&self, action: Tried) -> Counts {
        let mut total = Counts::default();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.action == action) {
            total.tries += outcome.counts.tries;
            total.succeeded += outcome.counts.succeeded;
            total.failed_same += outcome.counts.failed_same;
            total.failed_other += outcome.counts.failed_other;
        }
        total
    }
}

/// What was learned, as it is written to a file and read from one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Knowledge {
    /// Version of this form.
    pub torc_knowledge: i64,
    /// The failures.
    pub failures: Vec<KnownFailure>,
}

impl Knowledge {
    /// The version that is written and read.
    pub const VERSION: i64 = 1;
}

/// What became of knowledge that was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeTaken {
    /// Failures in it.
    pub failures: i64,
    /// Of those, failures that were not known.
    pub new: i64,
}

/// What was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KnowledgeForgotten {
    /// Failures about which nothing is known any more.
    pub failures: i64,
}
