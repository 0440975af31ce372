//! `--detach`: the same run in a process of its own, which outlives the terminal.

use super::runner_options::RunnerOptions;
use super::{Context, run};
use crate::error::{Error, Result};
use crate::exit::Exit;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use torc_model::api::WorkflowView;

/// Starts `torc run ID` in the background and says where its words go.
pub fn run_in_background(
    context: &Context,
    workflow: &WorkflowView,
    options: &RunnerOptions,
) -> Result<Exit> {
    // What would stop the run at once is said here, not in its log.
    options.working_dir(workflow)?;
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    let output = options.output_dir.clone().unwrap_or_else(|| here.join("output"));
    std::fs::create_dir_all(&output).map_err(Error::io("make", &output))?;
    let log = output.join(format!("torc_run_wf{}.log", workflow.id));
    let file = torc_fs::append_log(&log).map_err(Error::io("write", &log))?;
    let copy = file.try_clone().map_err(Error::io("write", &log))?;
    let program = std::env::current_exe().map_err(Error::io("find", "the program"))?;
    let mut command = Command::new(program);
    command
        .args(context.locator.to_args())
        .arg("run")
        .arg(workflow.id.to_string())
        .args(options.to_args());
    // A group of its own, so that the terminal's Ctrl-C does not reach it.
    let child = command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0).spawn();
    let child = child.map_err(Error::io("start", "the program in the background"))?;
    if context.output.is_json() {
        context
            .output
            .json(&json!({ "workflow_id": workflow.id, "pid": child.id(), "log": log }))?;
    } else {
        let (title, pid) = (run::title(workflow), child.id());
        context.output.talk(format_args!(
            "{title} runs in the background as process {pid}; log: {}",
            log.display()
        ));
    }
    Ok(Exit::Success)
}
