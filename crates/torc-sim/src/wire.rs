//! What travels between runners, people and the server.

use torc_engine::{JobIx, Seeds};
use torc_model::api::ReportVerdict;
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId};
use torc_model::status::{Cause, JobStatus};

/// An attempt and the right to speak for it.
pub type Named = (AttemptId, String);

/// How an attempt ended, as its runner saw it.
#[derive(Clone, PartialEq, Debug)]
pub struct Completion {
    /// Which.
    pub attempt: AttemptId,
    /// Its token.
    pub token: String,
    /// Its job.
    pub job: JobId,
    /// Return code.
    pub code: i64,
    /// Why it failed.
    pub cause: Option<Cause>,
}

/// What a reservation pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everything.
    All,
    /// One workflow.
    Flow(usize),
    /// The named limit.
    Limit,
}

/// What people ask for.
#[derive(Clone, PartialEq, Debug)]
pub enum Wish {
    /// Initialize.
    Initialize,
    /// Reset some jobs.
    Reset(Seeds),
    /// One more attempt.
    Retry {
        /// Which job.
        index: JobIx,
        /// The run they saw.
        run: i64,
        /// Their bound.
        max: i64,
    },
    /// A verdict.
    Classify(JobIx, bool),
    /// Stop everything.
    Cancel,
    /// Stop one.
    CancelJob(JobIx),
    /// Hold back or release.
    Hold(JobIx, bool),
    /// Switch off.
    Disable(JobIx),
    /// More memory, another priority.
    Adjust(JobIx, u64, i64),
    /// Pause claims for so many ms at most.
    Reserve(Scope, i64),
    /// End a reservation.
    Release(usize),
}

/// What comes to the server.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// A runner introduces itself.
    Register {
        /// Its place.
        slot: usize,
        /// Its process.
        incarnation: u32,
        /// Its word for this registration.
        key: u64,
    },
    /// Reports, then work.
    Claim {
        /// Who.
        runner: RunnerId,
        /// Its word for this claim.
        key: u64,
        /// At most so many.
        limit: usize,
        /// Attempts that started.
        started: Vec<Named>,
        /// Attempts that ended.
        completed: Vec<Completion>,
    },
    /// A runner is alive.
    Heartbeat {
        /// Who.
        runner: RunnerId,
        /// What it has.
        held: Vec<Named>,
        /// What it was asked about and does not have.
        gone: Vec<AttemptId>,
    },
    /// A runner executed an action.
    ActionDone(RunnerId, ActionId),
    /// A runner leaves.
    Goodbye(RunnerId),
    /// A user wants something of a workflow.
    Person(usize, Wish),
}

/// One attempt for a runner.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet {
    /// Its row.
    pub id: AttemptId,
    /// Its token.
    pub token: String,
    /// Its job.
    pub job: JobId,
}

/// What the server answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Welcome.
    Registered(RunnerId),
    /// Work and news.
    Claimed {
        /// Attempts it now owns.
        attempts: Vec<Packet>,
        /// Actions it must execute.
        actions: Vec<ActionId>,
        /// Attempts it must stop.
        cancel: Vec<AttemptId>,
        /// Starts that were heard.
        started: Vec<AttemptId>,
        /// What became of its reports.
        completed: Vec<(AttemptId, ReportVerdict, Option<JobStatus>)>,
        /// There is no more work.
        complete: bool,
    },
    /// News.
    Beat {
        /// Attempts it must stop.
        cancel: Vec<AttemptId>,
        /// Attempts that are not its own.
        not_yours: Vec<AttemptId>,
        /// Attempts that it was given but did not list.
        forgotten: Vec<AttemptId>,
    },
    /// The action's end is known.
    ActionKnown(ActionId),
    /// Done.
    Done,
    /// The runner is not known or has ended.
    RunnerEnded,
    /// Not granted, nothing changed.
    Refused(torc_model::api::ErrorCode),
    /// The database failed, nothing changed.
    Broken,
}
