//! How many allocations, of which shape, and why.
//!
//! Jobs are grouped by what they need and by whether they depend on others that have not run yet.
//! Groups without dependencies get their nodes at once, the others when their jobs become ready.
//! Inside a group the jobs are further divided by how deep they stand in it, so that a chain of
//! equal jobs asks again for each link.

use super::profile::{Partition, Profile, SPARE_SECONDS};
use super::{Cost, clock};
use crate::plan::{Requirements, SlurmScheduler};
use crate::units::Memory;
use crate::words;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What the runner itself may need of an allocation's memory.
const RUNNER_MEMORY: u64 = 256 << 20;

/// Walltime for jobs that do not say how long they take.
const UNKNOWN_RUNTIME_SECONDS: u64 = 4 * 3600;

/// A job that still has to run.
#[derive(Clone, PartialEq, Debug)]
pub struct PendingJob {
    /// Its name.
    pub name: String,
    /// What it needs.
    pub requirements: Requirements,
    /// Indexes, in the same list, of the jobs it still waits for.
    pub depends_on: Vec<usize>,
}

/// Jobs that the same allocations can serve.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// What each of them needs.
    pub requirements: Requirements,
    /// They wait for jobs that have not run yet.
    pub has_dependencies: bool,
    /// Indexes of the jobs, by depth inside the group.
    pub levels: Vec<Vec<usize>>,
}

impl Group {
    /// All its jobs.
    pub fn jobs(&self) -> impl Iterator<Item = usize> + '_ {
        self.levels.iter().flatten().copied()
    }
}

/// Groups jobs by (requirements, has dependencies), in the order in which the groups first appear.
pub fn scheduler_groups(jobs: &[PendingJob]) -> Vec<Group> {
    let mut index: HashMap<(&Requirements, bool), usize> = HashMap::new();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let key = (&job.requirements, !job.depends_on.is_empty());
        let group = *index.entry(key).or_insert_with(|| {
            members.push(Vec::new());
            members.len() - 1
        });
        members[group].push(number);
    }
    members
        .into_iter()
        .map(|numbers| {
            let first = &jobs[numbers[0]];
            Group {
                requirements: first.requirements.clone(),
                has_dependencies: !first.depends_on.is_empty(),
                levels: levels(jobs, &numbers),
            }
        })
        .collect()
}

/// Depth of each job inside its group: 0 without a dependency in the group, else one more than the
/// deepest of those.
fn levels(jobs: &[PendingJob], members: &[usize]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut depth: HashMap<usize, usize> = members.iter().map(|m| (*m, UNSEEN)).collect();
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for member in members {
        // Without recursion: chains may be as long as the workflow.
        let mut stack = vec![*member];
        while let Some(top) = stack.last().copied() {
            if depth.get(&top) != Some(&UNSEEN) {
                stack.pop();
                continue;
            }
            let inside = || jobs[top].depends_on.iter().filter(|d| depth.contains_key(d));
            let open: Vec<usize> = inside().copied().filter(|d| depth[d] == UNSEEN).collect();
            if open.is_empty() {
                let level = inside().map(|d| depth[d] + 1).max().unwrap_or(0);
                depth.insert(top, level);
                stack.pop();
            } else {
                stack.extend(open);
            }
        }
        let level = depth[member];
        if levels.len() <= level {
            levels.resize_with(level + 1, Vec::new);
        }
        levels[level].push(*member);
    }
    levels
}

/// How to plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Who pays.
    pub account: String,
    /// Use this partition, whatever fits best.
    pub partition: Option<String>,
    /// Ask for this many times the longest runtime.
    pub walltime_multiplier: f64,
    /// Ask for the partition's longest walltime instead.
    pub use_max_walltime: bool,
    /// One allocation of many nodes instead of many allocations.
    pub single_allocation: bool,
    /// At most this many allocations per group.
    pub max_allocations: Option<u32>,
    /// End of every scheduler's name.
    pub name_suffix: String,
    /// Names that are taken already.
    pub taken_names: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            account: String::new(),
            partition: None,
            walltime_multiplier: 1.5,
            use_max_walltime: false,
            single_allocation: false,
            max_allocations: None,
            name_suffix: "_scheduler".into(),
            taken_names: Vec::new(),
        }
    }
}

/// What a group gets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Planned {
    /// How to ask for nodes.
    pub scheduler: SlurmScheduler,
    /// Its jobs wait for others.
    pub has_dependencies: bool,
    /// Jobs per level, as indexes into the list that was planned.
    pub levels: Vec<Vec<usize>>,
    /// Allocations per level.
    pub allocations: Vec<u32>,
    /// One runner on each node.
    pub start_one_worker_per_node: bool,
    /// Seconds that each allocation asks for.
    pub walltime_seconds: u64,
    /// Jobs that one allocation runs at a time.
    pub jobs_at_once: u32,
    /// Rounds of jobs that fit into the walltime.
    pub rounds: u32,
    /// How these numbers came about, for people.
    pub why: Vec<String>,
}

impl Planned {
    /// Number of jobs.
    pub fn job_count(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }

    /// Allocations and node hours, at most.
    pub fn cost(&self) -> Cost {
        let allocations: u64 = self.allocations.iter().copied().map(u64::from).sum();
        let hours = self.walltime_seconds as f64 / 3600.0;
        Cost {
            allocations,
            node_hours: allocations as f64 * f64::from(self.scheduler.nodes) * hours,
        }
    }
}

/// Plans allocations for every group. All groups that cannot be served are named in one error.
pub fn plan(
    jobs: &[PendingJob],
    profile: &Profile,
    options: &Options,
) -> Result<Vec<Planned>, Vec<String>> {
    let mut planned: Vec<Planned> = Vec::new();
    let mut errors = Vec::new();
    for group in scheduler_groups(jobs) {
        let suffix = if group.has_dependencies { "_deferred" } else { "" };
        let base = format!("{}{suffix}{}", group.requirements.name, options.name_suffix);
        let is_taken = |name: &String| {
            options.taken_names.contains(name) || planned.iter().any(|p| p.scheduler.name == *name)
        };
        let numbered = (2..).map(|n| format!("{base}_{n}"));
        let name = std::iter::once(base.clone())
            .chain(numbered)
            .find(|n| !is_taken(n))
            .unwrap_or_default();
        match plan_group(group, name, profile, options) {
            Ok(group) => planned.push(group),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(planned) } else { Err(errors) }
}

fn plan_group(
    group: Group,
    name: String,
    profile: &Profile,
    options: &Options,
) -> Result<Planned, String> {
    let needs = &group.requirements;
    let mut why = Vec::new();
    let runtime = needs.runtime.map_or(UNKNOWN_RUNTIME_SECONDS, |r| r.0.max(1));
    if needs.runtime.is_none() {
        why.push(format!(
            "`{}` does not say how long its jobs take; planned with {}",
            needs.name,
            clock(runtime)
        ));
    }
    let partition = match &options.partition {
        Some(name) => {
            let known = || {
                profile.partitions.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
            };
            let found = profile.find(name).ok_or_else(|| {
                format!(
                    "partition `{name}` not found in profile `{}` (known: {})",
                    profile.name,
                    known()
                )
            })?;
            match found.lacking(needs, runtime) {
                Some(lack) => {
                    return Err(format!("partition `{name}` cannot run `{}`: {lack}", needs.name));
                }
                None => found,
            }
        }
        None => profile.choose(needs, runtime)?,
    };
    let walltime = walltime(runtime, partition, options);
    let rounds =
        u32::try_from(walltime.saturating_sub(SPARE_SECONDS) / runtime).unwrap_or(u32::MAX).max(1);
    let per_node = jobs_per_node(needs, partition);
    why.push(format!(
        "partition `{}`: {per_node} of these jobs fit on a node ({}, {} MB{}), {} in {}",
        partition.name,
        words::count(partition.cpus_per_node, "CPU"),
        partition.memory_mb,
        if partition.gpus_per_node > 0 {
            format!(", {}", words::count(partition.gpus_per_node, "GPU"))
        } else {
            String::new()
        },
        words::count(rounds, "round"),
        clock(walltime),
    ));
    let node_jobs = if needs.num_nodes > 1 { 1 } else { per_node };
    let per_allocation = u64::from(node_jobs) * u64::from(rounds);
    let mut allocations: Vec<u32> =
        group.levels.iter().map(|l| count(l.len(), per_allocation, options)).collect();
    let widest = group.levels.iter().map(Vec::len).max().unwrap_or(0);
    let mut nodes = needs.num_nodes.max(1).max(partition.min_nodes);
    let mut one_worker_per_node = false;
    if options.single_allocation && needs.num_nodes <= 1 {
        let most = allocations.iter().copied().max().unwrap_or(1);
        nodes = most.min(partition.max_nodes.unwrap_or(most)).max(partition.min_nodes).max(1);
        allocations.iter_mut().for_each(|n| *n = 1);
        one_worker_per_node = nodes > 1;
    }
    for (level, number) in allocations.iter().enumerate() {
        let jobs = words::count(group.levels[level].len(), "job");
        let place = if level > 0 { " further down" } else { "" };
        why.push(format!("{jobs}{place}: {}", words::count(*number, "allocation")));
    }
    let (cpus, memory, gpus) = shape(needs, partition, node_jobs.min(widest.max(1) as u32));
    let scheduler = SlurmScheduler {
        name,
        account: options.account.clone(),
        partition: Some(partition.name.clone()),
        nodes,
        walltime: clock(walltime),
        mem: memory.map(|m| m.to_string()),
        gres: (gpus > 0).then(|| format!("gpu:{gpus}")),
        qos: partition.default_qos.clone(),
        ntasks_per_node: Some(cpus),
        ..SlurmScheduler::default()
    };
    Ok(Planned {
        scheduler,
        has_dependencies: group.has_dependencies,
        levels: group.levels,
        allocations,
        start_one_worker_per_node: one_worker_per_node,
        walltime_seconds: walltime,
        jobs_at_once: node_jobs,
        rounds,
        why,
    })
}

/// Slurm counts whole minutes; the runner needs time to start and to end.
fn walltime(runtime: u64, partition: &Partition, options: &Options) -> u64 {
    let max = partition.max_seconds();
    let wanted = match max {
        Some(max) if options.use_max_walltime => max,
        _ => {
            ((runtime as f64 * options.walltime_multiplier.max(1.0)) as u64 + SPARE_SECONDS)
                .div_ceil(60)
                * 60
        }
    };
    max.map_or(wanted, |max| wanted.min(max))
}

fn jobs_per_node(needs: &Requirements, partition: &Partition) -> u32 {
    let by_cpus = partition.cpus_per_node / needs.num_cpus.max(1);
    let by_memory = match needs.memory {
        Some(Memory(bytes)) if bytes > 0 => ((partition.memory_mb << 20) / bytes) as u32,
        _ => u32::MAX,
    };
    let by_gpus = partition.gpus_per_node.checked_div(needs.num_gpus).unwrap_or(u32::MAX);
    by_cpus.min(by_memory).min(by_gpus).max(1)
}

fn count(jobs: usize, per_allocation: u64, options: &Options) -> u32 {
    let wanted = (jobs as u64).div_ceil(per_allocation.max(1)).max(1);
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    options.max_allocations.map_or(wanted, |most| wanted.min(most.max(1)))
}

/// CPUs, memory and GPUs per node to ask for: the whole node, or what these jobs need of a shared
/// one.
fn shape(needs: &Requirements, partition: &Partition, jobs: u32) -> (u32, Option<Memory>, u32) {
    let jobs = if needs.num_nodes > 1 { 1 } else { jobs };
    let whole = Memory(partition.memory_mb << 20);
    let gpus = (needs.num_gpus * jobs).min(partition.gpus_per_node);
    if !partition.shared {
        let gpus = if needs.num_gpus > 0 { partition.gpus_per_node } else { 0 };
        return (partition.cpus_per_node, Some(whole), gpus);
    }
    let memory = needs.memory.map(|m| Memory((m.0 * u64::from(jobs) + RUNNER_MEMORY).min(whole.0)));
    ((needs.num_cpus * jobs).min(partition.cpus_per_node), memory, gpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Runtime;

    fn needs(name: &str, cpus: u32, memory_mb: u64, minutes: u64) -> Requirements {
        Requirements {
            name: name.into(),
            num_cpus: cpus,
            memory: Some(Memory(memory_mb << 20)),
            runtime: Some(Runtime(minutes * 60)),
            ..Requirements::default()
        }
    }

    fn job(name: &str, requirements: &Requirements, depends_on: &[usize]) -> PendingJob {
        PendingJob {
            name: name.into(),
            requirements: requirements.clone(),
            depends_on: depends_on.to_vec(),
        }
    }

    fn profile(shared: bool) -> Profile {
        let partition = Partition {
            name: "main".into(),
            cpus_per_node: 4,
            memory_mb: 4000,
            max_walltime: Some("04:00:00".into()),
            shared,
            ..Partition::default()
        };
        Profile {
            name: "lab".into(),
            display_name: String::new(),
            detect: vec![],
            partitions: vec![partition],
        }
    }

    #[test]
    fn groups_follow_needs_and_dependencies() {
        let (small, gpu) = (needs("default", 1, 100, 10), needs("gpu", 2, 100, 10));
        let jobs = [
            job("a", &small, &[]),
            job("b", &small, &[]),
            job("c", &small, &[0]),
            job("d", &gpu, &[]),
        ];
        let groups: Vec<_> = scheduler_groups(&jobs)
            .into_iter()
            .map(|g| {
                (g.requirements.name.clone(), g.has_dependencies, g.jobs().collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            groups,
            vec![
                ("default".into(), false, vec![0, 1]),
                ("default".into(), true, vec![2]),
                ("gpu".into(), false, vec![3])
            ]
        );
    }

    #[test]
    fn a_chain_in_one_group_asks_again_for_each_link() {
        let small = needs("s", 1, 100, 10);
        let jobs = [
            job("a", &small, &[]),
            job("b", &small, &[0]),
            job("c", &small, &[1]),
            job("d", &small, &[2]),
        ];
        let planned = plan(&jobs, &profile(true), &Options::default()).expect("fits");
        assert_eq!(planned.len(), 2);
        assert_eq!(planned[1].scheduler.name, "s_deferred_scheduler");
        assert_eq!(planned[1].levels, vec![vec![1], vec![2], vec![3]]);
        assert_eq!(planned[1].allocations, vec![1, 1, 1]);
    }

    #[test]
    fn counts_follow_the_walltime_that_is_asked_for() {
        let small = needs("s", 1, 500, 60);
        let jobs: Vec<_> = (0..100).map(|i| job(&format!("j{i}"), &small, &[])).collect();
        let planned = plan(&jobs, &profile(false), &Options::default()).expect("fits");
        // 4 per node, one round in 91 minutes.
        assert_eq!(
            (planned[0].jobs_at_once, planned[0].rounds, planned[0].allocations[0]),
            (4, 1, 25)
        );
        assert_eq!(planned[0].scheduler.walltime, "01:31:00");
        assert_eq!(planned[0].scheduler.mem.as_deref(), Some("4000m"));
        let long = Options { use_max_walltime: true, ..Options::default() };
        let planned = plan(&jobs, &profile(false), &long).expect("fits");
        assert_eq!((planned[0].rounds, planned[0].allocations[0]), (3, 9));
        assert!((planned[0].cost().node_hours - 36.0).abs() < 1e-9);
    }

    #[test]
    fn one_allocation_of_many_nodes_and_jobs_of_many_nodes() {
        let small = needs("s", 2, 500, 60);
        let jobs: Vec<_> = (0..6).map(|i| job(&format!("j{i}"), &small, &[])).collect();
        let single = Options { single_allocation: true, ..Options::default() };
        let planned = plan(&jobs, &profile(false), &single).expect("fits");
        assert_eq!((planned[0].scheduler.nodes, planned[0].allocations[0]), (3, 1));
        assert!(planned[0].start_one_worker_per_node);
        let wide = Requirements { num_nodes: 2, ..small };
        let planned =
            plan(&[job("w", &wide, &[])], &profile(false), &Options::default()).expect("fits");
        assert_eq!((planned[0].scheduler.nodes, planned[0].jobs_at_once), (2, 1));
    }

    #[test]
    fn a_shared_node_is_asked_for_what_is_needed() {
        let small = needs("s", 1, 500, 10);
        let planned =
            plan(&[job("a", &small, &[])], &profile(true), &Options::default()).expect("fits");
        assert_eq!(planned[0].scheduler.ntasks_per_node, Some(1));
        assert_eq!(planned[0].scheduler.mem.as_deref(), Some("756m"));
    }

    #[test]
    fn what_fits_nowhere_is_named() {
        let errors =
            plan(&[job("a", &needs("huge", 64, 1, 1), &[])], &profile(true), &Options::default())
                .unwrap_err();
        assert!(errors[0].contains("64 CPUs, a node has 4"), "{errors:?}");
    }

    #[test]
    fn a_long_chain_does_not_overflow() {
        let small = needs("s", 1, 100, 10);
        let jobs: Vec<_> = (0..20_000usize)
            .rev()
            .map(|i| job("x", &small, &if i == 0 { vec![] } else { vec![20_000 - i] }))
            .collect();
        assert_eq!(scheduler_groups(&jobs).iter().map(|g| g.levels.len()).sum::<usize>(), 20_000);
    }
}
