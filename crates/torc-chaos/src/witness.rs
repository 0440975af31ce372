//! What the witnesses wrote, one file per job, and what their shells put into place.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What a witness can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WitnessWord {
    /// It runs.
    Start,
    /// It ends with this code.
    End(i64),
    /// A step of this number runs.
    StepStart(i64),
    /// A step ends with this code.
    StepEnd(i64, i64),
    /// A reduce was told this many successful items of that many.
    Reduced(i64, i64),
    /// A recovery script began; the attempt is the one that failed.
    ScriptStart,
    /// A recovery script ended well.
    ScriptEnd,
    /// An action was executed.
    Action,
    /// Another process of the same job lived when it started.
    Overlap,
    /// As many users of the limit as there may be lived when it started.
    Limit,
}

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// What the process did.
    pub word: WitnessWord,
    /// The run.
    pub run: i64,
    /// The attempt.
    pub attempt: i64,
    /// Process id of the writer.
    pub pid: i64,
    /// When, in microseconds since 1970.
    pub at: i64,
}

/// Workflow and job.
pub type JobKey = (i64, String);

/// Everything that was witnessed, per job in the order it was written.
pub type Records = BTreeMap<JobKey, Vec<Line>>;

/// A file that the shell of an attempt put into place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedFile {
    /// Workflow and job.
    pub key: JobKey,
    /// The attempt.
    pub attempt: i64,
    /// It has all that its witness writes.
    pub is_whole: bool,
}

/// Reads all files. A line that cannot be read is an error: nothing may be overlooked.
pub fn read(dir: &Path) -> io::Result<Records> {
    let mut records = Records::new();
    let Ok(workflows) = std::fs::read_dir(dir.join("witness")) else { return Ok(records) };
    for workflow in workflows {
        let workflow = workflow?;
        let Some(id) = workflow.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        for file in std::fs::read_dir(workflow.path())? {
            let path = file?.path();
            let Some(name) = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_suffix(".log"))
            else {
                continue;
            };
            let text = std::fs::read_to_string(&path)?;
            let lines = text.lines().map(|line| {
                parse(line).ok_or_else(|| {
                    io::Error::other(format!("{}: unreadable line `{line}`", path.display()))
                })
            });
            // Items are called `MAP/KEY`.
            records.insert((id, name.replace('@', "/")), lines.collect::<io::Result<_>>()?);
        }
    }
    Ok(records)
}

/// How much has been said so far, in bytes.
pub fn volume(dir: &Path) -> io::Result<u64> {
    let mut volume = 0;
    let workflows = std::fs::read_dir(dir.join("witness"))?.flatten().map(|entry| entry.path());
    for workflow in workflows.filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(workflow)?.flatten() {
            volume += file.metadata().map_or(0, |found| found.len());
        }
    }
    Ok(volume)
}

/// Reads what was put into place.
pub fn read_published(dir: &Path) -> io::Result<Vec<PublishedFile>> {
    let mut published = Vec::new();
    for file in std::fs::read_dir(dir.join("published"))? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        let mut words = name.split('.');
        let found = (|| {
            let (workflow, job) = (words.next()?.parse().ok()?, words.next()?.to_owned());
            let (_run, attempt) = (words.next()?, words.next()?.parse().ok()?);
            Some(((workflow, job), attempt))
        })();
        let (key, attempt) =
            found.ok_or_else(|| io::Error::other(format!("published/{name}: whose is it?")))?;
        let is_whole = std::fs::read(file.path())? == b"half of it\nall of it\n";
        published.push(PublishedFile { key, attempt, is_whole });
    }
    Ok(published)
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split(' ');
    let word = words.next()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let (run, attempt, pid, at, code) = (number()?, number()?, number()?, number()?, number()?);
    let word = match word {
        "start" => WitnessWord::Start,
        "end" => WitnessWord::End(code),
        "step_start" => WitnessWord::StepStart(code / 1000),
        "step_end" => WitnessWord::StepEnd(code / 1000, code % 1000),
        "reduced" => WitnessWord::Reduced(code / 1000, code % 1000),
        "script_start" => WitnessWord::ScriptStart,
        "script_end" => WitnessWord::ScriptEnd,
        "action" => WitnessWord::Action,
        "overlap" => WitnessWord::Overlap,
        "limit" => WitnessWord::Limit,
        _ => return None,
    };
    Some(Line { word, run, attempt, pid, at })
}
