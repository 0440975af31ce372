//! Schedulers and actions for a spec that has none.

use super::groups::Planned;
use crate::status::Trigger;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Adds what was planned to a spec: `slurm_schedulers`, `schedule_nodes` actions and the jobs'
/// `scheduler`. `names` are the expanded jobs that the plan's indexes speak of. What the user wrote
/// otherwise stays.
pub fn add_to_spec(
    spec: &mut Value,
    planned: &[Planned],
    names: &[String],
    with_actions: bool,
) -> Result<(), String> {
    let Some(spec) = spec.as_object_mut() else { return Err("the spec is not a map".into()) };
    assign(spec, planned, names);
    for group in planned {
        list(spec, "slurm_schedulers")?.push(scheduler(group));
    }
    if with_actions {
        for group in planned {
            for (level, allocations) in group.allocations.iter().enumerate() {
                let action = action(group, level, *allocations, names);
                list(spec, "actions")?.push(action);
            }
        }
    }
    Ok(())
}

fn list<'a>(spec: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Vec<Value>, String> {
    let value = spec.entry(key).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or_else(|| format!("`{key}` is not a list"))
}

fn scheduler(group: &Planned) -> Value {
    let mut value = json!(group.scheduler);
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, v| !v.is_null() && *v != Value::Bool(false));
    }
    value
}

fn action(group: &Planned, level: usize, allocations: u32, names: &[String]) -> Value {
    let mut action = json!({
        "trigger_type": if group.has_dependencies { Trigger::OnJobsReady } else { Trigger::OnWorkflowStart },
        "action_type": "schedule_nodes",
        "scheduler": group.scheduler.name,
        "scheduler_type": "slurm",
        "num_allocations": allocations,
    });
    if group.has_dependencies {
        let jobs: Vec<_> = group.levels[level].iter().filter_map(|i| names.get(*i)).collect();
        action["jobs"] = json!(jobs);
    }
    if group.start_one_worker_per_node {
        action["start_one_worker_per_node"] = json!(true);
    }
    action
}

/// Names the scheduler on each job of the file whose expansions all belong to one group.
fn assign(spec: &mut Map<String, Value>, planned: &[Planned], names: &[String]) {
    let mut of_name: BTreeMap<&str, &str> = BTreeMap::new();
    for group in planned {
        for index in group.levels.iter().flatten() {
            if let Some(name) = names.get(*index) {
                of_name.insert(name, &group.scheduler.name);
            }
        }
    }
    let Some(jobs) = spec.get_mut("jobs").and_then(Value::as_array_mut) else { return };
    let templates: Vec<NameTemplate> =
        jobs.iter().map(|job| NameTemplate::new(job["name"].as_str().unwrap_or(""))).collect();
    let mut wanted: Vec<Vec<&str>> = vec![Vec::new(); jobs.len()];
    for (name, scheduler) in &of_name {
        let matching = templates.iter().enumerate().filter(|(_, t)| t.matches(name));
        if let Some((job, _)) = matching.max_by_key(|(_, t)| t.literal) {
            wanted[job].push(scheduler);
        }
    }
    for (job, wanted) in jobs.iter_mut().zip(wanted) {
        let one = wanted.first().filter(|first| wanted.iter().all(|w| w == *first));
        if let (Some(scheduler), Some(job)) = (one, job.as_object_mut()) {
            job.insert("scheduler".into(), json!(scheduler));
        }
    }
}

/// A job's name before its parameters are filled in.
struct NameTemplate {
    pattern: Option<Regex>,
    literal: usize,
}

impl NameTemplate {
    fn new(name: &str) -> Self {
        let mut pattern = String::from("^");
        let mut literal = 0;
        let mut rest = name;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((_, after)) = after.split_once('}') else { break };
            pattern += &regex::escape(before);
            pattern += ".+";
            literal += before.len();
            rest = after;
        }
        pattern += &regex::escape(rest);
        pattern.push('$');
        Self { pattern: Regex::new(&pattern).ok(), literal: literal + rest.len() }
    }

    fn matches(&self, name: &str) -> bool {
        self.pattern.as_ref().is_some_and(|p| p.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::groups::{Options, PendingJob, plan};
    use super::super::profile::Profile;
    use super::*;
    use crate::plan::Requirements;
    use crate::units::Runtime;

    #[test]
    fn a_spec_gets_schedulers_actions_and_assignments() {
        let needs = Requirements {
            name: "small".into(),
            runtime: Some(Runtime(600)),
            ..Requirements::default()
        };
        let names: Vec<String> = ["a_1", "a_x_1", "post"].iter().map(|s| (*s).to_owned()).collect();
        let jobs: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| PendingJob {
                name: name.clone(),
                requirements: needs.clone(),
                depends_on: if i == 2 { vec![0, 1] } else { vec![] },
            })
            .collect();
        let options = Options { account: "acct".into(), ..Options::default() };
        let planned = plan(&jobs, &Profile::built_in()[0], &options).expect("fits");
        let mut spec = json!({"name": "w", "jobs": [{"name": "a_{i}"}, {"name": "a_x_{i}"}, {"name": "post"}],
            "actions": [{"trigger_type": "on_workflow_complete", "action_type": "run_commands", "commands": ["true"]}]});
        add_to_spec(&mut spec, &planned, &names, true).expect("a map");
        assert_eq!(spec["jobs"][0]["scheduler"], "small_scheduler");
        assert_eq!(spec["jobs"][1]["scheduler"], "small_scheduler");
        assert_eq!(spec["jobs"][2]["scheduler"], "small_deferred_scheduler");
        assert_eq!(
            spec["actions"].as_array().map(Vec::len),
            Some(3),
            "the user's own action stays"
        );
        assert_eq!(spec["actions"][1]["trigger_type"], "on_workflow_start");
        assert_eq!(spec["actions"][2]["jobs"], json!(["post"]));
        assert_eq!(spec["slurm_schedulers"][0]["partition"], "short");
    }
}
