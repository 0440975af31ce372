//! Why a job is where it is: the engine's answer, with the runners that are there.

mod nodes;

use super::people;
use super::read::sharers_of;
use super::refusal::Refusal;
use super::reservations;
use super::runners::LEASE_SECONDS;
use super::writer::{Failed, State, Tx};
use torc_engine::{
    Claim, Explanation, Holdup, JobIx, KnownRunner, NO_RUNNER, RunnerFacts, WaitingGroup,
};
use torc_model::ids::{JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::labels;
use torc_model::status::{JobStatus, RunnerOrder};

/// What a retry waits for whose runner is gone or silent.
fn explain_holdup(
    holdup: &Holdup,
    runner: RunnerId,
    known: &KnownRunner,
    silent: i64,
    uptime: i64,
    explanation: &mut Explanation,
) {
    let what = holdup.text(known.pid);
    let host = &known.host;
    match holdup {
        // A runner that speaks holds nothing up.
        Holdup::Deadline(_) | Holdup::NoDeadline if silent < LEASE_SECONDS => {}
        Holdup::Stopped => {
            explanation.details.push(format!("runner {runner} on {host} stands still: {what}"));
            explanation.hints.push(format!("`kill -CONT {}` lets it go on", known.pid));
        }
        Holdup::Processes(_) | Holdup::Unproved | Holdup::Scheduler => {
            explanation.summary =
                format!("it waits for proof that its attempt on {host} has ended");
            explanation.details.push(format!("runner {runner}: {what}"));
        }
        Holdup::Deadline(at) => {
            let left = (at - uptime).max(0) / 1000;
            explanation.details.push(format!(
                "runner {runner} on {host} has been silent for {silent} s: {what}; after another {left} s it is given up"
            ));
        }
        Holdup::NoDeadline => explanation
            .details
            .push(format!("runner {runner} on {host} has been silent for {silent} s: {what}")),
    }
}

/// The runner is there and gets no work: a person or a quarantine keeps it from any.
fn takes_nothing(state: &State, runner: &KnownRunner, now: i64) -> bool {
    let is_quarantined = runner.conduct.quarantine().is_some_and(|q| q.until > now);
    runner.ordered.is_some() || is_quarantined || of_drained_pool(state, runner).is_some()
}

/// The pool runner that started a runner, if a person keeps it from work.
fn of_drained_pool(state: &State, runner: &KnownRunner) -> Option<PoolRunnerId> {
    let pool = runner.pool?;
    state.pools.members.get(&pool)?.ordered.map(|_| pool)
}

/// Runners of the workflow that take nothing, and what lets them.
fn explain_idle_runners(state: &State, id: WorkflowId, now: i64, explanation: &mut Explanation) {
    let idle: Vec<(RunnerId, &KnownRunner)> = state
        .engine
        .runners()
        .of(id)
        .filter(|(_, runner)| takes_nothing(state, runner, now))
        .collect();
    for (runner, known) in &idle {
        let host = &known.host;
        let (detail, hint) = match (known.ordered, of_drained_pool(state, known)) {
            (Some(RunnerOrder::Drain), _) => (
                format!("runner {runner} on {host} is drained"),
                Some(format!("`torc runners resume {runner}` lets it take jobs again")),
            ),
            (Some(RunnerOrder::Remove), _) => (format!("runner {runner} on {host} leaves"), None),
            (None, Some(pool)) => (
                format!(
                    "runner {runner} on {host} belongs to pool runner {pool}, which is drained"
                ),
                Some(format!("`torc runners resume --pool {pool}` lets it take jobs again")),
            ),
            (None, None) => (
                format!("runner {runner} on {host} is in quarantine"),
                Some(format!("`torc runners quarantine {host} {id} --release` ends that")),
            ),
        };
        explanation.details.push(detail);
        explanation.hints.extend(hint);
    }
    if explanation.summary == NO_RUNNER && !idle.is_empty() {
        explanation.summary = "its runners are there, but take no jobs".into();
    }
}

/// Pool runners that could take the job. Answers whether there is one that works.
fn explain_pools(
    db: &rusqlite::Connection,
    state: &State,
    id: WorkflowId,
    index: JobIx,
    explanation: &mut Explanation,
) -> Result<bool, Failed> {
    let (Some(workflow), Some(sharers)) = (state.engine.workflow(id), sharers_of(db, id)?) else {
        return Ok(false);
    };
    let label = workflow.label_of(index);
    let mut is_served = false;
    for (pool, member) in state.pools.able(id, &sharers) {
        let fits = labels::fit(label, member.label.as_deref())
            && workflow.lacking(index, &member.capacity).is_none();
        if !fits {
            continue;
        }
        let host = &member.host;
        match member.ordered {
            None => {
                is_served = true;
                explanation.details.push(format!(
                    "pool runner {pool} on {host} may take it, when it has room and it is the turn of its owner"
                ));
            }
            Some(RunnerOrder::Drain) => {
                explanation.details.push(format!("pool runner {pool} on {host} is drained"));
                let hint = format!("`torc runners resume --pool {pool}` lets it take jobs again");
                explanation.hints.push(hint);
            }
            Some(RunnerOrder::Remove) => {
                explanation.details.push(format!("pool runner {pool} on {host} leaves"));
            }
        }
    }
    if is_served && explanation.summary == NO_RUNNER {
        explanation.summary = "it waits for its turn on a pool runner".into();
    }
    Ok(is_served)
}

/// Asks the engine.
pub fn explain(tx: &mut Tx<'_>, job: JobId) -> Result<Explanation, Failed> {
    let id = people::workflow_of(tx, job)?;
    let (now, uptime) = (tx.now, tx.uptime);
    tx.workflow(id)?;
    let (state, limits) = (&*tx.state, tx.state.engine.limits());
    let facts: Vec<RunnerFacts<'_>> = state
        .engine
        .runners()
        .of(id)
        .filter(|(_, runner)| !takes_nothing(state, runner, now))
        .map(|(runner_id, runner)| RunnerFacts {
            host: &runner.host,
            claim: Claim {
                runner: runner_id,
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
    let workflow = state.engine.workflow(id).ok_or_else(|| Refusal::not_found("workflow", id.0))?;
    let index = workflow.find(job).ok_or_else(|| Refusal::not_found("job", job.0))?;
    let mut explanation = workflow.explain(index, &facts, limits, now);
    if workflow.job(index).status() == JobStatus::Ready
        && let Some(paused) = reservations::paused(state.engine.reservations(), id, uptime)
    {
        explanation.summary = paused;
    }
    let holder = workflow.job(index).held().as_ref().map(|held| held.runner);
    if let Some((runner, known)) =
        holder.and_then(|id| Some((id, state.engine.runners().get(&id)?)))
        && let Some(holdup) = &known.holdup
    {
        let silent = (uptime - known.heard.unwrap_or(state.boot).max(state.boot)) / 1000;
        explain_holdup(holdup, runner, known, silent, uptime, &mut explanation);
    }
    let is_ready = workflow.job(index).status() == JobStatus::Ready;
    let label = workflow.label_of(index);
    let none_fits = || facts.iter().all(|runner| !labels::fit(label, runner.claim.label));
    if is_ready {
        explain_idle_runners(state, id, now, &mut explanation);
    }
    let pools = match is_ready && none_fits() {
        true => explain_pools(tx.db, state, id, index, &mut explanation)?,
        false => false,
    };
    match label.filter(|_| is_ready && none_fits() && !pools) {
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

/// Reasons that are explained; each costs as much as the question about one job.
const MAX_REASONS: usize = 20;

/// A group of jobs that wait: how many, one of them, and why that one does.
pub struct WaitingJobs {
    /// The status of all of them.
    pub status: JobStatus,
    /// How many there are.
    pub count: i64,
    /// The one that was asked about.
    pub sample: JobId,
    /// The answer.
    pub explanation: Explanation,
}

/// What waits in a workflow.
pub struct Waiting {
    /// The most frequent first.
    pub groups: Vec<WaitingJobs>,
    /// Groups that were not asked about.
    pub left_out: i64,
}

/// One pass over the jobs in memory, and one question for each way of waiting.
pub fn explain_workflow(tx: &mut Tx<'_>, id: WorkflowId) -> Result<Waiting, Failed> {
    let now = tx.now;
    let mut groups = tx.workflow(id)?.waiting_groups(now);
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    let left_out = groups.len().saturating_sub(MAX_REASONS) as i64;
    let mut explained: Vec<WaitingJobs> = Vec::new();
    for WaitingGroup { status, count, sample } in groups.into_iter().take(MAX_REASONS) {
        let explanation = explain(tx, sample)?;
        // Classes that differ only in what does not matter now are one group for the reader.
        let same = explained
            .iter_mut()
            .find(|g| g.status == status && g.explanation.summary == explanation.summary);
        match same {
            Some(group) => group.count += count,
            None => explained.push(WaitingJobs { status, count, sample, explanation }),
        }
    }
    Ok(Waiting { groups: explained, left_out })
}
