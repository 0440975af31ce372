//! One request's view of the database and the engine: what it loads, moves and writes down.

use super::{Failed, State};
use crate::store::refusal::Refusal;
use crate::store::{auto, journal, load, outcomes, webhooks};
use rusqlite::Connection;
use std::collections::BTreeSet;
use torc_engine::{Change, Clocks, Command, Done, On, Wakes, Workflow, commands};
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};

/// One request's view of the writer, inside its savepoint.
pub struct Tx<'a> {
    /// The connection, in a transaction.
    pub db: &'a Connection,
    pub(in crate::store) state: &'a mut State,
    /// What follows from it besides its rows.
    pub(in crate::store) consequences: &'a mut Consequences,
    /// Set when a change of the engine was written.
    pub(super) is_moved: bool,
    /// Now, in ms since 1970.
    pub now: i64,
    /// Now, in ms since the start of the machine: how long a runner was silent.
    pub uptime: i64,
}

/// What the requests of one group lead to besides their rows.
#[derive(Default)]
pub struct Consequences {
    pub(super) touched: BTreeSet<WorkflowId>,
    /// Waiting tasks look again.
    pub(super) woken: BTreeSet<WorkflowId>,
    /// Where work became ready: claims that wait are served, if there is still work after all requests of
    /// the group.
    pub(super) with_work: BTreeSet<WorkflowId>,
    pub(super) new_events: Vec<EventView>,
    /// A delivery was written.
    pub(in crate::store) outbox: bool,
    /// Something was written that is shown with a workflow's progress and is not part of [`Progress`](super::Progress).
    pub(super) is_special: bool,
}

impl<'a> Tx<'a> {
    pub(super) fn new(
        db: &'a Connection,
        state: &'a mut State,
        consequences: &'a mut Consequences,
    ) -> Self {
        let (now, uptime) = (crate::clock::now_ms(), crate::clock::boottime_ms());
        Self { db, state, consequences, is_moved: false, now, uptime }
    }
}

impl Tx<'_> {
    /// The time of the request.
    pub fn clocks(&self) -> Clocks {
        Clocks { now: self.now, uptime: self.uptime }
    }

    /// The engine's copy of a workflow, loaded if need be.
    pub fn workflow(&mut self, id: WorkflowId) -> Result<&Workflow, Failed> {
        self.load(id)?;
        self.state.engine.workflow(id).ok_or_else(|| Refusal::not_found("workflow", id.0).into())
    }

    fn load(&mut self, id: WorkflowId) -> Result<(), Failed> {
        if self.state.engine.workflow(id).is_none() {
            let workflow =
                load::workflow(self.db, id)?.ok_or_else(|| Refusal::not_found("workflow", id.0))?;
            self.state.engine.load(workflow);
        }
        self.consequences.touched.insert(id);
        Ok(())
    }

    /// Has the engine carry out a command, and writes down what that changed.
    pub fn handle<C: Command>(&mut self, command: C) -> Result<C::Reply, Failed> {
        let done = self.begin(command)?;
        self.finish(done)
    }

    /// The same without writing, for rows that have to be there before: [`Tx::finish`] follows.
    pub fn begin<C: Command>(&mut self, command: C) -> Result<Done<C::Reply>, Failed> {
        if let Some(id) = command.needs(&self.state.engine) {
            self.load(id)?;
        }
        let clocks = self.clocks();
        Ok(self.state.engine.handle(command, clocks))
    }

    /// Writes down what a command changed. A refused one may have changed something too: with the
    /// request all of it is taken back.
    pub fn finish<T>(&mut self, done: Done<T>) -> Result<T, Failed> {
        let Done { reply, about, changes, wakes } = done;
        match wakes {
            Wakes::None => {}
            Wakes::Workflow => self.consequences.woken.extend(about),
            Wakes::All => self.wake_all(),
        }
        if !changes.is_empty() {
            self.write(about, changes)?;
        }
        Ok(reply?)
    }

    /// Writes down something that people may want to know.
    pub fn tell(
        &mut self,
        id: WorkflowId,
        kind: EventKind,
        job: Option<JobId>,
        data: serde_json::Value,
    ) -> Result<(), Failed> {
        self.handle(On(id, commands::Tell { kind, job, data }))
    }

    /// Every waiting claim looks again.
    pub fn wake_all(&mut self) {
        self.consequences.woken.extend(self.state.engine.workflows().keys());
    }

    fn write(&mut self, about: Option<WorkflowId>, changes: Vec<Change>) -> Result<(), Failed> {
        let known = self.consequences.new_events.len();
        self.is_moved = true;
        let Some(id) = about else {
            return Ok(journal::write_shared(self.db, changes, self.now)?);
        };
        let wakes = journal::write(
            self.db,
            id,
            changes,
            self.now,
            &mut self.state.next_event,
            &mut self.consequences.new_events,
        )?;
        let mut settled = Vec::new();
        for event in &self.consequences.new_events[known..] {
            settled.extend(outcomes::observe(self.db, self.state, event, self.now)?);
        }
        if !self.state.webhooks.is_empty() {
            for event in &self.consequences.new_events[known..] {
                self.consequences.outbox |=
                    webhooks::enqueue(self.db, &self.state.webhooks, event)?;
            }
        }
        if let Some(end) = wakes.last_end {
            let known = self.state.last_ends.entry(id).or_insert(end);
            *known = end.max(*known);
        }
        self.consequences.is_special |= wakes.special;
        if wakes.news {
            self.consequences.woken.insert(id);
        }
        if wakes.work {
            self.consequences.with_work.insert(id);
        }
        for row in settled {
            auto::settled(self, row)?;
        }
        Ok(())
    }
}
