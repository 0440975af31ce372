//! What a commit means for pools: which workflows have work, and who is woken for it.
//!
//! Most commits concern one pool runner: the one whose job ended. So it is the one that is looked at, with
//! those that were told to wait for others; all that have room are looked at when work has come. A runner is
//! woken by itself and only when it is its turn: others would ask for nothing, and each of them would be one
//! more commit.

use super::{Look, Member, PROMISED_CPUS, PoolTurn, Pools, Promise, ReadyWork, load};
use crate::store::read::sharers_of;
use rusqlite::Connection;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use torc_engine::Workflow;
use torc_model::ids::{PoolRunnerId, RunnerId, WorkflowId};

impl Pools {
    /// Takes in what a commit has changed, and wakes those for whom there is something now. `with_work`: the
    /// workflows in which jobs became ready.
    pub fn after_commit(
        &mut self,
        db: &Connection,
        look: &Look<'_>,
        touched: &BTreeSet<WorkflowId>,
        with_work: &BTreeSet<WorkflowId>,
    ) -> rusqlite::Result<()> {
        if !self.is_used() {
            self.stirred.clear();
            return Ok(());
        }
        let mut grown: BTreeSet<WorkflowId> = with_work.clone();
        if std::mem::take(&mut self.is_stale) {
            self.index_all(db, look)?;
            self.stirred.extend(self.members.keys());
            self.is_news = true;
        } else {
            for id in touched {
                if self.index(db, look, *id)? {
                    grown.insert(*id);
                }
            }
        }
        let stirred = std::mem::take(&mut self.stirred);
        for id in &stirred {
            self.settle(look, *id);
        }
        let is_news = std::mem::take(&mut self.is_news) || !grown.is_empty();
        if self.ready.is_empty() {
            return Ok(());
        }
        let mut gates: BTreeSet<PoolRunnerId> = stirred.union(&self.gated).copied().collect();
        gates.extend(grown.iter().flat_map(|id| look.runners.of(*id)).filter_map(|(_, r)| r.pool));
        for id in gates.intersection(&self.free.clone()) {
            self.open_gate(look, *id);
        }
        let waiting: Vec<PoolRunnerId> = match is_news {
            true => self.free.iter().copied().collect(),
            false => stirred.intersection(&self.free).copied().collect(),
        };
        self.offer(look, waiting);
        Ok(())
    }

    /// A pool runner or one of its runners has spoken: it is looked at after the commit.
    pub fn stir(&mut self, id: PoolRunnerId) {
        self.stirred.insert(id);
    }

    /// Takes down what a pool runner's runners hold, and whether it has room for more.
    fn settle(&mut self, look: &Look<'_>, id: PoolRunnerId) {
        let Some(member) = self.members.get(&id) else {
            self.free.remove(&id);
            self.gated.remove(&id);
            return;
        };
        let runners: Vec<(WorkflowId, RunnerId)> =
            member.runners.iter().map(|(workflow, runner)| (*workflow, *runner)).collect();
        let is_full = load(member, look.workflows, None).is_full(&member.capacity);
        for (workflow, runner) in runners {
            self.account(look.workflows, runner, id, workflow, look.now);
        }
        match is_full {
            true => self.free.remove(&id),
            false => self.free.insert(id),
        };
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

    /// Whether a workflow has come into the index.
    fn index(
        &mut self,
        db: &Connection,
        look: &Look<'_>,
        id: WorkflowId,
    ) -> rusqlite::Result<bool> {
        let has_work = look.workflows.get(&id).is_some_and(Workflow::has_ready);
        if !has_work {
            self.forget(id, look.now);
            return Ok(false);
        }
        if self.ready.contains_key(&id) {
            return Ok(false);
        }
        let Some(sharers) = sharers_of(db, id)? else { return Ok(false) };
        let owner: Arc<str> = sharers.owner.as_str().into();
        self.by_owner.entry(owner.clone()).or_default().insert((0, id));
        self.ready.insert(id, ReadyWork { owner, sharers, turn: 0, since: look.now });
        Ok(true)
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

    /// Wakes the runner whose turn it is on a pool runner with room. Once: when it does not take its turn,
    /// it has its reasons, and hears of the next one when something else has changed there.
    fn open_gate(&mut self, look: &Look<'_>, id: PoolRunnerId) {
        if self.members.get(&id).is_none_or(|member| member.runners.is_empty()) {
            return;
        }
        let turn = self.turn(look, id);
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(PoolTurn::Now(workflow)) = turn else {
            member.told = None;
            return;
        };
        let Some(runner) = member.runners.get(&workflow) else {
            member.told = None;
            return;
        };
        let was_gated = member.gated.remove(&workflow);
        if member.gated.is_empty() {
            self.gated.remove(&id);
        }
        if member.told.replace(workflow) != Some(workflow) || was_gated {
            self.wakes.wake(*runner);
        }
    }

    /// Offers work to pool runners that wait for it: to as many as it takes, and no more.
    fn offer(&mut self, look: &Look<'_>, free: Vec<PoolRunnerId>) {
        let waits = |member: &Member| member.wake.receiver_count() > 0 && member.offer.is_none();
        // Few: what an empty pool runner cannot be given, others like it cannot either.
        let mut refused: Vec<PoolRunnerId> = Vec::new();
        for id in free {
            let Some(member) = self.members.get(&id).filter(|member| waits(member)) else {
                continue;
            };
            let is_plain = member.is_plain();
            let is_like = |other: &PoolRunnerId| {
                self.members.get(other).is_some_and(|other| other.is_like(member))
            };
            if is_plain && refused.iter().any(is_like) {
                continue;
            }
            match self.grant(look, id) {
                Some(workflow) => {
                    if let Some(member) = self.members.get_mut(&id) {
                        member.offer = Some(workflow);
                    }
                    self.nudge(id);
                }
                None if is_plain => refused.push(id),
                None => {}
            }
        }
    }
}

impl Member {
    /// Nothing tells it from others of its kind.
    fn is_plain(&self) -> bool {
        self.runners.is_empty() && self.left_out.is_empty() && self.ordered.is_none()
    }

    /// As another one of which the same is true, could be given the same work.
    fn is_like(&self, other: &Self) -> bool {
        self.pool == other.pool
            && self.audience == other.audience
            && self.label == other.label
            && self.capacity == other.capacity
    }
}
