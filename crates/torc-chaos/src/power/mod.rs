//! Power loss: a run of server and runner is recorded operation by operation, and then the power is
//! cut at every moment of it, with every fate of what was not flushed that a disk may choose. A new
//! server opens what is left: it must start, know all that was acknowledged, and the doctor agrees.
//!
//! ```text
//!   server, runner ──(preload/record.c)──► journal ──► tape ──► a disk after a power cut ──► new server
//!   client ──► what it was told, and how long the journal was ─────────────────────────────► must be there
//! ```

mod disk;
mod full;
mod journal;
mod process;
mod scenario;

pub use full::{FullDisks, full_disks};

use crate::plan::PlanRng;
use crate::preload;
use disk::{Cut, Entry, Fate, Tape};
use journal::{Journal, Op};
use process::RecordedProgram;
use scenario::{Ended, Told};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use torc_model::api::CompletionReport;
use torc_model::status::AttemptState;

/// A workflow that goes on after a power cut must end within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// One of so many disks is not only opened: its workflows run to their end.
const RUN_TO_THE_END: usize = 25;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub torc: PathBuf,
    /// Where to work.
    pub dir: PathBuf,
    /// Names the choice of power cuts.
    pub seed: u64,
    /// How many power cuts to play at most.
    pub cuts: usize,
    /// Runs that are recorded and cut side by side; each takes its share of the cuts.
    pub worlds: usize,
    /// Overlook the flushes of files with this in their path, as if the program did not flush them: what is
    /// lost then must be found. `torc.db-wal` is what `synchronous=OFF` would do.
    pub forget_flushes: Option<String>,
    /// Told what happens, a line each.
    pub tell: fn(&str),
}

/// What was played and what was found.
#[derive(Clone, Default, Debug)]
pub struct PowerReport {
    /// Operations on files that were recorded.
    pub operations: usize,
    /// Flushes among them.
    pub flushes: usize,
    /// Power cuts after which all, none and some of what was not flushed was there.
    pub cuts: [usize; 3],
    /// How many of them ran on to the end of their workflows.
    pub ran_on: usize,
    /// Ends of attempts that had been acknowledged, over all cuts.
    pub acknowledged: usize,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl PowerReport {
    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.flushes += other.flushes;
        for (sum, count) in self.cuts.iter_mut().zip(other.cuts) {
            *sum += count;
        }
        self.ran_on += other.ran_on;
        self.acknowledged += other.acknowledged;
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for PowerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kept, dropped, mixed] = self.cuts;
        write!(
            f,
            "{} operations with {} flushes recorded; {} power cuts ({kept} with all that was not flushed, {dropped} \
             with none of it, {mixed} with some of it or torn), {} ran on to the end, {} acknowledged ends asked for, \
             {} violations, {:.0} s",
            self.operations,
            self.flushes,
            kept + dropped + mixed,
            self.ran_on,
            self.acknowledged,
            self.violations.len(),
            self.took.as_secs_f64(),
        )
    }
}

/// What must be there, each from some operation on.
struct Promised {
    workflows: BTreeMap<i64, usize>,
    ends: BTreeMap<i64, (Ended, usize)>,
}

impl Promised {
    fn new(told: &Told, journal: &Journal, tape: &Tape) -> Self {
        let workflows =
            told.workflows.iter().map(|(id, length)| (*id, journal.count_at(*length))).collect();
        let ends = told.ends.iter();
        let ends = ends.map(|(id, (end, length))| (*id, (*end, journal.count_at(*length))));
        let mut promised = Self { workflows, ends: ends.collect() };
        // What the runner has flushed counts as well: the job has ended, and will not run again.
        for (from, content) in tape.flushed("/.torc_spool/") {
            let text = String::from_utf8_lossy(&content).into_owned();
            for report in
                text.lines().filter_map(|l| serde_json::from_str::<CompletionReport>(l).ok())
            {
                let state = match report.return_code {
                    0 => AttemptState::Completed,
                    _ => AttemptState::Failed,
                };
                let end = Ended { state, code: Some(report.return_code) };
                let known = promised.ends.entry(report.attempt.id.0).or_insert((end, from));
                known.1 = known.1.min(from);
            }
        }
        promised
    }
}

/// Records runs side by side, and plays power cuts until there were enough. A run stops at its first
/// violation and leaves its directory.
pub fn run(options: &Options) -> io::Result<PowerReport> {
    let begin = Instant::now();
    let worlds = options.worlds.clamp(1, options.cuts.max(1));
    let share = |world: usize| Options {
        seed: options.seed + world as u64,
        cuts: options.cuts / worlds + usize::from(world < options.cuts % worlds),
        ..options.clone()
    };
    let reports = std::thread::scope(|scope| {
        let play = |world| scope.spawn(move || run_one(&share(world)));
        let running: Vec<_> = (0..worlds).map(play).collect();
        let broke = || io::Error::other("a thread broke down");
        let joined = running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(broke())));
        joined.collect::<io::Result<Vec<PowerReport>>>()
    })?;
    let mut total = PowerReport::default();
    reports.into_iter().for_each(|report| total.add(report));
    total.took = begin.elapsed();
    Ok(total)
}

fn run_one(options: &Options) -> io::Result<PowerReport> {
    let begin = Instant::now();
    let dir = tempfile::Builder::new().prefix("torc-power-").tempdir_in(&options.dir)?;
    let (root, outside) = (dir.path().join("world"), dir.path().join("outside"));
    fs::create_dir(&root)?;
    fs::create_dir(&outside)?;
    let mut program = RecordedProgram::new(&options.torc, &root, &outside)?;
    program.recorder = Some(preload::build(preload::RECORD, &outside)?);
    let told = scenario::play(&mut program)?;
    program.recorder = None;
    let mut journal = Journal::read(&program.journal())?;
    let ops = std::mem::take(&mut journal.ops);
    let promised = Promised::new(&told, &journal, &Tape::new(ops.clone(), &program.root));
    let forgotten = |path: &Path| {
        let part = options.forget_flushes.as_deref();
        part.is_some_and(|part| path.to_string_lossy().contains(part))
    };
    // A flush that is forgotten stays in its place: what was told is counted by operations.
    let ops = ops.into_iter().map(|op| match op {
        Op::Sync(path) if forgotten(&path) => Op::Sync(PathBuf::new()),
        op => op,
    });
    let tape = Tape::new(ops.collect(), &program.root);
    let mut report =
        PowerReport { operations: tape.len(), flushes: tape.flushes(), ..PowerReport::default() };
    if told.ends.is_empty() || promised.workflows.len() < 3 {
        return Err(io::Error::other("the recorded run came to nothing"));
    }
    (options.tell)(&format!("{} operations, {} flushes", report.operations, report.flushes));
    for (number, cut) in cuts(options, tape.len()).into_iter().enumerate() {
        let runs_on = number % RUN_TO_THE_END == RUN_TO_THE_END - 1;
        let found = play(&mut program, &tape, &promised, cut, runs_on, &mut report)?;
        report.violations.extend(found.into_iter().map(|what| format!("{cut:?}: {what}")));
        if !report.violations.is_empty() {
            (options.tell)(&format!("everything about it is in {}", dir.keep().display()));
            break;
        }
    }
    report.took = begin.elapsed();
    Ok(report)
}

/// The power cuts, spread over the whole run: a third of each fate until every operation had its
/// cut with all and with none, and then as many different ones as asked for.
fn cuts(options: &Options, operations: usize) -> Vec<Cut> {
    let mut rng = PlanRng::new(options.seed);
    let of_fate = (options.cuts / 3).min(operations + 1);
    let spread = |i: usize, of: usize| (i * operations).div_ceil(of.max(2) - 1).min(operations);
    let mut cuts = Vec::with_capacity(options.cuts);
    for i in 0..of_fate {
        let after = spread(i, of_fate);
        cuts.push(Cut { after, fate: Fate::Kept });
        cuts.push(Cut { after, fate: Fate::Dropped });
    }
    while cuts.len() < options.cuts {
        let after = 1 + rng.below(operations as u64) as usize;
        cuts.push(Cut { after, fate: Fate::Mixed(rng.below(u64::MAX)) });
    }
    // A campaign that is interrupted has seen something of every part of the run.
    for i in (1..cuts.len()).rev() {
        cuts.swap(i, rng.below(i as u64 + 1) as usize);
    }
    cuts
}

/// Puts a disk into place and lets a new server open it.
fn play(
    program: &mut RecordedProgram,
    tape: &Tape,
    promised: &Promised,
    cut: Cut,
    runs_on: bool,
    report: &mut PowerReport,
) -> io::Result<Vec<String>> {
    let fate = match cut.fate {
        Fate::Kept => 0,
        Fate::Dropped => 1,
        Fate::Mixed(_) => 2,
    };
    report.cuts[fate] += 1;
    put(&program.root, &tape.cut(cut))?;
    if let Err(error) = program.start_server() {
        return Ok(vec![error.to_string()]);
    }
    let mut found = compare(program, promised, cut.after, report)?;
    if runs_on && found.is_empty() {
        report.ran_on += 1;
        found.extend(run_on(program)?);
        found.extend(compare(program, promised, cut.after, report)?);
    }
    found.extend(program.doctor()?.map(|text| format!("the doctor found: {text}")));
    program.kill_all()?;
    Ok(found)
}

/// All that was acknowledged is there.
fn compare(
    program: &RecordedProgram,
    promised: &Promised,
    after: usize,
    report: &mut PowerReport,
) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let talk = program.talk()?;
    let known = talk.workflows()?;
    for (id, _) in promised.workflows.iter().filter(|(_, from)| **from <= after) {
        if !known.contains(id) {
            found.push(format!("workflow {id} was acknowledged and is lost"));
        }
    }
    let mut ends = BTreeMap::new();
    for workflow in known {
        for attempt in talk.attempts(workflow)? {
            ends.insert(attempt.id.0, scenario::ended(&attempt));
        }
    }
    for (id, (end, _)) in promised.ends.iter().filter(|(_, (_, from))| *from <= after) {
        report.acknowledged += 1;
        if ends.get(id) != Some(end) {
            found.push(format!("attempt {id} ended as {end:?}, and now: {:?}", ends.get(id)));
        }
    }
    Ok(found)
}

/// Every workflow comes to its end, and no job runs again that had completed.
fn run_on(program: &mut RecordedProgram) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let talk = program.talk()?;
    fs::write(program.root.join("go"), "")?;
    for workflow in talk.workflows()? {
        let deadline = Instant::now() + PATIENCE;
        while !talk.is_complete(workflow)? && Instant::now() < deadline {
            program.start_runner(workflow)?;
            program.await_runner()?;
        }
        if !talk.is_complete(workflow)? {
            found.push(format!("workflow {workflow} does not come to its end"));
        }
        let mut completed = BTreeMap::new();
        for attempt in talk.attempts(workflow)? {
            if attempt.state == AttemptState::Completed
                && let Some(first) = completed.insert(attempt.job_id, attempt.attempt_id)
            {
                found.push(format!(
                    "job {} completed in attempt {first} and again",
                    attempt.job_name
                ));
            }
        }
    }
    Ok(found)
}

/// Replaces all that is below `root`.
fn put(root: &Path, disk: &BTreeMap<PathBuf, Entry>) -> io::Result<()> {
    fs::remove_dir_all(root)?;
    fs::create_dir(root)?;
    for (path, entry) in disk {
        let mode = match entry {
            Entry::Directory => {
                fs::create_dir(path)?;
                0o700
            }
            Entry::File(data) => {
                fs::write(path, data)?;
                0o600
            }
        };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
