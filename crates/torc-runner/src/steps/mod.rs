//! Executes step trees: the one executor for plain jobs with steps, handlers, map items, reduce and
//! the search for items.
//!
//! ```text
//! executor ── Answer ──▶ turns ──▶ run: steps, retries, handlers      scope: variables
//!          ◀── Ask ─────           │                                  outputs: captures, logs
//!                                  │                                  evidence: rows and events
//!                                  ├─▶ agent: calls and their budget  journal: what a next attempt may skip
//!                                  └─▶ expand: the items of a map
//! ```
//!
//! `run` is the attempt, `step` one step, `command` its process, `handler` what follows its
//! failure.

mod agent;
mod command;
mod evidence;
mod expand;
mod failure;
mod handler;
mod journal;
mod live;
mod local;
mod outputs;
mod run;
mod run_report;
mod scope;
mod slots;
mod step;
mod turns;
mod variables;

pub use live::Live;
pub use local::{LocalRun, run_locally};
pub use slots::Slots;
pub use turns::{Answer, Ask, StepRun};
