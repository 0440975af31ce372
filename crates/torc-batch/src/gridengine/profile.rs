//! What Grid Engine tells about its queues and hosts, as a profile.

use crate::program::{QUERY_LIMIT, run};
use torc_model::slurm::profile::{Partition, Profile};
use torc_model::slurm::{clock, parse_clock};
use torc_model::units::Memory;

/// Asks for every queue and the hosts.
pub async fn derive() -> Result<Profile, String> {
    let ask = async |program: &str, arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let ran = run(program, &arguments, QUERY_LIMIT).await;
        match ran.code {
            Some(0) => Ok(ran.stdout),
            code => Err(format!("{program} ended with {code:?}: {}", ran.stderr.trim())),
        }
    };
    let memory_mb = host_memory_mb(&ask("qhost", &[]).await?);
    let mut partitions = Vec::new();
    for queue in ask("qconf", &["-sql"]).await?.split_whitespace() {
        partitions.extend(partition(&ask("qconf", &["-sq", queue]).await?, memory_mb));
    }
    match partitions.is_empty() {
        true => Err("Grid Engine shows no queue with slots".into()),
        false => Ok(Profile {
            name: "gridengine".into(),
            display_name: "Grid Engine".into(),
            detect: Vec::new(),
            partitions,
        }),
    }
}

/// Memory of the smallest host that `qhost` shows.
pub(super) fn host_memory_mb(text: &str) -> u64 {
    let memory = |line: &str| {
        let total = line.split_whitespace().nth(7)?;
        Memory::parse(total).ok().map(|memory| memory.0 >> 20).filter(|mb| *mb > 0)
    };
    text.lines().skip(2).filter_map(memory).min().unwrap_or(1024)
}

/// A queue as `qconf -sq` shows it. Slots are those of most hosts: the number before `,[host=...]`.
pub(super) fn partition(text: &str, memory_mb: u64) -> Option<Partition> {
    let get = |key: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.and_then(|line| line.split_once(char::is_whitespace)).map(|(_, value)| value.trim())
    };
    let slots: Vec<u32> = get("slots")?
        .split(|c: char| !c.is_ascii_digit() && c != '=')
        .filter_map(|part| part.rsplit('=').next()?.parse().ok())
        .collect();
    let slots = slots.into_iter().max().filter(|slots| *slots > 0)?;
    let limit = get("h_rt").and_then(parse_clock).flatten();
    Some(Partition {
        name: get("qname")?.to_owned(),
        cpus_per_node: slots,
        memory_mb,
        max_walltime: limit.map(clock),
        max_nodes: Some(1),
        shared: true,
        ..Partition::default()
    })
}
