//! The files that runners write for jobs: logs, outputs of actions, samples of resource use.
//!
//! Where they are is what runners said when they registered, so it is not believed: only regular
//! files of our own user with the very names that runners give are counted or removed.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use torc_model::files;
use torc_model::ids::WorkflowId;

/// The places of some runners.
#[derive(Clone, Default, Debug)]
pub struct Places {
    /// Their output directories.
    pub directories: BTreeSet<String>,
    /// The workflow of each runner by its tag, which names its samples.
    pub runners: HashMap<String, WorkflowId>,
    /// Only files of these workflows.
    pub workflows: BTreeSet<WorkflowId>,
}

/// Files and their size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FoundFiles {
    /// How many.
    pub count: i64,
    /// Bytes in all.
    pub bytes: i64,
}

/// What was found.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// By workflow.
    pub files: HashMap<WorkflowId, FoundFiles>,
    /// Directories that are not there, or not for us to read.
    pub unseen: Vec<String>,
}

/// What to do with what is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Only count it.
    Count,
    /// Remove it.
    Remove,
}

/// Finds the files, and removes them if asked to. Looks at each directory once. An error tells which
/// file could not be removed; those before it are gone.
pub fn find(places: &Places, deed: Deed) -> Result<Found, String> {
    let mut found = Found::default();
    let own = rustix::process::geteuid().as_raw();
    for directory in &places.directories {
        let directory = Path::new(directory);
        let mut is_seen = false;
        for part in [files::LOGS, files::ACTIONS, files::SAMPLES] {
            let part = directory.join(part);
            let entries = match fs::read_dir(&part) {
                Ok(entries) => entries,
                Err(_) => continue,
            };
            is_seen = true;
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(workflow) = name.to_str().and_then(|name| places.workflow_of(name)) else {
                    continue;
                };
                // Of the entry itself, not of what a link points to.
                let Ok(about) = entry.metadata() else { continue };
                if !about.is_file() || about.uid() != own {
                    continue;
                }
                if deed == Deed::Remove {
                    remove(&entry.path())?;
                }
                let files = found.files.entry(workflow).or_default();
                files.count += 1;
                files.bytes += i64::try_from(about.len()).unwrap_or(i64::MAX);
            }
        }
        if !is_seen {
            found.unseen.push(directory.display().to_string());
        }
    }
    Ok(found)
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove `{}`: {error}", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Places {
    /// The workflow whose file has this name: `job_wf3_j7_r1_a1.o`, `action_wf3_2.e`,
    /// `samples_TAG.jsonl`, `nodes_TAG.jsonl`.
    fn workflow_of(&self, name: &str) -> Option<WorkflowId> {
        let workflow = match files::workflow_of(name) {
            Some(workflow) => workflow,
            None => {
                let samples = name.strip_prefix("samples_").or_else(|| name.strip_prefix("nodes_"));
                let tag = samples?.strip_suffix(".jsonl")?;
                // Agents on other nodes add a number to their runner's tag.
                let tag = tag.split_once('+').map_or(tag, |(tag, _)| tag);
                *self.runners.get(tag)?
            }
        };
        self.workflows.contains(&workflow).then_some(workflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_workflow_go_and_links_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for part in ["job_stdio", "actions", "resource_utilization"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let all = [
            "job_stdio/job_wf1_j1_r1_a1.o",
            "job_stdio/job_wf1_j1_r1_a1_steps.jsonl",
            "actions/action_wf1_4.e",
            "resource_utilization/samples_ours.jsonl",
            "job_stdio/job_wf11_j1_r1_a1.o",
            "job_stdio/job_wfx_j1.o",
            "job_stdio/notes.txt",
            "resource_utilization/samples_theirs.jsonl",
        ];
        for name in all {
            fs::write(dir.path().join(name), "12345").unwrap();
        }
        let link = dir.path().join("job_stdio/job_wf1_j2_r1_a1.o");
        std::os::unix::fs::symlink("notes.txt", &link).unwrap();
        let gone = "/nowhere/at/all".to_owned();
        let places = Places {
            directories: [dir.path().to_str().unwrap().to_owned(), gone.clone()].into(),
            runners: [("ours".to_owned(), WorkflowId(1))].into(),
            workflows: [WorkflowId(1)].into(),
        };
        let counted = find(&places, Deed::Count).unwrap();
        assert_eq!(counted.files[&WorkflowId(1)], FoundFiles { count: 4, bytes: 20 });
        assert_eq!(counted.unseen, [gone]);
        assert_eq!(find(&places, Deed::Remove).unwrap().files, counted.files);
        let left = all.iter().filter(|name| dir.path().join(name).exists()).count();
        assert_eq!((left, link.symlink_metadata().is_ok()), (4, true));
        assert!(find(&places, Deed::Remove).unwrap().files.is_empty(), "a second time is nothing");
    }
}
