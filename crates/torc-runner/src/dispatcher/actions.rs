//! Actions that this runner executes.

use super::{Dispatcher, DispatcherPhase, Effect, REPORT_CROSSING, RunningAction};
use crate::actions::ActionResult;
use crate::config::RunnerEvent;
use std::time::Instant;
use torc_model::api::ActionPacket;
use torc_model::status::Trigger;

impl Dispatcher {
    pub(super) fn on_action(&mut self, packet: ActionPacket, now: Instant, out: &mut Vec<Effect>) {
        let is_reported =
            self.reported_actions.get(&packet.id).is_some_and(|at| now < *at + REPORT_CROSSING);
        if self.actions.contains_key(&packet.id) || is_reported {
            return;
        }
        let is_gate = matches!(packet.trigger, Trigger::OnWorkerStart | Trigger::OnWorkflowStart);
        self.actions.insert(packet.id, RunningAction { is_gate, has_ended: false });
        out.push(Effect::Tell(RunnerEvent::ActionStarted {
            action: packet.id,
            trigger: packet.trigger,
        }));
        if matches!(self.phase, DispatcherPhase::Draining(..)) {
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
        if let Some(action) = self.actions.get_mut(&result.id) {
            action.has_ended = true;
            if action.is_gate {
                // What waited for the gate begins to wait for its turn only now.
                self.queue.iter_mut().for_each(|(since, _)| *since = now);
            }
        }
        out.push(Effect::Tell(RunnerEvent::ActionEnded {
            action: result.id,
            return_code: result.return_code,
            error: result.error.clone(),
        }));
        out.push(Effect::ReportAction(result));
    }

    /// What prepares the worker or the workflow comes before any job.
    pub(super) fn is_gated(&self) -> bool {
        self.actions.values().any(|action| action.is_gate && !action.has_ended)
    }
}
