//! Ends processes all at once: first every one of them is stopped, parents before children, until a
//! look at the process table finds no other; then all are killed, until another look finds none.
//!
//! Killed one by one, a shell whose command dies first goes on to its next line: it renames a
//! half-written file into place. A process with a pending SIGSTOP does not return to its program
//! from any system call, so it cannot learn of the death of another one, nor fork.

use crate::procfs::{Process, ProcessTable};
use crate::{groups, mark, procfs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Rounds of stopping. Each finds only what was forked before its parent was stopped.
const MOST_ROUNDS: usize = 100;
/// Between two looks at processes that were killed. Their end is awaited; this is for those of
/// which no event tells, and for new ones.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// As many ends are awaited at once; descriptors are not for nothing.
const AWAITED: usize = 256;

/// Tells which processes belong to a runner.
#[derive(Clone, Debug)]
pub struct RunnerOwner {
    key: String,
    number: u64,
}

impl RunnerOwner {
    /// The runner with this key.
    pub fn new(key: &str) -> Self {
        Self { key: key.into(), number: mark::runner_number(key) }
    }

    /// The process carries the mark of the runner or is tagged with its key.
    pub fn owns(&self, pid: i32) -> bool {
        match mark::read(pid) {
            Some(found) => found.runner == self.number,
            None => self.tagged_number(pid).is_some(),
        }
    }

    /// The number under which the runner started the process, or what it descends from.
    pub fn number_of(&self, pid: i32) -> Option<u64> {
        match mark::read(pid) {
            Some(found) if found.runner == self.number && found.process.is_some() => found.process,
            _ => self.tagged_number(pid),
        }
    }

    fn tagged_number(&self, pid: i32) -> Option<u64> {
        procfs::read_tag(pid)?.strip_prefix(&self.key)?.strip_prefix('/')?.parse().ok()
    }

    /// The value of `TAG` for a process.
    pub fn tag(&self, number: u64) -> String {
        format!("{}/{number}", self.key)
    }
}

/// The process belongs to some runner.
pub fn is_owned(pid: i32) -> bool {
    mark::read(pid).is_some() || procfs::read_tag(pid).is_some()
}

/// Several runners: a process is read once, whatever their number.
struct Owners<'a> {
    numbers: HashSet<u64>,
    keys: &'a [&'a str],
}

impl<'a> Owners<'a> {
    fn new(keys: &'a [&'a str]) -> Self {
        Self { numbers: keys.iter().map(|key| mark::runner_number(key)).collect(), keys }
    }

    fn own(&self, pid: i32) -> bool {
        // The mark of another runner says more than a variable: a job may hand on any environment.
        if let Some(found) = mark::read(pid) {
            return self.numbers.contains(&found.runner);
        }
        procfs::read_tag(pid)
            .is_some_and(|tag| tag.split_once('/').is_some_and(|(key, _)| self.keys.contains(&key)))
    }
}

/// What became of processes that were to end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Which there were.
    pub killed: Vec<i32>,
    /// Those that did not end in time: they hang in the kernel, or belong to another user.
    pub survivors: Vec<i32>,
    /// Whether all could be looked for. Without it, nothing is proved.
    pub was_seen: bool,
}

/// Ends what `find` finds in a process table, until it finds nothing.
pub fn end(find: impl Fn(&ProcessTable) -> Vec<Process>, deadline: Instant) -> Ended {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let look = || -> io::Result<Vec<Process>> {
        let table = ProcessTable::read()?;
        let mut found = find(&table);
        found.retain(|process| !process.is_zombie && process.pid != own);
        table.parents_first(&mut found);
        Ok(found)
    };
    let mut victims: HashMap<(i32, u64), Option<OwnedFd>> = HashMap::new();
    let killed = |victims: &HashMap<(i32, u64), _>| victims.keys().map(|(pid, _)| *pid).collect();
    let failed = |error: io::Error, killed| {
        tracing::warn!(%error, "cannot read the process table");
        Ended { killed, survivors: Vec::new(), was_seen: false }
    };
    for _ in 0..MOST_ROUNDS {
        let found = match look() {
            Ok(found) => found,
            Err(error) => return failed(error, killed(&victims)),
        };
        let is_new = |process: &&Process| !victims.contains_key(&(process.pid, process.start));
        let fresh: Vec<Process> = found.iter().filter(is_new).copied().collect();
        if fresh.is_empty() {
            break;
        }
        for process in fresh {
            let pidfd = signal_exactly(&process, Signal::STOP);
            let keeps = victims.len() < AWAITED;
            victims.insert((process.pid, process.start), pidfd.filter(|_| keeps));
        }
    }
    loop {
        let living = match look() {
            Ok(living) => living,
            Err(error) => return failed(error, killed(&victims)),
        };
        if living.is_empty() {
            return Ended { killed: killed(&victims), survivors: Vec::new(), was_seen: true };
        }
        if Instant::now() >= deadline {
            let survivors = living.iter().map(|process| process.pid).collect();
            return Ended { killed: killed(&victims), survivors, was_seen: true };
        }
        for process in &living {
            let pidfd = signal_exactly(process, Signal::KILL);
            let keeps = victims.len() < AWAITED;
            victims.entry((process.pid, process.start)).or_insert_with(|| pidfd.filter(|_| keeps));
        }
        let until = deadline.min(Instant::now() + LOOK_AGAIN);
        let awaited = living.iter().map(|process| victims.get(&(process.pid, process.start)));
        await_ends(awaited.flatten().flatten(), until);
    }
}

/// Waits until all of these processes have ended, or the time is up.
fn await_ends<'a>(pidfds: impl Iterator<Item = &'a OwnedFd>, until: Instant) {
    let mut has_waited = false;
    for pidfd in pidfds {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        // An interrupted wait only means that the next look comes sooner.
        let _ = poll(&mut fds, Some(&timeout));
        has_waited = true;
    }
    if !has_waited {
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(LOOK_AGAIN));
    }
}

/// Ends the processes of runners that have died, with their control groups. Answers for each with
/// what is still alive.
pub fn end_runners(keys: &[&str], patience: Duration) -> HashMap<String, Ended> {
    let deadline = Instant::now() + patience;
    let found_groups = groups::of(keys);
    let of_jobs: Vec<&groups::Found> = found_groups.iter().filter(|f| f.is_of_jobs).collect();
    of_jobs.iter().for_each(|found| groups::freeze(&found.dir));
    let find = |table: &ProcessTable, keys: &[&str]| {
        let its = of_jobs.iter().filter(|found| keys.contains(&found.key.as_str()));
        let in_group: HashSet<i32> = its.flat_map(|found| groups::pids(&found.dir)).collect();
        let owners = Owners::new(keys);
        let is_its =
            |p: &&Process| !p.is_zombie && (in_group.contains(&p.pid) || owners.own(p.pid));
        table.descendants(table.all().filter(is_its).map(|p| p.pid))
    };
    let ended = end(|table| find(table, keys), deadline);
    let of_one = |key: &str| {
        if ended.survivors.is_empty() {
            return ended.clone();
        }
        // Whose are they? Only those runners have to wait.
        end(|table| find(table, &[key]), Instant::now())
    };
    let answer = keys.iter().map(|key| ((*key).to_owned(), of_one(key))).collect();
    for found in &found_groups {
        if !groups::remove(&found.dir) && found.is_of_jobs {
            tracing::warn!(dir = %found.dir.display(), "a control group of a dead runner is not empty");
        }
    }
    answer
}

/// Stops every process that `find` finds, parents before children, until a look finds no other.
/// Answers with all of them. For processes that are to be killed by the caller.
pub fn freeze(find: impl Fn(&ProcessTable) -> Vec<Process>) -> io::Result<Vec<Process>> {
    let mut stopped: Vec<Process> = Vec::new();
    let mut known: HashSet<(i32, u64)> = HashSet::new();
    for _ in 0..MOST_ROUNDS {
        let table = ProcessTable::read()?;
        let mut fresh = find(&table);
        fresh.retain(|process| !process.is_zombie && known.insert((process.pid, process.start)));
        if fresh.is_empty() {
            break;
        }
        table.parents_first(&mut fresh);
        fresh.iter().for_each(|process| drop(signal_exactly(process, Signal::STOP)));
        stopped.extend(fresh);
    }
    Ok(stopped)
}

/// Living processes of a runner, without doing anything to them.
pub fn living(owner: &RunnerOwner, table: &ProcessTable) -> Vec<i32> {
    let is_its = |p: &&Process| !p.is_zombie && owner.owns(p.pid);
    table.all().filter(is_its).map(|p| p.pid).collect()
}

/// Signals this process and no other that may have got its number since. Answers with a descriptor
/// of the process, if it was there and the kernel has such a thing.
pub fn signal_exactly(process: &Process, signal: Signal) -> Option<OwnedFd> {
    let pid = Pid::from_raw(process.pid).filter(|pid| pid.as_raw_nonzero().get() > 1)?;
    let is_same =
        || procfs::find_process(process.pid).is_some_and(|now| now.start == process.start);
    let (result, pidfd) = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) if is_same() => (pidfd_send_signal(&pidfd, signal), Some(pidfd)),
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::MFILE) if is_same() => {
            (kill_process(pid, signal), None)
        }
        _ => return None,
    };
    match result {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::warn!(pid = process.pid, %error, "cannot signal a process"),
    }
    pidfd
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::TAG;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn key(name: &str) -> String {
        format!("{name}{}", std::process::id())
    }

    #[test]
    fn only_what_belongs_to_the_runner_is_ended() {
        let (gone, here) = (key("gone"), key("here"));
        let spawn = |key: &str| {
            Command::new("sleep").arg("100").env(TAG, format!("{key}/1")).spawn().unwrap()
        };
        // A key that begins like another one is another one.
        let (mut its, mut other, mut longer) =
            (spawn(&gone), spawn(&here), spawn(&format!("{gone}5")));
        let ended = end_runners(&[&gone], PATIENCE);
        assert_eq!((ended[&gone].survivors.len(), ended[&gone].was_seen), (0, true));
        assert_eq!(its.wait().unwrap().signal(), Some(9));
        for other in [&mut other, &mut longer] {
            assert!(other.try_wait().unwrap().is_none(), "another runner's process lives");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    /// A hierarchy of version 2, mounted for as long as this lives.
    struct Hierarchy(tempfile::TempDir);

    impl Hierarchy {
        fn mount() -> Option<Self> {
            let dir = tempfile::tempdir().unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "cgroup2", "none"]).arg(dir.path());
            mount.status().is_ok_and(|status| status.success()).then_some(Self(dir))
        }
    }

    impl Drop for Hierarchy {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0.path()).status();
        }
    }

    #[test]
    fn a_group_of_version_2_is_frozen_and_killed_with_what_carries_no_mark_and_removed() {
        let Some(hierarchy) = Hierarchy::mount() else {
            return eprintln!("skipped: no hierarchy of version 2 can be mounted here");
        };
        let key = key("v2x");
        let group = hierarchy.0.path().join(format!("{}{key}", groups::PREFIX));
        let job = group.join("p1");
        std::fs::create_dir_all(&job).unwrap();
        // Nothing but the group tells whose these are.
        let mut child = Command::new("env")
            .args([
                "-i",
                "/bin/sh",
                "-c",
                "echo $$ > \"$0\"; echo in; sleep 100 & sleep 101; exit 7",
            ])
            .arg(job.join("cgroup.procs"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        // The same hierarchy may be mounted elsewhere too.
        assert!(groups::of(&[&key]).iter().any(|found| found.dir == group && found.is_of_jobs));
        groups::freeze(&group);
        let is_frozen =
            || std::fs::read_to_string(group.join("cgroup.events")).unwrap().contains("frozen 1");
        let deadline = Instant::now() + PATIENCE;
        while !is_frozen() {
            assert!(Instant::now() < deadline, "the group is not frozen");
            std::thread::yield_now();
        }
        let ended = end_runners(&[&key], PATIENCE);
        assert_eq!((ended[&key].survivors.len(), ended[&key].was_seen), (0, true));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!group.exists(), "the group is removed");
    }

    #[test]
    fn a_shell_does_not_go_on_when_its_command_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..20 {
            let key = key(&format!("shell{n}x"));
            let mut child = Command::new("sh")
                .args([
                    "-c",
                    "touch begun; setsid sleep 100; sh -c 'sleep 100; touch inner'; touch next",
                ])
                .current_dir(dir.path())
                .env(TAG, format!("{key}/1"))
                .spawn()
                .unwrap();
            while !dir.path().join("begun").exists() {
                std::thread::yield_now();
            }
            assert!(end_runners(&[&key], PATIENCE)[&key].survivors.is_empty());
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            assert!(!dir.path().join("next").exists(), "kill {n}: the next line ran");
            std::fs::remove_file(dir.path().join("begun")).unwrap();
        }
    }

    #[test]
    fn what_forks_while_it_is_ended_ends_too() {
        let key = key("forks");
        let script = "while :; do (sleep 50 & sleep 50 &) ; done";
        let mut child =
            Command::new("sh").args(["-c", script]).env(TAG, format!("{key}/1")).spawn().unwrap();
        let owner = RunnerOwner::new(&key);
        while living(&owner, &ProcessTable::read().unwrap()).len() < 20 {}
        let ended = end_runners(&[&key], PATIENCE);
        assert!(ended[&key].survivors.is_empty() && ended[&key].killed.len() >= 20, "{ended:?}");
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(living(&owner, &ProcessTable::read().unwrap()), [0; 0]);
    }
}
