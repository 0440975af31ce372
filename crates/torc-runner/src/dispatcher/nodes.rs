//! Nodes of a runner's allocation that are lost, with what ran there.

use super::doubt::stopped_with_its_runner;
use super::{Active, Dispatcher, DispatcherPhase, Effect};
use crate::attempt::lost_report;
use crate::config::{LeaveReason, RunnerEvent};
use crate::supervisor::StopReason;
use std::time::Instant;
use torc_model::ids::AttemptId;

/// A node whose agent is gone.
pub(super) struct LostNode {
    pub node: usize,
    pub name: String,
    pub why: String,
    /// From then on nothing of its attempts lives for sure.
    pub over_at: Instant,
}

impl Dispatcher {
    /// Nothing starts on the node any more, and attempts that only use it are ended.
    pub(super) fn on_node_lost(&mut self, lost: LostNode, out: &mut Vec<Effect>) {
        self.free.lose(lost.node);
        let capacity = &mut self.settings.capacity;
        capacity.num_nodes = (capacity.num_nodes - 1).max(1);
        out.push(Effect::Tell(RunnerEvent::Warning {
            message: format!("node {} is lost: {}", lost.name, lost.why),
        }));
        for id in self.active_on(lost.node, false) {
            out.push(Effect::Stop(id, StopReason::Stopped));
        }
        self.lost_nodes.push(lost);
    }

    /// Attempts whose process is on this node, or that only use it.
    pub(super) fn active_on(&self, node: usize, runs_there: bool) -> Vec<AttemptId> {
        let is_on = |active: &Active| {
            active.share.on.contains(&node) && (active.share.node() == node) == runs_there
        };
        let mut ids: Vec<AttemptId> =
            self.active.iter().filter(|(_, active)| is_on(active)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Attempts whose process was on a lost node are lost, once nothing of them lives. A runner that
    /// was told to stop does not wait: the batch system ends everything on its nodes.
    pub(super) fn give_up_lost_nodes(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let is_stopped = matches!(self.phase, DispatcherPhase::Draining(LeaveReason::Stopped, _));
        let is_over = |lost: &mut LostNode| is_stopped || lost.over_at <= now;
        let over: Vec<LostNode> = self.lost_nodes.extract_if(.., is_over).collect();
        for LostNode { node, name, why, .. } in &over {
            self.give_up_node(*node, name, why, now, out);
        }
    }

    pub(super) fn give_up_node(
        &mut self,
        node: usize,
        name: &str,
        why: &str,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        for id in self.active_on(node, true) {
            let Some(mut active) = self.active.remove(&id) else { continue };
            self.free.give_back(std::mem::take(&mut active.share));
            if self.active.is_empty() {
                self.idle_since = Some(now);
            }
            let Some(reference) = active.reference.take() else { continue };
            let report = lost_report(reference, name, why, (self.settings.wall_clock)());
            match &self.phase {
                // The batch system may be taking all nodes away.
                DispatcherPhase::Working => self.doubts.keep(active, report, now),
                DispatcherPhase::Draining(LeaveReason::Stopped, _) => {
                    self.finish(active, stopped_with_its_runner(report), out)
                }
                DispatcherPhase::Draining(..) | DispatcherPhase::Leaving(..) => {
                    self.finish(active, report, out)
                }
            }
        }
    }
}
