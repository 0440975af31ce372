//! A campaign: worlds side by side, and a journal of what each of them came to, so that it can go on
//! after an interruption.

use crate::report::Report;
use crate::{Options, world};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a campaign is run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Worlds at the same time.
    pub worlds: usize,
    /// No world is begun after this time.
    pub time: Option<Duration>,
    /// A line per world.
    pub journal: Option<PathBuf>,
    /// Go on with the journal that is there.
    pub resumes: bool,
}

/// The first line: figures of another program or plan are not added up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Header {
    program: String,
    kills_per_world: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    seed: u64,
    report: Report,
}

struct Shared {
    total: Report,
    next_seed: u64,
    done: BTreeSet<u64>,
    /// Kills of the worlds that run now: each of them counts as full.
    promised: u64,
    journal: Option<File>,
    error: Option<io::Error>,
}

/// Runs worlds until there were enough kills or the time is over. Begins none after the first
/// violation; its directory is left.
pub fn run(options: &Options, campaign: &Campaign) -> io::Result<Report> {
    let begin = Instant::now();
    let header =
        Header { program: fingerprint(&options.torc)?, kills_per_world: options.kills_per_world };
    let mut shared = Shared {
        total: Report::default(),
        next_seed: options.seed,
        done: BTreeSet::new(),
        promised: 0,
        journal: None,
        error: None,
    };
    if let Some(path) = &campaign.journal {
        open(path, campaign.resumes, &header, &mut shared)?;
        (options.tell)(&format!("the journal is {}", path.display()));
    }
    if !shared.done.is_empty() {
        (options.tell)(&format!("so far: {}", shared.total));
    }
    let shared = Mutex::new(shared);
    let is_late = || campaign.time.is_some_and(|time| begin.elapsed() > time);
    std::thread::scope(|scope| {
        for _ in 0..campaign.worlds.max(1) {
            scope.spawn(|| {
                while !is_late()
                    && let Some((seed, kills)) = next(&shared, options)
                {
                    let result = world::run(options, seed, kills);
                    finish(&shared, options, seed, kills, result);
                }
            });
        }
    });
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    match shared.error {
        Some(error) => Err(error),
        None => Ok(shared.total),
    }
}

fn next(shared: &Mutex<Shared>, options: &Options) -> Option<(u64, u64)> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let so_far = shared.total.kills() + shared.promised;
    if so_far >= options.kills || !shared.total.violations.is_empty() || shared.error.is_some() {
        return None;
    }
    while shared.done.contains(&shared.next_seed) {
        shared.next_seed += 1;
    }
    let seed = shared.next_seed;
    shared.next_seed += 1;
    let kills = options.kills_per_world.min(options.kills - so_far);
    shared.promised += kills;
    Some((seed, kills))
}

fn finish(
    shared: &Mutex<Shared>,
    options: &Options,
    seed: u64,
    kills: u64,
    result: io::Result<Report>,
) {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.promised -= kills;
    match result {
        Ok(report) => {
            (options.tell)(&format!("seed {seed}: {report}"));
            let line = Line { seed, report: report.clone() };
            if let Some(journal) = &mut shared.journal
                && let Err(error) = write(journal, &line)
            {
                shared.error = Some(error);
            }
            shared.total.add(report);
        }
        Err(error) => shared.error = Some(error),
    }
}

fn open(path: &Path, resumes: bool, header: &Header, shared: &mut Shared) -> io::Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) if resumes => text,
        Ok(_) => {
            let text =
                format!("{} is there already\nhint: `--resume` goes on with it", path.display());
            return Err(io::Error::other(text));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    // A line that a crash cut off is no world.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let mut lines = whole.lines();
    if let Some(first) = lines.next() {
        let found: Header = serde_json::from_str(first).map_err(io::Error::other)?;
        if found != *header {
            let text = "the journal is of another program or of worlds of another size\n\
                        hint: give another `--journal`, or remove this one";
            return Err(io::Error::other(text));
        }
    }
    for line in lines {
        let line: Line = serde_json::from_str(line).map_err(io::Error::other)?;
        shared.done.insert(line.seed);
        shared.total.add(line.report);
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.set_len(whole.len() as u64)?;
    if whole.is_empty() {
        write(&mut file, header)?;
    }
    shared.journal = Some(file);
    Ok(())
}

fn write(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(value).map_err(io::Error::other)?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Tells one build of the program from another.
fn fingerprint(torc: &Path) -> io::Result<String> {
    let digest = Sha256::digest(std::fs::read(torc)?);
    Ok(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        Shared {
            total: Report::default(),
            next_seed: 1,
            done: BTreeSet::new(),
            promised: 0,
            journal: None,
            error: None,
        }
    }

    #[test]
    fn a_campaign_goes_on_where_its_journal_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let header = Header { program: "p".into(), kills_per_world: 60 };
        let mut first = shared();
        open(&path, false, &header, &mut first).unwrap();
        let mut report = Report { starts: 7, ..Report::default() };
        report.killed.insert("server".into(), 60);
        write(first.journal.as_mut().unwrap(), &Line { seed: 1, report }).unwrap();
        // The machine dies in the middle of the next line.
        first.journal.as_mut().unwrap().write_all(b"{\"seed\":2,\"rep").unwrap();

        assert!(open(&path, false, &header, &mut shared()).is_err(), "only when asked to");
        let mut again = shared();
        open(&path, true, &header, &mut again).unwrap();
        assert_eq!((again.total.kills(), again.total.starts), (60, 7));
        assert_eq!(again.done, BTreeSet::from([1]));
        write(again.journal.as_mut().unwrap(), &Line { seed: 2, report: Report::default() })
            .unwrap();
        let mut third = shared();
        open(&path, true, &header, &mut third).unwrap();
        assert_eq!(third.done, BTreeSet::from([1, 2]));

        let other = Header { program: "q".into(), ..header };
        assert!(open(&path, true, &other, &mut shared()).is_err(), "figures of two programs");
    }
}
