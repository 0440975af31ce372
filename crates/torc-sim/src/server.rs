//! The simulated server: the real engine between simulated tables, with the protocol of the store
//! around it.
//!
//! Requests are carried out in memory when they arrive and share the next commit; answers leave
//! after it. A crash loses the engine and whatever was not committed.

use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::tables::{ReservationRow, RunnerRow, Tables, Write};
use crate::wire::{Answer, Completion, Named, Packet, Request, Scope, Wish};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use torc_engine::{Change, Claim, End, JobIx, Limits, Lost, Refused, Workflow};
use torc_model::api::{ErrorCode, Evidence, ReportVerdict, ScriptResult};
use torc_model::ids::{ActionId, AttemptId, RunnerId};
use torc_model::status::{ActionState, Cause, EndedBy, EvidenceSource, JobStatus};

/// A claimed attempt that its runner does not list after this long never reached it.
const FORGOTTEN_MS: i64 = 30_000;

/// A runner, as the server remembers it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its workflow.
    pub flow: usize,
    /// Its place.
    pub slot: usize,
    /// Its process.
    pub incarnation: u32,
    /// Last word from it, by the clock that never jumps.
    pub heard: i64,
    /// Last word from it, by the wall clock.
    pub heard_wall: i64,
    told: BTreeSet<AttemptId>,
    /// Actions that it was given: by which claim, and when.
    given: Vec<(u64, ActionId, i64)>,
    /// An earlier process may have given it actions that it never heard of.
    is_unsure: bool,
}

/// An active reservation, as the server remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reserved {
    id: usize,
    scope: Scope,
    until: i64,
}

/// A row was written that the schema forbids.
pub type Broken = String;

/// The server.
pub struct Server {
    scenario: Rc<Scenario>,
    sabotage: Option<Sabotage>,
    /// It runs.
    pub is_up: bool,
    /// Its process, counted.
    pub epoch: u32,
    /// When it began to listen.
    pub booted: i64,
    /// What its wall clock is ahead.
    pub clock_offset: i64,
    /// Committed rows.
    pub durable: Tables,
    working: Tables,
    /// Written but not committed.
    pub pending: Vec<Write>,
    /// The engine.
    pub flows: Vec<Workflow>,
    /// Named limits.
    pub limits: Limits,
    /// Runners that have not ended.
    pub runners: BTreeMap<RunnerId, Known>,
    /// Runners that were ended by this process. Should that be rolled back, they were last heard
    /// when they were.
    departed: BTreeMap<RunnerId, Known>,
    next_attempt: i64,
    reserved: Vec<Reserved>,
}

impl Server {
    /// A server whose creation of the workflows was acknowledged.
    pub fn new(scenario: Rc<Scenario>, sabotage: Option<Sabotage>) -> Self {
        let tables = Tables::new(&scenario);
        let mut server = Self {
            sabotage,
            is_up: true,
            epoch: 1,
            booted: 0,
            clock_offset: 0,
            durable: tables.clone(),
            working: tables,
            pending: Vec::new(),
            flows: Vec::new(),
            limits: Limits::default(),
            runners: BTreeMap::new(),
            departed: BTreeMap::new(),
            next_attempt: 1,
            reserved: Vec::new(),
            scenario,
        };
        server.load();
        server
    }

    /// The process dies.
    pub fn crash(&mut self) {
        self.is_up = false;
        self.pending.clear();
    }

    /// A new process reads the rows.
    pub fn boot(&mut self, now: i64) {
        self.is_up = true;
        self.epoch += 1;
        self.booted = now;
        self.working = self.durable.clone();
        self.runners.clear();
        self.departed.clear();
        self.load();
        self.load_runners(now);
    }

    /// Another process that starts from the same rows.
    pub fn twin(&self, now: i64) -> Self {
        let mut twin = Self::new(self.scenario.clone(), self.sabotage);
        twin.durable = self.durable.clone();
        twin.clock_offset = self.clock_offset;
        twin.boot(now);
        twin
    }

    fn load_runners(&mut self, now: i64) {
        let old = std::mem::take(&mut self.runners);
        for (i, row) in self.working.runners.iter().enumerate().filter(|(_, r)| !r.ended) {
            let id = RunnerId(i as i64 + 1);
            let known = Known {
                flow: row.flow,
                slot: row.slot,
                incarnation: row.incarnation,
                heard: now,
                heard_wall: now + self.clock_offset,
                told: BTreeSet::new(),
                given: Vec::new(),
                is_unsure: true,
            };
            self.runners
                .insert(id, old.get(&id).or(self.departed.get(&id)).cloned().unwrap_or(known));
        }
    }

    /// The engine, as the working rows say.
    fn load(&mut self) {
        self.flows =
            (0..self.scenario.flows.len()).map(|f| self.restored(&self.working, f)).collect();
        self.limits = self.scenario.limits.clone();
        if self.sabotage != Some(Sabotage::LimitsForgottenAtBoot) {
            for flow in &self.flows {
                flow.count_limits(&mut self.limits);
            }
        }
        self.next_attempt = self.working.next_attempt();
        let active = self.working.reservations.iter().enumerate().filter(|(_, row)| row.is_active);
        self.reserved =
            active.map(|(id, row)| Reserved { id, scope: row.scope, until: row.until }).collect();
        self.pause_limits();
    }

    fn pause_limits(&mut self) {
        let paused = self.is_limit_reserved();
        self.limits.values_mut().for_each(|limit| limit.paused = paused);
    }

    /// A user reserved the named limit.
    pub fn is_limit_reserved(&self) -> bool {
        self.reserved.iter().any(|r| r.scope == Scope::Limit)
            && self.sabotage != Some(Sabotage::ReservationsIgnored)
    }

    /// Claims of this workflow are paused.
    fn is_paused(&self, flow: usize, now: i64) -> bool {
        let for_ever = self.sabotage == Some(Sabotage::ReservationsForEver);
        let pauses = |r: &Reserved| matches!(r.scope, Scope::All) || r.scope == Scope::Flow(flow);
        let is_paused = self.reserved.iter().any(|r| pauses(r) && (r.until > now || for_ever));
        is_paused && self.sabotage != Some(Sabotage::ReservationsIgnored)
    }

    fn reserve(&mut self, scope: Scope, ttl: i64, now: i64) -> Result<Answer, Broken> {
        if let Some(old) = self.reserved.iter().find(|r| r.scope == scope).copied() {
            if old.until > now || self.sabotage == Some(Sabotage::ReservationsForEver) {
                return Ok(Answer::Refused(ErrorCode::Reserved));
            }
            self.end_reservation(old.id)?;
        }
        let (id, until) = (self.working.reservations.len(), now + ttl);
        self.put(Write::ReservationNew(ReservationRow {
            scope,
            until,
            is_active: true,
            epoch: self.epoch,
        }))?;
        self.reserved.push(Reserved { id, scope, until });
        self.pause_limits();
        Ok(Answer::Done)
    }

    fn end_reservation(&mut self, id: usize) -> Result<(), Broken> {
        self.reserved.retain(|r| r.id != id);
        self.pause_limits();
        self.put(Write::ReservationEnded(id))
    }

    /// Ends the reservations whose time has come; at boot all of them. Tells whether there were
    /// any.
    pub fn expire(&mut self, at_boot: bool, now: i64) -> Result<bool, Broken> {
        let spared = match at_boot {
            true => Sabotage::ReservationsOutliveBoot,
            false => Sabotage::ReservationsForEver,
        };
        if self.sabotage == Some(spared) {
            return Ok(false);
        }
        let due: Vec<usize> =
            self.reserved.iter().filter(|r| at_boot || r.until <= now).map(|r| r.id).collect();
        for id in &due {
            self.end_reservation(*id)?;
        }
        Ok(!due.is_empty())
    }

    /// A workflow out of these rows.
    pub fn restored(&self, tables: &Tables, flow: usize) -> Workflow {
        let mut rows = tables.rows(&self.scenario, flow);
        match self.sabotage {
            Some(Sabotage::DependenciesForgotten) => {
                rows.jobs.iter_mut().for_each(|j| j.job.parents.clear())
            }
            Some(Sabotage::LossesUnbounded) => {
                rows.jobs.iter_mut().for_each(|j| j.job.max_lost = 1000)
            }
            Some(Sabotage::RulesUnbounded) => rows.jobs.iter_mut().for_each(|j| j.refunds = 1000),
            Some(Sabotage::ScriptsForgotten) => {
                rows.live.iter_mut().for_each(|a| a.recovery = None)
            }
            _ => {}
        }
        rows.restore()
    }

    /// The database failed: the engine's copies are thrown away and read again.
    pub fn forget(&mut self, now: i64) {
        self.working = self.durable.clone();
        self.pending.clear();
        self.reload(now);
    }

    fn reload(&mut self, now: i64) {
        if self.sabotage == Some(Sabotage::MemoryOutlivesRollback) {
            return;
        }
        self.load();
        self.load_runners(now);
    }

    fn put(&mut self, write: Write) -> Result<(), Broken> {
        let forgotten = match (&write, self.sabotage) {
            (Write::Change(_, Change::AttemptQueued(new)), Some(Sabotage::RetryNotWritten)) => {
                new.retry_of.is_some()
            }
            (
                Write::Change(_, Change::AttemptCancelRequested(_)),
                Some(Sabotage::CancelNotWritten),
            ) => true,
            (Write::Change(_, Change::AttemptEnded(..)), Some(Sabotage::LossNotWritten)) => {
                matches!(&write, Write::Change(_, Change::AttemptEnded(_, e)) if e.cause == Some(Cause::Lost))
            }
            (Write::RunnerEnded(_), Some(Sabotage::RunnerEndNotWritten)) => true,
            (
                Write::Change(_, Change::Action { id, state: ActionState::Triggered, .. }),
                Some(sabotage),
            ) => {
                let before = self
                    .scenario
                    .place_of_action(*id)
                    .map(|(f, i)| self.working.flows[f].actions[i].0);
                match before {
                    Some(ActionState::Claimed) => sabotage == Sabotage::ActionsOfTheDead,
                    _ => sabotage == Sabotage::TriggersNotWritten,
                }
            }
            _ => false,
        };
        if !forgotten {
            self.working.write(&self.scenario, &write)?;
            self.pending.push(write);
        }
        Ok(())
    }

    /// Runs a move of the engine and writes down what it did.
    fn apply<T>(
        &mut self,
        flow: usize,
        now: i64,
        step: impl FnOnce(&mut Workflow, &mut Limits, i64) -> T,
    ) -> Result<T, Broken> {
        let wall = now + self.clock_offset;
        let workflow = &mut self.flows[flow];
        workflow.set_next_attempt(self.next_attempt);
        let result = step(workflow, &mut self.limits, wall);
        let changes = workflow.take_changes();
        self.next_attempt = workflow.next_attempt();
        for change in changes {
            self.put(Write::Change(flow, change))?;
        }
        Ok(result)
    }

    /// Carries a request out. With `fails` its part of the transaction is rolled back.
    pub fn handle(
        &mut self,
        request: &Request,
        now: i64,
        nonce: u64,
        fails: bool,
    ) -> Result<Answer, Broken> {
        if !fails {
            return self.carry_out(request, now, nonce);
        }
        let (saved, length) = (self.working.clone(), self.pending.len());
        self.carry_out(request, now, nonce)?;
        self.working = saved;
        self.pending.truncate(length);
        self.reload(now);
        Ok(Answer::Broken)
    }

    fn carry_out(&mut self, request: &Request, now: i64, nonce: u64) -> Result<Answer, Broken> {
        match request {
            Request::Register { slot, incarnation, key } => {
                self.register(*slot, *incarnation, *key, now)
            }
            Request::Claim { runner, key, limit, started, completed } => {
                let Some(flow) = self.hear(*runner, now) else { return Ok(Answer::RunnerEnded) };
                self.claim(flow, *runner, *key, *limit, started, completed, now, nonce)
            }
            Request::Heartbeat { runner, held, gone } => {
                let Some(flow) = self.hear(*runner, now) else { return Ok(Answer::RunnerEnded) };
                self.heartbeat(flow, *runner, held, gone, now)
            }
            Request::ActionDone(runner, action) => {
                let Some(flow) = self.hear(*runner, now) else { return Ok(Answer::RunnerEnded) };
                self.apply(flow, now, |w, _, _| w.action_done(*action, *runner, None))?;
                Ok(Answer::ActionKnown(*action))
            }
            Request::Goodbye(runner) => {
                if self.runners.contains_key(runner) {
                    let lost = lost(Cause::Lost, "its runner left");
                    self.end_runner(*runner, &lost, now)?;
                }
                Ok(Answer::Done)
            }
            Request::Person(flow, wish) => self.person(*flow, wish, now),
        }
    }

    fn hear(&mut self, runner: RunnerId, now: i64) -> Option<usize> {
        let wall = now + self.clock_offset;
        let known = self.runners.get_mut(&runner)?;
        (known.heard, known.heard_wall) = (now, wall);
        Some(known.flow)
    }

    fn register(
        &mut self,
        slot: usize,
        incarnation: u32,
        key: u64,
        now: i64,
    ) -> Result<Answer, Broken> {
        if let Some(at) = self.working.runners.iter().position(|r| r.key == key) {
            return Ok(Answer::Registered(RunnerId(at as i64 + 1)));
        }
        let flow = self.scenario.slots[slot].flow;
        self.put(Write::RunnerNew(RunnerRow { flow, slot, incarnation, key, ended: false }))?;
        let id = RunnerId(self.working.runners.len() as i64);
        let heard_wall = now + self.clock_offset;
        let known = Known {
            flow,
            slot,
            incarnation,
            heard: now,
            heard_wall,
            told: BTreeSet::new(),
            given: Vec::new(),
            is_unsure: false,
        };
        self.runners.insert(id, known);
        Ok(Answer::Registered(id))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, at its only call site"
    )]
    fn claim(
        &mut self,
        flow: usize,
        runner: RunnerId,
        key: u64,
        limit: usize,
        started: &[Named],
        completed: &[Completion],
        now: i64,
        nonce: u64,
    ) -> Result<Answer, Broken> {
        for (attempt, token) in started {
            if let Some(index) = self.flows[flow].may_report(*attempt, runner, token) {
                self.apply(flow, now, |w, _, at| w.started(index, 1, at))?;
            }
        }
        let mut results = Vec::new();
        for report in completed {
            results.push(self.complete(flow, runner, report, now)?);
        }
        let actions = self.claim_actions(flow, runner, key, now)?;
        let key = key.to_string();
        let known = self.repeated(flow, runner, &key);
        let may_claim = limit > 0 && !self.flows[flow].canceled && !self.is_paused(flow, now);
        let given = if known.is_empty() && may_claim {
            let slot = &self.scenario.slots[self.runners[&runner].slot];
            let (capacity, prefetch) = (slot.capacity.clone(), slot.prefetch);
            let claim = |now| Claim {
                runner,
                key: &key,
                limit,
                prefetch,
                capacity: &capacity,
                time_left: None,
                scheduler: None,
                strict_scheduler: false,
                label: None,
                now,
                nonce,
            };
            let claimed = self.apply(flow, now, |w, limits, at| w.claim(&claim(at), limits))?;
            claimed
                .into_iter()
                .map(|c| Packet { id: c.attempt, token: c.token, job: c.job })
                .collect()
        } else {
            known
        };
        let orders = self.flows[flow].orders_for(runner);
        let cancel = match self.runners.get_mut(&runner) {
            Some(known) => {
                known.told.retain(|told| orders.contains(told));
                orders.into_iter().filter(|order| known.told.insert(*order)).collect()
            }
            None => orders,
        };
        Ok(Answer::Claimed {
            attempts: given,
            actions,
            cancel,
            started: started.iter().map(|(id, _)| *id).collect(),
            completed: results,
            complete: self.flows[flow].is_complete(),
        })
    }

    /// What is triggered, and what a lost answer had already brought.
    fn claim_actions(
        &mut self,
        flow: usize,
        runner: RunnerId,
        key: u64,
        now: i64,
    ) -> Result<Vec<ActionId>, Broken> {
        if self.scenario.flows[flow].actions.is_empty() {
            return Ok(Vec::new());
        }
        let Some(known) = self.runners.get_mut(&runner) else { return Ok(Vec::new()) };
        let unsure = std::mem::replace(&mut known.is_unsure, false);
        let is_once = self.sabotage == Some(Sabotage::ActionsGivenOnce);
        let repeated =
            |id: ActionId| known.given.iter().any(|(of, given, _)| (*of, *given) == (key, id));
        let lately = |id: ActionId| {
            known.given.iter().any(|(_, given, at)| *given == id && *at > now - FORGOTTEN_MS)
        };
        let own = self.flows[flow]
            .actions()
            .filter(|a| a.state == ActionState::Claimed && a.by == Some(runner));
        let mut ids: Vec<ActionId> = own
            .map(|a| a.id)
            .filter(|id| (unsure || repeated(*id) || !lately(*id)) && !is_once)
            .collect();
        if self.flows[flow].has_triggered_action(false) {
            ids.extend(self.apply(flow, now, |w, _, _| w.claim_actions(runner, false))?);
        }
        if let Some(known) = self.runners.get_mut(&runner) {
            known.given.extend(ids.iter().map(|id| (key, *id, now)));
        }
        Ok(ids)
    }

    /// A claim whose answer was lost: the same attempts again.
    fn repeated(&self, flow: usize, runner: RunnerId, key: &str) -> Vec<Packet> {
        let workflow = &self.flows[flow];
        let of_key = |index: JobIx| {
            let job = workflow.job(index);
            let held = job.held().filter(|h| h.key == key)?;
            Some(Packet { id: held.attempt, token: held.token.clone(), job: job.id() })
        };
        workflow.held_by(runner).filter_map(of_key).collect()
    }

    fn complete(
        &mut self,
        flow: usize,
        runner: RunnerId,
        report: &Completion,
        now: i64,
    ) -> Result<(AttemptId, ReportVerdict, Option<JobStatus>), Broken> {
        let id = report.attempt;
        let mut right = self.flows[flow].may_report(id, runner, &report.token);
        if self.sabotage == Some(Sabotage::TokensIgnored) && right.is_none() {
            let index = self.flows[flow].find(report.job);
            right = index.filter(|i| self.flows[flow].job(*i).held().is_some());
        }
        let Some(index) = right else { return Ok(self.late(runner, report)) };
        // A runner that was stopped may have been in the middle of the script; every other end
        // comes after it.
        let has_script = self.flows[flow].job(index).has_script();
        let ran = ScriptResult {
            return_code: 0,
            exec_seconds: 1.0,
            timed_out: false,
            stdout_path: None,
            stderr_path: None,
        };
        let end = End {
            at: now + self.clock_offset,
            return_code: Some(report.code),
            cause: report.cause,
            // Different jobs take different times, so that ranks are made anew on the way.
            exec_seconds: Some((id.0 % 7 + 1) as f64),
            script: (has_script && !report.cause.is_some_and(Cause::is_stop)).then_some(ran),
            ..End::new(EndedBy::Runner, now)
        };
        let ended = self.apply(flow, now, |w, limits, _| w.ended(index, end, limits))?;
        Ok((id, ReportVerdict::Accepted, Some(ended.status)))
    }

    /// A report about an attempt that is no longer the runner's: known already, or too late.
    fn late(
        &self,
        runner: RunnerId,
        report: &Completion,
    ) -> (AttemptId, ReportVerdict, Option<JobStatus>) {
        let id = report.attempt;
        let known = self.working.attempt(id).is_some_and(|row| {
            let mine = row.token.as_deref() == Some(&report.token) && row.runner == Some(runner);
            mine && !row.state.is_live() && row.ended_by == Some(EndedBy::Runner)
        });
        let verdict = if known { ReportVerdict::Repeated } else { ReportVerdict::Late };
        (id, verdict, None)
    }

    fn heartbeat(
        &mut self,
        flow: usize,
        runner: RunnerId,
        held: &[Named],
        gone: &[AttemptId],
        now: i64,
    ) -> Result<Answer, Broken> {
        let silence_is_proof = self.sabotage == Some(Sabotage::AbsenceIsProof);
        let present: Vec<AttemptId> = held.iter().map(|(id, _)| *id).collect();
        self.apply(flow, now, |w, limits, at| {
            for id in gone {
                w.never_arrived(runner, *id, limits, at);
            }
            if silence_is_proof {
                let held: Vec<_> = w.held_by(runner).filter_map(|i| w.job(i).live()).collect();
                for id in held.iter().filter(|id| !present.contains(id)) {
                    w.never_arrived(runner, *id, limits, at);
                }
            }
            let mine = |(id, token): &&Named| w.may_report(*id, runner, token).is_some();
            let not_yours = held.iter().filter(|named| !mine(named)).map(|(id, _)| *id).collect();
            let forgotten = w.claimed_before(runner, at - FORGOTTEN_MS);
            Answer::Beat {
                cancel: w.orders_for(runner),
                not_yours,
                forgotten: forgotten.into_iter().filter(|a| !present.contains(a)).collect(),
            }
        })
    }

    /// A runner is gone: its attempts end, its row is closed.
    pub fn end_runner(&mut self, runner: RunnerId, lost: &Lost, now: i64) -> Result<(), Broken> {
        let Some(known) = self.runners.remove(&runner) else { return Ok(()) };
        self.departed.insert(runner, known.clone());
        self.apply(known.flow, now, |w, limits, at| w.runner_lost(runner, lost, limits, at))?;
        self.put(Write::RunnerEnded(runner))
    }

    fn person(&mut self, flow: usize, wish: &Wish, now: i64) -> Result<Answer, Broken> {
        let done = match wish {
            Wish::Reserve(scope, ttl) => return self.reserve(*scope, *ttl, now),
            Wish::Release(id) => {
                if !self.reserved.iter().any(|r| r.id == *id) {
                    return Ok(Answer::Refused(ErrorCode::ReservationEnded));
                }
                self.end_reservation(*id)?;
                Ok(())
            }
            Wish::Initialize => {
                let open = self.flows[flow].counts()[JobStatus::Uninitialized as usize] > 0;
                if !open && self.flows[flow].run > 0 {
                    return Ok(Answer::Refused(ErrorCode::AlreadyInitialized));
                }
                self.apply(flow, now, |w, _, at| w.initialize(at))?;
                Ok(())
            }
            Wish::Reset(seeds) => match self.flows[flow].plan_reset(seeds) {
                Ok(chosen) if chosen.is_empty() => Ok(()),
                Ok(chosen) => {
                    self.apply(flow, now, |w, _, at| w.reset(&chosen, at))?;
                    Ok(())
                }
                Err(refused) => Err(refused),
            },
            Wish::Retry { index, run, max } => {
                self.apply(flow, now, |w, _, at| w.retry(*index, *run, *max, at))?
            }
            Wish::Classify(index, retry) => {
                self.apply(flow, now, |w, _, at| w.classify(*index, *retry, at))?
            }
            Wish::Cancel => {
                self.apply(flow, now, |w, _, at| w.cancel(at))?;
                Ok(())
            }
            Wish::CancelJob(index) => self.apply(flow, now, |w, _, at| w.cancel_job(*index, at))?,
            Wish::Hold(index, held) => {
                self.apply(flow, now, |w, _, _| w.hold(*index, *held))?;
                Ok(())
            }
            Wish::Disable(index) => self.apply(flow, now, |w, _, at| w.disable(*index, at))?,
            Wish::Adjust(index, memory, priority) => {
                self.apply(flow, now, |w, _, _| {
                    w.adjust(
                        *index,
                        torc_engine::Adjustment {
                            memory: Some(*memory),
                            priority: Some(*priority),
                            ..Default::default()
                        },
                    )
                })?;
                Ok(())
            }
        };
        Ok(match done {
            Ok(()) => Answer::Done,
            Err(Refused { code, .. }) => Answer::Refused(code),
        })
    }
}

/// A loss, in words.
pub fn lost(cause: Cause, text: &str) -> Lost {
    Lost { cause, evidence: Evidence { source: EvidenceSource::Journal, text: text.into() } }
}
