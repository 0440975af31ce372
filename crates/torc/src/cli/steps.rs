//! `torc steps`: tries a step's handler out as if the step had failed, without a workflow.

use super::{Context, job_steps};
use crate::error::{Error, Result};
use crate::exit::Exit;
use clap::Subcommand;
use std::path::PathBuf;
use std::time::Duration;
use torc_model::api::AttemptPacket;
use torc_model::ids::{AttemptId, JobId};
use torc_model::steps::{Action, Report, Step, Tree};
use torc_runner::{LocalRun, run_locally};
use torc_spec::Source;

/// Try a handler of a spec out, without a workflow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc steps test spec.yaml --step build --exit-code 3
  torc steps test spec.yaml --step \"Type check\" --message 'error TS2304' --item '\"src/a.ts\"'")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the handler of one step as if the step had failed
    Test(TestArgs),
}

#[derive(clap::Args, Debug)]
struct TestArgs {
    /// Spec file
    spec: PathBuf,

    /// Step: its name, or its path such as `steps[2]`
    #[arg(long)]
    step: String,

    /// Job that has the step (default: the first one that has)
    #[arg(long)]
    job: Option<String>,

    /// Exit code that the step fails with
    #[arg(long, default_value_t = 1)]
    exit_code: i64,

    /// What the step prints as its error
    #[arg(long, default_value = "")]
    message: String,

    /// Item, as JSON, for a job with `map`
    #[arg(long)]
    item: Option<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::Test(args) => args.execute(context),
        }
    }
}

impl TestArgs {
    fn execute(self, context: &Context) -> Result<Exit> {
        let wrong = |errors: torc_spec::Diagnostics| Error::Spec {
            rendered: errors.render(console::colors_enabled_stderr()),
        };
        let parsed =
            Source::read(&self.spec).and_then(|source| torc_spec::parse(&source)).map_err(wrong)?;
        let (plan, _) = parsed.spec.plan().map_err(wrong)?;
        let mut found = None;
        let mut known = Vec::new();
        for job in
            plan.jobs.iter().filter(|job| self.job.as_ref().is_none_or(|name| job.name == *name))
        {
            let Some(tree) = job.steps.clone().and_then(|steps| Tree::from_value(steps).ok())
            else {
                continue;
            };
            for (word, steps) in tree.parts() {
                find(steps, word, &mut |path, step| {
                    known.push(step.name.clone().unwrap_or_else(|| path.to_owned()));
                    if found.is_none()
                        && (step.name.as_deref() == Some(&self.step) || path == self.step)
                    {
                        found = Some((job.name.clone(), tree.clone(), step.clone()));
                    }
                });
            }
        }
        let Some((job, tree, step)) = found else {
            let hint = format!("steps: {}", known.join(", "));
            return Err(Error::usage_hint(format!("there is no step `{}`", self.step), hint));
        };
        if step.on_failure.is_none() {
            return Err(Error::usage(format!("step `{}` has no `on_failure`", self.step)));
        }
        let item = self.item.as_deref().map(serde_json::from_str).transpose();
        let item = item.map_err(|error| Error::usage(format!("`--item` is not JSON: {error}")))?;
        let failing = Step {
            name: step.name.clone(),
            // The message goes through the environment, as everything does.
            action: Action::Shell(format!(
                "printf '%s\\n' \"$TORC_TEST_MESSAGE\" >&2; exit {}",
                self.exit_code
            )),
            env: [("TORC_TEST_MESSAGE".to_owned(), self.message.replace("${", "$${"))].into(),
            ..Step::default()
        };
        // Only the first try is made up: whether the handler helps, the step itself tells. It is
        // not tried again before.
        let step = Step { retry: None, when: None, ..step };
        let tree =
            Tree { steps: vec![step], on_failure: None, on_success: Vec::new(), item, ..tree };
        let here = std::env::current_dir().map_err(Error::io("use", "the current directory"))?;
        let output_dir =
            std::env::temp_dir().join(format!("torc-steps-test-{}", std::process::id()));
        let packet = packet(&job, tree);
        let local = LocalRun {
            packet,
            workflow_name: plan.name,
            working_dir: here,
            output_dir: output_dir.clone(),
            grace: Duration::from_secs(10),
            first_try: Some(failing),
        };
        let report = run_locally(local).map_err(Error::io("run", "the handler"))?;
        let steps: Report = report
            .steps
            .as_ref()
            .and_then(|steps| torc_model::json::from_plain(steps).ok())
            .unwrap_or_default();
        context.output.value(&steps, |steps| job_steps::render(&job, 1, steps))?;
        if report.return_code == 0 {
            // Only a failure is worth looking at. What cannot be removed is the system's to tidy.
            let _ = std::fs::remove_dir_all(&output_dir);
            return Ok(Exit::Success);
        }
        context.output.talk(format_args!("logs are in {}", output_dir.join("job_stdio").display()));
        Ok(Exit::JobsFailed)
    }
}

fn find(steps: &[Step], prefix: &str, see: &mut dyn FnMut(&str, &Step)) {
    for (index, step) in steps.iter().enumerate() {
        let path = format!("{prefix}[{index}]");
        see(&path, step);
        for (word, inner) in step.parts() {
            find(inner, &format!("{path}.{word}"), see);
        }
    }
}

fn packet(job: &str, tree: Tree) -> AttemptPacket {
    AttemptPacket {
        id: AttemptId(1),
        token: String::new(),
        job_id: JobId(0),
        job_name: job.into(),
        run_id: 1,
        attempt_id: 1,
        command: String::new(),
        invocation_script: None,
        steps: Some(tree.to_value()),
        env: Default::default(),
        num_cpus: 1,
        num_gpus: 0,
        num_nodes: 1,
        memory_bytes: None,
        time_limit_seconds: None,
        is_limited_by_runtime: false,
        stdio: None,
        output_files: Vec::new(),
        lists: Vec::new(),
        strictness: Default::default(),
        recovery: None,
    }
}
