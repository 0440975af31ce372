//! `torc-sim`: plays many seeds on all cores, or one with its trace.

use clap::Parser;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use torc_sim::{Sabotage, Stats};

/// Seeds that a thread takes at once.
const CHUNK: u64 = 64;

/// After this many violations there is enough to look at.
const ENOUGH: usize = 5;

/// Plays histories of one server and up to twenty runners in which everything fails that can fail,
/// and checks the invariants after every step.
#[derive(Parser, Debug)]
#[command(version)]
struct Args {
    /// How many seeds to play.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play this seed only.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print everything that happens in it.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Build this defect in: it must be found.
    #[arg(long)]
    sabotage: Option<Sabotage>,
    /// Threads; one per core unless given.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => one(seed, args.trace, args.sabotage),
        None => many(&args),
    }
}

fn one(seed: u64, trace: bool, sabotage: Option<Sabotage>) -> ExitCode {
    let (lines, verdict) = torc_sim::trace(seed, sabotage);
    if trace {
        lines.iter().for_each(|line| println!("{line}"));
    }
    match verdict {
        Ok(()) => {
            println!("seed {seed}: every invariant held");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn many(args: &Args) -> ExitCode {
    // A panic is a violation like any other; its message comes with the seed.
    std::panic::set_hook(Box::new(|_| {}));
    let begin = Instant::now();
    let next = AtomicU64::new(args.from);
    let end = args.from.saturating_add(args.seeds);
    let found: Mutex<Vec<(u64, String)>> = Mutex::default();
    let total: Mutex<Stats> = Mutex::default();
    let played = AtomicU64::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..args.threads.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                let mut mine = Stats::default();
                loop {
                    let first = next.fetch_add(CHUNK, Ordering::Relaxed);
                    if first >= end || lock(&found).len() >= ENOUGH {
                        break;
                    }
                    for seed in first..end.min(first + CHUNK) {
                        match catch_unwind(AssertUnwindSafe(|| torc_sim::play(seed, args.sabotage)))
                        {
                            Ok((stats, verdict)) => {
                                mine.add(&stats);
                                if let Err(what) = verdict {
                                    lock(&found).push((seed, what));
                                }
                            }
                            Err(panic) => {
                                lock(&found).push((seed, format!("panic: {}", words(&*panic))))
                            }
                        }
                        played.fetch_add(1, Ordering::Relaxed);
                    }
                }
                lock(&total).add(&mine);
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort();
    for (seed, what) in &found {
        println!("seed {seed}: {what}");
        let sabotage = args.sabotage.map_or(String::new(), |s| format!(" --sabotage {}", s.name()));
        println!("  replay: cargo run --release -p torc-sim -- --seed {seed} --trace{sabotage}");
    }
    let total = *lock(&total);
    println!("{} seeds in {:.1} s: {total}", played.into_inner(), begin.elapsed().as_secs_f64());
    println!("{} violations", found.len());
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "no message".into())
}
