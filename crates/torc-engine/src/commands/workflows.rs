//! Workflows: made, initialized, revised, reset, canceled, repaired, deleted.

use super::moves;
use crate::engine::{Command, Engine, Turn};
use crate::{
    Change, CompiledHandler, JobIx, LastEnd, NewAction, Reason, Refused, Repair, Revision, Workflow,
};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use torc_model::event::EventKind;
use torc_model::ids::{ActionId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::plan::Settings;

/// A new workflow. With `initialize` its jobs stand as they are to be written first, which is told by
/// the workflow and not by changes.
#[derive(Clone, Debug)]
pub struct AddWorkflow {
    /// The workflow, with its jobs and actions.
    pub workflow: Box<Workflow>,
    /// Initialize it.
    pub initialize: bool,
}

impl Command for AddWorkflow {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let Self { workflow, initialize } = self;
        let id = workflow.id;
        workflow.add_map_limits(&mut turn.engine.limits);
        turn.engine.workflows.insert(id, *workflow);
        turn.on(id, |workflow, _, now| {
            if initialize {
                workflow.initialize_unstored(now);
            }
        })
    }
}

/// A workflow goes with all that belongs to it. Answers with the runners that it had.
#[derive(Clone, Copy, Debug)]
pub struct DeleteWorkflow(pub WorkflowId);

impl Command for DeleteWorkflow {
    type Reply = Vec<(RunnerId, Option<PoolRunnerId>)>;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<Self::Reply, Refused> {
        let Self(id) = self;
        turn.engine.unload(id);
        let gone = turn.engine.runners.of(id).map(|(runner, known)| (runner, known.pool));
        let gone: Vec<_> = gone.collect();
        gone.iter().for_each(|(runner, _)| turn.engine.runners.remove(*runner));
        turn.record(id, vec![Change::WorkflowDeleted]);
        Ok(gone)
    }
}

moves! {
    /// Makes every uninitialized job blocked or ready.
    Initialize {} -> () = |workflow, _, now| {
        workflow.initialize(now);
        Ok(())
    };

    /// Sends jobs back to uninitialized, as [`Workflow::plan_reset`] has chosen them.
    Reset<'a> {
        /// Which, and why.
        chosen: &'a [(JobIx, Reason)],
    } -> () = |workflow, _, now| {
        workflow.reset(chosen, now);
        Ok(())
    };

    /// Stops everything that is not final.
    CancelWorkflow {} -> () = |workflow, _, now| {
        workflow.cancel(now);
        Ok(())
    };

    /// A canceled workflow goes on.
    Resume {} -> () = |workflow, _, _| {
        workflow.resume();
        Ok(())
    };

    /// Switches the server's own recovery of failures on or off.
    SetAutoRecover {
        /// On.
        enabled: bool,
    } -> () = |workflow, _, _| {
        workflow.set_auto_recover(enabled);
        Ok(())
    };

    /// Gives it other failure handlers, as their rows say.
    SetHandlers {
        /// In the order of their rows.
        handlers: Vec<CompiledHandler>,
    } -> () = |workflow, _, _| {
        workflow.set_handlers(handlers);
        Ok(())
    };

    /// Adds jobs whose rows are written.
    AddJobs {
        /// The new jobs, and how they belong to maps.
        revision: Revision,
    } -> () = |workflow, limits, now| {
        workflow.revise(revision, now)?;
        workflow.add_map_limits(limits);
        Ok(())
    };

    /// Applies a revision whose rows are written. Answers whether the next run began.
    ApplyRevision {
        /// What becomes of the jobs.
        revision: Revision,
        /// The settings from now on, if they are others.
        settings: Option<Settings>,
        /// Actions that it no longer has.
        gone: HashSet<ActionId>,
        /// Actions that it has now.
        new: Vec<NewAction>,
    } -> bool = |workflow, limits, now| {
        let before = workflow.run;
        workflow.settings = settings.unwrap_or_else(|| workflow.settings.clone());
        workflow.remove_actions(&gone);
        workflow.revise(revision, now)?;
        new.into_iter().for_each(|action| workflow.add_late_action(action));
        let is_new_run = workflow.run > before;
        if is_new_run {
            workflow.trigger_start();
        }
        workflow.set_map_limits(limits);
        Ok(is_new_run)
    };

    /// Makes its rows fit together. Answers with what was done.
    RepairWorkflow<'a> {
        /// The newest ended attempt of each job, as its row says.
        ends: &'a HashMap<JobIx, LastEnd>,
        /// Stands for a runner that is not known.
        stand_in: RunnerId,
    } -> Vec<(JobId, Repair)> = |workflow, limits, now| {
        let repairs = workflow.repair(ends, stand_in, limits, now);
        Ok(repairs.into_iter().map(|(index, what)| (workflow.job(index).id(), what)).collect())
    };

    /// Something that people may want to know, of which the engine keeps nothing.
    Tell {
        /// What.
        kind: EventKind,
        /// About which job.
        job: Option<JobId>,
        /// The rest.
        data: Value,
    } -> () = |workflow, _, _| {
        workflow.record(Change::Event { kind, job, data });
        Ok(())
    };
}
