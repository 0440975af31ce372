//! Allocations: their rows are the store's, what happens to them is decided here.

use crate::engine::{Command, Engine, Turn};
use crate::{
    AllocationEvent, AllocationLife, AllocationOver, Arrival, ArrivalOrigin, Change, Lost, Refused,
    RunnersGone, cause_for,
};
use serde_json::{Value, json};
use torc_model::api::{ErrorCode, Evidence};
use torc_model::event::EventKind;
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::status::{AllocationEnd, AllocationStatus, Cause, EvidenceSource};

/// Lets an event happen to an allocation, and tells people what matters to them. False: it cannot
/// happen to it now, and nothing changed.
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
        matches!(self.event, AllocationEvent::Ended(_)).then_some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<bool, Refused> {
        let Self { workflow, id, life, event } = self;
        turn.step_allocation((workflow, id), life, event)
    }
}

/// No job needs an allocation that waits, or a person cancels it: one that was not sent is over, one
/// that the batch system has is marked. The mark is there before the batch system is asked.
#[derive(Clone, Debug)]
pub struct GiveUpAllocation<'a> {
    /// Of which workflow.
    pub workflow: WorkflowId,
    /// Its row.
    pub id: i64,
    /// As its row says.
    pub life: AllocationLife,
    /// The name of its scheduler.
    pub scheduler: &'a str,
}

impl Command for GiveUpAllocation<'_> {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let Self { workflow, id, mut life, scheduler } = self;
        if life.step(AllocationEvent::Unneeded, turn.at.now).is_err() {
            return Ok(());
        }
        turn.record(workflow, vec![Change::Allocation(id, Box::new(life.clone()))]);
        if life.status == AllocationStatus::Planned {
            let over = AllocationOver::new(AllocationEnd::NotSent, "NOT_SENT", "no longer needed");
            turn.step_allocation((workflow, id), life, AllocationEvent::Ended(over))?;
        } else {
            let data =
                json!({"allocation_id": id, "slurm_job_id": life.job, "scheduler": scheduler});
            turn.tell(workflow, EventKind::AllocationUnneeded, data);
        }
        Ok(())
    }
}

/// A runner reports from inside an allocation, before it is registered. Two batch jobs never share
/// one allocation, and of two lives of a batch job only the later one has processes.
#[derive(Clone, Debug)]
pub struct ArriveInAllocation<'a> {
    /// Of which workflow.
    pub workflow: WorkflowId,
    /// Its row.
    pub id: i64,
    /// As its row says.
    pub life: AllocationLife,
    /// What the runner tells.
    pub arrival: Arrival,
    /// On which node it is.
    pub node: Option<i64>,
    /// Runners in the allocation that have not ended, and on which node each is.
    pub runners: &'a [(RunnerId, Option<i64>)],
}

impl Command for ArriveInAllocation<'_> {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let Self { workflow, id, life, arrival, node, runners } = self;
        let job = &arrival.job;
        match life.origin(&arrival) {
            ArrivalOrigin::ThisLife => {}
            ArrivalOrigin::OtherJob => {
                let known = life.job.as_deref().unwrap_or_default();
                let message = format!("allocation {id} is Slurm job {known}, not {job}");
                return Err(Refused::new(ErrorCode::DuplicateAllocation, message)
                    .hint("it was submitted twice; this one is not needed and ends"));
            }
            ArrivalOrigin::EarlierLife => {
                let message = format!(
                    "allocation {id} (Slurm job {job}) was started again since this runner began"
                );
                return Err(Refused::new(ErrorCode::RunnerEnded, message)
                    .hint("its successor has registered; this one is not needed and ends"));
            }
        }
        // Slurm started the allocation again: the runner of its earlier life on this node is gone.
        let text = format!("Slurm started allocation {id} (job {job}) again");
        let evidence = Evidence { source: EvidenceSource::Scheduler, text: text.clone() };
        let lost = Lost { cause: Cause::Lost, evidence };
        for (runner, _) in runners.iter().filter(|(_, its)| *its == node) {
            turn.end_runner(workflow, *runner, &lost, &text)?;
        }
        turn.step_allocation((workflow, id), life, AllocationEvent::Arrived(arrival))?;
        Ok(())
    }
}

/// The batch system says that no process of an allocation runs: the runners in it end.
#[derive(Clone, Copy, Debug)]
pub struct EndRunnersIn<'a> {
    /// Of which workflow.
    pub workflow: WorkflowId,
    /// The allocation's id in the batch system.
    pub job: Option<&'a str>,
    /// The runners.
    pub runners: &'a [RunnerId],
    /// Why they are gone.
    pub gone: &'a RunnersGone,
}

impl Command for EndRunnersIn<'_> {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let Self { workflow, job, runners, gone: RunnersGone { cause, text } } = self;
        for runner in runners {
            let held = turn.see(workflow)?.held_by(*runner).count();
            let evidence = Evidence {
                source: EvidenceSource::Scheduler,
                text: format!("Slurm job {}: {text}", job.unwrap_or("?")),
            };
            let lost = Lost { cause: cause_for(*cause, held), evidence };
            turn.end_runner(workflow, *runner, &lost, text)?;
        }
        Ok(())
    }
}

impl Turn<'_> {
    fn step_allocation(
        &mut self,
        (workflow, id): (WorkflowId, i64),
        mut life: AllocationLife,
        event: AllocationEvent,
    ) -> Result<bool, Refused> {
        let was_over = life.status == AllocationStatus::Complete;
        let did_work = matches!(&event, AllocationEvent::Ended(over) if over.did_work);
        let kind = match event {
            AllocationEvent::Arrived(_) => Some(EventKind::AllocationStarted),
            AllocationEvent::Ended(_) => Some(EventKind::AllocationEnded),
            AllocationEvent::Explained(_) => Some(EventKind::AllocationExplained),
            AllocationEvent::Requeued(_) if was_over => Some(EventKind::AllocationRequeued),
            AllocationEvent::Requeued(_)
            | AllocationEvent::Taken { .. }
            | AllocationEvent::Submitted(_)
            | AllocationEvent::Refused(_)
            | AllocationEvent::Undecided { .. }
            | AllocationEvent::Seen(_)
            | AllocationEvent::Missing
            | AllocationEvent::Unneeded => None,
        };
        if life.step(event, self.at.now).is_err() {
            return Ok(false);
        }
        let told = kind.map(|kind| (kind, told(kind, id, &life)));
        self.record(workflow, vec![Change::Allocation(id, Box::new(life))]);
        if let Some((kind, data)) = told {
            self.tell(workflow, kind, data);
        }
        if did_work {
            self.on(workflow, |workflow, _, _| workflow.look_after_ready_jobs())?;
        }
        Ok(true)
    }

    fn tell(&mut self, workflow: WorkflowId, kind: EventKind, data: Value) {
        self.record(workflow, vec![Change::Event { kind, job: None, data }]);
    }
}

/// What people hear of an allocation.
fn told(kind: EventKind, id: i64, life: &AllocationLife) -> Value {
    let mut data = json!({"allocation_id": id, "slurm_job_id": life.job});
    if matches!(kind, EventKind::AllocationEnded | EventKind::AllocationExplained) {
        data["state"] = json!(life.word.state);
        data["reason"] = json!(life.word.reason);
    }
    if kind == EventKind::AllocationExplained {
        data["cause"] = json!(life.word.cause);
    }
    data
}
