//! The batch system, those who send allocations to it, and the one who looks after them.

use crate::scenario::Sight;
use crate::tables::AllocationRow;
use crate::wire::{Answer, Request, RunnerPlace, Sent, Wish};
use crate::world::{Client, Event, World};
use std::collections::BTreeMap;
use std::rc::Rc;
use torc_model::slurm::wire::Observation;
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};
use torc_model::status::{AllocationEnd, AllocationStatus, Cause};

/// Between two rounds of a submitter.
const ROUND: i64 = 8_000;

/// Between two looks at the batch system.
const LOOK: i64 = 12_000;

/// A slow answer of the batch system takes this long at most.
const SLOW_LOOK: i64 = 90_000;

/// An allocation that was not listed for this long is taken for forgotten.
const VANISHED: i64 = 60_000;

/// An allocation whose batch job is over is known to be over after this long, once faults stopped.
const KNOWN_WITHIN: i64 = 15 * 60_000;

/// Where a batch job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In the queue, put back at this time.
    Waiting(Option<i64>),
    /// Its runner process is this one of its place.
    Running(u32),
    /// Over since this time.
    Ended(i64, Cause),
}

/// A batch job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The allocation that it was sent for.
    pub allocation: usize,
    /// Where its runner lives.
    pub slot: usize,
    /// Where it stands.
    pub state: State,
    /// How often it was started.
    pub starts: u32,
}

/// The batch system.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    /// Its jobs, by number.
    pub jobs: BTreeMap<i64, Job>,
    /// Rounds of submitters, for their names.
    rounds: u64,
    /// Submitters that wait for orders, by their calls.
    pub(crate) submitters: BTreeMap<u64, String>,
}

impl Batch {
    /// Batch jobs of an allocation.
    pub fn of(&self, allocation: usize) -> impl Iterator<Item = (i64, Job)> {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, *job));
        jobs.filter(move |(_, job)| job.allocation == allocation)
    }
}

impl World {
    /// Submitters and looks begin, where there are places in a batch system.
    pub(crate) fn begin_batch(&mut self) {
        if self.scenario.slots.iter().any(|slot| slot.sight == Sight::Slurm) {
            for submitter in 0..2 {
                self.plan(1_000 + 3_000 * submitter, Event::Submitter(submitter as usize));
            }
            self.plan(LOOK, Event::Look);
        }
    }

    /// A user wants an allocation for each place that has none.
    pub(crate) fn want_allocations(&mut self) {
        for slot in 0..self.scenario.slots.len() {
            let place = &self.scenario.slots[slot];
            let durable = &self.server.durable;
            if place.sight != Sight::Slurm || durable.flows[place.flow].is_over() {
                continue;
            }
            let flow = place.flow;
            let open = durable
                .allocations
                .iter()
                .any(|row| row.slot == slot && row.life.status != AllocationStatus::Complete);
            let waits = |row: &AllocationRow| row.slot == slot && row.waits();
            let unwanted = durable.allocations.iter().position(waits);
            let unwanted = unwanted.filter(|_| !self.is_calm && self.rng.chance(60));
            if let Some(id) = unwanted {
                self.send(Client::Person, Rc::new(Request::Person(flow, Wish::GiveUp(id))));
            } else if !open {
                self.send(Client::Person, Rc::new(Request::Person(flow, Wish::Schedule(slot))));
            }
        }
    }

    pub(crate) fn on_submitter(&mut self, submitter: usize) {
        self.batch.rounds += 1;
        let name = format!("submitter {submitter} round {}", self.batch.rounds);
        let request = Request::Begin(name.clone());
        let call = self.send(Client::Submitter(submitter), Rc::new(request));
        self.batch.submitters.insert(call, name);
        self.plan(self.now + ROUND, Event::Submitter(submitter));
    }

    /// The answer to a submitter. One that waited too long for it has given up: what it was given is
    /// sent by another when its lease is over.
    pub(crate) fn on_orders(&mut self, client: Client, call: u64, answer: Answer) {
        let Some(name) = self.batch.submitters.remove(&call) else { return };
        let Answer::Orders(orders) = answer else { return };
        for (allocation, look_first) in orders {
            let known = self.batch.of(allocation).next().filter(|_| look_first);
            if let Some((job, _)) = known {
                self.tell_sent(client, &name, allocation, Sent::As(job));
                continue;
            }
            // A submitter may die before it sends.
            if !self.is_calm && self.rng.chance(50) {
                continue;
            }
            let at = self.now + self.rng.range(10, 3_000);
            self.plan(at, Event::Sbatch(client, name.clone(), allocation));
        }
    }

    /// The batch system gets an allocation.
    pub(crate) fn on_sbatch(&mut self, client: Client, name: &str, allocation: usize) {
        let luck = if self.is_calm { 1000 } else { self.rng.below(1000) };
        if luck < 50 {
            return self.tell_sent(client, name, allocation, Sent::Refused);
        }
        let Some(row) = self.server.durable.allocations.get(allocation) else { return };
        if row.life.end.is_some_and(|(_, ended_as)| ended_as == AllocationEnd::NotSent) {
            return self.fail(format!("allocation {allocation} was given up, and is sent"));
        }
        let (slot, id) = (row.slot, self.batch.jobs.len() as i64 + 1);
        self.batch
            .jobs
            .insert(id, Job { allocation, slot, state: State::Waiting(None), starts: 0 });
        self.note(|_| format!("the batch system has allocation {allocation} as job {id}"));
        // By time alone: a clock that was set may have ended a submitter's lease too soon.
        if self.batch.of(allocation).count() > 1 && self.scenario.faults.clock_jump == 0 {
            return self.fail(format!("allocation {allocation} was sent twice"));
        }
        let start = self.now + self.rng.range(500, 20_000);
        self.plan(start, Event::BatchStart(id));
        match luck {
            // It dies before it can tell.
            50..80 => {}
            80..130 => self.tell_sent(client, name, allocation, Sent::Unknown),
            _ => self.tell_sent(client, name, allocation, Sent::As(id)),
        }
    }

    fn tell_sent(&mut self, client: Client, name: &str, allocation: usize, outcome: Sent) {
        let submitter = name.to_owned();
        self.send(client, Rc::new(Request::Submitted { submitter, allocation, outcome }));
    }

    /// The batch system starts a job, when its place is free.
    pub(crate) fn on_batch_start(&mut self, id: i64) {
        let Some(job) = self.batch.jobs.get(&id).copied() else { return };
        if !matches!(job.state, State::Waiting(_)) {
            return;
        }
        if self.runners[job.slot].is_alive {
            let at = self.now + 5_000;
            return self.plan(at, Event::BatchStart(id));
        }
        let incarnation = self.runners[job.slot].incarnation + 1;
        if let Some(job) = self.batch.jobs.get_mut(&id) {
            job.state = State::Running(incarnation);
            job.starts += 1;
        }
        let Job { allocation, slot, starts: restarts, .. } = job;
        self.start_runner(slot, Some(RunnerPlace { allocation, job: id, restarts }));
        // A bad node: what its runner has sent may arrive when a successor is there.
        if !self.is_calm && self.rng.chance(150) {
            let dies = self.now + self.rng.range(10, 10_000);
            self.plan(dies, Event::NodeFails(slot, incarnation));
        }
    }

    /// The runner process of a place in a batch system is gone: the batch job is over, or starts
    /// again.
    pub(crate) fn batch_runner_gone(&mut self, slot: usize, incarnation: u32) {
        let is_requeued = !self.is_calm && self.rng.chance(400);
        let cause = self.rng.pick(&[Cause::NodeFail, Cause::Preempted, Cause::Lost]);
        let start = self.now + self.rng.range(3_000, 30_000);
        let now = self.now;
        let ours = |job: &Job| job.slot == slot && job.state == State::Running(incarnation);
        let Some((id, job)) = self.batch.jobs.iter_mut().find(|(_, job)| ours(job)) else { return };
        job.state = match is_requeued {
            true => State::Waiting(Some(now)),
            false => State::Ended(now, cause),
        };
        let id = *id;
        if is_requeued {
            self.plan(start, Event::BatchStart(id));
        }
    }

    /// A client looks at the batch system and tells the server.
    pub(crate) fn on_look(&mut self) {
        self.plan(self.now + LOOK, Event::Look);
        if !self.is_calm && self.rng.chance(200) {
            return;
        }
        let mut seen = Vec::new();
        for id in 0..self.server.durable.allocations.len() {
            let life = &self.server.durable.allocations[id].life;
            let (status, missing, moves) = (life.status, life.missing_since, life.moves);
            let (own, wall) = (life.job.clone(), self.now + self.server.clock_offset);
            if !matches!(
                status,
                AllocationStatus::Submitting | AllocationStatus::Pending | AllocationStatus::Active
            ) {
                continue;
            }
            let job = self
                .batch
                .of(id)
                .find(|(job, _)| own.as_ref().is_none_or(|own| *own == job.to_string()));
            // A client takes back what is marked as unneeded, unless it has begun.
            let is_unwanted = self.server.durable.allocations[id].life.unneeded_since.is_some();
            if let Some((number, Job { state: State::Waiting(_), .. })) =
                job.filter(|_| is_unwanted)
                && let Some(job) = self.batch.jobs.get_mut(&number)
            {
                job.state = State::Ended(self.now, Cause::Canceled);
            }
            // Its list is not always whole, and it does not always answer.
            let is_listed = self.is_calm || !self.rng.chance(40);
            let answers = self.is_calm || self.rng.chance(800);
            let unknown = || Verdict::Unknown { why: "no answer".into() };
            let (verdict, is_missing) = match job.filter(|_| is_listed) {
                _ if !answers => (unknown(), false),
                None => {
                    let is_long = missing.is_some_and(|since| wall - since > VANISHED);
                    // A living one is forgotten for a moment, not for good.
                    let is_over = is_long && job.is_none();
                    (
                        if is_over {
                            Verdict::Ended(AllocationEnding::vanished())
                        } else {
                            unknown()
                        },
                        true,
                    )
                }
                Some((_, job)) => (verdict_of(job.state, self.now), false),
            };
            seen.push(Observation {
                id: id as i64,
                verdict,
                slurm_job_id: None,
                is_missing,
                before: None,
                expected_start_ms: None,
                moves: Some(moves),
            });
        }
        if !seen.is_empty() {
            // A batch system may take its time with an answer.
            let is_slow = !self.is_calm && self.rng.chance(300);
            let told = self.now + if is_slow { self.rng.range(1_000, SLOW_LOOK) } else { 0 };
            self.plan(told, Event::Looked(Rc::new(Request::Observed(seen))));
        }
        if self.is_calm && self.now > self.scenario.faults.until + KNOWN_WITHIN {
            self.check_allocations();
        }
    }

    /// What is over in the batch system is known to be over.
    fn check_allocations(&mut self) {
        for (id, row) in self.server.durable.allocations.iter().enumerate() {
            let is_open =
                matches!(row.life.status, AllocationStatus::Pending | AllocationStatus::Active);
            let ended =
                |state: State| matches!(state, State::Ended(at, _) if self.now - at > KNOWN_WITHIN);
            let is_over = self.batch.of(id).next().is_some()
                && self.batch.of(id).all(|(_, job)| ended(job.state));
            if is_open && is_over {
                let status = row.life.status;
                return self
                    .fail(format!("ghost: allocation {id} is {status}, its batch jobs are over"));
            }
        }
    }
}

fn verdict_of(state: State, now: i64) -> Verdict {
    match state {
        // Its processes are ended first.
        State::Waiting(Some(at)) | State::Ended(at, _) if now - at < 5_000 => {
            Verdict::Alive { phase: AllocationPhase::Leaving, reason: None }
        }
        State::Waiting(_) => Verdict::Alive { phase: AllocationPhase::Waiting, reason: None },
        State::Running(_) => Verdict::Alive { phase: AllocationPhase::Running, reason: None },
        State::Ended(_, cause) => Verdict::Ended(AllocationEnding {
            state: cause.as_str().to_owned(),
            cause,
            text: "it is over".into(),
            is_vanished: false,
        }),
    }
}
