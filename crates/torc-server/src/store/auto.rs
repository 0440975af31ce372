//! `auto_recover`: the server itself decides about a failure while it is reported, in the same
//! transaction, and lets the job run again where that helps.
//!
//! What bounds it: how sure the diagnosis is, budgets (of a job, of a cause of a job, of the
//! workflow), the most there is to give, and a breaker for each cause. When many jobs fail for the
//! same passing cause within minutes, one of their retries runs; the others wait until it has
//! succeeded, and one by one take its place while it fails. All of it is derived from the rows of
//! `remedy`, so that a restart of the server changes nothing.

use super::cards::{self, Decided, Failure};
use super::outcomes::{self, By, QueuedRetry};
use super::remedies::{self, Because};
use super::writer::{Failed, Tx};
use rusqlite::{OptionalExtension as _, params};
use serde_json::json;
use torc_engine::{Change as Row, End, Judged};
use torc_model::api::Capacity;
use torc_model::chance;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, WorkflowId};
use torc_model::plan::AutoRecover;
use torc_model::recovery::{Action, Caps, Policy, RetryOutcome, Tried};
use torc_model::status::Cause;
use torc_model::units::Runtime;
use torc_model::words;

/// So many jobs with the same passing cause open the breaker ...
const STORM: i64 = 5;
/// ... when they failed within this time.
const STORM_MS: i64 = 300_000;
/// Retries that waited come back spread over this long, so that they are no new storm.
const SPREAD_MS: i64 = 10_000;

/// A retry that the server decided on.
pub struct Plan {
    failure: Failure,
    decided: Decided,
    tried: Tried,
    /// It waits for another retry of the same cause; it is the first that does.
    waits: bool,
    is_first_to_wait: bool,
    /// Jobs that failed for the same cause lately.
    alike: i64,
}

/// Decides about an attempt that has just failed and puts the decision into its end. `None` if the
/// job does not run again because of it.
pub fn judge(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    attempt: AttemptId,
    end: &mut End,
) -> Result<Option<Plan>, Failed> {
    let workflow = tx.workflow(id)?;
    let settings = workflow.settings.auto_recover.clone();
    let budget = settings.workflow_budget(workflow.len());
    let is_meant = |cause: Cause| {
        cause != Cause::Canceled
            && cause != Cause::Checkpoint
            && !cause.is_loss()
            && !cause.is_stop()
    };
    if !settings.enabled || workflow.canceled || !end.ending.cause.is_some_and(is_meant) {
        return Ok(None);
    }
    let execution = workflow.settings.execution.clone();
    let Some(failure) = cards::failure(tx.db, attempt.0, &execution)? else { return Ok(None) };
    let failure = failure.with_end(end);
    let caps = caps(tx, id, &settings)?;
    let Some(decided) = failure.decide(tx.db, &caps, &Policy::default(), tx.now)? else {
        return Ok(None);
    };
    let Some(tried) = Tried::of(decided.card.action) else {
        end.judged = Some(Judged::Leave(decided.card.why));
        return Ok(None);
    };
    let confidence = decided.diagnosis.confidence;
    if confidence < settings.confidence {
        let why = format!(
            "{} has only {:.0}% confidence, and {:.0}% are asked for",
            decided.diagnosis.kind.title(),
            confidence * 100.0,
            settings.confidence * 100.0
        );
        end.judged = Some(Judged::Leave(why));
        return Ok(None);
    }
    let cause = decided.diagnosis.common_cause();
    let used = used(tx, id, failure.ended.run, failure.job, cause)?;
    if let Some(why) = used.spent(&settings, i64::from(budget), cause) {
        end.judged = Some(Judged::Leave(why));
        return Ok(None);
    }
    let mut text = format!(
        "recovered automatically ({}, {:.0}% confidence): {}",
        decided.diagnosis.kind.title(),
        confidence * 100.0,
        decided.card.why
    );
    let (mut waits, mut is_first_to_wait, mut alike) = (false, false, 0);
    let mut not_before = None;
    if decided.card.action == Action::Again {
        let storm = storm(tx, id, failure.ended.run, failure.job, cause)?;
        alike = storm.jobs;
        waits = storm.jobs >= STORM && storm.probes > 0;
        is_first_to_wait = waits && storm.waiting == 0;
        let asked = decided.diagnosis.needs.wait_seconds;
        let unit = chance::unit(attempt.0.unsigned_abs());
        let n = u32::try_from(used.cause).unwrap_or(u32::MAX).saturating_add(1);
        let wait = match waits {
            // Only if the other one is never heard of again.
            true => (settings.max_delay_seconds * 1000.0) as i64,
            false => settings.wait_ms(n, unit, asked),
        };
        not_before = (wait > 0).then_some(end.at + wait);
        if waits {
            text += &format!(
                "; {} failed this way within minutes, so it waits until one of them has tried",
                words::count(alike, "job")
            );
        } else if let Some(asked) = asked {
            text += &format!("; it was asked to wait {asked:.0} s");
        }
    }
    text += &format!("; retry {} of {} of this job", used.job + 1, settings.max_retries);
    if let Some(at) = not_before.filter(|_| !waits) {
        text += &format!(", not before {:.1} s from now", (at - end.at) as f64 / 1000.0);
    }
    end.judged = Some(Judged::Again { not_before, text });
    Ok(Some(Plan { failure, decided, tried, waits, is_first_to_wait, alike }))
}

/// Does what was decided beside the retry itself: other limits, and the row that budgets count.
pub fn carry_out(tx: &mut Tx<'_>, id: WorkflowId, plan: &Plan) -> Result<(), Failed> {
    let Plan { failure, decided, .. } = plan;
    let because =
        Because { attempt: failure.ended.number, why: &decided.card.why, by: "auto_recover" };
    remedies::adjust(tx, id, failure.job, &decided.card.changes, because)?;
    let retry = QueuedRetry {
        by: By::Auto,
        tried: plan.tried,
        diagnosis: &decided.diagnosis,
        fingerprint: &decided.fingerprint,
        ended: &failure.ended,
        waits: plan.waits,
    };
    outcomes::note(tx, id, &retry)?;
    if plan.is_first_to_wait {
        let data = json!({
            "cause": decided.diagnosis.common_cause(), "kind": decided.diagnosis.kind, "jobs": plan.alike,
            "why": format!("{} failed for the same passing cause within minutes: one retry goes ahead, the others wait",
                words::count(plan.alike, "job")),
        });
        tx.write(id, vec![Row::Event { kind: EventKind::RecoveryPaused, job: None, data }])?;
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
    let here = tx.state.runners.of(id);
    caps.memory_bytes = here.filter_map(|(_, runner)| largest(&runner.capacity)).max();
    Ok(caps)
}

/// Retries of this run that the budgets count.
struct UsedRetries {
    job: i64,
    cause: i64,
    workflow: i64,
}

fn used(
    tx: &Tx<'_>,
    id: WorkflowId,
    run: i64,
    job: JobId,
    cause: &str,
) -> rusqlite::Result<UsedRetries> {
    let mut statement = tx.db.prepare_cached(
        "SELECT coalesce(sum(job_id = ?3), 0), coalesce(sum(job_id = ?3 AND cause = ?4), 0), count(*)
         FROM remedy WHERE workflow_id = ?1 AND run_id = ?2 AND made_by = 'auto'",
    )?;
    statement.query_row(params![id.0, run, job.0, cause], |row| {
        Ok(UsedRetries { job: row.get(0)?, cause: row.get(1)?, workflow: row.get(2)? })
    })
}

impl UsedRetries {
    /// Which budget is spent, if one is.
    fn spent(&self, settings: &AutoRecover, workflow: i64, cause: &str) -> Option<String> {
        let retries = |count: i64| words::count(count, "retry");
        if self.cause >= i64::from(settings.max_retries_per_cause) {
            return Some(format!(
                "{} for the same cause (`{cause}`) did not help (`max_retries_per_cause`)",
                retries(self.cause)
            ));
        }
        if self.job >= i64::from(settings.max_retries) {
            return Some(format!("it had {} in this run (`max_retries`)", retries(self.job)));
        }
        (self.workflow >= workflow).then(|| {
            format!(
                "the workflow had {} in this run (`max_workflow_retries`)",
                retries(self.workflow)
            )
        })
    }
}

/// How many jobs fail for a cause just now.
struct Storm {
    /// Jobs, this one included, that failed for it lately, since a retry last succeeded.
    jobs: i64,
    /// Retries for it that are queued or run and wait for no other.
    probes: i64,
    /// Retries for it that wait.
    waiting: i64,
}

fn storm(
    tx: &Tx<'_>,
    id: WorkflowId,
    run: i64,
    job: JobId,
    cause: &str,
) -> rusqlite::Result<Storm> {
    let mut statement = tx.db.prepare_cached(
        "WITH same AS (SELECT * FROM remedy WHERE workflow_id = ?1 AND run_id = ?2 AND made_by = 'auto'
            AND cause = ?3 AND action = 'again')
         SELECT count(DISTINCT iif(created_ms > ?5 AND created_ms >
                    coalesce((SELECT max(outcome_ms) FROM same WHERE outcome = 'succeeded'), 0)
                    AND job_id <> ?4, job_id, NULL)) + 1,
                coalesce(sum(outcome IS NULL AND NOT waits AND job_id <> ?4), 0),
                coalesce(sum(outcome IS NULL AND waits AND job_id <> ?4), 0)
         FROM same",
    )?;
    statement.query_row(params![id.0, run, cause, job.0, tx.now - STORM_MS], |row| {
        Ok(Storm { jobs: row.get(0)?, probes: row.get(1)?, waiting: row.get(2)? })
    })
}

/// A retry has told how it went: those that wait for it go on, or one of them takes its place.
pub fn settled(tx: &mut Tx<'_>, row: i64) -> Result<(), Failed> {
    type Columns = (i64, i64, String, Option<String>, String);
    let found: Option<Columns> = tx
        .db
        .prepare_cached(
            "SELECT workflow_id, run_id, cause, outcome, made_by FROM remedy WHERE id = ?1 AND action = 'again'",
        )?
        .query_row([row], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?)))
        .optional()?;
    let Some((workflow, run, cause, outcome, by)) = found else { return Ok(()) };
    if by != "auto" {
        return Ok(());
    }
    let mut statement = tx.db.prepare_cached(
        "SELECT id, job_id FROM remedy WHERE workflow_id = ?1 AND run_id = ?2 AND made_by = 'auto' AND cause = ?3
         AND outcome IS NULL AND waits ORDER BY id",
    )?;
    let waiting: Vec<(i64, JobId)> = statement
        .query_map(params![workflow, run, cause], |r| Ok((r.get(0)?, JobId(r.get(1)?))))?
        .collect::<rusqlite::Result<_>>()?;
    if waiting.is_empty() {
        return Ok(());
    }
    let id = WorkflowId(workflow);
    let has_passed = outcome.as_deref() == Some(RetryOutcome::Succeeded.as_str());
    if has_passed {
        for (row, job) in &waiting {
            let spread = chance::unit(row.unsigned_abs()) * SPREAD_MS as f64;
            go_on(tx, id, *row, *job, tx.now + spread as i64)?;
        }
        let data = json!({
            "cause": cause, "jobs": waiting.len(),
            "why": format!("a retry succeeded: {} that waited for it {} on",
                words::count(waiting.len() as i64, "other"), if waiting.len() == 1 { "goes" } else { "go" }),
        });
        return tx
            .write(id, vec![Row::Event { kind: EventKind::RecoveryResumed, job: None, data }]);
    }
    let probes: i64 = tx
        .db
        .prepare_cached(
            "SELECT count(*) FROM remedy WHERE workflow_id = ?1 AND run_id = ?2 AND made_by = 'auto' AND cause = ?3
             AND outcome IS NULL AND NOT waits AND action = 'again'",
        )?
        .query_row(params![workflow, run, cause], |r| r.get(0))?;
    if probes == 0
        && let Some((row, job)) = waiting.first()
    {
        let settings = tx.workflow(id)?.settings.auto_recover.clone();
        let wait = settings.wait_ms(2, chance::unit(row.unsigned_abs()), None);
        go_on(tx, id, *row, *job, tx.now + wait)?;
    }
    Ok(())
}

/// Lets one retry wait no longer.
fn go_on(tx: &mut Tx<'_>, id: WorkflowId, row: i64, job: JobId, at: i64) -> Result<(), Failed> {
    tx.db.prepare_cached("UPDATE remedy SET waits = 0 WHERE id = ?1")?.execute([row])?;
    let Some(index) = tx.workflow(id)?.find(job) else { return Ok(()) };
    tx.apply(id, |workflow, _, _| {
        workflow.delay(index, Some(at));
        Ok(())
    })
}
