//! Finds the processes of a runner by what they cannot shed, and ends all of them at once.
//!
//! Used by the runner (its own jobs, and what earlier runners left), by the runner's guard process,
//! by the server on the same host, and by the doctor. Starts no process and knows nothing of jobs.
//!
//! A process belongs to a runner when one of these says so, strongest first:
//!
//! 1. it is in a control group of the runner ([`groups`]);
//! 2. it carries the runner's mark in its resource limits ([`mark`]): inherited by everything that
//!    it starts, kept by `exec`, `setsid`, a double fork, an emptied environment, a changed title
//!    and a non-dumpable process, and readable by every user;
//! 3. its environment names the runner ([`procfs::TAG`]), where a kernel refuses the mark;
//! 4. it descends from a process of which that is true.

mod awaited;
pub mod ending;
pub mod groups;
pub mod mark;
pub mod procfs;

pub use awaited::{Awaited, is_awaited};
pub use ending::{Ended, RunnerOwner, end, end_runners, freeze};
pub use mark::Mark;
