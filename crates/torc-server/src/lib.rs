//! The server: an SQLite store with one writer, and the REST API in front of it.
//!
//! `boot` brings it up and down, `store` holds the state, `api` speaks HTTP. No SQL outside `store`
//! and `boot`, no decision about a job outside `torc-model`.

pub mod api;
mod audit;
mod blocking;
pub mod boot;
mod clock;
mod courier;
mod disk;
mod job_files;
mod mail;
pub mod metrics;
mod notify;
mod outgoing_tls;
pub mod request_id;
pub mod secret;
mod slow_files;
pub mod store;

pub use api::Network;
pub use boot::{
    Options, RunningServer, Server, StartError, TlsFiles, backup, doctor, last_was_embedded,
    read_token,
};
