//! Black-box tests of the real program: input text, command line, output text, exit code.

mod actions;
mod agents;
mod basics;
mod commands;
mod crash;
mod docs;
mod examples;
mod golden;
mod handlers;
mod hostile;
mod life;
mod mcp;
mod outcomes;
mod real_clients;
mod recovery;
mod servers;
mod step_faults;
mod steps;
mod support;
