//! Everything that the screen shows, as plain data. Only the reducer changes it.

use crate::format::StatusCounts;
use crate::message::{JobsWindow, LogOf};
use crate::text;
use crate::theme::Theme;
use crate::timeline::Bars;
use jiff::tz::TimeZone;
use ratatui::layout::Rect;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use torc_model::api::{
    ActView, ActWord, AttemptView, CriticalPathView, EventView, FailureGroup, FamiliesView,
    FamilyResources, JobView, LogHit, RunnerView, WhyView, WorkflowView,
};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::slurm::wire::AllocationView;
use torc_model::status::Stream;

/// Rows of one window of the table of jobs: one question to the server.
pub const WINDOW: i64 = 100;
/// Windows that are kept; the ones that are farthest from the cursor go first.
pub const MAX_WINDOWS: usize = 12;
/// Bytes of output that are asked for at once.
pub const PIECE: i64 = 64 << 10;
/// Lines of output that are kept.
pub const MAX_LINES: usize = 20_000;
/// Events that are kept.
pub const MAX_EVENTS: usize = 2_000;

/// The screens, in the order of the page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum View {
    Overview,
    Jobs,
    Failures,
    Timeline,
    Nodes,
    Events,
    Workflows,
}

impl View {
    pub const ALL: [Self; 7] = [
        Self::Overview,
        Self::Jobs,
        Self::Failures,
        Self::Timeline,
        Self::Nodes,
        Self::Events,
        Self::Workflows,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Jobs => "Jobs",
            Self::Failures => "Failures",
            Self::Timeline => "Timeline",
            Self::Nodes => "Nodes",
            Self::Events => "Events",
            Self::Workflows => "Workflows",
        }
    }
}

/// What the user chose at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Colours and signs.
    pub theme: Theme,
    /// Times are shown in this zone.
    pub zone: TimeZone,
    /// Who acts, for the record.
    pub author: String,
}

/// Whether the server is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Link {
    /// No frame so far.
    Connecting,
    Connected,
    /// No answer since then, and why.
    Away {
        since_ms: i64,
        why: String,
    },
}

/// One kind of data that screens show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feed {
    Families,
    Resources,
    Failures,
    Runners,
    Allocations,
    Timeline,
    CriticalPath,
    Events,
    Jobs,
    Workflows,
    Why,
    Attempts,
    Log,
}

/// When a feed was asked for, and whether the world has moved since.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    pub at_ms: Option<i64>,
    pub is_waiting: bool,
    pub is_stale: bool,
}

/// The whole screen.
#[derive(Clone, Debug)]
pub struct State {
    pub settings: Settings,
    pub now_ms: i64,
    pub frame: FramePlaces,
    pub route: ViewTrail,
    pub workflow: Option<WorkflowId>,
    pub connection: ServerLink,
    pub overview: Overview,
    pub jobs: JobsScreen,
    pub failures: List,
    pub timeline: TimelineScreen,
    pub nodes: NodesScreen,
    pub events: Events,
    pub workflows: Workflows,
    pub job: Option<JobPlace>,
    pub dialogs: Dialogs,
}

/// The terminal, and what the last frame put where.
#[derive(Clone, Debug)]
pub struct FramePlaces {
    /// Columns and rows.
    pub size: (u16, u16),
    /// Where the last frame put what can be clicked.
    pub hits: Vec<Hit>,
}

/// The view on the screen, and the way back.
#[derive(Clone, Debug)]
pub struct ViewTrail {
    pub view: View,
    /// Views that Esc goes back to.
    pub trail: Vec<View>,
}

impl ViewTrail {
    pub fn go(&mut self, view: View) {
        if self.view != view {
            self.trail.push(self.view);
        }
        self.view = view;
    }
}

/// What is known of the server, and what it has been asked for.
#[derive(Clone, Debug)]
pub struct ServerLink {
    pub link: Link,
    /// The server was last heard then.
    pub heard_ms: Option<i64>,
    pub asked: BTreeMap<Feed, Asked>,
}

/// What lies over the view.
#[derive(Clone, Debug, Default)]
pub struct Dialogs {
    pub overlay: Option<Overlay>,
    pub notice: Option<Notice>,
    /// The number of the newest action that was asked for.
    pub turn: u64,
}

/// A sentence at the bottom, for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    pub text: String,
    pub is_bad: bool,
    pub until_ms: i64,
}

/// A cursor in a list that scrolls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct List {
    pub cursor: usize,
    pub top: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub families: Option<FamiliesView>,
    pub counts: StatusCounts,
    /// Jobs of each family by status.
    pub by_family: Vec<StatusCounts>,
    pub resources: Vec<FamilyResources>,
    pub failures: Option<Vec<FailureGroup>>,
    /// CPUs that were busy, as frames told.
    pub busy: Vec<i64>,
    pub list: List,
}

/// What a column of the table of jobs shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Column {
    Name,
    Status,
    Family,
    Try,
    Started,
    Time,
    Memory,
    Node,
    Exit,
    Priority,
}

impl Column {
    /// As on the page; the last is not shown at first.
    pub const ALL: [Self; 10] = [
        Self::Name,
        Self::Status,
        Self::Family,
        Self::Try,
        Self::Started,
        Self::Time,
        Self::Memory,
        Self::Node,
        Self::Exit,
        Self::Priority,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Status => "Status",
            Self::Family => "Family",
            Self::Try => "Try",
            Self::Started => "Started",
            Self::Time => "Time",
            Self::Memory => "Memory / asked",
            Self::Node => "Node",
            Self::Exit => "Exit",
            Self::Priority => "Priority",
        }
    }

    /// The server's word for the order by this column.
    pub const fn sort(self) -> Option<&'static str> {
        match self {
            Self::Name => Some("name"),
            Self::Status => Some("status"),
            Self::Try => Some("attempt_id"),
            Self::Priority => Some("priority"),
            _ => None,
        }
    }
}

/// Orders that `s` goes through.
pub const SORTS: [&str; 5] = ["id", "name", "status", "attempt_id", "priority"];

#[derive(Clone, Debug)]
pub struct JobsScreen {
    pub filter: String,
    /// The filter was the user's, so that none is proposed.
    pub is_chosen: bool,
    pub order: TableOrder,
    pub total: Option<i64>,
    pub windows: BTreeMap<i64, Vec<JobView>>,
    /// The rows are those of the filter or order before: they stay on the screen until the first
    /// answer, so that it does not flicker while a filter is typed.
    pub is_old: bool,
    /// The user opened the row under the cursor before the answer came; it opens with it.
    pub opens: Option<Part>,
    /// Windows that were asked for.
    pub pending: BTreeSet<i64>,
    pub generation: u64,
    pub cursor: i64,
    pub top: i64,
    pub marks: JobMarks,
    pub hidden: BTreeSet<Column>,
    pub peek: Option<Peek>,
    pub problem: Option<String>,
}

/// The order of the table of jobs, in the server's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOrder {
    pub sort: &'static str,
    pub reverse: bool,
}

/// Jobs that the next action is about.
#[derive(Clone, Debug, Default)]
pub struct JobMarks {
    pub jobs: BTreeSet<JobId>,
    /// Everything that matches the filter is marked.
    pub all: bool,
}

impl JobMarks {
    pub fn clear(&mut self) {
        self.jobs.clear();
        self.all = false;
    }

    pub fn is_empty(&self) -> bool {
        !self.all && self.jobs.is_empty()
    }

    pub fn contains(&self, job: JobId) -> bool {
        self.all || self.jobs.contains(&job)
    }
}

impl Default for JobsScreen {
    fn default() -> Self {
        Self {
            filter: String::new(),
            is_chosen: false,
            order: TableOrder { sort: "id", reverse: false },
            total: None,
            windows: BTreeMap::new(),
            is_old: false,
            opens: None,
            pending: BTreeSet::new(),
            generation: 0,
            cursor: 0,
            top: 0,
            marks: JobMarks::default(),
            hidden: BTreeSet::from([Column::Priority]),
            peek: None,
            problem: None,
        }
    }
}

impl JobsScreen {
    /// The row, if it is here.
    pub fn row(&self, index: i64) -> Option<&JobView> {
        let window = self.windows.get(&index.div_euclid(WINDOW))?;
        window.get(usize::try_from(index.rem_euclid(WINDOW)).ok()?)
    }

    /// The question for one window of the table as it is ordered and filtered now.
    pub fn window(&self, workflow: WorkflowId, window: i64) -> JobsWindow {
        let before = (window > 0 && self.order.sort == "id" && !self.order.reverse && !self.is_old)
            .then(|| self.row(window * WINDOW - 1))
            .flatten();
        JobsWindow {
            workflow,
            filter: self.filter.clone(),
            sort: self.order.sort,
            reverse: self.order.reverse,
            window,
            after: before.map(|job| job.id),
            generation: self.generation,
        }
    }
}

/// The last lines of a job beside the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    pub job: JobId,
    pub stream: Stream,
    /// `None` while it is asked for.
    pub lines: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub struct TimelineScreen {
    pub bars: Option<Arc<Bars>>,
    pub path: Option<CriticalPathView>,
    /// What is shown, in ms since the first start; `None`: all.
    pub span: Option<(i64, i64)>,
    pub top: usize,
    /// The bar under the cursor.
    pub current: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct NodesScreen {
    pub runners: Option<Vec<RunnerView>>,
    pub allocations: Vec<AllocationView>,
    pub list: List,
}

#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Newest first.
    pub rows: Option<Vec<EventView>>,
    pub filter: String,
    pub list: List,
}

impl Events {
    /// Events that have the filter's words in them.
    pub fn shown(&self) -> Vec<&EventView> {
        let wanted = self.filter.to_lowercase();
        let matches = |event: &&EventView| {
            wanted.is_empty()
                || event.kind.as_str().replace('_', " ").contains(&wanted)
                || event.kind.as_str().contains(&wanted)
                || event.job_name.as_deref().is_some_and(|n| n.to_lowercase().contains(&wanted))
                || event.data.to_string().to_lowercase().contains(&wanted)
        };
        self.rows.iter().flatten().filter(matches).collect()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Workflows {
    pub rows: Option<Vec<WorkflowView>>,
    pub total: i64,
    pub families: BTreeMap<WorkflowId, FamiliesView>,
    pub pending: BTreeSet<WorkflowId>,
    pub list: List,
}

/// What of a job is on the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Why card above, log below.
    Both,
    Why,
    Log,
    Compare,
}

/// One job.
#[derive(Clone, Debug)]
pub struct JobPlace {
    pub id: JobId,
    pub name: String,
    pub part: Part,
    pub why: Option<WhyView>,
    /// First line of the why card that is shown.
    pub why_top: usize,
    /// Attempts that have begun, oldest first.
    pub attempts: Option<Vec<AttemptView>>,
    pub shown: usize,
    pub stream: Stream,
    /// The user chose the stream.
    pub is_chosen: bool,
    pub log: Log,
    pub compared: Option<ComparedAttempts>,
    pub problem: Option<String>,
}

impl JobPlace {
    pub fn attempt(&self) -> Option<&AttemptView> {
        self.attempts.as_ref()?.get(self.shown)
    }

    /// The output that is shown.
    pub fn log_of(&self) -> Option<LogOf> {
        let attempt = self.attempt()?;
        Some(LogOf {
            job: self.id,
            run: attempt.run_id,
            attempt: attempt.attempt_id,
            stream: self.stream,
        })
    }

    pub fn is_running(&self) -> bool {
        self.attempt().is_some_and(|attempt| attempt.ended_ms.is_none())
    }
}

/// A line of output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Where it begins in the file.
    pub offset: i64,
    /// Safe to draw.
    pub text: String,
    /// Where its colours change; the job chose them.
    pub paints: Vec<text::Paint>,
}

/// A part of an output.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub of: Option<LogOf>,
    pub lines: Vec<LogLine>,
    /// The bytes that are here.
    pub begin: i64,
    pub end: i64,
    pub size: i64,
    /// What is here ends with a line break; else the last line goes on in the next piece.
    pub ends_with_newline: bool,
    pub scroll: LogScroll,
    pub is_waiting: bool,
    /// Something came, even if it was nothing.
    pub is_there: bool,
    /// The line to show at the top when a piece comes, and to mark.
    pub target: Option<i64>,
    pub marked: Option<i64>,
    pub search: Option<Search>,
    pub problem: Option<String>,
}

/// Which part of an output is on the screen.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogScroll {
    /// The first line on the screen.
    pub top: usize,
    /// Columns that lines are moved to the left.
    pub left: usize,
    /// The newest line stays on the screen.
    pub follows: bool,
    pub wrap: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    pub text: String,
    pub is_regex: bool,
    /// `None` while the server looks.
    pub hits: Option<Vec<LogHit>>,
    pub total: i64,
    pub lines: i64,
    pub at: usize,
    /// The search took too long and did not see all.
    pub is_cut: bool,
}

/// Two attempts compared.
#[derive(Clone, Debug)]
pub struct ComparedAttempts {
    pub earlier: LogOf,
    pub later: LogOf,
    pub earlier_text: Option<String>,
    pub later_text: Option<String>,
    pub lines: Option<Vec<torc_model::compare::Line>>,
    pub top: usize,
}

/// What lies over the screen.
#[derive(Clone, Debug)]
pub enum Overlay {
    Help { top: usize },
    Palette(Palette),
    Act(ActDialog),
    Input(Input),
    Columns { cursor: usize },
}

/// A line that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Editor {
    pub text: String,
    /// In bytes, at a character's border.
    pub at: usize,
}

/// What a typed line is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputFor {
    JobFilter,
    EventFilter,
    LogSearch { is_regex: bool },
}

#[derive(Clone, Debug)]
pub struct Input {
    pub what: InputFor,
    pub editor: Editor,
    /// Before the user began to type; Esc brings it back.
    pub before: String,
    pub problem: Option<String>,
}

/// `:`: go anywhere, do anything.
#[derive(Clone, Debug)]
pub struct Palette {
    pub editor: Editor,
    pub items: Vec<PaletteItem>,
    pub found: Vec<PaletteItem>,
    pub cursor: usize,
}

/// A line of the palette.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaletteItem {
    pub text: String,
    pub go: Go,
}

/// Where a line of the palette leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Go {
    View(View),
    JobsWhere(String),
    Workflow(WorkflowId),
    Job(JobId, String),
    Act(ActWord),
    Help,
    Quit,
}

/// An action, before it is done.
#[derive(Clone, Debug)]
pub struct ActDialog {
    pub workflow: WorkflowId,
    pub action: ActWord,
    pub filter: String,
    /// For `priority`, `memory` and `runtime`.
    pub value: Option<Editor>,
    /// What would happen; `None` while the server thinks.
    pub plan: Option<ActView>,
    pub problem: Option<String>,
    /// Enter was pressed; the server does it.
    pub is_going: bool,
    pub turn: u64,
}

/// A place that can be clicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    pub area: Rect,
    pub target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Tab(View),
    /// A row of the list on the screen, by its index.
    Row(i64),
    Head(Column),
    /// The list itself: the wheel scrolls it.
    Body,
    /// A row of the timeline.
    Bars(usize),
}
