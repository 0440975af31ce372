//! Work on the repository itself. `cargo xtask bench` measures the program; see `docs/benchmarks.md`.

mod bench;

use clap::Parser;
use std::process::ExitCode;

/// Work on the repository itself
#[derive(Parser)]
enum Xtask {
    /// Measure the program against the limit of the machine
    Bench(bench::Args),
}

/// What ended a task early, for people.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let result = match Xtask::parse() {
        Xtask::Bench(args) => args.execute(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
