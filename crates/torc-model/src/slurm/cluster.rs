//! What `scontrol` tells about a cluster: records of `Key=Value`, nodes, partitions, configuration.

use super::parse_clock;
use std::collections::BTreeMap;

/// One record of `scontrol -o show ...`. Values may contain spaces only where Slurm lets them
/// (reasons, names).
pub fn fields(line: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut last: Option<String> = None;
    for token in line.split_whitespace() {
        match token.split_once('=').filter(|(key, _)| is_key(key)) {
            Some((key, value)) => {
                fields.insert(key.to_owned(), value.to_owned());
                last = Some(key.to_owned());
            }
            None => {
                if let Some(value) = last.as_ref().and_then(|key| fields.get_mut(key)) {
                    value.push(' ');
                    value.push_str(token);
                }
            }
        }
    }
    fields
}

fn is_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/:_".contains(&b))
}

/// `scontrol show config`: lines of `Key = Value`.
pub fn config(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .filter(|(key, _)| !key.is_empty() && !key.contains(' '))
        .collect()
}

/// A node's shape.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node {
    /// Name of the node, as Slurm has it.
    pub name: String,
    /// CPUs that jobs can have.
    pub cpus: u32,
    /// Memory that jobs can have, in MB.
    pub memory_mb: u64,
    /// GPUs that jobs can have.
    pub gpus: u32,
    /// Kind of GPU, if Slurm names one.
    pub gpu_type: Option<String>,
    /// Local disk in megabytes.
    pub disk_mb: u64,
    /// Features that a constraint can ask for.
    pub features: Vec<String>,
    /// Partitions it belongs to.
    pub partitions: Vec<String>,
}

/// Reads `scontrol -o show nodes`.
pub fn nodes(text: &str) -> Vec<Node> {
    text.lines().filter_map(node).collect()
}

fn node(line: &str) -> Option<Node> {
    let fields = fields(line);
    let list = |key: &str| -> Vec<String> {
        let value = fields.get(key).map_or("", String::as_str);
        value.split(',').filter(|v| !v.is_empty() && *v != "(null)").map(str::to_owned).collect()
    };
    let (gpus, gpu_type) = gpus(fields.get("Gres").map_or("", String::as_str));
    Some(Node {
        name: fields.get("NodeName")?.clone(),
        cpus: fields.get("CPUTot")?.parse().ok()?,
        memory_mb: fields.get("RealMemory")?.parse().ok()?,
        gpus,
        gpu_type,
        disk_mb: fields.get("TmpDisk").and_then(|d| d.parse().ok()).unwrap_or(0),
        features: list("AvailableFeatures"),
        partitions: list("Partitions"),
    })
}

/// Reads `gpu:a100:2(S:0-1),shard:8`: how many GPUs and of which kind.
pub fn gpus(gres: &str) -> (u32, Option<String>) {
    let mut count = 0;
    let mut kind = None;
    for part in gres.split(',') {
        let part = part.split('(').next().unwrap_or("");
        let words: Vec<&str> = part.split(':').collect();
        match words.as_slice() {
            ["gpu", name, number] => {
                count += number.parse().unwrap_or(0);
                kind = kind.or_else(|| Some((*name).to_owned()));
            }
            ["gpu", number] => count += number.parse().unwrap_or(0),
            ["gpu"] => count += 1,
            _ => {}
        }
    }
    (count, kind)
}

/// A partition's limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionLimits {
    /// Name of the partition.
    pub name: String,
    /// Used when a job names none.
    pub is_default: bool,
    /// Longest walltime; `None` is unlimited.
    pub max_seconds: Option<u64>,
    /// Most nodes of one job; `None` is unlimited.
    pub max_nodes: Option<u32>,
    /// Fewest nodes of one job.
    pub min_nodes: u32,
    /// Jobs always get whole nodes.
    pub is_exclusive: bool,
    /// `UP`, `DOWN`, ...
    pub state: String,
    /// Its jobs may be preempted, and how: `REQUEUE`, `CANCEL`, ...; `OFF` if not.
    pub preempt_mode: String,
}

/// Reads `scontrol -o show partitions`.
pub fn partitions(text: &str) -> Vec<PartitionLimits> {
    text.lines().filter_map(partition).collect()
}

fn partition(line: &str) -> Option<PartitionLimits> {
    let fields = fields(line);
    let get = |key: &str| fields.get(key).map_or("", String::as_str);
    Some(PartitionLimits {
        name: fields.get("PartitionName")?.clone(),
        is_default: get("Default") == "YES",
        max_seconds: parse_clock(get("MaxTime")).flatten(),
        max_nodes: get("MaxNodes").parse().ok(),
        min_nodes: get("MinNodes").parse().unwrap_or(0),
        is_exclusive: get("OverSubscribe").starts_with("EXCLUSIVE"),
        state: get("State").to_owned(),
        preempt_mode: get("PreemptMode").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted() {
        assert_eq!(gpus("gpu:a100:2"), (2, Some("a100".into())));
        assert_eq!(gpus("gpu:h100:4(S:0-1),shard:8"), (4, Some("h100".into())));
        assert_eq!(gpus("gpu:1"), (1, None));
        assert_eq!(gpus("(null)"), (0, None));
    }

    #[test]
    fn values_with_spaces_stay_whole() {
        let fields = fields(
            "NodeName=n1 State=DOWN Reason=Not responding [slurm@2026-11-15T18:33:05] CPUTot=4",
        );
        assert_eq!(fields["Reason"], "Not responding [slurm@2026-11-15T18:33:05]");
        assert_eq!(fields["CPUTot"], "4");
    }
}
