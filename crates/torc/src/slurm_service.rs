//! What a server does about Slurm when it can see it: sends what waits, looks at what runs, takes back what nobody
//! needs. Uses the same API as everybody else.

use std::time::{Duration, Instant};
use torc_client::Client;
use torc_runner::slurm::{Allocator, Slurm};

/// Actions trigger at any moment; their allocations should not wait long.
const SEND: Duration = Duration::from_secs(2);
/// One query of Slurm answers for all allocations.
const LOOK: Duration = Duration::from_secs(10);

/// Runs for as long as it is not dropped. Does nothing where Slurm is not installed.
pub async fn run(client: Client) {
    if !Slurm::is_here() {
        return;
    }
    let allocator = match Allocator::new(client, None) {
        Ok(allocator) => allocator,
        Err(error) => {
            tracing::warn!(%error, "Slurm is here, but allocations can not be sent");
            return;
        }
    };
    let mut looked = Instant::now();
    loop {
        tokio::time::sleep(SEND).await;
        match allocator.submit_waiting(None).await {
            Ok(sent) => sent.iter().for_each(|one| tracing::info!(name = one.name, outcome = ?one.outcome, "sent")),
            Err(error) => tracing::warn!(%error, "waiting allocations could not be sent"),
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            match allocator.sync(None, false, false).await {
                Ok(seen) => seen.seen.details.iter().for_each(|line| tracing::info!("{line}")),
                Err(error) => tracing::warn!(%error, "allocations could not be looked at"),
            }
            match allocator.take_back(None).await {
                Ok(ids) => ids.iter().for_each(|id| tracing::info!(slurm_job = id, "taken back: nothing needs it")),
                Err(error) => tracing::warn!(%error, "allocations that nothing needs could not be taken back"),
            }
        }
    }
}
