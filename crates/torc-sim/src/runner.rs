//! The simulated runner: claims with keys, repeats what was not answered, keeps reports until they
//! are, obeys orders, and ends its own jobs when it was cut off for too long.

use crate::sabotage::Sabotage;
use crate::scenario::Sight;
use crate::wire::{Answer, Completion, Named, Packet, Request};
use crate::witness::Process;
use crate::world::{Client, Event, World};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::api::ReportVerdict;
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId};
use torc_model::status::{Cause, JobStatus};

/// Between two heartbeats.
const BEAT: i64 = 20_000;

/// A runner ends its jobs this long before the server would give it up.
const FENCE_MARGIN: i64 = 60_000;

/// A runner that is in contact has heard of its actions after this long.
const UNHEARD: i64 = 40_000;

/// Between the order to stop a process and its end, at most.
const KILL_GRACE: i64 = 5_000;

/// A runner's own events.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tick {
    /// Report and claim.
    Exchange,
    /// Heartbeat.
    Beat,
    /// Was the last contact too long ago?
    Fence,
    /// A process is to be started.
    Spawn(AttemptId),
    /// A process ends by itself.
    End(AttemptId),
    /// A process has been killed.
    Killed(AttemptId),
    /// An action has been executed.
    ActionEnd(ActionId),
}

#[derive(Clone, PartialEq, Debug)]
enum Phase {
    /// Not started.
    Waiting,
    /// Its process runs.
    Running,
    /// Its process is being killed; then it is reported for this cause, or not at all.
    Stopping(Option<Cause>),
    /// Its report waits for an answer.
    Over,
}

#[derive(Clone, PartialEq, Debug)]
struct Hold {
    token: String,
    job: JobId,
    phase: Phase,
    result: Result<(), (i64, Cause)>,
}

#[derive(Clone, Debug)]
struct Call {
    id: u64,
    sent: i64,
    gone: Vec<AttemptId>,
}

/// A runner process, and the network and clock of its host.
#[derive(Default, Debug)]
pub struct Runner {
    /// Which process of its place.
    pub incarnation: u32,
    /// The process exists.
    pub is_alive: bool,
    /// Its network is cut until then.
    pub cut_until: i64,
    /// It stands still until then.
    pub stalled_until: i64,
    id: Option<RunnerId>,
    register_key: u64,
    held: BTreeMap<AttemptId, Hold>,
    spool: Vec<Completion>,
    starts: Vec<Named>,
    /// Actions it executes, or has executed and not yet reported (true).
    actions: BTreeMap<ActionId, bool>,
    /// Attempts it was asked about and does not have: to be told.
    gone: BTreeSet<AttemptId>,
    /// Attempts it said it does not have: never to be started.
    refused: BTreeSet<AttemptId>,
    exchange: Option<Call>,
    beat: Option<Call>,
    claim_key: u64,
    claim_limit: usize,
    is_claim_open: bool,
    /// Sending time of the last call that was answered.
    contact: i64,
    is_fenced: bool,
    is_leaving: bool,
    /// The server gave it up: everything must stop before it may come again.
    is_disowned: bool,
    goodbyes: u32,
    next_exchange: Option<i64>,
}

impl World {
    /// A new process in this place, unless there is nothing to do.
    pub(crate) fn on_runner_up(&mut self, slot: usize) {
        if self.runners[slot].is_alive {
            return;
        }
        let flow = self.scenario.slots[slot].flow;
        if self.server.durable.flows[flow].is_over() {
            let at = self.now + 15_000;
            return self.plan(at, Event::RunnerUp(slot));
        }
        let old = std::mem::take(&mut self.runners[slot]);
        let incarnation = old.incarnation + 1;
        self.runners[slot] = Runner {
            incarnation,
            is_alive: true,
            cut_until: old.cut_until,
            register_key: self.rng.word(),
            claim_key: self.rng.word(),
            contact: self.now,
            ..Runner::default()
        };
        self.note(|_| format!("runner {slot}.{incarnation} starts"));
        self.plan_exchange(slot, 1);
        self.tick(slot, 5_000, Tick::Beat);
        self.tick(slot, 10_000, Tick::Fence);
    }

    /// The runner process dies; its jobs die a moment later.
    pub(crate) fn crash_runner(&mut self, slot: usize) {
        if !self.runners[slot].is_alive {
            return;
        }
        self.stats.runner_crashes += 1;
        let incarnation = self.runners[slot].incarnation;
        self.note(|_| format!("runner {slot}.{incarnation} dies"));
        let orphans_until = self.now + self.rng.range(0, 2_000);
        self.plan(orphans_until, Event::Orphans(slot, incarnation));
        self.is_gone(slot);
    }

    fn is_gone(&mut self, slot: usize) {
        let runner = &mut self.runners[slot];
        runner.is_alive = false;
        self.checker.ended.entry((slot, runner.incarnation)).or_insert(self.now);
        let back = self.now + self.rng.pick(&[2_500, 10_000, 60_000]);
        self.plan(back, Event::RunnerUp(slot));
    }

    /// The runner was told to leave.
    pub(crate) fn leave(&mut self, slot: usize) {
        let runner = &mut self.runners[slot];
        if !runner.is_alive || runner.id.is_none() || runner.is_leaving {
            return;
        }
        runner.is_leaving = true;
        self.note(|_| format!("runner in slot {slot} leaves"));
        let cause = match self.scenario.slots[slot].sight {
            Sight::Slurm => {
                self.rng.pick(&[Cause::Stopped, Cause::Preempted, Cause::NodeFail, Cause::Walltime])
            }
            Sight::Local | Sight::Remote => Cause::Stopped,
        };
        self.stop_all(slot, Some(cause));
        self.plan_exchange(slot, 1);
    }

    /// Once faults have stopped, a runner that speaks with the server knows soon of the actions it
    /// was given.
    pub(crate) fn check_actions(&mut self) {
        for (action, owner) in self.checker.given_before(self.now - UNHEARD) {
            let slot = self
                .runners
                .iter()
                .position(|r| r.is_alive && r.id == Some(owner) && !r.is_disowned);
            let Some(runner) = slot.map(|slot| &self.runners[slot]) else { continue };
            if !runner.actions.contains_key(&action) && runner.contact > self.now - UNHEARD / 2 {
                self.fail(format!("lost action: runner {owner} was given action {action} and has never heard of it"));
            }
        }
    }

    /// Work became ready: waiting claims look.
    pub(crate) fn wake_runners(&mut self) {
        for slot in 0..self.runners.len() {
            if self.runners[slot].is_alive && self.runners[slot].exchange.is_none() {
                let delay = self.rng.range(1, 30);
                self.plan_exchange(slot, delay);
            }
        }
    }

    fn tick(&mut self, slot: usize, delay: i64, tick: Tick) {
        let incarnation = self.runners[slot].incarnation;
        self.plan(self.now + delay, Event::Runner(slot, incarnation, tick));
    }

    fn plan_exchange(&mut self, slot: usize, delay: i64) {
        let at = self.now + delay;
        if self.runners[slot].next_exchange.is_none_or(|planned| planned > at || planned < self.now)
        {
            self.runners[slot].next_exchange = Some(at);
            self.tick(slot, delay, Tick::Exchange);
        }
    }

    pub(crate) fn on_tick(&mut self, slot: usize, incarnation: u32, tick: Tick) {
        let runner = &mut self.runners[slot];
        if !runner.is_alive || runner.incarnation != incarnation {
            return;
        }
        if runner.stalled_until > self.now {
            if tick == Tick::Exchange {
                runner.next_exchange = Some(runner.stalled_until);
            }
            let at = runner.stalled_until;
            return self.plan(at, Event::Runner(slot, incarnation, tick));
        }
        match tick {
            Tick::Exchange => {
                if runner.next_exchange == Some(self.now) {
                    runner.next_exchange = None;
                    self.exchange(slot);
                }
            }
            Tick::Beat => {
                self.heartbeat(slot);
                self.tick(slot, BEAT, Tick::Beat);
            }
            Tick::Fence => self.fence(slot),
            Tick::Spawn(attempt) => self.spawn(slot, attempt),
            Tick::End(attempt) => self.on_process_end(slot, attempt, false),
            Tick::Killed(attempt) => self.on_process_end(slot, attempt, true),
            Tick::ActionEnd(action) => {
                if let Some(is_over) = self.runners[slot].actions.get_mut(&action) {
                    *is_over = true;
                    self.plan_exchange(slot, 1);
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------
    // calls

    fn exchange(&mut self, slot: usize) {
        let key = self.rng.word();
        let runner = &mut self.runners[slot];
        if runner.exchange.is_some() {
            return;
        }
        if runner.is_disowned {
            if !runner.held.is_empty() {
                return;
            }
            runner.is_disowned = false;
            runner.actions.clear();
            runner.id = None;
            runner.register_key = key;
        }
        let incarnation = runner.incarnation;
        let request = match runner.id {
            None => Request::Register { slot, incarnation, key: runner.register_key },
            Some(id) if runner.actions.values().any(|is_over| *is_over) => {
                let over =
                    runner.actions.iter().find(|(_, is_over)| **is_over).map(|(action, _)| *action);
                Request::ActionDone(id, over.unwrap_or(ActionId(0)))
            }
            Some(id)
                if runner.is_leaving
                    && runner.held.is_empty()
                    && runner.spool.is_empty()
                    && runner.actions.is_empty() =>
            {
                runner.goodbyes += 1;
                // From here on it takes nothing any more: for the world it has left.
                self.checker.ended.entry((slot, incarnation)).or_insert(self.now);
                Request::Goodbye(id)
            }
            Some(id) => {
                if !runner.is_claim_open {
                    runner.claim_key = key;
                    runner.claim_limit = if runner.is_leaving || runner.is_fenced { 0 } else { 8 };
                    runner.is_claim_open = runner.claim_limit > 0;
                }
                Request::Claim {
                    runner: id,
                    key: runner.claim_key,
                    limit: runner.claim_limit,
                    started: runner.starts.clone(),
                    completed: runner.spool.clone(),
                }
            }
        };
        let id = self.send(Client::Exchange(slot, incarnation), request);
        self.runners[slot].exchange = Some(Call { id, sent: self.now, gone: Vec::new() });
    }

    fn heartbeat(&mut self, slot: usize) {
        let runner = &mut self.runners[slot];
        let Some(id) = runner.id.filter(|_| runner.beat.is_none() && !runner.is_disowned) else {
            return;
        };
        let held = runner.held.iter().map(|(id, hold)| (*id, hold.token.clone())).collect();
        let gone: Vec<AttemptId> = runner.gone.iter().copied().collect();
        let client = Client::Beat(slot, runner.incarnation);
        let call = self.send(client, Request::Heartbeat { runner: id, held, gone: gone.clone() });
        self.runners[slot].beat = Some(Call { id: call, sent: self.now, gone });
    }

    /// The outstanding call that this is about, if there is one.
    fn take_call(&mut self, client: Client, call: u64) -> Option<(usize, Call)> {
        let (slot, incarnation, is_beat) = match client {
            Client::Exchange(slot, incarnation) => (slot, incarnation, false),
            Client::Beat(slot, incarnation) => (slot, incarnation, true),
            Client::Person => return None,
        };
        let runner = &mut self.runners[slot];
        if !runner.is_alive || runner.incarnation != incarnation {
            return None;
        }
        let outstanding = if is_beat { &mut runner.beat } else { &mut runner.exchange };
        let found = outstanding.take_if(|c| c.id == call)?;
        Some((slot, found))
    }

    pub(crate) fn on_failed_call(&mut self, client: Client, call: u64) {
        let Some((slot, _)) = self.take_call(client, call) else { return };
        if let Client::Exchange(..) = client {
            let runner = &mut self.runners[slot];
            if runner.goodbyes > 3 {
                return self.is_gone(slot);
            }
            match self.sabotage {
                Some(Sabotage::ForgottenClaims) => runner.is_claim_open = false,
                Some(Sabotage::ReportsDropped) => {
                    let dropped = std::mem::take(&mut runner.spool);
                    dropped.iter().for_each(|c| {
                        runner.held.remove(&c.attempt);
                    });
                }
                _ => {}
            }
            let delay = self.rng.range(500, 3_000);
            self.plan_exchange(slot, delay);
        }
    }

    pub(crate) fn on_answer(&mut self, client: Client, call: u64, answer: Answer) {
        let (Client::Exchange(slot, incarnation) | Client::Beat(slot, incarnation)) = client else {
            return;
        };
        if self.runners[slot].stalled_until > self.now
            && self.runners[slot].incarnation == incarnation
        {
            let at = self.runners[slot].stalled_until;
            return self.plan(at, Event::Answered(client, call, Box::new(answer)));
        }
        let Some((slot, sent)) = self.take_call(client, call) else { return };
        self.note(|_| format!("slot {slot} hears #{call}"));
        if matches!(answer, Answer::Broken) {
            let delay = self.rng.range(100, 1_000);
            if let Client::Exchange(..) = client {
                self.plan_exchange(slot, delay);
            }
            return;
        }
        let runner = &mut self.runners[slot];
        if matches!(answer, Answer::RunnerEnded) {
            return self.on_disowned(slot);
        }
        runner.contact = runner.contact.max(sent.sent);
        runner.is_fenced = false;
        match answer {
            Answer::Registered(id) => {
                runner.id = Some(id);
                self.plan_exchange(slot, 1);
            }
            Answer::Claimed { attempts, actions, cancel, started, completed, complete } => {
                for action in actions {
                    // One that it executes already is not begun again.
                    if let Entry::Vacant(place) = self.runners[slot].actions.entry(action) {
                        place.insert(false);
                        let delay = self.rng.range(100, 5_000);
                        self.tick(slot, delay, Tick::ActionEnd(action));
                    }
                }
                self.on_claimed(slot, attempts, &cancel, &started, completed, complete);
            }
            Answer::ActionKnown(action) => {
                runner.actions.remove(&action);
                self.plan_exchange(slot, 1);
            }
            Answer::Beat { cancel, not_yours, forgotten } => {
                sent.gone.iter().for_each(|id| {
                    runner.gone.remove(id);
                });
                self.obey(slot, &cancel);
                self.drop_strangers(slot, &not_yours);
                let runner = &mut self.runners[slot];
                for id in forgotten {
                    if !runner.held.contains_key(&id)
                        && self.sabotage != Some(Sabotage::ForgottenClaims)
                    {
                        runner.refused.insert(id);
                        runner.gone.insert(id);
                    }
                }
            }
            Answer::Done => self.is_gone(slot),
            Answer::Refused(_) | Answer::RunnerEnded | Answer::Broken => {}
        }
    }

    fn on_claimed(
        &mut self,
        slot: usize,
        attempts: Vec<Packet>,
        cancel: &[AttemptId],
        started: &[AttemptId],
        completed: Vec<(AttemptId, ReportVerdict, Option<JobStatus>)>,
        complete: bool,
    ) {
        let runner = &mut self.runners[slot];
        runner.is_claim_open = false;
        runner.starts.retain(|(id, _)| !started.contains(id));
        for (id, verdict, status) in completed {
            if let Some(at) = runner.spool.iter().position(|c| c.attempt == id) {
                let report = runner.spool.remove(at);
                let counts = verdict != ReportVerdict::Late && report.cause.is_none();
                if counts
                    && status.is_none_or(|s| s == JobStatus::Completed)
                    && self.sabotage != Some(Sabotage::TokensIgnored)
                {
                    self.checker.acknowledge(report.job, id);
                }
            }
            runner.held.remove(&id);
        }
        let has_news = !attempts.is_empty();
        for packet in attempts {
            self.take(slot, packet);
        }
        self.obey(slot, cancel);
        let runner = &mut self.runners[slot];
        let has_reports = !runner.spool.is_empty() || !runner.starts.is_empty();
        if complete && runner.held.is_empty() && !has_reports && runner.actions.is_empty() {
            runner.is_leaving = true;
        }
        let delay = match has_news || has_reports || self.runners[slot].is_leaving {
            true => self.rng.range(5, 50),
            false => self.rng.range(5_000, 10_000),
        };
        self.plan_exchange(slot, delay);
    }

    fn take(&mut self, slot: usize, packet: Packet) {
        let result = self.draw_result();
        let runner = &mut self.runners[slot];
        if runner.refused.contains(&packet.id) {
            runner.gone.insert(packet.id);
            return;
        }
        if runner.held.contains_key(&packet.id) {
            return;
        }
        let phase = Phase::Waiting;
        runner.held.insert(packet.id, Hold { token: packet.token, job: packet.job, phase, result });
        let delay = self.rng.range(1, 30);
        self.tick(slot, delay, Tick::Spawn(packet.id));
    }

    fn draw_result(&mut self) -> Result<(), (i64, Cause)> {
        if !self.rng.chance(self.scenario.failing) {
            return Ok(());
        }
        Err(self.rng.pick(&[
            (1, Cause::Exit),
            (1, Cause::Exit),
            (2, Cause::Exit),
            (3, Cause::Exit),
            (139, Cause::Signal),
            (137, Cause::Oom),
            (152, Cause::Timeout),
            (0, Cause::MissingOutput),
            (99, Cause::Checkpoint),
        ]))
    }

    // ------------------------------------------------------------------------------------------
    // processes

    fn cpus_of(&self, job: JobId) -> i64 {
        self.scenario
            .place(job)
            .map_or(1, |(flow, i)| i64::from(self.scenario.flows[flow].jobs[i].class.cpus))
    }

    fn spawn(&mut self, slot: usize, attempt: AttemptId) {
        let runner = &self.runners[slot];
        let Some(hold) = runner.held.get(&attempt).filter(|h| h.phase == Phase::Waiting) else {
            return;
        };
        let (job, token, result) = (hold.job, hold.token.clone(), hold.result);
        if runner.is_fenced || runner.is_disowned || runner.is_leaving {
            return self.stop(slot, attempt, Some(Cause::Stopped));
        }
        let busy = |h: &&Hold| matches!(h.phase, Phase::Running | Phase::Stopping(_));
        let used: i64 = runner.held.values().filter(busy).map(|h| self.cpus_of(h.job)).sum();
        if used + self.cpus_of(job) > self.scenario.slots[slot].capacity.num_cpus {
            return;
        }
        let verdict = self.checker.on_start(job, attempt, &self.witness, &self.server.durable);
        self.demand(verdict);
        let incarnation = self.runners[slot].incarnation;
        self.note(|_| {
            format!(
                "slot {slot} starts attempt {attempt} of job {job}, which will end with {result:?}"
            )
        });
        self.witness.start(Process {
            job,
            attempt,
            slot,
            incarnation,
            started: self.now,
            ended: None,
            result: None,
        });
        let runner = &mut self.runners[slot];
        runner.starts.push((attempt, token));
        if let Some(hold) = runner.held.get_mut(&attempt) {
            hold.phase = Phase::Running;
        }
        let duration = self.rng.wait(self.scenario.duration).min(20 * self.scenario.duration);
        self.tick(slot, duration, Tick::End(attempt));
        self.plan_exchange(slot, 5);
    }

    fn on_process_end(&mut self, slot: usize, attempt: AttemptId, killed: bool) {
        let runner = &mut self.runners[slot];
        let Some(hold) = runner.held.get_mut(&attempt) else { return };
        let stop = match &hold.phase {
            Phase::Running if !killed => None,
            Phase::Stopping(cause) => Some(*cause),
            Phase::Running | Phase::Waiting | Phase::Over => return,
        };
        let result = hold.result;
        let seen = (!killed).then_some(result.map_err(|(_, cause)| cause));
        self.witness.end(attempt, slot, runner.incarnation, self.now, seen);
        self.note(|_| {
            format!("slot {slot}: the process of attempt {attempt} ends, killed: {killed}")
        });
        match stop {
            // Not ours any more: its end is not reported, only that it is gone.
            Some(None) => {
                let runner = &mut self.runners[slot];
                runner.held.remove(&attempt);
                runner.gone.insert(attempt);
                runner.refused.insert(attempt);
                self.plan_exchange(slot, 5);
            }
            Some(Some(cause)) if killed => self.report(slot, attempt, 143, Some(cause)),
            _ => match result {
                Ok(()) => self.report(slot, attempt, 0, None),
                Err((code, cause)) => self.report(slot, attempt, code, Some(cause)),
            },
        }
        let waiting: Vec<AttemptId> = self.runners[slot]
            .held
            .iter()
            .filter(|(_, h)| h.phase == Phase::Waiting)
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            self.tick(slot, 1, Tick::Spawn(id));
        }
    }

    fn report(&mut self, slot: usize, attempt: AttemptId, code: i64, cause: Option<Cause>) {
        let runner = &mut self.runners[slot];
        let Some(hold) = runner.held.get_mut(&attempt) else { return };
        hold.phase = Phase::Over;
        runner.spool.push(Completion {
            attempt,
            token: hold.token.clone(),
            job: hold.job,
            code,
            cause,
        });
        self.plan_exchange(slot, 3);
    }

    /// Ends an attempt: reported for this cause, or not at all.
    fn stop(&mut self, slot: usize, attempt: AttemptId, cause: Option<Cause>) {
        let grace = self.rng.range(1, KILL_GRACE);
        let Some(hold) = self.runners[slot].held.get_mut(&attempt) else { return };
        match (&hold.phase, cause) {
            (Phase::Waiting, Some(cause)) => self.report(slot, attempt, 143, Some(cause)),
            (Phase::Waiting, None) => {
                let runner = &mut self.runners[slot];
                runner.held.remove(&attempt);
                runner.refused.insert(attempt);
                runner.gone.insert(attempt);
            }
            (Phase::Running, cause) => {
                hold.phase = Phase::Stopping(cause);
                self.tick(slot, grace, Tick::Killed(attempt));
            }
            (Phase::Stopping(_) | Phase::Over, _) => {}
        }
    }

    fn stop_all(&mut self, slot: usize, cause: Option<Cause>) {
        let held: Vec<AttemptId> = self.runners[slot].held.keys().copied().collect();
        for attempt in held {
            self.stop(slot, attempt, cause);
        }
    }

    /// Orders to stop; what it does not have it says so.
    fn obey(&mut self, slot: usize, orders: &[AttemptId]) {
        for id in orders {
            self.checker.ordered.entry(*id).or_insert(self.now);
        }
        if self.sabotage == Some(Sabotage::OrdersIgnored) {
            return;
        }
        for id in orders {
            let runner = &mut self.runners[slot];
            if runner.held.contains_key(id) {
                self.stop(slot, *id, Some(Cause::Canceled));
            } else {
                runner.refused.insert(*id);
                runner.gone.insert(*id);
            }
        }
    }

    /// Attempts that are not its own any more.
    fn drop_strangers(&mut self, slot: usize, strangers: &[AttemptId]) {
        for id in strangers {
            self.stop(slot, *id, None);
        }
    }

    fn fence(&mut self, slot: usize) {
        // Who can be seen from elsewhere is never given up by time, and has no deadline.
        if self.scenario.slots[slot].sight != Sight::Remote {
            return;
        }
        let flow = self.scenario.slots[slot].flow;
        let due = self.runners[slot].contact + self.scenario.flows[flow].disown() - FENCE_MARGIN;
        if self.now >= due
            && !self.runners[slot].is_fenced
            && self.sabotage != Some(Sabotage::NoSelfFence)
        {
            self.note(|_| format!("slot {slot} has no contact and ends its jobs"));
            self.runners[slot].is_fenced = true;
            self.stop_all(slot, Some(Cause::Lost));
        }
        let delay = (due - self.now).max(5_000);
        self.tick(slot, delay, Tick::Fence);
    }

    /// The server has given it up: nothing it has counts any more.
    fn on_disowned(&mut self, slot: usize) {
        let runner = &mut self.runners[slot];
        if runner.is_disowned {
            return;
        }
        runner.is_disowned = true;
        runner.is_claim_open = false;
        runner.spool.clear();
        runner.starts.clear();
        runner.gone.clear();
        runner.held.retain(|_, h| h.phase != Phase::Over);
        if runner.is_leaving {
            return self.is_gone(slot);
        }
        self.note(|_| format!("slot {slot} hears that it was given up"));
        self.stop_all(slot, None);
        self.plan_exchange(slot, KILL_GRACE + 100);
    }
}
