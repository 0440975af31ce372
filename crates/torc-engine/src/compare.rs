//! What is in memory against what a restart would make of the rows: the two must not differ in
//! anything that decides.

use super::index::JobIx;
use super::workflow::Workflow;
use torc_model::status::JobStatus;

impl Workflow {
    /// In what a workflow that was restored from its rows differs from this one, if it does.
    pub fn difference(&self, restored: &Self) -> Option<String> {
        self.difference_in(restored, true)
    }

    /// The same without ranks, which a revision may leave as they were: they say which job is better
    /// begun first, not which may.
    pub fn difference_besides_ranks(&self, restored: &Self) -> Option<String> {
        self.difference_in(restored, false)
    }

    fn difference_in(&self, restored: &Self, with_ranks: bool) -> Option<String> {
        if self.len() != restored.len() {
            return Some("memory and rows differ about the number of jobs".into());
        }
        if (self.run, self.canceled, self.counts())
            != (restored.run, restored.canceled, restored.counts())
        {
            return Some("memory and rows differ about the workflow".into());
        }
        if let Some(different) =
            self.jobs.indexes().find_map(|index| self.job_difference(restored, index, with_ranks))
        {
            return Some(different);
        }
        // What rules gave to a job that has completed is not read again, and a map that waits for its
        // items, perhaps once more after it had completed, does not run itself.
        let may_fail =
            |job: JobIx| self.jobs[job].status() != JobStatus::Completed && !self.gathers(job);
        if let Some((job, rule)) = self.handlers.difference(&restored.handlers, may_fail) {
            let uses = |flow: &Self| flow.handlers.uses(job, rule);
            return Some(format!(
                "memory and rows differ about rule {rule} of job {}: it gave {} and {} retries",
                self.jobs[job].id,
                uses(self),
                uses(restored)
            ));
        }
        let (memory, rows) = (self.action_states(), restored.action_states());
        if memory != rows {
            return Some(format!(
                "memory and rows differ about actions:\n  {memory:?}\n  {rows:?}"
            ));
        }
        let known = restored.runners_with_work();
        let forgotten = self.runners_with_work().into_iter().find(|r| !known.contains(r))?;
        Some(format!("a restart would forget that runner {forgotten} has a process"))
    }

    fn job_difference(&self, restored: &Self, index: JobIx, with_ranks: bool) -> Option<String> {
        let (a, b) = (&self.jobs[index], &restored.jobs[index]);
        let is_ranked = with_ranks
            && !a.status().is_final()
            && !a.status().is_held()
            && self.is_untouched(index);
        // The last attempt matters only to jobs that can be retried.
        let matters = matches!(
            a.status(),
            JobStatus::Failed | JobStatus::Terminated | JobStatus::PendingFailed
        );
        // Waited for a verdict since an earlier run and was then canceled: the rows cannot tell it
        // from one that never ran, and nothing depends on it.
        let from_before =
            a.status() == JobStatus::Canceled && (a.tries.number, b.tries.number) == (1, 0);
        // A map that waits for its items need not run itself in this run: its column says 1 all the
        // same.
        let never_runs = self.gathers(index);
        // A revision took it out in an earlier run: should it come back, it starts over.
        let is_history = a.is_removed() && a.tries.run != self.run;
        // Its time had come; whether it has come again after a jump of the clock does not matter.
        let woken = a.not_before.is_none();
        let not_before = a.not_before == b.not_before || woken || a.status() != JobStatus::Ready;
        let parts = [
            ("status", a.status() == b.status()),
            ("held_back", a.held_back == b.held_back),
            ("priority", a.priority == b.priority),
            ("class", self.next_class_of(index) == restored.next_class_of(index)),
            (
                "attempt",
                a.tries.number == b.tries.number || from_before || never_runs || is_history,
            ),
            ("lost_retries", a.tries.lost == b.tries.lost),
            ("refunds", a.tries.refunds == b.tries.refunds),
            ("attempts before", a.tries.before == b.tries.before),
            ("unmet", a.unmet == b.unmet),
            ("live", a.live() == b.live()),
            ("last", a.last == b.last || !matters || b.last.is_none()),
            ("not_before", not_before),
            ("held", a.held() == b.held()),
            ("script", a.script == b.script || a.live().is_none()),
            ("reason", a.reason() == b.reason()),
            ("handler", a.handler == b.handler),
            ("afterwards", a.afterwards() == b.afterwards()),
            ("rank", self.rank(index) == restored.rank(index) || !is_ranked),
        ];
        let (what, _) = parts.iter().find(|(_, same)| !same)?;
        Some(format!("memory and rows differ about `{what}` of job {}:\n  {a:?}\n  {b:?}", a.id))
    }

    /// No job that waits for this one, directly or not, has begun: so it is unless one that had ended
    /// was opened again.
    fn is_untouched(&self, index: JobIx) -> bool {
        let mut open = self.children_of(index).to_vec();
        while let Some(job) = open.pop() {
            let status = self.jobs[job].status();
            if matches!(status, JobStatus::Completed) || status.is_held() {
                return false;
            }
            open.extend(self.children_of(job));
        }
        true
    }
}
