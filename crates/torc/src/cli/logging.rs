//! What the parts of the program tell about their own work, on standard error.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Standard error is the terminal, and the terminal shows screens.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Drops what is logged, for as long as it would be written over a screen.
pub fn silence(is_silent: bool) {
    IS_SILENT.store(is_silent && io::stderr().is_terminal(), Ordering::Relaxed);
}

fn writer() -> Box<dyn Write> {
    if IS_SILENT.load(Ordering::Relaxed) { Box::new(io::sink()) } else { Box::new(io::stderr()) }
}

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
    let has_colors = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(has_colors)
        .compact()
        .init();
}
