//! Workflows to schedule: traces of real executions in WfFormat, and ones that are made here.

use crate::Result;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use torc_model::api::Capacity;
use torc_model::chance::Rng;
use torc_model::class::Class;

/// A job to schedule.
#[derive(Clone, Debug)]
pub struct TraceTask {
    /// The program it calls.
    pub family: u32,
    /// What it really takes.
    pub ms: u32,
    /// What it waits for, by index.
    pub parents: Vec<u32>,
    /// What it needs.
    pub class: Class,
}

/// A workflow to schedule.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its file, or what was made.
    pub name: String,
    /// Its jobs; parents may come later in the list.
    pub tasks: Vec<TraceTask>,
}

fn one_cpu() -> Class {
    Class { cpus: 1, nodes: 1, ..Class::default() }
}

impl Instance {
    /// How many families there are.
    pub fn families(&self) -> usize {
        self.tasks.iter().map(|task| task.family as usize + 1).max().unwrap_or(0)
    }

    /// The jobs that wait for each job.
    pub fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.tasks.len()];
        for (index, task) in self.tasks.iter().enumerate() {
            for parent in &task.parents {
                children[*parent as usize].push(index as u32);
            }
        }
        children
    }

    /// The same with CPUs and memory drawn for each family.
    pub fn with_needs(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut pick = |list: &[u64]| list[rng.below(list.len() as u64) as usize];
        let needs: Vec<(u32, u64)> = (0..self.families())
            .map(|_| (pick(&[1, 1, 1, 2, 4, 8, 16]) as u32, pick(&[1, 1, 2, 4, 8, 16, 32]) << 30))
            .collect();
        let mut other = self.clone();
        for task in &mut other.tasks {
            let (cpus, memory) = needs[task.family as usize];
            task.class = Class { cpus, memory: Some(memory), ..one_cpu() };
        }
        other
    }

    /// The same, in which no job needs more than a node has.
    pub fn cut_to(&self, node: &Capacity) -> Self {
        let cpus = u32::try_from(node.num_cpus).unwrap_or(u32::MAX);
        let memory = u64::try_from(node.memory_bytes).unwrap_or(0);
        let mut other = self.clone();
        for task in &mut other.tasks {
            task.class.cpus = task.class.cpus.min(cpus);
            task.class.memory = task.class.memory.map(|need| need.min(memory));
        }
        other
    }

    /// The same with a third of its families on one GPU each.
    pub fn with_gpus(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let gpus: Vec<bool> = (0..self.families()).map(|_| rng.below(3) == 0).collect();
        let mut other = self.clone();
        for task in &mut other.tasks {
            if gpus[task.family as usize] {
                task.class = Class { cpus: 2, gpus: 1, ..one_cpu() };
            }
        }
        other
    }
}

/// All traces of a directory with at least `least` jobs, in the order of their names.
pub fn read(directory: &Path, least: usize) -> Result<Vec<Instance>> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .map_err(|e| {
            format!(
                "{}: {e}\nhint: `scripts/sched-instances DIR` fetches them",
                directory.display()
            )
        })?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    let mut instances = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let json: Value =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        let name = file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        match parse(name, &json) {
            Some(instance) if instance.tasks.len() >= least => instances.push(instance),
            Some(_) => {}
            None => return Err(format!("{} is not in WfFormat 1.5", file.display()).into()),
        }
    }
    Ok(instances)
}

fn parse(name: String, json: &Value) -> Option<Instance> {
    let flow = &json["workflow"];
    let tasks = flow["specification"]["tasks"].as_array()?;
    let runs: HashMap<&str, &Value> = flow["execution"]["tasks"]
        .as_array()?
        .iter()
        .filter_map(|run| Some((run["id"].as_str()?, run)))
        .collect();
    let places: HashMap<&str, u32> = tasks
        .iter()
        .enumerate()
        .filter_map(|(index, task)| Some((task["id"].as_str()?, index as u32)))
        .collect();
    let mut families: HashMap<String, u32> = HashMap::new();
    let mut read = Vec::with_capacity(tasks.len());
    for task in tasks {
        let next = families.len() as u32;
        let run = runs.get(task["id"].as_str()?).copied().unwrap_or(&Value::Null);
        let program = match run["command"]["program"].as_str() {
            Some(program) if is_word(program) => program,
            _ => without_number(task["name"].as_str()?),
        };
        let family = *families.entry(program.to_owned()).or_insert(next);
        let seconds = run["runtimeInSeconds"].as_f64().unwrap_or(0.0);
        let mut parents: Vec<u32> = task["parents"]
            .as_array()?
            .iter()
            .filter_map(|parent| places.get(parent.as_str()?).copied())
            .collect();
        parents.sort_unstable();
        parents.dedup();
        let ms = (seconds * 1000.0).round().clamp(1.0, 2e9) as u32;
        read.push(TraceTask { family, ms, parents, class: one_cpu() });
    }
    Some(Instance { name, tasks: read })
}

/// The name of a program: an entry of a spec calls one. Some traces have whole scripts there.
fn is_word(program: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    program.starts_with(|c: char| c.is_ascii_alphabetic()) && program.chars().all(is_part)
}

/// The name without the number of the call.
fn without_number(name: &str) -> &str {
    let end = name.trim_end_matches(|c: char| c.is_ascii_digit());
    end.strip_suffix("ID").unwrap_or(end).trim_end_matches(['_', '-', '.'])
}

/// Shapes that traces do not have, each with its own difficulty.
pub fn made() -> Vec<Instance> {
    let mut rng = Rng::new(7);
    let mut time = |mean: u64| 1 + (rng.below(mean * 1000) + rng.below(mean * 1000)) as u32;
    let mut all = Vec::new();
    let mut add = |name: &str, tasks: Vec<TraceTask>| {
        all.push(Instance { name: name.into(), tasks });
    };
    let task = |family, ms, parents: Vec<u32>, cpus| TraceTask {
        family,
        ms,
        parents,
        class: Class { cpus, ..one_cpu() },
    };
    let mut chains: Vec<TraceTask> = (0..400).map(|_| task(0, time(20), Vec::new(), 1)).collect();
    chains.extend((0..400u32).map(|i| {
        let parents = if i % 20 == 0 { Vec::new() } else { vec![400 + i - 1] };
        task(1, time(30), parents, 1)
    }));
    add("chains: 20 chains of 20 beside 400 short jobs", chains);
    add(
        "fan: one job, 500 after it, one after those",
        std::iter::once(task(0, 5000, Vec::new(), 1))
            .chain((0..500).map(|_| task(1, time(20), vec![0], 1)))
            .chain([task(2, 5000, (1..=500).collect(), 1)])
            .collect(),
    );
    add(
        "layers: 20 layers of 40, each job after three of the last layer",
        (0..800u32)
            .map(|i| {
                let before = (i / 40).checked_sub(1);
                let parents = before.map_or_else(Vec::new, |l| {
                    (0..3).map(|k| l * 40 + (i * 7 + k * 13) % 40).collect()
                });
                task(i / 40, time(20), parents, 1)
            })
            .collect(),
    );
    add(
        "in-tree: 1,023 jobs that come together",
        (0..1023u32)
            .map(|i| {
                let parents = [2 * i + 1, 2 * i + 2].into_iter().filter(|p| *p < 1023).collect();
                task((i + 1).ilog2(), time(20), parents, 1)
            })
            .collect(),
    );
    let mut diamonds = Vec::new();
    for number in 0..60u32 {
        let first = number * 13;
        let before = if number == 0 { Vec::new() } else { ((first - 12)..first).collect() };
        diamonds.push(task(0, time(5), before, 1));
        diamonds.extend((0..12).map(|_| task(1, time(20), vec![first], 1)));
    }
    add("diamonds: 60 in a row, each 12 wide", diamonds);
    add(
        "mixture: 40 jobs of 8 CPUs among 800 of one",
        (0..840u32)
            .map(|i| {
                let is_wide = i % 21 == 20;
                let (family, cpus) = if is_wide { (1, 8) } else { (0, 1) };
                task(family, time(if is_wide { 60 } else { 20 }), Vec::new(), cpus)
            })
            .collect(),
    );
    all
}

/// So many jobs in layers of a thousand, each after two of the layer before.
pub fn large(jobs: u32) -> Instance {
    let mut rng = Rng::new(11);
    let tasks = (0..jobs)
        .map(|i| {
            let parents = match i.checked_sub(1000) {
                Some(before) => {
                    let layer = before / 1000 * 1000;
                    let mut parents = vec![layer + i % 1000, layer + (i * 7 + 3) % 1000];
                    parents.sort_unstable();
                    parents.dedup();
                    parents
                }
                None => Vec::new(),
            };
            let cpus = [1, 1, 1, 2, 4][(i % 5) as usize];
            let ms = 1000 + rng.below(60_000) as u32;
            TraceTask { family: i % 5, ms, parents, class: Class { cpus, ..one_cpu() } }
        })
        .collect();
    Instance { name: format!("{jobs} jobs in layers"), tasks }
}
