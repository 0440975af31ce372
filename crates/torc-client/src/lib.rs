//! Typed HTTP calls to a Torc server.
//!
//! The types on the wire are those of [`torc_model::api`]; this crate adds addresses, tokens, time
//! limits and errors. It keeps no state besides its connections and decides nothing: the caller
//! decides whether to repeat.

pub mod discovery;
mod error;
mod http;
pub mod inside;
mod peer;
mod people;
mod runner;
mod single;
mod slurm;
mod sock_diag;
mod stream;
mod successor;
mod tls;
mod triage;

pub use error::Error;
pub use http::{Client, Query, segment};
pub use people::{Application, NewWorkflow};
pub use stream::{EventStream, PulseStream};
