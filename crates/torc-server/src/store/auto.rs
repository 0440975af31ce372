//! `auto_recover`: the server itself decides about a failure while it is reported, in the same
//! transaction, and lets the job run again where that helps.
//!
//! What bounds it: how sure the diagnosis is, the most there is to give, and what the engine's
//! `breaker` makes of the rows of `remedy`: budgets, and a breaker for each cause.

use super::cards::{self, Decided, Failure};
use super::journal;
use super::outcomes::{self, By, QueuedRetry};
use super::remedies;
use super::writer::{Failed, Tx};
use serde_json::json;
use torc_engine::commands::DelayJob;
use torc_engine::{
    AfterRetry, Because, Curable, End, Judged, On, RetriesSoFar, Storm, is_for_the_server,
};
use torc_model::api::{Capacity, CompletionReport};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::plan::{AutoRecover, Execution};
use torc_model::recovery::{Caps, Policy, Tried};
use torc_model::units::Runtime;
use torc_model::words;

/// A retry that the server decided on.
pub struct Plan {
    failure: Failure,
    decided: Decided,
    tried: Tried,
    storm: Storm,
}

/// Decides about an attempt that has just failed: what its end says, and the plan for it if its job
/// runs again because of it.
pub fn judge(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    report: &CompletionReport,
) -> Result<(Option<Judged>, Option<Plan>), Failed> {
    let workflow = tx.workflow(id)?;
    let settings = workflow.settings.recovery.auto_recover.clone();
    let budget = settings.workflow_budget(workflow.len());
    if !settings.enabled || workflow.canceled || !report.cause.is_some_and(is_for_the_server) {
        return Ok((None, None));
    }
    let execution = workflow.settings.execution.clone();
    let mut end = End::reported(report, tx.now);
    let limits = (&settings, i64::from(budget));
    let plan = plan(tx, id, report.attempt.id, &mut end, limits, &execution)?;
    Ok((end.judged, plan))
}

fn plan(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    attempt: AttemptId,
    end: &mut End,
    (settings, budget): (&AutoRecover, i64),
    execution: &Execution,
) -> Result<Option<Plan>, Failed> {
    let Some(failure) = cards::failure(tx.db, attempt.0, execution)? else { return Ok(None) };
    let failure = failure.with_end(end);
    let caps = caps(tx, id, settings)?;
    let Some(decided) = failure.decide(tx.db, &caps, &Policy::default(), tx.now)? else {
        return Ok(None);
    };
    let Decided { diagnosis, card, .. } = &decided;
    let curable = match Curable::new(diagnosis, card, settings) {
        Ok(curable) => curable,
        Err(judged) => {
            end.judged = Some(judged);
            return Ok(None);
        }
    };
    let retries = RetriesSoFar::new(Some(failure.job), diagnosis.common_cause());
    let so_far = so_far(tx, id, failure.ended.run, retries)?;
    let (judged, storm) = curable.judge(attempt, &so_far, budget, tx.now);
    end.judged = Some(judged);
    let tried = curable.tried;
    Ok(storm.map(|storm| Plan { failure, decided, tried, storm }))
}

/// Does what was decided beside the retry itself: other limits, and the row that budgets count.
pub fn carry_out(tx: &mut Tx<'_>, id: WorkflowId, plan: &Plan) -> Result<(), Failed> {
    let Plan { failure, decided, storm, .. } = plan;
    let because =
        Because { attempt: failure.ended.number, why: &decided.card.why, by: "auto_recover" };
    remedies::adjust(tx, id, failure.job, &decided.card.changes, because)?;
    let retry = QueuedRetry {
        by: By::Auto,
        tried: plan.tried,
        diagnosis: &decided.diagnosis,
        fingerprint: &decided.fingerprint,
        ended: &failure.ended,
        waits: storm.waits,
    };
    outcomes::note(tx, id, &retry)?;
    if storm.is_first_to_wait {
        let data = json!({
            "cause": decided.diagnosis.common_cause(), "kind": decided.diagnosis.kind, "jobs": storm.jobs,
            "why": format!("{} failed for the same passing cause within minutes: one retry goes ahead, the others wait",
                words::count(storm.jobs, "job")),
        });
        tx.tell(id, EventKind::RecoveryPaused, None, data)?;
    }
    Ok(())
}

/// The most there is to give: what the spec says, else the largest machine seen.
fn caps(tx: &Tx<'_>, id: WorkflowId, settings: &AutoRecover) -> Result<Caps, Failed> {
    let mut caps = Caps {
        memory_bytes: settings.max_memory.map(|memory| memory.0),
        runtime_seconds: settings.max_runtime.map(|runtime: Runtime| runtime.0),
    };
    if caps.memory_bytes.is_some() {
        return Ok(caps);
    }
    let largest = |capacity: &Capacity| {
        u64::try_from(capacity.memory_bytes / capacity.num_nodes.max(1)).ok().filter(|m| *m > 0)
    };
    let here = tx.state.engine.runners().of(id);
    caps.memory_bytes = here.filter_map(|(_, runner)| largest(&runner.capacity)).max();
    Ok(caps)
}

/// Takes in the server's own retries of a run, the oldest first.
fn so_far<'a>(
    tx: &Tx<'_>,
    id: WorkflowId,
    run: i64,
    mut so_far: RetriesSoFar<'a>,
) -> Result<RetriesSoFar<'a>, Failed> {
    let by = By::Auto.as_str();
    journal::verdicts::each_retry(tx.db, (id, run), by, |retry| so_far.see(retry))?;
    Ok(so_far)
}

/// A retry has told how it went: those that wait for it go on, or one of them takes its place.
pub fn settled(tx: &mut Tx<'_>, row: i64) -> Result<(), Failed> {
    let Some(retry) = journal::verdicts::remedy_retry(tx.db, row)? else { return Ok(()) };
    if retry.by != By::Auto.as_str() || retry.tried != Tried::Again {
        return Ok(());
    }
    let (id, cause) = (retry.workflow, &retry.cause);
    let settings = tx.workflow(id)?.settings.recovery.auto_recover.clone();
    let so_far = so_far(tx, id, retry.run, RetriesSoFar::new(None, cause))?;
    match so_far.after(retry.outcome, &settings, tx.now) {
        AfterRetry::Nothing => Ok(()),
        AfterRetry::OneGoesOn(row, job, at) => go_on(tx, id, row, job, at),
        AfterRetry::AllGoOn(waiting) => {
            for (row, job, at) in &waiting {
                go_on(tx, id, *row, *job, *at)?;
            }
            let data = json!({
                "cause": cause, "jobs": waiting.len(),
                "why": format!("a retry succeeded: {} that waited for it {} on",
                    words::count(waiting.len() as i64, "other"), if waiting.len() == 1 { "goes" } else { "go" }),
            });
            tx.tell(id, EventKind::RecoveryResumed, None, data)
        }
    }
}

/// Lets one retry wait no longer.
fn go_on(tx: &mut Tx<'_>, id: WorkflowId, row: i64, job: JobId, at: i64) -> Result<(), Failed> {
    journal::remedy_goes_on(tx.db, row)?;
    let Some(index) = tx.workflow(id)?.find(job) else { return Ok(()) };
    tx.handle(On(id, DelayJob { job: index, not_before: Some(at) }))
}
