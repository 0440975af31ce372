//! The runner: claims attempts, executes them, reports how they went.
//!
//! ```text
//!                 server
//!   exchange ▲ ▲ listen   ▲ heartbeat (own thread, own runtime)
//!            │ │          │
//!          lanes (tasks of the caller's runtime)
//!            │ ▲
//!   effects  │ │ events
//!  ┌─────────▼─┴──────────────────────────────────────────┐
//!  │ one thread owns all state:                           │
//!  │   dispatcher  what to take, start, stop and report   │
//!  │   executor    attempts and actions as processes      │
//!  │   supervisor  processes: start, watch, limit, end    │
//!  └─────────┬─▲──────────────────────────────────────────┘
//!            ▼ │
//!          pool (threads that may block: launch, clean up, look at files and at the process table)
//! ```
//!
//! It states facts and decides no retry. What it started does not outlive it or its attempt, it keeps its jobs running
//! while the server is away, and it ends them before the server may give them to somebody else.

mod actions;
mod attempt;
mod cgroup;
mod cleanup;
mod config;
mod dispatcher;
mod error;
mod executor;
pub mod guard;
mod heartbeat;
mod held;
mod identity;
mod lanes;
mod machine;
mod mailbox;
mod monitor;
mod plain;
mod pool;
mod process;
mod procfs;
mod resources;
mod runner;
pub mod slurm;
mod spool;
mod steps;
mod supervisor;
mod sys;
mod time;

pub use config::{Config, Kind, LeaveReason, Prefetch, RunnerEvent, Shutdown, Summary};
pub use error::Error;
pub use machine::detect as detect_capacity;
pub use runner::Runner;
pub use steps::{LocalRun, run_locally};
