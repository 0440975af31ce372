//! What keeps a server tidy: deleting what is old, and how much room everything takes.

use crate::ids::WorkflowId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which workflows to delete.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneRequest {
    /// Those that ended at least this long ago. Workflows that have not ended are never deleted.
    pub older_than_seconds: i64,
    /// Keep those with jobs that did not succeed.
    #[serde(default)]
    pub keep_failed: bool,
    /// Remove logs and samples of their jobs too.
    #[serde(default)]
    pub files: bool,
    /// Only tell which.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was deleted, or would be.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PruneView {
    /// Nothing was deleted.
    pub dry_run: bool,
    /// The workflows, the oldest first.
    pub workflows: Vec<PrunedWorkflow>,
    /// Why some of them had to stay.
    pub kept: Vec<String>,
}

/// A workflow that was deleted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PrunedWorkflow {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub user: String,
    /// When its last attempt ended; of one without any, when it was created.
    pub ended_ms: i64,
    /// Its jobs.
    pub job_count: i64,
    /// Its files.
    pub removed: RemovedFiles,
}

/// Files of a workflow's jobs that were removed, or would be.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RemovedFiles {
    /// How many.
    pub files: i64,
    /// Their size.
    pub bytes: i64,
    /// Directories that the server cannot see: files there stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

/// What was gained by compacting the database.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct VacuumView {
    /// Size of the database before.
    pub bytes_before: i64,
    /// And now.
    pub bytes_after: i64,
}

/// How much room a server's data takes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Size of the database.
    pub database_bytes: i64,
    /// The part of it that holds nothing and is used again first; `vacuum` gives it back.
    pub database_free_bytes: i64,
    /// Size of the write-ahead log.
    pub log_bytes: i64,
    /// Room left on the disk of the database; absent when the file system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<i64>,
    /// Size of that disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<i64>,
    /// So little room is left that writing may soon fail.
    pub is_low: bool,
    /// The workflows, the largest first.
    pub workflows: Vec<WorkflowUsage>,
    /// Directories with files of jobs that the server cannot see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

/// How much room a workflow takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkflowUsage {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub user: String,
    /// Hidden from lists.
    pub is_archived: bool,
    /// Its jobs.
    pub jobs: i64,
    /// Its attempts.
    pub attempts: i64,
    /// Its events.
    pub events: i64,
    /// Its share of the database, by its numbers of rows.
    pub database_bytes: i64,
    /// Logs and samples of its jobs that the server can see.
    pub files: i64,
    /// Their size.
    pub file_bytes: i64,
}
