//! How a runner leaves: what it gives back, what it waits for, and its goodbye.

use super::doubt::stopped_with_its_runner;
use super::{Dispatcher, Effect, FAREWELL};
use crate::config::{LeaveReason, RunnerNotice};
use crate::supervisor::StopReason;
use std::time::Instant;
use torc_model::api::{ActionPacket, Goodbye};
use torc_model::slurm::logs::LastWord;
use torc_model::status::Cause;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DispatcherPhase {
    Working,
    /// Takes nothing new; since when.
    Draining(LeaveReason, Instant),
    /// Has said goodbye, and perhaps been answered.
    Leaving(LeaveReason, bool),
}

/// How far a runner is with leaving, and what was said about why.
pub(super) struct Departure {
    pub phase: DispatcherPhase,
    /// It was told to kill everything and go.
    pub is_hurried: bool,
    pub has_left: bool,
    /// Why the batch system is about to ask it to stop.
    pub stop_reason: Option<LastWord>,
}

impl Default for Departure {
    fn default() -> Self {
        let phase = DispatcherPhase::Working;
        Self { phase, is_hurried: false, has_left: false, stop_reason: None }
    }
}

impl Dispatcher {
    pub(super) fn on_goodbye_answered(
        &mut self,
        actions: Vec<ActionPacket>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        if let DispatcherPhase::Leaving(_, is_answered) = &mut self.departure.phase {
            *is_answered = true;
        }
        if self.departure.is_hurried {
            return self.exit(out);
        }
        for action in actions {
            self.on_action(action, now, out);
        }
    }

    /// Takes nothing new, gives back what has not started, and ends what has.
    pub(super) fn drain(
        &mut self,
        reason: LeaveReason,
        stop: &StopReason,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        if self.departure.phase != DispatcherPhase::Working {
            return;
        }
        self.begin_leaving(reason, now, out);
        for (_, packet) in std::mem::take(&mut self.queue) {
            self.give_back(packet, Cause::Stopped, "the runner was leaving");
        }
        let stopped =
            matches!(self.departure.phase, DispatcherPhase::Draining(LeaveReason::Stopped, _));
        for (active, report) in self.doubts.take_all() {
            let report = if stopped { stopped_with_its_runner(report) } else { report };
            self.finish(active, report, out);
        }
        out.push(Effect::StopAll(stop.clone()));
    }

    pub(super) fn begin_leaving(
        &mut self,
        reason: LeaveReason,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Tell(RunnerNotice::Leaving { reason: reason.clone() }));
        self.departure.phase = DispatcherPhase::Draining(reason, now);
    }

    pub(super) fn exit(&mut self, out: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.departure.has_left, true) {
            out.push(Effect::Exit);
        }
    }

    pub(super) fn leave_if_done(&mut self, now: Instant, out: &mut Vec<Effect>) {
        match &self.departure.phase {
            DispatcherPhase::Working if self.could_leave() => {
                let is_over = |since: Instant| {
                    self.settings.idle_limit.is_some_and(|limit| since + limit <= now)
                };
                let reason = if self.standing.is_complete && !self.settings.ignore_completion {
                    LeaveReason::Complete
                } else if self.standing.is_removed {
                    LeaveReason::Removed
                } else if self.standing.is_stuck && self.settings.leave_when_stuck {
                    LeaveReason::NothingToDo
                } else if self.running.idle_since.is_some_and(is_over) {
                    LeaveReason::Idle
                } else {
                    return;
                };
                self.begin_leaving(reason, now, out);
                self.say_goodbye(out);
            }
            DispatcherPhase::Working => {}
            DispatcherPhase::Draining(reason, since)
                if self.is_idle() && !self.actions.are_running() =>
            {
                let can_not_tell = self.contact.is_refused
                    || (self.contact.lost_since.is_some()
                        && (self.departure.is_hurried
                            || *reason == LeaveReason::OutOfContact
                            || *since + FAREWELL <= now));
                if can_not_tell {
                    self.exit(out);
                } else if self.is_delivered() && self.actions.is_empty() {
                    self.say_goodbye(out);
                }
            }
            DispatcherPhase::Draining(..) => {}
            DispatcherPhase::Leaving(_, is_answered) => {
                if (*is_answered && self.actions.is_empty())
                    || (self.departure.is_hurried && !self.actions.are_running())
                {
                    self.exit(out);
                }
            }
        }
    }

    /// Nothing runs or waits to be started.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queue.is_empty()
    }

    /// The server knows all starts and ends.
    fn is_delivered(&self) -> bool {
        self.outbox.is_delivered() && self.doubts.len() == 0
    }

    /// There is nothing left that would have to be done or told before leaving.
    pub(super) fn could_leave(&self) -> bool {
        self.is_idle() && self.is_delivered() && self.actions.is_empty()
    }

    /// When a runner that runs nothing leaves because the server is away. Its results are on disk.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        let is_idle = self.running.is_empty() && !self.actions.are_running();
        let since = self.contact.lost_since.filter(|_| is_idle)?.max(self.running.idle_since?);
        Some(since + self.settings.wait_for_server)
    }

    pub(super) fn say_goodbye(&mut self, out: &mut Vec<Effect>) {
        let reason = self.reason();
        let why = self.departure.stop_reason.filter(|_| reason == LeaveReason::Stopped);
        let cause = match reason {
            LeaveReason::Stopped => why.and_then(|why| why.cause).or(Some(Cause::Stopped)),
            LeaveReason::TimeUp if self.settings.time_limit.reason == StopReason::RunnerTimeUp => {
                Some(Cause::Walltime)
            }
            LeaveReason::TimeUp
            | LeaveReason::Complete
            | LeaveReason::NothingToDo
            | LeaveReason::Idle
            | LeaveReason::Removed
            | LeaveReason::OutOfContact
            | LeaveReason::Refused(_) => None,
        };
        let told = why.map_or_else(|| reason.to_string(), |why| format!("{reason}: {}", why.text));
        out.push(Effect::Goodbye(Goodbye { reason: told, cause }));
        self.departure.phase = DispatcherPhase::Leaving(reason, false);
    }
}
