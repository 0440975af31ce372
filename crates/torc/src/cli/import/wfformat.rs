//! A workflow of WfCommons as a spec: its tasks with their dependencies, files, needs and commands.

use super::{Made, Out, literal, quoted};
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// What `torc import wfformat` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The file
    file: PathBuf,

    /// Let tasks sleep for the time that they took instead of running their commands
    #[arg(long)]
    sleep: bool,

    #[command(flatten)]
    pub(super) out: Out,
}

impl Args {
    /// The spec.
    pub(super) fn make(&self) -> Result<Made> {
        let text = std::fs::read_to_string(&self.file).map_err(Error::io("read", &self.file))?;
        let name = self.file.display();
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Error::usage(format!("`{name}` is not JSON: {error}")))?;
        self.spec(&value).map_err(|why| Error::usage(format!("`{name}`: {why}")))
    }

    fn spec(&self, value: &Value) -> std::result::Result<Made, String> {
        let specification = &value["workflow"]["specification"];
        let tasks = specification["tasks"].as_array();
        let tasks = tasks
            .ok_or("it has no `workflow.specification.tasks`: it is no WfFormat 1.4 or 1.5")?;
        let mut done: HashMap<&str, &Value> = HashMap::new();
        for task in value["workflow"]["execution"]["tasks"].as_array().into_iter().flatten() {
            done.extend(task["id"].as_str().map(|id| (id, task)));
        }
        let mut needs: BTreeMap<String, Value> = BTreeMap::new();
        let mut used: BTreeSet<&str> = BTreeSet::new();
        let mut jobs = Vec::new();
        let mut silent = 0;
        for task in tasks {
            let id = task["id"].as_str().or(task["name"].as_str()).ok_or("a task has no `id`")?;
            let execution = done.get(id).copied().unwrap_or(&Value::Null);
            let mut job = Map::new();
            job.insert("name".into(), json!(literal(id)));
            let command = if self.sleep { None } else { command(execution) };
            silent += i64::from(command.is_none() && !self.sleep);
            let seconds = execution["runtimeInSeconds"].as_f64().unwrap_or(0.0);
            job.insert(
                "command".into(),
                json!(command.unwrap_or_else(|| format!("sleep {seconds}"))),
            );
            for (from, to) in [
                ("parents", "depends_on"),
                ("inputFiles", "input_files"),
                ("outputFiles", "output_files"),
            ] {
                let list: Vec<&str> =
                    task[from].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                if from != "parents" {
                    used.extend(&list);
                }
                if !list.is_empty() {
                    job.insert(to.into(), json!(list));
                }
            }
            let wanted = requirements(execution);
            if !wanted.is_empty() {
                let key = json!(wanted).to_string();
                let next = needs.len() + 1;
                let entry = needs.entry(key).or_insert_with(|| {
                    let mut entry =
                        Map::from_iter([("name".to_owned(), json!(format!("needs_{next}")))]);
                    entry.extend(wanted);
                    Value::Object(entry)
                });
                job.insert("resource_requirements".into(), entry["name"].clone());
            }
            jobs.push(Value::Object(job));
        }
        let mut spec = json!({"name": value["name"].as_str().unwrap_or("workflow")});
        if let Some(text) = value["description"].as_str().filter(|text| !text.is_empty()) {
            spec["description"] = json!(text);
        }
        if !used.is_empty() {
            let files = used.iter().map(|file| json!({"name": file, "path": file}));
            spec["files"] = files.collect();
        }
        if !needs.is_empty() {
            spec["resource_requirements"] = needs.into_values().collect();
        }
        spec["jobs"] = Value::Array(jobs);
        let notes = (silent > 0).then(|| {
            format!("{silent} tasks have no command and sleep for the time that they took")
        });
        Ok(Made { spec, notes: notes.into_iter().collect() })
    }
}

/// The command of a task. One that Torc wrote is given back as it was.
fn command(execution: &Value) -> Option<String> {
    let program = execution["command"]["program"].as_str()?;
    let arguments: Vec<&str> = execution["command"]["arguments"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if let ("/bin/sh", ["-c", text]) = (program, arguments.as_slice()) {
        return Some(literal(text));
    }
    let words = std::iter::once(program).chain(arguments).map(quoted);
    Some(literal(&words.collect::<Vec<_>>().join(" ")))
}

fn requirements(execution: &Value) -> Map<String, Value> {
    let mut needs = Map::new();
    if let Some(cores) = execution["coreCount"].as_f64().filter(|cores| *cores > 1.0) {
        needs.insert("num_cpus".into(), json!(cores.ceil() as i64));
    }
    if let Some(bytes) = execution["memoryInBytes"].as_i64().filter(|bytes| *bytes > 0) {
        // Steps of a power of two, so that like tasks share their requirements.
        let mb = (bytes as u64).div_ceil(1 << 20).next_power_of_two().max(64);
        needs.insert("memory".into(), json!(format!("{mb}m")));
    }
    needs
}
