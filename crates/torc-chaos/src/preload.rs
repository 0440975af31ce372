//! Libraries of the harness that are preloaded into the program: built from the sources in
//! `preload/` with the C compiler that the bundled SQLite needs too.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Records what happens to files.
pub const RECORD: (&str, &str) = ("record", include_str!("../preload/record.c"));
/// Sets clocks.
pub const CLOCK: (&str, &str) = ("clock", include_str!("../preload/clock.c"));

/// Builds one in this directory and answers where it is.
pub fn build((name, text): (&str, &str), dir: &Path) -> io::Result<PathBuf> {
    let (source, library) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.so")));
    std::fs::write(&source, text)?;
    let built = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()?;
    match built.status.success() {
        true => Ok(library),
        false => Err(io::Error::other(String::from_utf8_lossy(&built.stderr).into_owned())),
    }
}
