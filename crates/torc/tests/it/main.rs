//! Black-box tests of the real program: input text, command line, output text, exit code.

mod actions;
mod basics;
mod commands;
mod crash;
mod docs;
mod golden;
mod handlers;
mod life;
mod outcomes;
mod recovery;
mod servers;
mod steps;
mod support;
