//! Reads the process table from `/proc`: who descends from whom, and what each uses. Changes
//! nothing.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::time::Instant;

/// Ticks per second of `/proc/*/stat`; fixed at 100 in the Linux user-space ABI of every
/// architecture we build for.
pub const TICKS_PER_SECOND: f64 = 100.0;
/// The page size of `/proc/*/stat` memory fields.
pub fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Marks every process of an attempt, so that it is known even after it left its group and session.
pub const TAG: &str = "TORC_ATTEMPT_TAG";
/// Environments larger than this are not searched to their end.
const MAX_ENVIRON_BYTES: u64 = 1 << 20;

/// One process at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// It has ended and waits for its parent to notice.
    pub is_zombie: bool,
    /// It stands still by a signal.
    pub is_stopped: bool,
    /// User and system time in ticks, of waited-for children as well.
    pub ticks: u64,
    /// Start time in ticks since boot: with the pid it names a process for ever.
    pub start: u64,
    /// Resident memory in pages.
    pub rss_pages: u64,
}

/// All processes at one moment.
#[derive(Debug)]
pub struct ProcessTable {
    by_pid: HashMap<i32, Process>,
    children: HashMap<i32, Vec<i32>>,
    /// When reading began: what happened before is in the table.
    pub taken: Instant,
}

impl ProcessTable {
    /// Reads the whole table.
    pub fn read() -> io::Result<Self> {
        let taken = Instant::now();
        let mut by_pid = HashMap::new();
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
            else {
                continue;
            };
            // A process that ended since it was listed is simply not there.
            if let Some(process) = find_process(pid) {
                by_pid.insert(pid, process);
            }
        }
        Ok(Self::new(by_pid, taken))
    }

    fn new(by_pid: HashMap<i32, Process>, taken: Instant) -> Self {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for process in by_pid.values() {
            children.entry(process.parent).or_default().push(process.pid);
        }
        Self { by_pid, children, taken }
    }

    /// Every process.
    pub fn all(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values()
    }

    /// The children of a process.
    pub fn children(&self, pid: i32) -> impl Iterator<Item = &Process> {
        self.children.get(&pid).into_iter().flatten().filter_map(|pid| self.by_pid.get(pid))
    }

    /// The roots that exist and everything below them, each once.
    pub fn descendants(&self, roots: impl IntoIterator<Item = i32>) -> Vec<Process> {
        let mut seen = HashSet::new();
        let mut open: Vec<i32> = roots.into_iter().collect();
        let mut found = Vec::new();
        while let Some(pid) = open.pop() {
            if !seen.insert(pid) {
                continue;
            }
            found.extend(self.by_pid.get(&pid).copied());
            open.extend(self.children.get(&pid).into_iter().flatten());
        }
        found
    }
}

impl ProcessTable {
    /// Sorts processes so that each comes after its parent.
    pub fn parents_first(&self, processes: &mut [Process]) {
        let depth = |process: &Process| {
            let mut depth = 0_usize;
            let mut at = process;
            // A table is not read in one moment: parents may form a circle in it.
            while let Some(parent) = self.by_pid.get(&at.parent).filter(|_| depth < 10_000) {
                depth += 1;
                at = parent;
            }
            depth
        };
        processes.sort_by_cached_key(|process| (depth(process), process.start, process.pid));
    }

    /// One process.
    pub fn find(&self, pid: i32) -> Option<&Process> {
        self.by_pid.get(&pid)
    }
}

/// Reads one process.
pub fn find_process(pid: i32) -> Option<Process> {
    // The kernel hands out the whole line at once, and a name has at most 64 bytes: one read will
    // do.
    let mut buffer = [0; 1024];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut buffer).ok()?;
    parse_stat(&buffer[..length])
}

/// Our own children, dead ones included that were not waited for: read from the kernel's list,
/// which costs far less than the whole table. None on kernels that keep no such list. It may miss
/// one when another one is waited for meanwhile, or a thread of ours ends.
pub fn own_children() -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let first_thread = std::process::id().to_string();
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        let thread = thread.ok()?;
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => children
                .extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // It has ended since it was listed; the first one never does.
            Err(_) if thread.file_name() != *first_thread => {}
            Err(_) => return None,
        }
    }
    children.sort_unstable();
    Some(children)
}

/// Start time of our own process, in ticks since boot.
pub fn own_start() -> Option<u64> {
    find_process(i32::try_from(std::process::id()).ok()?).map(|p| p.start)
}

fn parse_stat(text: &[u8]) -> Option<Process> {
    // The name is in parentheses and may itself contain any of them.
    let name_end = text.iter().rposition(|b| *b == b')')?;
    let pid = std::str::from_utf8(text.split(|b| *b == b' ').next()?).ok()?.parse().ok()?;
    let fields: Vec<&str> =
        std::str::from_utf8(text.get(name_end + 2..)?).ok()?.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|f| f.parse::<i64>().ok());
    let unsigned = |index: usize| number(index).map(|n| u64::try_from(n).unwrap_or(0));
    Some(Process {
        pid,
        parent: i32::try_from(number(1)?).ok()?,
        group: i32::try_from(number(2)?).ok()?,
        session: i32::try_from(number(3)?).ok()?,
        // A process whose first thread has ended looks the same, but its other threads run.
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x") && number(17)? <= 1,
        is_stopped: matches!(*fields.first()?, "T" | "t"),
        ticks: unsigned(11)? + unsigned(12)? + unsigned(13)? + unsigned(14)?,
        start: unsigned(19)?,
        rss_pages: unsigned(21)?,
    })
}

/// The tag in a process's environment, if it can be read and has one.
pub fn read_tag(pid: i32) -> Option<String> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/environ"))
        .ok()?
        .take(MAX_ENVIRON_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    find_tag(&text)
}

fn find_tag(environ: &[u8]) -> Option<String> {
    environ.split(|b| *b == 0).find_map(|variable| {
        let value = variable.strip_prefix(TAG.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// Pages of a process that may be shared with others.
pub fn shared_pages(pid: i32) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()?
        .split_ascii_whitespace()
        .nth(2)?
        .parse()
        .ok()
}

/// Memory of a process with each shared page divided by its number of users. Expensive for large
/// processes.
pub fn proportional_bytes(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Tells this boot of the machine from every other, and this space of process numbers from those
/// beside it.
pub fn boot_id() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let boot = boot.map(|t| t.trim().to_string()).unwrap_or_default();
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(space) if !boot.is_empty() => format!("{boot}/{}", space.display()),
        _ => boot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> (i32, Process) {
        (
            pid,
            Process {
                pid,
                parent,
                group: pid,
                session: pid,
                is_zombie: false,
                is_stopped: false,
                ticks: 0,
                start: 0,
                rss_pages: 0,
            },
        )
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_trouble() {
        let text =
            b"42 (a) R (b c) S 7 40 41 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 999 77 18446744073709551615";
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 40,
            session: 41,
            is_zombie: false,
            is_stopped: false,
            ticks: 100,
            start: 12345,
            rss_pages: 77,
        };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat(b"42 (a"), None);
        let ended = String::from_utf8_lossy(text).replace(") S 7", ") Z 7");
        assert!(parse_stat(ended.as_bytes()).unwrap().is_zombie, "it has ended");
        let threads = ended.replace("20 0 1 0 12345", "20 0 3 0 12345");
        assert!(!parse_stat(threads.as_bytes()).unwrap().is_zombie, "other threads run");
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_once() {
        let table = ProcessTable::new(
            HashMap::from([
                process(1, 0),
                process(2, 1),
                process(3, 2),
                process(4, 3),
                process(5, 1),
            ]),
            Instant::now(),
        );
        let mut pids: Vec<i32> = table.descendants([2, 3, 99]).iter().map(|p| p.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [2, 3, 4]);
        let mut sorted = table.descendants([2]);
        sorted.reverse();
        table.parents_first(&mut sorted);
        assert_eq!(sorted.iter().map(|p| p.pid).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(table.children(1).count(), 2);
    }

    #[test]
    fn we_are_in_the_table() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let table = ProcessTable::read().unwrap();
        let us = table.all().find(|p| p.pid == pid).unwrap();
        assert!(us.rss_pages > 0 && us.start > 0 && !us.is_zombie);
        assert_eq!(own_start(), Some(us.start));
        assert!(proportional_bytes(pid).unwrap() > 0);
        assert!(shared_pages(pid).unwrap() > 0);
        assert!(!boot_id().is_empty());
    }

    #[test]
    fn children_of_all_threads_are_listed_dead_ones_included() {
        let Some(before) = own_children() else {
            return eprintln!("this kernel keeps no lists of children");
        };
        let spawn = |program| {
            std::process::Command::new(program).stdin(std::process::Stdio::piped()).spawn().unwrap()
        };
        let mut living = spawn("cat");
        let thread = std::thread::spawn(move || {
            let dead = spawn("true");
            while !find_process(dead.id().cast_signed()).unwrap().is_zombie {
                std::thread::yield_now();
            }
            (dead, own_children().unwrap())
        });
        let (mut dead, children) = thread.join().unwrap();
        for child in [&living, &dead] {
            let pid = child.id().cast_signed();
            assert!(
                children.contains(&pid) && !before.contains(&pid),
                "{pid}: {before:?}, {children:?}"
            );
        }
        living.kill().unwrap();
        living.wait().unwrap();
        dead.wait().unwrap();
        assert!(!own_children().unwrap().contains(&living.id().cast_signed()));
    }

    #[test]
    fn the_tag_is_found_only_as_a_whole_variable() {
        assert_eq!(find_tag(b"A=1\0TORC_ATTEMPT_TAG=k/5\0B=2\0").as_deref(), Some("k/5"));
        assert_eq!(find_tag(b"A=TORC_ATTEMPT_TAG=k\0TORC_ATTEMPT_TAGS=x\0"), None);
    }
}
