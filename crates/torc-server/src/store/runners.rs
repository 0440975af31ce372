//! What runners ask: register, claim, report, heartbeat, goodbye.

use super::journal::{self, RunnerRow, signed};
use super::load::parse;
use super::read::page;
use super::refusal::Refusal;
use super::writer::{Failed, State, Tx};
use crate::boot::identity;
use rusqlite::OptionalExtension;
use std::collections::{HashMap, HashSet};
use tokio::sync::watch;
use torc_engine::{
    Change, Claim, Claimed, End, KnownEnd, KnownRunner, LEASE_MS, Lost, RunnerEvent,
};
use torc_model::api::{
    ActionPacket, ActionReport, AttemptPacket, AttemptRef, Capacity, ClaimRequest, ClaimResponse,
    CompletionReport, ErrorCode, Evidence, FileRef, Goodbye, GoodbyeAnswer, Heartbeat,
    HeartbeatAnswer, RegisterRunner, ReportResult, ReportVerdict, RunnerRegistered, StartReport,
};
use torc_model::event::EventKind;
use torc_model::ids::{ActionId, AttemptId, RunnerId, WorkflowId};
use torc_model::plan::{ActionKind, JobExtra, Settings};
use torc_model::status::{
    AttemptState, Cause, EndedBy, EvidenceSource, JobStatus, Origin, Outcome, RunnerOrder, Trigger,
};
use torc_model::token::Key;
use torc_model::words;

/// A runner is shown as out of contact after this long without a word.
pub const LEASE_SECONDS: i64 = LEASE_MS / 1000;

/// Most attempts that one claim may take, so that one request cannot make a commit endless.
const MAX_CLAIM: i64 = 1000;

/// A runner introduces itself.
pub fn register(tx: &mut Tx<'_>, request: &RegisterRunner) -> Result<RunnerRegistered, Failed> {
    check_registration(request)?;
    let id = request.workflow_id;
    let (run_id, settings) = {
        let workflow = tx.workflow(id)?;
        (workflow.run, workflow.settings.clone())
    };
    let known: Option<(i64, i64)> = tx
        .db
        .prepare_cached("SELECT id, workflow_id FROM compute_node WHERE register_key = ?1")?
        .query_row([kept_key(request)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    // A runner that is seen from here, or by a batch system, needs no deadline: see `liveness`.
    let is_seen = identity::can_see(&request.hostname, &request.boot_id)
        || request.scheduler.as_ref().is_some_and(|s| s.allocation_id.is_some());
    let disown = (!is_seen).then_some(settings.disown_seconds as i64);
    let runner = match known {
        Some((known, workflow)) if workflow == id.0 => RunnerId(known),
        Some(_) => {
            let message = "a runner of another workflow registered with the same key";
            return Err(Refusal::conflict(ErrorCode::WrongWorkflow, message)
                .hint("use a new key")
                .into());
        }
        None => {
            if let Some(pool) = request.pool_runner_id {
                super::pool_runners::check(tx, pool)?;
            }
            // One in an allocation has waited for its nodes, and its workflow was judged when it was
            // initialized.
            let is_first = tx.state.runners.of(id).next().is_none();
            if is_first && request.scheduler.is_none() && !request.force {
                super::shared_outputs::refuse_stored(tx, id)?;
            }
            if let Some(scheduler) = &request.scheduler {
                super::allocations::runner_arrived(tx, id, scheduler)?;
            }
            insert_runner(tx, request, disown)?
        }
    };
    let workflow_name = super::lookups::workflow_name(tx.db, id)?
        .ok_or_else(|| Refusal::not_found("workflow", id.0))?;
    let tag = super::load::runner_tag(&tx.state.database_id, runner);
    Ok(welcome(runner, run_id, disown, &settings, workflow_name, tag))
}

/// A process that knows the key may speak as the runner, so that the database holds its hash only.
fn kept_key(request: &RegisterRunner) -> String {
    crate::secret::hash_text(&request.key)
}

/// Shorter keys could be guessed.
const KEY_LENGTH: std::ops::RangeInclusive<usize> = 1..=256;

fn check_registration(request: &RegisterRunner) -> Result<(), Failed> {
    if !KEY_LENGTH.contains(&request.key.len()) {
        return Err(Refusal::invalid("key", "the key has 1 to 256 characters").into());
    }
    if !std::path::Path::new(&request.output_dir).is_absolute() {
        let message = format!("`{}` is not an absolute path", request.output_dir);
        return Err(Refusal::invalid("output_dir", message).into());
    }
    let texts = [
        ("hostname", Some(&request.hostname)),
        ("boot_id", Some(&request.boot_id)),
        ("label", request.label.as_ref()),
    ];
    for (field, text) in texts {
        super::names::check_line(field, text.map_or("", |text| text))?;
    }
    Ok(())
}

fn insert_runner(
    tx: &mut Tx<'_>,
    request: &RegisterRunner,
    disown: Option<i64>,
) -> Result<RunnerId, Failed> {
    let stop_by =
        request.time_left_seconds.map(|left| tx.now.saturating_add(left.saturating_mul(1000)));
    let row = RunnerRow {
        key: &kept_key(request),
        host: &request.hostname,
        boot_id: &request.boot_id,
        process: (request.pid, request.pid_start),
        kind: Some(request.kind),
        label: request.label.as_deref(),
        capacity: request.capacity.clone(),
        output_dir: &request.output_dir,
        started: tx.now,
        last_seen: tx.now,
        stop_by,
        scheduler: request.scheduler.as_ref(),
        disown,
        pool: request.pool_runner_id,
        end: None,
    };
    let id = journal::insert_runner(tx.db, request.workflow_id, &row)?;
    let runner = KnownRunner {
        stop_by,
        scheduler: request.scheduler.as_ref().and_then(|s| s.scheduler_config_id),
        label: request.label.clone(),
        heard: Some(tx.uptime),
        pool: request.pool_runner_id,
        ..KnownRunner::new(
            request.workflow_id,
            request.hostname.clone(),
            request.pid,
            request.capacity.clone(),
        )
    };
    let (changes, was_alone) = tx.state.runners.come(id, runner);
    if let Some(pool) = request.pool_runner_id {
        super::pool_runners::runner_came(tx, pool, request.workflow_id, id)?;
    }
    if was_alone {
        tx.woken.insert(request.workflow_id);
    }
    tx.write(request.workflow_id, changes)?;
    Ok(id)
}

fn welcome(
    id: RunnerId,
    run_id: i64,
    disown: Option<i64>,
    settings: &Settings,
    workflow_name: String,
    tag: String,
) -> RunnerRegistered {
    RunnerRegistered {
        id,
        run_id,
        lease_seconds: LEASE_SECONDS,
        disown_seconds: disown,
        workflow_name,
        env: settings.env.clone(),
        resource_monitor: settings.resource_monitor.clone(),
        execution: settings.execution.clone(),
        wait_for_server_seconds: (settings.runners.wait_for_server_minutes as i64)
            .saturating_mul(60),
        idle_seconds: settings.runners.idle_seconds as i64,
        ignore_completion: settings.runners.ignore_completion,
        checkpoint_exit_code: settings.checkpoint_exit_code.map(i64::from),
        tag,
        // The API puts it in: the store knows no secrets.
        job_key: Key::of_server("", ""),
    }
}

/// A live runner of this workflow; its word is noted.
fn heard(
    tx: &mut Tx<'_>,
    id: RunnerId,
    workflow: Option<WorkflowId>,
) -> Result<WorkflowId, Failed> {
    let runner = tx.state.runners.hear(id, workflow, tx.uptime)?;
    if let Some(pool) = runner.pool {
        tx.state.pools.stir(pool);
    }
    Ok(runner.workflow)
}

/// Applies the reports, then gives work. Answers at once; waiting is the caller's part.
pub fn claim(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ClaimRequest,
    nonce: u64,
) -> Result<ClaimResponse, Failed> {
    heard(tx, request.runner_id, Some(id))?;
    if request.wait_seconds <= 0.0
        && let Some(runner) = tx.state.runners.get_mut(&request.runner_id)
    {
        runner.asks(request.limit, request.completed.iter().map(|end| end.cause));
    }
    let (started, completed) = reports(tx, id, request)?;
    let mut response = ClaimResponse { started, completed, ..ClaimResponse::default() };
    response.actions = claim_actions(tx, id, request.runner_id, &request.key)?;
    let quarantined = super::bad_nodes::quarantined(tx, id, request.runner_id)?;
    let ordered = ordered(tx, request.runner_id);
    let mut paused = super::reservations::paused(&tx.state.reservations, id, tx.uptime)
        .or(quarantined)
        .or_else(|| ordered.map(kept_from_work));
    let known = tx.workflow(id)?.claimed_with(request.runner_id, &request.key);
    let claimed = match known.is_empty() {
        false => known,
        true if request.limit > 0 && paused.is_none() => {
            let claimed = claim_jobs(tx, id, request, nonce)?;
            if claimed.is_none() {
                paused = Some(OTHERS_FIRST.to_owned());
            }
            claimed.unwrap_or_default()
        }
        true => Vec::new(),
    };
    response.attempts =
        claimed.into_iter().map(|c| packet(tx, id, &c)).collect::<Result<_, _>>()?;
    response.cancel = new_orders(tx, id, request.runner_id)?;
    tx.workflow(id)?;
    let state = &*tx.state;
    let workflow = state.workflows.get(&id).ok_or_else(|| Refusal::not_found("workflow", id.0))?;
    response.workflow_complete = workflow.is_complete();
    let nothing_to_come = workflow.held_count() == 0
        && workflow.next_due().is_none()
        && (!workflow.has_ready()
            || state.runners.no_runner_takes(workflow, request.runner_id, &request.capacity));
    // While it holds something it has something to tell, and hears of this then.
    response.leave = ordered == Some(RunnerOrder::Remove)
        && response.attempts.is_empty()
        && workflow.held_by(request.runner_id).next().is_none();
    response.is_alone = state.runners.is_alone(id, request.runner_id);
    response.idle = paused.is_none()
        && nothing_to_come
        && !response.workflow_complete
        && response.attempts.is_empty();
    if response.attempts.is_empty() && request.limit > 0 {
        let why = paused.unwrap_or_else(|| reason(workflow, &response));
        response.reason = Some(words::message(why));
    }
    Ok(response)
}

/// A runner of a pool is woken by itself for work: its pool runner is shared with others.
pub fn own_wakes(tx: &mut Tx<'_>, id: RunnerId) -> Option<watch::Receiver<u64>> {
    tx.state.runners.get(&id)?.pool?;
    Some(tx.state.pools.runner_wakes(id))
}

/// Why a runner of a pool gets nothing although there is work.
const OTHERS_FIRST: &str = "others come first on the pool runner that this runner belongs to";

/// What a person asked of a runner, or of the pool runner that started it.
fn ordered(tx: &Tx<'_>, runner: RunnerId) -> Option<RunnerOrder> {
    let runner = tx.state.runners.get(&runner)?;
    let member = runner.pool.and_then(|pool| tx.state.pools.members.get(&pool));
    runner.ordered.max(member.and_then(|member| member.ordered))
}

fn kept_from_work(ordered: RunnerOrder) -> String {
    match ordered {
        RunnerOrder::Drain => "this runner is drained: `torc runners resume` gives it work again",
        RunnerOrder::Remove => "this runner is removed: it leaves when it holds no job",
    }
    .to_owned()
}

/// Takes down what a person asks of a runner; None: that it works again.
pub fn order(tx: &mut Tx<'_>, id: RunnerId, ordered: Option<RunnerOrder>) -> Result<(), Failed> {
    let Some(runner) = tx.state.runners.get(&id) else {
        let there: Option<i64> = tx
            .db
            .prepare_cached("SELECT id FROM compute_node WHERE id = ?1")?
            .query_row([id.0], |row| row.get(0))
            .optional()?;
        return Err(match there {
            Some(_) => {
                let message = format!("compute node {id} has left");
                Refusal::conflict(ErrorCode::RunnerEnded, message).into()
            }
            None => Refusal::not_found("compute node", id.0).into(),
        });
    };
    let workflow = runner.workflow;
    let changes = tx.state.runners.step(id, RunnerEvent::Ordered(ordered));
    tx.write(workflow, changes)?;
    tx.wake_all();
    Ok(())
}

/// Starts and ends, in this order. Of an attempt that did both since the last request only the end
/// is written: it says all that the start said.
fn reports(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ClaimRequest,
) -> Result<(Vec<ReportResult>, Vec<ReportResult>), Failed> {
    let runner = request.runner_id;
    let ended: HashSet<AttemptId> = request.completed.iter().map(|end| end.attempt.id).collect();
    let mut starts = HashMap::new();
    let mut started = Vec::with_capacity(request.started.len());
    for report in &request.started {
        started.push(if ended.contains(&report.attempt.id) {
            start_quietly(tx, id, runner, report, &mut starts)?
        } else {
            start_one(tx, id, runner, report)?
        });
    }
    let mut completed = Vec::with_capacity(request.completed.len());
    for report in &request.completed {
        let start = starts.remove(&report.attempt.id);
        completed.push(end_one(tx, id, runner, report, start)?);
    }
    Ok((started, completed))
}

fn reason(workflow: &torc_engine::Workflow, response: &ClaimResponse) -> String {
    if response.workflow_complete {
        "the workflow is complete".into()
    } else if workflow.has_ready() && response.idle {
        "what is ready is for other runners: larger ones, or ones with a label".into()
    } else if workflow.has_ready() {
        "no ready job fits into what the runner has free".into()
    } else if response.idle {
        "nothing is ready and nothing is running; the rest waits for a person".into()
    } else {
        "nothing is ready yet".into()
    }
}

/// None: others come first in its pool.
fn claim_jobs(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ClaimRequest,
    nonce: u64,
) -> Result<Option<Vec<Claimed>>, Failed> {
    let runner = tx.state.runners.get(&request.runner_id).cloned();
    let Some(runner) = runner.filter(|runner| !runner.leaving) else {
        return Ok(Some(Vec::new()));
    };
    if let Some(known) = tx.state.runners.get_mut(&request.runner_id) {
        known.capacity = request.capacity.clone();
    }
    let limit = request.limit.clamp(0, MAX_CLAIM) as usize;
    let Some(pool) = runner.pool else {
        let whole = ClaimSize {
            limit,
            prefetch: request.prefetch.clamp(0, MAX_CLAIM) as usize,
            capacity: &request.capacity,
        };
        return claim_size(tx, id, request, &runner, &whole, nonce).map(Some);
    };
    super::pool_runners::claim_in_turn(
        tx,
        pool,
        id,
        request.runner_id,
        limit,
        |tx, capacity, nth| {
            let one = ClaimSize { limit: 1, prefetch: 0, capacity };
            claim_size(tx, id, request, &runner, &one, torc_model::chance::nth(nonce, nth))
        },
    )
}

/// How much a claim may take.
struct ClaimSize<'a> {
    limit: usize,
    prefetch: usize,
    capacity: &'a Capacity,
}

fn claim_size(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ClaimRequest,
    runner: &KnownRunner,
    size: &ClaimSize<'_>,
    nonce: u64,
) -> Result<Vec<Claimed>, Failed> {
    let claim_now = tx.now;
    let neighbours = tx.state.runners.neighbours(id, &runner.host, tx.uptime);
    tx.apply(id, |workflow, limits, _| {
        if workflow.canceled {
            return Ok(Vec::new());
        }
        let claim = Claim {
            runner: request.runner_id,
            key: &request.key,
            limit: size.limit,
            prefetch: size.prefetch,
            capacity: size.capacity,
            time_left: request
                .time_left_seconds
                .or_else(|| runner.stop_by.map(|t| (t - claim_now) / 1000)),
            scheduler: runner.scheduler,
            strict_scheduler: request.strict_scheduler_match,
            label: runner.label.as_deref(),
            now: claim_now,
            nonce,
        };
        Ok(workflow.claim_beside(&claim, &neighbours, limits))
    })
}

/// Everything an attempt needs: what the engine knows of it, and the texts from its job's row. One
/// search by key per job, because this is done for each of them.
fn packet(tx: &mut Tx<'_>, id: WorkflowId, claimed: &Claimed) -> Result<AttemptPacket, Failed> {
    let workflow = tx.workflow(id)?;
    let class = workflow.class_of(claimed.index).clone();
    let run_id = workflow.run;
    let mut statement = tx.db.prepare_cached(
        "SELECT name, command, invocation_script, steps, extra, EXISTS (SELECT 1 FROM job_item i WHERE i.job_id = job.id)
         FROM job WHERE id = ?1",
    )?;
    let (mut packet, has_items, role) = statement.query_row([claimed.job.0], |row| {
        let extra: JobExtra = match row.get::<_, Option<String>>(4)? {
            Some(text) => parse(&text)?,
            None => JobExtra::default(),
        };
        let steps: Option<String> = row.get(3)?;
        let role = extra.map;
        let packet = AttemptPacket {
            id: claimed.attempt,
            token: claimed.token.clone(),
            job_id: claimed.job,
            job_name: row.get(0)?,
            run_id,
            attempt_id: i64::from(claimed.number),
            command: row.get(1)?,
            invocation_script: row.get(2)?,
            steps: steps.as_deref().map(parse).transpose()?,
            env: extra.env,
            num_cpus: i64::from(class.cpus),
            num_gpus: i64::from(class.gpus),
            num_nodes: i64::from(class.nodes),
            memory_bytes: signed(class.memory),
            time_limit_seconds: signed(class.time_limit()),
            is_limited_by_runtime: class.is_limited_by_runtime(),
            stdio: extra.stdio,
            output_files: Vec::new(),
            lists: extra.lists,
            strictness: extra.strictness,
            recovery: None,
        };
        Ok((packet, row.get::<_, bool>(5)?, role))
    })?;
    drop(statement);
    // What runs first is the consequence of a failure, so a first attempt has none.
    if claimed.number > 1 {
        let recovery: Option<String> = tx
            .db
            .prepare_cached("SELECT recovery FROM attempt WHERE id = ?1")?
            .query_row([claimed.attempt.0], |row| row.get(0))?;
        packet.recovery = recovery.as_deref().map(parse).transpose()?;
    }
    if has_items {
        packet.output_files = tx
            .db
            .prepare_cached(
                "SELECT f.name, f.path, f.min_size FROM job_item i JOIN file f ON f.id = i.item_id
                 WHERE i.job_id = ?1 AND i.kind = 'output_file' ORDER BY f.id",
            )?
            .query_map([claimed.job.0], |row| {
                Ok(FileRef { name: row.get(0)?, path: row.get(1)?, min_size: row.get(2)? })
            })?
            .collect::<Result<_, _>>()?;
        super::map::add_user_data(tx, &mut packet)?;
    }
    if let Some(role) = role {
        super::map::complete_packet(tx, claimed, &role, &mut packet)?;
    }
    Ok(packet)
}

/// The actions that the answer to a claim brings.
fn claim_actions(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    key: &str,
) -> Result<Vec<ActionPacket>, Failed> {
    if tx.workflow(id)?.has_no_actions() {
        return Ok(Vec::new());
    }
    let uptime = tx.uptime;
    let State { runners, workflows, .. } = &mut *tx.state;
    let (Some(known), Some(workflow)) = (runners.get_mut(&runner), workflows.get(&id)) else {
        return Ok(Vec::new());
    };
    let mut given = known.begin_actions(runner, workflow, key, uptime);
    tx.apply(id, |workflow, _, _| {
        workflow.give_actions(runner, &mut given);
        Ok(())
    })?;
    if let Some(known) = tx.state.runners.get_mut(&runner) {
        known.gave_actions(key, &given.ids, uptime);
    }
    action_packets(tx, &given.ids)
}

fn action_packets(tx: &Tx<'_>, ids: &[ActionId]) -> Result<Vec<ActionPacket>, Failed> {
    let mut statement =
        tx.db.prepare_cached("SELECT trigger_type, what FROM workflow_action WHERE id = ?1")?;
    let mut packets = Vec::new();
    for id in ids {
        let (trigger, what): (String, String) =
            statement.query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let what: ActionKind = parse(&what)?;
        if let Some(trigger) = Trigger::parse(&trigger) {
            packets.push(ActionPacket { id: *id, trigger, what });
        }
    }
    Ok(packets)
}

/// Orders to stop that the runner has not heard yet.
fn new_orders(tx: &mut Tx<'_>, id: WorkflowId, runner: RunnerId) -> Result<Vec<AttemptId>, Failed> {
    let orders = tx.workflow(id)?.orders_for(runner);
    let known = tx.state.runners.get_mut(&runner);
    Ok(match known {
        Some(known) => known.untold(orders),
        None => orders,
    })
}

/// One start.
pub fn start_one(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &StartReport,
) -> Result<ReportResult, Failed> {
    let attempt = report.attempt.id;
    let Some(index) = tx.workflow(id)?.may_report(attempt, runner, &report.attempt.token) else {
        return known_end(tx, &report.attempt, runner);
    };
    let status = tx.apply(id, |workflow, _, _| {
        workflow.started(index, report.pid, report.at_ms);
        Ok(workflow.job(index).status())
    })?;
    Ok(ReportResult {
        id: attempt,
        result: ReportVerdict::Accepted,
        outcome: None,
        job_status: Some(status),
    })
}

/// A start whose end follows in the same request: people hear of it, but its rows are left to the
/// end. Should the end not be accepted, they are written after all.
fn start_quietly(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &StartReport,
    starts: &mut HashMap<AttemptId, (i64, Vec<Change>)>,
) -> Result<ReportResult, Failed> {
    let attempt = report.attempt.id;
    let workflow = tx.workflow(id)?;
    let Some(index) = workflow.may_report(attempt, runner, &report.attempt.token) else {
        return known_end(tx, &report.attempt, runner);
    };
    workflow.started(index, report.pid, report.at_ms);
    let status = workflow.job(index).status();
    let (told, rows) = workflow
        .take_changes()
        .into_iter()
        .partition(|change| matches!(change, Change::Event { .. }));
    tx.write(id, told)?;
    starts.insert(attempt, (report.pid, rows));
    Ok(ReportResult {
        id: attempt,
        result: ReportVerdict::Accepted,
        outcome: None,
        job_status: Some(status),
    })
}

/// One end, with everything that follows from it.
pub fn complete_one(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &CompletionReport,
) -> Result<ReportResult, Failed> {
    end_one(tx, id, runner, report, None)
}

fn end_one(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &CompletionReport,
    start: Option<(i64, Vec<Change>)>,
) -> Result<ReportResult, Failed> {
    let attempt = report.attempt.id;
    let Some(index) = tx.workflow(id)?.may_report(attempt, runner, &report.attempt.token) else {
        if let Some((_, rows)) = start {
            tx.write(id, rows)?;
        }
        return late_end(tx, id, runner, report);
    };
    let mut end = End { pid: start.map(|(pid, _)| pid), ..end_of(report, tx.now) };
    super::map::before_end(tx, id, index, &mut end)?;
    let steps = end.steps.clone();
    let plan = match end.ending.cause {
        Some(_) => super::auto::judge(tx, id, attempt, &mut end)?,
        None => None,
    };
    let workflow = tx.workflow(id)?;
    let (job, cause) = (workflow.job(index).id(), end.ending.cause);
    let had_limits = !workflow.class_of(index).uses.is_empty();
    let ended = tx.apply(id, |workflow, limits, _| Ok(workflow.ended(index, end, limits)))?;
    if let Some(plan) = plan.filter(|_| ended.next == Some(Origin::Auto)) {
        super::auto::carry_out(tx, id, &plan)?;
    }
    let cause = if ended.status == JobStatus::Canceled { Some(Cause::Canceled) } else { cause };
    super::bad_nodes::ended(tx, id, runner, (job, attempt), cause, report.exec_seconds)?;
    if had_limits {
        // Others may have waited for what it had, in any workflow.
        tx.wake_all();
    }
    if let Some(steps) = steps {
        super::map::after_end(tx, id, index, attempt, &steps, report.cause.is_none())?;
    }
    Ok(ReportResult {
        id: attempt,
        result: ReportVerdict::Accepted,
        outcome: ended.outcome,
        job_status: Some(ended.status),
    })
}

fn end_of(report: &CompletionReport, now: i64) -> End {
    End {
        started_at: Some(report.started_ms),
        ending: report.ending(),
        usage: report.usage(),
        output: report.output(),
        observed: report.observed.clone(),
        script: report.script.clone(),
        steps: report.steps.clone(),
        ..End::new(EndedBy::Runner, now)
    }
}

/// A report about an attempt that is no longer the runner's: known already, or too late.
fn known_end(
    tx: &mut Tx<'_>,
    attempt: &AttemptRef,
    runner: RunnerId,
) -> Result<ReportResult, Failed> {
    let row = tx
        .db
        .prepare_cached(
            "SELECT a.token, a.compute_node_id, a.state, a.outcome, j.status, a.ended_by FROM attempt a JOIN job j ON j.id = a.job_id
             WHERE a.id = ?1",
        )?
        .query_row([attempt.id.0], |row| {
            let known = KnownEnd {
                token: row.get(0)?,
                runner: row.get::<_, Option<i64>>(1)?.map(RunnerId),
                state: page::word(row, "state", AttemptState::parse)?,
                ended_by: row.get::<_, Option<String>>(5)?.as_deref().and_then(EndedBy::parse),
            };
            Ok((known, row.get::<_, Option<String>>(3)?, row.get::<_, i64>(4)?))
        })
        .optional()?;
    let result =
        row.as_ref().map_or(ReportVerdict::Late, |(known, ..)| known.verdict(attempt, runner));
    let (outcome, job_status) = match row.filter(|_| result == ReportVerdict::Repeated) {
        Some((_, outcome, status)) => {
            (outcome.as_deref().and_then(Outcome::parse), JobStatus::from_code(status))
        }
        None => (None, None),
    };
    Ok(ReportResult { id: attempt.id, result, outcome, job_status })
}

fn late_end(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &CompletionReport,
) -> Result<ReportResult, Failed> {
    let known = known_end(tx, &report.attempt, runner)?;
    if known.result == ReportVerdict::Late {
        let attempt = report.attempt.id;
        // By the runner's clock: tells the doctor whether it ran beside its successor.
        let ended_ms = report.started_ms.saturating_add((report.exec_seconds * 1000.0) as i64);
        let data = serde_json::json!({
            "attempt": attempt, "runner_id": runner, "return_code": report.return_code, "cause": report.cause,
            "started_ms": report.started_ms, "ended_ms": ended_ms,
        });
        tx.write(id, vec![Change::Event { kind: EventKind::LateResult, job: None, data }])?;
    }
    Ok(known)
}

/// The workflow that a runner works for.
pub fn workflow_of(tx: &mut Tx<'_>, runner: RunnerId) -> Result<WorkflowId, Failed> {
    heard(tx, runner, None)
}

/// A runner is alive.
pub fn heartbeat(tx: &mut Tx<'_>, beat: &Heartbeat) -> Result<HeartbeatAnswer, Failed> {
    let id = heard(tx, beat.runner_id, None)?;
    let runner = beat.runner_id;
    let seen = tx.state.runners.step(runner, RunnerEvent::Beat);
    tx.write(id, seen)?;
    for told in &beat.step_events {
        if let Some(index) =
            tx.workflow(id)?.may_report(told.attempt.id, runner, &told.attempt.token)
        {
            super::step_events::while_running(tx, id, index, told)?;
        }
    }
    tx.apply(id, |workflow, limits, now| Ok(workflow.heartbeat(beat, limits, now)))
}

/// A runner leaves in good order. What it still holds is given up at once: it said itself that it
/// is going.
pub fn goodbye(
    tx: &mut Tx<'_>,
    runner: RunnerId,
    goodbye: &Goodbye,
) -> Result<GoodbyeAnswer, Failed> {
    let Some(known) = tx.state.runners.get(&runner) else {
        return Ok(GoodbyeAnswer::default());
    };
    let id = known.workflow;
    let lost = Lost {
        cause: Cause::Lost,
        evidence: Evidence {
            source: EvidenceSource::Journal,
            text: format!("its runner on {} left: {}", known.host, goodbye.reason),
        },
    };
    // It leaves in good order, so it has told the end of all it ran: what it was given in its last
    // moment never started.
    tx.apply(id, |workflow, limits, now| {
        workflow.leave_unstarted(runner, limits, now);
        Ok(())
    })?;
    end_runner(tx, runner, id, &lost, &goodbye.reason)?;
    super::allocations::runner_left(tx, runner, goodbye)?;
    // After the end, so that they are not taken back with the rest.
    let actions = tx.apply(id, |workflow, _, _| Ok(workflow.last_actions(runner)))?;
    Ok(GoodbyeAnswer { actions: action_packets(tx, &actions)? })
}

/// A runner is gone: its attempts end, its row is closed.
pub fn end_runner(
    tx: &mut Tx<'_>,
    runner: RunnerId,
    id: WorkflowId,
    lost: &Lost,
    reason: &str,
) -> Result<usize, Failed> {
    let ended =
        tx.apply(id, |workflow, limits, now| Ok(workflow.runner_lost(runner, lost, limits, now)))?;
    let pool = tx.state.runners.get(&runner).and_then(|known| known.pool);
    let changes = tx.state.runners.step(runner, RunnerEvent::Ended(reason.to_owned(), ended));
    tx.state.pools.runner_ended(runner, id, pool, tx.uptime);
    tx.write(id, changes)?;
    Ok(ended)
}

/// A runner executed an action.
pub fn complete_action(
    tx: &mut Tx<'_>,
    action: ActionId,
    report: &ActionReport,
) -> Result<(), Failed> {
    let id: Option<i64> = tx
        .db
        .prepare_cached("SELECT workflow_id FROM workflow_action WHERE id = ?1")?
        .query_row([action.0], |row| row.get(0))
        .optional()?;
    let id = WorkflowId(id.ok_or_else(|| Refusal::not_found("action", action.0))?);
    let error = match (&report.error, report.return_code) {
        (Some(error), _) => Some(error.clone()),
        (None, 0) => None,
        (None, code) => Some(format!("a command returned {code}")),
    };
    tx.apply(id, |workflow, _, _| {
        workflow.action_done(action, report.runner_id, error);
        Ok(())
    })
}
