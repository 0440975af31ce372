//! Processes of jobs that said that they run.

use crate::kinds;
use std::fs;
use std::path::{Path, PathBuf};

/// A process of a job that said that it runs: the name of its file is `PID.START.k` when it may be
/// killed alone, and `PID.START.n` when that would be the harness's own fault.
pub struct LiveWitness {
    /// Its file.
    pub path: PathBuf,
    /// Process id of the witness.
    pub pid: i32,
    /// When it started, in ticks.
    pub start: u64,
    /// Killed alone, it says so.
    pub may_be_killed: bool,
}

impl LiveWitness {
    /// It runs.
    pub fn lives(&self) -> bool {
        kinds::start_of(self.pid) == Some(self.start)
    }
}

/// All that said that they run and not that they end. Killed ones cannot take themselves off.
pub fn witnesses(dir: &Path) -> Vec<LiveWitness> {
    let read = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        let mut words = name.split('.');
        let (pid, start) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(LiveWitness { path, pid, start, may_be_killed: words.next() == Some("k") })
    };
    let entries = fs::read_dir(dir.join("live")).into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.path())).collect()
}
