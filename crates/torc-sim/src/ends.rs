//! What rows tell the engine of an attempt that ends: the items that its map had, what was written of
//! its steps, and which rules retried the attempts that a bad machine burnt.

use crate::sabotage::Sabotage;
use crate::server::{Broken, Server, workflow_id};
use std::collections::BTreeMap;
use torc_engine::commands::{DropItems, QuarantineRunner, RetryItems};
use torc_engine::{Burnt, BurntAttempt, FoundItems, ItemDifference, JobIx, NewItem, On, Refused};
use torc_model::api::CompletionReport;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, RunnerId, WorkflowId};
use torc_model::status::Outcome;
use torc_model::steps::Item;

impl Server {
    /// What an attempt of a map found, against what rows say of its items.
    pub(crate) fn found_items(
        &self,
        flow: usize,
        index: JobIx,
        report: &CompletionReport,
    ) -> Result<Option<FoundItems>, Broken> {
        let found = report.steps.as_ref().and_then(|steps| steps.get("items"));
        let Some(found) = found.filter(|_| report.cause.is_none()) else { return Ok(None) };
        let map = self.flow(flow).map(index).filter(|map| map.is_dynamic);
        let Some(map) = map else { return Ok(None) };
        let found: Vec<Item> = serde_json::from_value(found.clone()).map_err(|e| e.to_string())?;
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
        Ok(Some(FoundItems { new, kept, changed, gone }))
    }

    /// Runs items of a map again that ended badly, or takes them out of the count.
    pub(crate) fn run_or_drop_items(
        &mut self,
        flow: usize,
        map: JobIx,
        retry: bool,
        now: i64,
    ) -> Result<Result<(), Refused>, Broken> {
        let workflow = self.flow(flow);
        let items: Vec<JobIx> = workflow.map(map).map_or_else(Vec::new, |map| {
            let is_bad = |item: &&JobIx| workflow.job(**item).status().is_bad_end();
            map.items.difference(&map.gone).filter(is_bad).copied().collect()
        });
        match retry {
            true => self.handle(On(workflow_id(flow), RetryItems { items: &items }), now),
            false => self.handle(On(workflow_id(flow), DropItems { items: &items }), now),
        }
    }

    /// How many events of an attempt's steps are written.
    pub(crate) fn steps_known(&self, attempt: AttemptId) -> u64 {
        match self.sabotage {
            Some(Sabotage::StepsToldTwice) => 0,
            _ => self.working.attempt(attempt).map_or(0, |row| row.steps),
        }
    }

    /// Keeps work from a runner and gives the attempts back that its machine burnt.
    pub(crate) fn quarantine(
        &mut self,
        workflow: WorkflowId,
        runner: RunnerId,
        burnt: Burnt,
        now: i64,
    ) -> Result<(), Broken> {
        let Burnt { attempts, quarantine: kept } = burnt;
        let burnt_attempt = |(job, id)| {
            let row = self.working.attempt(id)?;
            let rule = row.rule().filter(|_| row.outcome() == Some(Outcome::Retried));
            Some((job, BurntAttempt { id, run: row.run, number: row.number, rule }))
        };
        let burnt = attempts.into_iter().filter_map(burnt_attempt).collect();
        let done = self.handle(QuarantineRunner { runner, workflow, kept, burnt }, now)?;
        done.map_err(|refused| refused.message)
    }
}

/// The kind of the events that simulated steps make.
pub const STEP: EventKind = EventKind::StepFinished;
