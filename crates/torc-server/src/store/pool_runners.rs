//! What pool runners ask: to be known, which workflow to serve next, and to leave.

use super::journal;
use super::pools::{Look, Member, Pool, PoolTurn, SILENT_MS};
use super::read::Audience;
use super::refusal::Refusal;
use super::writer::{Failed, State, Tx};
use tokio::sync::watch;
use torc_engine::Claimed;
use torc_engine::commands::{
    BeginClaim, ClaimAnswer, FinishClaim, KeptFromWork, TakeJobs, most_attempts,
};
use torc_model::api::{
    ClaimRequest, ErrorCode, PoolClaimRequest, PoolClaimResponse, RegisterPoolRunner, ShareView,
};
use torc_model::chance;
use torc_model::ids::{PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::RunnerOrder;

/// A weight beyond this is a slip.
const MAX_WEIGHT: f64 = 1000.0;

/// A pool runner introduces itself, in the name of a user; None: of the server's owner.
pub fn register(
    tx: &mut Tx<'_>,
    request: &RegisterPoolRunner,
    user: Option<&str>,
) -> Result<PoolRunnerId, Failed> {
    if request.key.is_empty() || request.key.len() > 256 {
        return Err(Refusal::invalid("key", "the key has 1 to 256 characters").into());
    }
    super::names::check_line("hostname", &request.hostname)?;
    super::names::check_line("label", request.label.as_deref().unwrap_or(""))?;
    let key = crate::secret::hash_text(&request.key);
    let id = journal::insert_pool_runner(tx.db, &key, user, request, tx.now)?;
    let Some(id) = id else {
        let message = "a pool runner of another user registered with the same key";
        return Err(Refusal::conflict(ErrorCode::WrongWorkflow, message)
            .hint("use a new key")
            .into());
    };
    known(tx, id)?;
    Ok(id)
}

/// A pool runner that has not left; its word is noted.
fn known<'a>(tx: &'a mut Tx<'_>, id: PoolRunnerId) -> Result<&'a mut Member, Failed> {
    let uptime = tx.uptime;
    if !tx.state.pools.members.contains_key(&id) {
        let member = read(tx, id)?;
        let shares = journal::runners::shares(tx.db)?;
        tx.state.pools.shares.set_weights(shares);
        tx.state.pools.insert(id, member);
    }
    let member = tx.state.pools.members.get_mut(&id).ok_or_else(|| has_ended(id))?;
    member.heard = uptime;
    tx.state.pools.stir(id);
    tx.state.pools.members.get_mut(&id).ok_or_else(|| has_ended(id).into())
}

fn has_ended(id: PoolRunnerId) -> Refusal {
    let message = format!("pool runner {id} is not known or has ended");
    Refusal::conflict(ErrorCode::RunnerEnded, message).hint("register again")
}

/// As its row and those of its runners say.
fn read(tx: &Tx<'_>, id: PoolRunnerId) -> Result<Member, Failed> {
    let row = journal::runners::pool_runner(tx.db, id)?.filter(|row| !row.has_ended);
    let row = row.ok_or_else(|| has_ended(id))?;
    let pool: Pool = row.user.map(Into::into);
    let mut member = Member::new(pool, row.host, row.capacity, row.label);
    member.ordered = row.ordered;
    let own = tx.state.engine.runners().iter().filter(|(_, runner)| runner.pool == Some(id));
    member.runners = own.map(|(runner, known)| (known.workflow, *runner)).collect();
    Ok(member)
}

/// What a pool runner that gets no answer waits for.
pub struct PoolWait {
    /// Hears when to look again.
    pub wakes: watch::Receiver<u64>,
    /// After this many milliseconds a workflow counts again that was left out here.
    pub at_most_ms: Option<i64>,
}

/// Which workflow a pool runner should begin to serve, or what it waits for.
pub fn claim(
    tx: &mut Tx<'_>,
    id: PoolRunnerId,
    request: &PoolClaimRequest,
    audience: &Audience,
) -> Result<(PoolClaimResponse, Option<PoolWait>), Failed> {
    let member = known(tx, id)?;
    member.audience = Some(audience.clone());
    let ordered = member.ordered;
    journal::pool_runner_seen(tx.db, id, tx.now)?;
    let uptime = tx.uptime;
    for workflow in &request.unable {
        tx.state.pools.leave_out(id, *workflow, uptime);
    }
    let leave = ordered == Some(RunnerOrder::Remove);
    let (pools, look) = split(tx.state, uptime);
    // Subscribed before the look, so that nothing falls between the two.
    let wakes = pools.wakes(id);
    let workflow_id = if leave { None } else { pools.grant(&look, id) };
    let is_answer = leave || workflow_id.is_some();
    let at_most_ms = pools.left_out_until(id).map(|until| until - uptime);
    let wait = wakes.filter(|_| !is_answer).map(|wakes| PoolWait { wakes, at_most_ms });
    Ok((PoolClaimResponse { workflow_id, leave }, wait))
}

fn split(state: &mut State, now: i64) -> (&mut super::pools::Pools, Look<'_>) {
    let State { pools, engine, .. } = state;
    (pools, Look::new(engine, now))
}

/// A pool runner leaves. Its runners have left, or go on without it.
pub fn goodbye(tx: &mut Tx<'_>, id: PoolRunnerId, reason: &str) -> Result<(), Failed> {
    end(tx, id, reason)
}

fn end(tx: &mut Tx<'_>, id: PoolRunnerId, reason: &str) -> Result<(), Failed> {
    journal::end_pool_runner(tx.db, id, reason, tx.now)?;
    tx.state.pools.remove(id, tx.uptime);
    Ok(())
}

/// Takes down what a person asks of a pool runner; None: that it works again.
pub fn order(
    tx: &mut Tx<'_>,
    id: PoolRunnerId,
    ordered: Option<RunnerOrder>,
) -> Result<(), Failed> {
    if !journal::order_pool_runner(tx.db, id, ordered)? {
        let there = journal::runners::pool_runner(tx.db, id)?;
        return Err(match there {
            Some(_) => {
                let message = format!("pool runner {id} has left");
                Refusal::conflict(ErrorCode::RunnerEnded, message).into()
            }
            None => Refusal::not_found("pool runner", id.0).into(),
        });
    }
    if let Some(member) = tx.state.pools.members.get_mut(&id) {
        member.ordered = ordered;
    }
    tx.state.pools.nudge(id);
    tx.wake_all();
    Ok(())
}

/// Ends pool runners that have not been heard for so long that they would have asked many times.
/// They hold nothing, and one that lives registers again.
pub fn end_silent(tx: &mut Tx<'_>) -> Result<(), Failed> {
    const SILENT_TOO_LONG_MS: i64 = 10 * SILENT_MS;
    for id in journal::runners::live_pool_runners(tx.db)? {
        let heard = tx.state.pools.members.get(&id).map_or(0, |member| member.heard);
        if heard.max(tx.state.boot) + SILENT_TOO_LONG_MS < tx.uptime {
            end(tx, id, "it was silent for too long")?;
        }
    }
    Ok(())
}

/// The weights that were set.
pub fn shares(tx: &Tx<'_>) -> Result<Vec<ShareView>, Failed> {
    let mut shares: Vec<ShareView> = journal::runners::shares(tx.db)?
        .into_iter()
        .map(|(user, weight)| ShareView { user, weight })
        .collect();
    shares.sort_by(|a, b| a.user.cmp(&b.user));
    Ok(shares)
}

/// Sets the weight of a user.
pub fn set_share(tx: &mut Tx<'_>, user: &str, weight: f64) -> Result<ShareView, Failed> {
    super::names::check_line("user", user)?;
    if !(weight > 0.0 && weight <= MAX_WEIGHT) {
        let message = format!("`{weight}` is not more than 0 and at most {MAX_WEIGHT}");
        return Err(Refusal::invalid("weight", message).into());
    }
    journal::put_share(tx.db, user, weight)?;
    let all = journal::runners::shares(tx.db)?;
    tx.state.pools.shares.set_weights(all);
    Ok(ShareView { user: user.to_owned(), weight })
}

/// A runner that a pool runner started has come.
pub fn runner_came(
    tx: &mut Tx<'_>,
    id: PoolRunnerId,
    workflow: WorkflowId,
    runner: RunnerId,
) -> Result<(), Failed> {
    known(tx, id)?.runners.insert(workflow, runner);
    Ok(())
}

/// The same, before it is known by its id: its pool runner must be there.
pub fn check(tx: &mut Tx<'_>, id: PoolRunnerId) -> Result<(), Failed> {
    known(tx, id).map(drop)
}

/// A claim of a runner of a pool.
pub fn claim_in_turn(
    tx: &mut Tx<'_>,
    pool: PoolRunnerId,
    workflow: WorkflowId,
    request: &ClaimRequest,
    nonce: u64,
) -> Result<ClaimAnswer, Failed> {
    let pool_order = tx.state.pools.members.get(&pool).and_then(|member| member.ordered);
    let mut begun = tx.handle(BeginClaim { workflow, request, pool_order })?;
    if begun.may_take {
        match take_in_turn(tx, pool, workflow, request, nonce)? {
            Some(given) => begun.attempts = given,
            None => begun.kept = Some(KeptFromWork::OthersFirst),
        }
    }
    tx.handle(FinishClaim { workflow, request, pool_order, begun })
}

/// Gives jobs to a runner of a pool, one at a time, for as long as it is its workflow's turn. None: others
/// come first.
fn take_in_turn(
    tx: &mut Tx<'_>,
    pool: PoolRunnerId,
    id: WorkflowId,
    request: &ClaimRequest,
    nonce: u64,
) -> Result<Option<Vec<Claimed>>, Failed> {
    let (now, runner) = (tx.uptime, request.runner_id);
    let limit = most_attempts(request.limit);
    let mut given = Vec::new();
    account(tx, pool, id, runner);
    tx.state.pools.keep_promise(pool, id, now);
    while given.len() < limit {
        let (pools, look) = split(tx.state, now);
        let turn = pools.turn(&look, pool);
        if turn.is_some_and(|turn| turn != PoolTurn::Now(id)) {
            pools.close_gate(pool, id);
            return Ok((!given.is_empty()).then_some(given));
        }
        let capacity = pools.capacity_for(look.workflows, pool, id);
        let Some(capacity) = capacity else { return Ok(Some(given)) };
        let more = tx.handle(TakeJobs {
            workflow: id,
            request,
            limit: 1,
            prefetch: 0,
            capacity: &capacity,
            nonce: chance::nth(nonce, given.len() as u64),
        })?;
        if more.is_empty() {
            if turn.is_some() && given.is_empty() {
                tx.state.pools.pass_over(pool, id, now);
            }
            break;
        }
        given.extend(more);
        tx.state.pools.served(id, now);
        account(tx, pool, id, runner);
    }
    Ok(Some(given))
}

/// Takes down what a runner of a pool holds.
fn account(tx: &mut Tx<'_>, pool: PoolRunnerId, id: WorkflowId, runner: RunnerId) {
    let State { pools, engine, .. } = &mut *tx.state;
    pools.account(engine.workflows(), runner, pool, id, tx.uptime);
}
