//! What the witnesses wrote, one file per job.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What a witness can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// It runs.
    Start,
    /// It ends with this code.
    End(i64),
    /// A recovery script began; the attempt is the one that failed.
    ScriptStart,
    /// A recovery script ended well.
    ScriptEnd,
    /// An action was executed.
    Action,
    /// Another process of the same job lived when it started.
    Overlap,
    /// Another user of the limit lived when it started.
    Limit,
}

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// What.
    pub word: Word,
    /// The run.
    pub run: i64,
    /// The attempt.
    pub attempt: i64,
    /// Who.
    pub pid: i64,
    /// When, in microseconds since 1970.
    pub at: i64,
}

/// Workflow and job.
pub type JobKey = (i64, String);

/// Everything that was witnessed, per job in the order it was written.
pub type Records = BTreeMap<JobKey, Vec<Line>>;

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
            let name =
                path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            if path.extension().is_none_or(|ending| ending != "log") {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            let lines = text.lines().map(|line| {
                parse(line).ok_or_else(|| {
                    io::Error::other(format!("{}: unreadable line `{line}`", path.display()))
                })
            });
            records.insert((id, name), lines.collect::<io::Result<_>>()?);
        }
    }
    Ok(records)
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split(' ');
    let word = words.next()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let (run, attempt, pid, at, code) = (number()?, number()?, number()?, number()?, number()?);
    let word = match word {
        "start" => Word::Start,
        "end" => Word::End(code),
        "script_start" => Word::ScriptStart,
        "script_end" => Word::ScriptEnd,
        "action" => Word::Action,
        "overlap" => Word::Overlap,
        "limit" => Word::Limit,
        _ => return None,
    };
    Some(Line { word, run, attempt, pid, at })
}
