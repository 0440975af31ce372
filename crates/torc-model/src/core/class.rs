//! Which jobs fit where. Jobs with the same needs form a class; a claim compares classes, not jobs.

use crate::api::Capacity;
use crate::words;

/// A resource that is measured and not counted.
const MEMORY: &str = "memory";

/// What a job needs and where it may run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Class {
    /// CPUs.
    pub cpus: u32,
    /// GPUs.
    pub gpus: u32,
    /// Nodes.
    pub nodes: u32,
    /// Bytes.
    pub memory: Option<u64>,
    /// Seconds; also what must be left of a runner's time.
    pub runtime: Option<u64>,
    /// Slurm scheduler it was assigned to.
    pub scheduler: Option<i64>,
    /// Only for runners with this label.
    pub label: Option<String>,
    /// Named limits it takes one unit of.
    pub uses: Vec<String>,
}

/// What a runner still has to give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    cpus: i64,
    gpus: i64,
    nodes: i64,
    memory: i64,
    /// Queue mode: only this counts.
    jobs: Option<i64>,
}

impl Room {
    /// All that a runner has.
    pub fn of(capacity: &Capacity) -> Self {
        Self {
            cpus: capacity.num_cpus,
            gpus: capacity.num_gpus,
            nodes: capacity.num_nodes.max(1),
            memory: capacity.memory_bytes,
            jobs: capacity.max_parallel_jobs,
        }
    }

    /// Room for one more of this class?
    pub fn fits(&self, class: &Class) -> bool {
        match self.jobs {
            Some(jobs) => jobs >= 1,
            None => self.lack(class).is_none(),
        }
    }

    /// What is missing for one more of this class, in words.
    pub fn lacking(&self, class: &Class) -> Option<String> {
        let (what, want, have) = self.lack(class)?;
        Some(match what {
            MEMORY => {
                format!("{} MiB of {MEMORY} (free: {})", want.div_ceil_mib(), have.div_ceil_mib())
            }
            _ => format!("{} (free: {})", words::count(want, what), have.max(0)),
        })
    }

    /// What is missing, how much is wanted, and how much is there.
    fn lack(&self, class: &Class) -> Option<(&'static str, i64, i64)> {
        let nodes = if class.nodes > 1 { i64::from(class.nodes) } else { 0 };
        let rows = [
            ("CPU", i64::from(class.cpus), self.cpus),
            ("GPU", i64::from(class.gpus), self.gpus),
            ("node", nodes, self.nodes),
            (MEMORY, class.memory.unwrap_or(0) as i64, self.memory.max(0)),
        ];
        rows.into_iter().find(|(_, want, have)| want > have)
    }

    /// Takes one of this class away. May go below zero for attempts that are kept for later.
    pub fn take(&mut self, class: &Class) {
        self.cpus -= i64::from(class.cpus);
        self.gpus -= i64::from(class.gpus);
        if class.nodes > 1 {
            self.nodes -= i64::from(class.nodes);
        }
        self.memory -= class.memory.unwrap_or(0) as i64;
        if let Some(jobs) = &mut self.jobs {
            *jobs -= 1;
        }
    }
}

trait Mib {
    fn div_ceil_mib(self) -> i64;
}

impl Mib for i64 {
    fn div_ceil_mib(self) -> i64 {
        (self + ((1 << 20) - 1)) >> 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room {
        Room::of(&Capacity {
            num_cpus: 4,
            memory_bytes: 8 << 30,
            num_gpus: 1,
            num_nodes: 1,
            max_parallel_jobs: None,
        })
    }

    #[test]
    fn a_room_fills_up() {
        let class = Class { cpus: 2, nodes: 1, memory: Some(5 << 30), ..Class::default() };
        let mut room = room();
        assert!(room.fits(&class));
        room.take(&class);
        assert!(!room.fits(&class), "memory is gone");
        assert_eq!(room.lacking(&class).as_deref(), Some("5120 MiB of memory (free: 3072)"));
        let light = Class { cpus: 2, nodes: 1, memory: None, ..Class::default() };
        assert!(room.fits(&light));
        room.take(&light);
        assert_eq!(room.lacking(&light).as_deref(), Some("2 CPUs (free: 0)"));
        let one = Class { cpus: 1, ..light };
        assert_eq!(room.lacking(&one).as_deref(), Some("1 CPU (free: 0)"));
    }

    #[test]
    fn queue_mode_counts_jobs_only() {
        let mut room = Room::of(&Capacity { max_parallel_jobs: Some(1), ..Capacity::default() });
        let class = Class { cpus: 64, nodes: 1, ..Class::default() };
        assert!(room.fits(&class));
        room.take(&class);
        assert!(!room.fits(&class));
    }
}
