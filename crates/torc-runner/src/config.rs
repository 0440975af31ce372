//! What a runner is told, and what it tells.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use torc_client::Client;
use torc_model::api::{Capacity, ErrorCode, ReportVerdict, RunnerScheduler};
use torc_model::ids::{ActionId, AttemptId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::{Cause, JobStatus, Outcome, RunnerKind, Trigger};

/// What a runner is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Talks to the server.
    pub client: Client,
    /// The workflow to work for.
    pub workflow_id: WorkflowId,
    /// What there is to share out among the jobs.
    pub capacity: Capacity,
    /// Begin although a workflow that is running writes the same files.
    pub force: bool,
    /// Names of the GPUs, as `CUDA_VISIBLE_DEVICES` takes them; numbers where there are fewer names
    /// than GPUs.
    pub gpus: Vec<String>,
    /// Where logs go.
    pub output_dir: PathBuf,
    /// Where jobs start and relative paths begin.
    pub working_dir: PathBuf,
    /// The pool runner that started this one.
    pub pool_runner: Option<PoolRunnerId>,
    /// Where it runs.
    pub kind: RunnerKind,
    /// Takes jobs with this label.
    pub label: Option<String>,
    /// How long it works and waits.
    pub limits: RunnerLimits,
    /// How many attempts to hold beyond what can run at once.
    pub prefetch: Prefetch,
    /// What the batch system gives it and says, if it runs in an allocation.
    pub batch: BatchSide,
    /// A program and its first arguments that calls [`crate::guard::watch`]: ends the jobs if this
    /// process is killed.
    pub guard: Option<Vec<OsString>>,
    /// Hears what happens.
    pub events: Option<UnboundedSender<RunnerNotice>>,
}

/// How long a runner works and waits.
#[derive(Clone, Debug)]
pub struct RunnerLimits {
    /// It must have ended after this long.
    pub time_left: Option<Duration>,
    /// Leaves after this long without work, whatever the workflow says.
    pub max_idle: Option<Duration>,
    /// How long to wait for a server that does not answer at the beginning.
    pub patience: Duration,
}

/// What a runner in an allocation knows of its batch system. The default is a runner of its own.
#[derive(Clone, Debug, Default)]
pub struct BatchSide {
    /// What the batch system knows it by.
    pub scheduler: Option<RunnerScheduler>,
    /// Jobs of another Slurm scheduler are not taken even when there is nothing else.
    pub strict_scheduler_match: bool,
    /// Names of the allocation's other nodes.
    pub other_nodes: Vec<String>,
    /// The program and its first arguments that run an agent on another node or in a step.
    pub agent: Vec<OsString>,
    /// Where the batch system says why it ends what runs here.
    pub stop_log: Option<PathBuf>,
    /// At most this long between the termination signal and SIGKILL when this runner is told to
    /// stop: what told it kills it then.
    pub longest_stop: Option<Duration>,
    /// Hears how much time is left, when the batch system says so again.
    pub time_left_changes: Option<watch::Receiver<Option<Duration>>>,
}

impl Config {
    /// A local runner with what this machine has.
    pub fn new(client: Client, workflow_id: WorkflowId, output_dir: impl Into<PathBuf>) -> Self {
        let (capacity, gpus) = crate::machine::detect();
        Self {
            client,
            workflow_id,
            force: false,
            capacity,
            gpus,
            output_dir: output_dir.into(),
            working_dir: PathBuf::from("."),
            pool_runner: None,
            kind: RunnerKind::Local,
            label: None,
            limits: RunnerLimits {
                time_left: None,
                max_idle: None,
                patience: Duration::from_secs(30),
            },
            prefetch: Prefetch::Adaptive,
            batch: BatchSide::default(),
            guard: None,
            events: None,
        }
    }
}

/// How many attempts a runner holds beyond what can run at once, so that short jobs do not wait for
/// the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Enough for some tens of milliseconds of work: none when jobs are long.
    Adaptive,
    /// This many.
    Fixed(u32),
}

/// Whether to go on. A later one is stronger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shutdown {
    /// Go on.
    Run,
    /// Take nothing new; end the jobs with grace, report and leave.
    Stop,
    /// End the jobs at once.
    Kill,
}

/// Why a runner left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaveReason {
    /// The workflow is complete.
    Complete,
    /// Nothing will become ready unless a user or another runner acts.
    NothingToDo,
    /// Nothing to do for too long.
    Idle,
    /// It was told to stop.
    Stopped,
    /// A person removed it.
    Removed,
    /// Its time is over.
    TimeUp,
    /// The server could not be reached for too long.
    OutOfContact,
    /// The server said no.
    Refused(String),
}

impl std::fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Complete => f.write_str("the workflow is complete"),
            Self::NothingToDo => f.write_str("none of the remaining jobs can start here"),
            Self::Idle => f.write_str("there was no work for too long"),
            Self::Stopped => f.write_str("it was told to stop"),
            Self::Removed => f.write_str("it was removed"),
            Self::TimeUp => f.write_str("its time is over"),
            Self::OutOfContact => f.write_str("the server could not be reached"),
            Self::Refused(message) => write!(f, "the server refused: {message}"),
        }
    }
}

/// What a runner did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerSummary {
    /// Its id at the server.
    pub runner_id: RunnerId,
    /// Why it left.
    pub reason: LeaveReason,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts that failed by themselves.
    pub failed: u64,
    /// Attempts that were ended from outside: canceled, or because the runner stopped.
    pub ended: u64,
    /// Results that could not be delivered; they wait in the output directory for the next runner.
    pub undelivered: u64,
    /// Those of them that could not even be kept there.
    pub unkept: u64,
}

/// What happens, for a display.
#[derive(Clone, PartialEq, Debug)]
pub enum RunnerNotice {
    /// The server knows the runner.
    Registered {
        /// Its id.
        runner_id: RunnerId,
        /// The run.
        run_id: i64,
        /// What the server calls the workflow.
        workflow_name: String,
    },
    /// An attempt runs.
    Started {
        /// Row of the attempt.
        attempt: AttemptId,
        /// Its job.
        job_id: JobId,
        /// The job's name.
        job_name: String,
        /// 1, 2, 3...
        attempt_id: i64,
    },
    /// An attempt has ended.
    Ended {
        /// Row of the attempt.
        attempt: AttemptId,
        /// Its job.
        job_id: JobId,
        /// The job's name.
        job_name: String,
        /// 1, 2, 3...
        attempt_id: i64,
        /// Return code.
        return_code: i64,
        /// Why it failed.
        cause: Option<Cause>,
        /// What a person should read.
        error: Option<String>,
        /// The last line that a failed attempt wrote to standard error.
        last_line: Option<String>,
        /// How long it ran.
        seconds: f64,
    },
    /// The server has decided what follows from an end.
    Judged {
        /// Row of the attempt.
        attempt: AttemptId,
        /// Whether the report counted.
        verdict: ReportVerdict,
        /// What the rules decided.
        outcome: Option<Outcome>,
        /// The job's status now.
        job_status: Option<JobStatus>,
    },
    /// An action begins.
    ActionStarted {
        /// Id of the action.
        action: ActionId,
        /// Its trigger.
        trigger: Trigger,
    },
    /// An action has ended.
    ActionEnded {
        /// Id of the action.
        action: ActionId,
        /// Return code.
        return_code: i64,
        /// What a person should read.
        error: Option<String>,
    },
    /// The server does not answer; jobs go on.
    ServerLost {
        /// What the network or the server said.
        message: String,
        /// The code of the server's refusal; `None` if it did not answer at all.
        code: Option<ErrorCode>,
    },
    /// The server answers again.
    ServerBack,
    /// No new work is taken; what runs is being ended, if anything does.
    Leaving {
        /// Why it leaves.
        reason: LeaveReason,
    },
    /// Something that people should know.
    Warning {
        /// One sentence.
        message: String,
    },
}
