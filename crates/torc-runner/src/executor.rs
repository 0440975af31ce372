//! Executes attempts and actions as sequences of processes. Does not talk to the server and decides
//! nothing about what to take or when: that is the dispatcher's.

use crate::actions::{self, Action, ActionResult};
use crate::attempt::{self, Attempt, AttemptContext};
use crate::mailbox::Mailbox;
use crate::steps::{Answer, Ask, Slots, StepRun};
use crate::supervisor::{Done, ProcessEvent, ProcessExit, StopReason, Supervisor};
use crate::tasks::{FollowUp, Tasks};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;
use torc_fence::mark;
use torc_model::api::{ActionPacket, AttemptPacket, AttemptRef, CompletionReport, StartReport};
use torc_model::ids::AttemptId;

/// What the executor tells.
#[derive(Debug)]
pub enum ExecutorEvent {
    /// An attempt's first process runs.
    Started(StartReport),
    /// An attempt has ended.
    Ended(Box<CompletionReport>),
    /// An action has ended.
    ActionEnded(ActionResult),
}

struct Unit {
    what: UnitKind,
    /// It was told to end. What it does between two processes must not make it forget.
    stop: Option<StopReason>,
}

enum UnitKind {
    Attempt(Box<Attempt>),
    Action(Action),
    Steps(AttemptId),
}

/// What a task has made ready.
#[derive(Debug)]
pub enum PreparedTask {
    /// A report.
    Report(Box<CompletionReport>),
    /// The next wish of an attempt with steps.
    Turn(AttemptId, Box<StepRun>, Ask),
    /// A slot of the agent for an attempt that waits for one.
    Slot(AttemptId, File),
}

/// An attempt with steps.
struct Stepping {
    /// Not here while a task has it.
    run: Option<Box<StepRun>>,
    waits_until: Option<Instant>,
    waits_for_slot: bool,
    stop: Option<StopReason>,
    /// Still to be told to the server.
    start: Option<AttemptRef>,
}

impl Unit {
    fn new(what: UnitKind) -> Self {
        Self { what, stop: None }
    }
}

/// Everything that is being executed.
pub struct Executor {
    context: Arc<AttemptContext>,
    supervisor: Supervisor,
    tasks: Arc<Tasks>,
    prepared: Mailbox<PreparedTask>,
    steps: HashMap<AttemptId, Stepping>,
    waits: BTreeSet<(Instant, AttemptId)>,
    slots: Slots,
    units: HashMap<u64, Unit>,
    by_attempt: HashMap<AttemptId, u64>,
    /// Processes that were started, and the next.
    process_count: u64,
    process_events: Vec<ProcessEvent>,
}

impl Executor {
    /// Nothing runs yet. What needs a look at files comes through `prepared` and must be handed to
    /// [`Executor::on_prepared`].
    pub fn new(
        context: Arc<AttemptContext>,
        supervisor: Supervisor,
        tasks: Arc<Tasks>,
        prepared: Mailbox<PreparedTask>,
    ) -> Self {
        Self {
            context,
            supervisor,
            tasks,
            prepared,
            steps: HashMap::new(),
            waits: BTreeSet::new(),
            slots: Slots::default(),
            units: HashMap::new(),
            by_attempt: HashMap::new(),
            process_count: 1,
            process_events: Vec::new(),
        }
    }

    /// The layer below.
    pub fn supervisor(&mut self) -> &mut Supervisor {
        &mut self.supervisor
    }

    /// Starts an attempt.
    pub fn start(
        &mut self,
        packet: AttemptPacket,
        gpus: Vec<String>,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        if packet.steps.is_some() && packet.recovery.is_none() {
            self.start_steps(Attempt::new(packet, gpus), now, out);
            return;
        }
        let attempt_id = packet.id;
        let id = self.take_id(Some(attempt_id));
        let attempt = Attempt::new(packet, gpus);
        self.supervisor.start(attempt.order(&self.context, id), now);
        self.units.insert(id, Unit::new(UnitKind::Attempt(Box::new(attempt))));
        self.by_attempt.insert(attempt_id, id);
    }

    /// Starts an action.
    pub fn start_action(
        &mut self,
        packet: ActionPacket,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        let id = self.take_id(None);
        let (action, next) = Action::begin(packet, &self.context, id);
        if let Some(action) = action {
            self.units.insert(id, Unit::new(UnitKind::Action(action)));
        }
        self.follow_action(next, now, out);
    }

    fn start_steps(&mut self, mut attempt: Attempt, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let (id, start) = (attempt.reference().id, attempt.take_start());
        let run = Box::new(StepRun::new(attempt, self.context.clone()));
        self.steps.insert(
            id,
            Stepping {
                run: Some(run),
                waits_until: None,
                waits_for_slot: false,
                stop: None,
                start,
            },
        );
        self.turn(id, Answer::Begin, now, out);
    }

    /// Lets an attempt with steps go on; in a task, because it may look at files.
    fn turn(&mut self, id: AttemptId, answer: Answer, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let Some(mut run) = self.steps.get_mut(&id).and_then(|stepping| stepping.run.take()) else {
            return;
        };
        let is_quick =
            run.is_light() && !matches!(&answer, Answer::Ended(exit) if !exit.is_clean());
        if is_quick {
            let ask = run.advance(answer);
            return self.on_turn(id, run, ask, now, out);
        }
        let prepared = self.prepared.clone();
        self.tasks.push(move || {
            let ask = run.advance(answer);
            prepared.send_quietly(PreparedTask::Turn(id, run, ask));
            FollowUp::Now
        });
    }

    fn on_turn(
        &mut self,
        id: AttemptId,
        run: Box<StepRun>,
        ask: Ask,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        if let Ask::Done(report) = ask {
            self.steps.remove(&id);
            self.by_attempt.remove(&id);
            out.push(ExecutorEvent::Ended(report));
            return;
        }
        let Some(stepping) = self.steps.get_mut(&id) else { return };
        stepping.run = Some(run);
        if let Some(reason) = stepping.stop.clone() {
            return self.turn(id, Answer::Stop(reason), now, out);
        }
        match ask {
            Ask::Run(mut order) => {
                let process = self.take_id(Some(id));
                order.id = process;
                order.tag = self.context.tag(process);
                self.units.insert(process, Unit::new(UnitKind::Steps(id)));
                self.by_attempt.insert(id, process);
                self.supervisor.start(*order, now);
            }
            Ask::Wait(time) => {
                let until = now + time;
                stepping.waits_until = Some(until);
                self.waits.insert((until, id));
            }
            Ask::Slot { paths, at_most } => {
                stepping.waits_for_slot = true;
                if let Some(time) = at_most {
                    let until = now + time;
                    stepping.waits_until = Some(until);
                    self.waits.insert((until, id));
                }
                let prepared = self.prepared.clone();
                self.slots
                    .wait(id, paths, move |id, slot| prepared.send(PreparedTask::Slot(id, slot)));
            }
            Ask::Done(_) => {}
        }
    }

    /// A waiter that gives up its slot lets it go by dropping it.
    fn on_slot(&mut self, id: AttemptId, slot: File, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let Some(stepping) = self.steps.get_mut(&id).filter(|stepping| stepping.waits_for_slot)
        else {
            return;
        };
        stepping.waits_for_slot = false;
        if let Some(until) = stepping.waits_until.take() {
            self.waits.remove(&(until, id));
        }
        let answer = stepping.stop.clone().map_or(Answer::Slot(slot), Answer::Stop);
        self.turn(id, answer, now, out);
    }

    /// Notes that attempts with steps are to end, and ends the waits among them.
    fn stop_steps(&mut self, ids: &[AttemptId], reason: &StopReason, now: Instant) {
        for id in ids {
            let Some(stepping) = self.steps.get_mut(id) else { continue };
            stepping.stop.get_or_insert_with(|| reason.clone());
            let until = stepping.waits_until.take();
            if until.is_some() || stepping.waits_for_slot {
                // It wakes at once, and the thread that wakes it sees that it is to end.
                until.map(|until| self.waits.remove(&(until, *id)));
                self.waits.insert((now, *id));
                stepping.waits_until = Some(now);
            }
        }
    }

    /// When [`Executor::on_time`] wants to be called.
    pub fn next_alarm(&self) -> Option<Instant> {
        [self.supervisor.next_alarm(), self.waits.first().map(|(at, _)| *at)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Ends one attempt.
    pub fn stop(&mut self, attempt: AttemptId, reason: &StopReason, now: Instant) {
        self.stop_steps(&[attempt], reason, now);
        if let Some(id) = self.by_attempt.get(&attempt).copied() {
            self.note_stop(&[id], reason);
            self.supervisor.stop(&[id], reason, now);
        }
    }

    /// Ends everything, actions included.
    pub fn stop_all(&mut self, reason: &StopReason, now: Instant) {
        let stepping: Vec<AttemptId> = self.steps.keys().copied().collect();
        self.stop_steps(&stepping, reason, now);
        let ids = self.supervisor.ids();
        self.note_stop(&ids, reason);
        self.supervisor.stop(&ids, reason, now);
    }

    fn note_stop(&mut self, ids: &[u64], reason: &StopReason) {
        for id in ids {
            if let Some(unit) = self.units.get_mut(id) {
                unit.stop.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// Ends everything at once.
    pub fn kill_all(&mut self, reason: &StopReason, now: Instant) {
        let stepping: Vec<AttemptId> = self.steps.keys().copied().collect();
        self.stop_steps(&stepping, reason, now);
        let ids = self.supervisor.ids();
        self.note_stop(&ids, reason);
        self.supervisor.kill(&ids, reason, now);
    }

    /// The name of the next process, by which a reader of its mark knows whose it is.
    fn take_id(&mut self, attempt: Option<AttemptId>) -> u64 {
        let count = self.process_count;
        self.process_count += 1;
        let attempt = attempt.and_then(|attempt| u64::try_from(attempt.0).ok());
        mark::process_number(attempt, count)
    }

    /// The poller says that a process has ended.
    pub fn on_ready(&mut self, key: u64, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let mut events = std::mem::take(&mut self.process_events);
        self.supervisor.on_ready(key, now, &mut events);
        self.on_process_events(events, now, out);
    }

    /// An answer of a task.
    pub fn on_done(&mut self, done: Done, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let mut events = std::mem::take(&mut self.process_events);
        self.supervisor.on_done(done, now, &mut events);
        self.on_process_events(events, now, out);
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let mut events = std::mem::take(&mut self.process_events);
        self.supervisor.on_time(now, &mut events);
        self.on_process_events(events, now, out);
        while let Some((at, id)) = self.waits.first().copied().filter(|(at, _)| *at <= now) {
            self.waits.remove(&(at, id));
            let Some(stepping) = self.steps.get_mut(&id) else { continue };
            stepping.waits_until = None;
            if std::mem::take(&mut stepping.waits_for_slot) {
                self.slots.forget(id);
            }
            let answer = stepping.stop.clone().map_or(Answer::Woken, Answer::Stop);
            self.turn(id, answer, now, out);
        }
    }

    /// A task has made something ready.
    pub fn on_prepared(
        &mut self,
        prepared: PreparedTask,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        match prepared {
            PreparedTask::Report(report) => out.push(ExecutorEvent::Ended(report)),
            PreparedTask::Turn(id, run, ask) => self.on_turn(id, run, ask, now, out),
            PreparedTask::Slot(id, slot) => self.on_slot(id, slot, now, out),
        }
    }

    fn on_process_events(
        &mut self,
        mut events: Vec<ProcessEvent>,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        let mut series = String::new();
        for event in events.drain(..) {
            match event {
                ProcessEvent::Sampled { sample, cpu_percent } => {
                    if self.context.time_series.is_some()
                        && let Some(UnitKind::Attempt(attempt)) =
                            self.units.get(&sample.id).map(|unit| &unit.what)
                    {
                        series += &attempt.sample_line(&sample, cpu_percent, crate::time::now_ms());
                    }
                }
                ProcessEvent::Started { id, pid, at_ms } => {
                    let start = match self.units.get_mut(&id).map(|unit| &mut unit.what) {
                        Some(UnitKind::Attempt(attempt)) => attempt.take_start(),
                        Some(UnitKind::Steps(id)) => {
                            self.steps.get_mut(id).and_then(|stepping| stepping.start.take())
                        }
                        Some(UnitKind::Action(_)) | None => None,
                    };
                    let report = |attempt| {
                        ExecutorEvent::Started(StartReport { attempt, pid: i64::from(pid), at_ms })
                    };
                    out.extend(start.map(report));
                }
                ProcessEvent::Ended(exit) => {
                    if let Some(unit) = self.units.remove(&exit.id) {
                        if self.context.time_series.is_some()
                            && let UnitKind::Attempt(attempt) = &unit.what
                        {
                            series += &attempt.peak_line(&exit);
                        }
                        self.on_exit(unit, exit, now, out);
                    }
                }
            }
        }
        self.keep_series(series);
        // Keeps its memory for the next time.
        self.process_events = events;
    }

    fn on_exit(
        &mut self,
        Unit { what, stop }: Unit,
        exit: Box<ProcessExit>,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        match what {
            UnitKind::Steps(attempt) => {
                self.by_attempt.remove(&attempt);
                self.turn(attempt, Answer::Ended(exit), now, out);
            }
            UnitKind::Attempt(attempt) => {
                let attempt_id = attempt.reference().id;
                let id = self.take_id(Some(attempt_id));
                let (attempt, next) = attempt.on_exit(&self.context, *exit, stop, id);
                match attempt {
                    Some(attempt) => {
                        self.units.insert(id, Unit::new(UnitKind::Attempt(attempt)));
                        self.by_attempt.insert(attempt_id, id);
                    }
                    None => drop(self.by_attempt.remove(&attempt_id)),
                }
                self.follow_attempt(next, now, out);
            }
            UnitKind::Action(mut action) => {
                let id = self.take_id(None);
                let next = action.on_exit(&self.context, &exit, stop.is_some(), id);
                if matches!(next, actions::AfterAction::Run(_)) {
                    self.units.insert(id, Unit::new(UnitKind::Action(action)));
                }
                self.follow_action(next, now, out);
            }
        }
    }

    fn keep_series(&self, lines: String) {
        let Some(path) = self.context.time_series.clone().filter(|_| !lines.is_empty()) else {
            return;
        };
        self.tasks.push(move || {
            let file = torc_fs::append_log(&path);
            if let Err(error) = file.and_then(|mut file| file.write_all(lines.as_bytes())) {
                tracing::warn!(path = %path.display(), %error, "cannot keep what attempts use");
            }
            FollowUp::Later
        });
    }

    fn follow_attempt(
        &mut self,
        next: attempt::AfterProcess,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        match next {
            attempt::AfterProcess::Run(order) => self.supervisor.start(*order, now),
            attempt::AfterProcess::Steps(attempt) => self.start_steps(*attempt, now, out),
            attempt::AfterProcess::Report(finish) if finish.is_quick(&self.context) => {
                out.push(ExecutorEvent::Ended(Box::new(finish.report(&self.context))));
            }
            attempt::AfterProcess::Report(finish) => {
                let (context, prepared) = (self.context.clone(), self.prepared.clone());
                self.tasks.push(move || {
                    prepared.send_quietly(PreparedTask::Report(Box::new(finish.report(&context))));
                    FollowUp::Now
                });
            }
        }
    }

    fn follow_action(
        &mut self,
        next: actions::AfterAction,
        now: Instant,
        out: &mut Vec<ExecutorEvent>,
    ) {
        match next {
            actions::AfterAction::Run(order) => self.supervisor.start(*order, now),
            actions::AfterAction::Done(result) => out.push(ExecutorEvent::ActionEnded(result)),
        }
    }
}
