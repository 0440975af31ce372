//! `torc-chaos`: a campaign of kills against the real program.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Faults of power and disk, which are played from a recorded run
#[derive(clap::Args)]
struct StorageFaults {
    /// Cut the power at every moment of a recorded run, instead
    #[arg(long, conflicts_with = "fence")]
    power: bool,

    /// Fill the disk at every write, instead
    #[arg(long, conflicts_with_all = ["fence", "power"])]
    full_disk: bool,

    /// How many power cuts or full disks
    #[arg(long, default_value_t = 200)]
    cuts: usize,

    /// Overlook flushes of files with this in their path, such as `torc.db-wal`: that must be found
    #[arg(long, requires = "power", value_name = "PART")]
    forget_flushes: Option<String>,
}

/// Kill the server, the runners and the jobs of real workflows, again and again, and let an oracle
/// decide
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  cargo build -p torc && cargo run -p torc-chaos -- --kills 10000
  cargo run -p torc-chaos -- --kills 100000 --hours 12 --resume
  cargo run -p torc-chaos -- --seed 42 --kills 60     the plan of one world again
  cargo run -p torc-chaos -- --faults network --kills 500 --long-faults
  cargo run -p torc-chaos -- --fence --kills 200      runners and guards killed under jobs that hide
  cargo run -p torc-chaos -- --power --cuts 10000     a power cut at every moment of a recorded run
  cargo run -p torc-chaos -- --full-disk --cuts 200   no room on the disk from the first write on, the second, ...

Exits with 1 when something was violated; the directory of that world is kept."
)]
struct Args {
    /// How often to kill
    #[arg(long, default_value_t = 300)]
    kills: u64,

    /// The plan; each further world takes the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Kills before a fresh world
    #[arg(long, default_value_t = 60)]
    kills_per_world: u64,

    /// Stop after this many hours, even if there were not enough kills
    #[arg(long)]
    hours: Option<f64>,

    /// Go on with the journal of an earlier campaign
    #[arg(long)]
    resume: bool,

    /// Where the figures of each world are kept [default: `torc-chaos.jsonl` with `--resume`, or none]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Worlds at the same time [default: four for each core: most of a world's time is waiting]
    #[arg(long)]
    worlds: Option<usize>,

    /// What goes wrong [default: each world has a kind of its own, by its seed]
    #[arg(long, value_enum)]
    faults: Option<torc_chaos::Faults>,

    /// Let networks fail for longer than every lease, too
    #[arg(long)]
    long_faults: bool,

    /// The program [default: `torc` beside this program]
    #[arg(long, value_name = "FILE")]
    torc: Option<PathBuf>,

    /// Where worlds are made [default: a temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Kill runners and guards under jobs that hide, instead: `env -i`, daemons, renames and others
    #[arg(long)]
    fence: bool,

    #[command(flatten)]
    storage: StorageFaults,

    /// Build a defect in with processes of the harness: it must be found
    #[arg(long, value_enum)]
    sabotage: Option<torc_chaos::HarnessSabotage>,

    /// The program has no failpoints (a release build)
    #[arg(long)]
    no_failpoints: bool,
}

#[expect(clippy::print_stderr, reason = "this is the program's way to talk")]
fn tell(line: &str) {
    eprintln!("{line}");
}

fn main() -> ExitCode {
    let args = Args::parse();
    let beside = || std::env::current_exe().ok().map(|exe| exe.with_file_name("torc"));
    let Some(torc) = args.torc.or_else(beside).filter(|path| path.is_file()) else {
        tell(
            "error: there is no `torc` beside this program\nhint: `cargo build -p torc`, or name it with `--torc`",
        );
        return ExitCode::from(2);
    };
    let dir = args.dir.unwrap_or_else(std::env::temp_dir);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if args.fence {
        let report = torc_chaos::fence(&torc, &dir, args.kills, tell);
        return conclude(report.map(|report| (report.to_string(), report.violations)));
    }
    if args.storage.full_disk {
        let report = torc_chaos::power::full_disks(&torc, &dir, 1..=args.storage.cuts, tell);
        return conclude(report.map(|report| (report.to_string(), report.violations)));
    }
    if args.storage.power {
        let report = torc_chaos::power::run(&torc_chaos::power::Options {
            torc,
            dir,
            seed: args.seed,
            cuts: args.storage.cuts,
            worlds: args.worlds.unwrap_or(cores),
            forget_flushes: args.storage.forget_flushes,
            tell,
        });
        return conclude(report.map(|report| (report.to_string(), report.violations)));
    }
    let options = torc_chaos::Options {
        torc,
        dir,
        seed: args.seed,
        kills: args.kills,
        kills_per_world: args.kills_per_world.max(1),
        faults: args.faults,
        long_faults: args.long_faults,
        failpoints: !args.no_failpoints,
        patience: Duration::from_secs(120),
        sabotage: args.sabotage,
        tell,
    };
    let resumed = args.resume.then(|| PathBuf::from("torc-chaos.jsonl"));
    let campaign = torc_chaos::Campaign {
        worlds: args.worlds.unwrap_or(4 * cores),
        time: args.hours.map(|hours| Duration::from_secs_f64(hours.max(0.0) * 3600.0)),
        journal: args.journal.or(resumed),
        resumes: args.resume,
    };
    conclude(torc_chaos::run_campaign(&options, &campaign).map(|report| {
        let kinds = report.kinds.iter().map(|(name, kind)| format!("\n  {name}: {kind}"));
        let killed = report.killed.iter().map(|(who, count)| format!("\n  killed {who}: {count}"));
        (format!("{report}{}", kinds.chain(killed).collect::<String>()), report.violations)
    }))
}

/// Prints the figures and what was violated.
#[expect(clippy::print_stdout, reason = "this is the program's result")]
fn conclude(report: std::io::Result<(String, Vec<String>)>) -> ExitCode {
    match report {
        Ok((figures, violations)) => {
            println!("{figures}");
            violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
            if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            tell(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
