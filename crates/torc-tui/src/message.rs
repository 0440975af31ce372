//! What goes into the reducer (events) and what comes out of it (effects).

use crate::timeline::Bars;
use crossterm::event::{KeyEvent, MouseEvent};
use std::sync::Arc;
use torc_model::api::{
    ActRequest, ActView, AttemptView, CriticalPathView, EventView, FailureGroup, FamiliesView,
    FamilyResources, JobView, LogSearchView, LogView, Page, PulseView, RunnerView, WhyView,
    WorkflowView,
};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::slurm::wire::AllocationView;
use torc_model::status::Stream;

/// Something happened.
#[derive(Clone, Debug)]
pub enum Event {
    Key(KeyEvent),
    Mouse(MouseEvent),
    /// Text that the terminal pasted.
    Paste(String),
    /// Columns and rows.
    Resize(u16, u16),
    /// A frame of the pulse of a workflow.
    Pulse(WorkflowId, PulseView),
    /// The pulse broke, or could not be had: why.
    Away(WorkflowId, String),
    /// The server does not give the pulse of a workflow, for example because it was deleted.
    Refused(WorkflowId, String),
    /// The server answered, or did not.
    Answer(Request, Result<Answer, AskProblem>),
    /// The terminal is gone.
    Closed,
    /// Time passed: the moment that [`crate::State::wake_at`] named has come.
    Tick,
}

/// What the loop shall do.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Ask the server; the answer comes as [`Event::Answer`].
    Fetch(Request),
    /// Read the pulse of this workflow from now on, and of no other.
    Follow(WorkflowId),
    /// Give this text to the terminal's clipboard (OSC 52).
    Copy(String),
    /// Leave the screen to `$PAGER` with this output.
    Pager(LogOf),
    /// Leave the screen to `$EDITOR` with a copy of this text.
    Editor(String),
    /// Draw every cell anew.
    Repaint,
    /// Give the terminal back to the shell until the user says `fg`.
    Suspend,
    Quit,
}

/// The output of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOf {
    pub job: JobId,
    pub run: i64,
    pub attempt: i64,
    pub stream: Stream,
}

/// Where a piece of output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Shown anew, from its first line on.
    Open,
    /// Shown anew, at its end.
    End,
    /// Put before what is shown.
    Before,
    /// Put behind what is shown.
    After,
}

/// A window of the table of jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobsWindow {
    pub workflow: WorkflowId,
    pub filter: String,
    pub sort: &'static str,
    pub reverse: bool,
    /// Number of the window, from 0.
    pub window: i64,
    /// The job before the first of the window, where it is known and the order is that of ids: the
    /// server seeks it by its index instead of counting rows.
    pub after: Option<JobId>,
    /// Answers to another question than the newest are dropped.
    pub generation: u64,
}

/// A question to the server.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    Workflows,
    /// The families of a workflow for the list of all workflows.
    Row(WorkflowId),
    Families(WorkflowId),
    Resources(WorkflowId),
    Failures(WorkflowId),
    Runners(WorkflowId),
    Allocations(WorkflowId),
    Timeline(WorkflowId),
    CriticalPath(WorkflowId),
    /// The newest events; those after an event if one is known.
    Events(WorkflowId, Option<i64>),
    Jobs(JobsWindow),
    Why(JobId),
    Attempts(JobId),
    Log {
        of: LogOf,
        offset: i64,
        limit: i64,
        piece: Piece,
    },
    /// The last bytes of the newest attempt, for a quick look.
    Peek(JobId, Stream),
    Search {
        of: LogOf,
        text: String,
        is_regex: bool,
    },
    /// The end of an attempt's output, to be compared.
    Compared(LogOf),
    /// Does something with jobs, or tells what would happen.
    Act(ActRequest, u64),
    /// Jobs and workflows whose name has this in it.
    Find(Option<WorkflowId>, String),
}

/// What the server said.
#[derive(Clone, Debug)]
pub enum Answer {
    Workflows(Page<WorkflowView>),
    Families(Box<FamiliesView>),
    Resources(Vec<FamilyResources>),
    Failures(Vec<FailureGroup>),
    Runners(Vec<RunnerView>),
    Allocations(Vec<AllocationView>),
    Timeline(Arc<Bars>),
    CriticalPath(CriticalPathView),
    Events(Vec<EventView>),
    Jobs(Page<JobView>),
    Why(Box<WhyView>),
    Attempts(Vec<AttemptView>),
    Log(LogView),
    Search(LogSearchView),
    Act(ActView),
    Find { workflows: Vec<WorkflowView>, jobs: Vec<JobView> },
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskProblem {
    pub message: String,
    /// No server answered; the pulse tells when it is back.
    pub is_away: bool,
}
