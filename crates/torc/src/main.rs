//! `torc`: command line, server and runner in one program.
//!
//! This crate composes the others and decides nothing itself: commands turn arguments into calls of
//! the server and answers into text.

mod archive;
mod cli;
mod config;
mod embedded;
mod error;
mod exit;
mod output;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

/// The version of a package is that of its commit; `cargo xtask dist` says it.
const VERSION: &str = match option_env!("TORC_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

fn main() -> ExitCode {
    // A core dump would hold tokens, and so would the memory of a process that a debugger attaches
    // to. The kernel resets this for what is executed: jobs keep the user's limits.
    let dumpable = rustix::process::DumpableBehavior::NotDumpable;
    // Where the kernel does not know it there is nothing to turn off.
    let _ = rustix::process::set_dumpable_behavior(dumpable);
    // Not a command for people, and it must be small: nothing else of the program is set up for it.
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(torc_runner::guard::WORD) {
        torc_runner::guard::watch();
        return ExitCode::SUCCESS;
    }
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    torc_runner::resolve_without_modules();
    cli::answer_completion();
    torc_model::recovery::Rules::read_site_with(cli::site_rules);
    let exit = cli::Cli::read(arguments()).execute().unwrap_or_else(|error| {
        output::error(&error);
        error.exit()
    });
    // In a terminal there is a shell above us that asks what we died of.
    if exit == exit::Exit::Interrupted && std::io::stderr().is_terminal() {
        torc_runner::die_of_interrupt();
    }
    exit.into()
}

/// The command line. Under the name `torc-mcp-server` the program is `torc mcp`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let is_mcp_server = arguments
        .first()
        .and_then(|name| Path::new(name).file_name())
        .is_some_and(|name| name == "torc-mcp-server");
    if is_mcp_server {
        arguments.insert(1, "mcp".into());
    }
    arguments
}
