//! Nothing of a process may outlive it: finds and ends what left its group, its session or its
//! parent.
//!
//! Everything here may take milliseconds and runs on the pool, never on the thread that owns the
//! state.

use crate::cgroup::Group;
use crate::monitor::{self, Watched};
use crate::procfs::{self, Process, ProcessTable};
use crate::sys::{self, Reap};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use torc_fence::RunnerOwner;

/// A killed process that is still there after this long hangs in the kernel; we report and go on.
const PATIENCE: Duration = Duration::from_secs(5);
/// Dying takes a moment, and no event tells of the end of a process that is not our child.
const PAUSE: Duration = Duration::from_millis(2);

/// Reads the process table once for all who want one of the same moment.
#[derive(Debug, Default)]
pub struct ProcessScanner {
    last: Mutex<Option<Arc<ProcessTable>>>,
}

impl ProcessScanner {
    /// A table that shows everything that happened before `moment`.
    pub fn table_since(&self, moment: Instant) -> io::Result<Arc<ProcessTable>> {
        // Holding the lock while reading is the point: a thread that waits here gets the table that
        // is being read.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = last.as_ref().filter(|table| table.taken >= moment) {
            return Ok(table.clone());
        }
        let table = Arc::new(ProcessTable::read()?);
        *last = Some(table.clone());
        Ok(table)
    }
}

/// What the kernel's memory accounting says about an ended process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelMemory {
    /// Processes it killed for exceeding the limit.
    pub oom_kills: u64,
    /// Highest use, file cache included.
    pub peak_bytes: Option<u64>,
    /// What was still charged when its processes were gone: file cache.
    pub cache_bytes: Option<u64>,
}

/// What was found after a process had ended.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Remains {
    /// CPU time of what was killed.
    pub cpu: Duration,
    /// How many processes were still there.
    pub killed: usize,
    /// Processes that even SIGKILL did not end in time.
    pub survivors: Vec<i32>,
    /// What the control group counted.
    pub memory: Option<KernelMemory>,
}

/// What to clean up after.
#[derive(Debug)]
pub struct Ended {
    /// Its number in the runner, by which its descendants are known.
    pub id: u64,
    /// Its process group, whose leader has been reaped and which has been sent SIGKILL.
    pub pgid: i32,
    /// Members of the group were still dying.
    pub group_was_alive: bool,
    /// Its control group.
    pub cgroup: Option<Group>,
    /// Look through the process table for escapees now, not at the next sweep.
    pub scan: bool,
    /// When the leader ended.
    pub at: Instant,
}

/// Ends everything that is left of a process.
pub fn clean_up(scanner: &ProcessScanner, owner: &RunnerOwner, ended: Ended) -> Remains {
    let mut remains = Remains::default();
    let deadline = Instant::now() + PATIENCE;
    if ended.group_was_alive {
        drain_group(ended.pgid, deadline, &mut remains);
    }
    if let Some(group) = &ended.cgroup {
        remains.memory = Some(KernelMemory {
            oom_kills: group.oom_kills().unwrap_or(0),
            peak_bytes: group.peak_bytes(),
            cache_bytes: group.is_empty().then(|| group.current_bytes()).flatten(),
        });
        drain_cgroup(group, deadline, &mut remains);
    }
    if ended.scan || !remains.survivors.is_empty() {
        let ids = HashSet::from([ended.id]);
        let survivors = &mut remains.survivors;
        remains.killed += kill_orphans(scanner, owner, &ids, ended.at, deadline, survivors);
    }
    remains
}

fn drain_group(pgid: i32, deadline: Instant, remains: &mut Remains) {
    loop {
        match sys::reap_group(pgid) {
            Reap::Ended(reaped) => {
                remains.cpu += reaped.cpu;
                remains.killed += 1;
            }
            Reap::NoChild => return,
            Reap::Alive if Instant::now() >= deadline => {
                remains.survivors.push(pgid);
                return;
            }
            Reap::Alive => std::thread::sleep(PAUSE),
        }
    }
}

fn drain_cgroup(group: &Group, deadline: Instant, remains: &mut Remains) {
    let mut known: HashSet<i32> = HashSet::new();
    loop {
        for pid in &known {
            if let Reap::Ended(reaped) = sys::reap(*pid) {
                remains.cpu += reaped.cpu;
            }
        }
        // An empty group can be removed; a process that is not yet gone keeps it.
        if group.remove() {
            break;
        }
        let pids = group.pids();
        if Instant::now() >= deadline {
            remains.survivors.extend(pids);
            break;
        }
        if !pids.is_empty() {
            known.extend(pids);
            known.extend(group.end(deadline));
        }
        std::thread::sleep(PAUSE);
    }
    remains.killed += known.len();
}

/// Ends every orphan that descends from one of these processes, with everything below it. Answers
/// how many there were.
pub fn kill_orphans(
    scanner: &ProcessScanner,
    owner: &RunnerOwner,
    ids: &HashSet<u64>,
    since: Instant,
    deadline: Instant,
    survivors: &mut Vec<i32>,
) -> usize {
    let own_pid = i32::try_from(std::process::id()).unwrap_or(0);
    let find = |table: &ProcessTable| {
        let is_its = |p: &&Process| {
            !p.is_zombie && owner.number_of(p.pid).is_some_and(|id| ids.contains(&id))
        };
        table.descendants(table.children(own_pid).filter(is_its).map(|p| p.pid))
    };
    match scanner.table_since(since) {
        // The usual case: one table, shared with others, and nothing in it.
        Ok(table) if find(&table).is_empty() => return 0,
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "cannot read the process table");
            return 0;
        }
    }
    let ended = torc_fence::end(find, deadline);
    // What was killed has become our child by now.
    ended.killed.iter().for_each(|pid| {
        sys::reap(*pid);
    });
    survivors.extend(ended.survivors);
    ended.killed.len()
}

/// Signals all of a tree but its process group, parents before children. For SIGKILL everything is
/// stopped first, the group included.
pub fn signal_tree(
    owner: &RunnerOwner,
    id: u64,
    leader: i32,
    table: &ProcessTable,
    cgroup: Option<&Group>,
    signal: Signal,
) -> io::Result<()> {
    let outside = |table: &ProcessTable| {
        let watched = Watched { id, pid: leader, memory_limit: None };
        let mut tree = monitor::members(table, owner, &[watched]).remove(&id).unwrap_or_default();
        tree.retain(|p| !p.is_zombie && p.group != leader);
        table.parents_first(&mut tree);
        tree
    };
    let mut others = outside(table);
    if signal == Signal::KILL {
        if let Some(group) = cgroup {
            group.freeze();
        }
        sys::signal_group(leader, Signal::STOP)?;
        if !others.is_empty() {
            others = torc_fence::freeze(outside)?;
        }
    }
    sys::signal_group(leader, signal)?;
    others.iter().for_each(|process| drop(torc_fence::ending::signal_exactly(process, signal)));
    Ok(())
}

/// What a sweep remembers for the next one.
#[derive(Clone, Debug, Default)]
pub struct SweepMemory {
    /// Orphans without a tag, and the newest process that existed when each was first seen: it can
    /// only belong to that one or an older one.
    untagged: HashMap<(i32, u64), u64>,
    /// Zombies without an owner.
    zombies: HashSet<(i32, u64)>,
    /// Some of them can be dealt with as soon as they are seen again.
    pub need_another_look: bool,
}

/// What a sweep must know.
#[derive(Debug)]
pub struct SweepOrder {
    /// Tells which processes are ours.
    pub owner: RunnerOwner,
    /// Numbers of processes that have ended.
    pub ended: HashSet<u64>,
    /// Leaders that live.
    pub leaders: HashSet<i32>,
    /// Number of the newest process.
    pub newest: u64,
    /// Number of the oldest process that lives, or one more than the newest.
    pub oldest_living: u64,
    /// From the last sweep.
    pub strangers: SweepMemory,
}

/// Some process that we did not start ourselves is our child: an orphan of a process that we
/// started. One read of a small file; true when it cannot be told that cheaply.
pub fn has_orphans(known: i32) -> bool {
    // The kernel hands orphans to the first thread, which starts no jobs.
    let own = std::process::id();
    match std::fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(text) => text
            .split_ascii_whitespace()
            .any(|pid| pid.parse::<i32>().is_ok_and(|pid| pid != known)),
        Err(_) => true,
    }
}

/// No process descends from us but `known` and what other parts of this program started: there is
/// nothing to sweep. Only for moments in which no process is started or waited for; false when it
/// cannot be told cheaply.
pub fn is_clean(known: &HashSet<i32>) -> bool {
    let own_group = sys::own_group();
    let is_theirs = |pid: &i32| {
        torc_fence::is_awaited(*pid)
            || procfs::find_process(*pid).is_some_and(|p| p.group == own_group)
    };
    // Twice, because one look may miss a child when the guard has just been ended, and is waited
    // for.
    let looks = [procfs::own_children(), procfs::own_children()];
    looks[0] == looks[1]
        && looks[0].as_ref().is_some_and(|children| {
            children.iter().all(|pid| known.contains(pid) || is_theirs(pid))
        })
}

/// Ends what ended processes left behind and reaps orphans. Answers with what the next sweep must
/// know.
pub fn sweep(scanner: &ProcessScanner, order: SweepOrder) -> SweepMemory {
    let own_pid = i32::try_from(std::process::id()).unwrap_or(0);
    let own_group = sys::own_group();
    let now = Instant::now();
    let mut survivors = Vec::new();
    let killed =
        kill_orphans(scanner, &order.owner, &order.ended, now, now + PATIENCE, &mut survivors);
    if killed > 0 || !survivors.is_empty() {
        tracing::info!(killed, ?survivors, "ended processes that outlived their attempt");
    }
    let mut next = SweepMemory::default();
    let Ok(table) = scanner.table_since(now) else { return next };
    let mut doomed = Vec::new();
    // Other parts of this program wait for what is in our own group, or said to be awaited.
    let is_theirs = |p: &Process| p.group == own_group || torc_fence::is_awaited(p.pid);
    for child in
        table.children(own_pid).filter(|p| !is_theirs(p) && !order.leaders.contains(&p.pid))
    {
        let key = (child.pid, child.start);
        if child.is_zombie {
            // Twice seen: not a leader whose end is just being handled.
            if order.strangers.zombies.contains(&key) {
                sys::reap(child.pid);
            } else {
                next.zombies.insert(key);
            }
        } else if !torc_fence::ending::is_owned(child.pid) {
            match order.strangers.untagged.get(&key) {
                Some(newest) if *newest < order.oldest_living => {
                    doomed.push(key);
                    next.zombies.insert(key);
                }
                Some(newest) => drop(next.untagged.insert(key, *newest)),
                None => drop(next.untagged.insert(key, order.newest)),
            }
        }
    }
    if !doomed.is_empty() {
        tracing::info!(?doomed, "ending orphans that carry no mark");
        let find = |table: &ProcessTable| {
            let is_there = |(pid, start): &&(i32, u64)| {
                table.find(*pid).is_some_and(|process| process.start == *start)
            };
            table.descendants(doomed.iter().filter(is_there).map(|(pid, _)| *pid))
        };
        torc_fence::end(find, Instant::now() + PATIENCE);
    }
    next.need_another_look = !next.zombies.is_empty()
        || next.untagged.values().any(|newest| *newest < order.oldest_living);
    next
}
