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

    /// A job and a rule for which retries are counted otherwise over there.
    pub fn difference(
        &self,
        other: &Self,
        matters: impl Fn(JobIx) -> bool,
    ) -> Option<(JobIx, usize)> {
        let differs = |(job, rule): &&(JobIx, usize)| {
            matters(*job) && self.uses(*job, *rule) != other.uses(*job, *rule)
        };
        self.uses.keys().chain(other.uses.keys()).filter(differs).min().copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_counted_by_job_and_rule_and_forgotten_by_job() {
        let (a, b) = (JobIx::new(1), JobIx::new(2));
        let mut handlers = Handlers::new(Vec::new());
        handlers.take_back(a, 0);
        handlers.count_use(a, 0);
        handlers.count_use(a, 0);
        handlers.count_use(a, 1);
        handlers.count_use(b, 0);
        let uses = |handlers: &Handlers| {
            [(a, 0), (a, 1), (b, 0), (b, 1)].map(|(j, r)| handlers.uses(j, r))
        };
        assert_eq!(uses(&handlers), [2, 1, 1, 0]);
        let before = handlers.clone();
        handlers.take_back(a, 0);
        assert_eq!(uses(&handlers), [1, 1, 1, 0]);
        let of_all = |_| true;
        assert_eq!(before.difference(&before, of_all), None);
        assert_eq!(before.difference(&handlers, of_all), Some((a, 0)));
        assert_eq!(handlers.difference(&before, of_all), Some((a, 0)));
        assert_eq!(handlers.difference(&before, |job| job != a), None);
        assert_eq!(Handlers::new(Vec::new()).difference(&before, |job| job != a), Some((b, 0)));
        handlers.replace(Vec::new());
        handlers.forget(|job| job == a);
        assert_eq!(uses(&handlers), [0, 0, 1, 0]);
        handlers.forget_all();
        assert_eq!(uses(&handlers), [0; 4]);
    }
}
