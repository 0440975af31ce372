//! A full disk at every write: the server, or the runner, finds no room from its N-th write on, for
//! once, for a few times or until it is started again. Nothing that was acknowledged may be lost,
//! and everything goes on when there is room again.

use super::process::RecordedProgram;
use super::scenario::{self, Told};
use crate::preload;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// With room again everything must end within this time.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a full disk is watched before there is room again.
const FULL: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// For how many writes there is no room.
const LENGTHS: [&str; 3] = ["1", "7", "1000000"];

/// The figures.
#[derive(Clone, Default, Debug)]
pub struct FullDisks {
    /// How often the disk was full.
    pub runs: usize,
    /// How often the process ended by that.
    pub ended: usize,
    /// Requests that were refused meanwhile.
    pub refused: usize,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for FullDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} full disks: {} servers ended, {} requests refused, {} violations, {:.0} s",
            self.runs,
            self.ended,
            self.refused,
            self.violations.len(),
            self.took.as_secs_f64(),
        )
    }
}

/// Fills the disk at the given writes of the server and of the runner, one run each. Stops at the
/// first violation.
pub fn full_disks(
    torc: &Path,
    dir: &Path,
    writes: impl IntoIterator<Item = usize>,
    tell: fn(&str),
) -> io::Result<FullDisks> {
    let begin = Instant::now();
    let mut report = FullDisks::default();
    let build = tempfile::tempdir_in(dir)?;
    let recorder = preload::build(preload::RECORD, build.path())?;
    for write in writes {
        for (turn, who) in ["server", "runner"].into_iter().enumerate() {
            let full = format!("{write}:{}", LENGTHS[(write + turn) % LENGTHS.len()]);
            let world = tempfile::Builder::new().prefix("torc-full-").tempdir_in(dir)?;
            let (root, outside) = (world.path().join("world"), world.path().join("outside"));
            fs::create_dir(&root)?;
            fs::create_dir(&outside)?;
            let mut program = RecordedProgram::new(torc, &root, &outside)?;
            program.recorder = Some(recorder.clone());
            program.full = Some((who, full.clone()));
            report.runs += 1;
            let found = one(&mut program, who, &mut report)?;
            let found = found.into_iter().map(|what| format!("{who}, write {full}: {what}"));
            report.violations.extend(found);
            if !report.violations.is_empty() {
                tell(&format!("everything about it is in {}", world.keep().display()));
                report.took = begin.elapsed();
                return Ok(report);
            }
        }
    }
    report.took = begin.elapsed();
    Ok(report)
}

fn one(
    program: &mut RecordedProgram,
    who: &str,
    report: &mut FullDisks,
) -> io::Result<Vec<String>> {
    let mut told = Told::default();
    let spec = scenario::spec("full", "true");
    // Without room it may refuse to start at all; with room it may not.
    let mut workflow = None;
    if program.start_server().is_ok() {
        workflow = scenario::create(program, &mut told, &spec).ok();
        report.refused += usize::from(workflow.is_none());
        if let Some(id) = workflow {
            program.start_runner(id)?;
            watch(program, &mut told, id, report)?;
        }
    }
    report.ended += usize::from(program.has_server_ended()? && who == "server");
    program.kill_all()?;
    program.full = None;
    program.start_server()?;
    let id = match workflow {
        Some(id) => id,
        None => scenario::create(program, &mut told, &spec)?,
    };
    let deadline = Instant::now() + PATIENCE;
    let talk = program.talk()?;
    while !talk.is_complete(id)? && Instant::now() < deadline {
        program.start_runner(id)?;
        program.await_runner()?;
    }
    let mut found = Vec::new();
    if !talk.is_complete(id)? {
        found.push(format!("workflow {id} does not come to its end"));
    }
    let now = talk.attempts(id)?;
    for (attempt, (end, _)) in &told.ends {
        let is = now.iter().find(|view| view.id.0 == *attempt).map(scenario::ended);
        if is != Some(*end) {
            found.push(format!("attempt {attempt} ended as {end:?}, and now: {is:?}"));
        }
    }
    found.extend(program.doctor()?.map(|text| format!("the doctor found: {text}")));
    Ok(found)
}

/// Notes what a client is told while there is no room, until all has ended or for a while.
fn watch(
    program: &mut RecordedProgram,
    told: &mut Told,
    workflow: i64,
    report: &mut FullDisks,
) -> io::Result<()> {
    let deadline = Instant::now() + FULL;
    let talk = program.talk()?;
    while Instant::now() < deadline && !program.has_server_ended()? && program.has_runner()? {
        match scenario::look(program, &talk, told, workflow) {
            Ok(look) if look.is_complete => return Ok(()),
            Ok(_) => {}
            Err(_) => report.refused += 1,
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
