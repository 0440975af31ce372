//! Claims that wait for work. The writer answers them in the transaction that makes work ready, the
//! runner with the least room first: best fit among the runners that ask. A job therefore needs no
//! second transaction to find its runner, and runners for which there is nothing are not woken.

use super::runners;
use super::writer::{Failed, Tx};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{oneshot, watch};
use torc_model::api::{ClaimRequest, ClaimResponse};
use torc_model::ids::{RunnerId, WorkflowId};

/// The claims that wait, by workflow, the oldest first. Runners of pools are not among them: their turn
/// depends on other workflows.
#[derive(Default)]
pub struct ParkedClaims(HashMap<WorkflowId, Vec<ParkedClaim>>);

/// A claim that waits.
pub struct ParkedClaim {
    /// What it asks for, without the reports that its first look has taken in.
    request: Arc<ClaimRequest>,
    /// When it was asked.
    asked: Instant,
    answer: oneshot::Sender<ClaimResponse>,
}

/// What a claim hears of when it has to wait.
pub enum ClaimWait {
    /// It is answered by the writer. When the sender is dropped instead, it asks again.
    Parked(oneshot::Receiver<ClaimResponse>),
    /// It is a runner of a pool, which is told when to ask again.
    Pool(watch::Receiver<u64>),
}

/// A claim that was answered; the answer is sent when the transaction has committed.
pub struct ServedClaim {
    answer: oneshot::Sender<ClaimResponse>,
    response: ClaimResponse,
}

impl ServedClaim {
    /// After the commit. A runner that has gone meanwhile asks again with the same key, or is given up.
    pub fn send(self) {
        let _ = self.answer.send(self.response);
    }
}

impl ParkedClaims {
    /// Is there a claim to serve?
    pub fn waits_in(&self, id: WorkflowId) -> bool {
        self.0.contains_key(&id)
    }

    #[cfg(test)]
    pub fn count(&self, id: WorkflowId) -> usize {
        self.0.get(&id).map_or(0, Vec::len)
    }

    fn park(&mut self, id: WorkflowId, request: Arc<ClaimRequest>, asked: Instant) -> ClaimWait {
        let (answer, receiver) = oneshot::channel();
        self.0.entry(id).or_default().push(ParkedClaim { request, asked, answer });
        ClaimWait::Parked(receiver)
    }

    /// A runner has one claim. An older one is of a connection that broke, or of the same claim before it
    /// looked again.
    fn unpark(&mut self, id: WorkflowId, runner: RunnerId) {
        if let Some(claims) = self.0.get_mut(&id) {
            claims.retain(|claim| claim.request.runner_id != runner && !claim.answer.is_closed());
            if claims.is_empty() {
                self.0.remove(&id);
            }
        }
    }
}

/// The request as its runner would make it now: the time that it has left has become less.
pub fn aged(request: &Arc<ClaimRequest>, asked: Instant) -> Arc<ClaimRequest> {
    let mut request = Arc::clone(request);
    if let Some(left) = request.time_left_seconds {
        let waited = asked.elapsed().as_secs_f64().ceil() as i64;
        Arc::make_mut(&mut request).time_left_seconds = Some(left.saturating_sub(waited));
    }
    request
}

/// Gives work to a runner, or lets its claim wait when there is nothing to tell and it `may_wait`.
pub fn claim(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &Arc<ClaimRequest>,
    asked: Instant,
    nonce: u64,
    may_wait: bool,
) -> Result<(ClaimResponse, Option<ClaimWait>), Failed> {
    tx.state.parked.unpark(id, request.runner_id);
    let response = runners::claim(tx, id, &aged(request, asked), nonce)?;
    if !may_wait || is_answer(request, &response) {
        return Ok((response, None));
    }
    if let Some(own) = runners::own_wakes(tx, request.runner_id) {
        return Ok((response, Some(ClaimWait::Pool(own))));
    }
    let mut request = Arc::clone(request);
    if !(request.started.is_empty() && request.completed.is_empty()) {
        let again = Arc::make_mut(&mut request);
        again.started.clear();
        again.completed.clear();
    }
    let wait = tx.state.parked.park(id, request, asked);
    Ok((response, Some(wait)))
}

/// There is something in it that the runner must hear of now.
fn is_answer(request: &ClaimRequest, response: &ClaimResponse) -> bool {
    !response.attempts.is_empty()
        || !response.cancel.is_empty()
        || !response.actions.is_empty()
        || response.workflow_complete
        || response.idle
        || response.leave
        || request.is_alone.is_some_and(|is_alone| is_alone != response.is_alone)
}

/// The claims that wait in a workflow with work, in the order in which they are to be served.
pub fn take(tx: &mut Tx<'_>, id: WorkflowId) -> Result<Vec<ParkedClaim>, Failed> {
    let Some(mut claims) = tx.state.parked.0.remove(&id) else { return Ok(Vec::new()) };
    claims.retain(|claim| !claim.answer.is_closed());
    if claims.len() > 1 {
        let workflow = tx.workflow(id)?;
        // The sort is stable: of equal runners, the one that has waited longest comes first.
        claims.sort_by_cached_key(|claim| {
            workflow.room_of(claim.request.runner_id, &claim.request.capacity).size()
        });
    }
    Ok(claims)
}

/// Answers one claim that waits, if there is something for it now; else it waits on. In a transaction
/// of its own, or a savepoint.
pub fn serve(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    claim: ParkedClaim,
    nonce: u64,
) -> Result<Option<ServedClaim>, Failed> {
    let response = match tx.workflow(id)?.has_ready() {
        true => Some(runners::claim(tx, id, &aged(&claim.request, claim.asked), nonce)?),
        false => None,
    };
    Ok(match response.filter(|response| is_answer(&claim.request, response)) {
        Some(response) => Some(ServedClaim { answer: claim.answer, response }),
        None => {
            tx.state.parked.0.entry(id).or_default().push(claim);
            None
        }
    })
}
