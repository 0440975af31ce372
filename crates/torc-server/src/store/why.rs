//! Why a job is where it is: the engine's answer, with the runners that are there.

mod nodes;

use super::people;
use super::refusal::Refusal;
use super::reservations;
use super::writer::{Failed, Tx};
use torc_model::core::{Claim, Explanation, NO_RUNNER, RunnerFacts};
use torc_model::ids::JobId;
use torc_model::status::JobStatus;

/// Asks the engine.
pub fn explain(tx: &mut Tx<'_>, job: JobId) -> Result<Explanation, Failed> {
    let id = people::workflow_of(tx, job)?;
    let (now, uptime) = (tx.now, tx.uptime);
    tx.workflow(id)?;
    let (state, limits) = (&*tx.state, &tx.state.limits);
    let facts: Vec<RunnerFacts<'_>> = state
        .runners
        .iter()
        .filter(|(_, runner)| runner.workflow == id)
        .map(|(runner_id, runner)| RunnerFacts {
            host: &runner.host,
            claim: Claim {
                runner: *runner_id,
                key: "",
                limit: 1,
                prefetch: 0,
                capacity: &runner.capacity,
                time_left: runner.stop_by.map(|t| (t - now) / 1000),
                scheduler: runner.scheduler,
                strict_scheduler: false,
                label: runner.label.as_deref(),
                now,
                nonce: 0,
            },
        })
        .collect();
    let workflow = state.workflows.get(&id).ok_or_else(|| Refusal::not_found("workflow", id.0))?;
    let index = workflow.find(job).ok_or_else(|| Refusal::not_found("job", job.0))?;
    let mut explanation = workflow.explain(index, &facts, limits, now);
    if workflow.jobs[index as usize].status == JobStatus::Ready
        && let Some(paused) = reservations::paused(&state.reservations, id, uptime)
    {
        explanation.summary = paused;
    }
    let is_ready = workflow.jobs[index as usize].status == JobStatus::Ready;
    let label = workflow.label_of(index);
    match label.filter(|_| is_ready && facts.iter().all(|runner| runner.claim.label != label)) {
        Some(label) => {
            if explanation.summary == NO_RUNNER {
                explanation.summary =
                    format!("it waits for a runner with the label `{label}`, and none is there");
            }
            explanation.hints.push(format!("`torc runner {id} --label {label}` takes it"));
        }
        None if explanation.summary == NO_RUNNER => {
            nodes::explain(tx, id, index, &mut explanation)?
        }
        None if is_ready
            && label.is_none()
            && !facts.is_empty()
            && facts.iter().all(|runner| runner.claim.label.is_some()) =>
        {
            explanation.hints.push(format!("`torc runner {id}` takes it"));
        }
        None => {}
    }
    Ok(explanation)
}
