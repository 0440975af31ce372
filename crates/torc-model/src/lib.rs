//! The pure vocabulary of Torc: words, units, plans, wire types, diagnosis, steps and Slurm's texts. The engine is
//! `torc-engine`.
//!
//! Nothing in this crate does I/O, reads a clock or draws a random number. Time is an argument, ids
//! are handed out by the state itself, and every change a caller must make durable comes back as a
//! value. The server applies it inside a transaction; the simulator and the tests use the very same
//! functions.

pub mod api;
pub mod attempt;
pub mod chance;
pub mod class;
pub mod compare;
pub mod digest;
pub mod event;
pub mod family;
pub mod files;
pub mod filter;
pub mod forecast;
pub mod ids;
pub mod json;
pub mod kept;
pub mod labels;
pub mod layout;
pub mod log_search;
pub mod plan;
pub mod recovery;
pub mod signal;
pub mod slurm;
pub mod sparse;
pub mod status;
pub mod steps;
pub mod token;
pub mod units;
pub mod words;
