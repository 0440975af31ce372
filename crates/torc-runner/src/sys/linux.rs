//! What makes a start quick on Linux. [`super::Std`] does the same by the standard library alone.
//!
//! Each part has a measured gain, which `docs/adr/20261118-linux-tuning.md` names.

mod place;
mod spawn;

pub use spawn::Linux;
