//! What follows from an end besides the move of its job: items that a map found, events and captures
//! of steps, and what it says about the machine. The store does the same around the same functions of
//! the engine.

use crate::sabotage::Sabotage;
use crate::server::{Broken, Server};
use crate::tables::AttemptRow;
use std::collections::BTreeMap;
use torc_engine::{
    Burnt, Change, Clocks, End, FoundItems, Gate, ItemDifference, JobIx, NewItem, Refused,
    RunnerEvent, unwritten,
};
use torc_model::api::{CompletionReport, StepEvents};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId};
use torc_model::status::{Cause, Outcome};
use torc_model::steps::{Item, StepEvent};

impl Server {
    /// Items that an attempt found become jobs, before the attempt itself ends.
    pub(crate) fn before_end(
        &mut self,
        flow: usize,
        index: JobIx,
        end: &mut End,
        now: i64,
    ) -> Result<(), Broken> {
        let steps = end.steps.as_mut().and_then(|steps| steps.as_object_mut());
        let Some(found) = steps.and_then(|steps| steps.remove("items")) else { return Ok(()) };
        let workflow = &self.flows[flow];
        let Some(map) = workflow.map(index).filter(|map| map.is_dynamic) else { return Ok(()) };
        if end.ending.cause.is_some() {
            return Ok(());
        }
        let found: Vec<Item> = serde_json::from_value(found).map_err(|e| e.to_string())?;
        let row = &self.working.flows[flow];
        let known: BTreeMap<_, _> = map
            .items
            .iter()
            .filter_map(|at| {
                row.items.get(at).map(|item| (item.key.clone(), (*at, item.value.clone())))
            })
            .collect();
        let ItemDifference { kept, changed, new, gone } = ItemDifference::of(known, found);
        let text = |item: &Item| item.item.as_str().map(str::to_owned);
        let new: Vec<NewItem> =
            new.iter().map(|item| NewItem { name: item.key.clone(), extra: text(item) }).collect();
        let changed = changed.iter().map(|(at, item)| (*at, text(item))).collect();
        let first = JobId(self.take_job_ids(new.len()));
        let found = FoundItems { first, new, kept, changed, gone };
        self.apply(flow, now, |w, _, at| w.find_items(index, found, at))
    }

    /// Runs items of a map again that ended badly, or takes them out of the count.
    pub(crate) fn run_or_drop_items(
        &mut self,
        flow: usize,
        map: JobIx,
        retry: bool,
        now: i64,
    ) -> Result<Result<(), Refused>, Broken> {
        let workflow = &self.flows[flow];
        let items: Vec<JobIx> = workflow.map(map).map_or_else(Vec::new, |map| {
            let is_bad = |item: &&JobIx| workflow.job(**item).status().is_bad_end();
            map.items.difference(&map.gone).filter(is_bad).copied().collect()
        });
        self.apply(flow, now, |w, _, at| match retry {
            true => w.retry_items(&items, at),
            false => w.drop_items(&items, at),
        })
    }

    fn write_steps(
        &mut self,
        flow: usize,
        job: JobId,
        attempt: AttemptId,
        events: &[StepEvent],
    ) -> Result<(), Broken> {
        for event in events {
            let mut data = event.data.clone();
            data.insert("attempt".into(), attempt.0.into());
            let data = serde_json::Value::Object(data);
            self.write(flow, Change::Event { kind: event.kind, job: Some(job), data })?;
        }
        Ok(())
    }

    fn steps_known(&self, attempt: AttemptId) -> u64 {
        match self.sabotage {
            Some(Sabotage::StepsToldTwice) => 0,
            _ => self.working.attempt(attempt).map_or(0, |row| row.steps),
        }
    }

    /// What steps have done while their attempts run.
    pub(crate) fn steps_told(
        &mut self,
        flow: usize,
        runner: RunnerId,
        told: &[StepEvents],
    ) -> Result<(), Broken> {
        for told in told {
            let id = told.attempt.id;
            let Some(index) = self.flows[flow].may_report(id, runner, &told.attempt.token) else {
                continue;
            };
            let known = self.steps_known(id);
            let news = unwritten(known, told.from, &told.events).to_vec();
            if news.is_empty() {
                continue;
            }
            let job = self.flows[flow].job(index).id();
            self.write_steps(flow, job, id, &news)?;
            self.write(flow, Change::AttemptSteps(id, known + news.len() as u64))?;
        }
        Ok(())
    }

    /// The rest of what an attempt's steps did, and what it captured.
    pub(crate) fn after_steps(
        &mut self,
        flow: usize,
        job: JobId,
        attempt: AttemptId,
        report: &CompletionReport,
    ) -> Result<(), Broken> {
        let Some(steps) = &report.steps else { return Ok(()) };
        let events: Vec<StepEvent> =
            serde_json::from_value(steps["events"].clone()).unwrap_or_default();
        let news = unwritten(self.steps_known(attempt), 0, &events).to_vec();
        self.write_steps(flow, job, attempt, &news)?;
        match steps["captures"].as_object().filter(|_| report.cause.is_none()) {
            Some(captures) => {
                let values = captures.iter().map(|(name, value)| (name.clone(), value.clone()));
                self.write(flow, Change::Captured(job, values.collect()))
            }
            None => Ok(()),
        }
    }

    /// Takes in how an attempt ended and draws the conclusion about its machine.
    pub(crate) fn judge_machine(
        &mut self,
        flow: usize,
        runner: RunnerId,
        (job, attempt): (JobId, AttemptId),
        (cause, seconds): (Option<Cause>, f64),
        now: i64,
    ) -> Result<(), Broken> {
        let clocks = Clocks { now: now + self.clock_offset, uptime: now };
        let judged = self.runners.judge(runner, (job, attempt), (cause, seconds), clocks);
        let Some(Burnt { attempts, quarantine }) = judged else { return Ok(()) };
        let refunded = attempts.len();
        let mut again = 0;
        for (job, attempt) in attempts {
            let Some(index) = self.flows[flow].find(job) else { continue };
            let row = self.working.attempt(attempt);
            let retried = row.filter(|row| row.outcome() == Some(Outcome::Retried));
            let rule = retried.and_then(AttemptRow::rule);
            let is_queued = self.apply(flow, now, |w, _, at| w.refund(index, attempt, rule, at))?;
            again += usize::from(is_queued);
        }
        let event = RunnerEvent::Quarantined(quarantine, refunded, again);
        for change in self.runners.step(runner, event) {
            self.write(flow, change)?;
        }
        Ok(())
    }

    /// Whether a runner gets no work now. When its time is over it is tried again.
    pub(crate) fn is_kept_from_work(
        &mut self,
        flow: usize,
        runner: RunnerId,
        now: i64,
    ) -> Result<bool, Broken> {
        let wall = now + self.clock_offset;
        let (gate, changes) = self.runners.gate(runner, wall);
        for change in changes {
            self.write(flow, change)?;
        }
        let is_closed = matches!(gate, Gate::Closed { .. });
        Ok(is_closed && self.sabotage != Some(Sabotage::QuarantineIgnored))
    }
}

/// The kind of the events that simulated steps make.
pub const STEP: EventKind = EventKind::StepFinished;
