//! Nodes of a runner's allocation that are lost, with what ran there.

use super::doubt::stopped_with_its_runner;
use super::{Dispatcher, DispatcherPhase, Effect};
use crate::attempt::lost_report;
use crate::config::{LeaveReason, RunnerNotice};
use crate::supervisor::StopReason;
use std::time::Instant;

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
        self.running.free.lose(lost.node);
        let capacity = &mut self.settings.capacity;
        capacity.num_nodes = (capacity.num_nodes - 1).max(1);
        out.push(Effect::Tell(RunnerNotice::Warning {
            message: format!("node {} is lost: {}", lost.name, lost.why),
        }));
        for id in self.running.on_node(lost.node, false) {
            out.push(Effect::Stop(id, StopReason::Stopped));
        }
        self.lost_nodes.push(lost);
    }

    /// Attempts whose process was on a lost node are lost, once nothing of them lives. A runner that
    /// was told to stop does not wait: the batch system ends everything on its nodes.
    pub(super) fn give_up_lost_nodes(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let is_stopped =
            matches!(self.departure.phase, DispatcherPhase::Draining(LeaveReason::Stopped, _));
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
        for id in self.running.on_node(node, true) {
            let Some(mut active) = self.running.remove(id, now) else { continue };
            let Some(reference) = active.reference.take() else { continue };
            let report = lost_report(reference, name, why, (self.settings.wall_clock)());
            match &self.departure.phase {
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
