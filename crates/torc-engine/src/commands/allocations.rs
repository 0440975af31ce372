//! Allocations: their rows are the store's, what happens to them is decided here.

use crate::engine::{Command, Engine, Turn};
use crate::{AllocationEvent, AllocationLife, Change, Refused};
use torc_model::ids::WorkflowId;

/// Lets an event happen to an allocation. False: it cannot happen to it now, and nothing changed.
#[derive(Clone, Debug)]
pub struct StepAllocation {
    /// Of which workflow.
    pub workflow: WorkflowId,
    /// Its row.
    pub id: i64,
    /// As its row says.
    pub life: AllocationLife,
    /// What happens.
    pub event: AllocationEvent,
}

impl Command for StepAllocation {
    type Reply = bool;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<bool, Refused> {
        let Self { workflow, id, mut life, event } = self;
        let is_possible = life.step(event, turn.at.now).is_ok();
        if is_possible {
            turn.record(workflow, vec![Change::Allocation(id, Box::new(life))]);
        }
        Ok(is_possible)
    }
}
