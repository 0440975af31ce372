//! Families in the store: written with the jobs, counted from what the engine has in memory.

use super::Store;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use std::sync::Arc;
use torc_model::ids::WorkflowId;

/// Jobs of each family per status, by the family's number and the status' integer.
pub type FamilyCounts = Vec<[u32; 11]>;

impl Store {
    /// Counts the jobs of a workflow that the engine has in memory, by family. `families` holds the
    /// family of each job in the order of their ids; None when it is too short by now, because a
    /// map has found items since.
    ///
    /// The writer is asked because it has every status in memory: counting a hundred thousand jobs
    /// takes it about a tenth of a millisecond, and asking the database fifty.
    pub async fn count_families(
        &self,
        id: WorkflowId,
        families: Arc<Vec<u32>>,
    ) -> Result<Option<FamilyCounts>, Refusal> {
        self.writer.call_routine(move |tx| count(tx, id, &families)).await
    }
}

fn count(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    families: &[u32],
) -> Result<Option<FamilyCounts>, Failed> {
    let workflow = tx.workflow(id)?;
    if workflow.len() != families.len() {
        return Ok(None);
    }
    let size = families.iter().max().map_or(0, |last| *last as usize + 1);
    let mut counts = vec![[0u32; 11]; size];
    for (job, family) in workflow.jobs().zip(families).filter(|(job, _)| !job.is_removed()) {
        counts[*family as usize][job.status() as usize] += 1;
    }
    Ok(Some(counts))
}
