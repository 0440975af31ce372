//! Other programs on the same work: the same shell, two log files per job, as many at once as
//! processors.

use super::report::Figure;
use super::{Bench, limit, machine, median, specs};
use crate::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program to compare with.
struct OtherProgram {
    name: String,
    /// A shell command that runs `$N` jobs with logs in `$DIR`, `$SLOTS` at once, by `$JOB_SHELL`.
    command: String,
}

/// Those that are known: what they are called, a shell command that succeeds where they are
/// installed, and how they run.
const KNOWN: [(&str, &str, &str); 4] = [
    (
        "make",
        "command -v make",
        "seq -f 't%.0f' $N | tr '\\n' ' ' > $DIR/targets; \
         printf 'SHELL=%s\\nall: %s\\nt%%:\\n\\t@true >$(DIR)/$@.o 2>$(DIR)/$@.e\\n' $JOB_SHELL \"$(cat $DIR/targets)\" > $DIR/Makefile; \
         make -s -j $SLOTS -f $DIR/Makefile all",
    ),
    (
        "parallel",
        "command -v parallel",
        "seq $N | SHELL=$JOB_SHELL parallel --will-cite -j $SLOTS 'true >'$DIR'/{}.o 2>'$DIR'/{}.e'",
    ),
    (
        "xargs",
        "command -v xargs",
        "seq $N | xargs -P $SLOTS -I '{}' $JOB_SHELL -c 'true >'$DIR'/{}.o 2>'$DIR'/{}.e'",
    ),
    ("hyperqueue", "python3 -c 'import hyperqueue' 2>/dev/null", HYPERQUEUE),
];

/// Its server, one worker and its client, by its own Python package.
const HYPERQUEUE: &str = r#"HOME=$DIR python3 -c '
import os
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

count, place, shell = int(os.environ["N"]), os.environ["DIR"], os.environ["JOB_SHELL"]
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=int(os.environ["SLOTS"])))
    client, job = cluster.client(), Job(place)
    for n in range(count):
        job.program([shell, "-c", "true"], stdout=f"{place}/{n}.o", stderr=f"{place}/{n}.e")
    client.wait_for_jobs([client.submit(job)])
' 2>$DIR/log"#;

/// All that are installed, beside the limit and Torc itself.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(10_000);
    let installed = KNOWN.iter().filter(|(_, test, _)| run(Path::new("/"), test, 0).is_ok());
    let known = installed.map(|(name, _, command)| OtherProgram {
        name: (*name).into(),
        command: (*command).into(),
    });
    let given = bench
        .peers
        .iter()
        .map(|(name, command)| OtherProgram { name: name.clone(), command: command.clone() });
    let peers: Vec<OtherProgram> = known.chain(given).collect();
    let (mut limits, mut own) = (Vec::new(), Vec::new());
    let mut rates = vec![Vec::new(); peers.len()];
    for _ in 0..bench.rounds {
        let wall = limit::run(&bench.arena.fresh()?, "true", jobs, machine::processors())?;
        limits.push(jobs as f64 / wall.as_secs_f64());
        let server = bench.arena.server()?;
        let created = server.create(specs::flat(jobs, "true"))?;
        own.push(server.run(created.id, jobs)?.rate());
        drop(server);
        for (peer, rates) in peers.iter().zip(&mut rates) {
            let wall = run(&bench.arena.fresh()?, &peer.command, jobs)
                .map_err(|e| format!("{}: {e}", peer.name))?;
            rates.push(jobs as f64 / wall.as_secs_f64());
        }
    }
    let mut figures = vec![
        Figure::new("limit", median(limits), "jobs/s"),
        Figure::new("torc", median(own), "jobs/s"),
    ];
    figures.extend(
        peers
            .iter()
            .zip(rates)
            .map(|(peer, rates)| Figure::new(&peer.name, median(rates), "jobs/s")),
    );
    Ok(figures)
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
