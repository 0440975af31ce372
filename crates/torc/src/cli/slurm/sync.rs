//! Orphan detection: what Slurm says about allocations, then what the server can see of runners.

use crate::error::{Error, Result};
use crate::output::escape;
use serde::Serialize;
use std::fmt::Write as _;
use torc_batch::{Allocator, Synced, System};
use torc_client::Client;
use torc_model::api::RecoveryView;
use torc_model::ids::WorkflowId;

/// What a synchronization found and did.
#[derive(Serialize, Debug)]
pub struct SyncView {
    /// What Slurm said; absent where there is no Slurm or nothing to ask it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm: Option<Synced>,
    /// What the server found.
    #[serde(flatten)]
    pub recovery: RecoveryView,
}

/// Ends what has no living owner. A Slurm that does not answer is "unknown": no job fails for
/// it.
pub async fn synchronize(client: &Client, id: WorkflowId, dry_run: bool) -> Result<SyncView> {
    let slurm = match System::here().map_err(Error::usage)? {
        Some(system) => {
            let allocator = Allocator::new(client.clone(), system, None)
                .map_err(Error::io("find", "the program"))?;
            let synced = allocator.sync(Some(id), dry_run, true).await?;
            (synced.looked_at > 0).then_some(synced)
        }
        None => None,
    };
    let body = serde_json::json!({ "dry_run": dry_run });
    let recovery: RecoveryView =
        client.post(&format!("/workflows/{id}/sync_status"), &body).await?;
    Ok(SyncView { slurm, recovery })
}

/// For people.
pub fn render(view: &SyncView) -> String {
    let mut text = String::new();
    if let Some(slurm) = &view.slurm {
        if let Some(why) = &slurm.unreachable {
            let _ = writeln!(
                text,
                "the batch system does not answer, so nothing was concluded: {}",
                escape::line(why)
            );
        }
        for line in slurm.seen.details.iter().chain(&slurm.seen.first_misses) {
            let _ = writeln!(text, "{}", escape::line(line));
        }
    }
    for line in &view.recovery.details {
        let _ = writeln!(text, "{}", escape::line(line));
    }
    if text.is_empty() {
        text.push_str("nothing to do: everything that runs has a living owner\n");
    }
    if view.recovery.dry_run {
        text.push_str("nothing was changed\n");
    }
    text
}
