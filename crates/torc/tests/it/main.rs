//! Black-box tests of the real program: input text, command line, output text, exit code.

mod actions;
mod agents;
mod basics;
mod chaos;
mod commands;
mod crash;
mod direct;
mod disk;
mod docs;
mod doctor;
mod examples;
mod golden;
mod handlers;
mod hostile;
mod life;
mod mcp;
mod outcomes;
mod places;
mod real_agents;
mod real_clients;
mod recovery;
mod retries;
mod servers;
mod step_faults;
mod steps;
mod support;
