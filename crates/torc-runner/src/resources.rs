//! What is free on this runner. The server grants by the same numbers; this is where they become
//! real.

use torc_model::api::{AttemptPacket, Capacity};

/// A wide job takes this many CPUs of each of its nodes: more than any has, so that no other fits
/// beside it.
const WHOLE: i64 = 1 << 40;

/// What an attempt takes while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Share {
    cpus: i64,
    memory_bytes: i64,
    nodes: i64,
    /// Names of its GPUs.
    pub gpus: Vec<String>,
    /// The nodes it is on, where there are several; it runs on the first.
    pub on: Vec<usize>,
}

impl Share {
    /// The node on which it runs.
    pub fn node(&self) -> usize {
        self.on.first().copied().unwrap_or(0)
    }
}

/// A node of an allocation that has several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The batch system's name.
    pub name: String,
    /// CPUs that jobs can have.
    pub cpus: i64,
    /// Memory that jobs can have, in bytes.
    pub memory_bytes: i64,
    /// Names of its GPUs.
    pub gpus: Vec<String>,
}

/// What is free on one of several nodes.
#[derive(Debug)]
struct NodeFree {
    free: Node,
    /// CPUs that it has.
    all_cpus: i64,
    jobs: i64,
    is_gone: bool,
}

/// What is free.
#[derive(Debug)]
pub struct Free {
    capacity: Capacity,
    running: i64,
    cpus: i64,
    memory_bytes: i64,
    nodes: i64,
    /// In the order in which they are given out.
    gpus: Vec<String>,
    /// Where jobs are spread over several nodes; then the numbers above are not used.
    spread: Vec<NodeFree>,
}

impl Free {
    /// Everything is free.
    pub fn new(capacity: Capacity, mut gpu_names: Vec<String>) -> Self {
        let count = usize::try_from(capacity.num_gpus).unwrap_or(0);
        gpu_names.truncate(count);
        gpu_names.extend((gpu_names.len()..count).map(|n| n.to_string()));
        Self {
            running: 0,
            cpus: capacity.num_cpus,
            memory_bytes: capacity.memory_bytes,
            nodes: capacity.num_nodes,
            gpus: gpu_names,
            spread: Vec::new(),
            capacity,
        }
    }

    /// Everything is free on several nodes. The first is the runner's own.
    pub fn spread(capacity: Capacity, nodes: Vec<Node>) -> Self {
        let spread = nodes
            .into_iter()
            .map(|free| NodeFree { all_cpus: free.cpus, free, jobs: 0, is_gone: false })
            .collect();
        Self { spread, ..Self::new(capacity, Vec::new()) }
    }

    /// A node is lost: nothing starts there any more.
    pub fn lose(&mut self, node: usize) {
        if let Some(node) = self.spread.get_mut(node) {
            node.is_gone = true;
        }
    }

    /// More nodes than are left: no end of another job helps.
    pub fn can_never_hold(&self, packet: &AttemptPacket) -> bool {
        let alive = self.spread.iter().filter(|node| !node.is_gone).count();
        !self.spread.is_empty() && packet.num_nodes > i64::try_from(alive).unwrap_or(i64::MAX)
    }

    /// The nodes of a share, with the CPUs that it has on each: all of them where it has several nodes.
    pub fn places(&self, share: &Share) -> Vec<(String, i64)> {
        let is_wide = share.on.len() > 1;
        let nodes = share.on.iter().filter_map(|n| self.spread.get(*n));
        nodes
            .map(|node| {
                (node.free.name.clone(), if is_wide { node.all_cpus } else { share.cpus.max(1) })
            })
            .collect()
    }

    /// Takes from the node on which the least would be left, so that whole nodes stay free for wide
    /// jobs; a job on several nodes takes whole ones.
    fn take_spread(&mut self, packet: &AttemptPacket) -> Option<Share> {
        let has_place = self.capacity.max_parallel_jobs.is_none_or(|most| self.running < most);
        if !has_place {
            return None;
        }
        let memory_bytes = packet.memory_bytes.unwrap_or(0);
        let gpu_count = usize::try_from(packet.num_gpus).unwrap_or(0);
        let count = usize::try_from(packet.num_nodes).unwrap_or(1).max(1);
        let ignores = self.capacity.ignore_resources;
        let alive = || self.spread.iter().enumerate().filter(|(_, node)| !node.is_gone);
        let on: Vec<usize> = if count > 1 {
            let empty = alive().filter(|(_, node)| node.jobs == 0).map(|(index, _)| index);
            empty.take(count).collect()
        } else {
            let fits = |node: &NodeFree| {
                packet.num_cpus <= node.free.cpus
                    && (memory_bytes <= node.free.memory_bytes || self.capacity.memory_bytes == 0)
                    && gpu_count <= node.free.gpus.len()
            };
            let tightest = alive()
                .filter(|(_, node)| fits(node))
                .min_by_key(|(index, node)| (node.free.cpus, *index));
            // What the server granted to a runner that runs nothing may start, whatever it needs.
            let any = || {
                alive()
                    .max_by_key(|(_, node)| node.free.cpus)
                    .filter(|_| ignores || self.running == 0)
            };
            tightest.or_else(any).map(|(index, _)| index).into_iter().collect()
        };
        if on.len() < count {
            return None;
        }
        self.running += 1;
        let mut share = Share { cpus: packet.num_cpus, memory_bytes, on, ..Share::default() };
        if count > 1 {
            // All of each node: what is free there is all that it has.
            share.nodes = packet.num_nodes;
            for index in &share.on {
                self.spread[*index].jobs += 1;
            }
            share.gpus.clone_from(&self.spread[share.node()].free.gpus);
            // Nothing fits beside it.
            for index in &share.on {
                self.spread[*index].free.cpus -= WHOLE;
            }
            return Some(share);
        }
        let node = &mut self.spread[share.node()];
        node.jobs += 1;
        node.free.cpus -= share.cpus;
        node.free.memory_bytes -= memory_bytes;
        share.gpus = node.free.gpus.drain(..gpu_count.min(node.free.gpus.len())).collect();
        Some(share)
    }

    fn give_back_spread(&mut self, share: Share) {
        self.running -= 1;
        if share.on.len() > 1 {
            for index in &share.on {
                self.spread[*index].jobs -= 1;
                self.spread[*index].free.cpus += WHOLE;
            }
            return;
        }
        let node = &mut self.spread[share.node()];
        node.jobs -= 1;
        node.free.cpus += share.cpus;
        node.free.memory_bytes += share.memory_bytes;
        node.free.gpus.extend(share.gpus);
    }

    /// Takes what an attempt needs, if it is there. When nothing runs, whatever the server granted
    /// may start: it knows what it did, and nothing would ever become free.
    pub fn take(&mut self, packet: &AttemptPacket) -> Option<Share> {
        if !self.spread.is_empty() {
            return self.take_spread(packet);
        }
        // A job on one node shares it; only jobs on several take nodes away.
        let nodes = if packet.num_nodes > 1 { packet.num_nodes } else { 0 };
        let memory_bytes = packet.memory_bytes.unwrap_or(0);
        let gpu_count = usize::try_from(packet.num_gpus).unwrap_or(0);
        let has_place = self.capacity.max_parallel_jobs.is_none_or(|most| self.running < most);
        let has_room = self.capacity.ignore_resources
            || (packet.num_cpus <= self.cpus
                && (memory_bytes <= self.memory_bytes || self.capacity.memory_bytes == 0)
                && gpu_count <= self.gpus.len()
                && nodes <= self.nodes);
        if !(has_place && has_room) && self.running > 0 {
            return None;
        }
        self.running += 1;
        self.cpus -= packet.num_cpus;
        self.memory_bytes -= memory_bytes;
        self.nodes -= nodes;
        let gpus = self.gpus.drain(..gpu_count.min(self.gpus.len())).collect();
        Some(Share { cpus: packet.num_cpus, memory_bytes, nodes, gpus, on: Vec::new() })
    }

    /// Takes back a share.
    pub fn give_back(&mut self, share: Share) {
        if !self.spread.is_empty() {
            return self.give_back_spread(share);
        }
        self.running -= 1;
        self.cpus += share.cpus;
        self.memory_bytes += share.memory_bytes;
        self.nodes += share.nodes;
        self.gpus.extend(share.gpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatcher::tests::packet;

    fn capacity() -> Capacity {
        Capacity {
            num_cpus: 4,
            memory_bytes: 1000,
            num_gpus: 2,
            num_nodes: 2,
            max_parallel_jobs: None,
            ignore_resources: false,
            spreads: false,
        }
    }

    fn need(cpus: i64, memory: i64, gpus: i64, nodes: i64) -> AttemptPacket {
        AttemptPacket {
            num_cpus: cpus,
            memory_bytes: Some(memory),
            num_gpus: gpus,
            num_nodes: nodes,
            ..packet(1)
        }
    }

    #[test]
    fn each_resource_alone_can_be_the_one_that_is_lacking() {
        for lacking in [need(4, 0, 0, 1), need(1, 901, 0, 1), need(1, 0, 2, 1), need(1, 0, 0, 2)] {
            let mut free = Free::new(capacity(), Vec::new());
            let share = free.take(&need(1, 100, 1, 2)).unwrap();
            assert_eq!(free.take(&lacking), None, "{lacking:?}");
            free.give_back(share);
            assert!(free.take(&lacking).is_some(), "{lacking:?}");
        }
    }

    #[test]
    fn gpus_are_given_by_name_and_come_back() {
        let mut free = Free::new(capacity(), vec!["GPU-a".into()]);
        let first = free.take(&need(1, 0, 1, 1)).unwrap();
        let second = free.take(&need(1, 0, 1, 1)).unwrap();
        assert_eq!(
            (first.gpus.as_slice(), second.gpus.as_slice()),
            (&["GPU-a".to_string()][..], &["1".to_string()][..])
        );
        free.give_back(first);
        assert_eq!(free.take(&need(1, 0, 1, 1)).unwrap().gpus, ["GPU-a"]);
    }

    #[test]
    fn a_cap_on_jobs_is_on_top_of_the_resources() {
        let capped = Capacity { max_parallel_jobs: Some(2), ..capacity() };
        let mut free = Free::new(capped.clone(), Vec::new());
        assert!(free.take(&need(3, 100, 0, 1)).is_some());
        assert_eq!(free.take(&need(3, 100, 0, 1)), None, "the CPUs are gone");
        assert!(free.take(&need(1, 100, 0, 1)).is_some());
        assert_eq!(free.take(&need(0, 0, 0, 1)), None, "two run");
    }

    #[test]
    fn resources_that_are_ignored_hold_nothing_back() {
        let ignoring =
            Capacity { max_parallel_jobs: Some(2), ignore_resources: true, ..capacity() };
        let mut free = Free::new(ignoring, Vec::new());
        let first = free.take(&need(100, 100_000, 9, 9)).unwrap();
        assert_eq!(first.gpus.len(), 2);
        assert!(free.take(&need(100, 100_000, 9, 9)).is_some());
        assert_eq!(free.take(&need(0, 0, 0, 1)), None);
    }

    fn two_nodes() -> Free {
        let node = |name: &str| Node {
            name: name.into(),
            cpus: 4,
            memory_bytes: 1000,
            gpus: vec!["0".into()],
        };
        Free::spread(Capacity { spreads: true, ..capacity() }, vec![node("n1"), node("n2")])
    }

    #[test]
    fn small_jobs_fill_one_node_before_the_next_and_wide_ones_take_empty_nodes() {
        let mut free = two_nodes();
        let small: Vec<Share> =
            (0..8).map(|_| free.take(&need(1, 10, 0, 1)).expect("room")).collect();
        let on: Vec<usize> = small.iter().map(Share::node).collect();
        assert_eq!(on, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(free.take(&need(1, 0, 0, 1)), None, "all CPUs are taken");
        let mut small = small.into_iter();
        small.by_ref().take(4).for_each(|share| free.give_back(share));
        assert_eq!(free.take(&need(1, 0, 0, 2)), None, "the second node is not empty");
        small.for_each(|share| free.give_back(share));
        let wide = free.take(&need(1, 0, 0, 2)).expect("two empty nodes");
        assert_eq!((wide.on.as_slice(), wide.gpus.len()), (&[0, 1][..], 1));
        assert_eq!(free.places(&wide), [("n1".into(), 4), ("n2".into(), 4)]);
        assert_eq!(free.take(&need(1, 0, 0, 1)), None, "nothing runs beside it");
        free.give_back(wide);
        let narrow = free.take(&need(3, 1000, 1, 1)).expect("room");
        assert_eq!(free.places(&narrow), [("n1".into(), 3)]);
    }

    #[test]
    fn nothing_starts_on_a_node_that_is_lost() {
        let mut free = two_nodes();
        free.lose(0);
        assert_eq!(free.take(&need(1, 0, 0, 1)).expect("the other one").node(), 1);
        assert!(free.can_never_hold(&need(1, 0, 0, 2)) && !free.can_never_hold(&need(1, 0, 0, 1)));
    }

    #[test]
    fn an_empty_runner_starts_whatever_it_was_given() {
        let mut free = Free::new(capacity(), Vec::new());
        assert!(free.take(&need(64, 0, 0, 1)).is_some());
        assert_eq!(free.take(&need(1, 0, 0, 1)), None);
    }
}
