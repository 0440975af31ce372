//! Slurm, for real: runs its programs, sends what the server wants to have sent, and tells the
//! server what it saw.
//!
//! Nothing here decides what becomes of a job. Texts are made and read in `torc_model::slurm`; the
//! server keeps the records and draws the conclusions. Everything here may be interrupted at any
//! point and simply be done again.

mod allocator;
mod command;
mod inside;
mod profiles;
mod regenerate;

pub use allocator::{Allocator, Sent, Synced};
pub use command::Slurm;
pub use inside::{Inside, run as run_inside};
pub use profiles::{
    all as all_profiles, derive as derive_profile, detect as detect_profile, find as find_profile,
};
pub use regenerate::{Regeneration, pending_jobs, plan as plan_regeneration};
