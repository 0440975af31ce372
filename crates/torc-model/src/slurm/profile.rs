//! Profiles: what a cluster offers, as data. Built in, from a file of the user, or derived from
//! `scontrol`.

use super::cluster::{Node, PartitionLimits};
use super::{clock, parse_clock};
use crate::plan::Requirements;
use crate::recovery::NodeShape;
use crate::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The profiles that come with the program, as JSON.
const BUILT_IN: [&str; 2] =
    [include_str!("profiles/kestrel.json"), include_str!("profiles/dane.json")];

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// One word.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// How to tell that we are on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detect: Vec<Detect>,
    /// What it has.
    pub partitions: Vec<Partition>,
}

/// An environment variable that tells a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// Its name.
    pub env: String,
    /// Its value there.
    pub value: String,
}

/// A partition, its nodes and its limits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    /// Name of the partition.
    pub name: String,
    /// CPUs of a node.
    pub cpus_per_node: u32,
    /// Memory of a node.
    pub memory_mb: u64,
    /// Longest walltime, as Slurm writes it; absent if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_walltime: Option<String>,
    /// Most nodes of one allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// Fewest nodes of one allocation.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_nodes: u32,
    /// GPUs of a node.
    #[serde(skip_serializing_if = "is_zero")]
    pub gpus_per_node: u32,
    /// Kind of GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Local disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_disk_gb: Option<u32>,
    /// Several jobs share a node: an allocation asks only for what it needs of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Not chosen unless it is named.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requires_explicit_request: bool,
    /// Jobs may lose their nodes to others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preemptible: bool,
    /// Used when nothing is named.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// Quality of service to ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_qos: Option<String>,
    /// Fields above that the site's public pages do not confirm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<String>,
}

/// What a runner needs of an allocation's time to start and to end.
pub const SPARE_SECONDS: u64 = 60;

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Partition {
    /// Longest walltime in seconds; `None` is unlimited.
    pub fn max_seconds(&self) -> Option<u64> {
        self.max_walltime.as_deref().and_then(|text| parse_clock(text).flatten())
    }

    /// Why a job with these needs cannot run here, if so.
    pub fn lacking(&self, needs: &Requirements, runtime: u64) -> Option<String> {
        let memory_mb = needs.memory.map_or(0, |m| m.0.div_ceil(1 << 20));
        let most = self.max_nodes.unwrap_or(u32::MAX);
        if needs.num_cpus > self.cpus_per_node {
            Some(format!(
                "{}, a node has {}",
                words::count(needs.num_cpus, "CPU"),
                self.cpus_per_node
            ))
        } else if memory_mb > self.memory_mb {
            Some(format!("{memory_mb} MB of memory, a node has {}", self.memory_mb))
        } else if needs.num_gpus > self.gpus_per_node {
            Some(format!(
                "{}, a node has {}",
                words::count(needs.num_gpus, "GPU"),
                self.gpus_per_node
            ))
        } else if needs.num_nodes > most {
            Some(format!(
                "{}, an allocation has at most {most}",
                words::count(needs.num_nodes, "node")
            ))
        } else {
            let longest = self.longest_runtime()?;
            let limit = self.max_seconds().unwrap_or(longest);
            (runtime > longest).then(|| {
                format!(
                    "{} of time, the limit is {} with {SPARE_SECONDS} s to spare",
                    clock(runtime),
                    clock(limit)
                )
            })
        }
    }

    /// The longest runtime of a job here, in seconds; `None` is unlimited. A runner takes no job
    /// that cannot end before the allocation does, so a part of the limit is not for jobs.
    pub fn longest_runtime(&self) -> Option<u64> {
        self.max_seconds().map(|max| max.saturating_sub(SPARE_SECONDS))
    }
}

impl Profile {
    /// Reads a profile; the error says what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let profile: Self =
            serde_json::from_str(text).map_err(|e| format!("not a profile: {e}"))?;
        for partition in &profile.partitions {
            if let Some(limit) = &partition.max_walltime
                && parse_clock(limit).is_none()
            {
                return Err(format!("partition `{}`: `{limit}` is not a walltime", partition.name));
            }
            if partition.cpus_per_node == 0 || partition.memory_mb == 0 {
                return Err(format!(
                    "partition `{}`: `cpus_per_node` and `memory_mb` must be given",
                    partition.name
                ));
            }
        }
        Ok(profile)
    }

    /// Those that come with the program.
    pub fn built_in() -> Vec<Self> {
        BUILT_IN.iter().filter_map(|text| Self::parse(text).ok()).collect()
    }

    /// We are on this cluster, by its environment variables.
    pub fn is_here(&self, env: impl Fn(&str) -> Option<String>) -> bool {
        self.detect.iter().any(|d| env(&d.env).as_deref() == Some(d.value.as_str()))
    }

    /// A partition by its name.
    pub fn find(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.name == name)
    }

    /// The partition for jobs with these needs: the default one if they fit, then the one with the
    /// smallest nodes and shortest limit that will do; GPUs and preemptible nodes only for those
    /// who need or name them.
    pub fn choose(&self, needs: &Requirements, runtime: u64) -> Result<&Partition, String> {
        let fits =
            |p: &&Partition| !p.requires_explicit_request && p.lacking(needs, runtime).is_none();
        let order = |p: &&Partition| {
            let wasted_gpus = needs.num_gpus == 0 && p.gpus_per_node > 0;
            let limit = p.max_seconds().unwrap_or(u64::MAX);
            (p.preemptible, wasted_gpus, !p.is_default, p.memory_mb, limit, p.cpus_per_node)
        };
        self.partitions.iter().filter(fits).min_by_key(order).ok_or_else(|| {
            let lacks = |p: &Partition| match p.lacking(needs, runtime) {
                Some(lack) => format!("`{}`: {lack}", p.name),
                None => format!("`{}`: only when named", p.name),
            };
            let rows: Vec<_> = self.partitions.iter().map(lacks).collect();
            format!("no partition of `{}` fits `{}` ({})", self.name, needs.name, rows.join("; "))
        })
    }

    /// The kinds of nodes that jobs get without naming a partition, for recovery to know what it
    /// can give.
    pub fn shapes(&self) -> Vec<NodeShape> {
        let signed = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
        let shape = |p: &Partition| NodeShape {
            num_cpus: i64::from(p.cpus_per_node),
            memory_bytes: signed(p.memory_mb << 20),
            num_gpus: i64::from(p.gpus_per_node),
            max_runtime_seconds: p.longest_runtime().map(signed),
        };
        self.partitions.iter().filter(|p| !p.requires_explicit_request).map(shape).collect()
    }

    /// What `scontrol` tells, as a profile. A partition of mixed nodes counts as its most common
    /// kind.
    pub fn derive(
        name: &str,
        nodes: &[Node],
        partitions: &[PartitionLimits],
        whole_nodes: bool,
    ) -> Self {
        let rows = partitions.iter().filter(|p| p.state == "UP" || p.state.is_empty());
        let partitions = rows.filter_map(|p| derive_partition(p, nodes, whole_nodes)).collect();
        Self { name: name.to_owned(), display_name: String::new(), detect: Vec::new(), partitions }
    }
}

fn derive_partition(
    partition: &PartitionLimits,
    nodes: &[Node],
    whole_nodes: bool,
) -> Option<Partition> {
    let mut kinds: BTreeMap<(u32, u64, u32), (usize, &Node)> = BTreeMap::new();
    for node in nodes.iter().filter(|n| n.partitions.contains(&partition.name)) {
        kinds.entry((node.cpus, node.memory_mb, node.gpus)).or_insert((0, node)).0 += 1;
    }
    let count: usize = kinds.values().map(|(n, _)| n).sum();
    let (_, node) = kinds.into_values().max_by_key(|(number, node)| (*number, node.memory_mb))?;
    let special = ["debug", "test", "interactive", "standby", "stdby"];
    Some(Partition {
        name: partition.name.clone(),
        cpus_per_node: node.cpus,
        memory_mb: node.memory_mb,
        max_walltime: partition.max_seconds.map(clock),
        max_nodes: Some(partition.max_nodes.unwrap_or(u32::MAX).min(count as u32)),
        min_nodes: partition.min_nodes,
        gpus_per_node: node.gpus,
        gpu_type: node.gpu_type.clone(),
        local_disk_gb: (node.disk_mb > 0).then_some((node.disk_mb / 1024) as u32),
        shared: !partition.is_exclusive && !whole_nodes,
        requires_explicit_request: special
            .iter()
            .any(|word| partition.name.to_ascii_lowercase().contains(word)),
        preemptible: !matches!(partition.preempt_mode.as_str(), "" | "OFF"),
        is_default: partition.is_default,
        default_qos: None,
        unverified: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Memory, Runtime};

    fn needs(cpus: u32, memory_gb: u64, gpus: u32) -> Requirements {
        Requirements {
            num_cpus: cpus,
            memory: Some(Memory(memory_gb << 30)),
            num_gpus: gpus,
            runtime: Some(Runtime(60)),
            ..Requirements::default()
        }
    }

    #[test]
    fn every_built_in_profile_reads() {
        assert_eq!(Profile::built_in().len(), BUILT_IN.len());
    }

    #[test]
    fn kestrel_gets_the_partition_that_fits() {
        let profiles = Profile::built_in();
        let kestrel = &profiles[0];
        assert!(kestrel.is_here(|name| (name == "NREL_CLUSTER").then(|| "kestrel".into())));
        let pick = |needs: &Requirements, hours: u64| {
            kestrel.choose(needs, hours * 3600).map(|p| p.name.as_str())
        };
        assert_eq!(pick(&needs(4, 8, 0), 1), Ok("short"));
        assert_eq!(pick(&needs(104, 200, 0), 24), Ok("standard"));
        assert_eq!(pick(&needs(104, 200, 0), 100), Ok("long"));
        assert_eq!(pick(&needs(4, 900, 0), 1), Ok("medmem"));
        assert_eq!(pick(&needs(4, 8, 2), 24), Ok("gpu-h100"));
        let none = kestrel.choose(&needs(500, 8, 0), 3600).unwrap_err();
        assert!(none.contains("500 CPUs, a node has 104"), "{none}");
    }
}
