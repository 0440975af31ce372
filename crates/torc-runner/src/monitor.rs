//! Looks at all running processes in one pass over the process table and says what each tree uses.

use crate::procfs::{self, Process, ProcessTable, TICKS_PER_SECOND};
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use torc_fence::RunnerOwner;

/// A process to look at.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its number in the runner.
    pub id: u64,
    /// Leader of its tree.
    pub pid: i32,
    /// Worth a closer look when it comes near this.
    pub memory_limit: Option<u64>,
}

/// What one tree used at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Its number in the runner.
    pub id: u64,
    /// When it was taken.
    pub at: Instant,
    /// Memory of the whole tree.
    pub memory_bytes: u64,
    /// CPU time of the living part of the tree and of what it waited for.
    pub cpu_seconds: f64,
    /// Number of processes.
    pub processes: usize,
}

/// What a process used over its life, as far as it was seen.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SampledUsage {
    last: Option<(Instant, f64)>,
    samples: u64,
    memory_sum: f64,
    /// Highest memory seen.
    pub peak_memory_bytes: u64,
    /// Highest CPU use between two looks, 100 per core.
    pub peak_cpu_percent: Option<f64>,
}

impl SampledUsage {
    /// Takes in one more look; answers with the CPU use since the last one.
    pub fn add(&mut self, sample: &Sample) -> Option<f64> {
        self.samples += 1;
        self.memory_sum += sample.memory_bytes as f64;
        self.peak_memory_bytes = self.peak_memory_bytes.max(sample.memory_bytes);
        let percent = self.last.and_then(|(at, cpu)| {
            let seconds = sample.at.saturating_duration_since(at).as_secs_f64();
            // A child that ended unwaited takes its time with it, so the sum may shrink.
            (seconds > 0.0).then(|| ((sample.cpu_seconds - cpu) / seconds * 100.0).max(0.0))
        });
        if let Some(percent) = percent {
            self.peak_cpu_percent =
                Some(self.peak_cpu_percent.map_or(percent, |peak| peak.max(percent)));
        }
        self.last = Some((sample.at, sample.cpu_seconds));
        percent
    }

    /// Mean memory of all looks.
    pub fn avg_memory_bytes(&self) -> Option<u64> {
        (self.samples > 0).then(|| (self.memory_sum / self.samples as f64) as u64)
    }
}

/// Everything that belongs to a tree: what descends from its leader, and orphans that carry its
/// mark.
pub fn members(
    table: &ProcessTable,
    owner: &RunnerOwner,
    watched: &[Watched],
) -> HashMap<u64, Vec<Process>> {
    let own_pid = i32::try_from(std::process::id()).unwrap_or(0);
    let leaders: HashSet<i32> = watched.iter().map(|w| w.pid).collect();
    let mut roots: HashMap<u64, Vec<i32>> = watched.iter().map(|w| (w.id, vec![w.pid])).collect();
    for orphan in table.children(own_pid).filter(|p| !p.is_zombie && !leaders.contains(&p.pid)) {
        if let Some(roots) = owner.number_of(orphan.pid).and_then(|id| roots.get_mut(&id)) {
            roots.push(orphan.pid);
        }
    }
    roots.into_iter().map(|(id, roots)| (id, table.descendants(roots))).collect()
}

/// Looks at all of them once.
pub fn sample(table: &ProcessTable, owner: &RunnerOwner, watched: &[Watched]) -> Vec<Sample> {
    let members = members(table, owner, watched);
    let of = |w: &Watched| {
        let tree = members.get(&w.id)?;
        (!tree.is_empty()).then(|| Sample {
            id: w.id,
            at: table.taken,
            memory_bytes: memory(tree, w.memory_limit),
            cpu_seconds: tree.iter().map(|p| p.ticks).sum::<u64>() as f64 / TICKS_PER_SECOND,
            processes: tree.len(),
        })
    };
    watched.iter().filter_map(of).collect()
}

/// Shared pages count once, as far as that can be known cheaply; exactly when the answer decides
/// over life and death.
fn memory(tree: &[Process], limit: Option<u64>) -> u64 {
    let page = procfs::page_size();
    let resident: u64 = tree.iter().map(|p| p.rss_pages * page).sum();
    if tree.len() == 1 {
        return resident;
    }
    if limit.is_some_and(|limit| resident > limit) {
        let exact: Option<u64> = tree
            .iter()
            .map(|p| if p.is_zombie { Some(0) } else { procfs::proportional_bytes(p.pid) })
            .sum();
        if let Some(exact) = exact {
            return exact;
        }
    }
    let shared: Vec<u64> =
        tree.iter().map(|p| procfs::shared_pages(p.pid).unwrap_or(0) * page).collect();
    let private: u64 =
        tree.iter().zip(&shared).map(|(p, s)| (p.rss_pages * page).saturating_sub(*s)).sum();
    private + shared.iter().max().copied().unwrap_or(0)
}

/// How many processes the kernel has killed on this machine for lack of memory, since boot.
pub fn machine_oom_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn usage_keeps_peak_mean_and_cpu_between_looks() {
        let start = Instant::now();
        let look = |seconds: u64, memory_bytes, cpu_seconds| Sample {
            id: 1,
            at: start + Duration::from_secs(seconds),
            memory_bytes,
            cpu_seconds,
            processes: 1,
        };
        let mut usage = SampledUsage::default();
        assert_eq!(usage.avg_memory_bytes(), None);
        assert_eq!(usage.add(&look(0, 100, 1.0)), None);
        assert_eq!(usage.add(&look(2, 300, 4.0)), Some(150.0));
        assert_eq!(usage.add(&look(4, 200, 2.0)), Some(0.0));
        assert_eq!(usage.avg_memory_bytes(), Some(200));
        assert_eq!((usage.peak_memory_bytes, usage.peak_cpu_percent), (300, Some(150.0)));
    }

    #[test]
    fn the_memory_of_a_tree_of_processes_is_seen() {
        // The inner shell holds about 20 MB in a variable; the outer one waits for it.
        let script = "bash -c 'x=$(head -c 20000000 /dev/zero | tr \"\\0\" x); echo; read -r _' | head -n 1; read -r _";
        let mut child = std::process::Command::new("bash")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let owner = RunnerOwner::new("monitor");
        let watched = [Watched { id: 3, pid, memory_limit: None }];
        let samples = sample(&ProcessTable::read().unwrap(), &owner, &watched);
        let exact = [Watched { memory_limit: Some(1), ..watched[0].clone() }];
        let exact = sample(&ProcessTable::read().unwrap(), &owner, &exact);
        drop(child.stdin.take());
        child.wait().unwrap();
        for samples in [samples, exact] {
            assert_eq!(samples.len(), 1);
            assert!(samples[0].memory_bytes > 20_000_000, "{samples:?}");
            assert!(samples[0].memory_bytes < 80_000_000, "{samples:?}");
            assert!(samples[0].processes >= 2, "{samples:?}");
        }
        assert_eq!(sample(&ProcessTable::read().unwrap(), &owner, &watched), []);
    }
}
