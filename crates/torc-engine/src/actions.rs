//! Actions: what the workflow does at a trigger. Each fires once, or once per worker when
//! persistent; those that look after retried jobs fire whenever such a job has no runner.

use super::change::Change;
use super::index::JobIx;
use super::workflow::Workflow;
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::ops::{Index, IndexMut};
use torc_model::event::EventKind;
use torc_model::ids::{ActionId, RunnerId};
use torc_model::status::{ActionState, JobStatus, Trigger};

/// An action and how far its trigger has come.
#[derive(Clone, PartialEq, Debug)]
pub struct Action {
    /// Its id.
    pub id: ActionId,
    /// When.
    pub trigger: Trigger,
    /// Jobs that the trigger is about, by index.
    pub jobs: Vec<JobIx>,
    /// Once per worker.
    pub persistent: bool,
    /// Made by a recovery; goes away with the next run.
    pub is_recovery: bool,
    /// It asks for nodes, which only some runners can do.
    pub schedules_nodes: bool,
    /// Where it stands.
    pub state: ActionState,
    /// Who executes it.
    pub by: Option<RunnerId>,
    /// Jobs the trigger still waits for.
    open: BTreeSet<JobIx>,
}

/// What an action is made from.
#[derive(Clone, PartialEq, Debug)]
pub struct NewAction {
    /// Its id.
    pub id: ActionId,
    /// When.
    pub trigger: Trigger,
    /// Jobs that the trigger is about, by index.
    pub jobs: Vec<JobIx>,
    /// Once per worker.
    pub persistent: bool,
    /// Made by a recovery.
    pub is_recovery: bool,
    /// It asks for nodes.
    pub schedules_nodes: bool,
    /// Where it stands.
    pub state: ActionState,
    /// Who executes it.
    pub by: Option<RunnerId>,
}

impl Action {
    fn counts(&self, status: JobStatus) -> bool {
        match self.trigger {
            Trigger::OnJobsReady => {
                !matches!(status, JobStatus::Uninitialized | JobStatus::Blocked)
                    && !Self::never_ready(status)
            }
            Trigger::OnJobsComplete => status.is_final(),
            Trigger::OnWorkflowStart
            | Trigger::OnWorkflowComplete
            | Trigger::OnWorkerStart
            | Trigger::OnWorkerComplete
            | Trigger::AutoScheduleOnReadyJobs => false,
        }
    }

    /// It ended without ever becoming ready, unless it is opened again.
    const fn never_ready(status: JobStatus) -> bool {
        matches!(status, JobStatus::Canceled | JobStatus::Disabled)
    }

    /// Looks after this job whenever it is tried again. Without a list it looks after all.
    fn looks_after(&self, index: JobIx) -> bool {
        self.trigger == Trigger::AutoScheduleOnReadyJobs
            && (self.jobs.is_empty() || self.open.contains(&index))
    }

    fn is_about_jobs(&self) -> bool {
        matches!(self.trigger, Trigger::OnJobsReady | Trigger::OnJobsComplete)
    }
}

/// All actions of a workflow, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions(Vec<Action>);

impl Actions {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn iter(&self) -> std::slice::Iter<'_, Action> {
        self.0.iter()
    }

    fn find(&self, id: ActionId) -> Option<usize> {
        self.0.iter().position(|action| action.id == id)
    }
}

impl Index<usize> for Actions {
    type Output = Action;

    fn index(&self, at: usize) -> &Action {
        &self.0[at]
    }
}

impl IndexMut<usize> for Actions {
    fn index_mut(&mut self, at: usize) -> &mut Action {
        &mut self.0[at]
    }
}

impl Workflow {
    /// Adds an action.
    pub fn add_action(&mut self, new: NewAction) {
        let open = new.jobs.iter().copied().collect();
        self.actions.0.push(Action {
            id: new.id,
            trigger: new.trigger,
            jobs: new.jobs,
            persistent: new.persistent,
            is_recovery: new.is_recovery,
            schedules_nodes: new.schedules_nodes,
            state: new.state,
            by: new.by,
            open,
        });
    }

    /// The jobs that the trigger of an action is about.
    pub fn jobs_of_action(&self, id: ActionId) -> &[JobIx] {
        self.actions.find(id).map_or(&[], |i| &self.actions[i].jobs)
    }

    /// Where each action stands, and who executes it.
    pub(super) fn action_states(&self) -> Vec<(ActionId, ActionState, Option<RunnerId>)> {
        self.actions.iter().map(|action| (action.id, action.state, action.by)).collect()
    }

    /// It has no actions.
    pub fn has_no_actions(&self) -> bool {
        self.actions.len() == 0
    }

    /// All actions, in the order in which they were added.
    pub fn actions(&self) -> std::slice::Iter<'_, Action> {
        self.actions.iter()
    }

    /// A new revision no longer has these actions.
    pub fn remove_actions(&mut self, gone: &HashSet<ActionId>) {
        self.actions.0.retain(|action| !gone.contains(&action.id));
    }

    /// Some action asks for nodes whenever a job is tried again.
    pub fn looks_after_retries(&self) -> bool {
        self.actions.iter().any(|action| action.trigger == Trigger::AutoScheduleOnReadyJobs)
    }

    /// Computes what each trigger still waits for.
    pub(super) fn settle_actions(&mut self) {
        for i in 0..self.actions.len() {
            let action = &self.actions[i];
            let open = action
                .jobs
                .iter()
                .copied()
                .filter(|j| !action.counts(self.jobs[*j].status()))
                .collect();
            self.actions[i].open = open;
        }
    }

    /// A job moved: does a trigger come with it?
    pub(super) fn note_for_actions(&mut self, index: JobIx) {
        let status = self.jobs[index].status();
        for i in 0..self.actions.len() {
            let action = &mut self.actions[i];
            if action.state != ActionState::Waiting {
                continue;
            }
            if status == JobStatus::Ready
                && self.jobs[index].tries.number > 1
                && action.looks_after(index)
            {
                self.trigger(i);
                continue;
            }
            let is_about_it = action.is_about_jobs() && action.open.contains(&index);
            if !is_about_it || !(action.counts(status) || Action::never_ready(status)) {
                continue;
            }
            if action.counts(status) {
                action.open.remove(&index);
            }
            if self.is_due(i) {
                self.trigger(i);
            }
        }
    }

    /// Everything that a trigger about jobs waits for has happened. Jobs that can no longer become
    /// ready are not waited for, but when there are only such jobs and ended ones, nothing is left
    /// that the action could be for. Nothing is left either once the workflow is canceled, whose jobs
    /// end one after the other.
    fn is_due(&self, i: usize) -> bool {
        let action = &self.actions[i];
        if !action.is_about_jobs() || action.jobs.is_empty() {
            return false;
        }
        let status = |index: &JobIx| self.jobs[*index].status();
        match action.trigger {
            Trigger::OnJobsReady if !action.open.is_empty() => {
                // The first job that may still become ready ends the search.
                !self.canceled
                    && action.open.iter().all(|index| Action::never_ready(status(index)))
                    && action.jobs.iter().any(|index| !status(index).is_final())
            }
            _ => action.open.is_empty(),
        }
    }

    /// A run began: triggers what waits for that, and what is due already.
    pub fn trigger_start(&mut self) {
        for i in 0..self.actions.len() {
            let action = &self.actions[i];
            let waits = action.state == ActionState::Waiting;
            if waits && (action.trigger == Trigger::OnWorkflowStart || self.is_due(i)) {
                self.trigger(i);
            }
        }
    }

    pub(super) fn trigger_completion(&mut self) {
        for i in 0..self.actions.len() {
            if self.actions[i].trigger == Trigger::OnWorkflowComplete
                && self.actions[i].state == ActionState::Waiting
            {
                self.trigger(i);
            }
        }
    }

    fn trigger(&mut self, i: usize) {
        self.move_action(i, ActionState::Triggered, None, None);
        let (id, trigger) = (self.actions[i].id, self.actions[i].trigger);
        self.event(EventKind::ActionTriggered, None, json!({"action_id": id, "trigger": trigger}));
    }

    fn move_action(
        &mut self,
        i: usize,
        state: ActionState,
        by: Option<RunnerId>,
        error: Option<String>,
    ) {
        self.actions[i].state = state;
        self.actions[i].by = by;
        self.record(Change::Action { id: self.actions[i].id, state, by, error });
    }

    /// Some action waits for a runner (of those that cannot ask for nodes, if so said).
    pub fn has_triggered_action(&self, schedules_nodes: bool) -> bool {
        self.actions
            .iter()
            .any(|a| a.state == ActionState::Triggered && (schedules_nodes || !a.schedules_nodes))
    }

    /// Gives the triggered actions to a runner.
    pub fn claim_actions(&mut self, runner: RunnerId, schedules_nodes: bool) -> Vec<ActionId> {
        let mut given = Vec::new();
        for i in 0..self.actions.len() {
            let action = &self.actions[i];
            if action.state == ActionState::Triggered
                && (schedules_nodes || !action.schedules_nodes)
            {
                given.push(action.id);
                self.move_action(i, ActionState::Claimed, Some(runner), None);
            }
        }
        given
    }

    /// Actions for a worker that begins or leaves: persistent ones each time, others for the first
    /// who comes.
    pub fn worker_actions(
        &mut self,
        runner: RunnerId,
        trigger: Trigger,
        schedules_nodes: bool,
    ) -> Vec<ActionId> {
        let mut given = Vec::new();
        for i in 0..self.actions.len() {
            let action = &self.actions[i];
            if action.trigger != trigger || (action.schedules_nodes && !schedules_nodes) {
                continue;
            }
            let id = action.id;
            if action.persistent {
                given.push(id);
            } else if action.state == ActionState::Waiting {
                given.push(id);
                self.move_action(i, ActionState::Claimed, Some(runner), None);
            }
        }
        given
    }

    /// A runner executed an action. A repeat changes nothing.
    pub fn action_done(&mut self, id: ActionId, runner: RunnerId, error: Option<String>) {
        let Some(i) = self.actions.find(id) else { return };
        let per_worker = self.actions[i].persistent;
        let mine =
            self.actions[i].state == ActionState::Claimed && self.actions[i].by == Some(runner);
        if !mine && !per_worker {
            return;
        }
        let state = if error.is_some() { ActionState::Failed } else { ActionState::Executed };
        if !per_worker {
            self.move_action(i, state, Some(runner), error.clone());
        }
        self.event(
            EventKind::ActionExecuted,
            None,
            json!({"action_id": id, "runner_id": runner, "error": error}),
        );
    }

    /// Triggered actions that ask for nodes; the server executes them itself, by writing down what
    /// is wanted.
    pub fn triggered_schedules(&self) -> Vec<ActionId> {
        let wanted = |a: &&Action| a.schedules_nodes && a.state == ActionState::Triggered;
        self.actions.iter().filter(wanted).map(|a| a.id).collect()
    }

    /// The server executed an action that asks for nodes. One that looks after retried jobs waits
    /// for the next.
    pub fn schedule_done(&mut self, id: ActionId, error: Option<String>) {
        let Some(i) = self.actions.find(id) else { return };
        let state = match &error {
            Some(_) => ActionState::Failed,
            None if self.actions[i].trigger == Trigger::AutoScheduleOnReadyJobs => {
                ActionState::Waiting
            }
            None => ActionState::Executed,
        };
        self.move_action(i, state, None, error.clone());
        self.event(EventKind::ActionExecuted, None, json!({"action_id": id, "error": error}));
    }

    /// An allocation is over: actions that look after retried jobs ask again if such a job is left
    /// behind, ready.
    pub fn look_after_ready_jobs(&mut self) {
        if self.canceled {
            return;
        }
        for i in 0..self.actions.len() {
            let action = &self.actions[i];
            if action.state == ActionState::Waiting && !self.looked_after(i).is_empty() {
                self.trigger(i);
            }
        }
    }

    fn looked_after(&self, action: usize) -> Vec<JobIx> {
        let action = &self.actions[action];
        if action.trigger != Trigger::AutoScheduleOnReadyJobs {
            return Vec::new();
        }
        let waits = |index: &JobIx| {
            let job = &self.jobs[*index];
            job.status() == JobStatus::Ready && job.tries.number > 1 && action.looks_after(*index)
        };
        self.jobs.indexes().filter(waits).collect()
    }

    /// The retried jobs that this action looks after and that wait to be run.
    pub fn ready_jobs_of(&self, id: ActionId) -> Vec<JobIx> {
        self.actions.find(id).map(|i| self.looked_after(i)).unwrap_or_default()
    }

    /// Marks every action that asks for nodes and has not done so yet as executed, so that it never
    /// will. Those that look after retried jobs stay: they count what is on its way before they
    /// ask.
    pub fn retire_schedules(&mut self) -> usize {
        let once = |a: &Action| a.schedules_nodes && a.trigger != Trigger::AutoScheduleOnReadyJobs;
        let open = |a: &Action| {
            once(a) && matches!(a.state, ActionState::Waiting | ActionState::Triggered)
        };
        let open: Vec<usize> =
            (0..self.actions.len()).filter(|i| open(&self.actions[*i])).collect();
        for i in &open {
            self.move_action(*i, ActionState::Executed, None, None);
        }
        open.len()
    }

    /// Adds an action to a workflow that runs already; it is triggered at once if what it waits for
    /// has happened.
    pub fn add_late_action(&mut self, new: NewAction) {
        self.add_action(new);
        let i = self.actions.len() - 1;
        let action = &self.actions[i];
        let open: BTreeSet<JobIx> = action
            .jobs
            .iter()
            .copied()
            .filter(|j| !action.counts(self.jobs[*j].status()))
            .collect();
        self.actions[i].open = open;
        if self.is_due(i) {
            self.trigger(i);
        }
    }

    /// A runner is gone: what it was executing is there for the next one.
    pub(super) fn release_actions(&mut self, runner: RunnerId) {
        for i in 0..self.actions.len() {
            if self.actions[i].state == ActionState::Claimed && self.actions[i].by == Some(runner) {
                self.move_action(i, ActionState::Triggered, None, None);
            }
        }
    }

    /// A new run: recovery actions go, the others wait again for what has not happened yet.
    pub(super) fn reset_actions(&mut self) {
        let before = self.actions.len();
        self.actions.0.retain(|a| !a.is_recovery);
        if self.actions.len() != before {
            self.record(Change::RecoveryActionsGone);
        }
        for i in 0..self.actions.len() {
            if self.actions[i].state != ActionState::Waiting {
                self.move_action(i, ActionState::Waiting, None, None);
            }
        }
        self.settle_actions();
    }
}
