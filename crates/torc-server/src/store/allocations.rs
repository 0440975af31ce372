//! Allocations: what was asked for, what was sent to Slurm, what was seen of it, and what follows
//! for runners.
//!
//! A client that reaches Slurm speaks to it; every decision and every record is made here, in
//! one transaction.

use super::crash_recovery;
use super::journal;
use super::journal::actions::StoredAction;
use super::journal::allocations::{
    self as rows, PlannedAllocations, RunnerIn, SchedulerRow, find, life_of, step_named,
};
use super::last_words;
use super::leftovers;
use super::refusal::Refusal;
use super::runners;
use super::unneeded;
use super::writer::{Failed, Tx};
use crate::slow_files;
use serde_json::json as value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use torc_engine::commands::{ArriveInAllocation, EndRunnersIn, EndSchedule, StepAllocation};
use torc_engine::{
    AllocationEvent, AllocationLife, Arrival, Finding, JobIx, Look, On, Process, RunnerTrace,
    RunnersGone, SUBMIT_LEASE_MS,
};
use torc_model::api::{CompletionReport, ErrorCode, Goodbye, RunnerScheduler};
use torc_model::event::EventKind;
use torc_model::ids::{ActionId, RunnerId, WorkflowId};
use torc_model::plan::{ActionKind, SlurmScheduler};
use torc_model::slurm::observe::has_no_process;
use torc_model::slurm::wire::{
    AllocationView, Allocations, BeginSubmission, Observation, Observations, ObservedView,
    ScheduleNodes, SubmissionOrder, SubmissionOrders, SubmissionOutcome, SubmissionReport,
};
use torc_model::slurm::{Verdict, chained_name};
use torc_model::status::{AllocationStatus, Trigger};

/// Most allocations of one request.
const MAX_COUNT: i64 = 1000;

/// Most allocations of a workflow that have not ended.
const MAX_OPEN: i64 = 1000;
/// Most batch jobs that one submitter takes up at a time.
pub const MAX_ORDERS: usize = 20;

/// A runner that asks again and again must not fill the batch system.
fn refuse_too_many(tx: &Tx<'_>, id: WorkflowId, more: i64) -> Result<(), Failed> {
    let open = rows::count_open(tx.db, id)?;
    if open + more <= MAX_OPEN {
        return Ok(());
    }
    let message = format!(
        "workflow {id} has {open} allocations that have not ended; with {more} more it would have over {MAX_OPEN}"
    );
    Err(Refusal::conflict(ErrorCode::TooManyAllocations, message)
        .hint("wait until some have ended, or cancel them")
        .into())
}

/// Writes down that allocations are wanted. `nonce` makes their name unique in Slurm.
pub fn schedule(
    tx: &mut Tx<'_>,
    request: &ScheduleNodes,
    action: Option<ActionId>,
    nonce: u64,
) -> Result<Allocations, Failed> {
    let id = WorkflowId(request.workflow_id);
    let run = tx.workflow(id)?.run;
    if request.key.is_empty() {
        return Err(Refusal::invalid("key", "a key is needed, so that a repeat is harmless").into());
    }
    let known = rows::with_key(tx.db, id, &request.key)?;
    if !known.is_empty() {
        return Ok(Allocations { items: known });
    }
    if !(1..=MAX_COUNT).contains(&request.count) {
        return Err(Refusal::invalid("count", format!("must be between 1 and {MAX_COUNT}")).into());
    }
    refuse_too_many(tx, id, request.count)?;
    let (scheduler, name) = named(tx, id, &request.scheduler, nonce as u32)?;
    let planned =
        PlannedAllocations { of: (id, run), scheduler: (scheduler, &name), action, request };
    rows::plan(tx.db, &planned, tx.now)?;
    let data = value!({"name": name, "scheduler": request.scheduler, "count": request.count, "action_id": action});
    tx.tell(id, EventKind::AllocationsPlanned, None, data)?;
    Ok(Allocations { items: rows::with_key(tx.db, id, &request.key)? })
}

/// The id of a scheduler, and a name for allocations of it that no others have.
fn named(
    tx: &Tx<'_>,
    id: WorkflowId,
    scheduler: &str,
    nonce: u32,
) -> Result<(i64, String), Failed> {
    let found = rows::scheduler_named(tx.db, id, scheduler)?;
    let SchedulerRow { id: number, definition, workflow_created, .. } = found.ok_or_else(|| {
        Refusal::unknown(format!("workflow {id} has no Slurm scheduler `{scheduler}`"))
    })?;
    if !definition.serialize_allocations {
        return Ok((number, format!("torc-wf{id}-s{number}-{nonce:08x}")));
    }
    let chain = definition.chain.as_deref().unwrap_or(scheduler);
    // Not the scheduler's number: what a regenerate makes joins the chain of what it replaces.
    Ok((number, chained_name(&format!("torc-wf{id}-chain"), workflow_created, chain, nonce)))
}

/// Executes the triggered actions that ask for nodes. Answers how many there were.
pub fn execute_actions(tx: &mut Tx<'_>, id: WorkflowId, nonce: u64) -> Result<usize, Failed> {
    let triggered = tx.workflow(id)?.triggered_schedules();
    for (nth, action) in triggered.iter().enumerate() {
        let error = match execute_action(tx, id, *action, nonce.wrapping_add(nth as u64)) {
            Ok(()) => None,
            Err(Failed::Refused(refusal)) => Some(refusal.message),
            Err(broken) => return Err(broken),
        };
        tx.handle(On(id, EndSchedule { action: *action, error }))?;
    }
    Ok(triggered.len())
}

fn execute_action(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    action: ActionId,
    nonce: u64,
) -> Result<(), Failed> {
    let known = journal::action(tx.db, action)?;
    let StoredAction { trigger, what, is_recovery, .. } =
        known.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let ActionKind::ScheduleNodes {
        scheduler,
        num_allocations,
        start_one_worker_per_node,
        max_parallel_jobs,
        scheduler_type,
    } = what
    else {
        return Ok(());
    };
    if scheduler_type != "slurm" {
        return Err(Refusal::invalid(
            "scheduler_type",
            format!("`{scheduler_type}` is not known (known: slurm)"),
        )
        .into());
    }
    let run = tx.workflow(id)?.run;
    let request = ScheduleNodes {
        workflow_id: id.0,
        scheduler,
        count: i64::from(num_allocations),
        key: format!("action {action} of run {run}"),
        start_one_worker_per_node,
        max_parallel_jobs: max_parallel_jobs.map(i64::from),
    };
    if trigger == Trigger::AutoScheduleOnReadyJobs {
        return serve_retried_jobs(tx, id, action, request, nonce);
    }
    let mut count = request.count;
    if is_recovery {
        // What is there already serves these jobs as well; only the rest is asked for.
        let jobs = tx.workflow(id)?.jobs_of_action(action).to_vec();
        let runtime = longest_runtime(tx, id, &jobs)?;
        count -= usable(tx, id, &request.scheduler, runtime)?;
    }
    if count <= 0 {
        return Ok(());
    }
    schedule(tx, &ScheduleNodes { count, ..request }, Some(action), nonce).map(|_| ())
}

/// Nodes for jobs that are tried again: of the scheduler that each has now, else of the action's;
/// only what is not on its way, and no more allocations than jobs.
fn serve_retried_jobs(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    action: ActionId,
    request: ScheduleNodes,
    nonce: u64,
) -> Result<(), Failed> {
    let mut by_scheduler: BTreeMap<String, Vec<JobIx>> = BTreeMap::new();
    for index in tx.workflow(id)?.ready_jobs_of(action) {
        let job = tx.workflow(id)?.job(index).id();
        if last_words::outlasted_its_allocation(tx, job)? {
            continue;
        }
        let own = rows::scheduler_of_job(tx.db, job)?;
        by_scheduler
            .entry(own.unwrap_or_else(|| request.scheduler.clone()))
            .or_default()
            .push(index);
    }
    let asked = rows::count_of_action(tx.db, action)?;
    for (nth, (scheduler, jobs)) in by_scheduler.into_iter().enumerate() {
        let runtime = longest_runtime(tx, id, &jobs)?;
        let count = request.count.min(jobs.len() as i64) - usable(tx, id, &scheduler, runtime)?;
        if count > 0 {
            let key = format!("{}, {scheduler} after {asked}", request.key);
            let request = ScheduleNodes { scheduler, count, key, ..request.clone() };
            schedule(tx, &request, Some(action), nonce.wrapping_add(nth as u64))?;
        }
    }
    Ok(())
}

fn longest_runtime(tx: &mut Tx<'_>, id: WorkflowId, jobs: &[JobIx]) -> Result<i64, Failed> {
    let workflow = tx.workflow(id)?;
    let runtime = |j: &JobIx| workflow.class_of(*j).runtime;
    Ok(jobs.iter().filter_map(runtime).max().and_then(|r| i64::try_from(r).ok()).unwrap_or(60))
}

/// How many allocations of a scheduler are on their way, or run and still have this many seconds.
fn usable(tx: &Tx<'_>, id: WorkflowId, scheduler: &str, seconds: i64) -> Result<i64, Failed> {
    Ok(usable_of(tx, id, scheduler, seconds)?.len() as i64)
}

/// Allocations of a scheduler that are on their way, or run and still have this many seconds.
pub fn usable_of(
    tx: &Tx<'_>,
    id: WorkflowId,
    scheduler: &str,
    seconds: i64,
) -> Result<Vec<i64>, Failed> {
    Ok(rows::usable(tx.db, id, scheduler, (seconds, tx.now))?)
}

/// Gives a submitter what waits to be sent. No other submitter gets it until this one's time is
/// over.
pub fn begin(tx: &mut Tx<'_>, request: &BeginSubmission) -> Result<SubmissionOrders, Failed> {
    if request.submitter.is_empty() {
        return Err(Refusal::invalid(
            "submitter",
            "a name is needed, so that two do not send the same",
        )
        .into());
    }
    unneeded::release(tx, request.workflow_id)?;
    let mut orders = SubmissionOrders::default();
    for unsent in rows::unsent(tx.db, request.workflow_id, tx.now, MAX_ORDERS)? {
        let taken = AllocationEvent::Taken {
            submitter: request.submitter.clone(),
            until: tx.now + SUBMIT_LEASE_MS,
        };
        step_named(tx, unsent.workflow, &unsent.name, &taken)?;
        let scheduler = rows::scheduler(tx.db, unsent.scheduler)?;
        let settings = scheduler.settings;
        orders.items.push(SubmissionOrder {
            workflow_id: unsent.workflow,
            name: unsent.name,
            count: unsent.count,
            look_first: unsent.was_taken,
            scheduler: scheduler.definition,
            scheduler_id: scheduler.id,
            end_seconds: settings.execution.seconds_before_walltime().ceil() as i64,
            wait_for_server_minutes: settings.runners.wait_for_server_minutes as i64,
            defaults: settings.slurm_defaults,
            start_one_worker_per_node: unsent.one_worker_per_node,
            max_parallel_jobs: unsent.max_parallel_jobs,
            directory: scheduler.directory,
            // The API puts it in: the store knows no secrets.
            token: String::new(),
        });
    }
    Ok(orders)
}

/// A submitter tells how it went.
pub fn submitted(tx: &mut Tx<'_>, report: &SubmissionReport) -> Result<Allocations, Failed> {
    let id = report.workflow_id;
    tx.workflow(id)?;
    let (kind, data) = match &report.outcome {
        SubmissionOutcome::Submitted(job) => {
            if job.is_empty() || !job.bytes().all(|b| b.is_ascii_digit()) {
                return Err(
                    Refusal::invalid("outcome", format!("`{job}` is not a Slurm job id")).into()
                );
            }
            let sent = AllocationEvent::Submitted(job.clone());
            step_named(tx, id, &report.name, &sent)?;
            (EventKind::AllocationsSubmitted, value!({"name": report.name, "slurm_job_id": job}))
        }
        SubmissionOutcome::Refused(message) => {
            step_named(tx, id, &report.name, &AllocationEvent::Refused(message.clone()))?;
            (EventKind::AllocationsRefused, value!({"name": report.name, "message": message}))
        }
        SubmissionOutcome::Unknown(message) => {
            let undecided = AllocationEvent::Undecided {
                submitter: report.submitter.clone(),
                message: message.clone(),
            };
            step_named(tx, id, &report.name, &undecided)?;
            (EventKind::AllocationsUnknown, value!({"name": report.name, "message": message}))
        }
    };
    tx.tell(id, kind, None, data)?;
    Ok(Allocations { items: rows::named(tx.db, id, &report.name)? })
}

/// A runner reports from inside an allocation, before it is registered. Two Slurm jobs never share
/// one allocation.
pub fn runner_arrived(
    tx: &mut Tx<'_>,
    workflow: WorkflowId,
    scheduler: &RunnerScheduler,
) -> Result<(), Failed> {
    let Some(id) = scheduler.allocation_id else { return Ok(()) };
    let row = find(tx, id)?.filter(|a| a.workflow_id == workflow);
    let found = row.zip(life_of(tx, id)?);
    let (row, life) = found.ok_or_else(|| Refusal::not_found("allocation", id))?;
    let beside = rows::runners_of(tx.db, &row)?;
    let beside: Vec<_> = beside.into_iter().map(|runner| (runner.id, runner.node)).collect();
    let job = scheduler.slurm_job_id.clone().unwrap_or_default();
    let arrive = ArriveInAllocation {
        workflow,
        id,
        life,
        arrival: Arrival { job, restarts: scheduler.restarts },
        node: scheduler.node,
        runners: &beside,
    };
    let runners: Vec<RunnerId> = beside.iter().map(|(runner, _)| *runner).collect();
    runners::end_runners(tx, workflow, &runners, arrive)
}

/// A runner has left in good order; with the last one the allocation is over.
pub fn runner_left(tx: &mut Tx<'_>, runner: RunnerId, goodbye: &Goodbye) -> Result<(), Failed> {
    let Some(id) = rows::of_runner(tx.db, runner)? else { return Ok(()) };
    let Some((row, life)) = find(tx, id)?.zip(life_of(tx, id)?) else { return Ok(()) };
    if let Some(over) = life.left(row.runners as usize, &goodbye.reason, goodbye.cause) {
        last_words::after_goodbye(tx, &row, goodbye)?;
        follow(tx, &row, life, AllocationEvent::Ended(over))?;
    }
    Ok(())
}

/// Lets an event happen to an allocation, with what the rows tell of its end.
fn follow(
    tx: &mut Tx<'_>,
    row: &AllocationView,
    life: AllocationLife,
    mut event: AllocationEvent,
) -> Result<(), Failed> {
    let (workflow, id) = (row.workflow_id, row.id);
    if let AllocationEvent::Ended(over) = &mut event {
        over.was_too_short = last_words::was_too_short(tx, row, over.cause)?;
        over.did_work = tx.workflow(workflow)?.looks_after_retries() && rows::did_work(tx.db, row)?;
    }
    tx.handle(StepAllocation { workflow, id, life, event }).map(drop)
}

/// A runner of an allocation that has no process any more, as Slurm says.
pub struct Leftover {
    id: RunnerId,
    /// Names its processes and files.
    key: String,
    /// Its own process was on this host and is gone.
    is_gone_from_here: bool,
    output_dir: PathBuf,
}

/// What such runners left, as far as it can be seen from here.
#[derive(Default)]
pub struct LookedAt {
    /// Nothing of these lives on this host.
    proved: HashSet<RunnerId>,
    /// Results that they could not deliver.
    spooled: HashMap<RunnerId, Vec<CompletionReport>>,
    /// The file system of these does not answer: there may be results.
    unread: HashSet<RunnerId>,
}

impl LookedAt {
    /// Ends processes of these runners that are left on this host, and reads what they wrote down
    /// for a server that did not answer. Blocks.
    pub fn look(left: &[Leftover]) -> Self {
        let gone: Vec<(RunnerId, String)> = left
            .iter()
            .filter(|left| left.is_gone_from_here)
            .map(|left| (left.id, left.key.clone()))
            .collect();
        let proved = if gone.is_empty() { HashSet::new() } else { crash_recovery::end_gone(&gone) };
        let mut looked = Self { proved, ..Self::default() };
        let round = slow_files::Round::begin();
        for Leftover { id, key, output_dir, .. } in left {
            let (dir, key) = (output_dir.clone(), key.clone());
            match round.look(output_dir, move || leftovers::spooled(&dir, &key)) {
                Ok(reports) => drop(looked.spooled.insert(*id, reports)),
                Err(hangs) => {
                    tracing::warn!(runner = %id, dir = %output_dir.display(), "{hangs}: results of an ended runner may wait there");
                    looked.unread.insert(*id);
                }
            }
        }
        looked
    }
}

/// The runners of allocations that have no process any more, as Slurm says.
pub fn leftovers_of(tx: &mut Tx<'_>, seen: &Observations) -> Result<Vec<Leftover>, Failed> {
    let mut left = Vec::new();
    for item in seen.items.iter().filter(|item| has_no_process(&item.verdict)) {
        let Some(row) = find(tx, item.id)? else { continue };
        for RunnerIn { id, output_dir, .. } in rows::runners_of(tx.db, &row)? {
            let (process, key) = crash_recovery::sight(tx, id, row.workflow_id)?;
            let output_dir = output_dir.into();
            left.push(Leftover {
                id,
                key,
                is_gone_from_here: process == Process::Gone,
                output_dir,
            });
        }
    }
    Ok(left)
}

/// Takes in what a client saw of allocations in Slurm. Not knowing changes nothing.
pub fn observe(
    tx: &mut Tx<'_>,
    seen: &Observations,
    looked: &LookedAt,
) -> Result<ObservedView, Failed> {
    let mut view = ObservedView { dry_run: seen.dry_run, ..ObservedView::default() };
    for item in &seen.items {
        if let Some((row, life)) = find(tx, item.id)?.zip(life_of(tx, item.id)?) {
            take_in(tx, (&row, life), item, looked, &mut view)?;
        }
    }
    Ok(view)
}

/// What was seen of one allocation: the engine says what follows.
fn take_in(
    tx: &mut Tx<'_>,
    (row, life): (&AllocationView, AllocationLife),
    item: &Observation,
    looked: &LookedAt,
    view: &mut ObservedView,
) -> Result<(), Failed> {
    let runners = match has_no_process(&item.verdict) {
        true => rows::runners_of(tx.db, row)?.into_iter().map(|runner| runner.id).collect(),
        false => Vec::new(),
    };
    let traces: Vec<RunnerTrace> = runners
        .iter()
        .map(|runner| trace(tx, *runner, row.workflow_id, looked, view.dry_run))
        .collect::<Result<_, _>>()?;
    let Finding { look, gone, doubt, explains, event } = life.judge(item, &traces);
    tell_look(row, item, look, view);
    match (&gone, doubt) {
        (Some(RunnersGone { text, .. }), Some(doubt)) => {
            let why = doubt.text();
            view.unknown += 1;
            view.details.push(format!("{}: {text}, but {why}; nothing was done", label(row)));
        }
        (Some(gone), None) => end_runners(tx, row, (&runners, gone), looked, view)?,
        (None, _) => {}
    }
    if let Some(AllocationEvent::Ended(over)) = &event {
        view.allocations_ended += 1;
        view.pending_allocations_cleaned += i64::from(row.status != AllocationStatus::Active);
        view.details.push(format!("{} is over: {}", label(row), over.why));
    }
    if view.dry_run {
        return Ok(());
    }
    if let Some(ending) = explains {
        last_words::explain_by(tx, row, ending, view)?;
    }
    match event {
        Some(event) => follow(tx, row, life, event),
        None => Ok(()),
    }
}

/// What people hear of a look that ends nothing.
fn tell_look(row: &AllocationView, item: &Observation, look: Look, view: &mut ObservedView) {
    match (look, &item.verdict) {
        (Look::Unknown | Look::Missing, Verdict::Unknown { why }) => {
            view.unknown += 1;
            let line = format!("{}: {why}; nothing was done", label(row));
            if item.is_missing { &mut view.first_misses } else { &mut view.details }.push(line);
        }
        (Look::Waiting, Verdict::Alive { reason: Some(reason), .. }) => {
            if let Some(hopeless) = torc_model::slurm::state::never_starts(reason) {
                view.details.push(format!("{} will not start: {hopeless}", label(row)));
            }
        }
        _ => {}
    }
}

fn label(row: &AllocationView) -> String {
    match &row.slurm_job_id {
        Some(job) => format!("allocation {} (Slurm job {job})", row.id),
        None => format!("allocation {} ({})", row.id, row.name),
    }
}

/// What is known of a runner of which Slurm says that it has no process.
fn trace(
    tx: &mut Tx<'_>,
    runner: RunnerId,
    workflow: WorkflowId,
    looked: &LookedAt,
    is_dry_run: bool,
) -> Result<RunnerTrace, Failed> {
    Ok(RunnerTrace {
        process: crash_recovery::sight(tx, runner, workflow)?.0,
        // Nothing is ended to be told what would happen.
        is_clean: is_dry_run || looked.proved.contains(&runner),
        is_unread: looked.unread.contains(&runner),
        spoke: tx.state.engine.runners().has_just_spoken(&runner, tx.uptime),
    })
}

/// Ends the runners of an allocation that has no process any more, after what they could not deliver.
fn end_runners(
    tx: &mut Tx<'_>,
    row: &AllocationView,
    (runners, gone): (&[RunnerId], &RunnersGone),
    looked: &LookedAt,
    view: &mut ObservedView,
) -> Result<(), Failed> {
    let workflow = row.workflow_id;
    for runner in runners {
        view.runners_ended += 1;
        view.slurm_jobs_failed += tx.workflow(workflow)?.held_by(*runner).count() as i64;
        view.details.push(format!("runner {runner} in {} is gone: {}", label(row), gone.text));
        if view.dry_run {
            continue;
        }
        // What it finished while no server could hear it is no loss.
        let mut delivered = 0;
        for report in looked.spooled.get(runner).into_iter().flatten() {
            let (id, token) = (report.attempt.id, &report.attempt.token);
            if tx.workflow(workflow)?.may_report(id, *runner, token).is_some() {
                runners::end_one(tx, workflow, *runner, report, None)?;
                delivered += 1;
            }
        }
        if delivered > 0 {
            let left = torc_model::words::count(delivered, "result");
            view.details.push(format!("runner {runner} left {left} that it could not deliver"));
        }
    }
    if view.dry_run {
        return Ok(());
    }
    let job = row.slurm_job_id.as_deref();
    runners::end_runners(tx, workflow, runners, EndRunnersIn { workflow, job, runners, gone })
}

/// Makes a scheduler, or finds an equal one among those that these jobs already have.
pub(super) fn scheduler_for(
    tx: &Tx<'_>,
    id: WorkflowId,
    wanted: &SlurmScheduler,
    current: &[i64],
) -> Result<(i64, String, bool), Failed> {
    for candidate in current {
        let SchedulerRow { name, definition: known, .. } = rows::scheduler(tx.db, *candidate)?;
        if (SlurmScheduler { name: wanted.name.clone(), ..known }) == *wanted {
            return Ok((*candidate, name, true));
        }
    }
    let mut name = wanted.name.clone();
    let mut number = 2;
    while rows::scheduler_named(tx.db, id, &name)?.is_some() {
        name = format!("{}_{number}", wanted.name);
        number += 1;
    }
    let definition = SlurmScheduler { name: name.clone(), ..wanted.clone() };
    let row = journal::put_scheduler(tx.db, id, &name, &definition)?;
    Ok((row, name, false))
}
