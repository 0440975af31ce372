//! `torc check`: validates a spec and shows what it would do. Needs no server and writes nothing.

use super::Context;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::Format;
use serde_json::json;
use std::path::PathBuf;
use torc_model::forecast::{ForecastView, Machines};
use torc_spec::{Diagnostics, LargestNode, Severity, Site, Source};

/// Check a spec and show what it would do, without touching anything
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc check sweep.yaml                     mistakes, warnings, stages and the critical path
  torc check sweep.yaml --format dot | dot -Tpng > sweep.png
  torc check - --format json < sweep.kdl    the same for programs

Formats: table, json, dot, mermaid, svg. Exit code 2 if the spec is wrong.")]
pub struct Args {
    /// Spec file (`-`: standard input)
    spec: PathBuf,

    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let output = context.output;
        let wrong = |errors: &Diagnostics| -> Result<Exit> {
            if output.is_json() {
                output.json(&json!({ "valid": false, "errors": errors, "warnings": [] }))?;
                return Ok(Exit::Usage);
            }
            Err(Error::Spec { rendered: errors.render(console::colors_enabled_stderr()) })
        };
        super::spec::refuse_toml(&self.spec)?;
        let parsed = match Source::read(&self.spec).and_then(|source| torc_spec::parse(&source)) {
            Ok(parsed) => parsed,
            Err(errors) => return wrong(&errors),
        };
        let dir = std::env::current_dir().ok();
        let site = Site { machine: Some(machine()), dir: dir.as_deref() };
        let checked = match parsed.spec.check(site) {
            Ok(checked) => checked,
            Err(errors) => return wrong(&errors),
        };
        let mut warnings = parsed.warnings;
        warnings.extend(checked.warnings);
        let failed = self.strict && warnings.count(Severity::Warning) > 0;
        if !output.is_json() && !warnings.is_empty() {
            output.talk(warnings.render(console::colors_enabled_stderr()).trim_end());
        }
        let analysis = &checked.analysis;
        let forecast = forecast(&parsed.spec);
        match output.format {
            Format::Json => {
                output.json(&json!({ "valid": !failed, "errors": [], "warnings": warnings, "plan": analysis, "forecast": forecast }))?;
            }
            Format::Table | Format::Csv => {
                output.data(&analysis.to_text())?;
                if let Some(forecast) = forecast {
                    output.data(&format!("end: {} here", forecast.text()))?;
                }
            }
            Format::Dot => output.data(&analysis.graph.to_dot())?,
            Format::Mermaid => output.data(&analysis.graph.to_mermaid())?,
            Format::Svg => output.data(&analysis.graph.to_svg())?,
        }
        Ok(if failed { Exit::Usage } else { Exit::Success })
    }
}

/// When it would be over on this machine, where something is known of the jobs' times.
fn forecast(spec: &torc_spec::Spec) -> Option<ForecastView> {
    let (plan, _) = spec.plan().ok()?;
    let (capacity, _) = torc_runner::detect_capacity();
    let assumed = Machines {
        nodes: Some(1),
        cores: Some(capacity.num_cpus),
        memory_bytes: Some(capacity.memory_bytes),
        gpus: Some(capacity.num_gpus),
    };
    let forecast = torc_server::store::forecast_plan(&plan, &assumed);
    (forecast.unknown_jobs < forecast.jobs).then_some(forecast)
}

/// What a runner would share out here.
fn machine() -> LargestNode {
    let (capacity, _) = torc_runner::detect_capacity();
    LargestNode {
        num_cpus: u32::try_from(capacity.num_cpus).unwrap_or(u32::MAX),
        memory_bytes: u64::try_from(capacity.memory_bytes).unwrap_or_default(),
        num_gpus: u32::try_from(capacity.num_gpus).ok(),
    }
}
