//! `cargo xtask bench`: measures the limit of the machine and the program, in turn, and says where
//! it stands.
//!
//! The program is the real binary with its real database and `synchronous=FULL`; everything stays
//! on this machine. Each run has a fresh directory, and nothing is deleted before the end.

mod askers;
mod chart;
mod limit;
pub mod machine;
mod pages;
mod peers;
mod report;
mod rows;
pub mod simulated;
mod specs;
pub mod world;

use crate::Result;
use report::{Results, Row};
use std::path::{Path, PathBuf};
use std::process::Command;
use world::Arena;

/// Measure the program against the limit of the machine
#[derive(clap::Args)]
pub struct Args {
    /// One round with a tenth of the jobs: tells whether something is badly wrong, in about a
    /// minute
    #[arg(long)]
    quick: bool,

    /// Measure only this row; may be repeated
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,

    /// Leave this row out; may be repeated
    #[arg(long, value_name = "ROW")]
    skip: Vec<String>,

    /// List the rows
    #[arg(long)]
    list: bool,

    /// Rounds of which the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// The program [default: built from this tree in release mode]
    #[arg(long, value_name = "FILE")]
    torc: Option<PathBuf>,

    /// Another program for the row `peers`: a shell command that runs `$N` jobs with logs in
    /// `$DIR`, `$SLOTS` at once
    #[arg(long, value_name = "NAME=COMMAND")]
    peer: Vec<String>,

    /// Where results are kept; rows that are not measured now stay as they are
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,

    /// Put the kept results into docs/benchmarks.md and docs/benchmarks.svg
    #[arg(long)]
    publish: bool,

    /// Where the runs take place [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Leave the directories of the runs
    #[arg(long)]
    keep: bool,
}

/// What every row may use.
struct Bench {
    arena: Arena,
    rounds: usize,
    is_quick: bool,
    peers: Vec<(String, String)>,
}

impl Bench {
    /// A number of jobs, or a tenth of it.
    fn scale(&self, count: usize) -> usize {
        if self.is_quick { (count / 10).max(100) } else { count }
    }
}

/// The one in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The value below which this part of all values lies.
fn percentile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part).ceil() as usize;
    values.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

impl Args {
    /// Runs the command.
    pub fn execute(self) -> Result<()> {
        let all = rows::all();
        if self.list {
            all.iter().for_each(|entry| println!("{:<14} {}", entry.name, entry.about));
            return Ok(());
        }
        let names = self.only.iter().chain(&self.skip);
        if let Some(unknown) =
            names.into_iter().find(|name| !all.iter().any(|entry| entry.name == **name))
        {
            return Err(format!("unknown row `{unknown}`; `--list` shows them").into());
        }
        let root = crate::root()?;
        let out = root.join(&self.out);
        let kept = out.join("results.json");
        if !self.publish {
            std::fs::create_dir_all(&out)
                .map_err(|e| format!("cannot make `{}`: {e}", out.display()))?;
            let mut results = Results::load(&kept);
            results.machine = machine::describe();
            results.shell = limit::shell().display().to_string();
            let torc = match &self.torc {
                Some(torc) => torc.canonicalize()?,
                None => crate::build(&root, &["--release", "--package", "torc", "--bin", "torc"])?,
            };
            let bench = Bench {
                arena: Arena::new(torc, self.dir.as_deref(), self.keep)?,
                rounds: if self.quick { 1 } else { self.rounds.max(1) },
                is_quick: self.quick,
                peers: self
                    .peer
                    .iter()
                    .filter_map(|p| p.split_once('='))
                    .map(|(n, c)| (n.into(), c.into()))
                    .collect(),
            };
            let measured = measured(&root, &bench);
            for entry in all.iter().filter(|e| self.wants(e.name)) {
                let figures =
                    (entry.measure)(&bench).map_err(|e| format!("row `{}`: {e}", entry.name))?;
                let row = Row {
                    name: entry.name.into(),
                    about: entry.about.into(),
                    measured: measured.clone(),
                    figures,
                };
                report::print(&row);
                results.put(row);
                let place = |row: &Row| all.iter().position(|e| e.name == row.name);
                results.rows.sort_by_key(place);
                results.save(&kept)?;
                std::fs::write(out.join("results.svg"), chart::svg(&results))?;
            }
            println!("kept in {}", out.display());
            return Ok(());
        }
        let results = Results::load(&kept);
        if results.rows.is_empty() {
            return Err(
                format!("nothing has been measured: `{}` has no rows", kept.display()).into()
            );
        }
        report::publish(&results, &root.join("docs/benchmarks.md"))?;
        std::fs::write(root.join("docs/benchmarks.svg"), chart::svg(&results))?;
        std::fs::copy(&kept, root.join("docs/benchmarks.json"))?;
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        (self.only.is_empty() || self.only.iter().any(|only| only == name))
            && !self.skip.iter().any(|s| s == name)
    }
}

/// Today, and what was measured.
fn measured(root: &Path, bench: &Bench) -> String {
    let output =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    let commit =
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let day = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let rounds =
        if bench.is_quick { "quick".into() } else { format!("median of {}", bench.rounds) };
    format!("{day}, {commit}, {rounds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_tail_are_found() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(percentile((1..=100).map(f64::from).collect(), 0.99), 99.0);
    }
}
