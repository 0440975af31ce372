//! The engine and its only door: what changes state is a [`Command`], and [`Engine::handle`] carries it
//! out.
//!
//! ```text
//!   command, time ──► Engine::handle ──► reply, changes
//!                        │
//!                        └─ Workflow · Runners · Limits · Reservations, with fields that only the engine sees
//! ```
//!
//! The store loads the workflow that a command needs, calls the engine, and writes exactly the changes
//! into the transaction of the request. The simulator does the same with tables in memory. Both read
//! the engine's state through `&`; a move that is no command does not compile.
//!
//! A command takes what the engine does not keep (texts, what was written of steps, what a map found) as
//! facts in its fields. It checks first and changes second; should one be refused after it has changed
//! something, its changes are told all the same, so that the store can take both back.

use super::change::Change;
use super::claim::Limits;
use super::reservations::{Clocks, Reservations};
use super::runners::Runners;
use super::workflow::{Refused, Workflow};
use std::collections::HashMap;
use torc_model::api::ErrorCode;
use torc_model::ids::{JobId, WorkflowId};

/// All that is decided on: the loaded workflows, runners, named limits and reservations.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub(crate) workflows: HashMap<WorkflowId, Workflow>,
    pub(crate) runners: Runners,
    pub(crate) limits: Limits,
    pub(crate) reservations: Reservations,
    next_attempt: i64,
    next_job: i64,
}

/// What a restart reads before any workflow.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Runners that have not ended.
    pub runners: Runners,
    /// The named limits, nothing used.
    pub limits: Limits,
    /// The active reservations.
    pub reservations: Reservations,
    /// The first row that an attempt may take.
    pub next_attempt: i64,
    /// The first number that a job may take.
    pub next_job: i64,
}

/// Something that changes state.
pub trait Command {
    /// What it answers.
    type Reply;

    /// The workflow that must be loaded before, if it is about one.
    fn needs(&self, engine: &Engine) -> Option<WorkflowId>;

    /// Carries it out.
    fn carry_out(self, turn: &mut Turn<'_>) -> Result<Self::Reply, Refused>;
}

/// What a command led to.
#[derive(Clone, PartialEq, Debug)]
#[must_use = "the changes are to be written"]
pub struct Done<T> {
    /// Its answer.
    pub reply: Result<T, Refused>,
    /// The workflow that the changes are of; None: they are of the whole server.
    pub about: Option<WorkflowId>,
    /// What is to be written, in this order.
    pub changes: Vec<Change>,
    /// Whose waiting claims look again, whatever the changes say.
    pub wakes: Wakes,
}

/// Whose waiting claims look again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Wakes {
    /// None of them.
    #[default]
    None,
    /// Those of the workflow.
    Workflow,
    /// All of them.
    All,
}

impl Engine {
    /// As rows say; workflows are added by [`Engine::load`].
    pub fn restored(loaded: Loaded) -> Self {
        let Loaded { runners, mut limits, reservations, next_attempt, next_job } = loaded;
        reservations.pause_limits(&mut limits);
        let workflows = HashMap::new();
        Self { workflows, runners, limits, reservations, next_attempt, next_job }
    }

    /// Carries out a command.
    pub fn handle<C: Command>(&mut self, command: C, at: Clocks) -> Done<C::Reply> {
        let mut turn =
            Turn { engine: self, at, about: None, changes: Vec::new(), wakes: Wakes::None };
        let reply = command.carry_out(&mut turn);
        let Turn { about, changes, wakes, .. } = turn;
        Done { reply, about, changes, wakes }
    }

    /// A copy with one workflow, to see what commands would lead to.
    pub fn rehearsal(&self, id: WorkflowId) -> Self {
        let workflows = self.workflows.get(&id).map(|workflow| (id, workflow.clone()));
        Self {
            workflows: workflows.into_iter().collect(),
            runners: self.runners.clone(),
            limits: self.limits.clone(),
            reservations: self.reservations.clone(),
            ..*self
        }
    }

    /// Takes in a workflow as its rows say, and counts what it uses of the named limits.
    pub fn load(&mut self, workflow: Workflow) {
        workflow.count_limits(&mut self.limits);
        self.workflows.insert(workflow.id, workflow);
    }

    /// Drops the copy of a workflow whose rows were changed by others than the engine.
    pub fn unload(&mut self, id: WorkflowId) {
        let Some(workflow) = self.workflows.remove(&id) else { return };
        workflow.discount_limits(&mut self.limits);
        // Those that it set itself come back with it, perhaps with other numbers.
        let mut own = Limits::default();
        workflow.add_map_limits(&mut own);
        self.limits.retain(|name, _| !own.contains_key(name));
    }

    /// Lets go of a workflow that is over and has nothing running; what it set stays.
    pub fn forget(&mut self, id: WorkflowId) {
        self.workflows.remove(&id);
    }

    /// What was done so far is on disk.
    pub fn committed(&mut self) {
        self.runners.committed();
        self.reservations.committed();
    }

    /// As rows say after something was taken back. What only memory knows of runners and
    /// reservations stays.
    pub fn reread(&mut self, rows: Self) {
        let known = std::mem::replace(self, rows);
        self.runners = known.runners.reread(std::mem::take(&mut self.runners));
        let fresh = std::mem::take(&mut self.reservations);
        self.reservations = fresh.with_times_of(known.reservations);
    }

    /// A workflow that is loaded.
    pub fn workflow(&self, id: WorkflowId) -> Option<&Workflow> {
        self.workflows.get(&id)
    }

    /// The workflows that are loaded.
    pub fn workflows(&self) -> &HashMap<WorkflowId, Workflow> {
        &self.workflows
    }

    /// The runners that have not ended.
    pub fn runners(&self) -> &Runners {
        &self.runners
    }

    /// The named limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The active reservations.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The first row that an attempt may take.
    pub fn next_attempt(&self) -> i64 {
        self.next_attempt
    }

    /// The first number that a job may take.
    pub fn next_job(&self) -> i64 {
        self.next_job
    }
}

/// A command that is being carried out.
pub struct Turn<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) at: Clocks,
    about: Option<WorkflowId>,
    changes: Vec<Change>,
    wakes: Wakes,
}

impl Turn<'_> {
    /// Moves a workflow and takes over what that changed.
    pub(crate) fn on<T>(
        &mut self,
        id: WorkflowId,
        step: impl FnOnce(&mut Workflow, &mut Limits, i64) -> T,
    ) -> Result<T, Refused> {
        self.on_beside(id, |workflow, limits, _, now| step(workflow, limits, now))
    }

    /// The same for a move that needs the runners.
    pub(crate) fn on_beside<T>(
        &mut self,
        id: WorkflowId,
        step: impl FnOnce(&mut Workflow, &mut Limits, &mut Runners, i64) -> T,
    ) -> Result<T, Refused> {
        let Engine { workflows, limits, runners, next_attempt, .. } = &mut *self.engine;
        let workflow = workflows.get_mut(&id).ok_or_else(|| not_loaded(id))?;
        workflow.set_next_attempt(*next_attempt);
        let result = step(workflow, limits, runners, self.at.now);
        *next_attempt = workflow.next_attempt();
        if workflow.take_released() {
            self.wakes = self.wakes.max(Wakes::Workflow);
        }
        let changes = workflow.take_changes();
        self.record(id, changes);
        Ok(result)
    }

    /// A workflow, to look at.
    pub(crate) fn see(&self, id: WorkflowId) -> Result<&Workflow, Refused> {
        self.engine.workflows.get(&id).ok_or_else(|| not_loaded(id))
    }

    /// Changes of this workflow, or of its runners.
    pub(crate) fn record(&mut self, id: WorkflowId, mut changes: Vec<Change>) {
        debug_assert!(self.about.is_none_or(|about| about == id), "one command, one workflow");
        self.about = Some(id);
        match self.changes.is_empty() {
            true => self.changes = changes,
            false => self.changes.append(&mut changes),
        }
    }

    /// A change of the whole server.
    pub(crate) fn record_shared(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Waiting claims look again.
    pub(crate) fn wake(&mut self, wakes: Wakes) {
        self.wakes = self.wakes.max(wakes);
    }

    /// Takes a row for an attempt.
    pub(crate) fn take_attempt_row(&mut self) -> i64 {
        let row = self.engine.next_attempt;
        self.engine.next_attempt += 1;
        row
    }

    /// Takes so many numbers for new jobs; answers with the first.
    pub(crate) fn take_job_ids(&mut self, count: usize) -> JobId {
        let first = self.engine.next_job;
        self.engine.next_job += count as i64;
        JobId(first)
    }
}

fn not_loaded(id: WorkflowId) -> Refused {
    Refused::new(ErrorCode::NotFound, format!("workflow {id} is not loaded"))
}

/// A move of one workflow. Other crates cannot name this trait, so that they cannot write moves.
pub trait Move {
    /// What it answers.
    type Reply;

    /// Makes it.
    fn make(
        self,
        workflow: &mut Workflow,
        limits: &mut Limits,
        now: i64,
    ) -> Result<Self::Reply, Refused>;
}

/// A move, and the workflow that makes it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct On<M>(pub WorkflowId, pub M);

impl<M: Move> Command for On<M> {
    type Reply = M::Reply;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.0)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<M::Reply, Refused> {
        let Self(id, step) = self;
        turn.on(id, |workflow, limits, now| step.make(workflow, limits, now))?
    }
}
