//! What the disk says about a workflow's files, and what that means for the jobs that read and write
//! them.

use super::journal::{self, files, size};
use super::lookups;
use foldhash::fast::RandomState;
use rusqlite::Connection;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use torc_model::api::PlannedChange;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{File, Job, Plan};

/// A file may be this much younger than the job that wrote it: clocks of file systems are coarse.
const SLACK_MS: i64 = 2_000;

/// A file of a workflow: where it is, and what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFact {
    /// Its row; 0: it has none yet.
    pub id: i64,
    pub name: String,
    /// As written in the spec.
    pub path: String,
    /// No job writes it.
    pub is_source: bool,
    /// Some job reads it.
    pub is_input: bool,
    /// It is told by what it contains.
    pub by_content: bool,
    /// What is there; none: nothing.
    pub found: Option<Found>,
    /// What was there when the jobs that read it were last opened.
    pub recorded: Option<Found>,
    /// It was changed after the job that writes it.
    pub is_overwritten: bool,
    /// The spec puts it at another place than its row does.
    pub has_moved: bool,
    /// The spec asks for another least size than its row does.
    pub is_resized: bool,
}

/// What is there of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Modification time.
    pub mtime_ms: i64,
    /// Bytes.
    pub size: i64,
    /// Of what it contains, where that counts.
    pub hash: Option<String>,
}

/// Which jobs read and write which files, by their rows.
#[derive(Default)]
pub struct Uses {
    /// A job and a file that it reads.
    pub inputs: Vec<(JobId, i64)>,
    /// A job and a file that it writes.
    pub outputs: Vec<(JobId, i64)>,
}

/// How a job uses what it is tied to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ItemKind {
    InputFile,
    OutputFile,
    InputData,
    OutputData,
}

impl ItemKind {
    /// As a row names it.
    pub fn of(word: &str) -> Self {
        match word {
            "input_file" => Self::InputFile,
            "output_file" => Self::OutputFile,
            "input_user_data" => Self::InputData,
            _ => Self::OutputData,
        }
    }
}

/// Reads which jobs of a workflow use which files, in one pass.
pub fn uses(db: &Connection, id: WorkflowId) -> rusqlite::Result<Uses> {
    let mut uses = Uses::default();
    files::each_item(db, id, |job, kind, item| match kind {
        ItemKind::InputFile => uses.inputs.push((job, item)),
        ItemKind::OutputFile => uses.outputs.push((job, item)),
        ItemKind::InputData | ItemKind::OutputData => {}
    })?;
    Ok(uses)
}

/// The files of a workflow in the order of their rows, not yet looked at.
pub fn list(db: &Connection, id: WorkflowId, uses: &Uses) -> rusqlite::Result<Vec<FileFact>> {
    let (outputs, inputs) = (sorted_files(&uses.outputs), sorted_files(&uses.inputs));
    let by_content = lookups::compares_contents(db, id)?;
    let mut facts = Vec::new();
    files::each_file(db, id, |row| {
        facts.push(FileFact {
            id: row.id,
            name: row.name.to_owned(),
            path: row.path.to_owned(),
            is_source: outputs.binary_search(&row.id).is_err(),
            is_input: inputs.binary_search(&row.id).is_ok(),
            by_content,
            found: None,
            recorded: row.recorded,
            is_overwritten: false,
            has_moved: false,
            is_resized: false,
        });
    })?;
    facts.sort_unstable_by_key(|file| file.id);
    Ok(facts)
}

fn sorted_files(uses: &[(JobId, i64)]) -> Vec<i64> {
    let mut files: Vec<i64> = uses.iter().map(|(_, file)| *file).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Where a file is that a spec names so.
pub fn place(directory: Option<&str>, path: &str) -> PathBuf {
    directory.map_or_else(|| PathBuf::from(path), |directory| Path::new(directory).join(path))
}

/// The files of a plan, in its order and not yet looked at.
pub fn of_plan(plan: &Plan) -> Vec<FileFact> {
    let used = |by: fn(&Job) -> &Vec<usize>| -> Vec<bool> {
        let mut used = vec![false; plan.files.len()];
        plan.jobs.iter().flat_map(by).for_each(|file| used[*file] = true);
        used
    };
    let (outputs, inputs) = (used(|job| &job.output_files), used(|job| &job.input_files));
    let fact = |(index, file): (usize, &File)| FileFact {
        id: 0,
        name: file.name.clone(),
        path: file.path.clone(),
        is_source: !outputs[index],
        is_input: inputs[index],
        by_content: plan.settings.compare_contents,
        found: None,
        recorded: None,
        is_overwritten: false,
        has_moved: false,
        is_resized: false,
    };
    plan.files.iter().enumerate().map(fact).collect()
}

/// Gives the files of a plan the rows that they have in the workflow, and what was recorded there. A
/// file that is at another place now was never seen.
pub fn find_rows(
    db: &Connection,
    id: WorkflowId,
    plan: &Plan,
    files: &mut [FileFact],
) -> rusqlite::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let at: HashMap<&str, usize, RandomState> =
        files.iter().enumerate().map(|(at, file)| (file.name.as_str(), at)).collect();
    let mut known = Vec::with_capacity(files.len());
    journal::files::each_file(db, id, |row| {
        let Some(at) = at.get(row.name) else { return };
        let has_moved = row.path != files[*at].path;
        let is_resized = row.min_size != size(plan.files[*at].min_size);
        known.push((*at, row.id, has_moved, is_resized, row.recorded));
    })?;
    for (at, id, has_moved, is_resized, recorded) in known {
        let file = &mut files[at];
        (file.id, file.has_moved, file.is_resized) = (id, has_moved, is_resized);
        file.recorded = recorded.filter(|_| !has_moved);
    }
    Ok(())
}

/// Looks at every file, with two threads where there are many.
pub fn look(files: &mut [FileFact], directory: Option<&str>) {
    const MANY: usize = 2_000;
    let start = Start::new(directory);
    if files.len() < MANY {
        return files.iter_mut().for_each(|file| start.look_at(file));
    }
    let (first, second) = files.split_at_mut(files.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| first.iter_mut().for_each(|file| start.look_at(file)));
        second.iter_mut().for_each(|file| start.look_at(file));
    });
}

/// Where relative paths begin. With the directory open, the kernel walks its path once and not for
/// every file.
struct Start<'a> {
    directory: Option<&'a str>,
    open: Option<OwnedFd>,
}

impl<'a> Start<'a> {
    fn new(directory: Option<&'a str>) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = directory.and_then(|path| fs::open(path, flags, Mode::empty()).ok());
        Self { directory, open }
    }

    fn look_at(&self, file: &mut FileFact) {
        let found = match &self.open {
            Some(open) => fs::statat(open, &*file.path, AtFlags::empty()),
            None => fs::stat(place(self.directory, &file.path)),
        };
        file.found = found.ok().map(|meta| {
            // What cannot be read is told by its time, like everything else.
            let hash = match file.by_content && file.is_source {
                true => hash(&place(self.directory, &file.path)).ok(),
                false => None,
            };
            let mtime_ms = meta.st_mtime * 1_000 + meta.st_mtime_nsec / 1_000_000;
            Found { mtime_ms: mtime_ms.max(0), size: meta.st_size, hash }
        });
    }
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = torc_fs::open(path, torc_fs::Trust::Regular)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(crate::secret::hex(&hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}

/// Writes down what was seen of files that no job writes, and of written ones that were changed
/// afterwards: the jobs that read those have been opened again.
pub fn record(db: &Connection, files: &[FileFact]) -> rusqlite::Result<()> {
    for file in files.iter().filter(|file| file.is_news()) {
        let found = file.found.as_ref().map(|f| (f.mtime_ms, f.size, f.hash.as_deref()));
        journal::file_seen(db, file.id, found)?;
    }
    Ok(())
}

/// What has become of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileChange {
    /// What reads it must run again, for this reason.
    Readers(PlannedChange),
    /// What writes it must run again.
    Writers,
}

impl FileFact {
    /// What was found is to be written down.
    pub fn is_news(&self) -> bool {
        (self.is_source || self.is_overwritten) && self.found != self.recorded
    }

    /// What has become of it since it was recorded or written. `written` is when the job that writes
    /// it last succeeded.
    pub fn change(&self, written: Option<i64>) -> Option<FileChange> {
        if self.is_source {
            return self.source_change().map(FileChange::Readers);
        }
        let Some(found) = &self.found else { return Some(FileChange::Writers) };
        let is_known = self.recorded.as_ref().is_some_and(|then| then.mtime_ms == found.mtime_ms);
        let is_younger = written.is_some_and(|end| found.mtime_ms > end + SLACK_MS);
        (is_younger && !is_known).then_some(FileChange::Readers(PlannedChange::InputOverwritten))
    }

    fn source_change(&self) -> Option<PlannedChange> {
        match (&self.found, &self.recorded) {
            (Some(now), Some(then)) => match (&now.hash, &then.hash) {
                (Some(now), Some(then)) if now == then => None,
                (Some(_), Some(_)) => Some(PlannedChange::InputContent),
                _ if (now.mtime_ms, now.size) == (then.mtime_ms, then.size) => None,
                _ => Some(PlannedChange::InputModified),
            },
            (Some(_), None) => Some(PlannedChange::InputAppeared),
            (None, Some(_)) => Some(PlannedChange::InputGone),
            (None, None) => None,
        }
    }
}

/// Files that jobs read, no job writes, and that are not there.
pub fn missing_inputs(files: &[FileFact]) -> Vec<&FileFact> {
    files.iter().filter(|f| f.is_source && f.is_input && f.found.is_none()).collect()
}
