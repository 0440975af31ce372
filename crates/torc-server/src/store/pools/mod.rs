//! Pools: runners that serve every workflow that their token may see.
//!
//! ```text
//!   pool runner ──► which workflow next? ──► grant: it starts a runner for that workflow
//!   its runners ──► claim, as every runner does ──► the gate: is it this workflow's turn here?
//! ```
//!
//! A pool runner holds no job. For each workflow that it serves it starts a runner of its own, so that
//! everything about attempts is as with any other runner; all its runners share one capacity. Who is
//! served next is decided here, by [`Shares`], in the transaction of each claim. Only workflows with
//! work that could start now are in the index: those without cost nothing.
//!
//! All of this can be made again from the rows, but for the accounts, which start from zero.

mod shares;

pub use shares::{Pool, Shares};

use super::read::{Audience, Sharers, sharers_of};
use super::writer::Runner;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;
use torc_engine::{Reservations, Workflow};
use torc_model::api::Capacity;
use torc_model::ids::{PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::{JobStatus, RunnerOrder};

/// A pool runner that was told to serve a workflow has this long to begin.
const PROMISE_MS: i64 = 20_000;
/// A workflow that a pool runner could not serve is left out there for so long.
const UNABLE_MS: i64 = 60_000;
/// A workflow whose jobs could not start although it was their turn (a limit is used up, a retry avoids
/// the machine) is passed over for so long.
const DRY_MS: i64 = 10_000;
/// Work that fits only where much more is free waits this long; then one pool runner is kept for it.
const STARVING_MS: i64 = 30_000;
/// Runners that one pool runner has at the same time: each is a process.
const MAX_RUNNERS: usize = 64;
/// A pool runner that was silent for longer does not hold its runners up: it starts none.
pub const SILENT_MS: i64 = 90_000;

type Workflows = HashMap<WorkflowId, Workflow>;

/// A pool runner.
#[derive(Debug)]
pub struct Member {
    /// Whose it is.
    pub pool: Pool,
    /// Host name.
    pub host: String,
    /// What it has.
    pub capacity: Capacity,
    /// Its labels.
    pub label: Option<String>,
    /// Which workflows it may see. None: not known since the start of this server.
    pub audience: Option<Audience>,
    /// Last word from it, by the monotonic clock.
    pub heard: i64,
    /// What a person asked of it.
    pub ordered: Option<RunnerOrder>,
    /// Its runners.
    pub runners: BTreeMap<WorkflowId, RunnerId>,
    /// Left out until then.
    left_out: HashMap<WorkflowId, i64>,
    /// Workflows whose runner here was told that others come first.
    gated: BTreeSet<WorkflowId>,
    /// What it is told when it asks next.
    offer: Option<WorkflowId>,
    /// Wakes its request, if one waits.
    wake: watch::Sender<u64>,
}

impl Member {
    /// One that has just come, or is known from its row.
    pub fn new(pool: Pool, host: String, capacity: Capacity, label: Option<String>) -> Self {
        Self {
            pool,
            host,
            capacity,
            label,
            audience: None,
            heard: 0,
            ordered: None,
            runners: BTreeMap::new(),
            left_out: HashMap::new(),
            gated: BTreeSet::new(),
            offer: None,
            wake: watch::Sender::new(0),
        }
    }

    fn is_left_out(&self, id: WorkflowId, now: i64) -> bool {
        self.left_out.get(&id).is_some_and(|until| *until > now)
    }

    fn may_see(&self, id: WorkflowId, sharers: &Sharers) -> bool {
        match &self.audience {
            None => self.runners.contains_key(&id),
            Some(Audience::All) => true,
            Some(Audience::User(user)) => {
                **user == *sharers.owner || sharers.members.contains(&**user)
            }
            Some(Audience::Group(group)) => sharers.groups.contains(group),
        }
    }
}

/// A workflow with work that could start.
#[derive(Debug)]
struct Ready {
    owner: Arc<str>,
    sharers: Sharers,
    /// When a pool last took something of it: among workflows of one owner the longest ago is first.
    turn: u64,
    /// Since when nothing of it was taken.
    since: i64,
}

/// A grant that was not taken up yet. It counts as a CPU that its owner holds: pool runners that ask
/// at the same moment must not all be sent to the owner who comes first.
#[derive(Debug)]
struct Promise {
    pool: Pool,
    owner: Arc<str>,
    until: i64,
}

/// What a promise counts in its owner's account.
const PROMISED_CPUS: f64 = 1.0;

/// What a runner of a pool holds, as its owner's account knows it.
#[derive(Debug)]
struct Holding {
    pool: Pool,
    owner: Arc<str>,
    cpus: f64,
}

/// What of a pool runner is in use.
#[derive(Default, Debug)]
struct Load {
    cpus: i64,
    memory: i64,
    jobs: i64,
    gpus: i64,
    /// GPUs go to one workflow at a time: each runner chooses among all of them by itself.
    gpus_of: Option<WorkflowId>,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// This workflow has jobs that could start at once.
    Now(WorkflowId),
    /// It waits for more room, which is kept for it.
    Kept(WorkflowId),
}

/// What is known of pools.
#[derive(Default, Debug)]
pub struct Pools {
    pub(super) members: BTreeMap<PoolRunnerId, Member>,
    pub(super) shares: Shares,
    ready: HashMap<WorkflowId, Ready>,
    by_owner: BTreeMap<Arc<str>, BTreeSet<(u64, WorkflowId)>>,
    /// Grants that were not taken up yet.
    promises: HashMap<WorkflowId, HashMap<PoolRunnerId, Promise>>,
    holdings: HashMap<RunnerId, Holding>,
    /// Pool runners that are kept for work that needs much room.
    kept: HashMap<WorkflowId, PoolRunnerId>,
    turns: u64,
    /// The index must be made anew.
    is_stale: bool,
}

impl Pools {
    /// There is a pool runner, so that the rest is kept up.
    fn is_used(&self) -> bool {
        !self.members.is_empty()
    }

    /// Owners, groups or the engine's copies have changed.
    pub fn forget_index(&mut self) {
        self.is_stale = true;
    }

    /// A pool runner that came, or was not known since the start of the server.
    pub fn insert(&mut self, id: PoolRunnerId, member: Member) {
        self.is_stale |= !self.is_used();
        self.members.insert(id, member);
    }

    /// A pool runner is gone.
    pub fn remove(&mut self, id: PoolRunnerId, now: i64) {
        self.members.remove(&id);
        self.kept.retain(|_, member| *member != id);
        let promised: Vec<WorkflowId> = self.promises.keys().copied().collect();
        promised.into_iter().for_each(|workflow| self.keep_promise(id, workflow, now));
    }

    /// A receiver that hears when the pool runner should ask again.
    pub fn wakes(&self, id: PoolRunnerId) -> Option<watch::Receiver<u64>> {
        self.members.get(&id).map(|member| member.wake.subscribe())
    }

    /// Wakes the request of a pool runner.
    pub fn nudge(&self, id: PoolRunnerId) {
        if let Some(member) = self.members.get(&id) {
            member.wake.send_modify(|version| *version += 1);
        }
    }

    /// A pool runner could not serve a workflow.
    pub fn leave_out(&mut self, id: PoolRunnerId, workflow: WorkflowId, now: i64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.left_out.insert(workflow, now + UNABLE_MS);
        }
        self.keep_promise(id, workflow, now);
    }

    /// The jobs of a workflow could not start on a pool runner although it was their turn.
    pub fn pass_over(&mut self, id: PoolRunnerId, workflow: WorkflowId, now: i64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.left_out.insert(workflow, now + DRY_MS);
        }
        self.kept.remove(&workflow);
    }

    /// The runner of a workflow has come and asked, or will not come: the promise counts no more.
    pub fn keep_promise(&mut self, id: PoolRunnerId, workflow: WorkflowId, now: i64) {
        let Some(promised) = self.promises.get_mut(&workflow) else { return };
        if let Some(Promise { pool, owner, .. }) = promised.remove(&id) {
            self.shares.hold(&pool, &owner, -PROMISED_CPUS, now);
        }
        if promised.is_empty() {
            self.promises.remove(&workflow);
        }
    }

    /// A runner of a pool runner was told that others come first.
    pub fn close_gate(&mut self, id: PoolRunnerId, workflow: WorkflowId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.gated.insert(workflow);
        }
    }

    /// Something of a workflow was given to a pool.
    pub fn served(&mut self, workflow: WorkflowId, now: i64) {
        self.kept.remove(&workflow);
        let Some(ready) = self.ready.get_mut(&workflow) else { return };
        self.turns += 1;
        if let Some(set) = self.by_owner.get_mut(&ready.owner) {
            set.remove(&(ready.turn, workflow));
            set.insert((self.turns, workflow));
        }
        (ready.turn, ready.since) = (self.turns, now);
    }

    /// Takes down what a runner of a pool holds now.
    pub fn account(
        &mut self,
        workflows: &Workflows,
        runner: RunnerId,
        member: PoolRunnerId,
        id: WorkflowId,
        now: i64,
    ) {
        let Some(pool) = self.members.get(&member).map(|member| member.pool.clone()) else {
            return;
        };
        let held = workflows.get(&id).map_or(0.0, |workflow| {
            let cpus = |index| f64::from(workflow.class_of(index).cpus.max(1));
            workflow.held_by(runner).map(cpus).sum()
        });
        if !self.holdings.contains_key(&runner) {
            let Some(owner) = self.ready.get(&id).map(|ready| ready.owner.clone()) else { return };
            self.holdings.insert(runner, Holding { pool, owner, cpus: 0.0 });
        }
        if let Some(holding) = self.holdings.get_mut(&runner) {
            let change = held - std::mem::replace(&mut holding.cpus, held);
            if change != 0.0 {
                self.shares.hold(&holding.pool, &holding.owner, change, now);
            }
        }
    }

    /// A runner has ended.
    pub fn runner_ended(&mut self, runner: RunnerId, id: WorkflowId, now: i64) {
        if let Some(Holding { pool, owner, cpus }) = self.holdings.remove(&runner) {
            self.shares.hold(&pool, &owner, -cpus, now);
            if !self.by_owner.contains_key(&owner) {
                self.shares.rest(&owner);
            }
        }
        for member in self.members.values_mut() {
            if member.runners.get(&id) == Some(&runner) {
                member.runners.remove(&id);
                member.gated.remove(&id);
            }
        }
    }

    /// What the runner of a workflow may use: all that its pool runner has, without what its other
    /// runners hold.
    pub fn capacity_for(
        &self,
        workflows: &Workflows,
        id: PoolRunnerId,
        workflow: WorkflowId,
    ) -> Option<Capacity> {
        let member = self.members.get(&id)?;
        let load = load(member, workflows, Some(workflow));
        Some(rest(&member.capacity, &load, workflow))
    }

    /// The owners with work, those first who come first.
    fn owners(&mut self, pool: &Pool, now: i64) -> Vec<(f64, Arc<str>)> {
        let owners: Vec<Arc<str>> = self.by_owner.keys().cloned().collect();
        let mut places: Vec<(f64, Arc<str>)> =
            owners.into_iter().map(|owner| (self.shares.place(pool, &owner, now), owner)).collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        places
    }

    /// Whose turn it is on this pool runner. `is_new`: among workflows that it does not serve yet.
    fn choose(&mut self, look: &Look<'_>, id: PoolRunnerId, is_new: bool) -> Option<Turn> {
        let now = look.now;
        let member = self.members.get(&id)?;
        if member.ordered.is_some() || self.by_owner.is_empty() {
            return None;
        }
        let load = load(member, look.workflows, None);
        if load.is_full(&member.capacity) {
            return None;
        }
        let pool = member.pool.clone();
        for (_, owner) in self.owners(&pool, now) {
            let member = self.members.get(&id)?;
            let set = self.by_owner.get(&owner).into_iter().flatten();
            for workflow in set.map(|(_, workflow)| *workflow) {
                let Some(ready) = self.ready.get(&workflow) else { continue };
                let Some(engine) = look.workflows.get(&workflow) else { continue };
                if member.is_left_out(workflow, now)
                    || !is_new && look.is_stuck(member, workflow)
                    || !member.may_see(workflow, &ready.sharers)
                    || look.reservations.pausing(workflow, now).is_some()
                {
                    continue;
                }
                let label = member.label.as_deref();
                if engine.has_ready_for(&rest(&member.capacity, &load, workflow), label) {
                    if is_new && !self.wants_another(engine, member, id, workflow, now) {
                        continue;
                    }
                    self.shares.advance(&pool, &owner);
                    return Some(Turn::Now(workflow));
                }
                let is_starving = ready.since + STARVING_MS <= now
                    && self.kept.get(&workflow).is_none_or(|kept| *kept == id)
                    && engine.has_ready_for(&member.capacity, label);
                if is_starving {
                    self.kept.insert(workflow, id);
                    return Some(Turn::Kept(workflow));
                }
            }
        }
        None
    }

    /// This pool runner could begin to serve a workflow, and those that were told to do not suffice.
    fn wants_another(
        &self,
        engine: &Workflow,
        member: &Member,
        id: PoolRunnerId,
        workflow: WorkflowId,
        now: i64,
    ) -> bool {
        let promised = self.promises.get(&workflow);
        let live = |promise: &&Promise| promise.until > now;
        let count = promised.map_or(0, |promised| promised.values().filter(live).count());
        !member.runners.contains_key(&workflow)
            && member.runners.len() < MAX_RUNNERS
            && promised.and_then(|promised| promised.get(&id)).is_none()
            && count < engine.counts()[JobStatus::Ready as usize] as usize
    }

    /// Whose turn it is on a pool runner.
    pub fn turn(&mut self, look: &Look<'_>, id: PoolRunnerId) -> Option<Turn> {
        self.choose(look, id, false)
    }

    /// The workflow that a pool runner should begin to serve.
    pub fn grant(&mut self, look: &Look<'_>, id: PoolRunnerId) -> Option<WorkflowId> {
        self.give_up_promises(id, look.now);
        if let Some(offer) = self.members.get_mut(&id)?.offer.take() {
            return Some(offer);
        }
        let Some(Turn::Now(workflow)) = self.choose(look, id, true) else { return None };
        let pool = self.members.get(&id)?.pool.clone();
        let owner = self.ready.get(&workflow)?.owner.clone();
        self.shares.hold(&pool, &owner, PROMISED_CPUS, look.now);
        let promise = Promise { pool, owner, until: look.now + PROMISE_MS };
        self.promises.entry(workflow).or_default().insert(id, promise);
        Some(workflow)
    }

    /// What a pool runner was told to serve, and has not begun in time, it cannot serve.
    fn give_up_promises(&mut self, id: PoolRunnerId, now: i64) {
        let is_late = |promised: &HashMap<PoolRunnerId, Promise>| {
            promised.get(&id).is_some_and(|promise| promise.until <= now)
        };
        let late: Vec<WorkflowId> =
            self.promises.iter().filter(|(_, all)| is_late(all)).map(|(id, _)| *id).collect();
        late.iter().for_each(|workflow| self.keep_promise(id, *workflow, now));
        let Some(member) = self.members.get_mut(&id) else { return };
        member.left_out.retain(|_, until| *until > now);
        for workflow in late.into_iter().filter(|id| !member.runners.contains_key(id)) {
            member.left_out.insert(workflow, now + UNABLE_MS);
        }
    }

    /// Takes in what a commit has changed, and wakes those for whom there is something now. `wake` wakes
    /// the waiting claims of a workflow.
    pub fn after_commit(
        &mut self,
        db: &Connection,
        look: &Look<'_>,
        touched: &BTreeSet<WorkflowId>,
        mut wake: impl FnMut(WorkflowId),
    ) -> rusqlite::Result<()> {
        if !self.is_used() {
            return Ok(());
        }
        if std::mem::take(&mut self.is_stale) {
            self.index_all(db, look)?;
        } else {
            for id in touched {
                self.index(db, look, *id)?;
            }
        }
        if self.ready.is_empty() {
            return Ok(());
        }
        self.open_gates(look, touched, &mut wake);
        self.offer(look);
        Ok(())
    }

    fn index_all(&mut self, db: &Connection, look: &Look<'_>) -> rusqlite::Result<()> {
        let known: Vec<WorkflowId> = self.ready.keys().copied().collect();
        let since: HashMap<WorkflowId, i64> =
            self.ready.iter().map(|(id, ready)| (*id, ready.since)).collect();
        known.into_iter().for_each(|id| self.forget(id, look.now));
        // A registration may have been taken back with its transaction.
        for member in self.members.values_mut() {
            member.runners.retain(|_, runner| look.runners.contains_key(runner));
        }
        for id in look.workflows.keys() {
            self.index(db, look, *id)?;
        }
        for (id, since) in since {
            if let Some(ready) = self.ready.get_mut(&id) {
                ready.since = since;
            }
        }
        Ok(())
    }

    fn index(&mut self, db: &Connection, look: &Look<'_>, id: WorkflowId) -> rusqlite::Result<()> {
        let has_work = look.workflows.get(&id).is_some_and(Workflow::has_ready);
        if !has_work {
            self.forget(id, look.now);
            return Ok(());
        }
        if self.ready.contains_key(&id) {
            return Ok(());
        }
        let Some(sharers) = sharers_of(db, id)? else { return Ok(()) };
        let owner: Arc<str> = sharers.owner.as_str().into();
        self.by_owner.entry(owner.clone()).or_default().insert((0, id));
        self.ready.insert(id, Ready { owner, sharers, turn: 0, since: look.now });
        Ok(())
    }

    fn forget(&mut self, id: WorkflowId, now: i64) {
        let Some(ready) = self.ready.remove(&id) else { return };
        self.kept.remove(&id);
        for Promise { pool, owner, .. } in
            self.promises.remove(&id).into_iter().flat_map(HashMap::into_values)
        {
            self.shares.hold(&pool, &owner, -PROMISED_CPUS, now);
        }
        let Some(set) = self.by_owner.get_mut(&ready.owner) else { return };
        set.remove(&(ready.turn, id));
        if set.is_empty() {
            self.by_owner.remove(&ready.owner);
            self.shares.rest(&ready.owner);
        }
    }

    /// Runners that were told to wait for others look again when it is their turn, and so do those whose
    /// pool runner has room again because of another of its runners.
    fn open_gates(
        &mut self,
        look: &Look<'_>,
        touched: &BTreeSet<WorkflowId>,
        wake: &mut impl FnMut(WorkflowId),
    ) {
        let is_stirred = |member: &Member| {
            !member.gated.is_empty()
                || member.runners.len() > 1 && member.runners.keys().any(|id| touched.contains(id))
        };
        let stirred: Vec<PoolRunnerId> =
            self.members.iter().filter(|(_, m)| is_stirred(m)).map(|(id, _)| *id).collect();
        for id in stirred {
            let Some(Turn::Now(workflow)) = self.turn(look, id) else { continue };
            let Some(member) = self.members.get_mut(&id) else { continue };
            let was_gated = member.gated.remove(&workflow);
            if member.runners.contains_key(&workflow) && (was_gated || !touched.contains(&workflow))
            {
                wake(workflow);
            }
        }
    }

    /// Offers work to pool runners that wait for it: to as many as it takes, and no more.
    fn offer(&mut self, look: &Look<'_>) {
        let waits = |member: &Member| member.wake.receiver_count() > 0 && member.offer.is_none();
        let waiting: Vec<PoolRunnerId> =
            self.members.iter().filter(|(_, m)| waits(m)).map(|(id, _)| *id).collect();
        let mut refused: Vec<PoolRunnerId> = Vec::new();
        for id in waiting {
            // What an empty pool runner cannot be given, others like it cannot either.
            if refused.iter().any(|other| self.are_alike(*other, id)) {
                continue;
            }
            match self.grant(look, id) {
                Some(workflow) => {
                    if let Some(member) = self.members.get_mut(&id) {
                        member.offer = Some(workflow);
                    }
                    self.nudge(id);
                }
                None => refused.push(id),
            }
        }
    }

    fn are_alike(&self, one: PoolRunnerId, other: PoolRunnerId) -> bool {
        let (Some(one), Some(other)) = (self.members.get(&one), self.members.get(&other)) else {
            return false;
        };
        let is_plain = |member: &Member| {
            member.runners.is_empty() && member.left_out.is_empty() && member.ordered.is_none()
        };
        is_plain(one)
            && is_plain(other)
            && one.pool == other.pool
            && one.audience == other.audience
            && one.label == other.label
            && one.capacity == other.capacity
    }

    /// Pool runners whose request waits.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.members.values().map(|member| member.wake.receiver_count()).sum()
    }

    /// Workflows that a choice looks at.
    #[cfg(test)]
    pub fn indexed(&self) -> usize {
        self.ready.len()
    }

    /// Pool runners that could take work with this label from this workflow, if they were empty.
    pub fn able<'a>(
        &'a self,
        id: WorkflowId,
        sharers: &'a Sharers,
    ) -> impl Iterator<Item = (PoolRunnerId, &'a Member)> {
        self.members
            .iter()
            .filter(move |(_, member)| member.may_see(id, sharers))
            .map(|(id, member)| (*id, member))
    }
}

/// What a decision looks at besides the pools themselves.
pub struct Look<'a> {
    pub workflows: &'a Workflows,
    pub runners: &'a HashMap<RunnerId, Runner>,
    pub reservations: &'a Reservations,
    /// By the monotonic clock.
    pub now: i64,
}

impl Look<'_> {
    /// No process that lives would take the work of this workflow on this pool runner: others must not
    /// wait for it.
    fn is_stuck(&self, member: &Member, workflow: WorkflowId) -> bool {
        let heard = match member.runners.get(&workflow) {
            Some(runner) => self.runners.get(runner).and_then(|runner| runner.heard),
            None => Some(member.heard),
        };
        heard.is_none_or(|heard| heard + SILENT_MS < self.now)
    }
}

impl Load {
    fn is_full(&self, capacity: &Capacity) -> bool {
        capacity.max_parallel_jobs.is_some_and(|most| self.jobs >= most)
            || !capacity.ignore_resources && self.cpus >= capacity.num_cpus
    }
}

/// What the runners of a pool runner hold, but for that of one workflow.
fn load(member: &Member, workflows: &Workflows, without: Option<WorkflowId>) -> Load {
    let mut load = Load::default();
    for (id, runner) in &member.runners {
        let Some(workflow) = workflows.get(id).filter(|_| Some(*id) != without) else { continue };
        for index in workflow.held_by(*runner) {
            let class = workflow.class_of(index);
            load.cpus += i64::from(class.cpus);
            load.memory += i64::try_from(class.memory.unwrap_or(0)).unwrap_or(i64::MAX);
            load.jobs += 1;
            if class.gpus > 0 {
                load.gpus_of = Some(*id);
                load.gpus += i64::from(class.gpus);
            }
        }
    }
    load
}

/// What is left of a capacity for a workflow.
fn rest(capacity: &Capacity, load: &Load, workflow: WorkflowId) -> Capacity {
    let has_gpus = load.gpus_of.is_none_or(|other| other == workflow);
    Capacity {
        num_cpus: (capacity.num_cpus - load.cpus).max(0),
        memory_bytes: (capacity.memory_bytes - load.memory).max(0),
        num_gpus: if has_gpus { (capacity.num_gpus - load.gpus).max(0) } else { 0 },
        max_parallel_jobs: capacity.max_parallel_jobs.map(|most| (most - load.jobs).max(0)),
        ..capacity.clone()
    }
}
