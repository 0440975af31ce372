//! What a method of the engine did, for the store to write down.

use super::allocation::AllocationLife;
use super::conduct::Quarantine;
use super::jobs::Tries;
use super::limits::LimitChange;
use super::maps::NewItem;
use super::order::FamilyTime;
use super::reservations::ReservationChange;
use super::reset::Adjustment;
use serde_json::Value;
use torc_model::api::{CompletionReport, Evidence, RecoveryScript, ScriptResult};
use torc_model::attempt::{Decision, Ending, Output, Usage};
use torc_model::event::EventKind;
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId};
use torc_model::plan::Settings;
use torc_model::recovery::Change as Adjusted;
use torc_model::status::{
    ActionState, Afterwards, AttemptState, Cause, EndedBy, JobStatus, Origin, RunnerOrder,
    StatusReason,
};

/// One row to write. The order matters: rows are written as they come.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// What became of a named limit.
    Limit(LimitChange),
    /// What happened to a reservation.
    Reservation(ReservationChange),
    /// Numbers were given to jobs; this is the next.
    JobIdsTaken(i64),
    /// An allocation, by its row, as it stands now.
    Allocation(i64, Box<AllocationLife>),
    /// The workflow is gone, with all that belongs to it.
    WorkflowDeleted,
    /// A job moved.
    Job {
        /// Which.
        id: JobId,
        /// Where to.
        status: JobStatus,
        /// Why, when that needs a word.
        reason: Option<StatusReason>,
        /// Its attempts; the number is 1 also when it had none.
        tries: Tries,
        /// What is known of its own time, in ms.
        own_ms: Option<u32>,
    },
    /// What was learned of the times of families, and is assumed of jobs about which nothing is
    /// known.
    Times {
        /// In ms.
        typical_ms: u32,
        /// By the number of the family.
        families: Vec<(u32, FamilyTime)>,
    },
    /// A map has found its items, or has to look for them again.
    MapExpanded(JobId, bool),
    /// An item no longer exists, or is back.
    ItemGone(JobId, bool),
    /// A map has found new items, whose ids follow each other.
    ItemsAdded {
        /// The map, of whose row theirs are copies.
        map: JobId,
        /// The id of the first.
        first: JobId,
        /// What each has of its own.
        items: Vec<NewItem>,
    },
    /// An item has another value: the rest of its row, as JSON.
    ItemChanged(JobId, Option<String>),
    /// A job has other limits or another priority from its next attempt on.
    JobAdjusted(JobId, Adjustment),
    /// Why a job has another limit.
    AdjustmentNoted(Box<NotedAdjustment>),
    /// A job is for nodes of another scheduler from its next attempt on.
    JobScheduler(JobId, i64),
    /// A job waits for more jobs than it did.
    JobWaitsFor(JobId, Vec<JobId>),
    /// A job is held back, or no longer.
    JobHeld(JobId, bool),
    /// What becomes of a job when its running attempt has ended, where that is not the usual.
    JobAfterwards(JobId, Option<Afterwards>),
    /// An attempt was queued.
    AttemptQueued(Box<NewAttempt>),
    /// A runner took an attempt.
    AttemptClaimed {
        /// Which.
        id: AttemptId,
        /// Who.
        runner: RunnerId,
        /// Fencing token.
        token: String,
        /// The claim that took it.
        key: String,
        /// When.
        at: i64,
        /// Memory it was given.
        memory: Option<u64>,
        /// Seconds it was given.
        time_limit: Option<u64>,
    },
    /// An attempt started.
    AttemptStarted {
        /// Which.
        id: AttemptId,
        /// Process group.
        pid: i64,
        /// When.
        at: i64,
    },
    /// Its runner must stop it.
    AttemptCancelRequested(AttemptId),
    /// A queued attempt may be claimed earlier or later than it was said.
    AttemptDelayed {
        /// Which.
        id: AttemptId,
        /// Not before this time.
        not_before: Option<i64>,
    },
    /// An attempt ended.
    AttemptEnded(AttemptId, Box<End>),
    /// An attempt was not its job's fault: the rule that retried it was not used for it.
    AttemptRefunded(AttemptId),
    /// Why an attempt ended became known after its end.
    AttemptExplained {
        /// Which.
        id: AttemptId,
        /// Why.
        cause: Cause,
        /// All that is known about it.
        evidence: Vec<Evidence>,
    },
    /// So many events of an attempt's steps are written.
    AttemptSteps(AttemptId, u64),
    /// Values that a job captured, by the names of the user data that it writes.
    Captured(JobId, Vec<(String, Value)>),
    /// Something happened to a runner.
    Runner(RunnerId, RunnerChange),
    /// Something people may want to know.
    Event {
        /// What.
        kind: EventKind,
        /// About which job.
        job: Option<JobId>,
        /// The rest.
        data: Value,
    },
    /// An action moved.
    Action {
        /// Which.
        id: ActionId,
        /// Where to.
        state: ActionState,
        /// Who executes or executed it.
        by: Option<RunnerId>,
        /// What went wrong.
        error: Option<String>,
    },
    /// Actions that a recovery added are gone: they were for the run that is over.
    RecoveryActionsGone,
    /// The workflow has other settings.
    Settings(Box<Settings>),
    /// The workflow's own row.
    Workflow {
        /// The run.
        run: i64,
        /// A user canceled it.
        canceled: bool,
        /// Every job is final.
        complete: bool,
        /// The run began now.
        started: bool,
    },
}

/// A limit of a job that was changed, with the reason, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotedAdjustment {
    /// Which job.
    pub job: JobId,
    /// The run.
    pub run: i64,
    /// The number of the attempt after which it was changed.
    pub attempt: i64,
    /// What changed.
    pub change: Adjusted,
    /// One sentence.
    pub why: String,
    /// Who wanted it.
    pub by: String,
}

/// What happened to a runner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunnerChange {
    /// It was heard.
    Seen,
    /// It has ended, for this reason.
    Ended(String),
    /// What a person asks of it; None: that it works.
    Ordered(Option<RunnerOrder>),
    /// It gets no work for a while; None: it does again.
    Quarantine(Option<Quarantine>),
}

/// A new attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct NewAttempt {
    /// Its row.
    pub id: AttemptId,
    /// Its job.
    pub job: JobId,
    /// The run.
    pub run: i64,
    /// Its number.
    pub number: u32,
    /// Where it came from.
    pub origin: Origin,
    /// The attempt it retries.
    pub retry_of: Option<AttemptId>,
    /// Not before this time.
    pub not_before: Option<i64>,
    /// Runs first.
    pub recovery: Option<RecoveryScript>,
    /// When it was queued.
    pub at: i64,
}

/// What the server's own diagnosis of a failure asks for. It counts where no rule of the user
/// matches the failure.
#[derive(Clone, PartialEq, Debug)]
pub enum Judged {
    /// Another attempt.
    Again {
        /// Not before this time.
        not_before: Option<i64>,
        /// Why, in one sentence.
        text: String,
    },
    /// Nothing, and why.
    Leave(String),
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Debug)]
pub struct End {
    /// Its last state.
    pub state: Option<AttemptState>,
    /// Who or what ended it.
    pub by: EndedBy,
    /// When.
    pub at: i64,
    /// When it had started, if that was not reported before.
    pub started_at: Option<i64>,
    /// Its process group, if that was not reported before.
    pub pid: Option<i64>,
    /// How it ended.
    pub ending: Ending,
    /// What it used.
    pub usage: Usage,
    /// Where its output is.
    pub output: Output,
    /// What its runner saw of a failure beside that.
    pub observed: Option<torc_model::recovery::Observed>,
    /// How the recovery script went.
    pub script: Option<ScriptResult>,
    /// What the steps did.
    pub steps: Option<Value>,
    /// What was decided about it.
    pub decision: Decision,
    /// What the server itself would do about it.
    pub judged: Option<Judged>,
}

impl End {
    /// As its runner reports it. Items that it found become jobs, and are no part of it.
    pub fn reported(report: &CompletionReport, at: i64) -> Self {
        let mut steps = report.steps.clone();
        if let Some(steps) = steps.as_mut().and_then(Value::as_object_mut) {
            steps.remove("items");
        }
        Self {
            started_at: Some(report.started_ms),
            ending: report.ending(),
            usage: report.usage(),
            output: report.output(),
            observed: report.observed.clone(),
            script: report.script.clone(),
            steps,
            ..Self::new(EndedBy::Runner, at)
        }
    }

    /// An end at this time about which nothing else is known.
    pub fn new(by: EndedBy, at: i64) -> Self {
        Self {
            state: None,
            by,
            at,
            started_at: None,
            pid: None,
            ending: Ending::default(),
            usage: Usage::default(),
            output: Output::default(),
            observed: None,
            script: None,
            steps: None,
            decision: Decision::default(),
            judged: None,
        }
    }
}
