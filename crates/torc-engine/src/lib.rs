//! The engine: one workflow's jobs, attempts and actions, and every way they can move.
//!
//! [`Workflow`] holds what scheduling needs and nothing else. Each method takes the time as an
//! argument, checks first, changes the state second, and records what it did as [`Change`]s. The
//! store writes those changes in one transaction; when that fails it throws the state away and
//! loads it again. The simulator, the property tests and recovery after a crash call the very same
//! methods.
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
mod change;
mod claim;
mod classes;
mod compare;
mod conduct;
mod edges;
mod explain;
mod forecast;
mod handlers;
mod index;
mod item_difference;
mod jobs;
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
mod spawn;
mod step_log;
mod workflow;

#[cfg(test)]
mod dispatch_tests;
#[cfg(test)]
mod tests;

pub use actions::{Action, NewAction};
pub use allocation::{
    AllocationEvent, AllocationLife, AllocationMove, AllocationOver, Sighting, Submission,
};
pub use allocation_sight::{Doubt, Look, RunnerTrace, cause_for};
pub use change::{Change, End, Judged, NewAttempt, RunnerChange};
pub use claim::{Claim, Claimed, LimitUse, Limits};
pub use conduct::{Burnt, Conduct, Gate, QUARANTINE_MS, Quarantine};
pub use explain::{Explanation, NO_RUNNER, RunnerFacts, WaitingGroup};
pub use forecast::{Bound, Forecast, MAX_SIMULATED, Machine as SimulatedMachine, Rest, Simulated};
pub use index::{ClassIx, HandlerIx, JobIx};
pub use item_difference::ItemDifference;
pub use jobs::{Held, Job, NewJob, Tries};
pub use liveness::{Life, Process, RunnerLife};
pub use machine::{AttemptEvent, IllegalEvent, JobEvent, Machine};
pub use maps::{FoundItems, MapJob, NewItem, Tally, limit_name};
pub use order::{Estimate, FamilyTime, UNKNOWN_MS};
pub use repair::{LastEnd, Repair};
pub use report::{Ended, Lost};
pub use reservations::{Clocks, Reservation, ReservationChange, Reservations, Scope};
pub use reset::{Adjustment, Reason, Seeds};
pub use restore::{EndedRow, JobRow, LiveRow, Rows};
pub use retry_memory::{AwaitedRetry, Lesson, RetryEnd};
pub use revise::{ChangedJob, Revision};
pub use rules::{CompiledHandler, Failure, RuleError, Verdict};
pub use step_log::unwritten;
pub use torc_model::class::{Class, Room, time_limit};
pub use workflow::{Refused, Workflow};
