//! A workflow's spec as its jobs stand now: with what people and recovery have changed since it was created.

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use torc_model::api::JobView;
use torc_model::recovery::AdjustmentView;

/// Writes what was changed of these jobs into the spec. Answers those whose changes it can not say, because many jobs
/// come from one entry with parameters.
pub fn apply(spec: &mut Value, changed: &[JobView], adjustments: &[AdjustmentView]) -> Vec<String> {
    let mut requirements: Vec<Value> = spec["resource_requirements"].as_array().cloned().unwrap_or_default();
    let known = requirements.len();
    let entries = spec.get_mut("jobs").and_then(Value::as_array_mut);
    let mut entries: HashMap<String, &mut Map<String, Value>> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some((entry["name"].as_str()?.to_owned(), entry.as_object_mut()?)))
        .collect();
    let mut left_out = Vec::new();
    for job in changed {
        let Some(entry) = entries.get_mut(&job.name) else {
            left_out.push(job.name.clone());
            continue;
        };
        if entry.get("priority").and_then(Value::as_i64).unwrap_or_default() != job.priority {
            entry.insert("priority".into(), json!(job.priority));
        }
        let own = || adjustments.iter().filter(|adjustment| adjustment.job_id == job.id).map(|a| &a.change);
        if let Some(timeout) = own().rfind(|change| change.field == "timeout") {
            entry.insert("timeout".into(), json!(timeout.written(timeout.to)));
        }
        if own().any(|change| change.field != "timeout") {
            entry.insert("resource_requirements".into(), json!(requirement(&mut requirements, job)));
        }
    }
    if requirements.len() > known {
        spec["resource_requirements"] = Value::Array(requirements);
    }
    left_out
}

/// The name of a requirement that says what the job needs now: one that is there, or a new one beside its old one.
fn requirement(requirements: &mut Vec<Value>, job: &JobView) -> String {
    let old = job.resource_requirements.as_deref();
    let name_of = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let base = requirements.iter().find(|entry| old.is_some_and(|old| name_of(entry) == old));
    let mut wanted = base.and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for (key, value) in [("memory", &job.memory), ("runtime", &job.runtime)] {
        if let Some(value) = value {
            wanted.insert(key.into(), json!(value));
        }
    }
    let is_same = |entry: &Value| {
        let rest = |map: &Map<String, Value>| map.iter().filter(|(key, _)| *key != "name").count();
        entry.as_object().is_some_and(|entry| {
            rest(entry) == rest(&wanted)
                && wanted.iter().all(|(key, value)| key == "name" || entry.get(key) == Some(value))
        })
    };
    if let Some(same) = requirements.iter().find(|entry| is_same(entry)) {
        return name_of(same);
    }
    let stem = old.unwrap_or(&job.name);
    let is_free = |name: &String| requirements.iter().all(|entry| name_of(entry) != *name);
    let name = (2..).map(|number| format!("{stem}_{number}")).find(is_free).unwrap_or_default();
    wanted.insert("name".into(), json!(name));
    requirements.push(Value::Object(wanted));
    name
}
