//! What runners ask: register, claim, report, heartbeat, goodbye.

use super::journal::packets::{self, JobTexts};
use super::journal::{self, RunnerRow, attempts, signed};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use crate::boot::identity;
use std::collections::{HashMap, HashSet};
use tokio::sync::watch;
use torc_engine::commands::{
    self, Beat, ClaimAnswer, EndFacts, EndRunner, Hear, Leave, NoteLateEnd, OrderRunner, ReportEnd,
    ReportStart, Reported,
};
use torc_engine::{Burnt, Claimed, Command, KnownRunner, LEASE_MS, On};
use torc_model::api::{
    ActionPacket, ActionReport, AttemptPacket, AttemptRef, ClaimRequest, ClaimResponse,
    CompletionReport, ErrorCode, Goodbye, GoodbyeAnswer, Heartbeat, HeartbeatAnswer,
    RegisterRunner, ReportResult, ReportVerdict, RunnerRegistered, StartReport,
};
use torc_model::ids::{ActionId, AttemptId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::plan::Settings;
use torc_model::status::{Origin, RunnerOrder};
use torc_model::token::Key;
use torc_model::words;

/// A runner is shown as out of contact after this long without a word.
pub const LEASE_SECONDS: i64 = LEASE_MS / 1000;

/// A runner introduces itself.
pub fn register(tx: &mut Tx<'_>, request: &RegisterRunner) -> Result<RunnerRegistered, Failed> {
    check_registration(request)?;
    let id = request.workflow_id;
    let (run_id, settings) = {
        let workflow = tx.workflow(id)?;
        (workflow.run, workflow.settings.clone())
    };
    let known = journal::runners::registered(tx.db, &kept_key(request))?;
    // A runner that is seen from here, or by a batch system, needs no deadline: see `liveness`.
    let is_seen = identity::can_see(&request.hostname, &request.boot_id)
        || request.scheduler.as_ref().is_some_and(|s| s.allocation_id.is_some());
    let disown = (!is_seen).then_some(settings.disown_seconds as i64);
    let runner = match known {
        Some((known, workflow)) if workflow == id => known,
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
            let is_first = tx.state.engine.runners().of(id).next().is_none();
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
    if let Some(pool) = request.pool_runner_id {
        super::pool_runners::runner_came(tx, pool, request.workflow_id, id)?;
    }
    tx.handle(commands::RegisterRunner { id, runner })?;
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
    let workflow = tx.handle(Hear { runner: id, workflow })?;
    if let Some(pool) = pool_of(tx, id) {
        tx.state.pools.stir(pool);
    }
    Ok(workflow)
}

/// The pool runner that started a runner.
fn pool_of(tx: &Tx<'_>, runner: RunnerId) -> Option<PoolRunnerId> {
    tx.state.engine.runners().get(&runner)?.pool
}

/// Applies the reports, then gives work. Answers at once; waiting is the caller's part.
pub fn claim(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ClaimRequest,
    nonce: u64,
) -> Result<ClaimResponse, Failed> {
    heard(tx, request.runner_id, Some(id))?;
    let (started, completed) = reports(tx, id, request)?;
    let answer = match pool_of(tx, request.runner_id) {
        None => tx.handle(commands::Claim { workflow: id, request, nonce })?,
        Some(pool) => super::pool_runners::claim_in_turn(tx, pool, id, request, nonce)?,
    };
    let ClaimAnswer { attempts, actions, cancel, kept, is_complete, idle, leave, is_alone } =
        answer;
    let mut response = ClaimResponse {
        started,
        completed,
        actions: action_packets(tx, &actions)?,
        attempts: attempts.iter().map(|c| packet(tx, id, c)).collect::<Result<_, _>>()?,
        cancel,
        workflow_complete: is_complete,
        idle,
        leave,
        is_alone,
        ..ClaimResponse::default()
    };
    if response.attempts.is_empty() && request.limit > 0 {
        let why = match kept {
            Some(kept) => kept.text(),
            None => reason(tx.workflow(id)?, &response),
        };
        response.reason = Some(words::message(why));
    }
    Ok(response)
}

/// A runner of a pool is woken by itself for work: its pool runner is shared with others.
pub fn own_wakes(tx: &mut Tx<'_>, id: RunnerId) -> Option<watch::Receiver<u64>> {
    pool_of(tx, id)?;
    Some(tx.state.pools.runner_wakes(id))
}

/// Takes down what a person asks of a runner; None: that it works again.
pub fn order(
    tx: &mut Tx<'_>,
    runner: RunnerId,
    ordered: Option<RunnerOrder>,
) -> Result<(), Failed> {
    if !tx.state.engine.runners().contains_key(&runner) {
        return Err(match journal::runners::is_known(tx.db, runner)? {
            true => {
                let message = format!("compute node {runner} has left");
                Refusal::conflict(ErrorCode::RunnerEnded, message).into()
            }
            false => Refusal::not_found("compute node", runner.0).into(),
        });
    }
    tx.handle(OrderRunner { runner, ordered })
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
        let is_followed = ended.contains(&report.attempt.id);
        let result = start_one(tx, id, runner, report, is_followed)?;
        if is_followed && result.result == ReportVerdict::Accepted {
            starts.insert(report.attempt.id, report.pid);
        }
        started.push(result);
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

/// Everything an attempt needs: what the engine knows of it, and the texts from its job's row. One
/// search by key per job, because this is done for each of them.
fn packet(tx: &mut Tx<'_>, id: WorkflowId, claimed: &Claimed) -> Result<AttemptPacket, Failed> {
    let workflow = tx.workflow(id)?;
    let class = workflow.class_of(claimed.index).clone();
    let run_id = workflow.run;
    let JobTexts { name, command, invocation_script, steps, extra, has_items } =
        packets::job_texts(tx.db, claimed.job)?;
    let role = extra.map;
    let mut packet = AttemptPacket {
        id: claimed.attempt,
        token: claimed.token.clone(),
        job_id: claimed.job,
        job_name: name,
        run_id,
        attempt_id: i64::from(claimed.number),
        command,
        invocation_script,
        steps,
        env: extra.env,
        num_cpus: i64::from(class.cpus),
        num_gpus: i64::from(class.gpus),
        num_nodes: i64::from(class.nodes),
        memory_bytes: signed(class.memory),
        time_limit_seconds: signed(class.time_limit()),
        is_limited_by_runtime: class.is_limited_by_runtime(),
        stdio: extra.settings.stdio,
        output_files: Vec::new(),
        lists: extra.lists,
        strictness: extra.strictness,
        recovery: None,
    };
    // What runs first is the consequence of a failure, so a first attempt has none.
    if claimed.number > 1 {
        packet.recovery = packets::recovery(tx.db, claimed.attempt)?;
    }
    if has_items {
        packet.output_files = packets::output_files(tx.db, claimed.job)?;
        packet.env.extend(packets::user_data(tx.db, claimed.job)?);
    }
    if let Some(role) = role {
        super::map::complete_packet(tx, claimed, &role, &mut packet)?;
    }
    Ok(packet)
}

fn action_packets(tx: &Tx<'_>, ids: &[ActionId]) -> Result<Vec<ActionPacket>, Failed> {
    let packet = |id: &ActionId| {
        let found = journal::action(tx.db, *id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        Ok(ActionPacket { id: *id, trigger: found.trigger, what: found.what })
    };
    ids.iter().map(packet).collect()
}

/// One start. `is_followed`: its end comes in the same request.
pub fn start_one(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &StartReport,
    is_followed: bool,
) -> Result<ReportResult, Failed> {
    let Some(status) = tx.handle(On(id, ReportStart { runner, report, is_followed }))? else {
        return known_end(tx, &report.attempt, runner);
    };
    Ok(ReportResult {
        id: report.attempt.id,
        result: ReportVerdict::Accepted,
        outcome: None,
        job_status: Some(status),
    })
}

/// One end, with everything that follows from it. `started` is the process of a start that came in the
/// same request.
pub fn end_one(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    runner: RunnerId,
    report: &CompletionReport,
    started: Option<i64>,
) -> Result<ReportResult, Failed> {
    let attempt = &report.attempt;
    let (mut facts, mut plan) = (EndFacts::default(), None);
    if let Some(index) = tx.workflow(id)?.may_report(attempt.id, runner, &attempt.token) {
        facts.found = super::map::found_items(tx, id, index, report)?;
        if report.steps.is_some() {
            facts.steps_written = attempts::step_events(tx.db, attempt.id)?;
        }
        if report.cause.is_some() {
            (facts.judged, plan) = super::auto::judge(tx, id, report)?;
        }
    }
    let end = ReportEnd { workflow: id, runner, report, started, facts };
    let Some(Reported { ended, burnt }) = tx.handle(end)? else {
        return late_end(tx, id, runner, report);
    };
    if let Some(plan) = plan.filter(|_| ended.next == Some(Origin::Auto)) {
        super::auto::carry_out(tx, id, &plan)?;
    }
    if let Some(Burnt { attempts, quarantine }) = burnt {
        super::bad_nodes::quarantine(tx, id, runner, &attempts, quarantine)?;
    }
    Ok(ReportResult {
        id: attempt.id,
        result: ReportVerdict::Accepted,
        outcome: ended.outcome,
        job_status: Some(ended.status),
    })
}

/// A report about an attempt that is no longer the runner's: known already, or too late.
fn known_end(
    tx: &mut Tx<'_>,
    attempt: &AttemptRef,
    runner: RunnerId,
) -> Result<ReportResult, Failed> {
    let row = attempts::known_end(tx.db, attempt.id)?;
    let result =
        row.as_ref().map_or(ReportVerdict::Late, |(known, ..)| known.verdict(attempt, runner));
    let (outcome, job_status) = match row.filter(|_| result == ReportVerdict::Repeated) {
        Some((_, outcome, status)) => (outcome, status),
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
        tx.handle(On(id, NoteLateEnd { runner, report }))?;
    }
    Ok(known)
}

/// The workflow that a runner works for.
pub fn workflow_of(tx: &mut Tx<'_>, runner: RunnerId) -> Result<WorkflowId, Failed> {
    heard(tx, runner, None)
}

/// A runner is alive.
pub fn heartbeat(tx: &mut Tx<'_>, beat: &Heartbeat) -> Result<HeartbeatAnswer, Failed> {
    heard(tx, beat.runner_id, None)?;
    let told = beat.step_events.iter();
    let written: Vec<u64> =
        told.map(|told| attempts::step_events(tx.db, told.attempt.id)).collect::<Result<_, _>>()?;
    tx.handle(Beat { beat, written: &written })
}

/// A runner leaves in good order. What it still holds is given up at once: it said itself that it
/// is going.
pub fn goodbye(
    tx: &mut Tx<'_>,
    runner: RunnerId,
    goodbye: &Goodbye,
) -> Result<GoodbyeAnswer, Failed> {
    let Some(known) = tx.state.engine.runners().get(&runner) else {
        return Ok(GoodbyeAnswer::default());
    };
    let workflow = known.workflow;
    let leave = Leave { runner, workflow, reason: &goodbye.reason };
    let actions = end_runners(tx, workflow, &[runner], leave)?;
    super::allocations::runner_left(tx, runner, goodbye)?;
    Ok(GoodbyeAnswer { actions: action_packets(tx, &actions)? })
}

/// A runner is gone: its attempts end, its row is closed.
pub fn end_runner(tx: &mut Tx<'_>, gone: EndRunner<'_>) -> Result<usize, Failed> {
    end_runners(tx, gone.workflow, &[gone.runner], gone)
}

/// Carries out a command that may end these runners; pool runners hear of it.
pub fn end_runners<C: Command>(
    tx: &mut Tx<'_>,
    workflow: WorkflowId,
    runners: &[RunnerId],
    command: C,
) -> Result<C::Reply, Failed> {
    let pools: Vec<_> = runners.iter().map(|runner| (*runner, pool_of(tx, *runner))).collect();
    let reply = tx.handle(command)?;
    for (runner, pool) in pools {
        if !tx.state.engine.runners().contains_key(&runner) {
            tx.state.pools.runner_ended(runner, workflow, pool, tx.uptime);
        }
    }
    Ok(reply)
}

/// A runner executed an action.
pub fn complete_action(
    tx: &mut Tx<'_>,
    action: ActionId,
    report: &ActionReport,
) -> Result<(), Failed> {
    let known = journal::action(tx.db, action)?;
    let id = known.ok_or_else(|| Refusal::not_found("action", action.0))?.workflow;
    let error = match (&report.error, report.return_code) {
        (Some(error), _) => Some(error.clone()),
        (None, 0) => None,
        (None, code) => Some(format!("a command returned {code}")),
    };
    tx.handle(On(id, commands::ReportAction { action, runner: report.runner_id, error }))
}
