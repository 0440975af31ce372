//! Executes attempts and actions as sequences of processes. Does not talk to the server and decides nothing about what
//! to take or when: that is the dispatcher's.

use crate::actions::{self, Action, ActionResult};
use crate::attempt::{self, Attempt, Context};
use crate::mailbox::Mailbox;
use crate::pool::Pool;
use crate::supervisor::{Done, ProcessEvent, StopReason, Supervisor, Task};
use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;
use torc_model::api::{ActionPacket, AttemptPacket, CompletionReport, StartReport};
use torc_model::ids::AttemptId;
use torc_model::status::Cause;

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

enum Unit {
    Attempt(Box<Attempt>),
    Action(Action),
}

/// Everything that is being executed.
pub struct Executor {
    context: Arc<Context>,
    supervisor: Supervisor,
    pool: Arc<Pool<Task>>,
    reports: Mailbox<Box<CompletionReport>>,
    units: HashMap<u64, Unit>,
    by_attempt: HashMap<AttemptId, u64>,
    next_id: u64,
    process_events: Vec<ProcessEvent>,
}

impl Executor {
    /// Nothing runs yet. Reports that need a look at files come through `reports` and must be handed to
    /// [`Executor::on_report`].
    pub fn new(
        context: Arc<Context>,
        supervisor: Supervisor,
        pool: Arc<Pool<Task>>,
        reports: Mailbox<Box<CompletionReport>>,
    ) -> Self {
        Self {
            context,
            supervisor,
            pool,
            reports,
            units: HashMap::new(),
            by_attempt: HashMap::new(),
            next_id: 1,
            process_events: Vec::new(),
        }
    }

    /// The layer below.
    pub fn supervisor(&mut self) -> &mut Supervisor {
        &mut self.supervisor
    }

    /// Starts an attempt.
    pub fn start(&mut self, packet: AttemptPacket, gpus: Vec<String>, now: Instant, out: &mut Vec<ExecutorEvent>) {
        if packet.steps.is_some() {
            let error = "this runner can not execute steps";
            let mut report = attempt::unstarted_report(packet, Cause::SpawnError, error, crate::time::now_ms());
            report.return_code = 127;
            out.push(ExecutorEvent::Ended(Box::new(report)));
            return;
        }
        let id = self.take_id();
        let attempt_id = packet.id;
        let attempt = Attempt::new(packet, gpus);
        self.supervisor.start(attempt.order(&self.context, id), now);
        self.units.insert(id, Unit::Attempt(Box::new(attempt)));
        self.by_attempt.insert(attempt_id, id);
    }

    /// Starts an action.
    pub fn start_action(&mut self, packet: ActionPacket, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let id = self.take_id();
        let (action, next) = Action::begin(packet, &self.context, id);
        if let Some(action) = action {
            self.units.insert(id, Unit::Action(action));
        }
        self.follow_action(next, now, out);
    }

    /// Ends one attempt.
    pub fn stop(&mut self, attempt: AttemptId, reason: &StopReason, now: Instant) {
        if let Some(id) = self.by_attempt.get(&attempt) {
            self.supervisor.stop(&[*id], reason, now);
        }
    }

    /// Ends everything, actions included.
    pub fn stop_all(&mut self, reason: &StopReason, now: Instant) {
        let ids = self.supervisor.ids();
        self.supervisor.stop(&ids, reason, now);
    }

    /// Ends everything at once.
    pub fn kill_all(&mut self, reason: &StopReason, now: Instant) {
        let ids = self.supervisor.ids();
        self.supervisor.kill(&ids, reason, now);
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The poller says that a process has ended.
    pub fn on_ready(&mut self, key: u64, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let mut events = std::mem::take(&mut self.process_events);
        self.supervisor.on_ready(key, now, &mut events);
        self.on_process_events(events, now, out);
    }

    /// An answer of the pool.
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
    }

    /// A report is ready.
    pub fn on_report(&mut self, report: Box<CompletionReport>, out: &mut Vec<ExecutorEvent>) {
        out.push(ExecutorEvent::Ended(report));
    }

    fn on_process_events(&mut self, mut events: Vec<ProcessEvent>, now: Instant, out: &mut Vec<ExecutorEvent>) {
        let mut series = String::new();
        for event in events.drain(..) {
            match event {
                ProcessEvent::Sampled { sample, cpu_percent } => {
                    if self.context.time_series.is_some()
                        && let Some(Unit::Attempt(attempt)) = self.units.get(&sample.id)
                    {
                        series += &attempt.sample_line(&sample, cpu_percent, crate::time::now_ms());
                    }
                }
                ProcessEvent::Started { id, pid, at_ms } => {
                    if let Some(Unit::Attempt(attempt)) = self.units.get_mut(&id)
                        && let Some(attempt) = attempt.take_start()
                    {
                        out.push(ExecutorEvent::Started(StartReport { attempt, pid: i64::from(pid), at_ms }));
                    }
                }
                ProcessEvent::Ended(exit) => match self.units.remove(&exit.id) {
                    Some(Unit::Attempt(attempt)) => {
                        let id = self.take_id();
                        let attempt_id = attempt.reference().id;
                        let (attempt, next) = attempt.on_exit(&self.context, *exit, id);
                        match attempt {
                            Some(attempt) => {
                                self.units.insert(id, Unit::Attempt(attempt));
                                self.by_attempt.insert(attempt_id, id);
                            }
                            None => drop(self.by_attempt.remove(&attempt_id)),
                        }
                        self.follow_attempt(next, now, out);
                    }
                    Some(Unit::Action(mut action)) => {
                        let id = self.take_id();
                        let next = action.on_exit(&self.context, &exit, id);
                        if matches!(next, actions::Next::Run(_)) {
                            self.units.insert(id, Unit::Action(action));
                        }
                        self.follow_action(next, now, out);
                    }
                    None => {}
                },
            }
        }
        self.keep_series(series);
        // Keeps its memory for the next time.
        self.process_events = events;
    }

    fn keep_series(&self, lines: String) {
        let Some(path) = self.context.time_series.clone().filter(|_| !lines.is_empty()) else { return };
        self.pool.push(Box::new(move || {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
            if let Err(error) = file.and_then(|mut file| file.write_all(lines.as_bytes())) {
                tracing::warn!(path = %path.display(), %error, "can not keep what attempts use");
            }
        }));
    }

    fn follow_attempt(&mut self, next: attempt::Next, now: Instant, out: &mut Vec<ExecutorEvent>) {
        match next {
            attempt::Next::Run(order) => self.supervisor.start(*order, now),
            attempt::Next::Report(finish) if finish.is_quick(&self.context) => {
                out.push(ExecutorEvent::Ended(Box::new(finish.report(&self.context))));
            }
            attempt::Next::Report(finish) => {
                let (context, reports) = (self.context.clone(), self.reports.clone());
                self.pool.push(Box::new(move || reports.send(Box::new(finish.report(&context)))));
            }
        }
    }

    fn follow_action(&mut self, next: actions::Next, now: Instant, out: &mut Vec<ExecutorEvent>) {
        match next {
            actions::Next::Run(order) => self.supervisor.start(*order, now),
            actions::Next::Done(result) => out.push(ExecutorEvent::ActionEnded(result)),
        }
    }
}
