//! Executes step trees: the one executor for plain jobs with steps, handlers, map items, reduce and the search for items.
//!
//! ```text
//! executor ── Answer ──▶ turns ──▶ run: steps, retries, handlers      scope: variables
//!          ◀── Ask ─────           │                                  outputs: captures, logs
//!                                  ├─▶ agent: calls and their budget  journal: what a next attempt may skip
//!                                  └─▶ expand: the items of a map
//! ```

mod agent;
mod expand;
mod journal;
mod local;
mod outputs;
mod run;
mod run_report;
mod scope;
mod turns;

pub use local::{LocalRun, run_locally};
pub use turns::{Answer, Ask, StepRun};
