//! Allocations on the side of the server: rows whose life the engine decides, as in the store.

use crate::sabotage::Sabotage;
use crate::server::{Broken, Server, answer, workflow_id};
use crate::tables::{AllocationRow, Write};
use crate::wire::{Answer, RunnerPlace, Sent};
use std::borrow::Cow;
use torc_engine::commands::{ArriveInAllocation, EndRunnersIn, GiveUpAllocation, StepAllocation};
use torc_engine::{
    AllocationEvent, AllocationLife, Arrival, Finding, Process, RunnerTrace, SUBMIT_LEASE_MS,
};
use torc_model::api::ErrorCode;
use torc_model::ids::RunnerId;
use torc_model::slurm::wire::Observation;
use torc_model::slurm::{AllocationEnding, Verdict};
use torc_model::status::AllocationStatus;

impl Server {
    /// An allocation for a place, unless it has one.
    pub(crate) fn schedule(&mut self, slot: usize) -> Result<Answer, Broken> {
        let is_open =
            |row: &AllocationRow| row.slot == slot && row.life.status != AllocationStatus::Complete;
        if self.working.allocations.iter().any(is_open) {
            return Ok(Answer::Refused(ErrorCode::TooManyAllocations));
        }
        let life = AllocationLife::planned(None);
        let row = AllocationRow { flow: self.scenario.slots[slot].flow, slot, life };
        self.put(Write::Allocation(self.working.allocations.len(), Box::new(row)))?;
        Ok(Answer::Done)
    }

    /// Gives up an allocation that waits.
    pub(crate) fn give_up(&mut self, id: usize, now: i64) -> Result<Answer, Broken> {
        let Some(row) = self.working.allocations.get(id).filter(|row| row.waits()) else {
            return Ok(Answer::Refused(ErrorCode::WrongStatus));
        };
        let (workflow, life) = (workflow_id(row.flow), row.life.clone());
        let scheduler = "scheduler";
        let give_up = GiveUpAllocation { workflow, id: id as i64, life, scheduler };
        self.handle(give_up, now).map(answer)
    }

    /// Lets an event happen to an allocation. False: it cannot happen to it now.
    fn step(&mut self, id: usize, event: AllocationEvent, now: i64) -> Result<bool, Broken> {
        let Some(row) = self.working.allocations.get(id) else { return Ok(false) };
        let (workflow, life) = (workflow_id(row.flow), row.life.clone());
        let step = StepAllocation { workflow, id: id as i64, life, event };
        self.handle(step, now)?.map_err(|refused| refused.message)
    }

    /// Gives a submitter what waits to be sent.
    pub(crate) fn begin_submission(&mut self, submitter: &str, now: i64) -> Result<Answer, Broken> {
        let wall = now + self.clock_offset;
        let is_unbounded = self.sabotage == Some(Sabotage::SubmittersUnbounded);
        let mut orders = Vec::new();
        for id in 0..self.working.allocations.len() {
            let life = &self.working.allocations[id].life;
            let is_sending = life.status == AllocationStatus::Submitting;
            if !(life.may_be_taken(wall) || is_unbounded && is_sending) {
                continue;
            }
            let until = wall + SUBMIT_LEASE_MS;
            let taken = AllocationEvent::Taken { submitter: submitter.to_owned(), until };
            if self.step(id, taken, now)? {
                orders.push((id, is_sending));
            }
        }
        Ok(Answer::Orders(orders))
    }

    /// A submitter tells how it went.
    pub(crate) fn submitted(
        &mut self,
        submitter: &str,
        id: usize,
        outcome: Sent,
        now: i64,
    ) -> Result<Answer, Broken> {
        let event = match outcome {
            Sent::As(job) => AllocationEvent::Submitted(job.to_string()),
            Sent::Refused => AllocationEvent::Refused("no".into()),
            Sent::Unknown => AllocationEvent::Undecided {
                submitter: submitter.to_owned(),
                message: "no answer".into(),
            },
        };
        self.step(id, event, now)?;
        Ok(Answer::Done)
    }

    /// A runner reports from inside an allocation, before it is registered. An error: it may not.
    pub(crate) fn runner_arrived(
        &mut self,
        inside: RunnerPlace,
        now: i64,
    ) -> Result<Result<(), ErrorCode>, Broken> {
        let Some(row) = self.working.allocations.get(inside.allocation) else {
            return Ok(Err(ErrorCode::NotFound));
        };
        let runners = self.working.runners_in(inside.allocation);
        let runners: Vec<_> = runners.into_iter().map(|runner| (runner, None)).collect();
        let mut life = row.life.clone();
        if self.sabotage == Some(Sabotage::LateArrivalsCount) {
            life.restarts = None;
        }
        let arrive = ArriveInAllocation {
            workflow: workflow_id(row.flow),
            id: inside.allocation as i64,
            life,
            arrival: Arrival {
                job: inside.job.to_string(),
                restarts: Some(i64::from(inside.restarts)),
            },
            node: None,
            runners: &runners,
        };
        Ok(self.handle(arrive, now)?.map_err(|refused| refused.code))
    }

    /// A runner has left in good order; with the last one its allocation is over.
    pub(crate) fn runner_left(&mut self, runner: RunnerId, now: i64) -> Result<(), Broken> {
        let Some(inside) = self.working.runner(runner).and_then(|row| row.inside) else {
            return Ok(());
        };
        let id = inside.allocation;
        let still_there = self.working.runners_in(id).len();
        if let Some(over) = self.working.allocations[id].life.left(still_there, "it left", None) {
            self.follow(id, AllocationEvent::Ended(over), now)?;
        }
        Ok(())
    }

    /// Lets an event happen to an allocation, with what the rows tell of its end.
    fn follow(&mut self, id: usize, mut event: AllocationEvent, now: i64) -> Result<(), Broken> {
        if let AllocationEvent::Ended(over) = &mut event {
            over.did_work = self.working.did_work(id);
        }
        self.step(id, event, now).map(drop)
    }

    /// Takes in what was seen of allocations.
    pub(crate) fn observed(&mut self, seen: &[Observation], now: i64) -> Result<Answer, Broken> {
        for item in seen {
            let id = item.id as usize;
            let Some(row) = self.working.allocations.get(id) else { continue };
            let (workflow, life) = (workflow_id(row.flow), row.life.clone());
            let seen = self.misread(item);
            let runners = self.working.runners_in(id);
            let traces: Vec<_> = runners.iter().map(|runner| self.trace(runner, now)).collect();
            let Finding { gone, doubt, event, .. } = life.judge(&seen, &traces);
            if let (Some(gone), None) = (&gone, doubt) {
                let (job, runners) = (life.job.as_deref(), &runners[..]);
                let ended = self.handle(EndRunnersIn { workflow, job, runners, gone }, now)?;
                ended.map_err(|refused| refused.message)?;
            }
            if let Some(event) = event {
                self.follow(id, event, now)?;
            }
        }
        Ok(Answer::Done)
    }

    /// What was seen, or what a server with a defect takes it for.
    fn misread<'a>(&self, seen: &'a Observation) -> Cow<'a, Observation> {
        let mut seen = Cow::Borrowed(seen);
        match self.sabotage {
            // Whatever the batch system said counts, also when the allocation has moved on since.
            Some(Sabotage::SchedulerAlwaysRight | Sabotage::LateLooksCount) => {
                seen.to_mut().moves = None;
            }
            Some(Sabotage::MissingIsOver)
                if seen.is_missing && matches!(seen.verdict, Verdict::Unknown { .. }) =>
            {
                seen.to_mut().verdict = Verdict::Ended(AllocationEnding::vanished());
            }
            _ => {}
        }
        seen
    }

    fn trace(&self, runner: &RunnerId, now: i64) -> RunnerTrace {
        let is_sure = self.sabotage == Some(Sabotage::SchedulerAlwaysRight);
        RunnerTrace {
            process: Process::Unknown,
            is_clean: true,
            is_unread: false,
            spoke: self.engine.runners().has_just_spoken(runner, now) && !is_sure,
        }
    }
}
