//! `torc-chaos`: a campaign of kills against the real program.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Kill the server, the runners and the jobs of real workflows, again and again, and let an oracle
/// decide
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  cargo build -p torc && cargo run -p torc-chaos -- --kills 10000
  cargo run -p torc-chaos -- --seed 42 --kills 60     the plan of one world again
  cargo run -p torc-chaos -- --fence --kills 200      runners and guards killed under jobs that hide

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

    /// The program [default: `torc` beside this program]
    #[arg(long, value_name = "FILE")]
    torc: Option<PathBuf>,

    /// Where worlds are made [default: a temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Kill runners and guards under jobs that hide, instead: `env -i`, daemons, renames and others
    #[arg(long)]
    fence: bool,

    /// Build a defect in with processes of the harness: it must be found
    #[arg(long, value_enum)]
    sabotage: Option<torc_chaos::Sabotage>,

    /// The program has no failpoints (a release build)
    #[arg(long)]
    no_failpoints: bool,
}

#[expect(clippy::print_stderr, reason = "this is the program's way to talk")]
fn tell(line: &str) {
    eprintln!("{line}");
}

#[expect(clippy::print_stdout, reason = "this is the program's result")]
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
    if args.fence {
        return match torc_chaos::fence(&torc, &dir, args.kills, tell) {
            Ok(report) => {
                println!("{report}");
                report.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
                if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => {
                tell(&format!("error: {error}"));
                ExitCode::from(2)
            }
        };
    }
    let options = torc_chaos::Options {
        torc,
        dir,
        seed: args.seed,
        kills: args.kills,
        kills_per_world: args.kills_per_world.max(1),
        failpoints: !args.no_failpoints,
        patience: Duration::from_secs(120),
        sabotage: args.sabotage,
        tell,
    };
    match torc_chaos::run(&options) {
        Ok(report) => {
            println!("{report}");
            for (who, count) in &report.killed {
                println!("  killed {who}: {count}");
            }
            for violation in &report.violations {
                println!("VIOLATION {violation}");
            }
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            tell(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
