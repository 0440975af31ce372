//! The runner: claims attempts, executes them, reports how they went.
//!
//! ```text
//!                 server
//!     listen ▲   ▲ exchange    ▲ heartbeat (own thread, own runtime)
//!            │   │             │
//!          lanes │ (tasks of the caller's runtime)
//!     events │   │
//!  ┌─────────▼───┼────────────────────────────────────────┐
//!  │ one state, one thread at a time:                     │
//!  │   dispatcher  what to take, start, stop and report   │
//!  │   executor    attempts and actions as processes      │
//!  │   supervisor  processes: start, watch, limit, end    │
//!  └─────────┬─▲─┼────────────────────────────────────────┘
//!            ▼ │ │
//!          hands (threads: wait, look at the state, then do what blocks: launch, exchange, clean up, read files)
//! ```
//!
//! It states facts and decides no retry. What it started does not outlive it or its attempt, it
//! keeps its jobs running while the server is away, and it ends them before the server may give
//! them to another runner.

mod actions;
mod agent;
mod agents;
mod allocation;
mod attempt;
mod cgroup;
mod cleanup;
mod config;
mod connection;
mod dispatcher;
mod error;
mod executor;
pub mod guard;
mod heartbeat;
mod held;
mod identity;
mod lanes;
mod long;
mod machine;
mod mailbox;
mod monitor;
mod node;
mod observe;
mod outputs;
mod places;
mod plain;
mod pool;
mod process;
mod resources;
mod runner;
mod spool;
mod step_agents;
mod steps;
mod supervisor;
mod sys;
mod tasks;
mod time;
mod token_files;

pub(crate) use torc_fence::procfs;

/// What a runner decides, without I/O: for the simulator, which plays it under faults.
pub mod decisions {
    pub use crate::actions::ActionResult;
    pub use crate::attempt::unstarted_report;
    pub use crate::dispatcher::{Dispatcher, DispatcherSettings, Effect, Event, TimeLimit};
    pub use crate::heartbeat::Rhythm;
    pub use crate::held::HeldList;
    pub use crate::resources::Node;
    pub use crate::steps::Live;
    pub use crate::supervisor::StopReason;
}

pub use agent::run as run_agent;
pub use allocation::{AllocationSettings, is_in_grid_engine, run as run_inside};
pub use attempt::log_path;
pub use config::{
    BatchSide, Config, LeaveReason, Prefetch, RunnerLimits, RunnerNotice, RunnerSummary, Shutdown,
};
pub use error::Error;
pub use machine::detect as detect_capacity;
pub use runner::Runner;
pub use spool::{Delivered, deliver_all};
pub use steps::{LocalRun, run_locally};
pub use sys::die_of_interrupt;
#[cfg(target_env = "gnu")]
pub use sys::resolve_without_modules;
