//! The runners that are there, by id and by workflow: a claim looks at those of its own workflow, however
//! many serve others.

use super::writer::Runner;
use std::collections::{BTreeSet, HashMap};
use torc_model::ids::{RunnerId, WorkflowId};

/// Runners that have not ended.
#[derive(Default, Debug)]
pub struct Runners {
    all: HashMap<RunnerId, Runner>,
    by_workflow: HashMap<WorkflowId, BTreeSet<RunnerId>>,
}

impl Runners {
    /// One of them.
    pub fn get(&self, id: &RunnerId) -> Option<&Runner> {
        self.all.get(id)
    }

    /// One of them, to be changed; its workflow stays.
    pub fn get_mut(&mut self, id: &RunnerId) -> Option<&mut Runner> {
        self.all.get_mut(id)
    }

    /// It is there.
    pub fn contains_key(&self, id: &RunnerId) -> bool {
        self.all.contains_key(id)
    }

    /// One has come.
    pub fn insert(&mut self, id: RunnerId, runner: Runner) {
        self.by_workflow.entry(runner.workflow).or_default().insert(id);
        self.all.insert(id, runner);
    }

    /// One has ended.
    pub fn remove(&mut self, id: &RunnerId) -> Option<Runner> {
        let runner = self.all.remove(id)?;
        if let Some(ids) = self.by_workflow.get_mut(&runner.workflow) {
            ids.remove(id);
            if ids.is_empty() {
                self.by_workflow.remove(&runner.workflow);
            }
        }
        Some(runner)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&RunnerId, &Runner)> {
        self.all.iter()
    }

    /// All, to be changed, in no order; their workflows stay.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&RunnerId, &mut Runner)> {
        self.all.iter_mut()
    }

    /// Those of a workflow, in the order in which they came.
    pub fn of(&self, id: WorkflowId) -> impl Iterator<Item = (RunnerId, &Runner)> {
        let ids = self.by_workflow.get(&id).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Workflows that have a runner, in the order of their ids.
    pub fn workflows(&self) -> BTreeSet<WorkflowId> {
        self.by_workflow.keys().copied().collect()
    }
}
