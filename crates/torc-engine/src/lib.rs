//! The engine: one workflow's jobs, attempts and actions, and every way they can move.
//!
//! [`Engine`] is the whole state, and [`Engine::handle`] its only door: a command from [`commands`]
//! goes in, a reply and [`Change`]s come out. The store writes those changes in one transaction; when
//! that fails it throws the state away and loads it again. The simulator drives the same engine.
//!
//! [`Workflow`] holds what scheduling needs and nothing else. Each of its moves takes the time as an
//! argument, checks first, changes the state second, and records what it did.
//!
//! ```text
//!   claim ──► Claimed ──► started ──► Running ──► ended ──► decide ──► Completed | next attempt | bad end
//!                                                             │
//!                              dependents: counters down ◄────┴────► cascade of cancellations
//! ```

mod actions;
mod allocation;
mod allocation_sight;
mod attempts;
mod avoidance;
mod backfill;
mod breaker;
mod change;
mod claim;
mod classes;
pub mod commands;
mod compare;
mod conduct;
mod edges;
mod engine;
mod explain;
mod forecast;
mod handlers;
mod index;
mod item_difference;
mod jobs;
mod limits;
mod liveness;
mod machine;
mod maps;
mod order;
mod queue;
mod repair;
mod report;
mod reservations;
mod reset;
mod restore;
mod retry_memory;
mod revise;
mod rules;
mod runners;
mod spawn;
mod step_log;
mod workflow;

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod chronicles;
#[cfg(test)]
mod dispatch_tests;
#[cfg(test)]
mod tests;

pub use actions::{Action, NewAction};
pub use allocation::{
    AllocationEvent, AllocationLife, AllocationMove, AllocationOver, AllocationWord, Arrival,
    ArrivalOrigin, SUBMIT_LEASE_MS, Sighting, Submission,
};
pub use allocation_sight::{Doubt, Finding, Look, RunnerTrace, RunnersGone, cause_for};
pub use breaker::{AfterRetry, AutoRetry, Curable, RetriesSoFar, Storm, is_for_the_server};
pub use change::{Change, End, Judged, NewAttempt, NotedAdjustment, RunnerChange};
pub use claim::{Claim, Claimed, LimitUse, Limits};
pub use conduct::{Burnt, Conduct, Gate, QUARANTINE_MS, Quarantine};
pub use engine::{Command, Done, Engine, Loaded, On, Turn, Wakes};
pub use explain::{Explanation, NO_RUNNER, RunnerFacts, WaitingGroup};
pub use forecast::{Bound, Forecast, MAX_SIMULATED, Rest, Simulated, SimulatedMachine};
pub use index::{ClassIx, HandlerIx, JobIx};
pub use item_difference::ItemDifference;
pub use jobs::{Held, Job, NewJob, Tries};
pub use limits::{LimitChange, remove_limit, set_limit};
pub use liveness::{Holdup, LEASE_MS, Life, Process, RunnerLife};
pub use machine::{AttemptEvent, IllegalEvent, JobEvent, Machine};
pub use maps::{FoundItems, MapJob, NewItem, Tally, limit_name};
pub use order::{Estimate, FamilyTime, UNKNOWN_MS};
pub use repair::{LastEnd, Repair};
pub use report::{Ended, Lost};
pub use reservations::{Clocks, Reservation, ReservationChange, Reservations, Scope};
pub use reset::{Adjustment, Because, BurntAttempt, Reason, Seeds};
pub use restore::{EndedRow, JobRow, LiveRow, Rows};
pub use retry_memory::{AwaitedRetry, Lesson, RetryEnd};
pub use revise::{ChangedJob, Revision};
pub use rules::{CompiledHandler, Failure, RuleError, Verdict};
pub use runners::{Answers, GivenActions, KnownEnd, KnownRunner, RunnerEvent, Runners};
pub use step_log::unwritten;
pub use torc_model::class::{Class, Room, time_limit};
pub use workflow::{Refused, Workflow};
