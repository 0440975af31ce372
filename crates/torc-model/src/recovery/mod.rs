//! From a failure to what can be done about it: what happened ([`diagnose`]), what would repair it ([`Remedy`]), and
//! what many attempts teach about what jobs need ([`usage`]).
//!
//! Pure: the facts are what an attempt's row holds. Nothing here retries anything; the store applies a remedy.

mod bad_node;
mod diagnosis;
mod kind;
mod remedy;
mod text;
pub mod usage;
mod view;

#[cfg(test)]
mod labelled;

pub use bad_node::{Health, Verdict as NodeVerdict};
pub use diagnosis::{Diagnosis, Facts, Proof, diagnose};
pub use kind::Kind;
pub use remedy::{Action, Caps, Change, Current, Policy, Remedy};
pub use text::{Found, terminal_error};
pub use view::{AdjustmentView, RecoverJob, RecoverRequest, RecoverView};
