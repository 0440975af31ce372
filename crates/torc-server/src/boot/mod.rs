//! Everything between "start a server" and "it serves": private files, ownership of the database,
//! its schema, the listener, and the way back down.
//!
//! ```text
//! state directory 0700 -> lock file -> file system check -> database 0600 -> migrations -> token -> store -> listener
//!                                                                                             -> server.json
//! ```
//!
//! Nothing here decides about jobs.

mod backup;
mod database;
pub mod doctor;
mod error;
mod file_system;
pub(crate) mod identity;
mod inside;
mod listen;
mod lock;
mod migrate;
mod options;
mod own_certificate;
pub(crate) mod private;
mod server;
mod socket;
mod tls;

pub use backup::backup;
pub use database::{Database, Journal};
pub use error::StartError;
pub use file_system::FileSystem;
pub use inside::{Ended, InProcess};
pub use lock::Owner;
#[cfg(test)]
#[cfg(test)]
pub(crate) use migrate::create as create_schema;
pub use options::Options;
pub use server::{RunningServer, Server, last_was_embedded, read_token};
pub use tls::TlsFiles;
