//! The failure handlers of a workflow, and how often each of their rules has given a job a retry.

use super::index::{HandlerIx, JobIx};
use super::rules::CompiledHandler;
use std::collections::HashMap;
use std::ops::Index;

/// Handlers by their number, and the retries that rules gave in this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handlers {
    list: Vec<CompiledHandler>,
    /// By job and the rule's place in the job's handler.
    uses: HashMap<(JobIx, usize), u32>,
}

impl Handlers {
    pub fn new(list: Vec<CompiledHandler>) -> Self {
        Self { list, uses: HashMap::new() }
    }

    /// Other rules; what was given stays counted.
    pub fn replace(&mut self, list: Vec<CompiledHandler>) {
        self.list = list;
    }

    /// How many retries a rule has given a job.
    pub fn uses(&self, job: JobIx, rule: usize) -> u32 {
        self.uses.get(&(job, rule)).copied().unwrap_or(0)
    }

    /// A rule gave a job a retry.
    pub fn count_use(&mut self, job: JobIx, rule: usize) {
        *self.uses.entry((job, rule)).or_default() += 1;
    }

    /// That retry does not count.
    pub fn take_back(&mut self, job: JobIx, rule: usize) {
        if let Some(uses) = self.uses.get_mut(&(job, rule)) {
            *uses = uses.saturating_sub(1);
        }
    }

    /// Some jobs start over.
    pub fn forget(&mut self, is_renewed: impl Fn(JobIx) -> bool) {
        self.uses.retain(|(job, _), _| !is_renewed(*job));
    }

    /// A new run begins.
    pub fn forget_all(&mut self) {
        self.uses.clear();
    }
}

impl Index<HandlerIx> for Handlers {
    type Output = CompiledHandler;

    fn index(&self, index: HandlerIx) -> &CompiledHandler {
        &self.list[index.at()]
    }
}
