//! What this machine has to share out.

use torc_model::api::Capacity;

/// CPUs, memory and GPUs, and the names of the GPUs. What the environment takes away (affinity,
/// control groups, `CUDA_VISIBLE_DEVICES`) is not counted.
pub fn detect() -> (Capacity, Vec<String>) {
    let gpus = detect_gpus();
    let capacity = Capacity {
        num_cpus: std::thread::available_parallelism()
            .map_or(1, |n| i64::try_from(n.get()).unwrap_or(i64::MAX)),
        memory_bytes: detect_memory(),
        num_gpus: i64::try_from(gpus.len()).unwrap_or(0),
        num_nodes: 1,
        max_parallel_jobs: None,
        ignore_resources: false,
        spreads: false,
    };
    (capacity, gpus)
}

fn detect_memory() -> i64 {
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| parse_mem_total(&text))
        .unwrap_or(0);
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok())
        .min();
    limit.map_or(total, |limit| limit.min(total))
}

fn parse_mem_total(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? * 1024)
}

fn detect_gpus() -> Vec<String> {
    if let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") {
        return parse_visible(&list);
    }
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let count = entries.filter(|e| e.file_name().to_str().is_some_and(is_gpu)).count();
    (0..count).map(|n| n.to_string()).collect()
}

fn parse_visible(list: &str) -> Vec<String> {
    // As the driver reads it: an entry that is not a device ends the list.
    list.split(',')
        .map(str::trim)
        .take_while(|entry| !entry.is_empty() && !entry.starts_with('-'))
        .map(Into::into)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_devices_are_read() {
        assert_eq!(
            parse_mem_total("MemTotal:       24682416 kB\nMemFree: 1 kB\n"),
            Some(24_682_416 * 1024)
        );
        assert_eq!(parse_mem_total("nothing"), None);
        assert_eq!(parse_visible("0, GPU-abc,3"), ["0", "GPU-abc", "3"]);
        assert_eq!(parse_visible("0,-1,2"), ["0"]);
        assert!(parse_visible("").is_empty());
        let (capacity, _) = detect();
        assert!(capacity.num_cpus >= 1 && capacity.memory_bytes > 0);
    }
}
