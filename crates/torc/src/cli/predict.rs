//! `torc predict`: when a workflow will be over, with the machines that are there or with others.

use super::Context;
use super::references::{self, LATEST};
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::card::Card;
use std::path::Path;
use torc_model::forecast::{ForecastView, Machines};
use torc_model::units::Memory;
use torc_model::words::{count, duration};
use torc_spec::Source;

/// Tell when a workflow will be over, here or on other machines
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc predict                              the latest workflow, with the runners that are there
  torc predict sweep --cores 64 --nodes 4   the same on four nodes of 64 CPUs
  torc predict sweep --recover              with everything that failed tried again now
  torc predict sweep.yaml --cores 16        a file that was not submitted, by its `runtime`s
  torc -f json predict 3                    for a program

The answer comes from the scheduler itself, which runs the rest of the workflow in simulated time with what it knows of
each job: its own earlier attempts, its family, a third of its `runtime`. A workflow that is complete is predicted anew
from its first job.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`; or a spec file
    #[arg(default_value = LATEST)]
    workflow: String,

    /// CPUs of each node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    cores: Option<i64>,

    /// Nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    nodes: Option<i64>,

    /// Memory of each node, such as `64g` [default: as much as the jobs want]
    #[arg(long, value_name = "SIZE", value_parser = Memory::parse)]
    memory: Option<Memory>,

    /// GPUs of each node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    gpus: Option<i64>,

    /// With everything that failed tried again now
    #[arg(long)]
    recover: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let assumed = Machines {
            nodes: self.nodes,
            cores: self.cores,
            memory_bytes: self.memory.map(|m| i64::try_from(m.0).unwrap_or(i64::MAX)),
            gpus: self.gpus,
        };
        let file = Path::new(&self.workflow);
        if file.is_file() {
            if self.recover {
                return Err(Error::usage(
                    "`--recover` is for a workflow; nothing of a file has failed",
                ));
            }
            let wrong = |errors: torc_spec::Diagnostics| Error::Spec {
                rendered: errors.render(console::colors_enabled_stderr()),
            };
            let source = Source::read(file).map_err(wrong)?;
            let parsed = torc_spec::parse(&source).map_err(wrong)?;
            let (plan, _) = parsed.spec.plan().map_err(wrong)?;
            let forecast = torc_server::store::forecast_plan(&plan, &assumed);
            context.output.value(&forecast, |forecast| render(&plan.name, forecast))?;
            return Ok(Exit::Success);
        }
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let forecast = client.forecast(workflow.id, &assumed, self.recover).await?;
            context.output.value(&forecast, |forecast| render(&workflow.name, forecast))?;
            Ok(Exit::Success)
        })
    }
}

fn render(name: &str, forecast: &ForecastView) -> String {
    let mut card = Card::new(match forecast.workflow_id {
        Some(id) => format!("{name} (workflow {id})"),
        None => name.to_owned(),
    });
    let about = match forecast.is_again {
        true => format!("{}, all once more", count(forecast.jobs, "job")),
        false => format!("{} to go", count(forecast.jobs, "job")),
    };
    card.line("jobs", about);
    card.line(
        "machines",
        format!("{}, {}", count(forecast.nodes, "node"), count(forecast.cpus, "CPU")),
    );
    if forecast.unknown_jobs == forecast.jobs && forecast.jobs > 0 {
        card.line("end", forecast.text());
        return card.render();
    }
    card.line(
        "end",
        format!(
            "in about {} (8 of 10 times {} to {})",
            duration(forecast.seconds),
            duration(forecast.low_seconds),
            duration(forecast.high_seconds)
        ),
    );
    card.line("limited by", forecast.limited_by.text());
    card.line(
        "bound",
        format!("cannot be faster than {} with these CPUs", duration(forecast.bound_seconds)),
    );
    if forecast.unknown_jobs > 0 {
        let jobs = count(forecast.unknown_jobs, "job");
        card.line("unknown", format!("nothing is known of the time of {jobs}"));
    }
    if forecast.stuck_jobs > 0 {
        let jobs = count(forecast.stuck_jobs, "job");
        card.line(
            "stuck",
            format!("{jobs} would not run: too large for these machines, or waiting for you"),
        );
    }
    card.render()
}
