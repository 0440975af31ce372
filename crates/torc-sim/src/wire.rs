//! What travels between runners, people and the server.

use std::sync::Arc;
use torc_engine::{JobIx, Scope, Seeds};
use torc_model::api::{ClaimRequest, ClaimResponse, Heartbeat, HeartbeatAnswer};
use torc_model::ids::{ActionId, RunnerId};
use torc_model::slurm::wire::Observation;

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
    /// A verdict of a person, or of an agent that is this sure.
    Verdict {
        /// Which job.
        index: JobIx,
        /// Try it again.
        retry: bool,
        /// An agent gives it.
        confidence: Option<f64>,
    },
    /// A person accepts or rejects a verdict that is held.
    Settle(usize, bool),
    /// What the record of earlier verdicts decides is done.
    FromMemory,
    /// Items of a map that ended badly run again, or are taken out of the count.
    Items(JobIx, bool),
    /// An allocation for this place.
    Schedule(usize),
    /// An allocation that waits is not wanted any more.
    GiveUp(usize),
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
    /// More time for a reservation.
    Renew(i64, i64),
    /// End a reservation.
    Release(i64),
    /// Drain a runner, or let it work again.
    Order(RunnerId, bool),
    /// Another number for the named limit; None: it is removed.
    Limit(Option<i64>),
}

/// The allocation that a runner lives in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunnerPlace {
    /// Its row.
    pub allocation: usize,
    /// The batch job.
    pub job: i64,
    /// How often the batch system had started it before.
    pub restarts: u32,
}

/// How a submission went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The batch system has it.
    As(i64),
    /// The batch system refused it.
    Refused,
    /// The answer of the batch system was lost.
    Unknown,
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
        /// The allocation that it lives in, and the batch job.
        inside: Option<RunnerPlace>,
    },
    /// A submitter asks for what waits to be sent.
    Begin(String),
    /// A submitter tells how it went.
    Submitted {
        /// Which.
        submitter: String,
        /// Which allocation.
        allocation: usize,
        /// The batch job, or what went wrong.
        outcome: Sent,
    },
    /// What was seen of allocations in the batch system.
    Observed(Vec<Observation>),
    /// Reports, then work; true: it waited at the server and something has happened since.
    Claim(Arc<ClaimRequest>, bool),
    /// A runner is alive.
    Heartbeat(Heartbeat),
    /// A runner executed an action.
    ActionDone(RunnerId, ActionId),
    /// A runner leaves.
    Goodbye(RunnerId),
    /// A user wants something of a workflow.
    Person(usize, Wish),
}

/// What the server answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Welcome.
    Registered(RunnerId),
    /// Work and news.
    Claimed(Box<ClaimResponse>),
    /// News.
    Beat(HeartbeatAnswer),
    /// The action's end is known.
    ActionKnown(ActionId),
    /// Allocations to send; true: look first whether the batch system has them.
    Orders(Vec<(usize, bool)>),
    /// Done.
    Done,
    /// The runner is not known or has ended.
    RunnerEnded,
    /// Not granted, nothing changed.
    Refused(torc_model::api::ErrorCode),
    /// The database failed, nothing changed.
    Broken,
}
