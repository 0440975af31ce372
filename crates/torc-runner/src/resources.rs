//! What is free on this runner. The server grants by the same numbers; this is where they become
//! real.

use torc_model::api::{AttemptPacket, Capacity};

/// What an attempt takes while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Share {
    cpus: i64,
    memory_bytes: i64,
    nodes: i64,
    /// Names of its GPUs.
    pub gpus: Vec<String>,
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
            capacity,
        }
    }

    /// Takes what an attempt needs, if it is there. When nothing runs, whatever the server granted
    /// may start: it knows what it did, and nothing would ever become free.
    pub fn take(&mut self, packet: &AttemptPacket) -> Option<Share> {
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
        Some(Share { cpus: packet.num_cpus, memory_bytes, nodes, gpus })
    }

    /// Takes back a share.
    pub fn give_back(&mut self, share: Share) {
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

    #[test]
    fn an_empty_runner_starts_whatever_it_was_given() {
        let mut free = Free::new(capacity(), Vec::new());
        assert!(free.take(&need(64, 0, 0, 1)).is_some());
        assert_eq!(free.take(&need(1, 0, 0, 1)), None);
    }
}
