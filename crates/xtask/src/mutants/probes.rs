//! What may notice a change: tests of a program, or histories of the simulator. Each is run once without
//! a change to learn which changes it reaches, and later only for those.

use crate::Result;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Tests of one program that take less than this together run in one process.
const TOGETHER: Duration = Duration::from_millis(400);

/// What takes longer is asked last.
const QUICK: Duration = Duration::from_millis(300);

/// What a process may have at most: a loop that never ends must not take the machine's memory.
const MEMORY_KIB: u64 = 6 << 20;

/// A change that lets a test run this much longer than without is noticed.
const SLOWER: u32 = 10;

/// And this long in addition: the machine may do something else.
const PATIENCE: Duration = Duration::from_secs(10);

/// Property tests and processes: the same in each run.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("PROPTEST_RNG_SEED", "17"),
    ("PROPTEST_CASES", "64"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true"),
    ("RUST_BACKTRACE", "0"),
];

/// A program that notices changes.
pub struct TestProgram {
    /// For people.
    pub name: &'static str,
    file: PathBuf,
    folder: PathBuf,
}

/// One part of what a program tests.
pub struct Probe {
    program: Arc<TestProgram>,
    /// What it is called with, besides what names tests.
    args: Vec<String>,
    /// The name of a test; tests of one program can run together.
    test: Option<String>,
    took: Duration,
    /// The changes that it reaches.
    pub reached: HashSet<u32>,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    Passed,
    Failed,
    Hung,
}

impl TestProgram {
    /// A program at `file`, run in `folder`.
    pub fn new(name: &'static str, file: PathBuf, folder: PathBuf) -> Arc<Self> {
        Arc::new(Self { name, file, folder })
    }

    /// The names of its tests.
    fn tests(&self) -> Result<Vec<String>> {
        let output = Command::new(&self.file)
            .args(["--list", "--format", "terse"])
            .current_dir(&self.folder)
            .output()?;
        let lines = String::from_utf8(output.stdout)?;
        Ok(lines
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }

    /// Its tests, each as a probe.
    pub fn probes(self: &Arc<Self>, work: &Path) -> Result<Vec<Probe>> {
        let tests = self.tests()?;
        if tests.is_empty() {
            return Err(format!("{} has no tests", self.name).into());
        }
        let mut probes = Vec::new();
        for test in tests {
            let args = ["--exact", "--quiet", "--test-threads", "1"].map(str::to_owned).to_vec();
            probes.extend(self.learn(args, Some(test), work)?);
        }
        Ok(probes)
    }

    /// A call of it as a probe.
    pub fn probe(self: &Arc<Self>, args: &[&str], work: &Path) -> Result<Option<Probe>> {
        self.learn(args.iter().map(|arg| (*arg).to_owned()).collect(), None, work)
    }

    /// Runs without a change, and writes down what is reached. None: nothing is.
    fn learn(
        self: &Arc<Self>,
        args: Vec<String>,
        test: Option<String>,
        work: &Path,
    ) -> Result<Option<Probe>> {
        let reached = work.join("reached");
        if reached.exists() {
            fs::remove_file(&reached)?;
        }
        let begin = Instant::now();
        let mut command = self.command(&args, test.iter());
        command.env("ENGINE_MUTANT", "learn").env("ENGINE_MUTANT_REACHED", &reached);
        let run = finish(&mut command, Duration::from_secs(300))?;
        let took = begin.elapsed();
        let what = test.as_deref().unwrap_or("a call");
        if run != Run::Passed {
            return Err(format!("{}: {what} fails without a change", self.name).into());
        }
        if !reached.exists() {
            return Ok(None);
        }
        let ids = fs::read_to_string(&reached)?;
        let reached = ids.lines().map(str::parse).collect::<std::result::Result<_, _>>()?;
        Ok(Some(Probe { program: self.clone(), args, test, took, reached }))
    }

    fn command<'a>(&self, args: &[String], tests: impl Iterator<Item = &'a String>) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {MEMORY_KIB} && exec \"$0\" \"$@\"")])
            .arg(&self.file)
            .args(args)
            .args(tests)
            .envs(ENVIRONMENT)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// The first that notices a change, by name; None: none does.
pub fn notices(probes: &[Probe], id: u32) -> Result<Option<String>> {
    let mut left: Vec<&Probe> = probes.iter().filter(|p| p.reached.contains(&id)).collect();
    // The quick ones of each program first, programs in the order in which they were given.
    let place =
        |probe: &Probe| probes.iter().position(|other| Arc::ptr_eq(&other.program, &probe.program));
    left.sort_by_key(|probe| (probe.took > QUICK, place(probe), probe.took));
    let mut left = &left[..];
    while let Some(first) = left.first() {
        let mut took = first.took;
        let mut count = 1;
        while let Some(next) = left.get(count)
            && first.test.is_some()
            && Arc::ptr_eq(&next.program, &first.program)
            && took + next.took <= TOGETHER
        {
            took += next.took;
            count += 1;
        }
        let (now, later) = left.split_at(count);
        left = later;
        let tests = now.iter().filter_map(|probe| probe.test.as_ref());
        let mut command = first.program.command(&first.args, tests);
        command.env("ENGINE_MUTANT", id.to_string());
        match finish(&mut command, took * SLOWER + PATIENCE)? {
            Run::Passed => {}
            Run::Failed => return Ok(Some(first.program.name.to_owned())),
            Run::Hung => return Ok(Some(format!("{} (hung)", first.program.name))),
        }
    }
    Ok(None)
}

/// Waits for a process, and ends it when it takes too long. A thread reads its output: that ends with
/// the process, and no other event of a child's end comes with a deadline in the standard library.
fn finish(command: &mut Command, patience: Duration) -> Result<Run> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().ok_or("a child without its output")?;
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        // Only the end of the output counts; the channel closes with it.
        let _ = io::copy(&mut output, &mut io::sink());
        drop(over);
    });
    if is_over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        child.kill()?;
        child.wait()?;
        return Ok(Run::Hung);
    }
    Ok(if child.wait()?.success() { Run::Passed } else { Run::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, patience: Duration) -> Run {
        finish(Command::new("sh").args(["-c", script]), patience).expect("sh can be started")
    }

    #[test]
    fn a_process_passes_fails_or_hangs() {
        let long = Duration::from_secs(60);
        assert_eq!(run("echo much; exit 0", long), Run::Passed);
        assert_eq!(run("exit 3", long), Run::Failed);
        assert_eq!(run("exec sleep 60", Duration::from_millis(50)), Run::Hung);
    }
}
