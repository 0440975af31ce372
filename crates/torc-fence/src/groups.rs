//! Control groups of runners: `torc-KEY` below the group of the runner, with one group per process
//! that has a memory limit. Found by name on every hierarchy, because a dead runner cannot say
//! where its groups are.
//!
//! A living runner holds a shared `flock` on its group's directory. The kernel gives it up however
//! the runner dies, so a lock that can be taken tells that the group is abandoned.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// What the name of a runner's group begins with.
pub const PREFIX: &str = "torc-";
/// What is added for the group that the runner itself moves to, where version 2 asks for it.
pub const RUNNER_SUFFIX: &str = "-runner";
/// Hosts with more groups than this are not searched to the end.
const MOST: usize = 100_000;

/// A runner's group, as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The key of its runner.
    pub key: String,
    /// Its directory.
    pub dir: PathBuf,
    /// It holds processes of jobs; else the runner itself with its guard.
    pub is_of_jobs: bool,
}

/// Takes the lock that shows that the owner of this group lives, for as long as the file is open.
pub fn hold(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    flock(&file, FlockOperation::NonBlockingLockShared)?;
    Ok(file)
}

/// No living runner holds the lock of the group.
pub fn is_abandoned(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// The groups of runners on this host.
pub fn all() -> Vec<Found> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    let mut seen = 0;
    for top in hierarchies(&mounts) {
        search(&top, &mut found, &mut seen);
    }
    found
}

/// The groups of these runners.
pub fn of(keys: &[&str]) -> Vec<Found> {
    all().into_iter().filter(|found| keys.contains(&found.key.as_str())).collect()
}

/// Where hierarchies are mounted that runners make groups in: version 2, and memory of version 1.
fn hierarchies(mountinfo: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1).unwrap_or(""));
        let is_ours =
            kind == "cgroup2" || kind == "cgroup" && options.split(',').any(|o| o == "memory");
        is_ours.then(|| PathBuf::from(point))
    };
    mountinfo.lines().filter_map(of).collect()
}

fn search(top: &Path, found: &mut Vec<Found>, seen: &mut usize) {
    let mut open = vec![top.to_path_buf()];
    while let Some(dir) = open.pop() {
        *seen += 1;
        if *seen > MOST {
            tracing::warn!(MOST, "there are too many control groups to look at all of them");
            return;
        }
        for child in subdirectories(&dir) {
            match child.file_name().and_then(|name| name.to_str()).and_then(key_of) {
                Some(key) => {
                    let is_of_jobs = !child.to_string_lossy().ends_with(RUNNER_SUFFIX);
                    found.push(Found { key: key.to_owned(), dir: child, is_of_jobs });
                }
                None => open.push(child),
            }
        }
    }
}

/// The key in the name of a runner's group: letters, digits and hyphens as servers make them.
fn key_of(name: &str) -> Option<&str> {
    let key = name.strip_prefix(PREFIX)?;
    let key = key.strip_suffix(RUNNER_SUFFIX).unwrap_or(key);
    (!key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')).then_some(key)
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// The processes in a group and in those below it.
pub fn pids(dir: &Path) -> Vec<i32> {
    let mut pids = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
        open.extend(subdirectories(&dir));
    }
    pids
}

/// Lets nothing in the group run any more. Only version 2 can do that; in version 1 the processes
/// are stopped one by one.
pub fn freeze(dir: &Path) {
    // The file is there in version 2 only.
    if dir.join("cgroup.freeze").exists()
        && let Err(error) = fs::write(dir.join("cgroup.freeze"), "1")
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot freeze a control group");
    }
}

/// Kills everything in the group and below, where version 2 offers it.
pub fn kill(dir: &Path) -> bool {
    dir.join("cgroup.kill").exists() && fs::write(dir.join("cgroup.kill"), "1").is_ok()
}

/// Removes the group and those below it. False when processes are in it.
pub fn remove(dir: &Path) -> bool {
    for child in subdirectories(dir) {
        remove(&child);
    }
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Removes the empty groups in `parent` whose runners have died. Answers how many there were.
pub fn remove_abandoned(parent: &Path) -> usize {
    let is_its = |dir: &PathBuf| {
        dir.file_name().and_then(|name| name.to_str()).is_some_and(|name| key_of(name).is_some())
    };
    subdirectories(parent)
        .into_iter()
        .filter(is_its)
        .filter(|dir| is_abandoned(dir) && pids(dir).is_empty() && remove(dir))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_with_memory_are_searched() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 24 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let expected = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(hierarchies(mounts), expected);
    }

    #[test]
    fn groups_are_known_by_name_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/b/torc-12ab-7/p1", "torc-12ab-7-runner", "torc-x y", "torc-", "other"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let mut found = Vec::new();
        search(dir.path(), &mut found, &mut 0);
        let mut keys: Vec<&str> = found.iter().map(|f| f.key.as_str()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["12ab-7", "12ab-7"]);
    }

    #[test]
    fn only_groups_without_owner_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["torc-aa/p1", "torc-bb/p2", "other"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let held = hold(&dir.path().join("torc-bb")).unwrap();
        assert_eq!(remove_abandoned(dir.path()), 1);
        assert!(dir.path().join("torc-bb").exists() && !dir.path().join("torc-aa").exists());
        drop(held);
        assert_eq!(remove_abandoned(dir.path()), 1);
        assert!(dir.path().join("other").exists());
    }
}
