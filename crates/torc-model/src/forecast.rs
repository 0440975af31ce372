//! When a workflow is expected to be over, and what keeps it from being over earlier.

use crate::ids::WorkflowId;
use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

words! {
    /// What keeps a workflow from being over earlier.
    LimitedBy {
        /// The longest chain of jobs that wait for each other.
        CriticalPath = "critical_path",
        /// The number of CPUs.
        Cpus = "cpus",
        /// The memory of the machines.
        Memory = "memory",
        /// The number of GPUs.
        Gpus = "gpus",
        /// Nodes that the batch system has not given yet.
        Queue = "queue",
    }
}

impl LimitedBy {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::CriticalPath => "the longest chain of jobs",
            Self::Cpus => "the number of CPUs",
            Self::Memory => "memory",
            Self::Gpus => "the number of GPUs",
            Self::Queue => "the batch system's queue",
        }
    }
}

/// Machines to assume in a forecast; those that are there where nothing is said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Machines {
    /// How many.
    pub nodes: Option<i64>,
    /// CPUs of each.
    pub cores: Option<i64>,
    /// Memory of each, in bytes.
    pub memory_bytes: Option<i64>,
    /// GPUs of each.
    pub gpus: Option<i64>,
}

/// When a workflow is expected to be over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ForecastView {
    /// The workflow; none when it is a spec that was not submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// It is complete, and this is about running all of it once more.
    pub is_again: bool,
    /// Seconds until its end.
    pub seconds: f64,
    /// It ends before this in one case of ten.
    pub low_seconds: f64,
    /// It ends after this in one case of ten.
    pub high_seconds: f64,
    /// It cannot end before this with these machines.
    pub bound_seconds: f64,
    /// What keeps it from ending earlier.
    pub limited_by: LimitedBy,
    /// Jobs that have not ended.
    pub jobs: i64,
    /// Those about whose time nothing is known.
    pub unknown_jobs: i64,
    /// Jobs that nothing there could take.
    pub stuck_jobs: i64,
    /// Machines that were assumed.
    pub nodes: i64,
    /// Their CPUs together.
    pub cpus: i64,
}

impl ForecastView {
    /// The answer in one sentence.
    pub fn text(&self) -> String {
        use crate::words::{count, duration};
        if self.unknown_jobs == self.jobs && self.jobs > 0 {
            return format!(
                "unknown: none of {} has run before or has a `runtime`",
                count(self.jobs, "job")
            );
        }
        let unknown = match self.unknown_jobs {
            0 => String::new(),
            some => format!("; nothing is known of {}", count(some, "job")),
        };
        format!(
            "in about {} ({} to {}), limited by {}; cannot be faster than {} with {}{unknown}",
            duration(self.seconds),
            duration(self.low_seconds),
            duration(self.high_seconds),
            self.limited_by.text(),
            duration(self.bound_seconds),
            count(self.cpus, "CPU"),
        )
    }
}
