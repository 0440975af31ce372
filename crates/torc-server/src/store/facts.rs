//! What the disk says about a workflow's files, and which jobs that makes run again.

use rusqlite::{Connection, params};
use std::collections::{HashMap, HashSet};
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
    /// Modification time and size; none: not there.
    pub found: Option<(i64, i64)>,
}

/// The files of a workflow, not yet looked at.
pub fn list(db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<FileFact>> {
    let mut statement = db.prepare_cached(
        "SELECT f.id, f.name, f.path, w.directory,
                EXISTS (SELECT 1 FROM job_item i JOIN job j ON j.id = i.job_id
                        WHERE i.item_id = f.id AND i.kind = 'output_file' AND j.workflow_id = f.workflow_id),
                EXISTS (SELECT 1 FROM job_item i JOIN job j ON j.id = i.job_id
                        WHERE i.item_id = f.id AND i.kind = 'input_file' AND j.workflow_id = f.workflow_id)
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
            found: None,
        })
    })?;
    rows.collect()
}

/// The files of a plan that is not stored yet, in its order and not yet looked at.
pub fn of_plan(plan: &Plan, directory: Option<&str>) -> Vec<FileFact> {
    let used = |by: fn(&Job) -> &Vec<usize>| -> HashSet<usize> { plan.jobs.iter().flat_map(by).copied().collect() };
    let (outputs, inputs) = (used(|job| &job.output_files), used(|job| &job.input_files));
    let fact = |(index, file): (usize, &File)| FileFact {
        id: 0,
        name: file.name.clone(),
        path: file.path.clone(),
        place: directory.map_or_else(|| PathBuf::from(&file.path), |dir| Path::new(dir).join(&file.path)),
        is_source: !outputs.contains(&index),
        is_input: inputs.contains(&index),
        found: None,
    };
    plan.files.iter().enumerate().map(fact).collect()
}

/// Looks at every file.
pub fn look(files: &mut [FileFact]) {
    for file in files {
        file.found = std::fs::metadata(&file.place).ok().map(|meta| {
            let modified = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            (modified.as_millis() as i64, meta.len() as i64)
        });
    }
}

/// Writes down what was seen of the files that no job writes.
pub fn record(db: &Connection, files: &[FileFact]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE file SET mtime_ms = ?2, size = ?3 WHERE id = ?1")?;
    for file in files.iter().filter(|f| f.is_source) {
        let (mtime, size) = file.found.unzip();
        update.execute(params![file.id, mtime, size])?;
    }
    Ok(())
}

/// The jobs that must run again because of a file, each with the reason.
pub fn changed_jobs(db: &Connection, id: WorkflowId, files: &[FileFact]) -> rusqlite::Result<HashMap<JobId, String>> {
    let mut recorded: HashMap<i64, (Option<i64>, Option<i64>)> = HashMap::new();
    let mut statement = db.prepare_cached("SELECT id, mtime_ms, size FROM file WHERE workflow_id = ?1")?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        recorded.insert(row.get(0)?, (row.get(1)?, row.get(2)?));
    }
    let mut users = db.prepare_cached(
        "SELECT i.job_id, (SELECT max(a.ended_ms) FROM attempt a WHERE a.job_id = i.job_id AND a.state = 'completed')
         FROM job_item i JOIN job j ON j.id = i.job_id
         WHERE i.item_id = ?1 AND i.kind = ?2 AND j.workflow_id = ?3 AND j.status = 5",
    )?;
    let mut why = HashMap::new();
    for file in files {
        let mut of = |kind: &str| -> rusqlite::Result<Vec<(JobId, Option<i64>)>> {
            users.query_map(params![file.id, kind, id.0], |row| Ok((JobId(row.get(0)?), row.get(1)?)))?.collect()
        };
        let reason = if file.is_source {
            let then = recorded.get(&file.id).copied().unwrap_or_default();
            source_change(file, then).map(|reason| ("input_file", reason))
        } else {
            let written = of("output_file")?.into_iter().filter_map(|(_, ended)| ended).max();
            match (file.found, written) {
                (None, _) => Some(("output_file", format!("its output `{}` is missing", file.path))),
                (Some((mtime, _)), Some(ended)) if mtime > ended + SLACK_MS => {
                    Some(("input_file", format!("its input `{}` was changed after the run", file.path)))
                }
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

fn source_change(file: &FileFact, (mtime, size): (Option<i64>, Option<i64>)) -> Option<String> {
    match (file.found, mtime.zip(size)) {
        (Some(now), Some(then)) if now == then => None,
        (Some((_, now)), Some((_, then))) if now != then => {
            Some(format!("its input `{}` changed from {then} to {now} bytes", file.path))
        }
        (Some(_), Some(_)) => Some(format!("its input `{}` was modified", file.path)),
        (Some(_), None) => Some(format!("its input `{}` appeared", file.path)),
        (None, Some(_)) => Some(format!("its input `{}` is gone", file.path)),
        (None, None) => None,
    }
}

/// Files that jobs read, no job writes, and that are not there.
pub fn missing_inputs(files: &[FileFact]) -> Vec<&FileFact> {
    files.iter().filter(|f| f.is_source && f.is_input && f.found.is_none()).collect()
}
