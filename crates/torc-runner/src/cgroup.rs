//! Memory limits by control group, version 1 or 2, where the kernel lets us write them. Where it
//! does not, the monitor enforces limits by sampling.
//!
//! A job joins its group by itself before its command begins (see [`JOIN_SCRIPT`]), so that nothing
//! it does can happen outside, and no privileged call is needed between fork and exec.

use crate::procfs::ProcessTable;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use torc_fence::groups;

/// Run by `sh` as `sh -c JOIN_SCRIPT torc <procs file> <program> <argument>...`. A failing join is
/// not fatal: the group then stays empty, which shows in its peak, and sampling takes over.
pub const JOIN_SCRIPT: &str = r#"{ echo $$ > "$1"; } 2>/dev/null; shift; exec "$@""#;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    V1,
    V2,
}

/// The place below which a runner makes one group per limited process.
#[derive(Debug)]
pub struct Cgroups {
    version: Version,
    dir: PathBuf,
    /// Shows others that the groups have an owner: the lock goes with this process.
    _lock: Option<File>,
}

impl Cgroups {
    /// Finds a place where groups with a memory limit can be made; `key` names this runner. None:
    /// not on this machine.
    ///
    /// `guard` is the runner's guard process, or 0.
    pub fn detect(key: &str, guard: i32) -> Option<Self> {
        let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let pids = [std::process::id().to_string(), guard.to_string()];
        let dirs = own_dirs(&memberships, &mounts);
        for (_, own) in &dirs {
            let removed = groups::remove_abandoned(own);
            if removed > 0 {
                tracing::info!(removed, "removed control groups of runners that were killed");
            }
        }
        dirs.into_iter().find_map(|(version, own)| Self::prepare(version, &own, key, &pids))
    }

    fn prepare(version: Version, own: &Path, key: &str, pids: &[String; 2]) -> Option<Self> {
        let dir = own.join(format!("{}{key}", groups::PREFIX));
        if version == Version::V2 {
            delegate_memory(own, key, pids)?;
        }
        let lock = make_held(&dir)?;
        let cgroups = Self { version, dir, _lock: Some(lock) };
        if version == Version::V2
            && fs::write(cgroups.dir.join("cgroup.subtree_control"), "+memory").is_err()
        {
            return None;
        }
        // Permission to make a directory does not mean that limits can be set: try one.
        let probe = cgroups.create("probe", 64 << 20, false).ok()?;
        let works = probe.oom_kills().is_some();
        probe.remove();
        works.then_some(cgroups)
    }

    /// Makes a group that holds at most `limit_bytes`. Beyond that the kernel ends all of it where
    /// it can, or one process, if the job copes with that.
    pub fn create(
        &self,
        name: &str,
        limit_bytes: u64,
        copes_with_kills: bool,
    ) -> io::Result<Group> {
        let group = Group { version: self.version, dir: self.dir.join(name) };
        fs::create_dir(&group.dir)?;
        let limit = limit_bytes.to_string();
        let result = match self.version {
            Version::V1 => {
                let set = fs::write(group.dir.join("memory.limit_in_bytes"), &limit);
                // Swap must not become a way around the limit; the file is absent where swap is not
                // counted.
                let _ = fs::write(group.dir.join("memory.memsw.limit_in_bytes"), &limit);
                set
            }
            Version::V2 => {
                let set = fs::write(group.dir.join("memory.max"), &limit);
                let _ = fs::write(group.dir.join("memory.swap.max"), "0");
                // Half a job is of no use: a shell would go on with its next line.
                if !copes_with_kills {
                    let _ = fs::write(group.dir.join("memory.oom.group"), "1");
                }
                set
            }
        };
        if result.is_err() {
            group.remove();
        }
        result.map(|()| group)
    }

    /// Removes the place, if all its groups are gone.
    pub fn remove(&self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// One group with a limit.
#[derive(Debug)]
pub struct Group {
    version: Version,
    dir: PathBuf,
}

impl Group {
    /// A process that writes its pid there joins.
    pub fn procs_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// How many processes the kernel has killed for exceeding the limit.
    pub fn oom_kills(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// Highest use, file cache included. 0 means that no process ever joined.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// Use at this moment.
    pub fn current_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// No process is in it now.
    pub fn is_empty(&self) -> bool {
        self.pids().is_empty()
    }

    /// Who is in it now.
    pub fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.procs_file()).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Lets nothing in it run any more, where the kernel can do that.
    pub fn freeze(&self) {
        groups::freeze(&self.dir);
    }

    /// Ends everything in it at once. Answers with what was there.
    pub fn end(&self, deadline: Instant) -> Vec<i32> {
        self.freeze();
        if groups::kill(&self.dir) {
            return Vec::new();
        }
        let find = |table: &ProcessTable| {
            let pids = self.pids();
            table.descendants(pids.into_iter().filter(|pid| table.find(*pid).is_some()))
        };
        torc_fence::end(find, deadline).killed
    }

    /// Removes the empty group; a group that is not empty stays and is said to.
    pub fn remove(&self) -> bool {
        fs::remove_dir(&self.dir).is_ok()
    }
}

/// Makes the runner's group and takes its lock. Another runner that starts at this moment may take the
/// group, not yet locked, for one whose runner was killed, and remove it; it is made again then.
fn make_held(dir: &Path) -> Option<File> {
    for _ in 0..16 {
        fs::create_dir(dir).ok()?;
        if let Ok(lock) = groups::hold(dir)
            && dir.exists()
        {
            return Some(lock);
        }
        groups::remove(dir);
    }
    None
}

/// Version 2 hands a controller to children only if their parent has no processes of its own. When
/// we and our guard are alone in our group we move one level down; when others are there it is not
/// ours to rearrange.
fn delegate_memory(own: &Path, key: &str, pids: &[String; 2]) -> Option<()> {
    let words = |file: &str| fs::read_to_string(own.join(file)).ok();
    if !words("cgroup.controllers")?.split_whitespace().any(|c| c == "memory") {
        return None;
    }
    if words("cgroup.subtree_control")?.split_whitespace().any(|c| c == "memory") {
        return Some(());
    }
    if fs::write(own.join("cgroup.subtree_control"), "+memory").is_ok() {
        return Some(());
    }
    let there = words("cgroup.procs")?;
    let there: Vec<&str> = there.split_whitespace().collect();
    if !there.iter().all(|pid| pids.iter().any(|ours| ours == pid)) {
        return None;
    }
    let leaf = own.join(format!("{}{key}{}", groups::PREFIX, groups::RUNNER_SUFFIX));
    fs::create_dir(&leaf).ok()?;
    for pid in there {
        fs::write(leaf.join("cgroup.procs"), pid).ok()?;
    }
    fs::write(own.join("cgroup.subtree_control"), "+memory").ok()
}

/// The directories of our own groups that may control memory, version 2 first.
fn own_dirs(memberships: &str, mountinfo: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        // 36 35 98:0 /root /mount/point rw,noatime - cgroup cgroup rw,memory
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut left = left.split(' ').skip(3);
        let (Some(root), Some(point)) = (left.next(), left.next()) else { continue };
        let mut right = right.split(' ');
        let (kind, options) = (right.next().unwrap_or(""), right.nth(1).unwrap_or(""));
        let version = match kind {
            "cgroup2" => Version::V2,
            "cgroup" if options.split(',').any(|o| o == "memory") => Version::V1,
            _ => continue,
        };
        let membership = memberships.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let matches = match version {
                Version::V2 => number == "0" && controllers.is_empty(),
                Version::V1 => controllers.split(',').any(|c| c == "memory"),
            };
            matches.then_some(path)
        });
        let Some(path) = membership else { continue };
        // Inside a container the mount shows only a part of the tree.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        found.push((version, Path::new(point).join(below)));
    }
    found.sort_by_key(|(version, _)| *version == Version::V1);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_groups_are_found_in_hybrid_and_container_layouts() {
        let memberships = "4:memory:/slurm/job_7\n2:cpu,cpuacct:/x\n0::/user.slice/a.scope\n";
        let mountinfo = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                         32 24 0:28 /user.slice /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let expected = [
            (Version::V2, PathBuf::from("/sys/fs/cgroup/unified/a.scope")),
            (Version::V1, PathBuf::from("/sys/fs/cgroup/memory/slurm/job_7")),
        ];
        assert_eq!(own_dirs(memberships, mountinfo), expected);
        assert_eq!(own_dirs("", mountinfo), []);
    }

    /// Version 2 with memory is not to be had on every machine: a directory of plain files stands
    /// in for the kernel's.
    #[test]
    fn version_2_moves_the_runner_down_only_when_it_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path();
        fs::write(own.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        let pids = ["10".to_owned(), "9".to_owned()];
        fs::write(own.join("cgroup.procs"), "10\n11\n").unwrap();
        // Plain files accept every write, so the kernel's refusal is played by a directory in the
        // file's place.
        fs::remove_file(own.join("cgroup.subtree_control")).unwrap();
        fs::create_dir(own.join("cgroup.subtree_control")).unwrap();
        assert_eq!(delegate_memory(own, "k", &pids), None);
        assert!(!own.join("torc-k-runner").exists());
        fs::remove_dir(own.join("cgroup.subtree_control")).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "cpu memory\n").unwrap();
        assert_eq!(delegate_memory(own, "k", &pids), Some(()));
        fs::write(own.join("cgroup.controllers"), "cpu pids\n").unwrap();
        assert_eq!(delegate_memory(own, "k", &pids), None);
    }

    #[test]
    fn version_2_files_are_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = Cgroups { version: Version::V2, dir: dir.path().into(), _lock: None };
        let group = cgroups.create("a1", 4096, false).unwrap();
        assert_eq!(fs::read_to_string(group.dir.join("memory.max")).unwrap(), "4096");
        assert_eq!(fs::read_to_string(group.dir.join("memory.oom.group")).unwrap(), "1");
        assert_eq!(group.oom_kills(), None);
        fs::write(group.dir.join("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
            .unwrap();
        fs::write(group.dir.join("memory.peak"), "4096\n").unwrap();
        fs::write(group.procs_file(), "5\n6\n").unwrap();
        assert_eq!(
            (group.oom_kills(), group.peak_bytes(), group.pids()),
            (Some(2), Some(4096), vec![5, 6])
        );
    }
}
