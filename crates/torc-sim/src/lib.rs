//! A deterministic simulator around the engine: one server, up to twenty runners, a network that
//! loses, repeats, delays and reorders, a disk that refuses, clocks that jump, processes that die
//! anywhere, and people who intervene. One seed is one history; the same seed is the same history.
//!
//! ```text
//!   people ─┐                      ┌─ tables (rows of the engine's changes, constraints of the schema)
//!   runners ┼─ network ─► server ──┤
//!   faults ─┘      ▲               └─ engine: torc_engine, the real one
//!                  │
//!   witness: which processes ran when     checker: invariants, after every step
//! ```
//!
//! What is real: every transition, claim, retry, cascade, budget, limit, map, quarantine, lesson of a
//! verdict, the life of allocations, the verdict on silent runners, the way back from rows to the
//! engine, and the runner's dispatcher. What is imitated: SQLite, HTTP, processes, the batch system.

mod allocations;
mod batch;
mod check;
mod ends;
mod people;
mod runner;
mod sabotage;
mod scenario;
mod server;
mod tables;
mod verdicts;
mod wire;
mod witness;
mod world;

pub use sabotage::Sabotage;
pub use world::{Stats, World};

/// Plays the history of a seed. An error names the invariant that was violated.
pub fn play(seed: u64, sabotage: Option<Sabotage>) -> (Stats, Result<(), String>) {
    let (stats, verdict, _) = World::new(seed, sabotage, false).play();
    (stats, verdict)
}

/// Plays it again and writes down what happens.
pub fn trace(seed: u64, sabotage: Option<Sabotage>) -> (Vec<String>, Result<(), String>) {
    let (_, verdict, lines) = World::new(seed, sabotage, true).play();
    (lines, verdict)
}
