//! `cargo xtask mutants`: changes one small thing of the engine after the other and asks whether a test
//! notices.
//!
//! All changes are compiled into one copy of the engine, each behind a switch that an environment
//! variable turns (mutant schemata), so that a change costs a run of the tests and no build. The
//! engine's own tests are asked first, then the simulator, then the tests of the store.

mod probes;
mod sites;
mod tree;
mod weave;

use crate::Result;
use probes::{Probe, TestProgram, notices};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tree::{Mutant, SourceTree};

/// Histories of the simulator: some quick ones first.
const SEEDS: [(u64, u64); 3] = [(0, 32), (32, 224), (256, 1792)];

/// Change the engine and ask whether tests notice
#[derive(clap::Args)]
pub struct Args {
    /// Files of the engine to change, such as `rules.rs`; all unless some are named
    files: Vec<String>,
    /// Only so many changes, chosen at random
    #[arg(long)]
    sample: Option<usize>,
    /// The seed of the choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Changes that are looked at side by side
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Stop after so many minutes; `--resume` goes on
    #[arg(long)]
    minutes: Option<u64>,
    /// Keep what an earlier call found: changes that were noticed and whose file is the same, and those
    /// that were not if the tests are the same
    #[arg(long)]
    resume: bool,
    /// Ask the engine's own tests and the simulator only, whose build is quick
    #[arg(long)]
    without_store: bool,
    /// Only list the changes
    #[arg(long)]
    list: bool,
    /// Fail below this share of noticed changes, in per cent
    #[arg(long, default_value_t = 90.0)]
    least: f64,
}

/// What was found out about a change.
#[derive(Clone, PartialEq, Eq, Debug)]
enum MutantFate {
    /// Noticed, by this program.
    Noticed(String),
    /// No test noticed it.
    Survived,
    /// No test comes by.
    NotReached,
}

impl MutantFate {
    fn word(&self) -> String {
        match self {
            Self::Noticed(by) => format!("noticed {by}"),
            Self::Survived => "survived".into(),
            Self::NotReached => "not reached".into(),
        }
    }

    fn read(word: &str) -> Option<Self> {
        match word {
            "survived" => Some(Self::Survived),
            "not reached" => Some(Self::NotReached),
            word => word.strip_prefix("noticed ").map(|by| Self::Noticed(by.to_owned())),
        }
    }
}

impl Args {
    /// Runs the command.
    pub fn execute(self) -> Result<()> {
        let root = crate::root()?;
        let work = root.join("target/mutants");
        fs::create_dir_all(&work)?;
        let mut tree = SourceTree::copy(&root, &work)?;
        for name in &self.files {
            if !tree.files.iter().any(|file| file.name == *name) {
                return Err(format!("the engine has no file `{name}`").into());
            }
        }
        if self.list {
            for mutant in self.chosen(tree.mutants()) {
                println!("{}", mutant.key());
            }
            return Ok(());
        }
        let begin = Instant::now();
        tree.weave()?;
        let viable = tree.mutants().into_iter().filter(|m| !tree.unviable.contains(&m.id));
        let chosen = self.chosen(viable.collect());
        eprintln!(
            "mutants: {} changes, {} do not compile, {} are looked at",
            tree.mutants().len(),
            tree.unviable.len(),
            chosen.len()
        );
        let (programs, digest) = programs(&tree, !self.without_store)?;
        let probes = learn(&programs, &work)?;
        eprintln!(
            "mutants: built and learned from {} probes in {} s",
            probes.len(),
            begin.elapsed().as_secs()
        );
        let record = Record::open(&work, &tree, digest, self.resume)?;
        self.ask(&chosen, &probes, &record)?;
        let fates = record.fates();
        let told = report(&chosen, &fates);
        println!("{} changes do not compile and do not count", tree.unviable.len());
        if told.open > 0 {
            return Err(format!("{} changes are left: go on with --resume", told.open).into());
        }
        if told.share() < self.least {
            return Err(format!("less than {}% were noticed", self.least).into());
        }
        Ok(())
    }

    /// The changes to look at.
    fn chosen(&self, mutants: Vec<Mutant>) -> Vec<Mutant> {
        let is_meant = |m: &Mutant| self.files.is_empty() || self.files.contains(&m.file);
        let mut meant: Vec<Mutant> = mutants.into_iter().filter(is_meant).collect();
        if let Some(count) = self.sample {
            fastrand::Rng::with_seed(self.seed).shuffle(&mut meant);
            meant.truncate(count);
            meant.sort_by_key(|mutant| mutant.id);
        }
        meant
    }

    /// Asks the tests about all changes that nothing is known of.
    fn ask(&self, chosen: &[Mutant], probes: &[Probe], record: &Record) -> Result<()> {
        let known = record.fates();
        let mut open: Vec<&Mutant> =
            chosen.iter().filter(|mutant| !known.contains_key(&mutant.key())).collect();
        // At random, so that what was found so far says something of all.
        fastrand::Rng::with_seed(self.seed).shuffle(&mut open);
        let begin = Instant::now();
        let limit = self.minutes.map(|minutes| Duration::from_secs(minutes * 60));
        let next = AtomicUsize::new(0);
        let reached: HashSet<u32> =
            probes.iter().flat_map(|probe| &probe.reached).copied().collect();
        let failed: Mutex<Option<String>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while limit.is_none_or(|limit| begin.elapsed() < limit)
                        && let Some(mutant) = open.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let fate = match reached.contains(&mutant.id) {
                            false => Ok(MutantFate::NotReached),
                            true => notices(probes, mutant.id).map(|by| match by {
                                Some(by) => MutantFate::Noticed(by),
                                None => MutantFate::Survived,
                            }),
                        };
                        if let Err(error) = fate.and_then(|fate| record.add(mutant, fate)) {
                            *lock(&failed) = Some(error.to_string());
                            return;
                        }
                    }
                });
            }
        });
        match lock(&failed).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// What notices, in the order of cost, and a digest of all of it.
fn programs(tree: &SourceTree, with_store: bool) -> Result<(Vec<Arc<TestProgram>>, String)> {
    let tests = |package| ["test", "--no-run", "--package", package, "--lib"];
    let simulator = ["build", "--package", "torc-sim", "--bin", "torc-sim"];
    let mut wanted =
        vec![("engine", "torc-engine", tests("torc-engine")), ("simulator", "torc-sim", simulator)];
    if with_store {
        wanted.push(("store", "torc-server", tests("torc-server")));
    }
    let mut digest = Sha256::new();
    let mut list = Vec::new();
    for (name, package, args) in wanted {
        let file = tree.build(&args)?;
        digest.update(fs::read(&file)?);
        list.push(TestProgram::new(name, file, tree.package(package)));
    }
    let digest = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok((list, digest))
}

fn learn(programs: &[Arc<TestProgram>], work: &Path) -> Result<Vec<Probe>> {
    let mut probes = Vec::new();
    for program in programs {
        if program.name == "simulator" {
            for (from, count) in SEEDS {
                let (from, count) = (from.to_string(), count.to_string());
                let args = ["--threads", "1", "--from", &from, "--seeds", &count];
                probes.extend(program.probe(&args, work)?);
            }
        } else {
            probes.extend(program.probes(work)?);
        }
    }
    Ok(probes)
}

/// What became of changes, in a file that survives the call.
struct Record {
    file: Mutex<fs::File>,
    known: Mutex<HashMap<String, MutantFate>>,
    digests: HashMap<String, String>,
    tests: String,
}

impl Record {
    fn open(work: &Path, tree: &SourceTree, tests: String, resume: bool) -> Result<Self> {
        let path: PathBuf = work.join("fates.tsv");
        let digests: HashMap<String, String> =
            tree.files.iter().map(|file| (file.name.clone(), file.digest())).collect();
        let mut known = HashMap::new();
        if resume && path.exists() {
            for line in fs::read_to_string(&path)?.lines() {
                let mut columns = line.split('\t');
                let (Some(key), Some(source), Some(by), Some(word)) =
                    (columns.next(), columns.next(), columns.next(), columns.next())
                else {
                    continue;
                };
                let file = key.split(':').next().unwrap_or_default();
                let is_same = digests.get(file).is_some_and(|digest| digest == source);
                let Some(fate) = MutantFate::read(word) else { continue };
                let holds = is_same && (matches!(fate, MutantFate::Noticed(_)) || by == tests);
                if holds {
                    known.insert(key.to_owned(), fate);
                } else {
                    known.remove(key);
                }
            }
        }
        let file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .append(resume)
            .truncate(!resume)
            .open(&path)?;
        Ok(Self { file: Mutex::new(file), known: Mutex::new(known), digests, tests })
    }

    fn add(&self, mutant: &Mutant, fate: MutantFate) -> Result<()> {
        let source = self.digests.get(&mutant.file).map_or("", String::as_str);
        let line = format!("{}\t{source}\t{}\t{}\n", mutant.key(), self.tests, fate.word());
        lock(&self.file).write_all(line.as_bytes())?;
        lock(&self.known).insert(mutant.key(), fate);
        Ok(())
    }

    fn fates(&self) -> HashMap<String, MutantFate> {
        lock(&self.known).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How many of each fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct FateCounts {
    noticed: usize,
    survived: usize,
    not_reached: usize,
    open: usize,
}

impl FateCounts {
    fn add(&mut self, fate: Option<&MutantFate>) {
        match fate {
            Some(MutantFate::Noticed(_)) => self.noticed += 1,
            Some(MutantFate::Survived) => self.survived += 1,
            Some(MutantFate::NotReached) => self.not_reached += 1,
            None => self.open += 1,
        }
    }

    fn decided(self) -> usize {
        self.noticed + self.survived + self.not_reached
    }

    /// Per cent that were noticed.
    fn share(self) -> f64 {
        100.0 * self.noticed as f64 / self.decided().max(1) as f64
    }
}

/// Prints what came out, file by file, and what was not noticed.
fn report(chosen: &[Mutant], fates: &HashMap<String, MutantFate>) -> FateCounts {
    let mut all = FateCounts::default();
    let mut by_file: BTreeMap<&str, FateCounts> = BTreeMap::new();
    let mut by_program: BTreeMap<&str, usize> = BTreeMap::new();
    for mutant in chosen {
        let fate = fates.get(&mutant.key());
        all.add(fate);
        by_file.entry(&mutant.file).or_default().add(fate);
        match fate {
            Some(MutantFate::Noticed(by)) => *by_program.entry(by).or_default() += 1,
            Some(fate @ (MutantFate::Survived | MutantFate::NotReached)) => {
                println!("{}: {}", fate.word(), mutant.key());
            }
            None => {}
        }
    }
    println!("\n| file | noticed | survived | not reached | noticed of all |");
    println!("|---|---|---|---|---|");
    let row = |name: &str, told: FateCounts| {
        println!(
            "| {name} | {} | {} | {} | {:.1}% |",
            told.noticed,
            told.survived,
            told.not_reached,
            told.share()
        );
    };
    for (file, told) in &by_file {
        row(file, *told);
    }
    row("all", all);
    println!();
    for (program, count) in by_program {
        println!("noticed by {program}: {count}");
    }
    println!("{} of {} changes were noticed ({:.1}%)", all.noticed, all.decided(), all.share());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_test_reaches_counts_as_not_noticed_and_what_is_open_does_not_count() {
        let mut told = FateCounts::default();
        let noticed = MutantFate::Noticed("engine".into());
        for fate in [
            Some(&noticed),
            Some(&noticed),
            Some(&MutantFate::Survived),
            Some(&MutantFate::NotReached),
        ] {
            told.add(fate);
        }
        told.add(None);
        assert_eq!((told.decided(), told.open), (4, 1));
        assert!((told.share() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_fate_is_read_as_it_was_written() {
        for fate in [
            MutantFate::Noticed("store (hung)".into()),
            MutantFate::Survived,
            MutantFate::NotReached,
        ] {
            assert_eq!(MutantFate::read(&fate.word()), Some(fate));
        }
        assert_eq!(MutantFate::read("else"), None);
    }
}
