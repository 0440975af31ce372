//! What the disk says about a workflow's files, and which jobs that makes run again.

use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{File, Job, Plan};

/// A file may be this much younger than the job that wrote it: clocks of file systems are coarse.
const SLACK_MS: i64 = 2_000;

/// A file of a workflow: where it is, and what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFact {
    /// Its row.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// As written in the spec.
    pub path: String,
    /// Where it is.
    pub place: PathBuf,
    /// No job writes it.
    pub is_source: bool,
    /// Some job reads it.
    pub is_input: bool,
    /// It is told by what it contains.
    pub by_content: bool,
    /// What is there; none: nothing.
    pub found: Option<Found>,
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

/// The files of a workflow, not yet looked at.
pub fn list(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<FileFact>> {
    let mut statement = db.prepare_cached(
        "SELECT f.id, f.name, f.path, w.directory,
                EXISTS (SELECT 1 FROM job_item i JOIN job j ON j.id = i.job_id
                        WHERE i.item_id = f.id AND i.kind = 'output_file' AND j.workflow_id = f.workflow_id),
                EXISTS (SELECT 1 FROM job_item i JOIN job j ON j.id = i.job_id
                        WHERE i.item_id = f.id AND i.kind = 'input_file' AND j.workflow_id = f.workflow_id),
                coalesce(w.settings ->> 'compare_contents', 0)
         FROM file f JOIN workflow w ON w.id = f.workflow_id WHERE f.workflow_id = ?1 ORDER BY f.id",
    )?;
    let rows = statement.query_map([id.0], |row| {
        let path: String = row.get(2)?;
        let directory: Option<String> = row.get(3)?;
        let place = directory.map_or_else(|| PathBuf::from(&path), |d| Path::new(&d).join(&path));
        Ok(FileFact {
            id: row.get(0)?,
            name: row.get(1)?,
            path,
            place,
            is_source: !row.get::<_, bool>(4)?,
            is_input: row.get(5)?,
            by_content: row.get(6)?,
            found: None,
        })
    })?;
    rows.collect()
}

/// The files of a plan that is not stored yet, in its order and not yet looked at.
pub fn of_plan(plan: &Plan, directory: Option<&str>) -> Vec<FileFact> {
    let used = |by: fn(&Job) -> &Vec<usize>| -> HashSet<usize> {
        plan.jobs.iter().flat_map(by).copied().collect()
    };
    let (outputs, inputs) = (used(|job| &job.output_files), used(|job| &job.input_files));
    let fact = |(index, file): (usize, &File)| FileFact {
        id: 0,
        name: file.name.clone(),
        path: file.path.clone(),
        place: directory
            .map_or_else(|| PathBuf::from(&file.path), |dir| Path::new(dir).join(&file.path)),
        is_source: !outputs.contains(&index),
        is_input: inputs.contains(&index),
        by_content: plan.settings.compare_contents,
        found: None,
    };
    plan.files.iter().enumerate().map(fact).collect()
}

/// Gives the files of a plan the rows that they have in the workflow.
pub fn find_rows(db: &Connection, id: WorkflowId, files: &mut [FileFact]) -> rusqlite::Result<()> {
    let mut find = db.prepare_cached("SELECT id FROM file WHERE workflow_id = ?1 AND name = ?2")?;
    for file in files {
        file.id = find.query_row(params![id.0, file.name], |row| row.get(0))?;
    }
    Ok(())
}

/// Looks at every file.
pub fn look(files: &mut [FileFact]) {
    for file in files {
        file.found = std::fs::metadata(&file.place).ok().map(|meta| {
            let modified = meta
                .modified()
                .ok()
                .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
                .unwrap_or_default();
            // What cannot be read is told by its time, like everything else.
            let hash =
                if file.by_content && file.is_source { hash(&file.place).ok() } else { None };
            Found { mtime_ms: modified.as_millis() as i64, size: meta.len() as i64, hash }
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

/// Writes down what was seen of the files that no job writes.
pub fn record(db: &Connection, files: &[FileFact]) -> rusqlite::Result<()> {
    let mut update =
        db.prepare_cached("UPDATE file SET mtime_ms = ?2, size = ?3, hash = ?4 WHERE id = ?1")?;
    for file in files.iter().filter(|f| f.is_source) {
        let found = file.found.as_ref();
        let hash = found.and_then(|f| f.hash.as_deref());
        update.execute(params![file.id, found.map(|f| f.mtime_ms), found.map(|f| f.size), hash])?;
    }
    Ok(())
}

/// The jobs that must run again because of a file, each with the reason.
pub fn changed_jobs(
    db: &Connection,
    id: WorkflowId,
    files: &[FileFact],
) -> rusqlite::Result<HashMap<JobId, String>> {
    let mut recorded: HashMap<i64, Found> = HashMap::new();
    let mut statement =
        db.prepare_cached("SELECT id, mtime_ms, size, hash FROM file WHERE workflow_id = ?1")?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        let (mtime_ms, size): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        if let Some((mtime_ms, size)) = mtime_ms.zip(size) {
            recorded.insert(row.get(0)?, Found { mtime_ms, size, hash: row.get(3)? });
        }
    }
    let mut users = db.prepare_cached(
        "SELECT i.job_id, (SELECT max(a.ended_ms) FROM attempt a WHERE a.job_id = i.job_id AND a.state = 'completed')
         FROM job_item i JOIN job j ON j.id = i.job_id
         WHERE i.item_id = ?1 AND i.kind = ?2 AND j.workflow_id = ?3 AND j.status = 5",
    )?;
    let mut why = HashMap::new();
    for file in files {
        let mut of = |kind: &str| -> rusqlite::Result<Vec<(JobId, Option<i64>)>> {
            users
                .query_map(params![file.id, kind, id.0], |row| {
                    Ok((JobId(row.get(0)?), row.get(1)?))
                })?
                .collect()
        };
        let reason = if file.is_source {
            source_change(file, recorded.get(&file.id)).map(|reason| ("input_file", reason))
        } else {
            let written = of("output_file")?.into_iter().filter_map(|(_, ended)| ended).max();
            match (&file.found, written) {
                (None, _) => {
                    Some(("output_file", format!("its output `{}` is missing", file.path)))
                }
                (Some(found), Some(ended)) if found.mtime_ms > ended + SLACK_MS => Some((
                    "input_file",
                    format!("its input `{}` was changed after the run", file.path),
                )),
                (Some(_), _) => None,
            }
        };
        if let Some((kind, reason)) = reason {
            for (job, _) in of(kind)? {
                why.entry(job).or_insert_with(|| reason.clone());
            }
        }
    }
    Ok(why)
}

fn source_change(file: &FileFact, then: Option<&Found>) -> Option<String> {
    match (&file.found, then) {
        (Some(now), Some(then)) if now.size != then.size => Some(format!(
            "its input `{}` changed from {} to {} bytes",
            file.path, then.size, now.size
        )),
        (Some(now), Some(then)) => match (&now.hash, &then.hash) {
            (Some(now), Some(then)) if now == then => None,
            (Some(_), Some(_)) => {
                Some(format!("its input `{}` contains something else", file.path))
            }
            _ if now.mtime_ms == then.mtime_ms => None,
            _ => Some(format!("its input `{}` was modified", file.path)),
        },
        (Some(_), None) => Some(format!("its input `{}` appeared", file.path)),
        (None, Some(_)) => Some(format!("its input `{}` is gone", file.path)),
        (None, None) => None,
    }
}

/// Files that jobs read, no job writes, and that are not there.
pub fn missing_inputs(files: &[FileFact]) -> Vec<&FileFact> {
    files.iter().filter(|f| f.is_source && f.is_input && f.found.is_none()).collect()
}
