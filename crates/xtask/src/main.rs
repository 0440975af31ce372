//! Work on the repository itself. `cargo xtask bench` measures the program, `cargo xtask counts`
//! guards its hot paths; see `docs/benchmarks.md`. `cargo xtask sched` judges the
//! order of jobs, see `docs/scheduling.md`. `cargo xtask team` loads a server as a team
//! would, see `docs/server.md`. `cargo xtask mutants` asks whether tests
//! notice changes of the engine, see `docs/reliability.md`. `cargo xtask wheel` writes the Python package, `cargo xtask dist` all others.

mod bench;
mod counts;
mod dist;
mod mutants;
mod recovery;
mod sched;
mod team;
mod wheel;

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Work on the repository itself
#[derive(Parser)]
enum Xtask {
    /// Measure the program against the limit of the machine
    Bench(bench::Args),
    /// Count the instructions of the hot paths and compare them with the record
    Counts(counts::Args),
    /// Write packages of the program: tar, deb, checksums, recipes
    Dist(dist::Args),
    /// Change the engine and ask whether tests notice
    Mutants(mutants::Args),
    /// Decide failures whose right action is known, and compare with simpler deciders
    Recovery(recovery::Args),
    /// Measure how good the order of jobs is, with the real engine and simulated time
    Sched(sched::Args),
    /// Load a server as a team would, and judge its answers
    Team(team::Args),
    /// Write the Python wheel: the program and the module `torcflow`
    Wheel(wheel::Args),
}

/// What ended a task early, for people.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let result = match Xtask::parse() {
        Xtask::Bench(args) => args.execute(),
        Xtask::Counts(args) => args.execute(),
        Xtask::Dist(args) => args.execute(),
        Xtask::Mutants(args) => args.execute(),
        Xtask::Recovery(args) => args.execute(),
        Xtask::Sched(args) => args.execute(),
        Xtask::Team(args) => args.execute(),
        Xtask::Wheel(args) => args.execute(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.map(Path::to_path_buf).ok_or_else(|| "the repository has no root".into())
}

/// Builds a program of this tree and tells where it is.
fn build(root: &Path, what: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--locked", "--message-format=json-render-diagnostics"])
        .args(what)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the program cannot be built".into());
    }
    executable(&output.stdout)
}

/// The program that cargo's messages name last.
fn executable(messages: &[u8]) -> Result<PathBuf> {
    let lines = String::from_utf8_lossy(messages).into_owned();
    let messages =
        lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let file = messages
        .filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
        .next_back();
    file.ok_or_else(|| "cargo did not say where the program is".into())
}
