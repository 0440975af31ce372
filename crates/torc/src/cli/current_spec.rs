//! A workflow's spec as its jobs stand now: with what people and recovery have changed since it was
//! created.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use torc_model::api::{EventView, JobView};
use torc_model::ids::JobId;
use torc_model::recovery::AdjustmentView;

/// The keys of a job that says itself what it needs; an entry of `resource_requirements` cannot stand beside
/// them.
const OWN_NEEDS: [&str; 4] = ["cpus", "gpus", "memory", "time"];

/// What was changed of a job since it was created.
#[derive(Default)]
struct Changed {
    name: String,
    timeout: bool,
    needs: bool,
}

/// What was changed in a workflow.
pub struct Changes {
    /// Those of which the spec has an entry of their own.
    jobs: BTreeMap<JobId, Changed>,
    /// Names of the others: many jobs come from one entry with parameters, which cannot say it.
    pub left_out: BTreeSet<String>,
}

impl Changes {
    /// From what recovery has raised and what people have changed by hand.
    pub fn new(spec: &Value, adjustments: &[AdjustmentView], events: &[EventView]) -> Self {
        let mut jobs: BTreeMap<JobId, Changed> = BTreeMap::new();
        for AdjustmentView { job_id, job_name, change, .. } in adjustments {
            let job = jobs.entry(*job_id).or_default();
            job.name.clone_from(job_name);
            match change.field.as_str() {
                "timeout" => job.timeout = true,
                _ => job.needs = true,
            }
        }
        for event in events {
            if let (Some(id), Some(name)) = (event.job_id, &event.job_name) {
                jobs.entry(id).or_default().name.clone_from(name);
            }
        }
        let entries = spec["jobs"].as_array().into_iter().flatten();
        let names: BTreeSet<&str> = entries.filter_map(|entry| entry["name"].as_str()).collect();
        let (jobs, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            jobs.into_iter().partition(|(_, job)| names.contains(job.name.as_str()));
        Self { jobs, left_out: others.into_values().map(|job| job.name).collect() }
    }

    /// The jobs that [`Changes::apply`] needs to know.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.keys().copied()
    }

    /// Writes how these jobs stand now into the spec.
    pub fn apply(&self, spec: &mut Value, jobs: &[JobView]) {
        let mut requirements = SpecRequirements::new(spec["resource_requirements"].as_array());
        let entries = spec.get_mut("jobs").and_then(Value::as_array_mut);
        let mut entries: HashMap<String, &mut Map<String, Value>> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((entry["name"].as_str()?.to_owned(), entry.as_object_mut()?)))
            .collect();
        for job in jobs {
            let (Some(entry), Some(changed)) = (entries.get_mut(&job.name), self.jobs.get(&job.id))
            else {
                continue;
            };
            if entry.get("priority").and_then(Value::as_i64).unwrap_or_default() != job.priority {
                entry.insert("priority".into(), json!(job.priority));
            }
            // An edited spec may have taken it back since.
            if changed.timeout {
                match job
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.get("timeout"))
                    .filter(|timeout| !timeout.is_null())
                {
                    Some(timeout) => _ = entry.insert("timeout".into(), timeout.clone()),
                    None => _ = entry.remove("timeout"),
                }
            }
            if changed.needs && OWN_NEEDS.iter().any(|key| entry.contains_key(*key)) {
                write_needs(entry, OWN_NEEDS, job);
            } else if changed.needs {
                entry.insert("resource_requirements".into(), json!(requirements.of(job)));
            }
        }
        if let Some(all) = requirements.changed() {
            spec["resource_requirements"] = Value::Array(all);
        }
    }
}

/// The requirements of a spec, and those that are needed beside them.
struct SpecRequirements {
    all: Vec<Value>,
    known: usize,
    names: BTreeMap<String, usize>,
    /// By what they ask for, written without the name.
    same: HashMap<String, String>,
    /// The last number given beside a name.
    last: HashMap<String, usize>,
}

impl SpecRequirements {
    fn new(known: Option<&Vec<Value>>) -> Self {
        let mut requirements = Self {
            all: Vec::new(),
            known: 0,
            names: BTreeMap::new(),
            same: HashMap::new(),
            last: HashMap::new(),
        };
        known.into_iter().flatten().for_each(|entry| requirements.add(entry.clone()));
        requirements.known = requirements.all.len();
        requirements
    }

    fn add(&mut self, entry: Value) {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        self.same.entry(without_name(&entry)).or_insert_with(|| name.clone());
        self.names.insert(name, self.all.len());
        self.all.push(entry);
    }

    /// The name of one that says what the job needs now: one that is there, or a new one beside its
    /// old one.
    fn of(&mut self, job: &JobView) -> String {
        let old = job.resource_requirements.as_deref();
        let base =
            old.and_then(|old| self.names.get(old)).and_then(|index| self.all[*index].as_object());
        let mut wanted = base.cloned().unwrap_or_else(|| {
            // Its name was made of variables, or it has none.
            let counts = [
                ("num_cpus", job.num_cpus, 1),
                ("num_gpus", job.num_gpus, 0),
                ("num_nodes", job.num_nodes, 1),
            ];
            let said = counts.into_iter().filter(|(_, count, usual)| count != usual);
            said.map(|(key, count, _)| (key.to_owned(), json!(count))).collect()
        });
        write_needs(&mut wanted, ["num_cpus", "num_gpus", "memory", "runtime"], job);
        let mut wanted = Value::Object(wanted);
        if let Some(same) = self.same.get(&without_name(&wanted)) {
            return same.clone();
        }
        let stem = old.unwrap_or(&job.name);
        let last = self.last.entry(stem.to_owned()).or_insert(1);
        let name = loop {
            *last += 1;
            let name = format!("{stem}_{last}");
            if !self.names.contains_key(&name) {
                break name;
            }
        };
        wanted["name"] = json!(name);
        self.add(wanted);
        name
    }

    /// All of them, if there are new ones.
    fn changed(self) -> Option<Vec<Value>> {
        (self.all.len() > self.known).then_some(self.all)
    }
}

/// Writes what a job needs now under these keys.
fn write_needs(
    entry: &mut Map<String, Value>,
    [cpus, gpus, memory, runtime]: [&str; 4],
    job: &JobView,
) {
    for (key, count, usual) in [(cpus, job.num_cpus, 1), (gpus, job.num_gpus, 0)] {
        if entry.get(key).map_or(usual, |said| said.as_i64().unwrap_or(count)) != count {
            entry.insert(key.into(), json!(count));
        }
    }
    for (key, value) in [(memory, &job.memory), (runtime, &job.runtime)] {
        if let Some(value) = value {
            entry.insert(key.into(), json!(value));
        }
    }
}

/// Text that is the same for entries that differ by their name only.
fn without_name(entry: &Value) -> String {
    let fields: BTreeMap<&String, &Value> =
        entry.as_object().into_iter().flatten().filter(|(key, _)| *key != "name").collect();
    json!(fields).to_string()
}
