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

mod news;
mod room;
mod shares;

use room::{load, rest};
pub use shares::{Pool, Shares};

use super::read::{Audience, Sharers};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;
use torc_engine::{Engine, KnownRunner, Reservations, Runners, Workflow};
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
/// So long a workflow waits for others of its owner before a new runner is started for it on a pool runner
/// that serves one of those.
const SLICE_MS: i64 = 5_000;
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
    /// The workflow whose runner was woken because it is its turn, until something else has changed here.
    told: Option<WorkflowId>,
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
            told: None,
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
struct ReadyWork {
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

/// A workflow whose turn it may be.
struct Candidate {
    workflow: WorkflowId,
    owner: Arc<str>,
    /// Its owner's place in the queue.
    place: f64,
    /// Since when nothing of it was taken.
    since: i64,
}

impl Candidate {
    /// It comes so clearly before another one, which is served already, that a pool runner should begin
    /// to serve it. Owners that are level would change places with every job otherwise, and workflows of
    /// one owner too.
    fn is_worth(&self, served: &Self, shares: &Shares, pool: &Pool, now: i64) -> bool {
        match self.owner == served.owner {
            true => self.since + SLICE_MS <= now,
            false => self.place + shares.slack(pool, &self.owner) < served.place,
        }
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolTurn {
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
    ready: HashMap<WorkflowId, ReadyWork>,
    by_owner: BTreeMap<Arc<str>, BTreeSet<(u64, WorkflowId)>>,
    /// Grants that were not taken up yet.
    promises: HashMap<WorkflowId, HashMap<PoolRunnerId, Promise>>,
    holdings: HashMap<RunnerId, Holding>,
    /// Pool runners that are kept for work that needs much room.
    kept: HashMap<WorkflowId, PoolRunnerId>,
    turns: u64,
    /// Pool runners that are not full, as the last look at them found.
    free: BTreeSet<PoolRunnerId>,
    /// Pool runners with a runner that was told that others come first.
    gated: BTreeSet<PoolRunnerId>,
    /// Pool runners that have something to say for themselves: they are looked at after the commit.
    stirred: BTreeSet<PoolRunnerId>,
    /// All that have room are looked at after the commit.
    is_news: bool,
    /// The index must be made anew.
    is_stale: bool,
    wakes: RunnerWakes,
    /// How often a choice was made for a pool runner.
    #[cfg(test)]
    pub choices: u64,
}

/// Wakes waiting claims of runners of pools, each by itself.
#[derive(Default, Debug)]
struct RunnerWakes(HashMap<RunnerId, watch::Sender<u64>>);

impl RunnerWakes {
    fn wake(&self, id: RunnerId) {
        if let Some(wake) = self.0.get(&id) {
            wake.send_modify(|version| *version += 1);
        }
    }
}

impl Pools {
    /// There is a pool runner, so that the rest is kept up.
    fn is_used(&self) -> bool {
        !self.members.is_empty()
    }

    /// What pauses workflows has changed: all that have room are looked at.
    pub fn look_at_all(&mut self) {
        self.is_news = true;
        self.stirred.extend(self.members.keys());
    }

    /// Owners, groups or the engine's copies have changed.
    pub fn forget_index(&mut self) {
        self.is_stale = true;
    }

    /// A pool runner that came, or was not known since the start of the server.
    pub fn insert(&mut self, id: PoolRunnerId, member: Member) {
        self.is_stale |= !self.is_used();
        self.members.insert(id, member);
        self.stir(id);
    }

    /// A pool runner is gone.
    pub fn remove(&mut self, id: PoolRunnerId, now: i64) {
        self.members.remove(&id);
        self.stir(id);
        self.kept.retain(|_, member| *member != id);
        let promised: Vec<WorkflowId> = self.promises.keys().copied().collect();
        promised.into_iter().for_each(|workflow| self.keep_promise(id, workflow, now));
    }

    /// A receiver that hears when the pool runner should ask again.
    pub fn wakes(&self, id: PoolRunnerId) -> Option<watch::Receiver<u64>> {
        self.members.get(&id).map(|member| member.wake.subscribe())
    }

    /// A receiver that hears when a runner of a pool should look again for work.
    pub fn runner_wakes(&mut self, id: RunnerId) -> watch::Receiver<u64> {
        self.wakes.0.entry(id).or_default().subscribe()
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

    /// When the first workflow counts again that is left out on a pool runner.
    pub fn left_out_until(&self, id: PoolRunnerId) -> Option<i64> {
        self.members.get(&id)?.left_out.values().copied().min()
    }

    /// The jobs of a workflow could not start on a pool runner although it was their turn.
    pub fn pass_over(&mut self, id: PoolRunnerId, workflow: WorkflowId, now: i64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.left_out.insert(workflow, now + DRY_MS);
            member.told = None;
        }
        self.kept.remove(&workflow);
        self.is_news = true;
    }

    /// The runner of a workflow has come and asked, or will not come: the promise counts no more.
    pub fn keep_promise(&mut self, id: PoolRunnerId, workflow: WorkflowId, now: i64) {
        let Some(promised) = self.promises.get_mut(&workflow) else { return };
        if let Some(Promise { pool, owner, .. }) = promised.remove(&id) {
            self.shares.hold(&pool, &owner, -PROMISED_CPUS, now);
            self.is_news = true;
        }
        if promised.is_empty() {
            self.promises.remove(&workflow);
        }
    }

    /// A runner of a pool runner was told that others come first.
    pub fn close_gate(&mut self, id: PoolRunnerId, workflow: WorkflowId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.gated.insert(workflow);
            self.gated.insert(id);
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
                if let Some(member) = self.members.get_mut(&member) {
                    member.told = None;
                }
            }
        }
    }

    /// A runner has ended, perhaps one of a pool runner.
    pub fn runner_ended(
        &mut self,
        runner: RunnerId,
        id: WorkflowId,
        member: Option<PoolRunnerId>,
        now: i64,
    ) {
        let Some(member) = member else { return };
        self.stir(member);
        self.wakes.0.remove(&runner);
        if let Some(Holding { pool, owner, cpus }) = self.holdings.remove(&runner) {
            self.shares.hold(&pool, &owner, -cpus, now);
            if !self.by_owner.contains_key(&owner) {
                self.shares.rest(&owner);
            }
        }
        if let Some(member) = self.members.get_mut(&member)
            && member.runners.get(&id) == Some(&runner)
        {
            member.runners.remove(&id);
            member.gated.remove(&id);
            member.told = None;
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
    fn choose(&mut self, look: &Look<'_>, id: PoolRunnerId, is_new: bool) -> Option<PoolTurn> {
        #[cfg(test)]
        {
            self.choices += 1;
        }
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
        // The first of those that are not served here: to begin with it costs a process.
        let mut newcomer: Option<Candidate> = None;
        for (place, owner) in self.owners(&pool, now) {
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
                let is_served = member.runners.contains_key(&workflow);
                if engine.has_ready_for(&rest(&member.capacity, &load, workflow), label) {
                    let candidate =
                        Candidate { workflow, owner: owner.clone(), place, since: ready.since };
                    let is_wanted = || self.wants_another(engine, member, id, workflow, now);
                    if is_new {
                        if is_wanted() {
                            return Some(self.now(&pool, candidate));
                        }
                    } else if is_served {
                        let first = newcomer
                            .filter(|first| first.is_worth(&candidate, &self.shares, &pool, now));
                        return Some(self.now(&pool, first.unwrap_or(candidate)));
                    } else if newcomer.is_none() && (self.is_promised(id, workflow) || is_wanted())
                    {
                        newcomer = Some(candidate);
                    }
                    continue;
                }
                let is_starving = ready.since + STARVING_MS <= now
                    && self.kept.get(&workflow).is_none_or(|kept| *kept == id)
                    && engine.has_ready_for(&member.capacity, label);
                if is_starving {
                    self.kept.insert(workflow, id);
                    return Some(PoolTurn::Kept(workflow));
                }
            }
        }
        newcomer.map(|first| self.now(&pool, first))
    }

    fn now(&mut self, pool: &Pool, first: Candidate) -> PoolTurn {
        self.shares.advance(pool, &first.owner);
        PoolTurn::Now(first.workflow)
    }

    /// A pool runner was told to serve this workflow, and its runner has not come yet.
    fn is_promised(&self, id: PoolRunnerId, workflow: WorkflowId) -> bool {
        self.promises.get(&workflow).is_some_and(|promised| promised.contains_key(&id))
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
    pub fn turn(&mut self, look: &Look<'_>, id: PoolRunnerId) -> Option<PoolTurn> {
        self.choose(look, id, false)
    }

    /// The workflow that a pool runner should begin to serve.
    pub fn grant(&mut self, look: &Look<'_>, id: PoolRunnerId) -> Option<WorkflowId> {
        self.give_up_promises(id, look.now);
        if let Some(offer) = self.members.get_mut(&id)?.offer.take() {
            return Some(offer);
        }
        let Some(PoolTurn::Now(workflow)) = self.choose(look, id, true) else { return None };
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
    pub runners: &'a Runners,
    pub reservations: &'a Reservations,
    /// By the monotonic clock.
    pub now: i64,
}

impl<'a> Look<'a> {
    /// At what the engine has.
    pub fn new(engine: &'a Engine, now: i64) -> Self {
        let (workflows, runners) = (engine.workflows(), engine.runners());
        Self { workflows, runners, reservations: engine.reservations(), now }
    }

    /// No process that lives would take the work of this workflow on this pool runner: others must not
    /// wait for it.
    fn is_stuck(&self, member: &Member, workflow: WorkflowId) -> bool {
        let heard = match member.runners.get(&workflow) {
            Some(runner) => {
                let takes_work = |runner: &&KnownRunner| {
                    !runner.leaving
                        && runner.ordered.is_none()
                        && runner.conduct.quarantine().is_none()
                };
                self.runners.get(runner).filter(takes_work).and_then(|runner| runner.heard)
            }
            None => Some(member.heard),
        };
        heard.is_none_or(|heard| heard + SILENT_MS < self.now)
    }
}
