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

/// Which jobs share allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupBy {
    /// Jobs with the same needs.
    #[default]
    Requirement,
    /// All jobs of a partition.
    Partition,
}

/// How to plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Which jobs share allocations.
    pub group_by: GroupBy,
    /// Ask for exactly this many seconds.
    pub walltime_seconds: Option<u64>,
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
            group_by: GroupBy::Requirement,
            walltime_seconds: None,
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
    /// How long its longest jobs take.
    pub runtime_seconds: u64,
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
    let mut placed: Vec<(Group, &Partition)> = Vec::new();
    for group in scheduler_groups(jobs) {
        match place(&group.requirements, profile, options) {
            Ok(partition) => placed.push((group, partition)),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if options.group_by == GroupBy::Partition {
        placed = merged(jobs, placed);
    }
    for (group, partition) in placed {
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
        planned.push(plan_group(jobs, group, name, partition, options));
    }
    Ok(planned)
}

fn runtime_of(needs: &Requirements) -> u64 {
    needs.runtime.map_or(UNKNOWN_RUNTIME_SECONDS, |r| r.0.max(1))
}

/// Where jobs with these needs run.
fn place<'a>(
    needs: &Requirements,
    profile: &'a Profile,
    options: &Options,
) -> Result<&'a Partition, String> {
    let mut runtime = runtime_of(needs);
    if let Some(walltime) = options.walltime_seconds {
        let room = walltime.saturating_sub(SPARE_SECONDS);
        if needs.runtime.is_some() && runtime > room {
            return Err(format!(
                "`{}` takes {}: a walltime of {} with {SPARE_SECONDS} s to spare is too short",
                needs.name,
                clock(runtime),
                clock(walltime)
            ));
        }
        // The partition has to allow the walltime.
        runtime = room;
    }
    let Some(name) = &options.partition else { return profile.choose(needs, runtime) };
    let found = profile.find(name).ok_or_else(|| {
        let known: Vec<&str> = profile.partitions.iter().map(|p| p.name.as_str()).collect();
        format!(
            "partition `{name}` not found in profile `{}` (known: {})",
            profile.name,
            known.join(", ")
        )
    })?;
    match found.lacking(needs, runtime) {
        Some(lack) => Err(format!("partition `{name}` cannot run `{}`: {lack}", needs.name)),
        None => Ok(found),
    }
}

/// Groups of one partition become one, unless their jobs span nodes. What is asked for is the most
/// of each need.
fn merged<'a>(
    jobs: &[PendingJob],
    placed: Vec<(Group, &'a Partition)>,
) -> Vec<(Group, &'a Partition)> {
    let mut result: Vec<(Group, &Partition)> = Vec::new();
    for (group, partition) in placed {
        let fits = |(other, place): &&mut (Group, &Partition)| {
            place.name == partition.name
                && other.has_dependencies == group.has_dependencies
                && other.requirements.num_nodes <= 1
                && group.requirements.num_nodes <= 1
        };
        match result.iter_mut().find(fits) {
            None => {
                let mut group = group;
                if group.requirements.num_nodes <= 1 {
                    group.requirements.name.clone_from(&partition.name);
                }
                result.push((group, partition));
            }
            Some((other, _)) => {
                let mut members: Vec<usize> = other.jobs().chain(group.jobs()).collect();
                members.sort_unstable();
                other.levels = levels(jobs, &members);
                let (all, more) = (&mut other.requirements, &group.requirements);
                all.num_cpus = all.num_cpus.max(more.num_cpus);
                all.num_gpus = all.num_gpus.max(more.num_gpus);
                all.memory = all.memory.max(more.memory);
                // What does not say how long it takes is planned with the usual guess.
                let longest = runtime_of(all).max(runtime_of(more));
                all.runtime = Some(crate::units::Runtime(longest));
            }
        }
    }
    result
}

fn plan_group(
    jobs: &[PendingJob],
    group: Group,
    name: String,
    partition: &Partition,
    options: &Options,
) -> Planned {
    let needs = &group.requirements;
    let mut why = Vec::new();
    let runtime = runtime_of(needs);
    let walltime = walltime(runtime, partition, options);
    let rounds = |runtime: u64| -> u32 {
        let rounds = walltime.saturating_sub(SPARE_SECONDS) / runtime;
        u32::try_from(rounds).unwrap_or(u32::MAX).max(1)
    };
    for kind in kinds(jobs, group.jobs()) {
        let needs = kind.0;
        if needs.runtime.is_none() {
            why.push(format!(
                "`{}` does not say how long its jobs take; planned with {}",
                needs.name,
                clock(runtime_of(needs))
            ));
        }
        why.push(format!(
            "partition `{}`: {} of {} fit on a node ({}, {} MB{}), {} in {}",
            partition.name,
            jobs_per_node(needs, partition),
            if options.group_by == GroupBy::Partition {
                format!("the jobs of `{}`", needs.name)
            } else {
                "these jobs".to_owned()
            },
            words::count(partition.cpus_per_node, "CPU"),
            partition.memory_mb,
            if partition.gpus_per_node > 0 {
                format!(", {}", words::count(partition.gpus_per_node, "GPU"))
            } else {
                String::new()
            },
            words::count(rounds(runtime_of(needs)), "round"),
            clock(walltime),
        ));
    }
    let per_node = jobs_per_node(needs, partition);
    let node_jobs = if needs.num_nodes > 1 { 1 } else { per_node };
    let share = |level: &Vec<usize>| -> f64 {
        let of_kind = |(needs, count): (&Requirements, usize)| {
            let at_once = if needs.num_nodes > 1 { 1 } else { jobs_per_node(needs, partition) };
            count as f64 / (f64::from(at_once) * f64::from(rounds(runtime_of(needs))))
        };
        kinds(jobs, level.iter().copied()).into_iter().map(of_kind).sum()
    };
    let mut allocations: Vec<u32> =
        group.levels.iter().map(|level| count(share(level), options)).collect();
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
    Planned {
        scheduler,
        has_dependencies: group.has_dependencies,
        allocations,
        start_one_worker_per_node: one_worker_per_node,
        walltime_seconds: walltime,
        jobs_at_once: node_jobs,
        rounds: rounds(runtime),
        runtime_seconds: runtime,
        levels: group.levels,
        why,
    }
}

/// The different needs of these jobs, and how many have each, in the order in which they appear.
fn kinds(jobs: &[PendingJob], members: impl Iterator<Item = usize>) -> Vec<(&Requirements, usize)> {
    let mut index: HashMap<&Requirements, usize> = HashMap::new();
    let mut kinds: Vec<(&Requirements, usize)> = Vec::new();
    for member in members {
        let needs = &jobs[member].requirements;
        let place = *index.entry(needs).or_insert_with(|| {
            kinds.push((needs, 0));
            kinds.len() - 1
        });
        kinds[place].1 += 1;
    }
    kinds
}

/// Slurm counts whole minutes; the runner needs time to start and to end.
fn walltime(runtime: u64, partition: &Partition, options: &Options) -> u64 {
    if let Some(named) = options.walltime_seconds {
        return named;
    }
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

/// Whole allocations for what fills `share` of them.
fn count(share: f64, options: &Options) -> u32 {
    // A sum of fractions may be a little more than it should be.
    let wanted = ((share - 1e-9).ceil() as u32).max(1);
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
mod tests;
