//! Runners: the real dispatcher and the real list of held attempts, between an imitation of what is
//! around them: lanes that repeat what was not answered, the heartbeat with its fence, and
//! processes.

use crate::ends::STEP;
use crate::sabotage::Sabotage;
use crate::scenario::Sight;
use crate::wire::{Answer, Request, RunnerPlace};
use crate::witness::Process;
use crate::world::{Client, Event, World};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use torc_engine::JobIx;
use torc_model::api::*;
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId};
use torc_model::slurm::logs::LastWord;
use torc_model::status::{Cause, EndDetail, JobStatus};
use torc_model::steps::{Item, StepEvent};
use torc_runner::decisions::{
    ActionResult, Dispatcher, DispatcherSettings, Effect, Event as Fact, HeldList, Live, Rhythm,
    StopReason, TimeLimit, unstarted_report,
};
use torc_runner::{Prefetch, Shutdown};

/// Seconds after which a silent runner is shown as out of contact.
const LEASE_SECONDS: i64 = 60;
/// After a heartbeat that was not answered the next one comes soon.
const BEAT_AGAIN: i64 = 2_000;
/// A runner that is in contact has heard of its actions after this long: where an answer got lost, a
/// claim that arrives half a minute later brings them again, and one that came before waits as long.
const UNHEARD: i64 = 70_000;
/// Between the order to stop a process and its end, at most.
const KILL_GRACE: i64 = 5_000;
/// Pauses between two tries of a call.
const FIRST_PAUSE: i64 = 50;
const LONGEST_PAUSE: i64 = 5_000;
/// A leaving runner does not try its goodbye more often.
const GOODBYE_TRIES: u32 = 8;
/// A runner without work leaves when the server is away for this long.
const WAIT_FOR_SERVER: Duration = Duration::from_secs(600);
/// On a batch system failures wait this long for a signal to the runner.
const DOUBT: Duration = Duration::from_secs(2);

/// The kinds of calls, one of each at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Introduces itself.
    Register,
    /// Reports, and claims.
    Exchange,
    /// Waits for work.
    Listen,
    /// Sends heartbeats.
    Beat,
    /// Reports actions.
    Action,
    /// Says goodbye.
    Goodbye,
}

/// A runner's own events.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tick {
    /// The dispatcher wants to be asked.
    Alarm,
    /// A heartbeat is due.
    Beat,
    /// A call is tried again.
    Retry(Lane),
    /// A process is to be started.
    Spawn(AttemptId),
    /// A process ends by itself.
    End(AttemptId),
    /// A process has been killed.
    Killed(AttemptId),
    /// A step of a process does something.
    Step(AttemptId),
    /// An action has been executed.
    ActionEnd(ActionId),
    /// It is told to leave.
    Leave,
}

#[derive(Debug)]
enum Phase {
    /// Not started.
    Waiting,
    /// Its process runs.
    Running,
    /// Its process is being killed.
    Stopping(StopReason),
}

/// An attempt that the dispatcher has started.
#[derive(Debug)]
struct Work {
    packet: AttemptPacket,
    phase: Phase,
    result: Result<(), (i64, Cause)>,
    started: i64,
    /// What its steps have done.
    steps: Vec<StepEvent>,
}

#[derive(Debug)]
struct Call {
    /// None while it waits to be tried again.
    id: Option<u64>,
    sent: i64,
    tries: u32,
    request: Rc<Request>,
}

/// Faults of the host of a runner.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTrouble {
    /// Its network is cut until then.
    pub cut_until: i64,
    /// It stands still until then.
    pub stalled_until: i64,
}

/// A runner process, and the network and clock of its host.
#[derive(Default)]
pub struct Runner {
    /// Which process of its place.
    pub incarnation: u32,
    /// The process exists.
    pub is_alive: bool,
    /// What fails around it.
    pub trouble: HostTrouble,
    id: Option<RunnerId>,
    dispatcher: Option<Dispatcher>,
    held: Arc<HeldList>,
    steps: Live,
    inside: Option<RunnerPlace>,
    work: BTreeMap<AttemptId, Work>,
    /// Actions it executes, or has executed and not yet reported.
    actions: BTreeSet<ActionId>,
    /// Reports of actions that wait for their turn.
    action_reports: VecDeque<ActionId>,
    calls: BTreeMap<Lane, Call>,
    contact: Contact,
    is_fenced: bool,
    alarm: Option<i64>,
}

/// When the server was heard.
#[derive(Default)]
struct Contact {
    /// When the last call that was answered had been sent.
    last: i64,
    /// Until then its guard lets it live without another answer.
    guard: Option<i64>,
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
        self.start_runner(slot, None);
    }

    /// A new process in this place.
    pub(crate) fn start_runner(&mut self, slot: usize, inside: Option<RunnerPlace>) {
        let old = std::mem::take(&mut self.runners[slot]);
        let incarnation = old.incarnation + 1;
        let trouble = HostTrouble { cut_until: old.trouble.cut_until, ..HostTrouble::default() };
        self.runners[slot] = Runner {
            incarnation,
            is_alive: true,
            trouble,
            contact: Contact { last: self.now, guard: None },
            inside,
            ..Runner::default()
        };
        self.note(|_| format!("runner {slot}.{incarnation} starts"));
        let key = self.rng.word();
        self.call(slot, Lane::Register, Request::Register { slot, incarnation, key, inside });
    }

    /// The runner process dies; its jobs die a moment later.
    pub(crate) fn crash_runner(&mut self, slot: usize) {
        if !self.runners[slot].is_alive {
            return;
        }
        self.record.stats.runner_crashes += 1;
        let incarnation = self.runners[slot].incarnation;
        self.note(|_| format!("runner {slot}.{incarnation} dies"));
        let orphans_until = self.now + self.rng.range(0, 2_000);
        self.plan(orphans_until, Event::Orphans(slot, incarnation));
        self.is_gone(slot);
    }

    fn is_gone(&mut self, slot: usize) {
        let runner = &mut self.runners[slot];
        runner.is_alive = false;
        runner.dispatcher = None;
        self.checker.ended.entry((slot, runner.incarnation)).or_insert(self.now);
        let (inside, incarnation) = (runner.inside, runner.incarnation);
        match inside {
            Some(_) => self.batch_runner_gone(slot, incarnation),
            None => {
                let back = self.now + self.rng.pick(&[2_500, 10_000, 60_000]);
                self.plan(back, Event::RunnerUp(slot));
            }
        }
    }

    /// The guard beside a runner looks at its clock: a runner that was not answered until its deadline
    /// may stand still, and is killed before the server gives its attempts to others.
    pub(crate) fn on_guard(&mut self, slot: usize, incarnation: u32) {
        let runner = &self.runners[slot];
        let is_late = runner.contact.guard.is_some_and(|deadline| deadline <= self.now);
        if is_late && runner.incarnation == incarnation {
            self.note(|_| format!("the guard of runner {slot}.{incarnation} kills it"));
            self.crash_runner(slot);
        }
    }

    /// The server answered what the runner asked at this time.
    fn tell_guard(&mut self, slot: usize, asked: i64) {
        let is_deaf = matches!(self.sabotage, Some(Sabotage::NoGuard | Sabotage::NoSelfFence));
        let Some(time) = self.rhythm(slot).guard.filter(|_| !is_deaf) else { return };
        let (deadline, incarnation) = (asked + millis(time), self.runners[slot].incarnation);
        self.runners[slot].contact.guard = Some(deadline);
        self.plan(deadline, Event::Guard(slot, incarnation));
    }

    /// The runner was told to leave.
    fn leave(&mut self, slot: usize) {
        if self.runners[slot].dispatcher.is_none() {
            return;
        }
        self.note(|_| format!("runner in slot {slot} is told to leave"));
        if self.scenario.slots[slot].sight == Sight::Slurm {
            let causes =
                [None, Some(Cause::Preempted), Some(Cause::NodeFail), Some(Cause::Walltime)];
            let cause = self.rng.pick(&causes);
            let text = "the batch system said why";
            self.tell(slot, Fact::StopReason(LastWord { text, cause }));
        }
        for process in self.witness.live().filter(|process| process.slot == slot) {
            self.checker.ordered.entry(process.attempt).or_insert(self.now);
        }
        self.tell(slot, Fact::Shutdown(Shutdown::Stop));
    }

    /// Once faults have stopped, a runner that speaks with the server knows soon of the actions it
    /// was given.
    pub(crate) fn check_actions(&mut self) {
        for (action, owner) in self.checker.given_before(self.now - UNHEARD) {
            let is_owner = |r: &&Runner| r.dispatcher.is_some() && r.id == Some(owner);
            let Some(runner) = self.runners.iter().find(is_owner) else { continue };
            if !runner.actions.contains(&action) && runner.contact.last > self.now - UNHEARD / 2 {
                self.fail(format!("lost action: runner {owner} was given action {action} and has never heard of it"));
            }
        }
    }

    pub(crate) fn tick(&mut self, slot: usize, delay: i64, tick: Tick) {
        let incarnation = self.runners[slot].incarnation;
        self.plan(self.now + delay, Event::Runner(slot, incarnation, tick));
    }

    pub(crate) fn on_tick(&mut self, slot: usize, incarnation: u32, tick: Tick) {
        let runner = &mut self.runners[slot];
        if !runner.is_alive || runner.incarnation != incarnation {
            return;
        }
        if runner.trouble.stalled_until > self.now {
            let at = runner.trouble.stalled_until;
            return self.plan(at, Event::Runner(slot, incarnation, tick));
        }
        match tick {
            Tick::Alarm => {
                if runner.alarm.take_if(|at| *at <= self.now).is_some() {
                    self.settle(slot, Vec::new());
                }
            }
            Tick::Beat => self.heartbeat(slot),
            Tick::Retry(lane) => self.try_again(slot, lane),
            Tick::Spawn(attempt) => self.spawn(slot, attempt),
            Tick::End(attempt) => self.on_process_end(slot, attempt, false),
            Tick::Killed(attempt) => self.on_process_end(slot, attempt, true),
            Tick::Step(attempt) => self.on_step(slot, attempt),
            Tick::Leave => self.leave(slot),
            Tick::ActionEnd(id) => {
                self.tell(
                    slot,
                    Fact::ActionEnded(ActionResult { id, return_code: 0, error: None }),
                );
            }
        }
    }

    // ------------------------------------------------------------------------------------------
    // the dispatcher

    /// A fact for the dispatcher, and what follows from it.
    fn tell(&mut self, slot: usize, fact: Fact) {
        let now = self.instant();
        let mut effects = Vec::new();
        if let Some(dispatcher) = &mut self.runners[slot].dispatcher {
            dispatcher.handle_event(fact, now, &mut effects);
        }
        self.settle(slot, effects);
    }

    /// Lets the dispatcher decide and does what it says.
    fn settle(&mut self, slot: usize, mut effects: Vec<Effect>) {
        let now = self.instant();
        let Some(dispatcher) = &mut self.runners[slot].dispatcher else { return };
        dispatcher.settle(now, &mut effects);
        for effect in effects {
            self.apply(slot, effect);
        }
        let Some(dispatcher) = &self.runners[slot].dispatcher else { return };
        let alarm = dispatcher.next_alarm().map(|at| self.millis(at).max(self.now + 1));
        if let Some(at) = alarm.filter(|at| self.runners[slot].alarm.is_none_or(|old| old > *at)) {
            self.runners[slot].alarm = Some(at);
            self.tick(slot, at - self.now, Tick::Alarm);
        }
    }

    fn apply(&mut self, slot: usize, effect: Effect) {
        match effect {
            Effect::Exchange(request) => {
                self.call(slot, Lane::Exchange, Request::Claim(request, false));
            }
            Effect::Listen(request) => {
                self.call(slot, Lane::Listen, Request::Claim(Arc::new(request), false));
            }
            Effect::Start(packet, ..) => {
                let (id, result) = (packet.id, self.draw_result(slot));
                let (phase, started) = (Phase::Waiting, self.now);
                let work = Work { packet: *packet, phase, result, started, steps: Vec::new() };
                self.runners[slot].work.insert(id, work);
                let delay = self.rng.range(1, 30);
                self.tick(slot, delay, Tick::Spawn(id));
            }
            Effect::StopAll(_) | Effect::KillAll(_)
                if self.sabotage == Some(Sabotage::StopsIgnored) => {}
            Effect::Stop(attempt, reason) => self.stop(slot, attempt, &reason),
            Effect::StopAll(reason) | Effect::KillAll(reason) => {
                let all: Vec<AttemptId> = self.runners[slot].work.keys().copied().collect();
                all.into_iter().for_each(|attempt| self.stop(slot, attempt, &reason));
            }
            Effect::RunAction(packet) => {
                self.runners[slot].actions.insert(packet.id);
                let delay = self.rng.range(100, 5_000);
                self.tick(slot, delay, Tick::ActionEnd(packet.id));
            }
            Effect::ReportAction(result) => {
                self.runners[slot].actions.insert(result.id);
                self.runners[slot].action_reports.push_back(result.id);
                self.report_action(slot);
            }
            Effect::Goodbye(_) => {
                let runner = &self.runners[slot];
                // From here on it takes nothing any more: for the world it has left.
                self.checker.ended.entry((slot, runner.incarnation)).or_insert(self.now);
                if let Some(id) = runner.id {
                    self.call(slot, Lane::Goodbye, Request::Goodbye(id));
                }
            }
            // What a runner keeps on disk dies with its host here.
            Effect::Spool(_) | Effect::ClearSpool | Effect::Tell(_) => {}
            Effect::Exit => self.exit(slot),
        }
    }

    fn exit(&mut self, slot: usize) {
        let incarnation = self.runners[slot].incarnation;
        self.note(|_| format!("runner {slot}.{incarnation} leaves"));
        let left =
            self.witness.live().find(|p| p.slot == slot && p.incarnation == incarnation).cloned();
        if let Some(process) = left {
            self.fail(format!(
                "runner {slot}.{incarnation} leaves while attempt {} runs",
                process.attempt
            ));
        }
        self.is_gone(slot);
    }

    // ------------------------------------------------------------------------------------------
    // calls

    fn call(&mut self, slot: usize, lane: Lane, request: Request) {
        let request = Rc::new(request);
        let call = Call { id: None, sent: self.now, tries: 0, request };
        self.runners[slot].calls.insert(lane, call);
        self.try_again(slot, lane);
    }

    fn try_again(&mut self, slot: usize, lane: Lane) {
        let incarnation = self.runners[slot].incarnation;
        let Some(call) = self.runners[slot].calls.get(&lane) else { return };
        let id = self.send(Client::Runner(slot, incarnation, lane), call.request.clone());
        if let Some(call) = self.runners[slot].calls.get_mut(&lane) {
            (call.id, call.sent) = (Some(id), self.now);
            call.tries += 1;
        }
    }

    fn report_action(&mut self, slot: usize) {
        let runner = &mut self.runners[slot];
        if runner.calls.contains_key(&Lane::Action) {
            return;
        }
        let (Some(id), Some(action)) = (runner.id, runner.action_reports.pop_front()) else {
            return;
        };
        self.call(slot, Lane::Action, Request::ActionDone(id, action));
    }

    fn heartbeat(&mut self, slot: usize) {
        self.fence(slot);
        let runner = &self.runners[slot];
        let (Some(runner_id), Some(_)) = (runner.id, &runner.dispatcher) else { return };
        let mut held = runner.held.refs();
        held.sort_by_key(|held| held.id);
        let gone = match self.sabotage {
            Some(Sabotage::AbsencesUntold) => Vec::new(),
            _ => runner.held.untold(),
        };
        let body = Heartbeat { runner_id, held, gone, step_events: runner.steps.untold() };
        self.call(slot, Lane::Beat, Request::Heartbeat(body));
    }

    fn rhythm(&self, slot: usize) -> Rhythm {
        // Who can be seen from elsewhere is never given up by time, and has no deadline.
        let place = &self.scenario.slots[slot];
        let disown = self.scenario.flows[place.flow].settings.disown_seconds;
        let is_remote = place.sight == Sight::Remote;
        Rhythm::new(LEASE_SECONDS, is_remote.then(|| i64::try_from(disown).unwrap_or(i64::MAX)))
    }

    fn fence(&mut self, slot: usize) {
        let silence = self.now - self.runners[slot].contact.last;
        let is_due = self.rhythm(slot).fence.is_some_and(|fence| silence >= millis(fence));
        if is_due && !self.runners[slot].is_fenced && self.sabotage != Some(Sabotage::NoSelfFence) {
            self.runners[slot].is_fenced = true;
            self.note(|_| format!("slot {slot} has no contact and ends its jobs"));
            self.tell(slot, Fact::OutOfContact);
        }
    }

    /// Until the next heartbeat, or the fence if that comes before.
    fn plan_beat(&mut self, slot: usize, is_answered: bool) {
        let rhythm = self.rhythm(slot);
        let pause = if is_answered { millis(rhythm.interval) } else { BEAT_AGAIN };
        let silence = self.now - self.runners[slot].contact.last;
        let to_fence = rhythm.fence.map_or(pause, |fence| (millis(fence) - silence).max(100));
        self.tick(slot, pause.min(to_fence), Tick::Beat);
    }

    /// A call of a runner that lives, if it is the one that it waits for.
    fn of_call(&mut self, client: Client, id: u64) -> Option<(usize, Lane)> {
        let Client::Runner(slot, incarnation, lane) = client else { return None };
        let runner = &self.runners[slot];
        let is_mine = runner.is_alive && runner.incarnation == incarnation;
        let is_awaited = runner.calls.get(&lane).is_some_and(|call| call.id == Some(id));
        (is_mine && is_awaited).then_some((slot, lane))
    }

    pub(crate) fn on_failed_call(&mut self, client: Client, id: u64) {
        let Some((slot, lane)) = self.of_call(client, id) else { return };
        if self.runners[slot].trouble.stalled_until > self.now {
            return self.plan(self.runners[slot].trouble.stalled_until, Event::Failed(client, id));
        }
        self.on_no_answer(slot, lane);
    }

    /// The network or the server failed: the same call again, after a while.
    fn on_no_answer(&mut self, slot: usize, lane: Lane) {
        let Some(call) = self.runners[slot].calls.get_mut(&lane) else { return };
        call.id = None;
        let tries = call.tries;
        match (lane, self.sabotage) {
            (Lane::Exchange, Some(Sabotage::ReportsDropped)) => {
                self.runners[slot].calls.remove(&lane);
                return self.tell(slot, Fact::Exchanged(ClaimResponse::default()));
            }
            (Lane::Listen, Some(Sabotage::ForgottenClaims)) => {
                self.runners[slot].calls.remove(&lane);
                return self.tell(slot, Fact::Heard(ClaimResponse::default()));
            }
            (Lane::Goodbye, _) if tries >= GOODBYE_TRIES => {
                return self.tell(slot, Fact::GoodbyeFailed("no answer".into()));
            }
            _ => {}
        }
        if lane == Lane::Beat {
            self.plan_beat(slot, false);
        } else {
            let pause = (FIRST_PAUSE << tries.min(10)).min(LONGEST_PAUSE);
            let pause = self.rng.range(pause * 3 / 4, pause * 5 / 4);
            self.tick(slot, pause, Tick::Retry(lane));
        }
        if !matches!(lane, Lane::Register | Lane::Goodbye) {
            self.tell(slot, Fact::ServerLost("no answer".into(), None));
        }
    }

    pub(crate) fn on_answer(&mut self, client: Client, id: u64, answer: Answer) {
        let Some((slot, lane)) = self.of_call(client, id) else { return };
        if self.runners[slot].trouble.stalled_until > self.now {
            let at = self.runners[slot].trouble.stalled_until;
            return self.plan(at, Event::Answered(client, id, Box::new(answer)));
        }
        self.note(|_| format!("slot {slot} hears #{id}"));
        let runner = &mut self.runners[slot];
        let sent = runner.calls.get(&lane).map_or(0, |call| call.sent);
        runner.contact.last = runner.contact.last.max(sent);
        if matches!(answer, Answer::Broken) {
            return self.on_no_answer(slot, lane);
        }
        let Some(call) = runner.calls.remove(&lane) else { return };
        match answer {
            Answer::Registered(id) => self.on_registered(slot, id),
            Answer::Claimed(answer) => self.on_claimed(slot, lane, &call.request, *answer),
            Answer::Beat(answer) => self.on_beat(slot, &call, answer),
            Answer::ActionKnown(action) => self.on_action_reported(slot, action),
            Answer::Done => self.tell(slot, Fact::GoodbyeAnswered(Vec::new())),
            Answer::RunnerEnded => match (lane, &*call.request) {
                (Lane::Action, Request::ActionDone(_, action)) => {
                    self.on_action_reported(slot, *action);
                }
                _ => self.tell(slot, Fact::Refused("the runner has ended".into())),
            },
            // Another batch job is its allocation: it is not needed.
            Answer::Refused(_) if lane == Lane::Register => self.is_gone(slot),
            Answer::Refused(_) | Answer::Orders(_) | Answer::Broken => {}
        }
    }

    fn on_registered(&mut self, slot: usize, id: RunnerId) {
        let place = &self.scenario.slots[slot];
        let is_slurm = place.sight == Sight::Slurm;
        let settings = DispatcherSettings {
            runner_id: id,
            key: format!("{slot}.{}", self.runners[slot].incarnation),
            capacity: place.capacity.clone(),
            gpus: Vec::new(),
            nodes: Vec::new(),
            prefetch: Prefetch::Fixed(u32::try_from(place.prefetch).unwrap_or(0)),
            leave_when_stuck: false,
            idle_limit: None,
            ignore_completion: false,
            strict_scheduler_match: false,
            time_limit: TimeLimit {
                end: None,
                margin: Duration::ZERO,
                reason: StopReason::Stopped,
            },
            wait_for_server: WAIT_FOR_SERVER,
            doubt: is_slurm.then_some(DOUBT),
            wall_clock: || 0,
        };
        let now = self.instant();
        let runner = &mut self.runners[slot];
        runner.id = Some(id);
        runner.dispatcher = Some(Dispatcher::new(settings, runner.held.clone(), now));
        self.tell_guard(slot, self.now);
        self.plan_beat(slot, true);
        self.settle(slot, Vec::new());
    }

    fn on_claimed(
        &mut self,
        slot: usize,
        lane: Lane,
        request: &Request,
        mut answer: ClaimResponse,
    ) {
        self.obey(&mut answer.cancel);
        if let Request::Claim(request, _) = request {
            for (report, result) in request.completed.iter().zip(&answer.completed) {
                let counts = result.result != ReportVerdict::Late && report.cause.is_none();
                let is_done = result.job_status.is_none_or(|s| s == JobStatus::Completed);
                let process = self.witness.of(report.attempt.id);
                // A map that has looked for its items is not done yet.
                let is_search = |job: &JobId| {
                    self.server.durable.place(*job).is_some_and(|(flow, index)| {
                        self.scenario.flows[flow].maps.contains_key(&JobIx::new(index))
                    })
                };
                let job = process.map(|p| p.job).filter(|job| counts && is_done && !is_search(job));
                if let Some(job) = job
                    && self.sabotage != Some(Sabotage::TokensIgnored)
                {
                    self.checker.acknowledge(job, report.attempt.id);
                }
            }
        }
        let fact = match lane {
            Lane::Exchange => Fact::Exchanged(answer),
            _ => Fact::Heard(answer),
        };
        self.tell(slot, fact);
    }

    fn on_beat(&mut self, slot: usize, call: &Call, mut answer: HeartbeatAnswer) {
        self.tell_guard(slot, call.sent);
        if let Request::Heartbeat(body) = &*call.request {
            self.runners[slot].held.told(&body.gone);
            self.runners[slot].steps.told(&body.step_events);
        }
        self.obey(&mut answer.cancel);
        if self.sabotage == Some(Sabotage::ForgottenClaims) {
            answer.forgotten.clear();
        }
        self.plan_beat(slot, true);
        if answer != HeartbeatAnswer::default() {
            self.tell(slot, Fact::Heartbeat(answer));
        }
    }

    /// Notes when orders to stop were heard.
    fn obey(&mut self, orders: &mut Vec<AttemptId>) {
        for id in orders.iter() {
            self.checker.ordered.entry(*id).or_insert(self.now);
        }
        if self.sabotage == Some(Sabotage::OrdersIgnored) {
            orders.clear();
        }
    }

    fn on_action_reported(&mut self, slot: usize, action: ActionId) {
        self.runners[slot].actions.remove(&action);
        self.report_action(slot);
        self.tell(slot, Fact::ActionReported(action));
    }

    // ------------------------------------------------------------------------------------------
    // processes

    fn draw_result(&mut self, slot: usize) -> Result<(), (i64, Cause)> {
        if self.now < self.scenario.slots[slot].bad_until {
            return Err((1, Cause::Exit));
        }
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

    fn spawn(&mut self, slot: usize, attempt: AttemptId) {
        let Some(work) = self.runners[slot].work.get_mut(&attempt) else { return };
        let Phase::Waiting = work.phase else { return };
        (work.phase, work.started) = (Phase::Running, self.now);
        let (job, token, result) = (work.packet.job_id, work.packet.token.clone(), work.result);
        let verdict = self.checker.on_start(job, attempt, &self.witness, &self.server.durable);
        self.demand(verdict);
        let incarnation = self.runners[slot].incarnation;
        self.note(|_| {
            format!(
                "slot {slot} starts attempt {attempt} of job {job}, which will end with {result:?}"
            )
        });
        let started = self.now;
        let process = Process {
            job,
            attempt,
            slot,
            incarnation,
            started,
            ended: None,
            result: None,
            steps: 0,
        };
        self.witness.start(process);
        let is_bad = self.now < self.scenario.slots[slot].bad_until;
        let duration = match is_bad {
            true => 100,
            false => self.rng.wait(self.scenario.duration).min(20 * self.scenario.duration),
        };
        if self.scenario.has_steps {
            for _ in 0..self.rng.below(4) {
                let at = self.rng.below(duration.unsigned_abs() + 1) as i64;
                self.tick(slot, at, Tick::Step(attempt));
            }
        }
        self.tick(slot, duration, Tick::End(attempt));
        let attempt = AttemptRef { id: attempt, token };
        self.tell(slot, Fact::Started(StartReport { attempt, pid: 1, at_ms: self.now }));
    }

    fn on_process_end(&mut self, slot: usize, attempt: AttemptId, killed: bool) {
        let runner = &mut self.runners[slot];
        let incarnation = runner.incarnation;
        let Some(work) = runner.work.remove(&attempt) else { return };
        runner.steps.end(attempt);
        let seen = (!killed).then_some(work.result.map_err(|(_, cause)| cause));
        self.witness.end(attempt, slot, incarnation, self.now, seen);
        self.note(|_| {
            format!("slot {slot}: the process of attempt {attempt} ends, killed: {killed}")
        });
        let report = self.report(work);
        self.tell(slot, Fact::Ended(Box::new(report)));
    }

    /// A step does something; the next heartbeat tells it.
    fn on_step(&mut self, slot: usize, attempt: AttemptId) {
        let now = self.now;
        let Some(work) = self.runners[slot].work.get_mut(&attempt) else { return };
        let Some(number) = self.witness.step(attempt) else { return };
        let attempt_id = ("attempt".to_owned(), attempt.0.into());
        let data = [("number".to_owned(), number.into()), attempt_id].into_iter().collect();
        let event = StepEvent { kind: STEP, at_ms: now, path: "step".into(), data };
        work.steps.push(event.clone());
        let token = work.packet.token.clone();
        self.runners[slot].steps.push(attempt, &token, event);
    }

    /// What a map finds when it looks for its items: mostly the same, sometimes others.
    fn find_items(&mut self, job: JobId) -> Option<Vec<Item>> {
        let (flow, index) = self.server.durable.place(job)?;
        let map = self.scenario.flows[flow].maps.get(&JobIx::new(index))?;
        if !map.is_dynamic {
            return None;
        }
        let count = 1 + job.0 % 4;
        let mut items = Vec::new();
        for key in 0..count {
            let luck = if self.is_calm { 1000 } else { self.rng.below(1000) };
            match luck {
                0..60 => {}
                60..120 => items.push(item(key, "other")),
                _ => items.push(item(key, "same")),
            }
        }
        Some(items)
    }

    fn report(&mut self, work: Work) -> CompletionReport {
        let items = self.find_items(work.packet.job_id);
        let ended = unstarted_report(work.packet.clone(), Cause::Exit, "", self.now);
        let (return_code, cause, detail) = match (&work.phase, work.result) {
            (Phase::Stopping(reason), _) => (143, Some(cause_of(reason)), told(reason)),
            (Phase::Waiting | Phase::Running, Ok(())) => (0, None, None),
            (Phase::Waiting | Phase::Running, Err((code, cause))) => (code, Some(cause), None),
        };
        // A runner that was stopped may have been in the middle of the script; every other end
        // comes after it.
        let has_run = work.packet.recovery.is_some() && !cause.is_some_and(Cause::is_stop);
        let script = ScriptResult {
            return_code: 0,
            exec_seconds: 1.0,
            timed_out: false,
            stdout_path: None,
            stderr_path: None,
        };
        let script = has_run.then_some(script);
        let mut steps = json!({
            "events": work.steps,
            "captures": {"attempt": work.packet.id.0},
        });
        if let Some(items) = items {
            steps["items"] = json!(items);
        }
        let has_steps = self.scenario.has_steps || steps["items"].is_array();
        let exec_seconds = (self.now - work.started) as f64 / 1000.0;
        let steps = has_steps.then_some(steps);
        CompletionReport { return_code, cause, detail, script, steps, exec_seconds, ..ended }
    }

    /// Ends an attempt. One whose process does not run yet ends at once.
    fn stop(&mut self, slot: usize, attempt: AttemptId, reason: &StopReason) {
        let grace = self.rng.range(1, KILL_GRACE);
        let Some(work) = self.runners[slot].work.get_mut(&attempt) else { return };
        match &work.phase {
            Phase::Waiting | Phase::Running => {
                let is_waiting = matches!(work.phase, Phase::Waiting);
                work.phase = Phase::Stopping(reason.clone());
                self.tick(slot, if is_waiting { 1 } else { grace }, Tick::Killed(attempt));
            }
            Phase::Stopping(_) => {}
        }
    }
}

fn item(key: i64, value: &str) -> Item {
    Item { key: format!("item {key}"), item: value.into() }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn cause_of(reason: &StopReason) -> Cause {
    match reason {
        StopReason::Canceled => Cause::Canceled,
        StopReason::Stopped | StopReason::NotOurs | StopReason::OutOfContact => Cause::Stopped,
        StopReason::RunnerTimeUp => Cause::Walltime,
        StopReason::Timeout { .. } => Cause::Timeout,
        StopReason::Memory { .. } => Cause::Oom,
    }
}

fn told(reason: &StopReason) -> Option<EndDetail> {
    (*reason == StopReason::Stopped).then_some(EndDetail::ToldToStop)
}
