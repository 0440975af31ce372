//! What travels between runners, people and the server.

use std::sync::Arc;
use torc_engine::{JobIx, Seeds};
use torc_model::api::{ClaimRequest, ClaimResponse, Heartbeat, HeartbeatAnswer};
use torc_model::ids::{ActionId, RunnerId};

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
    /// Done.
    Done,
    /// The runner is not known or has ended.
    RunnerEnded,
    /// Not granted, nothing changed.
    Refused(torc_model::api::ErrorCode),
    /// The database failed, nothing changed.
    Broken,
}
