//! Runners whose jobs fail at once while others succeed: they get no more work, and what they burnt
//! is given back.

use super::Store;
use super::journal;
use super::names;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use torc_engine::commands::{QuarantineRunner, ReleaseRunner};
use torc_engine::{QUARANTINE_MS, Quarantine};
use torc_model::api::{QuarantineRequest, QuarantineView};
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};

/// A month.
const MAX_SECONDS: i64 = 30 * 24 * 3600;

impl Store {
    /// Keeps work from every runner of a workflow on a machine, or lets it come again, because a
    /// user says so.
    pub async fn set_quarantine(
        &self,
        id: WorkflowId,
        request: QuarantineRequest,
    ) -> Result<QuarantineView, Refusal> {
        self.writer.call(move |tx| set(tx, id, &request)).await
    }
}

fn set(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &QuarantineRequest,
) -> Result<QuarantineView, Failed> {
    tx.workflow(id)?;
    let host = request.hostname.as_str();
    let seconds = request.seconds.unwrap_or(QUARANTINE_MS / 1000);
    if !(1..=MAX_SECONDS).contains(&seconds) {
        let message = format!("`seconds` is {seconds}; it goes from 1 to {MAX_SECONDS}");
        return Err(Refusal::invalid("seconds", message).into());
    }
    let why = request.reason.as_deref().unwrap_or("a user said so");
    names::check_line("reason", why)?;
    let here = tx.state.engine.runners().of(id).filter(|(_, other)| other.host == host);
    let runners: Vec<RunnerId> = here.map(|(id, _)| id).collect();
    if runners.is_empty() {
        let message = format!("workflow {id} has no runner on `{host}`");
        return Err(Refusal::invalid("hostname", message).into());
    }
    let until = tx.now + seconds * 1000;
    for runner in &runners {
        match request.release {
            true => tx.handle(ReleaseRunner(*runner))?,
            false => {
                let kept = Quarantine { why: why.to_owned(), until };
                quarantine(tx, id, *runner, &[], kept)?;
            }
        }
    }
    let until_ms = (!request.release).then_some(until);
    Ok(QuarantineView { runners: runners.len() as i64, until_ms })
}

/// Keeps work from a runner and gives the attempts back that its machine burnt.
pub fn quarantine(
    tx: &mut Tx<'_>,
    workflow: WorkflowId,
    runner: RunnerId,
    attempts: &[(JobId, AttemptId)],
    kept: Quarantine,
) -> Result<(), Failed> {
    let mut burnt = Vec::with_capacity(attempts.len());
    for (job, attempt) in attempts {
        burnt.extend(journal::attempts::burnt(tx.db, *attempt)?.map(|attempt| (*job, attempt)));
    }
    tx.handle(QuarantineRunner { runner, workflow, kept, burnt })
}
