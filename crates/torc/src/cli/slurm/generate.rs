//! `torc slurm generate`: schedulers and actions for a spec that has none.

use super::plan::{PlanOptions, PlanView, of_spec, plan_of, render};
use crate::cli::{Context, block_on, spec};
use crate::error::{Error, Result};
use crate::exit::Exit;
use serde_json::Value;
use std::path::PathBuf;
use torc_model::slurm::generate::add_to_spec;
use torc_spec::{Spec, SpecFormat};

/// Add Slurm schedulers and actions to a spec, from what its jobs need
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc slurm generate sweep.yaml --account abc --dry-run              what it would ask for, and why
  torc slurm generate sweep.yaml --account abc -o sweep_slurm.yaml    then `torc submit sweep_slurm.yaml`
  torc slurm generate sweep.yaml --account abc --profile kestrel      for another cluster than this one")]
pub struct Args {
    /// Spec file (`-`: standard input)
    spec: PathBuf,

    #[command(flatten)]
    plan: PlanOptions,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Add schedulers only, no actions that ask for nodes
    #[arg(long)]
    no_actions: bool,

    /// Replace the schedulers and `schedule_nodes` actions that the spec has
    #[arg(long)]
    overwrite: bool,

    /// Only show what would be asked for
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let mut value = spec::load(context, &self.spec)?.value();
        prepare(&mut value, self.overwrite)?;
        let account =
            self.plan.account.clone().or_else(|| account_of(&value)).ok_or_else(|| {
                Error::usage_hint("no account was named", "name the one that pays with `--account`")
            })?;
        let plan = plan_of(value.clone())?;
        let profile = block_on(self.plan.profile())?;
        let (planned, names) = of_spec(&plan, &profile, &self.plan.options(account, "_scheduler"))?;
        if self.dry_run {
            context.output.value(&PlanView::new(&planned, &names), render)?;
            return Ok(Exit::Success);
        }
        add_to_spec(&mut value, &planned, &names, !self.no_actions).map_err(Error::usage)?;
        let wrong = |errors: torc_spec::Diagnostics| Error::Spec { rendered: errors.render(false) };
        let parsed = Spec::from_value(value).map_err(wrong)?;
        let by_name = self.output.as_deref().or(Some(&self.spec)).and_then(SpecFormat::from_path);
        let text = parsed.spec.write(by_name.unwrap_or(SpecFormat::Yaml));
        match &self.output {
            Some(file) => {
                std::fs::write(file, text).map_err(Error::io("write", file))?;
                let view = PlanView::new(&planned, &names);
                context.output.value(&view, render)?;
                context.output.talk(format_args!("wrote `{}`", file.display()));
            }
            None => context.output.data(&text)?,
        }
        Ok(Exit::Success)
    }
}

fn account_of(spec: &Value) -> Option<String> {
    spec["slurm_defaults"]["account"].as_str().map(str::to_owned)
}

/// Makes room for what will be added. The user's other actions stay.
fn prepare(spec: &mut Value, overwrite: bool) -> Result<()> {
    let Some(map) = spec.as_object_mut() else { return Ok(()) };
    let asks = |action: &Value| action["action_type"] == "schedule_nodes";
    let has_schedulers =
        map.get("slurm_schedulers").and_then(Value::as_array).is_some_and(|s| !s.is_empty());
    let has_actions =
        map.get("actions").and_then(Value::as_array).is_some_and(|a| a.iter().any(asks));
    if (has_schedulers || has_actions) && !overwrite {
        return Err(Error::usage_hint(
            "the spec has Slurm schedulers or `schedule_nodes` actions of its own",
            "`torc submit` can use it as it is; `--overwrite` replaces them",
        ));
    }
    map.remove("slurm_schedulers");
    if let Some(actions) = map.get_mut("actions").and_then(Value::as_array_mut) {
        actions.retain(|action| !asks(action));
    }
    for job in map.get_mut("jobs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(job) = job.as_object_mut() {
            job.remove("scheduler");
        }
    }
    Ok(())
}
