//! Which jobs fit where. Jobs with the same needs form a class; a claim compares classes, not jobs.

use crate::api::{Capacity, RunnerUse};
use crate::words;

/// A resource that is measured and not counted.
const MEMORY: &str = "memory";
/// Places of a runner that runs at most so many jobs at once.
const JOBS: &str = "job";

/// Memory that is worth one CPU.
pub const BYTES_PER_CPU: f64 = (4u64 << 30) as f64;

/// CPUs that one GPU is worth.
pub const CPUS_PER_GPU: f64 = 8.0;

/// What a job needs and where it may run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Class {
    /// CPUs that a job needs, on each node.
    pub cpus: u32,
    /// GPUs that a job needs, on each node.
    pub gpus: u32,
    /// Nodes that a job needs.
    pub nodes: u32,
    /// Memory that a job needs, in bytes; none: it does not say.
    pub memory: Option<u64>,
    /// Seconds it is planned for: what must be left of a runner's time.
    pub runtime: Option<u64>,
    /// Seconds after which an attempt is ended.
    pub timeout: Option<u64>,
    /// `runtime` ends an attempt, too.
    pub enforces_runtime: bool,
    /// Slurm scheduler it was assigned to.
    pub scheduler: Option<i64>,
    /// Only for runners with this label.
    pub label: Option<String>,
    /// Named limits it takes one unit of.
    pub uses: Vec<String>,
}

impl Class {
    /// Seconds after which an attempt is really ended: the shorter of the limits that act.
    pub fn time_limit(&self) -> Option<u64> {
        time_limit(self.timeout, self.runtime, self.enforces_runtime)
    }

    /// That limit is the `runtime`, not the `timeout`.
    pub fn is_limited_by_runtime(&self) -> bool {
        let limit = self.time_limit();
        limit.is_some() && limit != self.timeout
    }
}

/// The limit that ends an attempt: `timeout`, and `runtime` only where it is enforced.
pub fn time_limit(timeout: Option<u64>, runtime: Option<u64>, enforced: bool) -> Option<u64> {
    timeout.into_iter().chain(runtime.filter(|_| enforced)).min()
}

/// CPUs, GPUs and memory of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeSize {
    cpus: i64,
    gpus: i64,
    memory: i64,
}

/// What a runner still has to give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    cpus: i64,
    gpus: i64,
    nodes: i64,
    memory: i64,
    /// What one node has in all, where jobs are spread over several: then the numbers above are
    /// those of all nodes together, and a job on several nodes takes whole ones.
    node: Option<NodeSize>,
    /// At most this many more jobs.
    jobs: Option<i64>,
    /// Only the number of jobs counts.
    ignores_resources: bool,
}

impl Room {
    /// All that a runner has.
    pub fn of(capacity: &Capacity) -> Self {
        let nodes = capacity.num_nodes.max(1);
        let all = capacity.equal_nodes();
        let node = capacity.spreads.then_some(NodeSize {
            cpus: capacity.num_cpus,
            gpus: capacity.num_gpus,
            memory: capacity.memory_bytes,
        });
        Self {
            cpus: capacity.num_cpus.saturating_mul(all),
            gpus: capacity.num_gpus.saturating_mul(all),
            nodes,
            memory: capacity.memory_bytes.saturating_mul(all),
            node,
            jobs: capacity.max_parallel_jobs,
            ignores_resources: capacity.ignore_resources,
        }
    }

    /// How much there is in all: a GPU is worth eight CPUs, 4 GiB of memory one, as in the order of jobs.
    /// Only to compare one runner's room with another's.
    pub fn size(&self) -> i64 {
        if self.ignores_resources {
            return self.jobs.unwrap_or(i64::MAX);
        }
        let cpus = self.gpus.saturating_mul(8).saturating_add(self.cpus);
        cpus.saturating_mul(4 << 30).saturating_add(self.memory)
    }

    /// Room for one more of this class?
    pub fn fits(&self, class: &Class) -> bool {
        self.lack(class).is_none()
    }

    /// What is missing for one more of this class, in words.
    pub fn lacking(&self, class: &Class) -> Option<String> {
        let (what, want, have) = self.lack(class)?;
        Some(match what {
            MEMORY => {
                format!("{} MiB of {MEMORY} (free: {})", want.div_ceil_mib(), have.div_ceil_mib())
            }
            JOBS => "a free place: as many jobs run as its `-j` allows".into(),
            _ => format!("{} (free: {})", words::count(want, what), have.max(0)),
        })
    }

    /// How much of what is missing one of this class needs, in words.
    pub fn wanting(&self, class: &Class) -> Option<String> {
        let (what, want, _) = self.lack(class)?;
        Some(match what {
            MEMORY => format!("{} MiB of {MEMORY}", want.div_ceil_mib()),
            JOBS => "a free place".into(),
            _ => words::count(want, what),
        })
    }

    /// What is missing, how much is wanted, and how much is there.
    fn lack(&self, class: &Class) -> Option<(&'static str, i64, i64)> {
        let nodes = if class.nodes > 1 { i64::from(class.nodes) } else { 0 };
        if let Some(jobs) = self.jobs.filter(|jobs| *jobs < 1) {
            return Some((JOBS, 1, jobs));
        }
        if self.ignores_resources {
            return None;
        }
        let memory = class.memory.unwrap_or(0) as i64;
        if let Some(node) = self.node {
            // What no node has in all never fits; what the nodes have together may be in pieces, and
            // then the job waits on the runner until one node has it.
            let rows = [
                ("CPU", i64::from(class.cpus), node.cpus),
                ("GPU", i64::from(class.gpus), node.gpus),
                (MEMORY, memory, node.memory.max(0)),
                ("node", nodes, self.free_nodes(node)),
            ];
            if let Some(row) = rows.into_iter().find(|(_, want, have)| want > have) {
                return Some(row);
            }
            if nodes > 0 {
                return None;
            }
        }
        let rows = [
            ("CPU", i64::from(class.cpus), self.cpus),
            ("GPU", i64::from(class.gpus), self.gpus),
            ("node", nodes, self.nodes),
            (MEMORY, memory, self.memory.max(0)),
        ];
        rows.into_iter().find(|(_, want, have)| want > have)
    }

    /// Nodes that could be empty, by what is free in all.
    fn free_nodes(&self, node: NodeSize) -> i64 {
        let by = |free: i64, size: i64| if size > 0 { free.max(0) / size } else { i64::MAX };
        let by_size = by(self.cpus, node.cpus).min(by(self.gpus, node.gpus));
        by_size.min(by(self.memory, node.memory)).min(self.nodes)
    }

    /// What one of this class takes.
    pub fn share(&self, class: &Class) -> RunnerUse {
        match self.node {
            Some(node) if class.nodes > 1 => {
                let nodes = i64::from(class.nodes);
                let all = |size: i64| size.saturating_mul(nodes);
                RunnerUse {
                    num_cpus: all(node.cpus),
                    memory_bytes: all(node.memory),
                    num_gpus: all(node.gpus),
                }
            }
            _ => RunnerUse {
                num_cpus: i64::from(class.cpus),
                memory_bytes: class.memory.unwrap_or(0) as i64,
                num_gpus: i64::from(class.gpus),
            },
        }
    }

    /// Gives back what one of this class has taken.
    pub fn give(&mut self, class: &Class) {
        let share = self.share(class);
        self.cpus += share.num_cpus;
        self.gpus += share.num_gpus;
        if class.nodes > 1 {
            self.nodes += i64::from(class.nodes);
        }
        self.memory += share.memory_bytes;
        if let Some(jobs) = &mut self.jobs {
            *jobs += 1;
        }
    }

    /// Takes one of this class away. May go below zero for attempts that are kept for later.
    pub fn take(&mut self, class: &Class) {
        let share = self.share(class);
        self.cpus -= share.num_cpus;
        self.gpus -= share.num_gpus;
        if class.nodes > 1 {
            self.nodes -= i64::from(class.nodes);
        }
        self.memory -= share.memory_bytes;
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
            ..Capacity::default()
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
    fn jobs_are_spread_over_nodes_and_wide_ones_take_whole_nodes() {
        let capacity = Capacity {
            num_cpus: 4,
            memory_bytes: 8 << 30,
            num_nodes: 3,
            spreads: true,
            ..Capacity::default()
        };
        let small = Class { cpus: 1, nodes: 1, memory: Some(1 << 30), ..Class::default() };
        let wide = Class { cpus: 1, nodes: 2, ..Class::default() };
        let mut room = Room::of(&capacity);
        let large = Class { cpus: 5, nodes: 1, ..Class::default() };
        assert_eq!(room.lacking(&large).as_deref(), Some("5 CPUs (free: 4)"), "on no node");
        (0..4).for_each(|_| room.take(&small));
        assert!(room.fits(&wide), "two nodes may be empty");
        room.take(&wide);
        assert!(!room.fits(&small), "all CPUs are taken");
        assert_eq!(room.lacking(&wide).as_deref(), Some("2 nodes (free: 0)"));
        room.give(&wide);
        room.take(&small);
        assert!(!room.fits(&wide), "five small ones are on two nodes at least");
        (0..7).for_each(|_| room.take(&small));
        assert_eq!(room.lacking(&small).as_deref(), Some("1 CPU (free: 0)"), "twelve run");
    }

    #[test]
    fn a_cap_on_jobs_leaves_the_resources_counted() {
        let capacity = Capacity { num_cpus: 4, max_parallel_jobs: Some(2), ..Capacity::default() };
        let large = Class { cpus: 64, nodes: 1, ..Class::default() };
        let small = Class { cpus: 1, nodes: 1, ..Class::default() };
        let mut room = Room::of(&capacity);
        assert_eq!(room.lacking(&large).as_deref(), Some("64 CPUs (free: 4)"));
        for _ in 0..2 {
            assert!(room.fits(&small));
            room.take(&small);
        }
        let full = "a free place: as many jobs run as its `-j` allows";
        assert_eq!(room.lacking(&small).as_deref(), Some(full));
    }

    #[test]
    fn resources_that_are_ignored_hold_nothing_back() {
        let capacity =
            Capacity { max_parallel_jobs: Some(1), ignore_resources: true, ..Capacity::default() };
        let mut room = Room::of(&capacity);
        let class = Class { cpus: 64, nodes: 1, ..Class::default() };
        assert!(room.fits(&class));
        room.take(&class);
        assert!(!room.fits(&class));
        let mut room = Room::of(&Capacity { ignore_resources: true, ..Capacity::default() });
        room.take(&class);
        assert!(room.fits(&class));
    }

    #[test]
    fn runtime_plans_and_only_ends_an_attempt_where_it_is_enforced() {
        let class = Class { runtime: Some(60), timeout: Some(90), ..Class::default() };
        assert_eq!(class.time_limit(), Some(90));
        assert_eq!(Class { enforces_runtime: true, ..class.clone() }.time_limit(), Some(60));
        assert_eq!(Class { timeout: None, ..class }.time_limit(), None);
    }
}
