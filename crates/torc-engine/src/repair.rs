//! Recovery of rows that do not fit together.
//!
//! Our own transactions never leave such rows behind; a database that was restored, edited or
//! written by an older program may have them. Repairing twice changes nothing the second time.

use super::change::{Change, End, NewAttempt};
use super::claim::Limits;
use super::index::JobIx;
use super::machine::JobEvent;
use super::report::Lost;
use super::workflow::Workflow;
use serde_json::json;
use std::collections::HashMap;
use torc_model::api::Evidence;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, RunnerId};
use torc_model::status::{AttemptState, Cause, EvidenceSource, JobStatus, Origin, StatusReason};
use torc_model::words;

/// The newest ended attempt of a job in this run, as its row says.
#[derive(Clone, PartialEq, Debug)]
pub struct LastEnd {
    /// Its row.
    pub id: AttemptId,
    /// How it ended.
    pub state: AttemptState,
    /// What it ended with.
    pub end: End,
    /// What follows was decided and written with it.
    pub decided: bool,
}

/// What was done to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// It had no holder and no attempt: one was written down as lost.
    AttemptWritten,
    /// Its attempt had ended without the job hearing of it.
    Synchronized,
    /// Its attempt had failed before it was decided what follows.
    Decided,
    /// It was ready but nothing was queued for it.
    Queued,
    /// It had an attempt although it could not have one.
    AttemptDropped,
    /// It waited for what had already happened.
    Released,
}

impl Workflow {
    /// Makes rows fit together again, in the order of the jobs. `recovery` is the runner that
    /// stands for no real one.
    pub fn repair(
        &mut self,
        ends: &HashMap<JobIx, LastEnd>,
        recovery: RunnerId,
        limits: &mut Limits,
        now: i64,
    ) -> Vec<(JobIx, Repair)> {
        let mut done = Vec::new();
        for index in self.jobs.indexes() {
            if let Some(repair) = self.repair_job(index, ends.get(&index), recovery, limits, now) {
                let what = format!("{repair:?}");
                self.event(EventKind::JobRepaired, Some(index), json!({"what": what}));
                done.push((index, repair));
            }
        }
        for index in self.jobs.indexes() {
            if self.repair_blocked(index, now) {
                self.event(EventKind::JobRepaired, Some(index), json!({"what": "Released"}));
                done.push((index, Repair::Released));
            }
        }
        self.finish();
        done
    }

    fn repair_job(
        &mut self,
        index: JobIx,
        last: Option<&LastEnd>,
        recovery: RunnerId,
        limits: &mut Limits,
        now: i64,
    ) -> Option<Repair> {
        let job = &self.jobs[index];
        let undecided = last.filter(|l| !l.decided && l.state == AttemptState::Failed);
        match job.status() {
            JobStatus::Pending | JobStatus::Running if job.held().is_some() => None,
            JobStatus::Pending | JobStatus::Running => {
                if job.live().is_some() {
                    // Queued, not claimed: no runner started it.
                    self.shift(index, JobEvent::Requeued, None);
                    self.enqueue(index);
                    return Some(Repair::Synchronized);
                }
                match last {
                    None => {
                        self.write_lost(index, recovery, limits, now);
                        Some(Repair::AttemptWritten)
                    }
                    Some(last) => {
                        self.follow(index, last, now);
                        Some(if undecided.is_some() {
                            Repair::Decided
                        } else {
                            Repair::Synchronized
                        })
                    }
                }
            }
            JobStatus::Ready if job.live().is_none() => {
                self.jobs[index].tries.number = self.jobs[index].tries.number.max(1);
                if last.is_some() {
                    self.jobs[index].tries.number += 1;
                }
                let retry_of = last.map(|l| l.id);
                let next = super::workflow::Next {
                    retry_of,
                    ..super::workflow::Next::fresh(Origin::Recovered)
                };
                self.queue_attempt(index, next, now);
                Some(Repair::Queued)
            }
            JobStatus::Failed if job.live().is_none() => {
                let last = undecided?;
                let before = self.jobs[index].tries.number;
                self.follow(index, last, now);
                (self.jobs[index].tries.number != before).then_some(Repair::Decided)
            }
            JobStatus::Ready => None,
            JobStatus::Uninitialized
            | JobStatus::Blocked
            | JobStatus::Completed
            | JobStatus::Failed
            | JobStatus::Canceled
            | JobStatus::Terminated
            | JobStatus::Disabled
            | JobStatus::PendingFailed => {
                job.live()?;
                self.drop_live(index, limits, now);
                Some(Repair::AttemptDropped)
            }
        }
    }

    /// Writes the attempt that must have been there, as lost, and lets the normal path decide.
    fn write_lost(&mut self, index: JobIx, recovery: RunnerId, limits: &mut Limits, now: i64) {
        let run = self.run;
        let job = &mut self.jobs[index];
        job.tries.number = job.tries.number.max(1);
        let (number, job_id) = (job.tries.number, job.id);
        let id = self.attempts.new_row();
        let new = NewAttempt {
            id,
            job: job_id,
            run,
            number,
            origin: Origin::Recovered,
            retry_of: None,
            not_before: None,
            recovery: None,
            at: now,
        };
        self.record(Change::AttemptQueued(Box::new(new)));
        let token = format!("recovery-{id}");
        self.record(Change::AttemptClaimed {
            id,
            runner: recovery,
            token: token.clone(),
            key: "recovery".into(),
            at: now,
            memory: None,
            time_limit: None,
        });
        // No runner had it, so that its share of named limits was not counted; its end gives one back.
        self.take_share(self.jobs[index].class, limits);
        self.hold_for_recovery(index, id, recovery, token, now);
        let evidence = Evidence {
            source: EvidenceSource::Journal,
            text: words::message("the job was running but no runner had it"),
        };
        self.runner_lost(recovery, &Lost { cause: Cause::Lost, evidence }, limits, now);
    }

    /// Moves the job to where its ended attempt says it should be.
    fn follow(&mut self, index: JobIx, last: &LastEnd, now: i64) {
        self.jobs[index].last = Some(last.id);
        let mut end = last.end.clone();
        end.at = now;
        match last.state {
            AttemptState::Completed => end.ending.cause = None,
            AttemptState::Canceled => end.ending.cause = Some(Cause::Canceled),
            AttemptState::Failed | AttemptState::Terminated => {
                end.ending.cause = end.ending.cause.or(Some(Cause::Exit))
            }
            AttemptState::Queued | AttemptState::Claimed | AttemptState::Running => return,
        }
        self.decide_again(index, last.id, &end, now);
    }

    fn repair_blocked(&mut self, index: JobIx, now: i64) -> bool {
        if self.jobs[index].status() != JobStatus::Blocked {
            return false;
        }
        let dead = self.jobs[index].cancel_on_failure
            && self.parents_of(index).iter().any(|p| self.jobs[*p].status().is_bad_end());
        if dead {
            self.shift(index, JobEvent::DependencyEndedBadly, Some(StatusReason::DependencyFailed));
            self.propagate(index, now);
            return true;
        }
        if self.count_unmet(index) == 0 {
            self.make_ready(index, JobEvent::DependenciesMet, Origin::Initial, now);
            return true;
        }
        false
    }
}
