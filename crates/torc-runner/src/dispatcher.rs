//! Decides what this runner takes, starts, stops, reports and when it leaves. No I/O, no clock, no
//! threads: facts come in as events, and what is to be done goes out as effects.
//!
//! ```text
//!   server ◀─ exchange lane: reports, and a claim in the same breath; one at a time
//!          ◀─ listen lane:   one long poll; new work, cancels and actions come at once
//!               │ events                effects │
//!               ▼                               ▼
//!            ┌──────────── dispatcher ────────────┐
//!               ▲ Started, Ended        start, stop │
//!            executor ◀────────────────────────────┘
//! ```
//!
//! Reports that come while an exchange is on its way ride on the next one, and what is not urgent
//! waits a little for company: full batches under load, no delay when idle.

mod actions;
mod contact;
mod doubt;
mod leaving;
mod listener;
mod nodes;
mod outbox;
mod requests;
mod running;

use crate::actions::ActionResult;
use crate::attempt::unstarted_report;
use crate::config::{LeaveReason, Prefetch, RunnerNotice, Shutdown};
use crate::held::HeldList;
use crate::places::add_places;
use crate::resources::{Free, Node};
use crate::supervisor::StopReason;
use actions::RunningActions;
use contact::{ClaimStanding, ServerContact};
use doubt::{Doubts, stopped_with_its_runner};
use leaving::{Departure, DispatcherPhase};
use listener::Listener;
use nodes::LostNode;
use outbox::Outbox;
use running::{Active, RunningAttempts};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_model::api::*;
use torc_model::ids::{ActionId, AttemptId, RunnerId};
use torc_model::slurm::logs::LastWord;
use torc_model::status::{Cause, EndDetail, EvidenceSource};

/// A listener waits this long at the server before it asks again.
const LISTEN_SECONDS: f64 = 30.0;
/// An answer that was written before a report may be heard this long after it, at most. The server
/// gives an action again after a longer time only.
const REPORT_CROSSING: Duration = Duration::from_secs(20);
/// At most this many attempts in one answer.
const CLAIM_LIMIT: i64 = 256;
/// A listener that is answered with nothing sooner than this is sent again only after a pause.
const HASTY: Duration = Duration::from_millis(200);
/// Short jobs are held ready for about this much work.
const PREFETCH_SECONDS: f64 = 0.1;
/// What could not be started for this long is given back if there is another runner that may have
/// it.
const STALE: Duration = Duration::from_secs(1);
/// A leaving runner waits this long for a server that does not answer.
const FAREWELL: Duration = Duration::from_secs(15);

/// What does not change while a runner works.
#[derive(Clone, Debug)]
pub struct DispatcherSettings {
    /// Its id at the server.
    pub runner_id: RunnerId,
    /// First part of the keys of its claims.
    pub key: String,
    /// What it has.
    pub capacity: Capacity,
    /// Names of its GPUs.
    pub gpus: Vec<String>,
    /// Its nodes, where it spreads jobs over several; the first is its own.
    pub nodes: Vec<Node>,
    /// How many attempts to hold ahead.
    pub prefetch: Prefetch,
    /// Leave as soon as nothing can run unless a user or another runner acts.
    pub leave_when_stuck: bool,
    /// Leave after this long without work.
    pub idle_limit: Option<Duration>,
    /// Stay although the workflow is complete.
    pub ignore_completion: bool,
    /// Jobs of another Slurm scheduler are not taken.
    pub strict_scheduler_match: bool,
    /// When everything must be ended.
    pub time_limit: TimeLimit,
    /// A runner that runs nothing leaves after this long without an answer of the server.
    pub wait_for_server: Duration,
    /// A batch system that stops this runner signals its jobs as well: so long a failure waits for
    /// that.
    pub doubt: Option<Duration>,
    /// Tells the time, in ms since 1970, for reports about what never started.
    pub wall_clock: fn() -> i64,
}

/// When a runner must end everything that it runs.
#[derive(Clone, Debug)]
pub struct TimeLimit {
    /// From then on everything must be ended.
    pub end: Option<Instant>,
    /// So long before the end of the allocation.
    pub margin: Duration,
    /// Why attempts are stopped then.
    pub reason: StopReason,
}

impl TimeLimit {
    /// The limit of an allocation that has so much time left; None: no end.
    pub fn new(left: Option<Duration>, margin: Duration, reason: StopReason, now: Instant) -> Self {
        let mut limit = Self { end: None, margin, reason };
        limit.set_left(left, now);
        limit
    }

    fn set_left(&mut self, left: Option<Duration>, now: Instant) {
        self.end = left.map(|left| now + left.saturating_sub(self.margin));
    }
}

/// What happens to a runner.
#[derive(Debug)]
pub enum Event {
    /// The exchange has been answered.
    Exchanged(ClaimResponse),
    /// The listener has been answered.
    Heard(ClaimResponse),
    /// A request got no answer, or one that is for now only; it is being repeated. What was said, and
    /// the code of the server's refusal.
    ServerLost(String, Option<ErrorCode>),
    /// The server said no, for good.
    Refused(String),
    /// A heartbeat has been answered.
    Heartbeat(HeartbeatAnswer),
    /// The server could not be reached for so long that it may soon give our attempts away.
    OutOfContact,
    /// An attempt runs.
    Started(StartReport),
    /// An attempt has ended.
    Ended(Box<CompletionReport>),
    /// An action has ended.
    ActionEnded(ActionResult),
    /// The server knows how an action ended.
    ActionReported(ActionId),
    /// Why the batch system is about to ask us to stop.
    StopReason(LastWord),
    /// The batch system says again how much time is left; None: no end.
    TimeLeft(Option<Duration>),
    /// The agent of a node is gone, and what ran there with it.
    NodeLost {
        /// Index of the node.
        node: usize,
        /// The batch system's name of it.
        name: String,
        /// How that was noticed.
        why: String,
        /// After this long nothing of its attempts lives for sure.
        proof_in: Duration,
    },
    /// The user or the batch system asks us to stop.
    Shutdown(Shutdown),
    /// The server has said goodbye; these actions are left to do.
    GoodbyeAnswered(Vec<ActionPacket>),
    /// The server could not be told.
    GoodbyeFailed(String),
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Send an exchange.
    Exchange(Arc<ClaimRequest>),
    /// Send a listener.
    Listen(ClaimRequest),
    /// Start an attempt on these GPUs of this node.
    Start(Box<AttemptPacket>, Vec<String>, usize),
    /// End an attempt.
    Stop(AttemptId, StopReason),
    /// End everything.
    StopAll(StopReason),
    /// End everything at once.
    KillAll(StopReason),
    /// Execute an action.
    RunAction(ActionPacket),
    /// Tell the server how an action ended.
    ReportAction(ActionResult),
    /// Keep these results on disk until they are delivered.
    Spool(Vec<CompletionReport>),
    /// Everything on disk has been delivered.
    ClearSpool,
    /// Say goodbye.
    Goodbye(Goodbye),
    /// Tell the observer.
    Tell(RunnerNotice),
    /// All is done.
    Exit,
}

/// How many attempts ended how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndCounts {
    /// Ended well.
    pub succeeded: u64,
    /// Failed by themselves.
    pub failed: u64,
    /// Ended from outside.
    pub ended: u64,
}

/// The owner of a runner's state.
pub struct Dispatcher {
    settings: DispatcherSettings,
    held: Arc<HeldList>,
    /// Granted and not started, with the time since when.
    queue: VecDeque<(Instant, AttemptPacket)>,
    running: RunningAttempts,
    doubts: Doubts,
    /// Nodes that are lost, whose attempts may still live.
    lost_nodes: Vec<LostNode>,
    actions: RunningActions,
    outbox: Outbox,
    listener: Listener,
    /// How many claims it made: each has a key of its own.
    claims: u64,
    contact: ServerContact,
    standing: ClaimStanding,
    departure: Departure,
    /// Moving average of how long attempts run.
    average_seconds: Option<f64>,
    /// How attempts ended so far.
    pub counts: EndCounts,
}

impl Dispatcher {
    /// A runner that has just been registered.
    pub fn new(settings: DispatcherSettings, held: Arc<HeldList>, now: Instant) -> Self {
        let free = match settings.nodes.as_slice() {
            [] | [_] => Free::new(settings.capacity.clone(), settings.gpus.clone()),
            nodes => Free::spread(settings.capacity.clone(), nodes.to_vec()),
        };
        Self {
            doubts: Doubts::new(settings.doubt),
            settings,
            held,
            queue: VecDeque::new(),
            running: RunningAttempts::new(free, now),
            lost_nodes: Vec::new(),
            actions: RunningActions::default(),
            outbox: Outbox::default(),
            listener: Listener::new(now),
            claims: 0,
            contact: ServerContact::default(),
            standing: ClaimStanding::default(),
            departure: Departure::default(),
            average_seconds: None,
            counts: EndCounts::default(),
        }
    }

    /// Why it left or is about to.
    pub fn reason(&self) -> LeaveReason {
        match &self.departure.phase {
            DispatcherPhase::Working => LeaveReason::Stopped,
            DispatcherPhase::Draining(reason, _) | DispatcherPhase::Leaving(reason, _) => {
                reason.clone()
            }
        }
    }

    /// Results that the server does not know of.
    pub fn undelivered(&self) -> usize {
        self.outbox.undelivered() + self.doubts.len()
    }

    /// When [`Dispatcher::settle`] wants to be called even if nothing happens.
    pub fn next_alarm(&self) -> Option<Instant> {
        if self.departure.has_left {
            return None;
        }
        let is_free = self.outbox.in_flight.is_none() && !self.contact.is_refused;
        let exchange = self.outbox.due_at.filter(|_| is_free);
        let phase = match &self.departure.phase {
            DispatcherPhase::Working => {
                // An alarm that is due and changes nothing would be due again at once: a runner
                // that has results to deliver does not leave, however long it is idle.
                let idle = self
                    .settings
                    .idle_limit
                    .filter(|_| self.could_leave())
                    .and_then(|limit| self.running.idle_since.map(|since| since + limit));
                let can_return = !self.actions.is_gated() && !self.standing.is_alone;
                let stale =
                    self.queue.front().filter(|_| can_return).map(|(since, _)| *since + STALE);
                let listen = self.listener.next_alarm();
                let given_up = self.gives_up_at();
                [idle, stale, listen, given_up, self.settings.time_limit.end]
                    .into_iter()
                    .flatten()
                    .min()
            }
            DispatcherPhase::Draining(_, since) => {
                let waits_only = self.contact.lost_since.is_some()
                    && self.is_idle()
                    && !self.actions.are_running();
                waits_only.then(|| *since + FAREWELL)
            }
            DispatcherPhase::Leaving(..) => None,
        };
        let lost = self.lost_nodes.iter().map(|lost| lost.over_at).min();
        [exchange, phase, lost, self.doubts.next_alarm()].into_iter().flatten().min()
    }

    /// Takes in a fact. What follows from it is decided by [`Dispatcher::settle`], once for all
    /// facts of a moment.
    pub fn handle_event(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Exchanged(answer) => {
                if let Some(request) = self.outbox.in_flight.take() {
                    self.on_acknowledged(&request, &answer, out);
                }
                self.on_answer(answer, now, out);
            }
            Event::Heard(answer) => {
                self.listener.on_answer(self.has_news(&answer), now);
                self.on_answer(answer, now, out);
            }
            Event::ServerLost(message, code) => self.on_lost(message, code, now, out),
            Event::Refused(message) => self.on_refused(message, now, out),
            Event::Heartbeat(answer) => {
                self.on_cancel(&answer.cancel, out);
                self.on_not_ours(&answer.not_yours, out);
                self.on_forgotten(&answer.forgotten, out);
            }
            Event::OutOfContact => {
                self.on_lost("no answer for too long".into(), None, now, out);
                self.drain(LeaveReason::OutOfContact, &StopReason::OutOfContact, now, out);
            }
            Event::Started(report) => self.on_started(report, out),
            Event::Ended(report) => self.on_ended(*report, now, out),
            Event::ActionEnded(result) => self.on_action_ended(result, now, out),
            Event::ActionReported(id) => self.actions.on_reported(id, now),
            Event::StopReason(why) => self.departure.stop_reason = Some(why),
            Event::Shutdown(Shutdown::Run) => {}
            Event::NodeLost { node, name, why, proof_in } => {
                self.on_node_lost(LostNode { node, name, why, over_at: now + proof_in }, out)
            }
            Event::TimeLeft(left) => self.settings.time_limit.set_left(left, now),
            Event::Shutdown(Shutdown::Stop) => {
                if matches!(&self.departure.phase, DispatcherPhase::Draining(reason, _) if *reason != LeaveReason::Stopped)
                {
                    // Jobs that have time to save their state now have less of it.
                    out.push(Effect::StopAll(StopReason::Stopped));
                }
                self.drain(LeaveReason::Stopped, &StopReason::Stopped, now, out)
            }
            Event::Shutdown(Shutdown::Kill) => {
                self.departure.is_hurried = true;
                self.drain(LeaveReason::Stopped, &StopReason::Stopped, now, out);
                out.push(Effect::KillAll(StopReason::Stopped));
            }
            Event::GoodbyeAnswered(actions) => self.on_goodbye_answered(actions, now, out),
            Event::GoodbyeFailed(message) => {
                out.push(Effect::Tell(RunnerNotice::Warning {
                    message: format!("no goodbye: {message}"),
                }));
                self.exit(out);
            }
        }
    }

    fn on_acknowledged(
        &mut self,
        request: &ClaimRequest,
        answer: &ClaimResponse,
        out: &mut Vec<Effect>,
    ) {
        for report in &request.completed {
            self.held.remove(report.attempt.id);
        }
        if self.outbox.on_delivered(&request.completed) {
            out.push(Effect::ClearSpool);
        }
        for result in &answer.completed {
            out.push(Effect::Tell(RunnerNotice::Judged {
                attempt: result.id,
                verdict: result.result,
                outcome: result.outcome,
                job_status: result.job_status,
            }));
        }
    }

    fn on_answer(&mut self, answer: ClaimResponse, now: Instant, out: &mut Vec<Effect>) {
        if self.contact.lost_since.take().is_some() {
            out.push(Effect::Tell(RunnerNotice::ServerBack));
        }
        self.standing = ClaimStanding::of(&answer);
        self.on_cancel(&answer.cancel, out);
        for action in answer.actions {
            self.on_action(action, now, out);
        }
        for packet in answer.attempts {
            self.on_granted(packet, now);
        }
    }

    fn on_granted(&mut self, packet: AttemptPacket, now: Instant) {
        if !self.held.insert(packet.id, &packet.token) {
            return;
        }
        match self.departure.phase {
            DispatcherPhase::Working => self.queue.push_back((now, packet)),
            DispatcherPhase::Draining(..) | DispatcherPhase::Leaving(..) => {
                self.give_back(packet, Cause::Stopped, "the runner was leaving")
            }
        }
    }

    /// Reports an attempt as over that never started.
    fn give_back(&mut self, packet: AttemptPacket, cause: Cause, error: &str) {
        let at_ms = (self.settings.wall_clock)();
        self.outbox.completed.push_back(unstarted_report(packet, cause, error, at_ms));
    }

    fn on_cancel(&mut self, ids: &[AttemptId], out: &mut Vec<Effect>) {
        for id in ids {
            if let Some(packet) = self.take_queued(*id) {
                self.give_back(packet, Cause::Canceled, "canceled");
            } else if self.running.attempts.contains_key(id) {
                out.push(Effect::Stop(*id, StopReason::Canceled));
            } else if !self.held.contains(*id) {
                self.held.disclaim(*id);
            }
        }
    }

    fn on_not_ours(&mut self, ids: &[AttemptId], out: &mut Vec<Effect>) {
        for id in ids {
            if self.take_queued(*id).is_some() {
                self.held.disclaim(*id);
            } else if let Some(active) = self.running.attempts.get_mut(id) {
                active.is_ours = false;
                out.push(Effect::Stop(*id, StopReason::NotOurs));
            }
        }
    }

    fn on_forgotten(&mut self, ids: &[AttemptId], out: &mut Vec<Effect>) {
        let lost: Vec<AttemptId> =
            ids.iter().copied().filter(|id| !self.held.contains(*id)).collect();
        if !lost.is_empty() {
            lost.iter().for_each(|id| self.held.disclaim(*id));
            let names: Vec<String> = lost.iter().map(ToString::to_string).collect();
            let message =
                format!("the answer that granted attempts {} never arrived", names.join(", "));
            out.push(Effect::Tell(RunnerNotice::Warning { message }));
        }
    }

    fn take_queued(&mut self, id: AttemptId) -> Option<AttemptPacket> {
        let index = self.queue.iter().position(|(_, packet)| packet.id == id)?;
        self.queue.remove(index).map(|(_, packet)| packet)
    }

    fn on_lost(
        &mut self,
        message: String,
        code: Option<ErrorCode>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        if self.contact.lost_since.is_some() {
            return;
        }
        self.contact.lost_since = Some(now);
        out.push(Effect::Tell(RunnerNotice::ServerLost { message, code }));
        self.spool(self.outbox.waiting(), out);
    }

    /// Keeps on disk what could not be delivered.
    fn spool(&mut self, reports: Vec<CompletionReport>, out: &mut Vec<Effect>) {
        let new = self.outbox.spool(reports);
        if !new.is_empty() {
            out.push(Effect::Spool(new));
        }
    }

    fn on_refused(&mut self, message: String, now: Instant, out: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.contact.is_refused, true)
            || matches!(self.departure.phase, DispatcherPhase::Leaving(..))
        {
            return;
        }
        self.drain(LeaveReason::Refused(message), &StopReason::Stopped, now, out);
        self.spool(self.outbox.waiting(), out);
        self.outbox.in_flight = None;
    }

    fn on_started(&mut self, report: StartReport, out: &mut Vec<Effect>) {
        if let Some(active) = self.running.attempts.get(&report.attempt.id) {
            out.push(Effect::Tell(RunnerNotice::Started {
                attempt: report.attempt.id,
                job_id: active.job_id,
                job_name: active.job_name.clone(),
                attempt_id: active.attempt_id,
            }));
            self.outbox.started.push(report);
        }
    }

    fn on_ended(&mut self, report: CompletionReport, now: Instant, out: &mut Vec<Effect>) {
        let Some(active) = self.running.remove(report.attempt.id, now) else { return };
        if !self.doubts.concerns(&report) {
            return self.finish(active, report, out);
        }
        match &self.departure.phase {
            DispatcherPhase::Working => self.doubts.keep(active, report, now),
            DispatcherPhase::Draining(LeaveReason::Stopped, _) => {
                self.finish(active, stopped_with_its_runner(report), out)
            }
            DispatcherPhase::Draining(..) | DispatcherPhase::Leaving(..) => {
                self.finish(active, report, out)
            }
        }
    }

    /// An attempt has ended, and it is clear how.
    fn finish(&mut self, active: Active, mut report: CompletionReport, out: &mut Vec<Effect>) {
        if report.cause == Some(Cause::Stopped)
            && report.detail == Some(EndDetail::ToldToStop)
            && let Some(why) = &self.departure.stop_reason
        {
            report
                .evidence
                .push(Evidence { source: EvidenceSource::Scheduler, text: why.text.into() });
            report.cause = why.cause.or(report.cause);
        }
        let id = report.attempt.id;
        let average = self
            .average_seconds
            .map_or(report.exec_seconds, |old| old * 0.8 + report.exec_seconds * 0.2);
        self.average_seconds = Some(average);
        match report.cause {
            None => self.counts.succeeded += 1,
            Some(cause) if cause == Cause::Canceled || cause.is_stop() => self.counts.ended += 1,
            Some(_) => self.counts.failed += 1,
        }
        out.push(Effect::Tell(RunnerNotice::Ended {
            attempt: id,
            job_id: active.job_id,
            job_name: active.job_name,
            attempt_id: active.attempt_id,
            return_code: report.return_code,
            cause: report.cause,
            error: match report.detail {
                Some(EndDetail::RecoveryScript) => report
                    .error
                    .as_ref()
                    .map(|error| format!("the recovery script failed: {error}")),
                _ => report.error.clone(),
            },
            last_line: last_line(&report),
            seconds: report.exec_seconds,
        }));
        if !active.is_ours {
            self.held.disclaim(id);
            return;
        }
        if self.contact.is_broken() {
            self.spool(vec![report.clone()], out);
        }
        self.outbox.completed.push_back(report);
    }

    /// Decides what follows from everything that has happened up to now.
    pub fn settle(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.settings.time_limit.end.is_some_and(|end| end <= now) {
            let reason = self.settings.time_limit.reason.clone();
            self.drain(LeaveReason::TimeUp, &reason, now, out);
        }
        self.give_up_lost_nodes(now, out);
        for (active, report) in self.doubts.take_due(now) {
            self.finish(active, report, out);
        }
        if self.departure.phase == DispatcherPhase::Working
            && self.gives_up_at().is_some_and(|at| at <= now)
        {
            self.drain(LeaveReason::OutOfContact, &StopReason::OutOfContact, now, out);
        }
        if self.departure.phase == DispatcherPhase::Working {
            self.start_what_fits(out);
            self.return_stale(now);
        }
        self.exchange_if_useful(now, out);
        if self.departure.phase == DispatcherPhase::Working && self.listener.send_if_due(now) {
            out.push(Effect::Listen(ClaimRequest {
                wait_seconds: LISTEN_SECONDS,
                ..self.claim(CLAIM_LIMIT, now)
            }));
        }
        self.leave_if_done(now, out);
    }

    fn return_stale(&mut self, now: Instant) {
        let is_stale = self.queue.front().is_some_and(|(since, _)| *since + STALE <= now);
        if !is_stale || self.actions.is_gated() {
            return;
        }
        // Whatever runs now runs long: hold nothing ahead until that has changed.
        let waited = STALE.as_secs_f64().max(2.0 * PREFETCH_SECONDS * self.slots());
        self.average_seconds =
            Some(self.average_seconds.map_or(waited, |average| average.max(waited)));
        // What is given back comes again as another attempt; no other runner would begin it sooner.
        if self.standing.is_alone {
            return;
        }
        for (_, packet) in std::mem::take(&mut self.queue) {
            self.give_back(packet, Cause::Stopped, "it could not be started soon on this runner");
        }
    }

    fn start_what_fits(&mut self, out: &mut Vec<Effect>) {
        if self.actions.is_gated() {
            return;
        }
        while let Some((_, packet)) = self.queue.front() {
            if self.running.free.can_never_hold(packet) {
                let Some((_, packet)) = self.queue.pop_front() else { return };
                self.give_back(packet, Cause::Stopped, "the runner has lost nodes");
                continue;
            }
            let Some(share) = self.running.free.take(packet) else { return };
            let Some((_, mut packet)) = self.queue.pop_front() else { return };
            let (gpus, node) = (share.gpus.clone(), share.node());
            let is_spread = !share.on.is_empty();
            if is_spread {
                add_places(&mut packet.env, &self.running.free.places(&share));
            }
            let active = Active {
                share,
                job_id: packet.job_id,
                job_name: packet.job_name.clone(),
                attempt_id: packet.attempt_id,
                is_ours: true,
                reference: is_spread
                    .then(|| AttemptRef { id: packet.id, token: packet.token.clone() }),
            };
            self.running.insert(packet.id, active);
            out.push(Effect::Start(Box::new(packet), gpus, node));
        }
    }
}

/// The last line that a failed attempt wrote to standard error. Successes have no tail, so that
/// nothing is copied for them.
fn last_line(report: &CompletionReport) -> Option<String> {
    let lines = report.stderr_tail.as_deref()?.lines();
    // Lines of steps that we wrote ourselves say what the failure says already.
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with("[torc] ");
    lines.map(str::trim).rfind(is_said).map(str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests;
