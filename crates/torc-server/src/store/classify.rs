//! Verdicts on jobs that wait for one: checked all together, applied all or none, kept with what
//! came of them.

use super::cards;
use super::journal::verdicts::GivenVerdict;
use super::journal::{self, VerdictRow};
use super::lookups;
use super::people::refuse_archived;
use super::refusal::Refusal;
use super::remedies;
use super::waiting::{Waiting, waiting};
use super::writer::{Failed, Tx};
use rusqlite::Connection;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use torc_engine::{Because, Engine, On, commands};
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::Execution;
use torc_model::recovery::{
    Asked, Author, Caps, Classification, ClassificationState, ClassifyJob, ClassifyRequest,
    ClassifyView, Policy, RecoverRequest, Ruling, Standing, Verdict, known, rule, untrusted,
};
use torc_model::status::{Adjustable, JobStatus};
use torc_model::units::{Memory, Runtime};

/// More verdicts in one request are a mistake of the caller.
const MAX_CLASSIFICATIONS: usize = 10_000;
/// Mistakes that are told; the rest is counted.
const MAX_TOLD: usize = 20;
const LONGEST_REASON: usize = 2000;
const LONGEST_EVIDENCE: usize = 500;
const MOST_EVIDENCE: usize = 20;
const LONGEST_AUTHOR: usize = 100;
/// The agent's name of verdicts that the record gave.
const MEMORY: &str = "memory";

/// A verdict on one job that passed all checks.
struct Decided<'a> {
    waiting: &'a Waiting,
    asked: &'a Classification,
    ruling: Ruling,
}

/// Who decides: a person, an agent or the server.
struct DecidedBy {
    by: String,
    agent: Option<String>,
    author: Author,
}

/// Takes verdicts, all or none.
pub fn classify(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ClassifyRequest,
) -> Result<ClassifyView, Failed> {
    let threshold = check(tx, id)?;
    if request.classifications.is_empty() || request.classifications.len() > MAX_CLASSIFICATIONS {
        let message = format!("give between 1 and {MAX_CLASSIFICATIONS} classifications");
        return Err(Refusal::invalid("classifications", message).into());
    }
    let agent = request.agent.as_ref().map(|agent| untrusted::line(agent, LONGEST_AUTHOR));
    let speaker = DecidedBy {
        by: author(request.by.as_deref(), agent.as_deref()),
        author: if agent.is_some() { Author::Agent { threshold } } else { Author::Person },
        agent,
    };
    let all = waiting(tx.db, id, None)?;
    let session = VerdictBatch {
        all: &all,
        verdicts: &request.classifications,
        rulings: HashMap::new(),
        speaker: &speaker,
        dry_run: request.dry_run,
    };
    decide(tx, id, session)
}

/// Decides what needs neither a person nor an agent: by the same card as `recover`, where its
/// diagnosis is as sure as the workflow asks for or the record is strong. What failed twice the same
/// way is given up.
pub fn from_memory(tx: &mut Tx<'_>, id: WorkflowId, dry_run: bool) -> Result<ClassifyView, Failed> {
    let threshold = check(tx, id)?;
    let all = waiting(tx.db, id, None)?;
    let execution = tx.workflow(id)?.settings.execution.clone();
    let caps = remedies::caps(tx.db, id, &RecoverRequest::default())?;
    let retries = agent_retries(tx, id)?;
    let mut verdicts = Vec::new();
    let mut rulings = HashMap::new();
    for job in &all {
        let decided = match job.is_repeated {
            true => None,
            false => decided(tx, job, &execution, &caps)?,
        };
        let standing = Standing {
            is_repeated: job.is_repeated,
            agent_retries: retries.get(&job.job).copied().unwrap_or(0),
            ..Standing::default()
        };
        let found = decided.as_ref().map(|it| (&it.record, (&it.diagnosis, &it.card)));
        let (record, card) = found.unzip();
        let Some(known) = known(&standing, record, card, threshold) else { continue };
        let ruling =
            Ruling { action: known.action, changes: known.changes, is_held: false, note: None };
        rulings.insert(job.job, ruling);
        verdicts.push(Classification {
            job_id: Some(job.job),
            fingerprint: None,
            action: known.action,
            memory: None,
            runtime: None,
            reason: Some(known.reason),
            confidence: known.confidence,
            evidence: Vec::new(),
        });
    }
    let speaker =
        DecidedBy { by: MEMORY.into(), agent: Some(MEMORY.into()), author: Author::Memory };
    let session =
        VerdictBatch { all: &all, verdicts: &verdicts, rulings, speaker: &speaker, dry_run };
    decide(tx, id, session)
}

/// The card of a job that waits.
fn decided(
    tx: &Tx<'_>,
    job: &Waiting,
    execution: &Execution,
    caps: &Caps,
) -> Result<Option<cards::Decided>, Failed> {
    let Some(failure) = cards::failure(tx.db, job.attempt, execution)? else { return Ok(None) };
    let caps = caps.within(&[], failure.num_cpus, failure.num_gpus, &failure.current);
    Ok(failure.decide(tx.db, &caps, &Policy::default(), tx.now)?)
}

/// A person's verdict through the job itself. Tells whether the job was one that waits.
pub fn by_hand(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    job: JobId,
    action: Verdict,
    reason: Option<&str>,
) -> Result<bool, Failed> {
    let all = waiting(tx.db, id, Some(job))?;
    if all.is_empty() || !tx.workflow(id)?.settings.use_pending_failed {
        return Ok(false);
    }
    let asked = Classification {
        job_id: Some(job),
        fingerprint: None,
        action,
        memory: None,
        runtime: None,
        reason: reason.map(str::to_owned),
        confidence: None,
        evidence: Vec::new(),
    };
    let speaker = DecidedBy { by: author(None, None), agent: None, author: Author::Person };
    let session = VerdictBatch {
        all: &all,
        verdicts: &[asked],
        rulings: HashMap::new(),
        speaker: &speaker,
        dry_run: false,
    };
    decide(tx, id, session)?;
    Ok(true)
}

fn author(by: Option<&str>, agent: Option<&str>) -> String {
    let by = by.map(|by| untrusted::line(by, LONGEST_AUTHOR)).filter(|by| !by.is_empty());
    by.or_else(|| agent.map(str::to_owned)).unwrap_or_else(|| "a user".into())
}

/// The workflow takes verdicts. Answers with its threshold.
fn check(tx: &mut Tx<'_>, id: WorkflowId) -> Result<f64, Failed> {
    refuse_archived(tx, id)?;
    let settings = &tx.workflow(id)?.settings;
    if !settings.use_pending_failed {
        let message = format!("workflow {id} does not use `pending_failed`");
        return Err(Refusal::conflict(ErrorCode::NotOptedIn, message)
            .hint("set `use_pending_failed: true` in the spec")
            .into());
    }
    Ok(settings.recovery.classification_threshold)
}

/// Verdicts of one speaker on the failures of a workflow that wait for one.
struct VerdictBatch<'a> {
    all: &'a [Waiting],
    verdicts: &'a [Classification],
    /// Those that follow from what is known already.
    rulings: HashMap<JobId, Ruling>,
    speaker: &'a DecidedBy,
    dry_run: bool,
}

fn decide(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    session: VerdictBatch<'_>,
) -> Result<ClassifyView, Failed> {
    let VerdictBatch { all, verdicts, mut rulings, speaker, dry_run } = session;
    let chosen = expand(tx.db, id, all, verdicts)?;
    let caps = remedies::caps(tx.db, id, &RecoverRequest::default())?;
    let retries = agent_retries(tx, id)?;
    let mut decided = Vec::with_capacity(chosen.len());
    let mut problems = Vec::new();
    for (waiting, asked) in chosen {
        if let Some(ruling) = rulings.remove(&waiting.job) {
            decided.push(Decided { waiting, asked, ruling });
            continue;
        }
        let standing = Standing {
            current: waiting.current,
            caps,
            is_repeated: waiting.is_repeated,
            agent_retries: retries.get(&waiting.job).copied().unwrap_or(0),
        };
        let said = Asked {
            action: asked.action,
            memory: asked.memory,
            runtime: asked.runtime,
            confidence: asked.confidence,
        };
        match rule(&said, speaker.author, &standing) {
            Ok(ruling) => decided.push(Decided { waiting, asked, ruling }),
            Err(problem) => problems.push(format!("job {}: {problem}", waiting.job)),
        }
    }
    refuse(problems)?;
    let still_pending =
        all.len() as i64 - decided.iter().filter(|d| !d.ruling.is_held).count() as i64;
    let jobs_canceled = match dry_run {
        true => would_cancel(tx, id, &decided)?,
        false => apply(tx, id, &decided, speaker)?,
    };
    let count = |action| {
        decided.iter().filter(|d| !d.ruling.is_held && d.ruling.action == action).count() as i64
    };
    Ok(ClassifyView {
        workflow_id: id,
        dry_run,
        total_classifications: decided.len() as i64,
        jobs_to_retry: count(Verdict::Retry),
        jobs_to_fail: count(Verdict::Fail),
        jobs_held: decided.iter().filter(|d| d.ruling.is_held).count() as i64,
        jobs_canceled,
        results: decided.into_iter().map(result).collect(),
        still_pending,
    })
}

fn result(decided: Decided<'_>) -> ClassifyJob {
    let Decided { waiting, ruling, .. } = decided;
    ClassifyJob {
        job_id: waiting.job,
        name: untrusted::line(&waiting.name, 200),
        action: ruling.action,
        state: if ruling.is_held {
            ClassificationState::Held
        } else {
            ClassificationState::Applied
        },
        attempt_id: waiting.number,
        changes: ruling.changes,
        note: ruling.note,
    }
}

/// The jobs that are spoken of, each once.
fn expand<'a>(
    db: &Connection,
    id: WorkflowId,
    all: &'a [Waiting],
    verdicts: &'a [Classification],
) -> Result<Vec<(&'a Waiting, &'a Classification)>, Failed> {
    let by_id: BTreeMap<JobId, &Waiting> = all.iter().map(|w| (w.job, w)).collect();
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    let mut problems = Vec::new();
    for (at, verdict) in verdicts.iter().enumerate() {
        match (verdict.job_id, &verdict.fingerprint) {
            (Some(job), None) => match by_id.get(&job) {
                Some(waiting) => chosen.push((*waiting, verdict)),
                None => problems.push(not_waiting(db, id, job)?),
            },
            (None, Some(print)) => {
                let before = chosen.len();
                chosen.extend(
                    all.iter().filter(|w| w.fingerprint.id == *print).map(|w| (w, verdict)),
                );
                if chosen.len() == before {
                    let print = untrusted::line(print, 40);
                    problems.push(format!(
                        "classification {}: no job waits with fingerprint `{print}`",
                        at + 1
                    ));
                }
            }
            (Some(_), Some(_)) | (None, None) => {
                problems.push(format!(
                    "classification {}: give either `job_id` or `fingerprint`",
                    at + 1
                ));
            }
        }
    }
    problems.extend(
        chosen
            .iter()
            .filter(|(w, _)| !seen.insert(w.job))
            .map(|(w, _)| format!("job {} is named twice", w.job)),
    );
    refuse(problems)?;
    Ok(chosen)
}

fn not_waiting(db: &Connection, id: WorkflowId, job: JobId) -> rusqlite::Result<String> {
    Ok(match lookups::place_of_job(db, job)? {
        Some((workflow, status)) if workflow == id => match JobStatus::from_code(status) {
            Some(status) => format!("job {job} is {status}, not pending_failed"),
            None => format!("job {job} is not pending_failed"),
        },
        Some(_) | None => format!("workflow {id} has no job {job}"),
    })
}

fn refuse(mut problems: Vec<String>) -> Result<(), Refusal> {
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(MAX_TOLD);
    problems.truncate(MAX_TOLD);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    Err(Refusal::conflict(ErrorCode::NotClassified, problems.join("; "))
        .hint("nothing was changed; correct these and send all classifications again"))
}

/// Retries per job that an agent or the record asked for in this run.
fn agent_retries(tx: &mut Tx<'_>, id: WorkflowId) -> Result<HashMap<JobId, i64>, Failed> {
    let run = tx.workflow(id)?.run;
    Ok(journal::verdicts::agent_retries(tx.db, id, run)?)
}

fn canceled_count(tx: &mut Tx<'_>, id: WorkflowId) -> Result<i64, Failed> {
    Ok(i64::from(tx.workflow(id)?.counts()[JobStatus::Canceled as usize]))
}

/// What the verdicts would cancel: tried on a copy of the engine's state.
fn would_cancel(tx: &mut Tx<'_>, id: WorkflowId, decided: &[Decided<'_>]) -> Result<i64, Failed> {
    let before = canceled_count(tx, id)?;
    let mut copy = tx.state.engine.rehearsal(id);
    let find = |copy: &Engine, job| copy.workflow(id).and_then(|workflow| workflow.find(job));
    for one in decided.iter().filter(|d| !d.ruling.is_held) {
        if let Some(job) = find(&copy, one.waiting.job) {
            let retry = one.ruling.action == Verdict::Retry;
            copy.handle(On(id, commands::ClassifyJob { job, retry }), tx.clocks()).reply?;
        }
    }
    let after = copy.workflow(id).map_or(0, |w| w.counts()[JobStatus::Canceled as usize]);
    Ok(i64::from(after) - before)
}

/// Does what was decided. Answers how many jobs were canceled with those that failed.
fn apply(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    decided: &[Decided<'_>],
    speaker: &DecidedBy,
) -> Result<i64, Failed> {
    let before = canceled_count(tx, id)?;
    for one in decided {
        let row = write_down(tx, id, one, speaker)?;
        if one.ruling.is_held {
            let data = json!({"classification_id": row, "action": one.ruling.action, "by": speaker.by,
                "agent": speaker.agent, "confidence": one.asked.confidence, "note": one.ruling.note,
                "run_id": one.waiting.run, "attempt_id": one.waiting.number});
            tx.tell(id, EventKind::ClassificationHeld, Some(one.waiting.job), data)?;
        } else {
            carry_out(tx, id, row, one.waiting, &one.ruling, speaker)?;
        }
    }
    Ok(canceled_count(tx, id)? - before)
}

/// The row of a verdict. Earlier ones that still waited for a person are overtaken by it.
fn write_down(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    one: &Decided<'_>,
    speaker: &DecidedBy,
) -> Result<i64, Failed> {
    let Decided { waiting, asked, ruling } = one;
    journal::supersede_verdicts(tx.db, waiting.job, &speaker.by, tx.now)?;
    let state =
        if ruling.is_held { ClassificationState::Held } else { ClassificationState::Applied };
    let evidence: Vec<String> = asked
        .evidence
        .iter()
        .take(MOST_EVIDENCE)
        .map(|text| untrusted::line(text, LONGEST_EVIDENCE))
        .collect();
    let verdict = VerdictRow {
        job: waiting.job,
        tried: (waiting.run, waiting.number),
        action: ruling.action,
        state,
        by: (&speaker.by, speaker.agent.as_deref()),
        reason: asked.reason.as_ref().map(|reason| untrusted::line(reason, LONGEST_REASON)),
        confidence: asked.confidence,
        evidence: &evidence,
        changes: &ruling.changes,
        print: (&waiting.fingerprint.id, &waiting.fingerprint.family),
        note: ruling.note.as_deref(),
        created: tx.now,
        decided: ((!ruling.is_held).then_some(tx.now), None),
        follows: waiting.attempt,
        outcome: (None, None),
    };
    Ok(journal::insert_verdict(tx.db, id, &verdict)?)
}

/// The move itself, with its changes and its event.
fn carry_out(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    row: i64,
    waiting: &Waiting,
    ruling: &Ruling,
    speaker: &DecidedBy,
) -> Result<(), Failed> {
    let index = tx
        .workflow(id)?
        .find(waiting.job)
        .ok_or_else(|| Refusal::not_found("job", waiting.job.0))?;
    let why = format!("verdict of {}", speaker.by);
    let because = Because { attempt: waiting.number, why: &why, by: &speaker.by };
    remedies::adjust(tx, id, waiting.job, &ruling.changes, because)?;
    let data = json!({"classification_id": row, "action": ruling.action, "by": speaker.by, "agent": speaker.agent,
        "run_id": waiting.run, "attempt_id": waiting.number, "note": ruling.note});
    tx.tell(id, EventKind::JobClassified, Some(waiting.job), data)?;
    let retry = ruling.action == Verdict::Retry;
    tx.handle(On(id, commands::ClassifyJob { job: index, retry }))?;
    if retry {
        tx.state.judged.insert(waiting.job, row);
    }
    Ok(())
}

/// A verdict that waits for a person, and what it asks for.
fn held_row(tx: &Tx<'_>, row: i64) -> Result<(GivenVerdict, Asked), Failed> {
    let held = journal::verdicts::verdict(tx.db, row)?;
    let held = held.ok_or_else(|| Refusal::not_found("classification", row))?;
    if held.state != ClassificationState::Held {
        let message = format!("classification {row} is {}, not held", held.state);
        return Err(Refusal::conflict(ErrorCode::WrongStatus, message).into());
    }
    let to = |field: Adjustable| {
        held.changes.iter().find(|c| c.field == field).and_then(|c| u64::try_from(c.to).ok())
    };
    let asked = Asked {
        action: held.action,
        memory: to(Adjustable::Memory).map(Memory),
        runtime: to(Adjustable::Runtime).map(Runtime),
        confidence: held.confidence,
    };
    Ok((held, asked))
}

/// A person accepts a held verdict: it is done now.
pub fn accept(tx: &mut Tx<'_>, row: i64, by: Option<&str>) -> Result<(), Failed> {
    let (held, asked) = held_row(tx, row)?;
    let id = held.workflow;
    check(tx, id)?;
    let found = waiting(tx.db, id, Some(held.job))?.into_iter().find(|w| w.attempt == held.follows);
    let Some(found) = found else {
        let message = format!("job {} no longer waits for a verdict on that failure", held.job);
        return Err(Refusal::conflict(ErrorCode::Superseded, message).into());
    };
    let caps: Caps = remedies::caps(tx.db, id, &RecoverRequest::default())?;
    let standing =
        Standing { current: found.current, caps, is_repeated: found.is_repeated, agent_retries: 0 };
    let ruling = rule(&asked, Author::Person, &standing).map_err(|problem| {
        Refusal::conflict(ErrorCode::NotClassified, format!("job {}: {problem}", held.job))
    })?;
    let person = author(by, None);
    settle(tx, row, ClassificationState::Applied, &person)?;
    let speaker = DecidedBy {
        by: format!("{}, accepted by {person}", held.by),
        agent: None,
        author: Author::Person,
    };
    carry_out(tx, id, row, &found, &ruling, &speaker)
}

/// A person rejects a held verdict: the job goes on waiting.
pub fn reject(tx: &mut Tx<'_>, row: i64, by: Option<&str>) -> Result<(), Failed> {
    let (held, asked) = held_row(tx, row)?;
    let person = author(by, None);
    settle(tx, row, ClassificationState::Rejected, &person)?;
    let data = json!({"classification_id": row, "action": asked.action, "by": person});
    tx.tell(held.workflow, EventKind::ClassificationRejected, Some(held.job), data)
}

fn settle(tx: &Tx<'_>, row: i64, state: ClassificationState, by: &str) -> rusqlite::Result<()> {
    journal::decide_verdict(tx.db, row, state, by, tx.now)?;
    Ok(())
}
