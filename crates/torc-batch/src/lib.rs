//! Batch systems: what Torc asks of one, and what it does with any of them.
//!
//! [`BatchSystem`] is the whole contract: write a script, submit it, look at what became of it,
//! cancel it. [`Allocator`] carries out what the server wants to have submitted and tells the server
//! what it saw; [`serve`] does so for as long as a server lives. Neither decides what becomes of a
//! job: the server keeps the records and draws the conclusions, so everything here may be
//! interrupted at any point and be done again.
//!
//! ```text
//!   server ──orders──▶ Allocator ──script, submit, look, cancel──▶ BatchSystem
//!          ◀─reports──           ◀────────ids, looks─────────────      │
//!                                                       slurm/ · gridengine/ · pbs/ · memory (for tests)
//! ```
//!
//! A further batch system is one folder beside `slurm/` with an implementation of the trait.

mod allocator;
pub mod gridengine;
pub mod memory;
pub mod pbs;
mod program;
mod service;
pub mod slurm;
mod system;

pub use allocator::{Allocator, SentAllocation, Synced, local_ms, own_program};
pub use service::serve;
pub use system::{System, VARIABLE as SYSTEM_VARIABLE};

use std::path::Path;
pub use torc_model::slurm::script::ScriptInput;
pub use torc_model::slurm::squeue::Submitted;
pub use torc_model::slurm::{Known, Look};

/// A program that gives out nodes: what Torc asks of it.
///
/// Answers that were lost are answers, too: an implementation says that it does not know
/// ([`Submitted::Ambiguous`], `Err`), and never takes silence for "gone".
pub trait BatchSystem: Send + Sync + 'static {
    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// The script that asks for these allocations and starts the runner in them.
    fn script(&self, submission: &ScriptInput<'_>) -> Result<String, String>;

    /// Submits a script.
    fn submit(&self, script: &Path) -> impl Future<Output = Submitted> + Send;

    /// The id of this user's job with this name, by one look.
    fn find(&self, name: &str) -> impl Future<Output = Result<Option<String>, String>> + Send;

    /// Looks at these allocations; one look for each, in their order. `Err`: it could not be asked.
    fn look(
        &self,
        known: &[Known],
        now_ms: i64,
    ) -> impl Future<Output = Result<Vec<Look>, String>> + Send;

    /// Asks it to end these jobs. Whether it did, only a later look tells.
    fn cancel(&self, ids: &[String]) -> impl Future<Output = ()> + Send;
}
