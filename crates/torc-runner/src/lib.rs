//! The runner: claims attempts, executes them, reports how they went.
#![expect(dead_code, reason = "grows")]
mod actions;
mod attempt;
mod cgroup;
mod cleanup;
mod executor;
mod mailbox;
mod monitor;
mod pool;
mod process;
mod procfs;
mod supervisor;
mod sys;
mod time;
