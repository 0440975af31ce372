//! `torc`: command line, server and runner in one program.
//!
//! This crate composes the others and decides nothing itself: commands turn arguments into calls of the server and
//! answers into text.

mod cli;
mod embedded;
mod error;
mod exit;
mod output;
mod slurm_service;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = cli::Cli::parse().execute().unwrap_or_else(|error| {
        output::error(&error);
        error.exit()
    });
    exit.into()
}
