//! Actions: runners report them, and the server executes those that ask for nodes.

use super::moves;
use crate::NewAction;
use torc_model::ids::{ActionId, RunnerId};

moves! {
    /// A runner executed an action.
    ReportAction {
        /// Which.
        action: ActionId,
        /// Who executed it.
        runner: RunnerId,
        /// What went wrong.
        error: Option<String>,
    } -> () = |workflow, _, _| {
        workflow.action_done(action, runner, error);
        Ok(())
    };

    /// The server executed an action that asks for nodes.
    EndSchedule {
        /// Which.
        action: ActionId,
        /// What went wrong.
        error: Option<String>,
    } -> () = |workflow, _, _| {
        workflow.schedule_done(action, error);
        Ok(())
    };

    /// Actions that have not asked for nodes yet never will. Answers how many there were.
    RetireSchedules {} -> usize = |workflow, _, _| Ok(workflow.retire_schedules());

    /// Adds an action to a workflow that runs already. Its row is there.
    AddLateAction {
        /// The action.
        action: NewAction,
    } -> () = |workflow, _, _| {
        workflow.add_late_action(action);
        Ok(())
    };
}
