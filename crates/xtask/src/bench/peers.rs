//! Other programs on the same work: the same shell, two log files per job, as many at once as processors.

use super::report::Figure;
use super::{Bench, limit, machine, median};
use crate::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// Each is a shell command that runs `$N` jobs with logs in `$DIR`, `$SLOTS` at once, by `$JOB_SHELL`.
const KNOWN: [(&str, &str, &str); 3] = [
    (
        "make",
        "make",
        "seq -f 't%.0f' $N | tr '\\n' ' ' > $DIR/targets; \
         printf 'SHELL=%s\\nall: %s\\nt%%:\\n\\t@true >$(DIR)/$@.o 2>$(DIR)/$@.e\\n' $JOB_SHELL \"$(cat $DIR/targets)\" > $DIR/Makefile; \
         make -s -j $SLOTS -f $DIR/Makefile all",
    ),
    (
        "parallel",
        "parallel",
        "seq $N | SHELL=$JOB_SHELL parallel --will-cite -j $SLOTS 'true >'$DIR'/{}.o 2>'$DIR'/{}.e'",
    ),
    ("xargs", "xargs", "seq $N | xargs -P $SLOTS -I '{}' $JOB_SHELL -c 'true >'$DIR'/{}.o 2>'$DIR'/{}.e'"),
];

/// All that are installed, beside the limit.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(10_000);
    let installed = KNOWN.iter().filter(|(_, program, _)| is_installed(program));
    let mut peers: Vec<(String, String)> =
        installed.map(|(name, _, command)| ((*name).into(), (*command).into())).collect();
    peers.extend(bench.peers.iter().cloned());
    let mut limits = Vec::new();
    let mut rates = vec![Vec::new(); peers.len()];
    for _ in 0..bench.rounds {
        let wall = limit::run(&bench.arena.fresh()?, "true", jobs, machine::processors())?;
        limits.push(jobs as f64 / wall.as_secs_f64());
        for ((name, command), rates) in peers.iter().zip(&mut rates) {
            let wall = run(&bench.arena.fresh()?, command, jobs).map_err(|e| format!("{name}: {e}"))?;
            rates.push(jobs as f64 / wall.as_secs_f64());
        }
    }
    let mut figures = vec![Figure::new("limit", median(limits), "jobs/s")];
    figures.extend(peers.iter().zip(rates).map(|((name, _), rates)| Figure::new(name, median(rates), "jobs/s")));
    Ok(figures)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn run(dir: &Path, command: &str, jobs: usize) -> Result<std::time::Duration> {
    let begun = std::time::Instant::now();
    let status = Command::new(limit::shell())
        .args(["-c", command])
        .env_clear()
        .envs(machine::environment())
        .env("N", jobs.to_string())
        .env("DIR", dir)
        .env("SLOTS", machine::processors().to_string())
        .env("JOB_SHELL", limit::shell())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if status.success() { Ok(begun.elapsed()) } else { Err(format!("{status}").into()) }
}
