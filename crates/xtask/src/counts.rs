//! `cargo xtask counts`: instructions of the hot paths, counted by callgrind, against the record in
//! the repository.
//!
//! Counts do not depend on what else the machine does, so a change that makes a path longer shows
//! in CI. The programs are built like the tests, without optimization: nothing extra to build, and
//! no optimizer whose taste changes with every release of the compiler. What counts is how much is
//! done, and that shows there as well.

use crate::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A path may cost this much more than recorded: compilers and C libraries differ a little.
const TOLERANCE: f64 = 0.20;

/// Each path: its name, the rounds of the two calls whose difference counts, and what one round is.
const PATHS: [(&str, usize, usize, &str); 5] = [
    ("parse", 0, 1, "read a file of 100 jobs"),
    ("expand", 0, 1, "plan 10,000 jobs from one definition"),
    ("claim", 1, 3, "a claim of 50 jobs"),
    ("complete", 1, 3, "a report of 50 starts and ends"),
    ("fan_out", 1, 2, "a report of an end that releases 200 jobs"),
];

/// Count the instructions of the hot paths and compare them with the record
#[derive(clap::Args)]
pub struct Args {
    /// Write the record anew
    #[arg(long)]
    update: bool,

    /// Count only this path; may be repeated
    #[arg(long, value_name = "PATH")]
    only: Vec<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self) -> Result<()> {
        let root = crate::root()?;
        let record = root.join("crates/xtask/counts.json");
        let text = std::fs::read_to_string(&record).unwrap_or_else(|_| "{}".into());
        let mut known: BTreeMap<String, u64> = serde_json::from_str(&text)?;
        let program = build(&root)?;
        let mut longer = Vec::new();
        for (name, few, many, about) in PATHS {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
                continue;
            }
            let count = count(&program, name, few, many)?;
            let change = known.get(name).map(|old| count as f64 / *old as f64 - 1.0);
            let change_text =
                change.map_or("new".into(), |change| format!("{:+.1}%", change * 100.0));
            println!(
                "{name:<10} {:>10.2} million instructions, {change_text:>8}: {about}",
                count as f64 / 1e6
            );
            if self.update {
                known.insert(name.into(), count);
            } else if change.is_none_or(|change| change > TOLERANCE) {
                longer.push(name);
            }
        }
        if self.update {
            std::fs::write(&record, serde_json::to_string_pretty(&known)? + "\n")?;
        } else if !longer.is_empty() {
            let percent = TOLERANCE * 100.0;
            let paths = longer.join(", ");
            return Err(format!("more than {percent}% longer than recorded, or not recorded: {paths}\nhint: if it has to be so, `cargo xtask counts --update` and say why").into());
        }
        Ok(())
    }
}

/// The program with the paths, from the same build as the tests.
fn build(root: &Path) -> Result<PathBuf> {
    crate::build(root, &["--workspace", "--example", "hot_paths"])
}

/// Instructions of one round.
fn count(program: &Path, name: &str, few: usize, many: usize) -> Result<u64> {
    // Both at once: two processors are free, and each is slow.
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| callgrind(program, name, few));
        let second = callgrind(program, name, many);
        (first.join().unwrap_or_else(|_| Err("a thread broke".into())), second)
    });
    let (first, second) = (first?, second?);
    Ok(second.saturating_sub(first) / (many - few) as u64)
}

fn callgrind(program: &Path, name: &str, rounds: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([name, &rounds.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            format!("cannot start `valgrind`: {e}\nhint: `scripts/counts` installs it where it can")
        })?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{name}: {}\n{said}", output.status).into());
    }
    collected(&said).ok_or_else(|| format!("{name}: callgrind told no count\n{said}").into())
}

fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n==7== I   refs:      123,456\n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==7== nothing"), None);
    }
}
