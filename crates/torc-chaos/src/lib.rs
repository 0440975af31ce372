//! Chaos: server, runners and jobs as separate processes of the real program, killed with SIGKILL
//! at random times and at failpoints, for as long as the plan says. Then the faults stop,
//! everything must end, and an oracle decides.
//!
//! ```text
//!   plan (seed) ──► world: server, runners, guards, jobs ──► witness files   (written by the jobs themselves)
//!                   client: creates, watches, retries     ──► history         (what was asked and answered)
//!                   receiver                              ──► webhook log     (what arrived)
//!                                                    all three ──► oracle ──► violations
//! ```
//!
//! The oracle never looks at the database, and the harness never repairs anything. The same seed
//! gives the same plan: the same workflows, the same victims and failpoints in the same order, the
//! same pauses.

mod calls;
mod campaign;
mod client;
mod clocks;
mod history;
mod kinds;
mod linear;
mod live;
mod net;
mod oracle;
mod plan;
pub mod power;
mod preload;
mod receiver;
mod report;
mod sabotage;
mod space;
mod witness;
mod workload;
mod world;

pub use campaign::{Campaign, run as run_campaign};
pub use kinds::run as fence;
pub use plan::Faults;
pub use report::{Fenced, Report};
pub use sabotage::HarnessSabotage;

use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub torc: PathBuf,
    /// Where worlds are made; each gets a directory of its own.
    pub dir: PathBuf,
    /// Names the plan.
    pub seed: u64,
    /// Stop after this many kills.
    pub kills: u64,
    /// A fresh world after this many.
    pub kills_per_world: u64,
    /// What goes wrong in every world; none: each world has a kind of its own, by its seed.
    pub faults: Option<Faults>,
    /// Networks also fail for longer than every lease.
    pub long_faults: bool,
    /// The program has failpoints (it was built with debug assertions).
    pub failpoints: bool,
    /// How long a world may take to come to its end once the faults have stopped.
    pub patience: Duration,
    /// A defect that the harness builds in, which the oracle must find.
    pub sabotage: Option<HarnessSabotage>,
    /// Told what happens, a line each.
    pub tell: fn(&str),
}

/// Runs worlds, one after the other, until there were enough kills. Stops at the first world with a
/// violation and leaves its directory.
pub fn run(options: &Options) -> std::io::Result<Report> {
    let one = Campaign { worlds: 1, time: None, journal: None, resumes: false };
    run_campaign(options, &one)
}
