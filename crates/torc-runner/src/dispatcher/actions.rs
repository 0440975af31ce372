//! Actions that this runner executes.

use super::{Dispatcher, DispatcherPhase, Effect, REPORT_CROSSING};
use crate::actions::ActionResult;
use crate::config::RunnerNotice;
use std::collections::HashMap;
use std::time::Instant;
use torc_model::api::ActionPacket;
use torc_model::ids::ActionId;
use torc_model::status::Trigger;

struct RunningAction {
    /// Jobs wait for it.
    is_gate: bool,
    has_ended: bool,
}

/// Actions that were given to this runner, until the server has confirmed how they ended.
#[derive(Default)]
pub(super) struct RunningActions {
    unconfirmed: HashMap<ActionId, RunningAction>,
    /// When the server confirmed reports: an answer from before may still be on its way.
    confirmed: HashMap<ActionId, Instant>,
}

impl RunningActions {
    /// False if this runner has it already: the server repeats what it has not heard of.
    fn begin(&mut self, id: ActionId, trigger: Trigger, now: Instant) -> bool {
        let is_reported = self.confirmed.get(&id).is_some_and(|at| now < *at + REPORT_CROSSING);
        if self.unconfirmed.contains_key(&id) || is_reported {
            return false;
        }
        let is_gate = matches!(trigger, Trigger::OnWorkerStart | Trigger::OnWorkflowStart);
        self.unconfirmed.insert(id, RunningAction { is_gate, has_ended: false });
        true
    }

    /// True if jobs waited for it.
    fn end(&mut self, id: ActionId) -> bool {
        let Some(action) = self.unconfirmed.get_mut(&id) else { return false };
        action.has_ended = true;
        action.is_gate
    }

    /// The server knows how it ended.
    pub fn on_reported(&mut self, id: ActionId, now: Instant) {
        self.unconfirmed.remove(&id);
        self.confirmed.retain(|_, at| now < *at + REPORT_CROSSING);
        self.confirmed.insert(id, now);
    }

    pub fn is_empty(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    pub fn are_running(&self) -> bool {
        self.unconfirmed.values().any(|action| !action.has_ended)
    }

    /// What prepares the worker or the workflow comes before any job.
    pub fn is_gated(&self) -> bool {
        self.unconfirmed.values().any(|action| action.is_gate && !action.has_ended)
    }
}

impl Dispatcher {
    pub(super) fn on_action(&mut self, packet: ActionPacket, now: Instant, out: &mut Vec<Effect>) {
        if !self.actions.begin(packet.id, packet.trigger, now) {
            return;
        }
        out.push(Effect::Tell(RunnerNotice::ActionStarted {
            action: packet.id,
            trigger: packet.trigger,
        }));
        if matches!(self.departure.phase, DispatcherPhase::Draining(..)) {
            let error = Some("the runner was leaving".into());
            self.on_action_ended(ActionResult { id: packet.id, return_code: 143, error }, now, out);
        } else {
            out.push(Effect::RunAction(packet));
        }
    }

    pub(super) fn on_action_ended(
        &mut self,
        result: ActionResult,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        if self.actions.end(result.id) {
            // What waited for the gate begins to wait for its turn only now.
            self.queue.iter_mut().for_each(|(since, _)| *since = now);
        }
        out.push(Effect::Tell(RunnerNotice::ActionEnded {
            action: result.id,
            return_code: result.return_code,
            error: result.error.clone(),
        }));
        out.push(Effect::ReportAction(result));
    }
}
