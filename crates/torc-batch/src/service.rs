//! What a server does about a batch system that it can see: submits what waits, looks at what runs,
//! takes back what no job needs. Uses the same API as every client.

use crate::{Allocator, BatchSystem};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use torc_client::Client;

/// A command that asks for nodes usually submits the request as well and tells its user; this is for
/// what was not submitted.
const LEAVE_TO_OTHERS: Duration = Duration::from_secs(2);
/// A batch system sends no notice of what becomes of jobs, so it is asked; one query answers for all
/// allocations.
const LOOK: Duration = Duration::from_secs(10);

/// Serves the allocations of a server until the server ends; `planned` changes whenever allocations
/// were planned.
pub async fn serve<B: BatchSystem>(client: Client, system: B, mut planned: watch::Receiver<u64>) {
    let allocator = match Allocator::new(client, system, None) {
        Ok(allocator) => allocator,
        Err(error) => {
            tracing::warn!(%error, "allocations cannot be submitted from here");
            return;
        }
    };
    // What an earlier server left is taken up at once.
    let mut look_at = Instant::now();
    let mut send_at = None;
    loop {
        let due = send_at.map_or(look_at, |at: Instant| at.min(look_at));
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            changed = planned.changed() => {
                if changed.is_err() {
                    return;
                }
                send_at.get_or_insert_with(|| Instant::now() + LEAVE_TO_OTHERS);
                continue;
            }
        }
        send_at = None;
        send(&allocator).await;
        if look_at <= Instant::now() {
            look(&allocator).await;
            look_at = Instant::now() + LOOK;
        }
    }
}

async fn send<B: BatchSystem>(allocator: &Allocator<B>) {
    match allocator.submit_waiting(None).await {
        Ok(sent) => sent
            .iter()
            .for_each(|one| tracing::info!(name = one.name, outcome = ?one.outcome, "sent")),
        Err(error) => tracing::warn!(%error, "waiting allocations could not be sent"),
    }
}

async fn look<B: BatchSystem>(allocator: &Allocator<B>) {
    match allocator.sync(None, false, false).await {
        Ok(seen) => {
            let lines = seen.seen.details.iter().chain(&seen.seen.first_misses);
            lines.for_each(|line| tracing::info!("{line}"));
        }
        Err(error) => tracing::warn!(%error, "allocations could not be looked at"),
    }
    match allocator.take_back(None).await {
        Ok(ids) => {
            ids.iter().for_each(|id| tracing::info!(batch_job = id, "taken back: nothing needs it"))
        }
        Err(error) => {
            tracing::warn!(%error, "allocations that nothing needs could not be taken back")
        }
    }
}
