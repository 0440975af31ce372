//! Whether what a token is for still lives, and what a job may write.

use super::{ReadError, Reader};
use rusqlite::params;
use torc_model::ids::JobId;
use torc_model::token::Grant;

/// A runner may still report for this long after the batch system said that its allocation ended.
const AFTER_END_MS: i64 = 3_600_000;

impl Reader {
    /// The attempt or action is being executed by its runner; the workflow of a runner is there and
    /// its allocation has not ended.
    pub async fn is_good(&self, grant: Grant, now: i64) -> Result<bool, ReadError> {
        self.read(move |connection| Ok(match grant {
            Grant::Job { workflow, runner, job, attempt } => connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM attempt WHERE id = ?1 AND job_id = ?2 AND workflow_id = ?3
                     AND compute_node_id = ?4 AND ended_ms IS NULL)",
                )?
                .query_row([attempt.0, job.0, workflow.0, runner.0], |row| row.get(0)),
            Grant::Action { workflow, runner, action } => connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM workflow_action a JOIN compute_node c ON c.id = ?3
                     WHERE a.id = ?1 AND a.workflow_id = ?2 AND c.workflow_id = ?2 AND a.state = 'claimed')",
                )?
                .query_row([action.0, workflow.0, runner.0], |row| row.get(0)),
            Grant::Runner { workflow, allocation } => connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM scheduled_compute_node WHERE workflow_id = ?1 AND name = ?2
                     AND (ended_ms IS NULL OR ended_ms > ?3))",
                )?
                .query_row(params![workflow.0, allocation, now - AFTER_END_MS], |row| row.get(0)),
        }?)
        )
        .await
    }

    /// The job names this user data as its output.
    pub async fn declares(&self, job: JobId, user_data: i64) -> Result<bool, ReadError> {
        self.read(move |connection| {
            Ok(connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM job_item WHERE job_id = ?1 AND kind = 'output_user_data' AND item_id = ?2)",
                )?
                .query_row([job.0, user_data], |row| row.get(0))?)
        })
        .await
    }
}
