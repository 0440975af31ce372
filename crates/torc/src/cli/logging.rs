//! What the parts of the program tell about their own work, on standard error.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Errors only with `-q`, warnings by default and with `-v`, which is about jobs; the inside of the
/// program with `-vv` and more. `RUST_LOG` wins.
pub fn start(quiet: bool, verbose: u8) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0 | 1) => LevelFilter::WARN,
        (false, 2) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    // Colors are for people, not for files.
    let has_colors = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(has_colors)
        .compact()
        .init();
}
