//! Allocations on the side of the server: rows whose life the engine decides, as in the store.

use crate::sabotage::Sabotage;
use crate::server::{Broken, Server, lost, workflow_id};
use crate::tables::{AllocationRow, Write};
use crate::wire::{Answer, Inside, Seen, Sent};
use torc_engine::commands::StepAllocation;
use torc_engine::{
    AllocationEvent, AllocationLife, AllocationOver, Arrival, ArrivalOrigin, Look, Process,
    RunnerTrace, Sighting,
};
use torc_model::api::ErrorCode;
use torc_model::ids::RunnerId;
use torc_model::slurm::{AllocationEnding, Verdict};
use torc_model::status::{AllocationEnd, AllocationStatus, Cause};

/// No other submitter gets an allocation for this long.
const SUBMIT_LEASE_MS: i64 = 120_000;

/// A runner that spoke within this time is alive, whatever the batch system thinks.
const QUIET_MS: i64 = 30_000;

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

    /// Lets an event happen to an allocation. False: it cannot happen to it now.
    fn step(&mut self, id: usize, event: AllocationEvent, now: i64) -> Result<bool, Broken> {
        let is_forgotten = matches!(event, AllocationEvent::Arrived(_))
            && self.sabotage == Some(Sabotage::ArrivalNotWritten);
        let Some(row) = self.working.allocations.get(id) else { return Ok(false) };
        if is_forgotten {
            return Ok(true);
        }
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
        inside: Inside,
        now: i64,
    ) -> Result<Result<(), ErrorCode>, Broken> {
        let Some(row) = self.working.allocations.get(inside.allocation) else {
            return Ok(Err(ErrorCode::NotFound));
        };
        let arrival =
            Arrival { job: inside.job.to_string(), restarts: Some(i64::from(inside.restarts)) };
        match row.life.origin(&arrival) {
            ArrivalOrigin::ThisLife => {}
            ArrivalOrigin::OtherJob => return Ok(Err(ErrorCode::DuplicateAllocation)),
            ArrivalOrigin::EarlierLife if self.sabotage == Some(Sabotage::LateArrivalsCount) => {}
            ArrivalOrigin::EarlierLife => return Ok(Err(ErrorCode::RunnerEnded)),
        }
        // The batch system started it again: the runner of its earlier life is gone.
        for runner in self.working.runners_in(inside.allocation) {
            self.end_runner(runner, &lost(Cause::Lost, "its allocation was started again"), now)?;
        }
        self.step(inside.allocation, AllocationEvent::Arrived(arrival), now)?;
        Ok(Ok(()))
    }

    /// A runner has left in good order; with the last one its allocation is over.
    pub(crate) fn runner_left(&mut self, runner: RunnerId, now: i64) -> Result<(), Broken> {
        let Some(inside) = self.working.runner(runner).and_then(|row| row.inside) else {
            return Ok(());
        };
        let id = inside.allocation;
        let is_active = self.working.allocations[id].life.status == AllocationStatus::Active;
        if is_active && self.working.runners_in(id).is_empty() {
            let left = over(AllocationEnd::Left, "LEFT", None);
            self.step(id, AllocationEvent::Ended(left), now)?;
        }
        Ok(())
    }

    /// Takes in what was seen of allocations.
    pub(crate) fn observed(&mut self, seen: &[Seen], now: i64) -> Result<Answer, Broken> {
        for item in seen {
            let id = item.allocation;
            let Some(row) = self.working.allocations.get(id) else { continue };
            let is_old_word_taken = matches!(
                self.sabotage,
                Some(Sabotage::SchedulerAlwaysRight | Sabotage::LateLooksCount)
            );
            let based_on = (!is_old_word_taken).then_some(item.moves);
            let mut look = row.life.look(&item.verdict, item.is_missing, based_on);
            let mut verdict = item.verdict.clone();
            if look == Look::Missing && self.sabotage == Some(Sabotage::MissingIsOver) {
                (look, verdict) = (Look::Over, Verdict::Ended(AllocationEnding::vanished()));
            }
            let sighting =
                Sighting { state: "SEEN".into(), reason: None, job: None, expected_start: None };
            match look {
                Look::Nothing | Look::Unknown | Look::Explained | Look::StartsAgain => {}
                Look::Missing => drop(self.step(id, AllocationEvent::Missing, now)?),
                Look::Seen => drop(self.step(id, AllocationEvent::Seen(sighting), now)?),
                Look::Waiting => {
                    let had_runners = !self.working.runners_in(id).is_empty();
                    let is_back = self.end_runners_in(id, Cause::Lost, now)?;
                    let event = match had_runners && is_back {
                        true => AllocationEvent::Requeued(sighting),
                        false => AllocationEvent::Seen(sighting),
                    };
                    self.step(id, event, now)?;
                }
                Look::Over => {
                    let Verdict::Ended(ending) = &verdict else { continue };
                    if self.end_runners_in(id, ending.cause, now)? {
                        let ended_as = match ending.is_vanished {
                            true => AllocationEnd::Vanished,
                            false => AllocationEnd::Reported,
                        };
                        let over = over(ended_as, &ending.state, Some(ending.cause));
                        self.step(id, AllocationEvent::Ended(over), now)?;
                    }
                }
            }
        }
        Ok(Answer::Done)
    }

    /// Ends the runners of an allocation of which the batch system says that no process runs. False:
    /// there is doubt about one of them.
    fn end_runners_in(&mut self, id: usize, cause: Cause, now: i64) -> Result<bool, Broken> {
        let runners = self.working.runners_in(id);
        let is_sure = self.sabotage == Some(Sabotage::SchedulerAlwaysRight);
        for runner in &runners {
            let heard = self.engine.runners().get(runner).and_then(|known| known.heard);
            let trace = RunnerTrace {
                process: Process::Unknown,
                is_clean: true,
                is_unread: false,
                spoke: heard.is_some_and(|heard| now - heard < QUIET_MS) && !is_sure,
            };
            if trace.doubt().is_some() {
                return Ok(false);
            }
        }
        for runner in runners {
            self.end_runner(runner, &lost(cause, "the batch system says so"), now)?;
        }
        Ok(true)
    }
}

fn over(ended_as: AllocationEnd, state: &str, cause: Option<Cause>) -> AllocationOver {
    AllocationOver { ended_as, state: state.into(), why: state.into(), cause, was_too_short: false }
}
