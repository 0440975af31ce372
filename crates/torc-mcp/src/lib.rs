//! Torc's MCP server: a few tools over the same REST interface that the commands use.
//!
//! Two sets of tools. *Unattended*: what an agent gets that works by itself, namely reading
//! failures that wait for a verdict and giving one. *Attended*: what a person's assistant gets, who
//! asks before it changes anything. Whatever a job wrote is data here: no tool runs a program or
//! opens a file that a caller or a job names, or shows a workflow that the server was not bound to.
//!
//! The tools know nothing of the SDK: [`Tool`] is ours, `server.rs` is the only place that speaks
//! its language.

mod backend;
pub mod guidance;
mod http;
mod journal;
pub mod library;
mod server;
mod tools;

pub use backend::{Backend, Cluster, Later, LogIssues, Work};
pub use http::{HttpServer, TOKEN_BYTES};
pub use journal::Journal;
pub use server::{Server, Settings, serve_stdio};
pub use tools::{Tool, ToolError, Toolset};
