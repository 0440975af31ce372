//! Exports of Torc 1.0.0: rows of its tables, tied by ids. They become a spec, tied by names, and a past.

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use torc_model::api::Past;
use torc_model::status::JobStatus;

type ReadResult<T> = std::result::Result<T, String>;

/// Keys of a workflow that a spec has under the same name.
const SAME: [&str; 13] = [
    "name",
    "description",
    "project",
    "metadata",
    "env",
    "use_pending_failed",
    "enable_ro_crate",
    "slurm_defaults",
    "execution_config",
    "dynamic_jobs",
    "compute_node_wait_for_new_jobs_seconds",
    "compute_node_ignore_workflow_completion",
    "compute_node_wait_for_healthy_database_minutes",
];

/// The spec and the past of an export.
pub fn read(export: &Value) -> ReadResult<(Value, Past)> {
    let version = export["export_version"].as_str().unwrap_or_default();
    if !version.starts_with("1.") {
        return Err(format!("it is an export of version `{version}`; versions 1.x are read"));
    }
    let names = Names::new(export);
    let workflow = export["workflow"].as_object().ok_or("it has no `workflow`")?;
    let mut spec: Map<String, Value> = said(workflow, &SAME);
    if let Some(monitor) = workflow.get("resource_monitor_config").filter(|value| !value.is_null())
    {
        spec.insert("resource_monitor".into(), monitor.clone());
    }
    for (key, keys) in [
        ("files", &["name", "path"][..]),
        ("user_data", &["name", "data", "is_ephemeral"]),
        (
            "resource_requirements",
            &["name", "num_cpus", "num_gpus", "num_nodes", "memory", "runtime"],
        ),
        (
            "slurm_schedulers",
            &[
                "name",
                "account",
                "gres",
                "mem",
                "nodes",
                "ntasks_per_node",
                "partition",
                "qos",
                "tmp",
                "walltime",
                "extra",
                "serialize_allocations",
            ],
        ),
    ] {
        let entries = rows(export, key).map(|row| Value::Object(said(row, keys))).collect();
        put(&mut spec, key, entries);
    }
    let mut handlers = Vec::new();
    for row in rows(export, "failure_handlers") {
        let rules: Value = serde_json::from_str(row["rules"].as_str().unwrap_or("[]"))
            .map_err(|error| format!("rules of a failure handler: {error}"))?;
        handlers.push(json!({"name": row["name"], "rules": rules}));
    }
    put(&mut spec, "failure_handlers", handlers);
    let jobs = rows(export, "jobs").map(|row| names.job(row)).collect::<ReadResult<Vec<_>>>()?;
    put(&mut spec, "jobs", jobs);
    put(
        &mut spec,
        "actions",
        rows(export, "workflow_actions").filter_map(|row| names.action(row)).collect(),
    );
    Ok((Value::Object(spec), past(export)?))
}

fn rows<'a>(export: &'a Value, key: &str) -> impl Iterator<Item = &'a Map<String, Value>> {
    export[key].as_array().into_iter().flatten().filter_map(Value::as_object)
}

fn put(spec: &mut Map<String, Value>, key: &str, entries: Vec<Value>) {
    if !entries.is_empty() {
        spec.insert(key.to_owned(), Value::Array(entries));
    }
}

/// What a row says under these keys; nulls say nothing.
fn said(row: &Map<String, Value>, keys: &[&str]) -> Map<String, Value> {
    let told = keys.iter().filter_map(|key| Some(((*key).to_owned(), row.get(*key)?.clone())));
    told.filter(|(_, value)| !value.is_null()).collect()
}

/// Names by the ids of the other server.
struct Names {
    by_table: HashMap<&'static str, HashMap<i64, String>>,
}

impl Names {
    fn new(export: &Value) -> Self {
        let tables = [
            "files",
            "user_data",
            "resource_requirements",
            "slurm_schedulers",
            "failure_handlers",
            "jobs",
        ];
        let of = |table: &str| -> HashMap<i64, String> {
            rows(export, table)
                .filter_map(|row| {
                    Some((row.get("id")?.as_i64()?, row.get("name")?.as_str()?.to_owned()))
                })
                .collect()
        };
        Self { by_table: tables.into_iter().map(|table| (table, of(table))).collect() }
    }

    fn name(&self, table: &str, id: &Value) -> Option<&str> {
        self.by_table.get(table)?.get(&id.as_i64()?).map(String::as_str)
    }

    fn job(&self, row: &Map<String, Value>) -> ReadResult<Value> {
        let mut job = said(
            row,
            &[
                "name",
                "command",
                "invocation_script",
                "env",
                "cancel_on_blocking_job_failure",
                "priority",
                "labels",
            ],
        );
        for (from, to, table) in [
            ("depends_on_job_ids", "depends_on", "jobs"),
            ("input_file_ids", "input_files", "files"),
            ("output_file_ids", "output_files", "files"),
            ("input_user_data_ids", "input_user_data", "user_data"),
            ("output_user_data_ids", "output_user_data", "user_data"),
        ] {
            let mut list = Vec::new();
            for id in row.get(from).and_then(Value::as_array).into_iter().flatten() {
                let name = self.name(table, id);
                list.push(json!(
                    name.ok_or_else(|| format!("`{from}` names {id}, which is not there"))?
                ));
            }
            if !list.is_empty() {
                job.insert(to.to_owned(), Value::Array(list));
            }
        }
        for (from, to, table) in [
            ("resource_requirements_id", "resource_requirements", "resource_requirements"),
            ("failure_handler_id", "failure_handler", "failure_handlers"),
            ("scheduler_id", "scheduler", "slurm_schedulers"),
        ] {
            if let Some(name) = row.get(from).and_then(|id| self.name(table, id)) {
                job.insert(to.to_owned(), json!(name));
            }
        }
        Ok(Value::Object(job))
    }

    /// Actions of a recovery are not part of the spec.
    fn action(&self, row: &Map<String, Value>) -> Option<Value> {
        if row.get("is_recovery") == Some(&json!(true)) {
            return None;
        }
        let mut action = said(row, &["trigger_type", "action_type", "persistent"]);
        let mut config = row.get("action_config")?.clone();
        if let Value::String(text) = &config {
            config = serde_json::from_str(text).ok()?;
        }
        for (key, value) in config.as_object()? {
            match key.as_str() {
                "scheduler_id" => {
                    action.insert("scheduler".into(), json!(self.name("slurm_schedulers", value)?));
                }
                _ if value.is_null() => {}
                key => _ = action.insert(key.to_owned(), value.clone()),
            }
        }
        let jobs = row.get("job_ids").and_then(Value::as_array).into_iter().flatten();
        let jobs: Vec<Value> =
            jobs.filter_map(|id| self.name("jobs", id)).map(|name| json!(name)).collect();
        if !jobs.is_empty() {
            action.insert("jobs".into(), Value::Array(jobs));
        }
        Some(Value::Object(action))
    }
}

/// Words and numbers are the same; the case may be another.
fn status(value: &Value) -> JobStatus {
    let by_word = |text: &str| {
        let word = text.chars().enumerate().fold(String::new(), |mut word, (at, c)| {
            if c.is_ascii_uppercase() && at > 0 && !word.ends_with('_') {
                word.push('_');
            }
            word.push(c.to_ascii_lowercase());
            word
        });
        JobStatus::parse(&word)
    };
    let by_code = || value.as_i64().and_then(JobStatus::from_code);
    value.as_str().and_then(by_word).or_else(by_code).unwrap_or(JobStatus::Uninitialized)
}

fn past(export: &Value) -> ReadResult<Past> {
    let results: Vec<&Map<String, Value>> = rows(export, "results").collect();
    let run = export["workflow"]["run_id"].as_i64().unwrap_or(0);
    let mut names = HashMap::new();
    let mut jobs = Vec::new();
    for row in rows(export, "jobs") {
        let (id, name) = (row["id"].as_i64().unwrap_or_default(), row["name"].clone());
        // Without its results it has not ended here.
        let has_result = results.iter().any(|result| result["job_id"] == row["id"]);
        let was = row.get("status").map_or(JobStatus::Uninitialized, status);
        let is_kept = has_result || was == JobStatus::Disabled || was == JobStatus::Canceled;
        let is = if is_kept { was } else { JobStatus::Uninitialized };
        names.insert(id, name.clone());
        jobs.push(json!({
            "id": id, "workflow_id": 0, "name": name, "command": "", "status": is.as_str(),
            "attempt_id": row.get("attempt_id").and_then(Value::as_i64).unwrap_or(1),
            "priority": row.get("priority").and_then(Value::as_i64).unwrap_or(0),
            "num_cpus": 1, "num_gpus": 0, "num_nodes": 1,
            "cancel_on_blocking_job_failure": true, "held": false,
        }));
    }
    let mut attempts = Vec::new();
    for (at, result) in results.iter().enumerate() {
        attempts.push(attempt(at as i64 + 1, result, &names)?);
    }
    let past = json!({
        "run_id": if attempts.is_empty() { 0 } else { run.max(1) },
        "is_canceled": export["workflow"]["is_canceled"] == true,
        "jobs": jobs, "attempts": attempts,
        "user_data": [], "events": [], "classifications": [], "adjustments": [], "runners": [],
    });
    torc_model::json::from_plain(&past).map_err(|error| format!("its results: {error}"))
}

fn attempt(id: i64, result: &Map<String, Value>, names: &HashMap<i64, Value>) -> ReadResult<Value> {
    let job = result["job_id"].as_i64().unwrap_or_default();
    let ended = result.get("completion_time").and_then(Value::as_str).unwrap_or_default();
    let ended: jiff::Timestamp =
        ended.parse().map_err(|error| format!("the time `{ended}` of a result: {error}"))?;
    let seconds = result.get("exec_time_minutes").and_then(Value::as_f64).unwrap_or(0.0) * 60.0;
    let ended = ended.as_millisecond();
    let began = ended - (seconds * 1000.0) as i64;
    let code = result["return_code"].as_i64();
    let state = match result.get("status").map(status) {
        Some(JobStatus::Completed) => "completed",
        Some(JobStatus::Canceled) => "canceled",
        Some(JobStatus::Terminated) => "terminated",
        _ if code == Some(0) => "completed",
        _ => "failed",
    };
    let number = result.get("attempt_id").and_then(Value::as_i64).unwrap_or(1);
    Ok(json!({
        "id": id, "workflow_id": 0, "job_id": job, "job_name": names.get(&job),
        "run_id": result["run_id"], "attempt_id": number, "state": state, "origin": "initial",
        "created_ms": began, "claimed_ms": began, "started_ms": began, "ended_ms": ended,
        "ended_by": "runner", "return_code": code, "exec_seconds": seconds, "evidence": [],
        "cause": (state == "failed").then_some("exit"),
        "peak_memory_bytes": result.get("peak_memory_bytes"),
        "peak_cpu_percent": result.get("peak_cpu_percent"),
    }))
}
