//! `torc logs analyze`: what logs say went wrong, without a server: of a file, a directory or a bundle.

use super::Context;
use crate::archive;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use serde::Serialize;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use torc_model::recovery::{Excerpt, Kind, Nature, Rules, Stream, terminal_error};
use torc_model::slurm::logs::scan;

/// What is read of a log: its end says what happened last.
const TAIL: usize = 1 << 20;
/// What a bundle may unpack to.
const MAX_BUNDLE: usize = 4 << 30;
/// Directories inside of directories that are looked into.
const MAX_DEPTH: usize = 8;

/// Find what logs say went wrong: in a file, a directory, or a bundle of `torc logs bundle`
#[derive(clap::Args, Debug)]
pub struct Analyze {
    /// Log file, directory of logs, or a bundle (`.tar.gz`)
    path: PathBuf,
}

/// What one log says.
#[derive(Serialize)]
struct LogFinding {
    file: String,
    kind: Kind,
    nature: Nature,
    confidence: f64,
    line: String,
    rule: Option<String>,
}

impl Analyze {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let mut seen = SeenLog::default();
        let meta = std::fs::metadata(&self.path).map_err(Error::io("read", &self.path))?;
        let name = self.path.to_string_lossy();
        if meta.is_dir() {
            seen.directory(&self.path, MAX_DEPTH)?;
        } else if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            let bytes = std::fs::read(&self.path).map_err(Error::io("read", &self.path))?;
            archive::read_tar_gz(&bytes, MAX_BUNDLE, |name, content| seen.log(name, content))
                .map_err(|why| Error::usage(format!("`{}`: {why}", self.path.display())))?;
        } else {
            seen.file(&self.path)?;
        }
        let SeenLog { mut findings, logs } = seen;
        findings.sort_by(|a, b| a.file.cmp(&b.file));
        context.output.list("findings", &findings, findings.len() as i64, || {
            let mut table = Table::new(["file", "what happened", "what helps", "sure", "line"]);
            for found in &findings {
                table.row([
                    Field::text(&found.file),
                    Field::text(found.kind.title()),
                    Field::text(found.nature.as_str()),
                    Field::right(format!("{:.0}%", found.confidence * 100.0)),
                    Field::text(&found.line),
                ]);
            }
            table
        })?;
        let found = human::count(findings.len() as i64, "finding");
        context.output.talk(format_args!("{} read, {found}", human::count(logs, "log")));
        Ok(Exit::Success)
    }
}

#[derive(Default)]
struct SeenLog {
    findings: Vec<LogFinding>,
    logs: i64,
}

impl SeenLog {
    fn directory(&mut self, dir: &Path, depth: usize) -> Result<()> {
        let entries = std::fs::read_dir(dir).map_err(Error::io("read", dir))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() && depth > 0 {
                self.directory(&path, depth - 1)?;
            } else if meta.is_file() {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        let mut file =
            torc_fs::open(path, torc_fs::Trust::Regular).map_err(Error::io("read", path))?;
        let size = file.metadata().map_or(0, |meta| meta.len());
        let from = size.saturating_sub(TAIL as u64);
        let mut bytes = Vec::new();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from))
            .and_then(|_| file.take(TAIL as u64).read_to_end(&mut bytes))
            .map_err(Error::io("read", path))?;
        self.log(&path.to_string_lossy(), &bytes);
        Ok(())
    }

    fn log(&mut self, name: &str, content: &[u8]) {
        let Some(stream) = stream_of(name) else { return };
        self.logs += 1;
        let content = &content[content.len().saturating_sub(TAIL)..];
        let text = String::from_utf8_lossy(content).into_owned();
        let issues = scan(&text);
        let excerpt = Excerpt { stream, start: 0, text };
        // A last line that only happens to be there is no finding.
        let found = terminal_error(Rules::in_force(), &[excerpt]).filter(|found| !found.is_guess);
        if let Some(found) = found {
            self.findings.push(LogFinding {
                file: name.to_owned(),
                kind: found.kind,
                nature: found.nature,
                confidence: found.confidence,
                line: found.quote,
                rule: found.rule,
            });
        } else if let Some(issue) = issues.into_iter().max_by_key(|issue| issue.severity) {
            self.findings.push(LogFinding {
                file: name.to_owned(),
                kind: Kind::Unknown,
                nature: Nature::Unclear,
                confidence: 0.5,
                line: issue.line,
                rule: Some(issue.description),
            });
        }
    }
}

/// Which stream a log holds by its name; other files are no logs.
fn stream_of(name: &str) -> Option<Stream> {
    match Path::new(name).extension()?.to_str()? {
        "o" | "out" => Some(Stream::Stdout),
        "e" | "err" | "log" | "txt" => Some(Stream::Stderr),
        _ => None,
    }
}
