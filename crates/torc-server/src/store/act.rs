//! One action on many jobs, in one transaction. A dry run takes the same way up to the change.

use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use super::{Store, people, remedies};
use std::collections::{BTreeMap, BTreeSet};
use torc_engine::commands::{CancelJobs, RunAgain};
use torc_engine::{JobIx, On, Workflow};
use torc_model::api::{ActRequest, ActView, ActWord, UpdateJob};
use torc_model::ids::JobId;
use torc_model::recovery::RecoverRequest;
use torc_model::status::{JobStatus, Origin};
use torc_model::units::{Memory, Runtime};
use torc_model::words::count;

/// Names that an answer lists.
const MAX_NAMES: usize = 20;

impl Store {
    /// Does something with jobs of one workflow, or tells what would happen.
    pub async fn act(&self, request: ActRequest, jobs: Vec<JobId>) -> Result<ActView, Refusal> {
        let update = update(&request)?;
        self.writer.call(move |tx| act(tx, &request, &jobs, &update)).await
    }
}

/// What changes of each job, for actions that are changes of single jobs.
fn update(request: &ActRequest) -> Result<UpdateJob, Refusal> {
    let value = request.value.as_deref();
    let needed = |what: &str| {
        value.ok_or_else(|| Refusal::invalid("value", format!("`{}` needs {what}", request.action)))
    };
    let by = request.by.clone();
    let plain = UpdateJob { by, ..UpdateJob::default() };
    let wrong = |e: torc_model::units::UnitError| Refusal::invalid("value", e.to_string());
    Ok(match request.action {
        ActWord::Retry | ActWord::Recover | ActWord::Cancel => plain,
        ActWord::Hold => UpdateJob { held: Some(true), ..plain },
        ActWord::Release => UpdateJob { held: Some(false), ..plain },
        ActWord::Fail => UpdateJob { status: Some(JobStatus::Failed), ..plain },
        ActWord::Priority => {
            let text = needed("a whole number")?;
            let priority = text.parse().map_err(|_| {
                Refusal::invalid("value", format!("`{text}` is not a whole number"))
            })?;
            UpdateJob { priority: Some(priority), ..plain }
        }
        ActWord::Memory => {
            let memory = Memory::parse(needed("an amount such as `8g`")?).map_err(wrong)?;
            UpdateJob { memory: Some(memory), ..plain }
        }
        ActWord::Runtime => {
            let runtime = Runtime::parse(needed("a time such as `2h30m`")?).map_err(wrong)?;
            UpdateJob { runtime: Some(runtime), ..plain }
        }
    })
}

fn act(
    tx: &mut Tx<'_>,
    request: &ActRequest,
    jobs: &[JobId],
    update: &UpdateJob,
) -> Result<ActView, Failed> {
    let id = request.workflow_id;
    people::refuse_archived(tx, id)?;
    let workflow = tx.workflow(id)?;
    let (mut chosen, mut skipped) = (Vec::new(), BTreeMap::<String, i64>::new());
    for index in jobs.iter().filter_map(|job| workflow.find(*job)) {
        match refuses(workflow, index, request.action) {
            None => chosen.push(index),
            Some(why) => *skipped.entry(why).or_default() += 1,
        }
    }
    let before = canceled(workflow);
    let ids: Vec<JobId> = chosen.iter().map(|index| workflow.job(*index).id()).collect();
    let mut view = ActView {
        dry_run: request.dry_run,
        matched: jobs.len() as i64,
        done: chosen.len() as i64,
        skipped: skipped.into_iter().collect(),
        others: 0,
        notes: Vec::new(),
        names: names(tx, &ids)?,
        command: command(request),
    };
    if chosen.is_empty() {
        return Ok(view);
    }
    if request.action == ActWord::Recover {
        return recovered(tx, request, ids, view);
    }
    if request.dry_run {
        let mut copy = tx.state.engine.rehearsal(id);
        match request.action {
            ActWord::Retry => copy.handle(On(id, again(&chosen)), tx.clocks()).reply?,
            ActWord::Cancel => {
                copy.handle(On(id, CancelJobs { jobs: &chosen }), tx.clocks()).reply?
            }
            // Other actions move no other job.
            _ => {}
        }
        let after = copy.workflow(id).map(canceled).unwrap_or_default();
        view.others = others(&before, &after, &ids);
    } else {
        match request.action {
            ActWord::Retry => tx.handle(On(id, again(&chosen)))?,
            ActWord::Cancel => tx.handle(On(id, CancelJobs { jobs: &chosen }))?,
            _ => {
                for job in &ids {
                    people::update_job(tx, *job, update)?;
                }
            }
        }
        view.others = others(&before, &canceled(tx.workflow(id)?), &ids);
    }
    view.notes = notes(request, view.others).into_iter().collect();
    Ok(view)
}

/// Why an action is not for a job.
fn refuses(workflow: &Workflow, index: JobIx, action: ActWord) -> Option<String> {
    let job = workflow.job(index);
    let is_for = match action {
        ActWord::Retry => matches!(job.status(), JobStatus::Failed | JobStatus::Terminated),
        ActWord::Recover => matches!(
            job.status(),
            JobStatus::Failed | JobStatus::Terminated | JobStatus::PendingFailed
        ),
        ActWord::Fail => job.status() == JobStatus::PendingFailed,
        ActWord::Cancel => !job.status().is_final(),
        ActWord::Hold => !job.status().is_final() && !job.is_held_back(),
        ActWord::Release => job.is_held_back(),
        ActWord::Priority | ActWord::Memory | ActWord::Runtime => {
            !matches!(job.status(), JobStatus::Completed | JobStatus::Disabled)
        }
    };
    match (is_for, action) {
        (true, ActWord::Retry) if workflow.canceled => Some("the workflow is canceled".into()),
        (true, _) => None,
        (false, ActWord::Hold) if job.is_held_back() => Some("already held".into()),
        (false, ActWord::Release) => Some("not held".into()),
        (false, _) => Some(job.status().as_str().replace('_', " ")),
    }
}

fn again(jobs: &[JobIx]) -> RunAgain<'_> {
    RunAgain { jobs, origin: Origin::Manual }
}

fn canceled(workflow: &Workflow) -> BTreeSet<JobId> {
    let is = |job: &&torc_engine::Job| job.status() == JobStatus::Canceled;
    workflow.jobs().filter(is).map(|job| job.id()).collect()
}

/// Jobs besides the chosen ones that were canceled, or no longer are.
fn others(before: &BTreeSet<JobId>, after: &BTreeSet<JobId>, chosen: &[JobId]) -> i64 {
    let chosen: BTreeSet<JobId> = chosen.iter().copied().collect();
    before.symmetric_difference(after).filter(|job| !chosen.contains(job)).count() as i64
}

fn recovered(
    tx: &mut Tx<'_>,
    request: &ActRequest,
    ids: Vec<JobId>,
    mut view: ActView,
) -> Result<ActView, Failed> {
    let recover = RecoverRequest {
        dry_run: request.dry_run,
        retry_unknown: true,
        by: request.by.clone(),
        job_ids: ids,
        ..RecoverRequest::default()
    };
    let done = remedies::recover(tx, request.workflow_id, &recover)?;
    view.done = done.jobs_to_retry.len() as i64;
    view.others = done.reopened.len() as i64;
    let mut skipped: BTreeMap<String, i64> = view.skipped.into_iter().collect();
    let mut changes = BTreeMap::<String, i64>::new();
    for job in &done.jobs {
        if !job.action.is_retry() {
            *skipped.entry(job.reason.clone()).or_default() += 1;
            continue;
        }
        let what = match job.changes.is_empty() {
            true => "the same again".to_owned(),
            false => {
                let said = job.changes.iter().map(|change| {
                    let from = change.from.map_or("none".into(), |from| change.written(from));
                    format!("{} from {from} to {}", change.field, change.written(change.to))
                });
                said.collect::<Vec<_>>().join(", ")
            }
        };
        *changes.entry(what).or_default() += 1;
    }
    view.skipped = skipped.into_iter().collect();
    view.notes =
        changes.into_iter().map(|(what, n)| format!("{}: {what}", count(n, "job"))).collect();
    view.notes.extend(notes(request, view.others));
    Ok(view)
}

fn notes(request: &ActRequest, others: i64) -> Option<String> {
    let jobs = count(others, "more job");
    match (request.action, others) {
        (_, 0) => None,
        (ActWord::Cancel, _) => Some(format!("{jobs} canceled, because they depend on these")),
        _ => Some(format!("{jobs} that had been canceled because of these wait for them again")),
    }
}

fn names(tx: &Tx<'_>, ids: &[JobId]) -> Result<Vec<String>, Failed> {
    let name = |job: &JobId| Ok(super::lookups::name_of(tx.db, *job)?);
    ids.iter().take(MAX_NAMES).map(name).collect()
}

/// The command that does the same.
fn command(request: &ActRequest) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let value = request.value.as_deref().map(|value| format!(" --value {}", quoted(value)));
    format!(
        "torc jobs act {} {} --where {}{}",
        request.action,
        request.workflow_id,
        quoted(&request.filter),
        value.unwrap_or_default()
    )
}
