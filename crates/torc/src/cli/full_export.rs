//! `torc workflows export --full` and `torc workflows import`: a workflow with its past as one file, from
//! one server to another. Reads exports of Torc 1.0.0 as well.

use super::Context;
use super::record::Record;
use super::session::Access;
use super::upstream_export;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{escape, human};
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use torc_client::Client;
use torc_model::api::{ImportWorkflow, Past, WorkflowCreated, WorkflowView};

/// The version of the file.
const VERSION: i64 = 1;
/// What tells our files from others.
const MARK: &str = "torc_export";

/// Create a workflow with its past from an export
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc workflows export sweep --full -o sweep.torc.json
  torc --url http://other:8080 workflows import sweep.torc.json
Ids are given anew. What had not ended when it was exported runs again with `torc run`.")]
pub struct Import {
    /// File of `torc workflows export --full`, or an export of Torc 1.0.0; `-` for standard input
    file: PathBuf,

    /// Another name
    #[arg(short, long, alias = "workflow-name")]
    name: Option<String>,

    /// Directory in which its jobs start and its paths begin [default: this one]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Only the spec: nothing has happened to it yet
    #[arg(long, alias = "skip-results")]
    without_past: bool,
}

/// The whole workflow as one JSON value.
pub async fn full(client: &Client, workflow: WorkflowView) -> Result<Value> {
    let status = client.workflow_status(workflow.id).await?;
    let record = Record::fetch(client, workflow).await?;
    let mut whole = serde_json::Map::new();
    whole.insert(MARK.into(), json!(VERSION));
    whole.insert("exported_ms".into(), json!(human::now_ms()));
    whole.insert("run_started_ms".into(), json!(status.started_ms));
    let record = crate::output::plain(&record);
    if let Value::Object(record) = record {
        whole.extend(record);
    }
    Ok(Value::Object(whole))
}

impl Import {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let text = read(&self.file)?;
        let name = self.file.display();
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Error::usage(format!("`{name}` is not JSON: {error}")))?;
        let (mut spec, past) = if value.get(MARK).is_some() {
            ours(&value).map_err(|why| Error::usage(format!("`{name}`: {why}")))?
        } else if value.get("export_version").is_some() {
            upstream_export::read(&value).map_err(|why| Error::usage(format!("`{name}`: {why}")))?
        } else {
            return Err(Error::usage_hint(
                format!("`{name}` is no export of a workflow"),
                "`torc workflows export --full -o FILE` writes one; `torc create FILE` makes a workflow of a spec",
            ));
        };
        if let Some(name) = &self.name {
            spec["name"] = json!(name);
        }
        let parsed = torc_spec::Spec::from_value(spec.clone());
        if let Err(errors) = parsed.and_then(|parsed| parsed.spec.plan()) {
            return Err(Error::Spec { rendered: errors.render(false) });
        }
        let directory = match &self.directory {
            Some(directory) => std::fs::canonicalize(directory),
            None => std::env::current_dir(),
        };
        let directory = directory.map_err(Error::io("find", "the directory of the workflow"))?;
        let request = ImportWorkflow {
            spec,
            user: Some(super::person::name()),
            directory: directory.to_str().map(str::to_owned),
            key: None,
            past: if self.without_past { Past::default() } else { past },
        };
        context.with_server(Access::Create, async |client| {
            let created: WorkflowCreated = client.post("/workflows/import", &request).await?;
            for warning in &created.warnings {
                context.output.warn(escape::line(warning));
            }
            let mut shown = json!(created);
            shown["workflow_id"] = json!(created.id);
            shown["attempts"] = json!(request.past.attempts.len());
            shown["events"] = json!(request.past.events.len());
            context.output.value(&shown, |_| super::create::describe(&created))?;
            context.output.talk(format_args!(
                "{} and {} came with it",
                human::count(request.past.attempts.len() as i64, "attempt"),
                human::count(request.past.events.len() as i64, "event")
            ));
            Ok(Exit::Success)
        })
    }
}

fn read(file: &Path) -> Result<String> {
    let mut text = String::new();
    if file.as_os_str() == "-" {
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(Error::io("read", "standard input"))?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(Error::io("read", file))
}

/// Our own file: its spec, and its past.
fn ours(value: &Value) -> std::result::Result<(Value, Past), String> {
    let version = value[MARK].as_i64();
    if version != Some(VERSION) {
        return Err(format!(
            "it is an export of version {}; this program reads version {VERSION}",
            value[MARK]
        ));
    }
    let list = |key: &str| value.get(key).cloned().unwrap_or_else(|| json!([]));
    let past = json!({
        "run_id": value["workflow"]["run_id"],
        "run_started_ms": value["run_started_ms"],
        "is_canceled": value["workflow"]["is_canceled"],
        "jobs": list("jobs"),
        "attempts": list("attempts"),
        "events": list("events"),
        "user_data": list("user_data"),
        "classifications": list("classifications"),
        "adjustments": list("adjustments"),
        "runners": list("runners"),
    });
    let past = torc_model::json::from_plain(&past).map_err(|error| format!("its past: {error}"))?;
    let spec = value.get("spec").cloned().ok_or("it has no `spec`")?;
    Ok((spec, past))
}
