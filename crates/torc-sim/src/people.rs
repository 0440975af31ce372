//! People: they intervene at bad moments, and in the end they look after what waits for them.

use crate::server::{LICENCE, workflow_id};
use crate::wire::{Request, Wish};
use crate::world::{Client, Event, World};
use std::rc::Rc;
use torc_engine::{JobIx, Scope, Seeds};
use torc_model::ids::RunnerId;
use torc_model::status::JobStatus;

/// Between two looks of the person who tends the workflows.
const LOOK: i64 = 20_000;

impl World {
    /// A user does something, sensible or not.
    pub(crate) fn intervene(&mut self) {
        let flow = self.rng.below(self.scenario.flows.len() as u64) as usize;
        let row = &self.server.durable.flows[flow];
        let index = JobIx::new(self.rng.below(row.jobs.len() as u64) as usize);
        let status = row.jobs[index.at()].status;
        let run = row.run;
        let extras = self.scenario.has_extras;
        let waits = |job: &crate::tables::JobColumns| job.status == JobStatus::PendingFailed;
        let waiting = row.jobs.iter().position(waits).map(JobIx::new);
        let wish = match self.rng.below(if extras { 22 } else { 20 }) {
            0..=6 => {
                let max = self.rng.pick(&[2, 5, 20]);
                // What runs is the interesting case.
                let running =
                    row.jobs.iter().position(|j| j.status == JobStatus::Running).map(JobIx::new);
                let index = running.filter(|_| self.rng.chance(700)).unwrap_or(index);
                Wish::Retry { index, run, max }
            }
            7 if !self.server.durable.verdicts.is_empty() && self.rng.chance(400) => {
                let count = self.server.durable.verdicts.len() as u64;
                let at = self.rng.below(count) as usize;
                Wish::Settle(at, self.rng.chance(500))
            }
            8 if self.rng.chance(200) => Wish::FromMemory,
            7..=9 if waiting.is_some() || status == JobStatus::PendingFailed => {
                let index = waiting.unwrap_or(index);
                let confidence = self.rng.chance(600).then(|| self.rng.below(100) as f64 / 100.0);
                Wish::Verdict { index, retry: self.rng.chance(600), confidence }
            }
            9 if !self.scenario.flows[flow].maps.is_empty() => {
                let map = *self.scenario.flows[flow].maps.keys().next().unwrap_or(&index);
                Wish::Items(map, self.rng.chance(600))
            }
            7..=9 => Wish::CancelJob(index),
            10 => Wish::Cancel,
            11 => Wish::Reset(Seeds::All),
            12 => Wish::Reset(Seeds::FailedOnly),
            13 | 14 => Wish::Reset(Seeds::Named(vec![index])),
            15 | 16 => Wish::Hold(index, self.rng.chance(500)),
            17 => Wish::Disable(index),
            19 if extras => {
                let scope = match self.rng.below(3) {
                    0 => Scope::All,
                    1 => Scope::Workflow(workflow_id(flow)),
                    _ => Scope::Limit(LICENCE.to_owned()),
                };
                Wish::Reserve(scope, self.rng.pick(&[1_000, 5_000, 30_000]))
            }
            20 if extras => {
                let any = self.server.durable.reservations.len() as u64 + 1;
                let id = self.rng.below(any) as i64 + 1;
                match self.rng.chance(300) {
                    true => Wish::Renew(id, self.rng.pick(&[1_000, 10_000])),
                    false => Wish::Release(id),
                }
            }
            21 if extras => match self.rng.below(3) {
                0 => Wish::Limit(self.rng.chance(700).then(|| self.rng.range(1, 3))),
                1 => {
                    let any = self.server.durable.runners.len() as u64 + 1;
                    let runner = RunnerId(self.rng.below(any) as i64 + 1);
                    Wish::Order(runner, self.rng.chance(600))
                }
                _ => Wish::Initialize,
            },
            18 => Wish::Adjust(index, self.rng.below(1 << 20), self.rng.range(0, 3)),
            _ => Wish::Initialize,
        };
        self.record.stats.wishes += 1;
        self.send(Client::Person, Rc::new(Request::Person(flow, wish)));
    }

    /// Starts what is not initialized; once faults have stopped also releases what is held and
    /// judges what waits.
    pub(crate) fn tend(&mut self) {
        for flow in 0..self.scenario.flows.len() {
            let jobs = &self.server.durable.flows[flow].jobs;
            let mut wishes = Vec::new();
            let fresh = jobs.iter().any(|j| j.status == JobStatus::Uninitialized);
            if self.is_calm {
                for (index, job) in jobs.iter().enumerate() {
                    if job.held {
                        wishes.push(Wish::Hold(JobIx::new(index), false));
                    }
                    if job.status == JobStatus::PendingFailed {
                        wishes.push(Wish::Verdict {
                            index: JobIx::new(index),
                            retry: index % 3 == 0 && job.tries.number < 8,
                            confidence: None,
                        });
                    }
                }
            }
            if fresh && (self.is_calm || self.rng.chance(700)) {
                wishes.push(Wish::Initialize);
            }
            for wish in wishes {
                self.send(Client::Person, Rc::new(Request::Person(flow, wish)));
            }
        }
        if self.is_calm {
            let drained =
                self.server.engine.runners().iter().filter(|(_, known)| known.ordered.is_some());
            let drained: Vec<RunnerId> = drained.map(|(id, _)| *id).collect();
            for runner in drained {
                let wish = Wish::Order(runner, false);
                self.send(Client::Person, Rc::new(Request::Person(0, wish)));
            }
        }
        self.want_allocations();
        self.plan(self.now + LOOK, Event::Tend);
    }
}
